//! Every tracepoint of a host can be provoked: one that never records anything is a mistake, or superfluous. Those of
//! the daemon's threads and ports are in `crates/daemon/tests/tracepoints.rs`, what does not happen in random scenarios
//! in `crates/control/tests/tracepoints.rs`.
use sim::run_watched;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use trace::{Point, PointSet, Traces};

/// Random scenarios; after a few dozen nothing new happens.
const SEEDS: u64 = 300;

/// Points of a daemon, which a simulated host does not have, and of what does not happen here. Applications never
/// sleep, none stops reading for long, and every path carries what the hosts send.
const ELSEWHERE: [&str; 6] =
    ["port.", "thread.", "control.bell", "flextoe.context_queue.bell", "control.probe_due", "control.flow.mss"];

/// A clock that goes on each time it is read.
fn ticks() -> u64 {
    static NOW: AtomicU64 = AtomicU64::new(1);
    NOW.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn every_tracepoint_of_a_host_records() {
    let mut counts: BTreeMap<&str, u64> = Point::ALL.iter().map(|point| (point.name(), 0)).collect();
    for name in ELSEWHERE {
        counts.retain(|point, _| !point.starts_with(name));
    }
    for seed in 0..SEEDS {
        let traces = Traces::new(ticks);
        // Half of the runs are watched: then records are written, one by one.
        let watch = (seed % 2 == 1).then(|| traces.watch(PointSet::all(), None));
        traces.enable(PointSet::all());
        let mut plan = sim::generate::generate(seed);
        if seed % 3 == 0 {
            // A slow link that marks soon.
            plan.fabric.rate_bps = 100_000_000;
            (plan.fabric.ecn_threshold_bytes, plan.fabric.buffer_bytes) = (3000, 1 << 20);
            plan.hosts.iter_mut().for_each(|host| host.ecn = true);
        }
        run_watched(&plan, &traces).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        for figure in traces.figures() {
            counts.entry(figure.point.name()).and_modify(|count| *count += figure.count);
        }
        drop(watch);
        if counts.values().all(|count| *count > 0) {
            return;
        }
    }
    let silent: Vec<&str> = counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    assert!(silent.is_empty(), "in {SEEDS} scenarios nothing came of {silent:?}");
}
