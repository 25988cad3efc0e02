//! A real `toed` for tests of the daemon.
#![allow(dead_code, reason = "each test file uses its part")]
pub(crate) mod application;
pub(crate) mod comm;
pub(crate) mod exchange;
pub(crate) mod judge;
pub(crate) mod nbd;
pub(crate) mod pair;
pub(crate) mod party;
pub(crate) mod peer;
pub(crate) mod place;
pub(crate) mod store;
pub(crate) mod verbs;
pub(crate) mod zeronic;

use daemon::client::ask;
use daemon::protocol::Question;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A daemon in a directory of its own.
pub(crate) struct Toed {
    pub child: Child,
    pub directory: PathBuf,
}

impl Toed {
    pub(crate) fn start(configuration: &str) -> Toed {
        Toed::start_by(configuration, toed)
    }

    /// Starts it by a command for its directory.
    pub(crate) fn start_by(configuration: &str, command: impl FnOnce(&Path) -> Command) -> Toed {
        let directory = directory(configuration);
        Toed { child: announced(command(&directory)), directory }
    }

    /// Kills it, and starts another one with its configuration.
    pub(crate) fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = announced(toed(&self.directory));
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("toed.sock")
    }

    pub(crate) fn ask(&self, question: &Question) -> Value {
        ask(&self.socket(), question).unwrap()
    }

    pub(crate) fn contexts(&self) -> Vec<Value> {
        self.ask(&Question::Ls)["hosts"][0]["contexts"].as_array().unwrap().clone()
    }

    /// Waits for a second in which it uses no core, but for a tick of 10 ms. Until then it may use a second of one: on
    /// a crowded machine it gets to rest late, and uses no more for that.
    pub(crate) fn comes_to_rest(&self) {
        let begin = self.ticks();
        application::until("an idle second", || {
            let before = self.ticks();
            std::thread::sleep(Duration::from_secs(1));
            self.ticks() - before <= 1
        });
        let used = self.ticks() - begin;
        assert!(used <= 100, "{used} ticks before it came to rest");
    }

    /// User and system time that it has used, in clock ticks.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // After the name, which may have spaces: state is field 3, utime 14, stime 15.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Asks it to end and waits until it has.
    pub(crate) fn end(&mut self) -> ExitStatus {
        ask(&self.socket(), &Question::Stop).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Toed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Starts a daemon and waits until it serves.
fn announced(mut command: Command) -> Child {
    let mut child = command.arg("--announce").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// A new directory with the configuration.
fn directory(configuration: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("toed-test-{}-{number}", std::process::id()));
    // That of a killed process with the same number.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("toed.toml"), configuration).unwrap();
    directory
}

/// A configuration with which no daemon starts: its exit status and its standard error.
pub(crate) fn refused(configuration: &str) -> (ExitStatus, String) {
    let directory = directory(configuration);
    let output = toed(&directory).output().unwrap();
    let _ = fs::remove_dir_all(&directory);
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(crate) fn toed(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toed"));
    command.arg("--config").arg(directory.join("toed.toml")).arg("--socket").arg(directory.join("toed.sock"));
    command.stdin(Stdio::null());
    command
}
