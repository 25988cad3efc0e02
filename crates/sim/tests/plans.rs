//! Replays every saved scenario, and a number of random ones.
use engines::EngineKind;
use sim::runner::{Search, run_seeds};
use sim::{Plan, run, run_caught};
use std::path::PathBuf;

/// Random seeds of the ordinary test run, the same ones each time: about a minute of two cores.
const SEEDS: u64 = 1000;

fn plans() -> Vec<(PathBuf, Plan)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| Plan::from_toml(&std::fs::read_to_string(path).unwrap());
    paths
        .into_iter()
        .map(|path| (path.clone(), read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))))
        .collect()
}

#[test]
fn saved_scenarios_pass() {
    for (path, plan) in plans() {
        if let Err(failure) = run_caught(&plan) {
            panic!("{path:?}: {failure}");
        }
    }
}

fn pass(first: u64, count: u64, engine: Option<EngineKind>) {
    let search = Search { first, count, jobs: 2, failures: 3, until: None, engine, zeronic: false };
    let tally = run_seeds(search, |_| ());
    for (seed, failure) in &tally.failures {
        println!("seed {seed} {failure}\n  again: opentoe sim --seed {seed} --shrink, with the engine {engine:?}");
    }
    assert!(tally.failures.is_empty(), "{} scenarios failed", tally.failures.len());
    assert!(tally.figures.completed > count, "too little happened to mean anything: {:?}", tally.figures);
}

#[test]
fn random_scenarios_pass() {
    pass(0, SEEDS, None);
}

/// ZeroNIC hosts have seeds of their own.
#[test]
fn random_scenarios_of_zeronic_pass() {
    let search = Search { first: 0, count: 60, jobs: 2, failures: 3, until: None, engine: None, zeronic: true };
    let tally = run_seeds(search, |_| ());
    assert!(tally.failures.is_empty(), "{:?}; again: opentoe sim --zeronic --seed N --shrink", tally.failures);
    assert!(tally.figures.posts > 1000, "too little happened to mean anything: {:?}", tally.figures);
    for seed in 0..6 {
        let plan = sim::generate::generate_talks(seed);
        assert_eq!((run(&plan), Plan::from_toml(&plan.to_toml())), (run(&plan), Ok(plan.clone())), "seed {seed}");
    }
}

/// Seeds choose Laminar for every fourth host; here all have it.
#[test]
fn random_scenarios_pass_on_laminar() {
    pass(1 << 32, SEEDS / 3, Some(EngineKind::Laminar));
}

#[test]
fn a_scenario_is_the_same_each_time_and_survives_saving() {
    for (path, plan) in plans() {
        let saved = Plan::from_toml(&plan.to_toml()).unwrap();
        assert_eq!(saved, plan, "{path:?}");
        assert_eq!(run(&plan), run(&saved), "{path:?}");
    }
    let random = |seed| sim::generate::generate(seed);
    let taken_over = (2000..).map(random).filter(|plan| !plan.takeovers.is_empty()).take(10);
    for plan in (1000..1020).map(random).chain(taken_over) {
        assert_eq!(run(&plan), run(&plan), "seed {}", plan.seed);
    }
}
