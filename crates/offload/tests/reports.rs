//! Reports of the daemon about offload functions: counters of `opentoe stats`, sentences of `opentoe why`, metrics.
mod fixture;

use fixture::{Fixture, library_of, text, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Fails; is ended at its time limit.
const FAILS: &str = "static int fails(offload_context *c) { return c->opcode ? -5 : 0; }
static int late(offload_context *c) {
    uint64_t at = *(const uint64_t *)c->request, value;
    while (c->opcode) wait_dma_finish(c, submit_dma(c, DMA_READ, at, &value, 8));
    return 0;
}
int offload_init(void) {
    return register_opcode(0x70, OFFLOAD_EVERY_QP, fails) || register_opcode(0x71, OFFLOAD_EVERY_QP, late);
}";

/// What host `a` reports of its engine.
fn engine(fixture: &Fixture) -> Value {
    let mut answer = fixture.ask(&json!({ "ask": "stats", "host": "a", "flow": null }));
    answer.pointer_mut("/hosts/0/rdma/offload/0").map(Value::take).unwrap_or_default()
}

fn library(engine: &Value, name: &str) -> Value {
    let libraries = engine["libraries"].as_array().into_iter().flatten();
    libraries.into_iter().find(|library| library["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn the_daemon_shows_what_calls_came_to() {
    // With the time limit that is the default: a search in a list of 1,024 must not meet it on a busy machine.
    let fixture = Fixture::new(&[]);
    let host = fixture.host(7000, &["kernel"]);
    fixture.load_examples();
    fixture.load("fails", &library_of("fails", FAILS));
    text(&mut fixture.client(&host, &["check"]));
    assert_eq!(fixture.call(&host, &["0x70", "1"]), "0xff01 \n");
    assert_eq!(fixture.call(&host, &["0x71", "@list"]), "0xff02 \n");
    let counts = |name: &str| {
        let library = library(&engine(&fixture), name);
        ["calls", "failed", "timed_out", "busy_ns", "dma"].map(|key| library[key].as_u64().unwrap_or(0))
    };
    // A call is counted as it begins, its failure as it ends.
    until("both calls to fail, one of them late", || counts("fails")[..3] == [2, 2, 1]);
    assert!(counts("fails")[3] > 0);
    // A list of one element is an element and a value; there are 1, 2, 5, 9 and 1024 elements, and one search in vain.
    let elements = 1 + 2 + 5 + 9 + 1024 + 1024;
    assert_eq!((counts("list")[0], counts("list")[4]), (6, elements + 5));
    assert_eq!(engine(&fixture)["restarts"], 0);
    until("the end of all operations", || engine(&fixture)["outstanding_dma"] == 0);
    let listed = fixture.ask(&json!({ "ask": "ls" }));
    let shown = |program: &Value| program["functions"]["libraries"].as_array().map_or(0, Vec::len);
    let programs = listed["hosts"][0]["rdma"]["programs"].as_array().unwrap();
    assert_eq!(programs.iter().map(shown).max(), Some(fixture::EXAMPLES.len() + 1));
}

#[test]
fn a_worker_that_ended_is_reported_by_why_and_by_metrics() {
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fixture = Fixture::with(&format!("[metrics]\nlisten = \"{listen}\"\n"), &[]);
    let host = fixture.host(7000, &[]);
    fixture.load_examples();
    let troubles = || fixture.ask(&json!({ "ask": "drops" }))["offload"].clone();
    assert_eq!(troubles(), json!([]));
    let worker = fixture.view().worker;
    let pid = rustix::process::Pid::from_raw(worker.unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("another worker", || fixture.view().worker.is_some_and(|other| Some(other) != worker));
    until("the report", || troubles()[0]["sentence"].as_str().is_some_and(|why| why.contains("signal: 9")));
    assert_eq!(text(&mut fixture.client(&host, &["until", "20"])), "begun\n20\n");
    let page = || {
        let mut socket = TcpStream::connect(listen).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        socket.read_to_string(&mut page).unwrap();
        page
    };
    let pid = || fixture.view().worker.unwrap();
    let calls = format!("toe_offload_calls_total{{host=\"a\",pid=\"{}\",library=\"list\"}} 20", pid());
    until("the calls", || page().lines().any(|line| line.trim() == calls));
    let restarts = format!("toe_offload_restarts_total{{host=\"a\",pid=\"{}\"}} 1", pid());
    assert!(page().lines().any(|line| line.trim() == restarts), "{}", page());
    // Killed with its supervisor, it is shown no longer.
    let mut fixture = fixture;
    fixture.engine.kill().unwrap();
    fixture.engine.wait().unwrap();
    until("its end", || engine(&fixture).is_null());
}
