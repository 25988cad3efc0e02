//! Raw packets at a device: rules come and go, and frames that no transport claims reach the queue pairs they are for.
use crate::device::Device;
use crate::failure::Failure;
use crate::flows::{Name, of_group};
use crate::user_context::{ProgramId, Round};
use engine::Nanos;
use host::Io;
use port::{Checksum, Frame};
use verbs::flow::FlowRule;
use verbs::{Gid, Number, QpKind, QpNumber};
use wire::Mac;

/// Where the hardware address stands in a GID that names a group by it.
const MAC_AT: usize = 10;

impl Device {
    /// Adds a rule: its queue pair gets frames from now on.
    ///
    /// # Errors
    /// EINVAL: the queue pair is none of raw packets, or the rule is malformed. EOPNOTSUPP: over streams.
    pub fn create_flow(&mut self, id: ProgramId, number: Number, rule: FlowRule) -> Result<(), Failure> {
        self.only_with_packets("whole frames")?;
        if !self.is_raw(id, rule.qp) {
            return Err(Failure::invalid("rules for frames are those of queue pairs of raw packets"));
        }
        self.flows.add(id, Name::Rule(number), rule)
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// EINVAL: there is none.
    pub fn destroy_flow(&mut self, id: ProgramId, number: Number) -> Result<(), Failure> {
        let removed = self.flows.remove(id, Name::Rule(number));
        removed.then_some(()).ok_or_else(|| Failure::invalid("the program has no such rule"))
    }

    /// A queue pair of raw packets gets frames to the hardware address that a GID ends with.
    ///
    /// # Errors
    /// EINVAL: it is no group's address. ENOMEM: the program has as many memberships as it may.
    pub(crate) fn join_station_group(&mut self, id: ProgramId, qp: QpNumber, group: Gid) -> Result<(), Failure> {
        let (group, most) = (group_of(group)?, self.stated().limits.memberships);
        if self.flows.memberships(id, None) >= most as usize {
            return Err(Failure::limit(format!("the program has {most} memberships of raw packets already")));
        }
        self.flows.add(id, Name::Group(qp, group), of_group(qp, group))
    }

    /// And no longer.
    ///
    /// # Errors
    /// EINVAL: it is no member.
    pub(crate) fn leave_station_group(&mut self, id: ProgramId, qp: QpNumber, group: Gid) -> Result<(), Failure> {
        let removed = self.flows.remove(id, Name::Group(qp, group_of(group)?));
        removed.then_some(()).ok_or_else(|| Failure::invalid("the queue pair is no member of this group"))
    }

    /// The program has such a queue pair, of raw packets.
    pub(crate) fn is_raw(&self, id: ProgramId, qp: QpNumber) -> bool {
        self.users.get(&id).is_some_and(|user| user.kinds.get(&qp) == Some(&QpKind::RawPacket))
    }

    /// Gives a frame that no transport claims to the queue pairs whose rules are for it; returns it where there are
    /// none.
    pub(crate) fn take_raw(&mut self, now: Nanos, mut frame: Box<Frame>, io: &mut Io<'_>) -> Option<Box<Frame>> {
        if !self.flows.are_any() {
            return Some(frame);
        }
        let takers = self.flows.takers(frame.bytes());
        if takers.is_empty() {
            return Some(frame);
        }
        io.pool.flatten(&mut frame);
        if matches!(frame.checksum, Checksum::Partial { .. }) {
            frame.complete_checksum();
        }
        for (id, qp) in takers {
            let mut round = Round { now, tx: io.tx, pool: io.pool, drops: io.drops, events: &mut self.events };
            self.users.entry(id).and_modify(|user| user.take_raw(qp, &frame, &mut round));
        }
        io.pool.put(frame);
        None
    }
}

fn group_of(group: Gid) -> Result<Mac, Failure> {
    let mut mac = Mac::default();
    mac.0.copy_from_slice(&group.0[MAC_AT..]);
    let is_group = mac.is_group();
    is_group.then_some(mac).ok_or_else(|| Failure::invalid("the GID does not end with a group's hardware address"))
}
