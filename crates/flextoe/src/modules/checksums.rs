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
    #[inline]
    pub fn note(&mut self, frame: &mut Frame, whole: bool) {
        if whole && frame.checksum == Checksum::Complete {
            let bytes = frame.bytes();
            if Layers::of(bytes).is_some_and(|layers| layers.tcp_is_sound(bytes)) {
                frame.checksum = Checksum::Verified;
            }
        }
        self.total = frame.len();
        let bytes = frame.bytes();
        match bytes.first_chunk::<MAX_HEADERS>() {
            Some(head) => (self.bytes, self.len) = (*head, MAX_HEADERS),
            None => {
                self.bytes[..bytes.len()].copy_from_slice(bytes);
                self.len = bytes.len();
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Nothing but what stands before the Ethernet type changed: nothing at all, or a VLAN tag came or went. Where the
    /// length changed, it is taken to have done so there; if it was elsewhere, the bytes differ.
    #[inline]
    fn same_packet(&self, frame: &Frame) -> bool {
        let (old, new) = (self.bytes().get(TYPE_AT..), frame.bytes().get(TYPE_AT..));
        let (Some(mut old), Some(mut new)) = (old, new) else { return false };
        match (self.total.checked_sub(frame.len()), frame.len().checked_sub(self.total)) {
            (Some(shorter), _) => old = old.get(shorter..).unwrap_or_default(),
            (_, longer) => new = longer.and_then(|longer| new.get(longer..)).unwrap_or_default(),
        }
        let common = old.len().min(new.len());
        common >= LEAST && old[..common] == new[..common]
    }
}

/// Where the Ethernet type stands, or the first VLAN tag.
const TYPE_AT: usize = 12;
/// Bytes from the Ethernet type to the end of the shortest headers of TCP.
const LEAST: usize = 2 + 20 + 20;

/// Makes the checksums of IPv4 and TCP good again after modules changed the frame (or not). One that was wrong before
/// stays wrong. Where modules may have changed the payload, a right TCP checksum is left partial.
#[inline]
pub(super) fn mend(before: &Headers, frame: &mut Frame, whole: bool) {
    let payload_may_differ = whole && frame.checksum == Checksum::Verified;
    if payload_may_differ || !before.same_packet(frame) {
        mend_changed(before.bytes(), frame, whole);
    }
}

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
