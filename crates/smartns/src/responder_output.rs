//! Output of the responder: answers to reads and atomics, acknowledgements, refusals; in the order of their requests
//! (IBTA 1.3, 9.7.5.1).
use crate::ending::enter_error;
use crate::frames::{Outgoing, Run, refers};
use crate::qp::{Nak, Qp};
use crate::replies::{Answer, Reply};
use crate::shared::Round;
use crate::spray::is_long_read;
use memory::Access;
use verbs::AsyncEvent;
use wire::roce::{Aeth, Bth, Headers, NakCode, Opcode, Path, Position, Psn, Syndrome};

const ACK: Syndrome = Syndrome::Ack(Aeth::NOT_COUNTED);

/// Sends up to `budget` packets. True where more can be sent at once.
// Meets IBTA: 9.7.5-a.
pub(crate) fn answer(qp: &mut Qp, round: &mut Round<'_, '_>, budget: &mut u32) -> bool {
    let Some(path) = qp.path else { return false };
    while let Some(reply) = qp.responder.replies.pending().copied() {
        if *budget == 0 {
            return true;
        }
        if qp.is_held(round.now) {
            // What is behind it waits as well: answers are in the order of their requests.
            return false;
        }
        let run = run(qp, &reply);
        *budget = budget.saturating_sub(run.cost());
        if send_part(qp, &reply, &run, &path, round) {
            sent(qp, &reply, run.count);
            qp.note_frame(round.now, run.count, run.len);
        } else if reply.was_sent {
            // A repeated request that came late: the program may have taken its memory back. Where the peer still
            // waits for the answer, its request fails; otherwise it ignores this. The queue pair goes on.
            give_up(qp, &reply);
            acknowledge(qp, &path, run.psn, Syndrome::Nak(NakCode::RemoteAccess), round);
        } else {
            // The program has deregistered or unmapped what its peer reads.
            let psn = reply.first.plus(reply.next);
            let nak = Nak { psn, syndrome: Syndrome::Nak(NakCode::RemoteAccess) };
            (qp.responder.nak, qp.responder.is_fatal) = (Some(nak), true);
            round.event(AsyncEvent::QpAccessError, qp.identity.number);
            break;
        }
    }
    if let Some(Nak { psn, syndrome }) = qp.responder.nak.take() {
        acknowledge(qp, &path, psn, syndrome, round);
        qp.responder.ack_due = false;
        if qp.responder.is_fatal {
            enter_error(qp, round);
        }
    }
    if std::mem::take(&mut qp.responder.reports_held) && !qp.responder.not_ready && !qp.responder.held.is_empty() {
        report_held(qp, &path, round);
        qp.responder.ack_due = false;
    }
    if std::mem::take(&mut qp.responder.ack_due) {
        acknowledge(qp, &path, qp.responder.expected.minus(1), ACK, round);
    }
    false
}

/// The packets of an answer that are sent next.
fn run(qp: &Qp, reply: &Reply) -> Run {
    let (psn, mtu) = (reply.first.plus(reply.next), qp.settings.mtu);
    match reply.answer {
        Answer::Atomic(_) => Run { psn, count: 1, len: 0 },
        Answer::Read(_) => {
            let most = (reply.end - reply.next).min(qp.packets_of_frame());
            Run::of(psn, reply.len - reply.next * mtu, mtu, most)
        }
    }
}

/// So many packets of an answer are sent.
fn sent(qp: &mut Qp, reply: &Reply, count: u32) {
    if let Some(stored) = qp.responder.replies.holding(reply.first) {
        stored.next += count;
        stored.was_sent |= stored.next == stored.packets;
    }
    // The answer to the newest request acknowledges all before it.
    if reply.next + count == reply.packets && reply.first.plus(reply.packets) == qp.responder.expected {
        qp.responder.ack_due = false;
    }
}

/// Nothing more of an answer is sent.
fn give_up(qp: &mut Qp, reply: &Reply) {
    if let Some(stored) = qp.responder.replies.holding(reply.first) {
        stored.next = stored.end;
    }
}

fn aeth(qp: &Qp, syndrome: Syndrome) -> Aeth {
    Aeth { syndrome, messages: qp.responder.messages }
}

/// Sends the next packets of an answer; false where the memory cannot be read any more.
fn send_part(qp: &Qp, reply: &Reply, run: &Run, path: &Path, round: &mut Round<'_, '_>) -> bool {
    let Run { psn, count, len } = *run;
    let header = aeth(qp, ACK).bytes();
    match reply.answer {
        Answer::Atomic(before) => {
            let bth = base(qp, Opcode::ATOMIC_ACKNOWLEDGE, psn);
            let headers = Headers::NONE.with(header).with(before.to_be_bytes());
            Outgoing { path: *path, bth, headers, segment: 0 }.send_bare(round);
            true
        }
        Answer::Read(target) => {
            let position =
                Position::spanning(reply.next - reply.begin, reply.next + count - reply.begin, reply.end - reply.begin);
            let bth = base(qp, Opcode::read_response(position), psn);
            let headers = if position == Position::Middle { Headers::NONE } else { Headers::NONE.with(header) };
            let from = target.plus(u64::from(reply.next) * u64::from(qp.settings.mtu));
            let segment = qp.settings.segment(count);
            let path = match is_long_read(reply.packets, round.shared.config.limits.window) {
                true => qp.payload_path(path),
                false => qp.sprayed_path(path, psn, reply.repeats),
            };
            let packets = Outgoing { path, bth, headers, segment };
            if len == 0 {
                packets.send_bare(round);
                return true;
            }
            let resolved = round.shared.windows.resolve(qp.identity.number, from, len as u64, Access::RemoteRead);
            let Ok((from, access)) = resolved else { return false };
            if refers(len, round) {
                match round.shared.memory.refer(from, access, len) {
                    Err(_) => return false,
                    Ok(Some(span)) => {
                        packets.send_front(span, round);
                        return true;
                    }
                    Ok(None) => {}
                }
            }
            packets.send(len, round, |round, into| round.shared.memory.append(from, access, len, into)).is_ok()
        }
    }
}

/// Reports which packet is missing, and which later ones are there.
fn report_held(qp: &Qp, path: &Path, round: &mut Round<'_, '_>) {
    let missing = qp.responder.expected;
    let reported = qp.responder.held.reported(missing).to_be_bytes();
    let bth = base(qp, Opcode::ACKNOWLEDGE, missing);
    let headers = Headers::NONE.with(aeth(qp, Syndrome::Nak(NakCode::Sequence)).bytes());
    let sent = Outgoing { path: *path, bth, headers, segment: 0 }.send(reported.len(), round, |_, into| {
        into.extend_from_slice(&reported);
        Ok(())
    });
    debug_assert!(sent.is_ok(), "filling in cannot fail");
}

/// The base header of a response.
fn base(qp: &Qp, opcode: Opcode, psn: Psn) -> Bth {
    let new = Bth::new(opcode.over(qp.service()), qp.settings.remote_qp, psn);
    Bth { extension: qp.extension, ..new }
}

fn acknowledge(qp: &Qp, path: &Path, psn: Psn, syndrome: Syndrome, round: &mut Round<'_, '_>) {
    let bth = base(qp, Opcode::ACKNOWLEDGE, psn);
    let headers = Headers::NONE.with(aeth(qp, syndrome).bytes());
    Outgoing { path: *path, bth, headers, segment: 0 }.send_bare(round);
}
