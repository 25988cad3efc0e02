//! Congestion-control policies (FlexTOE appendix D) and their table.
//!
//! A policy runs outside the data-path, about once per round-trip time and flow, on the counters that the data-path
//! collected since the last time. It gives a window and a rate, which the engine enforces.
//!
//! A new policy is one file with a [`Kind`], and one line in [`KINDS`]. Configuration, `TCP_CONGESTION`, `TCP_INFO`,
//! the bench, the simulation and the script library find it there.
mod cubic;
mod dctcp;
mod hystart;
mod policy;
mod timely;
mod unlimited;
mod window;

pub use policy::{Decision, Kind, MAX_WINDOW, Needs, Policy, Sample, initial_window};

use crate::Nanos;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Debug, Display, Formatter};
use std::ops::Deref;

/// Every policy of this host. The order is that of lists for people.
pub static KINDS: &[&Kind] = &[&cubic::KIND, &dctcp::KIND, &timely::KIND, &unlimited::KIND];

/// CUBIC (RFC 9438).
pub const CUBIC: CongestionName = CongestionName(&cubic::KIND);
/// DCTCP (RFC 8257).
pub const DCTCP: CongestionName = CongestionName(&dctcp::KIND);
/// TIMELY (Mittal et al., SIGCOMM 2015).
pub const TIMELY: CongestionName = CongestionName(&timely::KIND);
/// None: the peer's window alone limits.
pub const NONE: CongestionName = CongestionName(&unlimited::KIND);

/// A kind of policy, written and read as its name.
#[derive(Clone, Copy)]
pub struct CongestionName(&'static Kind);

impl CongestionName {
    /// The name of a kind, in the table or not.
    pub const fn of(kind: &'static Kind) -> CongestionName {
        CongestionName(kind)
    }

    /// The kind of a `TCP_CONGESTION` name.
    pub fn from_name(name: &str) -> Option<CongestionName> {
        KINDS.iter().find(|kind| kind.name == name).map(|kind| CongestionName(kind))
    }

    /// The same, with a sentence where there is none.
    pub fn named(name: &str) -> Result<CongestionName, String> {
        let unknown = || format!("`{name}` is no congestion control; there are {}", CongestionName::list());
        CongestionName::from_name(name).ok_or_else(unknown)
    }

    /// The kind of a code. `None` for 0, the host's default, and for unknown codes.
    pub fn from_code(code: u8) -> Option<CongestionName> {
        KINDS.iter().find(|kind| kind.code == code).map(|kind| CongestionName(kind))
    }

    /// All names, for sentences about a wrong one.
    pub fn list() -> String {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.join(", ")
    }

    /// A policy of this kind for one flow.
    pub fn start(self, mss: u32, now: Nanos) -> Controller {
        Controller { kind: self, policy: (self.new)(mss, now) }
    }
}

impl Deref for CongestionName {
    type Target = Kind;
    fn deref(&self) -> &Kind {
        self.0
    }
}

impl PartialEq for CongestionName {
    fn eq(&self, other: &CongestionName) -> bool {
        self.code == other.code
    }
}

impl Eq for CongestionName {}

impl Display for CongestionName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Debug for CongestionName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for CongestionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for CongestionName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CongestionName, D::Error> {
        let name = String::deserialize(deserializer)?;
        CongestionName::named(&name).map_err(serde::de::Error::custom)
    }
}

/// The policy that controls one flow, and which kind it is.
#[derive(Debug)]
pub struct Controller {
    kind: CongestionName,
    policy: Box<dyn Policy>,
}

impl Controller {
    /// Its kind.
    pub fn kind(&self) -> CongestionName {
        self.kind
    }

    /// Takes in what happened since the last update and decides anew.
    pub fn update(&mut self, sample: &Sample) -> Decision {
        self.policy.update(sample)
    }

    /// It may be updated more often than once a round trip, and answers sooner ([`Policy::follows_acknowledgements`]).
    pub fn follows_acknowledgements(&self) -> bool {
        self.policy.follows_acknowledgements()
    }

    /// Slow-start threshold in bytes, for `TCP_INFO`; `u32::MAX` before the first congestion.
    pub fn ssthresh(&self) -> u32 {
        self.policy.ssthresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const MSS: u32 = 1000;
    const MS: Nanos = 1_000_000;

    /// A round in which everything that the window allows was sent and acknowledged.
    pub(super) fn full_round(now: Nanos, cwnd: u32) -> Sample {
        Sample {
            now,
            acked: cwnd as u64,
            rtt: Some(MS),
            srtt: Some(MS),
            outstanding: cwnd,
            unsent: 1,
            mss: MSS,
            ..Sample::default()
        }
    }

    // Checks RFC 5681: 3.1-b, 3.1-c.
    #[test]
    fn window_policies_double_per_round_before_congestion() {
        for kind in [DCTCP, CUBIC] {
            let mut policy = kind.start(MSS, 0);
            let first = policy.update(&full_round(MS, 10 * MSS));
            let second = policy.update(&full_round(2 * MS, first.cwnd));
            assert_eq!((first.cwnd, second.cwnd), (20 * MSS, 40 * MSS), "{kind:?}");
            assert_eq!(second.rate, 0);
        }
    }

    // Checks RFC 5681: 4.1-a.
    #[test]
    fn an_idle_application_does_not_grow_the_window() {
        for kind in [DCTCP, CUBIC] {
            let mut policy = kind.start(MSS, 0);
            let quiet = Sample { acked: 100, outstanding: 0, unsent: 0, ..full_round(MS, 0) };
            assert_eq!(policy.update(&quiet).cwnd, 10 * MSS, "{kind:?}");
        }
    }

    // Checks RFC 9293: MUST-19.
    // Checks RFC 5681: 3.1-e, 3.1-f.
    #[test]
    fn a_timeout_leaves_one_segment_and_slow_start() {
        for kind in [DCTCP, CUBIC] {
            let mut policy = kind.start(MSS, 0);
            policy.update(&full_round(MS, 10 * MSS));
            let lost = Sample { acked: 0, timeout: true, rtt: None, ..full_round(2 * MS, 20 * MSS) };
            assert_eq!(policy.update(&lost).cwnd, MSS, "{kind:?}");
            assert!(policy.ssthresh() < 20 * MSS && policy.ssthresh() >= 2 * MSS);
            assert_eq!(policy.update(&full_round(3 * MS, MSS)).cwnd, 2 * MSS, "{kind:?}");
        }
    }

    // Checks RFC 3708: 3.3-a.
    #[test]
    fn a_loss_that_was_none_gives_the_window_back_once() {
        for kind in [DCTCP, CUBIC] {
            for timeout in [false, true] {
                let mut policy = kind.start(MSS, 0);
                policy.update(&full_round(MS, 10 * MSS));
                let lost = Sample { losses: 1, timeout, acked: 0, ..full_round(2 * MS, 20 * MSS) };
                assert!(policy.update(&lost).cwnd < 20 * MSS, "{kind:?}");
                let none = Sample { undone: true, acked: 0, ..full_round(3 * MS, 0) };
                assert_eq!((policy.update(&none).cwnd, policy.ssthresh()), (20 * MSS, u32::MAX), "{kind:?}");
                assert!(policy.update(&Sample { now: 4 * MS, ..lost }).cwnd < 20 * MSS);
                assert_eq!(policy.update(&Sample { undone: true, now: 5 * MS, ..none }).cwnd, 20 * MSS, "another one");
            }
        }
    }

    #[test]
    fn the_table_has_each_name_and_code_once() {
        for (at, kind) in KINDS.iter().enumerate() {
            assert!(kind.code != 0 && kind.name.len() < 16, "{}", kind.name);
            assert!(KINDS[..at].iter().all(|other| other.code != kind.code && other.name != kind.name));
            let found = CongestionName::from_name(kind.name);
            assert_eq!((found, CongestionName::from_code(kind.code)), (Some(CongestionName(kind)), found));
        }
        assert_eq!((CongestionName::from_code(0), CongestionName::from_name("reno")), (None, None));
    }

    /// Codes are a contract between programs and daemons of different builds.
    #[test]
    fn codes_do_not_change() {
        assert_eq!([DCTCP, TIMELY, CUBIC, NONE].map(|name| name.code), [1, 2, 3, 4]);
    }

    /// What a kind declares is what its policies set, in rounds with and without congestion.
    #[test]
    fn policies_set_only_what_they_declare() {
        for kind in KINDS {
            let mut policy = CongestionName(kind).start(MSS, 0);
            let mut seen = Needs::NOTHING;
            let mut cwnd = initial_window(MSS);
            for round in 1..500 {
                let marks = if (50..200).contains(&round) { cwnd.into() } else { 0 };
                let sample = Sample { ecn_acked: marks, timeout: round == 300, ..full_round(round * MS, cwnd) };
                let decision = policy.update(&sample);
                cwnd = decision.cwnd.min(1 << 20);
                seen.window |= decision.cwnd < MAX_WINDOW;
                seen.rate |= decision.rate > 0;
            }
            assert_eq!((seen.window, seen.rate), (kind.needs.window, kind.needs.rate), "{}", kind.name);
        }
    }
}
