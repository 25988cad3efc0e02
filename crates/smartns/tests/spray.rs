//! Packet spraying: over several paths of one network, in virtual time.
mod support;

use smartns::Recovery;
use support::{Faults, MS, Pair, Random, SETTINGS, Settings, Wire, path_of};
use verbs::{Mtu, SendOpcode, Status};

const WORKS: usize = 400;
const LEN: u32 = 16 * 1024;
const DEPTH: usize = 16;
const SPRAYED: Settings =
    Settings { mtu: Mtu::B4096, window: 128, recovery: Recovery::SelectiveRepeat, spray: 3, timeout: 14, ..SETTINGS };

/// A network of so many paths, each with an eighth of the wire's rate and slower than the one before.
fn network(paths: usize, skew: u64, seed: u64, faults: Faults) -> Wire {
    let mut wire = Wire::new(seed, faults);
    (wire.paths, wire.skew, wire.slower) = (paths, skew, 8);
    wire
}

/// Moves all of it, and checks each byte. Returns the nanoseconds and the frames with payload.
fn moved(opcode: SendOpcode, settings: Settings, wire: Wire) -> (u64, u64, Pair) {
    let mut pair = Pair::connected([settings; 2], wire);
    let mut random = Random::new(9);
    let data: Vec<u8> = (0..LEN as usize * DEPTH).map(|_| random.below(256) as u8).collect();
    let (from, into) = if opcode == SendOpcode::Read { (1, 0) } else { (0, 1) };
    pair.nodes[from].write(0, &data);
    let (begun, mut posted) = (pair.now, 0);
    let ended = pair.run(20_000 * MS, |pair| {
        let done = pair.nodes[0].completions.len();
        while posted < WORKS && posted < done + DEPTH {
            let at = u64::from(LEN) * (posted % DEPTH) as u64;
            let [one, other] = &mut pair.nodes;
            let element = one.remote(opcode, other, at);
            one.post(element, &[one.piece(at, LEN)]);
            posted += 1;
        }
        done == WORKS
    });
    assert!(ended && pair.nodes[0].completions.iter().all(|done| done.status == Status::Success), "{opcode:?}");
    assert!(pair.nodes[into].read(0, data.len()) == data, "{opcode:?}: each byte in its place");
    (pair.now - begun, pair.wire.long, pair)
}

const BOTH: [SendOpcode; 2] = [SendOpcode::Write, SendOpcode::Read];

#[test]
fn two_paths_carry_nearly_twice_as_much_as_one() {
    for opcode in BOTH {
        let (alone, frames, _) =
            moved(opcode, Settings { spray: 0, ..SPRAYED }, network(2, 3000, 1, Faults::default()));
        let (sprayed, all, _) = moved(opcode, SPRAYED, network(2, 3000, 1, Faults::default()));
        println!("{opcode:?}: one path {alone} ns, sprayed {sprayed} ns; frames {frames} and {all}");
        assert!(sprayed * 16 < alone * 10, "{opcode:?}: {sprayed} ns, {alone} ns on one path");
        // Packets out of order are not taken for lost.
        assert_eq!(all, frames, "{opcode:?}");
    }
}

#[test]
fn paths_of_different_length_repeat_nothing_in_vain() {
    for opcode in BOTH {
        let (_, least, _) = moved(opcode, SPRAYED, network(8, 0, 1, Faults::default()));
        let (_, frames, _) = moved(opcode, SPRAYED, network(8, 5000, 1, Faults::default()));
        assert_eq!(frames, least, "{opcode:?}");
    }
}

#[test]
fn losses_are_made_up_for() {
    for opcode in BOTH {
        for seed in 1..20 {
            let faults = Faults { lost: 10, repeated: 5, ..Faults::default() };
            let (_, frames, pair) = moved(opcode, SPRAYED, network(4, 2000, seed, faults));
            let least = WORKS as u64 * u64::from(LEN) / 4096;
            assert!(pair.wire.harmed > 0 && frames < least * 110 / 100, "{opcode:?}, seed {seed}: {frames} of {least}");
        }
    }
}

/// A path that carries nothing is left: each packet that went there is sent once more, by another one.
#[test]
fn a_path_that_fails_is_left() {
    for opcode in BOTH {
        let mut wire = network(4, 1000, 1, Faults::default());
        let mut count = 0;
        wire.gate = Some(Box::new(move |_, bytes| {
            count += 1;
            count < 300 || bytes.len() < 1000 || path_of(bytes, 4) != 2
        }));
        let (time, frames, pair) = moved(opcode, SPRAYED, wire);
        println!("{opcode:?}: {time} ns, {frames} frames, {} lost", pair.wire.harmed);
        assert!(pair.wire.harmed > 0, "{opcode:?}");
        if opcode == SendOpcode::Write {
            assert!(
                pair.wire.harmed < 150,
                "{opcode:?}: {} packets went where nothing comes through",
                pair.wire.harmed
            );
        }
    }
}

/// With a peer that goes back N, and with one that does not spray, nothing changes.
#[test]
fn peers_that_do_not_spray_are_served() {
    let wire = || network(4, 3000, 1, Faults::default());
    for opcode in BOTH {
        for other in [Settings { spray: 0, ..SPRAYED }, Settings { spray: 0, recovery: Recovery::GoBackN, ..SPRAYED }] {
            for sides in [[SPRAYED, other], [other, SPRAYED]] {
                let mut pair = Pair::connected(sides, wire());
                let [one, two] = &mut pair.nodes;
                let element = one.remote(opcode, two, 0);
                for _ in 0..8 {
                    one.post(element, &[one.piece(0, LEN)]);
                }
                assert!(pair.completed(8), "{opcode:?}");
                assert!(pair.nodes[0].completions.iter().all(|done| done.status == Status::Success), "{opcode:?}");
            }
        }
    }
}
