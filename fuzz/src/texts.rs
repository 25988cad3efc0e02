//! Whatever a person or a program of theirs writes: questions to the daemon, configuration, XDP objects, P4 sources.
use daemon::protocol::Question;
use engine::{FramePool, ModuleSource, Packet};
use std::path::Path;

/// What the kept P4 sources include.
const COMMON: [(&str, &str); 2] = [
    ("frame.p4", include_str!("../../crates/rmt/tests/p4/frame.p4")),
    ("pipe.p4", include_str!("../../crates/rmt/tests/p4/pipe.p4")),
];

/// A question of the management socket: what was parsed is the same when it is written again.
pub(crate) fn management(bytes: &[u8]) {
    let Ok(question) = serde_json::from_slice::<Question>(bytes) else { return };
    let again = serde_json::to_vec(&question).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<Question>(&again).expect("and read"), question);
}

/// The daemon's configuration file. A refusal is a sentence.
pub(crate) fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(sentence) = daemon::config::parse(text, "fuzz.toml") {
        assert!(!sentence.is_empty());
    }
}

/// An object of an XDP module: parsed, checked, compiled, and run on a frame.
pub(crate) fn xdp(bytes: &[u8]) {
    let limits = xdp::Limits { instructions: 10_000, map_bytes: 1 << 20, replicas: 1, seed: 7 };
    let program = match xdp::Object::parse(bytes).and_then(|object| xdp::Program::load(object, &limits)) {
        Ok(program) => program,
        Err(sentence) => return assert!(!sentence.is_empty()),
    };
    let mut pool = FramePool::new(2);
    for (now, len) in [0, 14, 60, 100].into_iter().enumerate() {
        for mut replica in [program.replica(0), program.interpreted(0)] {
            let mut frame = pool.large();
            frame.resize(len);
            replica.process(Packet { frame: &mut frame, flow: None, now: now as u64 });
        }
    }
}

/// A P4 source. What is accepted runs on a frame.
pub(crate) fn p4(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = |path: &Path| COMMON.iter().find(|(name, _)| path.ends_with(name)).map(|(_, text)| text.to_string());
    match rmt::load_text("fuzz.p4", text.to_string(), &[], &read) {
        Err(list) => assert!(!list.is_empty() && list.iter().all(|problem| !problem.message.is_empty())),
        Ok(loaded) => {
            let mut machine = rmt::interp::Machine::new(loaded.program);
            machine.process(&[(0, &[7; 100])]);
        }
    }
}
