//! A real `toed` for tests of the daemon.
#![allow(dead_code, reason = "each test file uses its part")]
pub mod application;
pub mod verbs;

use daemon::client::ask;
use daemon::protocol::Question;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A daemon in a directory of its own.
pub struct Toed {
    pub child: Child,
    pub directory: PathBuf,
}

impl Toed {
    pub fn start(configuration: &str) -> Toed {
        let directory = directory(configuration);
        let mut child = toed(&directory).arg("--announce").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Toed { child, directory }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("toed.sock")
    }

    pub fn ask(&self, question: &Question) -> Value {
        ask(&self.socket(), question).unwrap()
    }

    pub fn contexts(&self) -> Vec<Value> {
        self.ask(&Question::Ls)["hosts"][0]["contexts"].as_array().unwrap().clone()
    }

    /// Asks it to end and waits until it has.
    pub fn end(&mut self) -> ExitStatus {
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

/// A new directory with the configuration.
fn directory(configuration: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("toed-test-{}-{number}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("toed.toml"), configuration).unwrap();
    directory
}

/// A configuration with which no daemon starts: its exit status and what it said.
pub fn refused(configuration: &str) -> (ExitStatus, String) {
    let directory = directory(configuration);
    let output = toed(&directory).output().unwrap();
    let _ = fs::remove_dir_all(&directory);
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

pub fn toed(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toed"));
    command.arg("--config").arg(directory.join("toed.toml")).arg("--socket").arg(directory.join("toed.sock"));
    command.stdin(Stdio::null());
    command
}
