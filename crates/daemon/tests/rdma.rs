//! RDMA's control service: attaching, objects and what uses them, limits, hostile requests, and what is left when
//! a program ends. The program is this test, which speaks the protocol of `crates/verbs` directly.
mod common;

use common::Toed;
use common::application::until;
use common::verbs::{Memory, Verbs, hello, init, ready_to_receive, ready_to_send, to};
use daemon::protocol::Question;
use memory::{AccessPath, Description, Extent, Key, Rights};
use serde_json::{Value, json};
use shm::handover;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Stdio;
use verbs::attach::Answer as Attached;
use verbs::control::{Answer, Request};
use verbs::{AddressVector, Capacities, Gid, Mtu, QpAttributes, QpKind, QpState};

const CONFIGURATION: &str = "log = \"error\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             rdma = \"own\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"all\"\n\
                             [[host]]\nname = \"c\"\naddress = \"10.0.0.3\"\nprefix_len = 24\n";

/// The rows of `opentoe ls` about a host's programs.
fn programs(toed: &Toed, host: usize) -> Vec<Value> {
    toed.ask(&Question::Ls)["hosts"][host]["rdma"]["programs"].as_array().cloned().unwrap_or_default()
}

fn mapped(first: u8, last: u8) -> Gid {
    Gid(std::net::Ipv4Addr::new(10, first, 0, last).to_ipv6_mapped().octets())
}

#[test]
fn a_program_finds_the_device_of_its_host() {
    let toed = Toed::start(CONFIGURATION);
    let verbs = Verbs::open(&toed.socket(), "b");
    let device = &verbs.device;
    assert_eq!((device.name.as_str(), device.mtu, device.gids.len()), ("toe0", Mtu::B1024, 2));
    assert_eq!((device.gids[0].0[..2].to_vec(), device.gids[1]), (vec![0xfe, 0x80], mapped(0, 2)));
    let seen = programs(&toed, 1);
    assert_eq!((&seen[0]["pid"], &seen[0]["command"]), (&json!(std::process::id()), &json!("a verbs test")));
    drop(verbs);
    until("the end of the program", || programs(&toed, 1).is_empty());
}

#[test]
fn a_refused_attach_has_its_reason() {
    let toed = Toed::start(CONFIGURATION);
    let refused = |answer: Attached| match answer {
        Attached::Refused(sentence) => sentence,
        other => panic!("{other:?}"),
    };
    let (_socket, answer, _) = hello(&toed.socket(), "c", None);
    assert!(refused(answer).contains("rdma = \"own\""));
    let (_socket, answer, _) = hello(&toed.socket(), "d", None);
    assert_eq!(refused(answer), "this daemon has no host `d`; it has a, b, c");
    let connection = handover::connect(&toed.socket()).unwrap();
    let newer = json!({ "verbs": verbs::VERSION + 1, "colour": "blue" });
    handover::send(connection.as_fd(), newer.to_string().as_bytes(), &[]).unwrap();
    let (message, _) = handover::recv(connection.as_fd()).unwrap();
    let sentence = refused(serde_json::from_slice(&message).unwrap());
    assert!(sentence.contains(&format!("version {}", verbs::VERSION + 1)), "{sentence}");
}

#[test]
fn objects_are_made_used_and_destroyed_in_order() {
    let toed = Toed::start(CONFIGURATION);
    let verbs = Verbs::open(&toed.socket(), "a");
    let domain = verbs.domain();
    verbs.hand_over();
    let bytes = Memory::new(5000);
    let key = verbs.register(domain, &bytes, Rights::ALL);
    let channel = verbs.number(&Request::OpenChannel);
    let qp = verbs.qp(QpKind::Rc, domain, Some(channel));
    // What is used is busy.
    for request in [Request::FreeDomain(domain), Request::CloseChannel(channel), Request::DestroyCq(qp.cq.number)] {
        assert_eq!(verbs.errno(&request), libc::EBUSY, "{request:?}");
    }
    assert_eq!(verbs.query(qp.number).state, Some(QpState::Reset));
    verbs.connect(qp.number, mapped(0, 2), 0x4711);
    assert_eq!(verbs.query(qp.number).state, Some(QpState::ReadyToSend));
    let seen = &programs(&toed, 0)[0]["qps"][0];
    let expected =
        json!({ "number": qp.number, "kind": "RC", "state": "RTS", "peer": "10.0.0.2", "remote_qp": 0x4711 });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&seen[key], value, "{seen}");
    }
    verbs.done(&Request::DestroyQp(qp.number));
    verbs.done(&Request::DestroyCq(qp.cq.number));
    verbs.done(&Request::CloseChannel(channel));
    assert_eq!(verbs.errno(&Request::FreeDomain(domain)), libc::EBUSY);
    verbs.done(&Request::Deregister(key));
    verbs.done(&Request::FreeDomain(domain));
    // Nothing is there twice.
    assert_eq!(verbs.errno(&Request::FreeDomain(domain)), libc::EINVAL);
    assert_eq!(verbs.errno(&Request::Deregister(key)), libc::EINVAL);
    assert_eq!(verbs.errno(&Request::DestroyQp(qp.number)), libc::EINVAL);
}

#[test]
fn paths_are_resolved_and_those_that_cannot_be_are_refused() {
    let toed = Toed::start(CONFIGURATION);
    let verbs = Verbs::open(&toed.socket(), "a");
    let domain = verbs.domain();
    let qp = verbs.qp(QpKind::Rc, domain, None);
    verbs.modify(qp.number, init());
    let failed = |attributes: QpAttributes| verbs.errno(&Request::ModifyQp { qp: qp.number, attributes });
    // Nobody has this address; to that one there is no route; link-local paths are not carried.
    assert_eq!(failed(ready_to_receive(mapped(0, 99), 1)), libc::ETIMEDOUT);
    assert_eq!(failed(ready_to_receive(mapped(9, 1), 1)), libc::ENETUNREACH);
    assert_eq!(failed(ready_to_receive(verbs.device.gids[0], 1)), libc::EINVAL);
    let path = AddressVector { gid: mapped(0, 2), gid_index: 2, ..AddressVector::default() };
    assert_eq!(failed(QpAttributes { path: Some(path), ..ready_to_receive(mapped(0, 2), 1) }), libc::EINVAL);
    let large = QpAttributes { mtu: Some(Mtu::B4096), ..ready_to_receive(mapped(0, 2), 1) };
    assert_eq!(failed(large), libc::EINVAL);
    verbs.modify(qp.number, ready_to_receive(mapped(0, 2), 1));
    verbs.modify(qp.number, ready_to_send());
    let path = AddressVector { gid: mapped(0, 2), gid_index: 1, ..AddressVector::default() };
    let handle = verbs.number(&Request::CreateHandle { domain, path });
    assert_eq!(verbs.errno(&Request::FreeDomain(domain)), libc::EBUSY);
    verbs.done(&Request::DestroyHandle(handle));
    let nowhere = AddressVector { gid: mapped(9, 1), ..path };
    assert_eq!(verbs.errno(&Request::CreateHandle { domain, path: nowhere }), libc::ENETUNREACH);
}

#[test]
fn one_program_does_not_reach_what_another_has() {
    let toed = Toed::start(CONFIGURATION);
    let (one, other) = (Verbs::open(&toed.socket(), "a"), Verbs::open(&toed.socket(), "a"));
    let domain = one.domain();
    one.hand_over();
    let bytes = Memory::new(100);
    let key = one.register(domain, &bytes, Rights::ALL);
    let qp = one.qp(QpKind::Rc, domain, None);
    let theirs = other.domain();
    assert_ne!(domain, theirs);
    let cq = other.cq(16, None);
    let in_our_domain = other.new_qp(QpKind::Rc, domain, &cq);
    for request in [
        Request::Deregister(key),
        Request::FreeDomain(domain),
        Request::DestroyQp(qp.number),
        Request::QueryQp(qp.number),
        Request::ModifyQp { qp: qp.number, attributes: to(QpState::Error) },
        Request::CreateQp(in_our_domain),
        Request::CreateSrq { domain, receives: 1, pieces: 1, xrc: None },
        Request::CreateHandle { domain, path: AddressVector::default() },
    ] {
        assert_eq!(other.errno(&request), libc::EINVAL, "{request:?}");
    }
    assert_eq!(one.query(qp.number).state, Some(QpState::Reset));
}

#[test]
fn senseless_requests_are_refused_and_the_program_goes_on() {
    let toed = Toed::start(CONFIGURATION);
    let verbs = Verbs::open(&toed.socket(), "a");
    for text in ["", "{", "null", "{\"DestroyQp\":-1}", "{\"CreateCq\":{\"entries\":1}", "\"Explode\""] {
        if text.is_empty() {
            continue;
        }
        handover::send(verbs.socket.as_fd(), text.as_bytes(), &[]).unwrap();
        let (message, _) = handover::recv(verbs.socket.as_fd()).unwrap();
        let answer: Answer = serde_json::from_slice(&message).unwrap();
        assert!(matches!(answer, Answer::Failed { errno: libc::EINVAL, .. }), "{text}: {answer:?}");
    }
    let domain = verbs.domain();
    let kernel = |len| Extent { len, way: AccessPath::Kernel };
    let described = |address, extents| Description { address, rights: Rights::ALL, extents };
    // The address space was not handed over; what is handed over is none; then it is.
    assert_eq!(verbs.register_as(domain, described(4096, vec![kernel(10)]), &[]), Err(libc::EINVAL));
    let null = File::open("/dev/null").unwrap();
    let none: Vec<&[_]> = vec![&[], &[]];
    for files in none {
        assert!(matches!(verbs.ask(&Request::HandOver, files).0, Answer::Failed { errno: libc::EINVAL, .. }));
    }
    let answer = verbs.ask(&Request::HandOver, &[null.as_fd()]).0;
    assert!(matches!(answer, Answer::Failed { errno: libc::EINVAL, .. }), "{answer:?}");
    verbs.hand_over();
    let answer = verbs.ask(&Request::HandOver, &[null.as_fd()]).0;
    assert!(matches!(answer, Answer::Failed { errno: libc::EINVAL, .. }), "twice: {answer:?}");
    for description in [
        described(4096, vec![]),
        described(u64::MAX, vec![kernel(10)]),
        described(4096, vec![kernel(u64::MAX), kernel(u64::MAX)]),
        described(4096, vec![kernel(65 << 30)]),
        described(0, vec![kernel(1); 65]),
        described(0, vec![Extent { len: 4096, way: AccessPath::Shared { file: 0, offset: 0 } }]),
    ] {
        assert_eq!(verbs.register_as(domain, description.clone(), &[]), Err(libc::EINVAL), "{description:?}");
    }
    // A file that could shrink is not mapped, whatever the program states.
    let shared = described(0, vec![Extent { len: 4096, way: AccessPath::Shared { file: 0, offset: 0 } }]);
    assert_eq!(verbs.register_as(domain, shared, &[null.as_fd()]), Err(libc::EINVAL));
    let cq = verbs.cq(16, None);
    let good = verbs.new_qp(QpKind::Rc, domain, &cq);
    let capacities = |capacities| Request::CreateQp(verbs::control::NewQp { capacities, ..good });
    for request in [
        Request::CreateCq { entries: 0, channel: None },
        Request::CreateCq { entries: u32::MAX, channel: None },
        Request::CreateCq { entries: 16, channel: Some(3) },
        Request::CreateSrq { domain, receives: u32::MAX, pieces: u32::MAX, xrc: None },
        capacities(Capacities { receive: u32::MAX, ..good.capacities }),
        capacities(Capacities { send_pieces: 33, ..good.capacities }),
        Request::CreateQp(verbs::control::NewQp { srq: Some(7), ..good }),
        Request::CreateQp(verbs::control::NewQp { send_cq: 99, ..good }),
        Request::LimitSrq { srq: 0, limit: 1 },
        Request::DestroyHandle(0),
        Request::CloseChannel(u32::MAX),
        Request::Deregister(Key(0)),
        Request::QueryQp(0),
    ] {
        assert_eq!(verbs.errno(&request), libc::EINVAL, "{request:?}");
    }
    assert!(programs(&toed, 0)[0]["qps"].as_array().unwrap().is_empty());
}

#[test]
fn there_is_a_limit_to_each_kind_of_object() {
    let toed = Toed::start(CONFIGURATION);
    let verbs = Verbs::open(&toed.socket(), "a");
    let limits = verbs.device.limits;
    let until_refused = |most: u32, request: &Request| {
        for made in 0.. {
            match verbs.ask(request, &[]).0 {
                Answer::Failed { errno, why } => {
                    assert_eq!((errno, made), (libc::ENOMEM, most), "{why}");
                    return;
                }
                _ => assert!(made < most, "{request:?}: more than {most}"),
            }
        }
    };
    until_refused(limits.domains, &Request::AllocateDomain);
    let domain = 1;
    verbs.hand_over();
    until_refused(limits.cqs, &Request::OpenChannel);
    until_refused(limits.srqs, &Request::CreateSrq { domain, receives: 1, pieces: 1, xrc: None });
    let cq = verbs.cq(16, None);
    until_refused(limits.qps, &Request::CreateQp(verbs.new_qp(QpKind::Rc, domain, &cq)));
    let path = AddressVector { gid: mapped(0, 2), gid_index: 1, ..AddressVector::default() };
    until_refused(limits.handles, &Request::CreateHandle { domain, path });
    // Another program has its own.
    let other = Verbs::open(&toed.socket(), "a");
    let domain = other.domain();
    other.qp(QpKind::Ud, domain, None);
}

#[test]
fn a_program_that_goes_leaves_nothing() {
    let toed = Toed::start(CONFIGURATION);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", toed.id())).unwrap().count();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", toed.id())).unwrap().count();
    let before = (descriptors(), threads());
    for _ in 0..20 {
        let verbs = Verbs::open(&toed.socket(), "a");
        let domain = verbs.domain();
        verbs.hand_over();
        let bytes = Memory::new(10_000);
        verbs.register(domain, &bytes, Rights::ALL);
        let channel = verbs.number(&Request::OpenChannel);
        let qp = verbs.qp(QpKind::Rc, domain, Some(channel));
        verbs.connect(qp.number, mapped(0, 2), 7);
        verbs.qp(QpKind::Ud, domain, None);
    }
    until("the end of all programs", || programs(&toed, 0).is_empty());
    until("the end of what they had", || (descriptors(), threads()) == before);
}

#[test]
fn a_host_with_rdma_programs_is_not_handed_over() {
    let mut toed = Toed::start(CONFIGURATION);
    let verbs = Verbs::open(&toed.socket(), "b");
    let refused = common::toed(&toed.directory).arg("--takeover").stderr(Stdio::piped()).output().unwrap();
    let sentence = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{sentence}");
    let expected = format!(
        "host b has RDMA programs (1), whose queue pairs cannot be handed over: end {} (a verbs test)",
        std::process::id()
    );
    assert!(sentence.contains(&expected), "{sentence}");
    // The one that runs goes on.
    verbs.domain();
    assert_eq!(toed.end().code(), Some(0));
}
