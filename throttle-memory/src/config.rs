//! [`MemoryConfig`]: how much is kept, and by which clock.

use std::sync::Arc;

use throttle_core::{Clock, SetupError};

/// Settings of a [`MemoryBackend`](crate::MemoryBackend).
///
/// ```
/// use throttle_memory::{MemoryBackend, MemoryConfig};
///
/// let small = MemoryBackend::new(MemoryConfig::default().max_keys(10_000)?);
/// assert_eq!(small.max_keys(), 10_000);
/// assert!(MemoryConfig::default().max_keys(0).is_err());
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryConfig {
    pub(crate) max_keys: usize,
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl MemoryConfig {
    /// The default bound.
    pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

    /// The most states that are kept; above it, the state nearest to full goes first. A key takes about 140 bytes, its
    /// log entries and whatever is above 24 bytes of its name apart.
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

    /// Tells the time by `clock`, such as [`SystemClock`](throttle_core::SystemClock) for the clock of the operating
    /// system. The default reads the processor's time stamp counter through `quanta`, which takes less than half as
    /// long; that counter may step back a little between cores, which admits nothing extra.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { max_keys: Self::DEFAULT_MAX_KEYS, clock: None }
    }
}
