//! Whatever comes from a network over IPv6: packets of any extension headers, neighbours' messages, errors, segments,
//! most of them with right checksums. What the host sends is read as strictly as what it receives.
use crate::Input;
use toe_script::sockets::Sockets;
use toe_script::stack::{OTHERS, OWN, Stack};
use wire::checksum::Sum;
use wire::icmpv6::{Message, NEIGHBOUR_HOPS, NEIGHBOUR_LEN};
use wire::tcp::{Flags, Header, Options};
use wire::{Endpoint, EtherType, IpAddress, Mac, Seq, ethernet, ip, ipv4, ipv6, tcp};

/// `AF_INET6`.
const INET6: i32 = 10;
/// Packets of one input.
const MOST: usize = 200;
/// Neighbours that a host has at most, by default.
const NEIGHBOURS: usize = 1024;

fn address(last: u8) -> IpAddress {
    IpAddress::from_bits(0x2001_0db8 << 96 | u128::from(last), 0)
}

fn own() -> IpAddress {
    address(2)
}

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let engine = ["flextoe", "threads"][usize::from(input.byte() % 2)];
    let flags = toe_script::Flags::parse(&format!("engine={engine},rx_bytes=4096,tx_bytes=4096,address6={}", own()));
    let mut sockets = Sockets::new(flags.and_then(Stack::new).expect("these flags are right"));
    sockets.stack.show_link();
    let listener = sockets.socket(INET6, 1 | 0o4000, 0).expect("a socket");
    sockets.bind(listener, Endpoint::new(own().any(), 80)).expect("a free port");
    sockets.listen(listener, 4).expect("a listener");
    let mut open = None;
    for _ in 0..MOST {
        if input.is_over() {
            break;
        }
        match input.byte() % 16 {
            0 => {
                let len = usize::from(input.byte());
                let body = input.bytes(len).to_vec();
                inject(&mut sockets, EtherType::Ipv6, OWN, &body);
            }
            1 => {
                let then = sockets.stack.now() + (u64::from(input.word()) << 8);
                sockets.stack.run_until(then);
            }
            2 => open = open.or(sockets.accept(listener).ok().map(|accepted| accepted.fd)),
            3 => {
                let len = usize::from(input.byte()) * 16;
                let _ = open.map(|fd| sockets.transmit(fd, &vec![7; len], 0));
            }
            4 => {
                let _ = open.map(|fd| sockets.receive(fd, 100, false));
            }
            5 => {
                let _ = open.take().map(|fd| sockets.close(fd));
            }
            6..=9 => neighbour(&mut input, &mut sockets),
            10 => error(&mut input, &mut sockets),
            _ => segment(&mut input, &mut sockets),
        }
        sockets.settle();
        while let Some((_, packet)) = sockets.stack.take() {
            check(&packet);
        }
        assert!(sockets.stack.neighbours() <= NEIGHBOURS, "strangers fill the table of neighbours");
    }
    sockets.stack.leave().expect("nothing is left");
}

/// What the host sends can be read, and its checksum is right.
fn check(packet: &[u8]) {
    if packet.first().is_some_and(|first| first >> 4 == 4) {
        return;
    }
    let (header, at) = ip::Header::parse(EtherType::Ipv6, packet, packet.len()).expect("a packet");
    let body = &packet[at..at + usize::from(header.payload_len)];
    let mut sum = Sum::pseudo_header(header.src, header.dst, header.protocol, body.len() as u32);
    sum.add(body);
    assert_eq!(sum.finish(), 0, "a wrong checksum is sent");
    assert!(packet.len() <= 1500 && !header.src.is_multicast(), "no packet of this host");
}

fn inject(sockets: &mut Sockets, ethertype: EtherType, dst: Mac, packet: &[u8]) {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    ethernet::Header { dst, src: OTHERS, ethertype }.emit(&mut frame);
    frame.extend_from_slice(packet);
    sockets.stack.inject_frame(&frame);
}

/// Sends a packet to the host, with extension headers before what it carries where the input has them.
fn send(input: &mut Input<'_>, sockets: &mut Sockets, ends: (IpAddress, IpAddress), carried: (u8, u8, &[u8])) {
    let (protocol, hops, body) = carried;
    let (mut chain, mut first) = (Vec::new(), protocol);
    for _ in 0..usize::from(input.byte() % 8).saturating_sub(5) {
        let kind = [0, 43, 44, 60][usize::from(input.byte() % 4)];
        let mut extension = vec![first, 0];
        let len = if kind == 44 { 6 } else { 6 + 8 * usize::from(input.byte() % 4) };
        extension.extend_from_slice(input.bytes(len));
        extension.resize(2 + len, 0);
        if kind != 44 {
            extension[1] = ((len - 6) / 8) as u8;
        }
        chain.splice(0..0, extension);
        first = kind;
    }
    let mut packet = vec![0; ipv6::HEADER_LEN];
    packet.extend_from_slice(&chain);
    packet.extend_from_slice(body);
    if ip::emit(first, ends, hops, &mut packet).is_none() {
        return;
    }
    let dst = if ends.1.is_multicast() { ends.1.group_station() } else { OWN };
    inject(sockets, EtherType::Ipv6, dst, &packet);
}

/// An address of the network, the host's own, a group's, or any.
fn any_address(input: &mut Input<'_>) -> IpAddress {
    match input.byte() % 8 {
        0..=2 => address(input.byte()),
        3 => own(),
        4 => IpAddress::link_local(OWN, 0),
        5 => own().solicited_node(),
        6 => own().any(),
        _ => IpAddress::from_bits(u128::from(input.long()) << 64 | u128::from(input.long()), 0),
    }
}

fn neighbour(input: &mut Input<'_>, sockets: &mut Sockets) {
    let (from, to, about) = (any_address(input), any_address(input), any_address(input));
    let mac = (input.byte() % 3 != 0).then(|| if input.byte() % 4 == 0 { OWN } else { OTHERS });
    let target = about.to_bits().into();
    let bits = input.byte();
    let message = match bits & 1 {
        0 => Message::Solicitation { target, sender: mac },
        _ => Message::Advertisement { target, mac, solicited: bits & 2 != 0, replaces: bits & 4 != 0 },
    };
    let len = if mac.is_some() { NEIGHBOUR_LEN } else { NEIGHBOUR_LEN - 8 };
    let mut body = vec![0; len];
    let more = usize::from(bits >> 5) * 4;
    body.extend_from_slice(input.bytes(more));
    message.emit((from, to), &mut body);
    let hops = if bits & 8 == 0 { NEIGHBOUR_HOPS } else { 64 };
    send(input, sockets, (from, to), (ipv6::ICMP, hops, &body));
}

/// An error or an echo request, about whatever bytes.
fn error(input: &mut Input<'_>, sockets: &mut Sockets) {
    let (from, to) = (any_address(input), any_address(input));
    let message = match input.byte() % 4 {
        0 => Message::EchoRequest(input.word() as u16, 1),
        1 => Message::TooBig { mtu: input.word() },
        2 => Message::Unreachable { code: input.byte() % 8 },
        _ => Message::Problem { code: input.byte() % 4, pointer: input.byte().into() },
    };
    let len = usize::from(input.byte()) * 4;
    let data = input.bytes(len).to_vec();
    let mut body = vec![0; 8];
    body.extend_from_slice(&data);
    message.emit((from, to), &mut body);
    send(input, sockets, (from, to), (ipv6::ICMP, 64, &body));
}

fn segment(input: &mut Input<'_>, sockets: &mut Sockets) {
    let (from, to) = (address(9), own());
    let (flags, seq, ack) = (Flags(input.byte()), Seq(input.byte().into()), Seq(input.word()));
    let options = Options { mss: (input.byte() & 1 != 0).then(|| input.word() as u16), ..Options::default() };
    let header = Header { src_port: 4000, dst_port: 80, seq, ack, flags, window: 5000, options };
    let mut body = vec![0; header.len()];
    header.emit(&mut body);
    body.resize(body.len() + usize::from(input.byte()), 9);
    let mut sum = Sum::pseudo_header(from, to, ipv4::TCP, body.len() as u32);
    sum.add(&body);
    body[tcp::CHECKSUM_AT..tcp::CHECKSUM_AT + 2].copy_from_slice(&sum.finish().to_be_bytes());
    send(input, sockets, (from, to), (ipv4::TCP, 64, &body));
}
