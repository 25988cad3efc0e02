//! Packets of a queue pair: headers, then payload, then the place of the checksum.
use crate::config::TransmitPath;
use crate::shared::Round;
use engine::{Checksum, Frame};
use memory::Fault;
use shm::Span;
use wire::roce::{Bth, Headers, MOST_HEADERS, Path, Psn, pad};

/// Bytes that [`pad`] may add: padding and the ICRC.
const TAIL: usize = 8;
/// Payload bytes of a train at most: with its headers it is one IPv4 packet.
const TRAIN: u32 = (u16::MAX as usize - MOST_HEADERS) as u32;
/// A queue pair's budget of packets goes down by one for each frame, and once more for so many bytes of payload.
const COSTLY: usize = 4096;

/// Payload from so many bytes on is referred to where it can be; shorter ones are copied, which costs less.
const REFERRED: usize = 2048;

/// A frame refers to payload of so many bytes where it can; otherwise they are copied into it.
#[inline]
pub(crate) fn refers(len: usize, round: &Round<'_, '_>) -> bool {
    len >= REFERRED && round.shared.config.transmit_path != TransmitPath::Staged
}

/// Bytes of a message at most that travels with others in one frame, where packets have `mtu` bytes.
#[inline]
pub(crate) fn most_packed(mtu: u32, round: &Round<'_, '_>) -> u32 {
    match round.shared.config.transmit_path {
        TransmitPath::HeaderOnly => mtu.min(REFERRED as u32 - 1),
        TransmitPath::Auto | TransmitPath::Staged => mtu,
    }
}

/// Packets of a message that follow each other, in one frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// The first one's number.
    pub(crate) psn: Psn,
    /// Packets.
    pub(crate) count: u32,
    /// Payload bytes of all of them.
    pub(crate) len: usize,
}

impl Run {
    /// At most `most` packets of `mtu` bytes, of `left` bytes from packet `psn` on.
    #[inline]
    pub(crate) fn of(psn: Psn, left: u32, mtu: u32, most: u32) -> Run {
        let count = left.div_ceil(mtu).min(most).min((TRAIN / mtu).max(1)).max(1);
        Run { psn, count, len: left.min(count * mtu) as usize }
    }

    /// The number behind its last packet's.
    pub(crate) fn end(&self) -> Psn {
        self.psn.plus(self.count)
    }

    /// What it costs of a queue pair's budget.
    pub(crate) fn cost(&self) -> u32 {
        1 + (self.len.saturating_sub(1) / COSTLY) as u32
    }
}

/// Marks a frame as the machine's own; `segment`: payload bytes of each packet of a train, 1 of a packed one, or 0.
#[inline]
pub(crate) fn seal(frame: &mut Frame, segment: u16) {
    (frame.checksum, frame.segment_size) = (Checksum::Icrc, segment);
}

/// Packets to send, but for their payload. Several are a train, which the port cuts where it leaves the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) path: Path,
    pub(crate) bth: Bth,
    pub(crate) headers: Headers,
    /// Payload bytes of each packet of a train, 0 for a single packet.
    pub(crate) segment: u16,
}

impl Outgoing {
    /// Sends it with `len` bytes of payload, which `fill` appends.
    ///
    /// # Errors
    /// What `fill` returns; then nothing is sent.
    #[inline]
    pub(crate) fn send(
        &self,
        len: usize,
        round: &mut Round<'_, '_>,
        fill: impl FnOnce(&Round<'_, '_>, &mut Vec<u8>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut frame = round.frame(len + MOST_HEADERS + TAIL);
        let bytes = frame.bytes_vec();
        self.path.emit(&self.bth, &self.headers, len, bytes);
        let at = bytes.len();
        if let Err(fault) = fill(round, bytes) {
            round.out.pool.put(frame);
            return Err(fault);
        }
        debug_assert_eq!(bytes.len(), at + len, "the headers have the length of the payload");
        pad(bytes);
        seal(&mut frame, self.segment);
        round.out.tx.push(frame);
        Ok(())
    }

    /// Sends its headers; the payload stays where it is, and follows by reference ("header-only TX", SmartNS section
    /// 3.2). Whoever changes those bytes before the packet is acknowledged changes what arrives.
    #[inline]
    pub(crate) fn send_front(&self, payload: Span, round: &mut Round<'_, '_>) {
        let mut frame = round.out.pool.small();
        self.path.emit(&self.bth, &self.headers, payload.len(), frame.bytes_vec());
        seal(&mut frame, self.segment);
        frame.attach(payload);
        round.out.tx.push(frame);
    }

    /// Sends it without payload.
    pub(crate) fn send_bare(&self, round: &mut Round<'_, '_>) {
        let sent = self.send(0, round, |_, _| Ok(()));
        debug_assert!(sent.is_ok(), "nothing was to be filled in");
    }
}
