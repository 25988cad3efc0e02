//! Datagrams of verbs on ZeroNIC hosts of a real `toed`: they go over a TCP connection of the two hosts, which any
//! transport carries, also through loss. Each byte is compared.
mod common;

use common::Toed;
use common::application::until;
use common::party::{LEN, PLACES, Party, QUEUE_KEY};
use common::peer::pattern;
use common::zeronic::{configuration, transports};
use daemon::protocol::Question;
use verbs::control::Request;
use verbs::{Datagram, Gid, Number, QpState, Status};

/// The GID of an IPv4 address.
fn gid(address: [u8; 4]) -> Gid {
    let mut gid = [0; 16];
    (gid[10], gid[11]) = (0xff, 0xff);
    gid[12..].copy_from_slice(&address);
    Gid(gid)
}

fn to(handle: Number, peer: &Party) -> Datagram {
    Datagram { handle, qp: peer.qp.number, key: QUEUE_KEY }
}

fn sent(party: &mut Party) {
    let completion = party.qp.cq.next();
    assert!(!completion.is_receive());
    assert_eq!(completion.status, Status::Success);
}

fn dropped(toed: &Toed, host: usize, reason: &str) -> u64 {
    let drops = toed.ask(&Question::Drops)["hosts"][host]["drops"].clone();
    let all = drops.as_array().unwrap().iter().filter(|drop| drop["reason"] == reason);
    all.map(|drop| drop["count"].as_u64().unwrap()).sum()
}

fn connections(toed: &Toed) -> usize {
    toed.ask(&Question::Ls)["zeronics"][0]["connections"].as_array().map_or(0, Vec::len)
}

#[test]
fn datagrams_come_with_where_they_came_from() {
    for transport in transports("datagrams_come_with_where_they_came_from") {
        let toed = Toed::start(&configuration(transport, ""));
        let (mut one, mut other) = (Party::open(&toed.socket(), "a"), Party::open(&toed.socket(), "b"));
        let way = one.handle(other.verbs.gid());
        for len in [0, 1, 63, LEN] {
            other.post_receive(1);
            one.send(to(way, &other), &pattern(len, len));
            sent(&mut one);
            let ip = other.got(1, &pattern(len, len), one.qp.number);
            assert_eq!(ip[12..], [10, 0, 0, 1, 10, 0, 0, 2], "both addresses");
            // Back to the source that the header in front names, on the same connection.
            let back = other.handle(gid([ip[12], ip[13], ip[14], ip[15]]));
            one.post_receive(1);
            other.send(to(back, &one), &pattern(7, len));
            sent(&mut other);
            one.got(1, &pattern(7, len), other.qp.number);
        }
        assert_eq!(connections(&toed), 1, "over {transport}");
    }
}

#[test]
fn what_fits_nowhere_is_dropped_and_what_cannot_be_is_an_error() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (mut one, mut other) = (Party::open(&toed.socket(), "a"), Party::open(&toed.socket(), "b"));
    let way = one.handle(other.verbs.gid());
    one.send(to(way, &other), b"nobody is there");
    sent(&mut one);
    until("it to be dropped", || dropped(&toed, 1, "no_receive") == 1);
    other.post_receive(1);
    one.send(Datagram { key: QUEUE_KEY + 1, ..to(way, &other) }, b"wrong key");
    one.send(Datagram { qp: other.qp.number ^ 1, ..to(way, &other) }, b"no such queue pair");
    (0..2).for_each(|_| sent(&mut one));
    until("it to be dropped", || dropped(&toed, 1, "queue_key") == 1 && dropped(&toed, 1, "qp_unknown") == 1);
    // On the own host.
    let (own, mut third) = (one.handle(one.verbs.gid()), Party::open(&toed.socket(), "a"));
    third.post_receive(1);
    one.send(to(own, &third), b"next door");
    sent(&mut one);
    assert_eq!(third.got(1, b"next door", one.qp.number)[12..], [10, 0, 0, 1, 10, 0, 0, 1]);
    // Groups are not there.
    let path = verbs::AddressVector { gid: gid([239, 7, 1, 74]), gid_index: 1, ..Default::default() };
    let group = Request::CreateHandle { domain: one.domain, path };
    assert_eq!(one.verbs.errno(&group), libc::EOPNOTSUPP);
    assert_eq!(one.verbs.errno(&Request::Attach { qp: one.qp.number, group: path.gid }), libc::EOPNOTSUPP);
    // What was posted is sent, also where its handle is destroyed right afterwards; with it, nothing is.
    one.send(to(way, &other), b"last words");
    one.verbs.done(&Request::DestroyHandle(way));
    sent(&mut one);
    other.got(1, b"last words", one.qp.number);
    one.send(to(way, &other), b"no handle");
    assert_eq!(one.qp.cq.next().status, Status::LocalQpOperation);
    assert_eq!(one.verbs.query(one.qp.number).state, Some(QpState::Error));
}

#[test]
fn none_is_lost_on_a_wire_that_loses_frames() {
    let faults = "loss = 0.01\nreorder = 0.02\nduplicate = 0.01\nseed = 11";
    for transport in transports("none_is_lost_on_a_wire_that_loses_frames") {
        let toed = Toed::start(&configuration(transport, faults));
        let (mut one, mut other) = (Party::open(&toed.socket(), "a"), Party::open(&toed.socket(), "b"));
        let (there, back) = (one.handle(other.verbs.gid()), other.handle(one.verbs.gid()));
        for round in 0..10 {
            // As many at once as there are places, and each is answered.
            (1..PLACES).for_each(|place| other.post_receive(place));
            for place in 1..PLACES {
                one.send(to(there, &other), &pattern(round, place * 15));
                sent(&mut one);
            }
            for place in 1..PLACES {
                other.got(place, &pattern(round, place * 15), one.qp.number);
            }
            one.post_receive(1);
            other.send(to(back, &one), b"all here");
            sent(&mut other);
            one.got(1, b"all here", other.qp.number);
        }
    }
}

#[test]
fn a_host_that_is_not_there_holds_up_nobody() {
    for transport in transports("a_host_that_is_not_there_holds_up_nobody") {
        let toed = Toed::start(&configuration(transport, ""));
        let (mut one, mut other) = (Party::open(&toed.socket(), "a"), Party::open(&toed.socket(), "b"));
        let (way, nowhere) = (one.handle(other.verbs.gid()), one.handle(gid([10, 0, 0, 77])));
        for _ in 0..300 {
            one.send(Datagram { handle: nowhere, ..to(way, &other) }, &pattern(1, LEN));
            sent(&mut one);
        }
        other.post_receive(1);
        one.send(to(way, &other), b"somebody");
        sent(&mut one);
        other.got(1, b"somebody", one.qp.number);
        assert!(dropped(&toed, 0, "host_unreachable") > 0, "more than wait for a connection");
    }
}
