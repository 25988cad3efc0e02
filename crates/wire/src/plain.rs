//! Header prediction (after Van Jacobson): a segment as nearly all of a connection's are, read with fixed offsets.
//! Whatever is not exactly so is left to the parsers of each header, which accept all of these and read them alike.
use crate::checksum::Sum;
use crate::ipv4::{self, Ecn};
use crate::tcp::{self, Flags, TIMESTAMPS_LEN, Timestamps};
use crate::{Mac, Seq, be16, be32, ethernet};
use std::net::Ipv4Addr;

const IP_AT: usize = ethernet::HEADER_LEN;
const TCP_AT: usize = IP_AT + ipv4::HEADER_LEN;
const OPTIONS_AT: usize = TCP_AT + tcp::HEADER_LEN;

/// A TCP segment in an Ethernet frame, with an IPv4 header without options, not a fragment, and with no TCP option
/// or the timestamps as RFC 7323 appendix A lays them out. The IPv4 checksum is right; the TCP checksum was not looked
/// at. Its fields are read where they stand, by whoever wants them.
#[derive(Clone, Copy)]
pub struct Plain<'a> {
    headers: &'a [u8; OPTIONS_AT],
    timestamps: Option<&'a [u8; TIMESTAMPS_LEN]>,
    payload_len: u32,
}

/// Source and destination of a segment, as they stand in its headers: words of this machine that are only good for
/// being compared and hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parties {
    /// Both addresses.
    pub addresses: u64,
    /// Both ports.
    pub ports: u32,
}

impl Parties {
    /// Those of a segment from one address and port to another.
    pub fn new(addresses: (Ipv4Addr, Ipv4Addr), ports: (u16, u16)) -> Parties {
        let ([a, b, c, d], [e, f, g, h]) = (addresses.0.octets(), addresses.1.octets());
        let ([i, j], [k, l]) = (ports.0.to_be_bytes(), ports.1.to_be_bytes());
        Parties { addresses: u64::from_ne_bytes([a, b, c, d, e, f, g, h]), ports: u32::from_ne_bytes([i, j, k, l]) }
    }
}

/// A hardware address as one word, for comparing.
#[inline(always)]
pub fn station(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl<'a> Plain<'a> {
    /// Looks at a frame of `have` bytes, of which `bytes` are the first ones; nothing where it is not a plain segment.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8], have: usize) -> Option<Plain<'a>> {
        let headers = bytes.first_chunk::<OPTIONS_AT>()?;
        // Several fields at once, and of some only a part: EtherType and the IPv4 header's first byte; the fragment's
        // place and the protocol.
        let is_ip = word32(headers, 12) & mask([0xff, 0xff, 0xff, 0]) == mask([0x08, 0x00, 0x45, 0]);
        let whole_tcp = word32(headers, IP_AT + 6) & mask([0x3f, 0xff, 0, 0xff]) == mask([0, 0, 0, ipv4::TCP]);
        if !is_ip || !whole_tcp || !is_sound(headers) {
            return None;
        }
        let (options, timestamps) = match headers[TCP_AT + 12] >> 4 {
            8 => (TIMESTAMPS_LEN, Some(timestamps(bytes)?)),
            5 => (0, None),
            _ => return None,
        };
        let total_len = be16(headers, IP_AT + 2) as usize;
        let payload_len = total_len.checked_sub(ipv4::HEADER_LEN + tcp::HEADER_LEN + options)?;
        if have - IP_AT < total_len {
            return None;
        }
        Some(Plain { headers, timestamps, payload_len: payload_len as u32 })
    }

    /// Destination station, as [`station`].
    #[inline(always)]
    pub fn station(&self) -> u64 {
        word64(self.headers, 0).to_le() & 0xffff_ffff_ffff
    }
    /// Source and destination.
    #[inline(always)]
    pub fn parties(&self) -> Parties {
        Parties { addresses: word64(self.headers, IP_AT + 12), ports: word32(self.headers, TCP_AT) }
    }
    /// ECN bits of the IPv4 header.
    #[inline(always)]
    pub fn ecn(&self) -> Ecn {
        self.headers[IP_AT + 1].into()
    }
    /// Sequence number.
    #[inline(always)]
    pub fn seq(&self) -> Seq {
        Seq(be32(self.headers, TCP_AT + 4))
    }
    /// Acknowledgement number.
    #[inline(always)]
    pub fn ack(&self) -> Seq {
        Seq(be32(self.headers, TCP_AT + 8))
    }
    /// Control bits.
    #[inline(always)]
    pub fn flags(&self) -> Flags {
        Flags(self.headers[TCP_AT + 13])
    }
    /// Window, not scaled.
    #[inline(always)]
    pub fn window(&self) -> u16 {
        be16(self.headers, TCP_AT + 14)
    }
    /// The timestamps option.
    #[inline(always)]
    pub fn timestamps(&self) -> Option<Timestamps> {
        self.timestamps.map(|option| Timestamps { value: be32(option, 4), echo: be32(option, 8) })
    }
    /// Where the payload starts in the frame.
    #[inline(always)]
    pub fn payload_at(&self) -> u32 {
        (OPTIONS_AT + if self.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 }) as u32
    }
    /// Bytes of payload.
    #[inline(always)]
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }
}

/// The word at `at` as this machine reads it.
#[inline(always)]
fn word32(headers: &[u8; OPTIONS_AT], at: usize) -> u32 {
    headers[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

/// As [`word32`], twice as long.
#[inline(always)]
fn word64(headers: &[u8; OPTIONS_AT], at: usize) -> u64 {
    headers[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Bytes as [`word32`] reads them.
const fn mask(bytes: [u8; 4]) -> u32 {
    u32::from_ne_bytes(bytes)
}

/// The IPv4 header's checksum is right. Ten words, four at once, in the order of this machine: whether the sum is
/// all ones does not depend on that (RFC 1071 section 2 (B) and (C)).
#[inline(always)]
fn is_sound(headers: &[u8; OPTIONS_AT]) -> bool {
    let (sum, carry) = word64(headers, IP_AT).overflowing_add(word64(headers, IP_AT + 8));
    let (sum, again) = sum.overflowing_add(u64::from(word32(headers, IP_AT + 16)) + u64::from(carry));
    Sum::of_words(sum + u64::from(again)).finish() == 0
}

/// The timestamps option, where it is all that there is.
#[inline(always)]
fn timestamps(bytes: &[u8]) -> Option<&[u8; TIMESTAMPS_LEN]> {
    let (_, option) = bytes.first_chunk::<{ OPTIONS_AT + TIMESTAMPS_LEN }>()?.split_last_chunk()?;
    (be32(option, 0) == 0x0101_080a).then_some(option)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Fields, Template};

    /// All that a segment's headers say.
    #[derive(PartialEq, Debug)]
    struct Said {
        station: u64,
        parties: Parties,
        ecn: Ecn,
        numbers: (Seq, Seq),
        flags: Flags,
        window: u16,
        timestamps: Option<Timestamps>,
        payload: (u32, u32),
    }

    fn general(bytes: &[u8], have: usize) -> Option<Said> {
        let link = ethernet::Header::parse(bytes).ok()?;
        let (ip, ip_len) = ipv4::Header::parse(bytes.get(IP_AT..)?, have - IP_AT).ok()?;
        let (header, tcp_len) = tcp::Header::parse(&bytes[IP_AT + ip_len..]).ok()?;
        let for_us = link.ethertype == ethernet::EtherType::Ipv4 && ip.protocol == ipv4::TCP && !ip.is_fragment;
        let payload_len = (ip.payload_len as usize).checked_sub(tcp_len)? as u32;
        for_us.then_some(Said {
            station: station(link.dst),
            parties: Parties::new((ip.src, ip.dst), (header.src_port, header.dst_port)),
            ecn: ip.ecn,
            numbers: (header.seq, header.ack),
            flags: header.flags,
            window: header.window,
            timestamps: header.options.timestamps,
            payload: ((IP_AT + ip_len + tcp_len) as u32, payload_len),
        })
    }

    fn plain(bytes: &[u8], have: usize) -> Option<Said> {
        Plain::parse(bytes, have).map(|plain| Said {
            station: plain.station(),
            parties: plain.parties(),
            ecn: plain.ecn(),
            numbers: (plain.seq(), plain.ack()),
            flags: plain.flags(),
            window: plain.window(),
            timestamps: plain.timestamps(),
            payload: (plain.payload_at(), plain.payload_len()),
        })
    }

    /// A segment with `payload_len` bytes of payload elsewhere.
    fn segment(timestamps: bool, payload_len: u32) -> Vec<u8> {
        let addresses = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(10, 3, 2, 1));
        let template = Template::new((Mac([2; 6]), Mac([4; 6])), addresses, (4711, 80));
        let timestamps = timestamps.then_some(Timestamps { value: 0x0102_0304, echo: 0xf1f2_f3f4 });
        let (seq, ack, flags) = (Seq(0xdead_beef), Seq(0x1234_5678), Flags::ACK | Flags::PSH);
        let fields = Fields { seq, ack, flags, window: 777, timestamps, sack: None, ecn: Ecn::Ce, payload_len };
        let mut frame = Vec::new();
        template.write(&fields, &mut frame);
        frame
    }

    #[test]
    fn plain_segments_are_read_as_by_the_general_parsers() {
        for (timestamps, payload_len) in [(false, 0), (true, 0), (false, 1448), (true, 60_000)] {
            let frame = segment(timestamps, payload_len);
            let have = frame.len() + payload_len as usize;
            assert!(plain(&frame, have).is_some());
            assert_eq!(plain(&frame, have), general(&frame, have));
            assert_eq!(plain(&frame, have - 1), None, "a byte is missing");
        }
    }

    #[test]
    fn whatever_a_changed_byte_makes_of_it_the_general_parsers_agree() {
        for timestamps in [false, true] {
            let frame = segment(timestamps, 5);
            for at in 0..frame.len() {
                for value in 0..=255u8 {
                    let mut changed = frame.clone();
                    // The sum stays right where another byte of the same weight makes up for the change.
                    let make_up = if at & 1 == 0 { 18 } else { 19 };
                    let by = changed[at].wrapping_sub(value);
                    changed[at] = value;
                    if (IP_AT..TCP_AT).contains(&at) && at != make_up {
                        changed[make_up] = changed[make_up].wrapping_add(by);
                    }
                    if let Some(said) = plain(&changed, changed.len() + 5) {
                        assert_eq!(Some(said), general(&changed, changed.len() + 5), "byte {at} = {value}");
                    }
                }
            }
            for len in 0..frame.len() {
                assert_eq!(plain(&frame[..len], frame.len() + 5), None);
            }
        }
    }
}
