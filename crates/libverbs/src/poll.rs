//! `ibv_poll_cq`.
use crate::abi::{IbvCq, IbvWc};
use crate::completion_queue::Cq;
use crate::polled::Ended;
use libc::c_int;
use shm::Contention;
use std::time::{Duration, Instant};
use verbs::{Completion, CompletionFlags};

/// Of the polls that find nothing, each such one yields: program, peer and daemon may share two cores, and then
/// whoever is to complete something waits for this core.
const YIELDS_EACH: u32 = 8;
/// Under contention, it sleeps so long instead: a sleeping thread is not queued behind the others.
const NAP: Duration = Duration::from_micros(20);
static CONTENTION: Contention = Contention::new();
/// And each such one checks whether the daemon is still there.
const POLLS_A_CHECK: u32 = 1 << 16;

/// `ibv_poll_cq`: how many completions were taken; -1 where the daemon has gone.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut IbvCq, most: c_int, into: *mut IbvWc) -> c_int {
    // SAFETY: a queue of the program's.
    let of = unsafe { Cq::of(cq) };
    let mut polled = of.polled.lock();
    let mut found = 0;
    while found < most {
        let Some(ended) = polled.next() else { break };
        // SAFETY: the program passes room for so many.
        unsafe { into.add(found as usize).write(work_completion(&ended)) };
        found += 1;
    }
    if found == 0 && most > 0 {
        polled.empty = polled.empty.wrapping_add(1);
        let empty = polled.empty;
        drop(polled);
        return if is_over(of, empty) { -1 } else { 0 };
    }
    found
}

/// After a poll that found nothing, the `empty`th in a row: yields now and then. Whether the daemon has gone.
#[inline]
pub(crate) fn is_over(cq: &Cq, empty: u32) -> bool {
    if empty % YIELDS_EACH == 0 {
        give_way();
    }
    empty % POLLS_A_CHECK == 0 && !cq.attachment.is_alive()
}

/// Lets others have the core for a moment.
fn give_way() {
    if CONTENTION.is_there() {
        std::thread::sleep(NAP);
        return;
    }
    let begin = Instant::now();
    std::thread::yield_now();
    CONTENTION.yielded(begin.elapsed());
}

#[inline]
fn work_completion(ended: &Ended) -> IbvWc {
    let completion = &ended.completion;
    IbvWc {
        wr_id: ended.id,
        status: completion.status.code().into(),
        opcode: completion.opcode.code().into(),
        vendor_err: completion.vendor_error.into(),
        byte_len: completion.bytes,
        imm_data: immediate(completion),
        qp_num: completion.qp,
        src_qp: completion.remote_qp,
        wc_flags: completion.flags.0.into(),
        pkey_index: 0,
        slid: 0,
        sl: completion.service_level,
        dlid_path_bits: 0,
    }
}

/// Immediate data as they stand in memory, in network byte order; or the invalidated key, which is a number.
#[inline]
pub(crate) fn immediate(completion: &Completion) -> u32 {
    match completion.flags.has(CompletionFlags::INVALIDATED) {
        true => completion.immediate,
        false => completion.immediate.to_be(),
    }
}
