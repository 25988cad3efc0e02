//! Parsing any bytes never panics, and what was emitted parses back to the same value.
use proptest::prelude::*;
use wire::*;

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}
fn ip() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from)
}

fn translation() -> Translation {
    let ip = Ipv4Addr::LOCALHOST;
    Translation {
        dst_mac: Mac([1; 6]),
        src_mac: Mac([2; 6]),
        src: ip,
        dst: ip,
        src_port: 1,
        dst_port: 2,
        seq: 3,
        ack: 4,
        timestamps: Some((5, 6)),
        sack: true,
        window_in: 14,
        window_out: 255,
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = ethernet::Header::parse(&bytes);
        let _ = arp::Packet::parse(&bytes);
        let _ = ipv4::Header::parse(&bytes, bytes.len());
        let _ = icmpv4::Message::parse(&bytes);
        let _ = tcp::Header::parse(&bytes);
        let _ = translation().apply(&mut bytes.clone());
    }

    /// Random bytes rarely get past the first check; a header whose fixed fields are right reaches the options.
    #[test]
    fn no_tcp_options_panic(area in proptest::collection::vec(0u8..12, 0..=40)) {
        let words = area.len() / 4;
        let mut bytes = vec![0u8; 20 + words * 4];
        bytes[12] = ((5 + words) as u8) << 4;
        bytes[20..].copy_from_slice(&area[..words * 4]);
        let _ = tcp::Header::parse(&bytes);
        // The same behind an IPv4 header.
        let mut frame = vec![0u8; 34];
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(20 + bytes.len() as u16).to_be_bytes());
        frame[22] = 64;
        frame.extend_from_slice(&bytes);
        prop_assert!(translation().apply(&mut frame).is_ok());
        prop_assert!(tcp::Header::parse(&frame[34..]).is_ok(), "what is sent on can be read");
    }

    #[test]
    fn arp_comes_back(sender_mac in mac(), sender_ip in ip(), target_mac in mac(), target_ip in ip(), reply: bool) {
        let operation = if reply { arp::Operation::Reply } else { arp::Operation::Request };
        let packet = arp::Packet { operation, sender_mac, sender_ip, target_mac, target_ip };
        let mut bytes = [0; arp::LEN];
        packet.emit(&mut bytes);
        prop_assert_eq!(arp::Packet::parse(&bytes), Ok(packet));
    }

    #[test]
    fn ipv4_comes_back(src in ip(), dst in ip(), protocol: u8, ttl: u8, ecn in 0u8..4, dscp in 0u8..64, id: u16,
                       dont_fragment: bool, payload_len in 0u16..1000) {
        let header = ipv4::Header {
            src, dst, protocol, ttl, ecn: ecn.into(), dscp, id, dont_fragment, is_fragment: false, payload_len,
        };
        let mut bytes = vec![0; 20 + payload_len as usize];
        header.emit(&mut bytes);
        prop_assert_eq!(ipv4::Header::parse(&bytes, bytes.len()), Ok((header, 20)));
        prop_assert_eq!(ipv4::Header::parse(&bytes[..20], 19 + payload_len as usize), Err(Malformed::Truncated));
        bytes[8] = bytes[8].wrapping_add(1);
        prop_assert_eq!(ipv4::Header::parse(&bytes, bytes.len()), Err(Malformed::Checksum));
    }

    #[test]
    fn icmp_comes_back(id: u16, seq: u16, code: u8, mtu: u16, kind in 0..3) {
        let message = match kind {
            0 => icmpv4::Message::EchoRequest(id, seq),
            1 => icmpv4::Message::EchoReply(id, seq),
            _ => icmpv4::Message::Unreachable { code, mtu },
        };
        let mut bytes = [7u8; 30];
        message.emit(&mut bytes);
        prop_assert_eq!(icmpv4::Message::parse(&bytes), Ok(message));
        bytes[20] ^= 1;
        prop_assert_eq!(icmpv4::Message::parse(&bytes), Err(Malformed::Checksum));
    }
}
