//! What a ZeroNIC control stack stands between, in the hands of an input: a transport, and a wire.
use port::{Capabilities, Checksum, Frame, FramePool, Nanos, Port, PortCounters, PortDrops};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use wire::checksum::Sum;
use wire::rewrite::Layers;
use wire::tcp::{self, Flags, Options};
use wire::{EtherType, Ipv4Tuple, Mac, Seq, ethernet, ipv4};
use zeronic::{InOrder, Room, Socket, Transport};

pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const THERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80);
/// The port of the first connection; each next one has the next.
pub(crate) const PORT: u16 = 1000;
/// What the program's sends have, and what a transport makes up.
pub(crate) const POSTED: u8 = 0xa5;
const DUMMY: u8 = 0xdd;

/// A TCP segment.
pub(crate) struct Segment {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// Bytes behind the other options, of which as many whole words count as fit.
    pub(crate) more: Vec<u8>,
    pub(crate) payload: usize,
}

impl Segment {
    /// The frame, with right checksums.
    pub(crate) fn frame(&self, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
        let Segment { seq, ack, flags, window, options, .. } = *self;
        let header = tcp::Header { src_port: from.port(), dst_port: to.port(), seq, ack, flags, window, options };
        let room = (tcp::MAX_HEADER_LEN - header.len()).min(self.more.len()) & !3;
        let header_len = header.len() + room;
        let mut bytes = vec![0; 34 + header.len()];
        ethernet::Header { src: Mac([2; 6]), dst: Mac([4; 6]), ethertype: EtherType::Ipv4 }.emit(&mut bytes);
        let len = header_len + self.payload;
        ipv4::Header::new(ipv4::TCP, (*from.ip(), *to.ip()), len as u16).emit(&mut bytes[14..]);
        header.emit(&mut bytes[34..]);
        bytes[34 + tcp::DATA_OFFSET_AT] = (header_len as u8 / 4) << 4;
        bytes.extend_from_slice(&self.more[..room]);
        bytes.resize(34 + len, DUMMY);
        let mut sum = Sum::pseudo_header(*from.ip(), *to.ip(), ipv4::TCP, len as u32);
        sum.add(&bytes[34..]);
        bytes[34 + tcp::CHECKSUM_AT..][..2].copy_from_slice(&sum.finish().to_be_bytes());
        bytes
    }
}

/// A transport that does what the input has.
#[derive(Default)]
pub(crate) struct Puppet {
    pub(crate) connections: u16,
    pub(crate) out: Vec<Vec<u8>>,
    pub(crate) in_order: InOrder,
    pub(crate) acknowledged: u64,
    pub(crate) takes: u64,
    pub(crate) dies: bool,
    pub(crate) accepts: VecDeque<(Socket, Ipv4Tuple)>,
}

impl Transport for Puppet {
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String> {
        self.connections += 1;
        let local_port = PORT + self.connections - 1;
        let tuple = Ipv4Tuple { local_ip: HERE, local_port, remote_ip: *remote.ip(), remote_port: remote.port() };
        Ok((Socket(self.connections.into()), tuple))
    }
    fn listen(&mut self, _: u16) -> Result<(), String> {
        Ok(())
    }
    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)> {
        self.accepts.pop_front()
    }
    fn send(&mut self, _: Socket, bytes: u64) -> Result<u64, String> {
        Ok(bytes.min(self.takes))
    }
    fn acknowledged(&mut self, _: Socket) -> u64 {
        self.acknowledged
    }
    fn in_order(&mut self, _: Socket) -> Result<InOrder, String> {
        if self.dies { Err("it died".into()) } else { Ok(std::mem::take(&mut self.in_order)) }
    }
    fn read(&mut self, _: Socket, into: &mut [u8]) -> Result<InOrder, String> {
        into.fill(DUMMY);
        if self.dies { Err("it died".into()) } else { Ok(std::mem::take(&mut self.in_order)) }
    }
    fn write(&mut self, _: Socket, _: &[u8]) -> Result<usize, String> {
        Ok(self.takes as usize)
    }
    fn end(&mut self, _: Socket) {}
    fn close(&mut self, _: Socket) {}
    fn headers_in(&mut self, _: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        frames.drain(..).for_each(|frame| pool.put(frame));
    }
    fn headers_out(&mut self, _: Nanos, _: Room, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        for bytes in self.out.drain(..) {
            let mut frame = pool.large();
            frame.bytes_vec().extend_from_slice(&bytes);
            into.push(frame);
        }
        into.len()
    }
}

/// A wire that gives what it is given, and looks at what is sent.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) coming: Vec<Vec<u8>>,
    /// Segments that left with bytes which nobody posted.
    pub(crate) made_up: usize,
}

impl Port for Line {
    fn name(&self) -> String {
        "line".into()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, super_segment: 0, checksum: false }
    }
    fn mac(&self) -> Mac {
        Mac([4; 6])
    }
    fn receive(&mut self, _: Nanos, _: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        for bytes in self.coming.drain(..) {
            let mut frame = pool.large();
            frame.bytes_vec().extend_from_slice(&bytes);
            into.push(frame);
        }
        into.len()
    }
    fn send(&mut self, _: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, _: &mut PortDrops) {
        for frame in frames.drain(..) {
            self.made_up += usize::from(!is_honest(&frame));
            pool.put(frame);
        }
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn has_work(&self, _: Nanos) -> bool {
        true
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

/// A segment that leaves has a right checksum; true where the program posted all of its payload.
fn is_honest(frame: &Frame) -> bool {
    let bytes = frame.bytes();
    let Some(at) = ethernet::payload_at(bytes, EtherType::Ipv4) else { return true };
    let Ok((ip, ip_len)) = ipv4::Header::parse(&bytes[at..], bytes.len() - at) else { return true };
    if ip.protocol != ipv4::TCP || ip.is_fragment {
        return true;
    }
    let Ok((_, header_len)) = tcp::Header::parse(&bytes[at + ip_len..]) else { return true };
    let payload = &bytes[at + ip_len + header_len..at + ip_len + usize::from(ip.payload_len)];
    if !payload.is_empty() {
        assert_eq!(frame.checksum, Checksum::Complete);
        assert!(Layers::of(bytes).is_some_and(|layers| layers.tcp_is_sound(bytes)), "a wrong checksum leaves");
    }
    payload.iter().all(|byte| *byte == POSTED)
}
