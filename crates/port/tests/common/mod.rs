//! Frames for the tests of ports.
#![allow(dead_code, reason = "each test file uses its part")]
use port::{Checksum, Frame, FramePool, Netns, PortDrops};
use shm::{ByteRing, PAGE, Region, Span};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::checksum::Sum;
use wire::tcp::Flags;
use wire::{EtherType, Mac, Seq, arp, ethernet, icmpv4, ipv4, tcp};

pub(crate) const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
pub(crate) const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);
pub(crate) const C: Mac = Mac([2, 0, 0, 0, 0, 0xc]);
pub(crate) const IP_A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const IP_B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// How long the kernel may take for what it must do: on a crowded machine its threads get no core for seconds.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until there is something.
pub(crate) fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(begin.elapsed() < TIMEOUT, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a caller of ports carries along.
pub(crate) struct Caller {
    pub pool: FramePool,
    pub drops: PortDrops,
}

impl Caller {
    pub(crate) fn new() -> Caller {
        Caller { pool: FramePool::new(1024), drops: PortDrops::default() }
    }
}

/// A namespace of the test's own, or a printed line that the test is skipped.
pub(crate) fn netns_or_skip(test: &str) -> Option<Netns> {
    Netns::create().map_err(|sentence| println!("SKIPPED {test}: {sentence}")).ok()
}

pub(crate) fn frame_of(pool: &mut FramePool, bytes: &[u8]) -> Box<Frame> {
    let mut frame = if bytes.len() > 256 { pool.large() } else { pool.small() };
    frame.bytes_vec().extend_from_slice(bytes);
    frame
}

fn eth(dst: Mac, src: Mac, ethertype: EtherType, rest: usize) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::HEADER_LEN + rest];
    ethernet::Header { dst, src, ethertype }.emit(&mut bytes);
    bytes
}

fn ip(protocol: u8, src: Ipv4Addr, dst: Ipv4Addr, payload_len: usize, ecn: ipv4::Ecn) -> ipv4::Header {
    ipv4::Header { ecn, id: 1, ..ipv4::Header::new(protocol, (src, dst), payload_len as u16) }
}

pub(crate) fn arp_request(src: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut bytes = eth(Mac::BROADCAST, src, EtherType::Arp, arp::LEN);
    let packet = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: src,
        sender_ip: sender,
        target_mac: Mac::default(),
        target_ip: target,
    };
    packet.emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes
}

pub(crate) fn arp_reply(src: Mac, sender: Ipv4Addr, to: Mac, target: Ipv4Addr) -> Vec<u8> {
    let mut bytes = eth(to, src, EtherType::Arp, arp::LEN);
    let packet = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: src,
        sender_ip: sender,
        target_mac: to,
        target_ip: target,
    };
    packet.emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes
}

pub(crate) fn echo_request(dst: Mac, src: Mac, from: Ipv4Addr, to: Ipv4Addr, seq: u16, data: &[u8]) -> Vec<u8> {
    let icmp_len = icmpv4::HEADER_LEN + data.len();
    let mut bytes = eth(dst, src, EtherType::Ipv4, ipv4::HEADER_LEN + icmp_len);
    ip(ipv4::ICMP, from, to, icmp_len, ipv4::Ecn::NotEct).emit(&mut bytes[ethernet::HEADER_LEN..]);
    let at = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    bytes[at + icmpv4::HEADER_LEN..].copy_from_slice(data);
    icmpv4::Message::EchoRequest(7, seq).emit(&mut bytes[at..]);
    bytes
}

/// A TCP segment and its headers' length; the checksum is partial.
pub(crate) fn tcp_segment(dst: Mac, src: Mac, seq: u32, flags: Flags, ecn: ipv4::Ecn, data: &[u8]) -> (Vec<u8>, usize) {
    let header = tcp::Header {
        src_port: 1000,
        dst_port: 2000,
        seq: Seq(seq),
        ack: Seq(77),
        flags,
        window: 500,
        options: tcp::Options { timestamps: Some(tcp::Timestamps { value: 1, echo: 2 }), ..tcp::Options::default() },
    };
    let tcp_len = header.len() + data.len();
    let mut bytes = eth(dst, src, EtherType::Ipv4, ipv4::HEADER_LEN + tcp_len);
    ip(ipv4::TCP, IP_A, IP_B, tcp_len, ecn).emit(&mut bytes[ethernet::HEADER_LEN..]);
    let at = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    header.emit(&mut bytes[at..]);
    let pseudo = Sum::pseudo_header(IP_A, IP_B, ipv4::TCP, tcp_len as u32).partial();
    bytes[at + tcp::CHECKSUM_AT..at + tcp::CHECKSUM_AT + 2].copy_from_slice(&pseudo.to_be_bytes());
    bytes[at + header.len()..].copy_from_slice(data);
    (bytes, at + header.len())
}

pub(crate) const TCP_PARTIAL: Checksum = Checksum::Partial { start: 34, field: 50 };

/// A TCP frame to be completed by the port.
pub(crate) fn tcp_frame(pool: &mut FramePool, dst: Mac, src: Mac, seq: u32, data: &[u8]) -> Box<Frame> {
    let (bytes, _) = tcp_segment(dst, src, seq, Flags::ACK, ipv4::Ecn::Ect0, data);
    let mut frame = frame_of(pool, &bytes);
    frame.checksum = TCP_PARTIAL;
    frame
}

/// The TCP header and payload of a flat frame whose checksums are complete and right, or why not.
pub(crate) fn check_tcp(bytes: &[u8]) -> Result<(ipv4::Header, tcp::Header, Vec<u8>), wire::Malformed> {
    let packet = &bytes[ethernet::HEADER_LEN..];
    let (ip, ip_len) = ipv4::Header::parse(packet, packet.len())?;
    let segment = &packet[ip_len..ip_len + ip.payload_len as usize];
    let mut sum = Sum::pseudo_header(ip.src, ip.dst, ip.protocol, segment.len() as u32);
    sum.add(segment);
    if sum.finish() != 0 {
        return Err(wire::Malformed::Checksum);
    }
    let (tcp, tcp_len) = tcp::Header::parse(segment)?;
    Ok((ip, tcp, segment[tcp_len..].to_vec()))
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8).collect()
}

/// A super-segment whose payload stands in a ring, by reference.
pub(crate) fn super_segment(pool: &mut FramePool, data: &[u8]) -> Box<Frame> {
    let region = Arc::new(Region::create("frame-test", 32 * PAGE).unwrap());
    let byte_ring = Arc::new(ByteRing::map(&region, 0, 32 * PAGE).unwrap());
    byte_ring.write(9, data);
    let (bytes, headers) = tcp_segment(B, A, 7, Flags::ACK, ipv4::Ecn::NotEct, data);
    let mut frame = frame_of(pool, &bytes[..headers]);
    frame.set_payload(Some(Span::new(&byte_ring, 9, data.len() as u32)));
    (frame.checksum, frame.segment_size) = (TCP_PARTIAL, 1448);
    frame
}
