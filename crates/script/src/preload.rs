//! `getsockopt` for a runner that asks the kernel for figures of its sockets: packetdrill's code blocks (`%{ assert
//! tcpi_... }%`) call libc's function, not the table's. With this library in `LD_PRELOAD` as well, a descriptor of the
//! table is answered by the table, and any other one by the kernel.
use crate::instance::Instance;
use crate::memory::{done, give_value};
use libc::{EBADF, c_int, c_void, socklen_t};
use std::sync::{Arc, Mutex, PoisonError};

/// All tables of the process that were not freed.
static TABLES: Mutex<Vec<Arc<Instance>>> = Mutex::new(Vec::new());

/// From now on descriptors of this table are known.
pub(crate) fn add(instance: &Arc<Instance>) {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(instance));
}

/// They are not any more.
pub(crate) fn remove(instance: &Arc<Instance>) {
    TABLES.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| !Arc::ptr_eq(known, instance));
}

fn table_of(fd: c_int) -> Option<Arc<Instance>> {
    let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    tables.into_iter().find(|table| table.at_once(|sockets| sockets.get(fd).map(drop)) != Err(EBADF))
}

/// getsockopt(2).
///
/// # Safety
/// As the system call has it: `value` has room for as many bytes as `len` points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    match table_of(fd) {
        Some(table) => {
            let found = table.at_once(|sockets| sockets.option(fd, level, name));
            // SAFETY: the caller's promise.
            done(found.and_then(|found| unsafe { give_value(&found, value, len) }))
        }
        None => {
            // SAFETY: the caller's promise is the system call's.
            let result = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) };
            result as c_int
        }
    }
}
