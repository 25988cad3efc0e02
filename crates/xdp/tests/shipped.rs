//! The modules in `xdp/`: what each does to frames.
mod common;
use common::*;
use engine::{ModuleSource, Stage, Verdict};

#[test]
fn null_passes_everything_and_changes_nothing() {
    let program = load(&shipped("null")).unwrap();
    assert_eq!((program.name(), program.stage()), ("null", Stage::Ingress));
    assert!(!program.whole_frames() && !program.changes_frames());
    let mut replica = program.replica(0);
    assert_eq!(run(&mut *replica, &mut frame(&[0; 60])), Verdict::Pass);
    assert_eq!(run(&mut *replica, &mut frame(&[])), Verdict::Pass);
}

#[test]
fn firewall_passes_without_rules() {
    let program = load(&shipped("firewall")).unwrap();
    assert!(!program.changes_frames());
    let mut replica = program.replica(0);
    assert_eq!(run(&mut *replica, &mut frame(&packet(6, [10, 1, 2, 3], (1, 2)))), Verdict::Pass);
}

#[test]
fn firewall_drops_what_the_longest_prefix_says_and_counts() {
    let program = load(&shipped("firewall")).unwrap();
    let mut replica = program.replica(0);
    program.set("rules", "10.0.0.0/8", r#"{"action": 1}"#).unwrap();
    program.set("rules", "10.1.0.0/16", r#"{"action": 0}"#).unwrap();
    let mut from = |source| run(&mut *replica, &mut frame(&packet(6, source, (1, 2))));
    assert_eq!(from([10, 2, 2, 3]), Verdict::Drop);
    assert_eq!(from([10, 2, 2, 4]), Verdict::Drop);
    assert_eq!(from([10, 1, 2, 3]), Verdict::Pass);
    assert_eq!(from([11, 1, 2, 3]), Verdict::Pass);
    let rule = program.get("rules", "10.0.0.0/8").unwrap();
    assert_eq!(rule["key"], "10.0.0.0/8");
    assert_eq!(rule["value"]["frames"], 2);
    program.delete("rules", "10.0.0.0/8").unwrap();
    assert_eq!(from([10, 2, 2, 3]), Verdict::Pass);
    assert_eq!(program.faults().last, None);
}
