//! End of work requests: completions, the error state, and the flush (IBTA 1.3, 10.3.1.6 and 10.8.5).
use crate::completion_queue::Solicited;
use crate::qp::{Qp, Requester, Source};
use crate::send_queue::Work;
use crate::shared::Round;
use verbs::{AsyncEvent, Completion, CompletionFlags, CompletionOpcode, QpState, SendFlags, Status};

/// What the completion of a received message has beside its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) opcode: CompletionOpcode,
    pub(crate) bytes: u32,
    pub(crate) immediate: u32,
    pub(crate) flags: CompletionFlags,
    pub(crate) remote_qp: u32,
    pub(crate) service_level: u8,
    pub(crate) solicited: Solicited,
}

/// A send work request has ended: its completion, where it gets one.
// Meets IBTA: 10.8.5-a.
#[inline]
pub(crate) fn complete_work(qp: &Qp, work: &Work, status: Status, round: &mut Round<'_, '_>) {
    let element = &work.element;
    if status == Status::Success && !qp.identity.signals_all && !element.flags.has(SendFlags::SIGNALED) {
        return;
    }
    let completion = Completion {
        bytes: if work.is_fetch() { work.len } else { 0 },
        at: round.now,
        ..qp.completion(status, element.opcode.completes_as(), element.number)
    };
    round.shared.complete(qp.identity.send_cq, &completion, Solicited::No);
}

/// The message that holds the queue pair's receive work request has come.
#[inline]
pub(crate) fn complete_receive(qp: &mut Qp, received: &Received, round: &mut Round<'_, '_>) {
    let completion = Completion {
        flags: received.flags,
        bytes: received.bytes,
        immediate: received.immediate,
        remote_qp: received.remote_qp,
        service_level: received.service_level,
        at: round.now,
        ..qp.completion(Status::Success, received.opcode, qp.responder.receive.number)
    };
    qp.responder.has_receive = false;
    round.shared.complete(qp.identity.receive_cq, &completion, received.solicited);
}

/// The receive work request that the queue pair holds failed.
pub(crate) fn fail_receive(qp: &mut Qp, status: Status, round: &mut Round<'_, '_>) {
    let number = qp.responder.receive.number;
    let completion =
        Completion { remote_qp: qp.named(), at: round.now, ..qp.completion(status, CompletionOpcode::Receive, number) };
    qp.responder.has_receive = false;
    round.shared.complete(qp.identity.receive_cq, &completion, Solicited::No);
}

/// The oldest send work request failed, and with it the queue pair.
pub(crate) fn fail_front(qp: &mut Qp, status: Status, round: &mut Round<'_, '_>) {
    if let Some(work) = qp.queue.pop() {
        complete_work(qp, &work, status, round);
    }
    enter_error(qp, round);
}

/// The oldest work request, of a queue pair without connection, has ended as soon as it was sent. False where it
/// failed: simpler than the state "send queue error", which a program can leave, its queue pair goes to error.
pub(crate) fn end_front(qp: &mut Qp, status: Status, round: &mut Round<'_, '_>) -> bool {
    if status != Status::Success {
        fail_front(qp, status, round);
        return false;
    }
    if let Some(work) = qp.queue.pop() {
        complete_work(qp, &work, status, round);
    }
    true
}

/// Moves to the error state; [`flush`] does the rest.
pub(crate) fn enter_error(qp: &mut Qp, round: &mut Round<'_, '_>) {
    if qp.state == QpState::Error {
        return;
    }
    qp.state = QpState::Error;
    qp.requester = Requester::default();
    qp.stream.iter_mut().for_each(|stream| stream.fail());
    qp.responder.message = None;
    qp.responder.nak = None;
    // IBTA 1.3, 10.2.9.3: from now on it takes nothing out of the shared queue.
    if matches!(qp.source, Source::Shared(_)) {
        round.event(AsyncEvent::LastReceiveReached, qp.identity.number);
    }
}

/// Takes the next receive work request.
#[inline]
pub(crate) fn take_receive(qp: &mut Qp, round: &mut Round<'_, '_>) -> bool {
    if !qp.responder.has_receive {
        qp.responder.has_receive = match &mut qp.source {
            Source::Own(queue) => queue.take(&mut qp.responder.receive),
            Source::Shared(number) | Source::Named { srq: Some(number), .. } => {
                round.take_shared(*number, &mut qp.responder.receive)
            }
            Source::Named { srq: None, .. } => false,
        };
    }
    qp.responder.has_receive
}

/// In the error state: completes up to `budget` work requests as flushed. Returns how many.
// Meets IBTA: 10.3.1-c.
pub(crate) fn flush(qp: &mut Qp, round: &mut Round<'_, '_>, budget: u32) -> u32 {
    let mut done = 0;
    while done < budget {
        let Some(work) = qp.queue.pop() else { break };
        complete_work(qp, &work, Status::Flushed, round);
        done += 1;
    }
    while done < budget {
        if !qp.responder.has_receive {
            let Some(receive) = qp.stream.as_mut().and_then(|stream| stream.give_back()) else { break };
            (qp.responder.receive, qp.responder.has_receive) = (receive, true);
        }
        fail_receive(qp, Status::Flushed, round);
        done += 1;
    }
    while done < budget {
        let own = matches!(qp.source, Source::Own(_));
        if !(qp.responder.has_receive || own && take_receive(qp, round)) {
            break;
        }
        fail_receive(qp, Status::Flushed, round);
        done += 1;
    }
    done
}
