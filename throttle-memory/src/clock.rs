//! The store's own clock: monotonic, anchored to the Unix epoch once.

use std::sync::Arc;

use throttle_core::{Clock, SystemClock, Timestamp};

/// Where the time comes from.
#[derive(Debug)]
pub(crate) enum StoreClock {
    /// The processor's time stamp counter, counted from an anchor.
    Counter { clock: quanta::Clock, start: u64, epoch_micros: u64 },
    /// A clock of the user's choice.
    Chosen(Arc<dyn Clock>),
}

impl StoreClock {
    pub(crate) fn new(chosen: Option<Arc<dyn Clock>>) -> Self {
        match chosen {
            Some(clock) => Self::Chosen(clock),
            None => {
                let clock = quanta::Clock::new();
                let (start, epoch_micros) = (clock.raw(), SystemClock.now().as_micros());
                Self::Counter { clock, start, epoch_micros }
            }
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Counter { clock, start, epoch_micros } => {
                let elapsed = clock.delta_as_nanos(*start, clock.raw()) / 1_000;
                Timestamp::saturating_from_micros(epoch_micros + elapsed)
            }
            Self::Chosen(clock) => clock.now(),
        }
    }
}
