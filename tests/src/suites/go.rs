//! Tests of Go's standard library. Each is compiled twice: linked statically, and with the C library beside it.
use super::{Kind, Outcomes, Runner, Suite};
use crate::process::Session;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: &[&str] = &[
    "net",
    "net/http",
    "net/http/httptest",
    "net/http/httputil",
    "net/http/cgi",
    "net/http/fcgi",
    "net/http/pprof",
    "net/rpc",
    "net/rpc/jsonrpc",
    "net/smtp",
    "net/textproto",
    "crypto/tls",
    "log/syslog",
    "expvar",
    "os",
    "os/exec",
    "os/signal",
    "syscall",
    "internal/poll",
];

pub(super) fn suites() -> Vec<Suite> {
    let of = |package: &'static str, cgo: bool| Suite {
        name: format!("go {package}, {}", if cgo { "with C" } else { "static" }),
        kind: Kind::Go { package, cgo },
    };
    PACKAGES.iter().flat_map(|package| [of(package, false), of(package, true)]).collect()
}

/// The Go compiler, where there is one; `cgo`: what it makes may use the C library.
pub(crate) fn compiler(session: &Session, cgo: bool) -> Option<Command> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&in_path).map(|folder| folder.join("go"));
    let go = all.chain([PathBuf::from("/usr/local/go/bin/go")]).find(|go| go.is_file())?;
    let mut command = Command::new(go);
    command.env("CGO_ENABLED", if cgo { "1" } else { "0" });
    command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "").env("GO111MODULE", "off");
    if std::env::var_os("HOME").is_none() {
        command.env("GOCACHE", session.dir().join("go"));
    }
    Some(command)
}

/// A program of tests.
pub(super) struct GoTests {
    program: String,
    folder: PathBuf,
}

/// Compiles a package's tests; `None` where there is no compiler.
pub(super) fn build(session: &Session, package: &str, cgo: bool) -> Result<Option<GoTests>, String> {
    let (Some(mut asked), Some(mut command)) = (compiler(session, cgo), compiler(session, cgo)) else {
        return Ok(None);
    };
    asked.args(["env", "GOROOT"]);
    let folder = Path::new(session.run(asked)?.trim()).join("src").join(package);
    let name = format!("{}-{}.test", package.replace('/', "-"), if cgo { "c" } else { "static" });
    let program = session.dir().join(name).display().to_string();
    command.args(["test", "-c", "-vet=off", "-o", &program, package]).env_remove("GO111MODULE").current_dir(&folder);
    session.run(command)?;
    Ok(Some(GoTests { program, folder }))
}

impl Runner for GoTests {
    fn command(&self, mut command: Command, tests: &BTreeSet<String>) -> Command {
        command.args(["-test.v", "-test.short", "-test.timeout=600s"]);
        // As `go test` runs them.
        command.current_dir(&self.folder).env("PWD", &self.folder);
        // Subtests run with the test that they are of.
        let names: BTreeSet<&str> = tests.iter().filter_map(|test| test.split('/').next()).collect();
        if !names.is_empty() {
            command.arg(format!("-test.run=^({})$", names.into_iter().collect::<Vec<_>>().join("|")));
        }
        command
    }

    fn program(&self) -> &str {
        &self.program
    }

    /// Lines like "    --- PASS: TestDial/tcp (0.01s)", behind what the test printed without a line's end.
    fn outcomes(&self, output: &str) -> Outcomes {
        let mut outcomes = Outcomes::new();
        for line in output.lines() {
            if let Some((_, name)) = line.split_once("=== RUN   ") {
                outcomes.insert(name.trim().into(), "begins".into());
            }
            let ended = line.split_once("--- ").and_then(|(_, rest)| rest.split_once(": "));
            let Some((outcome, rest)) = ended.filter(|(outcome, _)| ["PASS", "FAIL", "SKIP"].contains(outcome)) else {
                continue;
            };
            outcomes.insert(rest.split(' ').next().unwrap_or_default().into(), outcome.into());
        }
        outcomes
    }
}
