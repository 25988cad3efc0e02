//! Whatever comes from the network: bytes as they are, and segments with right checksums around an open connection.
use crate::{Input, host};
use std::net::Ipv4Addr;
use wire::Endpoint;
use wire::checksum::Sum;
use wire::ipv4::{self, Ecn};
use wire::tcp::{Cookie, Flags, Header, Options, Timestamps};
use wire::{Seq, tcp};

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 2);
const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Frames of one input.
const MOST: usize = 200;

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut sockets = host(input.byte());
    let listener = sockets.socket(libc_inet(), 1 | 0o4000, 0).expect("a socket");
    sockets.bind(listener, Endpoint::v4(LOCAL, 80)).expect("a free port");
    sockets.listen(listener, 4).expect("a listener");
    // A connection whose numbers the input can hit.
    sockets.stack.inject(&segment(Flags::SYN, 0, 0, &[], Options { sack_permitted: true, ..Options::default() }));
    let isn = sockets.stack.take().and_then(|(_, packet)| first_number(&packet)).unwrap_or(0);
    sockets.stack.inject(&segment(Flags::ACK, 1, isn.wrapping_add(1), &[], Options::default()));
    let mut open = sockets.accept(listener).ok().map(|accepted| accepted.fd);
    for _ in 0..MOST {
        if input.is_over() {
            break;
        }
        match input.byte() % 16 {
            0 => {
                let len = usize::from(input.byte());
                let frame = input.bytes(len);
                sockets.stack.inject_frame(frame);
            }
            1 => {
                let len = usize::from(input.byte());
                let packet = input.bytes(len);
                sockets.stack.inject(packet);
            }
            2 => {
                let then = sockets.stack.now() + (u64::from(input.word()) << 8);
                sockets.stack.run_until(then);
            }
            3 => {
                let len = usize::from(input.byte()) * 16;
                let _ = open.map(|fd| sockets.transmit(fd, &vec![7; len], 0));
            }
            4 => {
                let _ = open.map(|fd| sockets.receive(fd, 100, false));
            }
            5 => {
                let _ = open.map(|fd| sockets.shutdown(fd, 1));
            }
            6 => {
                let _ = open.take().map(|fd| sockets.close(fd));
            }
            7 => open = open.or(sockets.accept(listener).ok().map(|accepted| accepted.fd)),
            _ => {
                let packet = any_segment(&mut input, isn);
                sockets.stack.inject(&packet);
            }
        }
        sockets.settle();
        while sockets.stack.take().is_some() {}
    }
    sockets.stack.leave().expect("nothing is left");
}

fn libc_inet() -> i32 {
    2
}

fn first_number(packet: &[u8]) -> Option<u32> {
    let (_, len) = ipv4::Header::parse(packet, packet.len()).ok()?;
    Some(tcp::Header::parse(&packet[len..]).ok()?.0.seq.0)
}

/// A segment to the listener's port, near the connection's numbers more often than not.
fn any_segment(input: &mut Input<'_>, isn: u32) -> Vec<u8> {
    let flags = Flags(input.byte());
    let near = |base: u32, input: &mut Input<'_>| match input.byte() {
        kind @ 0..=199 => base.wrapping_add(u32::from(kind % 100)).wrapping_sub(20),
        200..=239 => base.wrapping_add(u32::from(input.byte()) << 6),
        _ => input.word(),
    };
    let (seq, ack) = (near(1, input), near(isn.wrapping_add(1), input));
    let shape = input.byte();
    let options = Options {
        timestamps: (shape & 1 != 0).then(|| Timestamps { value: input.word(), echo: 0 }),
        mss: (shape & 2 != 0).then(|| input.word() as u16),
        window_scale: (shape & 4 != 0).then(|| input.byte()),
        sack: [(shape & 8 != 0).then(|| (Seq(near(isn, input)), Seq(near(isn, input)))), None, None, None],
        sack_permitted: shape & 16 != 0,
        // A header has no room for it beside blocks.
        fast_open: Cookie::new(&[seq as u8; 8]).filter(|_| shape & (64 | 8) == 64),
    };
    let len = usize::from(input.byte()) * if shape & 32 != 0 { 4 } else { 1 };
    segment(flags, seq, ack, &vec![9; len.min(1000)], options)
}

/// An IP packet with right checksums.
fn segment(flags: Flags, seq: u32, ack: u32, payload: &[u8], options: Options) -> Vec<u8> {
    let (src_port, dst_port) = (4000, 80);
    let header = Header { src_port, dst_port, seq: Seq(seq), ack: Seq(ack), flags, window: 5000, options };
    let payload_len = (header.len() + payload.len()) as u16;
    let mut bytes = vec![0; ipv4::HEADER_LEN + header.len()];
    header.emit(&mut bytes[ipv4::HEADER_LEN..]);
    bytes.extend_from_slice(payload);
    let mut sum = Sum::pseudo_header(REMOTE, LOCAL, ipv4::TCP, payload_len.into());
    sum.add(&bytes[ipv4::HEADER_LEN..]);
    let (at, checksum) = (ipv4::HEADER_LEN + tcp::CHECKSUM_AT, sum.finish());
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    let (ttl, ecn, dscp, id) = (64, Ecn::NotEct, 0, 0);
    let ip = ipv4::Header {
        src: REMOTE,
        dst: LOCAL,
        protocol: ipv4::TCP,
        ttl,
        ecn,
        dscp,
        id,
        dont_fragment: true,
        is_fragment: false,
        payload_len,
    };
    ip.emit(&mut bytes);
    bytes
}
