//! Cost of loss, in virtual time, with each kind of recovery.
mod support;

use smartns::Recovery;
use support::{Faults, MS, Pair, SETTINGS, Settings, Wire};
use verbs::{Mtu, SendOpcode, Status};

/// Work requests of 16 KiB each.
const WORKS: usize = 800;
const LEN: u32 = 16 * 1024;
/// Work requests outstanding.
const DEPTH: usize = 32;
/// What is lost differs with the seed: no figure below is that of a lucky one.
const SEEDS: u64 = 9;

/// What one run took.
struct Took {
    /// Time until all but the last [`DEPTH`] work requests were done: nothing follows these, which could show that one
    /// of them was lost, and so they may wait for a timer.
    time: u64,
    /// Frames with payload that were sent.
    frames: u64,
}

/// Moves all of it, with one frame in a hundred lost or none.
fn moved(opcode: SendOpcode, recovery: Recovery, seed: Option<u64>) -> Took {
    let settings = Settings { mtu: Mtu::B4096, window: 128, recovery, timeout: 14, ..SETTINGS };
    let faults = Faults { lost: if seed.is_some() { 10 } else { 0 }, ..Faults::default() };
    let mut pair = Pair::connected([settings; 2], Wire::new(seed.unwrap_or(0), faults));
    let (begun, mut posted, mut time) = (pair.now, 0, None);
    let ended = pair.run(60_000 * MS, |pair| {
        let done = pair.nodes[0].completions.len();
        if done >= WORKS - DEPTH {
            time.get_or_insert(pair.now - begun);
        }
        while posted < WORKS && posted < done + DEPTH {
            let [one, other] = &mut pair.nodes;
            let element = one.remote(opcode, other, 0);
            one.post(element, &[one.piece(0, LEN)]);
            posted += 1;
        }
        done == WORKS
    });
    assert!(ended && pair.nodes[0].completions.iter().all(|done| done.status == Status::Success));
    Took { time: time.unwrap(), frames: pair.wire.long }
}

#[test]
fn selective_repeat_keeps_most_of_the_rate_at_one_percent_loss() {
    for opcode in [SendOpcode::Write, SendOpcode::Read] {
        let clean = moved(opcode, Recovery::SelectiveRepeat, None);
        let percent = |took: &Took| clean.time * 100 / took.time;
        let all: Vec<Took> = (0..SEEDS).map(|seed| moved(opcode, Recovery::SelectiveRepeat, Some(seed))).collect();
        let mut rates: Vec<u64> = all.iter().map(percent).collect();
        rates.sort_unstable();
        let back = moved(opcode, Recovery::GoBackN, Some(0));
        println!("{opcode:?}, percent of the lossless rate: selective repeat {rates:?}, go-back-N {}", percent(&back));
        assert!(rates[rates.len() / 2] >= 80 && rates[0] >= 60, "{opcode:?}: {rates:?}");
        for took in &all {
            // Little more is sent again than what was lost.
            assert!(took.frames * 100 <= clean.frames * 102, "{opcode:?}: {} of {}", took.frames, clean.frames);
            assert!(back.frames > took.frames && back.time > took.time, "{opcode:?}: go-back-N");
        }
    }
}
