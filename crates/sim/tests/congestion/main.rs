//! Congestion control in virtual time: what share of a link flows get together, and how evenly. The experiments of
//! FlexTOE section 5.3 (thesis 4.5.3) without the noise of a machine; `opentoe bench` measures them for real.
mod loss;
mod network;
mod programs;

use engines::EngineKind;
use network::{MS, Plan, SECOND};
use port::{FabricConfig, Nanos};
use programs::{Load, Run};
use tcp::congestion::{self, CongestionName};

const FLEXTOE: [EngineKind; 2] = [EngineKind::Flextoe; 2];
const LAMINAR: [EngineKind; 2] = [EngineKind::Laminar; 2];

/// Jain's index: 1 where all are equal, 1/n where one has everything.
fn jain(values: &[u64]) -> f64 {
    let sum: f64 = values.iter().map(|value| *value as f64).sum();
    let squares: f64 = values.iter().map(|value| (*value as f64).powi(2)).sum();
    sum * sum / (squares * values.len() as f64)
}

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    /// Of the link's rate, that was used, and that was used for bytes that were wanted.
    used: f64,
    share: f64,
    jain: f64,
    dropped: u64,
    resent: u64,
    /// Latency: median, 99th percentile, largest; milliseconds.
    latency: [f64; 3],
}

fn measure(plan: &Plan, connections: usize, load: Load, warm_up: Nanos, time: Nanos) -> Outcome {
    let mut run = Run::new(plan, connections, load);
    run.run_for(warm_up);
    run.begin();
    let before = (run.net.received(0), run.net.dropped(0));
    let resent = |run: &Run| -> u64 { run.net.stations.iter().map(|s| s.sum("retransmitted_segments")).sum() };
    let resent_before = resent(&run);
    run.run_for(time);
    let capacity = plan.network.rate_bps as f64 / 8.0 * time as f64 / 1e9;
    let size = if let Load::Requests(size) = load { f64::from(size) } else { 1.0 };
    let goodput = run.moved.iter().sum::<u64>() as f64 * size * 1514.0 / 1448.0;
    run.latencies.sort();
    let pick = |share: f64| {
        let at = (run.latencies.len() as f64 * share) as usize;
        run.latencies.get(at.min(run.latencies.len().saturating_sub(1))).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    Outcome {
        used: (run.net.received(0) - before.0) as f64 / capacity,
        share: goodput / capacity,
        jain: jain(&run.moved),
        dropped: run.net.dropped(0) - before.1,
        resent: resent(&run) - resent_before,
        latency: [pick(0.5), pick(0.99), pick(1.0)],
    }
}

fn incast(degree: usize, connections: usize, congestion: CongestionName, stall: Nanos) -> Plan {
    let network = FabricConfig {
        rate_bps: 1_000_000_000,
        ecn_threshold_bytes: 64 << 10,
        buffer_bytes: 128 << 10,
        ..FabricConfig::default()
    };
    let connections = connections as u32;
    Plan { hosts: degree + 1, network, congestion, engines: FLEXTOE, buffer: 256 << 10, connections, stall }
}

fn fairness(flows: u32, rate_bps: u64, stall: Nanos) -> Plan {
    let network =
        FabricConfig { rate_bps, ecn_threshold_bytes: 128 << 10, buffer_bytes: 8 << 20, ..FabricConfig::default() };
    let congestion = congestion::DCTCP;
    Plan { hosts: 2, network, congestion, engines: FLEXTOE, buffer: 64 << 10, connections: flows, stall }
}

const REQUEST: Load = Load::Requests(64 << 10);

/// Incast on warm connections, for half a second.
fn half_a_second(degree: usize, connections: usize, congestion: CongestionName) -> Outcome {
    measure(&incast(degree, connections, congestion, 0), connections, REQUEST, SECOND, SECOND / 2)
}

/// FlexTOE table 4, 20/20: with congestion control the port is full, evenly shared, and nobody waits for long.
#[test]
fn twenty_hosts_share_a_port_evenly() {
    let off = half_a_second(20, 20, congestion::NONE);
    for policy in [congestion::DCTCP, congestion::TIMELY] {
        let on = half_a_second(20, 20, policy);
        assert!(on.share > 0.97 && on.jain > 0.98, "{policy:?}: {on:?}");
        assert!(
            on.latency[2] * 2.0 < off.latency[2] && on.dropped * 100 < off.dropped,
            "{policy:?}: {on:?}, off: {off:?}"
        );
    }
}

/// Two segments of each of 64 connections are more than the switch's buffer holds: they are paced below that.
#[test]
fn where_the_smallest_windows_are_too_large_flows_are_paced() {
    let on = half_a_second(4, 64, congestion::DCTCP);
    assert!(on.share > 0.97 && on.jain > 0.95, "{on:?}");
    assert!(on.dropped < 200, "with windows of two segments it is about 900: {on:?}");
}

/// All flows get the same, and together the whole link.
#[test]
fn many_bulk_flows_fill_a_link_evenly() {
    let flows = 256;
    let outcome = measure(&fairness(flows, 1_000_000_000, 0), flows as usize, Load::Bulk, SECOND / 2, SECOND / 2);
    assert!(outcome.share > 0.97 && outcome.jain > 0.98, "{outcome:?}");
    assert!(outcome.used - outcome.share < 0.01 && outcome.resent == 0, "nothing is sent twice: {outcome:?}");
}

/// The path's own round trip is longer than what TIMELY takes for a queue: its flows fill the link all the same.
#[test]
fn distance_is_no_queue() {
    let plan = fairness(16, 1_000_000_000, 0);
    let network = FabricConfig { delay_ns: MS, ..plan.network.clone() };
    let plan = Plan { network, congestion: congestion::TIMELY, ..plan };
    let outcome = measure(&plan, 16, Load::Bulk, SECOND, SECOND / 2);
    assert!(outcome.share > 0.9 && outcome.jain > 0.95, "{outcome:?}");
}

/// `ENGINE=laminar STALL=4 POINTS="10:10 20:20" CONTROLS="dctcp timely none" SECONDS=4 FLOWS="64 2000" cargo test
/// --release -p sim
/// --test congestion -- --ignored --nocapture table`
#[test]
#[ignore = "prints a table"]
fn table() {
    let wanted = std::env::var("POINTS").unwrap_or("10:10 20:20 4:16 4:64 4:128".into());
    let controls = std::env::var("CONTROLS").unwrap_or("dctcp timely none".into());
    let stall: Nanos = std::env::var("STALL").map_or(0, |text| text.parse::<u64>().unwrap() * MS);
    let engines = if std::env::var("ENGINE").as_deref() == Ok("laminar") { LAMINAR } else { FLEXTOE };
    let seconds: u64 = std::env::var("SECONDS").map_or(2, |text| text.parse().unwrap());
    for point in wanted.split_whitespace() {
        let (degree, connections) = point.split_once(':').unwrap();
        let (degree, connections): (usize, usize) = (degree.parse().unwrap(), connections.parse().unwrap());
        for control in controls.split_whitespace() {
            let name = CongestionName::from_name(control).expect("a name of the table");
            let plan = Plan { engines, ..incast(degree, connections, name, stall) };
            let outcome = measure(&plan, connections, REQUEST, SECOND, seconds * SECOND);
            println!("{degree:3}/{connections:<4} {control:7} {outcome:.3?}");
        }
    }
    for flows in std::env::var("FLOWS").unwrap_or("64 256 2000".into()).split_whitespace() {
        let flows: u32 = flows.parse().unwrap();
        let outcome =
            measure(&fairness(flows, 1_000_000_000, stall), flows as usize, Load::Bulk, 2 * SECOND, seconds * SECOND);
        println!("{flows:5} flows {outcome:.3?}");
    }
}
