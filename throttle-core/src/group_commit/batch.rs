//! One batch, from its first caller to its last answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use super::gathering::{Gathering, Place};
use crate::{Action, BaseErrorSet, ErrorKind, Outcome, StoreBackend};

/// One batch. It belongs to the callers in it; whoever of them, or of those behind them, gets to it polls it.
pub(super) struct Batch<E> {
    flight: Mutex<Flight<E>>,
    answers: OnceLock<Answers<E>>,
}

type Flying<E> = Pin<Box<dyn Future<Output = Answers<E>> + Send>>;

enum Flight<E> {
    /// The batch is open, or done, or lost to a panic of the backend.
    Grounded,
    Closed(Gathering),
    Flying(Flying<E>),
}

/// What the backend said, and which of it is whose. Nothing, if it panicked.
struct Answers<E> {
    places: SmallVec<[Place; 1]>,
    outcomes: SmallVec<[Result<Outcome, E>; 1]>,
}

/// What came of looking at a batch.
pub(super) enum Looked {
    /// Somebody else is looking.
    Busy,
    /// There is nothing to look at any more.
    Done,
    /// It waits for the backend.
    Waiting,
    /// Its answers are there.
    Landed,
}

impl<E> Batch<E> {
    pub(super) fn new() -> Self {
        Self { flight: Mutex::new(Flight::Grounded), answers: OnceLock::new() }
    }

    /// Takes what has gathered; nobody can join any more, and nobody has looked yet, so the lock is free.
    pub(super) fn close(&self, gathering: Gathering) {
        *self.flight.lock() = Flight::Closed(gathering);
    }

    pub(super) fn has_answers(&self) -> bool {
        self.answers.get().is_some()
    }
}

impl<E: BaseErrorSet> Batch<E> {
    /// Polls the batch, after it has called `before`. Never waits for others that do.
    pub(super) fn look<B>(&self, backend: &Arc<B>, context: &mut Context<'_>, before: impl FnOnce()) -> Looked
    where
        B: StoreBackend<BaseError = E>,
    {
        let Some(mut flight) = self.flight.try_lock() else { return Looked::Busy };
        // Taken out: should the backend panic, nobody polls the remains.
        let mut flying = match std::mem::replace(&mut *flight, Flight::Grounded) {
            Flight::Grounded => return Looked::Done,
            Flight::Closed(gathering) => fly(Arc::clone(backend), gathering),
            Flight::Flying(flying) => flying,
        };
        before();
        match flying.as_mut().poll(context) {
            Poll::Pending => {
                *flight = Flight::Flying(flying);
                Looked::Waiting
            }
            Poll::Ready(answers) => {
                drop(flight);
                drop(flying);
                self.answers.get_or_init(|| answers);
                Looked::Landed
            }
        }
    }

    /// Why there was no answer in time, if that is all that came back.
    pub(super) fn silence(&self) -> Option<&E> {
        let outcomes = &self.answers.get()?.outcomes;
        let late =
            |outcome: &Result<_, E>| matches!(outcome, Err(error) if error.kind() == ErrorKind::Timeout);
        outcomes.iter().all(late).then(|| outcomes.first()?.as_ref().err())?
    }

    /// The answer to all of them is this error.
    pub(super) fn fail(&self, gathering: Gathering, error: &E) {
        let (requests, places) = gathering.close();
        let outcomes = requests.iter().map(|_| Err(error.clone())).collect();
        self.answers.get_or_init(|| Answers { places, outcomes });
    }

    /// There will be no answers.
    pub(super) fn lose(&self) {
        self.answers.get_or_init(|| Answers { places: SmallVec::new(), outcomes: SmallVec::new() });
    }

    /// The answer to the caller with this ticket, who asked `action`; none if the backend gave none.
    pub(super) fn answer(&self, ticket: u64, action: &Action<'_>) -> Option<Result<Outcome, E>> {
        let Answers { places, outcomes } = self.answers.get()?;
        let at = places.binary_search_by_key(&ticket, |place| place.ticket).ok()?;
        let Place { request, skip, .. } = *places.get(at)?;
        Some(match outcomes.get(request)? {
            Ok(outcome) => Ok(outcome.share(action, skip, action.times())),
            Err(error) => Err(error.clone()),
        })
    }
}

/// Asks the backend.
fn fly<B: StoreBackend>(backend: Arc<B>, gathering: Gathering) -> Flying<B::BaseError> {
    let (requests, places) = gathering.close();
    #[cfg(feature = "metrics")]
    record(backend.name(), places.len(), requests.len());
    Box::pin(async move {
        let outcomes = match requests.as_slice() {
            [request] => smallvec![backend.decide(&request.action()).await],
            requests => {
                let actions: Vec<_> = requests.iter().map(|request| request.action()).collect();
                backend.decide_many(&actions).await.into()
            }
        };
        Answers { places, outcomes }
    })
}

/// How much one question to the backend is worth.
#[cfg(feature = "metrics")]
fn record(backend: &'static str, callers: usize, actions: usize) {
    use crate::observe::metrics::{BATCH_ACTIONS, BATCH_CALLERS};

    for (name, count) in [(BATCH_CALLERS, callers), (BATCH_ACTIONS, actions)] {
        let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        metrics::histogram!(name, "backend" => backend).record(count);
    }
}
