//! The header of virtio-net in front of each frame of a TAP device (VIRTIO 1.2 section 5.1.6, `struct virtio_net_hdr`).
use crate::cut::Layout;
use crate::{Checksum, Frame};
use wire::EtherType;
use wire::tcp::Flags;

/// Bytes of the header in its shortest form.
pub(super) const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

/// The header for a frame to send; none for a super-segment that is not one.
pub(super) fn header_of(frame: &Frame) -> Option<[u8; LEN]> {
    let mut header = [0; LEN];
    if let Checksum::Partial { start, field } = frame.checksum {
        header[0] = NEEDS_CSUM;
        put16(&mut header, 6, start);
        put16(&mut header, 8, field.checked_sub(start)?);
    } else if frame.checksum == Checksum::Verified {
        header[0] = DATA_VALID;
    }
    if frame.segment_size > 0 {
        let layout = Layout::of(frame)?;
        if layout.payload_len > usize::from(frame.segment_size) {
            if header[0] != NEEDS_CSUM {
                return None;
            }
            // Segments after the first must not repeat CWR (RFC 3168 section 6.1.2); the kernel sees to it where the
            // header's flag asks for it.
            let version = if layout.ethertype == EtherType::Ipv6 { GSO_TCPV6 } else { GSO_TCPV4 };
            header[1] = version | if layout.tcp.flags.has(Flags::CWR) { GSO_ECN } else { 0 };
            put16(&mut header, 2, layout.payload_at as u16);
            put16(&mut header, 4, frame.segment_size);
        }
    }
    Some(header)
}

/// Sets a received frame's fields by its header.
pub(super) fn apply(header: &[u8; LEN], frame: &mut Frame) {
    let [start, offset] = [6, 8].map(|at| u16::from_ne_bytes([header[at], header[at + 1]]));
    let field = start.saturating_add(offset);
    frame.checksum = if header[0] & NEEDS_CSUM != 0 && usize::from(field) + 2 <= frame.len() {
        Checksum::Partial { start, field }
    } else if header[0] & DATA_VALID != 0 {
        Checksum::Verified
    } else {
        Checksum::Complete
    };
    if matches!(header[1] & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6) {
        frame.segment_size = u16::from_ne_bytes([header[4], header[5]]);
    }
}

/// Fields are in the machine's byte order.
fn put16(header: &mut [u8; LEN], at: usize, value: u16) {
    header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
}
