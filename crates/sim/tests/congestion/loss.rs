//! Bulk flows through random loss (thesis figure 5.17), with each engine at either end.
use crate::network::{Plan, SECOND};
use crate::programs::{Load, Run};
use crate::{FLEXTOE, LAMINAR};
use engines::EngineKind;
use port::{FabricConfig, Nanos};
use tcp::congestion;

/// What flows through loss came to.
#[derive(Debug)]
struct Outcome {
    gbit_per_s: f64,
    sent: u64,
    sent_again: u64,
    fast: u64,
}

fn measure(engines: [EngineKind; 2], flows: u32, loss: f64, time: Nanos) -> Outcome {
    through(FabricConfig { loss, ..FabricConfig::default() }, engines, flows, time)
}

fn through(network: FabricConfig, engines: [EngineKind; 2], flows: u32, time: Nanos) -> Outcome {
    let congestion = congestion::CUBIC;
    let plan = Plan { hosts: 2, network, congestion, engines, buffer: 256 << 10, connections: flows, stall: 0 };
    let mut run = Run::new(&plan, flows as usize, Load::Bulk);
    run.run_for(SECOND / 20);
    run.begin();
    let figures = |run: &Run| {
        ["tx_segments", "retransmitted_segments", "fast_retransmits"].map(|figure| run.net.stations[1].sum(figure))
    };
    let before = figures(&run);
    run.run_for(time);
    let after = figures(&run);
    let [sent, sent_again, fast] = [0, 1, 2].map(|at| after[at] - before[at]);
    let gbit_per_s = run.moved.iter().sum::<u64>() as f64 * 8.0 / time as f64;
    Outcome { gbit_per_s, sent, sent_again, fast }
}

/// One loss in a hundred frames each way costs little: what was lost is noticed by duplicates, and only that is sent
/// again.
#[test]
fn bulk_flows_go_on_under_loss() {
    for engines in [FLEXTOE, LAMINAR] {
        let [clean, lossy] = [1e-12, 0.01].map(|loss| measure(engines, 8, loss, SECOND / 20));
        assert_eq!(clean.sent_again, 0, "{clean:?}");
        assert!(lossy.gbit_per_s > 0.7 * clean.gbit_per_s, "{engines:?}: {lossy:?}, without loss {clean:?}");
        assert!(lossy.sent_again * 50 < lossy.sent && lossy.fast * 4 > lossy.sent_again, "{engines:?}: {lossy:?}");
    }
}

/// One frame in a hundred is late. They come within the reordering window, so next to none is sent again for it.
#[test]
fn bulk_flows_go_on_under_reordering() {
    let late =
        |reorder| FabricConfig { reorder, reorder_delay_ns: 20_000, delay_ns: 100_000, ..FabricConfig::default() };
    let [clean, late] = [1e-12, 0.01].map(|share| through(late(share), FLEXTOE, 8, SECOND / 20));
    assert!(late.gbit_per_s > 0.9 * clean.gbit_per_s, "{late:?}, in order {clean:?}");
    assert!(late.sent_again * 1000 < late.sent, "{late:?}");
}

/// `FLOWS=8 LOSS="0.001 0.01" MILLISECONDS=500 cargo test --release -p sim --test congestion -- --ignored --nocapture
/// loss`
#[test]
#[ignore = "prints a table"]
fn table() {
    let time: Nanos = std::env::var("MILLISECONDS").map_or(200, |text| text.parse().unwrap()) * crate::network::MS;
    let flows = std::env::var("FLOWS").map_or(8, |text| text.parse().unwrap());
    for loss in std::env::var("LOSS").unwrap_or("1e-12 1e-5 1e-4 1e-3 0.01 0.1".into()).split_whitespace() {
        for (name, engines) in
            [("flextoe", FLEXTOE), ("laminar", LAMINAR), ("laminar receives", [LAMINAR[0], FLEXTOE[0]])]
        {
            println!("{loss:>6} {name:16} {:.3?}", measure(engines, flows, loss.parse().unwrap(), time));
        }
    }
}
