//! Faults: the daemon is killed and started again, and services answer again without being touched.
use crate::cases::{Bench, SMALL, app, nginx, postgres, redis};
use crate::daemon::{Daemon, ask_at, beside};
use crate::process::Process;
use crate::report::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Services on one host: one process; workers without the right to bind the port that they share; an event loop; a
/// process for each connection.
struct Services<'a> {
    nginx: Bench<'a>,
    redis: Bench<'a>,
    echo: Bench<'a>,
    postgres: Bench<'a>,
    _processes: [Process<'a>; 4],
}

impl<'a> Services<'a> {
    fn start(bench: &Bench<'a>) -> Result<Services<'a>, String> {
        let nginx = Bench { port: 80, ..bench.on_another_port() };
        let [redis, echo, postgres] = [(); 3].map(|()| bench.on_another_port());
        let processes = [
            nginx::unprivileged(&nginx)?,
            redis::server(&redis)?,
            echo.python_server("asyncio_echo.py", &["serve", &echo.port()])?,
            postgres::server(&postgres)?,
        ];
        Ok(Services { nginx, redis, echo, postgres, _processes: processes })
    }

    /// Each of them answers.
    fn answer(&self) -> Result<(), String> {
        redis::call(&self.redis, &["ping"])?;
        let code = ["-sS", "--fail", "--max-time", "5", "-o", "/dev/null", &self.nginx.url(SMALL)];
        self.nginx.client("curl", &code)?;
        self.echo.python_client("asyncio_echo.py", &["call", &self.echo.address(), &self.echo.port(), "2", "3"])?;
        match postgres::query(&self.postgres, "select 6 * 7")?.trim() {
            "42" => Ok(()),
            other => Err(format!("PostgreSQL computes 6 * 7 as {other}")),
        }
    }

    /// The processes that listen are those from before, with all of nginx's workers.
    fn listening(&self, daemon: &Daemon) -> Result<Vec<(u64, usize)>, String> {
        let answer = daemon.ask("ls")?;
        let hosts = answer["hosts"].as_array().ok_or("opentoe ls --json names no hosts")?;
        let host = hosts.iter().find(|host| host["name"] == "server").ok_or("there is no host server")?;
        let count = |port: u16| {
            let mut listeners = host["listeners"].as_array().into_iter().flatten();
            let found = listeners.find(|listener| listener["port"] == port);
            found.and_then(|found| found["pids"].as_array()).map_or(0, Vec::len)
        };
        let all = [&self.nginx, &self.redis, &self.echo, &self.postgres];
        Ok(all.map(|bench| (u64::from(bench.port), count(bench.port))).into())
    }
}

/// Five times.
pub(crate) fn services(bench: &Bench) -> Outcome {
    times(bench, 5)
}

/// Kills the daemon so often; returns how long the slowest service was away after a new daemon's start.
pub(crate) fn times(bench: &Bench, count: usize) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let services = Services::start(bench)?;
    services.answer()?;
    let (mut slowest, mut last) = (Duration::ZERO, None);
    for round in 1..=count {
        let new = daemon.restart(bench.lab)?;
        let begin = Instant::now();
        let back = |listening: &[(u64, usize)]| {
            // nginx's master sleeps until a signal comes, and its two workers are back without it.
            listening.iter().all(|(port, processes)| *processes >= if *port == 80 { 2 } else { 1 })
        };
        let mut seen = Vec::new();
        let came = bench.session.until("the services to listen", || {
            seen = services.listening(daemon)?;
            Ok(back(&seen))
        });
        came.map_err(|error| format!("round {round}: {error}: (port, processes) {seen:?}: {}", new.stderr()))?;
        slowest = slowest.max(begin.elapsed());
        services.answer().map_err(|error| format!("round {round}: {error}"))?;
        last = Some(new);
    }
    drop(services);
    last.as_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    Ok(format!(
        "{count} daemons killed; nginx, redis, asyncio and PostgreSQL back {} ms after the start at most",
        slowest.as_millis()
    ))
}

/// Daemons that are killed under load, in one case.
const KILLS: usize = 5;
/// Time from a daemon's start to its end.
const LIFE: Duration = Duration::from_millis(700);
/// The same where something watches over it that gives up where several in a row live for less than a second.
const SERVED: Duration = Duration::from_millis(1200);

/// A transfer in both directions and a database's clients, which use IPv6, go on over all of it: nobody sees an error,
/// each byte is compared.
pub(crate) fn connections(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    let much = ["-c", &address, "-p", &port, "-u", "1500000000", "-d", "1500000000"];
    let mut stream = bench.client_in_background(&app("stream"), &much)?;
    let database = Bench { v6: true, ..bench.on_another_port() };
    let redis = redis::server(&database)?;
    let endless = ["-h", &database.address(), "-p", &database.port(), "-c", "20", "-n", "100000000", "-t", "get"];
    let mut requests = database.client_in_background("redis-benchmark", &endless)?;
    let mut daemons = Vec::new();
    for round in 1..=KILLS {
        bench.session.pause(LIFE)?;
        daemons.push(daemon.restart(bench.lab)?);
        let running = stream.ended()?.is_none_or(|status| status.success());
        let well = running && requests.ended()?.is_none();
        if !well {
            let errors = [&stream, &requests].map(|process| process.stderr());
            return Err(format!("kill {round}: a client saw an error: {errors:?}"));
        }
    }
    stream.succeed()?;
    server.succeed()?;
    // It goes on making requests.
    bench.session.pause(LIFE)?;
    requests.running()?;
    let complaints = requests.stderr();
    requests.kill();
    drop(redis);
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    match complaints.lines().find(|line| line.contains("Error") || line.contains("reset")) {
        Some(line) => Err(format!("redis-benchmark printed {line}")),
        None => Ok(format!("{KILLS} daemons killed; 1.5 GB each way and 20 clients of redis saw nothing of it")),
    }
}

/// The daemon that programs share which were started by `opentoe run` is killed, again and again: what watches over it
/// starts the next one, and the programs see nothing of that.
pub(crate) fn of_a_user(bench: &Bench) -> Outcome {
    let engine = &bench.lab.engine;
    let place = bench.session.dir().join(format!("user-{engine}"));
    fs::create_dir(&place).map_err(|error| error.to_string())?;
    let run = |words: &[&str]| {
        let mut command = bench.lab.near.command(&beside("opentoe"));
        command
            .env("XDG_RUNTIME_DIR", &place)
            .env("TMPDIR", &place)
            .args(["run", "-q", "--engine", engine, "--"])
            .args(words);
        command
    };
    let (port, folder) = (bench.port(), place.display().to_string());
    let serve = ["redis-server", "--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", &folder];
    let server = bench.session.spawn(run(&serve))?;
    let at = ["-h", "127.0.0.1", "-p", &port];
    bench.session.until("redis to answer", || {
        let ping = run(&[&["redis-cli"], &at[..], &["ping"]].concat()).output();
        Ok(ping.is_ok_and(|answer| answer.stdout.starts_with(b"PONG")))
    })?;
    let endless = ["-c", "10", "-n", "100000000", "-t", "get"];
    let mut requests = bench.session.spawn(run(&[&["redis-benchmark"], &at[..], &endless].concat()))?;
    let socket = socket_in(&place)?;
    let process = || ask_at(&socket, &json!({ "ask": "hello" }), &[]).map(|hello| hello["pid"].as_i64());
    for round in 1..=KILLS {
        bench.session.pause(SERVED)?;
        let old = process()?;
        let pid = old.and_then(|pid| Pid::from_raw(pid as i32)).ok_or("the daemon has no process")?;
        kill_process(pid, Signal::KILL).map_err(|error| format!("the daemon: {error}"))?;
        bench.session.until("the next daemon", || Ok(process().is_ok_and(|new| new != old)))?;
        if requests.ended()?.is_some() {
            return Err(format!("kill {round}: the client saw an error: {}", requests.stderr()));
        }
    }
    bench.session.pause(LIFE)?;
    requests.running()?;
    let complaints = requests.stderr();
    requests.kill();
    drop(server);
    bench.session.until("the daemon's end", || Ok(socket_in(&place).is_err()))?;
    match complaints.lines().find(|line| line.contains("Error") || line.contains("reset")) {
        Some(line) => Err(format!("redis-benchmark printed {line}")),
        None => Ok(format!("{KILLS} daemons killed; 10 clients of redis over 127.0.0.1 saw nothing of it")),
    }
}

/// The attach socket of the daemon whose folder is there.
fn socket_in(place: &Path) -> Result<PathBuf, String> {
    let folders = fs::read_dir(place).map_err(|error| error.to_string())?.flatten();
    let daemons = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with("toe-"));
    let files = daemons.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let mut sockets = files.map(|file| file.path()).filter(|file| file.extension().is_none());
    sockets.next().ok_or("there is no daemon of opentoe run".into())
}
