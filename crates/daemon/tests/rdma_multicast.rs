//! Multicast groups of datagrams, through a real `toed`: members on each host get what is sent, and no others.
mod common;

use common::Toed;
use common::application::until;
use common::party::{LEN, Party, QUEUE_KEY};
use common::verbs::{init, ready_to_receive};
use daemon::protocol::Question;
use verbs::control::Request;
use verbs::{Datagram, Gid, Number, QP_MASK, QpKind, Status};

const CONFIGURATION: &str = "log = \"error\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             rdma = \"own\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"own\"\n";

fn group(last: u8) -> Gid {
    let mut gid = [0; 16];
    (gid[10], gid[11]) = (0xff, 0xff);
    gid[12..].copy_from_slice(&[239, 7, 1, last]);
    Gid(gid)
}

/// What joins a group, and leaves it.
fn joins(party: &Party, group: Gid) -> Request {
    Request::Attach { qp: party.qp.number, group }
}

fn leaves(party: &Party, group: Gid) -> Request {
    Request::Detach { qp: party.qp.number, group }
}

/// Sends to a group, with this queue key.
fn send(sender: &mut Party, handle: Number, key: u32, from: &[u8]) {
    sender.send(Datagram { handle, qp: QP_MASK, key }, from);
}

/// The next datagram is this one, and the IPv4 header in front of it names the group.
fn got(member: &mut Party, sent: &[u8], from: u32) {
    assert_eq!(member.got(0, sent, from)[16..], [239, 7, 1, 74]);
}

fn handle(party: &Party) -> Number {
    party.handle(group(74))
}

fn dropped(toed: &Toed, host: usize, reason: &str) -> u64 {
    let drops = toed.ask(&Question::Drops)["hosts"][host]["drops"].clone();
    let all = drops.as_array().unwrap().iter().filter(|drop| drop["reason"] == reason);
    all.map(|drop| drop["count"].as_u64().unwrap()).sum()
}

// Checks IBTA: 10.5-a.
#[test]
fn members_on_each_host_get_it_and_nobody_else() {
    let toed = Toed::start(CONFIGURATION);
    let socket = toed.socket();
    let mut sender = Party::open(&socket, "a");
    let mut members = [Party::open(&socket, "a"), Party::open(&socket, "b"), Party::open(&socket, "b")];
    let mut outsider = Party::open(&socket, "b");
    let way = handle(&sender);
    send(&mut sender, way, QUEUE_KEY, b"nobody is there");
    assert_eq!(sender.qp.cq.next().status, Status::Success);
    until("the other host to drop it", || dropped(&toed, 1, "group_unknown") == 1);
    outsider.post_receive(0);
    for member in &mut members {
        // Twice is once.
        (0..2).for_each(|_| member.verbs.done(&joins(member, group(74))));
        member.post_receive(0);
        member.post_receive(0);
    }
    outsider.verbs.done(&joins(&outsider, group(75)));
    for round in 0..2u8 {
        let sent: Vec<u8> = (0..LEN).map(|at| (at as u8).wrapping_mul(31).wrapping_add(round)).collect();
        send(&mut sender, way, QUEUE_KEY, &sent);
        assert_eq!(sender.qp.cq.next().status, Status::Success);
        members.iter_mut().for_each(|member| got(member, &sent, sender.qp.number));
    }
    // A wrong queue key is each member's to drop.
    send(&mut sender, way, QUEUE_KEY + 1, b"wrong key");
    until("two members of b to drop it", || dropped(&toed, 1, "queue_key") == 2);
    until("the member of a to drop it", || dropped(&toed, 0, "queue_key") == 1);
    // The sender itself, too, where it is a member; one that has left gets no more.
    sender.verbs.done(&joins(&sender, group(74)));
    for member in &members[1..] {
        member.verbs.done(&leaves(member, group(74)));
        assert_eq!(member.verbs.errno(&leaves(member, group(74))), libc::EINVAL);
    }
    sender.post_receive(0);
    members[0].post_receive(0);
    send(&mut sender, way, QUEUE_KEY, b"once more");
    got(&mut members[0], b"once more", sender.qp.number);
    let of_sender = [sender.qp.cq.next(), sender.qp.cq.next(), sender.qp.cq.next()];
    assert!(of_sender.iter().all(|completion| completion.status == Status::Success));
    assert_eq!(of_sender.iter().filter(|completion| completion.is_receive()).count(), 1);
    until("the other host to drop it", || dropped(&toed, 1, "group_unknown") == 2);
    // What was posted is sent, also where its handle is destroyed right afterwards.
    members[1].verbs.done(&joins(&members[1], group(74)));
    (0..20).for_each(|_| members[1].post_receive(0));
    (0..20).for_each(|_| send(&mut sender, way, QUEUE_KEY, b"last words"));
    sender.verbs.done(&Request::DestroyHandle(way));
    (0..20).for_each(|_| got(&mut members[1], b"last words", sender.qp.number));
    let way = handle(&sender);
    while sender.qp.cq.poll().is_some() {}
    members[1].verbs.done(&leaves(&members[1], group(74)));
    assert!(outsider.qp.cq.poll().is_none());
    // Programs that are gone are no members.
    drop(members);
    sender.verbs.done(&leaves(&sender, group(74)));
    send(&mut sender, way, QUEUE_KEY, b"gone");
    assert_eq!(sender.qp.cq.next().status, Status::Success);
    until("the other host to drop it", || dropped(&toed, 1, "group_unknown") == 3);
}

#[test]
fn what_is_no_group_or_no_member_is_refused() {
    let toed = Toed::start(CONFIGURATION);
    let party = Party::open(&toed.socket(), "a");
    let errno = |request: &Request| party.verbs.errno(request);
    for other in [party.verbs.gid(), Gid([0xff; 16]), Gid([0; 16])] {
        assert_eq!(errno(&joins(&party, other)), libc::EINVAL);
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
        party.verbs.done(&joins(&party, group(at as u8)));
    }
    let one_more = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 2, 0]);
    assert_eq!(errno(&joins(&party, one_more)), libc::ENOMEM);
    assert_eq!(errno(&leaves(&party, one_more)), libc::EINVAL);
    assert_eq!(errno(&Request::DestroyQp(party.qp.number)), libc::EBUSY);
    for at in 0..most {
        party.verbs.done(&leaves(&party, group(at as u8)));
    }
    party.verbs.done(&Request::DestroyQp(party.qp.number));
}
