//! UDP ports of the host's address that programs are bound to: plain datagrams by which datagram sockets above verbs
//! find each other's queue pairs (rsockets, docs/RDMA.md).
//!
//! What is received waits here, a bounded part for each port, until the program's library takes it. What is sent leaves
//! through the host's network layer, which keeps a packet while its next hop is asked for.
use crate::failure::Failure;
use crate::user_context::{EventPipe, ProgramId};
use crate::view::{IdView, ProgramView};
use engine::{DropReason, Nanos};
use host::{Io, Packet};
use port::{Checksum, Frame};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use verbs::udp::{Datagram, MOST_BYTES};
use wire::checksum::Sum;
use wire::roce::UDP_PORT;
use wire::{EtherType, ethernet, ipv4};

/// Bytes of a UDP header.
const HEADER_LEN: usize = 8;
/// Ephemeral ports.
const FIRST: u16 = 32_768;
const COUNT: u16 = 28_232;
/// Ports of a program at most.
const MOST_PORTS: usize = 256;
/// Datagrams of a port that may wait for the program, and their bytes.
const MOST_WAITING: usize = 256;
const MOST_WAITING_BYTES: usize = 1 << 17;
/// In a port's pipe: a datagram.
const NOTICE: [u8; 1] = [1];

/// A port that a program is bound to.
struct Port {
    owner: ProgramId,
    pipe: Arc<dyn EventPipe>,
    waiting: VecDeque<Datagram>,
    bytes: usize,
}

/// A port that is asked for.
pub(crate) struct Wanted<'a> {
    /// The address may be unspecified; port 0 stands for any free one.
    pub(crate) address: SocketAddrV4,
    /// From where on a free one is searched.
    pub(crate) begin: u16,
    /// A transport of the host gets what is for this port.
    pub(crate) is_claimed: &'a dyn Fn(u16) -> bool,
}

/// The ports of a device.
pub(crate) struct UdpPorts {
    address: Ipv4Addr,
    ports: BTreeMap<u16, Port>,
    /// Sent by programs since the last round: each has one request at a time.
    outgoing: Vec<Packet>,
}

impl UdpPorts {
    /// Of a host that has this address.
    pub(crate) fn new(address: Ipv4Addr) -> UdpPorts {
        UdpPorts { address, ports: BTreeMap::new(), outgoing: Vec::new() }
    }

    /// Binds a program to a port.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: it is not the host's address. EADDRINUSE: another one has it. ENOMEM: the program has too many.
    pub(crate) fn bind(
        &mut self,
        owner: ProgramId,
        wanted: &Wanted<'_>,
        pipe: Arc<dyn EventPipe>,
    ) -> Result<SocketAddrV4, Failure> {
        let (ip, own) = (*wanted.address.ip(), self.address);
        if !ip.is_unspecified() && ip != own {
            let why = format!("{ip} is none of the device's addresses: it has {own}");
            return Err(Failure::new(libc::EADDRNOTAVAIL, why));
        }
        if self.ports.values().filter(|port| port.owner == owner).count() >= MOST_PORTS {
            return Err(Failure::limit(format!("the program is bound to {MOST_PORTS} UDP ports already")));
        }
        let number = match wanted.address.port() {
            0 => {
                let mut any = (0..COUNT).map(|step| FIRST + (wanted.begin % COUNT + step) % COUNT);
                any.find(|port| self.is_free(*port, wanted)).ok_or("no UDP port is free".to_string())
            }
            free if self.is_free(free, wanted) => Ok(free),
            taken => Err(format!("UDP port {taken} is in use by another socket, or by a transport of the host")),
        };
        let number = number.map_err(|why| Failure::new(libc::EADDRINUSE, why))?;
        self.ports.insert(number, Port { owner, pipe, waiting: VecDeque::new(), bytes: 0 });
        Ok(SocketAddrV4::new(own, number))
    }

    fn is_free(&self, port: u16, wanted: &Wanted<'_>) -> bool {
        port != UDP_PORT && !self.ports.contains_key(&port) && !(wanted.is_claimed)(port)
    }

    /// EINVAL where the program is not bound to the port.
    fn port(&mut self, owner: ProgramId, number: u16) -> Result<&mut Port, Failure> {
        let port = self.ports.get_mut(&number).filter(|port| port.owner == owner);
        port.ok_or_else(|| Failure::invalid(format!("the program is not bound to UDP port {number}")))
    }

    /// A program is bound to a port no longer.
    ///
    /// # Errors
    /// EINVAL: it is not.
    pub(crate) fn release(&mut self, owner: ProgramId, number: u16) -> Result<(), Failure> {
        self.port(owner, number)?;
        self.ports.remove(&number);
        Ok(())
    }

    /// A program is gone.
    pub(crate) fn leave(&mut self, owner: ProgramId) {
        self.ports.retain(|_, port| port.owner != owner);
    }

    /// A program sends a datagram from its port.
    ///
    /// # Errors
    /// EINVAL: it is not bound to the port, or this is no peer's address. EMSGSIZE: it is too long.
    pub(crate) fn push(
        &mut self,
        owner: ProgramId,
        number: u16,
        to: SocketAddrV4,
        payload: &[u8],
    ) -> Result<(), Failure> {
        self.port(owner, number)?;
        if !is_station(*to.ip()) || to.port() == 0 {
            return Err(Failure::invalid(format!("{to} is no peer's address")));
        }
        if payload.len() > MOST_BYTES {
            let why = format!("{} bytes are more than the {MOST_BYTES} of a datagram", payload.len());
            return Err(Failure::new(libc::EMSGSIZE, why));
        }
        let from = SocketAddrV4::new(self.address, number);
        let body = datagram(from, to, payload);
        self.outgoing.push(Packet::new((*to.ip()).into(), ipv4::UDP, body).with_source(self.address.into()));
        Ok(())
    }

    /// The next datagram of a program's port.
    ///
    /// # Errors
    /// EINVAL: it is not bound to the port.
    pub(crate) fn take(&mut self, owner: ProgramId, number: u16) -> Result<Option<Datagram>, Failure> {
        let port = self.port(owner, number)?;
        let taken = port.waiting.pop_front();
        port.bytes -= taken.as_ref().map_or(0, |datagram| datagram.payload.len());
        Ok(taken)
    }

    /// Something waits to be sent.
    pub(crate) fn has_work(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends what waits, and returns how much that was.
    pub(crate) fn send(&mut self, now: Nanos, io: &mut Io<'_>) -> usize {
        let count = self.outgoing.len();
        self.outgoing.drain(..).for_each(|packet| io.net.send(now, packet, io.drops));
        count
    }

    /// A frame that no transport claims: queued where it is a datagram for a bound port.
    pub(crate) fn offer(&mut self, now: Nanos, mut frame: Box<Frame>, io: &mut Io<'_>) -> Option<Box<Frame>> {
        let Some(place) = self.place(&frame, io) else { return Some(frame) };
        io.pool.flatten(&mut frame);
        let queued = self.keep(now, &place, &frame, io);
        queued.unwrap_or_else(|reason| io.drops.count(reason));
        io.pool.put(frame);
        None
    }

    /// Where the parts of a datagram for one of the ports are.
    fn place(&self, frame: &Frame, io: &Io<'_>) -> Option<UdpDatagram> {
        if self.ports.is_empty() {
            return None;
        }
        let bytes = frame.bytes();
        let outer = ethernet::Header::parse(bytes).ok()?;
        if outer.ethertype != EtherType::Ipv4 || !io.net.is_own_mac(outer.dst) || outer.src.is_group() {
            return None;
        }
        let packet = bytes.get(ethernet::HEADER_LEN..)?;
        let (ip, ip_len) = ipv4::Header::parse(packet, frame.len() - ethernet::HEADER_LEN).ok()?;
        let is_ours = ip.protocol == ipv4::UDP && ip.dst == self.address && !ip.is_fragment && is_station(ip.src);
        let header = packet.get(ip_len..ip_len + HEADER_LEN).filter(|_| is_ours)?;
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let port = Some(half(2)).filter(|port| self.ports.contains_key(port))?;
        let from = SocketAddrV4::new(ip.src, half(0));
        Some(UdpDatagram {
            from,
            port,
            at: ethernet::HEADER_LEN + ip_len,
            bytes: ip.payload_len.into(),
            len: half(4).into(),
        })
    }

    /// Keeps a datagram for its program, where it is sound and there is room.
    fn keep(&mut self, now: Nanos, place: &UdpDatagram, frame: &Frame, io: &mut Io<'_>) -> Result<(), DropReason> {
        let UdpDatagram { from, port, at, bytes, len } = *place;
        let whole = frame.bytes().get(at..at + len).filter(|_| (HEADER_LEN..=bytes).contains(&len));
        let whole = whole.ok_or(DropReason::MessageIncomplete)?;
        // What never left the machine has no checksum yet; a sender may leave it out (RFC 768).
        let is_summed = frame.checksum == Checksum::Complete && whole[6..8] != [0, 0];
        if is_summed && sum(SocketAddrV4::new(self.address, port), from, whole).finish() != 0 {
            return Err(DropReason::MessageIncomplete);
        }
        let payload = &whole[HEADER_LEN..];
        if payload.len() > MOST_BYTES {
            return Err(DropReason::MessageIncomplete);
        }
        let port = self.ports.get_mut(&port).ok_or(DropReason::NoReceive)?;
        if port.waiting.len() >= MOST_WAITING || port.bytes + payload.len() > MOST_WAITING_BYTES {
            return Err(DropReason::NoReceive);
        }
        let reached = io.net.reaches(now, (*from.ip()).into());
        port.bytes += payload.len();
        port.waiting.push_back(Datagram { from, payload: payload.to_vec(), reached });
        port.pipe.put(&NOTICE);
        Ok(())
    }

    /// Shows a program's ports behind its identifiers, until there are `most` of both.
    pub(crate) fn show(&self, owner: ProgramId, most: usize, view: &mut ProgramView) {
        for (number, _) in self.ports.iter().filter(|(_, port)| port.owner == owner) {
            view.id_count += 1;
            if view.ids.len() < most {
                let local = Some(SocketAddrV4::new(self.address, *number).to_string());
                view.ids.push(IdView { space: "UDP", state: "LISTEN", local, remote: None });
            }
        }
    }
}

/// A datagram in a frame, by its headers.
struct UdpDatagram {
    from: SocketAddrV4,
    port: u16,
    /// Where the UDP header begins, and how many bytes the packet has from there on.
    at: usize,
    bytes: usize,
    /// Its length as the UDP header has it.
    len: usize,
}

/// The address of one host.
fn is_station(ip: Ipv4Addr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_loopback())
}

/// The sum over a datagram and its pseudo-header, in which the order of the two addresses does not matter.
fn sum(one: SocketAddrV4, other: SocketAddrV4, datagram: &[u8]) -> Sum {
    let mut sum = Sum::pseudo_header(*one.ip(), *other.ip(), ipv4::UDP, datagram.len() as u32);
    sum.add(datagram);
    sum
}

/// A UDP header and payload.
fn datagram(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
    let len = (HEADER_LEN + payload.len()) as u16;
    [from.port(), to.port(), len, 0].iter().for_each(|half| bytes.extend_from_slice(&half.to_be_bytes()));
    bytes.extend_from_slice(payload);
    // Zero means that there is none: the other form of zero stands for it (RFC 768).
    let checksum = match sum(from, to, &bytes).finish() {
        0 => 0xffff,
        checksum => checksum,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}
