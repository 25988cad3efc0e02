//! Packed trains: messages of one packet each that follow each other on one connection, in one frame (docs/RDMA.md,
//! "Trains").
//!
//! The frame has the Ethernet, IPv4 and UDP headers once. The packets follow, each from its base header to the place of
//! its ICRC. That place holds the length of the next packet, 0 behind the last one; the field of the UDP checksum holds
//! the first packet's. So the frames of a machine need no list beside them. A packed train never leaves a machine:
//! [`super::Train`] makes the packets.
use super::icrc::{ICRC_LEN, IP_AT};
use super::packet::{Headers, Inner, Layout, Network, Packet, Path, UDP_LEN, layout};
use super::{BTH_LEN, Bth};
use crate::{EtherType, Mac, Malformed, be16, be32, ethernet, ipv4};

const UDP_AT: usize = IP_AT + ipv4::HEADER_LEN;
/// Byte of a frame that OpenTOE sends where the UDP checksum stands.
const FIRST_AT: usize = UDP_AT + 6;

/// A packed train that is being written.
pub struct Packing<'f> {
    frame: &'f mut Vec<u8>,
    /// Where the length of the next packet is to be written: it is 0 before.
    link: usize,
    count: u32,
}

impl<'f> Packing<'f> {
    /// Begins one in an empty frame, on this way.
    #[inline]
    pub fn new(path: &Path, frame: &'f mut Vec<u8>) -> Packing<'f> {
        path.emit_network(0, frame);
        Packing { frame, link: 0, count: 0 }
    }

    /// Adds a packet. `fill` appends its payload, `payload` bytes.
    ///
    /// # Errors
    /// What `fill` returns; then the packet is not added.
    #[inline]
    pub fn add<E>(
        &mut self,
        bth: &Bth,
        extended: &Headers,
        payload: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (begin, pad) = (self.frame.len(), payload.wrapping_neg() & 3);
        extended.append(&Bth { pad: pad as u8, ..*bth }, self.frame);
        if let Err(error) = fill(self.frame) {
            self.frame.truncate(begin);
            return Err(error);
        }
        // Four bytes of padding at most: those that are too many go.
        let end = self.frame.len() + pad;
        self.frame.extend_from_slice(&[0; 4 + ICRC_LEN]);
        self.frame.truncate(end + ICRC_LEN);
        let len = (end + ICRC_LEN - begin) as u32;
        match self.link {
            0 => self.frame[FIRST_AT..FIRST_AT + 2].copy_from_slice(&(len as u16).to_be_bytes()),
            link => self.frame[link..link + ICRC_LEN].copy_from_slice(&len.to_be_bytes()),
        }
        (self.link, self.count) = (end, self.count + 1);
        Ok(())
    }

    /// Bytes so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// No packet was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Packets so far.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Ends it: the headers get its length, which is at most an IPv4 packet.
    pub fn finish(self) {
        let ip_len = self.frame.len() - IP_AT;
        let udp_len = (ip_len - ipv4::HEADER_LEN) as u16;
        ipv4::set_len_and_id(&mut self.frame[IP_AT..], ip_len as u16, 0);
        self.frame[UDP_AT + 4..UDP_AT + 6].copy_from_slice(&udp_len.to_be_bytes());
    }
}

/// A frame of the machine's own is a packed train. Of others, this means nothing: their UDP checksum stands there.
#[inline]
pub fn is_packed(frame: &[u8]) -> bool {
    let Some(ip_at) = ethernet::payload_at(frame, EtherType::Ipv4) else { return false };
    let at = ip_at + FIRST_AT - IP_AT;
    frame.get(at..at + 2).is_some_and(|len| len != [0; 2])
}

/// A packed train that is being read.
#[derive(Clone)]
pub struct Packed<'f> {
    frame: &'f [u8],
    /// The IPv4 header.
    pub ip: ipv4::Header,
    /// The next packet, and its length; 0 at the end.
    at: usize,
    len: usize,
    end: usize,
}

impl<'f> Packed<'f> {
    /// That of a frame. Network headers are checked.
    ///
    /// # Errors
    /// It is none.
    #[inline]
    pub fn parse(frame: &'f [u8]) -> Result<Packed<'f>, Malformed> {
        let Layout { bth_at, end, ip, .. } = layout(frame)?;
        let len = usize::from(be16(frame, bth_at - 2));
        if len == 0 { Err(Malformed::Field) } else { Ok(Packed { frame, ip, at: bth_at, len, end }) }
    }

    /// The next packet; `None` behind the last one.
    ///
    /// # Errors
    /// What follows is no packet, and the train ends with it.
    #[inline(always)]
    pub fn next_packet(&mut self) -> Result<Option<Inner<'f>>, Malformed> {
        let (at, len) = (self.at, std::mem::take(&mut self.len));
        if len == 0 {
            return Ok(None);
        }
        let end = at.checked_add(len).filter(|end| *end <= self.end).ok_or(Malformed::Truncated)?;
        let packet = &self.frame[at..end];
        let bth = Bth::parse(packet)?;
        let payload_at = BTH_LEN + bth.opcode.extended_len();
        let Some(payload_end) = len.checked_sub(ICRC_LEN + usize::from(bth.pad)).filter(|end| *end >= payload_at)
        else {
            return Err(Malformed::Truncated);
        };
        (self.at, self.len) = (end, be32(packet, len - ICRC_LEN) as usize);
        Ok(Some(Inner { bth, extended: &packet[BTH_LEN..payload_at], payload: &packet[payload_at..payload_end] }))
    }

    /// As a packet that came alone.
    #[inline]
    pub fn alone(&self, inner: Inner<'f>) -> Packet<'f> {
        let udp_at = self.udp_at();
        let network = Network {
            ip: self.ip,
            ip_bytes: &self.frame[udp_at - ipv4::HEADER_LEN..udp_at],
            source_port: be16(self.frame, udp_at),
            source_mac: ethernet::Header::parse(self.frame).map_or(Mac([0; 6]), |header| header.src),
        };
        Packet::of_parts(network, inner)
    }

    /// Where the UDP header stands: the packets follow it.
    fn udp_at(&self) -> usize {
        self.end - usize::from(self.ip.payload_len)
    }

    /// The bytes in front of the packets.
    pub(super) fn front(&self) -> &'f [u8] {
        &self.frame[..self.udp_at() + UDP_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Opcode, Psn, Reth, Train, finish, icrc_is_right};
    use super::*;
    use std::net::Ipv4Addr;

    const PATH: Path = Path {
        local_mac: Mac([2, 0, 0, 0, 0, 1]),
        remote_mac: Mac([2, 0, 0, 0, 0, 2]),
        local: Ipv4Addr::new(10, 0, 0, 1),
        remote: Ipv4Addr::new(10, 0, 0, 2),
        hop_limit: 64,
        traffic_class: 2,
        source_port: 0xc123,
    };

    fn message(at: u32, len: usize) -> (Bth, Headers, Vec<u8>) {
        let bth = Bth { ack_request: at == 3, ..Bth::new(Opcode::WRITE_ONLY, 0x77, Psn::new(0xff_fffe).plus(at)) };
        let reth = Reth { address: 0x1000 + u64::from(at), key: 9, len: len as u32 };
        (bth, Headers::of(reth.bytes()), (0..len).map(|byte| (byte * 7 + at as usize) as u8).collect())
    }

    fn packed(lens: &[usize]) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut packing = Packing::new(&PATH, &mut frame);
        for (at, len) in lens.iter().enumerate() {
            let (bth, headers, payload) = message(at as u32, *len);
            let fill = |into: &mut Vec<u8>| {
                into.extend_from_slice(&payload);
                Ok::<_, ()>(())
            };
            packing.add(&bth, &headers, *len, fill).unwrap();
            let fail = |into: &mut Vec<u8>| {
                into.push(1);
                Err("too few")
            };
            assert_eq!(packing.add(&bth, &headers, 3, fail), Err("too few"), "nothing is left of it");
        }
        assert_eq!((packing.count() as usize, packing.is_empty()), (lens.len(), lens.is_empty()));
        packing.finish();
        frame
    }

    #[test]
    fn messages_come_out_as_they_went_in_and_as_packets_on_a_wire() {
        let lens = [64, 0, 1, 2, 3, 1000];
        let frame = packed(&lens);
        assert!(is_packed(&frame));
        let mut reader = Packed::parse(&frame).unwrap();
        let mut train = Train::of(&frame, 1).unwrap();
        assert_eq!(train.count() as usize, lens.len());
        for (at, len) in lens.into_iter().enumerate() {
            let (bth, headers, payload) = message(at as u32, len);
            let inner = reader.next_packet().unwrap().unwrap();
            assert_eq!((inner.bth, inner.payload), (Bth { pad: inner.bth.pad, ..bth }, &payload[..]));
            let alone = reader.alone(inner);
            assert_eq!(
                (alone.reth().unwrap().len as usize, alone.source_port, alone.ip.src),
                (len, 0xc123, PATH.local)
            );
            let (mut expected, mut written) = (Vec::new(), Vec::new());
            PATH.emit(&bth, &headers, len, &mut expected);
            expected.extend_from_slice(&payload);
            finish(&mut expected);
            train.write_next(&mut written);
            assert!(written.len() <= train.longest());
            assert_eq!(written, expected, "{len} bytes");
            assert!(icrc_is_right(&written) && !is_packed(&written));
        }
        assert!(reader.next_packet().unwrap().is_none());
    }

    #[test]
    fn no_length_leads_outside() {
        let frame = packed(&[64, 8, 200]);
        for at in (FIRST_AT - 8)..frame.len() {
            for value in [0, 1, 16, 0xff] {
                let mut changed = frame.clone();
                changed[at] = value;
                let Ok(mut reader) = Packed::parse(&changed) else { continue };
                while let Ok(Some(inner)) = reader.next_packet() {
                    assert!(inner.payload.len() + inner.extended.len() < frame.len());
                }
            }
        }
        for len in 0..frame.len() {
            assert!(Packed::parse(&frame[..len]).is_err() && Train::of(&frame[..len], 1).is_none(), "{len} bytes");
        }
    }
}
