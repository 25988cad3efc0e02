//! Seeds on the simulated RTL of Laminar's program: each scenario has the same figures and the same segments as with
//! native code.
use engine::Backend;
use engines::EngineKind;
use sim::generate::generate_on;
use sim::{Failure, Figures, Plan, Record, run_recorded};
use std::process::{Command, Stdio};

/// Names the folder for models, in the environment of the process that runs the seeds.
const FOLDER: &str = "XDG_CACHE_HOME";
/// Stored between runs: a model takes half a minute to build.
const MODELS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/models");

/// The scenario of a seed on Laminar. All hosts have the sizes of one model: its flows, its window shift, and no
/// timestamps, which TIMELY needs.
fn scenario(seed: u64, backend: Backend) -> Plan {
    let mut plan = generate_on(seed, Some(EngineKind::Laminar));
    for host in &mut plan.hosts {
        host.backend = backend;
        (host.flows, host.rx_bytes, host.long_path_bytes) = (1024, 16_384, 0);
        (host.context_bytes, host.small_bytes) = (0, 0);
        if host.congestion == "timely" {
            host.congestion = "dctcp".into();
        }
    }
    plan
}

fn run(plan: &Plan) -> (Result<Figures, Failure>, Vec<String>) {
    let mut trace = Vec::new();
    (run_recorded(plan, Record { trace: Some(&mut trace), capture: None }), trace)
}

fn seeds_agree(seeds: std::ops::Range<u64>) {
    let mut completed = 0;
    for seed in seeds {
        let (native, gates) = (scenario(seed, Backend::Native), scenario(seed, Backend::Rtl));
        assert_eq!(Plan::from_toml(&gates.to_toml()).as_ref(), Ok(&gates), "seed {seed}");
        let (expected, seen) = (run(&native), run(&gates));
        assert_eq!(seen, expected, "seed {seed}");
        completed += seen.0.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")).completed;
    }
    println!("{completed} connections completed");
    assert!(completed > 0, "something happened");
}

/// Runs a test's seeds in a process of its own, which has the folder for models in its environment.
fn beside(test: &str, seeds: std::ops::Range<u64>) {
    if std::env::var(FOLDER).is_ok_and(|folder| folder == MODELS) {
        return seeds_agree(seeds);
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--include-ignored", "--nocapture"]).env(FOLDER, MODELS);
    let output = again.env_remove("CACHE_DIRECTORY").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    println!("{printed}");
}

#[test]
fn a_few_seeds_pass_through_simulated_gates() {
    let here = Command::new("verilator").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if here.is_ok_and(|status| status.success()) {
        beside("a_few_seeds_pass_through_simulated_gates", 0..3);
    } else {
        println!("skipped: verilator is not installed (tests/setup installs it)");
    }
}

#[test]
#[ignore = "minutes: make rtl runs it"]
fn many_seeds_pass_through_simulated_gates() {
    beside("many_seeds_pass_through_simulated_gates", 3..60);
}
