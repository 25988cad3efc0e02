//! Transports of a ZeroNIC host, which process its headers.
use control::FlowView;
use engine::DropCounts;
use engines::EngineKind;
use port::{Frame, FramePool, TcpPorts};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use wire::{Ipv4Tuple, Nanos};
use zeronic::{EngineTcp, InOrder, LinuxTcp, NextHop, Room, Socket, Transport};

/// Its name in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// A stream engine.
    Engine(EngineKind),
    /// Linux' own TCP.
    Linux,
}

impl TransportKind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            TransportKind::Engine(kind) => kind.name(),
            TransportKind::Linux => "linux",
        }
    }
}

impl Default for TransportKind {
    fn default() -> TransportKind {
        TransportKind::Engine(EngineKind::default())
    }
}

impl<'de> Deserialize<'de> for TransportKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TransportKind, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name == "linux" {
            return Ok(TransportKind::Linux);
        }
        let names: Vec<&str> = EngineKind::TRANSPORTS.iter().map(|kind| kind.name()).collect();
        let known = EngineKind::of_name(&name).filter(|kind| EngineKind::TRANSPORTS.contains(kind));
        known.map(TransportKind::Engine).ok_or_else(|| {
            D::Error::custom(format!("there is no transport `{name}`; there are {}, linux", names.join(", ")))
        })
    }
}

/// The transport of a host.
pub(crate) enum Below {
    Engine(Box<EngineTcp>),
    Linux(Box<LinuxTcp>),
}

impl Below {
    /// Its state of at most `most` connections.
    pub(crate) fn views(&self, most: usize) -> Vec<FlowView> {
        match self {
            Below::Engine(engine) => engine.views(most),
            Below::Linux(linux) => linux.views(most),
        }
    }

    /// Why it cannot go on, where that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Below::Engine(_) => None,
            Below::Linux(linux) => linux.failure(),
        }
    }

    fn both(&self) -> &dyn Transport {
        match self {
            Below::Engine(engine) => &**engine,
            Below::Linux(linux) => &**linux,
        }
    }

    fn both_mut(&mut self) -> &mut dyn Transport {
        match self {
            Below::Engine(engine) => &mut **engine,
            Below::Linux(linux) => &mut **linux,
        }
    }
}

impl Transport for Below {
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String> {
        self.both_mut().connect(remote)
    }
    fn listen(&mut self, port: u16) -> Result<(), String> {
        self.both_mut().listen(port)
    }
    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)> {
        self.both_mut().accept()
    }
    fn send(&mut self, socket: Socket, bytes: u64) -> Result<u64, String> {
        self.both_mut().send(socket, bytes)
    }
    fn acknowledged(&mut self, socket: Socket) -> u64 {
        self.both_mut().acknowledged(socket)
    }
    fn in_order(&mut self, socket: Socket) -> Result<InOrder, String> {
        self.both_mut().in_order(socket)
    }
    fn read(&mut self, socket: Socket, into: &mut [u8]) -> Result<InOrder, String> {
        self.both_mut().read(socket, into)
    }
    fn write(&mut self, socket: Socket, bytes: &[u8]) -> Result<usize, String> {
        self.both_mut().write(socket, bytes)
    }
    fn end(&mut self, socket: Socket) {
        self.both_mut().end(socket);
    }
    fn close(&mut self, socket: Socket) {
        self.both_mut().close(socket);
    }
    fn headers_in(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        self.both_mut().headers_in(now, frames, pool);
    }
    fn headers_out(&mut self, now: Nanos, room: Room, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        self.both_mut().headers_out(now, room, pool, into)
    }
    fn source_of(&self, remote: Ipv4Addr) -> Option<Ipv4Addr> {
        self.both().source_of(remote)
    }
    fn next_hop(&mut self, now: Nanos, remote: Ipv4Addr) -> NextHop {
        self.both_mut().next_hop(now, remote)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.both().wait_fd()
    }
    fn share_ports(&mut self, ports: &Arc<TcpPorts>) {
        self.both_mut().share_ports(ports);
    }
    fn drops(&self) -> DropCounts {
        self.both().drops()
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.both().next_deadline()
    }
}
