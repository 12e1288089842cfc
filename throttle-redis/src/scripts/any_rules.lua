-- The twin of `kernel/decide.rs`, and the end of the function that `prelude.lua` begins.

-- The states in a value by position, and what is reported of them: the same bytes, but none of a log. Nothing if it
-- is not readable.
local function read_states(value)
  local count = byte(value, 2)
  if byte(value, 1) ~= 1 or not count or count < 1 or count > 16 then
    return nil
  end
  local states, parts, at = {}, { sub(value, 1, 2) }, 3
  for r = 1, count do
    local tag, from = byte(value, at), at
    local kernel = kernels[tag]
    if not tag or not kernel and tag ~= 0 then
      return nil
    end
    local state
    at = from + 1
    if kernel then
      if from + kernel.size > #value + 1 then
        return nil
      end
      state, at = kernel.state(value, at)
      if not state then
        return nil
      end
      state.kernel = kernel
    end
    states[r] = state or {}
    parts[r + 1] = kernel == sliding_log and '\0' or sub(value, from, at - 1)
  end
  return at == #value + 1 and states, concat(parts)
end

-- What is stored after the action and until when, and what is reported of it.
local function stored(rules, now)
  local head = char(1, #rules)
  local parts, reported, expires = { head }, { head }, 0
  for r, rule in ipairs(rules) do
    local bytes, ends = rule.kernel.store(rule, now)
    parts[r + 1], reported[r + 1] = bytes, rule.kernel == sliding_log and '\0' or bytes
    expires = max(expires, ends)
  end
  return concat(parts), expires, concat(reported)
end

local function summaries(rules, now, cost, granted)
  local parts = {}
  for _, rule in ipairs(rules) do
    if rule.kernel == sliding_log then
      parts[#parts + 1] = sliding_log.summary(rule, now, cost, granted)
    end
  end
  return concat(parts)
end

-- Operand, cost, times and rules of an action. The short form is of requests of one bucket, for some cost.
local function read_action(action)
  if #action == 40 then
    local rule, times = { kernel = bucket }, nil
    rule.p, rule.each, rule.each_rest, rule.room, rule.room_rest, times = unpack('>I4I8I4I8I4I4', action, 9)
    rule.most, rule.most_rest = rule.room, rule.room_rest
    return CONSUME, 1, times, { rule }
  end
  local op, cost, times, count, at = unpack('>BI4I4B', action, 9)
  local rules = {}
  for r = 1, count do
    local kernel = kernels[byte(action, at)]
    rules[r], at = kernel.rule(action, at + 1)
    rules[r].kernel = kernel
  end
  return op, cost, times, rules
end

-- The reply; and if something is to be stored, what, and when it is as good as new.
return function(value, action, now)
  local op, cost, times, rules = read_action(action)
  local states, reported = {}, ''
  if value then
    states, reported = read_states(value)
    if not states then
      return ''
    end
  end
  local granted = op == REFUND and 1 or times
  for r, rule in ipairs(rules) do
    local state = states[r]
    rule.kernel.see(rule, state and state.kernel == rule.kernel and state or nil, now)
    if op ~= REFUND then
      granted = rule.kernel.room(rule, cost, granted)
    end
  end
  local logs
  if op ~= REFUND then
    logs = summaries(rules, now, cost, op == PEEK and 0 or granted)
    if op == PEEK or granted * cost == 0 then
      return pack('>I4I8', granted, now) .. logs .. reported
    end
  end
  for _, rule in ipairs(rules) do
    if op == REFUND then
      rule.kernel.refund(rule, cost, now)
    else
      rule.kernel.charge(rule, cost, granted, now)
    end
  end
  local bytes, expires, after = stored(rules, now)
  if op == REFUND then
    logs, reported = summaries(rules, now, cost, 0), after
  end
  return pack('>I4I8', granted, now) .. logs .. reported, bytes, expires
end
end
