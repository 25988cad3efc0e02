//! The headers of a connection's segments, made once: what differs between segments is patched into a copy.
use crate::checksum::Sum;
use crate::ipv4::{self, Ecn};
use crate::tcp::{self, CHECKSUM_AT, Flags, SackBlocks, TIMESTAMPS_LEN, Timestamps};
use crate::{Mac, Seq, ethernet};
use std::net::Ipv4Addr;

const IP_AT: usize = ethernet::HEADER_LEN;
const TCP_AT: usize = IP_AT + ipv4::HEADER_LEN;
const OPTIONS_AT: usize = TCP_AT + tcp::HEADER_LEN;
const LEN: usize = OPTIONS_AT + TIMESTAMPS_LEN;
const CHECKSUM: usize = TCP_AT + CHECKSUM_AT;

/// Bytes of the longest headers that a [`Template`] writes.
pub const MAX_LEN: usize = LEN + SACK_LEN;

/// Blocks beside timestamps, with two bytes of padding (RFC 2018 section 3).
const SACK_LEN: usize = 4 + 8 * SackBlocks::BESIDE_TIMESTAMPS;

/// Ethernet, IPv4 and TCP headers of a connection, in one direction, with the timestamps option. IPv4 as the data-path
/// sends it: no identification, since datagrams that must not be fragmented need none (RFC 6864 section 4.1).
#[derive(Clone, Debug)]
pub struct Template {
    bytes: [u8; LEN],
    /// Sum over the IPv4 header without total length and ECN bits, in the byte order of this machine, in which the rest
    /// is added and the result written (RFC 1071 section 2 (B)).
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
    /// ECN bits of the IPv4 header.
    pub ecn: Ecn,
    /// Bytes of payload that follow the headers.
    pub payload_len: u32,
}

impl Template {
    /// Headers from one hardware address, IPv4 address and port to another.
    pub fn new(link: (Mac, Mac), addresses: (Ipv4Addr, Ipv4Addr), ports: (u16, u16)) -> Template {
        let mut bytes = [0; LEN];
        let ((src, dst), (src_port, dst_port)) = (addresses, ports);
        ethernet::Header { src: link.0, dst: link.1, ethertype: ethernet::EtherType::Ipv4 }.emit(&mut bytes);
        ipv4::Header::new(ipv4::TCP, addresses, 0).emit(&mut bytes[IP_AT..]);
        let mut sum = Sum::new();
        sum.add(&bytes[IP_AT..IP_AT + 2]);
        sum.add(&bytes[IP_AT + 4..IP_AT + 10]);
        sum.add(&bytes[IP_AT + 12..TCP_AT]);
        let options = tcp::Options { timestamps: Some(Timestamps::default()), ..tcp::Options::default() };
        let (seq, ack, flags, window) = (Seq(0), Seq(0), Flags(0), 0);
        tcp::Header { src_port, dst_port, seq, ack, flags, window, options }.emit(&mut bytes[TCP_AT..]);
        let pseudo = Sum::pseudo_header(src, dst, ipv4::TCP, 0);
        Template { bytes, ip: sum.partial().to_be(), pseudo: pseudo.partial().to_be() }
    }

    /// Sets the hardware address of the next hop.
    pub fn set_next_hop(&mut self, mac: Mac) {
        self.bytes[..6].copy_from_slice(&mac.0);
    }

    /// Writes a segment's headers in place of what `frame` holds. The TCP checksum is left partial: the field holds
    /// the folded sum of the pseudo-header. Returns where the sum is to start, and the field.
    #[inline(always)]
    pub fn write(&self, fields: &Fields, frame: &mut Vec<u8>) -> (u16, u16) {
        self.write_with(fields, || fields.sack.into_iter().collect(), frame)
    }

    /// As [`Template::write`]; where there is a SACK block, `blocks` gives all of them, at most
    /// [`SackBlocks::BESIDE_TIMESTAMPS`].
    #[inline(always)]
    pub fn write_with(&self, fields: &Fields, blocks: impl FnOnce() -> SackBlocks, frame: &mut Vec<u8>) -> (u16, u16) {
        frame.clear();
        frame.extend_from_slice(&self.bytes);
        match (fields.timestamps, frame.first_chunk_mut::<LEN>()) {
            (Some(timestamps), Some(headers)) if fields.sack.is_none() => {
                let (headers, options) = halves(headers);
                write_timestamps(timestamps, options);
                self.patch(fields, (LEN - TCP_AT) as u16, headers);
            }
            // By value: then the usual way need not put the fields into memory.
            _ if fields.sack.is_some() => self.write_any(*fields, blocks(), frame),
            _ => self.write_any(*fields, SackBlocks::default(), frame),
        }
        (TCP_AT as u16, CHECKSUM as u16)
    }

    /// As [`Template::write`], with other options than timestamps alone.
    // Meets RFC 9293: MUST-65.
    #[inline(never)]
    fn write_any(&self, fields: Fields, blocks: SackBlocks, frame: &mut Vec<u8>) {
        match (fields.timestamps, frame.first_chunk_mut::<LEN>()) {
            (Some(timestamps), Some(headers)) => write_timestamps(timestamps, halves(headers).1),
            _ => frame.truncate(OPTIONS_AT),
        }
        let count = blocks.iter().take(SackBlocks::BESIDE_TIMESTAMPS).count() as u8;
        if count > 0 {
            frame.extend_from_slice(&[1, 1, 5, 2 + 8 * count]);
        }
        for (left, right) in blocks.iter().take(count.into()) {
            frame.extend_from_slice(&left.0.to_be_bytes());
            frame.extend_from_slice(&right.0.to_be_bytes());
        }
        let tcp_len = (frame.len() - TCP_AT) as u16;
        if let Some(headers) = frame.first_chunk_mut::<OPTIONS_AT>() {
            headers[TCP_AT + 12] = (tcp_len as u8 / 4) << 4;
            self.patch(&fields, tcp_len, headers);
        }
    }

    /// Writes what differs between segments, but for options and their length.
    #[inline(always)]
    fn patch(&self, fields: &Fields, tcp_len: u16, headers: &mut [u8; OPTIONS_AT]) {
        let segment_len = tcp_len + fields.payload_len as u16;
        let total_len = (ipv4::HEADER_LEN as u16 + segment_len).to_be();
        let ecn = (fields.ecn as u16).to_be();
        headers[IP_AT + 1] = fields.ecn as u8;
        headers[IP_AT + 2..IP_AT + 4].copy_from_slice(&total_len.to_ne_bytes());
        let ip = Sum::of_words(self.ip as u64 + total_len as u64 + ecn as u64).finish();
        headers[IP_AT + 10..IP_AT + 12].copy_from_slice(&ip.to_ne_bytes());
        headers[TCP_AT + 4..TCP_AT + 8].copy_from_slice(&fields.seq.0.to_be_bytes());
        headers[TCP_AT + 8..TCP_AT + 12].copy_from_slice(&fields.ack.0.to_be_bytes());
        headers[TCP_AT + 13] = fields.flags.0;
        headers[TCP_AT + 14..TCP_AT + 16].copy_from_slice(&fields.window.to_be_bytes());
        let partial = Sum::of_words(self.pseudo as u64 + segment_len.to_be() as u64).partial();
        headers[CHECKSUM..CHECKSUM + 2].copy_from_slice(&partial.to_ne_bytes());
    }
}

/// The headers without options, and the timestamps option.
#[inline(always)]
fn halves(headers: &mut [u8; LEN]) -> (&mut [u8; OPTIONS_AT], &mut [u8; TIMESTAMPS_LEN]) {
    let (headers, options) = headers.split_at_mut(OPTIONS_AT);
    (headers.try_into().expect("as long"), options.try_into().expect("the rest"))
}

#[inline(always)]
fn write_timestamps(Timestamps { value, echo }: Timestamps, option: &mut [u8; TIMESTAMPS_LEN]) {
    option[4..8].copy_from_slice(&value.to_be_bytes());
    option[8..12].copy_from_slice(&echo.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (Mac, Ipv4Addr, u16) = (Mac([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(192, 168, 200, 1), 40_000);
    const THERE: (Mac, Ipv4Addr, u16) = (Mac([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(10, 255, 0, 2), 65_535);

    /// What is written parses as what was meant, with right checksums.
    fn check(template: &Template, fields: Fields) {
        let mut frame = vec![9; 7];
        let (start, field) = template.write(&fields, &mut frame);
        assert!(frame.len() <= MAX_LEN);
        let link = ethernet::Header::parse(&frame).unwrap();
        assert_eq!((link.src, link.dst), (HERE.0, THERE.0));
        let have = frame.len() - IP_AT + fields.payload_len as usize;
        let (ip, ip_len) = ipv4::Header::parse(&frame[IP_AT..], have).unwrap();
        assert_eq!((ip.src, ip.dst, ip.ecn, ip.dont_fragment), (HERE.1, THERE.1, fields.ecn, true));
        assert_eq!(IP_AT + ip_len, start as usize);
        let (header, tcp_len) = tcp::Header::parse(&frame[TCP_AT..]).unwrap();
        assert_eq!(tcp_len, frame.len() - TCP_AT);
        assert_eq!(ip.payload_len as u32, tcp_len as u32 + fields.payload_len);
        assert_eq!((header.src_port, header.dst_port), (HERE.2, THERE.2));
        assert_eq!((header.seq, header.ack, header.flags), (fields.seq, fields.ack, fields.flags));
        assert_eq!((header.window, header.options.timestamps), (fields.window, fields.timestamps));
        assert_eq!(header.options.sack, [fields.sack, None, None, None]);
        let expected = Sum::pseudo_header(HERE.1, THERE.1, ipv4::TCP, ip.payload_len as u32).partial();
        assert_eq!(frame[field as usize..field as usize + 2], expected.to_be_bytes());
    }

    // Checks RFC 2018: 3-a, 4-b.
    #[test]
    fn several_blocks_beside_timestamps() {
        let template = Template::new((HERE.0, THERE.0), (HERE.1, THERE.1), (HERE.2, THERE.2));
        let blocks = [(Seq(9), Seq(10)), (Seq(1), Seq(3)), (Seq(5), Seq(7)), (Seq(20), Seq(21))];
        for (timestamps, count) in [(None, 2), (Some(Timestamps::default()), 3), (Some(Timestamps::default()), 4)] {
            let (seq, ack, flags, window, ecn) = (Seq(5), Seq(0), Flags::ACK, 7, Ecn::NotEct);
            let fields = Fields { seq, ack, flags, window, timestamps, sack: Some(blocks[0]), ecn, payload_len: 0 };
            let mut frame = Vec::new();
            template.write_with(&fields, || blocks[..count].iter().copied().collect(), &mut frame);
            assert!(frame.len() <= MAX_LEN);
            let (header, len) = tcp::Header::parse(&frame[TCP_AT..]).unwrap();
            assert_eq!(len, frame.len() - TCP_AT);
            let read: Vec<_> = header.options.sack.iter().flatten().copied().collect();
            assert_eq!(read, blocks[..count.min(3)]);
            assert_eq!(header.options.blocks_above(Seq(4)).iter().count(), count.min(3) - 1);
        }
    }

    // Checks RFC 9293: MUST-2, MUST-65.
    // Checks RFC 2018: 2-a.
    #[test]
    fn any_segment_parses_as_what_was_meant() {
        let mut template = Template::new((HERE.0, Mac::BROADCAST), (HERE.1, THERE.1), (HERE.2, THERE.2));
        template.set_next_hop(THERE.0);
        for (ecn, payload_len) in [(Ecn::NotEct, 0), (Ecn::Ect0, 1), (Ecn::Ce, 1448), (Ecn::NotEct, 65_000)] {
            for timestamps in [None, Some(Timestamps { value: 0x1234_5678, echo: u32::MAX })] {
                for sack in [None, Some((Seq(u32::MAX), Seq(5)))] {
                    let (seq, ack, flags, window) = (Seq(0xfedc_ba98), Seq(7), Flags::ACK | Flags::PSH, 0xabcd);
                    check(&template, Fields { seq, ack, flags, window, timestamps, sack, ecn, payload_len });
                }
            }
        }
    }
}
