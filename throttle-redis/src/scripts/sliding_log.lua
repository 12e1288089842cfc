-- The twin of `kernel/sliding_log.rs`. An entry takes 12 bytes.
local sliding_log = { size = 13, rule = fixed_window.rule }
kernels[4] = sliding_log

function sliding_log.state(value, at)
  local period, count
  period, count, at = unpack('>I8I4', value, at)
  if period == 0 or period >= TOO_LARGE or at + count * 12 > #value + 1 then
    return nil
  end
  local times, costs, total, last = {}, {}, 0, -1
  local state = { value = value, from = at, count = count, times = times, costs = costs }
  for n = 1, count do
    local time, cost
    time, cost, at = unpack('>I8I4', value, at)
    total = total + cost
    if time <= last or time >= TOO_LARGE or cost == 0 or total > 65536 then
      return nil
    end
    times[n], costs[n], last = time, cost, time
  end
  return state, at
end

-- What counts is the entries after `dead`, of which the first `kept` are as they were stored; one may follow.
function sliding_log.see(rule, state, now)
  rule.log = state or { value = '', from = 1, count = 0, times = {}, costs = {} }
  local log, dead, used = rule.log, 0, 0
  while dead < log.count and log.times[dead + 1] + rule.period <= now do
    dead = dead + 1
  end
  for n = dead + 1, log.count do
    used = used + log.costs[n]
  end
  rule.dead, rule.kept, rule.current = dead, log.count, used
end

sliding_log.room = fixed_window.room

-- LogSummary: units used, newest entry, and when the request after `granted` ones fits, or 0.
function sliding_log.summary(rule, now, cost, granted)
  local log, fits_at = rule.log, 0
  local excess = rule.current + (granted + 1) * cost - rule.limit
  if cost > 0 and excess > 0 then
    local n, oldest = rule.dead, now
    while excess > 0 and n < log.count do
      n = n + 1
      excess = excess - log.costs[n]
    end
    if excess <= 0 then
      oldest = min(log.times[n], now)
    end
    fits_at = oldest + rule.period
  end
  return pack('>I4I8I8', rule.current, log.times[log.count] or 0, fits_at)
end

-- Entries at or after `now` become one of now, with `units` more.
local function append(rule, now, units)
  local log = rule.log
  while log.count > rule.dead and log.times[log.count] >= now do
    units = units + log.costs[log.count]
    log.count = log.count - 1
  end
  rule.kept = log.count
  if units > 0 then
    log.count = log.count + 1
    log.times[log.count], log.costs[log.count] = now, units
  end
end

function sliding_log.charge(rule, cost, times, now)
  append(rule, now, cost * times)
end

-- Newest first.
function sliding_log.refund(rule, cost, now)
  append(rule, now, 0)
  local log = rule.log
  while log.count > rule.dead and log.costs[log.count] <= cost do
    cost = cost - log.costs[log.count]
    rule.current = rule.current - log.costs[log.count]
    log.count = log.count - 1
    rule.kept = min(rule.kept, log.count)
  end
  if cost > 0 and log.count > rule.dead then
    log.costs[log.count] = log.costs[log.count] - cost
    rule.current = rule.current - cost
    rule.kept = min(rule.kept, log.count - 1)
  end
  if log.count == rule.dead then
    log.count, log.times = 0, {}
  end
end

function sliding_log.store(rule)
  local log = rule.log
  if log.count <= rule.dead then
    return '\0', 0
  end
  local head = pack('>BI8I4', 4, rule.period, log.count - rule.dead)
  local old = sub(log.value, log.from + rule.dead * 12, log.from + rule.kept * 12 - 1)
  local new = log.count > rule.kept and pack('>I8I4', log.times[log.count], log.costs[log.count]) or ''
  return head .. old .. new, log.times[log.count] + rule.period
end
