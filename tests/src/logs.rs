//! A shared log (docs/SHARED-LOG.md): real programs write to it, and its reader checks each record: whose it is, which
//! one, every byte of it, and the order. On the laminar engine.
use crate::cases::{Bench, app};
use crate::faults::ends_with_error;
use crate::lab::Link;
use crate::process::Process;
use crate::report::Outcome;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// Programs that write at once, each with so many connections.
const WRITERS: u64 = 3;
const CONNECTIONS: u64 = 8;
const RECORDS: u64 = 3000;
/// Instead of a number of records: as many as there is time for, until SIGTERM (apps/log_client.c).
const UNTIL_ASKED: u64 = 0;

/// A reader for so many connections, and where it reads.
struct Reader<'a> {
    bench: Bench<'a>,
    process: Process<'a>,
    connections: u64,
}

impl<'a> Reader<'a> {
    /// `sizes`: bytes of a record, records, milliseconds of laziness.
    fn start(bench: &Bench<'a>, connections: u64, sizes: [u64; 3]) -> Result<Reader<'a>, String> {
        let bench = bench.on_another_port();
        let numbers = [connections].iter().chain(&sizes).map(u64::to_string).collect::<Vec<_>>();
        let (address, port) = (bench.address(), bench.port());
        let words: Vec<&str> = [&address, &port].into_iter().chain(&numbers).map(String::as_str).collect();
        let process = bench.server(bench.lab.on_server(&app("log_server")), &words)?;
        Ok(Reader { bench, process, connections })
    }

    /// A program that writes: on the other side, or (`beside`) on the reader's own host.
    fn writer(&self, beside: bool, numbers: [u64; 5]) -> Result<Process<'a>, String> {
        let lab = self.bench.lab;
        let mut command = if beside { lab.on_server(&app("log_client")) } else { lab.on_client(&app("log_client")) };
        command.args([self.bench.address(), self.bench.port()]).args(numbers.map(|number| number.to_string()));
        self.bench.session.spawn(command)
    }

    /// What the reader saw, when all connections have ended. It compared every record itself.
    fn finish(mut self) -> Result<Seen, String> {
        self.process.succeed()?;
        let report: Value = serde_json::from_str(self.process.stdout().trim()).map_err(|error| error.to_string())?;
        let number = |name: &str| report[name].as_u64().ok_or(format!("no {name} in {report}"));
        let log = report["log"].as_array().ok_or("no log")?;
        let written = log.iter().filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_u64()?))).collect::<Vec<_>>();
        if written.len() as u64 != self.connections || number("wrong")? > 0 {
            return Err(format!("the reader saw {report}"));
        }
        Ok(Seen { records: number("records")?, holes: number("holes")?, changes: number("turns")?, written })
    }
}

struct Seen {
    records: u64,
    holes: u64,
    /// How often a record was another connection's than the one before it.
    changes: u64,
    /// Number that each connection gave itself, and how many places it had.
    written: Vec<(u64, u64)>,
}

impl Seen {
    /// Each connection's records, all of them, and nothing else.
    fn expect(self, connections: u64, each: u64) -> Outcome {
        if self.written.iter().any(|pair| pair.1 != each) {
            return Err(format!("{} records, not {each} of each: {:?}", self.records, self.written));
        }
        self.expect_all(connections, connections * each)
    }

    /// So many records of so many connections, each without a hole.
    fn expect_all(mut self, connections: u64, records: u64) -> Outcome {
        self.written.sort_unstable();
        self.written.dedup_by_key(|pair| pair.0);
        if self.written.len() as u64 != connections || self.records != records || self.holes > 0 {
            return Err(format!("{} records of {records}, {} holes: {:?}", self.records, self.holes, self.written));
        }
        if self.changes < connections * 2 {
            return Err(format!("the connections wrote one after the other: {} changes", self.changes));
        }
        Ok(format!("{} records of {connections} connections, {} changes", self.records, self.changes))
    }
}

/// On a link to the kernel the last of them runs on OpenTOE, beside the reader: both kinds of clients at once.
fn writers<'a>(reader: &Reader<'a>, record: u64, records: u64) -> Result<Vec<Process<'a>>, String> {
    let kernel = reader.bench.lab.link.has_tap();
    let writer = |seed| reader.writer(kernel && seed == WRITERS, [CONNECTIONS, records, record, seed, 0]);
    (1..=WRITERS).map(writer).collect()
}

/// How many records a writer has written, by its own count.
fn records_of(report: &str) -> Result<u64, String> {
    let report: Value = serde_json::from_str(report.trim()).map_err(|error| format!("{report:?}: {error}"))?;
    report["records"].as_u64().ok_or(format!("no records in {report}"))
}

fn write_all(reader: Reader, record: u64, records: u64) -> Outcome {
    for writer in &mut writers(&reader, record, records)? {
        writer.succeed()?;
    }
    reader.finish()?.expect(WRITERS * CONNECTIONS, records)
}

/// Many connections of several programs at once, in pieces that do not respect records; records of three sizes.
pub fn written(bench: &Bench) -> Outcome {
    let mut words = Vec::new();
    for (record, records) in [(256, RECORDS), (16, 20 * RECORDS), (4096, RECORDS / 10)] {
        let reader = Reader::start(bench, WRITERS * CONNECTIONS, [record, (32 << 20) / record.max(64), 0])?;
        words.push(format!("{record} B: {}", write_all(reader, record, records)?));
    }
    Ok(words.join("; "))
}

/// The same while frames are lost: gaps are filled by what comes again.
pub fn lossy(bench: &Bench) -> Outcome {
    let _loss = match bench.lab.link {
        Link::TapServer => Some(bench.lab.near.lose_one_in_a_hundred()?),
        _ => None,
    };
    let reader = Reader::start(bench, WRITERS * CONNECTIONS, [256, 1 << 16, 0])?;
    let words = write_all(reader, 256, RECORDS)?;
    match counter(bench, "filled")? {
        0 => Err("no gap was filled: nothing was lost".into()),
        filled => Ok(format!("{words}; {filled} segments filled gaps")),
    }
}

/// What the engine counted of the log since its daemon began.
fn counter(bench: &Bench, name: &str) -> Result<u64, String> {
    let stats = bench.lab.daemon.as_ref().ok_or("there is no daemon")?.ask("stats")?;
    let found = |host: &&Value| host["name"] == "server" || host["host"] == "server";
    let host = stats["hosts"].as_array().and_then(|hosts| hosts.iter().find(found)).ok_or("no such host")?;
    host["modules"]["log"][name].as_u64().ok_or(format!("opentoe stats has no logs: {host}"))
}

/// A log that has room for its connections' windows and not a byte more, and a reader that sleeps: the writers wait.
pub fn full(bench: &Bench) -> Outcome {
    let all = WRITERS * CONNECTIONS;
    // 32 windows of 256 KiB are the next power of two.
    let reader = Reader::start(bench, all, [1024, 32 * 256, 20])?;
    write_all(reader, 1024, RECORDS)
}

/// Writers that reset in the middle of a record, and one that is killed: what was whole stays, the rest is a hole, and
/// the others notice nothing.
pub fn writers_die(bench: &Bench) -> Outcome {
    let reader = Reader::start(bench, 3 * CONNECTIONS, [256, 1 << 16, 0])?;
    let mut resets = reader.writer(false, [CONNECTIONS, RECORDS, 256, 1, CONNECTIONS / 2])?;
    let endless = reader.writer(false, [CONNECTIONS, 1 << 40, 256, 2, 0])?;
    let mut well = reader.writer(false, [CONNECTIONS, RECORDS, 256, 3, 0])?;
    bench.session.pause(Duration::from_millis(300))?;
    endless.signal_all(Signal::KILL)?;
    resets.succeed()?;
    well.succeed()?;
    let seen = reader.finish()?;
    let whole = seen.written.iter().filter(|pair| pair.1 == RECORDS).count() as u64;
    if whole < CONNECTIONS + CONNECTIONS / 2 {
        return Err(format!("only {whole} connections are whole: {:?}", seen.written));
    }
    Ok(format!("{} records, {} holes", seen.records, seen.holes))
}

/// Three daemons, one after the other, while programs on Linux and on OpenTOE write, over a link that loses frames
/// where it can: records that were begun with one daemon are completed with the next, at their own places.
pub fn taken_over(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let _loss = match bench.lab.link {
        Link::TapServer => Some(bench.lab.near.lose_one_in_a_hundred()?),
        _ => None,
    };
    let reader = Reader::start(bench, WRITERS * CONNECTIONS, [256, 1 << 16, 0])?;
    let mut writers = writers(&reader, 256, UNTIL_ASKED)?;
    let (mut pauses, mut daemons) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        bench.session.until("records", || Ok(counter(bench, "records")? > 0))?;
        bench.session.pause(Duration::from_millis(200))?;
        let (new, report) = daemon.take_over(bench.lab)?;
        pauses.extend(report.rsplit_once("for ").map(|(_, pause)| pause.to_string()));
        daemons.push(new);
        for writer in &mut writers {
            writer.running().map_err(|error| format!("a writer, after a takeover: {error}"))?;
        }
    }
    let mut total = 0;
    for writer in &mut writers {
        writer.signal_all(Signal::TERM)?;
        total += records_of(&writer.succeed()?)?;
    }
    let words = reader.finish()?.expect_all(WRITERS * CONNECTIONS, total)?;
    let filled = counter(bench, "filled")?;
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    Ok(format!("{words}; {filled} segments filled gaps of the last daemon; stood still for {}", pauses.join(", ")))
}

/// Logs that cannot be are refused with the reason that include/toe.h names.
pub fn refused(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let mut words = Vec::new();
    for (record, records, reason) in [
        ("100", "4096", "Invalid argument"),
        ("8", "65536", "Invalid argument"),
        ("256", "64", "Invalid argument"),
        ("65536", "2048", "Cannot allocate memory"),
    ] {
        let mut command = bench.lab.on_server(&app("log_server"));
        command.args([&address, &port, "1", record, records]);
        let mut reader = bench.session.spawn(command)?;
        ends_with_error(&mut reader)?;
        let report = reader.stderr();
        if !report.contains(&format!("toe_log_create: {reason}")) {
            return Err(format!("{records} records of {record} bytes: {}", report.trim()));
        }
        words.push(reason);
    }
    Ok(words.join(", "))
}
