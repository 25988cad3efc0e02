//! Datagrams where streams are below: each is a message on a connection of the two hosts (docs/ZERONIC.md, "Verbs").
//! It is copied when it leaves, so its work request ends at once, whatever becomes of the connection.
use super::{Content, Header, Message, MessageKind};
use crate::datagram::{Datagram, append, key, prepared, receive};
use crate::ending::{complete_work, fail_front};
use crate::output::Event;
use crate::qp::Qp;
use crate::requester::SendProgress;
use crate::shared::Round;
use engine::DropReason;
use std::net::Ipv4Addr;
use verbs::{SendFlags, SendOpcode, Status};
use wire::ipv4;

/// Bytes of a datagram at most: the largest path MTU.
pub const MOST_BYTES: usize = 4096;

/// A queue pair's quantum: whoever carries datagrams is notified that it has some.
pub(crate) fn offer(qp: &Qp, round: &mut Round<'_, '_>) -> SendProgress {
    if qp.sends() && !qp.queue.is_empty() {
        round.out.events.push(Event::Ready(qp.identity.number));
    }
    SendProgress::Wait
}

/// The host that the next datagram is for. Where it cannot be sent, the queue pair fails now.
pub(super) fn destination(qp: &mut Qp, round: &mut Round<'_, '_>) -> Option<Ipv4Addr> {
    let work = qp.queue.front().filter(|_| qp.sends())?;
    match prepared(qp, work, round) {
        Ok(path) => path.map(|path| path.remote),
        Err(status) => {
            fail_front(qp, status, round);
            None
        }
    }
}

/// Takes the next datagram out of the queue.
pub(super) fn next(qp: &mut Qp, round: &mut Round<'_, '_>) -> Option<Message> {
    let work = qp.queue.front().filter(|_| qp.sends())?;
    let is_immediate = work.element.opcode == SendOpcode::SendImmediate;
    let kind = if is_immediate { MessageKind::DatagramImmediate } else { MessageKind::Datagram };
    let header = Header {
        solicited: work.element.flags.has(SendFlags::SOLICITED),
        number: qp.identity.number,
        receive: work.element.datagram().qp,
        key: key(qp, work),
        detail: if is_immediate { work.element.immediate } else { 0 },
        ..Header::new(kind)
    };
    let mut payload = Vec::with_capacity(work.len as usize);
    if append(qp, work, round, &mut payload).is_err() {
        fail_front(qp, Status::LocalProtection, round);
        return None;
    }
    if let Some(work) = qp.queue.pop() {
        complete_work(qp, &work, Status::Success, round);
    }
    Some(Message { header, content: Content::Bytes(payload) })
}

/// A datagram came over a stream, from this host to that one.
pub(super) fn arrive(
    qp: &mut Qp,
    from: Ipv4Addr,
    to: Ipv4Addr,
    header: &Header,
    payload: &[u8],
    round: &mut Round<'_, '_>,
) {
    if payload.len() > MOST_BYTES {
        return round.drop(DropReason::MessageIncomplete);
    }
    let mut ip = [0; ipv4::HEADER_LEN];
    ipv4::Header::new(ipv4::UDP, (from, to), payload.len() as u16).emit(&mut ip);
    let immediate = (header.kind == MessageKind::DatagramImmediate).then_some(header.detail);
    let Header { key, number: source, solicited, .. } = *header;
    receive(qp, &Datagram { ip: &ip, key, source, immediate, solicited, payload }, round);
}
