//! Whether a history of calls could have come about one call at a time: the search of Wing and Gong, on short histories.
//!
//! Each call took effect at some moment between its start and its end, or, if its reply is missing, later or never. A
//! history is right if there is an order of such moments in which each answer is what a lock says.

use std::collections::HashSet;
use std::time::Duration;

use throttle_core::lock::{Fence, Owner};

/// One call on a lock.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) owner: Owner,
    pub(super) asked: Asked,
    pub(super) answer: Answer,
    pub(super) called: Moment,
    /// None if the reply is missing: it may take effect at any time.
    pub(super) returned: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Acquire,
    Extend,
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Held(Fence),
    Busy,
    /// Of an extension or a release.
    Holder(bool),
    /// It failed, and may have happened.
    Missing,
}

/// A point in the order of all starts and ends, and how much time the store had seen by then: at least, and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) order: usize,
    pub(super) at_least: Duration,
    pub(super) at_most: Duration,
}

/// For how long locks are held, and for how long they may be held beyond it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) ttl: Duration,
    pub(super) lag: Duration,
}

/// What is known of a lock between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct State {
    held: Option<Held>,
    /// No number up to this one comes again.
    last: Option<Fence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    owner: Owner,
    /// Not known as long as the reply with it is missing.
    fence: Option<Fence>,
    /// Which call set the time to live.
    set_by: usize,
}

/// Whether `history` could have come about one call at a time, on a lock that was free.
pub(super) fn is_linearizable(history: &[Event], times: Times) -> bool {
    let search = Search { history, times };
    let mut seen = HashSet::new();
    let mut open = vec![(0_u64, State::default())];
    while let Some((done, state)) = open.pop() {
        if search.is_complete(done) {
            return true;
        }
        if seen.insert((done, state)) {
            open.extend(search.next(done, state));
        }
    }
    false
}

struct Search<'h> {
    history: &'h [Event],
    times: Times,
}

impl Search<'_> {
    /// Calls without a reply need not have happened.
    fn is_complete(&self, done: u64) -> bool {
        self.left(done).all(|(_, event)| event.returned.is_none())
    }

    fn left(&self, done: u64) -> impl Iterator<Item = (usize, &Event)> {
        self.history.iter().enumerate().filter(move |(index, _)| done & (1 << index) == 0)
    }

    /// What may come next: each call that started before any of the others that are left had ended.
    fn next(&self, done: u64, state: State) -> Vec<(u64, State)> {
        let ends = self.left(done).filter_map(|(_, event)| event.returned.map(|moment| moment.order));
        let first_end = ends.min().unwrap_or(usize::MAX);
        let may_be_next = self.left(done).filter(|(_, event)| event.called.order < first_end);
        let steps = may_be_next.flat_map(|(index, event)| {
            let before = self.expired_or_not(state, event);
            before
                .into_iter()
                .flatten()
                .filter_map(move |state| Some((done | 1 << index, step(state, index, event)?)))
        });
        steps.collect()
    }

    /// The state in which `event` may find the lock: as it was, if its time may not have passed by then; free, if it
    /// may have.
    fn expired_or_not(&self, state: State, event: &Event) -> [Option<State>; 2] {
        let Some(set_by) = state.held.and_then(|held| self.history.get(held.set_by)) else {
            return [Some(state), None];
        };
        let since_at_least = match set_by.returned {
            Some(set) => event.called.at_least.saturating_sub(set.at_most),
            None => Duration::ZERO,
        };
        let may_be_held = since_at_least <= self.times.ttl + self.times.lag;
        let may_have_expired = event
            .returned
            .is_none_or(|returned| returned.at_most.saturating_sub(set_by.called.at_least) >= self.times.ttl);
        let free = State { held: None, ..state };
        [may_be_held.then_some(state), may_have_expired.then_some(free)]
    }
}

/// What `event` makes of `state`, if its answer is right there.
fn step(state: State, index: usize, event: &Event) -> Option<State> {
    let own = state.held.filter(|held| held.owner == event.owner);
    let anew = |fence| State { held: Some(Held { owner: event.owner, fence, set_by: index }), ..state };
    let freed = State { held: None, ..state };
    match (event.asked, event.answer, own) {
        (Asked::Acquire, Answer::Held(fence), _) => is_right(state, own, fence)
            .then(|| State { last: state.last.max(Some(fence)), ..anew(Some(fence)) }),
        (Asked::Acquire, Answer::Busy, None) => state.held.is_some().then_some(state),
        (Asked::Acquire, Answer::Missing, None) if state.held.is_none() => Some(anew(None)),
        (Asked::Acquire | Asked::Extend, Answer::Missing, Some(held)) => Some(anew(held.fence)),
        (Asked::Extend, Answer::Holder(true), Some(held)) => Some(anew(held.fence)),
        (Asked::Release, Answer::Holder(true) | Answer::Missing, Some(_)) => Some(freed),
        (_, Answer::Missing, None) | (Asked::Extend | Asked::Release, Answer::Holder(false), None) => {
            Some(state)
        }
        _ => None,
    }
}

/// Whether `fence` is the number of a new acquisition, or that of the one which the owner has already.
fn is_right(state: State, own: Option<Held>, fence: Fence) -> bool {
    match (state.held, own.map(|held| held.fence)) {
        (_, Some(Some(known))) => known == fence,
        (None, None) | (_, Some(None)) => state.last < Some(fence),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { ttl: Duration::from_millis(100), lag: Duration::from_millis(10) };

    /// Owner, what was asked, the answer, start, end and milliseconds that have passed.
    type Line = (u128, Asked, Answer, usize, Option<usize>, u64);

    fn explained(lines: &[Line]) -> bool {
        let event = |line: &Line| {
            let (owner, asked, answer, called, returned, millis) = *line;
            let passed = Duration::from_millis(millis);
            let moment = |order| Moment { order, at_least: passed, at_most: passed };
            let (called, returned) = (moment(called), returned.map(moment));
            Event { owner: Owner::from_u128(owner), asked, answer, called, returned }
        };
        is_linearizable(&lines.iter().map(event).collect::<Vec<_>>(), TIMES)
    }

    use Answer::{Busy, Holder, Missing};
    use Asked::{Acquire, Extend, Release};

    fn held(fence: u64) -> Answer {
        Answer::Held(Fence::new(fence))
    }

    #[test]
    fn one_after_the_other() {
        let first = [(1, Acquire, held(5), 0, Some(1), 0), (2, Acquire, Busy, 2, Some(3), 1)];
        assert!(explained(&first));
        assert!(!explained(&[first[0], (2, Acquire, held(6), 2, Some(3), 1)]), "two holders");
        let freed = (1, Release, Holder(true), 4, Some(5), 2);
        assert!(explained(&[first[0], first[1], freed, (2, Acquire, held(6), 6, Some(7), 3)]));
        assert!(
            !explained(&[first[0], first[1], freed, (2, Acquire, held(5), 6, Some(7), 3)]),
            "the same fence"
        );
        assert!(
            !explained(&[first[0], first[1], freed, (2, Acquire, Busy, 6, Some(7), 3)]),
            "busy, held by nobody"
        );
        assert!(
            !explained(&[first[0], freed, (1, Extend, Holder(true), 6, Some(7), 3)]),
            "extended after release"
        );
        assert!(!explained(&[first[0], (2, Release, Holder(true), 2, Some(3), 1)]), "freed by another");
        assert!(explained(&[first[0], (1, Acquire, held(5), 2, Some(3), 1)]), "asked again");
        assert!(
            !explained(&[first[0], (1, Acquire, held(6), 2, Some(3), 1)]),
            "asked again, and numbered anew"
        );
    }

    #[test]
    fn at_the_same_time_any_order_will_do_that_explains_it() {
        let a = (1, Acquire, held(5), 0, Some(3), 0);
        assert!(explained(&[a, (2, Acquire, Busy, 1, Some(2), 0)]));
        assert!(explained(&[
            a,
            (2, Acquire, held(4), 1, Some(5), 0),
            (2, Release, Holder(true), 2, Some(4), 0)
        ]));
        assert!(!explained(&[a, (2, Acquire, held(6), 1, Some(2), 0)]));
        assert!(!explained(&[(1, Acquire, Busy, 0, Some(2), 0), (2, Acquire, Busy, 1, Some(3), 0)]));
    }

    #[test]
    fn a_missing_reply_may_have_happened_or_not_and_once() {
        let lost = (1, Acquire, Missing, 0, None, 0);
        assert!(explained(&[lost, (2, Acquire, Busy, 2, Some(3), 1)]));
        assert!(explained(&[lost, (2, Acquire, held(3), 2, Some(3), 1)]));
        assert!(explained(&[lost, (1, Acquire, held(3), 2, Some(3), 1)]), "found again");
        assert!(explained(&[
            lost,
            (2, Acquire, held(3), 2, Some(3), 1),
            (2, Extend, Holder(true), 4, Some(5), 2)
        ]));
        let taken = (1, Acquire, held(3), 0, Some(1), 0);
        let freed = [taken, (1, Release, Missing, 2, None, 1)];
        assert!(explained(&[freed[0], freed[1], (2, Acquire, held(4), 4, Some(5), 2)]));
        assert!(explained(&[freed[0], freed[1], (2, Acquire, Busy, 4, Some(5), 2)]));
        let freed_twice = (2, Extend, Holder(false), 6, Some(7), 2);
        assert!(
            !explained(&[freed[0], freed[1], (2, Acquire, held(4), 4, Some(5), 2), freed_twice]),
            "a release that comes late is about its own acquisition"
        );
    }

    #[test]
    fn time_passes_no_faster_and_no_slower_than_it_does() {
        let taken = (1, Acquire, held(3), 0, Some(1), 0);
        let by = |answer, millis| explained(&[taken, (2, Acquire, answer, 2, Some(3), millis)]);
        assert!(!by(held(4), 99) && by(held(4), 100), "not before");
        assert!(by(Busy, 110) && !by(Busy, 111), "and soon after");
        let extended = (1, Extend, Holder(true), 2, Some(3), 90);
        assert!(explained(&[taken, extended, (2, Acquire, Busy, 4, Some(5), 180)]));
        assert!(
            !explained(&[taken, (1, Extend, Holder(true), 2, Some(3), 111)]),
            "extended after it was over"
        );
        assert!(!explained(&[taken, (1, Extend, Holder(false), 2, Some(3), 99)]), "lost before it was over");
    }
}
