//! What loss costs, in virtual time, with each way of making up for it.
mod support;

use smartns::Recovery;
use support::{Faults, MS, Pair, SETTINGS, Settings, Wire};
use verbs::{Mtu, SendOpcode, Status};

/// Work requests of 16 KiB each.
const WORKS: usize = 1500;
const LEN: u32 = 16 * 1024;
/// Work requests outstanding.
const DEPTH: usize = 32;

/// Moves all of it; returns the time that it took, and the frames with payload that were sent.
fn moved(opcode: SendOpcode, recovery: Recovery, lost: u64) -> (u64, u64) {
    let settings = Settings { mtu: Mtu::B4096, window: 128, recovery, timeout: 14, ..SETTINGS };
    let faults = Faults { lost, ..Faults::default() };
    let mut pair = Pair::connected([settings; 2], Wire::new(5, faults));
    let begun = pair.now;
    let mut posted = 0;
    let ended = pair.run(60_000 * MS, |pair| {
        let done = pair.nodes[0].completions.len();
        while posted < WORKS && posted < done + DEPTH {
            let [one, other] = &mut pair.nodes;
            let element = one.remote(opcode, other, 0);
            one.post(element, &[one.piece(0, LEN)]);
            posted += 1;
        }
        done == WORKS
    });
    assert!(ended && pair.nodes[0].completions.iter().all(|done| done.status == Status::Success));
    (pair.now - begun, pair.wire.long)
}

#[test]
fn selective_repeat_keeps_most_of_the_rate_at_one_percent_loss() {
    for opcode in [SendOpcode::Write, SendOpcode::Read] {
        let (clean, frames) = moved(opcode, Recovery::SelectiveRepeat, 0);
        let (selective, sent) = moved(opcode, Recovery::SelectiveRepeat, 10);
        let (back, sent_back) = moved(opcode, Recovery::GoBackN, 10);
        println!("{opcode:?}: lossless {clean} ns; 1 % loss: selective repeat {selective} ns, go-back-N {back} ns");
        println!("frames: {frames}; {sent}, {sent_back}");
        assert!(selective * 7 <= clean * 10, "{opcode:?}: {selective} ns beside {clean} ns");
        // Little more is sent again than what was lost.
        assert!(sent * 100 <= frames * 102, "{opcode:?}: {sent} frames beside {frames}");
        assert!(sent_back > sent, "{opcode:?}: go-back-N sent {sent_back} frames");
        assert!(back > selective, "{opcode:?}: go-back-N took {back} ns");
    }
}
