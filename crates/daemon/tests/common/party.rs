//! Programs with a queue pair of datagrams each.
use super::verbs::{Memory, Qp, Verbs, init, to};
use memory::{Key, Rights};
use std::path::Path;
use verbs::control::Request;
use verbs::{
    AddressVector, CompletionFlags, Datagram, Gid, Number, QpAttributes, QpKind, QpState, SendElement, SendFlags,
    SendOpcode, Status,
};

pub(crate) const QUEUE_KEY: u32 = 0x0123_4567;
/// Bytes in front of a datagram's payload.
pub(crate) const GRH: usize = 40;
/// Bytes of a datagram at most.
pub(crate) const LEN: usize = 1000;
/// Places for datagrams in the memory; what is sent is taken from the first one.
pub(crate) const PLACES: usize = 64;
const PLACE: usize = GRH + LEN;

/// A program with a queue pair of datagrams, and memory for it.
pub(crate) struct Party {
    pub verbs: Verbs,
    pub domain: Number,
    pub qp: Qp,
    pub memory: Memory,
    pub key: Key,
}

impl Party {
    pub(crate) fn open(socket: &Path, host: &str) -> Party {
        let start = QpAttributes { queue_key: Some(QUEUE_KEY), rights: None, ..init() };
        let send = QpAttributes { send_psn: Some(1), ..to(QpState::ReadyToSend) };
        Party::with(Verbs::open(socket, host), QpKind::Ud, [start, to(QpState::ReadyToReceive), send])
    }

    /// A program with a queue pair of raw packets instead.
    pub(crate) fn raw(socket: &Path, host: &str) -> Party {
        let start = QpAttributes { port: Some(1), ..to(QpState::Init) };
        let states = [start, to(QpState::ReadyToReceive), to(QpState::ReadyToSend)];
        Party::with(Verbs::open(socket, host), QpKind::RawPacket, states)
    }

    fn with(verbs: Verbs, kind: QpKind, states: [QpAttributes; 3]) -> Party {
        let domain = verbs.domain();
        verbs.hand_over();
        let qp = verbs.qp(kind, domain, None);
        states.into_iter().for_each(|attributes| verbs.modify(qp.number, attributes));
        let memory = Memory::new(PLACES * PLACE);
        let key = verbs.register(domain, &memory, Rights::ALL);
        Party { verbs, domain, qp, memory, key }
    }

    /// An address handle.
    pub(crate) fn handle(&self, gid: Gid) -> Number {
        let path = AddressVector { gid, gid_index: 1, ..AddressVector::default() };
        self.verbs.number(&Request::CreateHandle { domain: self.domain, path })
    }

    /// Posts a place of the memory to receive into.
    pub(crate) fn post_receive(&mut self, place: usize) {
        let piece = self.memory.piece(place * PLACE, PLACE, self.key);
        self.qp.post_receive(piece);
    }

    /// Sends bytes by its memory's first place.
    pub(crate) fn send(&mut self, to: Datagram, from: &[u8]) {
        self.memory.fill(GRH, from.iter().copied());
        let opcode = SendOpcode::SendImmediate;
        let mut element = SendElement {
            flags: SendFlags::SIGNALED,
            pieces: 1,
            immediate: from.len() as u32,
            ..SendElement::new(self.qp.number, opcode)
        };
        element.set_piece(0, self.memory.piece(GRH, from.len(), self.key));
        element.set_datagram(to);
        self.verbs.push(element.encode());
    }

    /// Sends a frame by its memory's first place.
    pub(crate) fn send_frame(&mut self, frame: &[u8]) {
        self.memory.fill(0, frame.iter().copied());
        let element = SendElement::new(self.qp.number, SendOpcode::Send);
        let mut element = SendElement { flags: SendFlags::SIGNALED, pieces: 1, ..element };
        element.set_piece(0, self.memory.piece(0, frame.len(), self.key));
        self.verbs.push(element.encode());
    }

    /// The next completion is that of this frame, in this place.
    pub(crate) fn got_frame(&mut self, place: usize, sent: &[u8]) {
        let completion = self.qp.cq.next();
        assert_eq!((completion.status, completion.bytes as usize), (Status::Success, sent.len()));
        assert_eq!((completion.remote_qp, completion.flags), (0, CompletionFlags::default()));
        assert!(self.memory.bytes()[place * PLACE..][..sent.len()] == *sent);
    }

    /// The next completion is that of a datagram in this place, which is this one, and has its source. Returns
    /// the IPv4 header in front of it.
    pub(crate) fn got(&mut self, place: usize, sent: &[u8], from: u32) -> [u8; 20] {
        let completion = self.qp.cq.next();
        assert_eq!((completion.status, completion.bytes as usize), (Status::Success, GRH + sent.len()));
        assert_eq!((completion.remote_qp, completion.immediate as usize), (from, sent.len()));
        assert_eq!(completion.flags, CompletionFlags::GRH | CompletionFlags::IMMEDIATE);
        let bytes = &self.memory.bytes()[place * PLACE..];
        assert!(bytes[GRH..GRH + sent.len()] == *sent);
        bytes[20..GRH].try_into().unwrap()
    }
}
