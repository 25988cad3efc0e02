//! `ibv_post_send` and `ibv_post_recv`.
use crate::abi::{IbvQp, IbvRecvWr, IbvSendWr, IbvSge, WrBind};
use crate::attachment::{Attachment, SendPipe};
use crate::build::{Bounds, Payload, elements};
use crate::errno::{self, Result};
use crate::handle::Ah;
use crate::queue_pair::Qp;
use crate::shared_receive::{piece, post_list};
use crate::window;
use libc::c_int;
use verbs::{Datagram, QP_MASK, QpKind, SendElement, SendFlags, SendOpcode};

/// Yields until a send pipe that stays full is given up, unless the daemon has gone before.
const MOST_YIELDS: u32 = 1 << 20;
/// Each such yield checks whether the daemon is still there.
const YIELDS_A_CHECK: u32 = 1 << 10;

/// `IBV_SEND_IP_CSUM`.
const IP_CHECKSUM: libc::c_uint = 1 << 4;

/// `ibv_post_send`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut IbvQp,
    mut request: *mut IbvSendWr,
    bad: *mut *mut IbvSendWr,
) -> c_int {
    // SAFETY: a queue pair of the program's.
    let of = unsafe { Qp::of(qp) };
    let Ok(pipe) = of.send_pipe() else { return errno::number(Err(libc::EIO)) };
    let mut pipe = pipe.lock();
    let mut done = Ok(());
    // SAFETY: the program passes a list of work requests.
    while let Some(one) = unsafe { request.as_ref() } {
        // SAFETY: as above.
        done = unsafe { post(of, &mut pipe, one) };
        if done.is_err() {
            if !bad.is_null() {
                // SAFETY: the program passes a place for a pointer, or null.
                unsafe { *bad = request };
            }
            break;
        }
        request = one.next;
    }
    drop(pipe);
    of.attachment.bell.ring();
    errno::number(done)
}

/// Posts one work request.
///
/// # Safety
/// Its scatter-gather list is valid, and what it is inline as well.
#[inline]
unsafe fn post(qp: &Qp, pipe: &mut SendPipe, request: &IbvSendWr) -> Result<()> {
    let number = qp.queues.send.next()?;
    let mut first = first(qp, opcode(request.opcode)?, request.send_flags)?;
    first.number = number;
    // SAFETY: the members are those of the operation.
    unsafe { target(qp, request, &mut first)? };
    let entries = if first.opcode.is_local() { 0 } else { request.num_sge };
    let list = match usize::try_from(entries) {
        Err(_) => return Err(libc::EINVAL),
        Ok(0) => &[],
        // SAFETY: as the caller guarantees.
        Ok(count) => unsafe { std::slice::from_raw_parts(request.sg_list, count) },
    };
    let inline = first.flags.has(SendFlags::INLINE);
    let (bounds, into) = (bounds(qp), &mut pipe.elements);
    let count = match inline {
        // SAFETY (of the closure): as the caller guarantees.
        true => elements(&mut first, Payload::<std::iter::Empty<_>, _>::Inline(list.iter().map(bytes)), bounds, into)?,
        false => {
            let pieces = Payload::<_, std::iter::Empty<&[u8]>>::Pieces(list.iter().map(piece));
            elements(&mut first, pieces, bounds, into)?
        }
    };
    reserve(&qp.attachment, pipe, count)?;
    qp.queues.send.post(number, request.wr_id);
    for element in &pipe.elements[..count] {
        pipe.producer.push(*element).map_err(|_| libc::EIO)?;
    }
    Ok(())
}

/// What a queue pair takes.
pub(crate) fn bounds(qp: &Qp) -> Bounds {
    let cap = &qp.made.cap;
    Bounds { pieces: cap.max_send_sge as usize, inline: cap.max_inline_data as usize }
}

/// The operation of a work request; EINVAL where there is none of this code.
fn opcode(code: c_int) -> Result<SendOpcode> {
    u8::try_from(code).ok().and_then(SendOpcode::from_code).ok_or(libc::EINVAL)
}

/// Memory windows: bound and invalidated without payload.
///
/// # Safety
/// The request's union has the member of its operation, and names objects of the program's.
#[cold]
unsafe fn local(request: &IbvSendWr, first: &mut SendElement) -> Result<()> {
    if first.opcode == SendOpcode::LocalInvalidate {
        first.key = request.imm_data;
        return Ok(());
    }
    let WrBind { mw, rkey, bind_info } = &request.bind_mw;
    // SAFETY: as the caller guarantees.
    unsafe { window::bind(first, *mw, *rkey, bind_info) }
}

/// The first element of a work request, without number, target and payload.
pub(crate) fn first(qp: &Qp, opcode: SendOpcode, flags: libc::c_uint) -> Result<SendElement> {
    // These checksums are not checked here; in frames of raw packets they are the program's.
    if matches!(qp.kind, QpKind::RawPacket) && (flags & IP_CHECKSUM != 0 || opcode != SendOpcode::Send) {
        return Err(libc::EINVAL);
    }
    let flags = SendFlags((flags & 0b1111) as u8);
    let is_datagram = matches!(qp.kind, QpKind::Ud);
    if is_datagram && !matches!(opcode, SendOpcode::Send | SendOpcode::SendImmediate) {
        return Err(libc::EINVAL);
    }
    Ok(SendElement { flags, ..SendElement::new(qp.number, opcode) })
}

/// Where a work request goes.
///
/// # Safety
/// The request's union has the member of its operation, and the address handle of a datagram is one of the program's.
#[inline]
unsafe fn target(qp: &Qp, request: &IbvSendWr, first: &mut SendElement) -> Result<()> {
    first.immediate = match first.opcode {
        SendOpcode::SendInvalidate => request.imm_data,
        _ => u32::from_be(request.imm_data),
    };
    if matches!(qp.kind, QpKind::XrcSend) {
        first.srq = request.remote_srqn & QP_MASK;
    }
    if matches!(qp.kind, QpKind::Ud) {
        // SAFETY: as the caller guarantees.
        let ud = unsafe { request.wr.ud };
        // SAFETY: as the caller guarantees.
        let handle = unsafe { Ah::of(ud.ah) }.number;
        first.set_datagram(Datagram { handle, qp: ud.remote_qpn, key: ud.remote_qkey });
    } else if first.opcode.is_local() {
        // SAFETY: as the caller guarantees.
        unsafe { local(request, first)? };
    } else if first.opcode.is_atomic() {
        // SAFETY: as the caller guarantees.
        let atomic = unsafe { request.wr.atomic };
        (first.target, first.key) = (atomic.remote_addr, atomic.rkey);
        (first.words[2], first.words[3]) = (atomic.compare_add, atomic.swap);
    } else if !matches!(first.opcode, SendOpcode::Send | SendOpcode::SendImmediate | SendOpcode::SendInvalidate) {
        // SAFETY: as the caller guarantees.
        let rdma = unsafe { request.wr.rdma };
        (first.target, first.key) = (rdma.remote_addr, rdma.rkey);
    }
    Ok(())
}

/// The bytes that an entry of inline data names.
fn bytes(entry: &IbvSge) -> &[u8] {
    if entry.length == 0 {
        return &[];
    }
    // SAFETY: verbs: with `IBV_SEND_INLINE`, an entry names memory of the program's, which does not change meanwhile.
    unsafe {
        let from = std::ptr::with_exposed_provenance(entry.addr as usize);
        std::slice::from_raw_parts(from, entry.length as usize)
    }
}

/// Waits for room in the send pipe. All queue pairs share it, and the engine moves elements to their own queues at
/// once.
#[inline]
pub(crate) fn reserve(attachment: &Attachment, pipe: &mut SendPipe, count: usize) -> Result<()> {
    match pipe.producer.reserve(count as u32) {
        Ok(()) => Ok(()),
        Err(_) => wait_for_room(attachment, pipe, count as u32),
    }
}

#[cold]
fn wait_for_room(attachment: &Attachment, pipe: &mut SendPipe, count: u32) -> Result<()> {
    for yields in 1..MOST_YIELDS {
        attachment.bell.ring();
        std::thread::yield_now();
        if pipe.producer.reserve(count).is_ok() {
            return Ok(());
        }
        if yields % YIELDS_A_CHECK == 0 && !attachment.is_alive() {
            return Err(libc::EIO);
        }
    }
    Err(libc::ENOMEM)
}

/// `ibv_post_recv`.
pub(crate) unsafe extern "C" fn post_recv(qp: *mut IbvQp, request: *mut IbvRecvWr, bad: *mut *mut IbvRecvWr) -> c_int {
    // SAFETY: a queue pair of the program's.
    let of = unsafe { Qp::of(qp) };
    let own = of.queues.receive.as_ref().filter(|_| of.made.srq.is_null());
    let Some(queue) = own else {
        if !bad.is_null() {
            // SAFETY: the program passes a place for a pointer, or null.
            unsafe { *bad = request };
        }
        return errno::number(Err(libc::EINVAL));
    };
    // SAFETY: the program passes a list of work requests.
    unsafe { post_list(queue, of.made.cap.max_recv_sge, request, bad) }
}
