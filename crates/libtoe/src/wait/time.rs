//! Deadlines, and times as system calls have them.
use crate::system::waking;
use libc::{c_int, timespec};
use std::time::{Duration, Instant};

/// True where a deadline has passed.
pub(super) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| waking::now() >= deadline)
}

/// Time to the deadline, but no longer than a nap; `None` for ever.
pub(super) fn until_deadline(deadline: Option<Instant>, nap: Option<Duration>) -> Option<timespec> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(waking::now()));
    let time = match (left, nap) {
        (Some(left), Some(nap)) => left.min(nap),
        (left, nap) => left.or(nap)?,
    };
    Some(timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos() as i64 })
}

/// A time as `epoll_wait` has it: rounded up, -1 for ever.
pub(super) fn milliseconds(time: Option<timespec>) -> c_int {
    let whole = |time: timespec| (time.tv_sec * 1000 + (time.tv_nsec + 999_999) / 1_000_000).min(c_int::MAX as i64);
    time.map_or(-1, |time| whole(time) as c_int)
}
