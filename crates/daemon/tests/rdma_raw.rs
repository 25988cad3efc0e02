//! Raw packets through a real `toed`: whole frames between two hosts, by rules of the programs.
mod common;

use common::Toed;
use common::application::until;
use common::party::Party;
use daemon::protocol::Question;
use std::path::Path;
use verbs::control::Request;
use verbs::flow::{Field, FlowRule, Frames, Layer};
use verbs::{Gid, Number, QpKind, Status};
use wire::Mac;

const CONFIGURATION: &str = "log = \"error\"\n\
    [[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\nrdma = \"own\"\nrdma_raw_packets = true\n\
    [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"own\"\nrdma_raw_packets = true\n\
    [[host]]\nname = \"c\"\naddress = \"10.0.0.3\"\nprefix_len = 24\nrdma = \"own\"\n";

/// What is done to a frame.
type Change = fn(Vec<u8>) -> Vec<u8>;

/// An EtherType of nobody's (IEEE 802: local experiments).
const EXPERIMENT: u16 = 0x88b5;
const ARP: u16 = 0x0806;
const LEN: usize = 700;

fn frame(from: Mac, to: Mac, kind: u16, seed: u8) -> Vec<u8> {
    let payload = (0..LEN).map(|at| (at as u8).wrapping_mul(29).wrapping_add(seed));
    [&to.0[..], &from.0, &kind.to_be_bytes()].concat().into_iter().chain(payload).collect()
}

fn mac(party: &Party) -> Mac {
    party.verbs.device.mac
}

fn rule(party: &Party, frames: Frames, fields: Vec<Field>) -> FlowRule {
    FlowRule { qp: party.qp.number, frames, priority: 0, fields }
}

fn of_kind(kind: u16) -> Vec<Field> {
    vec![Field { layer: Layer::Ethernet, at: 12, value: kind.to_be_bytes().to_vec(), mask: vec![0xff; 2] }]
}

/// Sends a frame, whose memory can be used again.
fn send(party: &mut Party, frame: &[u8]) {
    party.send_frame(frame);
    assert_eq!(party.qp.cq.next().status, Status::Success);
}

fn add(party: &Party, rule: FlowRule) -> Number {
    party.verbs.number(&Request::CreateFlow(rule))
}

fn parties(socket: &Path) -> [Party; 2] {
    [Party::raw(socket, "a"), Party::raw(socket, "b")]
}

fn dropped(toed: &Toed, host: usize, reason: &str) -> u64 {
    let drops = toed.ask(&Question::Drops)["hosts"][host]["drops"].clone();
    let all = drops.as_array().unwrap().iter().filter(|drop| drop["reason"] == reason);
    all.map(|drop| drop["count"].as_u64().unwrap()).sum()
}

#[test]
fn frames_reach_whoever_has_a_rule_for_them() {
    let toed = Toed::start(CONFIGURATION);
    let [mut one, mut other] = parties(&toed.socket());
    let (from, to) = (mac(&one), mac(&other));
    other.post_receive(1);
    send(&mut one, &frame(from, to, EXPERIMENT, 1));
    until("the other host to drop it", || dropped(&toed, 1, "ethernet") == 1);
    let number = add(&other, rule(&other, Frames::Matching, of_kind(EXPERIMENT)));
    for seed in 0..20 {
        let sent = frame(from, to, EXPERIMENT, seed);
        send(&mut one, &sent);
        other.got_frame(1, &sent);
        other.post_receive(1);
    }
    // Another kind is not for it; ARP stays the host's own, whatever a rule names.
    let catch_all = add(&other, rule(&other, Frames::Rest, Vec::new()));
    add(&other, rule(&other, Frames::Matching, of_kind(ARP)));
    send(&mut one, &frame(from, to, ARP, 7));
    until("the other host to drop what is no ARP", || dropped(&toed, 1, "ethernet") == 2);
    send(&mut one, &frame(from, to, EXPERIMENT + 1, 9));
    other.got_frame(1, &frame(from, to, EXPERIMENT + 1, 9));
    // Where no receive work request is there, the frame is dropped.
    send(&mut one, &frame(from, to, EXPERIMENT, 3));
    until("the other host to drop it", || dropped(&toed, 1, "no_receive") == 1);
    // A queue pair that a rule names is busy.
    assert_eq!(other.verbs.errno(&Request::DestroyQp(other.qp.number)), libc::EBUSY);
    other.verbs.done(&Request::DestroyFlow(number));
    other.verbs.done(&Request::DestroyFlow(catch_all));
    assert_eq!(other.verbs.errno(&Request::DestroyFlow(catch_all)), libc::EINVAL);
    send(&mut one, &frame(from, to, EXPERIMENT, 4));
    until("the other host to drop it", || dropped(&toed, 1, "ethernet") == 3);
    // A host has frames for itself, too.
    add(&one, rule(&one, Frames::Matching, of_kind(EXPERIMENT)));
    one.post_receive(1);
    let sent = frame(from, from, EXPERIMENT, 5);
    one.send_frame(&sent);
    let done = [one.qp.cq.next(), one.qp.cq.next()];
    assert_eq!(done.iter().filter(|completion| completion.is_receive()).count(), 1);
    assert!(done.iter().all(|completion| completion.status == Status::Success));
    // The rules of a program end with it.
    drop(other);
    one.send_frame(&frame(from, to, EXPERIMENT, 6));
    until("the other host to drop it", || dropped(&toed, 1, "ethernet") == 4);
}

#[test]
fn a_group_of_stations_has_several_members() {
    let toed = Toed::start(CONFIGURATION);
    let [mut one, mut other] = parties(&toed.socket());
    let mut third = Party::raw(&toed.socket(), "b");
    let group = Mac([0x01, 0x00, 0x5e, 0x00, 0x00, 0x07]);
    let mut named = [0; 16];
    named[10..].copy_from_slice(&group.0);
    for member in [&mut other, &mut third] {
        member.post_receive(1);
        member.verbs.done(&Request::Attach { qp: member.qp.number, group: Gid(named) });
    }
    let sent = frame(mac(&one), group, EXPERIMENT, 8);
    one.send_frame(&sent);
    other.got_frame(1, &sent);
    third.got_frame(1, &sent);
    assert_eq!(third.verbs.errno(&Request::DestroyQp(third.qp.number)), libc::EBUSY);
    third.verbs.done(&Request::Detach { qp: third.qp.number, group: Gid(named) });
    assert_eq!(third.verbs.errno(&Request::Detach { qp: third.qp.number, group: Gid(named) }), libc::EINVAL);
    third.verbs.done(&Request::DestroyQp(third.qp.number));
    assert_eq!(one.verbs.errno(&Request::Attach { qp: one.qp.number, group: Gid([0; 16]) }), libc::EINVAL);
}

#[test]
fn a_false_source_or_no_length_fails_the_queue_pair() {
    let toed = Toed::start(CONFIGURATION);
    let socket = toed.socket();
    let mut victim = Party::raw(&socket, "b");
    add(&victim, rule(&victim, Frames::Rest, Vec::new()));
    victim.post_receive(1);
    let to = mac(&victim);
    let whole = |party: &Party| frame(mac(party), to, EXPERIMENT, 1);
    let cases: [(Change, Status); 3] = [
        (
            |mut frame| {
                frame[11] ^= 1;
                frame
            },
            Status::LocalQpOperation,
        ),
        (|frame| frame[..13].to_vec(), Status::LocalLength),
        (
            |mut frame| {
                frame.resize(20_000, 0);
                frame
            },
            Status::LocalLength,
        ),
    ];
    for (made, status) in cases {
        let mut party = Party::raw(&socket, "a");
        let frame = made(whole(&party));
        party.send_frame(&frame);
        assert_eq!(party.qp.cq.next().status, status);
        let good = whole(&party);
        party.send_frame(&good);
        assert_eq!(party.qp.cq.next().status, Status::Flushed);
    }
    // None of them came.
    let mut last = Party::raw(&socket, "a");
    let sent = whole(&last);
    last.send_frame(&sent);
    victim.got_frame(1, &sent);
}

#[test]
fn raw_packets_need_permission_and_rules_raw_packets() {
    let toed = Toed::start(CONFIGURATION);
    let party = Party::open(&toed.socket(), "c");
    let (domain, cq) = (party.domain, party.verbs.cq(16, None));
    let errno = |request: &Request| party.verbs.errno(request);
    let new = party.verbs.new_qp(QpKind::RawPacket, domain, &cq);
    assert_eq!(errno(&Request::CreateQp(new)), libc::EPERM);
    assert_eq!(errno(&Request::CreateFlow(rule(&party, Frames::Rest, Vec::new()))), libc::EINVAL);
    let foreign = FlowRule { qp: party.qp.number ^ 1, ..rule(&party, Frames::Rest, Vec::new()) };
    assert_eq!(errno(&Request::CreateFlow(foreign)), libc::EINVAL);
    // So many rules, and none that is malformed.
    let other = Party::raw(&toed.socket(), "a");
    let uneven = Field { layer: Layer::Udp, at: 0, value: vec![1, 2], mask: vec![0xff] };
    let many = vec![uneven.clone(); 200];
    for fields in [vec![uneven], many] {
        let malformed = Request::CreateFlow(rule(&other, Frames::Matching, fields));
        assert_eq!(other.verbs.errno(&malformed), libc::EINVAL);
    }
    for _ in 0..256 {
        add(&other, rule(&other, Frames::Matching, of_kind(EXPERIMENT)));
    }
    let one_more = Request::CreateFlow(rule(&other, Frames::Matching, of_kind(EXPERIMENT)));
    assert_eq!(other.verbs.errno(&one_more), libc::ENOMEM);
}
