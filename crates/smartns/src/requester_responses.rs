//! Responses at the requester (IBTA 1.3, 9.7.5 and 9.7.6).
use crate::ending::fail_front;
use crate::payload::{Packet, Payload};
use crate::qp::Qp;
use crate::requester::{place_fetched, retire, rewind};
use crate::requests::wait_time;
use crate::selective::{Keep, REPORTED, REPORTED_BYTES, Resend};
use crate::send_queue::Work;
use crate::shared::Round;
use engine::DropReason;
use verbs::{SendOpcode, Status};
use wire::roce::{NakCode, Operation, Psn, Syndrome, rnr_time};

/// No limit on RNR retries (IBTA 1.3, 9.7.5.2.8).
const FOR_EVER: u8 = 7;

/// A response came. Tells whether its frame is to be kept.
pub(crate) fn response(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Keep {
    let psn = packet.bth.psn;
    let requester = &qp.requester;
    if !qp.sends() || psn.since(requester.unacked) < 0 || psn.since(requester.sent_to) >= 0 {
        round.drop(DropReason::ResponseStale);
        return Keep::No;
    }
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

/// The packet `missing` was lost, and so were those behind it that are not acknowledged, up to the last one that is.
fn lost(qp: &mut Qp, missing: Psn, sent: u128, round: &Round<'_, '_>) {
    let Qp { requester, queue, settings, .. } = qp;
    // Where nothing is acknowledged, what came is beyond what can be.
    let behind = if sent == 0 { REPORTED } else { REPORTED - 1 - sent.leading_zeros() };
    let newest = missing.plus(behind + 1);
    let untold = (0..behind).filter(|at| sent >> at & 1 == 0).map(|at| missing.plus(at + 1));
    let holes = std::iter::once(missing).chain(untold.filter(|_| sent != 0));
    for psn in holes {
        // The numbers of a read's responses but the first are no requests.
        let work = queue.holding(psn, requester.begun).and_then(|index| queue.get(index));
        let Some(work) = work.filter(|work| !work.is_fetch() || work.first == psn) else { continue };
        let packets = if work.is_fetch() { work.packets } else { 1 };
        if requester.selective.is_lost(psn, newest, requester.sent_to) {
            requester.selective.again(Resend { psn, packets });
        }
    }
    if settings.timeout > 0 {
        requester.deadline = Some(round.now + wait_time(requester, settings));
    }
}

/// A packet is missing. Where data of a read are, they are asked for again, up to what came already.
fn repeat(qp: &mut Qp, psn: Psn, round: &Round<'_, '_>) {
    let Qp { requester, queue, settings, .. } = qp;
    let Some(work) = queue.holding(psn, requester.begun).and_then(|index| queue.get(index)) else { return };
    let whole = work.end().since(psn);
    let kept = requester.selective.held.first().map_or(whole, |first| first.since(psn));
    let packets = match (work.is_fetch(), kept > 0) {
        (false, _) => 1,
        (true, true) => kept.min(whole).unsigned_abs(),
        (true, false) => whole.unsigned_abs(),
    };
    requester.selective.again(Resend { psn, packets });
    if settings.timeout > 0 {
        requester.deadline = Some(round.now + wait_time(requester, settings));
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
    if !qp.requester.selective.held.is_empty() && qp.sends() {
        again_from(qp, unacked, round);
    }
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
    if let Some(psn) = missing.filter(|_| qp.sends()) {
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

/// A packet is missing: it and all after it are sent again, once for each sign that it was lost.
fn again_from(qp: &mut Qp, psn: Psn, round: &mut Round<'_, '_>) {
    if qp.requester.recovering == Some(psn) {
        return;
    }
    if qp.requester.selective.peer {
        qp.requester.recovering = Some(psn);
        return repeat(qp, psn, round);
    }
    if !spend_retry(qp, round) {
        return;
    }
    qp.requester.recovering = Some(psn);
    rewind(qp, psn);
}

/// Takes one off the retry counter; where there is none left, the oldest work request fails.
fn spend_retry(qp: &mut Qp, round: &mut Round<'_, '_>) -> bool {
    match qp.requester.retries_left.checked_sub(1) {
        Some(left) => qp.requester.retries_left = left,
        None => fail_front(qp, Status::RetryExceeded, round),
    }
    qp.sends()
}

/// The peer had no receive work request: again after its time (IBTA 1.3, 9.7.5.2.8).
// Meets IBTA: 9.7.5-g.
fn not_ready(qp: &mut Qp, psn: Psn, code: u8, round: &mut Round<'_, '_>) {
    if qp.settings.rnr_retries != FOR_EVER {
        match qp.requester.rnr_left.checked_sub(1) {
            Some(left) => qp.requester.rnr_left = left,
            None => return fail_front(qp, Status::RnrRetryExceeded, round),
        }
    }
    if qp.requester.selective.peer {
        // What came behind it is kept.
        qp.requester.selective.again(Resend { psn, packets: 1 });
    } else {
        rewind(qp, psn);
    }
    let requester = &mut qp.requester;
    (requester.deadline, requester.rnr_until) = (None, Some(round.now + rnr_time(code)));
    // What comes of packets that are still under way asks for nothing.
    requester.recovering = Some(psn);
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

/// Timers that are due (IBTA 1.3, 9.7.6.1.3): the peer is ready again, or nothing was acknowledged for too long.
// Meets IBTA: 9.7.6-a.
pub(crate) fn timers(qp: &mut Qp, round: &mut Round<'_, '_>) {
    if qp.requester.rnr_until.is_some_and(|until| until <= round.now) {
        qp.requester.rnr_until = None;
    }
    qp.pacer.iter_mut().for_each(|pacer| pacer.fire(round.now));
    if qp.requester.deadline.is_none_or(|deadline| deadline > round.now) {
        return;
    }
    qp.requester.deadline = None;
    if !qp.sends() || qp.requester.unacked == qp.requester.sent_to {
        return;
    }
    let unacked = qp.requester.unacked;
    if waits_to_go_again(qp, unacked) {
        // Its time begins when it is sent.
        return;
    }
    if qp.requester.selective.peer {
        return probe(qp, unacked, round);
    }
    if spend_retry(qp, round) {
        qp.requester.recovering = Some(unacked);
        rewind(qp, unacked);
        qp.requester.deadline = Some(round.now + qp.settings.timeout);
    }
}

/// A packet is to be sent again, and was not yet: a sender with a rate has to wait for its turn.
fn waits_to_go_again(qp: &Qp, psn: Psn) -> bool {
    let requester = &qp.requester;
    let cursor = qp.queue.get(requester.at).filter(|_| requester.at < requester.begun);
    let is_next = cursor.is_some_and(|work| work.first.plus(requester.sent) == psn);
    is_next || requester.selective.resend.iter().any(|resend| resend.psn == psn)
}

/// Sends the oldest packet again, to get an acknowledgement that reports what is missing. It counts as a retry after
/// the queue pair's time-out only.
fn probe(qp: &mut Qp, unacked: Psn, round: &mut Round<'_, '_>) {
    let selective = &mut qp.requester.selective;
    selective.probes += 1;
    if round.now.saturating_sub(selective.counted_at) >= qp.settings.timeout {
        selective.counted_at = round.now;
        if !spend_retry(qp, round) {
            return;
        }
    }
    repeat(qp, unacked, round);
}
