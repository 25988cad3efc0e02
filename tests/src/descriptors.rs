//! Output of `opentoe why PID FD` for a running service: its listener, connections on either stack, and numbers of
//! descriptors that were another connection's before.
use crate::cases::{Bench, redis};
use crate::daemon::Daemon;
use crate::process::Process;
use crate::report::Outcome;
use serde_json::Value;

/// A redis-server that both stacks reach.
struct Service<'a, 'b> {
    bench: &'b Bench<'a>,
    daemon: &'b Daemon<'a>,
    pid: u64,
    _server: Process<'a>,
}

impl<'a, 'b> Service<'a, 'b> {
    fn start(bench: &'b Bench<'a>) -> Result<Service<'a, 'b>, String> {
        let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
        let server = redis::server(bench)?;
        let answer = daemon.ask("ls")?;
        let listeners = answer["hosts"].as_array().into_iter().flatten();
        let mut listeners = listeners.filter_map(|host| host["listeners"].as_array()).flatten();
        let listener = listeners.find(|listener| listener["port"] == bench.port).ok_or("redis listens nowhere")?;
        let pid = listener["pids"][0].as_u64().ok_or("nobody has the listener")?;
        Ok(Service { bench, daemon, pid, _server: server })
    }

    fn why(&self, words: &[&str]) -> Outcome {
        self.bench.session.run(self.daemon.toe(&[&["why", &self.pid.to_string()], words].concat()))
    }

    /// Its sockets on a stack: number and description.
    fn sockets(&self, stack: &str) -> Result<Vec<(u64, String)>, String> {
        let answer: Value = serde_json::from_str(&self.why(&["--json"])?).map_err(|error| error.to_string())?;
        let sockets = answer["sockets"].as_array().into_iter().flatten().filter(|row| row["stack"] == stack);
        Ok(sockets.filter_map(|row| Some((row["fd"].as_u64()?, row["socket"].as_str()?.into()))).collect())
    }

    /// The number of its one connection on a stack, as soon as it is there.
    fn connection(&self, stack: &str) -> Result<String, String> {
        let mut found = None;
        self.bench.session.until(&format!("a connection on {stack}"), || {
            let mut sockets = self.sockets(stack)?.into_iter();
            found = sockets.find(|(_, what)| what.contains(" to ")).map(|(fd, _)| fd.to_string());
            Ok(found.is_some())
        })?;
        found.ok_or("there is none".into())
    }

    /// Expects words in the report of a descriptor.
    fn reports(&self, fd: &str, words: &[&str]) -> Result<(), String> {
        let report = self.why(&[fd])?;
        let missing = words.iter().find(|word| !report.contains(**word));
        missing.map_or(Ok(()), |word| Err(format!("descriptor {fd}: there is no '{word}' in: {report}")))
    }

    /// Waits until a descriptor is closed; then nothing more is reported of it.
    fn closed(&self, fd: &str) -> Result<(), String> {
        self.bench.session.until("the descriptor to be closed", || {
            let there = [self.sockets("OpenTOE")?, self.sockets("kernel")?, self.sockets("-")?].concat();
            Ok(there.iter().all(|(other, _)| other.to_string() != fd))
        })?;
        let report = self.why(&[fd]);
        report.map_or(Ok(()), |report| Err(format!("descriptor {fd} is closed, but: {report}")))
    }
}

/// In turn over OpenTOE and over the kernel, with the same number.
pub(crate) fn reasons(bench: &Bench) -> Outcome {
    let service = Service::start(bench)?;
    let port = bench.port();
    let listening = format!("0.0.0.0:{port}");
    let listener = service.sockets("OpenTOE")?.into_iter().find(|(_, what)| what.ends_with("LISTEN"));
    let (listener, _) = listener.ok_or("its listener is not on OpenTOE")?;
    service.reports(&listener.to_string(), &["on OpenTOE", &format!("listens on {listening}"), "and in the kernel"])?;

    let subscribe = |address: &str| ["-h", address, "-p", &port, "subscribe", "x"].map(String::from);
    let address = bench.address();
    let words = subscribe(&address);
    let mut client = bench.client_in_background("redis-cli", &words.each_ref().map(String::as_str))?;
    let first = service.connection("OpenTOE")?;
    service.reports(&first, &["on OpenTOE", &format!("{address}:{port} to "), "ESTABLISHED"])?;
    client.kill();
    service.closed(&first)?;

    let mut command = bench.lab.far.command("redis-cli");
    command.args(subscribe("127.0.0.1"));
    let mut client = bench.session.spawn(command)?;
    let second = service.connection("kernel")?;
    if second != first {
        return Err(format!("redis did not use number {first} again, but {second}: nothing was tried"));
    }
    service.reports(
        &second,
        &["on the kernel", &format!("TCP 127.0.0.1:{port} to 127.0.0.1:"), "accepted from the kernel"],
    )?;
    client.kill();
    service.closed(&second)?;
    Ok(format!("listener {listener}; number {first} on OpenTOE, closed, on the kernel, closed"))
}
