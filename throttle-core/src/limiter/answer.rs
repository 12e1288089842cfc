//! How a limiter with options comes to an answer: the lists, then the store within the breaker and the deadline, then
//! the failure policy.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::course::{Course, Failure};
use super::options::Options;
use super::{RateLimiter, Taken, Taker};
use crate::failure::{CircuitOpen, DeadlineExceeded, Notice};
use crate::observe::{BreakerEvent, Call};
use crate::{
    Action, Breaker, BreakerState, Clock, Decision, FailurePolicy, Operand, Operation, Sleep, Source, Store,
    StoreUnavailableError, SystemClock, Take, Timestamp,
};

/// When to ask again where nothing else says so.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What came of asking once.
pub(super) struct Answer<T = Taken> {
    pub(super) outcome: Result<T, StoreUnavailableError>,
    /// How the store failed, whoever answered then.
    pub(super) failure: Option<Failure>,
    /// How long the store took, if it was asked and somebody wants to know.
    pub(super) store_time: Option<Duration>,
}

impl<T> Answer<T> {
    /// An answer that is not worth remarks.
    pub(super) const fn plain(outcome: Result<T, StoreUnavailableError>) -> Self {
        Self { outcome, failure: None, store_time: None }
    }
}

impl<S: Store> RateLimiter<S> {
    /// A call that asks once, as [`answer`](Self::answer) does.
    pub(crate) async fn take(
        &self,
        call: Call,
        action: &Action<'_>,
        taker: Option<Taker>,
    ) -> Result<Taken, StoreUnavailableError> {
        match self.attended() {
            None => self.take_plainly(action).await,
            Some(_) => self.attend(call, action, taker).await,
        }
    }

    async fn take_plainly(&self, action: &Action<'_>) -> Result<Taken, StoreUnavailableError> {
        if action.is_hopeless() {
            return Ok(Taken::never(action));
        }
        Ok(Taken::of(action, &self.inner.store.decide(action).await?))
    }

    /// The same of a limiter with options. Boxed, so that the futures of a plain one stay small.
    #[inline(never)]
    pub(super) fn attend<'a>(
        &'a self,
        call: Call,
        action: &'a Action<'a>,
        taker: Option<Taker>,
    ) -> BoxFuture<'a, Result<Taken, StoreUnavailableError>> {
        Box::pin(async move {
            let cost = action.cost().saturating_mul(action.times());
            let mut course = Course::begin(self, call, action.key(), cost);
            let outcome = course.note(self.answer(call, action, taker).await);
            course.end(outcome)
        })
    }

    /// The same, if it can be answered at once: by a list, or by a store that cannot fail. Else nothing happened.
    #[inline(never)]
    pub(super) fn attend_now(&self, options: &Options, call: Call, action: &Action<'_>) -> Option<Decision> {
        let mut course = Course::begin(self, call, action.key(), action.cost());
        let answer = match options.listed(action, || self.moment()) {
            Some(listed) => Answer::plain(Ok(listed)),
            None => self.ask_now(options, action)?,
        };
        let outcome = course.note(answer);
        Some(course.end(outcome).ok()?.decision)
    }

    fn ask_now(&self, options: &Options, action: &Action<'_>) -> Option<Answer> {
        let is_open = |breaker: &Breaker| breaker.state() != BreakerState::Closed;
        if options.breaker.as_ref().is_some_and(is_open) {
            return None;
        }
        let began = options.is_observed().then(|| self.moment());
        let take = Take::new(*action)?;
        let decision = take.explain(self.inner.store.decide_now(&take)?);
        let store_time = began.map(|began| self.moment().saturating_since(began));
        let taken = Taken { units: 1, decision, taker: Some(Taker::STORE) };
        Some(Answer { outcome: Ok(taken), failure: None, store_time })
    }

    /// Asks once, on behalf of `call`: whoever decides at present, or whoever took the units that `action` settles.
    pub(super) async fn answer(&self, call: Call, action: &Action<'_>, taker: Option<Taker>) -> Answer {
        let Some(options) = self.attended() else { return Answer::plain(self.take_plainly(action).await) };
        if let Some(listed) = options.listed(action, || self.moment()) {
            return Answer::plain(Ok(listed));
        }
        if action.is_hopeless() {
            return Answer::plain(Ok(Taken::never(action)));
        }
        if let Some(behind) = taker.and_then(Taker::seen_by_fallback) {
            return Answer::plain(self.fall_back(options, call, action, Some(behind)).await);
        }
        let asked = self.guarded(options, Operation::Decide, self.inner.store.decide(action)).await;
        let Answer { outcome, failure, store_time } = asked;
        let outcome = match outcome {
            Ok(outcome) => Ok(Taken::of(action, &outcome)),
            Err(error) if options.is_outage(error.kind()) => {
                // What the store took, the fallback has not charged: it only says where the key stands.
                let is_owed = taker.is_some() && action.operand() == Operand::Refund;
                let probe = Action::peek(action.policy(), action.key()).with_cost(0).at(action.now());
                self.by_policy(options, call, if is_owed { &probe } else { action }, error).await
            }
            Err(error) => Err(error),
        };
        Answer { outcome, failure, store_time }
    }

    async fn by_policy(
        &self,
        options: &Options,
        call: Call,
        action: &Action<'_>,
        error: StoreUnavailableError,
    ) -> Result<Taken, StoreUnavailableError> {
        match &options.failure {
            FailurePolicy::Propagate => Err(error),
            FailurePolicy::FailOpen => {
                let decision = Decision::as_if_fresh(action, self.moment(), Source::Policy);
                Ok(Taken::from_nobody(action.times(), decision))
            }
            FailurePolicy::FailClosed => Ok(self.refused(options, Source::Policy)),
            // Of two errors the first: the fallback tells its own observers.
            FailurePolicy::Fallback(_) => {
                self.fall_back(options, call, action, None).await.map_err(|_| error)
            }
        }
    }

    async fn fall_back(
        &self,
        options: &Options,
        call: Call,
        action: &Action<'_>,
        taker: Option<Taker>,
    ) -> Result<Taken, StoreUnavailableError> {
        let Some(fallback) = options.fallback() else { return Ok(self.refused(options, Source::Policy)) };
        let Taken { units, decision, taker } = fallback.answer(call, action, taker).await?;
        if decision.is_never() && decision.source() != Source::BlockList {
            // The policy itself can hold this much: once the store is back, it may be allowed.
            return Ok(self.refused(options, Source::Fallback));
        }
        let taker = taker.map(Taker::behind_fallback);
        Ok(Taken { units, decision: decision.with_source(Source::Fallback), taker })
    }

    /// Denied until the store is asked again.
    fn refused(&self, options: &Options, source: Source) -> Taken {
        let pause = options.breaker.as_ref().and_then(|breaker| breaker.until_probe(self.moment()));
        Taken::from_nobody(0, Decision::refused(self.policy(), pause.unwrap_or(RETRY_AFTER), source))
    }

    /// Gives units back to whoever took them, and tells nobody.
    pub(super) async fn give_back(&self, key: &str, units: u32, taker: Option<Taker>) {
        let action = Action::refund(self.policy(), key).with_cost(units).at(self.now());
        let _ = self.answer(Call::Refund, &action, taker).await;
    }

    /// A reset of one kind: at the store, and at the fallback, which else would go on denying. While the store is out of
    /// service, the fallback answers.
    pub(super) async fn forget<T: Send>(
        &self,
        course: Course<'_, S>,
        operation: Operation,
        at_store: impl Future<Output = Result<T, StoreUnavailableError>> + Send,
        at_fallback: impl AsyncFnOnce(&crate::AnyLimiter) -> Result<T, StoreUnavailableError>,
    ) -> Result<T, StoreUnavailableError> {
        let (Some(options), mut course) = (self.attended(), course) else { return at_store.await };
        let outcome = course.note(self.guarded(options, operation, at_store).await);
        let fallen_back = match options.fallback() {
            Some(fallback) => at_fallback(fallback).await.ok(),
            None => None,
        };
        let outcome = match (outcome, fallen_back) {
            (Err(error), Some(answer)) if options.is_outage(error.kind()) => Ok(answer),
            (outcome, _) => outcome,
        };
        course.end_forgetting(outcome)
    }

    /// Asks the store, if the breaker lets it, and waits for the answer until the deadline.
    async fn guarded<T>(
        &self,
        options: &Arc<Options>,
        operation: Operation,
        question: impl Future<Output = Result<T, StoreUnavailableError>>,
    ) -> Answer<T> {
        let backend = self.inner.store.backend_name();
        let permit = match Permit::ask(self, options) {
            Ok(permit) => permit,
            Err(cause) => {
                let error = StoreUnavailableError::by_limiter(backend, operation, CircuitOpen::new(cause));
                let failure = Failure { error: error.clone(), was_asked: false };
                return Answer { outcome: Err(error), failure: Some(failure), store_time: None };
            }
        };
        let began = options.is_observed().then(|| self.moment());
        let outcome = match options.deadline {
            None => question.await,
            Some(limit) => within(limit, || self.timer(limit), question).await.unwrap_or_else(|| {
                Err(StoreUnavailableError::by_limiter(backend, operation, DeadlineExceeded { limit }))
            }),
        };
        let store_time = began.map(|began| self.moment().saturating_since(began));
        let error = outcome.as_ref().err();
        if let Some(permit) = permit {
            permit.report(error.filter(|error| options.is_outage(error.kind())));
        }
        let failure = error.map(|error| Failure { error: error.clone(), was_asked: true });
        Answer { outcome, failure, store_time }
    }

    /// The present moment, of the limiter's clock if it has one.
    pub(super) fn moment(&self) -> Timestamp {
        self.now().unwrap_or_else(|| SystemClock.now())
    }

    /// Passes when `span` has; never where there is nothing that could measure it.
    fn timer(&self, span: Duration) -> Sleep {
        match self.clock() {
            Some(clock) => clock.sleep(span),
            None if Handle::try_current().is_ok() => SystemClock.sleep(span),
            None => Box::pin(pending()),
        }
    }
}

/// The answer of `question`, unless the time is over before. The timer starts when there is something to wait for, and
/// the answer is looked for once more when it has run out.
async fn within<T>(
    limit: Duration,
    timer: impl FnOnce() -> Sleep,
    question: impl Future<Output = T>,
) -> Option<T> {
    let (mut question, mut timer, mut running) = (pin!(question), Some(timer), None::<Sleep>);
    poll_fn(|context| {
        if let Poll::Ready(answer) = question.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        if limit.is_zero() {
            return Poll::Ready(None);
        }
        if let Some(start) = timer.take() {
            running = Some(start());
        }
        let is_over = running.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
        match is_over {
            false => Poll::Pending,
            true => Poll::Ready(match question.as_mut().poll(context) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            }),
        }
    })
    .await
}

/// Leave of a breaker to ask the store. Dropped without a report, its caller went away.
struct Permit<'p, S: Store> {
    limiter: &'p RateLimiter<S>,
    options: &'p Arc<Options>,
    breaker: &'p Breaker,
    generation: u64,
    is_reported: bool,
}

impl<'p, S: Store> Permit<'p, S> {
    /// None without a breaker; the failure that keeps it open if it does not let the call through.
    fn ask(
        limiter: &'p RateLimiter<S>,
        options: &'p Arc<Options>,
    ) -> Result<Option<Self>, StoreUnavailableError> {
        let Some(breaker) = &options.breaker else { return Ok(None) };
        let generation = breaker.admit(limiter.moment(), notice_of(limiter, options, breaker))?;
        Ok(Some(Self { limiter, options, breaker, generation, is_reported: false }))
    }

    fn report(mut self, failure: Option<&StoreUnavailableError>) {
        self.is_reported = true;
        let tell = notice_of(self.limiter, self.options, self.breaker);
        self.breaker.report(self.generation, failure, self.limiter.moment(), tell);
    }
}

impl<S: Store> Drop for Permit<'_, S> {
    fn drop(&mut self) {
        if !self.is_reported {
            let tell = notice_of(self.limiter, self.options, self.breaker);
            self.breaker.abandon(self.generation, self.limiter.moment(), tell);
        }
    }
}

/// Makes the notice of a change, which tells the observers later, under no lock.
fn notice_of<'p, S: Store>(
    limiter: &'p RateLimiter<S>,
    options: &'p Arc<Options>,
    breaker: &'p Breaker,
) -> impl FnOnce(BreakerState, BreakerState, Option<StoreUnavailableError>) -> Notice + 'p {
    move |from, to, cause| {
        let (policy, options, breaker) = (limiter.policy().clone(), Arc::clone(options), breaker.clone());
        let backend = limiter.store().backend_name();
        Box::new(move || {
            let name = breaker.name().unwrap_or_else(|| policy.name().as_str());
            let event =
                BreakerEvent { policy: &policy, backend, breaker: name, from, to, cause: cause.as_ref() };
            options.tell(|observer| observer.on_breaker(&event));
        })
    }
}
