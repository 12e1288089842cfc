//! [`Tank`]: whole units that flow in at a steady rate, in integers. Token bucket and retry budget stand on it.

use std::time::Duration;

use crate::Timestamp;

/// Holds up to `capacity` whole units; `inflow` of them flow in per `period`.
///
/// The part of the next unit that has flowed in already is carried as a fraction of `period_micros`, so that no
/// rhythm of asking loses any. A full tank has no next unit: what overflows is dropped, fraction included.
#[derive(Debug)]
pub(super) struct Tank {
    capacity: u32,
    inflow: u32,
    period_micros: u64,
    level: u32,
    /// Of the next unit, in 1/`period_micros`; always below one unit.
    fraction: u64,
    /// Up to when the inflow is counted; nothing flows before the first look.
    filled_until: Option<Timestamp>,
}

impl Tank {
    /// A tank that holds `level` units. The period is not zero.
    pub(super) const fn new(capacity: u32, inflow: u32, period_micros: u64, level: u32) -> Self {
        Self { capacity, inflow, period_micros, level, fraction: 0, filled_until: None }
    }

    /// Units in it at `now`.
    pub(super) fn level_at(&mut self, now: Timestamp) -> u32 {
        self.fill_until(now);
        self.level
    }

    /// Takes `units` out of what is there at `now`, or nothing.
    pub(super) fn try_take(&mut self, units: u32, now: Timestamp) -> bool {
        let Some(rest) = self.level_at(now).checked_sub(units) else { return false };
        self.level = rest;
        true
    }

    /// Puts `units` in; above the capacity they are lost.
    pub(super) fn put(&mut self, units: u32) {
        self.level = self.level.saturating_add(units).min(self.capacity);
    }

    /// Time from `now`, which was looked at, to the next whole unit. Rounded up, so the unit is there then and not a
    /// microsecond before. [`Duration::MAX`] if nothing flows.
    pub(super) fn time_to_next(&self, now: Timestamp) -> Duration {
        if self.inflow == 0 {
            return Duration::MAX;
        }
        let wait = (self.period_micros - self.fraction).div_ceil(u64::from(self.inflow));
        self.filled_until.unwrap_or(now).saturating_add(Duration::from_micros(wait)).saturating_since(now)
    }

    fn fill_until(&mut self, now: Timestamp) {
        let since = self.filled_until.unwrap_or(now);
        if now < since {
            // The clock stepped back: nothing flows until it is where it was. A step longer than the time to fill
            // would stop the inflow for that long, so it counts as one of that length.
            self.filled_until = Some(since.min(now.saturating_add(self.time_to_fill())));
            return;
        }
        self.filled_until = Some(now);
        let flowed =
            now.saturating_since(since).as_micros() * u128::from(self.inflow) + u128::from(self.fraction);
        let (units, rest) =
            (flowed / u128::from(self.period_micros), flowed % u128::from(self.period_micros));
        let room = self.capacity - self.level;
        match u32::try_from(units) {
            Ok(units) if units < room => {
                self.level += units;
                self.fraction = u64::try_from(rest).unwrap_or(0);
            }
            _ => (self.level, self.fraction) = (self.capacity, 0),
        }
    }

    /// From empty to full.
    fn time_to_fill(&self) -> Duration {
        let needed = u128::from(self.capacity) * u128::from(self.period_micros);
        let micros = needed.checked_div(u128::from(self.inflow)).unwrap_or(0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_overflow_nothing() {
        let periods = [1, 1_000_000, 1 << 50];
        for (inflow, period_micros) in
            periods.into_iter().flat_map(|period| [(1, period), (u32::MAX, period)])
        {
            let mut tank = Tank::new(u32::MAX, inflow, period_micros, 0);
            assert_eq!(tank.level_at(Timestamp::EPOCH), 0);
            let due = Timestamp::EPOCH.saturating_add(tank.time_to_next(Timestamp::EPOCH));
            assert!(tank.level_at(due) >= 1, "{inflow} per {period_micros} µs");
            assert!(tank.level_at(Timestamp::MAX) >= 1);
            assert_eq!(tank.level_at(Timestamp::EPOCH), tank.level, "stepping back changes nothing");
        }
    }

    #[test]
    fn long_idling_at_a_high_rate_fills_it() {
        let mut tank = Tank::new(u32::MAX, 1_000_000, 1_000_000, 0);
        assert_eq!(tank.level_at(Timestamp::EPOCH), 0);
        assert_eq!(tank.level_at(Timestamp::MAX), u32::MAX);
    }

    #[test]
    fn without_inflow_nothing_comes() {
        let mut tank = Tank::new(10, 0, 1_000_000, 3);
        assert!(tank.try_take(3, Timestamp::EPOCH));
        assert_eq!(tank.level_at(Timestamp::MAX), 0);
        assert_eq!(tank.time_to_next(Timestamp::MAX), Duration::MAX);
    }
}
