//! The loopback addresses of pods: who has which, shared by all nodes of one sandbox.
//!
//! It does no IO: an address of `127.0.0.0/8` needs no interface, and the sandbox owns its whole range by its lock.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use parking_lot::Mutex;

/// Hands out free addresses between two ends, both included.
#[derive(Debug)]
pub struct PodAddresses {
    first: u32,
    last: u32,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    addresses: BTreeSet<u32>,
    /// Where the next search starts. Going round delays the reuse of an address, so that a client that still knows the old owner
    /// does not silently talk to a new one.
    next: u32,
}

impl PodAddresses {
    /// The addresses from `first` to `last`. An inverted range is an empty one.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Self {
        let first = u32::from(first);
        Self {
            first,
            last: u32::from(last),
            held: Mutex::new(Held {
                addresses: BTreeSet::new(),
                next: first,
            }),
        }
    }

    /// The pods' part of the sandbox range `127.N.0.0/16`, as `docs/contracts.md` cuts it.
    pub fn of_range(n: u8) -> Self {
        Self::new(Ipv4Addr::new(127, n, 2, 0), Ipv4Addr::new(127, n, 127, 255))
    }

    /// A free address, or `None` when all are taken.
    pub fn allocate(&self) -> Option<Ipv4Addr> {
        let mut held = self.held.lock();
        let start = held.next;
        let candidate = (start..=self.last)
            .chain(self.first..start)
            .find(|address| !held.addresses.contains(address))?;
        held.addresses.insert(candidate);
        held.next = if candidate >= self.last {
            self.first
        } else {
            candidate + 1
        };
        Some(Ipv4Addr::from(candidate))
    }

    /// Takes exactly this address if it is ours and free: a pod keeps its address over a restart of the sandbox.
    pub fn claim(&self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        (self.first..=self.last).contains(&address) && self.held.lock().addresses.insert(address)
    }

    pub fn release(&self, address: Ipv4Addr) {
        self.held.lock().addresses.remove(&u32::from(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> PodAddresses {
        PodAddresses::new(Ipv4Addr::new(127, 9, 2, 0), Ipv4Addr::new(127, 9, 2, 2))
    }

    #[test]
    fn every_address_is_given_once_and_then_none_is_left() {
        let addresses = three();
        let given: BTreeSet<_> = (0..3)
            .map(|_| addresses.allocate().expect("free"))
            .collect();
        assert_eq!(given.len(), 3);
        assert_eq!(addresses.allocate(), None);
    }

    #[test]
    fn a_released_address_is_the_last_to_be_given_again() {
        let addresses = three();
        let first = addresses.allocate().expect("free");
        addresses.release(first);
        assert_ne!(addresses.allocate(), Some(first));
        assert_ne!(addresses.allocate(), Some(first));
        assert_eq!(addresses.allocate(), Some(first));
    }

    #[test]
    fn a_claim_holds_only_for_a_free_address_of_the_range() {
        let addresses = three();
        assert!(addresses.claim(Ipv4Addr::new(127, 9, 2, 1)));
        assert!(!addresses.claim(Ipv4Addr::new(127, 9, 2, 1)));
        assert!(!addresses.claim(Ipv4Addr::new(127, 9, 1, 1)));
        assert_eq!(addresses.allocate(), Some(Ipv4Addr::new(127, 9, 2, 0)));
        assert_eq!(addresses.allocate(), Some(Ipv4Addr::new(127, 9, 2, 2)));
    }

    #[test]
    fn a_range_is_the_pods_part_of_the_sandbox_range() {
        let addresses = PodAddresses::of_range(71);
        assert_eq!(addresses.allocate(), Some(Ipv4Addr::new(127, 71, 2, 0)));
        assert!(addresses.claim(Ipv4Addr::new(127, 71, 127, 255)));
        assert!(!addresses.claim(Ipv4Addr::new(127, 71, 128, 0)));
    }
}
