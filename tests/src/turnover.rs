//! Modules come and go under load: no connection is lost, every byte is right, and nothing grows.
use crate::cases::{Bench, PYTHON, app};
use crate::daemon::Daemon;
use crate::faults::Bystanders;
use crate::hostile::own_memory;
use crate::modules::{Host, VlanPeer};
use crate::process::Process;
use crate::report::Outcome;
use crate::splicing::Proxied;
use std::fs;
use std::mem::replace;
use std::ops::Range;
use std::time::Duration;

/// Rounds in an ordinary run, where a command of its own makes more (`endurance modules`).
const SHORT: usize = 200;
/// How many more bytes the daemon may have allocated after all rounds than after a tenth of them, however many they
/// are.
const MORE_HEAP: u64 = 256 << 10;
/// How much more memory it may have, KiB, with what the allocator keeps at the ends of its arenas
/// (`shm::reserve::allocated`).
const GROWTH_KIB: u64 = 2048;
/// Without load for so long, a thread has given its spare frames and the memory of its queues back (docs/MEMORY.md): it
/// finds itself quiet two seconds after its work at most.
const PAUSE: Duration = Duration::from_millis(2500);
/// Measurements until it gives nothing more back.
const MEASUREMENTS: usize = 6;
/// How many more mappings: native code that stayed would be one or two of each round.
const MORE_MAPPINGS: usize = 40;
/// Bytes each way of a transfer during which modules come and go.
const TRANSFER: &str = "200000000";
/// How long a module stays, and how long it is away, so that segments meet both.
const MOMENT: Duration = Duration::from_millis(2);

/// Modules that watch or hold back, one after the other.
pub(crate) fn many(bench: &Bench) -> Outcome {
    many_times(bench, 1000)
}

/// VLAN tags are put on and taken off, between OpenTOE and a peer that takes nothing else.
pub(crate) fn vlan(bench: &Bench) -> Outcome {
    vlan_times(bench, SHORT)
}

/// The splice module, while connections are joined.
pub(crate) fn splice(bench: &Bench) -> Outcome {
    splice_times(bench, SHORT)
}

/// As [`many`], so many times.
pub(crate) fn many_times(bench: &Bench, rounds: usize) -> Outcome {
    let host = Host::of(bench)?;
    let objects = [host.compile("null")?, host.compile("firewall")?, host.compile("classify")?, "native:meter".into()];
    let round = |at: usize| {
        let loaded = host.load_object(&objects[at % objects.len()])?;
        host.take_out(&loaded)
    };
    during_transfers(bench, rounds, || Transfer::streams(bench), round)
}

/// As [`vlan`], so many times.
pub(crate) fn vlan_times(bench: &Bench, rounds: usize) -> Outcome {
    let host = Host::of(bench)?;
    let objects = [host.compile("vlan_strip")?, host.compile("vlan_push")?];
    let load = |which: usize| {
        let name = host.load_object(&objects[which])?;
        if name == "vlan_push" { host.set(&name, "config", "0", r#"{"tag": 42}"#) } else { Ok(()) }
    };
    [0, 1].into_iter().try_for_each(load)?;
    let peer = VlanPeer::start(&host)?;
    // Without one of them nothing gets through in that direction: what is lost meanwhile is sent again.
    let round = |at: usize| {
        host.take_out(["vlan_strip", "vlan_push"][at % 2])?;
        load(at % 2)?;
        bench.session.pause(MOMENT)
    };
    let report = during_transfers(bench, rounds, || Transfer::streams(bench), round)?;
    let (stripped, pushed) = (host.tagged("vlan_strip", "stripped")?, host.tagged("vlan_push", "pushed")?);
    peer.stop()?;
    ["vlan_strip", "vlan_push"].into_iter().try_for_each(|name| host.take_out(name))?;
    Ok(format!("{report}; the last ones took {stripped} tags off and put {pushed} on"))
}

/// As [`splice`], so many times. Without the module the control plane passes the segments of joined connections on.
pub(crate) fn splice_times(bench: &Bench, rounds: usize) -> Outcome {
    let host = Host::of(bench)?;
    let proxied = Proxied::start(bench)?;
    let object = host.compile("splice")?;
    let round = |_| {
        host.take_out("splice")?;
        bench.session.pause(MOMENT)?;
        host.load_object(&object)?;
        bench.session.pause(MOMENT)
    };
    let report = during_transfers(bench, rounds, || proxied.transfer(bench), round)?;
    let (segments, passed) = (host.counter("splice", "segments")?, host.counter("splice", "passed_by_control_plane")?);
    if passed == 0 || segments <= passed {
        return Err(format!(
            "of {segments} segments, {passed} passed the control plane: the module was never away, or always"
        ));
    }
    Ok(format!(
        "{report}; {} pairs joined: {segments} segments, {passed} of them by the control plane",
        proxied.spliced()
    ))
}

/// A transfer whose programs compare every byte themselves.
pub(crate) struct Transfer<'a> {
    client: Process<'a>,
    /// Where it serves this transfer only.
    server: Option<Process<'a>>,
    /// Connections that the host sees as established.
    connections: usize,
}

impl<'a> Transfer<'a> {
    /// By `apps/stream.c`, both ways at once.
    fn streams(bench: &Bench<'a>) -> Result<Transfer<'a>, String> {
        let bench = bench.on_another_port();
        let (address, port) = (bench.address(), bench.port());
        let server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
        let both = ["-c", &address, "-p", &port, "-u", TRANSFER, "-d", TRANSFER];
        let client = bench.client_in_background(&app("stream"), &both)?;
        Ok(Transfer { client, server: Some(server), connections: 1 })
    }

    fn finish(mut self) -> Result<(), String> {
        self.client.succeed()?;
        self.server.map_or(Ok(()), |mut server| server.succeed().map(drop))
    }
}

impl<'a> Proxied<'a> {
    /// Through the proxy, once it has joined the connections.
    fn transfer(&self, bench: &Bench<'a>) -> Result<Transfer<'a>, String> {
        let spliced = self.spliced();
        let (script, address, port) = (bench.files.path("joined.py"), bench.address(), bench.port());
        let arguments = [script.as_str(), "call", &address, &port, "both", TRANSFER];
        let mut client = bench.client_in_background(PYTHON, &arguments)?;
        bench.session.until("the splice", || {
            client.running()?;
            Ok(self.spliced() > spliced)
        })?;
        Ok(Transfer { client, server: None, connections: 0 })
    }
}

/// So many turns while transfers run one after the other, and an echo beside them. Each of them must end well, and the
/// daemon must have what it had.
fn during_transfers<'a>(
    bench: &Bench<'a>,
    rounds: usize,
    mut start: impl FnMut() -> Result<Transfer<'a>, String>,
    mut round: impl FnMut(usize) -> Result<(), String>,
) -> Outcome {
    let daemon = Host::of(bench)?.daemon;
    // What later turns use again has been made after the first ones.
    let first = rounds / 10;
    let mut transfers = under_load(bench, 0..first, &mut start, &mut round)?;
    let before = Holds::when_idle(bench, daemon)?;
    transfers += under_load(bench, first..rounds, &mut start, &mut round)?;
    let grown = compare(&before, &Holds::when_idle(bench, daemon)?)?;
    let bytes = TRANSFER.parse::<u64>().unwrap_or(0) / 1_000_000;
    Ok(format!("{rounds} times, during {transfers} transfers of {bytes} MB each way, all bytes right; {grown}"))
}

/// These turns; how many transfers there were meanwhile.
fn under_load<'a>(
    bench: &Bench<'a>,
    mut rounds: Range<usize>,
    start: &mut impl FnMut() -> Result<Transfer<'a>, String>,
    round: &mut impl FnMut(usize) -> Result<(), String>,
) -> Result<usize, String> {
    let Host { daemon, name: host, .. } = Host::of(bench)?;
    let mut bystanders = Bystanders::start(bench)?;
    let mut transfers = 0;
    while !rounds.is_empty() {
        let mut transfer = start()?;
        // Connections may not be opened where nothing gets through; that those that are there go on is what is shown.
        let open = Bystanders::CONNECTIONS + transfer.connections;
        bench.session.until("all connections", || {
            let ended = transfer.client.ended()?.is_some() || bystanders.have_ended()?;
            Ok(ended || daemon.established(host)? >= open)
        })?;
        while transfer.client.ended()?.is_none() {
            let Some(at) = rounds.next() else { break };
            round(at).map_err(|error| format!("round {at}: {error}"))?;
        }
        transfer.finish().map_err(|error| format!("transfer {transfers}, before round {}: {error}", rounds.start))?;
        transfers += 1;
        // They take some seconds; then new ones begin.
        if bystanders.have_ended()? {
            replace(&mut bystanders, Bystanders::start(bench)?).finish()?;
        }
    }
    bystanders.finish()?;
    Ok(transfers)
}

/// What a daemon has.
#[derive(Debug, Clone, Copy)]
struct Holds {
    descriptors: usize,
    mappings: usize,
    /// Bytes that it has allocated.
    heap: u64,
    kib: u64,
}

impl Holds {
    /// After a pause, once it has become no less: under load, frames that wait in queues show more of the load than of
    /// what stays.
    fn when_idle(bench: &Bench, daemon: &Daemon) -> Result<Holds, String> {
        let mut last = Holds::after(PAUSE, bench, daemon)?;
        for _ in 0..MEASUREMENTS {
            let next = Holds::after(PAUSE, bench, daemon)?;
            if next.heap >= last.heap {
                break;
            }
            last = next;
        }
        Ok(last)
    }

    fn after(pause: Duration, bench: &Bench, daemon: &Daemon) -> Result<Holds, String> {
        bench.session.pause(pause)?;
        let process = daemon.id();
        let failed = |error: std::io::Error| error.to_string();
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).map_err(failed)?.count();
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).map_err(failed)?;
        // Regions and doorbells of programs that just run are no matter of modules: the end of a case checks those.
        let mappings = maps.lines().filter(|line| !line.contains("memfd:")).count();
        let heap = daemon.ask("stats")?["heap_bytes"].as_u64().ok_or("opentoe stats --json has no heap_bytes")?;
        Ok(Holds { descriptors, mappings, heap, kib: own_memory(daemon)? })
    }
}

/// What the daemon has after all turns, beside what it had after a tenth of them.
fn compare(before: &Holds, after: &Holds) -> Outcome {
    let grown = after.kib > before.kib + GROWTH_KIB || after.heap > before.heap + MORE_HEAP;
    if grown || after.descriptors > before.descriptors || after.mappings > before.mappings + MORE_MAPPINGS {
        return Err(format!("the daemon grew: {before:?}, then {after:?}"));
    }
    Ok(format!(
        "{} KiB allocated, {} in all and {} mappings more than the {} KiB and {} after a tenth, no descriptor",
        after.heap.saturating_sub(before.heap) >> 10,
        after.kib.saturating_sub(before.kib),
        after.mappings.saturating_sub(before.mappings),
        before.kib,
        before.mappings
    ))
}
