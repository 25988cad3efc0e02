//! Header prediction (after Van Jacobson): a segment as nearly all of a connection's are, read with fixed offsets.
//! Whatever is not exactly so is left to the parsers of each header, which accept all of these and read them alike.
use crate::checksum::Sum;
use crate::ipv4::{self, Ecn};
use crate::tcp::{self, Flags, TIMESTAMPS_LEN, Timestamps};
use crate::{FourTuple, Mac, Seq, be16, be32, ethernet, ipv6};
use std::net::IpAddr;

const IP_AT: usize = ethernet::HEADER_LEN;
/// Bytes of headers without TCP options, over IPv4 and over IPv6.
const LEN_V4: usize = IP_AT + ipv4::HEADER_LEN + tcp::HEADER_LEN;
const LEN_V6: usize = IP_AT + ipv6::HEADER_LEN + tcp::HEADER_LEN;
/// Where the addresses begin in an IPv6 header.
const ADDRESSES_V6: usize = 8;

/// A TCP segment over IPv4, as in [`Predicted`]. The IPv4 checksum is right.
pub type PredictedV4<'a> = Predicted<'a, LEN_V4>;
/// The same over IPv6.
pub type PredictedV6<'a> = Predicted<'a, LEN_V6>;

/// A TCP segment in an Ethernet frame, with an IP header without options or extension headers, not a fragment. It has
/// no TCP option, or the timestamps as RFC 7323 appendix A lays them out. The TCP checksum was not checked. Its fields
/// are read where they stand, by whoever needs them. Without the option, its headers have `N` bytes: their IP version
/// follows from that.
#[derive(Clone, Copy)]
pub struct Predicted<'a, const N: usize> {
    headers: &'a [u8; N],
    timestamps: Option<&'a [u8; TIMESTAMPS_LEN]>,
    payload_len: u32,
}

/// Source and destination of a segment, as they stand in its headers: words of this machine that are only good for
/// being compared and hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parties {
    /// Both addresses; of IPv6 a hash of them.
    pub addresses: u64,
    /// Both ports.
    pub ports: u32,
}

/// Both IPv6 addresses of a segment, the source first, as they stand in its header.
pub type AddressesV6 = [u8; 32];

impl Parties {
    /// Those of the segments that a connection receives, and their addresses where it is over IPv6. `None` where its
    /// addresses are not of one family.
    pub fn of_received(tuple: &FourTuple) -> Option<(Parties, Option<AddressesV6>)> {
        let ([a, b], [c, d]) = (tuple.remote_port.to_be_bytes(), tuple.local_port.to_be_bytes());
        let ports = u32::from_ne_bytes([a, b, c, d]);
        match (tuple.remote_ip.ip(), tuple.local_ip.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let ([a, b, c, d], [e, f, g, h]) = (src.octets(), dst.octets());
                Some((Parties { addresses: u64::from_ne_bytes([a, b, c, d, e, f, g, h]), ports }, None))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut both = [0; 32];
                both[..16].copy_from_slice(&src.octets());
                both[16..].copy_from_slice(&dst.octets());
                Some((Parties { addresses: hash_of(&both), ports }, Some(both)))
            }
            _ => None,
        }
    }
}

/// A hash of both addresses.
#[inline(always)]
fn hash_of(addresses: &AddressesV6) -> u64 {
    let word = |at: usize| addresses[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    let networks = (word(0) ^ word(16).rotate_left(32)).wrapping_mul(0xa076_1d64_78bd_642f);
    let interfaces = (word(8) ^ word(24).rotate_left(32)).wrapping_mul(0xe703_7ed1_a0b4_28db);
    networks.rotate_left(32) ^ interfaces
}

/// A hardware address as one word, for comparing.
#[inline(always)]
pub fn station(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl<'a, const N: usize> Predicted<'a, N> {
    const IS_V4: bool = N == LEN_V4;
    const TCP_AT: usize = N - tcp::HEADER_LEN;

    /// Reads a frame of `have` bytes, of which `bytes` are the first ones; nothing where it is not as predicted.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8], have: usize) -> Option<Predicted<'a, N>> {
        let headers = bytes.first_chunk::<N>()?;
        if !(if Self::IS_V4 { is_predicted_v4(headers) } else { is_predicted_v6(headers) }) {
            return None;
        }
        let (options, timestamps) = match headers[Self::TCP_AT + 12] >> 4 {
            8 => (TIMESTAMPS_LEN, Some(timestamps(bytes.get(N..)?)?)),
            5 => (0, None),
            _ => return None,
        };
        let total_len = match Self::IS_V4 {
            true => be16(headers, IP_AT + 2) as usize,
            false => be16(headers, IP_AT + 4) as usize + ipv6::HEADER_LEN,
        };
        let payload_len = total_len.checked_sub(N - IP_AT + options)?;
        if have - IP_AT < total_len {
            return None;
        }
        Some(Predicted { headers, timestamps, payload_len: payload_len as u32 })
    }

    /// Destination station, as [`station`].
    #[inline(always)]
    pub fn station(&self) -> u64 {
        word64(self.headers, 0).to_le() & 0xffff_ffff_ffff
    }
    /// Source and destination.
    #[inline(always)]
    pub fn parties(&self) -> Parties {
        let addresses = if Self::IS_V4 { word64(self.headers, IP_AT + 12) } else { hash_of(self.addresses()) };
        Parties { addresses, ports: word32(self.headers, Self::TCP_AT) }
    }
    /// ECN bits of the IP header.
    #[inline(always)]
    pub fn ecn(&self) -> Ecn {
        let byte = self.headers[IP_AT + 1];
        if Self::IS_V4 { byte.into() } else { (byte >> 4).into() }
    }
    /// Sequence number.
    #[inline(always)]
    pub fn seq(&self) -> Seq {
        Seq(be32(self.headers, Self::TCP_AT + 4))
    }
    /// Acknowledgement number.
    #[inline(always)]
    pub fn ack(&self) -> Seq {
        Seq(be32(self.headers, Self::TCP_AT + 8))
    }
    /// Control bits.
    #[inline(always)]
    pub fn flags(&self) -> Flags {
        Flags(self.headers[Self::TCP_AT + 13])
    }
    /// Window, not scaled.
    #[inline(always)]
    pub fn window(&self) -> u16 {
        be16(self.headers, Self::TCP_AT + 14)
    }
    /// The timestamps option.
    #[inline(always)]
    pub fn timestamps(&self) -> Option<Timestamps> {
        self.timestamps.map(|option| Timestamps { value: be32(option, 4), echo: be32(option, 8) })
    }
    /// Where the TCP header starts in the frame.
    #[inline(always)]
    pub fn tcp_at(&self) -> usize {
        Self::TCP_AT
    }
    /// Where the payload starts in the frame.
    #[inline(always)]
    pub fn payload_at(&self) -> u32 {
        (N + if self.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 }) as u32
    }
    /// Bytes of payload.
    #[inline(always)]
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }
    /// Both IPv6 addresses; of a segment over IPv4 they mean nothing.
    #[inline(always)]
    pub fn addresses(&self) -> &'a AddressesV6 {
        const NONE: &AddressesV6 = &[0; 32];
        self.headers[IP_AT + ADDRESSES_V6..].first_chunk().unwrap_or(NONE)
    }
}

/// An IPv4 header without options of TCP, not a fragment's, with the right checksum.
#[inline(always)]
fn is_predicted_v4<const N: usize>(headers: &[u8; N]) -> bool {
    // Several fields at once, and of some only a part: EtherType and the IPv4 header's first byte; the fragment's
    // place and the protocol.
    let is_ip = word32(headers, 12) & mask([0xff, 0xff, 0xff, 0]) == mask([0x08, 0x00, 0x45, 0]);
    let whole_tcp = word32(headers, IP_AT + 6) & mask([0x3f, 0xff, 0, 0xff]) == mask([0, 0, 0, ipv4::TCP]);
    is_ip && whole_tcp && is_sound(headers)
}

/// An IPv6 header of TCP without extension headers.
#[inline(always)]
fn is_predicted_v6<const N: usize>(headers: &[u8; N]) -> bool {
    let is_ip = word32(headers, 12) & mask([0xff, 0xff, 0xf0, 0]) == mask([0x86, 0xdd, 0x60, 0]);
    is_ip && headers[IP_AT + 6] == ipv4::TCP
}

/// The word at `at` as this machine reads it.
#[inline(always)]
fn word32<const N: usize>(headers: &[u8; N], at: usize) -> u32 {
    headers[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

/// As [`word32`], twice as long.
#[inline(always)]
fn word64<const N: usize>(headers: &[u8; N], at: usize) -> u64 {
    headers[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Bytes as [`word32`] reads them.
const fn mask(bytes: [u8; 4]) -> u32 {
    u32::from_ne_bytes(bytes)
}

/// The IPv4 header's checksum is right. Ten words, four at once, in the order of this machine: whether the sum is
/// all ones does not depend on that (RFC 1071 section 2 (B) and (C)).
#[inline(always)]
fn is_sound<const N: usize>(headers: &[u8; N]) -> bool {
    let (sum, carry) = word64(headers, IP_AT).overflowing_add(word64(headers, IP_AT + 8));
    let (sum, again) = sum.overflowing_add(u64::from(word32(headers, IP_AT + 16)) + u64::from(carry));
    Sum::of_words(sum + u64::from(again)).finish() == 0
}

/// The timestamps option, where it is all that there is.
#[inline(always)]
fn timestamps(options: &[u8]) -> Option<&[u8; TIMESTAMPS_LEN]> {
    options.first_chunk().filter(|option| be32(*option, 0) == 0x0101_080a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Fields, Template};
    use crate::{Endpoint, ip};

    /// All fields of a segment's headers.
    #[derive(PartialEq, Debug)]
    struct HeaderFields {
        station: u64,
        parties: Parties,
        ecn: Ecn,
        numbers: (Seq, Seq),
        flags: Flags,
        window: u16,
        timestamps: Option<Timestamps>,
        payload: (u32, u32),
    }

    fn general(bytes: &[u8], have: usize) -> Option<HeaderFields> {
        let link = ethernet::Header::parse(bytes).ok()?;
        let (ip, ip_len) = ip::Header::parse(link.ethertype, bytes.get(IP_AT..)?, have - IP_AT).ok()?;
        let (header, tcp_len) = tcp::Header::parse(&bytes[IP_AT + ip_len..]).ok()?;
        let for_us = ip.protocol == ipv4::TCP && !ip.is_fragment;
        let payload_len = (ip.payload_len as usize).checked_sub(tcp_len)? as u32;
        let ends = (Endpoint::new(ip.dst, header.dst_port), Endpoint::new(ip.src, header.src_port));
        for_us.then_some(HeaderFields {
            station: station(link.dst),
            parties: Parties::of_received(&FourTuple::new(ends.0, ends.1))?.0,
            ecn: ip.ecn,
            numbers: (header.seq, header.ack),
            flags: header.flags,
            window: header.window,
            timestamps: header.options.timestamps,
            payload: ((IP_AT + ip_len + tcp_len) as u32, payload_len),
        })
    }

    fn fields<const N: usize>(predicted: Predicted<'_, N>) -> HeaderFields {
        HeaderFields {
            station: predicted.station(),
            parties: predicted.parties(),
            ecn: predicted.ecn(),
            numbers: (predicted.seq(), predicted.ack()),
            flags: predicted.flags(),
            window: predicted.window(),
            timestamps: predicted.timestamps(),
            payload: (predicted.payload_at(), predicted.payload_len()),
        }
    }

    fn predicted(bytes: &[u8], have: usize) -> Option<HeaderFields> {
        PredictedV4::parse(bytes, have).map(fields).or_else(|| PredictedV6::parse(bytes, have).map(fields))
    }

    /// A segment with `payload_len` bytes of payload elsewhere.
    fn segment(v6: bool, timestamps: bool, payload_len: u32) -> Vec<u8> {
        let (src, dst) = if v6 { ("2001:db8::1", "2001:db8:1:2:3:4:5:6") } else { ("10.1.2.3", "10.3.2.1") };
        let addresses = (src.parse().unwrap(), dst.parse().unwrap());
        let template = Template::new((Mac([2; 6]), Mac([4; 6])), addresses, (4711, 80)).unwrap();
        let timestamps = timestamps.then_some(Timestamps { value: 0x0102_0304, echo: 0xf1f2_f3f4 });
        let (seq, ack, flags) = (Seq(0xdead_beef), Seq(0x1234_5678), Flags::ACK | Flags::PSH);
        let fields = Fields { seq, ack, flags, window: 777, timestamps, sack: None, ecn: Ecn::Ce, payload_len };
        let mut frame = Vec::new();
        template.write(&fields, &mut frame);
        frame
    }

    #[test]
    fn predicted_segments_are_read_as_by_the_general_parsers() {
        for (timestamps, payload_len) in [(false, 0), (true, 0), (false, 1448), (true, 60_000)] {
            for v6 in [false, true] {
                let frame = segment(v6, timestamps, payload_len);
                let have = frame.len() + payload_len as usize;
                assert!(predicted(&frame, have).is_some());
                assert_eq!(predicted(&frame, have), general(&frame, have));
                assert_eq!(predicted(&frame, have - 1), None, "a byte is missing");
            }
        }
    }

    #[test]
    fn the_general_parsers_agree_on_changed_bytes() {
        for (v6, timestamps) in [(false, false), (false, true), (true, false), (true, true)] {
            let frame = segment(v6, timestamps, 5);
            for at in 0..frame.len() {
                for value in 0..=255u8 {
                    let mut changed = frame.clone();
                    // The sum stays right where another byte of the same weight makes up for the change.
                    let make_up = if at & 1 == 0 { 18 } else { 19 };
                    let by = changed[at].wrapping_sub(value);
                    changed[at] = value;
                    if !v6 && (IP_AT..IP_AT + ipv4::HEADER_LEN).contains(&at) && at != make_up {
                        changed[make_up] = changed[make_up].wrapping_add(by);
                    }
                    if let Some(fields) = predicted(&changed, changed.len() + 5) {
                        assert_eq!(Some(fields), general(&changed, changed.len() + 5), "byte {at} = {value}");
                    }
                }
            }
            for len in 0..frame.len() {
                assert_eq!(predicted(&frame[..len], frame.len() + 5), None);
            }
        }
    }

    #[test]
    fn each_address_counts() {
        let tuple = |local: &str, remote: &str| {
            let end = |ip: &str| Endpoint::new(ip.parse().unwrap(), 80);
            Parties::of_received(&FourTuple::new(end(local), end(remote)))
        };
        let (a, b, c) = ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::2");
        let all = [tuple(a, b), tuple(b, a), tuple(a, c), tuple(c, a), tuple(b, c), tuple(a, a)];
        let hashes: std::collections::HashSet<u64> = all.iter().map(|it| it.unwrap().0.addresses).collect();
        assert_eq!(hashes.len(), all.len());
        assert_eq!(tuple(a, b).unwrap().1.unwrap()[15], 2, "the source is the peer");
        assert!(tuple("10.0.0.1", a).is_none() && tuple("10.0.0.1", "10.0.0.2").unwrap().1.is_none());
    }
}
