//! A peer writes and reads memory of every kind of an unmodified program, through a real `toed` and over the fabric.
//! Meanwhile that program writes the bytes beside it, forks, unmaps and deregisters. Each byte is compared. The program
//! is `examples/memory_program.rs`, which `cargo test -p daemon` builds.
mod common;
#[path = "../../memory/tests/support/process.rs"]
mod process;

use common::Toed;
use common::verbs::{Memory, Qp, Verbs};
use memory::{Key, Rights};
use process::{Described, Process};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::sleep;
use std::time::Duration;
use verbs::control::{Answer, Request};
use verbs::{Number, Operand, QpKind, SendOpcode, Status};

const CONFIGURATION: &str = "log = \"error\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             rdma = \"own\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"own\"\n";

/// Bytes of the program's regions.
const LEN: usize = 10_007;
const ALL: u32 = 15;

/// The program whose memory it is; its context at host a is held by the test, which passes on what it describes.
struct Program {
    process: Process,
    verbs: Verbs,
    domain: Number,
    handed_over: bool,
}

/// A region of the program, as its peer names it.
#[derive(Clone, Copy)]
struct Region {
    key: Key,
    address: u64,
}

impl Program {
    /// With `quiet`, without threads that write beside the regions.
    fn start(toed: &Toed, quiet: bool) -> Program {
        let path = toed.directory.join(format!("program-{quiet}"));
        let process = Process::start("memory_program", &path, quiet, None);
        let verbs = Verbs::open(&toed.socket(), "a");
        let domain = verbs.domain();
        Program { process, verbs, domain, handed_over: false }
    }

    fn ask(&self, command: &str) -> Vec<u8> {
        self.process.ask(command)
    }

    /// Registers a part of an area with the daemon; the error is what `ibv_reg_mr` would set.
    fn register_part(&mut self, area: &str, rights: u32, bytes: usize) -> Result<Region, i32> {
        let asked = self.process.describe(&format!("register {area} {rights} 0 {bytes}"))?;
        let Described { description, space, files } = asked;
        if !std::mem::replace(&mut self.handed_over, true) {
            assert_eq!(self.verbs.ask(&Request::HandOver, &[space.as_fd()]).0, Answer::Done);
        }
        let address = description.address;
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        let key = self.verbs.register_as(self.domain, description, &files)?;
        Ok(Region { key, address })
    }

    fn register(&mut self, area: &str) -> Region {
        self.register_part(area, ALL, LEN).unwrap()
    }
}

/// The peer at host b that reads and writes.
struct Peer {
    verbs: Verbs,
    domain: Number,
    memory: Memory,
    key: Key,
}

impl Peer {
    fn open(toed: &Toed) -> Peer {
        let verbs = Verbs::open(&toed.socket(), "b");
        let domain = verbs.domain();
        verbs.hand_over();
        let memory = Memory::new(LEN);
        let key = verbs.register(domain, &memory, Rights::ALL);
        Peer { verbs, domain, memory, key }
    }

    /// A fresh connection: an error ends the one before.
    fn connect(&self, program: &Program) -> Qp {
        let ours = self.verbs.qp(QpKind::Rc, self.domain, None);
        let theirs = program.verbs.qp(QpKind::Rc, program.domain, None);
        self.verbs.connect(ours.number, program.verbs.gid(), theirs.number);
        program.verbs.connect(theirs.number, self.verbs.gid(), ours.number);
        ours
    }

    fn write(&mut self, qp: &mut Qp, region: Region, at: usize, bytes: &[u8]) -> Status {
        self.memory.fill(0, bytes.iter().copied());
        self.run(qp, SendOpcode::Write, region, at, bytes.len())
    }

    fn read(&mut self, qp: &mut Qp, region: Region, at: usize, len: usize) -> Result<Vec<u8>, Status> {
        match self.run(qp, SendOpcode::Read, region, at, len) {
            Status::Success => Ok(self.memory.bytes()[..len].to_vec()),
            status => Err(status),
        }
    }

    fn run(&mut self, qp: &mut Qp, opcode: SendOpcode, region: Region, at: usize, len: usize) -> Status {
        let remote = Operand { address: region.address + at as u64, key: region.key.0 };
        self.verbs.post(qp, opcode, self.memory.piece(0, len, self.key), remote);
        qp.cq.next().status
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
        let len = 1 + self.below(LEN);
        let at = match self.below(3) {
            0 => 0,
            1 => LEN - len,
            _ => self.below(LEN - len + 1),
        };
        (at, (0..len).map(|_| self.below(256) as u8).collect())
    }
}

#[test]
fn memory_of_every_kind_is_shared_with_the_program() {
    let toed = Toed::start(CONFIGURATION);
    let (mut program, mut peer) = (Program::start(&toed, false), Peer::open(&toed));
    let mut qp = peer.connect(&program);
    let areas = program.process.areas();
    for kind in
        ["heap", "stack", "thread-stack", "static", "anonymous-shared", "memfd-sealed", "shm", "sysv", "file-shared"]
    {
        assert!(areas.iter().any(|area| area == kind), "no {kind}");
    }
    for area in areas.iter().filter(|area| *area != "read-only") {
        let region = program.register(area);
        let mut expected = program.ask(&format!("show {area}"));
        assert_eq!(peer.read(&mut qp, region, 0, LEN).unwrap(), expected, "{area}");
        let mut dice = Dice(7);
        for _ in 0..40 {
            let (at, bytes) = dice.part();
            assert_eq!(peer.write(&mut qp, region, at, &bytes), Status::Success, "{area}");
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            let (at, bytes) = dice.part();
            let read = peer.read(&mut qp, region, at, bytes.len()).unwrap();
            assert_eq!(read, expected[at..at + bytes.len()], "{area}");
        }
        assert!(program.ask(&format!("show {area}")) == expected, "{area}: not the bytes that were written");
        program.ask(&format!("fill {area} 91"));
        assert_eq!(peer.read(&mut qp, region, 0, LEN).unwrap(), [91; LEN], "{area}");
        program.verbs.done(&Request::Deregister(region.key));
    }
    assert_eq!(program.process.lost(), 0, "writes of the program's own threads were lost");
}

#[test]
fn after_fork_the_child_has_what_was_there() {
    let toed = Toed::start(CONFIGURATION);
    let (mut program, mut peer) = (Program::start(&toed, true), Peer::open(&toed));
    let mut qp = peer.connect(&program);
    for area in ["heap", "stack", "static", "transparent-huge", "file-private", "memfd-sealed", "shm"] {
        let shared = matches!(area, "memfd-sealed" | "shm");
        let region = program.register(area);
        program.ask(&format!("fill {area} 1"));
        program.ask(&format!("fork {area}"));
        assert_eq!(peer.write(&mut qp, region, 0, &[2; LEN]), Status::Success);
        assert_eq!(program.ask(&format!("show {area}")), [2; LEN], "{area}");
        assert_eq!(program.ask("child-shows"), [if shared { 2 } else { 1 }; LEN], "{area}");
        assert_eq!(program.ask("child-writes"), [0xC7; LEN], "{area}");
        let parents = if shared { 0xC7 } else { 2 };
        assert_eq!(peer.read(&mut qp, region, 0, LEN).unwrap(), [parents; LEN], "{area}");
        program.ask("child-ends");
        assert_eq!(peer.write(&mut qp, region, 0, &[4; LEN]), Status::Success);
        assert_eq!(program.ask(&format!("show {area}")), [4; LEN], "{area}");
    }
}

#[test]
fn what_is_not_mapped_or_may_not_be_written_is_refused() {
    let toed = Toed::start(CONFIGURATION);
    let (mut program, mut peer) = (Program::start(&toed, true), Peer::open(&toed));
    for rights in [1, 7] {
        assert_eq!(program.register_part("read-only", rights, LEN).err(), Some(libc::EFAULT));
    }
    assert_eq!(program.register_part("anonymous", 1, 1 << 40).err(), Some(libc::EFAULT));
    let region = program.register_part("read-only", 4, LEN).unwrap();
    let mut qp = peer.connect(&program);
    assert_eq!(peer.read(&mut qp, region, 0, LEN).unwrap(), [0; LEN]);
    assert_eq!(peer.write(&mut qp, region, 0, b"x"), Status::RemoteAccess);
    // A range that is not mapped any more, and files that have shrunk.
    for (area, command) in [("anonymous", "unmap"), ("file-shared", "truncate"), ("shm", "truncate")] {
        let (region, mut qp) = (program.register(area), peer.connect(&program));
        assert_eq!(peer.write(&mut qp, region, 0, b"x"), Status::Success);
        assert_eq!(program.ask(&format!("{command} {area}")), b"done");
        assert_eq!(peer.write(&mut qp, region, 0, b"x"), Status::RemoteAccess, "{area}");
        let mut qp = peer.connect(&program);
        assert_eq!(peer.read(&mut qp, region, 77, 5000), Err(Status::RemoteAccess), "{area}");
    }
    // The others go on.
    let (region, mut qp) = (program.register("heap"), peer.connect(&program));
    assert_eq!(peer.write(&mut qp, region, 0, &[5; LEN]), Status::Success);
    assert_eq!(program.ask("show heap"), [5; LEN]);
}

// Checks IBTA: 10.6-a.
#[test]
fn no_byte_is_written_after_deregistration() {
    let toed = Toed::start(CONFIGURATION);
    let (mut program, mut peer) = (Program::start(&toed, true), Peer::open(&toed));
    for (round, area) in ["heap", "memfd-sealed", "crossing", "heap", "memfd-sealed"].into_iter().enumerate() {
        let (region, mut qp) = (program.register(area), peer.connect(&program));
        program.ask(&format!("fill {area} 0"));
        // Many writes are under way, none is waited for.
        for write in 0..40 {
            peer.memory.fill(0, vec![write as u8 + 1; LEN]);
            let remote = Operand { address: region.address, key: region.key.0 };
            peer.verbs.post(&mut qp, SendOpcode::Write, peer.memory.piece(0, LEN, peer.key), remote);
        }
        sleep(Duration::from_micros(100 * round as u64));
        program.verbs.done(&Request::Deregister(region.key));
        let last = program.ask(&format!("show {area}"));
        sleep(Duration::from_millis(20));
        assert!(program.ask(&format!("show {area}")) == last, "{area}: written after it was deregistered");
        let statuses: Vec<Status> = (0..40).map(|_| qp.cq.next().status).collect();
        let failed = statuses.iter().position(|status| *status != Status::Success);
        let Some(failed) = failed else { continue };
        assert_eq!(statuses[failed], Status::RemoteAccess, "{area}");
        assert!(statuses[failed + 1..].iter().all(|status| *status == Status::Flushed), "{statuses:?}");
    }
}
