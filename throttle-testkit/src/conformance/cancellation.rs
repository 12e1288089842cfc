//! Callers that go away.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use throttle_core::{Action, Policy, Store, StoreBackend};

use super::check::{Checked, ensure, equal};
use super::group::{Case, Group, trials};
use super::lab::{Lab, at, told};
use super::variant::Variant;

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    trials!(Group::new(variant, "cancellation");
        a_future_that_is_never_polled_does_nothing,
        a_dropped_decision_is_charged_or_not,
        a_dropped_batch_is_charged_or_not_for_each_action,
        a_dropped_reset_is_done_or_not,
        many_dropped_calls_leave_a_working_store,
    )
    .into_cases()
}

/// How often a future is polled before it is dropped.
pub(super) const POLLS: [u32; 8] = [0, 1, 2, 3, 4, 6, 10, 20];

/// Polls `future` at most `polls` times, and drops it.
pub(super) async fn abandon<F: Future>(future: F, polls: u32) {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        future.as_mut().poll(context).map(drop)
    })
    .await;
}

async fn remaining<B: StoreBackend>(lab: &Lab<B>, policy: &Policy) -> Result<u32, libtest_mimic::Failed> {
    let look = Action::peek(policy, "key").with_cost(0).at(Some(at(0)));
    Ok(lab.decide(&look).await?.remaining())
}

/// What a dropped call has left behind comes to rest within a moment.
async fn settled<B: StoreBackend>(lab: &Lab<B>, policy: &Policy) -> Result<u32, libtest_mimic::Failed> {
    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    remaining(lab, policy).await
}

async fn a_future_that_is_never_polled_does_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 5/h")?;
    let store = lab.store();
    drop(store.decide(&Action::consume(&policy, "key").at(Some(at(0)))));
    drop(store.reset_policy(policy.name()));
    equal("remaining", &settled(&lab, &policy).await?, &5)
}

/// Obligation 7: the whole cost, or nothing; and later calls are decided.
async fn a_dropped_decision_is_charged_or_not<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for polls in POLLS {
        let policy = lab.policy("token_bucket 10/h; sliding_window_log 10/h")?;
        let action = Action::consume(&policy, "key").with_cost(4).at(Some(at(0)));
        abandon(lab.store().decide(&action), polls).await;
        let left = settled(&lab, &policy).await?;
        ensure(left == 10 || left == 6, || format!("{left} of 10 left after {polls} polls of a cost of 4"))?;
        let next = lab.decide(&Action::consume(&policy, "key").at(Some(at(0)))).await?;
        equal("remaining after the next call", &next.remaining(), &(left - 1))?;
    }
    Ok(())
}

/// Obligation 7, for each action of a batch.
async fn a_dropped_batch_is_charged_or_not_for_each_action<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for polls in POLLS {
        let policy = lab.policy("gcra 100/h; fixed_window 100/h")?;
        let actions = vec![Action::consume(&policy, "key").with_cost(7).at(Some(at(0))); 10];
        abandon(lab.store().decide_many(&actions), polls).await;
        let left = settled(&lab, &policy).await?;
        ensure((100 - left) % 7 == 0, || format!("{left} of 100 left after {polls} polls of costs of 7"))?;
        ensure(left >= 30, || format!("{left} of 100 left: more than was asked for"))?;
    }
    Ok(())
}

/// Obligation 7.
async fn a_dropped_reset_is_done_or_not<B: StoreBackend>(lab: Lab<B>) -> Checked {
    for polls in POLLS {
        let policy = lab.policy("gcra 5/h; sliding_window 5/h")?;
        lab.outcome(&Action::consume(&policy, "key").with_cost(3).at(Some(at(0)))).await?;
        abandon(lab.store().reset(policy.name(), "key"), polls).await;
        let left = settled(&lab, &policy).await?;
        ensure(left == 2 || left == 5, || format!("{left} of 5 left after {polls} polls of a reset"))?;
        abandon(lab.store().reset_policy(policy.name()), polls).await;
        let left = settled(&lab, &policy).await?;
        ensure(left == 2 || left == 5, || format!("{left} of 5 left after {polls} polls of resetting all"))?;
    }
    Ok(())
}

/// Obligation 7: no lock, connection or task stays behind, however many go away.
async fn many_dropped_calls_leave_a_working_store<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("token_bucket 5000/h")?;
    for round in 0..50 {
        let action = Action::consume(&policy, "key").at(Some(at(0)));
        let store = lab.store();
        let calls = (0..20_u32).map(|call| abandon(store.decide(&action), (round + call) % 5));
        futures_util::future::join_all(calls).await;
    }
    let left = settled(&lab, &policy).await?;
    ensure(left >= 4_000, || format!("{left} of 5000 left after 1000 calls"))?;
    for _ in 0..20 {
        let decided = lab.store().decide(&Action::consume(&policy, "key").at(Some(at(0)))).await;
        decided.map_err(|error| told(&error))?;
    }
    equal("remaining", &remaining(&lab, &policy).await?, &(left - 20))
}
