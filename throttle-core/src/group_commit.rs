//! [`GroupCommit`]: while one batch is under way, the next one gathers.

mod batch;
mod bell;
mod gathering;
mod queue;
mod seat;

use std::fmt;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Waker};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use self::batch::{Batch, Looked};
use self::bell::Bell;
use self::queue::{Left, Queue, Turn};
use self::seat::Seat;
use crate::lock::{Acquisition, LockTtl, Owner};
use crate::{Action, LockBackend, Outcome, PolicyName, Results, StoreBackend, Take, TakeOutcome};

const MAX_BATCH: usize = 128;

/// Asks the backend less often: one batch is under way at a time, and what comes meanwhile gathers for the next one.
/// Requests that are alike (policy, key, cost, wait, time) become one action, the others one
/// [`decide_many`](StoreBackend::decide_many). There is no timer: a lone request is sent at once. Only while callers of
/// the last batch are being woken does a new one wait, for one turn of the executor, so that they can come along.
///
/// Each caller gets, bit for bit, what it would have got alone, in order of arrival; an error goes to everybody whose
/// request was in it.
///
/// If a batch gets no answer in time, those that wait behind it fail with it and are not sent: a store that stalls costs
/// its deadline once, however many wait.
///
/// For stores that are asked over a network. A store in memory answers faster than callers can gather.
///
/// **Cancellation.** A call dropped before its batch was sent was never there. After that it is charged or not, and the
/// batch goes on for the others. A batch that nobody waits for any more is dropped, as the call of a lone caller is.
/// Whoever waits drives the running batch, so nothing depends on one caller being polled; no task is spawned.
///
/// **Panics.** If the backend panics, or gives fewer answers than it was asked for, every caller in that batch panics:
/// what it asked for may have been charged, and is not asked again.
///
/// **Order.** [`reset`](StoreBackend::reset), [`reset_policy`](StoreBackend::reset_policy) and
/// [`ping`](StoreBackend::ping) and locks go straight to the backend: requests that are waiting when one of them is called may be
/// decided before or after it. Await the one before calling the other if it matters.
///
/// ```
/// # use std::convert::Infallible;
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # use throttle_core::kernel::{PolicyState, decide};
/// # use throttle_core::*;
/// # #[derive(Debug)]
/// # struct Backend { calls: AtomicU32, state: tokio::sync::Mutex<PolicyState> }
/// # impl StoreBackend for Backend {
/// #     type BaseError = Infallible;
/// #     fn name(&self) -> &'static str { "one" }
/// #     async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Infallible> {
/// #         self.calls.fetch_add(1, Ordering::Relaxed);
/// #         tokio::task::yield_now().await;
/// #         Ok(decide(action, Timestamp::EPOCH, &mut *self.state.lock().await))
/// #     }
/// #     async fn reset(&self, _: &PolicyName, _: &str) -> Result<bool, Infallible> { Ok(false) }
/// #     async fn reset_policy(&self, _: &PolicyName) -> Result<u64, Infallible> { Ok(0) }
/// #     async fn ping(&self) -> Result<(), Infallible> { Ok(()) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = Policy::new("api", [Rule::gcra("10/s")?])?;
/// # let state = tokio::sync::Mutex::new(PolicyState::fresh(&policy));
/// # let backend = Backend { calls: AtomicU32::new(0), state };
/// let limiter = RateLimiter::new(policy, GroupCommit::new(backend));
/// let calls = (0..64).map(|_| limiter.check("alice"));
/// let decisions = futures_util::future::try_join_all(calls).await?;
///
/// assert_eq!(decisions.iter().filter(|decision| decision.is_allowed()).count(), 10);
/// let asked = &limiter.store().get_ref().get_ref().calls;
/// assert_eq!(asked.load(Ordering::Relaxed), 2, "the first one, then all others at once");
/// # Ok(())
/// # }
/// ```
pub struct GroupCommit<B: StoreBackend> {
    backend: Arc<B>,
    max_batch: usize,
    hasher: RandomState,
    queue: Mutex<Queue<B::BaseError>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<B: StoreBackend> GroupCommit<B> {
    /// In front of `backend`, with at most 128 actions in a batch.
    #[must_use]
    pub fn new(backend: B) -> Self {
        let bell = Arc::new(Bell::new());
        Self {
            backend: Arc::new(backend),
            max_batch: MAX_BATCH,
            hasher: RandomState::default(),
            queue: Mutex::new(Queue::new()),
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        }
    }

    /// How many actions the backend is asked at once, those merged counted once; at least 1. What is above goes into
    /// the next batch.
    #[must_use]
    pub fn with_max_batch(self, actions: usize) -> Self {
        Self { max_batch: actions.max(1), ..self }
    }

    /// The backend itself. What is asked there does not queue.
    #[must_use]
    pub fn get_ref(&self) -> &B {
        &self.backend
    }

    fn join(&self, action: &Action<'_>) -> (Arc<Batch<B::BaseError>>, u64) {
        let hash = self.hasher.hash_one((action.policy().name().as_str(), action.key()));
        self.queue.lock().join(action, hash, self.max_batch)
    }

    fn leave(&self, batch: &Arc<Batch<B::BaseError>>, ticket: u64) {
        let left = self.queue.lock().leave(batch, ticket);
        match left {
            Left::Nothing => {}
            Left::Waiting(gathering) => drop(gathering),
            Left::Running(batch) => {
                drop(batch);
                self.bell.ring();
            }
        }
    }

    /// Looks at the running batch, or starts the next one, if the bell has rung.
    ///
    /// No wake-up is lost: the bell falls silent before the batch is polled, and rings again for whoever found it busy
    /// if it has rung meanwhile, or if the batch is not the running one any more.
    fn drive(&self, patience: bool) -> Drive {
        if !self.bell.is_rung() {
            return Drive::Done;
        }
        let turn = self.queue.lock().current(patience);
        let batch = match turn {
            Turn::Look(batch) => batch,
            Turn::Later => return Drive::Later,
            Turn::Nothing => return Drive::Done,
        };
        let landing = Landing { group: self, batch: &batch };
        let looked = batch.look(&self.backend, &mut Context::from_waker(&self.waker), || self.bell.silence());
        if let Looked::Landed = looked {
            return Drive::Done;
        }
        std::mem::forget(landing);
        if let Looked::Waiting = looked
            && (self.bell.is_rung() || !self.queue.lock().is_running(&batch))
        {
            self.bell.ring();
        }
        Drive::Done
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }
}

/// The backend panicked while it decided for this caller among others, or gave fewer answers than it was asked for.
/// Either may have come after it charged, so nothing is asked again.
#[expect(clippy::panic, reason = "a defect of the backend, told to each of its callers")]
fn unanswered<T>() -> T {
    panic!("the backend behind a GroupCommit panicked, or gave fewer answers than it was asked for")
}

/// What came of driving.
enum Drive {
    /// All was done that could be.
    Done,
    /// Better in a turn of the executor: those who were just answered may ask again, and then go along. Without this,
    /// callers that ask over and over split into two halves that wait for each other's batches.
    Later,
}

/// Ends a batch when it has been answered, and also when the backend panics: the callers in it then do too.
struct Landing<'g, B: StoreBackend> {
    group: &'g GroupCommit<B>,
    batch: &'g Arc<Batch<B::BaseError>>,
}

impl<B: StoreBackend> Drop for Landing<'_, B> {
    fn drop(&mut self) {
        self.batch.lose();
        let silence = self.batch.silence();
        let held_up = self.group.queue.lock().end(self.batch, silence.is_some());
        if let Some(error) = silence {
            held_up.into_iter().for_each(|waiting| waiting.fail(error));
        }
        self.group.bell.ring();
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: StoreBackend> StoreBackend for GroupCommit<B> {
    type BaseError = B::BaseError;

    fn name(&self) -> &'static str {
        self.backend.name()
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Self::BaseError> {
        let answer = {
            let mut seat = Seat::take(self, action);
            poll_fn(|context| seat.poll(context)).await;
            seat.answer()
        };
        answer.unwrap_or_else(unanswered)
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Self::BaseError> {
        let mut seats: Vec<_> = actions.iter().map(|action| Seat::take(self, action)).collect();
        for seat in &mut seats {
            poll_fn(|context| seat.poll(context)).await;
        }
        seats.iter().map(|seat| seat.answer().unwrap_or_else(unanswered)).collect()
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Self::BaseError> {
        self.backend.reset(policy, key).await
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Self::BaseError> {
        self.backend.reset_policy(policy).await
    }

    async fn ping(&self) -> Result<(), Self::BaseError> {
        self.backend.ping().await
    }

    /// Never: what is asked here goes through a batch.
    fn decide_now(&self, _take: &Take<'_>) -> Option<TakeOutcome> {
        None
    }
}

/// Straight to the backend.
#[deny(clippy::missing_trait_methods)]
impl<B: LockBackend> LockBackend for GroupCommit<B> {
    async fn acquire(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<Acquisition, Self::BaseError> {
        self.backend.acquire(name, owner, ttl).await
    }

    async fn extend(&self, name: &str, owner: Owner, ttl: LockTtl) -> Result<bool, Self::BaseError> {
        self.backend.extend(name, owner, ttl).await
    }

    async fn release(&self, name: &str, owner: Owner) -> Result<bool, Self::BaseError> {
        self.backend.release(name, owner).await
    }
}

impl<B: StoreBackend> fmt::Debug for GroupCommit<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit")
            .field("backend", &self.backend)
            .field("max_batch", &self.max_batch)
            .field("waiting_batches", &self.queue.lock().waiting())
            .field("waiting_callers", &self.bell.sleepers())
            .finish()
    }
}
