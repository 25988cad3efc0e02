//! Prometheus' metrics of a real `toed`: both text formats, counters that never go back, and the dashboard over them.
mod common;

use common::Toed;
use common::application::{attach, connect_to, reply, request, until};
use context::{AppEnd, Endpoint, Reply, Request};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

const HOSTS: &str = "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                     [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\n";

/// A daemon that serves metrics.
struct Served {
    toed: Toed,
    url: String,
}

impl Served {
    fn start() -> Served {
        let listen = unused();
        let toed = Toed::start(&format!("[metrics]\nlisten = \"{listen}\"\n{HOSTS}"));
        Served { toed, url: format!("http://{listen}/metrics") }
    }

    fn page(&self) -> String {
        curl(&[&self.url])
    }

    fn value(&self, series: &str) -> f64 {
        value(&parse(&self.page()), series).unwrap_or_else(|| panic!("there is no {series}"))
    }

    /// A connection from `a` to `b`, which has it; it ends with these.
    fn open(&self, port: u16) -> [(OwnedFd, AppEnd); 2] {
        let (server, mut b) = attach(&self.toed.socket(), "b");
        let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, port);
        let bind = Request::Bind { tag: 1, local, reuse_address: false, reuse_port: false, dual_stack: false };
        let Reply::Bound { binding, .. } = request(&mut b, bind) else { panic!("not bound") };
        assert_eq!(request(&mut b, Request::Listen { tag: 2, binding, backlog: 8 }), Reply::Done { tag: 2 });
        b.requests.push(Request::Arm { binding, credits: 8 }.to_words()).unwrap();
        b.daemon_bell.ring();
        let (client, mut a) = attach(&self.toed.socket(), "a");
        assert!(matches!(connect_to(&mut a, port), Reply::Connected { .. }));
        assert!(matches!(reply(&mut b), Reply::Accept { .. }));
        [(client, a), (server, b)]
    }

    /// One more connection, opened and closed.
    fn connect(&self, port: u16) {
        let closed = |host: &str| self.value(&format!("toe_connections_closed_total{{host=\"{host}\"}}"));
        let before = closed("a") + closed("b");
        drop(self.open(port));
        until("the connection's end at both hosts", || closed("a") + closed("b") >= before + 2.0);
    }
}

/// An address that nobody else uses, and a port that was free a moment ago.
fn unused() -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    TcpListener::bind((Ipv4Addr::new(127, 77, high, low), 0)).unwrap().local_addr().unwrap()
}

#[test]
fn both_formats_have_the_same_series() {
    let served = Served::start();
    served.connect(80);
    until("the end of both contexts", || {
        let page = served.page();
        ["a", "b"].iter().all(|host| page.contains(&format!("{{host=\"{host}\",table=\"contexts\"}} 0\n")))
    });
    let classic = parse(&served.page());
    let page = curl(&["-H", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5", &served.url]);
    assert!(page.ends_with("# EOF\n"));
    let open = parse(&page);
    let names = |series: &[(String, f64)]| -> BTreeSet<String> {
        // Limits of classes are numbers, which may be written in several ways.
        series.iter().map(|(name, _)| without_limit(name)).collect()
    };
    assert_eq!(names(&classic), names(&open));
    for (series, page) in [(&classic, served.page()), (&open, page)] {
        assert!(page.contains("le=\"+Inf\""));
        histograms_are_cumulative(series);
        assert!(value(series, "toe_port_frames_total{host=\"a\",port=\"fabric a\",direction=\"in\"}").unwrap() > 0.0);
        assert!(value(series, "toe_module_works_total{host=\"a\",module=\"protocol\"}").is_some());
        assert!(value(series, "toe_thread_rounds_total{thread=\"0\"}").unwrap() > 0.0);
        assert_eq!(value(series, "toe_failed_devices"), Some(0.0));
    }
    let kind = |accept: &str| curl(&["-H", accept, "-o", "/dev/null", "-w", "%{content_type}", &served.url]);
    assert_eq!(kind("Accept: */*"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(
        kind("Accept: application/openmetrics-text"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let missing = curl(&["-o", "/dev/null", "-w", "%{http_code}", &served.url.replace("metrics", "other")]);
    let refused = curl(&["-X", "POST", "-o", "/dev/null", "-w", "%{http_code}", &served.url]);
    assert_eq!((missing.as_str(), refused.as_str()), ("404", "405"));
}

#[test]
fn connections_that_are_over_stay_in_the_counters() {
    let served = Served::start();
    for port in 80..83 {
        served.connect(port);
    }
    let (_connection, mut a) = attach(&served.toed.socket(), "a");
    assert!(matches!(connect_to(&mut a, 99), Reply::Failed { .. }), "there is no listener");
    let counters = [
        ("connections_opened_total", "a", 3.0),
        ("connections_accepted_total", "b", 3.0),
        ("connections_closed_total", "a", 3.0),
        ("connections_closed_total", "b", 3.0),
        ("connections_refused_total", "b", 1.0),
        ("connections_failed_total", "a", 1.0),
        ("connection_duration_seconds_count", "a", 3.0),
        // Of each handshake one.
        ("round_trip_seconds_count", "a", 3.0),
    ];
    for (name, host, expected) in counters {
        let found = served.value(&format!("toe_{name}{{host=\"{host}\"}}"));
        assert!(found >= expected && (found == expected || name.starts_with("round_trip")), "{name} {host}: {found}");
    }
    assert_eq!(served.value("toe_connections_refused_total{host=\"a\"}"), 0.0);
    let before = parse(&served.page());
    served.connect(90);
    let after = parse(&served.page());
    for (name, was) in before.iter().filter(|(name, _)| name.split('{').next().unwrap().ends_with("_total")) {
        assert!(value(&after, name).unwrap() >= *was, "{name} went back");
    }
    let segments = |series: &[(String, f64)]| value(series, "toe_tcp_rx_segments_total{host=\"b\"}").unwrap();
    assert!(segments(&before) > 0.0 && segments(&after) > segments(&before));
}

/// The output of Prometheus' own checker, where it is installed.
#[test]
fn promtool_has_no_complaint() {
    let served = Served::start();
    let enable = ["control", "flextoe", "port"].map(String::from).to_vec();
    served.toed.ask(&daemon::protocol::Question::Tracepoints { host: None, enable, disable: Vec::new() });
    served.connect(80);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = promtool.spawn() else { return println!("skipped: there is no promtool here") };
    child.stdin.take().unwrap().write_all(served.page().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && printed.is_empty(), "{}: {printed}", output.status);
}

/// dist/grafana.json asks for nothing that is not there.
#[test]
fn each_metric_of_the_dashboard_is_in_a_scrape() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(panels.len() > 10 && expressions.len() >= panels.len(), "{}: {expressions:?}", panels.len());
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expressions.iter().flat_map(|expression| expression.split(|c| !is_part(c)));
    let names: BTreeSet<&str> = words.filter(|word| word.starts_with("toe_")).collect();
    let served = Served::start();
    let _open = served.open(80);
    // A drop, whose reason is a series of its own.
    let (_connection, mut a) = attach(&served.toed.socket(), "a");
    assert!(matches!(connect_to(&mut a, 99), Reply::Failed { .. }));
    let series = parse(&served.page());
    let there: BTreeSet<&str> = series.iter().map(|(name, _)| name.split('{').next().unwrap()).collect();
    let missing: Vec<_> = names.difference(&there).collect();
    assert!(names.len() > 15 && missing.is_empty(), "{missing:?} of {names:?}");
}

/// A series without the limit of its class.
fn without_limit(name: &str) -> String {
    let (family, labels) = name.split_once('{').unwrap_or((name, ""));
    let others = labels.trim_end_matches('}').split(',').filter(|label| !label.starts_with("le="));
    format!("{family}{{{}}}", others.collect::<Vec<_>>().join(","))
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-s", "-S", "--max-time", "20"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn value(series: &[(String, f64)], name: &str) -> Option<f64> {
    series.iter().find(|(found, _)| found == name).map(|(_, value)| *value)
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
        // OpenMetrics has braces without labels, too.
        (name.trim_end_matches("{}").to_string(), value.parse().unwrap())
    });
    series.collect()
}

fn histograms_are_cumulative(series: &[(String, f64)]) {
    let mut seen = 0;
    for (name, count) in series.iter().filter(|(name, _)| name.contains("_count{")) {
        let mine = name.replace("_count{", "_bucket{");
        let buckets = series.iter().filter(|(name, _)| name.contains("_bucket{") && without_limit(name) == mine);
        let buckets: Vec<f64> = buckets.map(|(_, number)| *number).collect();
        assert!(buckets.windows(2).all(|pair| pair[0] <= pair[1]), "{name}: {buckets:?}");
        assert_eq!(buckets.last(), Some(count), "{name}");
        seen += 1;
    }
    assert!(seen > 0);
}
