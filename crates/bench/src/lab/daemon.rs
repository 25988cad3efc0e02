//! A daemon of a lab's own, and programs that run on it.
use super::{TIMEOUT, text};
use crate::directory::Directory;
use crate::private_daemon;
use crate::process::Process;
use crate::tools::Tools;
use daemon::client;
use daemon::protocol::Question;
use port::Netns;
use serde_json::Value;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Core of the data-path thread; programs share the other one.
pub(super) const DAEMON_CORE: usize = 0;
pub(super) const PROGRAM_CORE: usize = 1;

/// A running daemon. Its directory goes with it.
pub(crate) struct Daemon<'a> {
    tools: &'a Tools,
    process: Process,
    directory: Directory,
    /// Where programs run; wherever the kernel puts them by default.
    program_core: Option<usize>,
}

impl<'a> Daemon<'a> {
    /// Starts it in a namespace and waits until it answers.
    pub(crate) fn start(tools: &'a Tools, netns: &Netns, configuration: &str) -> Result<Daemon<'a>, String> {
        let directory = Directory::new("bench")?;
        let process = private_daemon::start(&tools.toe, netns, directory.path(), configuration, &tools.stop)?;
        Ok(Daemon { tools, process, directory, program_core: Some(PROGRAM_CORE) })
    }

    /// The same, whose programs are not bound to a core.
    pub(crate) fn with_programs_anywhere(self) -> Daemon<'a> {
        Daemon { program_core: None, ..self }
    }

    /// Its answer.
    pub(crate) fn ask(&self, question: &Question) -> Result<Value, String> {
        client::ask(&self.socket(), question)
    }

    /// Its answer to a question that comes with bytes.
    pub(crate) fn send(&self, question: &Question, bytes: &[u8]) -> Result<Value, String> {
        client::send(&self.socket(), question, bytes)
    }

    /// A question whose answer goes on: what follows is to be read from the connection.
    pub(crate) fn open(&self, question: &Question) -> Result<BufReader<UnixStream>, String> {
        client::open(&self.socket(), question).map(|(_, stream)| stream)
    }

    /// The daemon itself.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// A directory for this lab.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a program on one of its hosts.
    pub(crate) fn run(&self, netns: &Netns, host: &str, words: &[String], log: String) -> Result<Process, String> {
        Process::start(netns, &self.words_on(host, words), self.directory().join(log))
    }

    /// The words that start a program on one of its hosts, for a program that starts others itself.
    pub(crate) fn words_on(&self, host: &str, words: &[String]) -> Vec<String> {
        let (socket, library) = (text(&self.socket()), text(&self.tools.library));
        let run = [&self.tools.toe, "run", "--quiet", "--socket", &socket, "--lib", &library, "--host", host, "--"];
        [&self.tools.pinned(self.program_core)[..], &run.map(String::from)[..], words].concat()
    }

    /// Starts a program on the kernel's stack, where the programs on hosts run.
    pub(crate) fn run_on_kernel(&self, netns: &Netns, words: &[String], log: &str) -> Result<Process, String> {
        let all = [&self.tools.pinned(self.program_core)[..], words].concat();
        Process::start(netns, &all, self.directory().join(log))
    }

    /// Waits until a program listens on a port of a host; hosts are counted from 0, the server's.
    pub(crate) fn wait_for_listener(&self, server: &mut Process, host: usize, port: u16) -> Result<(), String> {
        self.tools.stop.until("the server to listen", TIMEOUT, || {
            server.alive()?;
            let answer = self.ask(&Question::Ls)?;
            let listeners = answer["hosts"][host]["listeners"].as_array().cloned().unwrap_or_default();
            Ok(listeners.iter().any(|listener| listener["port"] == port))
        })
    }

    fn socket(&self) -> PathBuf {
        private_daemon::socket(self.directory())
    }
}
