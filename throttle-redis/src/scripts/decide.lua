-- Decides the action ARGV[i] on KEYS[i], in order. Requests of one bucket, on the state of one, take the short way if
-- all of them fit or none does: it answers as the long way would, and is written out because making a function costs
-- more than what it does.
--
-- A state is stored until a full second of the server's clock, a second or more after it is as good as new. For states
-- in a row that is mostly the same second: then the time to live stays as it is, which takes a third less time.

local pack, unpack, call, min, max = struct.pack, struct.unpack, redis.pcall, math.min, math.max
local server_time, decide, replies

for i = 1, #KEYS do
  local key, action, reply = KEYS[i], ARGV[i], nil
  -- What is to be stored, when it is as good as new, and when the stored value would be, if that is known.
  local stored, ends, ended
  local value = call('GET', key)
  local short = #action == 40 and (not value or #value == 19)
  local own, p, each, each_rest, room, room_rest, times = unpack(short and '>I8I4I8I4I8I4I4' or '>I8', action)
  if own == 0 and not server_time then
    local time = call('TIME')
    server_time = time[1] * 1000000 + time[2]
  end
  local now = own > 0 and own - 1 or server_time

  if short then
    local head, tat, tat_rest, tat_p = 65793, 0, 0, p -- 65793: version 1, one rule, tag 1
    if value then
      head, tat, tat_rest, tat_p = unpack('>I3I8I4I4', value)
    end
    if head == 65793 and tat < 9007199254740992 and tat_rest < tat_p then
      local debt, rest = 0, 0
      if value and tat >= now then
        debt, rest = tat - now, tat_rest
        if rest > 0 and tat_p ~= p then
          debt, rest = debt + 1, 0
        end
      end
      local with_one = debt + each
      debt, rest = debt + times * each, rest + times * each_rest
      if rest >= p then
        local ticks = rest % p
        debt, rest = debt + (rest - ticks) / p, ticks
      end
      if debt < room or debt == room and rest <= room_rest then
        reply = pack('>I4I8c0', times, now, value or '')
        stored = pack('>I3I8I4I4', 65793, now + debt, rest, p)
        ends, ended = now + debt, value and tat
        if rest > 0 then
          ends = ends + 1
        end
      elseif times == 1 or with_one > room then
        reply = pack('>I4I8c0', 0, now, value or '')
      end
    end
  end

  if not reply then
    if type(value) == 'table' then
      reply = value
    else
      decide = decide or any_rules()
      reply, stored, ends = decide(value, action, now)
    end
  end

  if stored then
    -- EXPIRY_MARGIN, and up to the next full second. `ended` may be a fraction of a microsecond early, never late.
    ends = min(ends, 4503599627370495)
    local till = ends + 1999999
    till = till - till % 1000000
    local done
    if ended and own == 0 and ended + 1999999 >= till then
      done = call('SET', key, stored, 'KEEPTTL')
    else
      if not server_time then
        local time = call('TIME')
        server_time = time[1] * 1000000 + time[2]
      end
      local lasts = max(till - server_time, 1000000)
      if own > 0 then
        -- EXPIRY_MARGIN_OWN_TIME; and what is of a day ahead at most stays until then, for calls at the server's time.
        lasts = max(min(lasts, 86400000000), max(ends - now, 0) + 60000000)
      end
      lasts = lasts + 999
      done = call('PSETEX', key, (lasts - lasts % 1000) / 1000, stored)
    end
    if done.err then
      reply = done
    end
  end
  if #KEYS == 1 then
    return reply
  end
  replies = replies or {}
  replies[i] = reply
end
return replies
