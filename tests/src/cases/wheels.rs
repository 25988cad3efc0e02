//! Programs of verbs as PyPI has them: transfer engines of KV caches, each with libraries of its own in the wheel. One
//! process writes to another one's memory, reads it back and compares. Where PyPI cannot be reached they are left out.
use super::{Bench, PYTHON};
use crate::report::Outcome;
use std::process::Command;

/// A wheel, and the programs in `tests/peers` that use it.
struct Wheel {
    package: &'static str,
    script: &'static str,
    environment: &'static [&'static str],
}

const MOONCAKE: Wheel =
    Wheel { package: "mooncake-transfer-engine-non-cuda==0.3.13", script: "mooncake_transfer.py", environment: &[] };

const NIXL: Wheel = Wheel {
    package: "nixl-cu12==1.5.1",
    script: "nixl_transfer.py",
    environment: &["UCX_NET_DEVICES=toe0:1", "UCX_TLS=rc_verbs,ud_verbs:aux,self"],
};

pub(super) fn mooncake(bench: &Bench) -> Outcome {
    match Mooncake::install(bench)? {
        Some(installed) => installed.transfer(bench, None),
        None => Ok(LEFT_OUT.into()),
    }
}

/// Mooncake, in a folder of the session.
pub(crate) struct Mooncake(String);

impl Mooncake {
    /// Fetches it; nothing where PyPI cannot be reached.
    pub(crate) fn install(bench: &Bench) -> Result<Option<Mooncake>, String> {
        Ok(install(bench, &MOONCAKE)?.map(Mooncake))
    }

    /// One transfer each way; each side has a word of its environment besides.
    pub(crate) fn transfer(&self, bench: &Bench, sides: Option<&[String; 2]>) -> Outcome {
        let Transferred { words, log } = transfer(bench, &MOONCAKE, &self.0, sides)?;
        // Without a device it would use TCP, and move the same bytes.
        if log.contains("Found 1 HCAs") { Ok(words) } else { Err(format!("Mooncake found no device:\n{log}")) }
    }
}

pub(super) fn nixl(bench: &Bench) -> Outcome {
    let Some(folder) = install(bench, &NIXL)? else { return Ok(LEFT_OUT.into()) };
    transfer(bench, &NIXL, &folder, None).map(|printed| printed.words)
}

pub(crate) const LEFT_OUT: &str = "left out: PyPI cannot be reached";
/// What pip prints of each attempt to reach it then.
const NO_CONNECTION: &str = "after connection broken by";

/// Fetches a wheel and unpacks it; the folder, or nothing where PyPI cannot be reached. What it depends on is for parts
/// that are not used here (PyTorch), or Debian's.
fn install(bench: &Bench, wheel: &Wheel) -> Result<Option<String>, String> {
    let folder = bench.files.path(wheel.script.trim_end_matches(".py"));
    let mut command = Command::new(PYTHON);
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--root-user-action=ignore", "--retries=1"]);
    command.args(["--target", &folder, wheel.package]);
    let mut pip = bench.session.spawn(command)?;
    match pip.succeed() {
        Ok(_) => Ok(Some(folder)),
        Err(_) if pip.stderr().contains(NO_CONNECTION) => Ok(None),
        Err(why) => Err(why),
    }
}

/// What the client printed.
struct Transferred {
    words: String,
    log: String,
}

fn transfer(bench: &Bench, wheel: &Wheel, folder: &str, sides: Option<&[String; 2]>) -> Result<Transferred, String> {
    let (path, script) = (format!("PYTHONPATH={folder}"), bench.files.path(wheel.script));
    let own = |side: usize| sides.map(|sides| sides[side].as_str());
    let common = |side| {
        let environment = wheel.environment.iter().copied().chain(own(side));
        environment.chain([path.as_str(), PYTHON, &script]).collect::<Vec<_>>()
    };
    let mut serving = bench.lab.on_server("env");
    serving.args(common(0)).arg("serve");
    let mut server = bench.session.spawn(serving)?;
    let mut place = Vec::new();
    bench.session.until("the server to print where its memory is", || {
        server.running()?;
        let printed = server.stdout();
        let line = printed.lines().find_map(|line| line.strip_prefix("at ")).unwrap_or_default();
        place = line.split_whitespace().map(String::from).collect();
        Ok(place.len() == 2 && printed.ends_with('\n'))
    })?;
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    let mut client = bench.client_in_background("env", &[&common(1)[..], &["call"], &place].concat())?;
    let printed = client.succeed()?;
    server.running()?;
    let own = printed.lines().filter(|line| line.contains("GB/s") || line.contains("the same bytes"));
    Ok(Transferred { words: own.collect::<Vec<_>>().join(", "), log: client.stderr() })
}
