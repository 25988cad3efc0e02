//! Packet scripts in Rust: a peer whose segments are made and expected one by one, and socket calls. All of them go
//! through the table that the library fills for a packet-script runner. Sequence numbers are relative to each side's
//! first one, as people write them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::{CString, c_int};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toe_script::{Interface, packetdrill_interface_init};
use wire::checksum::Sum;
use wire::ip::{self, Ends};
use wire::tcp::{self, Cookie, Flags, Timestamps};
use wire::{EtherType, IpAddress, Seq, ipv4, tcp::Options};

pub(crate) const FIN: Flags = Flags::FIN;
pub(crate) const SYN: Flags = Flags::SYN;
pub(crate) const RST: Flags = Flags::RST;
pub(crate) const PSH: Flags = Flags::PSH;
pub(crate) const ACK: Flags = Flags::ACK;
pub(crate) const ECE: Flags = Flags::ECE;
pub(crate) const CWR: Flags = Flags::CWR;

const LOCAL: IpAddress = IpAddress::v4(Ipv4Addr::new(192, 168, 0, 2));
const REMOTE: IpAddress = IpAddress::v4(Ipv4Addr::new(192, 0, 2, 1));
const LOCAL6: IpAddress = IpAddress::v6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2), 0);
const REMOTE6: IpAddress = IpAddress::v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 0);
/// The peer's first sequence number.
const PEER_ISN: u32 = 0xffff_ff00;

/// A segment with relative numbers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Segment {
    pub flags: Flags,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub mss: Option<u16>,
    /// SACK is permitted; on SYN.
    pub sack_ok: bool,
    /// Fast Open's option; on SYN.
    pub fast_open: Option<Cookie>,
    /// It has timestamps.
    pub timestamps: bool,
    /// Of the host: it has PSH, which is not among the flags.
    pub pushes: bool,
    /// SACK blocks, at most three.
    pub sack: Vec<(u32, u32)>,
    pub payload: Vec<u8>,
}

/// A segment of the peer, or one that is expected of the host: flags, sequence number, acknowledgement.
pub(crate) fn segment(flags: Flags, seq: u32, ack: u32) -> Segment {
    Segment {
        flags,
        seq,
        ack,
        window: 65_535,
        mss: None,
        sack_ok: false,
        fast_open: None,
        timestamps: false,
        pushes: false,
        sack: Vec::new(),
        payload: Vec::new(),
    }
}

impl Segment {
    pub(crate) fn window(self, window: u16) -> Segment {
        Segment { window, ..self }
    }
    pub(crate) fn mss(self, mss: u16) -> Segment {
        Segment { mss: Some(mss), ..self }
    }
    pub(crate) fn fast_open(self, cookie: Option<Cookie>) -> Segment {
        Segment { fast_open: cookie, ..self }
    }
    pub(crate) fn timestamps(self) -> Segment {
        Segment { timestamps: true, ..self }
    }
    pub(crate) fn sack_ok(self) -> Segment {
        Segment { sack_ok: true, ..self }
    }
    pub(crate) fn sack(self, sack: &[(u32, u32)]) -> Segment {
        Segment { sack: sack.to_vec(), ..self }
    }
    pub(crate) fn payload(self, payload: &[u8]) -> Segment {
        Segment { payload: payload.to_vec(), ..self }
    }
}

/// A runner with one peer.
pub(crate) struct Script {
    table: Interface,
    /// Addresses are of IPv6.
    is_v6: bool,
    peer_port: u16,
    local_port: u16,
    /// The host's first sequence number, once it was seen.
    isn: Option<u32>,
    /// Nothing may have been sent before this time, microseconds.
    quiet_until: i64,
    /// When the segment that came last was sent.
    pub at_us: i64,
}

// SAFETY: the table's functions may be called from any thread.
unsafe impl Send for Script {}
// SAFETY: as above; the other fields are plain values.
unsafe impl Sync for Script {}

impl Drop for Script {
    fn drop(&mut self) {
        // SAFETY: the value is the table's own, and nothing is called after this.
        unsafe { (self.table.free)(self.table.userdata) };
    }
}

macro_rules! call {
    ($script:ident . $name:ident ( $($argument:expr),* )) => {
        // SAFETY: the value is the table's own; the pointers of each call lead to locals.
        checked(unsafe { ($script.table.$name)($script.table.userdata, $($argument),*) } as isize)
    };
}

/// An ancillary message: level, type, data.
pub(crate) type Ancillary = Option<(c_int, c_int, Vec<u8>)>;

/// The error number where a call failed.
fn checked(result: isize) -> Result<usize, c_int> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
}

/// An address as C has it.
fn address(ip: IpAddress, port: u16) -> Vec<u8> {
    let family = if ip.is_v4() { libc::AF_INET } else { libc::AF_INET6 };
    let begin = [(family as u16).to_ne_bytes(), port.to_be_bytes()].concat();
    match ip.ip() {
        IpAddr::V4(ip) => [&begin[..], &ip.octets(), &[0; 8]].concat(),
        IpAddr::V6(ip) => [&begin[..], &[0; 4], &ip.octets(), &[0; 4]].concat(),
    }
}

/// Runs a script on FlexTOE, on one thread and with modules of their own threads.
pub(crate) fn on_flextoe(flags: &str, script: impl Fn(&mut Script)) {
    for engine in ["flextoe", "threads"] {
        script(&mut Script::new(&format!("engine={engine},{flags}"), false));
    }
}

/// Runs a script on each engine and mapping, over both versions of IP.
pub(crate) fn on_all(flags: &str, script: impl Fn(&mut Script)) {
    for engine in ["flextoe", "threads", "laminar"] {
        for is_v6 in [false, true] {
            let flags = format!("engine={engine},{flags}");
            println!("{flags}, IPv{}", if is_v6 { 6 } else { 4 });
            script(&mut Script::new(&flags, is_v6));
        }
    }
}

impl Script {
    pub(crate) fn new(flags: &str, is_v6: bool) -> Script {
        let mut table = MaybeUninit::uninit();
        let flags = CString::new(flags).unwrap();
        // SAFETY: a string that ends with 0, and room for a table, which is filled.
        let table = unsafe {
            packetdrill_interface_init(flags.as_ptr(), table.as_mut_ptr());
            table.assume_init()
        };
        Script { table, is_v6, peer_port: 40_000, local_port: 8080, isn: None, quiet_until: 0, at_us: 0 }
    }

    /// Another one that makes calls at the same host, as it is to the peer at present.
    pub(crate) fn twin(&self) -> ManuallyDrop<Script> {
        let Script { table, is_v6, peer_port, local_port, isn, quiet_until, at_us } = *self;
        ManuallyDrop::new(Script { table, is_v6, peer_port, local_port, isn, quiet_until, at_us })
    }

    /// Addresses of the peer's packets.
    fn ends(&self) -> Ends {
        match self.is_v6 {
            true => Ends { src: REMOTE6, dst: LOCAL6 },
            false => Ends { src: REMOTE, dst: LOCAL },
        }
    }

    /// The segment size that fills a packet of the host's MTU.
    pub(crate) fn largest_mss(&self) -> u16 {
        if self.is_v6 { 1440 } else { 1460 }
    }

    // Socket calls.

    pub(crate) fn socket(&self) -> c_int {
        let family = if self.is_v6 { libc::AF_INET6 } else { libc::AF_INET };
        call!(self.socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)).unwrap() as c_int
    }

    pub(crate) fn listen(&self) -> c_int {
        let fd = self.socket();
        self.bind(fd);
        call!(self.listen(fd, 8)).unwrap();
        fd
    }

    pub(crate) fn accept(&self, fd: c_int) -> Result<c_int, c_int> {
        let accepted = call!(self.accept(fd, std::ptr::null_mut(), std::ptr::null_mut()))? as c_int;
        self.set_blocking(accepted, false);
        Ok(accepted)
    }

    pub(crate) fn set_blocking(&self, fd: c_int, blocking: bool) {
        let flags = if blocking { 0 } else { libc::O_NONBLOCK };
        call!(self.fcntl(fd, libc::F_SETFL, flags.into())).unwrap();
    }

    /// Connects from a local port of its own, to the peer's port 80.
    pub(crate) fn connect(&mut self) -> (c_int, Result<usize, c_int>) {
        let fd = self.socket();
        (self.peer_port, self.isn) = (80, None);
        self.bind(fd);
        (fd, self.connect_again(fd))
    }

    /// A client that is to connect from the next local port, to the peer's port 80.
    pub(crate) fn next_client(&mut self) -> c_int {
        let fd = self.socket();
        (self.peer_port, self.local_port, self.isn) = (80, self.local_port + 1, None);
        self.bind(fd);
        fd
    }

    /// Connects with the first bytes (`MSG_FASTOPEN`).
    pub(crate) fn send_early(&self, fd: c_int, bytes: &[u8]) -> Result<usize, c_int> {
        self.send_early_with(fd, bytes, 0)
    }

    /// The same with other flags besides.
    pub(crate) fn send_early_with(&self, fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, c_int> {
        let to = address(self.ends().src, self.peer_port);
        let (at, len) = (to.as_ptr().cast(), to.len() as u32);
        call!(self.sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_FASTOPEN, at, len))
    }

    /// The same with no address at all (`AF_UNSPEC`).
    pub(crate) fn send_early_nowhere(&self, fd: c_int) -> Result<usize, c_int> {
        let to = [0u8; 16];
        call!(self.sendto(fd, to.as_ptr().cast(), 1, libc::MSG_FASTOPEN, to.as_ptr().cast(), 16))
    }

    /// Binds to the host's address.
    pub(crate) fn bind(&self, fd: c_int) {
        let to = address(self.ends().dst, self.local_port);
        call!(self.bind(fd, to.as_ptr().cast(), to.len() as u32)).unwrap();
    }

    pub(crate) fn connect_again(&self, fd: c_int) -> Result<usize, c_int> {
        let to = address(self.ends().src, self.peer_port);
        call!(self.connect(fd, to.as_ptr().cast(), to.len() as u32))
    }

    pub(crate) fn write(&self, fd: c_int, bytes: &[u8]) -> Result<usize, c_int> {
        call!(self.write(fd, bytes.as_ptr().cast(), bytes.len()))
    }

    pub(crate) fn send_with(&self, fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, c_int> {
        call!(self.send(fd, bytes.as_ptr().cast(), bytes.len(), flags))
    }

    /// `recvmsg` of at most so many bytes: what it returns, and its ancillary message (level, type, data).
    pub(crate) fn receive_message(&self, fd: c_int, most: usize, flags: c_int) -> Result<(usize, Ancillary), c_int> {
        let (mut bytes, mut control) = (vec![0u8; most], [0u64; 16]);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: most };
        // SAFETY: zeros are a message without parts.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
        let received = call!(self.recvmsg(fd, &mut message, flags))?;
        assert_eq!(message.msg_flags, flags & libc::MSG_ERRQUEUE);
        // SAFETY: the library has filled it, and returns how far.
        let found = unsafe {
            libc::CMSG_FIRSTHDR(&message).as_ref().map(|header| {
                let len = header.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), len).to_vec();
                (header.cmsg_level, header.cmsg_type, data)
            })
        };
        Ok((received, found))
    }

    pub(crate) fn epoll(&self) -> c_int {
        call!(self.epoll_create(1)).unwrap() as c_int
    }

    /// Asks for events of a descriptor, which is the data as well.
    pub(crate) fn epoll_control(&self, set: c_int, operation: c_int, fd: c_int, events: c_int) -> Result<usize, c_int> {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
        call!(self.epoll_ctl(set, operation, fd, &mut event))
    }

    /// Waits for so many milliseconds; events and data of each.
    pub(crate) fn epoll_wait(&self, set: c_int, timeout: c_int) -> Vec<(c_int, c_int)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let count = call!(self.epoll_wait(set, events.as_mut_ptr(), 4, timeout)).unwrap();
        events[..count].iter().map(|event| (event.events as c_int, event.u64 as c_int)).collect()
    }

    pub(crate) fn read(&self, fd: c_int) -> Result<Vec<u8>, c_int> {
        self.read_some(fd, 100_000)
    }

    pub(crate) fn read_some(&self, fd: c_int, most: usize) -> Result<Vec<u8>, c_int> {
        let mut bytes = vec![0; most];
        let len = call!(self.read(fd, bytes.as_mut_ptr().cast(), bytes.len()))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    pub(crate) fn shutdown(&self, fd: c_int, how: c_int) -> Result<usize, c_int> {
        call!(self.shutdown(fd, how))
    }

    pub(crate) fn close(&self, fd: c_int) {
        call!(self.close(fd)).unwrap();
    }

    pub(crate) fn set(&self, fd: c_int, level: c_int, name: c_int, value: &[c_int]) {
        self.try_set(fd, level, name, value).unwrap();
    }

    pub(crate) fn try_set(&self, fd: c_int, level: c_int, name: c_int, value: &[c_int]) -> Result<usize, c_int> {
        let len = size_of_val(value) as u32;
        call!(self.setsockopt(fd, level, name, value.as_ptr().cast(), len))
    }

    pub(crate) fn get(&self, fd: c_int, level: c_int, name: c_int) -> c_int {
        let (mut value, mut len) = (0, 4);
        call!(self.getsockopt(fd, level, name, (&raw mut value).cast(), &mut len)).unwrap();
        value
    }

    /// What the process' `getsockopt` returns: the value's bytes.
    pub(crate) fn libc_get(fd: c_int, level: c_int, name: c_int) -> Vec<u8> {
        let (mut value, mut len) = (vec![0u8; 256], 256);
        // SAFETY: there is room for as many bytes as `len` states.
        let result = unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) };
        checked(result as isize).unwrap();
        value.truncate(len as usize);
        value
    }

    /// Waits for these events for so many milliseconds; what there is of them.
    pub(crate) fn poll_for(&self, fd: c_int, events: i16, timeout: c_int) -> i16 {
        let mut one = libc::pollfd { fd, events, revents: 0 };
        call!(self.poll(&mut one, 1, timeout)).unwrap();
        one.revents
    }

    pub(crate) fn poll(&self, fd: c_int) -> i16 {
        let mut one = libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP, revents: 0 };
        call!(self.poll(&mut one, 1, 0)).unwrap();
        one.revents
    }

    // Time.

    pub(crate) fn now_us(&self) -> i64 {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        call!(self.gettimeofday(&mut time, std::ptr::null_mut())).unwrap();
        time.tv_sec * 1_000_000 + time.tv_usec
    }

    pub(crate) fn sleep_ms(&self, ms: u32) {
        call!(self.usleep(ms * 1000)).unwrap();
    }

    /// The host sends nothing for so long.
    pub(crate) fn silence(&mut self, ms: u32) {
        self.sleep_ms(ms);
        self.quiet_until = self.now_us();
    }

    // The peer.

    /// Begins a new connection of the peer, from another port.
    pub(crate) fn next_peer(&mut self) {
        (self.peer_port, self.isn) = (self.peer_port + 1, None);
    }

    /// The peer sends a segment.
    pub(crate) fn send(&self, segment: Segment) {
        let own = |relative| Seq(self.isn.unwrap_or(0).wrapping_add(relative));
        let header = tcp::Header {
            src_port: self.peer_port,
            dst_port: self.local_port,
            seq: Seq(PEER_ISN.wrapping_add(segment.seq)),
            ack: Seq(if segment.flags.has(ACK) { self.isn.unwrap_or(0).wrapping_add(segment.ack) } else { 0 }),
            flags: segment.flags,
            window: segment.window,
            options: Options {
                mss: segment.mss,
                sack_permitted: segment.sack_ok,
                fast_open: segment.fast_open,
                timestamps: segment.timestamps.then_some(Timestamps { value: 1, echo: 0 }),
                sack: [0, 1, 2, 3].map(|at| segment.sack.get(at).map(|(left, right)| (own(*left), own(*right)))),
                ..Options::default()
            },
        };
        let ends = self.ends();
        let begin = ip::header_len(ends.dst);
        let mut bytes = vec![0; begin + header.len() + segment.payload.len()];
        let len = header.emit(&mut bytes[begin..]);
        bytes[begin + len..].copy_from_slice(&segment.payload);
        let mut sum = Sum::pseudo_header(ends.src, ends.dst, ipv4::TCP, (len + segment.payload.len()) as u32);
        sum.add(&bytes[begin..]);
        let (at, checksum) = (begin + tcp::CHECKSUM_AT, sum.finish());
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        ip::emit(ipv4::TCP, ends, 64, &mut bytes).unwrap();
        call!(self.netdev_send(bytes.as_ptr().cast(), bytes.len())).unwrap();
    }

    /// What the host sends next; time passes until it does.
    pub(crate) fn next(&mut self) -> Segment {
        let (mut bytes, mut at) = (vec![0; 1 << 16], 0);
        let mut len = bytes.len();
        call!(self.netdev_receive(bytes.as_mut_ptr().cast(), &mut len, &mut at)).unwrap();
        assert!(len > 0, "the host sends nothing any more");
        assert!(at >= self.quiet_until, "the host has sent something where it should be silent");
        self.at_us = at;
        let ethertype = if self.is_v6 { EtherType::Ipv6 } else { EtherType::Ipv4 };
        let (ip, ip_len) = ip::Header::parse(ethertype, &bytes, len).unwrap();
        assert_eq!((Ends { src: ip.dst, dst: ip.src }, ip.protocol), (self.ends(), ipv4::TCP));
        let (header, header_len) = tcp::Header::parse(&bytes[ip_len..len]).unwrap();
        let mut sum = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, ip.payload_len.into());
        sum.add(&bytes[ip_len..len]);
        assert_eq!(sum.finish(), 0, "the checksum is wrong");
        assert_eq!((header.src_port, header.dst_port), (self.local_port, self.peer_port));
        if header.flags.has(SYN) {
            self.isn = Some(header.seq.0);
        }
        let theirs = |number: Seq| number.0.wrapping_sub(PEER_ISN);
        Segment {
            flags: Flags(header.flags.0 & !PSH.0),
            seq: header.seq.0.wrapping_sub(self.isn.unwrap_or(0)),
            ack: if header.flags.has(ACK) { header.ack.0.wrapping_sub(PEER_ISN) } else { 0 },
            window: header.window,
            mss: header.options.mss,
            sack_ok: header.options.sack_permitted,
            fast_open: header.options.fast_open,
            timestamps: header.options.timestamps.is_some(),
            pushes: header.flags.has(PSH),
            sack: header.options.sack.iter().flatten().map(|(left, right)| (theirs(*left), theirs(*right))).collect(),
            payload: bytes[ip_len + header_len..len].to_vec(),
        }
    }

    /// The host sends this next: flags but PSH, numbers and payload are compared. Gives what it sent.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: Segment) -> Segment {
        let found = self.next();
        let part = |s: &Segment| (s.flags, s.seq, s.ack, s.payload.clone());
        assert_eq!(part(&found), part(&expected));
        found
    }

    /// The peer opens a connection: handshake and `accept`.
    pub(crate) fn establish(&mut self, listener: c_int) -> c_int {
        self.establish_with(segment(SYN, 0, 0).mss(1000), listener)
    }

    /// The same with a SYN that permits SACK.
    pub(crate) fn establish_with_sack(&mut self, listener: c_int) -> c_int {
        self.establish_over(listener, 0)
    }

    /// The same over a path with round trips of so many milliseconds.
    pub(crate) fn establish_over(&mut self, listener: c_int, round_trip: u32) -> c_int {
        self.send(segment(SYN, 0, 0).mss(1000).sack_ok());
        self.finish_handshake(listener, round_trip)
    }

    fn establish_with(&mut self, syn: Segment, listener: c_int) -> c_int {
        self.send(syn);
        self.finish_handshake(listener, 0)
    }

    fn finish_handshake(&mut self, listener: c_int, round_trip: u32) -> c_int {
        self.expect(segment(SYN | ACK, 0, 1));
        if round_trip > 0 {
            self.sleep_ms(round_trip);
        }
        self.send(segment(ACK, 1, 1));
        self.accept(listener).unwrap()
    }
}
