//! Header of a datagram ("rsocket Protocol and Design Guide", rdma-core; `struct ds_udp_header`
//! and `struct ds_header` of its rsocket.c), between IPv4 addresses.
use std::net::{Ipv4Addr, SocketAddrV4};
use verbs::QpNumber;

/// Marks what goes by UDP.
const TAG: u32 = 0x5555_5555;
/// The version of the addresses.
const IPV4: u8 = 4;
/// What a datagram by UDP is for.
const DATA: u8 = 0;
const CONTROL: u8 = 7;

/// Bytes of the header by UDP.
pub(super) const GREETING_LEN: usize = 16;
/// Bytes of the header between queue pairs.
pub(super) const HEADER_LEN: usize = 8;

/// Before what goes by UDP: the sender's queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    /// A datagram for the program follows. Otherwise it only answers.
    pub(super) has_data: bool,
    /// The sender's queue pair.
    pub(super) qp: QpNumber,
    /// The sender's address.
    pub(super) address: Ipv4Addr,
}

impl Greeting {
    /// As bytes.
    pub(super) fn encode(&self) -> [u8; GREETING_LEN] {
        let mut bytes = [0; GREETING_LEN];
        bytes[..4].copy_from_slice(&TAG.to_be_bytes());
        let op = if self.has_data { DATA } else { CONTROL };
        bytes[4..7].copy_from_slice(&[IPV4, op, GREETING_LEN as u8]);
        bytes[8..12].copy_from_slice(&self.qp.to_be_bytes());
        bytes[12..].copy_from_slice(&self.address.octets());
        bytes
    }

    /// Of a datagram, with the program's bytes; `None` where it is none of rsockets between IPv4 addresses, or names no
    /// queue pair that datagrams can be sent to.
    pub(super) fn decode(datagram: &[u8]) -> Option<(Greeting, &[u8])> {
        let (bytes, data) = datagram.split_first_chunk::<GREETING_LEN>()?;
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let is_known = number(0) == TAG && bytes[4] == IPV4 && usize::from(bytes[6]) == GREETING_LEN;
        let has_data = match bytes[5] {
            DATA => true,
            CONTROL => false,
            _ => return None,
        };
        let qp = number(8) & verbs::QP_MASK;
        // Numbers of management, and that of multicast groups (IBTA 1.3, 3.5.1).
        let is_one = is_known && !matches!(qp, 0 | 1 | verbs::QP_MASK);
        is_one.then_some((Greeting { has_data, qp, address: number(12).into() }, data))
    }
}

/// Before what goes between queue pairs: the sender's address and port.
pub(super) fn encode(from: SocketAddrV4) -> [u8; HEADER_LEN] {
    let mut bytes = [IPV4, HEADER_LEN as u8, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
    bytes[4..].copy_from_slice(&from.ip().octets());
    bytes
}

/// The sender's address and port; `None` where it is no such header.
pub(super) fn decode(bytes: &[u8; HEADER_LEN]) -> Option<SocketAddrV4> {
    let [version, len, high, low, a, b, c, d] = *bytes;
    let is_known = version == IPV4 && usize::from(len) == HEADER_LEN;
    is_known.then(|| SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

    #[test]
    fn greetings_have_linux_bytes_and_come_back() {
        let greeting = Greeting { has_data: true, qp: 0x12_3456, address: ADDRESS };
        let bytes = greeting.encode();
        assert_eq!(bytes, [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56, 10, 0, 0, 7]);
        let datagram = [&bytes[..], b"data"].concat();
        assert_eq!(Greeting::decode(&datagram), Some((greeting, &b"data"[..])));
        let answer = Greeting { has_data: false, ..greeting };
        assert_eq!(answer.encode()[5], 7);
        assert_eq!(Greeting::decode(&answer.encode()), Some((answer, &[][..])));
    }

    #[test]
    fn forged_greetings_are_none() {
        let bytes = Greeting { has_data: true, qp: 17, address: ADDRESS }.encode();
        assert_eq!(Greeting::decode(&bytes[..15]), None);
        // Tag, version, kind, length.
        for (at, value) in [(0, 0x54), (3, 0), (4, 6), (5, 1), (5, 0xff), (6, 28), (6, 0)] {
            let mut forged = bytes;
            forged[at] = value;
            assert_eq!(Greeting::decode(&forged), None, "byte {at}");
        }
        for qp in [0, 1, 0xff_ffff, 0x100_0000] {
            let forged = Greeting { has_data: false, qp, address: ADDRESS }.encode();
            assert_eq!(Greeting::decode(&forged), None, "{qp:#x}");
        }
        let mut reserved = bytes;
        (reserved[7], reserved[8]) = (9, 9);
        assert_eq!(Greeting::decode(&reserved).map(|(greeting, _)| greeting.qp), Some(17), "both are reserved");
    }

    #[test]
    fn headers_have_linux_bytes_and_come_back() {
        let from = SocketAddrV4::new(ADDRESS, 7174);
        let bytes = encode(from);
        assert_eq!(bytes, [4, 8, 0x1c, 0x06, 10, 0, 0, 7]);
        assert_eq!(decode(&bytes), Some(from));
        for (at, value) in [(0, 6), (0, 0), (1, 24), (1, 7)] {
            let mut forged = bytes;
            forged[at] = value;
            assert_eq!(decode(&forged), None, "byte {at}");
        }
    }
}
