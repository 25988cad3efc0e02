//! Socket options.
//!
//! The kernel socket behind each descriptor takes every option as well: it checks levels, names and values, and
//! remembers what was set. So `getsockopt` returns for options without effect here what Linux would return, and an
//! unknown option fails as in Linux. A socket that falls back to the kernel has all its options. Options that every
//! value fits are only noted until a socket has a kernel socket of its own.
use crate::calls::own_socket::set_policy;
use crate::daemon::ask;
use crate::lock::Guard;
use crate::state::Lib;
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::system::errno::{self, Result};
use crate::system::real;
use context::{FlowInfo, OptionName, Reply, Request, Slot, Unaccelerated};
use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};
use std::os::fd::RawFd;
use std::time::Duration;
use tcp::congestion::CongestionName;

/// What has an effect that only the kernel can bring about: a socket on which it is set is the kernel's.
fn is_kernels_alone(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(
            name,
            libc::SO_BINDTODEVICE
                | libc::SO_ATTACH_FILTER
                | libc::SO_ATTACH_BPF
                | libc::SO_ATTACH_REUSEPORT_CBPF
                | libc::SO_ATTACH_REUSEPORT_EBPF
                | libc::SO_TXTIME
        ),
        IPPROTO_TCP => matches!(name, libc::TCP_REPAIR | libc::TCP_MD5SIG | libc::TCP_ULP),
        libc::IPPROTO_IP => matches!(name, libc::IP_TRANSPARENT),
        _ => false,
    }
}

/// Switches that the kernel never refuses.
fn fits_always(level: c_int, name: c_int, value: &[u8]) -> bool {
    let is_switch = match level {
        SOL_SOCKET if name == libc::SO_ZEROCOPY => (0..=1).contains(&read_int(value)),
        SOL_SOCKET => matches!(name, libc::SO_KEEPALIVE | libc::SO_REUSEADDR),
        IPPROTO_TCP => matches!(name, libc::TCP_NODELAY | libc::TCP_CORK | libc::TCP_QUICKACK),
        _ => false,
    };
    is_switch && value.len() >= size_of::<c_int>()
}

/// `setsockopt`.
pub(crate) fn set(lib: &mut Guard, key: Key, fd: RawFd, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    let undecided = matches!(lib.need_socket(key)?.kind, Kind::Fresh);
    if is_kernels_alone(level, name) && !undecided {
        return Err(libc::ENOPROTOOPT);
    }
    if (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) {
        let socket = lib.need_socket(key)?;
        // Which family a port is of is settled with the port. A dead connection has none.
        let dead = socket.broken || matches!(&socket.kind, Kind::Stream(stream) if stream.is_over());
        if socket.is_v6 && !undecided && !dead {
            return Err(libc::EINVAL);
        }
    }
    if (level, name) == (IPPROTO_TCP, libc::TCP_CONGESTION) {
        return set_congestion(lib, key, fd, value);
    }
    if !(lib.need_socket(key)?.stands_in && fits_always(level, name, value)) {
        lib.own_kernel_socket(key)?;
        // SAFETY: the slice is valid for its length.
        errno::check(unsafe { real::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32) })?;
    }
    if is_kernels_alone(level, name) {
        return lib.leave_to_kernel(key, Unaccelerated::Operation);
    }
    lib.need_socket(key)?.options.remember(level, name, value);
    let done = act(lib, key, level, name, value);
    let Lib { sockets, recent_options, .. } = &mut **lib;
    sockets.get_mut(key.index).into_iter().for_each(|socket| recent_options.share(&mut socket.options));
    done
}

/// Linux takes twice what the program asks for, and never less (`SOCK_MIN_SNDBUF`).
const LEAST_SEND_LIMIT: u32 = 4608;

/// The options with an effect here.
fn act(lib: &mut Guard, key: Key, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    let number = read_int(value);
    let options = &mut lib.need_socket(key)?.options;
    match (level, name) {
        (SOL_SOCKET, libc::SO_REUSEADDR) => options.reuse_address = number != 0,
        (SOL_SOCKET, libc::SO_REUSEPORT) => options.reuse_port = number != 0,
        (SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
            options.receive_size = Some((number as u32).saturating_mul(2));
        }
        (SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
            options.send_limit = Some((number as u32).saturating_mul(2).max(LEAST_SEND_LIMIT));
            lib.limit_sending(key);
        }
        (SOL_SOCKET, libc::SO_RCVLOWAT) => {
            options.low_mark = u32::try_from(number).unwrap_or(u32::MAX).max(1);
            lib.use_low_mark(key);
        }
        (SOL_SOCKET, libc::SO_ZEROCOPY) => options.zero_copy = number != 0,
        (SOL_SOCKET, libc::SO_OOBINLINE) => options.inline_urgent = number != 0,
        (SOL_SOCKET, libc::SO_LINGER) => {
            options.linger = (number != 0).then(|| read_int(value.get(4..).unwrap_or_default()))
        }
        (SOL_SOCKET, libc::SO_RCVTIMEO) => options.receive_timeout = read_time(value),
        (SOL_SOCKET, libc::SO_SNDTIMEO) => options.send_timeout = read_time(value),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.v6_only = number != 0,
        (IPPROTO_TCP, libc::TCP_MAXSEG) => {
            options.mss = number.clamp(0, u16::MAX as c_int) as u16;
            lib.send_listener_options(key);
        }
        (IPPROTO_TCP, libc::TCP_SYNCNT) => {
            let most = number.clamp(0, u8::MAX.into()) as u8;
            options.syn_retries = most;
            // An attempt that goes on ends earlier, or later.
            if let Some(Kind::Connecting(attempt)) = lib.socket(key).map(|socket| &socket.kind) {
                let tag = attempt.tag;
                ask::send_request(lib, Request::SynRetries { tag, most });
            }
        }
        (IPPROTO_TCP, libc::TCP_CORK) => {
            options.cork = number != 0;
            if number == 0 {
                lib.uncork(key);
            }
        }
        (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => {
            options.unsent_mark = number as u32;
            lib.use_unsent_mark(key);
        }
        (IPPROTO_TCP, libc::TCP_NODELAY) => {
            if number != 0 {
                lib.uncork(key);
            }
            lib.send_no_delay(key, number != 0);
        }
        (IPPROTO_TCP, _) if options.fast_open.take(name, number, value) => lib.send_listener_options(key),
        _ => {
            if let Some((option, value)) = for_control_plane(level, name, number, value) {
                set_for_flow(lib, key, option, value)?;
            }
        }
    }
    Ok(())
}

fn for_control_plane(level: c_int, name: c_int, number: c_int, value: &[u8]) -> Option<(OptionName, u64)> {
    let option = match (level, name) {
        (SOL_SOCKET, libc::SO_KEEPALIVE) => return Some((OptionName::Keepalive, (number != 0) as u64)),
        (SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
            // ~0 stands for no limit; both widths are in use.
            let rate = match value.try_into().map(u64::from_ne_bytes) {
                Ok(rate) => rate,
                Err(_) if number as u32 == u32::MAX => u64::MAX,
                Err(_) => number as u32 as u64,
            };
            return Some((OptionName::PacingRate, if rate == u64::MAX { 0 } else { rate }));
        }
        (IPPROTO_TCP, libc::TCP_KEEPIDLE) => OptionName::KeepaliveIdle,
        (IPPROTO_TCP, libc::TCP_KEEPINTVL) => OptionName::KeepaliveInterval,
        (IPPROTO_TCP, libc::TCP_KEEPCNT) => OptionName::KeepaliveCount,
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => OptionName::UserTimeout,
        (IPPROTO_TCP, libc::TCP_LINGER2) => OptionName::FinTimeout,
        _ => return None,
    };
    Some((option, number.max(0) as u64))
}

fn set_for_flow(lib: &mut Guard, key: Key, option: OptionName, value: u64) -> Result<()> {
    let socket = lib.need_socket(key)?;
    socket.options.for_flow.retain(|(name, _)| *name != option);
    socket.options.for_flow.push((option, value));
    if let Kind::Stream(stream) = &socket.kind {
        if let Some(slot) = stream.name {
            ask::send_request(lib, Request::Set { slot, option, value });
        }
    }
    Ok(())
}

/// A policy that the control plane does not have is refused, as Linux refuses a module that is not there.
fn set_congestion(lib: &mut Guard, key: Key, fd: RawFd, value: &[u8]) -> Result<()> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let policy = std::str::from_utf8(&value[..end]).ok().and_then(CongestionName::from_name).ok_or(libc::ENOENT)?;
    // For the case that the socket falls back.
    if !lib.need_socket(key)?.stands_in {
        set_policy(fd, &value[..end]);
    }
    lib.need_socket(key)?.options.congestion = policy.code;
    if let Kind::Stream(_) = lib.need_socket(key)?.kind {
        set_for_flow(lib, key, OptionName::Congestion, policy.code.into())?;
    }
    Ok(())
}

fn read_int(value: &[u8]) -> c_int {
    value.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, c_int::from_ne_bytes)
}

/// A `timeval`; zero means no timeout.
fn read_time(value: &[u8]) -> Option<Duration> {
    let word = |at: usize| value.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, i64::from_ne_bytes);
    let time = Duration::from_secs(word(0).max(0) as u64) + Duration::from_micros(word(8).max(0) as u64);
    (!time.is_zero()).then_some(time)
}

const NO_DELAY: (c_int, c_int) = (IPPROTO_TCP, libc::TCP_NODELAY);

impl Lib {
    /// Where the host has Nagle's algorithm, it gets `TCP_NODELAY`. What waits then goes out.
    fn send_no_delay(&mut self, key: Key, on: bool) {
        let Some(Kind::Stream(stream)) = self.socket(key).map(|socket| &socket.kind) else { return };
        let Some(slot) = stream.name else { return };
        if let Some(context) = self.context().filter(|context| context.welcome.nagle) {
            context.send_request_surely(Request::Set { slot, option: OptionName::NoDelay, value: on.into() });
        }
    }

    /// Sends the control plane the options that were set before the connection was there.
    pub(crate) fn send_early_options(&mut self, key: Key, slot: Slot) {
        let nagle = self.context().is_some_and(|context| context.welcome.nagle);
        let Some(socket) = self.socket(key).filter(|socket| nagle || !socket.options.for_flow.is_empty()) else {
            return;
        };
        let mut options = socket.options.for_flow.clone();
        let is_set = |(level, name, value): &(_, _, Vec<u8>)| (*level, *name) == NO_DELAY && read_int(value) != 0;
        if nagle && socket.options.set.iter().any(is_set) {
            options.push((OptionName::NoDelay, 1));
        }
        let Some(context) = self.context() else { return };
        for (option, value) in options {
            context.send_request_surely(Request::Set { slot, option, value });
        }
    }
}

/// `getsockopt`, for options about which the idle kernel socket has not the true value; `None` for the others.
pub(crate) fn get(lib: &mut Guard, key: Key, level: c_int, name: c_int) -> Result<Option<Vec<u8>>> {
    let int = |value: c_int| Ok(Some(value.to_ne_bytes().to_vec()));
    if (level, name) == (SOL_SOCKET, libc::SO_ERROR) {
        // The peer's reset may have come since the last call that looked.
        lib.drain();
    }
    let socket = lib.need_socket(key)?;
    match (level, name, &socket.kind) {
        (SOL_SOCKET, libc::SO_ERROR, _) => {
            let error = socket.take_error();
            int(error)
        }
        (SOL_SOCKET, libc::SO_ACCEPTCONN, kind) => int(matches!(kind, Kind::Listener(_)) as c_int),
        (SOL_SOCKET, libc::SO_RCVBUF, Kind::Stream(stream)) if socket.options.receive_size.is_none() => {
            int(stream.buffer_sizes().0 as c_int)
        }
        (SOL_SOCKET, libc::SO_SNDBUF, Kind::Stream(stream)) if socket.options.send_limit.is_none() => {
            int(stream.buffer_sizes().1 as c_int)
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, _) if socket.is_v6 => int(socket.options.v6_only.into()),
        (IPPROTO_TCP, libc::TCP_MAXSEG, Kind::Stream(stream)) => int(stream.mss as c_int),
        (IPPROTO_TCP, libc::TCP_CONGESTION, _) => Ok(Some(congestion_name(lib, key)?)),
        (IPPROTO_TCP, libc::TCP_FASTOPEN_KEY, _) => Ok(Some(socket.options.fast_open.keys())),
        (IPPROTO_TCP, libc::TCP_INFO, _) => Ok(Some(tcp_info(lib, key)?)),
        _ => Ok(None),
    }
}

fn congestion_name(lib: &mut Guard, key: Key) -> Result<Vec<u8>> {
    let chosen = CongestionName::from_code(lib.need_socket(key)?.options.congestion);
    let default = lib.need_context()?.welcome.congestion.clone();
    // TCP_CA_NAME_MAX bytes, as Linux gives.
    let mut name = chosen.map_or(default, |policy| policy.to_string()).into_bytes();
    name.resize(16, 0);
    Ok(name)
}

/// States of `tcp_info` for what is not connected.
const TCP_SYN_SENT: u8 = 2;
const TCP_CLOSE: u8 = 7;
const TCP_LISTEN: u8 = 10;

/// Bytes that were written and not sent (`SIOCOUTQNSD`). The daemon reports how many are on their way.
pub(crate) fn unsent(lib: &mut Guard, key: Key) -> Result<u32> {
    let Kind::Stream(stream) = &lib.need_socket(key)?.kind else { return Ok(0) };
    let Some(slot) = stream.name.filter(|_| stream.in_flight() > 0) else { return Ok(0) };
    let Ok(Reply::Info { info, .. }) = ask::ask(lib, |tag| Request::Info { tag, slot }) else { return Ok(0) };
    // The engine may not have seen the last bytes yet. What it has acknowledged meanwhile is here before its answer.
    lib.drain();
    let Kind::Stream(stream) = &lib.need_socket(key)?.kind else { return Ok(0) };
    Ok(stream.in_flight().saturating_sub(info.unacked))
}

fn tcp_info(lib: &mut Guard, key: Key) -> Result<Vec<u8>> {
    let bare = |state| FlowInfo { state, ..FlowInfo::default() };
    let info = match &lib.need_socket(key)?.kind {
        Kind::Fresh | Kind::Bound(_) | Kind::Log(_) => bare(TCP_CLOSE),
        Kind::Listener(_) => bare(TCP_LISTEN),
        Kind::Connecting { .. } => bare(TCP_SYN_SENT),
        Kind::Stream(stream) => match stream.name {
            None => bare(TCP_CLOSE),
            Some(slot) => match ask::ask(lib, |tag| Request::Info { tag, slot }) {
                Ok(Reply::Info { info, .. }) => info,
                _ => bare(TCP_CLOSE),
            },
        },
    };
    Ok(as_tcp_info(&info))
}

/// In `tcpi_options`: data of the SYN was acknowledged with it.
const TCPI_OPT_SYN_DATA: u8 = 32;

/// The figures as Linux's `struct tcp_info` has them; windows count segments there.
fn as_tcp_info(info: &FlowInfo) -> Vec<u8> {
    let mut bytes = vec![0u8; 232];
    let mss = (info.mss as u32).max(1);
    (bytes[0], bytes[1]) = (info.state, info.ca_state);
    bytes[5] = if info.syn_data { TCPI_OPT_SYN_DATA } else { 0 };
    let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    put(16, info.mss as u32);
    put(20, info.mss as u32);
    put(24, info.unacked.div_ceil(mss));
    put(60, info.mss as u32 + 40);
    put(68, info.rtt_us);
    put(72, info.rttvar_us);
    put(76, if info.ssthresh == u32::MAX { i32::MAX as u32 } else { info.ssthresh / mss });
    put(80, info.cwnd / mss);
    put(84, info.mss as u32);
    put(100, info.retransmits);
    put(144, info.unsent);
    put(192, info.delivered());
    put(216, info.dsack_dups);
    put(228, info.snd_wnd);
    bytes[120..128].copy_from_slice(&info.bytes_acked.to_ne_bytes());
    bytes[128..136].copy_from_slice(&info.bytes_received.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_of(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn tcp_info_lies_where_programs_look() {
        let info = FlowInfo {
            state: 1,
            ca_state: FlowInfo::CA_RECOVERY,
            mss: 1000,
            rtt_us: 33,
            cwnd: 10_000,
            retransmits: 4,
            dsack_dups: 2,
            unsent: 5,
            syn_data: true,
            ..FlowInfo::default()
        };
        assert_eq!(at_of(&as_tcp_info(&FlowInfo { bytes_acked: 1001, ..info }), 192), 3, "the SYN and two segments");
        let bytes = as_tcp_info(&info);
        let at = |at: usize| at_of(&bytes, at);
        assert_eq!((bytes[1], bytes[5]), (3, 32));
        assert_eq!((bytes[0], at(68), at(80), at(100), at(144), at(216)), (1, 33, 10, 4, 5, 2));
    }

    #[test]
    fn times_and_numbers_are_read_with_care() {
        assert_eq!(read_time(&[0; 16]), None);
        assert_eq!(read_time(&[1]), None);
        let mut time = [0u8; 16];
        time[0] = 2;
        time[8] = 3;
        assert_eq!(read_time(&time), Some(Duration::from_micros(2_000_003)));
        assert_eq!((read_int(&[1, 0]), read_int(&[1, 1, 0, 0])), (0, 257));
    }
}
