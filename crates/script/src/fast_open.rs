//! Data that goes with a SYN (TCP Fast Open, RFC 7413), as `libtoe` has it: `MSG_FASTOPEN` and `TCP_FASTOPEN_CONNECT`.
use crate::early::{Early, OF_LISTENERS};
use crate::instance::Instance;
use crate::memory::Destination;
use crate::sockets::{Errno, Kind, Sockets};
use context::{Completion, EarlyData, FastOpenKeys, Request, Slot};
use libc::{EAGAIN, EALREADY, EINPROGRESS, ENOMEM, EOPNOTSUPP, IPPROTO_TCP, c_int};

impl Sockets {
    /// What the control plane is asked for by the program's call, or by `TCP_FASTOPEN_CONNECT`.
    pub(crate) fn early_data(&self, fd: i32, asked: bool) -> EarlyData {
        let Some(socket) = self.table.get(&fd) else { return EarlyData::No };
        let is_set = |name| socket.options.get(&(IPPROTO_TCP, name)).is_some_and(|value| value.first() == Some(&1));
        let without_cookie = is_set(libc::TCP_FASTOPEN_NO_COOKIE) || self.fast_open.client_without_cookie();
        match (asked || is_set(libc::TCP_FASTOPEN_CONNECT), without_cookie) {
            (false, _) => EarlyData::No,
            (true, false) => EarlyData::WithCookie,
            (true, true) => EarlyData::WithoutCookie,
        }
    }

    /// Its SYN waits for data.
    pub(crate) fn awaits_data(&self, fd: i32) -> bool {
        self.table
            .get(&fd)
            .is_some_and(|socket| matches!(socket.kind, Kind::Connecting { early: Early::Awaited(..), .. }))
    }

    /// Puts the first bytes where the transmit stream begins, and lets the SYN go. A call that waits for the connection
    /// gives all that the buffer holds, any other what goes with the SYN.
    pub(crate) fn give_early(&mut self, fd: i32, bytes: &[u8], waits: bool) -> Result<usize, Errno> {
        let Kind::Connecting { tag, early } = self.get(fd)?.kind else { return Err(EALREADY) };
        let Early::Awaited(slot, room) = early else { return Err(EAGAIN) };
        let (_, tx) = self.stack.end.map_buffers(slot).map_err(|_| ENOMEM)?;
        let len = bytes.len().min(if waits { tx.size() as usize } else { room.into() });
        if let Kind::Connecting { early, .. } = &mut self.get(fd)?.kind {
            *early = Early::Written(len as u32, false);
        }
        tx.write(0, &bytes[..len]);
        self.send(Request::SynData { tag, len: len as u32 });
        self.settle();
        Ok(len)
    }

    /// The connection is open: what was written for its SYN counts, and so much of it is acknowledged.
    pub(crate) fn count_early(&mut self, slot: Slot, early: Early, acknowledged: u16) {
        let Early::Written(written @ 1.., notification) = early else { return };
        if let Some(connection) = self.connections.get_mut(&slot.index) {
            connection.tx_head = written;
            if notification {
                connection.notifications.sent(written);
            }
            let tx_tail = acknowledged.into();
            connection.apply(Completion { slot, rx_tail: 0, tx_tail, fin: false, ring: 0, urgent: false });
        }
        self.bump(slot.index);
    }

    /// `TCP_MAXSEG` of a listener.
    pub(crate) fn send_segment_size(&mut self, fd: i32) -> Result<(), Errno> {
        let socket = self.get(fd)?;
        let size = socket.number_option(IPPROTO_TCP, libc::TCP_MAXSEG);
        if let (Kind::Listening { binding, .. }, Some(size)) = (&socket.kind, size) {
            let (binding, mss) = (*binding, size.clamp(0, u16::MAX.into()) as u16);
            self.send(Request::SegmentSize { binding, mss });
            self.settle();
        }
        Ok(())
    }

    /// Sends the control plane the options of Fast Open, once the socket listens.
    pub(crate) fn send_fast_open(&mut self, fd: i32) -> Result<(), Errno> {
        let fast_open = self.fast_open;
        let socket = self.get(fd)?;
        let Kind::Listening { binding, backlog, .. } = socket.kind else { return Ok(()) };
        let values = OF_LISTENERS.map(|name| socket.options.get(&(IPPROTO_TCP, name)).cloned().unwrap_or_default());
        let number = |value: &[u8]| value.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        let key = |at: usize| values[1].get(at..at + 16).and_then(|key| key.try_into().ok());
        let asked = number(&values[0]).max(0) as u32;
        let most = if asked == 0 && fast_open.every_listener() { backlog } else { asked };
        let no_cookie = number(&values[2]) != 0 || fast_open.listener_without_cookie();
        let keys = FastOpenKeys { primary: key(0).or(fast_open.key), backup: key(16) };
        self.send(Request::FastOpen { binding, most, keys, no_cookie });
        self.settle();
        Ok(())
    }
}

impl Instance {
    /// `sendto` and `sendmsg` with an address: with `MSG_FASTOPEN`, the bytes go with the SYN as far as they fit.
    pub(crate) fn send_to(&self, fd: c_int, bytes: &[u8], flags: c_int, to: Destination) -> Result<usize, Errno> {
        let to = match to {
            Destination::Unspecified if flags & libc::MSG_FASTOPEN != 0 => return Err(EOPNOTSUPP),
            // As in Linux, where the host forbids clients to send data with their SYN.
            Destination::To(_)
                if flags & libc::MSG_FASTOPEN != 0 && !self.at_once(|sockets| Ok(sockets.fast_open.client()))? =>
            {
                return Err(EOPNOTSUPP);
            }
            Destination::To(to) if flags & libc::MSG_FASTOPEN != 0 => to,
            _ => return self.write_all(fd, bytes, flags),
        };
        // A SYN that waits for data since `connect` gets it (`TCP_FASTOPEN_CONNECT`).
        let begun = |sockets: &mut Sockets| match sockets.get(fd)?.kind {
            Kind::Open(_) | Kind::Connecting { early: Early::Awaited(..), .. } => Ok(true),
            _ => Ok(false),
        };
        if self.at_once(begun)? {
            return self.write_all(fd, bytes, flags);
        }
        let waits = |sockets: &Sockets| sockets.blocks(fd) && flags & libc::MSG_DONTWAIT == 0;
        let begun = self.at_once(|sockets| {
            let early = sockets.early_data(fd, true);
            sockets.connect_with(fd, to, early)
        });
        match begun {
            Ok(()) => {}
            Err(EINPROGRESS) if self.at_once(|sockets| Ok(waits(sockets))) == Ok(true) => {
                self.call(None, |_| true, |sockets| sockets.connect_result(fd))?;
            }
            Err(error) => return Err(error),
        }
        self.write_all(fd, bytes, flags)
    }
}
