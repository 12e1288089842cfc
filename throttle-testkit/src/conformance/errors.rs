//! Failures: each member of the family, at each operation, becomes the one error that users see.

use std::error::Error;
use std::sync::Arc;

use libtest_mimic::Failed;
use throttle_core::{
    Action, BaseErrorSet, Effect, ErrorKind, Guarded, Operation, Policy, Store, StoreBackend,
    StoreUnavailableError,
};

use super::check::{Checked, ensure, equal};
use super::group::{Case, Group, trials};
use super::lab::{Lab, at};
use super::variant::Variant;
use crate::{Fault, FaultyBackend, InjectedError};

pub(super) fn cases<B: StoreBackend>(variant: &Arc<Variant<B>>) -> Vec<Case> {
    let of_decisions = Operation::ALL.iter().filter(|operation| !Operation::LOCKS.contains(operation));
    let wrapped = of_decisions.fold(Group::new(variant, "errors"), |group, operation| {
        let (plain, any) =
            (format!("{}_is_wrapped", operation.name()), format!("any_{}_is_wrapped", operation.name()));
        group
            .trial(plain, |lab| wraps_every_member(lab, *operation))
            .trial(any, |lab| any_store_wraps_every_member(lab, *operation))
    });
    trials!(wrapped;
        samples_say_what_they_are,
        a_refused_action_changed_nothing,
        a_lost_reply_may_have_charged,
        a_healthy_store_is_transparent,
    )
    .into_cases()
}

/// Obligation 6, through `Guarded`.
async fn wraps_every_member<B: StoreBackend>(lab: Lab<B>, operation: Operation) -> Checked {
    let faulty = FaultyBackend::new(lab.backend());
    let store = Guarded::new(faulty.clone());
    every_member(&lab, &faulty, &store, operation).await
}

/// The same through `AnyStore`.
async fn any_store_wraps_every_member<B: StoreBackend>(lab: Lab<B>, operation: Operation) -> Checked {
    let faulty = FaultyBackend::new(lab.backend());
    let store = throttle_core::AnyStore::new(Guarded::new(faulty.clone()));
    every_member(&lab, &faulty, &store, operation).await
}

async fn every_member<B: StoreBackend>(
    lab: &Lab<B>,
    faulty: &FaultyBackend<Arc<B>>,
    store: &impl Store,
    operation: Operation,
) -> Checked {
    let policy = lab.policy("gcra 5/h")?;
    for sample in InjectedError::<B::BaseError>::samples() {
        faulty.faults().inject(Fault::fail_with(sample.clone()).on(operation));
        let errors = errors_of(store, operation, &policy).await?;
        ensure(!errors.is_empty(), || format!("{operation:?} did not fail with {sample:?}"))?;
        for error in errors {
            is_wrapped(&error, &sample, lab.backend().name(), operation)?;
        }
    }
    Ok(())
}

/// Calls `operation` where it must fail, and says how it did.
async fn errors_of(
    store: &impl Store,
    operation: Operation,
    policy: &Policy,
) -> Result<Vec<StoreUnavailableError>, Failed> {
    let action = Action::consume(policy, "key").at(Some(at(0)));
    let failure = match operation {
        Operation::Decide => store.decide(&action).await.err(),
        Operation::DecideMany => {
            let answers = store.decide_many(&[action, action]).await;
            return Ok(answers.into_iter().filter_map(Result::err).collect());
        }
        Operation::Reset => store.reset(policy.name(), "key").await.err(),
        Operation::ResetPolicy => store.reset_policy(policy.name()).await.err(),
        Operation::Ping => store.ping().await.err(),
        other => return Err(format!("the suite does not know how to call {other:?}").into()),
    };
    Ok(failure.into_iter().collect())
}

pub(super) fn is_wrapped<E: BaseErrorSet>(
    error: &StoreUnavailableError,
    member: &InjectedError<E>,
    backend: &str,
    operation: Operation,
) -> Checked {
    equal("backend", &error.backend(), &backend)?;
    equal("operation", &error.operation(), &operation)?;
    equal("kind", &error.kind(), &member.kind())?;
    equal("effect", &error.effect(), &member.effect())?;
    let cause = error.source().ok_or("the cause is lost")?;
    ensure(cause.is::<InjectedError<E>>(), || format!("the cause is another: {cause:?}"))?;
    let (shown, cause) = (error.to_string(), cause.to_string());
    ensure(!cause.is_empty(), || format!("{member:?} says nothing"))?;
    ensure(!shown.contains(&cause), || format!("`{shown}` repeats its cause `{cause}`"))?;
    let debug = format!("{error:?} {error:#?}");
    ensure(debug.contains(backend), || format!("Debug hides the backend: {debug}"))
}

/// A family says what it has, the same each time; what it says of itself can be shown.
async fn samples_say_what_they_are<B: StoreBackend>(_lab: Lab<B>) -> Checked {
    let samples = B::BaseError::samples();
    equal("samples", &B::BaseError::samples().len(), &samples.len())?;
    for sample in &samples {
        ensure(ErrorKind::ALL.contains(&sample.kind()), || format!("{sample:?} is of no known kind"))?;
        ensure(!sample.to_string().is_empty(), || format!("{sample:?} says nothing"))?;
    }
    let distinct: std::collections::HashSet<_> = samples.iter().map(|sample| format!("{sample:?}")).collect();
    equal("distinct samples", &distinct.len(), &samples.len())
}

/// Obligation 6: `NotApplied` means that nothing has changed.
async fn a_refused_action_changed_nothing<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let (left, effect) = after_one(&lab, Fault::refuse(ErrorKind::Connection)).await?;
    equal("effect", &effect, &Effect::NotApplied)?;
    equal("remaining", &left, &5)
}

/// Obligation 6: after a lost reply the key is charged, and nobody sent the action twice.
async fn a_lost_reply_may_have_charged<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let (left, effect) = after_one(&lab, Fault::lose_reply(ErrorKind::Timeout)).await?;
    equal("effect", &effect, &Effect::Unknown)?;
    equal("remaining", &left, &4)
}

async fn after_one<B: StoreBackend>(
    lab: &Lab<B>,
    fault: Fault<B::BaseError>,
) -> Result<(u32, Effect), Failed> {
    let faulty = FaultyBackend::new(lab.backend());
    let policy = lab.policy("gcra 5/h")?;
    faulty.faults().inject(fault);
    let action = Action::consume(&policy, "key").at(Some(at(0)));
    let error = Guarded::new(faulty).decide(&action).await.err().ok_or("it did not fail")?;
    let look = Action::peek(&policy, "key").with_cost(0).at(Some(at(0)));
    Ok((lab.decide(&look).await?.remaining(), error.effect()))
}

/// Without faults the wrappers add nothing and take nothing away.
async fn a_healthy_store_is_transparent<B: StoreBackend>(lab: Lab<B>) -> Checked {
    let policy = lab.policy("gcra 5/h; sliding_window_log 3/m")?;
    let faulty = Guarded::new(FaultyBackend::new(lab.backend()));
    let any = lab.any_store();
    equal("name", &any.backend_name(), &lab.backend().name())?;
    equal("name", &faulty.backend_name(), &lab.backend().name())?;
    let ask = |key| Action::consume(&policy, key).with_times(4).at(Some(at(0)));
    let plain = lab.outcome(&ask("plain")).await?;
    equal("through AnyStore", &any.decide(&ask("any")).await?, &plain)?;
    equal("through FaultyBackend", &faulty.decide(&ask("faulty")).await?, &plain)
}
