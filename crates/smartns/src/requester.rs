//! The requester of a connection: work requests become packets (IBTA 1.3, 9.7.2 to 9.7.4 for reliable connections,
//! 9.8.2 for unreliable ones).
use crate::ending::{complete_work, fail_front};
use crate::frames::{Outgoing, Run, refers};
use crate::pack::send_packed;
use crate::payload::Payload;
use crate::placement::Part;
use crate::qp::{Qp, Requester};
use crate::requests::{base, begin, describe, front, note_sent, pieces};
use crate::selective::Resend;
use crate::send_queue::Work;
use crate::shared::{Round, Shared};
use crate::windows::Binder;
use memory::Fault;
use verbs::{AsyncEvent, QpKind, QpState, SendFlags, SendOpcode, Status};
use wire::roce::{AtomicEth, Bth, Opcode, Path, Psn, Reth};

/// What is next for a queue pair that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// More can be sent at once.
    Again,
    /// Something else must happen first.
    Wait,
}

/// Sends up to `budget` packets.
pub(crate) fn send(qp: &mut Qp, round: &mut Round<'_, '_>, budget: &mut u32) -> SendProgress {
    let Some(path) = qp.path.filter(|_| qp.sends()) else { return SendProgress::Wait };
    if qp.requester.rnr_until.is_some() {
        return SendProgress::Wait;
    }
    loop {
        if *budget == 0 {
            return SendProgress::Again;
        }
        if qp.requester.selective.resend.is_empty() && !may_send(qp, round) || qp.is_held(round.now) {
            return SendProgress::Wait;
        }
        if let Some(resend) = qp.requester.selective.resend.pop_front() {
            *budget -= 1;
            if !send_again(qp, resend, &path, round) {
                return SendProgress::Wait;
            }
            continue;
        }
        if let Some(cost) = send_packed(qp, &path, round) {
            *budget = budget.saturating_sub(cost);
            continue;
        }
        let is_local = qp.has_local && is_local(qp);
        let sent = if is_local { local(qp, round) } else { send_packet(qp, u32::MAX, &path, round) };
        match sent {
            Ok(cost) => *budget = budget.saturating_sub(cost),
            Err(status) => {
                let at = qp.requester.at;
                if let Some(work) = qp.queue.get_mut(at) {
                    work.fault = Some(status);
                }
                if fails_now(qp, round) || at > 0 {
                    return SendProgress::Wait;
                }
            }
        }
        if qp.identity.kind == QpKind::Uc {
            retire_sent(qp, round);
        }
        if is_local && !qp.sends() {
            // What came after it had failed already.
            return SendProgress::Wait;
        }
    }
}

#[cold]
fn is_local(qp: &Qp) -> bool {
    qp.queue.get(qp.requester.at).is_some_and(|work| work.element.opcode.is_local())
}

/// Binds or invalidates a memory window, in order: it begins and needs no packet. It ends once all before it has
/// ended.
#[cold]
fn local(qp: &mut Qp, round: &mut Round<'_, '_>) -> Result<u32, Status> {
    let by = Binder { qp: qp.identity.number, domain: qp.identity.domain };
    let Some(work) = qp.queue.get_mut(qp.requester.at) else { return Ok(1) };
    let Shared { windows, memory, .. } = &mut *round.shared;
    let done = match work.element.opcode {
        SendOpcode::BindWindow => windows.bind(by, &work.element.binding(), memory),
        _ if windows.invalidate(by.qp, work.element.key) => Ok(()),
        _ => Err(Status::WindowBind),
    };
    done?;
    (work.first, work.packets) = (qp.requester.next, 0);
    qp.requester.begun += 1;
    retire(qp, round);
    Ok(1)
}

/// Sends a lost packet once more, or asks once more for a part of a read. False where the queue pair failed.
fn send_again(qp: &mut Qp, resend: Resend, path: &Path, round: &mut Round<'_, '_>) -> bool {
    let cursor = (qp.requester.at, qp.requester.sent);
    let Some(index) = qp.queue.holding(resend.psn, qp.requester.begun) else { return true };
    let first = qp.queue.get(index).map_or(resend.psn, |work| work.first);
    let sent = resend.psn.since(first).unsigned_abs();
    if (index, sent) >= cursor {
        // After a rewind, it comes by itself.
        return true;
    }
    (qp.requester.at, qp.requester.sent) = (index, sent);
    let status = send_packet(qp, resend.packets, path, round);
    (qp.requester.at, qp.requester.sent) = cursor;
    if let (Err(status), Some(work)) = (status, qp.queue.get_mut(index)) {
        work.fault = Some(status);
        return !fails_now(qp, round);
    }
    true
}

/// Where the oldest work request is one that fails, it does now.
pub(crate) fn fails_now(qp: &mut Qp, round: &mut Round<'_, '_>) -> bool {
    let fault = qp.queue.front().and_then(|work| work.fault);
    if let Some(status) = fault {
        fail_front(qp, status, round);
    }
    fault.is_some()
}

/// The next packet may be sent: there is one, and neither the window nor a rule forbids it. Where the oldest work
/// request is one that fails, it does now.
// Meets IBTA: 10.8.3-a.
#[inline]
fn may_send(qp: &mut Qp, round: &mut Round<'_, '_>) -> bool {
    let ready = is_ready(qp, round.shared.config.limits.window);
    if !ready && qp.requester.at == 0 {
        fails_now(qp, round);
    }
    ready
}

/// The same, and nothing fails. Gives packet sequence numbers to the work request that it begins.
#[inline]
fn is_ready(qp: &mut Qp, window: u32) -> bool {
    let Qp { requester, queue, settings, .. } = qp;
    let is_over = |requester: &Requester, work: &Work| requester.sent >= work.packets && requester.at < requester.begun;
    while queue.get(requester.at).is_some_and(|work| is_over(requester, work)) {
        (requester.at, requester.sent) = (requester.at + 1, 0);
    }
    let Some(work) = queue.get_mut(requester.at) else {
        return false;
    };
    if work.fault.is_some() {
        return false;
    }
    if requester.at >= requester.begun {
        let fenced = work.element.flags.has(SendFlags::FENCE) && requester.fetches > 0;
        let too_many = work.is_fetch() && requester.fetches >= settings.depth;
        if fenced || too_many || qp.state == QpState::SendQueueDrained {
            return false;
        }
        if work.element.opcode.is_local() {
            return true;
        }
        begin(requester, work, settings.mtu);
    }
    let psn = work.first.plus(requester.sent);
    !qp.identity.kind.is_reliable() || psn.since(requester.unacked) < window as i32
}

/// Of an unreliable connection: what is sent has ended.
fn retire_sent(qp: &mut Qp, round: &mut Round<'_, '_>) {
    let requester = &mut qp.requester;
    let whole = qp.queue.front().is_some_and(|work| requester.at == 0 && requester.sent >= work.packets);
    if !whole || requester.begun == 0 {
        return;
    }
    (requester.sent, requester.begun) = (0, requester.begun - 1);
    requester.unacked = requester.sent_to;
    if let Some(work) = qp.queue.pop() {
        complete_work(qp, &work, Status::Success, round);
    }
}

/// Sends the packets that are next, at most `most` of one work request, and moves on; of a read, so many are asked for.
/// Returns what it costs of the budget.
fn send_packet(qp: &mut Qp, most: u32, path: &Path, round: &mut Round<'_, '_>) -> Result<u32, Status> {
    let Some(work) = qp.queue.get(qp.requester.at) else { return Ok(1) };
    let sent = qp.requester.sent;
    let psn = work.first.plus(sent);
    let (count, run) = match work.element.opcode {
        SendOpcode::Read => (send_read(qp, work, most, path, round), Run { psn, count: 1, len: 0 }),
        SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
            (send_atomic(qp, work, path, round), Run { psn, count: 1, len: 0 })
        }
        _ => {
            let mtu = qp.settings.mtu;
            let most = most.min(room(qp, psn, round)).min(qp.packets_of_frame());
            let run = Run::of(psn, work.len - sent * mtu, mtu, most);
            send_payload(qp, work, &run, path, round)?;
            (run.count, run)
        }
    };
    qp.requester.sent += count;
    note_sent(qp, psn, count, round.now);
    qp.note_frame(round.now, run.count, run.len);
    Ok(run.cost())
}

/// Packets that the window has room for, from `psn` on.
fn room(qp: &Qp, psn: Psn, round: &Round<'_, '_>) -> u32 {
    match qp.identity.kind.is_reliable() {
        true => round.shared.config.limits.window.saturating_sub(psn.since(qp.requester.unacked).unsigned_abs()),
        false => u32::MAX,
    }
}

/// Asks for what a read still lacks, `most` packets at most. Returns the packets that the answer has.
fn send_read(qp: &Qp, work: &Work, most: u32, path: &Path, round: &mut Round<'_, '_>) -> u32 {
    let (sent, operand) = (qp.requester.sent, work.element.operand());
    let skip = sent * qp.settings.mtu;
    let reth = Reth {
        address: operand.address.wrapping_add(u64::from(skip)),
        key: operand.key,
        len: work.len.saturating_sub(skip).min(most.saturating_mul(qp.settings.mtu)),
    };
    let bth = Bth { ack_request: true, ..base(qp, Opcode::READ_REQUEST.over(qp.service()), work.first.plus(sent)) };
    Outgoing { path: *path, bth, headers: front(qp, work).with(reth.bytes()), segment: 0 }.send_bare(round);
    (work.packets - sent).min(most)
}

fn send_atomic(qp: &Qp, work: &Work, path: &Path, round: &mut Round<'_, '_>) -> u32 {
    let operand = work.element.operand();
    let [.., first, second] = work.element.words;
    let (opcode, swap_or_add, compare) = match work.element.opcode {
        SendOpcode::CompareSwap => (Opcode::COMPARE_SWAP, second, first),
        _ => (Opcode::FETCH_ADD, first, 0),
    };
    let header = AtomicEth { address: operand.address, key: operand.key, swap_or_add, compare };
    let bth = Bth { ack_request: true, ..base(qp, opcode.over(qp.service()), work.first) };
    Outgoing { path: *path, bth, headers: front(qp, work).with(header.bytes()), segment: 0 }.send_bare(round);
    1
}

/// Sends these packets of a SEND or a WRITE.
fn send_payload(qp: &Qp, work: &Work, run: &Run, path: &Path, round: &mut Round<'_, '_>) -> Result<(), Status> {
    let (bth, headers) = describe(qp, work, run, round.shared.config.limits.window);
    let (domain, queue) = (qp.identity.domain, &qp.queue);
    let part = Part { skip: qp.requester.sent * qp.settings.mtu, len: run.len };
    let path = qp.sprayed_path(path, run.psn, qp.requester.times_sent(run.psn));
    let packet = Outgoing { path, bth, headers, segment: qp.settings.segment(run.count) };
    if refers(run.len, round) && qp.identity.kind.is_reliable() && !work.is_inline() {
        let span = round.shared.memory.refer_part(domain, pieces(queue, work), part);
        if let Some(span) = span.map_err(|_| Status::LocalProtection)? {
            packet.send_front(span, round);
            return Ok(());
        }
    }
    let filled = packet.send(run.len, round, |round, into| {
        if work.is_inline() {
            queue.append_inline(work, part.skip as usize, part.len, into);
            return Ok(());
        }
        round.shared.memory.gather(domain, pieces(queue, work), part, into)
    });
    filled.map_err(|_| Status::LocalProtection)
}

/// Sends all packets from this one on again.
pub(crate) fn rewind(qp: &mut Qp, psn: Psn) {
    let requester = &mut qp.requester;
    if let Some(index) = qp.queue.holding(psn, requester.begun) {
        let first = qp.queue.get(index).map_or(psn, |work| work.first);
        (requester.at, requester.sent) = (index, psn.since(first).unsigned_abs());
    }
}

/// Work requests whose packets are all acknowledged have ended.
pub(crate) fn retire(qp: &mut Qp, round: &mut Round<'_, '_>) {
    while qp.requester.begun > 0 {
        let requester = &mut qp.requester;
        let Some(work) = qp.queue.front() else { break };
        if work.fault.is_some() || work.end().since(requester.unacked) > 0 {
            break;
        }
        requester.begun -= 1;
        requester.fetches -= u8::from(work.is_fetch());
        match requester.at.checked_sub(1) {
            Some(before) => requester.at = before,
            None => requester.sent = 0,
        }
        if let Some(work) = qp.queue.front() {
            complete_work(qp, work, Status::Success, round);
        }
        qp.queue.let_go();
    }
    let Requester { at, sent, begun, unacked, .. } = qp.requester;
    // What was to be sent again was acknowledged meanwhile.
    let cursor = qp.queue.get(at).filter(|_| at < begun).map(|work| work.first.plus(sent));
    if cursor.is_some_and(|cursor| cursor.since(unacked) < 0) {
        rewind(qp, unacked);
    }
    fails_now(qp, round);
    drained(qp, round);
}

/// A send queue that is to drain has done so (IBTA 1.3, 10.3.1.5).
// Meets IBTA: 10.3.1-b.
pub(crate) fn drained(qp: &mut Qp, round: &mut Round<'_, '_>) {
    if qp.reports_drained && qp.state == QpState::SendQueueDrained && qp.requester.begun == 0 {
        qp.reports_drained = false;
        round.event(AsyncEvent::SendQueueDrained, qp.identity.number);
    }
}

/// What a read or an atomic names of the own memory: where its data go.
pub(crate) fn place_fetched(
    qp: &Qp,
    work: &Work,
    skip: u32,
    data: Payload<'_>,
    round: &mut Round<'_, '_>,
) -> Result<(), Fault> {
    round.shared.memory.scatter(qp.identity.domain, pieces(&qp.queue, work), skip, data)
}
