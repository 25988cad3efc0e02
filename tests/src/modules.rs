//! Modules of operators on live traffic: loaded, changed and unloaded by `opentoe xdp` while programs talk.
use crate::cases::{Bench, app};
use crate::daemon::Daemon;
use crate::faults::Bystanders;
use crate::lab::DEVICE;
use crate::report::Outcome;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The daemon, and the host of it that modules are loaded on: the server's, where it is on OpenTOE.
pub(crate) struct Host<'a> {
    bench: &'a Bench<'a>,
    pub daemon: &'a Daemon<'a>,
    pub name: &'static str,
}

impl<'a> Host<'a> {
    pub(crate) fn of(bench: &'a Bench<'a>) -> Result<Host<'a>, String> {
        let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon here")?;
        let name = if bench.lab.server.is_accelerated() { "server" } else { "client" };
        Ok(Host { bench, daemon, name })
    }

    /// `opentoe xdp` with these arguments, on this host; what it prints.
    fn toe(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.daemon.toe(&["xdp"]);
        command.args(["--host", self.name, "--json"]).args(arguments);
        self.bench.session.run(command)
    }

    fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        serde_json::from_str(&self.toe(arguments)?).map_err(|error| error.to_string())
    }

    /// Loads a shipped module, or one of the tests' own, and returns its name.
    fn load(&self, module: &str) -> Result<String, String> {
        let object = self.compile(module)?;
        let answer = self.json(&["load", &object])?;
        Ok(answer["name"].as_str().unwrap_or_default().into())
    }

    pub(crate) fn compile(&self, module: &str) -> Result<String, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = [root.join("../xdp"), root.join("xdp")].map(|folder| folder.join(format!("{module}.c")));
        let source = sources.iter().find(|source| source.exists()).ok_or(format!("there is no {module}.c"))?;
        let object = self.bench.session.dir().join(format!("{module}.o")).display().to_string();
        let mut clang = Command::new("clang");
        let architecture = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        clang.args(["-O2", "-g", "-target", "bpf", "-Wall", "-Werror", "-I", &architecture, "-c"]);
        clang.arg(source).args(["-o", &object]);
        self.bench.session.run(clang)?;
        Ok(object)
    }

    fn unload(&self, module: &str) -> Result<Value, String> {
        self.json(&["unload", module])
    }

    /// Loads an object without starting a program for it, and returns its name; `native:NAME` for one of Rust.
    pub(crate) fn load_object(&self, object: &str) -> Outcome {
        self.daemon.load_module(self.name, object)
    }

    /// As [`Host::unload`], without starting a program for it.
    pub(crate) fn take_out(&self, module: &str) -> Result<(), String> {
        let unload = json!({ "ask": "xdp", "verb": "unload", "host": self.name, "module": module });
        self.daemon.ask_with(&unload, &[]).map(drop)
    }

    /// A counter that the host keeps for a kind of module, as `opentoe stats` shows it.
    pub(crate) fn counter(&self, module: &str, name: &str) -> Result<u64, String> {
        let stats = self.daemon.ask("stats")?;
        let found = |host: &&Value| host["name"] == self.name || host["host"] == self.name;
        let host = stats["hosts"].as_array().and_then(|hosts| hosts.iter().find(found)).ok_or("no such host")?;
        host["modules"][module][name].as_u64().ok_or(format!("opentoe stats has no {name}: {host}"))
    }

    /// A module's figures.
    fn figures(&self, module: &str) -> Result<Value, String> {
        let all = self.json(&["ls"])?;
        let found = all["modules"].as_array().into_iter().flatten().find(|found| found["name"] == module);
        found.cloned().ok_or(format!("opentoe xdp ls does not show {module}"))
    }

    fn verdict(&self, module: &str, verdict: &str) -> Result<u64, String> {
        Ok(self.figures(module)?["verdicts"][verdict].as_u64().unwrap_or(0))
    }

    /// Until the module gave this verdict, and a while more. The sender may only be about to begin.
    fn goes_on_with(&self, module: &str, verdict: &str, while_more: Duration) -> Result<(), String> {
        let session = self.bench.session;
        session
            .until(&format!("{module} to return {verdict} for a frame"), || Ok(self.verdict(module, verdict)? > 0))?;
        session.pause(while_more)
    }

    /// How many frames a VLAN module changed; at least one.
    pub(crate) fn tagged(&self, module: &str, what: &str) -> Result<u64, String> {
        let config = self.json(&["map", "get", module, "config", "0"])?;
        let count = config["value"][what].as_u64().filter(|count| *count > 0);
        count.ok_or(format!("{module} changed no frame: {config}"))
    }

    pub(crate) fn set(&self, module: &str, map: &str, key: &str, value: &str) -> Result<(), String> {
        self.toe(&["map", "set", module, map, key, value]).map(drop)
    }
}

/// Both directions at once, every word compared.
fn stream(bench: &Bench, bytes: &str) -> Result<(), String> {
    let bench = bench.on_another_port();
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    bench.client(&app("stream"), &["-c", &address, "-p", &port, "-u", bytes, "-d", bytes])?;
    server.succeed().map(drop)
}

/// A module that does nothing, and two native ones, see all frames of what passes.
pub(crate) fn null(bench: &Bench) -> Outcome {
    let host = Host::of(bench)?;
    let null = host.load("null")?;
    for native in ["native:classifier", "native:meter"] {
        host.toe(&["load", native])?;
    }
    stream(bench, "20000000")?;
    let (passed, metered) = (host.verdict(&null, "pass")?, host.verdict("meter", "pass")?);
    let flows = host.json(&["map", "dump", "meter", "flows"])?;
    let segments: u64 =
        flows.as_array().into_iter().flatten().filter_map(|flow| flow["value"]["segments"].as_u64()).sum();
    if metered == 0 || segments != metered || passed < metered {
        return Err(format!("null passed {passed} frames, the meter saw {metered} segments and reports {segments}"));
    }
    let nanos = host.figures(&null)?["ns_per_frame"].clone();
    [null.as_str(), "classifier", "meter"].iter().try_for_each(|module| host.unload(module).map(drop))?;
    Ok(format!("20 MB each way; null passed {passed} frames at {nanos} ns, {metered} were segments of flows"))
}

/// The kernel's end of the link, while it takes and gives only frames with VLAN tag 42.
pub(crate) struct VlanPeer<'a>(&'a Host<'a>);

impl<'a> VlanPeer<'a> {
    pub(crate) fn start(host: &'a Host<'a>) -> Result<VlanPeer<'a>, String> {
        let (object, peer) = (host.compile("peer_vlan")?, VlanPeer(host));
        peer.tc(&["qdisc", "add", "dev", DEVICE, "clsact"])?;
        for way in ["egress", "ingress"] {
            let section = format!("tc/{way}");
            peer.tc(&["filter", "add", "dev", DEVICE, way, "bpf", "direct-action", "obj", &object, "sec", &section])?;
        }
        Ok(peer)
    }

    pub(crate) fn stop(self) -> Result<(), String> {
        self.tc(&["qdisc", "delete", "dev", DEVICE, "clsact"])
    }

    fn tc(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.0.bench.lab.near.command("tc");
        command.args(arguments);
        self.0.bench.session.run(command).map(drop)
    }
}

/// Frames carry a VLAN tag on the wire: the kernel's end drops what has none, and the host's TCP never sees it.
pub(crate) fn vlan(bench: &Bench) -> Outcome {
    const TAG: &str = r#"{"tag": 42}"#;
    let host = Host::of(bench)?;
    let (strip, push) = (host.load("vlan_strip")?, host.load("vlan_push")?);
    host.set(&push, "config", "0", TAG)?;
    let peer = VlanPeer::start(&host)?;
    stream(bench, "50000000")?;
    let (stripped, pushed) = (host.tagged(&strip, "stripped")?, host.tagged(&push, "pushed")?);
    // Without the tag on the way out, nothing gets through to the kernel; with it, connections go on.
    let bystanders = Bystanders::start(bench)?;
    host.unload(&push)?;
    bench.session.pause(Duration::from_millis(300))?;
    let push = host.load("vlan_push")?;
    host.set(&push, "config", "0", TAG)?;
    bystanders.finish()?;
    peer.stop()?;
    [strip, push].iter().try_for_each(|module| host.unload(module).map(drop))?;
    Ok(format!("50 MB each way in VLAN 42: {stripped} tags off, {pushed} on; taken out and put back under load"))
}

/// An address is shut out and let in again while others talk on.
pub(crate) fn firewall(bench: &Bench) -> Outcome {
    let host = Host::of(bench)?;
    let firewall = host.load("firewall")?;
    let peer = if bench.lab.server.is_accelerated() { &bench.lab.client } else { &bench.lab.server };
    let bystanders = Bystanders::start(bench)?;
    host.set(&firewall, "rules", "203.0.113.0/24", r#"{"action": 1}"#)?;
    bystanders.finish()?;
    let shut_out = format!("{}/32", peer.address);
    let talking = Bystanders::start(bench)?;
    host.set(&firewall, "rules", &shut_out, r#"{"action": 1}"#)?;
    host.goes_on_with(&firewall, "drop", Duration::from_millis(400))?;
    let dropped = host.verdict(&firewall, "drop")?;
    host.toe(&["map", "delete", &firewall, "rules", &shut_out])?;
    talking.finish()?;
    host.unload(&firewall)?;
    Ok(format!("{dropped} frames of {shut_out} dropped while it was shut out; its connections went on afterwards"))
}

/// Frames are counted by class.
pub(crate) fn classify(bench: &Bench) -> Outcome {
    let host = Host::of(bench)?;
    let classify = host.load("classify")?;
    let other = bench.on_another_port();
    let rule = json!({ "port": other.port, "protocol": 6 }).to_string();
    host.set(&classify, "rules", &rule, "7")?;
    let (address, port) = (other.address(), other.port());
    let mut server = other.server(other.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    other.client(&app("stream"), &["-c", &address, "-p", &port, "-u", "5000000", "-d", "5000000"])?;
    server.succeed()?;
    let counted = host.json(&["map", "get", &classify, "classes", "7"])?;
    let seen = host.figures(&classify)?["runs"].as_u64().unwrap_or(0);
    let text = counted.to_string();
    host.unload(&classify)?;
    if !text.contains("frames") || seen == 0 {
        return Err(format!("{seen} frames were seen, and class 7 is {text}"));
    }
    Ok(format!("class 7 of {seen} frames: {text}"))
}

/// A flood of openings is held back; connections that are there go on.
pub(crate) fn syn_limit(bench: &Bench) -> Outcome {
    let host = Host::of(bench)?;
    let limit = host.load("syn_limit")?;
    let bystanders = Bystanders::start(bench)?;
    host.set(&limit, "limits", "0", r#"{"per_second": 2, "burst": 2}"#)?;
    let _echo = bench.python_server("asyncio_echo.py", &["serve", &bench.port()])?;
    // What is dropped is sent again a second later. Two threads let one more pass for each credit (xdp/syn_limit.c):
    // with four, none may be dropped. A client that gets no core may open one after the other: then once more.
    let (mut printed, mut dropped) = (String::new(), 0);
    bench.session.until("an opening that is held back", || {
        printed = bench.python_client("asyncio_echo.py", &["call", &bench.address(), &bench.port(), "6", "5"])?;
        dropped = host.verdict(&limit, "drop")?;
        Ok(dropped > 0)
    })?;
    bystanders.finish()?;
    host.unload(&limit)?;
    Ok(format!("{dropped} openings were held back, and succeeded later: {}", printed.trim()))
}

/// A module that fails on every frame stops traffic, not the operator.
pub(crate) fn abort(bench: &Bench) -> Outcome {
    let host = Host::of(bench)?;
    let bystanders = Bystanders::start(bench)?;
    let abort = host.load("abort")?;
    host.goes_on_with(&abort, "aborted", Duration::from_millis(300))?;
    host.daemon.ask("ls")?;
    let aborted = host.unload(&abort)?["verdicts"]["aborted"].as_u64().unwrap_or(0);
    bystanders.finish()?;
    let counted = host.daemon.drops_named(&["module_aborted"])?;
    Ok(format!("{aborted} frames aborted ({counted}), then unloaded, and connections went on"))
}
