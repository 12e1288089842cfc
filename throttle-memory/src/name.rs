//! [`Name`]: the text of a key, in whole words where it is short.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;

/// The text of a key: up to 23 bytes in place, in words that are compared in three instructions.
///
/// A general small string takes a call for that, or a branch on where its text is; on the way of every decision, 3 ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name<T = Box<str>> {
    /// The first 16 bytes; then the rest, and above them one more than the length. Zeros fill up.
    Short(u64, u64, NonZeroU64),
    /// Longer ones.
    Long(T),
}

/// A [`Name`] to look for.
pub(crate) type Sought<'k> = Name<&'k str>;

/// Bytes that fit in place.
const SHORT: usize = 23;

impl<'k> Sought<'k> {
    #[inline]
    pub(crate) fn new(text: &'k str) -> Self {
        let bytes = text.as_bytes();
        if bytes.len() > SHORT {
            return Self::Long(text);
        }
        let mark = (bytes.len() as u64 + 1) << 56;
        let last = NonZeroU64::MIN.saturating_add((word(bytes, 16) | mark) - 1);
        Self::Short(word(bytes, 0), word(bytes, 8), last)
    }

    pub(crate) fn to_owned(&self) -> Name {
        match *self {
            Self::Short(first, second, last) => Name::Short(first, second, last),
            Self::Long(text) => Name::Long(text.into()),
        }
    }
}

impl Name {
    #[inline(always)]
    pub(crate) fn is(&self, sought: &Sought<'_>) -> bool {
        match (self, sought) {
            (Self::Short(a, b, c), Name::Short(x, y, z)) => (a ^ x) | (b ^ y) | (c.get() ^ z.get()) == 0,
            (Self::Long(a), Name::Long(x)) => **a == **x,
            _ => false,
        }
    }
}

/// The same for a name and for what seeks it.
impl<T: AsRef<str>> Hash for Name<T> {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::Short(first, second, last) => {
                hasher.write_u64(*first);
                hasher.write_u64(*second);
                hasher.write_u64(last.get());
            }
            Self::Long(text) => hasher.write(text.as_ref().as_bytes()),
        }
    }
}

/// The 8 bytes of `text` from `at` on; zeros where there are none. Read in one piece wherever there are 8 bytes to read,
/// because a copy of a length that is not known takes a call.
#[inline]
fn word(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or(&[]);
    if let Some(whole) = rest.first_chunk() {
        return u64::from_le_bytes(*whole);
    }
    if let Some(end) = text.last_chunk() {
        // The last 8 bytes, without those before `at`.
        let missing = (8 - rest.len()) % 8 * 8;
        return if rest.is_empty() { 0 } else { u64::from_le_bytes(*end) >> missing };
    }
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_takes_three_words() {
        assert_eq!(size_of::<Name>(), 24);
    }

    #[test]
    fn words_hold_the_text_and_its_length() {
        let text = "abcdefghijklmnopqrstuvw";
        for length in 0..=SHORT {
            let Name::Short(first, second, last) = Sought::new(&text[..length]) else { panic!("{length}") };
            let bytes = [first, second, last.get()].map(u64::to_le_bytes).concat();
            assert_eq!(&bytes[..length], text[..length].as_bytes());
            assert!(bytes[length..SHORT].iter().all(|byte| *byte == 0));
            assert_eq!(usize::from(bytes[SHORT]), length + 1);
        }
        assert_eq!(Sought::new("abcdefghijklmnopqrstuvwx"), Name::Long("abcdefghijklmnopqrstuvwx"));
    }

    proptest! {
        #[test]
        fn names_are_equal_as_their_texts_are(a in "[a\0]{0,26}", b in "[a\0]{0,26}") {
            prop_assert_eq!(Sought::new(&a).to_owned().is(&Sought::new(&b)), a == b);
            prop_assert!(Sought::new(&a).to_owned().is(&Sought::new(&a)));
        }
    }
}
