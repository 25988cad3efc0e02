//! Segments that the module of a splice passes up: FIN, RST, SYN, and what it cannot translate. This is also where a
//! splice ends.
use super::joining::REFUSED;
use super::table::{Over, Seen, Side, Splice, Splices};
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer};
use engine::{DropReason, FlowId, Nanos};
use port::{Checksum, Frame};
use tcp::{Ends, Segment, State, TimeWait, TimestampState};
use wire::Seq;
use wire::tcp::{Flags, Header, Options, Timestamps};

/// How long a splice that was reset is kept: the other side resets again a peer that missed it.
const RESET_LINGER: Nanos = 2000 * MILLISECOND;
/// Longest time between two polls of a splice: the next hops' addresses are kept known.
const POLL_INTERVAL: Nanos = 30_000 * MILLISECOND;
/// How far above the last sequence number a connection starts that uses the four-tuple again.
const REUSE_DISTANCE: u32 = 65_535 + 2;

/// The fate of a segment of a splice.
pub(crate) struct Passed {
    /// The frame, where it goes no further.
    pub frame: Option<Box<Frame>>,
    pub then: Then,
}

/// The next step after a segment of a splice, or after its clock.
pub(crate) enum Then {
    GoesOn,
    /// It was reset: its applications get that at once, the pair itself is kept for a while.
    Reset(Vec<FlowId>),
    /// It is over.
    Over(Over),
    /// It is over, and the segment is the SYN of a new connection, whose sequence numbers begin above this one.
    Reopened(Over, Seq),
}

impl Splices {
    /// A segment of a splice that the data-path does not pass on.
    pub(crate) fn on_segment(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        side: usize,
        segment: &Segment,
        frame: Box<Frame>,
    ) -> Passed {
        let seen = [0, 1].map(|side| self.seen(key, side));
        let Some(splice) = self.all.get_mut(key) else { return Passed { frame: None, then: Then::GoesOn } };
        if segment.syn() {
            return Passed { frame: Some(frame), then: self.on_syn(out, key, side, segment) };
        }
        let ending = segment.fin() || segment.rst();
        let window = seen[1 - side].window.max(u16::MAX as u32);
        if ending && splice.distance(side, segment.header.seq, seen[1 - side].ack) > window {
            // An unknown peer's guess: the peer behind would not accept it either, and nothing ends.
            out.drops.count(REFUSED);
            self.hand_over(key, side);
            return Passed { frame: Some(frame), then: Then::GoesOn };
        }
        splice.last_rx = out.now;
        splice.note(side, segment);
        let revived = !segment.rst() && splice.reset == Some(side);
        if revived {
            // The peer goes on: the RST was an unknown peer's.
            splice.reset = None;
        }
        let frame = self.pass(out, key, side, segment, frame);
        Passed { frame, then: self.after(out, key, side, segment, revived) }
    }

    /// What a segment that was passed on means for the splice.
    fn after(&mut self, out: &mut Outbox<'_>, key: u32, side: usize, segment: &Segment, revived: bool) -> Then {
        let Some(splice) = self.all.get_mut(key) else { return Then::GoesOn };
        let (reset, closed) = (splice.reset.is_some(), splice.both_closed());
        let over = splice.sides.iter().all(|side| side.fin_acked);
        if segment.rst() {
            let to_wake = splice.sides.iter_mut().filter_map(|side| side.flow.take()).collect();
            self.take_back(key);
            self.totals.resets += 1;
            self.time(out, key);
            return Then::Reset(to_wake);
        } else if over && !reset {
            return self.close(out, key);
        } else if closed {
            self.take_back(key);
            self.time(out, key);
        } else if segment.fin() || revived {
            self.hand_over(key, side);
            self.hand_over(key, 1 - side);
        }
        Then::GoesOn
    }

    /// Translates a segment and sends it on.
    fn pass(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        side: usize,
        segment: &Segment,
        mut frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
        let splice = self.all.get_mut(key)?;
        let translation = splice.sides[side].translation;
        let Ok(end) = translation.apply(frame.bytes_mut()) else {
            out.drops.count(REFUSED);
            return Some(frame);
        };
        frame.checksum = Checksum::Partial { start: end.start, field: end.field };
        let seen = &mut splice.sides[side].seen;
        seen.segments += 1;
        seen.bytes += segment.payload as u64;
        if let (Some(stamps), Some((value, _))) = (segment.header.options.timestamps, translation.timestamps) {
            splice.sides[side].stamps.0 = stamps.value;
            splice.sides[1 - side].stamps.1 = stamps.value.wrapping_add(value);
        }
        self.totals.passed += 1;
        out.net.forward(frame);
        None
    }

    /// SYN on a splice: that of a new connection where this one is over; else the peer is asked (RFC 5961 section 4).
    fn on_syn(&mut self, out: &mut Outbox<'_>, key: u32, side: usize, segment: &Segment) -> Then {
        let seen = self.seen(key, side);
        let Some(splice) = self.all.get(key) else { return Then::GoesOn };
        if !segment.ack() && (splice.reset.is_some() || splice.both_closed()) {
            let errno = if splice.reset.is_some() { libc::ECONNRESET } else { 0 };
            return match self.end(out, key) {
                Some(Splice { sides, .. }) => {
                    Then::Reopened(Over { sides, errno, wait: None }, seen.ack + REUSE_DISTANCE)
                }
                None => Then::GoesOn,
            };
        }
        let header = splice.sides[side].acknowledgement(out.now, &seen);
        out.drops.count(DropReason::SynChallenged);
        self.hand_over(key, side);
        let most = out.config.limits.challenges_per_interval();
        let side = self.all.get_mut(key).map(|splice| &mut splice.sides[side]);
        if side.is_some_and(|side| side.challenges.allow_of(out.now, most)) {
            out.send_tcp(&segment.tuple, header);
        } else {
            out.drops.count(DropReason::ChallengeLimit);
        }
        Then::GoesOn
    }

    /// Both sides have closed, and both FINs are acknowledged. The side that this host closed first, to its peer, keeps
    /// TIME-WAIT (RFC 9293 section 3.6): the one whose own FIN came second.
    fn close(&mut self, out: &mut Outbox<'_>, key: u32) -> Then {
        let Some(splice) = self.end(out, key) else { return Then::GoesOn };
        let second = 1 - splice.first_fin.unwrap_or(0);
        let (side, other) = (&splice.sides[second], &splice.sides[1 - second]);
        let wait = side.fin.zip(other.fin).map(|(fin, own_fin)| TimeWait {
            tuple: side.tuple,
            snd_nxt: other.translation.seq(own_fin),
            rcv_nxt: fin,
            timestamps: side
                .clock_offset
                .map(|offset| TimestampState { recent: side.stamps.0, offset: side.offset(out.now, offset) }),
            ends: Ends::of(State::TimeWait),
            since: out.now,
            challenges: side.challenges,
        });
        Then::Over(Over { sides: splice.sides, errno: 0, wait })
    }

    /// How long a splice may be silent.
    fn timeout(out: &Outbox<'_>, splice: &Splice) -> Nanos {
        let timers = &out.config.timers;
        if splice.reset.is_some() {
            RESET_LINGER
        } else if splice.both_closed() {
            timers.fin_timeout_ms as Nanos * MILLISECOND
        } else {
            timers.splice_idle_s as Nanos * 1000 * MILLISECOND
        }
    }

    /// Sets the clock of a splice.
    pub(super) fn time(&mut self, out: &mut Outbox<'_>, key: u32) {
        let Some(splice) = self.all.get(key) else { return };
        let timeout = Splices::timeout(out, splice);
        let due = (splice.last_rx + timeout).max(out.now + MILLISECOND);
        out.timers.set(Timer::Splice(key), due.min(out.now + (timeout / 4).clamp(MILLISECOND, POLL_INTERVAL)));
    }

    /// Checks whether a splice lives.
    pub(crate) fn due(&mut self, out: &mut Outbox<'_>, key: u32) -> Then {
        let segments = [0, 1].map(|side| self.seen(key, side).segments).iter().sum();
        let Some(splice) = self.all.get_mut(key) else { return Then::GoesOn };
        if splice.segments != segments {
            (splice.segments, splice.last_rx) = (segments, out.now);
        }
        let (last_rx, reset, closed) = (splice.last_rx, splice.reset.is_some(), splice.both_closed());
        let hops = [0, 1].map(|side| splice.sides[side].next_hop);
        let timeout = Splices::timeout(out, splice);
        if out.now.saturating_sub(last_rx) < timeout {
            for hop in hops {
                out.net.resolve(out.now, hop);
            }
            self.time(out, key);
            return Then::GoesOn;
        }
        match (reset, closed) {
            (true, _) => match self.end(out, key) {
                Some(Splice { sides, .. }) => Then::Over(Over { sides, errno: libc::ECONNRESET, wait: None }),
                None => Then::GoesOn,
            },
            (_, true) => self.close(out, key),
            _ => self.time_out(out, key),
        }
    }

    /// No segment came for long: both peers are reset.
    fn time_out(&mut self, out: &mut Outbox<'_>, key: u32) -> Then {
        let seen = [0, 1].map(|side| self.seen(key, side));
        let Some(Splice { sides, .. }) = self.end(out, key) else { return Then::GoesOn };
        self.totals.resets += 1;
        for (side, seen) in sides.iter().zip(seen) {
            let stamp = side.acknowledgement(out.now, &seen).options.timestamps;
            out.reset(&side.tuple, seen.ack, Some(seen.next), stamp);
        }
        Then::Over(Over { sides, errno: libc::ETIMEDOUT, wait: None })
    }
}

impl Splice {
    /// A segment's part in the end of the splice.
    fn note(&mut self, side: usize, segment: &Segment) {
        let end = segment.header.seq + segment.len();
        let Splice { sides, first_fin, .. } = self;
        if segment.fin() {
            first_fin.get_or_insert(side);
            sides[side].fin = Some(end);
        } else if sides[side].fin.is_some_and(|fin| fin.before(end)) {
            // The FIN was an unknown peer's: the peer goes on after it.
            (sides[side].fin, sides[side].fin_acked) = (None, false);
            *first_fin = first_fin.filter(|first| *first != side);
        }
        let seen = &mut sides[side].seen;
        seen.next = seen.next.max(end);
        if segment.ack() {
            let ack = segment.header.ack;
            seen.ack = seen.ack.max(ack);
            seen.window = (segment.header.window as u32) << sides[side].translation.window_in.min(14);
            let (acks, other) = (sides[side].translation.ack(ack), &mut sides[1 - side]);
            other.fin_acked |= other.fin.is_some_and(|fin| fin.at_or_before(acks));
        }
        if segment.rst() {
            self.reset = Some(side);
        }
    }
}

impl Side {
    /// What is added to this host's clock so that it does not go back behind the last timestamp to the peer.
    fn offset(&self, now: Nanos, offset: u32) -> u32 {
        let clock = (now / MILLISECOND) as u32;
        let ahead = Seq(clock.wrapping_add(offset)).before(Seq(self.stamps.1));
        if ahead { self.stamps.1.wrapping_sub(clock) } else { offset }
    }

    /// The present acknowledgement to the peer, as far as it is known here.
    fn acknowledgement(&self, now: Nanos, seen: &Seen) -> Header {
        let timestamps = self.clock_offset.map(|offset| Timestamps {
            value: ((now / MILLISECOND) as u32).wrapping_add(self.offset(now, offset)),
            echo: self.stamps.0,
        });
        Header {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: seen.ack,
            ack: seen.next,
            flags: Flags::ACK,
            window: u16::MAX,
            options: Options { timestamps, ..Options::default() },
        }
    }
}
