//! Recovery at the requester: the retransmission timer, what is sent again after it or after a NAK, and peers that are
//! not ready (IBTA 1.3, 9.7.5.2.8 and 9.7.6.1).
use crate::ending::fail_front;
use crate::qp::Qp;
use crate::requester::rewind;
use crate::requests::wait_time;
use crate::selective::{REPORTED, Resend};
use crate::send_queue::SendQueue;
use crate::shared::Round;
use engine::Nanos;
use verbs::Status;
use wire::roce::{Psn, rnr_time};

/// No limit on RNR retries (IBTA 1.3, 9.7.5.2.8).
const FOR_EVER: u8 = 7;

/// Timers that are due (IBTA 1.3, 9.7.6.1.3): the peer is ready again, or nothing was acknowledged for too long.
// Meets IBTA: 9.7.6-a.
pub(crate) fn timers(qp: &mut Qp, round: &mut Round<'_, '_>) {
    qp.requester.selective.paths.try_again(round.now);
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

/// The packet `missing` was lost, and so were those behind it that are not acknowledged, up to the last one that is.
pub(crate) fn lost(qp: &mut Qp, missing: Psn, sent: u128, round: &Round<'_, '_>) {
    let spray = qp.spray();
    let Qp { requester, queue, settings, .. } = qp;
    if spray > 0 {
        requester.selective.report = Some((missing, sent));
    }
    // Where nothing is acknowledged, what came is beyond what can be.
    let behind = if sent == 0 { REPORTED } else { REPORTED - 1 - sent.leading_zeros() };
    let newest = missing.plus(behind + 1);
    let unreported = (0..behind).filter(|at| sent >> at & 1 == 0).map(|at| missing.plus(at + 1));
    let holes = std::iter::once(missing).chain(unreported.filter(|_| sent != 0));
    let later = |psn: Psn| sent >> psn.since(missing).clamp(0, 127);
    // One that was sent again is lost where a later packet came, of each path.
    let newest = newest.minus((1 << spray) - 1);
    for psn in holes {
        if spray > 0 && sent > 0 && !requester.selective.shows_loss(psn, later(psn), spray) {
            continue;
        }
        let Some(packets) = request_packets(queue, requester.begun, psn) else { continue };
        if requester.selective.is_lost(psn, newest, requester.sent_to) {
            requester.selective.again(Resend { psn, packets });
        }
    }
    if settings.timeout > 0 {
        requester.deadline = Some(round.now + wait_time(requester, settings));
    }
}

/// The packets that are sent again for number `psn`: of a read all, of others one. `None` where it is no request: the
/// numbers of a read's responses but the first are none.
fn request_packets(queue: &SendQueue, begun: usize, psn: Psn) -> Option<u32> {
    let work = queue.holding(psn, begun).and_then(|index| queue.get(index))?;
    match work.is_fetch() {
        true => (work.first == psn).then_some(work.packets),
        false => Some(1),
    }
}

/// A packet is missing: it and all after it are sent again, once for each sign that it was lost.
pub(crate) fn again_from(qp: &mut Qp, psn: Psn, round: &mut Round<'_, '_>) {
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

/// A packet is missing. Where data of a read are, they are asked for again, up to what came already.
fn repeat(qp: &mut Qp, psn: Psn, round: &Round<'_, '_>) {
    let Qp { requester, queue, settings, .. } = qp;
    let Some(work) = queue.holding(psn, requester.begun).and_then(|index| queue.get(index)) else { return };
    let whole = work.end().since(psn);
    let held_from = requester.selective.held.first().map_or(whole, |first| first.since(psn));
    let packets = match (work.is_fetch(), held_from > 0) {
        (false, _) => 1,
        (true, true) => held_from.min(whole).unsigned_abs(),
        (true, false) => whole.unsigned_abs(),
    };
    requester.selective.again(Resend { psn, packets });
    if settings.timeout > 0 {
        requester.deadline = Some(round.now + wait_time(requester, settings));
    }
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
    repeat_reported(qp, unacked, round.now);
}

/// Of packets that were sprayed, a path may have carried none: then no later packet of that path shows their loss. All
/// that the last report did not have are sent again, by other paths; and the path is left.
#[cold]
fn repeat_reported(qp: &mut Qp, unacked: Psn, now: Nanos) {
    let spray = qp.spray();
    let Some((_, sent)) = qp.requester.selective.report.take().filter(|(missing, _)| *missing == unacked) else {
        return;
    };
    qp.requester.selective.paths.find_failed(unacked, sent, spray, now);
    let newest = REPORTED - sent.leading_zeros();
    for psn in (1..newest).filter(|at| sent >> (at - 1) & 1 == 0).map(|at| unacked.plus(at)) {
        if let Some(packets) = request_packets(&qp.queue, qp.requester.begun, psn) {
            qp.requester.selective.again(Resend { psn, packets });
        }
    }
}

/// A packet is to be sent again, and was not yet: a sender with a rate has to wait until it is due.
fn waits_to_go_again(qp: &Qp, psn: Psn) -> bool {
    let requester = &qp.requester;
    let cursor = qp.queue.get(requester.at).filter(|_| requester.at < requester.begun);
    let is_next = cursor.is_some_and(|work| work.first.plus(requester.sent) == psn);
    is_next || requester.selective.resend.iter().any(|resend| resend.psn == psn)
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
pub(crate) fn not_ready(qp: &mut Qp, psn: Psn, code: u8, round: &mut Round<'_, '_>) {
    if qp.settings.rnr_retries != FOR_EVER {
        match qp.requester.rnr_left.checked_sub(1) {
            Some(left) => qp.requester.rnr_left = left,
            None => return fail_front(qp, Status::RnrRetryExceeded, round),
        }
    }
    if qp.requester.selective.peer {
        // What came behind it is buffered.
        qp.requester.selective.again(Resend { psn, packets: 1 });
    } else {
        rewind(qp, psn);
    }
    let requester = &mut qp.requester;
    (requester.deadline, requester.rnr_until) = (None, Some(round.now + rnr_time(code)));
    // What comes of packets that are still under way asks for nothing.
    requester.recovering = Some(psn);
}
