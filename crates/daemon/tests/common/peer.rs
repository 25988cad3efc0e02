//! Programs with a reliable queue pair each, for tests of operations between two of them.
use super::verbs::{Memory, Qp, Verbs};
use memory::{Key, Rights};
use std::path::Path;
use verbs::{Number, Operand, QpKind, SendOpcode, Status};

/// A program with one reliable queue pair, and memory for it.
pub(crate) struct Peer {
    pub verbs: Verbs,
    pub domain: Number,
    pub qp: Qp,
    pub memory: Memory,
    pub key: Key,
}

impl Peer {
    pub(crate) fn open(socket: &Path, host: &str, len: usize) -> Peer {
        Peer::with(Verbs::open(socket, host), len)
    }

    fn with(verbs: Verbs, len: usize) -> Peer {
        let domain = verbs.domain();
        verbs.hand_over();
        let qp = verbs.qp(QpKind::Rc, domain, None);
        let memory = Memory::new(len);
        let key = verbs.register(domain, &memory, Rights::ALL);
        Peer { verbs, domain, qp, memory, key }
    }

    /// Two of them, connected.
    pub(crate) fn pair(socket: &Path, len: usize) -> (Peer, Peer) {
        Peer::pair_of(socket, None, len)
    }

    /// Two of a device that both hosts have.
    pub(crate) fn pair_of(socket: &Path, device: Option<&str>, len: usize) -> (Peer, Peer) {
        let open = |host| Peer::with(Verbs::open_device(socket, host, device), len);
        let (one, other) = (open("a"), open("b"));
        one.verbs.connect(one.qp.number, other.verbs.gid(), other.qp.number);
        other.verbs.connect(other.qp.number, one.verbs.gid(), one.qp.number);
        (one, other)
    }

    pub(crate) fn post(&mut self, opcode: SendOpcode, from: usize, len: usize, remote: Operand) -> u32 {
        let piece = self.memory.piece(from, len, self.key);
        self.verbs.post(&mut self.qp, opcode, piece, remote)
    }

    /// One operation, from and to the same place of both memories; how it ended.
    pub(crate) fn run(&mut self, opcode: SendOpcode, from: usize, len: usize, remote: Operand) -> Status {
        let number = self.post(opcode, from, len, remote);
        let completion = self.qp.cq.next();
        assert_eq!((completion.number, completion.qp), (number, self.qp.number));
        completion.status
    }

    /// WRITEs bytes to the other one's memory, and READs them back: each is compared. What was written.
    pub(crate) fn write_and_read(&mut self, other: &mut Peer, round: usize, len: usize) -> Vec<u8> {
        let sent = pattern(round, len);
        self.memory.fill(0, sent.iter().copied());
        assert_eq!(self.run(SendOpcode::Write, 0, len, other.memory.remote(0, other.key)), Status::Success);
        assert!(other.memory.bytes()[..len] == sent, "WRITE of {len} bytes");
        self.memory.fill(0, vec![0; len]);
        assert_eq!(self.run(SendOpcode::Read, 0, len, other.memory.remote(0, other.key)), Status::Success);
        assert!(self.memory.bytes()[..len] == sent, "READ of {len} bytes");
        sent
    }

    pub(crate) fn post_receive(&mut self, from: usize, len: usize) {
        let piece = self.memory.piece(from, len, self.key);
        self.qp.post_receive(piece);
    }
}

/// Bytes that differ from round to round and from place to place.
pub(crate) fn pattern(round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + round * 7) as u8 | 1).collect()
}
