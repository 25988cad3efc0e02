//! Endurance tests, which take too long for every run: programs and daemons killed at random moments under load, very
//! many connections at once, and one after the other. Each prints in one line what it did and what the daemon held.
use crate::cases::{Bench, Files, app};
use crate::daemon::Daemon;
use crate::faults::{Bystanders, complaint, endless_transfer, ends_with_error, transfer};
use crate::hostile::{Dice, own_memory};
use crate::lab::{Lab, Link};
use crate::process::{Process, Session};
use crate::report::Outcome;
use crate::restart;
use crate::turnover;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The process that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The client of a transfer in both directions.
    Client,
    /// Its server.
    Server,
    /// The daemon, under connections that go on.
    Daemon,
}

impl Victim {
    /// By its name.
    pub fn named(name: &str) -> Option<Victim> {
        match name {
            "client" => Some(Victim::Client),
            "server" => Some(Victim::Server),
            "daemon" => Some(Victim::Daemon),
            _ => None,
        }
    }
}

/// Modules come and go so often under load: `kind` is many, vlan (on a TAP link) or splice.
pub fn modules(session: &Session, files: &Files, link: Link, kind: &str, count: usize) -> Outcome {
    let run = match kind {
        "many" => turnover::many_times,
        "vlan" if matches!(link, Link::TapServer | Link::TapClient) => turnover::vlan_times,
        "splice" if link != Link::TapClient => turnover::splice_times,
        _ => return Err(format!("there are no {kind} modules on {}", link.label())),
    };
    let mut lab = Lab::new(session, link, "flextoe")?;
    session.begin_case(Duration::from_secs(60 + count as u64 / 4));
    let seen = run(&Bench::new(session, &lab, files), count)?;
    session.begin_case(Duration::from_secs(60));
    let clean = lab.daemon.take().ok_or("there is no daemon")?.finish(session)?;
    Ok(format!("{seen}; {clean}"))
}

/// Kills the daemon so often under services that listen, which come back each time.
pub fn restarts(session: &Session, files: &Files, link: Link, count: usize) -> Outcome {
    let lab = Lab::new(session, link, "flextoe")?;
    session.begin_case(Duration::from_secs(60 + 5 * count as u64));
    restart::times(&Bench::new(session, &lab, files), count)
}

/// Kills so often, each time at another moment of a transfer. Whose peer is killed must see an error and end;
/// bystanders must not notice; nobody may notice that a daemon was killed; in the end nothing is left.
pub fn kills(session: &Session, files: &Files, link: Link, victim: Victim, count: u32) -> Outcome {
    let mut lab = Lab::new(session, link, "flextoe")?;
    let seed = std::process::id() as u64;
    let mut dice = Dice::new(seed);
    let begin = Instant::now();
    let done = match victim {
        Victim::Daemon => kill_daemons(session, files, &lab, &mut dice, count),
        _ => kill_programs(session, files, &lab, victim, &mut dice, count).and_then(|()| {
            session.begin_case(Duration::from_secs(60));
            lab.daemon.take().ok_or("there is no daemon")?.finish(session)
        }),
    };
    let clean = done.map_err(|error| format!("(seed {seed}) {error}"))?;
    Ok(format!("{count} times {victim:?} in {:.0} s (seed {seed}); {clean}", begin.elapsed().as_secs_f64()))
}

fn kill_programs(
    session: &Session,
    files: &Files,
    lab: &Lab,
    victim: Victim,
    dice: &mut Dice,
    count: u32,
) -> Result<(), String> {
    let mut bystanders = None;
    for at in 0..count {
        session.begin_case(Duration::from_secs(60));
        let bench = Bench::new(session, lab, files);
        // New ones every few kills: so some begin, run and end while others die.
        if at % 16 == 0 {
            finish(bystanders.take()).map_err(|error| format!("before kill {at}: {error}"))?;
            bystanders = Some(Bystanders::start(&bench)?);
        }
        one_program(&bench, victim, dice).map_err(|error| format!("kill {at}: {error}"))?;
    }
    finish(bystanders)
}

fn kill_daemons(session: &Session, files: &Files, lab: &Lab, dice: &mut Dice, count: u32) -> Outcome {
    let daemon = lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (mut last, mut cut) = (None, 0);
    for at in 0..count {
        session.begin_case(Duration::from_secs(60));
        let bench = Bench::new(session, lab, files);
        let (next, whole) = one_daemon(&bench, daemon, dice).map_err(|error| format!("kill {at}: {error}"))?;
        last = Some(next);
        cut += u32::from(!whole);
    }
    session.begin_case(Duration::from_secs(60));
    last.as_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    let whole = count - cut;
    Ok(format!("{whole} transfers went on to their end, {cut} were reset as one end had closed; nothing is left"))
}

fn finish(bystanders: Option<Bystanders>) -> Result<(), String> {
    bystanders.map_or(Ok(()), Bystanders::finish)
}

fn pause(bench: &Bench, dice: &mut Dice) -> Result<(), String> {
    bench.session.pause(Duration::from_micros(dice.below(60_000)))
}

fn one_program(bench: &Bench, victim: Victim, dice: &mut Dice) -> Result<(), String> {
    let (mut server, mut client) = endless_transfer(bench)?;
    pause(bench, dice)?;
    match victim {
        Victim::Client => {
            client.signal_all(Signal::KILL)?;
            client.wait()?;
            // Where it died before its connection was open, the server waits for another one.
            server.ended_within(Duration::from_millis(300))?.map_or(Ok(()), |_| ends_with_error(&mut server))?;
            server.kill();
        }
        _ => {
            server.signal_all(Signal::KILL)?;
            ends_with_error(&mut client)?;
        }
    }
    Ok(())
}

/// Some milliseconds of a transfer in each direction.
const SHORT: &str = "40000000";

/// Both ends of a transfer come to its end, each byte compared, over the death of their daemon: the next one. But where
/// one of them had ended already, what it left to be sent went with its daemon, and the other end is reset: false.
fn one_daemon<'a>(bench: &Bench<'a>, daemon: &Daemon<'a>, dice: &mut Dice) -> Result<(Process<'a>, bool), String> {
    let (mut server, mut client) = transfer(bench, SHORT)?;
    bench.session.until("the transfer's begin", || Ok(server.stdout().contains("begun")))?;
    pause(bench, dice)?;
    let next = daemon.restart(bench.lab)?;
    let ends = [client.succeed(), server.succeed()];
    let reset = |at: usize| complaint([&client, &server][at]).contains("reset");
    match &ends {
        [Ok(_), Ok(_)] => Ok((next, true)),
        [Err(_), Ok(_)] if reset(0) => Ok((next, false)),
        [Ok(_), Err(_)] if reset(1) => Ok((next, false)),
        [client, server] => Err(format!("the client: {client:?}; the server: {server:?}")),
    }
}

/// Seconds that connections stay open once all of a client's are: the other clients may still be opening theirs.
const HELD: &str = "60";

/// Connections open at once, from several processes, each of them used.
pub fn connections(session: &Session, files: &Files, count: u32) -> Outcome {
    let mut lab = Lab::roomy(session, Link::Fabric)?;
    session.begin_case(Duration::from_secs(280));
    let seen = hold(session, files, &lab, count)?;
    let clean = lab.daemon.take().ok_or("there is no daemon")?.finish(session)?;
    Ok(format!("{seen}; {clean}"))
}

fn hold(session: &Session, files: &Files, lab: &Lab, count: u32) -> Outcome {
    let servers = 4;
    let (mut running, mut clients) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    for _ in 0..servers {
        let bench = Bench::new(session, lab, files);
        running.push(bench.server(lab.on_server(&app("rpc_server")), &["-p", &bench.port(), "-s", "64", "-r", "64"])?);
        let number = (count / servers).to_string();
        let (address, port) = (bench.address(), bench.port());
        let size = ["-n", &number, "-s", "64", "-r", "64"];
        let time = ["-i", "-w", HELD, "-t", "1"];
        let words = [&["-c", &address, "-p", &port][..], &size, &time].concat();
        clients.push(bench.client_in_background(&app("rpc_client"), &words)?);
    }
    let daemon = lab.daemon.as_ref().ok_or("there is no daemon")?;
    let mut most = 0;
    session.until("all connections", || {
        clients.iter_mut().try_for_each(|client| client.running())?;
        // Rarely: a list of all connections is work for the data-path's thread.
        std::thread::sleep(Duration::from_secs(4));
        most = daemon.established("server")?;
        Ok(most >= count as usize)
    })?;
    let opened = begin.elapsed().as_secs_f64();
    let memory = own_memory(daemon)? >> 10;
    clients.iter_mut().try_for_each(|client| client.succeed().map(drop))?;
    Ok(format!(
        "{most} connections at once on one host, opened in {opened:.1} s at most; a request on each when it was opened and one \
         after the wait, every reply right; the daemon's own memory {memory} MiB for both ends"
    ))
}

/// Connections opened and closed one after the other, by a few clients at once; the daemon's memory must stay flat.
pub fn churn(session: &Session, files: &Files, link: Link, count: u64) -> Outcome {
    let mut lab = Lab::new(session, link, "flextoe")?;
    let seen = open_and_close(session, files, &lab, count)?;
    let clean = lab.daemon.take().ok_or("there is no daemon")?.finish(session)?;
    Ok(format!("{seen}; {clean}"))
}

fn open_and_close(session: &Session, files: &Files, lab: &Lab, count: u64) -> Outcome {
    let bench = Bench::new(session, lab, files);
    let _server = bench.server(lab.on_server(&app("echo_server")), &["-p", &bench.port()])?;
    let daemon = lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (steps, begin) = (20, Instant::now());
    let mut seen = Vec::new();
    for _ in 0..steps {
        session.begin_case(Duration::from_secs(120));
        let (address, port, number) = (bench.address(), bench.port(), (count / steps / 2).to_string());
        let churn = ["-c", &address, "-p", &port, "-n", &number];
        let start = || bench.client_in_background(&app("churn"), &churn);
        let mut two = [start()?, start()?];
        two.iter_mut().try_for_each(|client| client.succeed().map(drop))?;
        seen.push(own_memory(daemon)?);
    }
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    // After a tenth everything has its size: tables of connections that wait for old duplicates among it.
    let (early, late) = (seen[1], seen[seen.len() - 1]);
    if late > early + (4 << 10) {
        return Err(format!("the daemon grew from {early} to {late} KiB: {seen:?}"));
    }
    Ok(format!(
        "{count} connections opened, used and closed, {rate:.0} a second; the daemon's own memory {early} KiB after a tenth, \
         {late} KiB at the end"
    ))
}
