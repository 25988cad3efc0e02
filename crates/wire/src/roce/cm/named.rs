//! Names of services by IP ports, and the header that stands in the private data of REQ and SIDR_REQ then (IBTA annex
//! A11).
use super::bits::copy;
use crate::be16;
use std::net::Ipv4Addr;

/// The first bytes of the names of IP ports (IBTA A11.2); the protocol and the port follow.
// Meets IBTA: A11-a.
const PREFIX: u64 = 0x0000_0000_0100_0000;

/// What a port's number belongs to: the port spaces of the RDMA CM, which are protocols of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PortSpace {
    /// Connections.
    Tcp = 6,
    /// Datagrams.
    Udp = 17,
}

/// The name of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Service {
    /// The port space.
    pub space: PortSpace,
    /// The port.
    pub port: u16,
}

impl Service {
    /// The service of this name; `None` where it is none of IP.
    pub const fn from_name(name: u64) -> Option<Service> {
        let space = match (name & !0xff_ffff, name >> 16 & 0xff) {
            (PREFIX, 6) => PortSpace::Tcp,
            (PREFIX, 17) => PortSpace::Udp,
            _ => return None,
        };
        Some(Service { space, port: name as u16 })
    }

    /// Its name.
    pub const fn name(self) -> u64 {
        PREFIX | (self.space as u64) << 16 | self.port as u64
    }
}

/// Both sides of a request, by addresses of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Port of the active side.
    pub port: u16,
    /// Address of the active side.
    pub source: Ipv4Addr,
    /// Address of the passive side.
    pub destination: Ipv4Addr,
}

impl Named {
    /// Bytes of the header.
    pub const LEN: usize = 36;

    /// Reads the header in front of private data; `None` for another version, and for IPv6.
    pub fn parse(data: &[u8]) -> Option<Named> {
        let head = data.first_chunk::<{ Named::LEN }>()?;
        let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
        let is_ours = head[0] == 0 && head[1] >> 4 == 4;
        is_ours.then(|| Named { port: be16(head, 2), source: address(16), destination: address(32) })
    }

    /// The header, and a program's private data behind it.
    pub fn with(&self, data: &[u8]) -> Vec<u8> {
        let mut head = [0; Named::LEN];
        head[1] = 4 << 4;
        copy(&mut head[2..], &self.port.to_be_bytes());
        copy(&mut head[16..], &self.source.octets());
        copy(&mut head[32..], &self.destination.octets());
        [&head[..], data].concat()
    }
}
