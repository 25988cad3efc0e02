//! The responder's half: where payload goes, and requests that are carried out in their order.
use super::requester::awaited;
use super::unreliable::{drop_message, is_unreliable};
use super::{Arrived, Content, Denied, HEADER_LEN, Header, Message, MessageKind, Reply, Steer, Stream};
use crate::completion_queue::Solicited;
use crate::ending::{Received, complete_receive, fail_receive};
use crate::payload::Payload;
use crate::placement::{Part, Target};
use crate::qp::{Qp, Source};
use crate::receive_queue::Receive;
use crate::refused::{ACCESS, INVALID, Refused};
use crate::requests::pieces;
use crate::responder::{accessed, permitted, place_in_receive, receive_domain};
use crate::shared::Round;
use engine::DropReason;
use memory::{Access, Rights};
use verbs::{AsyncEvent, CompletionFlags, CompletionOpcode, QpState, Status};
use wire::roce::NakCode;

/// Bytes of a response in one message: other messages pass between two of them.
const CHUNK: u32 = 256 << 10;
/// Messages that may wait ahead of a missing one, each for a receive work request.
const MOST_AHEAD: u32 = 8192;

/// Requests that wait for a receive work request, and bytes that they keep, from which on others get no place.
const MOST_WAITING: usize = 4096;
const MOST_KEPT: usize = 1 << 20;

/// Where the payload of a message goes, which has `len` bytes with its header.
pub(super) fn steer(qp: &mut Qp, header: &Header, len: u32, round: &mut Round<'_, '_>) -> Steer {
    if matches!(qp.state, QpState::Reset | QpState::Init) {
        return Steer::Later;
    }
    let payload = len.saturating_sub(HEADER_LEN as u32);
    // What comes for a queue pair that has failed is not read.
    if !qp.receives() {
        return Steer::Nowhere(Denied(INVALID));
    }
    let is_full = |stream: &Stream| stream.waiting.len() >= MOST_WAITING || stream.kept >= MOST_KEPT;
    if qp.stream.as_deref().is_some_and(is_full) && header.kind.is_request() {
        return Steer::Later;
    }
    let is_behind = |first: u32| header.kind.is_request() && header.number.wrapping_sub(first) as i32 > 0;
    if qp.stream.as_ref().and_then(|stream| stream.refuses).is_some_and(is_behind) {
        return Steer::Nowhere(Denied(INVALID));
    }
    let steer = aim(qp, header, payload, round);
    let gets_answer = header.kind.is_request() && !is_unreliable(qp);
    if let (Steer::Nowhere(_), Some(stream), true) = (&steer, qp.stream.as_mut(), gets_answer) {
        stream.refuses = Some(header.number);
    }
    steer
}

fn aim(qp: &mut Qp, header: &Header, payload: u32, round: &mut Round<'_, '_>) -> Steer {
    let found = match header.kind {
        kind if kind.is_send() => return receive(qp, header, payload, round),
        MessageKind::Write | MessageKind::WriteImmediate => write(qp, header, payload, round),
        MessageKind::Response => response(qp, header, payload, round),
        _ if payload > 0 => Err(INVALID),
        _ => Ok(Steer::Places(qp.identity.domain, Vec::new())),
    };
    found.unwrap_or_else(|refused| Steer::Nowhere(Denied(refused)))
}

/// A SEND goes into the receive work request of its place in the order.
fn receive(qp: &mut Qp, header: &Header, payload: u32, round: &mut Round<'_, '_>) -> Steer {
    let Some(first) = qp.stream.as_ref().map(|stream| stream.first_taken) else { return Steer::Later };
    let at = header.receive.wrapping_sub(first);
    if at >= MOST_AHEAD || payload > round.shared.config.limits.message_bytes {
        return Steer::Nowhere(Denied(INVALID));
    }
    if !take(qp, at, round) {
        return Steer::Keep;
    }
    let domain = receive_domain(qp, round);
    let Some(receive) = qp.stream.as_ref().and_then(|stream| stream.taken.get(at as usize)) else { return Steer::Keep };
    let denied = |code, own| Steer::Nowhere(Denied(Refused::Nak { code, own: Some(own) }));
    // As for packets: `responder::place_in_receive`.
    if receive.is_malformed {
        return denied(NakCode::RemoteOperation, Status::LocalQpOperation);
    }
    if u64::from(payload) > receive.len() {
        return denied(NakCode::InvalidRequest, Status::LocalLength);
    }
    let places = round.shared.memory.locate_all(
        domain,
        receive.pieces.iter().copied(),
        Part { skip: 0, len: payload as usize },
        Access::LocalWrite,
    );
    match places {
        Ok(places) => Steer::Places(domain, places),
        Err(_) => denied(NakCode::RemoteOperation, Status::LocalProtection),
    }
}

/// Takes receive work requests up to this place. False where there are too few.
fn take(qp: &mut Qp, at: u32, round: &mut Round<'_, '_>) -> bool {
    let Some(stream) = qp.stream.as_mut() else { return false };
    while stream.taken.len() <= at as usize {
        let mut receive = Receive::default();
        let taken = match &mut qp.source {
            Source::Own(queue) => queue.take(&mut receive),
            Source::Shared(number) => round.take_shared(*number, &mut receive),
            Source::Named { .. } => false,
        };
        if !taken {
            return false;
        }
        stream.taken.push_back(receive);
    }
    true
}

fn write(qp: &Qp, header: &Header, payload: u32, round: &Round<'_, '_>) -> Result<Steer, Refused> {
    if payload > round.shared.config.limits.message_bytes {
        return Err(INVALID);
    }
    permitted(qp, Rights::REMOTE_WRITE)?;
    let domain = qp.identity.domain;
    if payload == 0 {
        return Ok(Steer::Places(domain, Vec::new()));
    }
    let target = Target { domain, key: header.key, address: header.address };
    let (target, access) = accessed(qp, target, payload, Access::RemoteWrite, round)?;
    let place = round.shared.memory.locate(target, payload, access).map_err(|_| ACCESS)?;
    Ok(Steer::Places(domain, vec![place]))
}

/// A response goes to its READ's place.
fn response(qp: &Qp, header: &Header, payload: u32, round: &Round<'_, '_>) -> Result<Steer, Refused> {
    let work = awaited(qp, header).and_then(|at| qp.queue.get(at)).ok_or(INVALID)?;
    let skip = u32::try_from(header.address).map_err(|_| INVALID)?;
    if skip.checked_add(payload).is_none_or(|end| end > work.len) {
        return Err(INVALID);
    }
    let (domain, entries) = (qp.identity.domain, pieces(&qp.queue, work));
    let places =
        round.shared.memory.locate_all(domain, entries, Part { skip, len: payload as usize }, Access::LocalWrite);
    Ok(Steer::Places(domain, places.map_err(|_| INVALID)?))
}

/// A request is in order: it is carried out now, or waits behind others.
pub(super) fn requested(qp: &mut Qp, arrived: Arrived, round: &mut Round<'_, '_>) {
    if let Some(stream) = qp.stream.as_mut() {
        stream.kept += arrived.kept_len();
        stream.waiting.push_back(arrived);
        carry_out(qp, round);
    }
}

/// Carries requests out, until one has no receive work request.
pub(super) fn carry_out(qp: &mut Qp, round: &mut Round<'_, '_>) {
    while qp.receives() {
        let Some(stream) = qp.stream.as_mut() else { return };
        let Some(arrived) = stream.waiting.pop_front() else { return };
        stream.kept -= arrived.kept_len();
        let number = arrived.header.number;
        let in_turn = number == stream.carried_out;
        let done = if in_turn { execute(qp, &arrived, round) } else { Err(INVALID) };
        match done {
            Ok(()) => {
                if let Some(stream) = qp.stream.as_mut() {
                    stream.carried_out = stream.carried_out.wrapping_add(1);
                }
                crate::responder::established(qp, round);
            }
            Err(why) if is_unreliable(qp) => drop_message(qp, &arrived.header, why, round),
            Err(Refused::NotReady) => {
                if let Some(stream) = qp.stream.as_mut() {
                    stream.kept += arrived.kept_len();
                    stream.waiting.push_front(arrived);
                }
                return;
            }
            Err(Refused::Nak { code, own }) => return refuse(qp, number, code, own, round),
        }
    }
}

/// The request is refused, and the queue pair fails once its peer was notified.
fn refuse(qp: &mut Qp, number: u32, code: NakCode, own: Option<Status>, round: &mut Round<'_, '_>) {
    round.drop(DropReason::RequestRefused);
    qp.responder.is_fatal = true;
    if let Some(status) = own {
        if hold(qp, round) {
            fail_receive(qp, status, round);
        }
    } else {
        let access = code == NakCode::RemoteAccess;
        let event = if access { AsyncEvent::QpAccessError } else { AsyncEvent::QpRequestError };
        round.event(event, qp.identity.number);
    }
    if let Some(stream) = qp.stream.as_mut() {
        stream.waiting.clear();
        stream.kept = 0;
        stream.refusal = Some((number, code));
    }
}

/// The queue pair holds the next receive work request. False where there is none.
fn hold(qp: &mut Qp, round: &mut Round<'_, '_>) -> bool {
    if qp.responder.has_receive {
        return true;
    }
    if !take(qp, 0, round) {
        return false;
    }
    let Some(stream) = qp.stream.as_mut() else { return false };
    let Some(receive) = stream.taken.pop_front() else { return false };
    stream.first_taken = stream.first_taken.wrapping_add(1);
    (qp.responder.receive, qp.responder.has_receive) = (receive, true);
    true
}

fn execute(qp: &mut Qp, arrived: &Arrived, round: &mut Round<'_, '_>) -> Result<(), Refused> {
    let Arrived { header, len, kept, denied } = arrived;
    if let Some(Denied(refused)) = denied {
        return Err(*refused);
    }
    match header.kind {
        MessageKind::Write => Ok(()),
        MessageKind::Read if !is_unreliable(qp) => read(qp, header, round),
        MessageKind::Read => Err(INVALID),
        _ => {
            if !hold(qp, round) {
                return Err(Refused::NotReady);
            }
            if let Some(kept) = kept {
                place_in_receive(qp, 0, Payload::Here(kept), round)?;
            }
            received(qp, header, *len, round)
        }
    }
}

/// A message that takes a receive work request has come.
fn received(qp: &mut Qp, header: &Header, bytes: u32, round: &mut Round<'_, '_>) -> Result<(), Refused> {
    let (opcode, flags) = match header.kind {
        MessageKind::WriteImmediate => (CompletionOpcode::ReceiveWriteImmediate, CompletionFlags::IMMEDIATE),
        MessageKind::SendImmediate => (CompletionOpcode::Receive, CompletionFlags::IMMEDIATE),
        MessageKind::SendInvalidate => (CompletionOpcode::Receive, CompletionFlags::INVALIDATED),
        _ => (CompletionOpcode::Receive, CompletionFlags::default()),
    };
    let invalidates = header.kind == MessageKind::SendInvalidate;
    if invalidates && !round.shared.windows.invalidate(qp.identity.number, header.detail) {
        return Err(ACCESS);
    }
    let solicited = if header.solicited { Solicited::Yes } else { Solicited::No };
    let immediate = if flags == CompletionFlags::default() { 0 } else { header.detail };
    let received = Received { opcode, bytes, immediate, flags, remote_qp: 0, service_level: 0, solicited };
    complete_receive(qp, &received, round);
    Ok(())
}

/// A request to read: it is answered in order.
fn read(qp: &mut Qp, header: &Header, round: &mut Round<'_, '_>) -> Result<(), Refused> {
    if header.detail > round.shared.config.limits.message_bytes {
        return Err(INVALID);
    }
    permitted(qp, Rights::REMOTE_READ)?;
    let target = Target { domain: qp.identity.domain, key: header.key, address: header.address };
    if header.detail > 0 {
        let (target, access) = accessed(qp, target, header.detail, Access::RemoteRead, round)?;
        round.shared.memory.locate(target, header.detail, access).map_err(|_| ACCESS)?;
    }
    let most = usize::from(qp.settings.resources);
    let stream = qp.stream.as_mut().ok_or(INVALID)?;
    if stream.replies.len() >= most {
        return Err(INVALID);
    }
    stream.replies.push_back(Reply { number: header.number, target, len: header.detail, sent: 0 });
    Ok(())
}

/// The next part of what is read.
pub(super) fn reply(qp: &mut Qp, round: &mut Round<'_, '_>) -> Option<Message> {
    let reply = *qp.stream.as_ref()?.replies.front()?;
    let count = (reply.len - reply.sent).min(CHUNK);
    let target = reply.target.plus(reply.sent.into());
    let place = || {
        let (target, access) = accessed(qp, target, count, Access::RemoteRead, round)?;
        round.shared.memory.locate(target, count, access).map_err(|_| ACCESS)
    };
    let places = match if count == 0 { Ok(None) } else { place().map(Some) } {
        Ok(place) => place.into_iter().collect(),
        // It was there when it was asked for.
        Err(_) => {
            if let Some(stream) = qp.stream.as_mut() {
                stream.replies.clear();
            }
            refuse(qp, reply.number, NakCode::RemoteAccess, None, round);
            return None;
        }
    };
    let stream = qp.stream.as_mut()?;
    let sent = reply.sent + count;
    if sent == reply.len {
        stream.replies.pop_front();
    } else if let Some(reply) = stream.replies.front_mut() {
        reply.sent = sent;
    }
    let mut header = Header::new(MessageKind::Response);
    (header.number, header.address) = (reply.number, reply.sent.into());
    Some(Message { header, content: Content::Places(qp.identity.domain, places) })
}
