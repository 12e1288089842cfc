-- Any rules on any state: `kernel::decide` of throttle-core, number for number. Stored values are the bytes of its
-- `kernel/codec.rs`; actions and replies are packed as `script.rs` says.
--
-- Every number is a whole one below 2^53, which Lua counts exactly, and none becomes text on its way. A span of a
-- bucket is two numbers: microseconds, and a rest in ticks of 1/p µs. A reply of no bytes says that the value is not
-- readable.
--
-- This file and those it is joined with, up to `any_rules.lua`, are the body of one function, so that a script which
-- goes the short way makes no other.

local function any_rules()
local pack, unpack, byte, char, sub = struct.pack, struct.unpack, string.byte, string.char, string.sub
local concat, floor, min, max = table.concat, math.floor, math.min, math.max
local CONSUME, PEEK, REFUND = 0, 1, 2
local TOO_LARGE = 9007199254740992 -- no stored number reaches 2^53

-- By tag. `rule` and `state` read from bytes at a position and return the next one, `state` nothing if it is not
-- readable; `see` finds what the state means now; `room` says how many requests fit; `charge` and `refund` move what
-- was seen; `store` gives its bytes, and when it expires.
local kernels = {}

local function requests_in(room, cost, times)
  return cost == 0 and times or min(times, floor(max(0, room) / cost))
end
