//! Metrics for Prometheus: `GET /metrics` where the configuration has it. One series for each host, port, module and
//! reason; connections only added up, since there may be many and they come and go.
mod families;
mod http;
mod text;

use crate::tracepoints::Tracepoints;
use crate::views::Observer;
use families::{Families, Sample};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use text::Format;
use trace::{Distribution, Figure, Unit};

/// The socket for [`serve`]. The error is a sentence.
pub(crate) fn listen(at: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(at).map_err(|e| format!("cannot serve metrics at {at}: {e} (metrics.listen)"))
}

/// The socket for [`serve`], as soon as the daemon that had it is gone; none, with a line in the log, where it stays.
pub(crate) fn listen_patiently(at: SocketAddr) -> Option<TcpListener> {
    let begin = std::time::Instant::now();
    loop {
        match listen(at) {
            Ok(listener) => return Some(listener),
            Err(sentence) if begin.elapsed().as_secs() >= 3 => {
                tracing::error!("{sentence}");
                return None;
            }
            Err(_) => thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
}

/// Answers on a socket from now on, on a thread of its own. The error is a sentence.
pub(crate) fn serve(listener: TcpListener, metrics: Metrics) -> Result<(), String> {
    let at = listener.local_addr().map_err(|e| e.to_string())?;
    let body = move || http::serve(&listener, |format| metrics.page(format));
    thread::Builder::new().name("metrics".into()).spawn(body).map_err(|e| format!("cannot start a thread: {e}"))?;
    tracing::info!("metrics are at http://{at}/metrics");
    Ok(())
}

/// Where metrics come from.
pub(crate) struct Metrics {
    observer: Arc<Observer>,
    tracepoints: Arc<Tracepoints>,
}

impl Metrics {
    pub(crate) fn new(observer: Arc<Observer>, tracepoints: Arc<Tracepoints>) -> Metrics {
        Metrics { observer, tracepoints }
    }

    /// All metrics now. The error is a sentence.
    fn page(&self, format: Format) -> Result<String, String> {
        let families = self.families()?;
        if format == Format::Classic {
            return Ok(text::write(PREFIX, &families));
        }
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(families));
        let mut text = String::new();
        encode(&mut text, &registry).map_err(|_| "the metrics cannot be written".to_string())?;
        Ok(text)
    }

    fn families(&self) -> Result<Families, String> {
        let mut families = Families::default();
        families.stats(&self.observer.stats(None, None)?);
        for (host, figures) in self.tracepoints.all_figures() {
            figures.iter().for_each(|figure| families.tracepoint(&host, figure));
        }
        Ok(families)
    }
}

/// Counters of a library of offload functions: what they are divided by.
const OFFLOAD: [(&str, &str, f64); 5] = [
    ("calls", "Calls of offload functions that were begun", 1.0),
    ("failed", "Calls of offload functions that failed, or were ended at their time limit", 1.0),
    ("timed_out", "Calls of offload functions that were ended at their time limit", 1.0),
    ("busy_ns", "Time in which offload functions ran", 1e9),
    ("dma", "DMA operations of offload functions", 1.0),
];

/// What all names begin with.
const PREFIX: &str = "toe";

impl Families {
    /// What `opentoe stats` shows.
    fn stats(&mut self, stats: &Value) {
        for host in each(&stats["hosts"]) {
            self.host(host);
        }
        for host in each(&stats["zeronics"]) {
            self.zeronic(host);
        }
        for (fabric, value) in pairs(&stats["fabrics"]) {
            for member in each(&value["members"]) {
                for (direction, key) in [("in", "tx"), ("out", "rx")] {
                    let labels = [("fabric", fabric), ("member", text(&member["name"])), ("direction", direction)];
                    let figure = |what: &str| Sample::Counter(number(&member[format!("{key}_{what}")]));
                    self.add(
                        "fabric_frames",
                        "Frames that a fabric took from or gave to a member",
                        &labels,
                        figure("frames"),
                    );
                    self.add(
                        "fabric_bytes",
                        "Bytes that a fabric took from or gave to a member",
                        &labels,
                        figure("bytes"),
                    );
                }
            }
        }
        self.storage(stats);
        let failures = each(&stats["failures"]).count() as f64;
        self.add("failed_devices", "Devices that are gone, as opentoe why names them", &[], Sample::Gauge(failures));
        if let Some(bytes) = stats["heap_bytes"].as_f64() {
            self.add("heap_bytes", "Bytes of blocks that the daemon has allocated", &[], Sample::Gauge(bytes));
        }
        for thread in each(&stats["threads"]) {
            let number_of = thread["thread"].to_string();
            let labels = [("thread", number_of.as_str())];
            let counter = |key: &str, scale: f64| Sample::Counter(number(&thread[key]) / scale);
            self.add("thread_rounds", "Rounds of a data-path thread", &labels, counter("rounds", 1.0));
            self.add("thread_busy_rounds", "Rounds in which something was done", &labels, counter("busy_rounds", 1.0));
            self.add("thread_busy_seconds", "Time that those rounds took", &labels, counter("busy_ns", 1e9));
            self.add("thread_sleeps", "Times that a data-path thread slept", &labels, counter("sleeps", 1.0));
            self.add("thread_asleep_seconds", "Time that it slept", &labels, counter("asleep_ns", 1e9));
            self.add("thread_cpu_seconds", "Processor time that it took", &labels, counter("cpu_ns", 1e9));
        }
    }

    fn storage(&mut self, stats: &Value) {
        let sides = [("volumes", "name", "served"), ("blocks", "volume", "used")];
        for (list, name, side) in sides {
            for volume in each(&stats[list]) {
                let labels = [("host", text(&volume["host"])), ("volume", text(&volume[name])), ("side", side)];
                let figure = |key: &str| Sample::Counter(number(&volume["requests"][key]));
                self.add("volume_read_bytes", "Bytes read from a volume", &labels, figure("read_bytes"));
                self.add("volume_written_bytes", "Bytes written to a volume", &labels, figure("written_bytes"));
                self.add("volume_failed", "Requests to a volume that failed", &labels, figure("failed"));
                if side == "served" {
                    let help = "Reads that found other bytes than were written";
                    self.add("volume_checksum_errors", help, &labels, figure("checksum_errors"));
                }
            }
        }
    }

    fn host(&mut self, host: &Value) {
        let name = text(&host["name"]);
        let info = [("host", name), ("engine", text(&host["engine"])), ("version", env!("CARGO_PKG_VERSION"))];
        self.add("host_info", "A host, its engine, and the daemon's version", &info, Sample::Gauge(1.0));
        pairs(&host["ports"]).for_each(|(port, counters)| self.port(name, port, counters));
        self.drops(name, host);
        for (table, count) in pairs(&host["tables"]) {
            let labels = [("host", name), ("table", table)];
            self.add("table_entries", "Entries of a table of the control plane", &labels, Sample::Gauge(number(count)));
        }
        for (module, figures) in pairs(&host["modules"]) {
            self.module(&[("host", name), ("module", module)], figures);
        }
        // A process may report twice, by two contexts; a series must be there once.
        let mut pids = BTreeSet::new();
        let engines = each(&host["rdma"]["offload"]).filter(|engine| pids.insert(engine["pid"].as_u64()));
        engines.for_each(|engine| self.offload(name, engine));
        self.connections(name, &host["connections"]);
        self.flows(name, host);
    }

    /// An offload engine, by its process: its counters begin anew with each worker.
    fn offload(&mut self, host: &str, engine: &Value) {
        let pid = engine["pid"].to_string();
        let labels = [("host", host), ("pid", pid.as_str())];
        let restarts = Sample::Counter(number(&engine["restarts"]));
        self.add("offload_restarts", "Times that the worker of an offload engine was started again", &labels, restarts);
        let help = "DMA operations of offload functions that are outstanding in the kernel";
        self.add("offload_outstanding_dma", help, &labels, Sample::Gauge(number(&engine["outstanding_dma"])));
        for library in each(&engine["libraries"]) {
            let labels = [("host", host), ("pid", pid.as_str()), ("library", text(&library["name"]))];
            for (key, help, scale) in OFFLOAD {
                let name = key.replace("_ns", "_seconds");
                self.add(&format!("offload_{name}"), help, &labels, Sample::Counter(number(&library[key]) / scale));
            }
        }
    }

    fn port(&mut self, host: &str, port: &str, counters: &Value) {
        for (direction, key) in [("in", "rx"), ("out", "tx")] {
            let labels = [("host", host), ("port", port), ("direction", direction)];
            let figure = |what: &str| Sample::Counter(number(&counters[format!("{key}_{what}")]));
            self.add("port_frames", "Frames of a host's port", &labels, figure("frames"));
            self.add("port_bytes", "Bytes of a host's port", &labels, figure("bytes"));
        }
    }

    fn drops(&mut self, name: &str, host: &Value) {
        for (reason, count) in pairs(&host["drops"]) {
            let labels = [("host", name), ("reason", reason)];
            self.add("drops", "Frames, segments and descriptors dropped", &labels, Sample::Counter(number(count)));
        }
    }

    /// A ZeroNIC host.
    fn zeronic(&mut self, host: &Value) {
        let name = text(&host["name"]);
        let info = [("host", name), ("transport", text(&host["transport"]))];
        self.add("zeronic_info", "A ZeroNIC host, and what decides on its headers", &info, Sample::Gauge(1.0));
        for (key, help) in [("programs", "Programs of a ZeroNIC host"), ("open", "Connections of a ZeroNIC host")] {
            self.add(&format!("zeronic_{key}"), help, &[("host", name)], Sample::Gauge(number(&host[key])));
        }
        let counted =
            |part: &'static str| pairs(&host[part]).filter_map(|(key, value)| Some((zeronic_help(key)?, value)));
        for ((series, help), value) in counted("payload").chain(counted("headers")) {
            self.add(&format!("zeronic_{series}"), help, &[("host", name)], Sample::Counter(number(value)));
        }
        self.port(name, "fabric", &host["port"]);
        self.drops(name, host);
    }

    fn module(&mut self, labels: &[(&'static str, &str)], figures: &Value) {
        for (figure, value) in pairs(figures) {
            let value = number(value);
            match figure {
                "works" => self.add("module_works", "Works of an engine's module", labels, Sample::Counter(value)),
                "batches" => {
                    self.add("module_batches", "Batches of an engine's module", labels, Sample::Counter(value))
                }
                "waiting" => self.add("module_waiting", "Works that wait for a module", labels, Sample::Gauge(value)),
                "busy_ns" => {
                    let help = "Time that a module worked, estimated from one batch in 64";
                    self.add("module_busy_seconds", help, labels, Sample::Counter(value / 1e9));
                }
                _ => {}
            }
        }
    }

    /// What a host's connections came to, over all of its time.
    fn connections(&mut self, name: &str, connections: &Value) {
        let labels = [("host", name)];
        for (key, help) in CONNECTIONS {
            let count = Sample::Counter(number(&connections[key]));
            self.add(&format!("connections_{key}"), help, &labels, count);
        }
        for (key, help) in TCP {
            self.add(&format!("tcp_{key}"), help, &labels, Sample::Counter(number(&connections["sums"][key])));
        }
        let help = "Round-trip times of connections: of handshakes, and at most one in a round trip later";
        self.add("round_trip_seconds", help, &labels, times(&connections["round_trip_ns"]));
        let help = "How long connections were open that are over";
        self.add("connection_duration_seconds", help, &labels, times(&connections["duration_ns"]));
    }

    /// Connections that are there now.
    fn flows(&mut self, name: &str, host: &Value) {
        for (state, count) in pairs(&host["states"]) {
            let labels = [("host", name), ("state", state)];
            self.add("flows", "Connections by state", &labels, Sample::Gauge(number(count)));
        }
        for (figure, help) in [
            ("outstanding", "Bytes that were sent and are not acknowledged, of all connections"),
            ("unsent", "Bytes that programs wrote and that were not sent yet, of all connections"),
        ] {
            let sum = Sample::Gauge(number(&host["totals"][figure]));
            self.add(&format!("flows_{figure}_bytes"), help, &[("host", name)], sum);
        }
    }

    fn tracepoint(&mut self, host: &str, figure: &Figure) {
        let point = figure.point;
        let name = format!("trace_{}", point.name().replace('.', "_"));
        let (labels, help) = ([("host", host)], point.sentence().trim_end_matches('.'));
        let Some(distribution) = &figure.distribution else {
            return self.add(&name, help, &labels, Sample::Counter(figure.count as f64));
        };
        let (suffix, scale) = match point.arguments()[0].1 {
            Unit::Nanoseconds => ("_seconds", 1e9),
            Unit::Bytes => ("_bytes", 1.0),
            _ => ("", 1.0),
        };
        let name = format!("{name}{suffix}");
        self.add(&name, help, &labels, histogram(distribution, scale));
    }
}

/// The series of a ZeroNIC host's counter, and its help text.
fn zeronic_help(key: &str) -> Option<(&'static str, &'static str)> {
    Some(match key {
        "placed_bytes" => ("placed_bytes", "Payload that was placed in programs' memory"),
        "fetched_bytes" => ("fetched_bytes", "Payload that was fetched from programs' memory"),
        "copied_out_bytes" => ("copied_out_bytes", "Fetched payload that was copied into frames"),
        "without_place" => ("without_place", "Segments whose payload found no posted memory"),
        "old" => ("old", "Segments that the transport had already"),
        "in" => ("headers_in", "Headers that went to the transport"),
        "merged" => ("headers_merged", "Received headers that became part of another one"),
        "out" => ("headers_out", "Headers that the transport made"),
        "frames_out" => ("frames_out", "Frames that were made of them"),
        "window_updates" => ("window_updates", "Window updates by the NIC's half"),
        _ => return None,
    })
}

/// Counters of a host's connections, and their help texts.
const CONNECTIONS: [(&str, &str); 5] = [
    ("opened", "Connections that programs of the host opened"),
    ("accepted", "Connections that came to listeners of the host"),
    ("refused", "SYNs that got no connection: there is no listener, or a backlog or a table is full"),
    ("failed", "Connections that programs of the host wanted to open, and that failed"),
    ("closed", "Connections that were open and are over"),
];

/// What connections counted, those that are over and those that are open.
const TCP: [(&str, &str); 13] = [
    ("acked_bytes", "Payload that peers acknowledged"),
    ("tx_bytes", "Payload sent, retransmissions included"),
    ("tx_segments", "Segments sent with payload or FIN; a super-segment counts as one"),
    ("rx_bytes", "Payload received in order"),
    ("rx_segments", "Segments received"),
    ("retransmitted_segments", "Segments sent again, probes included"),
    ("tail_probes", "Last segments sent again to find out whether they were lost (RFC 8985 section 7)"),
    ("fast_retransmits", "Losses found by what the peer has, or that a probe repaired"),
    ("dsack_dups", "Acknowledgements that report something that came twice (D-SACK): sent again for nothing"),
    ("duplicate_acks", "Duplicate acknowledgements received"),
    ("out_of_order", "Segments received out of order and kept"),
    ("ecn_bytes", "Payload whose acknowledgement echoed congestion"),
    ("drops", "Segments of connections, or parts of them, that were dropped"),
];

/// Times in nanoseconds by classes, as a histogram in seconds.
fn times(times: &Value) -> Sample {
    let (mut before, mut buckets) = (0, Vec::new());
    for class in each(&times["at_most"]) {
        let (end, below) = (number(&class[0]), class[1].as_u64().unwrap_or(0));
        buckets.push((end / 1e9, below - before));
        before = below;
    }
    let count = times["count"].as_u64().unwrap_or(0);
    buckets.push((f64::INFINITY, count.saturating_sub(before)));
    Sample::Histogram { sum: number(&times["sum"]) / 1e9, count, buckets }
}

fn histogram(distribution: &Distribution, scale: f64) -> Sample {
    let (mut before, mut buckets) = (0, Vec::new());
    for (limit, below) in distribution.cumulative() {
        // Values are whole numbers: those below the limit are at most one less.
        buckets.push(((limit - 1) as f64 / scale, below - before));
        before = below;
    }
    buckets.push((f64::INFINITY, 0));
    Sample::Histogram { sum: distribution.sum as f64 / scale, count: before, buckets }
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn pairs(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}
