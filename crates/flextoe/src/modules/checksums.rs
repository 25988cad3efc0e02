//! Checksums of frames that modules changed: they are the engine's (docs/MODULES.md).
use engine::{Changes, Frame, Front};
use port::Checksum;
use wire::rewrite::{self, Layers, MAX_HEADERS};

/// A frame's headers before modules saw it.
pub(super) struct Headers {
    bytes: [u8; MAX_HEADERS],
    len: usize,
    /// Bytes of the whole frame.
    total: usize,
}

impl Headers {
    pub(super) const NONE: Headers = Headers { bytes: [0; MAX_HEADERS], len: 0, total: 0 };

    /// Notes those of a frame. Where modules may change its payload too (`whole`), its checksum is verified now:
    /// afterwards it could not be verified.
    #[inline(always)]
    pub(super) fn note(&mut self, frame: &mut Frame, whole: bool) {
        if whole && frame.checksum == Checksum::Complete {
            let bytes = frame.bytes();
            if Layers::of(bytes).is_some_and(|layers| layers.tcp_is_sound(bytes)) {
                frame.checksum = Checksum::Verified;
            }
        }
        self.total = frame.len();
        self.copy(frame.bytes());
    }

    /// Most frames have headers and nothing else here. Copies of a length that is known beforehand are a few
    /// instructions; so they are copied as two pieces of such a length, which overlap.
    #[inline(always)]
    fn copy(&mut self, bytes: &[u8]) {
        self.len = bytes.len().min(MAX_HEADERS);
        if let Some(head) = bytes.first_chunk::<MAX_HEADERS>() {
            self.bytes = *head;
        } else if (PIECE..=2 * PIECE).contains(&bytes.len()) {
            let tail = self.bytes.get_mut(bytes.len() - PIECE..).and_then(|place| place.first_chunk_mut::<PIECE>());
            if let (Some(place), Some(end)) = (tail, bytes.last_chunk()) {
                *place = *end;
            }
            if let (Some(place), Some(begin)) = (self.bytes.first_chunk_mut::<PIECE>(), bytes.first_chunk()) {
                *place = *begin;
            }
        } else {
            self.bytes[..self.len].copy_from_slice(bytes);
        }
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Nothing but what stands before the Ethernet type changed: nothing at all, or a VLAN tag came or went. Where the
    /// length changed, it is taken to have done so there; if it was elsewhere, the bytes differ.
    #[inline(always)]
    fn same_packet(&self, frame: &Frame) -> bool {
        let (was, is) = (self.total, frame.len());
        let (old_at, new_at) = (TYPE_AT + was.saturating_sub(is), TYPE_AT + is.saturating_sub(was));
        let (Some(old), Some(new)) = (self.bytes().get(old_at..), frame.bytes().get(new_at..)) else { return false };
        let common = old.len().min(new.len());
        common >= LEAST && same(&old[..common], &new[..common])
    }
}

/// Two pieces cover all headers but the longest, which are rare; one is no longer than the usual ones.
const PIECE: usize = 64;

/// Whether slices of one length, at least [`LEAST`], are the same: the usual ones in two pieces, as in
/// [`Headers::copy`].
#[inline(always)]
fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() > 64 {
        return one == other;
    }
    one.first_chunk::<32>() == other.first_chunk::<32>() && one.last_chunk::<32>() == other.last_chunk::<32>()
}

/// Where the Ethernet type stands, or the first VLAN tag.
const TYPE_AT: usize = 12;
/// Bytes from the Ethernet type to the end of the shortest headers of TCP.
const LEAST: usize = 2 + 20 + 20;

/// A frame before modules saw it of which is known how far they reach ([`Changes::Front`]).
#[derive(Clone, Copy, Default)]
pub(super) struct Noted {
    /// Bytes of the whole frame.
    total: usize,
    /// The bytes from the Ethernet type on up to [`REACH`], as a word, the first one lowest.
    word: u64,
}

/// Up to here a frame's front is noted: the Ethernet type, a tag, and as much again.
const REACH: usize = TYPE_AT + 8;
/// Most bytes off the front with which the rest can still be computed from what is there afterwards.
const MOST_STRIPPED: usize = REACH - TYPE_AT;

/// Changes that modules in a row may make together.
pub(super) fn together(each: impl Iterator<Item = Changes>) -> Changes {
    let all = each.fold(Changes::Nothing, |all, next| match (all, next) {
        (Changes::Anything, _) | (_, Changes::Anything) => Changes::Anything,
        (all, Changes::Nothing) => all,
        (Changes::Nothing, front) => front,
        (Changes::Front(a), Changes::Front(b)) => Changes::Front(Front {
            // The second one counts from where the first one left the beginning.
            below: a.below.max(a.strips.saturating_add(b.below)),
            strips: a.strips.saturating_add(b.strips),
        }),
    });
    match all {
        Changes::Front(front) if front.below as usize > REACH || front.strips as usize > MOST_STRIPPED => {
            Changes::Anything
        }
        all => all,
    }
}

impl Noted {
    #[inline(always)]
    pub(super) fn note(&mut self, frame: &Frame) {
        (self.total, self.word) = (frame.len(), word_at(frame.bytes(), TYPE_AT).unwrap_or(0));
    }

    /// As [`mend`], after modules that change no more than that.
    #[inline(always)]
    pub(super) fn mend(&self, front: Front, frame: &mut Frame) {
        if !self.same_packet(front.below as usize, frame) {
            self.mend_changed(frame);
        }
    }

    /// As [`Headers::same_packet`]: what is not below `below` is the same in any case.
    #[inline(always)]
    fn same_packet(&self, below: usize, frame: &Frame) -> bool {
        let (was, is) = (self.total, frame.len());
        let (stripped, at) = (was.saturating_sub(is), TYPE_AT + is.saturating_sub(was));
        if frame.bytes().len() < at + LEAST {
            return false;
        }
        let Some(count) = below.checked_sub(TYPE_AT + stripped).filter(|count| *count > 0) else { return true };
        let Some(now) = word_at(frame.bytes(), at) else { return false };
        // At most REACH - TYPE_AT bytes are compared, so no shift is as wide as the word.
        ((self.word >> (8 * stripped)) ^ now) << (64 - 8 * count) == 0
    }

    #[cold]
    #[inline(never)]
    fn mend_changed(&self, frame: &mut Frame) {
        let mut old = [0; MAX_HEADERS];
        old[TYPE_AT..REACH].copy_from_slice(&self.word.to_le_bytes());
        // The hardware addresses, in front of that, are in no checksum; behind it all is as it was, wherever it is now.
        let rest = (REACH + frame.len()).checked_sub(self.total).and_then(|at| frame.bytes().get(at..)).unwrap_or(&[]);
        let len = rest.len().min(MAX_HEADERS - REACH);
        old[REACH..REACH + len].copy_from_slice(&rest[..len]);
        mend_changed(&old[..REACH + len], frame, false);
    }
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Makes the checksums of IPv4 and TCP good again after modules changed the frame (or not). One that was wrong before
/// stays wrong. Where modules may have changed the payload, a right TCP checksum is left partial.
#[inline(always)]
pub(super) fn mend(before: &Headers, frame: &mut Frame, whole: bool) {
    let payload_may_differ = whole && frame.checksum == Checksum::Verified;
    if payload_may_differ || !before.same_packet(frame) {
        mend_changed(before.bytes(), frame, whole);
    }
}

#[inline(never)]
fn mend_changed(old: &[u8], frame: &mut Frame, whole: bool) {
    let known = frame.checksum;
    let Some(new) = Layers::of(frame.bytes()) else {
        // The place of a partial checksum has moved along with the bytes.
        return forget(frame);
    };
    let Some(was) = Layers::of(old) else {
        // A packet where none was: this header is the module's own.
        return new.set_ip(frame.bytes_mut());
    };
    // Only something before the packet changed, a VLAN tag for example.
    if was.headers(old) == new.headers(frame.bytes()) && !whole {
        return;
    }
    rewrite::carry_ip((&was, old), (&new, frame.bytes_mut()));
    if !new.is_tcp() {
        return forget(frame);
    }
    match known {
        Checksum::Partial { .. } => leave_partial(&new, frame),
        Checksum::Verified if whole || frame.segment_size > 0 => leave_partial(&new, frame),
        _ if was.is_tcp() => rewrite::carry_tcp((&was, old), (&new, frame.bytes_mut())),
        _ => {}
    }
}

/// What was verified is no TCP segment any more.
fn forget(frame: &mut Frame) {
    if frame.checksum == Checksum::Verified {
        frame.checksum = Checksum::Complete;
    }
}

fn leave_partial(layers: &Layers, frame: &mut Frame) {
    layers.set_partial(frame.bytes_mut());
    let (start, field) = layers.checksum_places();
    frame.checksum = Checksum::Partial { start, field };
}

/// A received super-segment is about to be sent: each of its segments needs a checksum of its own.
pub(crate) fn prepare(frame: &mut Frame) {
    if frame.segment_size > 0 && !matches!(frame.checksum, Checksum::Partial { .. }) {
        if let Some(layers) = Layers::of(frame.bytes()).filter(Layers::is_tcp) {
            leave_partial(&layers, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::FramePool;

    /// A byte that a module changed is found, wherever it stands, and a tag is not taken for a change.
    #[test]
    fn every_changed_byte_is_seen() {
        let mut pool = FramePool::new(1);
        for len in [54, 58, 63, 64, 65, 66, 70, 100, 127, 128, 129, 130, 143, 144, 145, 300] {
            let mut frame = pool.small();
            frame.bytes_vec().extend((0..len).map(|at| at as u8 ^ 0x5a));
            let mut before = Headers::NONE;
            before.note(&mut frame, false);
            assert!(before.same_packet(&frame), "{len} bytes, nothing changed");
            for at in TYPE_AT..len.min(MAX_HEADERS) {
                frame.bytes_mut()[at] ^= 1;
                assert!(!before.same_packet(&frame), "byte {at} of {len}");
                frame.bytes_mut()[at] ^= 1;
            }
            frame.grow_front(4);
            frame.bytes_mut().copy_within(4..16, 0);
            assert!(before.same_packet(&frame), "{len} bytes, a tag");
            before.note(&mut frame, false);
            frame.bytes_mut().copy_within(0..12, 4);
            assert!(frame.strip_front(4) && before.same_packet(&frame), "{len} bytes, no tag any more");
            frame.bytes_mut()[TYPE_AT + 2] ^= 1;
            assert!(!before.same_packet(&frame), "{len} bytes, no tag, and a change");
            pool.put(frame);
        }
    }

    #[test]
    fn modules_in_a_row_reach_as_far_as_any_of_them() {
        let front = |below, strips| Changes::Front(Front { below, strips });
        let all = |list: &[Changes]| together(list.iter().copied());
        assert_eq!(all(&[]), Changes::Nothing);
        assert_eq!(all(&[Changes::Nothing, front(16, 4), Changes::Nothing]), front(16, 4));
        assert_eq!(all(&[front(16, 4), front(14, 4)]), front(18, 8));
        assert_eq!(all(&[front(16, 4), front(17, 0)]), Changes::Anything, "beyond what is noted");
        assert_eq!(all(&[front(2, 9)]), Changes::Anything);
        assert_eq!(all(&[front(2, 0), Changes::Anything]), Changes::Anything);
    }

    /// Whatever modules do in front of a frame, the known extent leads to the same frame as a comparison of all of it.
    #[test]
    fn a_known_front_is_mended_as_any_change() {
        let mut pool = FramePool::new(1);
        let mut random = 1u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for round in 0..20_000 {
            let (mut one, mut other) = (segment(&mut pool, round % 3), segment(&mut pool, round % 3));
            let (mut headers, mut noted) = (Headers::NONE, Noted::default());
            headers.note(&mut one, false);
            noted.note(&other);
            let strips = [0, 4, 8][next(3) as usize];
            let (grows, writes) = ([0, 4, 12][next(3) as usize], next(4));
            let below = 12 + next(9);
            let front = Front { below: below.max(strips), strips };
            let spots: Vec<(u32, u8)> = (0..writes).map(|_| (next(below), next(256) as u8)).collect();
            for frame in [&mut one, &mut other] {
                spots.iter().for_each(|(at, value)| frame.bytes_mut()[*at as usize] = *value);
                assert!(frame.strip_front(strips as usize));
                frame.grow_front(grows);
                frame.bytes_mut()[..grows].fill(7);
            }
            mend(&headers, &mut one, false);
            noted.mend(front, &mut other);
            assert_eq!((one.bytes(), one.checksum), (other.bytes(), other.checksum), "{spots:?} {front:?} +{grows}");
            pool.put(one);
            pool.put(other);
        }
    }

    /// A segment with right checksums, with a tag or without, of which one is verified, complete or partial.
    fn segment(pool: &mut FramePool, kind: u32) -> Box<Frame> {
        use wire::{ethernet, ipv4, tcp};
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut bytes = vec![0; 54];
        let macs = (wire::Mac([2; 6]), wire::Mac([4; 6]));
        ethernet::Header { src: macs.0, dst: macs.1, ethertype: wire::EtherType::Ipv4 }.emit(&mut bytes);
        ipv4::Header::new(ipv4::TCP, (src, dst), 20).emit(&mut bytes[14..]);
        let options = tcp::Options::default();
        let (seq, ack, flags) = (wire::Seq(1), wire::Seq(2), tcp::Flags::ACK);
        tcp::Header { src_port: 1, dst_port: 2, seq, ack, flags, window: 5, options }.emit(&mut bytes[34..]);
        let mut sum = wire::checksum::Sum::pseudo_header(src, dst, ipv4::TCP, 20);
        sum.add(&bytes[34..]);
        let right = sum.finish();
        bytes[50..52].copy_from_slice(&right.to_be_bytes());
        let mut frame = pool.small();
        frame.bytes_vec().extend_from_slice(&bytes);
        frame.checksum = [Checksum::Verified, Checksum::Complete, Checksum::Verified][kind as usize];
        if kind == 2 {
            frame.grow_front(4);
            frame.bytes_mut().copy_within(4..16, 0);
            frame.bytes_mut()[12..16].copy_from_slice(&[0x81, 0, 0, 42]);
        }
        frame
    }
}
