//! Multicast groups of datagrams, through a real `toed`: members on each host get what is sent, and nobody else.
mod common;

use common::Toed;
use common::application::until;
use common::verbs::{Memory, Qp, Verbs, init, ready_to_receive, to};
use daemon::protocol::Question;
use memory::{Key, Rights};
use std::path::Path;
use verbs::control::Request;
use verbs::{
    AddressVector, CompletionFlags, Datagram, Gid, Number, QP_MASK, QpAttributes, QpKind, QpState, SendElement,
    SendFlags, SendOpcode, Status,
};

const CONFIGURATION: &str = "log = \"error\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             rdma = \"own\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"own\"\n";
const QUEUE_KEY: u32 = 0x0123_4567;
/// Bytes in front of a datagram's payload.
const GRH: usize = 40;
const LEN: usize = 1000;

fn group(last: u8) -> Gid {
    let mut gid = [0; 16];
    (gid[10], gid[11]) = (0xff, 0xff);
    gid[12..].copy_from_slice(&[239, 7, 1, last]);
    Gid(gid)
}

/// A program with a queue pair of datagrams, and memory for it.
struct Party {
    verbs: Verbs,
    domain: Number,
    qp: Qp,
    memory: Memory,
    key: Key,
}

impl Party {
    fn open(socket: &Path, host: &str) -> Party {
        let verbs = Verbs::open(socket, host);
        let domain = verbs.domain();
        verbs.hand_over();
        let qp = verbs.qp(QpKind::Ud, domain, None);
        let start = QpAttributes { queue_key: Some(QUEUE_KEY), rights: None, ..init() };
        verbs.modify(qp.number, start);
        verbs.modify(qp.number, to(QpState::ReadyToReceive));
        verbs.modify(qp.number, QpAttributes { send_psn: Some(1), ..to(QpState::ReadyToSend) });
        let memory = Memory::new(GRH + LEN);
        let key = verbs.register(domain, &memory, Rights::ALL);
        Party { verbs, domain, qp, memory, key }
    }

    fn joins(&self, group: Gid) -> Request {
        Request::Attach { qp: self.qp.number, group }
    }

    fn leaves(&self, group: Gid) -> Request {
        Request::Detach { qp: self.qp.number, group }
    }

    fn post_receive(&mut self) {
        let piece = self.memory.piece(0, GRH + LEN, self.key);
        self.qp.post_receive(piece);
    }

    /// Sends the last bytes of its memory to a group, with this queue key.
    fn send(&mut self, handle: Number, key: u32, from: &[u8]) {
        self.memory.fill(GRH, from.iter().copied());
        let mut element =
            SendElement { flags: SendFlags::SIGNALED, pieces: 1, ..SendElement::new(self.qp.number, SendOpcode::Send) };
        element.set_piece(0, self.memory.piece(GRH, from.len(), self.key));
        element.set_datagram(Datagram { handle, qp: QP_MASK, key });
        self.verbs.push(element.encode());
    }

    /// The next datagram is this one, and says where it came from.
    fn got(&mut self, sent: &[u8], from: u32) {
        let completion = self.qp.cq.next();
        assert_eq!((completion.status, completion.bytes as usize), (Status::Success, GRH + sent.len()));
        assert_eq!(completion.remote_qp, from);
        assert!(completion.flags.has(CompletionFlags::GRH));
        let bytes = self.memory.bytes();
        assert!(bytes[GRH..GRH + sent.len()] == *sent);
        // The IPv4 header in front names the group.
        assert_eq!(bytes[36..40], [239, 7, 1, 74]);
    }
}

fn handle(party: &Party) -> Number {
    let path = AddressVector { gid: group(74), gid_index: 1, ..AddressVector::default() };
    party.verbs.number(&Request::CreateHandle { domain: party.domain, path })
}

fn dropped(toed: &Toed, host: usize, reason: &str) -> u64 {
    let drops = toed.ask(&Question::Drops)["hosts"][host]["drops"].clone();
    let all = drops.as_array().unwrap().iter().filter(|drop| drop["reason"] == reason);
    all.map(|drop| drop["count"].as_u64().unwrap()).sum()
}

#[test]
fn members_on_each_host_get_it_and_nobody_else() {
    let toed = Toed::start(CONFIGURATION);
    let socket = toed.socket();
    let mut sender = Party::open(&socket, "a");
    let mut members = [Party::open(&socket, "a"), Party::open(&socket, "b"), Party::open(&socket, "b")];
    let mut stranger = Party::open(&socket, "b");
    let way = handle(&sender);
    sender.send(way, QUEUE_KEY, b"nobody is there");
    assert_eq!(sender.qp.cq.next().status, Status::Success);
    until("the other host to drop it", || dropped(&toed, 1, "group_unknown") == 1);
    stranger.post_receive();
    for member in &mut members {
        // Twice is once.
        (0..2).for_each(|_| member.verbs.done(&member.joins(group(74))));
        member.post_receive();
        member.post_receive();
    }
    stranger.verbs.done(&stranger.joins(group(75)));
    for round in 0..2u8 {
        let sent: Vec<u8> = (0..LEN).map(|at| (at as u8).wrapping_mul(31).wrapping_add(round)).collect();
        sender.send(way, QUEUE_KEY, &sent);
        assert_eq!(sender.qp.cq.next().status, Status::Success);
        members.iter_mut().for_each(|member| member.got(&sent, sender.qp.number));
    }
    // A wrong queue key is each member's to drop.
    sender.send(way, QUEUE_KEY + 1, b"wrong key");
    until("two members of b to drop it", || dropped(&toed, 1, "queue_key") == 2);
    until("the member of a to drop it", || dropped(&toed, 0, "queue_key") == 1);
    // The sender itself, too, where it is a member; who has left gets no more.
    sender.verbs.done(&sender.joins(group(74)));
    for member in &members[1..] {
        member.verbs.done(&member.leaves(group(74)));
        assert_eq!(member.verbs.errno(&member.leaves(group(74))), libc::EINVAL);
    }
    sender.post_receive();
    members[0].post_receive();
    sender.send(way, QUEUE_KEY, b"once more");
    members[0].got(b"once more", sender.qp.number);
    let of_sender = [sender.qp.cq.next(), sender.qp.cq.next(), sender.qp.cq.next()];
    assert!(of_sender.iter().all(|completion| completion.status == Status::Success));
    assert_eq!(of_sender.iter().filter(|completion| completion.is_receive()).count(), 1);
    until("the other host to drop it", || dropped(&toed, 1, "group_unknown") == 2);
    // What was posted is sent, also where its handle is destroyed right afterwards.
    members[1].verbs.done(&members[1].joins(group(74)));
    (0..20).for_each(|_| members[1].post_receive());
    (0..20).for_each(|_| sender.send(way, QUEUE_KEY, b"last words"));
    sender.verbs.done(&Request::DestroyHandle(way));
    (0..20).for_each(|_| members[1].got(b"last words", sender.qp.number));
    let way = handle(&sender);
    while sender.qp.cq.poll().is_some() {}
    members[1].verbs.done(&members[1].leaves(group(74)));
    assert!(stranger.qp.cq.poll().is_none());
    // Programs that are gone are no members.
    drop(members);
    sender.verbs.done(&sender.leaves(group(74)));
    sender.send(way, QUEUE_KEY, b"gone");
    assert_eq!(sender.qp.cq.next().status, Status::Success);
    until("the other host to drop it", || dropped(&toed, 1, "group_unknown") == 3);
}

#[test]
fn what_is_no_group_or_no_member_is_refused() {
    let toed = Toed::start(CONFIGURATION);
    let party = Party::open(&toed.socket(), "a");
    let errno = |request: &Request| party.verbs.errno(request);
    for other in [party.verbs.gid(), Gid([0xff; 16]), Gid([0; 16])] {
        assert_eq!(errno(&party.joins(other)), libc::EINVAL);
    }
    // Not its own, or not of datagrams.
    assert_eq!(errno(&Request::Attach { qp: party.qp.number ^ 1, group: group(74) }), libc::EINVAL);
    let connected = party.verbs.qp(QpKind::Rc, party.domain, None).number;
    assert_eq!(errno(&Request::Attach { qp: connected, group: group(74) }), libc::EINVAL);
    party.verbs.modify(connected, init());
    let to_group = ready_to_receive(group(74), 7);
    assert_eq!(errno(&Request::ModifyQp { qp: connected, attributes: to_group }), libc::EINVAL);
    // A member is not destroyed; and there are so many memberships.
    let most = party.verbs.device.limits.memberships;
    for at in 0..most {
        party.verbs.done(&party.joins(group(at as u8)));
    }
    let one_more = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 2, 0]);
    assert_eq!(errno(&party.joins(one_more)), libc::ENOMEM);
    assert_eq!(errno(&party.leaves(one_more)), libc::EINVAL);
    assert_eq!(errno(&Request::DestroyQp(party.qp.number)), libc::EBUSY);
    for at in 0..most {
        party.verbs.done(&party.leaves(group(at as u8)));
    }
    party.verbs.done(&Request::DestroyQp(party.qp.number));
}
