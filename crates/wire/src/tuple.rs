//! What identifies a connection.
use crate::{Endpoint, IpAddress};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

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
    pub fn local(&self) -> Endpoint {
        Endpoint { ip: self.local_ip, port: self.local_port }
    }

    /// The peer's end.
    pub fn remote(&self) -> Endpoint {
        Endpoint { ip: self.remote_ip, port: self.remote_port }
    }

    /// The same over IPv4; `None` where either address is IPv6.
    pub fn as_v4(&self) -> Option<Ipv4Tuple> {
        let (local_ip, remote_ip) = (self.local_ip.as_v4()?, self.remote_ip.as_v4()?);
        Some(Ipv4Tuple { local_ip, remote_ip, local_port: self.local_port, remote_port: self.remote_port })
    }
}

/// What identifies a connection over IPv4: 12 bytes, the flow key of data-paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl From<Ipv4Tuple> for FourTuple {
    fn from(tuple: Ipv4Tuple) -> FourTuple {
        let Ipv4Tuple { local_ip, remote_ip, local_port, remote_port } = tuple;
        FourTuple { local_ip: local_ip.into(), remote_ip: remote_ip.into(), local_port, remote_port }
    }
}

/// A [`FourTuple`] as large tables keep it: 16 bytes where both addresses are IPv4, and memory of its own elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactTuple(Kept);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
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
    pub fn get(&self) -> FourTuple {
        match &self.0 {
            Kept::V4(tuple) => (*tuple).into(),
            Kept::V6(tuple) => **tuple,
        }
    }
}

impl From<FourTuple> for CompactTuple {
    fn from(tuple: FourTuple) -> CompactTuple {
        CompactTuple(tuple.as_v4().map_or_else(|| Kept::V6(Box::new(tuple)), Kept::V4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn a_tuple_is_kept_in_few_bytes() {
        let here = Endpoint::v4(Ipv4Addr::new(10, 0, 0, 1), 80);
        let v4 = FourTuple::new(here, Endpoint::v4(Ipv4Addr::new(10, 0, 0, 2), 4711));
        let v6 = FourTuple { remote_ip: IpAddress::v6(Ipv6Addr::LOCALHOST, 0), ..v4 };
        assert_eq!((CompactTuple::from(v4).get(), CompactTuple::from(v6).get()), (v4, v6));
        assert_eq!((v4.as_v4().map(FourTuple::from), v6.as_v4()), (Some(v4), None));
        assert_eq!((v4.local(), v4.remote().port), (here, 4711));
        assert_eq!((size_of::<CompactTuple>(), size_of::<Ipv4Tuple>()), (16, 12));
    }
}
