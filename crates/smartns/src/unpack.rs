//! Packed trains, received: their requests one after the other, the common ones in few steps (docs/RDMA.md, "Trains").
use crate::cnp::on_mark;
use crate::completion_queue::Solicited;
use crate::ending::{Received, complete_receive, take_receive};
use crate::payload::whole;
use crate::placement::Row;
use crate::qp::{Qp, note_selective};
use crate::responder::{placed, receive_domain, request};
use crate::selective::Keep;
use crate::shared::Round;
use engine::DropReason;
use memory::{Access, Rights};
use std::sync::Arc;
use verbs::{CompletionFlags, CompletionOpcode, QpKind};
use wire::Malformed;
use wire::roce::{Inner, Opcode, Packed, Psn, Reth, Service};

/// Processes the packets of a packed train for this queue pair. Where one is to be buffered for later, returns its
/// number: the train is then to be cut from there on.
pub(crate) fn requests(qp: &mut Qp, mut packed: Packed<'_>, round: &mut Round<'_, '_>) -> Option<Psn> {
    if qp.path.is_some_and(|path| path.remote != packed.ip.src) {
        round.drop(DropReason::QpUnknown);
        return None;
    }
    on_mark(qp, packed.ip.ecn, round);
    loop {
        match quick(qp, &mut packed, round) {
            Ok(None) => return None,
            Ok(Some(inner)) if !is_request(qp, &inner) => round.drop(DropReason::RoceHeader),
            Ok(Some(inner)) => {
                note_selective(qp, inner.bth.extension);
                if request(qp, &whole(packed.alone(inner)), round) != Keep::No {
                    return Some(inner.bth.psn);
                }
            }
            Err(_) => {
                round.drop(DropReason::RoceHeader);
                return None;
            }
        }
    }
}

fn is_request(qp: &Qp, inner: &Inner<'_>) -> bool {
    let opcode = inner.bth.opcode;
    inner.bth.qp == qp.identity.number
        && qp.identity.kind == QpKind::Rc
        && opcode.service() == Service::Rc
        && !opcode.is_response()
}

/// Carries out WRITEs and SENDs that are right and come next. Returns the first packet that is none: all before it is
/// done.
#[inline]
fn quick<'f>(qp: &mut Qp, packed: &mut Packed<'f>, round: &mut Round<'_, '_>) -> Result<Option<Inner<'f>>, Malformed> {
    // Completions go elsewhere in what is shared.
    let registered = Arc::clone(&round.shared.memory);
    let (domain, mut done, mut asked) = (qp.identity.domain, 0, false);
    // A window's key is checked elsewhere.
    let writable = qp.settings.rights.contains(Rights::REMOTE_WRITE) && round.shared.windows.is_empty();
    let mut target = registered.row(domain, Access::RemoteWrite);
    let mut receives = registered.row(receive_domain(qp, round), Access::LocalWrite);
    let ready = qp.identity.kind == QpKind::Rc && qp.receives() && qp.responder.message.is_none();
    let end = loop {
        let here = packed.clone();
        let Ok(Some(inner)) = packed.next_packet() else { break read_again(packed, here) };
        let bth = &inner.bth;
        let comes_next = bth.qp == qp.identity.number && bth.psn == qp.responder.expected.plus(done);
        let sound = ready && comes_next && inner.payload.len() <= qp.settings.mtu as usize;
        let is_done = match bth.opcode {
            Opcode::WRITE_ONLY => sound && writable && write(&inner, &mut target),
            Opcode::SEND_ONLY => sound && receive(qp, &inner, &mut receives, round),
            _ => false,
        };
        if !is_done {
            break read_again(packed, here);
        }
        (done, asked) = (done + 1, asked | bth.ack_request);
    };
    if done > 0 {
        placed(qp, done, asked, round);
    }
    end
}

/// Reads a packet once more, for the others: the loop above need not put together what is in it.
#[inline(never)]
fn read_again<'f>(packed: &mut Packed<'f>, here: Packed<'f>) -> Result<Option<Inner<'f>>, Malformed> {
    *packed = here;
    packed.next_packet()
}

/// Places a WRITE; false where something is wrong with it, and nothing is done.
#[inline]
fn write(inner: &Inner<'_>, memory: &mut Row<'_>) -> bool {
    let Some(reth) = inner.extended.first_chunk().map(Reth::parse) else { return false };
    let len = inner.payload.len();
    len > 0 && reth.len as usize == len && memory.write_last(reth.key, reth.address, inner.payload).is_ok()
}

/// Places a SEND and completes its receive work request, where that has one scatter-gather entry; false where not, or
/// where something is wrong: then nothing has ended.
#[inline]
fn receive(qp: &mut Qp, inner: &Inner<'_>, memory: &mut Row<'_>, round: &mut Round<'_, '_>) -> bool {
    if !take_receive(qp, round) || qp.responder.receive.is_malformed {
        return false;
    }
    let [piece] = qp.responder.receive.pieces[..] else { return false };
    let len = inner.payload.len();
    if len > piece.len as usize || len > 0 && memory.write(piece.key, piece.address, inner.payload).is_err() {
        return false;
    }
    let received = Received {
        opcode: CompletionOpcode::Receive,
        bytes: len as u32,
        immediate: 0,
        flags: CompletionFlags::default(),
        remote_qp: 0,
        service_level: 0,
        solicited: if inner.bth.solicited { Solicited::Yes } else { Solicited::No },
    };
    complete_receive(qp, &received, round);
    true
}
