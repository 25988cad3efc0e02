//! Unreliable connections over a stream: a message that cannot be carried out is dropped, and nobody is notified (IBTA
//! 1.3, 9.8.3). What the stream carries is not lost on the way, so that is all that can happen to one.
use super::{Header, MessageKind};
use crate::ending::complete_work;
use crate::qp::Qp;
use crate::refused::Refused;
use crate::requester::fails_now;
use crate::shared::Round;
use verbs::{QpKind, Status};

/// The queue pair is an unreliable connection.
pub(super) fn is_unreliable(qp: &Qp) -> bool {
    qp.identity.kind == QpKind::Uc
}

/// A message has no effect, and counts as carried out. Its place among those that take a receive work request is past;
/// the work request itself stays, for a later one.
pub(super) fn drop_message(qp: &mut Qp, header: &Header, why: Refused, round: &mut Round<'_, '_>) {
    round.drop(why.as_drop());
    let Some(stream) = qp.stream.as_mut() else { return };
    stream.carried_out = stream.carried_out.wrapping_add(1);
    let held = std::mem::take(&mut qp.responder.has_receive);
    if held {
        stream.taken.push_back(std::mem::take(&mut qp.responder.receive));
    } else if header.kind.is_send() || header.kind == MessageKind::WriteImmediate {
        stream.first_taken = stream.first_taken.wrapping_add(1);
        // Those behind it have theirs already.
        if let Some(unused) = stream.taken.pop_front() {
            stream.taken.push_back(unused);
        }
    }
}

/// Nobody takes messages any more, of which a sender gets no report: its work requests end as if they had left.
pub(super) fn end_unreported(qp: &mut Qp, round: &mut Round<'_, '_>) {
    if let Some(stream) = qp.stream.as_mut() {
        stream.begun.clear();
    }
    qp.requester.begun = 0;
    while !fails_now(qp, round) {
        let Some(work) = qp.queue.pop() else { break };
        complete_work(qp, &work, Status::Success, round);
    }
}
