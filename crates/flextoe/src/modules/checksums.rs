//! Checksums of frames that modules changed: they are the engine's (docs/MODULES.md).
use engine::Frame;
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
    pub const NONE: Headers = Headers { bytes: [0; MAX_HEADERS], len: 0, total: 0 };

    /// Notes those of a frame. Where modules may change its payload too (`whole`), its checksum is looked at now:
    /// afterwards nobody could tell whether it was right.
    #[inline(always)]
    pub fn note(&mut self, frame: &mut Frame, whole: bool) {
        if whole && frame.checksum == Checksum::Complete {
            let bytes = frame.bytes();
            if Layers::of(bytes).is_some_and(|layers| layers.tcp_is_sound(bytes)) {
                frame.checksum = Checksum::Verified;
            }
        }
        self.total = frame.len();
        self.copy(frame.bytes());
    }

    /// Most frames have headers and nothing else here. Copies of a length that is known beforehand are a few instructions;
    /// so they are copied as two pieces of such a length, which overlap.
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

/// Two pieces cover all headers but the longest, of which nobody sees many; one is no longer than the usual ones.
const PIECE: usize = 64;

/// Whether slices of one length, at least [`LEAST`], are the same: the usual ones in two pieces, as in [`Headers::copy`].
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
}
