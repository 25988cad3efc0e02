//! The program's signals, where syscall user dispatch is the net below the rewritten instructions: its signal,
//! `SIGSYS`, is never blocked. The program's own handler of `SIGSYS` gets those that the net did not cause.
use super::system_call::at;
use crate::process::spawn;
use intercept::{Action, Call, NEVER_BLOCKED, Verdict};
use libc::{c_int, c_long};

/// The last argument of pselect6(2).
#[repr(C)]
struct MaskWithSize {
    mask: *const u64,
    size: usize,
}

/// Answers a call, with signal sets among its arguments that leave the net open.
///
/// # Safety
/// The program's arguments for this call.
pub(super) unsafe fn with_open_net(call: &mut Call, answer: fn(&mut Call, [usize; 6]) -> Verdict) -> Verdict {
    let (number, mut arguments) = (call.number as c_long, call.arguments);
    let [a, b, c, ..] = arguments;
    // SAFETY: the program's arguments.
    unsafe {
        if number == libc::SYS_rt_sigaction {
            call.number = intercept::change_action(a as c_int, at::<Action>(b), at(c), !spawn::in_child());
            return Verdict::Done;
        }
        let place = match number {
            libc::SYS_rt_sigprocmask if a as c_int != libc::SIG_UNBLOCK => 1,
            libc::SYS_rt_sigsuspend => 0,
            libc::SYS_ppoll => 3,
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
            libc::SYS_pselect6 => 5,
            _ => return answer(call, arguments),
        };
        let with_size = at::<MaskWithSize>(arguments[5]);
        let mask = match number {
            libc::SYS_pselect6 => with_size.as_ref().map_or(std::ptr::null(), |given| given.mask),
            _ => at::<u64>(arguments[place]).cast_const(),
        };
        if mask.is_null() || mask.read_unaligned() & NEVER_BLOCKED == 0 {
            return answer(call, arguments);
        }
        let open = mask.read_unaligned() & !NEVER_BLOCKED;
        let mut open_with_size = MaskWithSize { mask: &raw const open, size: size_of::<u64>() };
        arguments[place] = match number {
            libc::SYS_pselect6 => {
                open_with_size.size = (*with_size).size;
                (&raw const open_with_size).expose_provenance()
            }
            _ => (&raw const open).expose_provenance(),
        };
        match answer(call, arguments) {
            Verdict::Done => {}
            Verdict::Pass | Verdict::InPlace => call.number = shm::system_call::raw(number, arguments),
        }
        Verdict::Done
    }
}
