//! Multicast groups: which queue pairs are members, and which programs get a datagram (IBTA 1.3, 10.5; A17.4.4 for the
//! group's address, which is an IPv4-mapped one).
use crate::failure::Failure;
use crate::gid;
use crate::user_context::ProgramId;
use port::Frame;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use verbs::{Gid, QpNumber};
use wire::{EtherType, IpAddress, ethernet, ipv4};

/// The members of all groups.
#[derive(Default)]
pub(crate) struct Groups(BTreeSet<(Ipv4Addr, ProgramId, QpNumber)>);

impl Groups {
    /// Nobody is a member of any.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A queue pair is a member from now on, where its program has less than `most` memberships.
    ///
    /// # Errors
    /// ENOMEM: the program has as many as it may.
    pub(crate) fn add(&mut self, group: Ipv4Addr, id: ProgramId, qp: QpNumber, most: u32) -> Result<(), Failure> {
        let member = (group, id, qp);
        let held = self.0.iter().filter(|(_, other, _)| *other == id).count();
        if held >= most as usize && !self.0.contains(&member) {
            return Err(Failure::limit(format!(
                "the program's queue pairs are members of {held} multicast groups already (max_total_mcast_qp_attach)"
            )));
        }
        self.0.insert(member);
        Ok(())
    }

    /// And no longer.
    pub(crate) fn remove(&mut self, group: Ipv4Addr, id: ProgramId, qp: QpNumber) {
        self.0.remove(&(group, id, qp));
    }

    /// A program is gone.
    pub(crate) fn leave(&mut self, id: ProgramId) {
        self.0.retain(|(_, other, _)| *other != id);
    }

    /// A queue pair is a member of some group.
    pub(crate) fn has(&self, id: ProgramId, qp: QpNumber) -> bool {
        self.0.iter().any(|(_, other, number)| (*other, *number) == (id, qp))
    }

    /// The programs that get what is sent to a group.
    // Meets IBTA: 10.5-a.
    pub(crate) fn programs(&self, group: Ipv4Addr) -> Vec<ProgramId> {
        let (first, last) = ((group, ProgramId(0), 0), (group, ProgramId(u32::MAX), u32::MAX));
        let mut programs: Vec<ProgramId> = self.0.range(first..=last).map(|(_, id, _)| *id).collect();
        programs.dedup();
        programs
    }
}

/// The IPv4 address of a multicast GID.
///
/// # Errors
/// EINVAL: it is none.
pub(crate) fn address_of(group: Gid) -> Result<Ipv4Addr, Failure> {
    let address = gid::address_of(group).as_v4();
    address.filter(Ipv4Addr::is_multicast).ok_or_else(|| {
        Failure::invalid("a multicast group is named by the IPv4-mapped GID of its address, ::ffff:224.0.0.0/4")
    })
}

/// The group that a frame is for: both of its addresses name it, and it comes from one station.
pub(crate) fn group_of(frame: &Frame) -> Option<Ipv4Addr> {
    let bytes = frame.bytes();
    let outer = ethernet::Header::parse(bytes).ok().filter(|outer| outer.ethertype == EtherType::Ipv4)?;
    let packet = bytes.get(ethernet::HEADER_LEN..)?;
    let (inner, _) = ipv4::Header::parse(packet, frame.len() - ethernet::HEADER_LEN).ok()?;
    let from_one = !inner.src.is_multicast() && !inner.src.is_broadcast() && !inner.src.is_unspecified();
    let is_group = inner.dst.is_multicast() && outer.dst == IpAddress::from(inner.dst).group_station();
    (from_one && is_group && !outer.src.is_group()).then_some(inner.dst)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    #[test]
    fn members_are_counted_for_each_program() {
        let (mut groups, one, other) = (Groups::default(), ProgramId(1), ProgramId(2));
        for (id, qp) in [(one, 7), (one, 8), (other, 9), (one, 7)] {
            groups.add(GROUP, id, qp, 2).unwrap();
        }
        assert_eq!(groups.programs(GROUP), [one, other]);
        assert_eq!(groups.add(Ipv4Addr::new(239, 1, 2, 4), one, 7, 2).unwrap_err().errno, libc::ENOMEM);
        groups.remove(GROUP, one, 7);
        assert!(!groups.has(one, 7) && groups.has(one, 8));
        groups.leave(one);
        assert_eq!(groups.programs(GROUP), [other]);
        groups.leave(other);
        assert!(groups.is_empty());
    }

    #[test]
    fn a_group_has_a_mapped_multicast_address() {
        let mapped = |address: Ipv4Addr| gid::of_address(address.into());
        assert_eq!(address_of(mapped(GROUP)).unwrap(), GROUP);
        for other in [mapped(Ipv4Addr::new(10, 0, 0, 1)), Gid([0xff; 16]), Gid([0; 16])] {
            assert_eq!(address_of(other).unwrap_err().errno, libc::EINVAL);
        }
    }
}
