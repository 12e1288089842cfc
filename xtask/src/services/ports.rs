//! Private ports: a block of a hundred below the ephemeral ones, of its own for each checkout.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::ops::Range;

use crate::util::{self, Result};

/// The ports of one block.
pub(crate) const BLOCK: u16 = 100;
const BLOCKS: u16 = 100;
const LOWEST: u16 = 10_000;
/// Redis Cluster talks to itself this far above each port.
const BUS: u16 = 10_000;

/// The first of the wanted ports of a block, in the first block where all of them are free.
///
/// The search starts at a block that depends on the path of the checkout: two checkouts on one machine rarely meet, and
/// one keeps its ports from run to run.
pub(crate) fn pick(wanted: Range<u16>) -> Result<u16> {
    let mut hasher = DefaultHasher::new();
    util::root().hash(&mut hasher);
    let first = u16::try_from(hasher.finish() % u64::from(BLOCKS))?;
    let free = |block: &u16| wanted.clone().all(|port| is_free(block + port) && is_free(block + port + BUS));
    let found = blocks_from(first).find(free).map(|block| block + wanted.start);
    found.ok_or_else(|| format!("no free ports between {LOWEST} and {}", LOWEST + BLOCKS * BLOCK).into())
}

fn blocks_from(first: u16) -> impl Iterator<Item = u16> {
    (0..BLOCKS).map(move |n| LOWEST + BLOCK * ((first + n) % BLOCKS))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_tried_once_and_lies_below_the_ephemeral_ports() {
        let mut blocks: Vec<_> = blocks_from(42).collect();
        assert_eq!(blocks.first(), Some(&14_200));
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), usize::from(BLOCKS));
        assert!(blocks.iter().all(|block| *block >= LOWEST && block + BLOCK + BUS <= 32_768));
    }

    #[test]
    fn a_port_in_use_is_not_picked() {
        let wanted = 98..99;
        let first = pick(wanted.clone()).unwrap();
        let held = TcpListener::bind(("127.0.0.1", first)).unwrap();
        assert_ne!(pick(wanted).unwrap(), first);
        drop(held);
    }
}
