-- Decides the action ARGV[i] on KEYS[i], in order. One request of one bucket, on the state of one, takes the short way:
-- it answers as the long way would, and is written out because making a function costs more than what it does.

local pack, unpack, call = struct.pack, struct.unpack, redis.pcall
local server_time, decide, replies

for i = 1, #KEYS do
  local key, action, reply = KEYS[i], ARGV[i], nil
  local value = call('GET', key)
  local short = #action == 40 and (not value or #value == 19)
  local now, margin, p, each, each_rest, room, room_rest = unpack(short and '>I8I4I4I8I4I8I4' or '>I8I4', action)
  if now > 0 then
    now = now - 1
  else
    if not server_time then
      local time = call('TIME')
      server_time = time[1] * 1000000 + time[2]
    end
    now = server_time
  end

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
      debt, rest = debt + each, rest + each_rest
      if rest >= p then
        debt, rest = debt + 1, rest - p
      end
      if debt > room or debt == room and rest > room_rest then
        reply = pack('>I4I8c0', 0, now, value or '')
      else
        reply = pack('>I4I8c0', 1, now, value or '')
        local lasts = rest > 0 and debt + 1 or debt
        if now + lasts > 4503599627370495 then
          lasts = 4503599627370495 - now
        end
        lasts = lasts + margin + 999
        local stored = pack('>I3I8I4I4', 65793, now + debt, rest, p)
        local done = call('PSETEX', key, (lasts - lasts % 1000) / 1000, stored)
        if done.err then
          reply = done
        end
      end
    end
  end

  if not reply then
    if type(value) == 'table' then
      reply = value
    else
      decide = decide or any_rules()
      reply = decide(key, value, action, now, margin)
    end
  end
  if #KEYS == 1 then
    return reply
  end
  replies = replies or {}
  replies[i] = reply
end
return replies
