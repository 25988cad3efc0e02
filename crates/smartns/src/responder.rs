//! The responder of a connection: requests are checked and carried out (IBTA 1.3, 9.7.4 and 9.7.5 for reliable
//! connections, 9.8.3 for unreliable ones).
use crate::completion_queue::Solicited;
use crate::ending::{Received, complete_receive, fail_receive, take_receive};
use crate::payload::{Packet, Payload};
use crate::placement::Target;
use crate::qp::{Incoming, IncomingWrite, Nak, Qp, Source};
use crate::refused::{ACCESS, INVALID, Refused};
use crate::replies::{Answer, Reply};
use crate::selective::Keep;
use crate::shared::Round;
use engine::DropReason;
use memory::{Access, Domain, Fault, Rights};
use verbs::{AsyncEvent, CompletionFlags, CompletionOpcode, Number, QpKind, QpState, Status};
use wire::roce::{NakCode, Operation, Position, Psn, Syndrome};

/// A request came. Returns whether its frame is to be buffered.
// Meets IBTA: 9.6-a, 9.7.5-e.
#[inline]
pub(crate) fn request(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Keep {
    if !qp.receives() {
        round.drop(DropReason::QpState);
        return Keep::No;
    }
    if qp.identity.kind == QpKind::Uc {
        unreliable(qp, packet, round);
        return Keep::No;
    }
    let ahead = packet.bth.psn.since(qp.responder.expected);
    match ahead {
        0 => expected(qp, packet, round),
        1.. if qp.identity.is_selective && packet.bth.extension.is_selective() => {
            if ahead < round.shared.config.limits.window as i32 {
                qp.responder.reports_held = true;
                return Keep::Request;
            }
            round.drop(DropReason::PsnAhead);
        }
        1.. => {
            round.drop(DropReason::PsnAhead);
            if !std::mem::replace(&mut qp.responder.nak_sent, true) {
                let nak = Nak { psn: qp.responder.expected, syndrome: Syndrome::Nak(NakCode::Sequence) };
                qp.responder.nak = Some(nak);
            }
        }
        _ => duplicate(qp, packet, round),
    }
    Keep::No
}

/// The packet that was expected.
// Meets IBTA: 9.7.5-f.
fn expected(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) {
    match execute(qp, packet, round) {
        Ok(packets) => {
            let responder = &mut qp.responder;
            responder.expected = responder.expected.plus(packets);
            (responder.nak_sent, responder.nak, responder.not_ready) = (false, None, false);
            responder.reports_held = !responder.held.is_empty();
            responder.messages = responder.messages.wrapping_add(u32::from(packet.opcode().position().ends()));
            responder.ack_due |= packet.bth.ack_request;
            established(qp, round);
        }
        Err(Refused::NotReady) => {
            round.drop(DropReason::NoReceive);
            (qp.responder.nak_sent, qp.responder.not_ready) = (true, true);
            let syndrome = Syndrome::Rnr(qp.settings.rnr_timer);
            qp.responder.nak = Some(Nak { psn: packet.bth.psn, syndrome });
        }
        Err(Refused::Nak { code, own }) => {
            round.drop(DropReason::RequestRefused);
            qp.responder.nak = Some(Nak { psn: packet.bth.psn, syndrome: Syndrome::Nak(code) });
            qp.responder.is_fatal = true;
            if let Some(status) = own.filter(|_| qp.responder.has_receive) {
                fail_receive(qp, status, round);
            }
            let event = match code {
                NakCode::RemoteAccess => AsyncEvent::QpAccessError,
                _ => AsyncEvent::QpRequestError,
            };
            // A failure of this side shows in the completion of its receive work request.
            if own.is_none() {
                round.event(event, qp.identity.number);
            }
        }
    }
}

/// So many messages of one packet each, which were expected, are placed.
#[inline]
pub(crate) fn placed(qp: &mut Qp, count: u32, asked: bool, round: &mut Round<'_, '_>) {
    let responder = &mut qp.responder;
    responder.expected = responder.expected.plus(count);
    (responder.nak_sent, responder.nak, responder.not_ready) = (false, None, false);
    responder.reports_held = !responder.held.is_empty();
    responder.messages = responder.messages.wrapping_add(count);
    responder.ack_due |= asked;
    established(qp, round);
}

/// The first message of a peer shows that the connection is there (IBTA 1.3, 11.6.3.3, "communication established").
// Meets IBTA: 11.6.3-a.
pub(crate) fn established(qp: &mut Qp, round: &mut Round<'_, '_>) {
    if qp.state == QpState::ReadyToReceive && !std::mem::replace(&mut qp.responder.established, true) {
        round.event(AsyncEvent::CommunicationEstablished, qp.identity.number);
    }
}

/// Carries a request out. Returns how many packet sequence numbers it takes.
// Meets IBTA: 9.7.4-a.
#[inline]
fn execute(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Result<u32, Refused> {
    let begins = packet.opcode().position().begins();
    if let Some(named) = packet.shared_queue() {
        take_from(qp, named, round)?;
    }
    // IBTA 1.3, 9.7.4.1.2: a message's packets follow each other.
    match (packet.opcode().operation(), qp.responder.message, begins) {
        (Operation::Send, None, true) | (Operation::Send, Some(Incoming::Send(_)), false) => {
            send(qp, packet, round).map(|()| packet.count())
        }
        (Operation::Write, None, true) | (Operation::Write, Some(Incoming::Write(_)), false) => {
            write(qp, packet, round).map(|()| packet.count())
        }
        (Operation::ReadRequest, None, _) => read(qp, packet, round),
        (Operation::CompareSwap | Operation::FetchAdd, None, _) => atomic(qp, packet, round).map(|()| 1),
        _ => Err(INVALID),
    }
}

/// A request of an XRC names the shared receive queue that it is for, and with it a protection domain and a completion
/// queue (IBTA 1.3, annex A14). All packets of a message name the same.
// Meets IBTA: A14-a.
#[inline(never)]
fn take_from(qp: &mut Qp, named: Number, round: &Round<'_, '_>) -> Result<(), Refused> {
    let Source::Named { domain, srq } = &mut qp.source else { return Err(INVALID) };
    if qp.responder.message.is_some() || qp.responder.has_receive {
        return if *srq == Some(named) { Ok(()) } else { Err(INVALID) };
    }
    let found = round.shared.srqs.get(named).and_then(|found| Some((found.domain, found.xrc?)));
    let (memory, of) = found.filter(|(_, of)| of.domain == *domain).ok_or(INVALID)?;
    *srq = Some(named);
    (qp.identity.domain, qp.identity.receive_cq) = (memory, of.cq);
    Ok(())
}

/// The payload is as long as its place in a message asks for (IBTA 1.3, 9.7.4.1.6). A train's other packets are full.
// Meets IBTA: 9.7.4-b.
fn has_right_len(packet: &Packet<'_>, mtu: u32) -> bool {
    let (len, most) = (packet.payload.len(), packet.count() as usize * mtu as usize);
    match packet.opcode().position() {
        Position::First | Position::Middle => len == most,
        Position::Last => (1..=most).contains(&len),
        Position::Only => len <= most,
    }
}

/// A packet of a SEND.
fn send(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Result<(), Refused> {
    if !has_right_len(packet, qp.settings.mtu) {
        return Err(INVALID);
    }
    let done = match qp.responder.message {
        Some(Incoming::Send(done)) => done,
        _ => 0,
    };
    if !take_receive(qp, round) {
        return Err(Refused::NotReady);
    }
    place_in_receive(qp, done, packet.payload, round)?;
    let done = done + packet.payload.len() as u32;
    if !packet.opcode().position().ends() {
        qp.responder.message = Some(Incoming::Send(done));
        return Ok(());
    }
    qp.responder.message = None;
    let (immediate, invalidated) = (packet.immediate(), packet.invalidated());
    let flags = match (immediate, invalidated) {
        (Some(_), _) => CompletionFlags::IMMEDIATE,
        (_, Some(_)) => CompletionFlags::INVALIDATED,
        _ => CompletionFlags::default(),
    };
    if invalidated.is_some_and(|key| !round.shared.windows.invalidate(qp.identity.number, key)) {
        return Err(ACCESS);
    }
    let received = Received {
        opcode: CompletionOpcode::Receive,
        bytes: done,
        immediate: immediate.or(invalidated).unwrap_or(0),
        flags,
        ..of(packet)
    };
    complete_receive(qp, &received, round);
    Ok(())
}

/// Fields of the completion of a connection's message in any case.
fn of(packet: &Packet<'_>) -> Received {
    Received {
        opcode: CompletionOpcode::Receive,
        bytes: 0,
        immediate: 0,
        flags: CompletionFlags::default(),
        remote_qp: packet.shared_queue().unwrap_or(0),
        service_level: 0,
        solicited: if packet.bth.solicited { Solicited::Yes } else { Solicited::No },
    }
}

/// The protection domain of what the queue pair receives into.
pub(crate) fn receive_domain(qp: &Qp, round: &Round<'_, '_>) -> Domain {
    match qp.source {
        Source::Shared(number) => round.shared.srqs.get(number).map_or(qp.identity.domain, |srq| srq.domain),
        Source::Own(_) | Source::Named { .. } => qp.identity.domain,
    }
}

/// Puts payload into the receive work request, from byte `done` on.
pub(crate) fn place_in_receive(
    qp: &Qp,
    done: u32,
    payload: Payload<'_>,
    round: &mut Round<'_, '_>,
) -> Result<(), Refused> {
    let receive = &qp.responder.receive;
    if receive.is_malformed {
        let own = Some(Status::LocalQpOperation);
        return Err(Refused::Nak { code: NakCode::RemoteOperation, own });
    }
    // IBTA 1.3, 9.7.5.2.4 and table 58: too long is an invalid request for the peer, a length error here.
    if u64::from(done) + payload.len() as u64 > receive.len() {
        return Err(Refused::Nak { code: NakCode::InvalidRequest, own: Some(Status::LocalLength) });
    }
    let domain = receive_domain(qp, round);
    let placed = round.shared.memory.scatter(domain, receive.pieces.iter().copied(), done, payload);
    placed.map_err(|_| Refused::Nak { code: NakCode::RemoteOperation, own: Some(Status::LocalProtection) })
}

/// A packet of a WRITE.
#[inline]
fn write(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Result<(), Refused> {
    if !has_right_len(packet, qp.settings.mtu) {
        return Err(INVALID);
    }
    let len = packet.payload.len() as u32;
    let (message, ends) = (begin_write(qp, packet, round)?, packet.opcode().position().ends());
    // The message has its RETH's length (IBTA 1.3, 9.7.4.1.6).
    if len > message.left || ends != (len == message.left) {
        return Err(INVALID);
    }
    let immediate = packet.immediate();
    if immediate.is_some() && !take_receive(qp, round) {
        return Err(Refused::NotReady);
    }
    let target = Target { domain: qp.identity.domain, key: message.key, address: message.address };
    let (target, access) = accessed(qp, target, len, Access::RemoteWrite, round)?;
    let placed = match (len, ends) {
        (0, _) => Ok(()),
        (_, true) => round.shared.memory.write_last(target, access, packet.payload),
        (_, false) => round.shared.memory.write(target, access, packet.payload),
    };
    placed.map_err(|_| ACCESS)?;
    if !ends {
        let address = message.address.wrapping_add(u64::from(len));
        qp.responder.message = Some(Incoming::Write(IncomingWrite { address, left: message.left - len, ..message }));
        return Ok(());
    }
    qp.responder.message = None;
    if let Some(immediate) = immediate {
        let received = Received {
            opcode: CompletionOpcode::ReceiveWriteImmediate,
            bytes: message.len,
            immediate,
            flags: CompletionFlags::IMMEDIATE,
            ..of(packet)
        };
        complete_receive(qp, &received, round);
    }
    Ok(())
}

/// The message of which this is a packet; the first one names memory, all of which is checked.
fn begin_write(qp: &Qp, packet: &Packet<'_>, round: &Round<'_, '_>) -> Result<IncomingWrite, Refused> {
    let Some(reth) = packet.reth() else {
        return match qp.responder.message {
            Some(Incoming::Write(message)) => Ok(message),
            _ => Err(INVALID),
        };
    };
    if reth.len > round.shared.config.limits.message_bytes {
        return Err(INVALID);
    }
    permitted(qp, Rights::REMOTE_WRITE)?;
    if reth.len > 0 {
        let target = Target { domain: qp.identity.domain, key: reth.key, address: reth.address };
        let (target, access) = accessed(qp, target, reth.len, Access::RemoteWrite, round)?;
        round.shared.memory.check(target, reth.len.into(), access).map_err(|_| ACCESS)?;
    }
    Ok(IncomingWrite { key: reth.key, address: reth.address, left: reth.len, len: reth.len })
}

/// The queue pair grants its peer this.
pub(crate) fn permitted(qp: &Qp, right: Rights) -> Result<(), Refused> {
    if qp.settings.rights.contains(right) { Ok(()) } else { Err(ACCESS) }
}

/// The region behind what a peer names, and the access to it.
#[inline]
pub(crate) fn accessed(
    qp: &Qp,
    target: Target,
    len: u32,
    access: Access,
    round: &Round<'_, '_>,
) -> Result<(Target, Access), Refused> {
    round.shared.windows.resolve(qp.identity.number, target, len.into(), access).map_err(|_| ACCESS)
}

/// A request to read. Returns how many packets answer it.
fn read(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Result<u32, Refused> {
    let reth = packet.reth().ok_or(INVALID)?;
    if reth.len > round.shared.config.limits.message_bytes {
        return Err(INVALID);
    }
    permitted(qp, Rights::REMOTE_READ)?;
    let target = Target { domain: qp.identity.domain, key: reth.key, address: reth.address };
    if reth.len > 0 {
        let (target, access) = accessed(qp, target, reth.len, Access::RemoteRead, round)?;
        round.shared.memory.check(target, reth.len.into(), access).map_err(|_| ACCESS)?;
    }
    let packets = reth.len.div_ceil(qp.settings.mtu).max(1);
    add_reply(qp, packet.bth.psn, packets, reth.len, Answer::Read(target))?;
    Ok(packets)
}

/// An atomic operation.
// Meets IBTA: 9.4.5-a.
fn atomic(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) -> Result<(), Refused> {
    let header = packet.atomic().ok_or(INVALID)?;
    permitted(qp, Rights::REMOTE_ATOMIC)?;
    if header.address % 8 != 0 {
        return Err(INVALID);
    }
    // Room for the answer first: what cannot be repeated is not executed.
    add_reply(qp, packet.bth.psn, 1, 8, Answer::Atomic(0))?;
    let target = Target { domain: qp.identity.domain, key: header.key, address: header.address };
    let (memory, windows) = (&round.shared.memory, &round.shared.windows);
    let resolved = windows.resolve(qp.identity.number, target, 8, Access::RemoteAtomic);
    let before = resolved.and_then(|(target, access)| match packet.opcode().operation() {
        Operation::CompareSwap => memory.compare_swap(target, access, [header.compare, header.swap_or_add]),
        _ => memory.fetch_add(target, access, header.swap_or_add),
    });
    let before = before.map_err(|fault| if fault == Fault::Alignment { INVALID } else { ACCESS });
    match (before, qp.responder.replies.holding(packet.bth.psn)) {
        (Ok(before), Some(reply)) => {
            reply.answer = Answer::Atomic(before);
            Ok(())
        }
        (Err(refused), reply) => {
            // Nothing is answered but the refusal.
            reply.into_iter().for_each(|reply| reply.end = 0);
            Err(refused)
        }
        (Ok(_), None) => Err(INVALID),
    }
}

fn add_reply(qp: &mut Qp, first: Psn, packets: u32, len: u32, answer: Answer) -> Result<(), Refused> {
    let reply = Reply { first, packets, len, answer, begin: 0, next: 0, end: packets, repeats: 0, was_sent: false };
    let most = qp.settings.resources;
    if qp.responder.replies.add(reply, most) { Ok(()) } else { Err(INVALID) }
}

/// A request that was carried out before (IBTA 1.3, 9.7.5.1.3 and 9.7.5.1.4).
// Meets IBTA: 9.7.5-d.
fn duplicate(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) {
    round.drop(DropReason::PsnDuplicate);
    let (psn, mtu) = (packet.bth.psn, qp.settings.mtu);
    match packet.opcode().operation() {
        Operation::Send | Operation::Write => qp.responder.ack_due = true,
        Operation::ReadRequest => {
            let (Some(reth), Some(reply)) = (packet.reth(), qp.responder.replies.holding(psn)) else { return };
            let Answer::Read(target) = reply.answer else { return };
            let begin = psn.since(reply.first).unsigned_abs();
            let skip = begin * mtu;
            // It may ask for a part of what it asked for before, and for nothing else.
            let same = reth.key == target.key && reth.address == target.address.wrapping_add(u64::from(skip));
            if same && u64::from(skip) + u64::from(reth.len) <= u64::from(reply.len) {
                let packets = reth.len.div_ceil(mtu).max(1);
                (reply.begin, reply.next, reply.end) = (begin, begin, (begin + packets).min(reply.packets));
                reply.repeats += 1;
            }
        }
        Operation::CompareSwap | Operation::FetchAdd => {
            if let Some(reply) = qp.responder.replies.holding(psn) {
                if matches!(reply.answer, Answer::Atomic(_)) {
                    reply.next = 0;
                }
            }
        }
        _ => {}
    }
}

/// A packet of an unreliable connection: where something is wrong, the message is dropped, and nobody is notified.
// Meets IBTA: 9.8.3-a.
fn unreliable(qp: &mut Qp, packet: &Packet<'_>, round: &mut Round<'_, '_>) {
    let begins = packet.opcode().position().begins();
    let in_order = packet.bth.psn == qp.responder.expected;
    if (begins || !in_order) && qp.responder.message.take().is_some() {
        round.drop(DropReason::MessageIncomplete);
    }
    qp.responder.expected = packet.bth.psn.plus(packet.count());
    if !begins && qp.responder.message.is_none() {
        return round.drop(DropReason::MessageIncomplete);
    }
    match execute(qp, packet, round) {
        Ok(_) => established(qp, round),
        Err(refused) => {
            qp.responder.message = None;
            round.drop(refused.as_drop());
        }
    }
}
