//! The interface of a policy: what it needs, its inputs, and its decision. The table of policies is in `mod.rs`.
use crate::{Growth, Nanos};
use std::fmt::Debug;

/// Most bytes that any policy allows in flight: the largest window that TCP can express (RFC 7323 section 2.3).
pub const MAX_WINDOW: u32 = 1 << 30;

/// A kind of policy: a row of the table.
pub struct Kind {
    /// The name that `TCP_CONGESTION` takes and gives: at most 15 bytes, as Linux's.
    pub name: &'static str,
    /// The number in the ring that programs and the daemon share. It never changes; 0 is not used.
    pub code: u8,
    /// Its needs of the data-path.
    pub needs: Needs,
    /// Makes the policy of one flow. Takes the payload bytes of a full segment, and the time now.
    pub new: fn(u32, Nanos) -> Box<dyn Policy>,
}

/// The parts of the data-path that a kind of policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// It sets a congestion window.
    pub window: bool,
    /// It sets a rate.
    pub rate: bool,
    /// It lives on round-trip times of single segments, so the data-path must measure each by timestamps (thesis
    /// section 5.5.3).
    pub timestamps: bool,
    /// It counts each mark: the peer echoes marks one by one (RFC 8257 section 3.2), and several SYNs offer ECN.
    pub exact_marks: bool,
}

impl Needs {
    /// Neither sets nor reads anything.
    pub const NOTHING: Needs = Needs { window: false, rate: false, timestamps: false, exact_marks: false };
}

/// The policy of one flow, with its state.
pub trait Policy: Debug + Send {
    /// Takes in what happened since the last update and decides anew.
    fn update(&mut self, sample: &Sample) -> Decision;

    /// How acknowledgements make the window grow from now on, up to the next update. The data-path applies it to each
    /// of them (`tcp::FlightLimit`), and [`Sample::grown`] has the sum.
    fn growth(&self) -> Growth {
        Growth::NONE
    }

    /// What is acknowledged in a part of a round trip is as good a sample as a whole one. It may be updated more often,
    /// and answers sooner. So in slow start, which should end soon after round trips become longer.
    fn follows_acknowledgements(&self) -> bool {
        false
    }

    /// For as long as a retransmission timeout, nothing was sent: acknowledgements clock nothing out, and what was
    /// measured of the path grows old (RFC 5681 section 4.1). Returns the window where it shrinks.
    fn idle(&mut self, _mss: u32) -> Option<u32> {
        None
    }

    /// Slow-start threshold in bytes, for `TCP_INFO`; `u32::MAX` before the first congestion and without one.
    fn ssthresh(&self) -> u32 {
        u32::MAX
    }
}

/// A flow's counters since the last update.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Now.
    pub now: Nanos,
    /// Bytes acknowledged since the last update.
    pub acked: u64,
    /// Of these, bytes whose acknowledgement echoed a congestion mark.
    pub ecn_acked: u64,
    /// The latest round-trip time, where there is a new one.
    pub rtt: Option<Nanos>,
    /// Smoothed round-trip time.
    pub srtt: Option<Nanos>,
    /// Bytes by which acknowledgements have made the window grow since the last update ([`Policy::growth`]).
    pub grown: u32,
    /// Fast retransmits since the last update.
    pub losses: u32,
    /// The last loss was none: what the window was reduced for was sent again for nothing (RFC 3708).
    pub undone: bool,
    /// The retransmission timer fired.
    pub timeout: bool,
    /// Bytes sent and not acknowledged.
    pub outstanding: u32,
    /// Bytes that wait to be sent.
    pub unsent: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

impl Sample {
    /// The window, and not the application, limited what was sent: only then may a window grow (RFC 7661
    /// section 4.4).
    // Meets RFC 5681: 4.1-a.
    pub fn window_limited(&self, window: u32) -> bool {
        self.unsent > 0 || self.outstanding as u64 + self.acked >= window as u64 / 2
    }
}

/// The limits that the engine is to enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Most bytes in flight.
    pub cwnd: u32,
    /// Bytes a second; 0 for no limit.
    pub rate: u64,
}

/// Initial window: ten segments (RFC 6928).
// Meets RFC 5681: 3.1-b.
pub fn initial_window(mss: u32) -> u32 {
    10 * mss
}
