-- Locks: `LockSlot` of throttle-core. KEYS[1] says who holds the lock, as `1:<owner>:<number>`, and lives as long as it is
-- held. KEYS[2] is the last number that a lock of its slot was given. ARGV: what to do, the owner in hexadecimal, the time
-- to live in ms. A reply of no bytes says that the value is not readable.
--
-- A number is the time in µs, or one more than the last one: whole, and below 2^53, which Lua counts exactly. Who has lost
-- the last number, with a primary or to an eviction, so goes on above it.

local call = redis.pcall
local operation, owner, ttl = ARGV[1], ARGV[2], ARGV[3]

local function is_error(reply)
  return type(reply) == 'table' and reply.err
end

local value = call('GET', KEYS[1])
if is_error(value) then
  return value
end
local holder, number
if value then
  holder, number = string.match(value, '^1:(%x+):(%d+)$')
  if not holder then
    return ''
  end
end

if operation == 'release' then
  return holder == owner and call('DEL', KEYS[1]) or 0
elseif operation == 'extend' then
  return holder == owner and call('PEXPIRE', KEYS[1], ttl) or 0
elseif holder == owner then
  local extended = call('PEXPIRE', KEYS[1], ttl)
  return is_error(extended) and extended or { 1, tonumber(number) }
elseif holder then
  return { 0, call('PTTL', KEYS[1]) }
end

local last = call('GET', KEYS[2])
if is_error(last) then
  return last
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local next_number = math.max((tonumber(last or 0) or 0) + 1, now)
local text = string.format('%.0f', next_number)
for _, set in ipairs({ { 'SET', KEYS[2], text }, { 'SET', KEYS[1], '1:' .. owner .. ':' .. text, 'PX', ttl } }) do
  local done = call(unpack(set))
  if done.err then
    return done
  end
end
return { 1, next_number }
