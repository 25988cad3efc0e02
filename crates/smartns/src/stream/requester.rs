//! The requester's half: work requests become messages, and end when the peer reports that they are carried out.
use super::unreliable::{end_unreported, is_unreliable};
use super::{Begun, Content, Header, Message, MessageKind, Stream};
use crate::ending::{complete_work, fail_front};
use crate::placement::Part;
use crate::qp::Qp;
use crate::requester::{drained, fails_now};
use crate::requests::pieces;
use crate::send_queue::Work;
use crate::shared::{Round, Shared};
use crate::windows::Binder;
use engine::Nanos;
use memory::Access;
use verbs::{QpState, SendFlags, SendOpcode, Status};
use wire::roce::NakCode;

/// The next request, where it may be sent. Where the oldest work request is one that fails, it does now.
pub(super) fn next(qp: &mut Qp, round: &mut Round<'_, '_>) -> Option<Message> {
    while qp.state == QpState::ReadyToSend {
        let stream = qp.stream.as_mut()?;
        let at = stream.begun.len();
        let work = qp.queue.get(at)?;
        let fenced = work.element.flags.has(SendFlags::FENCE) && stream.fetches > 0;
        let too_many = work.is_fetch() && stream.fetches >= qp.settings.depth;
        if work.fault.is_some() || fenced || too_many {
            retire(qp, round);
            return None;
        }
        let made = match work.element.opcode.is_local() {
            true => local(qp, at, round).map(|()| None),
            false => message(qp, work, round).map(Some),
        };
        match made {
            Ok(None) => retire(qp, round),
            Ok(Some(mut message)) => {
                let is_fetch = qp.queue.get(at).is_some_and(Work::is_fetch);
                let stream = qp.stream.as_mut()?;
                stream.number(&mut message.header);
                stream.begun.push_back(Begun { number: message.header.number, answered: 0, ended: false });
                stream.fetches += u8::from(is_fetch);
                qp.requester.begun = stream.begun.len();
                return Some(message);
            }
            Err(status) => {
                if let Some(work) = qp.queue.get_mut(at) {
                    work.fault = Some(status);
                }
                retire(qp, round);
                return None;
            }
        }
    }
    None
}

impl Stream {
    /// Gives a request its numbers.
    fn number(&mut self, header: &mut Header) {
        (header.number, header.receive) = (self.next, self.asked);
        self.next = self.next.wrapping_add(1);
        let takes = header.kind.is_send() || header.kind == MessageKind::WriteImmediate;
        self.asked = self.asked.wrapping_add(u32::from(takes));
    }
}

/// The message of a work request, without numbers.
fn message(qp: &Qp, work: &Work, round: &Round<'_, '_>) -> Result<Message, Status> {
    let (element, domain) = (&work.element, qp.identity.domain);
    let operand = element.operand();
    let kind = match element.opcode {
        SendOpcode::Send => MessageKind::Send,
        SendOpcode::SendImmediate => MessageKind::SendImmediate,
        SendOpcode::SendInvalidate => MessageKind::SendInvalidate,
        SendOpcode::Write => MessageKind::Write,
        SendOpcode::WriteImmediate => MessageKind::WriteImmediate,
        SendOpcode::Read => MessageKind::Read,
        _ => return Err(Status::LocalQpOperation),
    };
    let mut header = Header::new(kind);
    header.solicited = kind != MessageKind::Write && element.flags.has(SendFlags::SOLICITED);
    header.detail = if kind == MessageKind::Read { work.len } else { element.immediate };
    if !kind.is_send() {
        (header.key, header.address) = (operand.key, operand.address);
    }
    let access = if kind == MessageKind::Read { Access::LocalWrite } else { Access::LocalRead };
    let content = if work.is_inline() {
        let mut bytes = Vec::with_capacity(work.len as usize);
        qp.queue.append_inline(work, 0, work.len as usize, &mut bytes);
        Content::Bytes(bytes)
    } else {
        let located = round.shared.memory.locate_all(
            domain,
            pieces(&qp.queue, work),
            Part { skip: 0, len: work.len as usize },
            access,
        );
        Content::Places(domain, located.map_err(|_| Status::LocalProtection)?)
    };
    // What is read comes back: the request has no payload.
    let content = if kind == MessageKind::Read { Content::Bytes(Vec::new()) } else { content };
    Ok(Message { header, content })
}

/// Binds or invalidates a memory window, in order; it ends once all before it has ended.
fn local(qp: &mut Qp, at: usize, round: &mut Round<'_, '_>) -> Result<(), Status> {
    let by = Binder { qp: qp.identity.number, domain: qp.identity.domain };
    let (Some(work), Some(stream)) = (qp.queue.get(at), qp.stream.as_mut()) else { return Ok(()) };
    let Shared { windows, memory, .. } = &mut *round.shared;
    match work.element.opcode {
        SendOpcode::BindWindow => windows.bind(by, &work.element.binding(), memory)?,
        _ if windows.invalidate(by.qp, work.element.key) => {}
        _ => return Err(Status::WindowBind),
    }
    stream.begun.push_back(Begun { number: stream.next, answered: 0, ended: true });
    qp.requester.begun = stream.begun.len();
    Ok(())
}

/// The peer has carried so many requests out.
pub(super) fn acknowledged(qp: &mut Qp, count: u32, round: &mut Round<'_, '_>) {
    let Some(stream) = qp.stream.as_mut() else { return };
    let (moved, sent) = (count.wrapping_sub(stream.acknowledged) as i32, stream.next.wrapping_sub(stream.acknowledged));
    // Not backwards, and not more than it was asked for.
    if moved > 0 && moved.unsigned_abs() <= sent {
        stream.acknowledged = count;
        retire(qp, round);
    }
}

/// Work requests that are carried out have ended, in their order.
pub(super) fn retire(qp: &mut Qp, round: &mut Round<'_, '_>) {
    while let (Some(stream), Some(work)) = (qp.stream.as_mut(), qp.queue.front()) {
        let Some(first) = stream.begun.front() else { break };
        let is_fetch = work.is_fetch();
        let behind = stream.acknowledged.wrapping_sub(first.number) as i32 > 0;
        if !(first.ended || behind && !is_fetch) {
            break;
        }
        stream.begun.pop_front();
        stream.fetches -= u8::from(is_fetch);
        if let Some(work) = qp.queue.front() {
            complete_work(qp, work, Status::Success, round);
        }
        qp.queue.let_go();
    }
    qp.requester.begun = qp.stream.as_ref().map_or(0, |stream| stream.begun.len());
    if qp.requester.begun == 0 {
        fails_now(qp, round);
    }
    drained(qp, round);
}

/// A part of what was read is in its place.
pub(super) fn answered(qp: &mut Qp, header: &Header, len: u32, round: &mut Round<'_, '_>) {
    let Some(at) = awaited(qp, header) else { return };
    let (Some(stream), Some(work)) = (qp.stream.as_mut(), qp.queue.get(at)) else { return };
    let begun = &mut stream.begun[at];
    // Parts come in their order: others count nothing.
    if u64::from(begun.answered) == header.address {
        begun.answered = begun.answered.saturating_add(len);
        begun.ended = begun.answered == work.len;
    }
    retire(qp, round);
}

/// The READ that a response answers, by its place in the queue.
pub(super) fn awaited(qp: &Qp, header: &Header) -> Option<usize> {
    let stream = qp.stream.as_ref()?;
    let at = stream.begun.iter().position(|begun| begun.number == header.number && !begun.ended)?;
    qp.queue.get(at).filter(|work| work.element.opcode == SendOpcode::Read).map(|_| at)
}

/// The peer refuses a request; those before it are carried out.
pub(super) fn refused(qp: &mut Qp, header: &Header, round: &mut Round<'_, '_>) {
    acknowledged(qp, header.number, round);
    let status = match header.code {
        code if code == NakCode::InvalidRequest as u8 => Status::RemoteInvalidRequest,
        code if code == NakCode::RemoteAccess as u8 => Status::RemoteAccess,
        _ => Status::RemoteOperation,
    };
    let first = qp.stream.as_ref().and_then(|stream| stream.begun.front().copied());
    // A peer that refuses what is not there breaks the rules.
    let is_it = first.is_some_and(|first| first.number == header.number);
    fail_front(qp, if is_it { status } else { Status::BadResponse }, round);
}

/// Nothing comes any more: what was asked for is not answered. As with packets, that is reported when all retries are
/// over (IBTA 1.3, 9.7.6.1.3): peers of hardware may end first, and programs count on it.
pub(super) fn lost(qp: &mut Qp, round: &mut Round<'_, '_>) {
    let tries = Nanos::from(qp.settings.retries) + 1;
    let Some(stream) = qp.stream.as_mut() else { return };
    let timeout = if stream.linked { qp.settings.timeout * tries } else { 0 };
    let until = *stream.lost.get_or_insert(round.now + timeout);
    if round.now < until || !qp.sends() || qp.queue.is_empty() {
        return;
    }
    match is_unreliable(qp) {
        true => end_unreported(qp, round),
        false => fail_front(qp, Status::RetryExceeded, round),
    }
}
