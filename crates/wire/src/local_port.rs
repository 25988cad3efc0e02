//! The local TCP port of a received packet, for whoever divides packets between stacks.
use crate::be16;
use crate::ipv4::{ICMP, TCP};
use crate::tcp::Flags;

/// Bytes of an ICMP message before the packet that it is about.
const ICMP_LEN: usize = 8;
/// ICMP's errors (RFC 792): unreachable, source quench, redirect, time exceeded, parameter problem.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// The local port that an IPv4 packet is for or about: of a TCP segment, and of the segment that an ICMP error is
/// about. Lengths and checksums are not checked.
pub fn local_tcp_port(packet: &[u8]) -> Option<u16> {
    let (protocol, body) = body(packet)?;
    match protocol {
        TCP => body.get(..4).map(|ports| be16(ports, 2)),
        ICMP if ERRORS.contains(body.first()?) => {
            let (protocol, about) = self::body(body.get(ICMP_LEN..)?)?;
            about.get(..4).filter(|_| protocol == TCP).map(|ports| be16(ports, 0))
        }
        _ => None,
    }
}

/// An IPv4 packet is a SYN that begins a connection: without ACK and RST. Lengths and checksums are not checked.
pub fn begins_connection(packet: &[u8]) -> bool {
    let flags = body(packet).filter(|(protocol, _)| *protocol == TCP).and_then(|(_, body)| body.get(13));
    flags.is_some_and(|flags| flags & (Flags::SYN | Flags::ACK | Flags::RST).0 == Flags::SYN.0)
}

/// Protocol and body of a packet; nothing of a later fragment, which has no ports.
fn body(packet: &[u8]) -> Option<(u8, &[u8])> {
    let header = packet.get(..20)?;
    let is_first = be16(header, 6) & 0x1fff == 0;
    packet.get(usize::from(header[0] & 15) * 4..).filter(|_| is_first).map(|body| (header[9], body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(protocol: u8, fragment: u16, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        (packet[0], packet[9]) = (0x45, protocol);
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        [&packet, body].concat()
    }

    #[test]
    fn a_connection_begins_with_a_syn_alone() {
        let begins = |flags: Flags| {
            let mut header = [0; 20];
            header[13] = flags.0;
            begins_connection(&ip(TCP, 0, &header))
        };
        assert!(begins(Flags::SYN) && begins(Flags::SYN | Flags::ECE | Flags::CWR));
        let others = [Flags::ACK, Flags::SYN | Flags::ACK, Flags::SYN | Flags::RST, Flags::FIN];
        assert!(others.into_iter().all(|flags| !begins(flags)));
        let syn = [&[0; 13][..], &[Flags::SYN.0]].concat();
        assert!(begins_connection(&ip(TCP, 0, &syn)) && !begins_connection(&ip(TCP, 0, &syn[..13])));
        assert!(!begins_connection(&ip(17, 0, &syn)) && !begins_connection(&[]));
    }

    fn segment(from: u16, to: u16) -> Vec<u8> {
        [from.to_be_bytes(), to.to_be_bytes()].concat()
    }

    #[test]
    fn a_segment_is_for_its_destination_port() {
        let of = |protocol, fragment| local_tcp_port(&ip(protocol, fragment, &segment(80, 4791)));
        assert_eq!((of(TCP, 0), of(TCP, 0x4000), of(TCP, 0x2000)), (Some(4791), Some(4791), Some(4791)));
        assert_eq!((of(TCP, 9), of(17, 0), of(50, 0)), (None, None, None));
        let mut options = ip(TCP, 0, &[&[0; 4][..], &segment(80, 4791)].concat());
        options[0] = 0x46;
        assert_eq!(local_tcp_port(&options), Some(4791));
    }

    #[test]
    fn an_error_is_about_the_port_that_it_came_from() {
        let about = |kind, protocol| {
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 0], &ip(protocol, 0, &segment(4791, 80))[..]].concat();
            local_tcp_port(&ip(ICMP, 0, &message))
        };
        assert!([3, 4, 5, 11, 12].iter().all(|kind| about(*kind, TCP) == Some(4791)));
        assert_eq!((about(0, TCP), about(8, TCP), about(3, 17)), (None, None, None));
    }

    #[test]
    fn packets_that_end_early_have_none() {
        let message = [&[3, 0, 0, 0, 0, 0, 0, 0], &ip(TCP, 0, &segment(4791, 80))[..]].concat();
        for whole in [ip(TCP, 0, &segment(80, 4791)), ip(ICMP, 0, &message)] {
            assert!((0..whole.len()).all(|len| local_tcp_port(&whole[..len]).is_none()));
        }
    }
}
