-- The twin of `kernel/bucket.rs`: token bucket, leaky bucket, GCRA.
local bucket = { size = 17 }
kernels[1] = bucket

function bucket.rule(action, at)
  local rule = {}
  rule.p, rule.each, rule.each_rest, rule.most, rule.most_rest, rule.room, rule.room_rest, at =
    unpack('>I4I8I4I8I4I8I4', action, at)
  return rule, at
end

function bucket.state(value, at)
  local state = {}
  state.tat, state.rest, state.p, at = unpack('>I8I4I4', value, at)
  return state.tat < TOO_LARGE and state.rest < state.p and state, at
end

function bucket.see(rule, state, now)
  rule.debt, rule.rest = 0, 0
  if state then
    local tat, rest = state.tat, state.rest
    if rest > 0 and state.p ~= rule.p then
      tat, rest = tat + 1, 0
    end
    if tat >= now then
      rule.debt, rule.rest = tat - now, rest
    end
    if rule.debt > rule.most or rule.debt == rule.most and rule.rest > rule.most_rest then
      rule.debt, rule.rest = rule.most, rule.most_rest
    end
  end
end

-- The debt with `times` requests more.
function bucket.after(rule, times)
  local ticks = rule.rest + times * rule.each_rest
  local rest = ticks % rule.p
  return rule.debt + times * rule.each + (ticks - rest) / rule.p, rest
end

function bucket.fits(rule, times)
  local debt, rest = bucket.after(rule, times)
  return debt < rule.room or debt == rule.room and rest <= rule.room_rest
end

function bucket.room(rule, cost, times)
  if cost == 0 or bucket.fits(rule, times) then
    return times
  end
  local fit, unfit = 0, times
  while unfit - fit > 1 do
    local middle = floor((fit + unfit) / 2)
    if bucket.fits(rule, middle) then
      fit = middle
    else
      unfit = middle
    end
  end
  return fit
end

function bucket.charge(rule, _, times)
  rule.debt, rule.rest = bucket.after(rule, times)
end

function bucket.refund(rule)
  rule.debt, rule.rest = rule.debt - rule.each, rule.rest - rule.each_rest
  if rule.rest < 0 then
    rule.debt, rule.rest = rule.debt - 1, rule.rest + rule.p
  end
  if rule.debt < 0 then
    rule.debt, rule.rest = 0, 0
  end
end

function bucket.store(rule, now)
  local tat = now + rule.debt
  return pack('>BI8I4I4', 1, tat, rule.rest, rule.p), rule.rest > 0 and tat + 1 or tat
end
