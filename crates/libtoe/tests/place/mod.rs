//! Where programs run under libtoe.so, with a stand-in for the daemon.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::loop_host::{ADDRESS, Leftovers, LoopHost};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a program may take for a script, on a crowded machine as well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A folder with the stand-in's socket, removed at the end.
pub(crate) struct Place {
    pub folder: PathBuf,
    pub host: LoopHost,
}

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        Place::with(name, LoopHost::start)
    }

    pub(crate) fn with(name: &str, start: fn(&Path) -> LoopHost) -> Place {
        let folder = std::env::temp_dir().join(format!("libtoe-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let host = start(&folder.join("socket"));
        // Programs such as memcached give up root before they make their sockets.
        for path in [folder.as_path(), host.path()] {
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        Place { folder, host }
    }

    /// A program that is to run on the stand-in.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("LD_PRELOAD", library()).env("TOE_SOCKET", self.host.path()).current_dir(&self.folder);
        command
    }

    /// Stops the stand-in once everything that programs had is given back.
    pub(crate) fn finish(mut self) {
        // What a killed process held is given back when the stand-in sees its end.
        let end = Instant::now() + PATIENCE;
        while self.host.shown().leftovers != Leftovers::default() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.host.stop(), Leftovers::default());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program in the background, ended with the test.
pub(crate) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds something of this package in the way that this test was built; returns the folder. Cargo builds neither a
/// `cdylib` for integration tests nor, when one test is asked for, examples.
pub(crate) fn build(what: &[&str]) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap().parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "libtoe"]).args(what);
    cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
    if folder.file_name().is_some_and(|name| name == "release") {
        cargo.args(["--profile", if cfg!(debug_assertions) { "bench" } else { "release" }]);
    }
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    folder.to_path_buf()
}

/// libtoe.so, of the same build as this test.
pub(crate) fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&["--lib"]).join("libtoe.so")).clone()
}

pub(crate) fn is_installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()));
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Runs a command to its end, which it must reach in time.
pub(crate) fn run(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("{command:?} does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Runs a command that must succeed; returns what it printed.
pub(crate) fn text(command: &mut Command) -> String {
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?} {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a server; waits until a connection from a program on the stand-in succeeds.
pub(crate) fn serve(place: &Place, command: &mut Command, port: u16) -> Running {
    let child = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let script = format!("import socket; socket.create_connection(('{ADDRESS}', {port})).close()");
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if run(place.command("python3").args(["-c", &script])).status.success() {
            return child;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{command:?} does not listen");
}

pub(crate) fn compile(place: &Place, name: &str) -> PathBuf {
    compile_with(place, "cc", name, name, &["-pthread"])
}

/// A program of tests/ by a compiler, with its options.
pub(crate) fn compile_with(place: &Place, compiler: &str, name: &str, binary: &str, options: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (source, include) = (here.join("tests").join(format!("{name}.c")), here.join("../../include"));
    let binary = place.folder.join(binary);
    text(Command::new(compiler).arg("-O1").args(options).arg("-I").arg(include).arg("-o").arg(&binary).arg(source));
    binary
}
