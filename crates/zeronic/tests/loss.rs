//! Loss in virtual time: nothing stands still while anything arrives.
#[path = "support/ends.rs"]
mod ends;

use ends::{Below, Habit, impaired, run_virtually};
use engines::EngineKind;
use port::FabricConfig;
use tcp::congestion::CongestionName;
use zeronic::{Carries, Shortage};

const SECOND: u64 = 1_000_000_000;

/// A peer that keeps one interval loses the front again and again, and no round trip can be measured meanwhile: it
/// must neither wait for a timeout each time, nor twice as long as the time before.
#[test]
fn a_stream_without_congestion_control_goes_on_through_loss() {
    for (loss, bytes) in [(0.01, 64 << 20), (0.03, 16 << 20)] {
        for (kind, seed) in EngineKind::TRANSPORTS.iter().flat_map(|kind| (1..5).map(move |seed| (*kind, seed))) {
            // What is impaired is cut into single frames.
            let config = FabricConfig { loss, duplicate: 1e-9, seed, ..FabricConfig::default() };
            let shape = Habit { least: 256 << 10, most: 256 << 10, receives: 32, ..Habit::default() };
            let habit = Habit { below: Below::Engine(kind), congestion: CongestionName::from_name("none"), ..shape };
            let (took, ends) = run_virtually(config, habit, [bytes, 0], 2 * SECOND);
            let again = ends[0].stack.counters().fetched_bytes as f64 / bytes as f64 - 1.0;
            println!("{kind:?}, {loss}, seed {seed}: {} ms, {:.0} % sent again", took / 1_000_000, 100.0 * again);
            assert!(took < 3 * SECOND, "{kind:?}, {loss}, seed {seed}: {} ms", took / 1_000_000);
        }
    }
}

/// More messages come than there are receives for: those are dropped. A sender whose timeout was right is not left
/// without an answer, and does not wait twice as long each time for what it sends again.
#[test]
fn messages_without_receives_are_sent_again_soon() {
    for (kind, seed) in EngineKind::TRANSPORTS.iter().flat_map(|kind| (1..20).map(move |seed| (*kind, seed))) {
        let (shortage, carries) = (Shortage::Drop, Carries::Messages);
        let habit = Habit { below: Below::Engine(kind), shortage, carries, most: 300, ..Habit::default() };
        let (took, _) = run_virtually(impaired(seed), habit, [256 << 10; 2], 2 * SECOND);
        println!("{kind:?}, seed {seed}: {} ms", took / 1_000_000);
    }
}
