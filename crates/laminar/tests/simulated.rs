//! The engine on the simulated RTL of its program: the streams of `transfer`, small ones, both hosts on models. The
//! bytes that arrive are those that were sent.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::{Config, Lab};
use engine::stream::Stream;
use engine::{Backend, Engine, FramePool, Limits, ProgramSource, Runner};
use laminar::{Extensions, Laminar};
use std::path::Path;
use std::process::{Command, Stdio};

/// Names a folder for models: in the environment of the process that runs the streams.
const FOLDER: &str = "XDG_CACHE_HOME";
const MARK: &str = "simulated-models-";
const RTL: Runner = Runner { kind: Backend::Rtl, waveform: None };

fn make(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    Box::new(Laminar::on(&RTL, limits, config.wscale, Extensions::default()).unwrap())
}

fn run(config: Config) {
    Lab::new(Config { bytes: 30_000, engine: make, timestamps: false, ..config }).finish(20);
}

/// What the child process does.
fn streams() {
    run(Config::clean(1));
    run(Config { loss: 5, reorder: 10, duplicate: 5, ecn: true, mark: 10, ..Config::clean(2) });
    run(Config { loss: 20, rx_bytes: 4096, v6: true, iss: u32::MAX - 1449, ..Config::clean(3) });
    let limits = Limits { flows: 8, contexts: 2 };
    let mut engine = Laminar::on(&RTL, limits, 7, Extensions::default()).unwrap();
    let other = ProgramSource { main: "other.p4".into(), files: Vec::new(), defines: Vec::new() };
    let refused = engine.load(&other).expect_err("a model is made when its host starts");
    assert!(refused.contains("RTL"), "{refused}");
    assert_eq!(Engine::failure(&engine), None);
}

#[test]
fn streams_arrive_through_simulated_gates() {
    let here = Command::new("verilator").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !here.is_ok_and(|status| status.success()) {
        println!("skipped: verilator is not installed (tests/setup installs it)");
        return;
    }
    let own = |folder: &String| Path::new(folder).file_name().is_some_and(|n| n.to_string_lossy().starts_with(MARK));
    if std::env::var(FOLDER).is_ok_and(|folder| own(&folder)) {
        return streams();
    }
    // Models go to a folder of the test's own; only a process that begins with it in its environment sees it.
    let folder = std::env::temp_dir().join(format!("{MARK}{}", std::process::id()));
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "streams_arrive_through_simulated_gates"]).env(FOLDER, &folder);
    let output = again.env_remove("CACHE_DIRECTORY").output().unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
}
