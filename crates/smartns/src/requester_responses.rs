//! Responses at the requester (IBTA 1.3, 9.7.5 and 9.7.6).
use crate::ending::fail_front;
use crate::payload::{Packet, Payload};
use crate::qp::Qp;
use crate::requester::{place_fetched, retire};
use crate::requester_recovery::{again_from, lost, not_ready};
use crate::requests::wait_time;
use crate::selective::{Keep, REPORTED_BYTES};
use crate::send_queue::Work;
use crate::shared::Round;
use crate::spray::is_long_read;
use engine::DropReason;
use verbs::{SendOpcode, Status};
use wire::roce::{NakCode, Operation, Psn, Syndrome};

/// A response came. Returns whether its frame is to be buffered.
pub(crate) fn response(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Keep {
    let psn = packet.bth.psn;
    let requester = &qp.requester;
    if !qp.sends() || psn.since(requester.unacked) < 0 || psn.since(requester.sent_to) >= 0 {
        round.drop(DropReason::ResponseStale);
        return Keep::No;
    }
    qp.requester.selective.peer_spray = packet.bth.extension.spray();
    if packet.opcode().operation() != Operation::Acknowledge {
        return fetched(qp, packet, round);
    }
    match packet.aeth() {
        Some(aeth) => acknowledged(qp, packet, aeth.syndrome, round),
        None => round.drop(DropReason::RoceHeader),
    }
    Keep::No
}

fn acknowledged(qp: &mut Qp, packet: &Packet<'_>, syndrome: Syndrome, round: &mut Round<'_, '_>) {
    let psn = packet.bth.psn;
    if let Syndrome::Ack(_) = syndrome {
        return advance(qp, psn.plus(1), round);
    }
    advance(qp, psn, round);
    // Where an earlier response is missing, or the queue pair failed, the NAK is not for now.
    if qp.requester.unacked != psn || !qp.sends() {
        return;
    }
    match syndrome {
        Syndrome::Rnr(code) => not_ready(qp, psn, code, round),
        Syndrome::Nak(NakCode::Sequence) => match packet.payload.here().first_chunk::<REPORTED_BYTES>() {
            Some(reported) if qp.requester.selective.peer => {
                lost(qp, psn, u128::from_be_bytes(*reported), round);
            }
            _ => again_from(qp, psn, round),
        },
        Syndrome::Nak(NakCode::InvalidRequest) => refused(qp, Status::RemoteInvalidRequest, round),
        Syndrome::Nak(NakCode::RemoteAccess) => refused(qp, Status::RemoteAccess, round),
        Syndrome::Nak(NakCode::RemoteOperation) => refused(qp, Status::RemoteOperation, round),
        Syndrome::Ack(_) => {}
    }
}

/// After responses: what was acknowledged while data were missing is now, and what is missing is asked for.
pub(crate) fn resume(qp: &mut Qp, round: &mut Round<'_, '_>) {
    if !qp.requester.selective.peer || !qp.sends() {
        return;
    }
    if let Some(to) = qp.requester.selective.acked_to {
        advance(qp, to, round);
    }
    let unacked = qp.requester.unacked;
    if qp.requester.selective.held.is_empty() || !qp.sends() {
        return;
    }
    if qp.requester.selective.held_shows_loss(unacked, spray_of_read(qp, unacked, round)) {
        again_from(qp, unacked, round);
    }
}

/// Data of the read that packet `psn` belongs to take 2^this paths.
fn spray_of_read(qp: &Qp, psn: Psn, round: &Round<'_, '_>) -> u8 {
    let work = qp.queue.holding(psn, qp.requester.begun).and_then(|index| qp.queue.get(index));
    let is_long = work.is_some_and(|work| is_long_read(work.packets, round.shared.config.limits.window));
    if is_long { 0 } else { qp.requester.selective.peer_spray }
}

/// The peer refuses the oldest work request.
fn refused(qp: &mut Qp, status: Status, round: &mut Round<'_, '_>) {
    fail_front(qp, status, round);
}

/// Everything before `to` is acknowledged, but for reads and atomics whose data have not come: they are asked for again
/// (IBTA 1.3, 9.7.5.1.1, "implied NAK").
fn advance(qp: &mut Qp, to: Psn, round: &mut Round<'_, '_>) {
    let missing = missing_before(qp, to);
    let selective = &mut qp.requester.selective;
    if missing.is_some() && selective.acked_to.is_none_or(|before| to.since(before) > 0) {
        selective.acked_to = Some(to);
    }
    let reached = missing.unwrap_or(to);
    if reached.since(qp.requester.unacked) > 0 {
        qp.requester.unacked = reached;
        progress(qp, round);
        retire(qp, round);
    }
    // Data that take several paths may come after the acknowledgement of a later request: a timer asks for them.
    if let Some(psn) = missing.filter(|psn| qp.sends() && spray_of_read(qp, *psn, round) == 0) {
        again_from(qp, psn, round);
    }
}

/// The first packet before `to` that only a response with data can acknowledge.
// Meets IBTA: 9.7.5-b.
fn missing_before(qp: &Qp, to: Psn) -> Option<Psn> {
    let requester = &qp.requester;
    if requester.fetches == 0 {
        return None;
    }
    let works = (0..requester.begun).map_while(|index| qp.queue.get(index)).take_while(|work| work.first.since(to) < 0);
    works
        .filter(|work| work.is_fetch() && work.end().since(requester.unacked) > 0)
        .map(|work| if work.first.since(requester.unacked) > 0 { work.first } else { requester.unacked })
        .find(|missing| missing.since(to) < 0)
}

/// Something was acknowledged: counters and the timer begin anew (IBTA 1.3, 9.7.6.1.2).
// Meets IBTA: 9.7.6-b.
fn progress(qp: &mut Qp, round: &Round<'_, '_>) {
    let (requester, settings) = (&mut qp.requester, &qp.settings);
    (requester.retries_left, requester.rnr_left) = (settings.retries, settings.rnr_retries);
    (requester.recovering, requester.rnr_until) = (None, None);
    requester.selective.reached(requester.unacked, round.now);
    let waits = requester.unacked != requester.sent_to && settings.timeout > 0;
    requester.deadline = waits.then(|| round.now + wait_time(requester, settings));
}

/// Data of a read or an atomic came.
fn fetched(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Keep {
    let psn = packet.bth.psn;
    let index = qp.queue.holding(psn, qp.requester.begun);
    let work = index.and_then(|index| qp.queue.get(index)).filter(|work| work.is_fetch());
    let Some(first) = work.map(|work| work.first) else {
        round.drop(DropReason::ResponseStale);
        return Keep::No;
    };
    advance(qp, first, round);
    if !qp.sends() {
        return Keep::No;
    }
    let unacked = qp.requester.unacked;
    if psn != unacked {
        return early(qp, psn, round);
    }
    let Some(work) = qp.queue.front() else { return Keep::No };
    match place(qp, work, packet, round) {
        Ok(()) => {
            qp.requester.unacked = psn.plus(packet.count());
            progress(qp, round);
            retire(qp, round);
        }
        Err(status) => fail_front(qp, status, round),
    }
    Keep::No
}

/// Data came before those that are missing, which are asked for again. As long as such come, the peer is not silent:
/// one that answers slowly sends what was asked for first, before it comes to what is asked for again.
fn early(qp: &mut Qp, psn: Psn, round: &mut Round<'_, '_>) -> Keep {
    let unacked = qp.requester.unacked;
    let near = psn.since(unacked) < round.shared.config.limits.window as i32;
    if qp.requester.selective.peer && near {
        return Keep::Response;
    }
    round.drop(DropReason::PsnAhead);
    again_from(qp, unacked, round);
    let Qp { requester, settings, .. } = qp;
    if settings.timeout > 0 && requester.deadline.is_some() {
        requester.deadline = Some(round.now + wait_time(requester, settings));
    }
    Keep::No
}

/// Puts data where the work request has its buffers.
fn place(qp: &Qp, work: &Work, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Result<(), Status> {
    let at = packet.bth.psn.since(work.first).unsigned_abs();
    if work.element.opcode != SendOpcode::Read {
        let word = packet.atomic_result().ok_or(Status::BadResponse)?;
        return place_fetched(qp, work, 0, Payload::Here(&word.to_ne_bytes()), round)
            .map_err(|_| Status::LocalProtection);
    }
    let skip = at * qp.settings.mtu;
    let expected = (work.len - skip).min(packet.count() * qp.settings.mtu) as usize;
    if packet.opcode().operation() != Operation::ReadResponse || packet.payload.len() != expected {
        return Err(Status::BadResponse);
    }
    place_fetched(qp, work, skip, packet.payload, round).map_err(|_| Status::LocalProtection)
}
