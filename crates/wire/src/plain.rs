//! Header prediction (after Van Jacobson): a segment as nearly all of a connection's are, read with fixed offsets.
//! Whatever is not exactly so is left to the parsers of each header, which accept all of these and read them alike.
use crate::checksum::Sum;
use crate::ipv4::{self, Ecn};
use crate::tcp::{self, Flags, TIMESTAMPS_LEN, Timestamps};
use crate::{Mac, Seq, be16, be32, ethernet, ip_at};
use std::net::Ipv4Addr;

const IP_AT: usize = ethernet::HEADER_LEN;
const TCP_AT: usize = IP_AT + ipv4::HEADER_LEN;
const OPTIONS_AT: usize = TCP_AT + tcp::HEADER_LEN;

/// A TCP segment in an Ethernet frame, with an IPv4 header without options, not a fragment, and with no TCP option
/// or the timestamps as RFC 7323 appendix A lays them out. The IPv4 checksum is right; the TCP checksum was not looked
/// at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain {
    /// Destination station.
    pub mac: Mac,
    /// Source and destination address.
    pub addresses: (Ipv4Addr, Ipv4Addr),
    /// Source and destination port.
    pub ports: (u16, u16),
    /// ECN bits of the IPv4 header.
    pub ecn: Ecn,
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgement number.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window, not scaled.
    pub window: u16,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// Where the payload starts in the frame.
    pub payload_at: usize,
    /// Bytes of payload.
    pub payload_len: u32,
}

impl Plain {
    /// Reads a frame of `have` bytes, of which `bytes` are the first ones; nothing where it is not a plain segment.
    #[inline(always)]
    pub fn parse(bytes: &[u8], have: usize) -> Option<Plain> {
        let h = bytes.first_chunk::<OPTIONS_AT>()?;
        let plain_ip = be16(h, 12) == 0x0800 && h[IP_AT] == 0x45 && be16(h, IP_AT + 6) & 0x3fff == 0;
        if !plain_ip || h[IP_AT + 9] != ipv4::TCP || !is_sound(h) {
            return None;
        }
        let (options, timestamps) = match h[TCP_AT + 12] >> 4 {
            5 => (0, None),
            8 => (TIMESTAMPS_LEN, Some(timestamps(bytes)?)),
            _ => return None,
        };
        let total_len = be16(h, IP_AT + 2) as usize;
        let payload_len = total_len.checked_sub(ipv4::HEADER_LEN + tcp::HEADER_LEN + options)?;
        if have - IP_AT < total_len {
            return None;
        }
        Some(Plain {
            mac: Mac([h[0], h[1], h[2], h[3], h[4], h[5]]),
            addresses: (ip_at(h, IP_AT + 12), ip_at(h, IP_AT + 16)),
            ports: (be16(h, TCP_AT), be16(h, TCP_AT + 2)),
            ecn: h[IP_AT + 1].into(),
            seq: Seq(be32(h, TCP_AT + 4)),
            ack: Seq(be32(h, TCP_AT + 8)),
            flags: Flags(h[TCP_AT + 13]),
            window: be16(h, TCP_AT + 14),
            timestamps,
            payload_at: OPTIONS_AT + options,
            payload_len: payload_len as u32,
        })
    }
}

/// The IPv4 header's checksum is right.
#[inline(always)]
fn is_sound(headers: &[u8; OPTIONS_AT]) -> bool {
    // Ten words, two at once: the sum of their halves is the same in either byte order.
    let pair = |at: usize| u64::from(be32(headers, IP_AT + 4 * at));
    Sum::of_words(pair(0) + pair(1) + pair(2) + pair(3) + pair(4)).finish() == 0
}

/// The timestamps option, where it is all that there is.
#[inline(always)]
fn timestamps(bytes: &[u8]) -> Option<Timestamps> {
    let h = bytes.first_chunk::<{ OPTIONS_AT + TIMESTAMPS_LEN }>()?;
    let stamps = Timestamps { value: be32(h, OPTIONS_AT + 4), echo: be32(h, OPTIONS_AT + 8) };
    (be32(h, OPTIONS_AT) == 0x0101_080a).then_some(stamps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Fields, Template};

    fn general(bytes: &[u8], have: usize) -> Option<Plain> {
        let link = ethernet::Header::parse(bytes).ok()?;
        let (ip, ip_len) = ipv4::Header::parse(bytes.get(IP_AT..)?, have - IP_AT).ok()?;
        let (header, tcp_len) = tcp::Header::parse(&bytes[IP_AT + ip_len..]).ok()?;
        let for_us = link.ethertype == ethernet::EtherType::Ipv4 && ip.protocol == ipv4::TCP && !ip.is_fragment;
        let payload_len = (ip.payload_len as usize).checked_sub(tcp_len)? as u32;
        for_us.then_some(Plain {
            mac: link.dst,
            addresses: (ip.src, ip.dst),
            ports: (header.src_port, header.dst_port),
            ecn: ip.ecn,
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            timestamps: header.options.timestamps,
            payload_at: IP_AT + ip_len + tcp_len,
            payload_len,
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
            let plain = Plain::parse(&frame, have);
            assert!(plain.is_some());
            assert_eq!(plain, general(&frame, have));
            assert_eq!(Plain::parse(&frame, have - 1), None, "a byte is missing");
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
                    if let Some(plain) = Plain::parse(&changed, changed.len() + 5) {
                        assert_eq!(Some(plain), general(&changed, changed.len() + 5), "byte {at} = {value}");
                    }
                }
            }
            for len in 0..frame.len() {
                assert_eq!(Plain::parse(&frame[..len], frame.len() + 5), None);
            }
        }
    }
}
