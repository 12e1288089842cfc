//! [`PerRule`]: one of something for each rule of a policy.

use std::fmt;

/// One `T` per rule of a policy, in its order. The first is inline, in a field of its own, so that for a policy of one
/// rule, which nearly every policy is, it stays in registers; of several rules, all are on the heap.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PerRule<T> {
    first: T,
    all: Option<Box<[T]>>,
}

impl<T> PerRule<T> {
    #[inline]
    pub(crate) const fn one(item: T) -> Self {
        Self { first: item, all: None }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        match &self.all {
            None => std::slice::from_ref(&self.first),
            Some(all) => all,
        }
    }
}

impl<T: Copy + Default> FromIterator<T> for PerRule<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let all: Box<[T]> = items.into_iter().collect();
        match *all {
            [first] => Self::one(first),
            _ => Self { first: T::default(), all: Some(all) },
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for PerRule<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_there_are_they_keep_their_order() {
        assert_eq!(PerRule::one(7).as_slice(), [7]);
        for count in 0..4 {
            let items: PerRule<u32> = (0..count).collect();
            assert_eq!(items.as_slice(), (0..count).collect::<Vec<_>>());
        }
        assert_eq!(std::iter::once(7).collect::<PerRule<u32>>(), PerRule::one(7));
    }
}
