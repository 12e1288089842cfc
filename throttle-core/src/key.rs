//! Names of keys in stores. One rule for all of them, so that no two keys ever share a name.

use std::borrow::Cow;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::{PolicyName, SetupError};

/// Keys of at most this many bytes are stored as they are; longer ones by their SHA-256.
pub const MAX_KEY_BYTES: usize = 200;

/// What hashed keys start with. A key that starts with it is hashed too, so none can pose as another's hash.
const HASHED: u8 = b'#';

/// The name under which stores keep `key`: the key itself, or `#` and the SHA-256 of it in hexadecimal if it is
/// longer than [`MAX_KEY_BYTES`] or starts with `#`. Never cut off, never ambiguous.
///
/// ```
/// use throttle_core::stored_key;
///
/// assert_eq!(stored_key("alice"), "alice");
/// assert_eq!(stored_key(&"x".repeat(10_000)).len(), 65);
/// assert_ne!(stored_key("#alice"), "#alice");
/// ```
#[must_use]
#[inline]
pub fn stored_key(key: &str) -> Cow<'_, str> {
    if is_stored_as_is(key) { Cow::Borrowed(key) } else { Cow::Owned(hashed(key)) }
}

/// Whether [`stored_key`] is the key itself.
#[must_use]
#[inline]
pub fn is_stored_as_is(key: &str) -> bool {
    key.len() <= MAX_KEY_BYTES && key.as_bytes().first() != Some(&HASHED)
}

#[cold]
fn hashed(key: &str) -> String {
    let mut name = String::with_capacity(65);
    name.push(char::from(HASHED));
    for byte in Sha256::digest(key.as_bytes()) {
        // Writing to a `String` does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// The full name of a key in a store that others use too: `<prefix>:1:<policy>:<key>`. The 1 is the version of the
/// stored form; policy names have no `:`, so the name of one pair is never that of another.
#[must_use]
pub fn storage_key(prefix: &str, policy: &PolicyName, key: &str) -> String {
    format!("{}{}", storage_prefix(prefix, policy), stored_key(key))
}

/// What the names of all keys of a policy start with, and no other name does.
#[must_use]
pub fn storage_prefix(prefix: &str, policy: &PolicyName) -> String {
    format!("{prefix}:1:{policy}:")
}

/// The full name of what a store keeps for a lock: `<prefix>:1:{<space>}:<name>`. No policy has braces in its name, so
/// nothing of a lock is the key of a policy, nor removed with one. On a Redis cluster, one space is one slot.
#[must_use]
pub fn lock_key(prefix: &str, space: &str, name: &str) -> String {
    format!("{prefix}:1:{{{space}}}:{}", stored_key(name))
}

/// Whether names that start with `prefix` can be told from those of every other prefix.
///
/// # Errors
///
/// [`SetupError::Setting`] if it is empty, longer than 64 bytes, or could make two keys one: with `:1:` in it or `:1` at
/// its end; or has braces, which would tie all keys of a Redis cluster to one node.
pub fn validate_prefix(prefix: &str) -> Result<(), SetupError> {
    let posing = prefix.contains(":1:") || prefix.ends_with(":1") || prefix.contains(['{', '}']);
    if prefix.is_empty() || prefix.len() > 64 || posing {
        let reason = "use 1 to 64 bytes, without ':1:', a final ':1', '{' and '}'".to_owned();
        return Err(SetupError::Setting { setting: "prefix", reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn o_65_long_keys_are_hashed_not_cut() {
        let long: Vec<String> = [201, 300, 10_000].iter().map(|length| "k".repeat(*length)).collect();
        let names: HashSet<_> = long.iter().map(|key| stored_key(key)).collect();
        assert_eq!(names.len(), 3);
        assert_eq!(stored_key(&"k".repeat(200)), "k".repeat(200));
        assert_eq!(
            stored_key("#"),
            "#334359b90efed75da5f0ada1d5e6b256f4a6bd0aee7eb39c0f90182a021ffc8b",
            "printf '#' | sha256sum"
        );
    }

    #[test]
    fn a_key_cannot_pose_as_the_hash_of_another() {
        let long = "k".repeat(300);
        let name = stored_key(&long).into_owned();
        assert_ne!(stored_key(&name), name);
    }

    #[test]
    fn o_66_pairs_never_run_together() {
        let (a, b) = (PolicyName::new("a").unwrap(), PolicyName::new("a.b").unwrap());
        let pairs = [(&a, "b:c"), (&a, ":b:c"), (&b, "c"), (&b, ":c"), (&a, ""), (&b, "")];
        let names: HashSet<_> =
            pairs.iter().map(|(policy, key)| storage_key("throttle", policy, key)).collect();
        assert_eq!(names.len(), pairs.len());
        assert!(names.contains("throttle:1:a:b:c"));
    }
}
