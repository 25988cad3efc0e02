//! Socket options: what has an effect goes to the control plane, everything else is remembered.
use crate::early::{Early, OF_LISTENERS};
use crate::memory::Control;
use crate::sockets::{Errno, Kind, Socket, Sockets};
use context::{FlowInfo, OptionName, Reply, Request};
use libc::{EAGAIN, EINVAL, ENOPROTOOPT, EOPNOTSUPP, IPPROTO_TCP, SOL_SOCKET};
use std::collections::BTreeMap;

/// Options of the control plane: level, name, its name there.
const PASSED_ON: [(i32, i32, OptionName); 7] = [
    (SOL_SOCKET, libc::SO_KEEPALIVE, OptionName::Keepalive),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE, OptionName::KeepaliveIdle),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL, OptionName::KeepaliveInterval),
    (IPPROTO_TCP, libc::TCP_KEEPCNT, OptionName::KeepaliveCount),
    (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, OptionName::UserTimeout),
    (IPPROTO_TCP, libc::TCP_LINGER2, OptionName::FinTimeout),
    (IPPROTO_TCP, libc::TCP_NODELAY, OptionName::NoDelay),
];

impl Sockets {
    /// `setsockopt`.
    pub fn set_option(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        if ![SOL_SOCKET, IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6].contains(&level) {
            return Err(ENOPROTOOPT);
        }
        let forbidden = (level, name) == (IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) && !self.fast_open.client();
        let socket = self.get(fd)?;
        if forbidden {
            return Err(EOPNOTSUPP);
        }
        let number = value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        if (level, name) == (SOL_SOCKET, libc::SO_LINGER) {
            // Two ints: on, and seconds.
            let seconds = value.get(4..8).and_then(|rest| rest.first_chunk()).map(|bytes| i32::from_ne_bytes(*bytes));
            let (Some(on), Some(seconds)) = (number, seconds) else { return Err(EINVAL) };
            socket.abort = on != 0 && seconds == 0;
        }
        socket.options.insert((level, name), value.to_vec());
        if (level, name) == (SOL_SOCKET, libc::SO_SNDBUF) {
            let limit = socket.send_limit();
            self.connection(fd).into_iter().for_each(|connection| connection.limit = limit);
        }
        if let ((IPPROTO_TCP, libc::TCP_SYNCNT), Kind::Connecting { tag, .. }) = ((level, name), &self.get(fd)?.kind) {
            let (tag, most) = (*tag, number.unwrap_or(0).clamp(0, u8::MAX.into()) as u8);
            self.send(Request::SynRetries { tag, most });
        }
        if (level, name) == (IPPROTO_TCP, libc::TCP_MAXSEG) {
            self.send_segment_size(fd)?;
        }
        if level == IPPROTO_TCP && OF_LISTENERS.contains(&name) {
            self.send_fast_open(fd)?;
        }
        if let Some((.., option)) = PASSED_ON.iter().find(|(of, called, _)| (*of, *called) == (level, name)) {
            let number = number.filter(|number| *number >= 0).ok_or(EINVAL)?;
            self.set(fd, *option, number as u64);
        }
        Ok(())
    }

    /// An accepted connection has its listener's options, as on Linux.
    pub(crate) fn inherit(&mut self, fd: i32, options: BTreeMap<(i32, i32), Vec<u8>>) -> Result<(), Errno> {
        for ((level, name), value) in options {
            self.set_option(fd, level, name, &value)?;
        }
        Ok(())
    }

    /// An option that is an int is set, and not to zero.
    pub(crate) fn has_option(&self, fd: i32, level: i32, name: i32) -> bool {
        self.table.get(&fd).and_then(|socket| socket.number_option(level, name)).is_some_and(|number| number != 0)
    }

    /// A call has written all that it will; with `MSG_ZEROCOPY` there is a notification once that is acknowledged.
    pub(crate) fn note_zero_copy(&mut self, fd: i32, flags: i32) {
        if flags & libc::MSG_ZEROCOPY == 0 || !self.has_option(fd, SOL_SOCKET, libc::SO_ZEROCOPY) {
            return;
        }
        if let Ok(Socket { kind: Kind::Connecting { early: Early::Written(_, notification), .. }, .. }) = self.get(fd) {
            *notification = true;
        }
        if let Ok(connection) = self.connection(fd) {
            let (head, tail) = (connection.tx_head, connection.tx_tail);
            connection.notifications.sent(head);
            connection.notifications.acknowledged(tail);
        }
    }

    /// The next notification of the error queue, which never waits.
    pub(crate) fn notification(&mut self, fd: i32) -> Result<Control, Errno> {
        self.settle();
        let is_v6 = self.get(fd)?.is_v6;
        let (level, kind, address) = match is_v6 {
            false => (libc::SOL_IP, libc::IP_RECVERR, size_of::<libc::sockaddr_in>()),
            true => (libc::SOL_IPV6, libc::IPV6_RECVERR, size_of::<libc::sockaddr_in6>()),
        };
        let notification =
            self.connection(fd).ok().and_then(|connection| connection.notifications.take()).ok_or(EAGAIN)?;
        // Nobody's address follows: the notification is this host's own.
        Ok(Control { level, kind, data: [&notification[..], &vec![0; address]].concat() })
    }

    /// `TCP_INQ`: how much there is still to read. The end counts as a byte.
    pub(crate) fn in_queue(&mut self, fd: i32) -> Option<Control> {
        if !self.has_option(fd, IPPROTO_TCP, libc::TCP_INQ) {
            return None;
        }
        let connection = self.connection(fd).ok()?;
        let left = connection.unread().max(connection.peer_fin.into());
        Some(Control { level: IPPROTO_TCP, kind: libc::TCP_CM_INQ, data: left.to_ne_bytes().to_vec() })
    }

    /// `getsockopt`: the value's bytes.
    pub fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>, Errno> {
        self.settle();
        let int = |value: i32| Ok(value.to_ne_bytes().to_vec());
        match (level, name) {
            (SOL_SOCKET, libc::SO_ERROR) => {
                let error = self.take_error(fd)?;
                int(error)
            }
            (SOL_SOCKET, libc::SO_TYPE) => int(libc::SOCK_STREAM),
            (SOL_SOCKET, libc::SO_ACCEPTCONN) => int(matches!(self.get(fd)?.kind, Kind::Listening { .. }).into()),
            (IPPROTO_TCP, libc::TCP_INFO) => match state(&self.get(fd)?.kind) {
                Some(state) => Ok(tcp_info(&FlowInfo { state, ..FlowInfo::default() })),
                None => Ok(tcp_info(&self.figures(fd)?)),
            },
            // No policy here has figures of its own; Linux gives no bytes then, too.
            (IPPROTO_TCP, libc::TCP_CC_INFO) => self.get(fd).map(|_| Vec::new()),
            (SOL_SOCKET, libc::SO_MEMINFO) => {
                self.get(fd)?;
                Ok(memory_info(self.buffered(fd).unwrap_or_default()))
            }
            (IPPROTO_TCP, libc::TCP_MAXSEG) => match self.figures(fd) {
                Ok(figures) => int(figures.mss.into()),
                Err(_) => int(self.get(fd)?.number_option(level, name).unwrap_or(536)),
            },
            (SOL_SOCKET, libc::SO_SNDBUF) if self.get(fd)?.number_option(level, name).is_some() => {
                int(self.get(fd)?.send_limit() as i32)
            }
            (SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) if self.get(fd)?.number_option(level, name).is_none() => {
                let [received, sent] = self.buffer_sizes(fd);
                int(if name == libc::SO_RCVBUF { received } else { sent } as i32)
            }
            (SOL_SOCKET | IPPROTO_TCP | libc::IPPROTO_IP, _) => {
                Ok(self.get(fd)?.options.get(&(level, name)).cloned().unwrap_or(vec![0; 4]))
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    /// Bytes that are buffered for reading and for sending, each with the size of its buffer; none where there is no
    /// connection.
    pub(crate) fn buffered(&mut self, fd: i32) -> Option<[(u32, u32); 2]> {
        let connection = self.connection(fd).ok()?;
        Some([(connection.unread(), connection.rx.most()), (connection.in_flight(), connection.tx.most())])
    }

    /// Bytes of the buffers for receiving and for sending that a connection has, or that one would have.
    fn buffer_sizes(&mut self, fd: i32) -> [u32; 2] {
        let geometry = self.stack.end.geometry;
        let ahead = [geometry.rx_len(0), geometry.tx_len(0)];
        self.connection(fd).map_or(ahead, |connection| [connection.rx.usual(), connection.tx.usual()])
    }

    /// A connection's figures.
    pub(crate) fn figures(&mut self, fd: i32) -> Result<context::FlowInfo, Errno> {
        let Kind::Open(slot) = self.get(fd)?.kind else { return Err(EOPNOTSUPP) };
        let tag = self.tag();
        match self.ask(tag, Request::Info { tag, slot })? {
            Reply::Info { info, .. } => Ok(info),
            _ => Err(EINVAL),
        }
    }

    /// `SO_ERROR`, which asking takes away.
    fn take_error(&mut self, fd: i32) -> Result<i32, Errno> {
        let socket = self.get(fd)?;
        if let Some(error) = socket.error.take() {
            return Ok(error);
        }
        let Kind::Open(slot) = socket.kind else { return Ok(0) };
        let connection = self.connections.get_mut(&slot.index);
        Ok(connection.and_then(|connection| connection.error.take()).unwrap_or(0))
    }
}

impl Socket {
    /// An option as a number, where it was set.
    pub(crate) fn number_option(&self, level: i32, name: i32) -> Option<i32> {
        self.options.get(&(level, name))?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
    }

    /// What may wait to be acknowledged: Linux takes twice what the program asks for, and never less than this.
    pub(crate) fn send_limit(&self) -> u32 {
        const LEAST: u32 = 4608;
        let set = self.number_option(libc::SOL_SOCKET, libc::SO_SNDBUF);
        set.map_or(u32::MAX, |set| (set as u32).saturating_mul(2).max(LEAST))
    }
}

/// The state of a socket without a connection, as Linux numbers them (`tcp_states.h`).
fn state(kind: &Kind) -> Option<u8> {
    match kind {
        Kind::Fresh | Kind::Bound { .. } | Kind::Dead => Some(7),
        Kind::Listening { .. } => Some(10),
        Kind::Connecting { .. } => Some(2),
        Kind::Open(_) => None,
    }
}

/// The nine words of `SO_MEMINFO` (`sock_diag.h`): memory for reading, its limit, for sending, its limit, ahead, queued
/// for sending, of options, backlog, drops.
fn memory_info([(unread, rx_size), (unacknowledged, tx_size)]: [(u32, u32); 2]) -> Vec<u8> {
    let words = [unread, rx_size, unacknowledged, tx_size, 0, unacknowledged, 0, 0, 0];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// In `tcpi_options`: data of the SYN was acknowledged with it.
const TCPI_OPT_SYN_DATA: u8 = 32;

/// `struct tcp_info` with the length that Linux 6.18 gives it; fields without a figure are zero.
fn tcp_info(figures: &FlowInfo) -> Vec<u8> {
    let mut bytes = vec![0; 280];
    (bytes[0], bytes[1]) = (figures.state, figures.ca_state);
    bytes[5] = if figures.syn_data { TCPI_OPT_SYN_DATA } else { 0 };
    let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    let mss = u32::from(figures.mss).max(1);
    put(16, mss);
    put(20, mss);
    put(24, figures.unacked.div_ceil(mss));
    put(68, figures.rtt_us);
    put(72, figures.rttvar_us);
    put(76, if figures.ssthresh == u32::MAX { i32::MAX as u32 } else { figures.ssthresh / mss });
    put(80, figures.cwnd / mss);
    put(84, mss);
    put(100, figures.retransmits);
    put(144, figures.unsent);
    put(192, figures.delivered());
    put(216, figures.dsack_dups);
    bytes[120..128].copy_from_slice(&figures.bytes_acked.to_ne_bytes());
    bytes[128..136].copy_from_slice(&figures.bytes_received.to_ne_bytes());
    bytes
}
