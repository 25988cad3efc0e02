//! Programs that a measurement starts: they end with it, in whatever way it ends.
use port::Netns;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two polls while waiting.
const STEP: Duration = Duration::from_millis(5);

/// The user asked the measurement to end.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Set by SIGINT, SIGTERM and SIGHUP from now on.
    pub fn on_signals() -> Result<Stop, String> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|e| format!("cannot receive signals: {e}"))?;
        }
        Ok(Stop(flag))
    }

    /// An error once the user asked.
    pub fn check(&self) -> Result<(), String> {
        if self.0.load(Relaxed) { Err("interrupted".into()) } else { Ok(()) }
    }

    /// Sleeps until a time of CLOCK_MONOTONIC, waking seldom: the measurement has the cores.
    pub fn sleep_until(&self, at: Duration) -> Result<(), String> {
        loop {
            self.check()?;
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let left = at.saturating_sub(Duration::new(now.tv_sec as u64, now.tv_nsec as u32));
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// Waits until something is so.
    pub fn until(
        &self,
        what: &str,
        limit: Duration,
        mut so: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), String> {
        let begin = Instant::now();
        while !so()? {
            self.check()?;
            if begin.elapsed() > limit {
                return Err(format!("{what}: nothing within {} s", limit.as_secs()));
            }
            sleep(STEP);
        }
        Ok(())
    }
}

/// A running program; ended when dropped.
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program in a namespace. Its output goes to `log`; it dies with this process.
    pub fn start(netns: &Netns, words: &[String], log: PathBuf) -> Result<Process, String> {
        let name = words.first().cloned().unwrap_or_default();
        let output = File::create(&log).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
        let errors = output.try_clone().map_err(|e| e.to_string())?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(words);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        netns.start_inside(&mut command)?;
        let child = command.spawn().map_err(|e| format!("cannot start {name}: {e}"))?;
        Ok(Process { child, name, log })
    }

    /// What it wrote so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Seconds of CPU that it and its children have used so far, in user and kernel mode.
    pub fn cpu_s(&self) -> f64 {
        self.family().into_iter().map(cpu_s).sum()
    }

    /// It, its children and theirs.
    pub fn family(&self) -> Vec<u32> {
        let mut all = vec![self.pid()];
        let mut at = 0;
        while let Some(pid) = all.get(at) {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
            at += 1;
        }
        all
    }

    /// An error with its last words where it has ended.
    pub fn alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(format!("{} ended ({status}): {}", self.name, last_lines(&self.output()))),
            _ => Ok(()),
        }
    }

    /// It listens on a TCP port of the kernel's.
    pub fn listens(&mut self, port: u16) -> Result<bool, String> {
        self.alive()?;
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.pid())).unwrap_or_default();
        // The second field is the local address, the fourth the state: 0A is LISTEN.
        Ok(sockets.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && fields.get(3) == Some(&"0A")
        }))
    }

    /// Asks it to end, and waits until it has.
    pub fn end(mut self, stop: &Stop, limit: Duration) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .map_err(|e| format!("cannot end {}: {e}", self.name))?;
        stop.until(&format!("the end of {}", self.name), limit, || {
            self.child.try_wait().map(|status| status.is_some()).map_err(|e| e.to_string())
        })
    }

    /// Waits for its end, and returns its output where it succeeded.
    pub fn finish(mut self, stop: &Stop, limit: Duration) -> Result<String, String> {
        let mut status = None;
        stop.until(&self.name.clone(), limit, || {
            status = self.child.try_wait().map_err(|e| e.to_string())?;
            Ok(status.is_some())
        })?;
        match status.is_some_and(|status| status.success()) {
            true => Ok(self.output()),
            false => Err(format!("{} failed: {}", self.name, last_lines(&self.output()))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // In order first, so that it can end its own children; then without asking.
        let polite = Instant::now();
        let pid = Pid::from_child(&self.child);
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = kill_process(pid, Signal::TERM);
        }
        while matches!(self.child.try_wait(), Ok(None)) {
            if polite.elapsed() > Duration::from_secs(3) {
                let _ = self.child.kill();
            }
            sleep(STEP);
        }
    }
}

/// Seconds of CPU of one process, of the threads that it has now.
pub fn cpu_s(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    // The first number of a thread's schedstat is its time on a core in nanoseconds; times(2) would count in ticks.
    let nanos = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}
