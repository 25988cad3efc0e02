//! Memory of the NIC's half, counted by the allocator (the paper's section 3.2: about 10 MB for 10 K flows).
use memory::{Domain, Key};
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use wire::{Ipv4Tuple, Seq};
use zeronic::{Arrival, Kind, Limits, Memory, Nic, Segment};

static HELD: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: all is left to the system's allocator; only the sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Nothing;

impl Memory for Nothing {
    fn write(&self, _: Domain, _: Key, _: u64, _: &[u8]) -> Result<(), memory::Fault> {
        Ok(())
    }
    fn append(&self, _: Domain, _: Key, _: u64, _: usize, _: &mut Vec<u8>) -> Result<(), memory::Fault> {
        Ok(())
    }
    fn check(&self, _: Domain, _: Key, _: u64, _: u64) -> Result<(), memory::Fault> {
        Ok(())
    }
}

#[test]
fn ten_thousand_flows_are_within_ten_mebibytes() {
    let limits = Limits::default();
    let before = HELD.load(Relaxed);
    let mut nic = Nic::new(limits);
    let tuple = |at: u32| Ipv4Tuple {
        local_ip: Ipv4Addr::LOCALHOST,
        remote_ip: Ipv4Addr::from(at),
        local_port: 1,
        remote_port: 2,
    };
    let ids: Vec<_> = (0..10_000).map(|at| nic.add(tuple(at), Domain(1), Kind::Stream).unwrap()).collect();
    let ids_len = (ids.capacity() * size_of_val(&ids[0])) as isize;
    // One flow takes all it may first: the windows hold all the same.
    let hog = ids[0];
    let post = |nic: &mut Nic, id, at: u64| nic.post_receive(id, Segment { key: Key(1), offset: 8 * at, len: 4 });
    let most = (0..10_000).take_while(|at| post(&mut nic, hog, *at).is_ok()).count();
    assert!((limits.committed - 1..=limits.committed + 16).contains(&most), "{most} entries");
    for id in &ids[1..7_710] {
        assert!((0..127).all(|at| post(&mut nic, *id, at).is_ok()));
    }
    // As many holes as can be remembered.
    let mut holes = 0;
    for (id, at) in ids[1..].iter().flat_map(|id| (0..63).map(move |at| (*id, at))).take(limits.intervals + 1) {
        let placed = nic.place(id, Seq(8 * at + 4), &[0; 1], &Nothing);
        holes += usize::from(placed == Arrival::Placed { skip: 0, len: 1 });
    }
    assert_eq!(holes, limits.intervals);
    let held = HELD.load(Relaxed) - before - ids_len;
    println!("{held} bytes, {:.2} MiB", held as f64 / f64::from(1 << 20));
    assert!(held <= 10 << 20, "{held} bytes");
}
