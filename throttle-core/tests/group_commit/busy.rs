//! A batch that is woken, and found busy, in the middle of being polled. Two threads do that by chance; here the backend
//! does it on purpose, by polling another caller out of its own poll.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use throttle_core::kernel::{PolicyState, decide};
use throttle_core::{Action, GroupCommit, Outcome, Policy, PolicyName, StoreBackend, Timestamp};

use crate::gate::{Caller, settle};
use crate::policy;

thread_local! {
    /// Who is waiting for the backend.
    static WAITING: RefCell<Option<Waker>> = const { RefCell::new(None) };
    /// What the backend does in its third poll, after it has woken whoever waits.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Restless;

impl StoreBackend for Restless {
    type BaseError = Infallible;

    fn name(&self) -> &'static str {
        "restless"
    }

    async fn decide(&self, action: &Action<'_>) -> Result<Outcome, Infallible> {
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            match polls {
                1 => WAITING.set(Some(context.waker().clone())),
                4 => return Poll::Ready(()),
                _ => context.waker().wake_by_ref(),
            }
            if polls == 3 {
                let meanwhile = MEANWHILE.with_borrow_mut(Option::take);
                meanwhile.into_iter().for_each(|meanwhile| meanwhile());
            }
            Poll::Pending
        })
        .await;
        Ok(decide(action, Timestamp::EPOCH, &mut PolicyState::fresh(action.policy())))
    }

    async fn reset(&self, _: &PolicyName, _: &str) -> Result<bool, Infallible> {
        Ok(false)
    }

    async fn reset_policy(&self, _: &PolicyName) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn ping(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[test]
fn who_found_the_batch_busy_is_woken_again() {
    let group: &'static GroupCommit<Restless> = Box::leak(Box::new(GroupCommit::new(Restless)));
    let policy: &'static Policy = Box::leak(Box::new(policy("gcra 9/h")));
    let action: &'static Action<'static> = Box::leak(Box::new(Action::consume(policy, "k")));
    let calls: &'static RefCell<Vec<Caller<'static, _>>> = Box::leak(Box::default());

    let mut driver = Caller::new(group.decide(action));
    driver.poll();
    calls.borrow_mut().push(Caller::new(group.decide(action)));
    settle(&mut calls.borrow_mut());
    // In its third poll the batch wakes everybody, and the other caller comes at once, to find it busy.
    MEANWHILE.set(Some(Box::new(|| settle(&mut calls.borrow_mut()))));
    WAITING.take().unwrap().wake();
    assert!(!driver.poll());
    assert!(MEANWHILE.take().is_none());
    // The driver is never polled again.
    settle(&mut calls.borrow_mut());
    assert!(WAITING.take().is_some(), "the other caller ended the batch, and started its own");
}
