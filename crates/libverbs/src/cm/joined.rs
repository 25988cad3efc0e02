//! The event of a multicast group: the queue pair is attached with it, as librdmacm does it.
use super::held::{EventDetails, Shape, kind};
use super::identifier::Id;
use super::membership::Membership;
use crate::qp_calls::attach;
use std::net::SocketAddrV4;

/// The event of a group: the queue pair is attached. `None` where the program has left the group meanwhile.
pub(crate) fn joined(of: &Id, group: SocketAddrV4) -> Option<Shape> {
    let mut private = of.private();
    let waits = |membership: &&mut Membership| membership.group == group && !membership.is_attached;
    let membership = private.groups.iter_mut().find(waits)?;
    let (context, gid) = (membership.context, membership.gid());
    let done = match (of.public.qp, membership.receives) {
        (qp, true) if !qp.is_null() => {
            // SAFETY: the identifier's queue pair is not destroyed before it.
            let done = unsafe { attach(qp, gid) };
            membership.is_attached = done.is_ok();
            done
        }
        _ => Ok(()),
    };
    let (kind, status) = match done {
        Ok(()) => (kind::MULTICAST_JOIN, 0),
        Err(number) => (kind::MULTICAST_ERROR, -number),
    };
    Some(Shape { kind, status, details: EventDetails::Group { group: gid, context } })
}
