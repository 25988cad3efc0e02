//! Frames that no host of ours sends, put on the wire by hand.
use super::{ip_of, mac_of};
use std::net::Ipv4Addr;
use wire::{EtherType, ethernet, icmpv4, ipv4};

/// An IPv4 packet in a frame to node 0.
pub(crate) fn ip_frame(src: usize, dst: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let start = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut bytes = vec![0; start + body.len()];
    ethernet::Header { dst: mac_of(0), src: mac_of(src), ethertype: EtherType::Ipv4 }.emit(&mut bytes);
    let header = ipv4::Header::new(protocol, (ip_of(src), dst), body.len() as u16);
    ipv4::Header { dont_fragment: false, ..header }.emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes[start..].copy_from_slice(body);
    bytes
}

/// "Destination unreachable" from a node to node 0 about a frame. With code 4, it is what a router reports of one that
/// is longer than the next link carries (RFC 1191).
pub(crate) fn icmp_unreachable(code: u8, mtu: u16, about: &[u8], from: usize) -> Vec<u8> {
    let quote = &about[ethernet::HEADER_LEN..][..ipv4::HEADER_LEN + 8];
    let mut body = [&[0; icmpv4::HEADER_LEN], quote].concat();
    icmpv4::Message::Unreachable { code, mtu }.emit(&mut body);
    ip_frame(from, ip_of(0), ipv4::ICMP, &body)
}
