//! Tracepoints of a real `toed`: streams and counters, while applications connect.
mod common;

use common::Toed;
use common::application::{attach, connect, request, until};
use context::{Congestion, Endpoint, Request};
use daemon::client::{ask, open};
use daemon::protocol::{Question, Trace};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use trace::Point;

const HOSTS: &str = "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                     [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\n";

fn watch(toed: &Toed, points: &[&str], host: Option<&str>) -> BufReader<UnixStream> {
    let points = points.iter().map(|point| point.to_string()).collect();
    let wish = Trace { points, host: host.map(String::from), flow: None };
    open(&toed.socket(), &Question::Trace(wish)).unwrap().1
}

/// Ends a stream, and gives back its records; none were missed.
fn finish(stream: BufReader<UnixStream>) -> Vec<Value> {
    stream.get_ref().shutdown(Shutdown::Write).unwrap();
    let mut lines: Vec<Value> = stream.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let last = lines.pop().unwrap();
    assert!(last["end"] == true && last["missed"] == 0, "{last}");
    lines
}

fn points(toed: &Toed, host: &str, enable: &[&str], disable: &[&str]) -> Result<Vec<Value>, String> {
    let owned = |list: &[&str]| list.iter().map(|pattern| pattern.to_string()).collect();
    let (enable, disable) = (owned(enable), owned(disable));
    let question = Question::Tracepoints { host: Some(host.into()), enable, disable };
    Ok(ask(&toed.socket(), &question)?["hosts"][0]["points"].as_array().unwrap().clone())
}

fn count(points: &[Value], name: &str) -> u64 {
    points.iter().find(|point| point["point"] == name).map_or(0, |point| point["count"].as_u64().unwrap())
}

#[test]
fn a_connection_is_streamed_to_its_readers() {
    let toed = Toed::start(HOSTS);
    let both = watch(&toed, &["control.handshake", "control.flow.installed"], None);
    let one = watch(&toed, &["control.flow.*"], Some("b"));
    connect(&toed.socket(), 80);
    let (both, one) = (finish(both), finish(one));
    let of = |host: &str| -> Vec<&str> {
        both.iter().filter(|record| record["host"] == host).map(|record| record["point"].as_str().unwrap()).collect()
    };
    let handshake = |step: &str| format!("control.handshake.{step}");
    assert!(of("a").contains(&&*handshake("syn_sent")) && of("a").contains(&&*handshake("established")));
    assert!(of("b").contains(&&*handshake("syn_received")));
    assert!(both.iter().all(|record| record["thread"] == "control" && record["time_ns"].as_u64().unwrap() > 1 << 60));
    let installed = both.iter().find(|record| record["point"] == "control.flow.installed").unwrap();
    assert_eq!(installed["host"], "a", "nobody accepted it on the other side");
    assert_eq!(installed["args"]["remote"], "10.0.0.2:80");
    assert_eq!(installed["remote"], "10.0.0.2:80");
    assert!(installed["local"].as_str().unwrap().starts_with("10.0.0.1:"));
    assert!(one.iter().all(|record| record["host"] == "b"));
}

#[test]
fn what_a_watcher_turned_on_is_off_when_it_is_gone() {
    let toed = Toed::start(HOSTS);
    let stays = watch(&toed, &["control.request"], Some("a"));
    let goes = watch(&toed, &["control.flow"], Some("a"));
    let is_on = |name: &str| {
        let points = points(&toed, "a", &[], &[]).unwrap();
        points.iter().any(|point| point["point"] == name && point["on"] == true)
    };
    assert!(is_on("control.request") && is_on("control.flow.mss"));
    // As a process that is killed does: nothing is sent.
    drop(goes);
    until("turning off", || !is_on("control.flow.mss"));
    assert!(is_on("control.request"));
    connect(&toed.socket(), 80);
    assert!(finish(stays).iter().all(|record| record["point"] == "control.request" && record["host"] == "a"));
}

#[test]
fn points_are_counted_without_a_watcher() {
    let toed = Toed::start(HOSTS);
    points(&toed, "a", &["control", "flextoe"], &["control.timer.*"]).unwrap();
    connect(&toed.socket(), 80);
    let counted = points(&toed, "a", &[], &["*"]).unwrap();
    assert_eq!(count(&counted, "control.flow.installed"), 1);
    assert_eq!(count(&counted, "control.attached"), 1);
    assert!(count(&counted, "control.request") >= 1 && count(&counted, "flextoe.preprocess.batch") > 0);
    let batch = counted.iter().find(|point| point["point"] == "flextoe.preprocess.batch").unwrap();
    assert!(batch["p50"].as_u64() >= Some(1) && batch["max"].as_u64() >= batch["p50"].as_u64());
    assert_eq!(count(&counted, "control.timer.fired"), 0);
    assert!(points(&toed, "b", &[], &[]).unwrap().is_empty());
    assert!(counted.iter().all(|point| point["on"] == false), "all is disabled again");
    let error = points(&toed, "a", &["control", "nothing.such"], &[]).unwrap_err();
    assert!(error.contains("nothing.such"), "{error}");
    assert!(points(&toed, "a", &[], &[]).unwrap().iter().all(|point| point["on"] == false));
    assert!(points(&toed, "c", &[], &[]).unwrap_err().contains("no host `c`"));
}

/// Those of hosts are provoked in `crates/sim/tests/tracepoints.rs`.
#[test]
fn every_tracepoint_of_threads_and_ports_records() {
    let toed = Toed::start(&format!("[[fabric]]\nname = \"net\"\nloss = 0.5\n{HOSTS}"));
    let figures = |enable: &[&str]| {
        let enable = enable.iter().map(|pattern| pattern.to_string()).collect();
        toed.ask(&Question::Tracepoints { host: None, enable, disable: Vec::new() })
    };
    figures(&["port", "thread"]);
    // Questions for addresses go to everybody, and half of them are lost; they are repeated.
    let (_client, mut a) = attach(&toed.socket(), "a");
    for last in 2..20 {
        let remote = Endpoint::v4(Ipv4Addr::new(10, 0, 0, last), 80);
        let tag = u32::from(last);
        request(
            &mut a,
            Request::Connect {
                tag,
                binding: 0,
                remote,
                congestion: Congestion::DEFAULT,
                mss: 0,
                early: context::EarlyData::No,
            },
        );
    }
    let mut silent = Vec::new();
    until("each of them", || {
        let before = std::mem::take(&mut silent);
        let all = figures(&[]);
        let stations: Vec<&Value> = all["hosts"].as_array().unwrap().iter().collect();
        let counted =
            |name: &str| stations.iter().any(|station| count(station["points"].as_array().unwrap(), name) > 0);
        let names = Point::ALL.iter().map(|point| point.name());
        silent = names.filter(|name| name.starts_with("port.") || name.starts_with("thread.")).collect();
        silent.retain(|name| !counted(name));
        if silent != before {
            eprintln!("silent so far: {silent:?}");
        }
        silent.is_empty()
    });
}
