//! Options of a socket, and its limits.
use super::protocol::rounded;
use crate::errno::Result;
use libc::c_int;
use std::ops::RangeInclusive;

/// `SOL_RDMA` and its options.
pub(super) const LEVEL_RDMA: c_int = 0x10000;
const SEND_QUEUE: c_int = 0;
const RECEIVE_QUEUE: c_int = 1;
const INLINE: c_int = 2;
const MAPPINGS: c_int = 3;
/// What queues, buffers and inline data may be.
const QUEUE: RangeInclusive<c_int> = 16..=4096;
const BUFFER: RangeInclusive<c_int> = 4096..=1 << 26;
const INLINE_BYTES: RangeInclusive<c_int> = 0..=256;
/// Defaults: as Linux has them, but for larger buffers.
const DEFAULTS: Sizes =
    Sizes { send: 1 << 18, receive: 1 << 18, send_queue: 384, receive_queue: 384, inline: 64, mappings: 0 };
/// Payload of a packet of RoCEv2, the largest.
const SEGMENT: c_int = 4096;

/// What a socket's queues and buffers are made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Bytes of the send buffer.
    pub(super) send: usize,
    /// Bytes of the receive buffer.
    pub(super) receive: usize,
    /// Messages under way, each way.
    pub(super) send_queue: u16,
    pub(super) receive_queue: u16,
    /// Bytes that go in a work request.
    pub(super) inline: u32,
    /// Mappings that the peer may advertise.
    pub(super) mappings: u32,
}

/// What `rsetsockopt` and `rfcntl` set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) sizes: Sizes,
    pub(super) nonblocking: bool,
    pub(super) family: c_int,
    /// `SOCK_STREAM` or `SOCK_DGRAM`.
    pub(super) kind: c_int,
    /// Flags and values that are stored for `getsockopt` only: `SO_KEEPALIVE`, `SO_OOBINLINE`, `SO_LINGER`,
    /// `TCP_NODELAY`.
    pub(super) keepalive: c_int,
    pub(super) inline_urgent: c_int,
    pub(super) no_delay: c_int,
    pub(super) linger: [c_int; 2],
    pub(super) reuse: c_int,
}

/// Of a new socket of this kind.
pub(super) fn initial(family: c_int, kind: c_int) -> Options {
    let (keepalive, inline_urgent, no_delay, linger, reuse) = (0, 0, 1, [0; 2], 0);
    Options { sizes: DEFAULTS, nonblocking: false, family, kind, keepalive, inline_urgent, no_delay, linger, reuse }
}

fn between(value: c_int, limits: RangeInclusive<c_int>) -> c_int {
    value.clamp(*limits.start(), *limits.end())
}

impl Options {
    /// ENOPROTOOPT for what only the other kind of sockets has.
    fn has(&self, of: [c_int; 2]) -> Result<()> {
        match (self.kind, of) {
            (libc::SOCK_DGRAM, [libc::IPPROTO_TCP, _] | [LEVEL_RDMA, MAPPINGS]) => Err(libc::ENOPROTOOPT),
            (libc::SOCK_STREAM, [libc::SOL_SOCKET, libc::SO_BROADCAST]) => Err(libc::ENOPROTOOPT),
            _ => Ok(()),
        }
    }

    /// Sets an option; `second` is the second number of those that have two.
    pub(super) fn set(&mut self, of: [c_int; 2], value: c_int, second: Option<c_int>) -> Result<()> {
        self.has(of)?;
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
            [libc::SOL_SOCKET, libc::SO_BROADCAST] => {}
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
    pub(super) fn get(&self, of: [c_int; 2]) -> Result<(c_int, Option<c_int>)> {
        self.has(of)?;
        let sizes = &self.sizes;
        let value = match of {
            [libc::SOL_SOCKET, libc::SO_SNDBUF] => sizes.send as c_int,
            [libc::SOL_SOCKET, libc::SO_RCVBUF] => sizes.receive as c_int,
            [libc::SOL_SOCKET, libc::SO_REUSEADDR] => self.reuse,
            [libc::SOL_SOCKET, libc::SO_KEEPALIVE] => self.keepalive,
            [libc::SOL_SOCKET, libc::SO_OOBINLINE] => self.inline_urgent,
            [libc::SOL_SOCKET, libc::SO_LINGER] => return Ok((self.linger[0], Some(self.linger[1]))),
            [libc::SOL_SOCKET, libc::SO_TYPE] => self.kind,
            [libc::IPPROTO_TCP, libc::TCP_NODELAY] => self.no_delay,
            [libc::IPPROTO_TCP, libc::TCP_MAXSEG] => SEGMENT,
            [libc::IPPROTO_IPV6, libc::IPV6_V6ONLY] | [libc::SOL_SOCKET, libc::SO_BROADCAST] => 0,
            [LEVEL_RDMA, SEND_QUEUE] => sizes.send_queue.into(),
            [LEVEL_RDMA, RECEIVE_QUEUE] => sizes.receive_queue.into(),
            [LEVEL_RDMA, INLINE] => sizes.inline as c_int,
            [LEVEL_RDMA, MAPPINGS] => sizes.mappings as c_int,
            _ => return Err(libc::ENOPROTOOPT),
        };
        Ok((value, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_got_within_limits() {
        let mut options = initial(libc::AF_INET, libc::SOCK_STREAM);
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

    #[test]
    fn each_kind_has_options_of_its_own() {
        let mut options = initial(libc::AF_INET, libc::SOCK_DGRAM);
        assert_eq!(options.get([libc::SOL_SOCKET, libc::SO_TYPE]), Ok((libc::SOCK_DGRAM, None)));
        assert_eq!(options.set([libc::SOL_SOCKET, libc::SO_BROADCAST], 1, None), Ok(()));
        assert_eq!(options.set([libc::IPPROTO_TCP, libc::TCP_NODELAY], 1, None), Err(libc::ENOPROTOOPT));
        assert_eq!(options.get([LEVEL_RDMA, MAPPINGS]), Err(libc::ENOPROTOOPT));
    }
}
