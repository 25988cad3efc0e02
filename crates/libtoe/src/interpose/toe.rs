//! Calls that only OpenTOE has: `include/toe.h`.
use super::sockets::ours;
use crate::calls::splice;
use crate::system::errno::{Result, give};
use crate::system::real;
use crate::{lock, table};
use libc::c_int;

/// `toe_splice`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_splice(a: c_int, b: c_int) -> c_int {
    give(join(a, b).map(|()| 0))
}

fn join(a: c_int, b: c_int) -> Result<()> {
    for fd in [a, b] {
        // SAFETY: a plain call, which only asks whether the descriptor is open.
        if unsafe { real::fcntl(fd, libc::F_GETFD, 0) } < 0 {
            return Err(libc::EBADF);
        }
        if ours(fd)?.is_none() {
            return Err(libc::EOPNOTSUPP);
        }
    }
    let mut lib = lock::lock()?;
    let keys = lib.socket_of(a).zip(lib.socket_of(b)).ok_or(libc::EOPNOTSUPP)?;
    debug_assert!(table::is_ours(a) && table::is_ours(b));
    splice::splice(&mut lib, [keys.0, keys.1])
}
