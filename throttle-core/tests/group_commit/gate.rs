//! A backend whose calls are answered when the test says so, and callers that are polled by hand.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use throttle_core::{
    Action, BaseErrorSet, Effect, ErrorKind, GroupCommit, Operand, Outcome, PolicyName, Results, StoreBackend,
};
use throttle_testkit::ReferenceBackend;
use tokio::sync::oneshot;

/// A backend on the reference. Each call waits at the gate; the reference is asked when it is let through.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    reference: ReferenceBackend,
    waiting: Mutex<Vec<oneshot::Sender<Fate>>>,
    calls: Mutex<Vec<Vec<Asked>>>,
    is_open: AtomicBool,
}

/// What happens to a call at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Through,
    Refused,
    /// No answer in time.
    Silent,
    Panic,
    /// Only the first action is answered.
    Short,
}

/// One action of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) key: String,
    pub(crate) operand: Operand,
    pub(crate) cost: u32,
    pub(crate) times: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("refused at the gate")]
    Busy,
    #[error("no answer in time")]
    Late,
}

impl BaseErrorSet for Refused {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Busy => ErrorKind::Overloaded,
            Self::Late => ErrorKind::Timeout,
        }
    }

    fn effect(&self) -> Effect {
        Effect::NotApplied
    }

    fn samples() -> Vec<Self> {
        vec![Self::Busy, Self::Late]
    }
}

impl Gate {
    pub(crate) fn reference(&self) -> &ReferenceBackend {
        &self.0.reference
    }

    /// What was asked so far, call by call.
    pub(crate) fn calls(&self) -> Vec<Vec<Asked>> {
        self.0.calls.lock().clone()
    }

    /// Lets the call that waits longest go; false if none waits.
    pub(crate) fn release(&self, fate: Fate) -> bool {
        let mut waiting = self.0.waiting.lock();
        waiting.retain(|call| !call.is_closed());
        if waiting.is_empty() {
            return false;
        }
        let call = waiting.remove(0);
        drop(waiting);
        call.send(fate).is_ok()
    }

    /// Calls no longer wait.
    pub(crate) fn open(&self) {
        self.0.is_open.store(true, Ordering::Relaxed);
        while self.release(Fate::Through) {}
    }

    /// How many calls are at the gate.
    pub(crate) fn waiting(&self) -> usize {
        self.0.waiting.lock().iter().filter(|call| !call.is_closed()).count()
    }

    async fn arrive(&self, actions: &[Action<'_>]) -> Fate {
        let asked = actions.iter().map(|action| Asked {
            key: action.key().to_owned(),
            operand: action.operand(),
            cost: action.cost(),
            times: action.times(),
        });
        self.0.calls.lock().push(asked.collect());
        if self.0.is_open.load(Ordering::Relaxed) {
            return Fate::Through;
        }
        let (sender, receiver) = oneshot::channel();
        self.0.waiting.lock().push(sender);
        receiver.await.unwrap_or(Fate::Refused)
    }
}

impl StoreBackend for Gate {
    type BaseError = Refused;

    fn name(&self) -> &'static str {
        "gate"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Refused> {
        match self.arrive(std::slice::from_ref(action)).await {
            Fate::Refused => Err(Refused::Busy),
            Fate::Silent => Err(Refused::Late),
            Fate::Panic => panic!("the gate fell"),
            Fate::Through | Fate::Short => Ok(never_fails(self.0.reference.decide(action).await)),
        }
    }

    async fn decide_many(&self, actions: &[Action<'_>]) -> Results<Outcome, Refused> {
        let answered = match self.arrive(actions).await {
            Fate::Refused => return vec![Err(Refused::Busy); actions.len()],
            Fate::Silent => return vec![Err(Refused::Late); actions.len()],
            Fate::Panic => panic!("the gate fell"),
            Fate::Short => &actions[..1],
            Fate::Through => actions,
        };
        let outcomes = self.0.reference.decide_many(answered).await;
        outcomes.into_iter().map(|outcome| Ok(never_fails(outcome))).collect()
    }

    async fn reset(&self, policy: &PolicyName, key: &str) -> Result<bool, Refused> {
        Ok(never_fails(self.0.reference.reset(policy, key).await))
    }

    async fn reset_policy(&self, policy: &PolicyName) -> Result<u64, Refused> {
        Ok(never_fails(self.0.reference.reset_policy(policy).await))
    }

    async fn ping(&self) -> Result<(), Refused> {
        Ok(())
    }
}

fn never_fails<T>(result: Result<T, Infallible>) -> T {
    let Ok(value) = result;
    value
}

/// A caller under the test's control.
pub(crate) struct Caller<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + 'a>>>,
    flag: Arc<Flag>,
    pub(crate) answer: Option<T>,
}

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<'a, T> Caller<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'a) -> Self {
        let flag = Arc::new(Flag::default());
        flag.0.store(true, Ordering::SeqCst);
        Self { future: Some(Box::pin(future)), flag, answer: None }
    }

    /// Polls, whether it was woken or not; true once it is answered.
    pub(crate) fn poll(&mut self) -> bool {
        self.flag.0.store(false, Ordering::SeqCst);
        let Some(future) = &mut self.future else { return true };
        let waker = Waker::from(Arc::clone(&self.flag));
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.answer = Some(answer);
            self.future = None;
        }
        self.future.is_none()
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst) && self.future.is_some()
    }

    /// Whether it was answered, or went away.
    pub(crate) fn is_gone(&self) -> bool {
        self.future.is_none()
    }

    /// The caller goes away.
    pub(crate) fn leave(&mut self) {
        self.future = None;
    }
}

/// Polls whoever was woken, until nobody is.
pub(crate) fn settle<T>(callers: &mut [Caller<'_, T>]) {
    for _ in 0..10_000 {
        let mut nobody = true;
        for caller in callers.iter_mut().filter(|caller| caller.is_woken()) {
            caller.poll();
            nobody = false;
        }
        if nobody {
            return;
        }
    }
    panic!("callers wake each other for ever");
}

/// Nobody waits, and nothing is kept.
pub(crate) fn assert_empty(group: &GroupCommit<Gate>) {
    let text = format!("{group:?}");
    assert!(text.contains("waiting_batches: 0, waiting_callers: 0"), "{text}");
    assert_eq!(group.get_ref().waiting(), 0, "calls are still at the gate");
}
