//! [`Name`]: a key under a policy, for tables.

use std::hash::{Hash, Hasher};

use equivalent::Equivalent;
use throttle_core::PolicyName;

/// A key under a policy, by the name under which it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<'n> {
    policy: &'n PolicyName,
    key: &'n str,
}

/// A [`Name`] that owns what it is made of.
#[derive(PartialEq, Eq)]
pub(crate) struct OwnedName {
    policy: PolicyName,
    key: Box<str>,
}

impl<'n> Name<'n> {
    pub(crate) const fn new(policy: &'n PolicyName, key: &'n str) -> Self {
        Self { policy, key }
    }

    pub(crate) fn to_owned(self) -> OwnedName {
        OwnedName { policy: self.policy.clone(), key: self.key.into() }
    }
}

impl OwnedName {
    pub(crate) fn into_key(self) -> Box<str> {
        self.key
    }

    fn as_name(&self) -> Name<'_> {
        Name { policy: &self.policy, key: &self.key }
    }
}

impl Hash for Name<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.policy.fingerprint());
        self.key.hash(state);
    }
}

impl Hash for OwnedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_name().hash(state);
    }
}

impl Equivalent<OwnedName> for Name<'_> {
    #[inline]
    fn equivalent(&self, owned: &OwnedName) -> bool {
        *self == owned.as_name()
    }
}
