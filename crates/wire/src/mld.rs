//! Multicast Listener Discovery (RFC 3810, and its first version, RFC 2710): which stations listen to which groups of a
//! link.
use crate::checksum::Sum;
use crate::ipv6::{ICMP, address_at};
use crate::{Malformed, be16};
use std::net::Ipv6Addr;

/// Hops of its messages (RFC 3810 section 5).
pub const HOPS: u8 = 1;
/// The group of the receivers of reports: switches and routers (RFC 3810 section 5.2.14).
pub const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// The type of a question (RFC 3810 section 5.1).
pub(crate) const QUERY: u8 = 130;

/// Bytes before the group, or before the records.
const HEADER_LEN: usize = 8;
/// Bytes of a question of the first version.
const QUERY_V1: usize = 24;
/// Bytes of a question of the second version, at least.
const QUERY_V2: usize = 28;
/// Types of answers.
const REPORT_V1: u8 = 131;
const REPORT_V2: u8 = 143;
/// Kinds of records in an answer: all sources are listened to, as before or from now on (RFC 3810 section 5.2.12).
const IS_EXCLUDE: u8 = 2;
const TO_EXCLUDE: u8 = 4;
/// Bytes of a record without sources.
const RECORD: usize = 20;

/// For every hop: a router has to examine the packet, and may not pass it by (RFC 2711). ICMPv6 follows.
const ROUTER_ALERT: [u8; 8] = [ICMP, 0, 5, 2, 0, 0, 1, 0];

/// Asks for listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// To which group; to any where there is none.
    pub group: Option<Ipv6Addr>,
    /// An answer comes within this time, milliseconds.
    pub response_ms: u32,
    /// The querier has the first version only.
    pub is_v1: bool,
}

impl Query {
    /// Reads the ICMPv6 message, whose checksum was checked.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Query, Malformed> {
        let is_v1 = bytes.len() == QUERY_V1;
        if !is_v1 && bytes.len() < QUERY_V2 {
            return Err(Malformed::Truncated);
        }
        let (code, group) = (be16(bytes, 4), address_at(bytes, HEADER_LEN));
        // RFC 3810 section 5.1.3: large values are a mantissa and an exponent.
        let response_ms = match code {
            0x8000.. if !is_v1 => (u32::from(code & 0xfff) | 0x1000) << (((code >> 12) & 7) + 3),
            _ => code.into(),
        };
        Ok(Query { group: (!group.is_unspecified()).then_some(group), response_ms, is_v1 })
    }
}

/// Records of groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// They are listened to from now on.
    Joined,
    /// They are listened to.
    Member,
}

/// What follows the IPv6 header of a packet to [`ROUTERS`] with a report of groups; the header's next one is the one
/// for every hop ([`crate::ipv6::HOP_BY_HOP`]).
pub fn report(src: Ipv6Addr, report: Report, groups: &[Ipv6Addr]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN + RECORD * groups.len()];
    bytes[0] = REPORT_V2;
    bytes[6..8].copy_from_slice(&(groups.len() as u16).to_be_bytes());
    for (record, group) in bytes[HEADER_LEN..].chunks_exact_mut(RECORD).zip(groups) {
        record[0] = if report == Report::Joined { TO_EXCLUDE } else { IS_EXCLUDE };
        record[4..].copy_from_slice(&group.octets());
    }
    packet(src, ROUTERS, bytes)
}

/// The same of one group in the first version; it goes to that group (RFC 2710 section 4).
pub fn report_v1(src: Ipv6Addr, group: Ipv6Addr) -> Vec<u8> {
    let mut bytes = vec![0; QUERY_V1];
    bytes[0] = REPORT_V1;
    bytes[HEADER_LEN..].copy_from_slice(&group.octets());
    packet(src, group, bytes)
}

/// The router alert, and the message with its checksum.
fn packet(src: Ipv6Addr, dst: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let ends = |address| crate::IpAddress::v6(address, 0);
    let mut sum = Sum::pseudo_header(ends(src), ends(dst), ICMP, message.len() as u32);
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    [&ROUTER_ALERT[..], &message].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::{HOP_BY_HOP, Header};

    const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 7);

    #[test]
    fn a_report_is_a_packet_that_routers_examine() {
        for (dst, body, kind) in [
            (ROUTERS, report(SRC, Report::Joined, &[GROUP, SRC]), REPORT_V2),
            (GROUP, report_v1(SRC, GROUP), REPORT_V1),
        ] {
            let mut bytes = vec![0; 40];
            Header { hop_limit: HOPS, ..Header::new(HOP_BY_HOP, SRC, dst, body.len() as u16) }.emit(&mut bytes);
            bytes.extend_from_slice(&body);
            let (header, at) = Header::parse(&bytes, bytes.len()).unwrap();
            assert_eq!((header.protocol, header.hop_limit, at), (ICMP, HOPS, 48));
            let ends = [header.src, header.dst].map(|address| crate::IpAddress::v6(address, 0));
            let mut sum = Sum::pseudo_header(ends[0], ends[1], ICMP, (bytes.len() - at) as u32);
            sum.add(&bytes[at..]);
            assert_eq!((bytes[at], sum.finish()), (kind, 0));
        }
        let records = report(SRC, Report::Member, &[GROUP])[8 + HEADER_LEN..].to_vec();
        assert_eq!((records[0], records.len(), &records[4..]), (IS_EXCLUDE, RECORD, &GROUP.octets()[..]));
    }

    #[test]
    fn questions_of_both_versions_are_read() {
        let query = |code: u16, group: Ipv6Addr, more: usize| {
            let mut bytes = vec![0; QUERY_V1 + more];
            bytes[0] = QUERY;
            bytes[4..6].copy_from_slice(&code.to_be_bytes());
            bytes[8..24].copy_from_slice(&group.octets());
            Query::parse(&bytes)
        };
        let any = Ipv6Addr::UNSPECIFIED;
        assert_eq!(query(10_000, any, 0), Ok(Query { group: None, response_ms: 10_000, is_v1: true }));
        assert_eq!(query(1000, GROUP, 4), Ok(Query { group: Some(GROUP), response_ms: 1000, is_v1: false }));
        assert_eq!(query(0x8000, any, 20).map(|query| query.response_ms), Ok(0x1000 << 3));
        assert_eq!(query(0xffff, any, 4).map(|query| query.response_ms), Ok(0x1fff << 10));
        assert_eq!(query(0xffff, any, 0).map(|query| query.response_ms), Ok(0xffff));
        assert_eq!(query(0, any, 3), Err(Malformed::Truncated));
    }
}
