//! [`Policy`]: a named list of rules on the same key, all or nothing.

use std::fmt;
use std::sync::Arc;

use crate::{Algorithm, Quota, Rule, SetupError};

/// The most rules one policy holds.
pub const MAX_RULES: usize = 16;

/// A named, non-empty list of rules that are charged together or not at all. Cheap to clone.
///
/// The name says whose counters these are: two policies of one name share state, and a policy whose rules
/// changed keeps what its keys have used.
///
/// ```
/// use throttle_core::{Algorithm, Policy, Rule};
///
/// let api = Policy::new("api", [Rule::gcra("10/s burst 20")?, Rule::fixed_window("1000/h")?])?;
/// assert_eq!(api.capacity(), 20);
/// let same = Policy::parse("api", Algorithm::TokenBucket, "10/s burst 20, 1000/h")?;
/// assert_eq!(same.name(), api.name());
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Clone)]
pub struct Policy(Arc<Inner>);

struct Inner {
    name: PolicyName,
    rules: Box<[Rule]>,
    capacity: u32,
}

impl Policy {
    /// A policy called `name`: 1 to 64 ASCII letters, digits, `-`, `_` or `.`.
    ///
    /// # Errors
    ///
    /// [`SetupError::PolicyName`], [`SetupError::NoRules`], [`SetupError::TooManyRules`] above [`MAX_RULES`].
    pub fn new(name: &str, rules: impl IntoIterator<Item = Rule>) -> Result<Self, SetupError> {
        Self::named(PolicyName::new(name)?, rules.into_iter().collect())
    }

    fn named(name: PolicyName, rules: Box<[Rule]>) -> Result<Self, SetupError> {
        if rules.len() > MAX_RULES {
            return Err(SetupError::TooManyRules { count: rules.len() });
        }
        let capacity = rules.iter().map(Rule::capacity).min().ok_or(SetupError::NoRules)?;
        Ok(Self(Arc::new(Inner { name, rules, capacity })))
    }

    /// A policy of one `algorithm` from quotas as text, such as `10/s, 1000 per hour`.
    ///
    /// # Errors
    ///
    /// Those of [`Quota::parse_list`], [`Rule::new`] and [`Policy::new`].
    pub fn parse(name: &str, algorithm: Algorithm, quotas: &str) -> Result<Self, SetupError> {
        let rules = Quota::parse_list(quotas)?.into_iter().map(|quota| Rule::new(algorithm, quota));
        Self::new(name, rules.collect::<Result<Vec<_>, _>>()?)
    }

    /// The policy of that name in which each rule has `part` of `whole` equal parts of its
    /// [quota](crate::Quota::share): what one of several processes may admit while they cannot ask a common store.
    ///
    /// ```
    /// use throttle_core::{Algorithm, Policy};
    ///
    /// let policy = Policy::parse("api", Algorithm::Gcra, "100/s, 5000/h")?;
    /// assert_eq!(policy.share(1, 4)?, Policy::parse("api", Algorithm::Gcra, "25/s, 1250/h")?);
    /// # Ok::<(), throttle_core::SetupError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Rule::share`].
    pub fn share(&self, part: u32, whole: u32) -> Result<Self, SetupError> {
        let rules = self.rules().iter().map(|rule| rule.share(part, whole));
        Self::named(self.name().clone(), rules.collect::<Result<_, _>>()?)
    }

    /// Whose counters these are.
    #[must_use]
    pub fn name(&self) -> &PolicyName {
        &self.0.name
    }

    /// The rules, in the order given; at least one.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    /// The largest cost that can ever be admitted: the smallest capacity of its rules.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.0.capacity
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.name == other.0.name && self.0.rules == other.0.rules)
    }
}

impl Eq for Policy {}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.0.name)?;
        self.0.rules.iter().try_for_each(|rule| write!(f, " [{rule}]"))
    }
}

/// The name of a [`Policy`]. Cheap to clone and to compare.
#[derive(Clone)]
pub struct PolicyName(Arc<NameInner>);

struct NameInner {
    text: Box<str>,
    fingerprint: u64,
}

impl PolicyName {
    /// A name of 1 to 64 ASCII letters, digits, `-`, `_` or `.`: no storage key or header field needs to escape it.
    ///
    /// # Errors
    ///
    /// [`SetupError::PolicyName`] for any other text.
    pub fn new(text: &str) -> Result<Self, SetupError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if text.is_empty() || text.len() > 64 || !text.bytes().all(allowed) {
            return Err(SetupError::PolicyName(text.to_owned()));
        }
        Ok(Self(Arc::new(NameInner { text: text.into(), fingerprint: fnv1a(text.as_bytes()) })))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The same number for the same name, on every machine: FNV-1a of its bytes. A seed for hash tables; equal
    /// numbers do not mean equal names.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl PartialEq for PolicyName {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
    }
}

impl Eq for PolicyName {}

impl std::str::FromStr for PolicyName {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        Self::new(text)
    }
}

impl std::hash::Hash for PolicyName {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.as_str().hash(hasher);
    }
}

impl AsRef<str> for PolicyName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Rule {
        Rule::gcra("10/s").unwrap()
    }

    #[test]
    fn names_need_no_escaping_anywhere() {
        for name in ["a", "api.v1-read_only", &"x".repeat(64)] {
            assert_eq!(Policy::new(name, [rule()]).unwrap().name().as_str(), name);
        }
        for name in ["", "a b", "a:b", "a/b", "ключ", "a\0", &"x".repeat(65)] {
            assert_eq!(Policy::new(name, [rule()]), Err(SetupError::PolicyName(name.to_owned())), "{name:?}");
        }
    }

    #[test]
    fn rules_are_one_to_sixteen() {
        assert_eq!(Policy::new("p", []), Err(SetupError::NoRules));
        assert_eq!(Policy::new("p", vec![rule(); MAX_RULES]).unwrap().rules().len(), MAX_RULES);
        assert_eq!(Policy::new("p", vec![rule(); 17]), Err(SetupError::TooManyRules { count: 17 }));
    }

    #[test]
    fn debug_reads_like_the_configuration() {
        let policy = Policy::parse("api", Algorithm::Gcra, "10/s burst 20; 7 per 13s").unwrap();
        assert_eq!(format!("{policy:?}"), "api: [gcra 10/s burst 20] [gcra 7 per 13s]");
    }
}
