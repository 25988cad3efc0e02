//! Packets of a work request, and the record of those that were sent.
use crate::frames::Run;
use crate::qp::{Qp, Requester, Settings};
use crate::send_queue::{SendQueue, Work};
use engine::Nanos;
use verbs::{Piece, QpKind, QpState, SendFlags, SendOpcode};
use wire::roce::{Bth, Headers, Opcode, Position, Psn, Reth, Service, Tail, XrcEth};

/// A responder is asked for an acknowledgement once in so many parts of the window, at least.
const ACKS_OF_A_WINDOW: u32 = 4;

/// Gives a work request its packet sequence numbers.
pub(crate) fn begin(requester: &mut Requester, work: &mut Work, mtu: u32) {
    (work.first, work.packets) = (requester.next, work.len.div_ceil(mtu).max(1));
    if work.element.opcode.is_atomic() {
        work.packets = 1;
    }
    requester.next = work.end();
    requester.begun += 1;
    requester.fetches += u8::from(work.is_fetch());
}

/// These packets were sent.
pub(crate) fn note_sent(qp: &mut Qp, psn: Psn, count: u32, now: Nanos) {
    let requester = &mut qp.requester;
    let behind = psn.plus(count);
    if behind.since(requester.sent_to) > 0 {
        requester.sent_to = behind;
        requester.selective.asked(psn, now);
    }
    if requester.deadline.is_none() && qp.settings.timeout > 0 && qp.identity.kind.is_reliable() {
        requester.deadline = Some(now + wait_time(requester, &qp.settings));
    }
    if let Some(pacer) = qp.pacer.as_mut().filter(|pacer| pacer.asks()) {
        pacer.asked(now);
    }
}

/// How long an acknowledgement may take before something is done.
pub(crate) fn wait_time(requester: &Requester, settings: &Settings) -> Nanos {
    if requester.selective.peer { requester.selective.probe_time(settings.timeout) } else { settings.timeout }
}

/// The base header of a request.
#[inline]
pub(crate) fn base(qp: &Qp, opcode: Opcode, psn: Psn) -> Bth {
    Bth { extension: qp.extension, ..Bth::new(opcode, qp.settings.remote_qp, psn) }
}

/// What comes before all other headers of a request.
#[inline]
pub(crate) fn front(qp: &Qp, work: &Work) -> Headers {
    match qp.identity.kind {
        QpKind::XrcSend => Headers::of(XrcEth { queue: work.element.srq }.bytes()),
        _ => Headers::NONE,
    }
}

/// The headers of these packets of a SEND or a WRITE.
#[inline]
pub(crate) fn describe(qp: &Qp, work: &Work, run: &Run, window: u32) -> (Bth, Headers) {
    let (sent, element) = (qp.requester.sent, &work.element);
    let position = Position::spanning(sent, sent + run.count, work.packets);
    let service = qp.service();
    let tail = match element.opcode {
        SendOpcode::SendImmediate | SendOpcode::WriteImmediate => Tail::Immediate,
        SendOpcode::SendInvalidate => Tail::Invalidate,
        _ => Tail::Nothing,
    };
    let mut headers = front(qp, work);
    let opcode = match element.opcode {
        SendOpcode::Write | SendOpcode::WriteImmediate => {
            if position.begins() {
                let operand = element.operand();
                headers = headers.with(Reth { address: operand.address, key: operand.key, len: work.len }.bytes());
            }
            Opcode::write(service, position, tail)
        }
        _ => Opcode::send(service, position, tail),
    };
    if position.ends() && tail != Tail::Nothing {
        headers = headers.with(element.immediate.to_be_bytes());
    }
    let wakes = tail == Tail::Immediate || !matches!(element.opcode, SendOpcode::Write);
    let bth = Bth {
        solicited: position.ends() && wakes && element.flags.has(SendFlags::SOLICITED),
        ack_request: service != Service::Uc && needs_ack(qp, work, run, window),
        ..base(qp, opcode, run.psn)
    };
    (bth, headers)
}

/// The next work request sends no packet that could ask.
#[cold]
fn local_follows(qp: &Qp) -> bool {
    qp.queue.get(qp.requester.at + 1).is_some_and(|work| work.element.opcode.is_local())
}

/// The scatter-gather entries of a work request.
pub(crate) fn pieces<'a>(queue: &'a SendQueue, work: &'a Work) -> impl Iterator<Item = Piece> + 'a {
    (0..usize::from(work.element.pieces)).map(|at| queue.piece(work, at))
}

/// The responder is to acknowledge these packets: the program waits for their message, nothing follows that could ask,
/// or much was sent without asking.
#[inline]
pub(crate) fn needs_ack(qp: &Qp, work: &Work, run: &Run, window: u32) -> bool {
    // A power of two: sequence numbers wrap at one.
    let every = 1 << (window / ACKS_OF_A_WINDOW).max(1).ilog2();
    let is_last = run.end() == work.end();
    let waits = qp.identity.signals_all || work.element.flags.has(SendFlags::SIGNALED);
    let nothing_follows = qp.requester.at + 1 >= qp.queue.len() || qp.has_local && local_follows(qp);
    let full = run.end().since(qp.requester.unacked) >= window as i32;
    let again = qp.requester.selective.peer && run.psn.since(qp.requester.sent_to) < 0;
    again
        || qp.pacer.as_ref().is_some_and(|pacer| pacer.asks())
        || is_last && (waits || nothing_follows || qp.state == QpState::SendQueueDrained)
        || full
        || (run.psn.bits() & (every - 1)) + run.count >= every
}
