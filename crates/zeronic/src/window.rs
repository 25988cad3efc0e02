//! The window that is advertised to the peer: the transport's, cut to what is posted (docs/ZERONIC.md, "The window").
use crate::frames::Segment;
use wire::tcp::{Flags, Timestamps};
use wire::{Nanos, Seq};

/// The largest scale that is offered to the peer: units of 64 bytes, windows up to 4 MiB.
pub(crate) const MOST_SCALE: u8 = 6;
/// Where less than this may still be sent, each post is worth an ACK of its own; otherwise two of them are.
pub(crate) const SEGMENT: u32 = 1460;
/// At most one answer to data without a place in this time.
const ANSWER_NS: Nanos = 10_000_000;
/// A window is closed for so long, with a little memory posted, before one unit is named.
const SQUEEZED_NS: Nanos = 5_000_000;

/// What is known of a connection's window. It is learned from the headers that pass.
#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    /// The scale of the transport's windows, where it offered one, and what was offered to the peer instead.
    ours: Option<u8>,
    wire: u8,
    /// The scale that the peer offered.
    peers: Option<u8>,
    /// How far the transport would let the peer send, and how far was advertised to the peer.
    offered: Option<Seq>,
    advertised: Option<Seq>,
    /// The last acknowledgement.
    last: Option<Last>,
    answered: Nanos,
    /// Since when less than one unit is posted, and the window closed.
    squeezed: Option<Nanos>,
    /// Payload bytes of the longest segment that the peer may send.
    longest: Option<u16>,
}

/// Lengths of the messages that came: their mean and mean deviation, smoothed as round-trip times are (RFC 6298 section
/// 2), in eighths and quarters of a byte.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lengths {
    mean: i64,
    deviation: i64,
}

impl Lengths {
    /// A message has come.
    pub(crate) fn came(&mut self, len: u32) {
        let len = i64::from(len);
        if self.mean == 0 {
            (self.mean, self.deviation) = (len * 8, len * 2);
            return;
        }
        let error = len - self.mean / 8;
        self.mean += error;
        self.deviation += error.abs() - self.deviation / 4;
    }

    /// Bytes that so many messages are likely to have at least. None are expected before the first one has come.
    pub(crate) fn of(&self, messages: usize) -> u64 {
        let each = (self.mean / 8 - self.deviation / 8).max(i64::from(self.mean > 0));
        each.unsigned_abs().saturating_mul(messages as u64)
    }
}

/// What an ACK repeats of the last outgoing segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Last {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) timestamps: Option<Timestamps>,
}

/// Memory that is posted for a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Posted {
    /// Bytes from the cursor on.
    pub(crate) bytes: u32,
    /// Their end.
    pub(crate) end: Seq,
}

impl Window {
    /// A SYN of the peer's.
    pub(crate) fn peer_offers(&mut self, segment: &Segment) {
        self.peers = segment.options.window_scale.map(|scale| scale.min(14));
    }

    /// A SYN of the transport's passes: the scale that it shall bear, where it has one.
    pub(crate) fn offer(&mut self, segment: &Segment) -> Option<u8> {
        self.ours = segment.options.window_scale.map(|scale| scale.min(14));
        self.wire = self.ours.unwrap_or(0).min(MOST_SCALE);
        self.longest = segment.options.mss;
        self.ours.map(|_| self.wire)
    }

    /// Payload bytes of the longest segment that the peer may send. It waits where its window is smaller.
    pub(crate) fn longest(&self) -> u32 {
        self.longest.map_or(SEGMENT, |longest| SEGMENT.max(longest.into()))
    }

    /// Scales of the transport's windows and of those on the wire. RFC 7323 section 2.2: both sides scale, or neither.
    fn scales(&self) -> (u8, u8) {
        if let (Some(ours), Some(_)) = (self.ours, self.peers) { (ours, self.wire) } else { (0, 0) }
    }

    /// An outgoing segment passes: the window that it shall bear.
    pub(crate) fn pass(&mut self, now: Nanos, segment: &Segment, posted: Posted) -> u16 {
        if segment.has(Flags::RST) {
            return segment.window;
        }
        if !segment.has(Flags::ACK) {
            return segment.window.min(posted.bytes.min(u32::from(u16::MAX)) as u16);
        }
        // The window of a SYN is never scaled.
        let is_syn = segment.has(Flags::SYN);
        let (ours, wire) = if is_syn { (0, 0) } else { self.scales() };
        let offered = self.not_rounded(segment.ack + (u32::from(segment.window) << ours), ours);
        self.offered = Some(self.offered.map_or(offered, |before| before.max(offered)));
        // What it carries may not leave: that is [`Window::left`]'s.
        let (seq, ack) = self.last.map_or((segment.seq, segment.ack), |last| (last.seq, last.ack.max(segment.ack)));
        self.last = Some(Last { seq, ack, timestamps: segment.options.timestamps });
        let open = open(segment.ack, offered, posted.end);
        self.squeezed = (open > 0 && open >> wire == 0).then(|| self.squeezed.unwrap_or(now));
        self.report(segment.ack, open, offered, wire)
    }

    /// The transport's right edge, whose field has whole units: less than one below what it offered before is that.
    fn not_rounded(&self, edge: Seq, ours: u8) -> Seq {
        let before = self.offered.filter(|before| edge.before(*before) && *before - edge < 1 << ours);
        before.unwrap_or(edge)
    }

    /// What takes sequence numbers left, up to `end`: payload that was posted and can be read, SYN, FIN. An ACK's
    /// number is not ahead of it (RFC 9293 section 3.10.7.4: it would lie outside the peer's window).
    pub(crate) fn left(&mut self, end: Seq) {
        if let Some(last) = &mut self.last {
            last.seq = last.seq.max(end);
        }
    }

    /// The field for `open` bytes from `ack` on, and not for less than was advertised to the peer before, as long as
    /// the transport offers it: what the peer may send by then is taken (RFC 9293 section 3.8.6: a receiver does not
    /// shrink its window).
    fn report(&mut self, ack: Seq, open: u32, offered: Seq, wire: u8) -> u16 {
        let kept =
            self.advertised.map_or(ack, |advertised| if offered.before(advertised) { offered } else { advertised });
        let before = if ack.before(kept) { kept - ack } else { 0 };
        let units = (open.max(before) >> wire).min(u32::from(u16::MAX));
        let edge = ack + (units << wire);
        self.advertised = Some(self.advertised.map_or(edge, |advertised| advertised.max(edge)));
        units as u16
    }

    /// Memory was posted: the fields of an ACK of the NIC's own, where it is worth one.
    pub(crate) fn update(&mut self, now: Nanos, posted_end: Seq) -> Option<(Last, u16)> {
        let (last, offered, advertised) = (self.last?, self.offered?, self.advertised?);
        let ((_, wire), open) = (self.scales(), open(last.ack, offered, posted_end));
        let before = if advertised.before(last.ack) { 0 } else { advertised - last.ack };
        let more = ((open >> wire) << wire).saturating_sub(before);
        if before == 0 && more == 0 && open > 0 {
            self.squeezed.get_or_insert(now);
        }
        if more == 0 || before >= SEGMENT && more < 2 * SEGMENT {
            return None;
        }
        self.squeezed = None;
        Some((last, self.report(last.ack, open, offered, wire)))
    }

    /// Rounding down leaves a small receive without its last bytes. So after a while, one unit is named.
    pub(crate) fn squeeze(&mut self, now: Nanos) -> Option<(Last, u16)> {
        let last = self.last?;
        self.squeezed.take_if(|since| now >= since.saturating_add(SQUEEZED_NS))?;
        let wire = self.scales().1;
        Some((last, self.report(last.ack, 1 << wire, self.offered?, wire)))
    }

    /// [`Window::squeeze`] has something to do, now or later.
    pub(crate) fn is_squeezed(&self) -> bool {
        self.squeezed.is_some()
    }

    /// Data came that has no place, though the peer may send it: an acknowledgement that repeats the window is a
    /// duplicate (RFC 5681 section 2), and a loss to the sender. A peer whose window is closed gets what is open.
    /// Not too often.
    pub(crate) fn answer(&mut self, now: Nanos, posted_end: Seq) -> Option<(Last, u16)> {
        let (last, offered) = (self.last?, self.offered?);
        if self.answered != 0 && now < self.answered.saturating_add(ANSWER_NS) {
            return None;
        }
        self.answered = now.max(1);
        let may_send = self.advertised.is_some_and(|edge| last.ack.before(edge));
        let open = if may_send { 0 } else { open(last.ack, offered, posted_end) };
        Some((last, self.report(last.ack, open, offered, self.scales().1)))
    }
}

/// Bytes behind `ack` that are both offered and posted.
fn open(ack: Seq, offered: Seq, posted_end: Seq) -> u32 {
    let end = if posted_end.before(offered) { posted_end } else { offered };
    if end.before(ack) { 0 } else { end - ack }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_length_are_expected_whole_and_others_less() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.of(16), 0);
        (0..64).for_each(|_| lengths.came(300));
        assert!((16 * 290..=16 * 300).contains(&lengths.of(16)), "{}", lengths.of(16));
        // Uniform between 1 and 300: sixteen of them have 2400 on average, with a standard deviation of 350.
        (0..64).for_each(|at| lengths.came(1 + at * 113 % 300));
        assert!((1200..2400).contains(&lengths.of(16)), "{}", lengths.of(16));
        (0..64).for_each(|_| lengths.came(1));
        assert_eq!(lengths.of(16), 16, "each has a byte");
    }

    #[test]
    fn a_rounded_edge_stays_and_a_shrinking_one_moves() {
        let window = Window { offered: Some(Seq(1000)), ..Window::default() };
        assert_eq!(window.not_rounded(Seq(1000 - 127), 7), Seq(1000));
        assert_eq!(window.not_rounded(Seq(1000 - 128), 7), Seq(1000 - 128));
        assert_eq!(window.not_rounded(Seq(1001), 7), Seq(1001));
        assert_eq!(Window::default().not_rounded(Seq(5), 7), Seq(5));
    }
}
