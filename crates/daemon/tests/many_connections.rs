//! More connections than fit one answer of the management socket: they are counted, listed page by page, and each is
//! found by its number.
mod common;

use common::Toed;
use common::application::{attach, reply, request};
use context::{AppEnd, Congestion, Endpoint, Reply, Request};
use daemon::client::{all_flows, ask};
use daemon::protocol::{FLOWS, Question};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Two full pages and a bit.
const CONNECTIONS: u32 = 2 * FLOWS as u32 + 100;
/// Opened at the same time.
const AT_ONCE: u32 = 50;
const CONFIGURATION: &str = "log = \"warn\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nport = { kind = \"fabric\" }\n";

/// Listens and takes whatever comes.
fn serve(app: &mut AppEnd) {
    let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, 9000);
    let bind = Request::Bind { tag: 1, local, reuse_address: false, reuse_port: false, dual_stack: false };
    let Reply::Bound { binding, .. } = request(app, bind) else { panic!("not bound") };
    assert_eq!(request(app, Request::Listen { tag: 2, binding, backlog: 128 }), Reply::Done { tag: 2 });
    app.requests.push(Request::Arm { binding, credits: CONNECTIONS }.to_words()).unwrap();
    app.daemon_bell.ring();
}

/// Opens all connections, some at a time; returns once both sides have them.
fn open_all(server: &mut AppEnd, client: &mut AppEnd) {
    let remote = Endpoint::v4(Ipv4Addr::new(10, 0, 0, 1), 9000);
    for first in (0..CONNECTIONS).step_by(AT_ONCE as usize) {
        for tag in first..first + AT_ONCE {
            let connect = Request::Connect {
                tag,
                binding: 0,
                remote,
                congestion: Congestion::DEFAULT,
                mss: 0,
                early: context::EarlyData::No,
            };
            client.requests.push(connect.to_words()).unwrap();
        }
        client.daemon_bell.ring();
        let (mut connected, mut accepted) = (0, 0);
        while connected < AT_ONCE {
            match reply(client) {
                Reply::Connected { .. } => connected += 1,
                Reply::Connecting { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while accepted < AT_ONCE {
            assert!(matches!(reply(server), Reply::Accept { .. }));
            accepted += 1;
        }
    }
}

fn numbers(flows: &Value) -> BTreeSet<u64> {
    flows.as_array().unwrap().iter().filter_map(|flow| flow["flow"].as_u64()).collect()
}

#[test]
fn more_connections_than_one_answer_holds() {
    let toed = Toed::start(CONFIGURATION);
    let (_a, mut server) = attach(&toed.socket(), "a");
    let (_b, mut client) = attach(&toed.socket(), "b");
    serve(&mut server);
    open_all(&mut server, &mut client);
    for question in [Question::Ls, Question::Stats { host: None, flow: None }] {
        let mut answer = toed.ask(&question);
        for host in answer["hosts"].as_array().unwrap() {
            assert_eq!(host["states"]["ESTABLISHED"], CONNECTIONS, "{question:?}");
            assert_eq!(host["flows"].as_array().unwrap().len(), FLOWS, "one answer is bounded");
            assert!(host["next"].is_u64());
        }
        all_flows(&toed.socket(), &mut answer).unwrap();
        for host in answer["hosts"].as_array().unwrap() {
            assert_eq!(numbers(&host["flows"]).len(), CONNECTIONS as usize, "each once");
            assert!(host["next"].is_null());
        }
    }
    let stats = toed.ask(&Question::Stats { host: Some("a".into()), flow: None });
    assert!(stats["hosts"][0]["totals"]["rx_segments"].is_u64());
    assert!(stats["hosts"][0]["totals"].get("snd_nxt").is_none(), "a sum of positions means nothing");
    // One that is on no first page.
    let last = CONNECTIONS - 1;
    let one = toed.ask(&Question::Stats { host: Some("b".into()), flow: Some(last) });
    assert_eq!(numbers(&one["hosts"][0]["flows"]), BTreeSet::from([last.into()]));
    // A place that nothing stands at.
    let beyond = toed.ask(&Question::Flows { host: "a".into(), from: u64::MAX });
    assert_eq!(numbers(&beyond["flows"]).len(), 0);
    let sentence = ask(&toed.socket(), &Question::Flows { host: "c".into(), from: 0 }).unwrap_err();
    assert!(sentence.contains("no host `c`"), "{sentence}");
}
