-- The twin of `kernel/sliding_window.rs`.
local sliding_window = { size = 25, charge = fixed_window.charge, refund = fixed_window.refund }
kernels[3] = sliding_window

function sliding_window.rule(action, at)
  local rule = {}
  rule.period, rule.limit, rule.unit, rule.units, at = unpack('>I8I4I8I4', action, at)
  return rule, at
end

function sliding_window.state(value, at)
  local state = {}
  state.period, state.index, state.current, state.previous, at = unpack('>I8I8I4I4', value, at)
  return state.period > 0 and state.period < TOO_LARGE and state.index < TOO_LARGE and state, at
end

function sliding_window.see(rule, state, now)
  local gone = now % rule.period
  local present = (now - gone) / rule.period
  rule.index, rule.current, rule.previous, rule.elapsed = present, 0, 0, floor(gone / rule.unit)
  if not state then
    return
  end
  local same, shift = state.period == rule.period, present - state.index
  if not same then
    local ends = (state.index + 1) * state.period
    local expires = state.current > 0 and ends + state.period or state.previous > 0 and ends or 0
    shift = now < ends and 0 or now < expires and 1 or 2
  end
  if same and shift == -1 then
    rule.index, rule.elapsed = state.index, 0
  end
  if shift <= 0 then
    rule.current, rule.previous = state.current, state.previous
  elseif shift == 1 then
    rule.previous = state.current
  end
end

function sliding_window.room(rule, cost, times)
  local used = rule.previous * (rule.units - rule.elapsed) + rule.current * rule.units
  return requests_in(floor((rule.limit * rule.units - used) / rule.units), cost, times)
end

function sliding_window.store(rule)
  local windows = rule.current > 0 and 2 or rule.previous > 0 and 1 or 0
  local stored = pack('>BI8I8I4I4', 3, rule.period, rule.index, rule.current, rule.previous)
  return stored, (rule.index + windows) * rule.period
end
