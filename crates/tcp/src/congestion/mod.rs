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

use crate::{Growth, Nanos};
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

    /// How acknowledgements make the window grow from now on ([`Policy::growth`]).
    pub fn growth(&self) -> Growth {
        self.policy.growth()
    }

    /// It may be updated more often than once a round trip, and answers sooner ([`Policy::follows_acknowledgements`]).
    pub fn follows_acknowledgements(&self) -> bool {
        self.policy.follows_acknowledgements()
    }

    /// Nothing was sent for the time of a retransmission timeout ([`Policy::idle`]).
    pub fn idle(&mut self, mss: u32) -> Option<u32> {
        self.policy.idle(mss)
    }

    /// Slow-start threshold in bytes, for `TCP_INFO`; `u32::MAX` before the first congestion.
    pub fn ssthresh(&self) -> u32 {
        self.policy.ssthresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acknowledged, FlightLimit, WindowUse};
    use wire::Seq;

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

    /// The window as a data-path has it: acknowledgements make it grow as the policy says.
    pub(super) struct DataPath {
        limit: FlightLimit,
        usage: WindowUse,
        una: Seq,
    }

    impl DataPath {
        pub(super) fn new(policy: &dyn Policy, cwnd: u32) -> DataPath {
            let una = Seq(7);
            let limit = FlightLimit::new(cwnd, policy.growth());
            DataPath { limit, usage: WindowUse::new(una, policy.growth()), una }
        }

        pub(super) fn cwnd(&self) -> u32 {
            self.limit.cwnd()
        }

        /// What was acknowledged came segment by segment; then the policy runs. Returns the window.
        pub(super) fn update(&mut self, policy: &mut dyn Policy, sample: &Sample) -> u32 {
            let (before, mut left) = (self.cwnd(), sample.acked as u32);
            while left > 0 {
                let bytes = left.min(sample.mss);
                let flight = if sample.unsent > 0 { self.limit.bytes() } else { left + sample.outstanding };
                let ack = Acknowledged { una: self.una, max: self.una + flight, bytes, mss: sample.mss };
                self.limit.acknowledge(&mut self.usage, &ack);
                self.una += bytes;
                left -= bytes;
            }
            let grown = self.cwnd() - before;
            let decision = policy.update(&Sample { grown, ..*sample });
            self.limit.set_cwnd(decision.cwnd);
            self.limit.set_growth(&mut self.usage, policy.growth());
            self.cwnd()
        }

        /// A round in which everything that the window allowed was sent and acknowledged.
        pub(super) fn full_round(&mut self, policy: &mut dyn Policy, now: Nanos) -> u32 {
            self.update(policy, &full_round(now, self.cwnd()))
        }
    }

    /// A flow of each policy that has a window which grows, and its window as it begins.
    fn each_of_window(test: impl Fn(&mut dyn Policy, &mut DataPath)) {
        for kind in [DCTCP, CUBIC] {
            let mut policy = (kind.new)(MSS, 0);
            let mut path = DataPath::new(&*policy, initial_window(MSS));
            test(&mut *policy, &mut path);
        }
    }

    // Checks RFC 5681: 3.1-b, 3.1-c.
    #[test]
    fn window_policies_double_per_round_before_congestion() {
        each_of_window(|policy, path| {
            let rounds = [MS, 2 * MS].map(|now| path.full_round(policy, now));
            assert_eq!(rounds, [20 * MSS, 40 * MSS], "{policy:?}");
        });
    }

    /// The policy need not run for it.
    // Checks RFC 5681: 3.1-c.
    #[test]
    fn slow_start_of_cubic_goes_acknowledgement_by_acknowledgement() {
        let growth = [DCTCP, CUBIC].map(|kind| kind.start(MSS, 0).growth());
        assert_eq!(growth, [Growth::NONE, Growth::slow_start(MAX_WINDOW)]);
    }

    // Checks RFC 5681: 4.1-a.
    #[test]
    fn an_idle_application_does_not_grow_the_window() {
        each_of_window(|policy, path| {
            let quiet = Sample { acked: 100, outstanding: 0, unsent: 0, ..full_round(MS, 0) };
            assert_eq!(path.update(policy, &quiet), 10 * MSS, "{policy:?}");
        });
    }

    // Checks RFC 5681: 4.1-a.
    #[test]
    fn idle_time_halves_the_window_down_to_the_initial_one() {
        each_of_window(|policy, path| {
            assert_eq!(policy.idle(MSS), None, "{policy:?}");
            (1..=3).for_each(|round| _ = path.full_round(policy, round * MS));
            let lost = Sample { losses: 1, acked: 0, ..full_round(4 * MS, 80 * MSS) };
            let cwnd = path.update(policy, &lost);
            assert_eq!(policy.idle(MSS), Some(cwnd / 2), "{policy:?}");
            assert_eq!(policy.ssthresh(), cwnd, "what a loss has set stays");
            while policy.idle(MSS).is_some() {}
            let next = path.update(policy, &Sample { acked: 0, ..full_round(5000 * MS, 0) });
            assert_eq!((next, policy.ssthresh()), (10 * MSS, cwnd), "{policy:?}");
            let windows = [1, 2].map(|round| path.full_round(policy, (5000 + round) * MS));
            assert_eq!(windows, [20 * MSS, cwnd.min(40 * MSS)], "slow start");
        });
    }

    // Checks RFC 9293: MUST-19.
    // Checks RFC 5681: 3.1-e, 3.1-f.
    #[test]
    fn a_timeout_leaves_one_segment_and_slow_start() {
        each_of_window(|policy, path| {
            path.full_round(policy, MS);
            let lost = Sample { acked: 0, timeout: true, rtt: None, ..full_round(2 * MS, 20 * MSS) };
            assert_eq!(path.update(policy, &lost), MSS, "{policy:?}");
            assert!(policy.ssthresh() < 20 * MSS && policy.ssthresh() >= 2 * MSS);
            assert_eq!(path.full_round(policy, 3 * MS), 2 * MSS, "{policy:?}");
        });
    }

    // Checks RFC 3708: 3.3-a.
    #[test]
    fn a_loss_that_was_none_gives_the_window_back_once() {
        for timeout in [false, true] {
            each_of_window(|policy, path| {
                let first = policy.growth();
                path.full_round(policy, MS);
                let lost = Sample { losses: 1, timeout, acked: 0, ..full_round(2 * MS, 20 * MSS) };
                assert!(path.update(policy, &lost) < 20 * MSS, "{policy:?}");
                let none = Sample { undone: true, acked: 0, ..full_round(3 * MS, 0) };
                assert_eq!((path.update(policy, &none), policy.ssthresh()), (20 * MSS, u32::MAX), "{policy:?}");
                assert_eq!(policy.growth(), first, "{policy:?}");
                assert!(path.update(policy, &Sample { now: 4 * MS, ..lost }) < 20 * MSS);
                assert_eq!(path.update(policy, &Sample { now: 5 * MS, ..none }), 20 * MSS, "another one");
            });
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
                let growth = policy.growth();
                seen.window |= growth != Growth::NONE;
                let grown = cwnd.checked_div(growth.per).map_or(cwnd, |segments| segments * MSS);
                let grown = grown.min(growth.until.saturating_sub(cwnd));
                let sample = Sample { grown, ecn_acked: marks, timeout: round == 300, ..full_round(round * MS, cwnd) };
                let decision = policy.update(&sample);
                cwnd = decision.cwnd.min(1 << 20);
                seen.window |= decision.cwnd < MAX_WINDOW;
                seen.rate |= decision.rate > 0;
            }
            assert_eq!((seen.window, seen.rate), (kind.needs.window, kind.needs.rate), "{}", kind.name);
        }
    }
}
