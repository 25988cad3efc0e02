//! Scripted transport and wire: a test makes them lie and forge, and reads what they got.
#![allow(dead_code, reason = "each test file uses its part")]
use crate::support::{DOMAIN, Plain, small_limits};
use port::{Capabilities, Checksum, Frame, FramePool, Nanos, Port, PortCounters, PortDrops};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use wire::checksum::Sum;
use wire::tcp::{self, Flags, Options};
use wire::{EtherType, Ipv4Tuple, Mac, Seq, ethernet, ipv4};
use zeronic::{Carries, Connection, Event, InOrder, Limits, Room, Shortage, Socket, Stack, Transport};

pub(crate) const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 1000);
pub(crate) const THERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80);
/// Where both streams begin: sequence numbers wrap soon.
pub(crate) const OURS: Seq = Seq(u32::MAX - 20);
pub(crate) const THEIRS: Seq = Seq(u32::MAX - 5);

const SYN_OPTIONS: Options = Options {
    mss: Some(1000),
    window_scale: Some(10),
    sack_permitted: false,
    timestamps: None,
    sack: [None; 4],
    fast_open: None,
};

/// The fields of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentSegment {
    pub seq: Seq,
    pub ack: Seq,
    pub flags: Flags,
    pub window: u16,
    pub options: Options,
    /// Bytes of an option for experiments, behind the others: a multiple of four.
    pub experiment: Vec<u8>,
    pub payload: Vec<u8>,
}

impl SentSegment {
    pub(crate) fn new(seq: Seq, ack: Seq, flags: Flags, payload: &[u8]) -> SentSegment {
        let (options, experiment) = (Options::default(), Vec::new());
        SentSegment { seq, ack, flags, window: 1000, options, experiment, payload: payload.to_vec() }
    }

    /// The whole frame, with right checksums.
    pub(crate) fn frame(&self, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
        let header = tcp::Header {
            src_port: from.port(),
            dst_port: to.port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            options: self.options,
        };
        let header_len = header.len() + self.experiment.len();
        let mut bytes = vec![0; 34 + header.len()];
        let (src, dst) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        ethernet::Header { src, dst, ethertype: EtherType::Ipv4 }.emit(&mut bytes);
        let len = (header_len + self.payload.len()) as u16;
        ipv4::Header::new(ipv4::TCP, (*from.ip(), *to.ip()), len).emit(&mut bytes[14..]);
        header.emit(&mut bytes[34..]);
        bytes[34 + tcp::DATA_OFFSET_AT] = (header_len as u8 / 4) << 4;
        bytes.extend_from_slice(&self.experiment);
        bytes.extend_from_slice(&self.payload);
        let mut sum = Sum::pseudo_header(*from.ip(), *to.ip(), ipv4::TCP, u32::from(len));
        sum.add(&bytes[34..]);
        bytes[34 + tcp::CHECKSUM_AT..][..2].copy_from_slice(&sum.finish().to_be_bytes());
        bytes
    }

    /// The fields of a frame. Payload by reference counts as so many zeros.
    pub(crate) fn of(frame: &Frame) -> Option<SentSegment> {
        let mut bytes = frame.bytes().to_vec();
        bytes.resize(frame.len(), 0);
        let (ip, ip_len) = ipv4::Header::parse(bytes.get(14..)?, bytes.len() - 14).ok()?;
        let (header, len) = tcp::Header::parse(&bytes[14 + ip_len..]).ok()?;
        let payload = bytes[14 + ip_len + len..14 + ip_len + usize::from(ip.payload_len)].to_vec();
        let tcp::Header { seq, ack, flags, window, options, .. } = header;
        // What is behind the options that have names.
        let experiment = bytes[34 + header.len()..14 + ip_len + len].to_vec();
        Some(SentSegment { seq, ack, flags, window, options, experiment, payload })
    }
}

/// A transport that follows a script.
#[derive(Default)]
pub(crate) struct Script {
    pub seen: Vec<SentSegment>,
    pub out: Vec<Vec<u8>>,
    pub in_order: InOrder,
    pub acknowledged: u64,
    pub taken: u64,
    pub dies: Option<String>,
    /// Connections that it accepts, and those that it was to close.
    /// What connections without a line read, and what they wrote.
    pub to_read: Vec<u8>,
    pub written: Vec<u8>,
    pub accepts: Vec<(Socket, Ipv4Tuple)>,
    pub closed: Vec<Socket>,
}

impl Transport for Script {
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String> {
        let (local_ip, local_port) = (*HERE.ip(), HERE.port());
        let tuple = Ipv4Tuple { local_ip, local_port, remote_ip: *remote.ip(), remote_port: remote.port() };
        Ok((Socket(0), tuple))
    }
    fn listen(&mut self, _: u16) -> Result<(), String> {
        Ok(())
    }
    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)> {
        self.accepts.pop()
    }
    fn send(&mut self, _: Socket, bytes: u64) -> Result<u64, String> {
        self.taken += bytes;
        Ok(bytes)
    }
    fn acknowledged(&mut self, _: Socket) -> u64 {
        self.acknowledged
    }
    fn in_order(&mut self, _: Socket) -> Result<InOrder, String> {
        self.dies.clone().map_or(Ok(std::mem::take(&mut self.in_order)), Err)
    }
    fn read(&mut self, _: Socket, into: &mut [u8]) -> Result<InOrder, String> {
        let count = into.len().min(self.to_read.len());
        into[..count].copy_from_slice(&self.to_read[..count]);
        self.to_read.drain(..count);
        let ended = self.in_order.ended && self.to_read.is_empty();
        self.dies.clone().map_or(Ok(InOrder { bytes: count as u64, ended }), Err)
    }
    fn write(&mut self, _: Socket, bytes: &[u8]) -> Result<usize, String> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn end(&mut self, _: Socket) {}
    fn close(&mut self, socket: Socket) {
        self.closed.push(socket);
    }
    fn headers_in(&mut self, _: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        for frame in frames.drain(..) {
            self.seen.extend(SentSegment::of(&frame));
            pool.put(frame);
        }
    }
    fn headers_out(&mut self, _: Nanos, _: Room, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        for bytes in self.out.drain(..) {
            let mut frame = pool.small();
            frame.bytes_vec().extend_from_slice(&bytes);
            into.push(frame);
        }
        into.len()
    }
}

/// A wire that gives what it is given, and keeps what is sent.
#[derive(Default)]
pub(crate) struct ScriptedWire {
    pub to_receive: Vec<Vec<u8>>,
    pub sent: Vec<SentSegment>,
}

impl Port for ScriptedWire {
    fn name(&self) -> String {
        "line".into()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, super_segment: 0, checksum: false }
    }
    fn mac(&self) -> Mac {
        Mac([2, 0, 0, 0, 0, 1])
    }
    fn receive(&mut self, _: Nanos, _: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        for bytes in self.to_receive.drain(..) {
            let mut frame = pool.small();
            frame.bytes_vec().extend_from_slice(&bytes);
            into.push(frame);
        }
        into.len()
    }
    fn send(&mut self, _: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, _: &mut PortDrops) {
        for frame in frames.drain(..) {
            assert_eq!(frame.checksum, Checksum::Complete);
            let layers = wire::rewrite::Layers::of(frame.bytes()).unwrap();
            assert!(layers.tcp_is_sound(frame.bytes()), "a wrong checksum leaves: {:?}", SentSegment::of(&frame));
            self.sent.extend(SentSegment::of(&frame));
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

/// A stack with one connection, whose SYNs have passed.
pub(crate) struct Scene {
    pub stack: Stack<Script, Plain>,
    pub line: ScriptedWire,
    pub connection: Connection,
    pub now: Nanos,
}

impl Scene {
    pub(crate) fn new(shortage: Shortage) -> Scene {
        let mut scene = Scene::begun(shortage, Carries::Stream);
        scene.answered(&[]);
        let syn = scene.line.sent.pop().unwrap();
        assert_eq!((syn.options.window_scale, syn.window), (Some(6), 0), "nothing is posted yet");
        assert!(syn.experiment.is_empty(), "streams need no agreement");
        scene.stack.transport().seen.clear();
        scene
    }

    /// The SYN has passed, and no answer has come.
    pub(crate) fn begun(shortage: Shortage, carries: Carries) -> Scene {
        Scene::with(small_limits(), shortage, carries)
    }

    /// The flow table has no line for the connection.
    pub(crate) fn without_line() -> Scene {
        let mut scene = Scene::begun_without_line(Carries::Stream);
        scene.answered(&[]);
        scene.line.sent.clear();
        scene.stack.transport().seen.clear();
        scene
    }

    /// The same as of [`Scene::begun`].
    pub(crate) fn begun_without_line(carries: Carries) -> Scene {
        Scene::with(Limits { flows: 0, ..small_limits() }, Shortage::Drop, carries)
    }

    fn with(limits: Limits, shortage: Shortage, carries: Carries) -> Scene {
        let pool = FramePool::new(64);
        let mut stack = Stack::new(Script::default(), Plain::new(), limits, shortage, pool).unwrap();
        let connection = stack.connect(THERE, DOMAIN, carries).unwrap();
        let mut scene = Scene { stack, line: ScriptedWire::default(), connection, now: 1 };
        scene.transport_sends(&[SentSegment {
            options: SYN_OPTIONS,
            ..SentSegment::new(OURS - 1u32, Seq(0), Flags::SYN, &[])
        }]);
        scene
    }

    /// The peer's SYN comes, with this option for experiments.
    pub(crate) fn answered(&mut self, experiment: &[u8]) {
        let answer = SentSegment::new(THEIRS - 1u32, OURS, Flags::SYN | Flags::ACK, &[]);
        self.peer_sends(&[SentSegment { options: SYN_OPTIONS, experiment: experiment.to_vec(), ..answer }]);
    }

    pub(crate) fn poll(&mut self) {
        self.now += 1_000;
        self.stack.poll(self.now, &mut self.line, &mut PortDrops::default());
    }

    /// Frames come from the peer.
    pub(crate) fn peer_sends(&mut self, segments: &[SentSegment]) {
        self.line.to_receive = segments.iter().map(|segment| segment.frame(THERE, HERE)).collect();
        self.poll();
    }

    /// The transport sends headers; their payload is dummy.
    pub(crate) fn transport_sends(&mut self, segments: &[SentSegment]) {
        self.stack.transport().out = segments.iter().map(|segment| segment.frame(HERE, THERE)).collect();
        self.poll();
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.stack.next_event()).collect()
    }

    /// What the transport has seen since the last call.
    pub(crate) fn seen(&mut self) -> Vec<SentSegment> {
        std::mem::take(&mut self.stack.transport().seen)
    }
}
