//! Tuples that identify a connection.
use crate::{Endpoint, IpAddress, be16, ipv6};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What identifies a connection, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FourTuple {
    /// This host's address.
    pub local_ip: IpAddress,
    /// The peer's address.
    pub remote_ip: IpAddress,
    /// This host's port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}

impl FourTuple {
    /// The connection between two endpoints, of which the first is this host's.
    pub fn new(local: Endpoint, remote: Endpoint) -> FourTuple {
        FourTuple { local_ip: local.ip, remote_ip: remote.ip, local_port: local.port, remote_port: remote.port }
    }

    /// This host's end.
    #[inline]
    pub fn local(&self) -> Endpoint {
        Endpoint { ip: self.local_ip, port: self.local_port }
    }

    /// The peer's end.
    #[inline]
    pub fn remote(&self) -> Endpoint {
        Endpoint { ip: self.remote_ip, port: self.remote_port }
    }

    /// The same over IPv4; `None` where either address is IPv6.
    #[inline]
    pub fn as_v4(&self) -> Option<Ipv4Tuple> {
        let (local_ip, remote_ip) = (self.local_ip.as_v4()?, self.remote_ip.as_v4()?);
        Some(Ipv4Tuple { local_ip, remote_ip, local_port: self.local_port, remote_port: self.remote_port })
    }

    /// The same over IPv6; `None` where either address is IPv4.
    pub fn as_v6(&self) -> Option<Ipv6Tuple> {
        let (IpAddr::V6(local_ip), IpAddr::V6(remote_ip)) = (self.local_ip.ip(), self.remote_ip.ip()) else {
            return None;
        };
        Some(Ipv6Tuple { local_ip, remote_ip, local_port: self.local_port, remote_port: self.remote_port })
    }
}

/// What identifies a connection over IPv4: 12 bytes, the flow key of data-paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Tuple {
    /// This host's address.
    pub local_ip: Ipv4Addr,
    /// The peer's address.
    pub remote_ip: Ipv4Addr,
    /// This host's port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}

/// Two words for a hasher; derived, it would take six pieces.
impl Hash for Ipv4Tuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.local_ip.to_bits()) << 32 | u64::from(self.remote_ip.to_bits()));
        state.write_u32(u32::from(self.local_port) << 16 | u32::from(self.remote_port));
    }
}

impl Ipv4Tuple {
    /// The same connection, seen from the other end.
    #[inline]
    pub fn turned(self) -> Ipv4Tuple {
        let Ipv4Tuple { local_ip, remote_ip, local_port, remote_port } = self;
        Ipv4Tuple { local_ip: remote_ip, remote_ip: local_ip, local_port: remote_port, remote_port: local_port }
    }
}

/// What identifies a connection over IPv6 among those of a host, as segments have it: link-local addresses have no
/// zone. Two zones of a host differ in its own address there, which its hardware address gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ipv6Tuple {
    /// This host's address.
    pub local_ip: Ipv6Addr,
    /// The peer's address.
    pub remote_ip: Ipv6Addr,
    /// This host's port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}

impl Ipv6Tuple {
    /// That of a segment, seen from its destination. `packet` begins with an IPv6 header, and `tcp_at` is where its TCP
    /// header begins: the caller has parsed both.
    pub fn of_received(packet: &[u8], tcp_at: usize) -> Ipv6Tuple {
        let (remote_ip, local_ip) = (ipv6::address_at(packet, 8), ipv6::address_at(packet, 24));
        let (remote_port, local_port) = (be16(packet, tcp_at), be16(packet, tcp_at + 2));
        Ipv6Tuple { local_ip, remote_ip, local_port, remote_port }
    }

    /// The same connection, seen from the other end.
    pub fn turned(self) -> Ipv6Tuple {
        let Ipv6Tuple { local_ip, remote_ip, local_port, remote_port } = self;
        Ipv6Tuple { local_ip: remote_ip, remote_ip: local_ip, local_port: remote_port, remote_port: local_port }
    }
}

impl From<Ipv4Tuple> for FourTuple {
    #[inline]
    fn from(tuple: Ipv4Tuple) -> FourTuple {
        let Ipv4Tuple { local_ip, remote_ip, local_port, remote_port } = tuple;
        FourTuple { local_ip: local_ip.into(), remote_ip: remote_ip.into(), local_port, remote_port }
    }
}

/// A [`FourTuple`] as large tables keep it: 16 bytes where both addresses are IPv4, and memory of its own elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactTuple(Compact);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Compact {
    V4(Ipv4Tuple),
    V6(Box<FourTuple>),
}

impl CompactTuple {
    /// This host's end.
    pub fn local(&self) -> Endpoint {
        self.get().local()
    }

    /// The peer's end.
    pub fn remote(&self) -> Endpoint {
        self.get().remote()
    }

    /// The tuple.
    #[inline]
    pub fn get(&self) -> FourTuple {
        match &self.0 {
            Compact::V4(tuple) => (*tuple).into(),
            Compact::V6(tuple) => **tuple,
        }
    }
}

impl From<FourTuple> for CompactTuple {
    fn from(tuple: FourTuple) -> CompactTuple {
        CompactTuple(tuple.as_v4().map_or_else(|| Compact::V6(Box::new(tuple)), Compact::V4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ip, ipv4, tcp};

    #[test]
    fn a_tuple_is_stored_in_few_bytes() {
        let here = Endpoint::v4(Ipv4Addr::new(10, 0, 0, 1), 80);
        let v4 = FourTuple::new(here, Endpoint::v4(Ipv4Addr::new(10, 0, 0, 2), 4711));
        let v6 = FourTuple { remote_ip: IpAddress::v6(Ipv6Addr::LOCALHOST, 0), ..v4 };
        assert_eq!((CompactTuple::from(v4).get(), CompactTuple::from(v6).get()), (v4, v6));
        assert_eq!((v4.as_v4().map(FourTuple::from), v6.as_v4()), (Some(v4), None));
        assert_eq!((v4.local(), v4.remote().port), (here, 4711));
        assert_eq!((size_of::<CompactTuple>(), size_of::<Ipv4Tuple>()), (16, 12));
    }

    #[test]
    fn a_segment_identifies_its_connection() {
        let end = |text: &str, port| Endpoint { ip: text.parse().unwrap(), port };
        let (here, there) = (end("2001:db8::1", 80), end("fe80::2%7", 4711));
        let len = ip::header_len(here.ip);
        let mut packet = vec![0; len + tcp::HEADER_LEN];
        ip::emit(ipv4::TCP, (there.ip, here.ip), 64, &mut packet).unwrap();
        packet[len..len + 4].copy_from_slice(&(4711 << 16 | 80_u32).to_be_bytes());
        let found = Ipv6Tuple::of_received(&packet, len);
        assert_eq!(Some(found), FourTuple::new(here, there).as_v6());
        assert_eq!(Some(found.turned()), FourTuple::new(there, here).as_v6());
        let v4 = FourTuple::new(end("10.0.0.1", 80), end("10.0.0.2", 4711));
        let turned = FourTuple::new(v4.remote(), v4.local());
        assert_eq!((v4.as_v4().map(Ipv4Tuple::turned), v4.as_v6()), (turned.as_v4(), None));
        assert_eq!(FourTuple::new(here, v4.remote()).as_v6(), None);
    }
}
