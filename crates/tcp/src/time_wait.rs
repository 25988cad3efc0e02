//! TIME-WAIT (RFC 9293 section 3.4.2, safe reuse RFC 6191), and FIN-WAIT-2 of connections without a reader. A compact
//! entry each, outside the engine.
use crate::{ChallengeLimit, Ends, FourTuple, Nanos, Segment, TimestampState};
use serde::{Deserialize, Serialize};
use wire::Seq;
use wire::tcp::{Flags, Header, Options};

/// A closed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeWait {
    /// Its ends.
    pub tuple: FourTuple,
    /// Next sequence number that this host would send.
    pub snd_nxt: Seq,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// State of the timestamps option, where it was agreed on.
    pub timestamps: Option<TimestampState>,
    /// Its streams' ends: with the peer's FIN it is in TIME-WAIT, otherwise in FIN-WAIT-2.
    pub ends: Ends,
    /// Time of its begin.
    pub since: Nanos,
    /// Its limit on challenge acknowledgements.
    #[serde(skip)]
    pub challenges: ChallengeLimit,
}

/// The answer to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeWaitDisposition {
    /// Nothing.
    Ignore,
    /// Answer with [`TimeWait::ack`], within the budget of challenge acknowledgements.
    Acknowledge,
    /// The peer's FIN came (again): answer, and wait the full time from now.
    Finished,
    /// A new connection may take its place: treat the segment as for LISTEN. Its initial sequence number must be at
    /// or after this one.
    Reuse(Seq),
    /// Data without a reader: answer with a reset, and forget the connection.
    Reset,
    /// The peer reset it: forget the connection.
    Gone,
}

/// How far above the last sequence number a reusing connection starts: more than any window without scaling.
const REUSE_DISTANCE: u32 = 65_535 + 2;

impl TimeWait {
    /// A segment came for it.
    pub fn on_segment(&mut self, segment: &Segment) -> TimeWaitDisposition {
        if segment.rst() {
            return self.on_reset(segment);
        }
        if segment.syn() && !segment.ack() && self.ends.peer_ended() && self.may_be_reused_by(segment) {
            return TimeWaitDisposition::Reuse(self.snd_nxt + REUSE_DISTANCE);
        }
        let end = segment.header.seq + segment.payload;
        // Old timestamps and old segments get the present state for an answer (RFC 9293 section 3.10.7.4).
        if segment.syn() || !segment.ack() || self.is_old(segment) {
            return TimeWaitDisposition::Acknowledge;
        }
        if segment.payload > 0 && self.rcv_nxt.before(end) {
            return TimeWaitDisposition::Reset;
        }
        if segment.fin() && (self.ends.peer_ended() || end == self.rcv_nxt) {
            return self.on_fin(segment);
        }
        // An acknowledgement needs no answer, a keepalive or a duplicate does.
        let silent = segment.len() == 0 && segment.header.seq == self.rcv_nxt;
        if silent { TimeWaitDisposition::Ignore } else { TimeWaitDisposition::Acknowledge }
    }

    fn on_fin(&mut self, segment: &Segment) -> TimeWaitDisposition {
        if !self.ends.peer_ended() {
            self.ends.end_peer();
            self.rcv_nxt += 1;
        }
        if let (Some(state), Some(stamp)) = (&mut self.timestamps, segment.header.options.timestamps) {
            state.recent = stamp.value;
        }
        TimeWaitDisposition::Finished
    }

    /// In TIME-WAIT, resets are ignored (RFC 1337): they would expose a new connection to old segments.
    fn on_reset(&self, segment: &Segment) -> TimeWaitDisposition {
        match segment.header.seq - self.rcv_nxt {
            0 if !self.ends.peer_ended() => TimeWaitDisposition::Gone,
            // What the peer sent before the reset may be lost: it is asked for the exact number (RFC 5961 section 3.2).
            1..=65_535 if !self.ends.peer_ended() => TimeWaitDisposition::Acknowledge,
            _ => TimeWaitDisposition::Ignore,
        }
    }

    fn is_old(&self, segment: &Segment) -> bool {
        match (self.timestamps, segment.header.options.timestamps) {
            (Some(state), Some(stamp)) => (stamp.value.wrapping_sub(state.recent) as i32) < 0,
            _ => false,
        }
    }

    /// RFC 6191 section 2: a SYN that is newer by its timestamp, or, where that does not decide, by its sequence
    /// number.
    // Meets RFC 9293: SHLD-4.
    fn may_be_reused_by(&self, syn: &Segment) -> bool {
        let later = self.rcv_nxt.before(syn.header.seq);
        match (self.timestamps, syn.header.options.timestamps) {
            (Some(state), Some(stamp)) => match stamp.value.wrapping_sub(state.recent) as i32 {
                0 => later,
                newer => newer > 0,
            },
            _ => later,
        }
    }

    /// This host may itself connect from the same port again: the new connection's timestamps are newer than any old
    /// segment's (RFC 7323 appendix B.2). One second is several ticks of every timestamp clock.
    pub fn may_be_reused_locally(&self, now: Nanos) -> bool {
        self.reusable_locally_from().is_some_and(|from| now >= from)
    }

    /// From when on [`TimeWait::may_be_reused_locally`] holds, if ever.
    pub fn reusable_locally_from(&self) -> Option<Nanos> {
        (self.ends.peer_ended() && self.timestamps.is_some()).then_some(self.since + 1_000_000_000)
    }

    /// The acknowledgement of all that came.
    pub fn ack(&self, now: Nanos) -> Header {
        Header {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            // What is advertised is never taken back (RFC 9293 section 3.8.6). A peer that still sends in FIN-WAIT-2 is
            // to be reset, not to be kept probing a closed window.
            window: u16::MAX,
            options: Options { timestamps: self.timestamps.map(|state| state.stamp(now)), ..Options::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::testing::{TUPLE, segment};
    use super::TimeWaitDisposition::*;
    use super::*;
    use crate::State;
    use wire::tcp::Timestamps;

    fn wait(ended: bool, recent: Option<u32>) -> TimeWait {
        let timestamps = recent.map(|recent| TimestampState { recent, offset: 0 });
        let challenges = ChallengeLimit::default();
        let ends = Ends::of(if ended { State::TimeWait } else { State::FinWait2 });
        TimeWait { tuple: TUPLE, snd_nxt: Seq(500), rcv_nxt: Seq(900), timestamps, ends, since: 0, challenges }
    }

    #[test]
    fn time_wait_answers_old_segments_and_ignores_resets() {
        let (ack, fin, rst, syn) = (Flags::ACK, Flags::FIN | Flags::ACK, Flags::RST, Flags::SYN);
        for (flags, seq, payload, expected) in [
            (fin, 899, 0, Finished),
            (ack, 900, 0, Ignore),
            (ack, 880, 10, Acknowledge),
            (ack, 899, 0, Acknowledge),
            (ack, 900, 10, Reset),
            (rst, 900, 0, Ignore),
            (syn, 901, 0, Reuse(Seq(500 + REUSE_DISTANCE))),
            (syn, 899, 0, Acknowledge),
            (syn | ack, 901, 0, Acknowledge),
        ] {
            assert_eq!(wait(true, None).on_segment(&segment(flags, seq, 500, payload)), expected, "{flags:?} {seq}");
        }
    }

    #[test]
    fn fin_wait_2_waits_for_the_fin() {
        let mut entry = wait(false, None);
        assert_eq!(entry.on_segment(&segment(Flags::SYN, 901, 0, 0)), Acknowledge, "no reuse before TIME-WAIT");
        assert_eq!(entry.on_segment(&segment(Flags::FIN | Flags::ACK, 900, 500, 0)), Finished);
        assert_eq!((entry.rcv_nxt, entry.ends.state()), (Seq(901), State::TimeWait));
        assert_eq!(wait(false, None).on_segment(&segment(Flags::RST, 900, 0, 0)), Gone);
        assert_eq!(wait(false, None).on_segment(&segment(Flags::ACK, 900, 500, 5)), Reset);
    }

    // Checks RFC 9293: SHLD-4.
    #[test]
    fn timestamps_decide_about_reuse() {
        let mut syn = segment(Flags::SYN, 5, 0, 0);
        for (value, expected) in [(41, Reuse(Seq(500 + REUSE_DISTANCE))), (40, Acknowledge), (39, Acknowledge)] {
            syn.header.options.timestamps = Some(Timestamps { value, echo: 0 });
            assert_eq!(wait(true, Some(40)).on_segment(&syn), expected, "{value}");
        }
        assert!(wait(true, Some(40)).may_be_reused_locally(1_000_000_000));
        assert!(!wait(true, Some(40)).may_be_reused_locally(999_999_999));
        assert!(!wait(true, None).may_be_reused_locally(1 << 40));
    }
}
