//! Checksum updates of a frame whose headers were changed (RFC 1624). A right checksum stays right, and a wrong one
//! stays wrong: a corrupt frame is still detected.
use crate::checksum::{Sum, update};
use crate::{EtherType, IpAddress, be16, ip, ip_at, ipv4, ipv6, tcp};

/// Bytes of the longest headers that are read: Ethernet with two VLAN tags, IPv4 and TCP with all options. As long
/// are those of IPv6 with a few extension headers.
pub const MAX_HEADERS: usize = 144;

const IP_CHECKSUM: usize = 10;

/// Where the headers of an IP packet in a frame start. Nothing is checked beyond what makes the places sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    ip_at: usize,
    is_v4: bool,
    /// Where what IP carries starts.
    body_at: usize,
    /// Where the TCP header ends, where it is one.
    tcp_end: Option<usize>,
}

impl Layers {
    /// Those of a frame of which `bytes` are the first; none where it is not IP or a header is cut short.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<Layers> {
        let (ip_at, ethertype) = ip::packet_at(bytes)?;
        let packet = &bytes[ip_at..];
        let is_v4 = ethertype == EtherType::Ipv4;
        let (header_len, carries_tcp) = if is_v4 { body_of_v4(packet)? } else { body_of_v6(packet)? };
        let body_at = ip_at + header_len;
        let is_tcp = carries_tcp && bytes.len() >= body_at + tcp::HEADER_LEN;
        let tcp_end = is_tcp.then(|| body_at + usize::from(bytes[body_at + 12] >> 4) * 4);
        let tcp_end = tcp_end.filter(|end| *end >= body_at + tcp::HEADER_LEN && *end <= bytes.len());
        Some(Layers { ip_at, is_v4, body_at, tcp_end })
    }

    /// It is a TCP segment.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.tcp_end.is_some()
    }

    /// The IP header and, of a TCP segment, the TCP header.
    #[inline]
    pub fn headers<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.ip_at..self.tcp_end.unwrap_or(self.body_at)]
    }

    /// The first byte that the TCP checksum covers, and the byte where it stands.
    #[inline]
    pub fn checksum_places(&self) -> (u16, u16) {
        (self.body_at as u16, (self.body_at + tcp::CHECKSUM_AT) as u16)
    }

    /// Whether the TCP checksum is right, over a whole frame. False where the frame is shorter than its IP header
    /// states, and for what is not TCP.
    pub fn tcp_is_sound(&self, frame: &[u8]) -> bool {
        let end = self.ip_at + self.packet_len(frame);
        let Some(segment) = frame.get(self.body_at..end).filter(|_| self.is_tcp()) else { return false };
        let mut sum = self.pseudo(frame);
        sum.add(segment);
        sum.finish() == 0
    }

    /// Puts the folded sum of the pseudo-header into the TCP checksum's field, for whoever completes it.
    pub fn set_partial(&self, frame: &mut [u8]) {
        let sum = self.pseudo(frame).partial();
        self.put_tcp(frame, sum);
    }

    /// Computes the IPv4 header's checksum anew. IPv6 has none.
    pub fn set_ip(&self, frame: &mut [u8]) {
        if self.is_v4 {
            let sum = !self.ip_sum(frame);
            put16(frame, self.ip_at + IP_CHECKSUM, sum);
        }
    }

    /// Bytes of the packet, by its header.
    fn packet_len(&self, bytes: &[u8]) -> usize {
        match self.is_v4 {
            true => usize::from(be16(bytes, self.ip_at + 2)),
            false => ipv6::HEADER_LEN + usize::from(be16(bytes, self.ip_at + 4)),
        }
    }

    fn pseudo(&self, bytes: &[u8]) -> Sum {
        let len = self.packet_len(bytes).saturating_sub(self.body_at - self.ip_at);
        let ends = |first: usize, second: usize| match self.is_v4 {
            true => [first, second].map(|at| IpAddress::v4(ip_at(bytes, self.ip_at + at))),
            false => [first, second].map(|at| IpAddress::v6(ipv6::address_at(bytes, self.ip_at + at), 0)),
        };
        let [src, dst] = if self.is_v4 { ends(12, 16) } else { ends(8, 24) };
        Sum::pseudo_header(src, dst, ipv4::TCP, len as u32)
    }

    /// Sum over the IPv4 header without its checksum.
    fn ip_sum(&self, bytes: &[u8]) -> u16 {
        let field = self.ip_at + IP_CHECKSUM;
        let mut sum = Sum::new();
        sum.add(&bytes[self.ip_at..field]);
        sum.add(&bytes[field + 2..self.body_at]);
        sum.partial()
    }

    /// Sum over pseudo-header and TCP header without the checksum.
    fn tcp_sum(&self, bytes: &[u8]) -> u16 {
        let field = self.body_at + tcp::CHECKSUM_AT;
        let mut sum = self.pseudo(bytes);
        sum.add(&bytes[self.body_at..field]);
        sum.add(&bytes[field + 2..self.tcp_end.unwrap_or(field + 2)]);
        sum.partial()
    }

    fn put_tcp(&self, bytes: &mut [u8], value: u16) {
        if self.is_tcp() {
            put16(bytes, self.body_at + tcp::CHECKSUM_AT, value);
        }
    }
}

/// Carries the IPv4 header's checksum over from the headers as they were (`old`) to those that they are now.
#[inline]
pub fn carry_ip(old: (&Layers, &[u8]), new: (&Layers, &mut [u8])) {
    if !(old.0.is_v4 && new.0.is_v4) {
        return new.0.set_ip(new.1);
    }
    let was = be16(old.1, old.0.ip_at + IP_CHECKSUM);
    let field = update(was, old.0.ip_sum(old.1), new.0.ip_sum(new.1));
    put16(new.1, new.0.ip_at + IP_CHECKSUM, field);
}

/// The same for the TCP checksum, where both are TCP and the payload is what it was.
#[inline]
pub fn carry_tcp(old: (&Layers, &[u8]), new: (&Layers, &mut [u8])) {
    let was = be16(old.1, old.0.body_at + tcp::CHECKSUM_AT);
    let field = update(was, old.0.tcp_sum(old.1), new.0.tcp_sum(new.1));
    new.0.put_tcp(new.1, field);
}

/// Bytes of an IPv4 header, and whether a whole TCP segment follows; none where it is cut short.
#[inline]
fn body_of_v4(packet: &[u8]) -> Option<(usize, bool)> {
    let header_len = usize::from(*packet.first()? & 0x0f) * 4;
    if packet[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN || packet.len() < header_len {
        return None;
    }
    Some((header_len, packet[9] == ipv4::TCP && be16(packet, 6) & 0x3fff == 0))
}

/// The same of an IPv6 header with its extension headers.
fn body_of_v6(packet: &[u8]) -> Option<(usize, bool)> {
    let (header, len) = ipv6::Header::parse(packet, usize::MAX).ok()?;
    Some((len, header.protocol == ipv4::TCP && !header.is_fragment))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Fields, Template};
    use crate::{Mac, Seq, ipv4::Ecn, tcp::Flags, tcp::Timestamps};

    const V4: [&str; 2] = ["10.1.2.3", "10.3.2.1"];
    const V6: [&str; 2] = ["2001:db8::1", "2001:db8:1::2"];

    /// A whole segment with right checksums.
    fn segment(payload: &[u8], timestamps: bool) -> Vec<u8> {
        segment_between(V4, payload, timestamps)
    }

    fn segment_between(ends: [&str; 2], payload: &[u8], timestamps: bool) -> Vec<u8> {
        let addresses = (ends[0].parse().unwrap(), ends[1].parse().unwrap());
        let template = Template::new((Mac([2; 6]), Mac([4; 6])), addresses, (4711, 80)).unwrap();
        let timestamps = timestamps.then_some(Timestamps { value: 0x0102_0304, echo: 0xf1f2_f3f4 });
        let (seq, ack, flags) = (Seq(0xdead_beef), Seq(0x1234_5678), Flags::ACK | Flags::PSH);
        let payload_len = payload.len() as u32;
        let fields = Fields { seq, ack, flags, window: 777, timestamps, sack: None, ecn: Ecn::NotEct, payload_len };
        let mut frame = Vec::new();
        let (start, field) = template.write(&fields, &mut frame);
        frame.extend_from_slice(payload);
        let mut sum = Sum::new();
        sum.add(&frame[start as usize..]);
        put16(&mut frame, field as usize, sum.finish());
        frame
    }

    fn is_sound(frame: &[u8]) -> (bool, bool) {
        let layers = Layers::of(frame).unwrap();
        let packet = &frame[layers.ip_at..];
        let ethertype = if layers.is_v4 { EtherType::Ipv4 } else { EtherType::Ipv6 };
        (ip::Header::parse(ethertype, packet, packet.len()).is_ok(), layers.tcp_is_sound(frame))
    }

    /// Changes headers, carries both checksums over, and returns the frame.
    fn changed(old: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut new = old.to_vec();
        change(&mut new);
        let layers = (Layers::of(old).unwrap(), Layers::of(&new).unwrap());
        carry_ip((&layers.0, old), (&layers.1, &mut new));
        carry_tcp((&layers.0, old), (&layers.1, &mut new));
        new
    }

    #[test]
    fn what_was_right_is_right_after_any_change() {
        for timestamps in [false, true] {
            for payload in [&b""[..], b"x", b"some more bytes"] {
                let old = segment(payload, timestamps);
                assert_eq!(is_sound(&old), (true, true));
                for at in (14 + 1..14 + 9).chain(14 + 12..14 + 20).chain(34..34 + 12).chain([46 + 1, 48, 49]) {
                    // Not the lengths, fragments or the protocol: then it is another packet.
                    if [16, 17, 20, 21].contains(&at) {
                        continue;
                    }
                    for value in [0, 1, 0x7f, 0xff] {
                        let new = changed(&old, |frame| frame[at] = value);
                        assert_eq!(is_sound(&new), (true, true), "byte {at} = {value}");
                    }
                }
            }
        }
    }

    #[test]
    fn so_it_is_of_ipv6_and_of_what_becomes_the_other_version() {
        for payload in [&b""[..], b"x", b"some more bytes"] {
            let (v4, v6) = (segment(payload, true), segment_between(V6, payload, true));
            // Class and label, hops, addresses; ports, numbers and window.
            for at in (14 + 1..14 + 4).chain([21]).chain(22..54).chain(54..66).chain([66 + 1, 68, 69]) {
                // An IPv4-mapped address is none of these.
                for value in [0, 1, 0x7f, 0xff] {
                    let new = changed(&v6, |frame| frame[at] = value);
                    assert_eq!(is_sound(&new), (true, true), "byte {at} = {value}");
                }
            }
            let to_v6 = changed(&v4, |frame| {
                drop(frame.splice(12..34, v6[12..54].iter().copied()));
            });
            assert_eq!(to_v6, v6);
            assert_eq!(changed(&v6, |frame| drop(frame.splice(12..54, v4[12..34].iter().copied()))), v4);
            let mut wrong = v6.clone();
            wrong[60] ^= 0x10;
            let new = changed(&wrong, |frame| frame[30] = 9);
            assert_eq!(is_sound(&new), (true, false), "what was wrong stays wrong");
        }
    }

    #[test]
    fn tags_options_and_own_writes_change_nothing() {
        let old = segment(b"payload", false);
        let tagged = changed(&old, |frame| drop(frame.splice(12..12, [0x81, 0, 0, 5])));
        assert_eq!(is_sound(&tagged), (true, true));
        let untagged = changed(&tagged, |frame| drop(frame.drain(12..16)));
        assert_eq!(untagged, old);
        let longer = changed(&old, |frame| {
            drop(frame.splice(54..54, [1, 1, 1, 0]));
            frame[46] = 6 << 4;
            let total = be16(frame, 16) + 4;
            put16(frame, 16, total);
        });
        assert_eq!(is_sound(&longer), (true, true));
        let scribbled = changed(&old, |frame| put16(frame, 50, 0xabcd));
        assert_eq!(scribbled, old);
    }

    #[test]
    fn what_was_wrong_stays_wrong() {
        let right = segment(b"payload", true);
        for (at, expected) in [(right.len() - 1, (true, false)), (40, (true, false)), (22, (false, true))] {
            let mut wrong = right.clone();
            wrong[at] ^= 0x10;
            let new = changed(&wrong, |frame| {
                frame[30..34].copy_from_slice(&[192, 168, 0, 1]);
                frame[38] = 99;
            });
            assert_eq!(is_sound(&new), expected, "byte {at}");
        }
    }

    #[test]
    fn bytes_that_are_no_packet_have_no_layers() {
        let frame = segment(b"payload", true);
        for len in 0..34 {
            assert_eq!(Layers::of(&frame[..len]), None);
        }
        for len in 34..frame.len() {
            assert_eq!(Layers::of(&frame[..len]).unwrap().is_tcp(), len >= 66, "{len} bytes");
        }
        let mut other = frame.clone();
        other[12] = 0x86;
        assert_eq!(Layers::of(&other), None);
    }
}
