//! Quantum of a queue pair over a stream: messages that came, messages that go.
use super::requester::{acknowledged, answered, lost, next, refused};
use super::responder::{carry_out, reply, requested};
use super::{Arrived, Content, Header, Message, MessageKind};
use crate::ending::{enter_error, flush};
use crate::output::Event;
use crate::qp::{NextQuantum, Qp};
use crate::requester::drained;
use crate::shared::Round;
use verbs::QpState;

pub(super) fn deliver(qp: &mut Qp, arrived: Arrived, round: &mut Round<'_, '_>) {
    if !qp.receives() {
        return;
    }
    let header = arrived.header;
    acknowledged(qp, header.carried_out, round);
    match header.kind {
        kind if kind.is_request() => requested(qp, arrived, round),
        MessageKind::Response if arrived.denied.is_none() => answered(qp, &header, arrived.len, round),
        MessageKind::Refusal => refused(qp, &header, round),
        MessageKind::Gone => lost(qp, round),
        _ => {}
    }
}

/// There is a message to send.
fn has_message(qp: &Qp) -> bool {
    let Some(stream) = qp.stream.as_ref() else { return false };
    match qp.state {
        QpState::Error => stream.reports_gone,
        _ => {
            let requests = qp.state == QpState::ReadyToSend && qp.queue.len() > stream.begun.len();
            requests || !stream.replies.is_empty() || stream.refusal.is_some() || stream.reported != stream.carried_out
        }
    }
}

pub(super) fn next_message(qp: &mut Qp, round: &mut Round<'_, '_>) -> Option<Message> {
    let mut message = choose(qp, round)?;
    let stream = qp.stream.as_mut()?;
    (message.header.carried_out, stream.reported) = (stream.carried_out, stream.carried_out);
    Some(message)
}

fn choose(qp: &mut Qp, round: &mut Round<'_, '_>) -> Option<Message> {
    let bare = |header| Some(Message { header, content: Content::Bytes(Vec::new()) });
    let stream = qp.stream.as_mut()?;
    if std::mem::take(&mut stream.reports_gone) {
        return bare(Header::new(MessageKind::Gone));
    }
    if qp.state == QpState::Error || !stream.linked {
        return None;
    }
    // Responses and requests in turn.
    let replies_first = !std::mem::take(&mut stream.replied);
    let first = if replies_first { reply(qp, round) } else { next(qp, round) };
    if let Some(message) = first {
        if let Some(stream) = qp.stream.as_mut() {
            stream.replied = replies_first;
        }
        return Some(message);
    }
    if let Some(message) = if replies_first { next(qp, round) } else { reply(qp, round) } {
        return Some(message);
    }
    let stream = qp.stream.as_mut()?;
    if let Some((number, code)) = stream.refusal.take() {
        let mut header = Header::new(MessageKind::Refusal);
        (header.number, header.code) = (number, code as u8);
        qp.next_quantum = NextQuantum::Fails;
        return bare(header);
    }
    if qp.state != QpState::Error && stream.reported != stream.carried_out {
        return bare(Header::new(MessageKind::Acknowledge));
    }
    None
}

/// A queue pair's quantum. True where it needs another one.
pub(crate) fn run(qp: &mut Qp, round: &mut Round<'_, '_>, budget: u32) -> bool {
    match std::mem::take(&mut qp.next_quantum) {
        NextQuantum::Usual | NextQuantum::Awaited => {}
        // The connection asks for messages once the quantum is over.
        NextQuantum::SendsAndFails if has_message(qp) => qp.next_quantum = NextQuantum::Fails,
        NextQuantum::Fails | NextQuantum::SendsAndFails => enter_error(qp, round),
    }
    let mut again = false;
    if qp.state == QpState::Error {
        again = flush(qp, round, budget) == budget;
    } else {
        carry_out(qp, round);
        let is_lost = qp.stream.as_ref().is_some_and(|stream| stream.lost.is_some());
        if is_lost {
            lost(qp, round);
        }
        drained(qp, round);
        again |= qp.state == QpState::Error || qp.fails();
    }
    if has_message(qp) {
        round.out.events.push(Event::Ready(qp.identity.number));
    }
    again
}
