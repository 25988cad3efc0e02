//! Transport interface of the control stack: TCP on headers. Payload bytes are counted, never read.
use engine::DropCounts;
use port::{Frame, FramePool, TcpPorts};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::{Ipv4Tuple, Mac, Nanos};

/// A connection of a transport's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Socket(pub u32);

/// A transport's report of the incoming stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InOrder {
    /// Bytes that are in order now and were not before.
    pub bytes: u64,
    /// No more will come.
    pub ended: bool,
}

/// Limit of one round's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Frames.
    pub frames: usize,
    /// Bytes of them with their payload, unless the first one has more.
    pub bytes: usize,
}

/// Where frames for an address go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// Hardware addresses: this host's, and the next hop's.
    Known([Mac; 2]),
    /// The next hop is asked for: it may be known later.
    Asked,
    /// There is no route.
    None,
}

/// A transport works on headers: frames that it takes and makes have the lengths of real ones, with dummy payload.
/// Those of connections that [`Transport::read`] and [`Transport::write`] are called for have their own.
pub trait Transport {
    /// Begins to connect to an address and port; the tuple has this host's port.
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String>;
    /// Begins to accept connections to a port.
    fn listen(&mut self, port: u16) -> Result<(), String>;
    /// A connection that was accepted, where there is one.
    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)>;
    /// Takes over up to `bytes` more bytes of the outgoing stream; returns how many. It sends them when its congestion
    /// and flow control allow.
    fn send(&mut self, socket: Socket, bytes: u64) -> Result<u64, String>;
    /// Bytes of the outgoing stream that the peer has acknowledged, from the first one on.
    fn acknowledged(&mut self, socket: Socket) -> u64;
    /// What came in order since the last call.
    fn in_order(&mut self, socket: Socket) -> Result<InOrder, String>;
    /// Copies bytes of the incoming stream that are in order, of a connection without a line in the flow table: its
    /// frames have their payload. With no room, reports only whether the stream has ended.
    fn read(&mut self, socket: Socket, into: &mut [u8]) -> Result<InOrder, String>;
    /// The same of the outgoing stream: takes over up to all of these bytes; returns how many. No connection uses both
    /// this and [`Transport::send`].
    fn write(&mut self, socket: Socket, bytes: &[u8]) -> Result<usize, String>;
    /// The outgoing stream ends behind what was sent.
    fn end(&mut self, socket: Socket);
    /// Forgets a connection. One whose streams have not ended, or with bytes that the peer does not have, is reset.
    fn close(&mut self, socket: Socket);
    /// Frames come in, without their payload: each has its length in its headers.
    fn headers_in(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool);
    /// Appends frames that are to go out, without payload, as far as there is room; returns how many.
    fn headers_out(&mut self, now: Nanos, room: Room, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize;
    /// Another stack has the same address from now on. Without this, what is sent to the own address stays here.
    fn share_ports(&mut self, _ports: &Arc<TcpPorts>) {}
    /// This host's address towards another one: where the transport finds next hops for datagrams.
    fn source_of(&self, _remote: Ipv4Addr) -> Option<Ipv4Addr> {
        None
    }
    /// The next hop to an address. Where it is not known, it is asked for.
    fn next_hop(&mut self, _now: Nanos, _remote: Ipv4Addr) -> NextHop {
        NextHop::None
    }
    /// A descriptor that becomes readable when it has frames that are to go out, where there is one: for sleeping.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// What it dropped, by reason.
    fn drops(&self) -> DropCounts {
        DropCounts::default()
    }
    /// When something is due by itself, where it gets the time by [`Transport::headers_out`].
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
}

/// Which transport decides may be chosen when a program runs.
impl<T: Transport + ?Sized> Transport for Box<T> {
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String> {
        (**self).connect(remote)
    }
    fn listen(&mut self, port: u16) -> Result<(), String> {
        (**self).listen(port)
    }
    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)> {
        (**self).accept()
    }
    fn send(&mut self, socket: Socket, bytes: u64) -> Result<u64, String> {
        (**self).send(socket, bytes)
    }
    fn acknowledged(&mut self, socket: Socket) -> u64 {
        (**self).acknowledged(socket)
    }
    fn in_order(&mut self, socket: Socket) -> Result<InOrder, String> {
        (**self).in_order(socket)
    }
    fn read(&mut self, socket: Socket, into: &mut [u8]) -> Result<InOrder, String> {
        (**self).read(socket, into)
    }
    fn write(&mut self, socket: Socket, bytes: &[u8]) -> Result<usize, String> {
        (**self).write(socket, bytes)
    }
    fn end(&mut self, socket: Socket) {
        (**self).end(socket);
    }
    fn close(&mut self, socket: Socket) {
        (**self).close(socket);
    }
    fn headers_in(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        (**self).headers_in(now, frames, pool);
    }
    fn headers_out(&mut self, now: Nanos, room: Room, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        (**self).headers_out(now, room, pool, into)
    }
    fn share_ports(&mut self, ports: &Arc<TcpPorts>) {
        (**self).share_ports(ports);
    }
    fn source_of(&self, remote: Ipv4Addr) -> Option<Ipv4Addr> {
        (**self).source_of(remote)
    }
    fn next_hop(&mut self, now: Nanos, remote: Ipv4Addr) -> NextHop {
        (**self).next_hop(now, remote)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_fd()
    }
    fn drops(&self) -> DropCounts {
        (**self).drops()
    }
    fn next_deadline(&self) -> Option<Nanos> {
        (**self).next_deadline()
    }
}
