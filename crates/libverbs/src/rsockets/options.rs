//! Options of sockets.
use super::protocol::rounded;
use super::socket::{Options, Phase};
use super::stream::Sizes;
use super::table;
use crate::errno::{self, Result};
use libc::{c_int, c_void, socklen_t};
use std::ops::RangeInclusive;

/// `SOL_RDMA` and its options.
const LEVEL_RDMA: c_int = 0x10000;
const SEND_QUEUE: c_int = 0;
const RECEIVE_QUEUE: c_int = 1;
const INLINE: c_int = 2;
const MAPPINGS: c_int = 3;
/// What queues, buffers and inline data may be.
const QUEUE: RangeInclusive<c_int> = 16..=4096;
const BUFFER: RangeInclusive<c_int> = 4096..=1 << 26;
const INLINE_BYTES: RangeInclusive<c_int> = 0..=256;
/// Where nobody says anything: as Linux has it, but for larger buffers.
const DEFAULTS: Sizes =
    Sizes { send: 1 << 18, receive: 1 << 18, send_queue: 384, receive_queue: 384, inline: 64, mappings: 0 };
/// Payload of a packet of RoCEv2, the largest.
const SEGMENT: c_int = 4096;

/// Of a new socket.
pub(super) fn initial(family: c_int, nonblocking: bool) -> Options {
    let (keepalive, inline_urgent, no_delay, linger, reuse) = (0, 0, 1, [0; 2], 0);
    Options { sizes: DEFAULTS, nonblocking, family, keepalive, inline_urgent, no_delay, linger, reuse }
}

fn between(value: c_int, limits: RangeInclusive<c_int>) -> c_int {
    value.clamp(*limits.start(), *limits.end())
}

impl Options {
    /// Sets an option; `second` is the second number of those that have two.
    fn set(&mut self, of: [c_int; 2], value: c_int, second: Option<c_int>) -> Result<()> {
        let sizes = &mut self.sizes;
        match of {
            [libc::SOL_SOCKET, libc::SO_SNDBUF] => sizes.send = between(value, BUFFER) as usize,
            [libc::SOL_SOCKET, libc::SO_RCVBUF] => sizes.receive = between(value, BUFFER) as usize,
            [libc::SOL_SOCKET, libc::SO_REUSEADDR] => self.reuse = value,
            [libc::SOL_SOCKET, libc::SO_KEEPALIVE] => self.keepalive = value,
            [libc::SOL_SOCKET, libc::SO_OOBINLINE] => self.inline_urgent = value,
            [libc::SOL_SOCKET, libc::SO_LINGER] => self.linger = [value, second.ok_or(libc::EINVAL)?],
            [libc::IPPROTO_TCP, libc::TCP_NODELAY] => self.no_delay = value,
            // As accepted by Linux' rsockets: without a meaning here.
            [libc::IPPROTO_TCP, libc::TCP_MAXSEG | libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT] => {}
            [libc::IPPROTO_IPV6, libc::IPV6_V6ONLY] => {}
            [LEVEL_RDMA, SEND_QUEUE] => sizes.send_queue = between(value, QUEUE) as u16,
            [LEVEL_RDMA, RECEIVE_QUEUE] => sizes.receive_queue = between(value, QUEUE) as u16,
            [LEVEL_RDMA, INLINE] => sizes.inline = between(value, INLINE_BYTES) as u32,
            [LEVEL_RDMA, MAPPINGS] => sizes.mappings = rounded(value.max(0) as u32),
            _ => return Err(libc::ENOPROTOOPT),
        }
        Ok(())
    }

    /// Its value, and the second number of those that have two.
    fn get(&self, of: [c_int; 2]) -> Result<(c_int, Option<c_int>)> {
        let sizes = &self.sizes;
        let value = match of {
            [libc::SOL_SOCKET, libc::SO_SNDBUF] => sizes.send as c_int,
            [libc::SOL_SOCKET, libc::SO_RCVBUF] => sizes.receive as c_int,
            [libc::SOL_SOCKET, libc::SO_REUSEADDR] => self.reuse,
            [libc::SOL_SOCKET, libc::SO_KEEPALIVE] => self.keepalive,
            [libc::SOL_SOCKET, libc::SO_OOBINLINE] => self.inline_urgent,
            [libc::SOL_SOCKET, libc::SO_LINGER] => return Ok((self.linger[0], Some(self.linger[1]))),
            [libc::SOL_SOCKET, libc::SO_TYPE] => libc::SOCK_STREAM,
            [libc::IPPROTO_TCP, libc::TCP_NODELAY] => self.no_delay,
            [libc::IPPROTO_TCP, libc::TCP_MAXSEG] => SEGMENT,
            [libc::IPPROTO_IPV6, libc::IPV6_V6ONLY] => 0,
            [LEVEL_RDMA, SEND_QUEUE] => sizes.send_queue.into(),
            [LEVEL_RDMA, RECEIVE_QUEUE] => sizes.receive_queue.into(),
            [LEVEL_RDMA, INLINE] => sizes.inline as c_int,
            [LEVEL_RDMA, MAPPINGS] => sizes.mappings as c_int,
            _ => return Err(libc::ENOPROTOOPT),
        };
        Ok((value, None))
    }
}

/// Sizes count for connections that are made later.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let words = len as usize / size_of::<c_int>();
        if words == 0 || value.is_null() {
            return Err(libc::EINVAL);
        }
        let from = value.cast::<c_int>();
        // SAFETY: the program passes so many bytes.
        let (first, second) = unsafe { (from.read_unaligned(), (words > 1).then(|| from.add(1).read_unaligned())) };
        let mut inner = socket.lock();
        if level == LEVEL_RDMA && !matches!(inner.phase, Phase::Fresh | Phase::Listening) {
            return Err(libc::EINVAL);
        }
        inner.options.set([level, name], first, second)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    into: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let mut inner = socket.lock();
        let (first, second) = match [level, name] {
            [libc::SOL_SOCKET, libc::SO_ERROR] => {
                inner.progress();
                (std::mem::take(&mut inner.error), None)
            }
            of => inner.options.get(of)?,
        };
        let words = [first, second.unwrap_or(0)];
        let size = if second.is_some() { size_of_val(&words) } else { size_of::<c_int>() };
        // SAFETY: the program passes a place, and how long it is.
        unsafe {
            let room = (*len as usize).min(size);
            words.as_ptr().cast::<u8>().copy_to_nonoverlapping(into.cast(), room);
            *len = room as socklen_t;
        }
        Ok(())
    }))
}

/// `F_GETFL` and `F_SETFL`, of which `O_NONBLOCK` counts.
#[unsafe(no_mangle)]
extern "C" fn rfcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let asked = table::find(fd).and_then(|socket| {
        let mut inner = socket.lock();
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if inner.options.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                inner.options.nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD => Ok(libc::FD_CLOEXEC),
            // The descriptor does not outlive `exec`: neither would the socket.
            libc::F_SETFD => Ok(0),
            _ => Err(libc::ENOTSUP),
        }
    });
    asked.unwrap_or_else(|number| {
        errno::set(number);
        -1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_got_within_limits() {
        let mut options = initial(libc::AF_INET, false);
        let cases = [
            ([libc::SOL_SOCKET, libc::SO_RCVBUF], 1 << 20, 1 << 20),
            ([libc::SOL_SOCKET, libc::SO_SNDBUF], 1, 4096),
            ([libc::SOL_SOCKET, libc::SO_REUSEADDR], 1, 1),
            ([LEVEL_RDMA, SEND_QUEUE], 1 << 20, 4096),
            ([LEVEL_RDMA, RECEIVE_QUEUE], -5, 16),
            ([LEVEL_RDMA, INLINE], 1000, 256),
            ([LEVEL_RDMA, MAPPINGS], 5, 5),
        ];
        for (of, asked, got) in cases {
            assert_eq!(options.set(of, asked, None), Ok(()), "{of:?}");
            assert_eq!(options.get(of), Ok((got, None)), "{of:?}");
        }
        assert_eq!(options.set([libc::SOL_SOCKET, libc::SO_LINGER], 1, None), Err(libc::EINVAL));
        assert_eq!(options.set([libc::SOL_SOCKET, libc::SO_LINGER], 1, Some(9)), Ok(()));
        assert_eq!(options.get([libc::SOL_SOCKET, libc::SO_LINGER]), Ok((1, Some(9))));
        assert_eq!(options.set([libc::SOL_SOCKET, libc::SO_BROADCAST], 1, None), Err(libc::ENOPROTOOPT));
    }
}
