//! Tracepoints of all hosts and data-path threads: what is on, what was counted, and streams of records.
use crate::build::HostPlace;
use crate::clock::Clock;
use crate::datapath::Handle;
use crate::protocol::Trace;
use engine::stream::FourTuple;
use engine::{DropReason, FlowId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use trace::{Figure, Kind, NO_FLOW, Point, PointSet, Record, Traces, Unit, Watch};
use wire::Endpoint;

/// Records of a thread that are taken at once, between two checks whether the reader has ended.
const AT_ONCE: usize = 256;
/// How much less than the data-path's the priority of a thread is that writes records: a tenth of a shared core.
const LOWER: i32 = 10;
/// How long a stream sleeps while nothing happens: a thread's latest records last longer at any rate that it reaches.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// What has tracepoints: a host, or a data-path thread.
#[derive(Clone)]
struct Station {
    name: String,
    traces: Arc<Traces>,
    /// Of a host: its thread, and its index there.
    host: Option<(Handle, usize)>,
    /// Of a thread: the hosts that it runs.
    runs: Vec<String>,
}

/// All that have tracepoints.
pub(crate) struct Tracepoints {
    clock: Clock,
    stations: Vec<Station>,
}

impl Tracepoints {
    pub(crate) fn new(clock: Clock, handles: &[Handle], hosts: &[HostPlace], threads: Vec<Arc<Traces>>) -> Tracepoints {
        let runs = |thread: usize| {
            let own = hosts.iter().filter(move |place| place.thread == thread);
            own.map(|place| place.config.stack.name.clone()).collect()
        };
        let threads = threads.into_iter().enumerate().map(|(number, traces)| Station {
            name: format!("thread {number}"),
            traces,
            host: None,
            runs: runs(number),
        });
        let threads: Vec<Station> = threads.collect();
        let hosts = hosts.iter().map(|place| Station {
            name: place.config.stack.name.clone(),
            traces: Arc::clone(&place.traces),
            host: Some((handles[place.thread].clone(), place.index)),
            runs: Vec::new(),
        });
        Tracepoints { clock, stations: hosts.chain(threads).collect() }
    }

    /// The host of this name, or all hosts and threads.
    fn named(&self, host: Option<&str>) -> Result<Vec<&Station>, String> {
        let named = |station: &&Station| host.is_none_or(|name| station.host.is_some() && name == station.name);
        let found: Vec<&Station> = self.stations.iter().filter(named).collect();
        match found.is_empty() {
            true => Err(format!("this daemon has no host `{}`", host.unwrap_or_default())),
            false => Ok(found),
        }
    }

    /// Has points counted or not, then returns what was counted. A refusal changes nothing.
    pub(crate) fn figures(&self, host: Option<&str>, enable: &[String], disable: &[String]) -> Result<Value, String> {
        let stations = self.named(host)?;
        let (enable, disable) = (PointSet::named(enable)?, PointSet::named(disable)?);
        let mut hosts = Vec::new();
        for station in stations {
            station.traces.enable(enable);
            station.traces.disable(disable);
            let points: Vec<Value> = station.traces.figures().iter().map(figure).collect();
            hosts.push(json!({ "name": station.name, "runs": station.runs, "points": points }));
        }
        Ok(json!({ "hosts": hosts }))
    }

    /// Counts of all hosts and threads, with their names.
    pub(crate) fn all_figures(&self) -> Vec<(String, Vec<Figure>)> {
        self.stations.iter().map(|station| (station.name.clone(), station.traces.figures())).collect()
    }

    /// Turns on what is wished, until what is returned is dropped.
    pub(crate) fn begin(&self, wish: &Trace) -> Result<Stream, String> {
        let stations = self.named(wish.host.as_deref())?;
        let all = ["*".to_string()];
        let points = PointSet::named(if wish.points.is_empty() { &all } else { &wish.points })?;
        // New flows are always recorded, for their addresses.
        let watched = points.with(PointSet::of(&[Point::FlowInstalled]));
        let watch = |station: &Station| Source {
            watch: station.traces.watch(watched, wish.flow),
            station: station.clone(),
            tuples: HashMap::new(),
        };
        let sources = stations.into_iter().map(watch).collect();
        Ok(Stream { sources, points, epoch: self.clock.epoch(), missed: 0 })
    }
}

/// What a point counted, for people and machines.
fn figure(figure: &Figure) -> Value {
    let point = figure.point;
    let mut value = json!({ "point": point.name(), "on": figure.on, "count": figure.count });
    if let (Kind::Histogram, Some(distribution)) = (point.kind(), &figure.distribution) {
        value["unit"] = point.arguments()[0].1.name().into();
        value["p50"] = distribution.quantile(0.5).into();
        value["p99"] = distribution.quantile(0.99).into();
        value["max"] = distribution.max.into();
        value["sum"] = distribution.sum.into();
    }
    value
}

/// Records for one client.
pub(crate) struct Stream {
    sources: Vec<Source>,
    points: PointSet,
    /// Unix time of the daemon's clock's 0, nanoseconds.
    epoch: u64,
    missed: u64,
}

/// A station that is watched.
struct Source {
    watch: Watch,
    station: Station,
    tuples: HashMap<u32, Option<FourTuple>>,
}

impl Stream {
    /// What is traced.
    pub(crate) fn answer(&self) -> Value {
        let hosts: Vec<&str> = self.sources.iter().map(|source| source.station.name.as_str()).collect();
        json!({ "hosts": hosts, "points": self.points.iter().count() })
    }

    /// Writes a line for each record until the client shuts its side down or is gone; then how many were missed.
    pub(crate) fn run(mut self, mut to: &UnixStream) -> io::Result<()> {
        // Records come faster than they can be written as lines: the core is the data-path's before it is this
        // thread's. An error leaves it as it is.
        let _ = rustix::process::nice(LOWER);
        let (mut lines, mut records, mut busy) = (Vec::new(), Vec::new(), true);
        loop {
            // Read before the records are: what happened until then is reported.
            let ended = readable(to, busy);
            for source in &mut self.sources {
                records.clear();
                source.watch.read(AT_ONCE, &mut records);
                source.learn(&records);
                for record in records.iter().filter(|record| self.points.has(record.point)) {
                    serde_json::to_writer(&mut lines, &source.line(record, self.epoch))?;
                    lines.push(b'\n');
                }
            }
            let missed = self.sources.iter().map(|source| source.watch.missed()).sum();
            busy = !lines.is_empty();
            if missed > self.missed || ended {
                self.missed = missed;
                writeln!(lines, "{}", json!({ "missed": missed, "end": ended }))?;
            }
            to.write_all(&lines)?;
            lines.clear();
            if ended {
                return Ok(());
            }
        }
    }
}

/// The client sent something or is gone; waits a little for it unless there is more to do.
fn readable(stream: &UnixStream, busy: bool) -> bool {
    let timeout = if busy { Timespec { tv_sec: 0, tv_nsec: 0 } } else { REST };
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).is_ok_and(|count| count > 0)
}

impl Source {
    /// Looks up the addresses of flows that it does not have.
    fn learn(&mut self, records: &[Record]) {
        let flows = records.iter().filter(|record| record.flow != NO_FLOW && record.point != Point::FlowInstalled);
        let unknown: BTreeSet<u32> =
            flows.map(|record| record.flow).filter(|flow| !self.tuples.contains_key(flow)).collect();
        if unknown.is_empty() {
            return;
        }
        let Some((handle, index)) = self.station.host.clone() else { return };
        let tuples = move |path: &mut crate::datapath::DataPath| -> Vec<(u32, Option<FourTuple>)> {
            unknown.into_iter().map(|flow| (flow, path.hosts[index].host.base().tuple(FlowId(flow)))).collect()
        };
        self.tuples.extend(handle.ask(tuples).unwrap_or_default());
    }

    fn line(&mut self, record: &Record, epoch: u64) -> Value {
        if record.point == Point::FlowInstalled {
            let [local, remote] = record.values.map(socket);
            self.tuples.insert(record.flow, Some(FourTuple::new(local, remote)));
        }
        let arguments = record.point.arguments().iter().zip(record.values);
        let arguments: Map<String, Value> =
            arguments.map(|((name, unit), number)| (name.to_string(), value(*unit, number))).collect();
        let mut line = json!({
            "time_ns": epoch + record.time,
            "host": self.station.name,
            "thread": self.station.traces.thread(record.thread),
            "point": record.point.name(),
            "args": arguments,
        });
        if record.flow != NO_FLOW {
            line["flow"] = record.flow.into();
            if let Some(Some(tuple)) = self.tuples.get(&record.flow) {
                line["local"] = tuple.local().to_string().into();
                line["remote"] = tuple.remote().to_string().into();
            }
        }
        line
    }
}

/// An argument: a word where its number stands for one.
fn value(unit: Unit, number: u64) -> Value {
    match unit {
        Unit::Drop => DropReason::ALL.get(number as usize).map_or(number.into(), |reason| reason.label().into()),
        Unit::Endpoint => socket(number).to_string().into(),
        _ => unit.words().get(number as usize).map_or(number.into(), |word| (*word).into()),
    }
}

fn socket(number: u64) -> Endpoint {
    Endpoint::v4(Ipv4Addr::from_bits((number >> 16) as u32), number as u16)
}
