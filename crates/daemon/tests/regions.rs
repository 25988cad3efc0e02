//! A program asks for the region of another one, where a connection lies that was passed to it.
mod common;

use common::Toed;
use common::application::{attach_numbered, listen, reply, request, until};
use context::attach::{Ask, Asked};
use context::{Congestion, Endpoint, Reply, Request};
use shm::handover;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

const CONFIGURATION: &str = "log = \"warn\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n";

fn ask(socket: &OwnedFd, context: u32) -> (Asked, usize) {
    let ask = serde_json::to_vec(&Ask::Region { context }).unwrap();
    handover::send(socket.as_fd(), &ask, &[]).unwrap();
    let (answer, fds) = handover::recv(socket.as_fd()).unwrap();
    (serde_json::from_slice(&answer).unwrap(), fds.len())
}

#[test]
fn it_gets_it_with_the_connection_and_not_before() {
    let toed = Toed::start(CONFIGURATION);
    let (from, mut sender, home) = attach_numbered(&toed.socket(), "a");
    let (to, mut receiver, _) = attach_numbered(&toed.socket(), "a");
    listen(&mut sender, 9000);
    let remote = Endpoint::v4(Ipv4Addr::new(10, 0, 0, 1), 9000);
    let connect = Request::Connect {
        tag: 7,
        binding: 0,
        remote,
        congestion: Congestion::DEFAULT,
        mss: 0,
        early: context::EarlyData::No,
    };
    let Reply::Connecting { .. } = request(&mut sender, connect) else { panic!("it does not connect") };
    let slot = loop {
        if let Reply::Connected { slot, .. } = reply(&mut sender) {
            break slot;
        }
    };
    assert_eq!(ask(&to, home), (Asked::Refused, 0));
    assert_eq!(ask(&to, home + 77), (Asked::Refused, 0));
    let Reply::Forked { token, .. } = request(&mut sender, Request::Pass { tag: 8, slot: Some(slot), binding: 0 })
    else {
        panic!("it is not passed")
    };
    assert_eq!(ask(&to, home), (Asked::Refused, 0), "the token is not shown yet");
    let Reply::Adopted { .. } = request(&mut receiver, Request::Adopt { tag: 9, token }) else { panic!("not adopted") };
    let (asked, regions) = ask(&to, home);
    assert!(matches!(asked, Asked::Region(geometry) if geometry == sender.geometry));
    assert_eq!((regions, ask(&from, home).1), (1, 1));
}

#[test]
fn a_client_that_reads_no_answers_is_thrown_out() {
    let toed = Toed::start(CONFIGURATION);
    let (rude, _, _) = attach_numbered(&toed.socket(), "a");
    let ask_for = serde_json::to_vec(&Ask::Region { context: 0 }).unwrap();
    // The end comes as an error: more answers wait than the socket holds.
    while handover::send(rude.as_fd(), &ask_for, &[]).is_ok() {}
    let (polite, _, own) = attach_numbered(&toed.socket(), "a");
    assert_eq!(ask(&polite, own), (Asked::Refused, 0), "it has no connection");
    // A context leaves once the engine has drained it.
    until("the end of the rude one's context", || toed.contexts().len() == 1);
    // What is no question ends the connection, too.
    handover::send(polite.as_fd(), b"?", &[]).unwrap();
    assert!(handover::recv_bytes(polite.as_fd()).unwrap().is_empty());
}
