//! Connections that a proxy on OpenTOE joins: the server's side runs `apps/splice_proxy.c`, the client's side both the
//! clients and the server behind it. So both peers are Linux over TAP, and OpenTOE over the fabric.
use crate::cases::{Bench, PYTHON, app, number_after};
use crate::lab::Link;
use crate::modules::Host;
use crate::process::Process;
use crate::report::Outcome;
use rustix::process::Signal;
use std::time::Duration;

/// Between two events of a transfer.
const MOMENT: Duration = Duration::from_millis(200);

/// The proxy, and the server behind it.
pub(crate) struct Proxied<'a> {
    proxy: Process<'a>,
    _server: Process<'a>,
}

impl<'a> Proxied<'a> {
    pub(crate) fn start(bench: &Bench<'a>) -> Result<Proxied<'a>, String> {
        Proxied::start_with(bench, &[])
    }

    /// `more`: further words for the proxy.
    fn start_with(bench: &Bench<'a>, more: &[&str]) -> Result<Proxied<'a>, String> {
        load_module(bench)?;
        let behind = bench.on_another_port();
        let mut command = bench.lab.on_client(PYTHON);
        command.args([&bench.files.path("joined.py"), "serve", &behind.port()]);
        let mut server = bench.session.spawn(command)?;
        bench.session.until("the server behind the proxy to listen", || {
            server.running()?;
            bench.lab.client_listens(behind.port)
        })?;
        let peer = bench.lab.client.address.to_string();
        let (address, port, behind) = (bench.address(), bench.port(), behind.port());
        let arguments = [&[address.as_str(), &port, &peer, &behind], more].concat();
        let proxy = bench.server(bench.lab.on_server(&app("splice_proxy")), &arguments)?;
        Ok(Proxied { proxy, _server: server })
    }

    fn call(&self, bench: &Bench<'a>, case: &str, number: u64) -> Outcome {
        let number = number.to_string();
        bench.python_client("joined.py", &["call", &bench.address(), &bench.port(), case, &number])
    }

    /// Connections that the proxy joined, by its own report.
    pub(crate) fn spliced(&self) -> u64 {
        number_after(&self.last_line(), "spliced").map_or(0, |number| number as u64)
    }

    fn last_line(&self) -> String {
        self.proxy.stdout().lines().last().map(String::from).unwrap_or_default()
    }

    /// The proxy joined a pair at least. It prints that every 0.1 seconds.
    fn has_spliced(&self, bench: &Bench) -> Result<(), String> {
        let joined = bench.session.until("the proxy to report a splice", || Ok(self.spliced() >= 1));
        joined.map_err(|error| format!("{error}; it printed: {}", self.last_line()))
    }
}

/// Loads the splice module on the proxy's host.
fn load_module(bench: &Bench) -> Result<(), String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let file = app("../xdp/splice.o");
    bench.session.run(daemon.toe(&["xdp", "load", &file, "--host", "server"])).map(drop)
}

/// Both ways at once, each side closing first, resets, and many short connections.
pub fn everything(bench: &Bench) -> Outcome {
    let host = Host::of(bench)?;
    let proxied = Proxied::start(bench)?;
    let mut words = Vec::new();
    let (mut segments, mut passed) = (0, 0);
    for (case, number) in [
        ("both", 100_000_000),
        ("client-closes-first", 30_000_000),
        ("server-closes-first", 30_000_000),
        ("client-resets", 0),
        ("server-resets", 0),
        ("many", 400),
    ] {
        if case == "many" {
            // Short connections are little else than openings and ends, which are the control plane's.
            (segments, passed) =
                (host.counter("splice", "segments")?, host.counter("splice", "passed_by_control_plane")?);
        }
        let printed = proxied.call(bench, case, number).map_err(|error| format!("{case}: {error}"))?;
        words.push(printed.trim().to_string());
    }
    // How many of the short ones found a quiet moment before they ended is chance.
    proxied.has_spliced(bench)?;
    if segments == 0 || passed * 10 > segments {
        return Err(format!("{passed} of {segments} segments needed the control plane"));
    }
    words.push(format!("{} spliced, {segments} segments, {passed} of them by the control plane", proxied.spliced()));
    Ok(words.join("; "))
}

/// The same bytes over a network that loses one frame in a hundred.
pub fn lossy(bench: &Bench) -> Outcome {
    let proxied = Proxied::start(bench)?;
    // Frames are lost on the kernel's side of a TAP device; the fabric loses them itself.
    let _loss = match bench.lab.link {
        Link::TapServer => Some(bench.lab.near.lose_one_in_a_hundred()?),
        _ => None,
    };
    let printed = proxied.call(bench, "both", 100_000_000)?;
    proxied.has_spliced(bench)?;
    Ok(format!("{}; the proxy: {}", printed.trim(), proxied.last_line().trim()))
}

/// Bytes both ways without a pause over a path whose peers may send 4 MiB before they stop. The first attempt joins the
/// pair: the proxy never has to copy.
pub fn far(bench: &Bench) -> Outcome {
    let proxied = Proxied::start(bench)?;
    let (script, address, port) = (bench.files.path("joined.py"), bench.address(), bench.port());
    let go_on = bench.session.dir().join("joined");
    let file = go_on.display().to_string();
    let arguments = [script.as_str(), "call", &address, &port, "both", "20000000", &file];
    let mut client = bench.client_in_background(PYTHON, &arguments)?;
    proxied.has_spliced(bench)?;
    std::fs::write(&go_on, "").map_err(|error| format!("{file}: {error}"))?;
    let printed = client.succeed()?;
    match number_after(&proxied.last_line(), "copied_bytes")? as u64 {
        0 => Ok(format!("{}, joined at the first attempt", printed.trim())),
        _ => Err(format!("an attempt to join gave up: {}", proxied.last_line())),
    }
}

/// The proxy's sockets are nonblocking while it splices them. It works at a quiet moment, and otherwise returns EAGAIN
/// at once; then the proxy copies, and tries again.
pub fn at_once(bench: &Bench) -> Outcome {
    let proxied = Proxied::start_with(bench, &["at-once"])?;
    let mut words = Vec::new();
    for (case, number) in [("many", 200), ("both", 50_000_000)] {
        let printed = proxied.call(bench, case, number).map_err(|error| format!("{case}: {error}"))?;
        words.push(printed.trim().to_string());
    }
    proxied.has_spliced(bench)?;
    words.push(format!("{} spliced", proxied.spliced()));
    Ok(words.join("; "))
}

/// Two daemons, one after the other, take the joined connections over in the middle of a transfer. The module is not
/// handed over: until it is loaded again, the control plane passes the segments on.
pub fn taken_over(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (proxied, port) = (Proxied::start(bench)?, bench.port());
    let (script, address) = (bench.files.path("joined.py"), bench.address());
    let mut client = bench.client_in_background(PYTHON, &[&script, "call", &address, &port, "both", "400000000"])?;
    proxied.has_spliced(bench)?;
    let (mut results, mut daemons) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        bench.session.pause(MOMENT)?;
        let (new, words) = daemon.take_over(bench.lab)?;
        results.push(words);
        daemons.push(new);
        client.running()?;
        bench.session.pause(MOMENT)?;
        load_module(bench)?;
    }
    let bytes = client.succeed()?;
    drop(proxied);
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    Ok(format!("{}; {}", bytes.trim(), results.join("; ")))
}

/// The proxy dies while its connections are joined: they go on to their end.
pub fn proxy_killed(bench: &Bench) -> Outcome {
    let proxied = Proxied::start(bench)?;
    let (script, go_on) = (bench.files.path("joined.py"), bench.session.dir().join("proxy-gone"));
    let file = go_on.display().to_string();
    // What the server saw is asked for on a connection of its own, which the proxy cannot take any more.
    let arguments = [script.as_str(), "call", &bench.address(), &bench.port(), "both", "300000000", &file];
    let mut client = bench.client_in_background(PYTHON, &arguments)?;
    bench.session.until("the splice", || {
        client.running()?;
        Ok(proxied.spliced() >= 1)
    })?;
    proxied.proxy.signal_all(Signal::KILL)?;
    bench.session.until("the daemon to see the proxy's end", || Ok(!bench.lab.listens(bench.port)?))?;
    client.running().map_err(|error| format!("before the proxy was killed: {error}"))?;
    std::fs::write(&go_on, "").map_err(|error| format!("{file}: {error}"))?;
    client.succeed().map(|words| words.trim().into())
}
