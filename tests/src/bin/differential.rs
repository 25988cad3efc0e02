//! The same random sequences of socket calls on the kernel and on OpenTOE: results, errors and bytes must be the same
//! (`tests/peers/socket_calls.c`). A sequence that differs is run again with a longer time limit, and with a yet longer
//! one, because what a call finds must not depend on speed. Where it differs each time, it is shown.
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;
use tests::daemon::beside;
use tests::process::{self, Process, Session};

const USAGE: &str =
    "usage: differential [--engine E] [--family F] [--sequences N] [--first SEED] [--jobs N] [--threads N]
  --engine E      the data-path of OpenTOE's host (flextoe)
  --family F      4: sockets of IPv4 alone; 6: most of IPv6, for one family or for both (4)
  --sequences N   how many (500)
  --first SEED    the seed of the first one; each has the next (1)
  --jobs N        programs that run at the same time (4)
  --threads N     threads of each that sleep in epoll sets of their own meanwhile, up to 4 (0)";

/// Sequences that one program runs.
const CHUNK: u64 = 50;
/// How long nothing may move before the next call, microseconds: on the kernel, on OpenTOE, and in further tries.
const QUIET: [u32; 4] = [100, 2_500, 20_000, 100_000];
/// The same where threads sleep, which takes the kernel time to end as well.
const QUIET_THREADS: [u32; 4] = [1_000, 2_500, 20_000, 100_000];
/// Sequences that differ and are shown.
const SHOWN: u64 = 20;
/// OpenTOE's host, whose programs talk to themselves; the kernel's is loopback.
const ADDRESS: &str = "10.99.0.2";
const ADDRESS6: &str = "fd99::2";

fn main() {
    let (mut sequences, mut first, mut jobs) = (500, 1, 4);
    let mut which = Which { engine: "flextoe".to_string(), threads: 0, v6: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match (word.as_str(), value.parse::<u64>()) {
            ("--engine", Err(_)) if !value.is_empty() => which.engine = value,
            ("--family", Ok(family @ (4 | 6))) => which.v6 = family == 6,
            ("--sequences", Ok(number)) => sequences = number,
            ("--first", Ok(number)) => first = number,
            ("--jobs", Ok(number @ 1..=64)) => jobs = number,
            ("--threads", Ok(number @ 0..=4)) => which.threads = number,
            _ => {
                eprintln!("{USAGE}");
                std::process::exit(if word == "--help" { 0 } else { 2 });
            }
        }
    }
    process::sweep();
    let outcome = Session::new().and_then(|session| Laboratory::new(&session, which)?.run(first, sequences, jobs));
    match outcome {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("differential: {error}");
            std::process::exit(1);
        }
    }
}

/// What the sequences are run on.
struct Which {
    engine: String,
    /// Threads of each program that sleep.
    threads: u64,
    /// Sockets are of IPv6, too.
    v6: bool,
}

/// The program, and a daemon with one host.
struct Laboratory<'a> {
    session: &'a Session,
    which: Which,
    program: String,
    socket: String,
    daemon: Process<'a>,
}

impl<'a> Laboratory<'a> {
    fn new(session: &'a Session, which: Which) -> Result<Laboratory<'a>, String> {
        let path = |name: &str| session.dir().join(name).display().to_string();
        let (program, socket, file) = (path("socket_calls"), path("toe"), path("toed.toml"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/socket_calls.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-pthread", "-O2", "-Wall", "-Wextra", "-Werror", "-o", &program, source]);
        session.run(compiler)?;
        let address6 = format!("ipv6 = {{ address = {ADDRESS6:?} }}\n");
        let (engine, v6) = (&which.engine, if which.v6 { address6.as_str() } else { "" });
        let host =
            format!("{v6}engine = {engine:?}\nport = {{ kind = \"fabric\" }}\n[host.timers]\ntime_wait_ms = 1000\n");
        let text = format!(
            "socket = {socket:?}\n[[fabric]]\nname = \"lab\"\n[[host]]\nname = \"lab\"\naddress = \"{ADDRESS}\"\n{host}"
        );
        fs::write(&file, text).map_err(|error| error.to_string())?;
        let mut command = Command::new(beside("toed"));
        command.args(["--config", &file]);
        session.begin_case(Duration::from_secs(30));
        let mut daemon = session.spawn(command)?;
        session.until("toed to answer", || {
            daemon.running().map_err(|error| format!("{error}: {}", daemon.stderr().trim()))?;
            Ok(fs::exists(&socket).unwrap_or(false))
        })?;
        Ok(Laboratory { session, which, program, socket, daemon })
    }

    fn run(&mut self, first: u64, sequences: u64, jobs: u64) -> Result<bool, String> {
        let (mut done, mut slow, mut different) = (0, 0, 0);
        let quiet = if self.which.threads > 0 { QUIET_THREADS } else { QUIET };
        while done < sequences && !self.session.interrupted() {
            let round = (CHUNK * jobs).min(sequences - done);
            for seed in self.compare(first + done, round, CHUNK, [quiet[0], quiet[1]])?.into_keys() {
                let again = |quiet: u32| Ok::<_, String>(self.compare(seed, 1, 1, [quiet; 2])?.remove(&seed));
                let text = if again(quiet[2])?.is_some() { again(quiet[3])? } else { None };
                slow += u64::from(text.is_none());
                let Some(text) = text else { continue };
                different += 1;
                if different <= SHOWN {
                    println!("{text}");
                }
            }
            done += round;
            if done % 10_000 < round || done == sequences {
                println!("{done} sequences, {different} differ ({slow} only under time pressure)");
            }
        }
        self.daemon.running()?;
        println!("{} passed, {different} failed", done - different);
        Ok(different == 0)
    }

    /// Runs `count` sequences on both stacks, `each` in one program; what differs, by seed.
    fn compare(&self, first: u64, count: u64, each: u64, quiet: [u32; 2]) -> Result<BTreeMap<u64, String>, String> {
        self.session.begin_case(Duration::from_secs(300));
        let mut pairs = Vec::new();
        for start in (first..first + count).step_by(each as usize) {
            let run = |mut command: Command, (address, address6): (&str, &str), quiet: u32| {
                let numbers = [start.to_string(), each.min(first + count - start).to_string(), quiet.to_string()];
                self.session.spawn({
                    command.arg(address).args(numbers).arg(self.which.threads.to_string());
                    command.args(self.which.v6.then_some(address6));
                    command
                })
            };
            let mut accelerated = Command::new(beside("opentoe"));
            accelerated.args(["run", "--socket", &self.socket, "--", &self.program]);
            let kernel = run(Command::new(&self.program), ("127.0.0.1", "::1"), quiet[0])?;
            pairs.push((kernel, run(accelerated, (ADDRESS, ADDRESS6), quiet[1])?));
        }
        let mut different = BTreeMap::new();
        for (kernel, opentoe) in &mut pairs {
            let (kernel, opentoe) = (by_seed(&kernel.succeed()?), by_seed(&opentoe.succeed()?));
            for (seed, expected) in kernel {
                let found = opentoe.get(&seed).map(String::as_str).unwrap_or_default();
                if found != expected {
                    different.insert(seed, self.show(seed, &expected, found));
                }
            }
        }
        Ok(different)
    }

    /// A sequence up to the first difference.
    fn show(&self, seed: u64, kernel: &str, opentoe: &str) -> String {
        let same = kernel.lines().zip(opentoe.lines()).take_while(|(kernel, opentoe)| kernel == opentoe).count();
        let before: String = kernel.lines().take(same).map(|line| format!("    {line}\n")).collect();
        let next = |text: &str| text.lines().nth(same).unwrap_or(" (the end)").to_string();
        let Which { engine, threads, v6 } = &self.which;
        let family = if *v6 { 6 } else { 4 };
        let way = format!("--engine {engine} --family {family} --threads {threads}");
        let again = format!("differential {way} --first {seed} --sequences 1");
        format!("seed {seed}: {again}\n{before}  kernel:  {}\n  OpenTOE: {}", next(kernel), next(opentoe))
    }
}

fn by_seed(output: &str) -> BTreeMap<u64, String> {
    let parts = output.split("seed ").filter_map(|part| part.split_once('\n'));
    parts.filter_map(|(seed, text)| Some((seed.parse().ok()?, text.to_string()))).collect()
}
