//! [`LeaseConfig`]: how much is taken ahead, and for how long.

use std::sync::Arc;
use std::time::Duration;

use throttle_core::{Clock, SetupError, SystemClock};

use super::terms::Terms;

/// Settings of a [`Leased`](crate::Leased). All processes that share a store should be set alike.
///
/// ```
/// use std::time::Duration;
/// use throttle_memory::LeaseConfig;
///
/// let config = LeaseConfig::default().target(Duration::from_millis(50))?.share(64)?;
/// assert!(config.share(0).is_err());
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    pub(super) terms: Terms,
    pub(super) max_keys: usize,
    pub(super) clock: Arc<dyn Clock>,
}

impl LeaseConfig {
    /// How long a portion is to last, unless set: 20 ms.
    pub const DEFAULT_TARGET: Duration = Duration::from_millis(20);

    /// What part of the capacity a portion is at most, unless set: a 16th.
    pub const DEFAULT_SHARE: u32 = 16;

    /// How many keys are leased, unless set: 100,000.
    pub const DEFAULT_MAX_KEYS: usize = 100_000;

    /// A portion is to last so long, if its key is asked for as it was. The longer, the fewer questions to the store, and
    /// the more is left unused at times: what is not served in five times as long is not served any more.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] for less than a millisecond or more than 10 seconds.
    pub fn target(self, target: Duration) -> Result<Self, SetupError> {
        if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&target) {
            let reason = "from a millisecond to 10 seconds".to_owned();
            return Err(SetupError::Setting { setting: "target", reason });
        }
        Ok(Self { terms: Terms { target, ..self.terms }, ..self })
    }

    /// A portion is at most one `part`th of the capacity: with more processes than that on one key, some may hold units
    /// while others are denied.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] for 0.
    pub fn share(self, part: u32) -> Result<Self, SetupError> {
        if part == 0 {
            return Err(SetupError::Setting { setting: "share", reason: "at least one".to_owned() });
        }
        Ok(Self { terms: Terms { share: part, ..self.terms }, ..self })
    }

    /// How many keys are leased at a time, rounded up to a multiple of 64. Those above go to the store as they are.
    ///
    /// # Errors
    ///
    /// [`SetupError::Setting`] for 0.
    pub fn max_keys(self, max_keys: usize) -> Result<Self, SetupError> {
        if max_keys == 0 {
            return Err(SetupError::Setting { setting: "max_keys", reason: "at least one".to_owned() });
        }
        Ok(Self { max_keys, ..self })
    }

    /// Counts the time since an answer on `clock`, which must be monotonic. It is never compared with the store's.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        let terms = Terms { target: Self::DEFAULT_TARGET, share: Self::DEFAULT_SHARE };
        Self { terms, max_keys: Self::DEFAULT_MAX_KEYS, clock: Arc::new(SystemClock) }
    }
}
