//! Packed trains, sent: consecutive short messages leave as one frame (docs/RDMA.md, "Trains").
use crate::frames::{Run, most_packed, seal};
use crate::placement::Row;
use crate::qp::Qp;
use crate::requests::{base, begin, describe, needs_ack, note_sent, pieces};
use crate::send_queue::{SendQueue, Work};
use crate::shared::Round;
use memory::{Access, Fault};
use verbs::{QpKind, QpState, SendFlags, SendOpcode, Status};
use wire::roce::{Bth, Headers, MOST_HEADERS, Opcode, Packing, Path, Reth};

/// Packets of a packed train, and bytes of it, at most: it is one IPv4 packet.
const PACKETS: u32 = 128;
const BYTES: usize = u16::MAX as usize;
/// Bytes that a packet has in it beside payload and extended headers: BTH and the ICRC's place.
const INNER: usize = 16;

/// Sends the short messages that are next, several in one frame, and returns what it costs of the budget. `None` where
/// there are not two of them: nothing is done. The first one has been found ready.
#[inline]
pub(crate) fn send_packed(qp: &mut Qp, path: &Path, round: &mut Round<'_, '_>) -> Option<u32> {
    let at = qp.requester.at;
    let most = most_packed(qp.settings.mtu, round);
    let two = is_short(qp, at, most) && is_short(qp, at + 1, most) && qp.identity.kind == QpKind::Rc;
    two.then(|| pack(qp, most, path, round))
}

/// It is a message of one packet that may travel with others.
#[inline]
fn is_short(qp: &Qp, at: usize, most: u32) -> bool {
    qp.queue.get(at).is_some_and(|work| fits(work, most))
}

#[inline]
fn fits(work: &Work, most: u32) -> bool {
    work.len <= most && work.has_payload() && work.fault.is_none()
}

/// Messages of at most `most` bytes.
fn pack(qp: &mut Qp, most: u32, path: &Path, round: &mut Round<'_, '_>) -> u32 {
    let window = round.shared.config.limits.window;
    let paced = qp.pacer.as_ref().map_or(usize::MAX, |pacer| pacer.frame_bytes());
    let mut frame = round.out.pool.large();
    let mut packing = Packing::new(&qp.payload_path(path), frame.bytes_vec());
    let mut memory = round.shared.memory.row(qp.identity.domain, Access::LocalRead);
    let first = qp.queue.get(qp.requester.at).map_or(qp.requester.next, |work| work.first);
    while packing.count() < PACKETS && packing.len() + most as usize + MOST_HEADERS <= BYTES {
        if packing.count() > 0 && packing.len() >= paced || !is_next(qp, most, window) {
            break;
        }
        let Some(work) = qp.queue.get(qp.requester.at) else { break };
        let (bth, headers) = describe_short(qp, work, window);
        let added = packing.add(&bth, &headers, work.len as usize, |into| append(&qp.queue, work, &mut memory, into));
        if added.is_err() {
            let at = qp.requester.at;
            // The next poll finds it.
            qp.queue.get_mut(at).into_iter().for_each(|work| work.fault = Some(Status::LocalProtection));
            break;
        }
        qp.requester.at += 1;
        // One acknowledgement for all of them.
        qp.pacer.iter_mut().filter(|pacer| pacer.asks()).for_each(|pacer| pacer.asked(round.now));
    }
    let (count, len) = (packing.count(), packing.len());
    let cost = 1 + (len / 4096) as u32;
    packing.finish();
    if count == 0 {
        round.out.pool.put(frame);
        return 1;
    }
    note_sent(qp, first, count, round.now);
    qp.note_frame(round.now, count, len.saturating_sub(count as usize * INNER));
    seal(&mut frame, 1);
    round.out.tx.push(frame);
    cost
}

/// The next work request may travel with those before, which are sent as a whole. It has packet sequence numbers then.
#[inline]
fn is_next(qp: &mut Qp, most: u32, window: u32) -> bool {
    let Qp { requester, queue, state, settings, .. } = qp;
    let Some(work) = queue.get_mut(requester.at).filter(|work| fits(work, most)) else { return false };
    requester.sent = 0;
    if requester.at >= requester.begun {
        let fenced = requester.fetches > 0 && work.element.flags.has(SendFlags::FENCE);
        if fenced || *state == QpState::SendQueueDrained {
            return false;
        }
        begin(requester, work, settings.mtu);
    }
    work.first.since(requester.unacked) < window as i32
}

/// The headers of a message of one packet: those of the common ones in few steps.
#[inline]
fn describe_short(qp: &Qp, work: &Work, window: u32) -> (Bth, Headers) {
    let run = Run { psn: work.first, count: 1, len: work.len as usize };
    let (opcode, headers) = match work.element.opcode {
        SendOpcode::Write => {
            let operand = work.element.operand();
            let reth = Reth { address: operand.address, key: operand.key, len: work.len };
            (Opcode::WRITE_ONLY, Headers::of(reth.bytes()))
        }
        SendOpcode::Send => (Opcode::SEND_ONLY, Headers::NONE),
        _ => return describe(qp, work, &run, window),
    };
    let solicited = opcode == Opcode::SEND_ONLY && work.element.flags.has(SendFlags::SOLICITED);
    let ack_request = needs_ack(qp, work, &run, window);
    (Bth { solicited, ack_request, ..base(qp, opcode, work.first) }, headers)
}

/// Appends the payload of a message.
#[inline]
fn append(queue: &SendQueue, work: &Work, memory: &mut Row<'_>, into: &mut Vec<u8>) -> Result<(), Fault> {
    if work.is_inline() {
        queue.append_inline(work, 0, work.len as usize, into);
        return Ok(());
    }
    if work.element.pieces == 1 && work.len > 0 {
        return memory.append(&work.element.piece(0), into);
    }
    pieces(queue, work).filter(|piece| piece.len > 0).try_for_each(|piece| memory.append(&piece, into))
}
