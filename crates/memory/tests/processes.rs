//! Memory of another process, as the daemon reaches it: the program is `examples/registrant.rs`.
//! `cargo test -p memory` builds it; with `--test processes` alone, build it before (`cargo build --examples`).
#[path = "support/process.rs"]
mod process;

use memory::{Access, AddressSpace, Description, Domain, Fault, Key, Limits, MemoryTable, Rights, WritePiece};
use process::{Described, Process};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Of the program's regions.
const LEN: usize = 10_007;
const US: Domain = Domain(1);
const ALL: u32 = 15;

struct Program {
    process: Process,
    table: Arc<MemoryTable>,
    space: Option<Arc<AddressSpace>>,
}

impl Program {
    /// With `quiet`, without threads that write beside the regions.
    fn start(quiet: bool) -> Program {
        Program::start_as(quiet, None)
    }

    fn start_as(quiet: bool, user: Option<u32>) -> Program {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("toe-registrant-{}-{number}", std::process::id()));
        let table = Arc::new(MemoryTable::new(Limits::default()).unwrap());
        Program { process: Process::start("registrant", &path, quiet, user), table, space: None }
    }

    fn ask(&self, command: &str) -> Vec<u8> {
        self.process.ask(command)
    }

    /// The description that the program makes, with its files; otherwise the error number.
    fn describe(&mut self, command: &str) -> Result<(Description, Vec<OwnedFd>), i32> {
        let Described { description, space, files } = self.process.describe(command)?;
        self.space.get_or_insert_with(|| Arc::new(AddressSpace::from_fd(space).unwrap()));
        Ok((description, files))
    }

    fn register_part(&mut self, area: &str, rights: u32, first: i64, bytes: usize) -> Result<Key, i32> {
        let (description, files) = self.describe(&format!("register {area} {rights} {first} {bytes}"))?;
        let made = self.table.register(US, &description, &files, self.space.as_ref());
        made.map_err(|refusal| refusal.errno())
    }

    fn register(&mut self, area: &str) -> Key {
        self.register_part(area, ALL, 0, LEN).unwrap()
    }

    fn write(&self, key: Key, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.table.open(US, key, Access::RemoteWrite)?.write(at, bytes)
    }

    fn read(&self, key: Key, at: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
        let mut copy = vec![0; bytes];
        self.table.open(US, key, Access::RemoteRead)?.read(at, &mut copy)?;
        Ok(copy)
    }
}

/// Some huge pages for a test, where it may have them; given back afterwards.
struct HugePages(String);

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    fn raise() -> Option<HugePages> {
        let before = std::fs::read_to_string(HUGE_PAGES).ok()?;
        let number: u64 = before.trim().parse().ok()?;
        std::fs::write(HUGE_PAGES, (number + 4).to_string()).ok()?;
        let got: u64 = std::fs::read_to_string(HUGE_PAGES).ok()?.trim().parse().ok()?;
        let raised = HugePages(before);
        (got == number + 4).then_some(raised)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(HUGE_PAGES, &self.0);
    }
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// A part of the region, often one that touches its first or last byte, and bytes for it.
    fn part(&mut self) -> (usize, Vec<u8>) {
        let (at, len) = match self.below(3) {
            0 => (0, 1 + self.below(LEN)),
            1 => {
                let len = 1 + self.below(LEN);
                (LEN - len, len)
            }
            _ => {
                let at = self.below(LEN);
                (at, 1 + self.below(LEN - at))
            }
        };
        (at, (0..len).map(|_| self.below(256) as u8).collect())
    }
}

#[test]
fn every_kind_of_memory_is_accessed_in_place() {
    let pages = HugePages::raise();
    let mut program = Program::start(false);
    let areas = program.process.areas();
    for kind in
        ["heap", "stack", "thread-stack", "static", "anonymous-shared", "memfd-sealed", "shm", "sysv", "crossing"]
    {
        assert!(areas.iter().any(|area| area == kind), "no {kind}");
    }
    for kind in ["huge", "huge-shared"] {
        let found = areas.iter().any(|area| area == kind);
        assert!(found || pages.is_none(), "no {kind} memory, although there are huge pages");
    }
    for area in areas.iter().filter(|area| *area != "read-only") {
        let key = program.register(area);
        let mut expected = program.ask(&format!("show {area}"));
        assert_eq!(program.read(key, 0, LEN).unwrap(), expected, "{area}");
        let mut dice = Dice(7);
        for _ in 0..200 {
            let (at, bytes) = dice.part();
            program.write(key, at as u64, &bytes).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            let (at, bytes) = dice.part();
            assert_eq!(program.read(key, at as u64, bytes.len()).unwrap(), expected[at..at + bytes.len()], "{area}");
        }
        assert!(program.ask(&format!("show {area}")) == expected, "{area}: not the bytes that were written");
        // And what the program writes is read.
        program.ask(&format!("fill {area} 91"));
        assert_eq!(program.read(key, 0, LEN).unwrap(), [91; LEN], "{area}");
        program.table.deregister(US, key).unwrap();
    }
    assert_eq!(program.process.lost(), 0, "writes of the program's own threads were lost");
}

#[test]
fn pieces_and_the_last_byte() {
    let mut program = Program::start(false);
    for area in ["heap", "memfd-sealed", "crossing"] {
        let key = program.register(area);
        program.ask(&format!("fill {area} 0"));
        let lease = program.table.open(US, key, Access::LocalWrite).unwrap();
        let pieces = [(10, &b"one"[..]), (4090, b"over a border"), (LEN as u64 - 4, b"last")];
        let pieces = pieces.map(|(at, from)| WritePiece { at, from });
        lease.scatter(&pieces).unwrap();
        lease.write_last(100, b"message").unwrap();
        let beyond = [WritePiece { at: 0, from: b"x" }, WritePiece { at: LEN as u64 - 1, from: b"xy" }];
        assert_eq!(lease.scatter(&beyond), Err(Fault::Bounds));
        drop(lease);
        let mut expected = vec![0; LEN];
        for WritePiece { at, from } in pieces.into_iter().chain([WritePiece { at: 100, from: b"message" }]) {
            expected[at as usize..at as usize + from.len()].copy_from_slice(from);
        }
        assert_eq!(program.ask(&format!("show {area}")), expected, "{area}");
        let (mut first, mut second) = ([0; 3], [0; 13]);
        let lease = program.table.open(US, key, Access::LocalRead).unwrap();
        let mut wanted =
            [memory::ReadPiece { at: 10, into: &mut first }, memory::ReadPiece { at: 4090, into: &mut second }];
        lease.gather(&mut wanted).unwrap();
        assert_eq!((&first, &second), (b"one", b"over a border"));
        assert_eq!(lease.write(0, b"x"), Err(Fault::Rights));
    }
    assert_eq!(program.process.lost(), 0);
}

#[test]
fn sealed_memory_is_mapped_and_other_goes_by_the_kernel() {
    let mut program = Program::start(true);
    for area in program.process.areas().iter().filter(|area| *area != "read-only") {
        let key = program.register(area);
        let waits = program.table.open(US, key, Access::LocalRead).unwrap().may_wait();
        assert_eq!(waits, !matches!(area.as_str(), "memfd-sealed" | "large-sealed"), "{area}");
    }
}

#[test]
fn after_fork_the_child_has_what_was_there() {
    let mut program = Program::start(true);
    for area in ["heap", "stack", "static", "transparent-huge", "file-private", "memfd-sealed", "shm"] {
        let shared = matches!(area, "memfd-sealed" | "shm");
        let key = program.register(area);
        program.ask(&format!("fill {area} 1"));
        program.ask(&format!("fork {area}"));
        // The first write after fork, from outside: into the parent's page, not into the one that both still have.
        program.write(key, 0, &[2; LEN]).unwrap();
        assert_eq!(program.ask(&format!("show {area}")), [2; LEN], "{area}");
        assert_eq!(program.ask("child-shows"), [if shared { 2 } else { 1 }; LEN], "{area}");
        assert_eq!(program.ask("child-writes"), [0xC7; LEN], "{area}");
        let parents = if shared { 0xC7 } else { 2 };
        assert_eq!(program.read(key, 0, LEN).unwrap(), [parents; LEN], "{area}");
        assert_eq!(program.ask(&format!("show {area}")), [parents; LEN], "{area}");
        // Again with the child's own pages, and once more when it is gone.
        program.write(key, 5, &[3; 5000]).unwrap();
        assert_eq!(program.ask("child-shows")[5], if shared { 3 } else { 0xC7 }, "{area}");
        program.ask("child-ends");
        program.write(key, 0, &[4; LEN]).unwrap();
        assert_eq!(program.ask(&format!("show {area}")), [4; LEN], "{area}");
    }
}

#[test]
fn the_program_does_not_keep_a_descriptor_of_its_memory() {
    let mut program = Program::start(true);
    program.register("heap");
    program.ask("areas");
    let folder = std::fs::read_dir(format!("/proc/{}/fd", program.process.child.id())).unwrap();
    let open: Vec<PathBuf> = folder.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect();
    assert!(open.len() > 3 && open.iter().all(|path| !path.ends_with("mem")), "{open:?}");
}

#[test]
fn what_is_not_mapped_or_may_not_be_written_is_refused() {
    let mut program = Program::start(true);
    let fault = Err(libc::EFAULT);
    assert_eq!(program.register_part("read-only", 1, 0, LEN), fault);
    assert_eq!(program.register_part("read-only", 7, 0, LEN), fault);
    let key = program.register_part("read-only", 4, 0, LEN).unwrap();
    assert_eq!(program.read(key, 0, LEN).unwrap(), [0; LEN]);
    assert_eq!(program.write(key, 0, b"x"), Err(Fault::Rights));
    assert_eq!(program.register_part("anonymous", 1, 0, 1 << 40), fault);
    assert_eq!(program.register_part("anonymous", 1, i64::MAX - (1 << 47), 1), fault);
    assert_eq!(program.register_part("anonymous", 1, 0, 0), Err(libc::EINVAL));
    assert_eq!(program.register_part("anonymous", 2, 0, 10), Err(libc::EINVAL));
}

#[test]
fn a_page_that_goes_later_is_a_fault_and_nothing_else() {
    let mut program = Program::start(true);
    let key = program.register("anonymous");
    let shared = program.register("memfd-sealed");
    program.write(key, 0, b"x").unwrap();
    program.ask("unmap anonymous");
    assert_eq!(program.write(key, 0, b"x"), Err(Fault::Unmapped));
    assert_eq!(program.read(key, 77, 5000), Err(Fault::Unmapped));
    // The data-path has the memfd's pages for itself.
    program.ask("unmap memfd-sealed");
    program.write(shared, 0, b"x").unwrap();
    assert_eq!(program.ask("truncate memfd-sealed"), b"refused");
}

#[test]
fn a_file_that_shrinks_is_a_fault_and_nothing_else() {
    let mut program = Program::start(true);
    for area in ["file-shared", "shm", "memfd"] {
        let key = program.register(area);
        program.write(key, 0, b"x").unwrap();
        assert_eq!(program.ask(&format!("truncate {area}")), b"done");
        assert_eq!(program.write(key, 0, b"x"), Err(Fault::Unmapped), "{area}");
        assert_eq!(program.read(key, 0, LEN), Err(Fault::Unmapped), "{area}");
    }
}

#[test]
fn memory_goes_with_a_killed_or_replaced_program() {
    for exec in [false, true] {
        let mut program = Program::start(true);
        let keys = [program.register("heap"), program.register("stack"), program.register("shm")];
        let shared = program.register("memfd-sealed");
        if exec {
            program.ask("exec");
        } else {
            program.process.child.kill().unwrap();
            program.process.child.wait().unwrap();
        }
        let began = Instant::now();
        while program.write(keys[0], 0, b"x").is_ok() {
            assert!(began.elapsed() < Duration::from_secs(60), "the old program is still there");
        }
        for key in keys {
            assert_eq!(program.write(key, 0, b"x"), Err(Fault::Unmapped));
            assert_eq!(program.read(key, 0, 5), Err(Fault::Unmapped));
        }
        program.write(shared, 0, b"x").unwrap();
        assert_eq!(program.table.usage(US).0, 4);
        assert!(program.table.remove(US));
        assert_eq!(program.table.usage(US), (0, 0));
        assert_eq!(program.write(shared, 0, b"x"), Err(Fault::Key));
    }
}

#[test]
fn wrong_keys_bounds_and_rights() {
    let mut program = Program::start(true);
    for area in ["heap", "memfd-sealed"] {
        let key = program.register_part(area, 5, 0, LEN).unwrap();
        assert_eq!(program.write(Key(key.0 ^ 1), 0, b"x"), Err(Fault::Key));
        assert_eq!(program.write(Key(key.0 ^ 1 << 31), 0, b"x"), Err(Fault::Key));
        assert!(matches!(program.table.open(Domain(2), key, Access::LocalRead), Err(Fault::Key)));
        assert_eq!(program.table.deregister(Domain(2), key), Err(Fault::Key));
        // Local write and remote read are granted.
        assert_eq!(program.write(key, 0, b"x"), Err(Fault::Rights));
        assert!(matches!(program.table.open(US, key, Access::RemoteAtomic), Err(Fault::Rights)));
        let lease = program.table.open(US, key, Access::LocalWrite).unwrap();
        assert_eq!(lease.len(), LEN as u64);
        for (at, len) in [(LEN as u64, 1), (LEN as u64 - 1, 2), (0, LEN + 1), (u64::MAX, 1), (u64::MAX - 3, 5)] {
            assert_eq!(lease.write(at, &vec![0; len]), Err(Fault::Bounds), "{at} {len}");
        }
        lease.write(LEN as u64, b"").unwrap();
        lease.write(LEN as u64 - 1, b"x").unwrap();
        drop(lease);
        program.table.deregister(US, key).unwrap();
        assert_eq!(program.read(key, 0, 1), Err(Fault::Key));
        assert_eq!(program.table.deregister(US, key), Err(Fault::Key));
        let again = program.register(area);
        assert_ne!(again, key);
    }
}

#[test]
fn atomics() {
    let mut program = Program::start(false);
    for area in ["heap", "memfd-sealed", "crossing"] {
        // The regions begin at an odd address.
        let key = program.register(area);
        let first = program.table.open(US, key, Access::RemoteAtomic).unwrap();
        let aligned = (8 - first.address() % 8) % 8;
        program.ask(&format!("fill {area} 0"));
        assert_eq!(first.fetch_add(aligned + 1, 1), Err(Fault::Alignment));
        assert_eq!(first.fetch_add(LEN as u64, 1), Err(Fault::Bounds));
        assert_eq!(first.compare_swap(aligned, 1, 2), Ok(0));
        assert_eq!(first.compare_swap(aligned, 0, 40), Ok(0));
        assert_eq!(first.write(0, b"x"), Err(Fault::Rights));
        drop(first);
        // Several of the data-path's threads add: none is lost.
        let table = &program.table;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    for _ in 0..2000 {
                        table.open(US, key, Access::RemoteAtomic).unwrap().fetch_add(aligned, 1).unwrap();
                    }
                });
            }
        });
        let shown = program.ask(&format!("show {area}"));
        let at = aligned as usize;
        assert_eq!(u64::from_ne_bytes(shown[at..at + 8].try_into().unwrap()), 8040, "{area}");
    }
}

#[test]
fn nothing_is_written_after_deregistration() {
    let mut program = Program::start(false);
    for area in ["heap", "memfd-sealed", "crossing"] {
        for round in 0..40 {
            let key = program.register(area);
            let (stop, written) = (AtomicBool::new(false), AtomicU32::new(0));
            thread::scope(|scope| {
                for thread in 0..2u8 {
                    let (table, stop, written) = (&program.table, &stop, &written);
                    scope.spawn(move || {
                        let bytes = vec![0xE0 + thread; LEN];
                        while !stop.load(SeqCst) {
                            match table.open(US, key, Access::RemoteWrite).and_then(|lease| lease.write(0, &bytes)) {
                                Ok(()) => written.fetch_add(1, SeqCst),
                                Err(fault) => return assert_eq!(fault, Fault::Key),
                            };
                        }
                    });
                }
                while written.load(SeqCst) < 1 + round {
                    thread::yield_now();
                }
                program.table.deregister(US, key).unwrap();
                program.ask(&format!("fill {area} 17"));
                thread::yield_now();
                assert!(program.ask(&format!("show {area}")) == [17; LEN], "{area}: written after deregistration");
                stop.store(true, SeqCst);
            });
        }
    }
    assert_eq!(program.process.lost(), 0);
}

#[test]
fn the_data_path_may_be_another_user_without_rights() {
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can start a program of another user");
        return;
    }
    let mut program = Program::start_as(true, Some(65_534));
    let pid = program.process.child.id() as i32;
    // One thread only becomes another user, and so has no capability.
    let thread = thread::spawn(move || {
        // SAFETY: made by number, the call changes this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 4711, 4711, 4711) }, 0);
        for area in ["heap", "stack", "memfd-sealed"] {
            let key = program.register(area);
            program.write(key, 0, &[7; LEN]).unwrap();
            assert_eq!(program.read(key, 0, LEN).unwrap(), [7; LEN]);
            assert_eq!(program.ask(&format!("show {area}")), [7; LEN]);
        }
        // What a number of a process would need, this user does not have: that is why descriptors are handed over.
        let key = program.register("heap");
        let (mut byte, remote) = (0u8, program.table.open(US, key, Access::LocalRead).unwrap().address());
        let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let there = libc::iovec { iov_base: remote as *mut _, iov_len: 1 };
        // SAFETY: one byte into a local one.
        assert_eq!(unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) }, -1);
        program
    });
    drop(thread.join().unwrap());
}

#[test]
fn a_program_that_withholds_its_pages_lets_nobody_wait() {
    let mut program = Program::start(true);
    let key = program.register("anonymous");
    program.write(key, 0, b"x").unwrap();
    if program.ask("withhold anonymous") != b"done" {
        println!("skipped: userfaultfd is for root here");
        return;
    }
    // A read of the program's own, or process_vm_readv, would wait until the program answers: for ever.
    assert_eq!(program.read(key, 0, 10), Err(Fault::Unmapped));
    assert_eq!(program.write(key, 5000, b"x"), Err(Fault::Unmapped));
}

#[test]
fn an_untrue_description_reaches_nothing_else() {
    let mut program = Program::start(true);
    let (mut description, files) = program.describe(&format!("register memfd-sealed 15 0 {LEN}")).unwrap();
    let refused = |description: &Description, files: &[OwnedFd]| {
        program.table.register(US, description, files, program.space.as_ref()).map(drop).unwrap_err().errno()
    };
    description.extents[0].len += 1 << 20;
    assert_eq!(refused(&description, &files), libc::EINVAL);
    assert_eq!(refused(&description, &[]), libc::EINVAL);
    let imitation: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
    description.extents[0].len = 1;
    assert_eq!(refused(&description, &[imitation]), libc::EINVAL);
    description.extents[0].way = memory::AccessPath::Kernel;
    let without = program.table.register(US, &description, &[], None);
    assert_eq!(without.map(drop).unwrap_err().errno(), libc::EINVAL);
    description.rights = Rights::REMOTE_WRITE;
    assert_eq!(refused(&description, &[]), libc::EINVAL);
}

/// What the ways cost, beside a copy between two buffers of this process. Printed, not judged: `cargo test --release -p
/// memory --test processes -- --ignored --nocapture cost`.
#[test]
#[ignore = "it measures, and needs the machine for itself"]
fn cost() {
    const ROOM: usize = 8 << 20;
    // Short and many: the best ones are those that nobody else disturbed.
    const ROUNDS: usize = 300;
    let mut program = Program::start(true);
    let regions = ["large", "transparent-huge", "large-sealed"].map(|area| {
        let room = if area == "transparent-huge" { 2 << 20 } else { ROOM };
        (area, program.register_part(area, ALL, 0, room - 4096).unwrap(), room)
    });
    let (mut buffer, from) = (vec![1u8; ROOM], vec![2u8; ROOM]);
    println!("{:>8} {:>10}   ns a call: write, read by way (and as a multiple of the copy)", "bytes", "copy");
    for len in [8usize, 64, 1024, 4096, 16_384, 65_536, 1 << 20] {
        let rounds = (256usize << 10).div_ceil(len).min(50);
        let at = |round: usize, room: usize| round * 5 * len.max(64) % (room - len - 4096) / 64 * 64;
        let time = |body: &mut dyn FnMut(usize)| {
            let began = Instant::now();
            (0..rounds).for_each(body);
            began.elapsed().as_nanos() as f64 / rounds as f64
        };
        let mut best = [f64::MAX; 7];
        for _ in 0..ROUNDS {
            let copied = time(&mut |round| {
                let (to, from) = (&mut buffer[at(round, ROOM)..][..len], &from[at(round, ROOM)..][..len]);
                to.copy_from_slice(std::hint::black_box(from));
            });
            best[0] = best[0].min(copied);
            for (index, (_, key, room)) in regions.iter().enumerate() {
                let written = time(&mut |round| {
                    let at = at(round, *room);
                    let lease = program.table.open(US, *key, Access::RemoteWrite).unwrap();
                    lease.write(at as u64, &from[at..at + len]).unwrap();
                });
                let read = time(&mut |round| {
                    let at = at(round, *room);
                    let lease = program.table.open(US, *key, Access::RemoteRead).unwrap();
                    lease.read(at as u64, &mut buffer[at..at + len]).unwrap();
                });
                best[1 + 2 * index] = best[1 + 2 * index].min(written);
                best[2 + 2 * index] = best[2 + 2 * index].min(read);
            }
        }
        print!("{len:>8} {:>10.0}", best[0]);
        for (index, (area, ..)) in regions.iter().enumerate() {
            let (write, read) = (best[1 + 2 * index], best[2 + 2 * index]);
            print!("   {area} {write:.0}, {read:.0} ({:.2}, {:.2})", write / best[0], read / best[0]);
        }
        println!();
    }
}
