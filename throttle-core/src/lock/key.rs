//! Names of resources: one rule, so that no two of them ever share a lock.

use std::borrow::Cow;
use std::fmt;

/// What every name starts with.
const START: &str = "lock";

/// One part of the name of a resource: any text, or a number, which is the text of its digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment(String);

impl Segment {
    /// As it stands in a name: `%` and `:` are written `%25` and `%3A`, so that parts never run together.
    fn escaped(&self) -> Cow<'_, str> {
        if self.0.contains(['%', ':']) {
            Cow::Owned(self.0.replace('%', "%25").replace(':', "%3A"))
        } else {
            Cow::Borrowed(&self.0)
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Segment {
    fn from(text: String) -> Self {
        Self(text)
    }
}

macro_rules! segment_from {
    ($($of:ty),+) => {$(
        impl From<$of> for Segment {
            fn from(part: $of) -> Self {
                Self(part.to_string())
            }
        }
    )+};
}

segment_from!(&str, &String, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

/// `lock:<kind>:<id>`, and `:<part>` for a part of it.
pub(super) fn name_of(kind: &Segment, id: &Segment, part: Option<&Segment>) -> String {
    let mut name = format!("{START}:{}:{}", kind.escaped(), id.escaped());
    if let Some(part) = part {
        name.push(':');
        name.push_str(&part.escaped());
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_as_they_ever_were() {
        let name = |id: &str, part: Option<&str>| {
            name_of(&"task".into(), &id.into(), part.map(Segment::from).as_ref())
        };
        assert_eq!(name("17", None), "lock:task:17");
        assert_eq!(name("17", Some("3")), "lock:task:17:3");
        assert_eq!(name_of(&"task".into(), &17_u64.into(), Some(&3_u8.into())), "lock:task:17:3");
    }

    #[test]
    fn no_two_resources_share_a_name() {
        let texts = ["", "a", "b", "a:b", ":", "::", "%", "%3A", "%3a", "%25", "a%3Ab", "a:", ":a", " "];
        let mut names = HashSet::new();
        let mut resources = 0;
        for kind in texts {
            for id in texts {
                for part in [None].into_iter().chain(texts.map(Some)) {
                    let part = part.map(Segment::from);
                    names.insert(name_of(&kind.into(), &id.into(), part.as_ref()));
                    resources += 1;
                }
            }
        }
        assert_eq!(names.len(), resources);
    }
}
