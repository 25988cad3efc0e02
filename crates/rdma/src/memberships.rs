//! Membership of queue pairs in multicast groups.
use crate::device::{Device, user};
use crate::failure::Failure;
use crate::groups;
use crate::user_context::ProgramId;
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
        let user = user(&mut self.users, id)?;
        user.shard.attach(qp, group)?;
        let added = self.groups.add(group, id, qp, most);
        if added.is_err() {
            user.shard.detach(qp, group)?;
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
        user(&mut self.users, id)?.shard.detach(qp, group)?;
        self.groups.remove(group, id, qp);
        Ok(())
    }
}
