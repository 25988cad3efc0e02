//! A frame: bytes on a port.
use shm::Span;
use wire::checksum::Sum;
use wire::roce::behind_payload;
use wire::{ethernet, ip};

/// What is known about the transport checksum of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// It stands in the frame; on reception it is to be verified.
    #[default]
    Complete,
    /// Received and known to be right.
    Verified,
    /// Not computed: the 16-bit field at byte `field` holds the pseudo-header's folded sum. The sum of all bytes from
    /// `start` on is to be put there (virtio and Linux: CHECKSUM_PARTIAL). Such a frame never left the machine, so on
    /// reception it counts as right.
    Partial {
        /// First byte that is summed: the transport header.
        start: u16,
        /// Byte of the checksum field.
        field: u16,
    },
    /// A RoCEv2 packet whose ICRC is not computed: its place is there. Such a frame never left the machine, either.
    /// With a [`Frame::segment_size`] it is a train of packets ([`wire::roce::Train`]).
    Icrc,
}

/// An Ethernet frame: contiguous bytes that hold at least all headers, and then, optionally, the payload by
/// reference to a buffer in shared memory.
#[derive(Default)]
pub struct Frame {
    bytes: Vec<u8>,
    /// Where the frame starts in `bytes`: what is before was stripped off and is room to grow.
    start: usize,
    payload: Option<Span>,
    /// The transport checksum.
    pub checksum: Checksum,
    /// Payload bytes of each TCP segment where this is a super-segment that a port may have to cut. Those of each
    /// packet where it is a train of RoCEv2 packets; 0 where the frame is one segment.
    pub segment_size: u16,
    /// Metadata of modules for later modules (thesis section 4.3.3); zero before the first one sets it.
    pub metadata: [u32; 4],
    /// A capture has it already ([`crate::Recorder`]): it passes a second time.
    pub recorded: bool,
    /// Of a received frame: by which of its host's ports it came. Means something on hosts with several ports only.
    pub port: u8,
}

/// What comes before a front that grows by a little.
const ZEROS: [u8; 16] = [0; 16];

impl Frame {
    pub(crate) fn with_capacity(bytes: usize) -> Frame {
        Frame { bytes: Vec::with_capacity(bytes), ..Frame::default() }
    }

    /// Empties the frame, keeping its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.payload = None;
        self.reset();
    }

    /// The same where no payload is attached.
    #[inline(always)]
    pub(crate) fn reset(&mut self) {
        debug_assert!(self.payload.is_none());
        self.bytes.clear();
        self.start = 0;
        self.checksum = Checksum::Complete;
        self.segment_size = 0;
        self.metadata = [0; 4];
        self.recorded = false;
    }

    /// The contiguous part: all headers, and the payload unless that is in [`Frame::payload`].
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The contiguous part, to change.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// Sets the length of the contiguous part; new bytes are zero. Does not allocate up to the capacity that the
    /// pool gave.
    #[inline]
    pub fn resize(&mut self, len: usize) {
        self.bytes.resize(self.start + len, 0);
    }

    /// Takes `count` bytes off the front, which costs nothing; they are room for [`Frame::grow_front`]. False, and
    /// nothing is done, where the contiguous part has fewer. A partial checksum stays partial, or is completed where
    /// what is stripped reaches into what it covers.
    #[inline]
    pub fn strip_front(&mut self, count: usize) -> bool {
        if count > self.bytes().len() {
            return false;
        }
        if let Checksum::Partial { start, field } = self.checksum {
            if count > usize::from(start) {
                self.complete_checksum();
            } else {
                self.checksum = Checksum::Partial { start: start - count as u16, field: field - count as u16 };
            }
        }
        self.start += count;
        true
    }

    /// Puts `count` bytes before the front: those that were stripped last, and zeros where there were no more. Moves
    /// the contiguous part where there is not enough room before it, and allocates where the capacity is too small.
    pub fn grow_front(&mut self, count: usize) {
        if let Checksum::Partial { start, field } = self.checksum {
            match u16::try_from(usize::from(start.max(field)) + count) {
                Ok(_) => {
                    self.checksum = Checksum::Partial { start: start + count as u16, field: field + count as u16 };
                }
                Err(_) => self.complete_checksum(),
            }
        }
        if let Some(missing) = count.checked_sub(self.start).filter(|missing| *missing > 0) {
            let len = self.bytes.len();
            match ZEROS.get(..missing) {
                // A tag, most often.
                Some(zeros) => self.bytes.extend_from_slice(zeros),
                None => self.bytes.resize(len + missing, 0),
            }
            self.bytes.copy_within(..len, missing);
            self.bytes[..missing].fill(0);
            self.start += missing;
        }
        self.start -= count;
    }

    /// Bytes that the contiguous part can hold without allocating.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    /// The same of an empty frame.
    #[inline]
    pub(crate) fn whole_capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The contiguous part as a vector, for ports that fill it (with its spare capacity). Room before the front is
    /// given up.
    #[inline]
    pub fn bytes_vec(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// The payload by reference, where there is one.
    #[inline]
    pub fn payload(&self) -> Option<&Span> {
        self.payload.as_ref()
    }

    /// Attaches payload by reference; it follows the contiguous part.
    #[inline]
    pub fn set_payload(&mut self, payload: Option<Span>) {
        self.payload = payload.filter(|span| !span.is_empty());
    }

    /// The same of a frame that has none yet, as those from the pool, and bytes of which there are some: nothing is
    /// read.
    #[inline(always)]
    pub fn attach(&mut self, payload: Span) {
        debug_assert!(self.payload.is_none() && !payload.is_empty());
        std::mem::forget(self.payload.replace(payload));
    }

    /// Bytes of the whole frame, as it is when it is flat.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes().len() + self.payload.as_ref().map_or(0, |span| span.len() + self.behind_payload())
    }

    /// Bytes that follow payload by reference: a RoCEv2 packet gets them when it is flat.
    #[inline]
    fn behind_payload(&self) -> usize {
        if self.checksum == Checksum::Icrc { behind_payload(self.bytes()) } else { 0 }
    }

    /// Its packet is longer than `mtu` bytes. As on every NIC, VLAN tags do not count.
    #[inline]
    pub(crate) fn exceeds(&self, mtu: u16) -> bool {
        let room = ethernet::HEADER_LEN + usize::from(mtu);
        // Most are well within, and then there is no search for tags.
        self.len() > room && ip::packet_at(self.bytes()).is_none_or(|(at, _)| self.len() > at + usize::from(mtu))
    }

    /// The frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Becomes what `other` is, in memory of its own; the payload by reference moves.
    pub(crate) fn take_over(&mut self, other: &mut Frame) {
        self.bytes_vec().clear();
        self.bytes.extend_from_slice(other.bytes());
        self.payload = other.payload.take();
        (self.checksum, self.segment_size) = (other.checksum, other.segment_size);
        (self.metadata, self.recorded) = (other.metadata, other.recorded);
    }

    /// Appends the frame as it is when it is flat.
    pub(crate) fn append_flat(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.bytes());
        if let Some(span) = &self.payload {
            span.append(into);
            into.resize(into.len() + self.behind_payload(), 0);
        }
    }

    /// Copies the payload into the contiguous part, so that nothing refers to shared memory any more. Allocates
    /// where the capacity is too small. A RoCEv2 packet gets the place of its checksum, which it lacks until then.
    pub fn flatten(&mut self) {
        if let Some(span) = self.payload.take() {
            let behind = self.behind_payload();
            span.append(&mut self.bytes);
            if behind > 0 {
                self.resize(self.bytes().len() + behind);
            }
        }
    }

    /// Flattens the frame and completes a partial checksum, as a NIC does before the wire. Not for
    /// super-segments: they have one checksum a segment.
    pub fn complete_checksum(&mut self) {
        self.flatten();
        if let Checksum::Partial { start, field } = self.checksum {
            complete(self.bytes_mut(), start, field);
            self.checksum = Checksum::Complete;
        }
        if self.checksum == Checksum::Icrc {
            wire::roce::seal(self.bytes_mut());
            self.checksum = Checksum::Complete;
        }
    }
}

/// Completes a partial checksum in a whole frame's bytes. Nothing is to be done where a module cut the frame so short
/// that it has no checksum any more.
pub(crate) fn complete(bytes: &mut [u8], start: u16, field: u16) {
    let (start, field) = (usize::from(start), usize::from(field));
    if start > bytes.len() || field + 2 > bytes.len() {
        return;
    }
    let mut sum = Sum::new();
    sum.add(&bytes[start..]);
    bytes[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({} bytes, {:?}, segment_size {})", self.len(), self.checksum, self.segment_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_partial_checksum_is_completed_over_field_and_data() {
        let mut frame = Frame::with_capacity(64);
        frame.resize(8);
        frame.bytes_mut().copy_from_slice(&[9, 9, 1, 2, 0xab, 0xcd, 3, 4]);
        frame.checksum = Checksum::Partial { start: 2, field: 4 };
        frame.complete_checksum();
        let mut check = Sum::new();
        check.add(&[0xab, 0xcd]);
        check.add(&[1, 2, 0, 0, 3, 4]);
        assert_eq!(frame.bytes()[4..6], check.finish().to_be_bytes());
        assert_eq!(frame.checksum, Checksum::Complete);
    }
    /// A frame of `bytes` with a partial checksum over all from byte 4 on, whose field is at byte 6.
    fn partial(bytes: &[u8]) -> Frame {
        let mut frame = Frame::with_capacity(64);
        frame.bytes_vec().extend_from_slice(bytes);
        frame.checksum = Checksum::Partial { start: 4, field: 6 };
        frame
    }

    #[test]
    fn what_is_stripped_comes_back_and_new_room_is_zero() {
        let mut frame = partial(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(frame.strip_front(2));
        assert_eq!((frame.bytes(), frame.len()), (&[3, 4, 5, 6, 7, 8][..], 6));
        assert_eq!(frame.checksum, Checksum::Partial { start: 2, field: 4 });
        frame.grow_front(5);
        assert_eq!(frame.bytes(), [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(frame.checksum, Checksum::Partial { start: 7, field: 9 });
        assert!(!frame.strip_front(12));
        assert!(frame.strip_front(11));
        assert!(frame.is_empty());
    }

    #[test]
    fn a_moved_start_is_seen_by_whoever_fills_the_frame() {
        let mut frame = partial(&[1, 2, 3, 4, 5, 6, 7, 8]);
        frame.strip_front(3);
        frame.resize(2);
        assert_eq!(frame.bytes(), [4, 5]);
        frame.bytes_vec().push(9);
        assert_eq!(frame.bytes(), [4, 5, 9]);
        frame.grow_front(1);
        assert_eq!(frame.bytes(), [0, 4, 5, 9]);
        frame.clear();
        assert!(frame.is_empty() && frame.bytes_vec().is_empty());
        assert_eq!(frame.capacity(), 64);
    }

    #[test]
    fn a_checksum_is_completed_before_a_part_of_what_it_covers_goes() {
        let mut whole = partial(&[9, 9, 9, 9, 1, 2, 0, 7, 3, 4]);
        let mut cut = partial(&[9, 9, 9, 9, 1, 2, 0, 7, 3, 4]);
        whole.complete_checksum();
        assert!(cut.strip_front(5));
        assert_eq!((cut.checksum, cut.bytes()), (Checksum::Complete, &whole.bytes()[5..]));
        let mut short = partial(&[9, 9, 9, 9, 1, 2, 0, 7, 3, 4]);
        short.resize(5);
        short.complete_checksum();
        assert_eq!(short.bytes(), [9, 9, 9, 9, 1], "nothing to complete, and nothing out of bounds");
    }

    #[test]
    fn a_packet_is_the_same_with_payload_by_reference() {
        use wire::roce::{Bth, Headers, Opcode, Path, Psn, Reth};
        let region = Arc::new(shm::Region::create("frame", 3 * shm::PAGE).unwrap());
        let byte_ring = Arc::new(shm::ByteRing::map(&region, shm::PAGE, shm::PAGE).unwrap());
        let bytes: Vec<u8> = (0..4000).map(|at| (at % 251) as u8).collect();
        byte_ring.write(0, &bytes);
        let mac = |last| wire::Mac([2, 0, 0, 0, 0, last]);
        let path = Path {
            local_mac: mac(1),
            remote_mac: mac(2),
            local: std::net::Ipv4Addr::new(10, 0, 0, 1),
            remote: std::net::Ipv4Addr::new(10, 0, 0, 2),
            hop_limit: 64,
            traffic_class: 0,
            source_port: 0xc123,
        };
        for len in 3001..3005 {
            let (bth, reth) = (Bth::new(Opcode::WRITE_ONLY, 7, Psn::new(1)), Reth { address: 1, key: 2, len });
            let mut front = Vec::new();
            path.emit(&bth, &Headers::NONE.with(reth.bytes()), len as usize, &mut front);
            let mut whole = [&front[..], &bytes[..len as usize]].concat();
            wire::roce::finish(&mut whole);
            let mut frame = Frame::with_capacity(64);
            frame.bytes_vec().extend_from_slice(&front);
            frame.checksum = Checksum::Icrc;
            frame.attach(Span::new(&byte_ring, 0, len));
            let mut pool = crate::FramePool::new(4);
            let mut twin = pool.copy(&frame);
            assert_eq!((twin.checksum, twin.len(), frame.len()), (Checksum::Icrc, whole.len(), whole.len()));
            twin.complete_checksum();
            frame.complete_checksum();
            assert!(frame.bytes() == whole && twin.bytes() == whole, "{len} bytes");
        }
    }
}
