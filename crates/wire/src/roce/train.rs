//! Trains: packets of one message that follow each other, in one frame (docs/RDMA.md, "Trains").
//!
//! A train has the headers of a single packet, and more payload than one: each packet but the last has as much as the
//! frame's owner keeps beside it (`segment`). Its opcode gives the place of the whole train in its message, and its
//! sequence number is that of the first packet. A train never leaves a machine: [`Train::write_next`] makes the
//! packets.
use super::icrc::{ICRC_LEN, icrc};
use super::packed::{Packed, is_packed};
use super::packet::{Layout, Packet, UDP_LEN, layout};
use super::{BTH_LEN, Bth, Opcode, Operation, Position, Psn, Tail, XrcEth, sprayed_port};
use crate::ipv4;

/// A train, or a single packet whose checksum is not computed.
pub struct Train<'a>(Kind<'a>);

enum Kind<'a> {
    /// Packets of one message.
    Message(Message<'a>),
    /// Messages of one packet each; `packed` stands at the next one.
    Packed { packed: Packed<'a>, count: u32, longest: usize },
}

struct Message<'a> {
    frame: &'a [u8],
    layout: Layout,
    packet: Packet<'a>,
    segment: usize,
    /// The packet that is next, from 0.
    next: u32,
}

impl<'a> Train<'a> {
    /// That of a frame of the machine's own; each packet but the last has `segment` bytes of payload. 0 means that
    /// there is one packet. `None` where the frame is no RoCEv2 packet over IPv4.
    pub fn of(frame: &'a [u8], segment: u16) -> Option<Train<'a>> {
        if segment > 0 && is_packed(frame) {
            let packed = Packed::parse(frame).ok()?;
            let (mut remaining, mut count, mut longest) = (packed.clone(), 0, 0);
            while let Some(inner) = remaining.next_packet().ok()? {
                count += 1;
                longest = longest.max(inner.extended.len() + inner.payload.len());
            }
            longest += packed.front().len() + BTH_LEN + MOST_PAD + ICRC_LEN;
            return Some(Train(Kind::Packed { packed, count, longest }));
        }
        let (layout, packet) = (layout(frame).ok()?, Packet::parse(frame).ok()?);
        let segment = if segment == 0 { packet.payload.len().max(1) } else { usize::from(segment) };
        Some(Train(Kind::Message(Message { frame, layout, packet, segment, next: 0 })))
    }

    /// Packets of it.
    pub fn count(&self) -> u32 {
        match &self.0 {
            Kind::Message(message) => message.count(),
            Kind::Packed { count, .. } => *count,
        }
    }

    /// No packet of it is longer, in bytes.
    pub fn longest(&self) -> usize {
        match &self.0 {
            Kind::Message(message) => {
                let headers = message.frame.len() - message.packet.payload.len();
                headers + message.segment.min(message.packet.payload.len()) + MOST_PAD + ICRC_LEN
            }
            Kind::Packed { longest, .. } => *longest,
        }
    }

    /// Appends the next packet of it to an empty frame, as it is on a wire. Behind the last one it does nothing.
    pub fn write_next(&mut self, into: &mut Vec<u8>) {
        match &mut self.0 {
            Kind::Message(message) if message.next < message.count() => {
                message.write(message.next, into);
                message.next += 1;
            }
            Kind::Message(_) => {}
            Kind::Packed { packed, .. } => write_packed(packed, into),
        }
    }
}

/// The payload's length is made a multiple of four bytes.
const MOST_PAD: usize = 3;

/// Appends the next packet of a packed train.
fn write_packed(packed: &mut Packed<'_>, into: &mut Vec<u8>) {
    let Ok(Some(inner)) = packed.next_packet() else { return };
    let (front, bth_at) = (packed.front(), packed.front().len());
    into.extend_from_slice(front);
    into.resize(bth_at + BTH_LEN, 0);
    inner.bth.emit(&mut into[bth_at..]);
    into.extend_from_slice(inner.extended);
    into.extend_from_slice(inner.payload);
    into.extend_from_slice(&[0; 3][..usize::from(inner.bth.pad)]);
    // In the train, the place of the UDP checksum has another meaning.
    into[bth_at - 2..bth_at].fill(0);
    seal_at(bth_at - UDP_LEN, packed.ip.id, into);
}

/// Ends a packet whose UDP header stands at `udp_at`: lengths and checksums.
fn seal_at(udp_at: usize, id: u16, into: &mut Vec<u8>) {
    let (ip_at, len) = (udp_at - ipv4::HEADER_LEN, into.len() + ICRC_LEN);
    ipv4::set_len_and_id(&mut into[ip_at..], (len - ip_at) as u16, id);
    into[udp_at + 4..udp_at + 6].copy_from_slice(&((len - udp_at) as u16).to_be_bytes());
    let checksum = icrc(&into[ip_at..]).unwrap_or_default();
    into.extend_from_slice(&checksum);
}

impl Message<'_> {
    fn count(&self) -> u32 {
        self.packet.payload.len().div_ceil(self.segment).max(1) as u32
    }

    fn write(&self, at: u32, into: &mut Vec<u8>) {
        let Message { frame, layout, packet, segment, .. } = self;
        let payload = packet.payload.chunks(*segment).nth(at as usize).unwrap_or_default();
        let last = at + 1 == self.count();
        let opcode = packet.opcode().at(packet.opcode().position().part(at, self.count()));
        let pad = payload.len().wrapping_neg() & 3;
        let bth = Bth {
            opcode,
            solicited: packet.bth.solicited && last,
            ack_request: packet.bth.ack_request && last,
            pad: pad as u8,
            psn: packet.bth.psn.plus(at),
            ..packet.bth
        };
        into.extend_from_slice(&frame[..layout.bth_at]);
        into.resize(layout.bth_at + BTH_LEN, 0);
        bth.emit(&mut into[layout.bth_at..]);
        // What comes first belongs to the first packet of a message, or to both ends; what comes last, to the last.
        let headers = packet.extended();
        let (front, tail) = match opcode.operation() {
            Operation::Send | Operation::Write => headers.split_at(headers.len() - packet.tail_len()),
            _ => (headers, &[][..]),
        };
        let has_front = opcode.has_reth() || opcode.has_aeth() || self.count() == 1;
        // Each packet names its shared receive queue.
        let of_each = if opcode.has_xrc() { XrcEth::LEN } else { 0 };
        into.extend_from_slice(if has_front { front } else { &front[..of_each] });
        into.extend_from_slice(if opcode.position().ends() { tail } else { &[] });
        into.extend_from_slice(payload);
        into.extend_from_slice(&[0; 3][..pad]);
        let udp_at = layout.bth_at - UDP_LEN;
        if packet.bth.extension.spray() > 0 && at > 0 {
            // The frame has the port of its first packet; the next ones take the next paths.
            let port = sprayed_port(
                packet.source_port,
                packet.bth.extension.spray(),
                Psn::new(packet.source_port.into()).plus(at),
            );
            into[udp_at..udp_at + 2].copy_from_slice(&port.to_be_bytes());
        }
        seal_at(udp_at, layout.ip.id, into);
    }
}

impl Opcode {
    /// The same operation at another position of its message.
    fn at(self, position: Position) -> Opcode {
        let tail = match (self.has_immediate(), self.has_invalidate()) {
            (true, _) => Tail::Immediate,
            (_, true) => Tail::Invalidate,
            _ => Tail::Nothing,
        };
        match self.operation() {
            _ if self.position() == position => self,
            Operation::Send => Opcode::send(self.service(), position, tail),
            Operation::Write => Opcode::write(self.service(), position, tail),
            Operation::ReadResponse => Opcode::read_response(position).over(self.service()),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Aeth, Extension, Headers, Path, Reth, Service, Syndrome, icrc_is_right, pad, seal};
    use super::*;
    use crate::Mac;
    use std::net::Ipv4Addr;

    fn path() -> Path {
        Path {
            local_mac: Mac([2, 0, 0, 0, 0, 1]),
            remote_mac: Mac([2, 0, 0, 0, 0, 2]),
            local: Ipv4Addr::new(10, 0, 0, 1),
            remote: Ipv4Addr::new(10, 0, 0, 2),
            hop_limit: 64,
            traffic_class: 2,
            source_port: 0xc123,
        }
    }

    /// A frame with a place for its checksum.
    fn open(bth: &Bth, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        path().emit(bth, headers, payload.len(), &mut frame);
        frame.extend_from_slice(payload);
        pad(&mut frame);
        frame
    }

    fn sealed(bth: &Bth, headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut frame = open(bth, headers, payload);
        seal(&mut frame);
        frame
    }

    fn packets(frame: &[u8], segment: u16) -> Vec<Vec<u8>> {
        let mut train = Train::of(frame, segment).unwrap();
        let mut next = || {
            let mut packet = Vec::new();
            train.write_next(&mut packet);
            packet
        };
        let packets: Vec<Vec<u8>> = std::iter::repeat_with(&mut next).take_while(|packet| !packet.is_empty()).collect();
        assert_eq!(packets.len(), train.count() as usize);
        assert!(packets.iter().all(|packet| packet.len() <= train.longest()));
        packets
    }

    const RETH: Reth = Reth { address: 0x7000, key: 9, len: 1001 };

    #[test]
    fn a_write_comes_out_as_the_packets_that_are_built_one_by_one() {
        let payload: Vec<u8> = (0..1001).map(|at| at as u8).collect();
        let write = |position, tail| Opcode::write(Service::Rc, position, tail);
        let bth = |opcode, psn| Bth { extension: Extension::selective(0), ..Bth::new(opcode, 0x77, Psn::new(psn)) };
        let immediate = 0x0102_0304u32.to_be_bytes();
        let only = Bth { solicited: true, ack_request: true, ..bth(write(Position::Only, Tail::Immediate), 0xff_ffff) };
        let frame = open(&only, &Headers::NONE.with(RETH.bytes()).with(immediate), &payload);
        let last = Bth { solicited: true, ack_request: true, ..bth(write(Position::Last, Tail::Immediate), 1) };
        let expected = [
            sealed(
                &bth(write(Position::First, Tail::Nothing), 0xff_ffff),
                &Headers::NONE.with(RETH.bytes()),
                &payload[..400],
            ),
            sealed(&bth(write(Position::Middle, Tail::Nothing), 0), &Headers::NONE, &payload[400..800]),
            sealed(&last, &Headers::NONE.with(immediate), &payload[800..]),
        ];
        assert_eq!(packets(&frame, 400), expected);
        assert!(expected.iter().all(|packet| icrc_is_right(packet)));
    }

    #[test]
    fn packets_of_a_train_that_is_sprayed_take_paths_in_turn() {
        let bth = Bth {
            extension: Extension::selective(2),
            ..Bth::new(Opcode::write(Service::Rc, Position::Only, Tail::Nothing), 3, Psn::new(7))
        };
        let first = Path { source_port: sprayed_port(path().source_port, 2, bth.psn), ..path() };
        let mut frame = Vec::new();
        first.emit(&bth, &Headers::NONE.with(RETH.bytes()), 1001, &mut frame);
        frame.extend_from_slice(&[7; 1001]);
        pad(&mut frame);
        let cut = packets(&frame, 200);
        let port = |packet: &Vec<u8>| Packet::parse(packet).unwrap().source_port;
        assert_eq!(cut.iter().map(port).collect::<Vec<u16>>(), [0xc123, 0xc120, 0xc121, 0xc122, 0xc123, 0xc120]);
        assert!(cut.iter().all(|packet| icrc_is_right(packet)));
    }

    #[test]
    fn parts_of_messages_keep_their_places() {
        let payload = [7; 500];
        let headers = Headers::NONE.with(Aeth { syndrome: Syndrome::Ack(31), messages: 5 }.bytes());
        let frame = |position, headers: &Headers| {
            open(&Bth::new(Opcode::read_response(position), 3, Psn::new(40)), headers, &payload)
        };
        let positions = |frame: &[u8]| -> Vec<Position> {
            let position = |packet: &Vec<u8>| Packet::parse(packet).unwrap().opcode().position();
            packets(frame, 256).iter().map(position).collect()
        };
        use Position::*;
        assert_eq!(positions(&frame(Only, &headers)), [First, Last]);
        assert_eq!(positions(&frame(First, &headers)), [First, Middle]);
        assert_eq!(positions(&frame(Middle, &Headers::NONE)), [Middle, Middle]);
        assert_eq!(positions(&frame(Last, &headers)), [Middle, Last]);
        let last = &packets(&frame(Last, &headers), 256)[1];
        assert_eq!(Packet::parse(last).unwrap().aeth().unwrap().messages, 5);
        // A single packet is sealed, and nothing else of it changes.
        let one = frame(Only, &headers);
        assert_eq!(
            packets(&one, 0),
            [sealed(&Bth::new(Opcode::read_response(Only), 3, Psn::new(40)), &headers, &payload)]
        );
        let request = Bth::new(Opcode::READ_REQUEST, 3, Psn::new(9));
        let reth = Headers::NONE.with(RETH.bytes());
        assert_eq!(packets(&open(&request, &reth, &[]), 0), [sealed(&request, &reth, &[])]);
        let ack = open(&Bth::new(Opcode::ACKNOWLEDGE, 3, Psn::new(9)), &headers, &[]);
        assert_eq!(packets(&ack, 0), [sealed(&Bth::new(Opcode::ACKNOWLEDGE, 3, Psn::new(9)), &headers, &[])]);
        assert!(Train::of(&one[..30], 256).is_none());
    }
}
