//! Polling completion by completion, and reading each one member by member (`ibv_start_poll` and what follows).
//! From a start that found something to its end, the thread holds the queue's lock.
use crate::abi::{IbvCq, IbvCqEx};
use crate::completion_queue::Cq;
use crate::poll::{immediate, is_over};
use crate::polled::{Ended, Polled};
use libc::{c_int, c_uint, c_void};
use std::time::Duration;
use verbs::Completion;

/// The public part with its functions.
pub(crate) fn with_functions(base: IbvCq) -> IbvCqEx {
    IbvCqEx {
        base,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll,
        next_poll,
        end_poll,
        read_opcode,
        read_vendor_err,
        read_byte_len,
        read_imm_data,
        read_qp_num,
        read_src_qp,
        read_wc_flags,
        read_slid: nothing_u32,
        read_sl,
        read_dlid_path_bits: nothing_u8,
        read_completion_ts,
        read_cvlan: nothing_u16,
        read_flow_tag: nothing_u32,
        read_tm_info: no_tag_matching,
        read_completion_wallclock_ns,
    }
}

/// Shows a completion to the program.
///
/// # Safety
/// `cq` is a queue of the program's, whose lock this thread holds.
unsafe fn show(cq: *mut IbvCqEx, polled: &mut Polled, ended: &Ended) {
    polled.current = Some(ended.completion);
    // SAFETY: as the caller guarantees; only the holder of the lock writes these members.
    unsafe {
        (*cq).status = ended.completion.status.code().into();
        (*cq).wr_id = ended.id;
    }
}

unsafe extern "C" fn start_poll(cq: *mut IbvCqEx, attributes: *const u32) -> c_int {
    // SAFETY: a queue of the program's; attributes are one word, `comp_mask`, or null.
    let (of, mask) = unsafe { (Cq::of(cq.cast()), attributes.as_ref().copied().unwrap_or(0)) };
    if mask != 0 {
        return libc::EINVAL;
    }
    let mut polled = of.polled.lock();
    let Some(ended) = polled.next() else {
        polled.empty = polled.empty.wrapping_add(1);
        let empty = polled.empty;
        drop(polled);
        return if is_over(of, empty) { libc::EIO } else { libc::ENOENT };
    };
    // SAFETY: the lock is held.
    unsafe { show(cq, &mut polled, &ended) };
    polled.keep();
    0
}

unsafe extern "C" fn next_poll(cq: *mut IbvCqEx) -> c_int {
    // SAFETY: a queue of the program's, which this thread has started to poll.
    let mut polled = unsafe { Cq::of(cq.cast()).polled.resume() };
    let next = polled.next();
    if let Some(ended) = &next {
        // SAFETY: the lock is held.
        unsafe { show(cq, &mut polled, ended) };
    }
    polled.keep();
    if next.is_some() { 0 } else { libc::ENOENT }
}

unsafe extern "C" fn end_poll(cq: *mut IbvCqEx) {
    // SAFETY: as in `next_poll`.
    drop(unsafe { Cq::of(cq.cast()).polled.resume() });
}

/// The completion that is read.
///
/// # Safety
/// `cq` is a queue of the program's, which this thread has started to poll.
unsafe fn read<T>(cq: *mut IbvCqEx, member: impl FnOnce(&Completion) -> T) -> T
where
    T: Default,
{
    // SAFETY: as the caller guarantees.
    let polled = unsafe { Cq::of(cq.cast()).polled.resume() };
    let read = polled.current.as_ref().map(member).unwrap_or_default();
    polled.keep();
    read
}

/// Functions that read a member of the completion.
macro_rules! readers {
    ($($name:ident: $kind:ty = $member:expr;)+) => {
        $(unsafe extern "C" fn $name(cq: *mut IbvCqEx) -> $kind {
            // SAFETY: verbs: called between the start and the end of a poll.
            unsafe { read(cq, $member) }
        })+
    };
}

readers! {
    read_opcode: c_int = |completion| completion.opcode.code().into();
    read_vendor_err: u32 = |completion| completion.vendor_error.into();
    read_byte_len: u32 = |completion| completion.bytes;
    read_imm_data: u32 = immediate;
    read_qp_num: u32 = |completion| completion.qp;
    read_src_qp: u32 = |completion| completion.remote_qp;
    read_wc_flags: c_uint = |completion| completion.flags.0.into();
    read_sl: u8 = |completion| completion.service_level;
    read_completion_ts: u64 = |completion| completion.at;
    read_completion_wallclock_ns: u64 = |completion| wall_clock(completion.at);
    nothing_u32: u32 = |_| 0;
    nothing_u16: u16 = |_| 0;
    nothing_u8: u8 = |_| 0;
}

unsafe extern "C" fn no_tag_matching(_cq: *mut IbvCqEx, _into: *mut c_void) {}

/// A time of the monotonic clock by the clock on the wall, both in nanoseconds.
fn wall_clock(at: u64) -> u64 {
    let now = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes a local.
        unsafe { libc::clock_gettime(clock, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
    };
    let ago = now(libc::CLOCK_MONOTONIC).saturating_sub(at);
    now(libc::CLOCK_REALTIME).saturating_sub(ago)
}
