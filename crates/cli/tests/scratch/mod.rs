//! Fixtures of the command's tests.
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A directory for sockets and temporary files of one test.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("toe-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_opentoe"));
        command.env("XDG_RUNTIME_DIR", &self.0).env("TMPDIR", &self.0).env_remove("TOE_SOCKET").env_remove("TOE_LIB");
        command
    }

    pub(crate) fn toe(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Directories and files in it.
    pub(crate) fn entries(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }

    /// Nothing is left in it, soon.
    pub(crate) fn becomes_empty(&self) {
        self.shrinks_to(0);
    }

    /// No more than so many directories and files are left in it, soon.
    pub(crate) fn shrinks_to(&self, most: usize) {
        let begin = Instant::now();
        while self.entries() > most {
            assert!(begin.elapsed() < Duration::from_secs(60), "something is left in {}", self.0.display());
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Some shared library, for where libtoe itself does not matter: this process's C library.
pub(crate) fn any_library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("libc.so") || line.contains("libc-")).unwrap();
    line.split_whitespace().last().unwrap().into()
}
