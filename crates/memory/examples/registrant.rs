//! A program that registers memory of every kind, for the tests: it obeys what comes over a socket. Meanwhile threads
//! of its own write the bytes directly before and behind each region, and check whether what they wrote stays.
//!
//! `registrant SOCKET`. A command is a line of words; each has one answer.
use memory::{Registrar, Rights};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use shm::handover;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{ptr, thread};

/// Bytes of each area, and the part of it that is registered: neither begins nor ends with a page.
const AREA: usize = 16_384;
const LEAD: usize = 1123;
const LEN: usize = 10_007;
/// Bytes on either side that the program's own threads write all the time.
const BESIDE: usize = 5;
const HUGE: usize = 2 << 20;
/// For measuring.
const LARGE: usize = 16 << 20;

static mut STATIC: [u8; AREA] = [7; AREA];
static LOST: AtomicU64 = AtomicU64::new(0);
static ROUNDS: AtomicU64 = AtomicU64::new(0);

/// Memory of one kind.
#[derive(Clone, Copy)]
struct Area {
    name: &'static str,
    base: usize,
    /// Its file can be made shorter.
    file: i32,
    neighbours: bool,
}

fn map(len: usize, flags: i32, file: i32, offset: i64) -> Option<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file, offset) };
    (base != libc::MAP_FAILED).then_some(base as usize)
}

fn keep(fd: OwnedFd) -> i32 {
    use std::os::fd::IntoRawFd;
    fd.into_raw_fd()
}

fn memfd(flags: MemfdFlags, len: usize, seals: SealFlags) -> Option<i32> {
    let fd = memfd_create(c"registrant", MemfdFlags::CLOEXEC | flags).ok()?;
    ftruncate(&fd, len as u64).ok()?;
    if !seals.is_empty() {
        fcntl_add_seals(&fd, seals).ok()?;
    }
    Some(keep(fd))
}

/// A file without a name, of [`AREA`] bytes.
fn file_in(folder: &Path) -> i32 {
    let path = folder.join(format!("registrant-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("its name goes");
    file.set_len(AREA as u64).expect("a length");
    keep(file.into())
}

/// Private memory, a sealed memfd and a file, side by side: the region crosses both borders.
fn crossing() -> Option<usize> {
    let base = map(AREA, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
    let memfd = memfd(MemfdFlags::ALLOW_SEALING, AREA, SealFlags::SHRINK)?;
    for (page, file) in [(1, memfd), (2, file_in(&std::env::temp_dir()))] {
        let (flags, protection) = (libc::MAP_SHARED | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: replaces one page of the mapping that was just made, which nobody uses yet.
        let at = unsafe { libc::mmap((base + page * 4096) as *mut _, 4096, protection, flags, file, 4096) };
        assert_ne!(at, libc::MAP_FAILED);
    }
    Some(base)
}

fn sysv() -> Option<usize> {
    // SAFETY: a segment of its own, which goes with its last user.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, AREA, 0o600 | libc::IPC_CREAT);
        let base = libc::shmat(id, ptr::null(), 0);
        libc::shmctl(id, libc::IPC_RMID, ptr::null_mut());
        (base as isize != -1).then_some(base as usize)
    }
}

fn areas(stack: usize, thread_stack: usize) -> Vec<Area> {
    let (private, shared) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
    let anonymous = libc::MAP_ANONYMOUS;
    let open = memfd(MemfdFlags::ALLOW_SEALING, AREA, SealFlags::empty()).unwrap_or(-1);
    let sealed = memfd(MemfdFlags::ALLOW_SEALING, AREA, SealFlags::SHRINK).unwrap_or(-1);
    let large = memfd(MemfdFlags::ALLOW_SEALING, LARGE, SealFlags::SHRINK).unwrap_or(-1);
    let huge = memfd(MemfdFlags::HUGETLB, HUGE, SealFlags::empty()).unwrap_or(-1);
    let file = file_in(&std::env::temp_dir());
    let shm = file_in(Path::new("/dev/shm"));
    let transparent = map(4 * HUGE, private | anonymous, -1, 0).map(|base| {
        let base = base.next_multiple_of(HUGE);
        // SAFETY: advice about a mapping that was just made.
        unsafe { libc::madvise(base as *mut _, HUGE, libc::MADV_HUGEPAGE) };
        base
    });
    let heap = Box::leak(vec![0u8; AREA].into_boxed_slice()).as_mut_ptr() as usize;
    let read_only = map(AREA, private | anonymous, -1, 0);
    let all = [
        ("heap", Some(heap), -1),
        ("stack", Some(stack), -1),
        ("thread-stack", Some(thread_stack), -1),
        ("static", Some((&raw mut STATIC) as usize), -1),
        ("huge", map(HUGE, private | anonymous | libc::MAP_HUGETLB, -1, 0), -1),
        ("huge-shared", map(HUGE, shared, huge, 0), -1),
        ("transparent-huge", transparent, -1),
        ("anonymous", map(AREA, private | anonymous, -1, 0), -1),
        ("anonymous-shared", map(AREA, shared | anonymous, -1, 0), -1),
        ("memfd", map(AREA, shared, open, 0), open),
        ("memfd-sealed", map(AREA, shared, sealed, 0), sealed),
        ("shm", map(AREA, shared, shm, 0), shm),
        ("sysv", sysv(), -1),
        ("file-shared", map(AREA, shared, file, 0), file),
        ("file-private", map(AREA, private, file_in(&std::env::temp_dir()), 0), -1),
        ("crossing", crossing(), -1),
        ("large", map(LARGE, private | anonymous, -1, 0), -1),
        ("large-sealed", map(LARGE, shared, large, 0), -1),
        ("read-only", read_only, -1),
    ];
    let found = all.into_iter().filter_map(|(name, base, file)| {
        let neighbours = name != "read-only";
        Some(Area { name, base: base?, file, neighbours })
    });
    let found: Vec<Area> = found.collect();
    for area in found.iter().filter(|area| area.name.starts_with("large")) {
        // SAFETY: a mapping of this length, which nobody uses yet.
        unsafe { ptr::write_bytes(area.base as *mut u8, 9, LARGE) };
    }
    for area in found.iter().filter(|area| area.name == "read-only") {
        // SAFETY: a mapping that only this program's commands touch.
        unsafe { libc::mprotect(area.base as *mut _, AREA, libc::PROT_READ) };
    }
    found
}

/// Writes a byte and checks whether it stays, for ever: writing back a whole page would lose some.
fn write_beside(places: Vec<usize>) {
    for round in 1u64.. {
        let byte = round as u8;
        for place in &places {
            // SAFETY: bytes of areas that stay mapped, which only this thread writes.
            unsafe { ptr::write_volatile(*place as *mut u8, byte) };
        }
        // In half of the rounds, somebody else comes in between also where there is one core for all.
        if round % 2 == 0 {
            thread::yield_now();
        }
        for place in &places {
            // SAFETY: as above.
            if unsafe { ptr::read_volatile(*place as *const u8) } != byte {
                LOST.fetch_add(1, Relaxed);
            }
        }
        ROUNDS.fetch_add(1, Relaxed);
    }
}

fn start_neighbours(areas: &[Area]) {
    let with = || areas.iter().filter(|area| area.neighbours).map(|area| area.base + LEAD);
    let before = with().flat_map(|at| at - BESIDE..at).collect();
    let behind = with().flat_map(|at| at + LEN..at + LEN + BESIDE).collect();
    thread::spawn(move || write_beside(before));
    thread::spawn(move || write_beside(behind));
}

fn region_of(area: &Area) -> *mut u8 {
    (area.base + LEAD) as *mut u8
}

fn bytes_of(area: &Area) -> Vec<u8> {
    let mut copy = vec![0; LEN];
    // SAFETY: the area is mapped and longer.
    unsafe { ptr::copy_nonoverlapping(region_of(area), copy.as_mut_ptr(), LEN) };
    copy
}

/// Forks a child that fills the area, shows it, and ends, as bytes from its parent order. It uses nothing but system
/// calls.
fn fork(area: Area) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    // SAFETY: the child makes system calls on its own descriptor, touches memory of the area, and ends without
    // returning.
    unsafe {
        if libc::fork() == 0 {
            libc::close(ours.as_raw_fd());
            let (fd, mut command) = (theirs.as_raw_fd(), 0u8);
            while libc::read(fd, (&raw mut command).cast(), 1) == 1 {
                if command == b'w' {
                    ptr::write_bytes(region_of(&area), 0xC7, LEN);
                }
                libc::write(fd, region_of(&area).cast(), LEN);
            }
            libc::_exit(0);
        }
    }
    ours
}

/// From now on whoever touches the area waits, as long as this program lives: its pages are taken away, and it is asked
/// for them (userfaultfd), but does not answer.
fn withhold(base: usize) -> bool {
    #[repr(C)]
    struct Api {
        api: u64,
        features: u64,
        ioctls: u64,
    }
    #[repr(C)]
    struct Register {
        start: u64,
        len: u64,
        mode: u64,
        ioctls: u64,
    }
    // From <linux/userfaultfd.h>.
    const UFFD_API: u64 = 0xAA;
    const UFFDIO_API: u64 = 0xC018_AA3F;
    const UFFDIO_REGISTER: u64 = 0xC020_AA00;
    const MODE_MISSING: u64 = 1;
    let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
    let mut register = Register { start: base as u64, len: AREA as u64, mode: MODE_MISSING, ioctls: 0 };
    // SAFETY: the structures are the kernel's; the area is this program's, and none of its threads touches it.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        fd >= 0
            && libc::madvise(base as *mut _, AREA, libc::MADV_DONTNEED) == 0
            && libc::ioctl(fd, UFFDIO_API, &raw mut api) == 0
            && libc::ioctl(fd, UFFDIO_REGISTER, &raw mut register) == 0
    }
}

struct Program {
    registrar: Registrar,
    areas: Vec<Area>,
    child: Option<UnixStream>,
    socket: OwnedFd,
}

impl Program {
    fn area(&self, name: &str) -> Area {
        *self.areas.iter().find(|area| area.name == name).expect("an area of this name")
    }

    fn answer(&self, bytes: &[u8]) {
        handover::send(self.socket.as_fd(), bytes, &[]).expect("the test takes answers");
    }

    /// `register NAME RIGHTS FIRST BYTES`, FIRST counted from the region's usual first byte.
    fn register(&self, words: &[&str]) {
        let number = |at: usize| words[at].parse::<i64>().expect("a number");
        let address = (self.area(words[0]).base + LEAD) as i64 + number(2);
        let rights = Rights::from_bits(number(1) as u32).expect("known rights");
        match self.registrar.prepare(address as u64, number(3) as u64, rights) {
            Ok(prepared) => {
                let description = serde_json::to_vec(&prepared.description).expect("JSON");
                let space = self.registrar.address_space().expect("an address space");
                let mut fds = vec![space.as_fd()];
                fds.extend(prepared.files.iter().map(AsFd::as_fd));
                handover::send(self.socket.as_fd(), &description, &fds).expect("the test takes answers");
            }
            Err(refusal) => self.answer(format!("refused {}", refusal.errno()).as_bytes()),
        }
    }

    fn in_child(&mut self, command: u8) {
        let child = self.child.as_mut().expect("a child");
        let mut bytes = vec![0; LEN];
        child.write_all(&[command]).expect("the child listens");
        child.read_exact(&mut bytes).expect("the child answers");
        self.answer(&bytes);
    }

    fn obey(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "areas" => {
                let names: Vec<&str> = self.areas.iter().map(|area| area.name).collect();
                self.answer(names.join(" ").as_bytes());
            }
            "register" => self.register(&words[1..]),
            "show" => self.answer(&bytes_of(&self.area(words[1]))),
            "fill" => {
                let byte = words[2].parse().expect("a byte");
                // SAFETY: the area is mapped for writing and longer.
                unsafe { ptr::write_bytes(region_of(&self.area(words[1])), byte, LEN) };
                self.answer(b"done");
            }
            "lost" => {
                let (lost, rounds) = (LOST.load(Relaxed), ROUNDS.load(Relaxed));
                self.answer(format!("{lost} {rounds}").as_bytes());
            }
            "fork" => {
                self.child = Some(fork(self.area(words[1])));
                self.answer(b"done");
            }
            "child-writes" => self.in_child(b'w'),
            "child-shows" => self.in_child(b'r'),
            "child-ends" => {
                self.child = None;
                // SAFETY: waits for the only child.
                unsafe { libc::wait(ptr::null_mut()) };
                self.answer(b"done");
            }
            "unmap" => {
                // SAFETY: the test started the program without threads beside; nobody touches the area again.
                unsafe { libc::munmap((self.area(words[1]).base) as *mut _, AREA) };
                self.answer(b"done");
            }
            "protect" => {
                // SAFETY: as above.
                unsafe { libc::mprotect((self.area(words[1]).base) as *mut _, AREA, libc::PROT_READ) };
                self.answer(b"done");
            }
            "truncate" => {
                // SAFETY: a file of this program's, which its own threads do not touch.
                let done = unsafe { libc::ftruncate(self.area(words[1]).file, 0) };
                self.answer(if done == 0 { b"done" } else { b"refused" });
            }
            "withhold" => self.answer(if withhold(self.area(words[1]).base) { b"done" } else { b"refused" }),
            "exec" => {
                self.answer(b"done");
                // SAFETY: valid C strings; on success there is no return.
                unsafe { libc::execl(c"/bin/sleep".as_ptr(), c"sleep".as_ptr(), c"60".as_ptr(), ptr::null::<i8>()) };
                return false;
            }
            _ => return false,
        }
        true
    }
}

/// Public, so that other crates' tests have it as a program of theirs.
pub(crate) fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("registrant SOCKET [quiet]");
    let quiet = arguments.next().is_some();
    let mut stack = [3u8; AREA];
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut stack = [5u8; AREA];
        sender.send(stack.as_mut_ptr() as usize).expect("the program waits");
        thread::sleep(std::time::Duration::from_secs(3600));
    });
    let thread_stack = receiver.recv().expect("the thread's stack");
    let areas = areas(stack.as_mut_ptr() as usize, thread_stack);
    if !quiet {
        start_neighbours(&areas);
    }
    let socket = handover::connect(Path::new(&path)).expect("the test's socket");
    let registrar = Registrar::new();
    let mut program = Program { registrar, areas, child: None, socket };
    loop {
        let message = handover::recv_bytes(program.socket.as_fd()).unwrap_or_default();
        let line = String::from_utf8_lossy(&message).into_owned();
        if message.is_empty() || !program.obey(&line) {
            return;
        }
    }
}
