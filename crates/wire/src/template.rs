//! The headers of a connection's segments, made once: what differs between segments is patched into a copy.
use crate::checksum::Sum;
use crate::ip::Ends;
use crate::ipv4::{self, Ecn};
use crate::tcp::{self, CHECKSUM_AT, Flags, SackBlocks, TIMESTAMPS_LEN, Timestamps};
use crate::{EtherType, IpAddress, Mac, Seq, ethernet, ip, ipv6};

const IP_AT: usize = ethernet::HEADER_LEN;
/// Bytes of all headers with the timestamps option, over IPv4 and over IPv6.
const LEN_V4: usize = IP_AT + ipv4::HEADER_LEN + tcp::HEADER_LEN + TIMESTAMPS_LEN;
const LEN_V6: usize = IP_AT + ipv6::HEADER_LEN + tcp::HEADER_LEN + TIMESTAMPS_LEN;

/// Bytes of the longest headers that a [`Template`] writes.
pub const MAX_LEN: usize = LEN_V6 + SACK_LEN;

/// Blocks beside timestamps, with two bytes of padding (RFC 2018 section 3). One more without timestamps is shorter
/// than these with them.
const SACK_LEN: usize = 4 + 8 * SackBlocks::BESIDE_TIMESTAMPS;

/// Ethernet, IP and TCP headers of a connection, in one direction, with the timestamps option. IPv4 as the data-path
/// sends it: no identification, since datagrams that must not be fragmented need none (RFC 6864 section 4.1).
#[derive(Clone, Debug)]
pub struct Template(Kind);

/// Most connections are over IPv4: theirs are inline.
#[derive(Clone, Debug)]
enum Kind {
    V4(Headers<LEN_V4>),
    V6(Box<Headers<LEN_V6>>),
}

/// The headers of a connection over IPv4.
pub type HeadersV4 = Headers<LEN_V4>;

/// `N` bytes of headers: their IP version follows from that.
#[derive(Clone, Debug)]
pub struct Headers<const N: usize> {
    bytes: [u8; N],
    /// Sum over the IPv4 header without total length and ECN bits. It is in this machine's byte order, in which the
    /// rest is added and the result written (RFC 1071 section 2 (B)).
    ip: u16,
    /// Sum over the pseudo-header without the length, the same.
    pseudo: u16,
}

/// What differs between the segments of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgement number.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Receive window as it stands in the header: not scaled.
    pub window: u16,
    /// The timestamps option, where it is in use.
    pub timestamps: Option<Timestamps>,
    /// The first SACK block.
    pub sack: Option<(Seq, Seq)>,
    /// ECN bits of the IP header.
    pub ecn: Ecn,
    /// Bytes of payload that follow the headers.
    pub payload_len: u32,
}

impl Template {
    /// Headers from one hardware address, IP address and port to another. `None` where the addresses are not of one
    /// family.
    pub fn new(link: (Mac, Mac), addresses: (IpAddress, IpAddress), ports: (u16, u16)) -> Option<Template> {
        let (ends, v4) = (Ends::from(addresses), addresses.1.is_v4());
        let ethertype = if v4 { EtherType::Ipv4 } else { EtherType::Ipv6 };
        let ethernet = ethernet::Header { src: link.0, dst: link.1, ethertype };
        let options = tcp::Options { timestamps: Some(Timestamps::default()), ..tcp::Options::default() };
        let (src_port, dst_port) = ports;
        let (seq, ack, flags, window) = (Seq(0), Seq(0), Flags(0), 0);
        let tcp = tcp::Header { src_port, dst_port, seq, ack, flags, window, options };
        (ends.src.is_v4() == v4).then(|| match v4 {
            true => Template(Kind::V4(Headers::new(&ethernet, ends, &tcp))),
            false => Template(Kind::V6(Box::new(Headers::new(&ethernet, ends, &tcp)))),
        })
    }

    /// Sets the hardware address of the next hop.
    pub fn set_next_hop(&mut self, mac: Mac) {
        let headers = match &mut self.0 {
            Kind::V4(headers) => &mut headers.bytes[..],
            Kind::V6(headers) => &mut headers.bytes[..],
        };
        headers[..6].copy_from_slice(&mac.0);
    }

    /// Writes a segment's headers in place of what `frame` holds. The TCP checksum is left partial: the field holds
    /// the folded sum of the pseudo-header. Returns where the sum is to start, and the field.
    pub fn write(&self, fields: &Fields, frame: &mut Vec<u8>) -> (u16, u16) {
        self.write_with(fields, || fields.sack.into_iter().collect(), frame)
    }

    /// The headers, where the connection is over IPv4: for callers with code of their own for that.
    #[inline(always)]
    pub fn v4(&self) -> Option<&HeadersV4> {
        match &self.0 {
            Kind::V4(headers) => Some(headers),
            Kind::V6(_) => None,
        }
    }

    /// As [`Template::write`]; where there is a SACK block, `blocks` gives all of them, at most as many as have
    /// [`SackBlocks::room`].
    pub fn write_with(&self, fields: &Fields, blocks: impl FnOnce() -> SackBlocks, frame: &mut Vec<u8>) -> (u16, u16) {
        match &self.0 {
            Kind::V4(headers) => headers.write(fields, blocks, frame),
            Kind::V6(headers) => headers.write(fields, blocks, frame),
        }
    }
}

impl<const N: usize> Headers<N> {
    const OPTIONS_AT: usize = N - TIMESTAMPS_LEN;
    const TCP_AT: usize = Self::OPTIONS_AT - tcp::HEADER_LEN;
    const CHECKSUM: usize = Self::TCP_AT + CHECKSUM_AT;
    const IS_V4: bool = N == LEN_V4;

    fn new(ethernet: &ethernet::Header, ends: Ends, tcp: &tcp::Header) -> Headers<N> {
        let mut bytes = [0; N];
        ethernet.emit(&mut bytes);
        ip::emit(ipv4::TCP, ends, HOPS, &mut bytes[IP_AT..]);
        // The sum of what does not change: all but total length, ECN bits and the sum itself.
        let mut sum = Sum::new();
        if Self::IS_V4 {
            sum.add(&bytes[IP_AT..IP_AT + 2]);
            sum.add(&bytes[IP_AT + 4..IP_AT + 10]);
            sum.add(&bytes[IP_AT + 12..Self::TCP_AT]);
        }
        tcp.emit(&mut bytes[Self::TCP_AT..]);
        let pseudo = Sum::pseudo_header(ends.src, ends.dst, ipv4::TCP, 0);
        Headers { bytes, ip: sum.partial().to_be(), pseudo: pseudo.partial().to_be() }
    }

    /// As [`Template::write_with`].
    #[inline(always)]
    pub fn write(&self, fields: &Fields, blocks: impl FnOnce() -> SackBlocks, frame: &mut Vec<u8>) -> (u16, u16) {
        frame.clear();
        frame.extend_from_slice(&self.bytes);
        match (fields.timestamps, frame.first_chunk_mut::<N>()) {
            (Some(timestamps), Some(headers)) if fields.sack.is_none() => {
                write_timestamps(timestamps, headers);
                self.patch(fields, (N - Self::TCP_AT) as u16, headers);
            }
            // By value: then the usual way need not put the fields into memory.
            _ if fields.sack.is_some() => self.write_any(*fields, blocks(), frame),
            _ => self.write_any(*fields, SackBlocks::default(), frame),
        }
        (Self::TCP_AT as u16, Self::CHECKSUM as u16)
    }

    /// As [`Headers::write`], with other options than timestamps alone.
    // Meets RFC 9293: MUST-65.
    #[inline(never)]
    fn write_any(&self, fields: Fields, blocks: SackBlocks, frame: &mut Vec<u8>) {
        let Some(headers) = frame.first_chunk_mut::<N>() else { return };
        let count = blocks.iter().take(SackBlocks::room(fields.timestamps.is_some())).count();
        let mut len = Self::OPTIONS_AT;
        if let Some(timestamps) = fields.timestamps {
            write_timestamps(timestamps, headers);
            len = N;
        }
        let tcp_len = len - Self::TCP_AT + if count > 0 { 4 + 8 * count } else { 0 };
        headers[Self::TCP_AT + 12] = (tcp_len as u8 / 4) << 4;
        self.patch(&fields, tcp_len as u16, headers);
        frame.truncate(len);
        if count > 0 {
            frame.extend_from_slice(&[1, 1, 5, 2 + 8 * count as u8]);
        }
        for (left, right) in blocks.iter().take(count) {
            frame.extend_from_slice(&left.0.to_be_bytes());
            frame.extend_from_slice(&right.0.to_be_bytes());
        }
    }

    /// Writes what differs between segments, but for options and their length.
    #[inline(always)]
    fn patch(&self, fields: &Fields, tcp_len: u16, headers: &mut [u8; N]) {
        let segment_len = tcp_len + fields.payload_len as u16;
        if Self::IS_V4 {
            let total_len = (ipv4::HEADER_LEN as u16 + segment_len).to_be();
            let ecn = (fields.ecn as u16).to_be();
            headers[IP_AT + 1] = fields.ecn as u8;
            headers[IP_AT + 2..IP_AT + 4].copy_from_slice(&total_len.to_ne_bytes());
            let ip = Sum::of_words(self.ip as u64 + total_len as u64 + ecn as u64).finish();
            headers[IP_AT + 10..IP_AT + 12].copy_from_slice(&ip.to_ne_bytes());
        } else {
            headers[IP_AT + 1] = (fields.ecn as u8) << 4;
            headers[IP_AT + 4..IP_AT + 6].copy_from_slice(&segment_len.to_be_bytes());
        }
        let tcp = Self::TCP_AT;
        headers[tcp + 4..tcp + 8].copy_from_slice(&fields.seq.0.to_be_bytes());
        headers[tcp + 8..tcp + 12].copy_from_slice(&fields.ack.0.to_be_bytes());
        headers[tcp + 13] = fields.flags.0;
        headers[tcp + 14..tcp + 16].copy_from_slice(&fields.window.to_be_bytes());
        let partial = Sum::of_words(self.pseudo as u64 + segment_len.to_be() as u64).partial();
        headers[Self::CHECKSUM..Self::CHECKSUM + 2].copy_from_slice(&partial.to_ne_bytes());
    }
}

/// Hops of a segment that leaves.
const HOPS: u8 = 64;

/// The timestamps option stands at the end.
#[inline(always)]
fn write_timestamps<const N: usize>(Timestamps { value, echo }: Timestamps, headers: &mut [u8; N]) {
    headers[N - 8..N - 4].copy_from_slice(&value.to_be_bytes());
    headers[N - 4..].copy_from_slice(&echo.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: (Mac, Mac) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    const PORTS: (u16, u16) = (40_000, 65_535);

    /// Both families.
    fn addresses() -> [(IpAddress, IpAddress); 2] {
        let pair = |src: &str, dst: &str| (src.parse().unwrap(), dst.parse().unwrap());
        [pair("192.168.200.1", "10.255.0.2"), pair("2001:db8:ffff::1", "fe80::abcd:2")]
    }

    /// What is written parses as what was meant, with right checksums.
    fn check(template: &Template, (src, dst): (IpAddress, IpAddress), fields: Fields) {
        let mut frame = vec![9; 7];
        let (start, field) = template.write(&fields, &mut frame);
        assert!(frame.len() <= MAX_LEN);
        let link = ethernet::Header::parse(&frame).unwrap();
        assert_eq!((link.src, link.dst), MACS);
        let have = frame.len() - IP_AT + fields.payload_len as usize;
        let (ip, ip_len) = ip::Header::parse(link.ethertype, &frame[IP_AT..], have).unwrap();
        assert_eq!((ip.src, ip.dst, ip.ecn, ip.hop_limit, ip.is_fragment), (src, dst, fields.ecn, 64, false));
        assert_eq!((ip.protocol, IP_AT + ip_len), (ipv4::TCP, start as usize));
        let (header, tcp_len) = tcp::Header::parse(&frame[IP_AT + ip_len..]).unwrap();
        assert_eq!(tcp_len, frame.len() - IP_AT - ip_len);
        assert_eq!(ip.payload_len as u32, tcp_len as u32 + fields.payload_len);
        assert_eq!((header.src_port, header.dst_port), PORTS);
        assert_eq!((header.seq, header.ack, header.flags), (fields.seq, fields.ack, fields.flags));
        assert_eq!((header.window, header.options.timestamps), (fields.window, fields.timestamps));
        assert_eq!(header.options.sack, [fields.sack, None, None, None]);
        let expected = Sum::pseudo_header(src, dst, ipv4::TCP, ip.payload_len as u32).partial();
        assert_eq!(frame[field as usize..field as usize + 2], expected.to_be_bytes());
    }

    // Checks RFC 2018: 3-a, 4-b.
    #[test]
    fn as_many_blocks_are_written_as_have_room() {
        let blocks = [(Seq(9), Seq(10)), (Seq(1), Seq(3)), (Seq(5), Seq(7)), (Seq(20), Seq(21))];
        let stamps = Some(Timestamps::default());
        let cases = [(None, 2, 2), (None, 4, 4), (stamps, 3, 3), (stamps, 4, 3)];
        let all = addresses().into_iter().flat_map(|both| cases.map(|case| (both, case)));
        for (addresses, (timestamps, count, fits)) in all {
            let template = Template::new(MACS, addresses, PORTS).unwrap();
            let tcp_at = IP_AT + ip::header_len(addresses.0);
            let (seq, ack, flags, window, ecn) = (Seq(5), Seq(0), Flags::ACK, 7, Ecn::NotEct);
            let fields = Fields { seq, ack, flags, window, timestamps, sack: Some(blocks[0]), ecn, payload_len: 0 };
            let mut frame = Vec::new();
            template.write_with(&fields, || blocks[..count].iter().copied().collect(), &mut frame);
            assert!(frame.len() <= MAX_LEN);
            let (header, len) = tcp::Header::parse(&frame[tcp_at..]).unwrap();
            assert_eq!(len, frame.len() - tcp_at);
            let read: Vec<_> = header.options.sack.iter().flatten().copied().collect();
            assert_eq!(read, blocks[..fits]);
            assert_eq!(header.options.sack_blocks(Seq(4)).iter().count(), fits - 1);
        }
    }

    // Checks RFC 9293: MUST-2, MUST-65.
    // Checks RFC 2018: 2-a.
    // Checks RFC 8200: 8.1-a.
    #[test]
    fn any_segment_parses_as_what_was_meant() {
        let cases = [(Ecn::NotEct, 0), (Ecn::Ect0, 1), (Ecn::Ce, 1448), (Ecn::NotEct, 65_000)];
        for (addresses, (ecn, payload_len)) in addresses().into_iter().flat_map(|both| cases.map(|case| (both, case))) {
            let mut template = Template::new((MACS.0, Mac::BROADCAST), addresses, PORTS).unwrap();
            template.set_next_hop(MACS.1);
            for timestamps in [None, Some(Timestamps { value: 0x1234_5678, echo: u32::MAX })] {
                for sack in [None, Some((Seq(u32::MAX), Seq(5)))] {
                    let (seq, ack, flags, window) = (Seq(0xfedc_ba98), Seq(7), Flags::ACK | Flags::PSH, 0xabcd);
                    check(&template, addresses, Fields { seq, ack, flags, window, timestamps, sack, ecn, payload_len });
                }
            }
        }
    }

    #[test]
    fn addresses_are_of_one_family() {
        let [(v4, _), (v6, _)] = addresses();
        assert!(Template::new(MACS, (v4, v6), PORTS).is_none() && Template::new(MACS, (v6, v4), PORTS).is_none());
    }
}
