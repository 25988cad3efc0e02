//! rsockets: not offered. A program cannot open such a socket.
use crate::errno;

/// Calls that return -1 and set `errno`.
macro_rules! refused {
    ($($name:ident)+) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() -> isize {
            errno::set(libc::EOPNOTSUPP);
            -1
        })+
    };
}

refused! {
    raccept
    rbind
    rclose
    rconnect
    rfcntl
    rgetpeername
    rgetsockname
    rgetsockopt
    riomap
    riounmap
    riowrite
    rlisten
    rpoll
    rread
    rreadv
    rrecv
    rrecvfrom
    rrecvmsg
    rselect
    rsend
    rsendmsg
    rsendto
    rsetsockopt
    rshutdown
    rsocket
    rwrite
    rwritev
}
