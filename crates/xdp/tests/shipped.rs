//! The modules in `xdp/`: what each does to frames.
mod common;
use common::*;
use engine::{Changes, Front, ModuleSource, Stage, Verdict};

#[test]
fn null_passes_everything_and_changes_nothing() {
    let program = load(&shipped("null")).unwrap();
    assert_eq!((program.name(), program.stage()), ("null", Stage::Ingress));
    assert!(!program.whole_frames() && program.changes() == Changes::Nothing);
    let mut replica = program.replica(0);
    assert_eq!(run(&mut *replica, &mut frame(&[0; 60])), Verdict::Pass);
    assert_eq!(run(&mut *replica, &mut frame(&[])), Verdict::Pass);
}

#[test]
fn firewall_passes_without_rules() {
    let program = load(&shipped("firewall")).unwrap();
    assert_eq!(program.changes(), Changes::Nothing);
    let mut replica = program.replica(0);
    assert_eq!(run(&mut *replica, &mut frame(&packet(6, [10, 1, 2, 3], (1, 2)))), Verdict::Pass);
}

#[test]
fn firewall_drops_by_the_longest_prefix_and_counts() {
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

fn tagged(tag: u16) -> Vec<u8> {
    let plain = packet(6, [10, 1, 2, 3], (1, 2));
    let mut bytes = plain[..12].to_vec();
    bytes.extend([0x81, 0]);
    bytes.extend(tag.to_be_bytes());
    bytes.extend(&plain[12..]);
    bytes
}

#[test]
fn vlan_strip_takes_the_tag_off_and_leaves_it_in_metadata() {
    let program = load(&shipped("vlan_strip")).unwrap();
    assert_eq!(program.changes(), Changes::Front(Front { below: 16, strips: 4 }), "addresses, and a tag off");
    let mut replica = program.replica(0);
    let plain = packet(6, [10, 1, 2, 3], (1, 2));
    let mut one = frame(&tagged(0x6005));
    assert_eq!(run(&mut *replica, &mut one), Verdict::Pass);
    assert_eq!(one.bytes(), plain);
    assert_eq!(one.metadata, [0x8100_6005, 0, 0, 0]);
    let mut untagged = frame(&plain);
    assert_eq!(run(&mut *replica, &mut untagged), Verdict::Pass);
    assert_eq!((untagged.bytes(), untagged.metadata), (&plain[..], [0; 4]));
    // Another network than the one in the map keeps its tag.
    program.set("config", "0", r#"{"only": 6}"#).unwrap();
    let mut other = frame(&tagged(5));
    assert_eq!(run(&mut *replica, &mut other), Verdict::Pass);
    assert_eq!(other.bytes(), tagged(5));
    assert_eq!(program.get("config", "0").unwrap()["value"]["stripped"], 1);
}

#[test]
fn vlan_push_is_the_reverse() {
    let program = load(&shipped("vlan_push")).unwrap();
    assert_eq!(program.stage(), Stage::Egress);
    // Where no room is given, it would write as much further behind.
    assert_eq!(program.changes(), Changes::Front(Front { below: 16, strips: 0 }));
    let mut replica = program.replica(0);
    let mut one = frame(&packet(6, [10, 1, 2, 3], (1, 2)));
    run(&mut *replica, &mut one);
    assert_eq!(one.bytes(), packet(6, [10, 1, 2, 3], (1, 2)), "no tag is set");
    program.set("config", "0", r#"{"tag": 5}"#).unwrap();
    assert_eq!(run(&mut *replica, &mut one), Verdict::Pass);
    assert_eq!(one.bytes(), tagged(5));
    run(&mut *replica, &mut one);
    assert_eq!(one.bytes(), tagged(5), "a frame with a tag gets no second one");
}

#[test]
fn classify_counts_by_class_for_each_replica() {
    let program = load(&shipped("classify")).unwrap();
    program.set("rules", r#"{"port": 80, "protocol": 6}"#, "3").unwrap();
    program.set("rules", r#"{"protocol": 17}"#, "4").unwrap();
    let mut replicas = [program.replica(0), program.replica(1)];
    for (replica, protocol, ports) in [(0, 6, (9, 80)), (1, 6, (80, 9)), (0, 6, (9, 9)), (1, 17, (1, 2))] {
        let mut one = frame(&packet(protocol, [10, 0, 0, 9], ports));
        assert_eq!(run(&mut *replicas[replica], &mut one), Verdict::Pass);
    }
    let frames = |class: &str| {
        let entry = program.get("classes", class).unwrap();
        entry["values"].as_array().unwrap().iter().map(|total| total["frames"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(frames("3"), [1, 1, 0, 0]);
    assert_eq!(frames("4"), [0, 1, 0, 0]);
    assert_eq!(frames("0"), [1, 0, 0, 0]);
    assert_eq!(program.get("classes", "3").unwrap()["values"][0]["bytes"], 60);
}

#[test]
fn syn_limit_is_a_token_bucket_for_each_source() {
    let program = load(&shipped("syn_limit")).unwrap();
    program.set("limits", "0", r#"{"per_second": 10, "burst": 3}"#).unwrap();
    let mut replica = program.replica(0);
    let mut syn = |source, now| {
        let mut one = frame(&packet(6, source, (1, 2)));
        replica.process(engine::Packet { frame: &mut one, flow: None, now })
    };
    let second = 1_000_000_000;
    let (good, bad) = (Verdict::Pass, Verdict::Drop);
    let first: Vec<Verdict> = (0..4).map(|_| syn([10, 0, 0, 9], second)).collect();
    assert_eq!(first, [good, good, good, bad]);
    assert_eq!(syn([10, 0, 0, 8], second), good, "another source");
    assert_eq!(syn([10, 0, 0, 9], second + second / 10), good, "a tenth of a second is one more");
    assert_eq!(syn([10, 0, 0, 9], second + second / 10), bad);
    let rested: Vec<Verdict> = (0..4).map(|_| syn([10, 0, 0, 9], 1000 * second)).collect();
    assert_eq!(rested, [good, good, good, bad]);
    assert_eq!(program.get("limits", "0").unwrap()["value"]["dropped"], 3);
}

#[test]
fn every_shipped_module_does_the_same_compiled_and_interpreted() {
    for name in ["null", "firewall", "vlan_strip", "vlan_push", "classify", "syn_limit", "splice"] {
        let object = shipped(name);
        let (native, plain) = (load(&object).unwrap(), load(&object).unwrap());
        let mut replicas = (native.replica(0), plain.interpreted(0));
        for seed in 0..400_u32 {
            let bytes = noisy(seed);
            let mut frames = (frame(&bytes), frame(&bytes));
            let verdicts = (run(&mut *replicas.0, &mut frames.0), run(&mut *replicas.1, &mut frames.1));
            assert_eq!(verdicts.0, verdicts.1, "{name} {seed}");
            assert_eq!(frames.0.bytes(), frames.1.bytes(), "{name} {seed}");
            assert_eq!(frames.0.metadata, frames.1.metadata, "{name} {seed}");
        }
        for map in native.map_infos().iter().filter(|map| map.kind != "ringbuf") {
            assert_eq!(native.dump(&map.name), plain.dump(&map.name), "{name}");
        }
        assert_eq!((native.faults().last, plain.faults().last), (None, None));
    }
}
