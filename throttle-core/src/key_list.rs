//! [`KeyList`]: keys that are always allowed, or never.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::SetupError;

/// Keys by name, and keys that are IP addresses by network. For [`RateLimiter::allow`](crate::RateLimiter::allow) and
/// [`RateLimiter::block`](crate::RateLimiter::block).
///
/// A key is in a network if all of it reads as an address of that network. IPv4 addresses written as IPv6
/// (`::ffff:10.0.0.1`) are IPv4, in keys and in networks; so `::/0` is every IPv6 address and no IPv4 one.
///
/// ```
/// use throttle_core::KeyList;
///
/// let list = KeyList::new().keys(["health-check"]).networks(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"])?;
/// assert!(list.contains("health-check") && list.contains("10.1.2.3") && list.contains("::ffff:10.1.2.3"));
/// assert!(!list.contains("11.0.0.1") && !list.contains("user:10.1.2.3"));
/// assert!(KeyList::new().networks(["10.0.0.0/33"]).is_err());
/// # Ok::<(), throttle_core::SetupError>(())
/// ```
#[derive(Clone, Default)]
pub struct KeyList {
    keys: HashSet<Box<str>, RandomState>,
    /// Both apart from each other and in order.
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
}

impl KeyList {
    /// A list without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// And exactly these keys.
    #[must_use]
    pub fn keys<K: Into<Box<str>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// And all addresses of these networks, in CIDR notation such as `10.0.0.0/8`, or single addresses.
    ///
    /// # Errors
    ///
    /// [`SetupError::Parse`] with the first text that is neither.
    pub fn networks<N: AsRef<str>>(
        mut self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, SetupError> {
        for text in networks {
            match network(text.as_ref())? {
                IpNet::V4(net) => self.v4.push(net),
                IpNet::V6(net) => self.v6.push(net),
            }
        }
        self.v4 = Ipv4Net::aggregate(&self.v4);
        self.v6 = Ipv6Net::aggregate(&self.v6);
        self.v4.sort_unstable();
        self.v6.sort_unstable();
        Ok(self)
    }

    /// Whether `key` is on the list.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.keys.contains(key) || self.has_address(key)
    }

    fn has_address(&self, key: &str) -> bool {
        if self.v4.is_empty() && self.v6.is_empty() {
            return false;
        }
        match key.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(address)) => {
                let until = self.v4.partition_point(|net| net.network() <= address);
                self.v4.get(until.wrapping_sub(1)).is_some_and(|net| net.contains(&address))
            }
            Ok(IpAddr::V6(address)) => {
                let until = self.v6.partition_point(|net| net.network() <= address);
                self.v6.get(until.wrapping_sub(1)).is_some_and(|net| net.contains(&address))
            }
            Err(_) => false,
        }
    }
}

/// The network that `text` names, or that of its one address; as IPv4 if all of it is.
fn network(text: &str) -> Result<IpNet, SetupError> {
    let text = text.trim();
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let parsed = parsed.map_err(|_| SetupError::Parse {
        text: text.to_owned(),
        reason: "expected an IP address, or a network such as 10.0.0.0/8".to_owned(),
    })?;
    Ok(as_v4(&parsed).map_or(parsed, IpNet::V4).trunc())
}

fn as_v4(net: &IpNet) -> Option<Ipv4Net> {
    let IpNet::V6(net) = net else { return None };
    Ipv4Net::new(net.addr().to_ipv4_mapped()?, net.prefix_len().checked_sub(96)?).ok()
}

/// How many, not which: keys can be secrets.
impl fmt::Debug for KeyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks = self.v4.len() + self.v6.len();
        f.debug_struct("KeyList").field("keys", &self.keys.len()).field("networks", &networks).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(networks: &[&str]) -> KeyList {
        KeyList::new().networks(networks).unwrap()
    }

    #[test]
    fn networks_end_where_they_say() {
        let list = of(&["10.1.0.0/16", "10.2.0.0/16", "2001:db8::/32", "192.0.2.7", "::1"]);
        for key in ["10.1.0.0", "10.2.255.255", "2001:db8::", "2001:db8:ffff::1", "192.0.2.7", "::1"] {
            assert!(list.contains(key), "{key}");
        }
        for key in ["10.0.255.255", "10.3.0.0", "2001:db9::", "192.0.2.6", "192.0.2.8", "::2", ""] {
            assert!(!list.contains(key), "{key}");
        }
    }

    #[test]
    fn mapped_addresses_are_ipv4_on_both_sides() {
        let list = of(&["10.0.0.0/8", "::ffff:192.0.2.0/120"]);
        for key in ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1", "192.0.2.9", "::ffff:c000:209"] {
            assert!(list.contains(key), "{key}");
        }
        let six = of(&["::/0"]);
        assert!(six.contains("2001:db8::1") && !six.contains("10.0.0.1") && !six.contains("::ffff:10.0.0.1"));
        let four = of(&["0.0.0.0/0"]);
        assert!(four.contains("::ffff:10.0.0.1") && !four.contains("::1"));
    }

    #[test]
    fn only_whole_keys_are_addresses() {
        let list = of(&["0.0.0.0/0", "::/0"]);
        for key in ["10.0.0.1:80", "ip:10.0.0.1", "[::1]", "fe80::1%eth0", " 10.0.0.1", "010.0.0.1", "ключ"]
        {
            assert!(!list.contains(key), "{key}");
        }
        assert!(KeyList::new().keys(["10.0.0.1:80"]).contains("10.0.0.1:80"), "a key like any other");
    }

    #[test]
    fn host_bits_are_dropped_and_what_is_no_network_is_told() {
        assert!(of(&[" 10.1.2.3/8 "]).contains("10.255.0.1"));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "localhost", "10.0.0.0/8,::1"] {
            let refused = KeyList::new().networks([text]).unwrap_err();
            assert!(matches!(refused, SetupError::Parse { text: named, .. } if named == text), "{text}");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let list = of(&["10.0.0.0/8"]).keys(["marker-secret"]);
        assert_eq!(format!("{list:?}"), "KeyList { keys: 1, networks: 1 }");
    }

    proptest! {
        #[test]
        fn an_address_is_listed_if_one_of_the_networks_has_it(
            nets in proptest::collection::vec((any::<u32>(), 0_u8..=32), 0..12), probe: u32,
            near in any::<proptest::sample::Index>(), offset in 0_u32..3,
        ) {
            let nets: Vec<_> = nets.into_iter().map(|(bits, len)| Ipv4Net::new(bits.into(), len).unwrap()).collect();
            let list = KeyList::new().networks(nets.iter().map(ToString::to_string)).unwrap();
            let edge = nets.get(near.index(nets.len().max(1))).map_or(probe, |net| u32::from(net.network()));
            for bits in [probe, edge.wrapping_add(offset).wrapping_sub(1)] {
                let address = std::net::Ipv4Addr::from(bits);
                let expected = nets.iter().any(|net| net.contains(&address));
                prop_assert_eq!(list.contains(&address.to_string()), expected);
                prop_assert_eq!(list.contains(&address.to_ipv6_mapped().to_string()), expected);
            }
        }

        #[test]
        fn no_key_panics(key: String) {
            let _ = of(&["10.0.0.0/8", "::/1"]).contains(&key);
        }
    }
}
