//! One multiplexed connection that comes back: made when it is needed, shared by all callers, replaced when it ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::connector::{Connected, Connector};
use super::reply;
use crate::RedisError;
use crate::config::Settings;
use crate::error::{classify, classify_connect};

/// Between attempts to connect: at first, and at most. Half of it is left to chance, so that clients spread.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection may leave everything unanswered before another is made.
const SILENCE: Duration = Duration::from_secs(1);

/// See the module. Cheap to clone; all clones are one link.
#[derive(Clone)]
pub(crate) struct Link(Arc<Shared>);

struct Shared {
    connector: Connector,
    connect_deadline: Duration,
    response_deadline: Duration,
    state: Mutex<State>,
}

enum State {
    /// No connection. After a failed attempt there is a pause, in which calls fail with what it failed with.
    Down { failures: u32, pause: Option<(Instant, RedisError)> },
    /// A task connects; it closes the channel when it has ended.
    Connecting { failures: u32, ends: watch::Receiver<()> },
    /// Connected, as far as is known.
    Up(Arc<Live>),
}

struct Live {
    connection: MultiplexedConnection,
    ended: Arc<AtomicBool>,
    since: Instant,
    /// When the oldest call after the last answer timed out, in ms since `since`; 0 if none did.
    silent_from: AtomicU64,
}

impl Link {
    pub(super) fn new(connector: Connector, settings: &Settings) -> Self {
        Self(Arc::new(Shared {
            connector,
            connect_deadline: settings.connect_deadline,
            response_deadline: settings.response_deadline,
            state: Mutex::new(State::Down { failures: 0, pause: None }),
        }))
    }

    /// Connects, however long that takes within its deadline.
    pub(super) async fn open(&self) -> Result<(), RedisError> {
        self.live().await.map(|_| ())
    }

    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, RedisError> {
        let ask = async |mut connection: MultiplexedConnection| {
            reply(connection.send_packed_command(command).await?)
        };
        self.exchange(ask, std::slice::from_ref, deadline).await
    }

    pub(super) async fn send_all(
        &self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, RedisError> {
        let ask = async |mut connection: MultiplexedConnection| {
            connection.send_packed_commands(commands, 0, commands.len()).await
        };
        self.exchange(ask, Vec::as_slice, deadline).await
    }

    /// One question and its answer, and what it teaches about the connection.
    async fn exchange<T>(
        &self,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
        values: impl FnOnce(&T) -> &[Value],
        deadline: Instant,
    ) -> Result<T, RedisError> {
        let live = match self.up() {
            Some(live) => live,
            None => timeout_at(deadline, self.live()).await.map_err(|_| RedisError::NoConnectionInTime)??,
        };
        let asked = live.age();
        let (answer, spoilt) = match timeout_at(deadline, ask(live.connection.clone())).await {
            Ok(Ok(answer)) => {
                let spoilt = values(&answer).iter().find_map(read_only);
                (Ok(answer), spoilt)
            }
            Ok(Err(error)) => {
                let error = classify(error);
                let spoilt = spoils(&error);
                (Err(error), spoilt)
            }
            Err(_) => {
                if live.silent_for(asked) > SILENCE.max(4 * self.0.response_deadline) {
                    self.0.retire(&live, RedisError::NoConnectionInTime);
                }
                return Err(RedisError::NoAnswerInTime);
            }
        };
        live.silent_from.store(0, Ordering::Relaxed);
        if let Some(error) = spoilt {
            self.0.retire(&live, error);
        }
        answer
    }

    fn up(&self) -> Option<Arc<Live>> {
        match &*self.0.state.lock() {
            State::Up(live) if !live.ended.load(Ordering::Acquire) => Some(Arc::clone(live)),
            _ => None,
        }
    }

    /// The connection. Waits for the attempt to make one that is under way, or starts one.
    async fn live(&self) -> Result<Arc<Live>, RedisError> {
        loop {
            let mut ends = match &mut *self.0.state.lock() {
                State::Up(live) if !live.ended.load(Ordering::Acquire) => return Ok(Arc::clone(live)),
                State::Down { pause: Some((until, error)), .. } if Instant::now() < *until => {
                    return Err(error.clone());
                }
                State::Connecting { ends, .. } if ends.has_changed().is_ok() => ends.clone(),
                state => self.start(state),
            };
            // An error is what is waited for: the task has ended, and left the state as it is now.
            let _ = ends.changed().await;
        }
    }

    /// Connects in a task of its own, which ends within the connect deadline: callers come and go.
    fn start(&self, state: &mut State) -> watch::Receiver<()> {
        let failures = match state {
            State::Down { failures, .. } | State::Connecting { failures, .. } => *failures,
            State::Up(_) => 0,
        };
        let (task, ends) = watch::channel(());
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let connected = shared.connector.connect(shared.connect_deadline).await;
            *shared.state.lock() = match connected {
                Ok(connected) => State::Up(Arc::new(Live::new(connected))),
                Err(error) => State::after(failures, classify_connect(error)),
            };
            drop(task);
        });
        *state = State::Connecting { failures, ends: ends.clone() };
        ends
    }
}

impl Shared {
    /// Gives up `live`, unless there is another connection already. One that was just made is not replaced at once:
    /// until then calls fail with `error`.
    fn retire(&self, live: &Arc<Live>, error: RedisError) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Up(present) if Arc::ptr_eq(present, live)) {
            *state = match live.since.elapsed() < LONGEST_PAUSE {
                true => State::after(0, error),
                false => State::Down { failures: 0, pause: None },
            };
        }
    }
}

impl State {
    fn after(failures: u32, error: RedisError) -> Self {
        let failures = failures.saturating_add(1);
        Self::Down { failures, pause: Some((Instant::now() + pause_after(failures), error)) }
    }
}

impl Live {
    fn new(connected: Connected) -> Self {
        Self {
            connection: connected.connection,
            ended: connected.ended,
            since: Instant::now(),
            silent_from: AtomicU64::new(0),
        }
    }

    /// In milliseconds, at least 1.
    fn age(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// How long nothing was answered, given that what was `asked` then was not.
    fn silent_for(&self, asked: u64) -> Duration {
        let from = match self.silent_from.compare_exchange(0, asked, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => asked,
            Err(earlier) => earlier,
        };
        Duration::from_millis(self.age().saturating_sub(from))
    }
}

/// After so many failures: doubled with each, with half of it left to chance.
fn pause_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let most = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    most.mul_f64(rand::random_range(0.5..1.0))
}

/// What calls fail with that come too soon after `error`, if that ends the connection.
fn spoils(error: &RedisError) -> Option<RedisError> {
    match error {
        RedisError::Lost(cause) | RedisError::Answer(cause) => Some(RedisError::Connect(cause.clone())),
        RedisError::ReadOnly(_) => Some(error.clone()),
        _ => None,
    }
}

fn read_only(value: &Value) -> Option<RedisError> {
    match value {
        Value::ServerError(error) => spoils(&classify(error.clone().into())),
        Value::Array(values) => values.iter().find_map(read_only),
        _ => None,
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.0.state.lock() {
            State::Down { .. } => "down",
            State::Connecting { .. } => "connecting",
            State::Up(_) => "up",
        };
        f.debug_tuple("Link").field(&state).finish()
    }
}
