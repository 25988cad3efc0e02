//! Work requests that are built call by call (`ibv_wr_start` and what follows). From the start to the completion or
//! abort, the thread holds the queue pair; nothing is posted before the completion.
use crate::abi::{IbvAh, IbvDataBuf, IbvMw, IbvMwBindInfo, IbvQp, IbvQpEx, IbvSge};
use crate::build::{Building, Open, Payload, elements};
use crate::errno::{self, Result};
use crate::handle::Ah;
use crate::post::{bounds, first, reserve};
use crate::queue_pair::Qp;
use crate::shared_receive::piece;
use crate::window;
use libc::{c_int, c_void};
use verbs::{Datagram, MOST_ELEMENTS, Piece, QP_MASK, SendFlags, SendOpcode};

type Q = *mut IbvQpEx;

/// The public part with its functions.
pub(crate) fn with_functions(qp_base: IbvQp) -> IbvQpEx {
    IbvQpEx {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp,
        wr_atomic_fetch_add,
        wr_bind_mw,
        wr_local_inv,
        wr_rdma_read,
        wr_rdma_write,
        wr_rdma_write_imm,
        wr_send,
        wr_send_imm,
        wr_send_inv,
        wr_send_tso,
        wr_set_ud_addr,
        wr_set_xrc_srqn,
        wr_set_inline_data,
        wr_set_inline_data_list,
        wr_set_sge,
        wr_set_sge_list,
        wr_start,
        wr_complete,
        wr_abort,
        wr_atomic_write,
    }
}

unsafe extern "C" fn wr_start(qp: Q) {
    // SAFETY: a queue pair of the program's.
    let of = unsafe { Qp::of(qp.cast()) };
    let mut building = of.building.lock();
    building.clear();
    building.keep();
}

unsafe extern "C" fn wr_abort(qp: Q) {
    // SAFETY: a queue pair of the program's, which this thread has started.
    unsafe { Qp::of(qp.cast()).building.resume() }.clear();
}

unsafe extern "C" fn wr_complete(qp: Q) -> c_int {
    // SAFETY: as in `wr_abort`.
    let (of, mut building) = unsafe { (Qp::of(qp.cast()), Qp::of(qp.cast()).building.resume()) };
    close(of, &mut building);
    let done = match building.error {
        Some(number) => Err(number),
        None => post(of, &building),
    };
    of.attachment.bell.ring();
    errno::number(done)
}

/// Posts all that was built. Their numbers are given here, since other threads may have posted meanwhile.
fn post(qp: &Qp, building: &Building) -> Result<()> {
    let mut pipe = qp.send_pipe()?.lock();
    let mut elements = building.elements.as_slice();
    qp.queues.send.room_for(building.ids.len())?;
    for id in &building.ids {
        let number = qp.queues.send.next()?;
        let mut first = verbs::SendElement::decode(&elements[0]).ok_or(libc::EINVAL)?;
        first.number = number;
        let (these, following) = elements.split_at(1 + usize::from(first.more));
        reserve(&qp.attachment, &mut pipe, these.len())?;
        qp.queues.send.post(number, *id);
        pipe.producer.push(first.encode()).map_err(|_| libc::EIO)?;
        these[1..].iter().try_for_each(|element| pipe.producer.push(*element)).map_err(|_| libc::EIO)?;
        elements = following;
    }
    Ok(())
}

/// Writes the elements of the work request that is open.
fn close(qp: &Qp, building: &mut Building) {
    let Some(Open { mut first, pieces, inline }) = building.open.take() else { return };
    let mut into = [[0; 8]; MOST_ELEMENTS];
    let made = match inline {
        Some(bytes) => {
            let parts = std::iter::once(bytes.as_slice());
            elements(&mut first, Payload::<std::iter::Empty<Piece>, _>::Inline(parts), bounds(qp), &mut into)
        }
        None => {
            let pieces = Payload::<_, std::iter::Empty<&[u8]>>::Pieces(pieces.into_iter());
            elements(&mut first, pieces, bounds(qp), &mut into)
        }
    };
    match made {
        Ok(count) => building.elements.extend_from_slice(&into[..count]),
        Err(number) => building.fail(number),
    }
}

/// Begins a work request; `fill` adds what the operation has.
///
/// # Safety
/// `qp` is a queue pair of the program's, which this thread has started.
unsafe fn begin(qp: Q, opcode: SendOpcode, fill: impl FnOnce(&mut verbs::SendElement)) {
    // SAFETY: as the caller guarantees.
    let (of, mut building) = unsafe { (Qp::of(qp.cast()), Qp::of(qp.cast()).building.resume()) };
    // SAFETY: as the caller guarantees; the program sets both before.
    let (id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    close(of, &mut building);
    match first(of, opcode, flags) {
        Ok(mut first) => {
            // The call that sets the payload has whether it is inline.
            first.flags.0 &= !SendFlags::INLINE.0;
            fill(&mut first);
            building.ids.push(id);
            building.open = Some(Open { first, pieces: Vec::new(), inline: None });
        }
        Err(number) => building.fail(number),
    }
    building.keep();
}

/// Adds to the work request that was begun.
///
/// # Safety
/// As [`begin`].
unsafe fn with_open(qp: Q, add: impl FnOnce(&mut Open)) {
    // SAFETY: as the caller guarantees.
    let mut building = unsafe { Qp::of(qp.cast()).building.resume() };
    match &mut building.open {
        Some(open) => add(open),
        None => building.fail(libc::EINVAL),
    }
    building.keep();
}

/// Functions that begin a work request.
macro_rules! operations {
    ($($name:ident($($argument:ident: $kind:ty),*) = $opcode:ident, $fill:expr;)+) => {
        $(unsafe extern "C" fn $name(qp: Q $(, $argument: $kind)*) {
            // SAFETY: verbs: called between start and completion.
            unsafe { begin(qp, SendOpcode::$opcode, $fill) }
        })+
    };
}

operations! {
    wr_send() = Send, |_| {};
    wr_send_imm(data: u32) = SendImmediate, |first| first.immediate = u32::from_be(data);
    wr_local_inv(key: u32) = LocalInvalidate, |first| first.key = key;
    wr_send_inv(key: u32) = SendInvalidate, |first| first.immediate = key;
    wr_rdma_read(key: u32, address: u64) = Read, |first| (first.key, first.target) = (key, address);
    wr_rdma_write(key: u32, address: u64) = Write, |first| (first.key, first.target) = (key, address);
    wr_rdma_write_imm(key: u32, address: u64, data: u32) = WriteImmediate, |first| {
        (first.key, first.target, first.immediate) = (key, address, u32::from_be(data));
    };
    wr_atomic_cmp_swp(key: u32, address: u64, compare: u64, swap: u64) = CompareSwap, |first| {
        (first.key, first.target, first.words[2], first.words[3]) = (key, address, compare, swap);
    };
    wr_atomic_fetch_add(key: u32, address: u64, add: u64) = FetchAdd, |first| {
        (first.key, first.target, first.words[2]) = (key, address, add);
    };
}

unsafe extern "C" fn wr_set_ud_addr(qp: Q, handle: *mut IbvAh, remote: u32, key: u32) {
    // SAFETY: the program passes an address handle of its own, between start and completion.
    unsafe {
        let datagram = Datagram { handle: Ah::of(handle).number, qp: remote, key };
        with_open(qp, |open| open.first.set_datagram(datagram));
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: Q, number: u32) {
    // SAFETY: verbs: called between start and completion.
    unsafe { with_open(qp, |open| open.first.srq = number & QP_MASK) }
}

unsafe extern "C" fn wr_set_sge(qp: Q, lkey: u32, address: u64, len: u32) {
    let entry = Piece { address, len, key: lkey };
    // SAFETY: verbs: called between start and completion.
    unsafe { with_open(qp, |open| open.pieces.push(entry)) }
}

unsafe extern "C" fn wr_set_sge_list(qp: Q, count: usize, list: *const IbvSge) {
    // SAFETY: verbs: called between start and completion, with a list of so many.
    unsafe {
        let list = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) };
        with_open(qp, |open| open.pieces.extend(list.iter().map(piece)));
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: Q, address: *mut c_void, length: usize) {
    let part = IbvDataBuf { addr: address, length };
    // SAFETY: verbs: called between start and completion, with so many bytes.
    unsafe { wr_set_inline_data_list(qp, 1, &part) }
}

unsafe extern "C" fn wr_set_inline_data_list(qp: Q, count: usize, list: *const IbvDataBuf) {
    // SAFETY: verbs: called between start and completion, with a list of so many.
    unsafe {
        let list = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count) };
        let mut bytes = Vec::new();
        for part in list.iter().filter(|part| part.length > 0) {
            bytes.extend_from_slice(std::slice::from_raw_parts(part.addr.cast(), part.length));
        }
        with_open(qp, |open| open.inline = Some(bytes));
    }
}

/// What this device lacks: the completion of the list reports it.
unsafe extern "C" fn unsupported(qp: Q, _what: u32) {
    // SAFETY: verbs: called between start and completion.
    let mut building = unsafe { Qp::of(qp.cast()).building.resume() };
    building.fail(libc::EOPNOTSUPP);
    building.keep();
}

unsafe extern "C" fn wr_bind_mw(qp: Q, mw: *mut IbvMw, key: u32, to: *const IbvMwBindInfo) {
    let mut done = Ok(());
    // SAFETY: verbs: called between start and completion, with a window and a region of the program's.
    unsafe {
        begin(qp, SendOpcode::BindWindow, |first| done = window::bind(first, mw, key, &*to));
        if let Err(number) = done {
            let mut building = Qp::of(qp.cast()).building.resume();
            building.fail(number);
            building.keep();
        }
    }
}

unsafe extern "C" fn wr_send_tso(qp: Q, _header: *mut c_void, _bytes: u16, segment: u16) {
    // SAFETY: as in `unsupported`.
    unsafe { unsupported(qp, segment.into()) }
}

unsafe extern "C" fn wr_atomic_write(qp: Q, key: u32, _address: u64, _value: *const c_void) {
    // SAFETY: as in `unsupported`.
    unsafe { unsupported(qp, key) }
}

/// The queue pair, where it was made by `ibv_create_qp_ex` to be used so; all are here.
#[unsafe(no_mangle)]
extern "C" fn ibv_qp_to_qp_ex(qp: *mut IbvQp) -> *mut IbvQpEx {
    qp.cast()
}
