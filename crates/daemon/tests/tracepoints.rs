//! Tracepoints of a real `toed`: streams, counters, and Prometheus' metrics, while applications connect.
mod common;

use common::Toed;
use common::application::{attach, listen, reply, request, until};
use context::{Congestion, Endpoint, Reply, Request};
use daemon::client::{ask, open};
use daemon::protocol::{Question, Trace};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::process::Command;
use trace::Point;

const HOSTS: &str = "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                     [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\n";

/// Has host `a` connect to port 80 of host `b`; all is over when this returns.
fn connect(toed: &Toed) {
    let (_server, mut b) = attach(&toed.socket(), "b");
    listen(&mut b, 80);
    let (_client, mut a) = attach(&toed.socket(), "a");
    let remote = Endpoint::v4(Ipv4Addr::new(10, 0, 0, 2), 80);
    let connect = Request::Connect { tag: 3, binding: 0, remote, congestion: Congestion::DEFAULT, mss: 0 };
    assert!(matches!(request(&mut a, connect), Reply::Connecting { tag: 3, .. }));
    assert!(matches!(reply(&mut a), Reply::Connected { tag: 3, .. }));
}

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
fn a_connection_is_seen_by_those_who_watch_it() {
    let toed = Toed::start(HOSTS);
    let both = watch(&toed, &["control.handshake", "control.flow.installed"], None);
    let one = watch(&toed, &["control.flow.*"], Some("b"));
    connect(&toed);
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
    // As a process that is killed does: nothing is said.
    drop(goes);
    until("turning off", || !is_on("control.flow.mss"));
    assert!(is_on("control.request"));
    connect(&toed);
    assert!(finish(stays).iter().all(|record| record["point"] == "control.request" && record["host"] == "a"));
}

#[test]
fn points_are_counted_without_a_watcher_and_a_wrong_name_changes_nothing() {
    let toed = Toed::start(HOSTS);
    points(&toed, "a", &["control", "flextoe"], &["control.timer.*"]).unwrap();
    connect(&toed);
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
fn every_tracepoint_of_threads_and_ports_says_something() {
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
        request(&mut a, Request::Connect { tag, binding: 0, remote, congestion: Congestion::DEFAULT, mss: 0 });
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

#[test]
fn prometheus_finds_metrics_where_the_configuration_says() {
    // A port that was free a moment ago, of an address that nobody else uses.
    let [.., high, low] = std::process::id().to_be_bytes();
    let listen = TcpListener::bind((Ipv4Addr::new(127, 77, high, low), 0)).unwrap().local_addr().unwrap();
    let toed = Toed::start(&format!("[metrics]\nlisten = \"{listen}\"\n{HOSTS}"));
    points(&toed, "a", &["control", "flextoe"], &[]).unwrap();
    connect(&toed);
    let mut page = String::new();
    until("the end of both contexts", || {
        page = curl(&[&format!("http://{listen}/metrics")]);
        ["a", "b"].iter().all(|host| page.contains(&format!("{{host=\"{host}\",table=\"contexts\"}} 0")))
    });
    assert!(page.ends_with("# EOF\n"));
    let series = parse(&page);
    let value = |name: &str| series.iter().find(|(series, _)| series == name).map(|(_, value)| *value);
    assert!(value("toe_port_frames_total{host=\"a\",port=\"fabric a\",direction=\"in\"}").unwrap() > 0.0);
    assert!(value("toe_module_works_total{host=\"a\",module=\"protocol\"}").is_some());
    assert_eq!(value("toe_trace_control_flow_installed_total{host=\"a\"}"), Some(1.0));
    assert_eq!(value("toe_table_entries{host=\"b\",table=\"contexts\"}"), Some(0.0), "{page}");
    assert!(value("toe_thread_rounds_total{thread=\"0\"}").unwrap() > 0.0);
    histograms_are_cumulative(&series);
    let missing = curl(&["-o", "/dev/null", "-w", "%{http_code}", &format!("http://{listen}/other")]);
    let refused = curl(&["-X", "POST", "-o", "/dev/null", "-w", "%{http_code}", &format!("http://{listen}/metrics")]);
    assert_eq!((missing.as_str(), refused.as_str()), ("404", "405"));
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-s", "-S", "--max-time", "20"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Series with their labels, and values; every other line is a comment that names what follows.
fn parse(page: &str) -> Vec<(String, f64)> {
    let series = page.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("toe_"), "{line}");
        let family = name.split('{').next().unwrap();
        let known = ["", "_total", "_bucket", "_sum", "_count"].iter().any(|suffix| {
            family.strip_suffix(suffix).is_some_and(|family| page.contains(&format!("# TYPE {family} ")))
        });
        assert!(known, "{line}");
        (name.to_string(), value.parse().unwrap())
    });
    series.collect()
}

fn histograms_are_cumulative(series: &[(String, f64)]) {
    let mut seen = 0;
    for (name, count) in series.iter().filter(|(name, _)| name.contains("_count{")) {
        let family = name.split("_count{").next().unwrap();
        let buckets: Vec<f64> = series
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("{family}_bucket{{")))
            .map(|(_, n)| *n)
            .collect();
        assert!(buckets.windows(2).all(|pair| pair[0] <= pair[1]), "{family}: {buckets:?}");
        assert_eq!(buckets.last(), Some(count), "{family}");
        seen += 1;
    }
    assert!(seen > 0);
}
