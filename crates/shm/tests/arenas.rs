//! A block that a thread frees goes back to the system, whatever was freed before. A test of its own, because the
//! allocator's thresholds are the process'.
#![cfg(target_env = "gnu")]
use shm::reserve::{Allocator, fix_thresholds, give_back};
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const THREADS: usize = 8;
const BLOCK: usize = 3 << 20;

/// KiB of private memory that the process uses.
fn used_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn use_and_free(bytes: usize) {
    drop(black_box(vec![7u8; bytes]));
}

#[test]
fn living_threads_keep_no_large_freed_blocks() {
    fix_thresholds();
    let [all_freed, measured] = [Barrier::new(THREADS + 1), Barrier::new(THREADS + 1)];
    let before = used_kib();
    let after = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // Without the call above, the first block would raise the threshold, and the second one would come from
                // the arena.
                use_and_free(2 * BLOCK);
                use_and_free(BLOCK);
                all_freed.wait();
                measured.wait();
            });
        }
        all_freed.wait();
        give_back();
        let after = used_kib();
        measured.wait();
        after
    });
    let grown = after.saturating_sub(before);
    assert!(grown < 1 << 10, "{THREADS} threads keep {grown} KiB of blocks of {} KiB that they freed", BLOCK >> 10);
}
