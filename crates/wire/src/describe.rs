//! Description of a frame in one line, as tcpdump's. Sequence numbers are absolute: nothing is remembered.
use crate::tcp::{Flags, Options};
use crate::{EtherType, arp, be16, ethernet, icmpv4, icmpv6, ip, ipv4, ipv6, tcp};
use std::fmt::Write;

/// EtherType of a VLAN tag (IEEE 802.1Q).
const VLAN: u16 = 0x8100;

/// One line about an Ethernet frame. `len` is how many bytes it has, of which `bytes` may be only the first.
pub fn frame(bytes: &[u8], len: usize) -> String {
    let Ok(header) = ethernet::Header::parse(bytes) else { return format!("truncated frame, length {len}") };
    after_type(header.ethertype, &bytes[ethernet::HEADER_LEN..], len.saturating_sub(ethernet::HEADER_LEN))
}

fn after_type(ethertype: EtherType, payload: &[u8], len: usize) -> String {
    match ethertype {
        EtherType::Arp => describe_arp(payload, len),
        EtherType::Ipv4 | EtherType::Ipv6 => describe_ip(ethertype, payload, len),
        EtherType::Other(VLAN) if payload.len() >= 4 => {
            let inner = after_type(be16(payload, 2).into(), &payload[4..], len.saturating_sub(4));
            format!("vlan {}, {inner}", be16(payload, 0) & 0xfff)
        }
        EtherType::Other(number) => format!("ethertype {number:#06x}, length {len}"),
    }
}

fn describe_arp(packet: &[u8], len: usize) -> String {
    match arp::Packet::parse(packet) {
        Ok(arp::Packet { operation: arp::Operation::Request, sender_ip, target_ip, .. }) => {
            format!("ARP, request who-has {target_ip} tell {sender_ip}, length {len}")
        }
        Ok(packet) => format!("ARP, reply {} is-at {}, length {len}", packet.sender_ip, packet.sender_mac),
        Err(_) => format!("ARP, malformed, length {len}"),
    }
}

fn describe_ip(ethertype: EtherType, packet: &[u8], len: usize) -> String {
    let name = if ethertype == EtherType::Ipv4 { "IP" } else { "IP6" };
    let Ok((ip, at)) = ip::Header::parse(ethertype, packet, len) else {
        return format!("{name}, malformed, length {len}");
    };
    let (src, dst, payload) = (ip.src, ip.dst, usize::from(ip.payload_len));
    let body = &packet[at..packet.len().min(at + payload)];
    match ip.protocol {
        _ if ip.is_fragment => format!("{name} {src} > {dst}: fragment, length {payload}"),
        ipv4::TCP => describe_tcp(name, &ip, body),
        ipv4::UDP if body.len() >= 8 => {
            let (from, to) = (be16(body, 0), be16(body, 2));
            format!("{name} {src}.{from} > {dst}.{to}: UDP, length {}", payload.saturating_sub(8))
        }
        ipv4::ICMP if src.is_v4() => {
            format!("IP {src} > {dst}: ICMP {}, length {payload}", describe_icmp(body, payload))
        }
        ipv6::ICMP if !src.is_v4() => format!("IP6 {src} > {dst}: ICMP6 {}", describe_icmpv6(&ip, body)),
        protocol => format!("{name} {src} > {dst}: protocol {protocol}, length {payload}"),
    }
}

fn describe_icmpv6(ip: &ip::Header, body: &[u8]) -> String {
    use icmpv6::Message;
    let whole = usize::from(ip.payload_len);
    if body.len() < whole {
        return format!("cut off, length {whole}");
    }
    let text = match Message::parse(body, (ip.src, ip.dst)) {
        Ok(Message::EchoRequest(id, seq)) => format!("echo request, id {id}, seq {seq}"),
        Ok(Message::EchoReply(id, seq)) => format!("echo reply, id {id}, seq {seq}"),
        Ok(Message::Unreachable { code }) => format!("unreachable, code {code}"),
        Ok(Message::TooBig { mtu }) => format!("packet too big, mtu {mtu}"),
        Ok(Message::Problem { code, pointer }) => format!("parameter problem, code {code}, byte {pointer}"),
        Ok(Message::Solicitation { target, .. }) => format!("neighbor solicitation, who has {target}"),
        Ok(Message::Advertisement { target, mac: Some(mac), .. }) => {
            format!("neighbor advertisement, {target} is at {mac}")
        }
        Ok(Message::Advertisement { target, .. }) => format!("neighbor advertisement, tgt is {target}"),
        Ok(Message::Other(kind, code)) => format!("type {kind}, code {code}"),
        Ok(icmpv6::Message::Query(query)) => match query.group {
            Some(group) => format!("who listens to {group}"),
            None => "who listens".into(),
        },
        Err(_) => "malformed".into(),
    };
    format!("{text}, length {whole}")
}

fn describe_icmp(body: &[u8], whole: usize) -> String {
    if body.len() < whole {
        return "cut off".into();
    }
    match icmpv4::Message::parse(body) {
        Ok(icmpv4::Message::EchoRequest(id, seq)) => format!("echo request, id {id}, seq {seq}"),
        Ok(icmpv4::Message::EchoReply(id, seq)) => format!("echo reply, id {id}, seq {seq}"),
        Ok(icmpv4::Message::Unreachable { code, .. }) => format!("unreachable, code {code}"),
        Ok(icmpv4::Message::Other(kind, code)) => format!("type {kind}, code {code}"),
        Err(_) => "malformed".into(),
    }
}

fn describe_tcp(name: &str, ip: &ip::Header, body: &[u8]) -> String {
    let Ok((header, at)) = tcp::Header::parse(body) else {
        return format!("{name} {} > {}: TCP, malformed, length {}", ip.src, ip.dst, ip.payload_len);
    };
    let payload = usize::from(ip.payload_len).saturating_sub(at) as u32;
    let (src, dst) = ((ip.src, header.src_port), (ip.dst, header.dst_port));
    let mut text = format!("{name} {}.{} > {}.{}: Flags [{}]", src.0, src.1, dst.0, dst.1, flags(header.flags));
    // Writing to a string does not fail.
    let _ = match payload {
        0 => write!(text, ", seq {}", header.seq.0),
        _ => write!(text, ", seq {}:{}", header.seq.0, (header.seq + payload).0),
    };
    if header.flags.has(Flags::ACK) {
        let _ = write!(text, ", ack {}", header.ack.0);
    }
    let _ = write!(text, ", win {}", header.window);
    if ip.ecn == ipv4::Ecn::Ce {
        text += ", CE";
    }
    let options = options(&header.options);
    if !options.is_empty() {
        let _ = write!(text, ", options [{options}]");
    }
    let _ = write!(text, ", length {payload}");
    text
}

/// As tcpdump writes them: a dot is an acknowledgement.
fn flags(flags: Flags) -> String {
    const LETTERS: [(Flags, char); 8] = [
        (Flags::FIN, 'F'),
        (Flags::SYN, 'S'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, '.'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
    ];
    let set: String = LETTERS.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, letter)| *letter).collect();
    if set.is_empty() { "none".into() } else { set }
}

fn options(options: &Options) -> String {
    let mut all = Vec::new();
    all.extend(options.mss.map(|mss| format!("mss {mss}")));
    all.extend(options.sack_permitted.then(|| "sackOK".into()));
    all.extend(options.timestamps.map(|stamps| format!("TS val {} ecr {}", stamps.value, stamps.echo)));
    all.extend(options.window_scale.map(|shift| format!("wscale {shift}")));
    all.extend(options.fast_open.map(|cookie| match cookie.is_request() {
        true => "tfo cookiereq".into(),
        false => format!("tfo cookie {}", cookie.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }));
    let blocks: Vec<String> =
        options.sack.iter().flatten().map(|(left, right)| format!("{{{}:{}}}", left.0, right.0)).collect();
    if !blocks.is_empty() {
        all.push(format!("sack {}", blocks.join("")));
    }
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mac, Seq};

    fn ethernet(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; ethernet::HEADER_LEN];
        ethernet::Header { dst: Mac([2; 6]), src: Mac([4; 6]), ethertype }.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn ip(protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; ipv4::HEADER_LEN];
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let (ecn, payload_len) = (ipv4::Ecn::Ce, body.len() as u16);
        let flags = (true, false);
        ipv4::Header {
            src,
            dst,
            protocol,
            ttl: 64,
            ecn,
            dscp: 0,
            id: 0,
            dont_fragment: flags.0,
            is_fragment: flags.1,
            payload_len,
        }
        .emit(&mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    fn ip6(protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; ipv6::HEADER_LEN];
        let (src, dst) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        ipv6::Header { ecn: ipv4::Ecn::Ce, ..ipv6::Header::new(protocol, src, dst, body.len() as u16) }
            .emit(&mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_in_a_line() {
        let header = tcp::Header {
            src_port: 4000,
            dst_port: 80,
            seq: Seq(u32::MAX),
            ack: Seq(7),
            flags: Flags::PSH | Flags::ACK,
            window: 502,
            options: Options { sack: [Some((Seq(9), Seq(11))), None, None, None], ..Options::default() },
        };
        let mut segment = vec![0; header.len()];
        header.emit(&mut segment);
        segment.extend_from_slice(b"four");
        let bytes = ethernet(EtherType::Ipv4, &ip(ipv4::TCP, &segment));
        let line = "IP 10.0.0.1.4000 > 10.0.0.2.80: Flags [P.], seq 4294967295:3, ack 7, win 502, CE, \
                    options [sack {9:11}], length 4";
        assert_eq!(frame(&bytes, bytes.len()), line);
        assert_eq!(frame(&bytes[..bytes.len() - 3], bytes.len()), line, "cut off behind the headers");
        let tagged = ethernet(EtherType::Other(VLAN), &[&[0x20, 7, 8, 0], &bytes[14..]].concat());
        assert_eq!(frame(&tagged, tagged.len()), format!("vlan 7, {line}"));
        let udp = ethernet(EtherType::Ipv4, &ip(ipv4::UDP, &[0, 53, 1, 0, 0, 9, 0, 0, 1]));
        assert_eq!(frame(&udp, udp.len()), "IP 10.0.0.1.53 > 10.0.0.2.256: UDP, length 1");
        assert_eq!(frame(&ethernet(EtherType::Other(0x88cc), &[0; 40]), 54), "ethertype 0x88cc, length 40");
        let six = ethernet(EtherType::Ipv6, &ip6(ipv4::TCP, &segment));
        assert_eq!(frame(&six, six.len()), line.replace("IP 10.0.0.1", "IP6 fe80::1").replace("10.0.0.2", "fe80::2"));
        let mut body = [0; icmpv6::NEIGHBOUR_LEN];
        let (target, sender) = ("2001:db8::2".parse().unwrap(), Some(Mac([2; 6])));
        let ends = ip::Ends { src: "fe80::1".parse().unwrap(), dst: "fe80::2".parse().unwrap() };
        icmpv6::Message::Solicitation { target, sender }.emit(ends, &mut body);
        let asks = ethernet(EtherType::Ipv6, &ip6(ipv6::ICMP, &body));
        assert_eq!(
            frame(&asks, asks.len()),
            "IP6 fe80::1 > fe80::2: ICMP6 neighbor solicitation, who has 2001:db8::2, length 32"
        );
    }

    #[test]
    fn any_bytes_are_described_without_panic() {
        let bytes = ethernet(EtherType::Ipv4, &ip(ipv4::TCP, &[0; 30]));
        let six = ethernet(EtherType::Ipv6, &ip6(ipv4::TCP, &[0; 30]));
        for (kind, bytes, protocol_at) in
            [([8, 0], &bytes, 23), ([8, 6], &bytes, 23), ([0x81, 0], &bytes, 23), ([0x86, 0xdd], &six, 20)]
        {
            for protocol in [0, 1, 6, 17, 43, 44, 58, 99] {
                for len in 0..bytes.len() {
                    let mut bytes = bytes[..len].to_vec();
                    if len > 14 {
                        bytes[12..14].copy_from_slice(&kind);
                    }
                    if len > protocol_at {
                        bytes[protocol_at] = protocol;
                    }
                    assert!(!frame(&bytes, 64).is_empty());
                }
            }
        }
    }
}
