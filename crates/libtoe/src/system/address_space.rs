//! Address space (`RLIMIT_AS`): what the library maps does not count against the program's limit.
//!
//! A region is as large as its host's buffers could become, and a page of it costs memory only when it is used. A
//! program that limits its address space (vsftpd's sessions) means its own. So the limit is raised by what the
//! library maps, and the program gets the figure that it set.
use crate::system::{errno, real};
use libc::rlimit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that the library has mapped.
static MAPPED: AtomicU64 = AtomicU64::new(0);
/// Bytes by which the soft limit is above what the program set.
static RAISED: AtomicU64 = AtomicU64::new(0);
/// Regions that a program may still map under a hard limit of its own: a forked child has one more.
const SPARE: u64 = 4;

fn limit() -> rlimit {
    let mut limit = rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is written into a local.
    unsafe { real::getrlimit(libc::RLIMIT_AS, &mut limit) };
    limit
}

/// A region of so many bytes is about to be mapped. Where the limit cannot be raised, the mapping may fail.
pub(crate) fn before_mapping(bytes: usize) {
    let (now, bytes) = (limit(), bytes as u64);
    if now.rlim_cur == libc::RLIM_INFINITY {
        return;
    }
    let soft = now.rlim_cur.saturating_add(bytes);
    let raised = rlimit { rlim_cur: soft, rlim_max: now.rlim_max.max(soft) };
    // SAFETY: the limit is a local. Above the hard limit only a privileged process may go.
    if unsafe { real::setrlimit(libc::RLIMIT_AS, &raised) } == 0 {
        RAISED.fetch_add(bytes, Relaxed);
    }
}

/// A region was mapped.
pub(crate) fn mapped(bytes: usize) {
    MAPPED.fetch_add(bytes as u64, Relaxed);
}

/// It is not any more.
pub(crate) fn unmapped(bytes: usize) {
    MAPPED.fetch_sub(bytes as u64, Relaxed);
}

/// What a mapping of so many bytes that failed has to do with the limit: the end of a sentence, or nothing.
pub(crate) fn explain(bytes: u64) -> String {
    match limit().rlim_cur {
        libc::RLIM_INFINITY => String::new(),
        most => format!(
            ": the limit of address space (RLIMIT_AS, `ulimit -v`) is {most} bytes, and a context needs {bytes} more; raise the \
             limit, or lower slots, rx_bytes and tx_bytes in the host's configuration"
        ),
    }
}

/// The program sets the limit of its own address space.
pub(crate) fn set(wanted: &rlimit) -> libc::c_int {
    let mapped = MAPPED.load(Relaxed);
    let above =
        |figure: u64, more: u64| if figure == libc::RLIM_INFINITY { figure } else { figure.saturating_add(more) };
    let hard = limit().rlim_max;
    // A program that lowers its hard limit may fork, and the child's region is the library's, too.
    let most = above(wanted.rlim_max, mapped.saturating_mul(1 + SPARE));
    let most = if wanted.rlim_max <= hard { most.min(hard) } else { most };
    let raised = rlimit { rlim_cur: above(wanted.rlim_cur, mapped).min(most), rlim_max: most };
    if wanted.rlim_cur > wanted.rlim_max {
        errno::set(libc::EINVAL);
        return -1;
    }
    // SAFETY: the limit is a local.
    let result = unsafe { real::setrlimit(libc::RLIMIT_AS, &raised) };
    if result == 0 {
        RAISED.store(raised.rlim_cur.saturating_sub(wanted.rlim_cur), Relaxed);
    }
    result
}

/// The limit as the program set it.
pub(crate) fn get(found: &mut rlimit) {
    if found.rlim_cur != libc::RLIM_INFINITY {
        found.rlim_cur = found.rlim_cur.saturating_sub(RAISED.load(Relaxed));
    }
}
