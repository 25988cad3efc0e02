//! Path MTUs and the segments that fit them.
use tcp::Agreed;
use wire::tcp::{HEADER_LEN, TIMESTAMPS_LEN};
use wire::{IpAddress, ip, ipv6};

/// Least path MTU that is accepted. Every IPv4 host takes 576 bytes (RFC 791), every IPv6 link 1280 (RFC 8201 section
/// 4); lower values only cost speed.
pub(crate) fn least_mtu(dst: IpAddress) -> u16 {
    if dst.is_v4() { 576 } else { ipv6::LEAST_MTU }
}

/// Payload bytes of a full segment in an IP packet of so many bytes.
pub(crate) fn mss_of(mtu: u16, dst: IpAddress, agreed: &Agreed) -> u16 {
    mtu.saturating_sub(header_bytes(dst, agreed))
}

/// Bytes of the headers of a segment with data.
pub(crate) fn header_bytes(dst: IpAddress, agreed: &Agreed) -> u16 {
    let options = if agreed.ts_offset.is_some() { TIMESTAMPS_LEN } else { 0 };
    (ip::header_len(dst) + HEADER_LEN + options) as u16
}
