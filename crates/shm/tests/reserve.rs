//! A process without memory goes on with its reserve, and reports that. A test of its own, because its limit is the
//! process'.
use shm::reserve::{Allocator, BYTES, is_short, keep};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Bytes of private memory that the process has, and is limited to.
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn limit(bytes: u64) {
    // The hard limit stays, so that the soft one can be raised again.
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a plain system call with a value of the right shape.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
}

#[test]
fn a_failed_allocation_gets_the_reserve() {
    assert!(!is_short(), "nobody keeps one");
    assert!(keep() && keep() && !is_short());
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(2000);
    limit(data_bytes() + (1 << 20));
    // The allocator may have some left of its own.
    while !is_short() {
        assert!(blocks.len() < 1500, "the limit is none");
        blocks.push(vec![7; 64 << 10]);
    }
    // What is there can still be served.
    let before = blocks.len();
    (0..BYTES / 2 / (64 << 10)).for_each(|_| blocks.push(vec![8; 64 << 10]));
    assert!(is_short());
    let sound = |(at, block): (usize, &Vec<u8>)| block.iter().all(|byte| *byte == if at < before { 7 } else { 8 });
    assert!(blocks.iter().enumerate().all(sound));
    // Memory comes back.
    limit(libc::RLIM_INFINITY);
    assert!(!is_short());
    blocks.push(vec![9; 4 << 20]);
    assert!(!is_short());
}
