//! How often the policy of each flow runs: once a round trip (FlexTOE appendix D), also with ten thousand flows.
use super::network::{MS, Plan};
use super::programs::{Load, Run};
use super::{FLEXTOE, LAMINAR};
use engines::EngineKind;
use port::{FabricConfig, Nanos};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tcp::congestion::{self, CongestionName, Decision, Kind, Policy, Sample};

/// The number of the next flow.
static FLOWS: AtomicU64 = AtomicU64::new(0);
/// Runs of policies: the flow, time since its run before, its smoothed round trip.
static RUNS: Mutex<Vec<(u64, Nanos, Nanos)>> = Mutex::new(Vec::new());

/// DCTCP that notes when it runs. It has a code of its own, as no other test may count here.
static NOTED: Kind = Kind {
    name: "noted",
    code: 201,
    needs: tcp::congestion::Needs { window: true, rate: true, timestamps: false, exact_marks: true },
    new: |mss, now| {
        let inner = (congestion::DCTCP.new)(mss, now);
        Box::new(Noted { flow: FLOWS.fetch_add(1, Ordering::Relaxed), inner, last: now })
    },
};

#[derive(Debug)]
struct Noted {
    flow: u64,
    inner: Box<dyn Policy>,
    last: Nanos,
}

impl Policy for Noted {
    fn update(&mut self, sample: &Sample) -> Decision {
        let since = sample.now - std::mem::replace(&mut self.last, sample.now);
        RUNS.lock().unwrap().push((self.flow, since, sample.srtt.unwrap_or(0)));
        self.inner.update(sample)
    }

    fn ssthresh(&self) -> u32 {
        self.inner.ssthresh()
    }
}

/// Bulk flows over one link, with a queue that holds a window of each, and delay each way.
fn plan(flows: u32, engines: [EngineKind; 2], delay_ns: Nanos) -> Plan {
    let (rate_bps, ecn_threshold_bytes, buffer_bytes) = (4_000_000_000, 256 << 10, 256 << 20);
    let network = FabricConfig { rate_bps, ecn_threshold_bytes, buffer_bytes, delay_ns, ..FabricConfig::default() };
    let congestion = CongestionName::of(&NOTED);
    Plan { hosts: 2, network, congestion, engines, buffer: 8 << 10, connections: flows, stall: 0 }
}

/// Runs a plan; the shares of runs within a round trip and a half, and of flows whose policy ran at all.
fn measure(plan: &Plan, warm_up: Nanos, time: Nanos) -> (f64, f64, Nanos) {
    let flows = plan.connections as usize;
    let mut run = Run::all_at_last(plan, flows, Load::Bulk);
    run.run_for(warm_up);
    RUNS.lock().unwrap().clear();
    run.run_for(time);
    let runs = std::mem::take(&mut *RUNS.lock().unwrap());
    let mut seen: Vec<u64> = runs.iter().map(|(flow, ..)| *flow).collect();
    seen.sort_unstable();
    seen.dedup();
    let within = runs.iter().filter(|(_, since, round)| *since <= round + round / 2).count();
    let mut rounds: Vec<Nanos> = runs.iter().map(|(_, _, round)| *round).collect();
    rounds.sort_unstable();
    let median = rounds.get(rounds.len() / 2).copied().unwrap_or(0);
    (within as f64 / runs.len().max(1) as f64, seen.len() as f64 / flows as f64, median)
}

#[test]
fn policies_run_once_a_round_trip() {
    for (flows, engines, delay) in [(1_000, FLEXTOE, 6 * MS), (1_000, LAMINAR, 6 * MS), (10_000, FLEXTOE, 60 * MS)] {
        let (within, seen, round) = measure(&plan(flows, engines, delay), 500 * MS, 300 * MS);
        assert!(within > 0.95 && seen > 0.99, "{flows} flows of {engines:?}: {within}, {seen}, {round} ns");
    }
}
