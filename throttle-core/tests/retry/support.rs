//! Clocks and errors for the tests of `retry`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use throttle_core::retry::{Backoff, ErrorClass};
use throttle_core::{Clock, Sleep, Timestamp};

/// A failure with the status of an HTTP answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("status {0}")]
pub(crate) struct Failed(pub(crate) u16);

/// Every error is worth another attempt.
pub(crate) fn retryable(_: &Failed) -> ErrorClass {
    ErrorClass::Retryable
}

/// The same delay every time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steady(pub(crate) Duration);

impl Backoff for Steady {
    fn delay(&mut self, _retries: u32, _rng: &mut dyn Rng) -> Duration {
        self.0
    }
}

/// Moves by itself when somebody waits, and remembers the waits. Clones are the same clock.
#[derive(Debug, Clone)]
pub(crate) struct StepClock {
    micros: Arc<AtomicU64>,
    waits: Arc<Mutex<Vec<Duration>>>,
    oversleep: Duration,
}

impl Default for StepClock {
    fn default() -> Self {
        Self::oversleeping(Duration::ZERO)
    }
}

impl StepClock {
    /// One whose waits take longer by `oversleep`.
    pub(crate) fn oversleeping(oversleep: Duration) -> Self {
        Self { micros: Arc::new(AtomicU64::new(1_700_000_000_000_000)), waits: Arc::default(), oversleep }
    }

    /// Moves it forward.
    pub(crate) fn advance(&self, span: Duration) {
        self.micros.fetch_add(micros(span), Ordering::Relaxed);
    }

    /// Moves it back.
    pub(crate) fn step_back(&self, span: Duration) {
        self.micros.fetch_sub(micros(span), Ordering::Relaxed);
    }

    /// The waits so far.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.waits.lock().clone()
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::Relaxed)).unwrap()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        let clock = self.clone();
        Box::pin(async move {
            clock.waits.lock().push(span);
            clock.advance(span + clock.oversleep);
        })
    }
}

/// The time of tokio, which tests pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokioClock(pub(crate) tokio::time::Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).unwrap().saturating_add(self.0.elapsed())
    }

    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(span))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap()
}
