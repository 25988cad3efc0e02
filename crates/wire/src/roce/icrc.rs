//! The invariant checksum: a CRC-32 over everything that does not change on the way (IBTA 1.3, 7.8.1; A17.3.3).
use crate::{ethernet, ipv4};
use crc32fast::Hasher;

/// Bytes of the checksum.
pub const ICRC_LEN: usize = 4;

const UDP_LEN: usize = 8;
const IPV6_LEN: usize = 40;
/// Of the base transport header: up to the byte that is masked, and that byte.
const BTH_PART: usize = 5;
/// What stands for InfiniBand's local route header.
const LOCAL_ROUTE: usize = 8;
/// The longest part that is copied to be masked.
const MOST: usize = LOCAL_ROUTE + IPV6_LEN + UDP_LEN + BTH_PART;

/// The checksum of a packet, in the byte order of the wire. `packet` begins with its IPv4 or IPv6 header, without
/// options, and ends before the checksum. `None` where it is too short, or no such header.
///
/// Masked by ones, because routers change them: traffic class, hop limit, the IP header's checksum, IPv6's flow label,
/// the UDP checksum, and the congestion bits of the base transport header.
// Meets IBTA: A17.3.3-a.
#[inline]
pub fn icrc(packet: &[u8]) -> Option<[u8; ICRC_LEN]> {
    let ip_len = match packet.first()? {
        0x45 => ipv4::HEADER_LEN,
        version if version >> 4 == 6 => IPV6_LEN,
        _ => return None,
    };
    let masked_len = ip_len + UDP_LEN + BTH_PART;
    let (head, remaining) = packet.split_at_checked(masked_len)?;
    let mut masked = [0xff; MOST];
    let copy = &mut masked[LOCAL_ROUTE..LOCAL_ROUTE + masked_len];
    copy.copy_from_slice(head);
    if ip_len == ipv4::HEADER_LEN {
        (copy[1], copy[8]) = (0xff, 0xff);
        copy[10..12].fill(0xff);
    } else {
        copy[0] |= 0x0f;
        copy[1..4].fill(0xff);
        copy[7] = 0xff;
    }
    copy[ip_len + 6..ip_len + 8].fill(0xff);
    copy[masked_len - 1] = 0xff;
    let mut hasher = Hasher::new();
    hasher.update(&masked[..LOCAL_ROUTE + masked_len]);
    hasher.update(remaining);
    Some(hasher.finalize().to_le_bytes())
}

/// Where a frame without a VLAN tag has its IP header.
pub(super) const IP_AT: usize = ethernet::HEADER_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    // Checks IBTA: A17.3.3-a.
    #[test]
    fn what_routers_change_does_not_count_and_all_else_does() {
        let mut packet: Vec<u8> = (0..60).collect();
        packet[0] = 0x45;
        let right = icrc(&packet).unwrap();
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            let masked = [1, 8, 10, 11, 26, 27, 32].contains(&at);
            // Another length of the IPv4 header is none that is sent.
            assert_eq!(icrc(&changed) == Some(right), masked, "byte {at}");
        }
        assert_eq!(icrc(&packet[..32]), None);
        packet[0] = 0x60;
        let right = icrc(&packet[..53]).unwrap();
        for at in 0..53 {
            let mut changed = packet[..53].to_vec();
            changed[at] ^= 0x01;
            let masked = [0, 1, 2, 3, 7, 46, 47, 52].contains(&at);
            assert_eq!(icrc(&changed) == Some(right), masked, "byte {at}");
        }
    }
}
