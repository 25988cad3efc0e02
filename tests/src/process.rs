//! Running programs: each in its own process group, with its output in a file, under a deadline.
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two polls of a wait.
pub const TICK: Duration = Duration::from_millis(5);
/// How long a program may take to end after SIGTERM. The kernel closes a TAP device behind all that waits for RCU
/// (`rcu_barrier`), which took it more than three seconds once, beside two other cases.
const GRACE: Duration = Duration::from_secs(15);
/// Lines of a program's output that are shown when a case fails: the first ones, as a program that aborts prints the
/// reason before a long stack, and the last ones.
const HEAD: usize = 4;
const TAIL: usize = 12;
/// In the environment of everything that a session starts, so that the leak check finds what was left over.
pub const MARK: &str = "TOE_TESTS_SESSION";

/// A session's folder is called this and the driver's process number.
const FOLDER: &str = "toe-tests-";

/// Removes the folders of drivers that were killed and could not.
pub fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(FOLDER).filter(|owner| owner.bytes().all(|byte| byte.is_ascii_digit()));
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// One run of a driver: its folder for files, its deadline, its programs' output.
pub struct Session {
    dir: PathBuf,
    interrupted: Arc<AtomicBool>,
    deadline: Cell<Instant>,
    outputs: RefCell<Vec<PathBuf>>,
    started: Cell<u32>,
    /// What else a timeout is reported with.
    state: RefCell<Option<Box<dyn Fn() -> String>>>,
}

impl Session {
    /// Makes the folder and catches SIGINT and SIGTERM, so that everything is cleaned up on the way out.
    pub fn new() -> Result<Session, String> {
        let dir = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone()).map_err(|error| error.to_string())?;
        }
        let deadline = Cell::new(Instant::now() + Duration::from_secs(3600));
        let (outputs, started, state) = (RefCell::default(), Cell::new(0), RefCell::default());
        Ok(Session { dir, interrupted, deadline, outputs, started, state })
    }

    /// Folder for files; it is removed with the session.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The run is to end.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// A new case: it has so long, and the output of earlier ones is forgotten.
    pub fn begin_case(&self, limit: Duration) {
        self.deadline.set(Instant::now() + limit);
        for path in self.outputs.borrow_mut().drain(..) {
            let _ = fs::remove_file(path);
        }
    }

    /// The first and the last lines of what the case's programs printed.
    pub fn excerpts(&self) -> String {
        let mut text = String::new();
        for path in self.outputs.borrow().iter() {
            let content = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = content.lines().collect();
            let tail = lines.len().saturating_sub(TAIL);
            for line in lines[..tail.min(HEAD)].iter().chain(&lines[tail..]) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                text += &format!("      {name}: {}\n", line.chars().take(300).collect::<String>());
            }
        }
        text
    }

    /// From now on a timeout is reported with this as well: what hangs is gone when the case has failed.
    pub fn describe_timeouts(&self, state: impl Fn() -> String + 'static) {
        *self.state.borrow_mut() = Some(Box::new(state));
    }

    /// Waits until `ready` holds; an error when the case's time is over or the run is interrupted.
    pub fn until(&self, what: &str, mut ready: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
        while !ready()? {
            self.alive(what)?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn alive(&self, what: &str) -> Result<(), String> {
        match (self.interrupted(), Instant::now() > self.deadline.get()) {
            (true, _) => Err("interrupted".into()),
            (_, true) => {
                let state = self.state.borrow().as_ref().map_or_else(String::new, |state| state());
                Err(format!("timeout while waiting for {what}{state}"))
            }
            _ => Ok(()),
        }
    }

    /// Lets time pass, but not after an interruption.
    pub fn pause(&self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        self.until("a pause", || Ok(Instant::now() >= end))
    }

    /// Starts a program.
    pub fn spawn(&self, mut command: Command) -> Result<Process<'_>, String> {
        let name = program_name(&command);
        self.started.set(self.started.get() + 1);
        let base = self.dir.join(format!("{:04}-{name}", self.started.get()));
        let (out, err) = (base.with_extension("out"), base.with_extension("err"));
        let create = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
        self.outputs.borrow_mut().extend([out.clone(), err.clone()]);
        let child = command
            .stdin(Stdio::null())
            .stdout(create(&out)?)
            .stderr(create(&err)?)
            .env(MARK, std::process::id().to_string())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Process { session: self, name, child, out, err, status: None })
    }

    /// Runs a program to its end; its standard output, or an error when its exit status is not 0.
    pub fn run(&self, command: Command) -> Result<String, String> {
        let mut process = self.spawn(command)?;
        process.succeed()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A running program and its children: one process group, ended when this value goes.
pub struct Process<'a> {
    session: &'a Session,
    name: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
    status: Option<ExitStatus>,
}

impl Process<'_> {
    /// The first process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap_or_default()).into_owned()
    }

    /// What it complained of so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap_or_default()).into_owned()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|error| error.to_string())?;
        }
        Ok(self.status)
    }

    /// Its exit status, if it ends within this time.
    pub fn ended_within(&mut self, time: Duration) -> Result<Option<ExitStatus>, String> {
        let end = Instant::now() + time;
        while self.ended()?.is_none() && Instant::now() < end {
            std::thread::sleep(TICK);
        }
        Ok(self.status)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus, String> {
        let (session, name) = (self.session, self.name.clone());
        session.until(&name, || Ok(self.ended()?.is_some()))?;
        self.status.ok_or_else(|| name + " has no status")
    }

    /// Waits for its end and expects the exit status 0; returns its standard output.
    pub fn succeed(&mut self) -> Result<String, String> {
        let status = self.wait()?;
        match status.success() {
            true => Ok(self.stdout()),
            false => Err(format!("{} ended with {}", self.name, describe(status))),
        }
    }

    /// An error if it is not running any more.
    pub fn running(&mut self) -> Result<(), String> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(format!("{} ended with {}", self.name, describe(status))),
        }
    }

    /// Sends a signal to the first process only.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(self.pid(), signal).map_err(|error| format!("signal to {}: {error}", self.name))
    }

    /// Sends a signal to the whole group.
    pub fn signal_all(&self, signal: Signal) -> Result<(), String> {
        kill_process_group(self.pid(), signal).map_err(|error| format!("signal to {}: {error}", self.name))
    }

    /// Ends it as an administrator would: SIGTERM, a grace period, SIGKILL. An error if it needed the last.
    pub fn stop(&mut self) -> Result<(), String> {
        let _ = self.signal_all(Signal::TERM);
        let end = Instant::now() + GRACE;
        while self.ended()?.is_none() && Instant::now() < end {
            std::thread::sleep(TICK);
        }
        let threads = if self.status.is_some() { None } else { Some(threads_of(self.id())) };
        self.kill();
        threads.map_or(Ok(()), |threads| Err(format!("{} did not end on SIGTERM: {threads}", self.name)))
    }

    /// Ends whatever is left of the group at once.
    pub fn kill(&mut self) {
        let _ = self.signal_all(Signal::KILL);
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// What each thread of a process does at this moment: its name, state, processor time in ticks, where it waits in the
/// kernel, and in which system call (proc(5)).
fn threads_of(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let threads = tasks.map(|task| {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default().trim().to_string();
        let stat = read("stat");
        // Behind the name, which may hold anything: state is field 3, user and system time 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or("?");
        let call = read("syscall");
        format!(
            "{} {} {}+{} ticks, waits in {}, system call {}",
            read("comm"),
            field(3),
            field(14),
            field(15),
            read("wchan"),
            call.split(' ').next().unwrap_or_default()
        )
    });
    threads.collect::<Vec<_>>().join("; ")
}

/// "status 1" or "signal 9".
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "no status".into(),
    }
}

/// The name for people: the program's, past the launchers (`opentoe run ... -- PROGRAM`, `ip netns exec NAME PROGRAM`).
fn program_name(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let after = |word: &str, skip: usize| words.iter().position(|found| *found == word).map(|at| at + skip);
    let start = after("--", 1).or(after("exec", 2)).unwrap_or(0);
    let path = words.get(start).map(Path::new).unwrap_or(Path::new("nothing"));
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
