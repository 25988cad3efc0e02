//! Maps that several data-path threads use while an operator changes them: real threads, native code, nobody waits.
mod common;
use common::*;
use engine::{ModuleSource, Verdict};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread::{scope, yield_now};
use std::time::{Duration, Instant};
use xdp::Program;

/// Data-path threads.
const REPLICAS: u32 = 3;
/// Frames that each of them sees at least.
const FRAMES: u32 = 20_000;

/// Frames before the operator begins, and after the end.
const FEW: u32 = 500;

/// Runs `REPLICAS` threads with a replica each on frames from 200 addresses: while the operator works, at least
/// [`FRAMES`] each, and a few before and after. Returns how many frames were seen, and how many of them dropped.
fn under_load(program: &Arc<Program>, operate: impl FnOnce()) -> (u64, u64) {
    let (done, seen, dropped) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let begun = Barrier::new(REPLICAS as usize + 1);
    scope(|threads| {
        for index in 0..REPLICAS {
            let mut replica = program.replica(index);
            let (done, seen, dropped, begun) = (&done, &seen, &dropped, &begun);
            threads.spawn(move || {
                let mut frames: Vec<_> = (0..200).map(|host| frame(&packet(6, [10, 0, 0, host], (1000, 80)))).collect();
                let (mut count, mut left) = (0, FEW);
                while left > 0 {
                    if count == FEW {
                        begun.wait();
                    }
                    left -= u32::from(count > FRAMES && done.load(Relaxed));
                    let at = (count.wrapping_mul(7) + index) as usize % frames.len();
                    match run(&mut *replica, &mut frames[at]) {
                        Verdict::Pass => {}
                        Verdict::Drop => drop(dropped.fetch_add(1, Relaxed)),
                        other => panic!("{other:?}: {:?}", program_fault(program)),
                    }
                    count += 1;
                }
                seen.fetch_add(count.into(), Relaxed);
            });
        }
        begun.wait();
        operate();
        done.store(true, Relaxed);
    });
    assert_eq!(program_fault(program), None);
    (seen.into_inner(), dropped.into_inner())
}

fn program_fault(program: &Program) -> Option<String> {
    program.faults().last
}

const FLOWS: &str = r#"
struct entry { __u64 one, two; };
struct {
    __uint(type, KIND);
    __uint(max_entries, ENTRIES);
    __type(key, __u32);
    __type(value, struct entry);
} flows SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); } seen
    SEC(".maps");
SEC("xdp.frags") int flows_of(struct xdp_md *ctx)
{
    struct iphdr *ip = ipv4(ctx);
    __u32 zero = 0, key;
    __u64 *count = bpf_map_lookup_elem(&seen, &zero);
    if (!ip || !count)
        return XDP_ABORTED;
    __sync_fetch_and_add(count, 1);
    key = ip->saddr;
    struct entry *entry = bpf_map_lookup_elem(&flows, &key);
    if (entry) {
        /* Both are always written with the same number: a torn or foreign value shows. */
        if (entry->one != entry->two)
            return XDP_DROP;
        if (bpf_get_prandom_u32() % 16 == 0)
            bpf_map_delete_elem(&flows, &key);
        return XDP_PASS;
    }
    __u64 number = bpf_get_prandom_u32();
    struct entry fresh = {number, number};
    bpf_map_update_elem(&flows, &key, &fresh, BPF_ANY);
    return XDP_PASS;
}
"#;

/// The bound of a test that waits for a condition.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Entries come and go in the data-path, by several threads at once, and an operator sets, gets, dumps and deletes
/// them.
fn entries_come_and_go(kind: &str, entries: u32) {
    let options = [format!("-DKIND={kind}"), format!("-DENTRIES={entries}")];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let program = load(&compile_with(FLOWS, &options)).unwrap();
    let (mut set, mut refused, mut rounds) = (0, 0, 0);
    let time_limit = Instant::now() + TIMEOUT;
    let (seen, torn) = under_load(&program, || {
        // A thread that has lost its core in the midst of a frame holds all that was removed since. Nothing can be set
        // until it has a core again.
        while rounds < 3000 || (set == 0 && Instant::now() < time_limit) {
            let round = rounds;
            rounds += 1;
            // Addresses as the program sees them, in network order: the last byte stands highest.
            let key = (10 | (round % 200) << 24).to_string();
            let value = format!(r#"{{"one": {round}, "two": {round}}}"#);
            match program.set("flows", &key, &value) {
                Ok(()) => set += 1,
                // Full, or all that could be used again is held: a sentence, and nothing has changed.
                Err(sentence) => refused += usize::from(sentence.contains("flows")),
            }
            let whole = |entry: &Value| assert_eq!(entry["value"]["one"], entry["value"]["two"], "{entry}");
            program.get("flows", &key).iter().for_each(whole);
            if round % 100 == 0 {
                let all = program.dump("flows").unwrap();
                let all = all.as_array().unwrap();
                assert!(all.len() <= entries as usize, "{} entries", all.len());
                all.iter().for_each(whole);
                yield_now();
            }
            // It may be gone already.
            let _ = program.delete("flows", &key);
        }
    });
    assert_eq!(torn, 0, "entries that nobody wrote");
    assert_eq!(program.get("seen", "0").unwrap()["value"], seen, "every frame was counted once");
    assert!(set > 0 && set + refused == rounds as usize, "{set} set, {refused} refused");
}

#[test]
fn a_hash_map() {
    entries_come_and_go("BPF_MAP_TYPE_HASH", 256);
}

#[test]
fn a_hash_map_that_is_too_small() {
    entries_come_and_go("BPF_MAP_TYPE_HASH", 50);
}

#[test]
fn an_lru_hash_map_that_is_too_small() {
    entries_come_and_go("BPF_MAP_TYPE_LRU_HASH", 50);
}

#[test]
fn rules_of_the_firewall_change_under_load() {
    let program = load(&shipped("firewall")).unwrap();
    let (seen, dropped) = under_load(&program, || {
        for round in 0..2000u32 {
            let prefix = format!("10.0.0.{}/32", round % 200);
            shut_out(&program, &prefix);
            if round % 3 > 0 {
                program.delete("rules", &prefix).unwrap();
            }
        }
        shut_out(&program, "10.0.0.0/8");
        (0..200).for_each(|host| drop(program.delete("rules", &format!("10.0.0.{host}/32"))));
    });
    assert!(dropped > 0 && dropped < seen, "{dropped} of {seen} dropped");
    assert_eq!(program.dump("rules").unwrap().as_array().unwrap().len(), 1);
}

/// Sets a rule. While a thread that holds removed entries does not run, there may be none for a new one. Such a thread
/// may get no core for seconds.
fn shut_out(program: &Program, prefix: &str) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        match program.set("rules", prefix, r#"{"action": 1}"#) {
            Err(sentence) if sentence.contains("changing too fast") => yield_now(),
            done => return done.unwrap(),
        }
    }
    panic!("for ever too fast: {prefix}");
}
