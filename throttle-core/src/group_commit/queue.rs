//! The order of batches: one runs, others wait, the last is open.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::batch::Batch;
use super::gathering::Gathering;
use crate::{Action, BaseErrorSet};

/// The running batch and those behind it.
pub(super) struct Queue<E> {
    running: Option<Running<E>>,
    waiting: VecDeque<Waiting<E>>,
    /// The batch that ran last, for as long as callers of it are there.
    last: Weak<Batch<E>>,
    next_ticket: u64,
}

struct Running<E> {
    batch: Arc<Batch<E>>,
    /// How many of its callers are still there.
    callers: usize,
}

/// A batch that was not sent yet. None is ever without callers.
pub(super) struct Waiting<E> {
    batch: Arc<Batch<E>>,
    gathering: Gathering,
}

impl<E: BaseErrorSet> Waiting<E> {
    /// It is not sent: each of its callers gets this error.
    pub(super) fn fail(self, error: &E) {
        self.batch.fail(self.gathering, error);
    }
}

/// What is to be done.
pub(super) enum Turn<E> {
    /// Look at this batch: it is running.
    Look(Arc<Batch<E>>),
    /// Start the next batch in a while.
    Later,
    /// Nothing.
    Nothing,
}

/// What a caller that leaves takes along, to be dropped outside the lock.
pub(super) enum Left<E> {
    /// Others go on.
    Nothing,
    /// It was the last caller of a batch that waits.
    Waiting(Gathering),
    /// It was the last caller of the running batch: the next one has its turn.
    Running(Arc<Batch<E>>),
}

impl<E> Queue<E> {
    pub(super) fn new() -> Self {
        Self { running: None, waiting: VecDeque::new(), last: Weak::new(), next_ticket: 0 }
    }

    /// Takes in a caller: its batch, and its ticket. Tickets rise in order of arrival.
    pub(super) fn join(&mut self, action: &Action<'_>, hash: u64, most: usize) -> (Arc<Batch<E>>, u64) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if let Some(last) = self.waiting.back_mut()
            && last.gathering.add(ticket, action, hash, most)
        {
            return (Arc::clone(&last.batch), ticket);
        }
        let (batch, mut gathering) = (Arc::new(Batch::new()), Gathering::default());
        gathering.add(ticket, action, hash, most);
        self.waiting.push_back(Waiting { batch: Arc::clone(&batch), gathering });
        (batch, ticket)
    }

    /// The running batch, or the next one if none is running. With `patience`, no batch is started while callers of
    /// the last one have not seen their answers: they are being woken, and may be about to ask again.
    pub(super) fn current(&mut self, patience: bool) -> Turn<E> {
        if let Some(running) = &self.running {
            return Turn::Look(Arc::clone(&running.batch));
        }
        if patience && self.last.strong_count() > 0 {
            return Turn::Later;
        }
        let Some(Waiting { batch, gathering }) = self.waiting.pop_front() else { return Turn::Nothing };
        self.running = Some(Running { callers: gathering.callers(), batch: Arc::clone(&batch) });
        batch.close(gathering);
        Turn::Look(batch)
    }

    pub(super) fn is_running(&self, batch: &Arc<Batch<E>>) -> bool {
        self.running.as_ref().is_some_and(|running| Arc::ptr_eq(&running.batch, batch))
    }

    /// The batch has run. Those that wait are its own to take along if it found the store `silent`.
    pub(super) fn end(&mut self, batch: &Arc<Batch<E>>, silent: bool) -> VecDeque<Waiting<E>> {
        if !self.is_running(batch) {
            return VecDeque::new();
        }
        self.running = None;
        self.last = Arc::downgrade(batch);
        if silent { std::mem::take(&mut self.waiting) } else { VecDeque::new() }
    }

    /// Takes out a caller that goes away unanswered. Before its batch was sent, it is as if it had never come.
    pub(super) fn leave(&mut self, batch: &Arc<Batch<E>>, ticket: u64) -> Left<E> {
        if let Some(running) = &mut self.running
            && Arc::ptr_eq(&running.batch, batch)
        {
            running.callers -= 1;
            if running.callers > 0 {
                return Left::Nothing;
            }
            return self.running.take().map_or(Left::Nothing, |running| Left::Running(running.batch));
        }
        let Some(at) = self.waiting.iter().position(|waiting| Arc::ptr_eq(&waiting.batch, batch)) else {
            return Left::Nothing;
        };
        let Some(waiting) = self.waiting.get_mut(at) else { return Left::Nothing };
        waiting.gathering.remove(ticket);
        if waiting.gathering.callers() > 0 {
            return Left::Nothing;
        }
        self.waiting.remove(at).map_or(Left::Nothing, |waiting| Left::Waiting(waiting.gathering))
    }

    /// Batches that were not sent yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
