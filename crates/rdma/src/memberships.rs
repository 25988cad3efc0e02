//! Membership of queue pairs in multicast groups.
use crate::device::{Device, seat};
use crate::failure::Failure;
use crate::groups;
use crate::seat::ProgramId;
use verbs::{Gid, QpNumber};

impl Device {
    /// A queue pair of datagrams gets what is sent to a multicast group.
    ///
    /// # Errors
    /// EINVAL: this is no group, or no queue pair of datagrams. ENOMEM: the program has as many memberships as it may.
    pub fn join_group(&mut self, id: ProgramId, qp: QpNumber, group: Gid) -> Result<(), Failure> {
        self.only_with_packets("multicast")?;
        if self.is_raw(id, qp) {
            return self.join_station_group(id, qp, group);
        }
        let (group, most) = (groups::address_of(group)?, self.stated.limits.memberships);
        let seat = seat(&mut self.seats, id)?;
        seat.shard.attach(qp, group)?;
        let added = self.groups.add(group, id, qp, most);
        if added.is_err() {
            seat.shard.detach(qp, group)?;
        }
        added
    }

    /// And no longer.
    ///
    /// # Errors
    /// EINVAL: it is no member.
    pub fn leave_group(&mut self, id: ProgramId, qp: QpNumber, group: Gid) -> Result<(), Failure> {
        if self.is_raw(id, qp) {
            return self.leave_station_group(id, qp, group);
        }
        let group = groups::address_of(group)?;
        seat(&mut self.seats, id)?.shard.detach(qp, group)?;
        self.groups.remove(group, id, qp);
        Ok(())
    }
}
