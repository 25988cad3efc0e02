//! PostgreSQL: a process for each connection, which the server's first process accepts and forks.
use super::{Bench, number_after};
use crate::process::Process;
use crate::report::Outcome;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// PostgreSQL refuses to run as root; the daemon's socket is for root's group.
const USER: [&str; 5] = ["--reuid=nobody", "--regid=root", "--clear-groups", "--inh-caps=-all", "--"];
/// Where Debian has programs of this and later versions.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// Segments in files of the data directory: what a killed server leaves in /dev/shm stays there for ever, and a test
/// that runs beside this one takes a segment of a living server for one that it left behind itself.
const SETTINGS: [&str; 3] = ["unix_socket_directories=", "fsync=off", "dynamic_shared_memory_type=mmap"];
/// `initdb` has no such setting before version 16; its segments are in a `/dev/shm` of its own.
const PRIVATE_SHARED_MEMORY: &str = "mount -t tmpfs none /dev/shm; exec \"$0\" \"$@\"";

/// A program of the newest version that is installed.
fn program(name: &str) -> Result<String, String> {
    let versions = fs::read_dir(PROGRAMS).map_err(|error| format!("{PROGRAMS}: {error}: install postgresql"))?;
    let mut found: Vec<_> = versions.flatten().map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().map(|path| path.display().to_string()).ok_or_else(|| format!("there is no {name} in {PROGRAMS}"))
}

/// A server with a fresh database, to which anybody may connect.
pub(crate) fn server<'a>(bench: &Bench<'a>) -> Result<Process<'a>, String> {
    let data = bench.session.dir().join(format!("postgres {}", bench.port));
    let failed = |error: std::io::Error| format!("{}: {error}", data.display());
    fs::create_dir_all(&data).map_err(failed)?;
    let mut own = Command::new("chown");
    bench.session.run({
        own.arg("nobody").arg(&data);
        own
    })?;
    bench.session.run({
        let mut make = Command::new("unshare");
        make.args(["--mount", "sh", "-ec", PRIVATE_SHARED_MEMORY, "setpriv"]).args(USER);
        make.arg(program("initdb")?).args(["--no-sync", "-A", "trust", "-U", "postgres", "-D"]).arg(&data);
        make
    })?;
    admit_all(&data).map_err(failed)?;
    let status = data.join("postmaster.pid");
    let (port, data, postgres) = (bench.port(), data.display().to_string(), program("postgres")?);
    let set = SETTINGS.map(|setting| ["-c", setting]).concat();
    let any = format!("listen_addresses={}", bench.any());
    let words = [&USER[..], &[&postgres, "-D", &data, "-p", &port, "-c", &any], &set].concat();
    let server = bench.server(bench.lab.on_server("setpriv"), &words)?;
    bench.session.until("PostgreSQL to be ready", || Ok(is_ready(&status)))?;
    Ok(server)
}

/// It listens before it lets anybody in; the eighth line of its lock file has both.
fn is_ready(status: &Path) -> bool {
    fs::read_to_string(status).is_ok_and(|lines| lines.lines().nth(7).is_some_and(|line| line.trim() == "ready"))
}

fn admit_all(data: &Path) -> std::io::Result<()> {
    let mut rules = OpenOptions::new().append(true).open(data.join("pg_hba.conf"))?;
    rules.write_all(b"host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n")
}

/// What the server answers to a query.
pub(crate) fn query(bench: &Bench, sql: &str) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    bench.client(&program("psql")?, &["-h", &address, "-p", &port, "-U", "postgres", "-qAtc", sql])
}

/// Selects by pgbench, and a value of ten megabytes.
pub(super) fn pgbench(bench: &Bench) -> Outcome {
    let _server = server(bench)?;
    let (address, port, pgbench) = (bench.address(), bench.port(), program("pgbench")?);
    let at = ["-h", &address, "-p", &port, "-U", "postgres"];
    bench.client(&pgbench, &[&at[..], &["-i", "-q", "postgres"]].concat())?;
    let load = ["-S", "-c", "8", "-j", "2", "-T", "2", "postgres"];
    let printed = bench.client(&pgbench, &[&at[..], &load].concat())?;
    let (rate, failed) = (number_after(&printed, "tps = ")?, number_after(&printed, "failed transactions: ")?);
    if failed > 0.0 {
        return Err(format!("{failed} transactions failed"));
    }
    let long = query(bench, "select repeat('abcdefghij', 1000000)")?;
    if long.trim_end() != "abcdefghij".repeat(1_000_000) {
        return Err(format!("a value of 10 MB came as {} other bytes", long.len()));
    }
    let accounts = query(bench, "select count(*) from pgbench_accounts")?;
    match accounts.trim() {
        "100000" => Ok(format!("{:.1} k selects/s, a value of 10 MB", rate / 1e3)),
        other => Err(format!("{other} accounts, not 100000")),
    }
}
