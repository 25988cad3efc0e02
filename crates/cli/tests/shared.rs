//! The daemon that a user's programs share: which ones join it, which do not, and when it ends.
mod scratch;

use port::Netns;
use rustix::process::{Pid, Signal, kill_process};
use scratch::{Scratch, any_library, error};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A network namespace for one test, where that is permitted.
fn network() -> Option<Netns> {
    Netns::create().map_err(|_| println!("skipped: network namespaces are not permitted here")).ok()
}

/// A program under `opentoe run` that has printed its daemon's socket and ends when it is asked to.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Its daemon's socket.
    socket: String,
}

impl Program {
    fn start(mut command: Command, netns: &Netns) -> Program {
        netns.start_inside(&mut command).unwrap();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut socket = String::new();
        output.read_line(&mut socket).unwrap();
        Program { child, input, output, socket: socket.trim().into() }
    }

    /// What `opentoe` with these words prints, asked by this program.
    fn asks(&mut self, words: &str) -> String {
        writeln!(self.input, "{} {words} 2>&1; echo .", env!("CARGO_BIN_EXE_opentoe")).unwrap();
        let mut answer = String::new();
        while !answer.ends_with(".\n") {
            assert_ne!(self.output.read_line(&mut answer).unwrap(), 0, "{answer}");
        }
        answer
    }

    /// Ends it; returns what `opentoe run` printed.
    fn end(self) -> String {
        drop((self.input, self.output));
        error(&self.child.wait_with_output().unwrap())
    }
}

/// `opentoe run` of a shell that carries out what it reads.
fn run(scratch: &Scratch, options: &[&str]) -> Command {
    let mut command = scratch.command();
    command.args(["run", "--lib", &any_library()]).args(options);
    command.args(["--", "sh", "-c", "echo $TOE_SOCKET; exec sh"]);
    command
}

#[test]
fn programs_of_a_user_share_a_daemon_that_ends_after_the_last() {
    let Some(netns) = network() else { return };
    let scratch = Scratch::new();
    let start = |options: &[&str]| Program::start(run(&scratch, options), &netns);
    let (first, mut second) = (start(&[]), start(&["--host", "toe"]));
    assert_eq!(first.socket, second.socket);
    let number = first.child.id();
    assert_eq!(
        first.end(),
        "opentoe: host 'toe' is 10.77.0.2, reachable from the kernel through toe0 (10.77.0.1/24)\n"
    );
    // The process that it was started for has ended, another one keeps it.
    let listed = second.asks("ls");
    assert!(listed.contains("10.77.0.2/24"), "{listed}");
    let socket = second.socket.clone();
    assert_eq!(second.end(), format!("opentoe: host 'toe' is 10.77.0.2, shared with sh (process {number})\n"));
    // It waits a moment for the next one.
    let third = start(&[]);
    assert_eq!(third.socket, socket);
    assert_eq!(third.end(), "opentoe: host 'toe' is 10.77.0.2\n");
    scratch.becomes_empty();
    assert!(netns.run(|| port::Interface::named("toe0").is_err()).unwrap(), "the TAP device is still there");
}

#[test]
fn programs_that_start_at_the_same_time_meet() {
    let Some(netns) = network() else { return };
    let scratch = Scratch::new();
    let programs: Vec<Program> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| Program::start(run(&scratch, &["-q"]), &netns))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sockets: std::collections::HashSet<&str> = programs.iter().map(|program| &*program.socket).collect();
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    programs.into_iter().for_each(|program| assert_eq!(program.end(), ""));
    scratch.becomes_empty();
}

#[test]
fn daemons_that_start_at_the_same_time_take_different_networks() {
    let Some(netns) = network() else { return };
    let scratch = Scratch::new();
    let start = || Program::start(run(&scratch, &["--private"]), &netns);
    let programs: Vec<Program> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut sentences: Vec<String> = programs.into_iter().map(Program::end).collect();
    sentences.sort();
    for (n, sentence) in sentences.iter().enumerate() {
        assert!(sentence.starts_with(&format!("opentoe: host 'toe' is 10.77.{n}.2, ")), "{sentences:?}");
    }
    scratch.becomes_empty();
}

/// Whoever kills it: programs that use it find another one at the same place, with the same owners.
#[test]
fn a_daemon_that_is_killed_has_a_successor() {
    let Some(netns) = network() else { return };
    let scratch = Scratch::new();
    let start = |options: &[&str]| Program::start(run(&scratch, options), &netns);
    for options in [&[][..], &["--private"]] {
        let first = start(options);
        let second = if options.is_empty() { Some(start(options)) } else { None };
        let owners = [Some(first.child.id()), second.as_ref().map(|second| second.child.id())];
        let owners: Vec<u32> = owners.into_iter().flatten().collect();
        for _ in 0..2 {
            let old = hello(&first.socket)["pid"].as_i64().unwrap() as i32;
            // It has served for a moment: three that have not are enough.
            sleep(Duration::from_millis(1100));
            kill_process(Pid::from_raw(old).unwrap(), Signal::KILL).unwrap();
            let (begin, is_new) =
                (Instant::now(), |new: &Value| new["pid"].as_i64().is_some_and(|new| new != i64::from(old)));
            while !is_new(&hello(&first.socket)) {
                assert!(begin.elapsed() < Duration::from_secs(30), "no daemon took its place");
                sleep(Duration::from_millis(10));
            }
            assert_eq!(hello(&first.socket)["owners"], serde_json::json!(owners));
        }
        if let Some(second) = second {
            first.end();
            let third = start(&[]);
            assert_eq!(third.socket, second.socket);
            drop([second, third].map(Program::end));
        } else {
            first.end();
        }
        scratch.becomes_empty();
    }
}

/// A daemon's own report; nothing where none is there.
fn hello(socket: &str) -> Value {
    daemon::client::ask(socket.as_ref(), &daemon::protocol::Question::Hello).unwrap_or_default()
}

#[test]
fn a_different_request_gets_a_daemon_of_its_own() {
    let Some(netns) = network() else { return };
    let scratch = Scratch::new();
    let start = |options: &[&str]| Program::start(run(&scratch, options), &netns);
    let first = start(&[]);
    for options in [&["--private"][..], &["--engine", "laminar"], &["--host", "b"], &["--network", "10.78.0.0/24"]] {
        let mut other = start(options);
        assert_ne!(other.socket, first.socket, "{options:?}");
        let listed = other.asks("ls");
        assert!(listed.contains("/24") && !listed.contains("10.77.0.2/24"), "{options:?}: {listed}");
        other.end();
    }
    // One of a program alone is joined by nobody, also where it is the only one.
    first.end();
    scratch.becomes_empty();
    let (alone, joins) = (start(&["--private"]), start(&[]));
    assert_ne!(alone.socket, joins.socket);
    drop([alone, joins].map(Program::end));
    scratch.becomes_empty();
}

/// A waveform of a connection needs the two programs of it.
#[test]
fn a_daemon_that_writes_a_waveform_is_joined() {
    let Some(netns) = network() else { return };
    if Command::new("verilator").arg("--version").output().is_err() {
        println!("skipped: verilator is not installed (tests/setup installs it)");
        return;
    }
    let scratch = Scratch::new();
    let folder = Scratch::new();
    let file = folder.0.join("wave.vcd");
    let start = |options: &[&str]| Program::start(run(&scratch, options), &netns);
    let before = start(&["--backend", "rtl"]);
    let first = start(&["--backend", "rtl", "--waveform", file.to_str().unwrap()]);
    // It begins with its daemon, so with a new one.
    assert_ne!(before.socket, first.socket);
    before.end();
    scratch.shrinks_to(1);
    let mut second = start(&["--backend", "rtl"]);
    assert_eq!(first.socket, second.socket);
    let listed = second.asks("ls");
    assert!(listed.contains("laminar, simulated RTL"), "{listed}");
    drop([first, second].map(Program::end));
    scratch.becomes_empty();
    let begin = fs::read_to_string(file).unwrap();
    assert!(begin.starts_with("$version"), "{}", &begin[..begin.len().min(100)]);
}

#[test]
fn it_is_not_shared_across_network_namespaces_or_users() {
    let (Some(netns), Some(elsewhere)) = (network(), network()) else { return };
    let scratch = Scratch::new();
    let first = Program::start(run(&scratch, &[]), &netns);
    let other = Program::start(run(&scratch, &[]), &elsewhere);
    assert_ne!(first.socket, other.socket, "a program of another network namespace joined");
    let sentence = error(&scratch.toe(&["ls"]));
    assert!(sentence.starts_with("opentoe: 2 daemons of opentoe run are there; name one:"), "{sentence}");
    let own = std::process::id();
    let sentence = error(&scratch.toe(&["why", &own.to_string()]));
    let unattached = format!("opentoe: process {own} is attached to none of 2 daemons: libtoe.so is not loaded");
    assert!(sentence.starts_with(&unattached), "{sentence}");
    assert_eq!(error(&scratch.toe(&["why", "99999999"])), "opentoe: there is no process 99999999\n");
    other.end();
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o777)).unwrap();
        let nobody = Program::start(as_nobody(&run(&scratch, &[])), &netns);
        assert_ne!(first.socket, nobody.socket, "nobody joined root's daemon");
        first.end();
        // Root does not trust a daemon of somebody else, also where it is the only one.
        while scratch.entries() > 1 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let root = Program::start(run(&scratch, &[]), &netns);
        assert_ne!(root.socket, nobody.socket, "root joined nobody's daemon");
        drop([root, nobody].map(Program::end));
    } else {
        first.end();
    }
    scratch.becomes_empty();
}

/// The same command with another user's rights.
fn as_nobody(command: &Command) -> Command {
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    nobody.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nobody.env(name, value),
            None => nobody.env_remove(name),
        };
    }
    nobody
}
