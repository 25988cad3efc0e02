//! Datagrams: sent without an acknowledgement, received with 40 bytes that contain where they came from (IBTA 1.3,
//! 9.8.4; A17.4.5.2).
use crate::completion_queue::Solicited;
use crate::ending::{Received, complete_receive, end_front, enter_error, fail_receive, take_receive};
use crate::frames::Outgoing;
use crate::payload::{Packet, Payload};
use crate::placement::Part;
use crate::qp::Qp;
use crate::requester::SendProgress;
use crate::requests::pieces;
use crate::responder::receive_domain;
use crate::send_queue::Work;
use crate::shared::Round;
use engine::DropReason;
use memory::Fault;
use verbs::{CompletionFlags, CompletionOpcode, QpNumber, SendFlags, SendOpcode, Status};
use wire::roce::{Bth, Deth, Headers, Opcode, Path};

/// Bytes in front of a datagram's payload in the receiver's memory: 20 that mean nothing, and the IPv4 header.
pub(crate) const GRH_LEN: u32 = 40;
const IP_HEADER_AT: u32 = 20;
/// A queue key with this bit stands for the queue pair's own (IBTA 1.3, 10.2.5).
const OWN_KEY: u32 = 1 << 31;
/// Meaning of a service level in a datagram's completion: it came over IPv4. UCX reads these two bits.
const CAME_BY_IPV4: u8 = 2;

/// Sends up to `budget` datagrams; each has ended when it is sent.
pub(crate) fn send(qp: &mut Qp, round: &mut Round<'_, '_>, budget: &mut u32) -> SendProgress {
    while qp.sends() {
        if *budget == 0 {
            return SendProgress::Again;
        }
        let Some(work) = qp.queue.front() else { return SendProgress::Wait };
        *budget -= 1;
        let status = match prepared(qp, work, round) {
            Err(status) => status,
            Ok(None) => return SendProgress::Wait,
            Ok(Some(path)) => send_one(qp, work, &path, round),
        };
        qp.requester.next = qp.requester.next.plus(1);
        if !end_front(qp, status, round) {
            return SendProgress::Wait;
        }
    }
    SendProgress::Wait
}

/// The way of a datagram; `None` where it is not known yet.
pub(crate) fn prepared(qp: &Qp, work: &Work, round: &Round<'_, '_>) -> Result<Option<Path>, Status> {
    if let Some(fault) = work.fault {
        return Err(fault);
    }
    let handle = round.shared.handles.get(work.element.datagram().handle);
    let handle = handle.filter(|handle| handle.domain == qp.identity.domain).ok_or(Status::LocalQpOperation)?;
    if work.len as usize > round.shared.config.mtu.bytes() {
        return Err(Status::LocalLength);
    }
    Ok(handle.path)
}

// Meets IBTA: 9.8.4-a.
fn send_one(qp: &Qp, work: &Work, path: &Path, round: &mut Round<'_, '_>) -> Status {
    let datagram = work.element.datagram();
    let headers = Headers::NONE.with(Deth { key: key(qp, work), source: qp.identity.number }.bytes());
    let (opcode, headers) = match work.element.opcode {
        SendOpcode::SendImmediate => (Opcode::UD_SEND_IMMEDIATE, headers.with(work.element.immediate.to_be_bytes())),
        _ => (Opcode::UD_SEND, headers),
    };
    let solicited = work.element.flags.has(SendFlags::SOLICITED);
    let bth = Bth { solicited, ..Bth::new(opcode, datagram.qp, qp.requester.next) };
    let packet = Outgoing { path: *path, bth, headers, segment: 0 };
    let sent = packet.send(work.len as usize, round, |round, into| append(qp, work, round, into));
    sent.map_or(Status::LocalProtection, |()| Status::Success)
}

/// The queue key that a datagram bears.
// Meets IBTA: 10.2.5-a.
pub(crate) fn key(qp: &Qp, work: &Work) -> u32 {
    let key = work.element.datagram().key;
    if key & OWN_KEY != 0 { qp.settings.queue_key } else { key }
}

/// Appends the payload of a datagram.
pub(crate) fn append(qp: &Qp, work: &Work, round: &Round<'_, '_>, into: &mut Vec<u8>) -> Result<(), Fault> {
    let (queue, len) = (&qp.queue, work.len as usize);
    if work.is_inline() {
        queue.append_inline(work, 0, len, into);
        return Ok(());
    }
    round.shared.memory.gather(qp.identity.domain, pieces(queue, work), Part { skip: 0, len }, into)
}

/// A datagram that came.
pub(crate) struct Datagram<'a> {
    /// Its IPv4 header.
    pub(crate) ip: &'a [u8],
    pub(crate) key: u32,
    /// The queue pair that sent it.
    pub(crate) source: QpNumber,
    pub(crate) immediate: Option<u32>,
    pub(crate) solicited: bool,
    pub(crate) payload: &'a [u8],
}

/// A packet came that may be a datagram.
pub(crate) fn receive_packet(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) {
    let Some(headers) = packet.datagram() else { return round.drop(DropReason::RoceHeader) };
    let datagram = Datagram {
        ip: packet.ip_bytes,
        key: headers.deth.key,
        source: headers.deth.source,
        immediate: headers.immediate,
        solicited: packet.bth.solicited,
        payload: packet.payload.here(),
    };
    receive(qp, &datagram, round);
}

/// A datagram came.
// Meets IBTA: A17.4.5-a, 10.2.5-a.
pub(crate) fn receive(qp: &mut Qp, datagram: &Datagram<'_>, round: &mut Round<'_, '_>) {
    if !qp.receives() {
        return round.drop(DropReason::QpState);
    }
    if datagram.key != qp.settings.queue_key {
        return round.drop(DropReason::QueueKey);
    }
    let bytes = GRH_LEN + datagram.payload.len() as u32;
    if !placed(qp, bytes, &[(IP_HEADER_AT, datagram.ip), (GRH_LEN, datagram.payload)], round) {
        return;
    }
    let immediate = if datagram.immediate.is_some() { CompletionFlags::IMMEDIATE } else { CompletionFlags::default() };
    let received = Received {
        opcode: CompletionOpcode::Receive,
        bytes,
        immediate: datagram.immediate.unwrap_or(0),
        flags: CompletionFlags::GRH | immediate,
        remote_qp: datagram.source,
        service_level: CAME_BY_IPV4,
        solicited: if datagram.solicited { Solicited::Yes } else { Solicited::No },
    };
    complete_receive(qp, &received, round);
}

/// Places a message of `bytes` bytes, of which each part begins at its byte, in the next receive work request. Returns
/// whether it is there.
pub(crate) fn placed(qp: &mut Qp, bytes: u32, parts: &[(u32, &[u8])], round: &mut Round<'_, '_>) -> bool {
    if !take_receive(qp, round) {
        round.drop(DropReason::NoReceive);
        return false;
    }
    if qp.responder.receive.is_malformed || u64::from(bytes) > qp.responder.receive.len() {
        // It is for the next message that fits.
        round.drop(DropReason::MessageIncomplete);
        return false;
    }
    let domain = receive_domain(qp, round);
    let (memory, entries) = (&round.shared.memory, &qp.responder.receive.pieces);
    let done = parts
        .iter()
        .try_for_each(|(at, part)| memory.scatter(domain, entries.iter().copied(), *at, Payload::Here(part)));
    if done.is_err() {
        fail_receive(qp, Status::LocalProtection, round);
        enter_error(qp, round);
    }
    done.is_ok()
}
