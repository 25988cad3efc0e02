//! Congestion notification packets (IBTA A17.9.3): they answer marked packets, and limit their sender.
use crate::congestion::{Marks, marked_path};
use crate::frames::Outgoing;
use crate::payload::Packet;
use crate::qp::Qp;
use crate::shared::Round;
use engine::DropReason;
use wire::ipv4::Ecn;
use wire::roce::{Bth, Congestion, Headers, Opcode, Psn};

/// Bytes behind the BTH of a notification, all zero.
const RESERVED: usize = 16;

/// A packet came from the queue pair's peer. Where it is marked, the peer is notified, unless it was a short while ago.
#[inline]
pub(crate) fn on_mark(qp: &mut Qp, ecn: Ecn, round: &mut Round<'_, '_>) {
    if ecn == Ecn::Ce && qp.pacer.is_some() {
        reduce_rate(qp, round);
    }
}

// Meets IBTA: A17.9.3-a.
#[cold]
fn reduce_rate(qp: &mut Qp, round: &mut Round<'_, '_>) {
    let connected = qp.receives() || qp.sends();
    let Some(path) = qp.path.filter(|_| connected) else { return };
    if !qp.pacer.as_mut().is_some_and(|pacer| pacer.notification_point.is_due(round.now)) {
        return;
    }
    round.shared.cnps.sent += 1;
    let congestion = Congestion { forward: false, backward: true };
    let bth = Bth { congestion, ..Bth::new(Opcode::CNP, qp.settings.remote_qp, Psn::new(0)) };
    let packet = Outgoing { path: marked_path(&path, Marks::Never), bth, headers: Headers::NONE, segment: 0 };
    let sent = packet.send(RESERVED, round, |_, into| {
        into.extend_from_slice(&[0; RESERVED]);
        Ok(())
    });
    debug_assert!(sent.is_ok(), "filling in cannot fail");
}

/// A notification came. It counts for a connected queue pair, from its peer's address.
// Meets IBTA: A17.9.3-b.
#[cold]
pub(crate) fn notified(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) {
    if packet.payload.len() != RESERVED {
        return round.drop(DropReason::RoceHeader);
    }
    let from_peer = qp.path.is_some_and(|path| path.remote == packet.ip.src);
    let connected = qp.receives() || qp.sends();
    match &mut qp.pacer {
        _ if !from_peer => round.drop(DropReason::QpUnknown),
        Some(pacer) if connected => {
            pacer.notify(round.now);
            round.shared.cnps.received += 1;
        }
        _ => round.drop(DropReason::CnpIgnored),
    }
}
