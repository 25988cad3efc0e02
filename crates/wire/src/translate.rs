//! Translation of a segment of one connection into one of another: splicing (FlexTOE listing 1). `xdp/splice.c` is the
//! same arithmetic in the data-path.
use crate::checksum::Sum;
use crate::{Mac, Malformed, Seq, be16, be32, ethernet, ipv4, tcp};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// One direction of a splice. Numbers are added modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Translation {
    /// The next hop's hardware address.
    pub dst_mac: Mac,
    /// This host's.
    pub src_mac: Mac,
    /// The sender's new address: this host's.
    pub src: Ipv4Addr,
    /// The receiver.
    pub dst: Ipv4Addr,
    /// This host's port of the outgoing connection.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Added to the sequence number.
    pub seq: u32,
    /// Added to the acknowledgement number and to the edges of SACK blocks.
    pub ack: u32,
    /// Added to TSval and to TSecr; without it, timestamps are blanked.
    pub timestamps: Option<(u32, u32)>,
    /// The receiver understands SACK blocks; otherwise they are blanked.
    pub sack: bool,
    /// Shift of the windows that come in.
    pub window_in: u8,
    /// Shift of the windows that go out.
    pub window_out: u8,
}

/// Where a translated segment's checksum is to be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translated {
    /// The TCP header's first byte: from there on, all is summed.
    pub start: u16,
    /// The checksum field, which now holds the pseudo-header's sum.
    pub field: u16,
}

/// Where the options are that have numbers in them.
#[derive(Default)]
struct Found {
    timestamps: Option<usize>,
    /// First block and number of blocks.
    sack: Option<(usize, usize)>,
}

impl Translation {
    /// The sequence number that `seq` has on the other connection.
    pub fn seq(&self, seq: Seq) -> Seq {
        seq + self.seq
    }

    /// The acknowledgement number that `ack` has on the other connection.
    pub fn ack(&self, ack: Seq) -> Seq {
        ack + self.ack
    }

    /// A window as it is to stand in the header.
    pub fn window(&self, window: u16) -> u16 {
        ((window as u32) << self.window_in.min(14) >> self.window_out.min(14)).min(u16::MAX as u32) as u16
    }

    /// Rewrites a frame whose contiguous part is `bytes`: all headers, at least. What is unknown among TCP's
    /// options is blanked. Fails, with nothing changed, where it is no IPv4 TCP segment or has no hops left.
    pub fn apply(&self, bytes: &mut [u8]) -> Result<Translated, Malformed> {
        let at = ethernet::HEADER_LEN;
        let ip = bytes.get(at..).filter(|ip| ip.len() >= ipv4::HEADER_LEN).ok_or(Malformed::Truncated)?;
        let (ip_len, total_len, ttl) = ((ip[0] & 0x0f) as usize * 4, be16(ip, 2) as usize, ip[8]);
        let start = at + ip_len;
        let header = bytes.get(start..).filter(|tcp| tcp.len() >= tcp::HEADER_LEN).ok_or(Malformed::Truncated)?;
        let tcp_len = (header[12] >> 4) as usize * 4;
        let short = header.len() < tcp_len || total_len < ip_len + tcp_len;
        if short || tcp_len < tcp::HEADER_LEN || ip_len < ipv4::HEADER_LEN || ttl <= 1 {
            return Err(Malformed::Field);
        }
        ethernet::Header { dst: self.dst_mac, src: self.src_mac, ethertype: crate::EtherType::Ipv4 }.emit(bytes);
        self.rewrite_ip(&mut bytes[at..start]);
        self.rewrite_tcp(&mut bytes[start..start + tcp_len]);
        let len = (total_len - ip_len) as u32;
        let field = start + tcp::CHECKSUM_AT;
        let sum = Sum::pseudo_header(self.src, self.dst, ipv4::TCP, len).partial();
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        Ok(Translated { start: start as u16, field: field as u16 })
    }

    fn rewrite_ip(&self, ip: &mut [u8]) {
        ip[8] -= 1;
        ip[12..16].copy_from_slice(&self.src.octets());
        ip[16..20].copy_from_slice(&self.dst.octets());
        ip[10..12].fill(0);
        let mut sum = Sum::new();
        sum.add(ip);
        ip[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    }

    fn rewrite_tcp(&self, tcp: &mut [u8]) {
        tcp[..2].copy_from_slice(&self.src_port.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        add(tcp, 4, self.seq);
        if tcp::Flags(tcp[13]).has(tcp::Flags::ACK) {
            add(tcp, 8, self.ack);
        }
        let window = self.window(be16(tcp, 14));
        tcp[14..16].copy_from_slice(&window.to_be_bytes());
        let found = keep_known(&mut tcp[tcp::HEADER_LEN..], self.timestamps.is_some(), self.sack);
        if let (Some(at), Some((value, echo))) = (found.timestamps, self.timestamps) {
            add(tcp, tcp::HEADER_LEN + at, value);
            add(tcp, tcp::HEADER_LEN + at + 4, echo);
        }
        let (first, blocks) = found.sack.unwrap_or_default();
        (0..2 * blocks).for_each(|edge| add(tcp, tcp::HEADER_LEN + first + 4 * edge, self.ack));
    }
}

fn add(bytes: &mut [u8], at: usize, value: u32) {
    let sum = be32(bytes, at).wrapping_add(value);
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
}

/// Blanks all options but timestamps and SACK blocks, and these too where they are not wanted.
fn keep_known(area: &mut [u8], timestamps: bool, sack: bool) -> Found {
    const NOP: u8 = 1;
    let mut found = Found::default();
    let mut at = 0;
    while at < area.len() && area[at] != 0 {
        let len = if area[at] == NOP { 1 } else { area.get(at + 1).map_or(0, |len| *len as usize) };
        if len == 0 || (len == 1 && area[at] != NOP) || at + len > area.len() {
            break;
        }
        match (area[at], len) {
            (8, 10) if timestamps => found.timestamps = Some(at + 2),
            (5, 10 | 18 | 26 | 34) if sack => found.sack = Some((at + 2, (len - 2) / 8)),
            _ => area[at..at + len].fill(NOP),
        }
        at += len;
    }
    // The end of the list, or what cannot be read.
    area[at..].fill(0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::Header as Ethernet;
    use crate::tcp::{Flags, Options, Timestamps};

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const TO: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

    fn translation() -> Translation {
        Translation {
            dst_mac: Mac([3; 6]),
            src_mac: Mac([1; 6]),
            src: HERE,
            dst: TO,
            src_port: 40_000,
            dst_port: 80,
            seq: 100,
            ack: u32::MAX,
            timestamps: Some((7, 9)),
            sack: true,
            window_in: 7,
            window_out: 3,
        }
    }

    fn frame(header: &tcp::Header, payload: &[u8]) -> Vec<u8> {
        let at = ethernet::HEADER_LEN;
        let start = at + ipv4::HEADER_LEN;
        let mut bytes = vec![0; start + header.len()];
        Ethernet { dst: Mac([1; 6]), src: Mac([2; 6]), ethertype: crate::EtherType::Ipv4 }.emit(&mut bytes);
        let ip = ipv4::Header {
            src: FROM,
            dst: HERE,
            protocol: ipv4::TCP,
            ttl: 64,
            ecn: ipv4::Ecn::Ce,
            dscp: 5,
            id: 7,
            dont_fragment: true,
            is_fragment: false,
            payload_len: (header.len() + payload.len()) as u16,
        };
        ip.emit(&mut bytes[at..]);
        header.emit(&mut bytes[start..]);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn header(options: Options) -> tcp::Header {
        let flags = Flags::ACK | Flags::ECE;
        tcp::Header { src_port: 1, dst_port: 2, seq: Seq(u32::MAX), ack: Seq(5), flags, window: 16, options }
    }

    /// What comes out, read by the parsers, with the checksum completed as a port does.
    fn translated(translation: &Translation, mut bytes: Vec<u8>) -> (ipv4::Header, tcp::Header) {
        let end = translation.apply(&mut bytes).unwrap();
        let at = ethernet::HEADER_LEN;
        let (ip, ip_len) = ipv4::Header::parse(&bytes[at..], bytes.len() - at).expect("a sound IPv4 header");
        assert_eq!(end, Translated { start: (at + ip_len) as u16, field: (at + ip_len + tcp::CHECKSUM_AT) as u16 });
        let mut sum = Sum::new();
        sum.add(&bytes[end.start as usize..]);
        bytes[end.field as usize..end.field as usize + 2].copy_from_slice(&sum.finish().to_be_bytes());
        let mut sum = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, ip.payload_len as u32);
        sum.add(&bytes[at + ip_len..]);
        assert_eq!(sum.finish(), 0, "TCP checksum");
        (ip, tcp::Header::parse(&bytes[at + ip_len..]).unwrap().0)
    }

    #[test]
    fn every_number_is_translated_and_all_else_is_left() {
        let block = |left, right| Some((Seq(left), Seq(right)));
        let timestamps = Some(Timestamps { value: u32::MAX, echo: 1 });
        let sack = [block(0, 10), block(20, 30), None, None];
        let (ip, tcp) =
            translated(&translation(), frame(&header(Options { timestamps, sack, ..Options::default() }), &[9; 5]));
        assert_eq!((ip.src, ip.dst, ip.ttl, ip.ecn, ip.dscp), (HERE, TO, 63, ipv4::Ecn::Ce, 5));
        assert_eq!((tcp.src_port, tcp.dst_port, tcp.seq, tcp.ack), (40_000, 80, Seq(99), Seq(4)));
        assert_eq!((tcp.window, tcp.flags), (16 << 4, Flags::ACK | Flags::ECE));
        assert_eq!(tcp.options.timestamps, Some(Timestamps { value: 6, echo: 10 }));
        assert_eq!(tcp.options.sack, [block(u32::MAX, 9), block(19, 29), None, None]);
    }

    #[test]
    fn what_the_receiver_did_not_agree_to_is_blanked() {
        let timestamps = Some(Timestamps { value: 3, echo: 1 });
        let sack = [Some((Seq(1), Seq(2))), None, None, None];
        let both = Options { timestamps, sack, ..Options::default() };
        let bare = Translation { timestamps: None, sack: false, ..translation() };
        assert_eq!(translated(&bare, frame(&header(both), &[])).1.options, Options::default());
        let unknown = Options { mss: Some(1000), timestamps, ..Options::default() };
        let options = translated(&translation(), frame(&header(unknown), &[])).1.options;
        assert_eq!((options.mss, options.timestamps), (None, Some(Timestamps { value: 10, echo: 10 })));
        let reset = tcp::Header { flags: Flags::RST, ack: Seq(0), ..header(Options::default()) };
        assert_eq!(translated(&translation(), frame(&reset, &[])).1.ack, Seq(0), "no acknowledgement, no number");
    }

    #[test]
    fn windows_keep_to_sixteen_bits() {
        assert_eq!(translation().window(u16::MAX), u16::MAX);
        let down = Translation { window_in: 0, window_out: 7, ..translation() };
        assert_eq!((down.window(127), down.window(128)), (0, 1));
    }

    #[test]
    fn what_is_no_segment_or_has_no_hops_left_is_refused_unchanged() {
        let good = frame(&header(Options::default()), &[]);
        let spoil = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            bytes
        };
        let (ip, tcp) = (ethernet::HEADER_LEN, ethernet::HEADER_LEN + ipv4::HEADER_LEN);
        for bad in
            [spoil(ip + 8, 1), spoil(tcp + 12, 0x40), spoil(tcp + 12, 0xf0), spoil(ip, 0x41), good[..50].to_vec()]
        {
            let mut bytes = bad.clone();
            assert!(translation().apply(&mut bytes).is_err());
            assert_eq!(bytes, bad);
        }
        // Options that cannot be read are cut off.
        let mut odd = frame(&header(Options { timestamps: Some(Timestamps::default()), ..Options::default() }), &[]);
        odd[tcp + 20] = 77;
        odd[tcp + 21] = 0;
        assert_eq!(translated(&translation(), odd).1.options, Options::default());
    }
}
