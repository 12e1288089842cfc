-- The twin of `kernel/fixed_window.rs`.
local fixed_window = { size = 21 }
kernels[2] = fixed_window

function fixed_window.rule(action, at)
  local rule = {}
  rule.period, rule.limit, at = unpack('>I8I4', action, at)
  return rule, at
end

function fixed_window.state(value, at)
  local state = {}
  state.period, state.index, state.current, at = unpack('>I8I8I4', value, at)
  return state.period > 0 and state.period < TOO_LARGE and state.index < TOO_LARGE and state, at
end

function fixed_window.see(rule, state, now)
  local present = (now - now % rule.period) / rule.period
  rule.index, rule.current = present, 0
  if state and state.period ~= rule.period then
    rule.current = (state.index + 1) * state.period > now and state.current or 0
  elseif state and state.index >= present then
    rule.index = state.index == present + 1 and state.index or present
    rule.current = state.current
  end
end

function fixed_window.room(rule, cost, times)
  return requests_in(rule.limit - rule.current, cost, times)
end

function fixed_window.charge(rule, cost, times)
  rule.current = rule.current + cost * times
end

function fixed_window.refund(rule, cost)
  rule.current = max(0, rule.current - cost)
end

function fixed_window.store(rule)
  local ends = rule.current > 0 and rule.index + 1 or rule.index
  return pack('>BI8I8I4', 2, rule.period, rule.index, rule.current), ends * rule.period
end
