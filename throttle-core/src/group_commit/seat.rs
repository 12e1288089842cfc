//! One caller of a batch, from joining to its answer.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::batch::Batch;
use super::{Drive, GroupCommit};
use crate::{Action, Outcome, StoreBackend};

/// A caller's seat. Dropped without an answer, it is given up.
pub(super) struct Seat<'g, 'a, B: StoreBackend> {
    group: &'g GroupCommit<B>,
    action: Action<'a>,
    batch: Arc<Batch<B::BaseError>>,
    ticket: u64,
    is_asleep: bool,
    /// Whether it has left others a turn of the executor.
    has_waited: bool,
}

impl<'g, 'a, B: StoreBackend> Seat<'g, 'a, B> {
    pub(super) fn take(group: &'g GroupCommit<B>, action: &Action<'a>) -> Self {
        let (batch, ticket) = group.join(action);
        Self { group, action: *action, batch, ticket, is_asleep: false, has_waited: false }
    }

    /// Ready once the batch has been answered.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.batch.has_answers() {
            return Poll::Ready(());
        }
        for is_asleep in [false, true] {
            if is_asleep {
                // Asleep before a last look: the bell may have rung just now.
                self.group.bell().sleep(self.ticket, context.waker());
                self.is_asleep = true;
            }
            if let Drive::Later = self.group.drive(!self.has_waited) {
                self.has_waited = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.batch.has_answers() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// The answer; none if the backend gave none, or there is none yet.
    pub(super) fn answer(&self) -> Option<Result<Outcome, B::BaseError>> {
        self.batch.answer(self.ticket, &self.action)
    }
}

impl<B: StoreBackend> Drop for Seat<'_, '_, B> {
    fn drop(&mut self) {
        if self.is_asleep {
            self.group.bell().forget(self.ticket);
        }
        if !self.batch.has_answers() {
            self.group.leave(&self.batch, self.ticket);
        }
    }
}
