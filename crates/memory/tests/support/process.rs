//! A helper program with memory of every kind (`crates/memory/examples/registrant.rs`): started, asked over its socket,
//! and ended with the test. Tests of several crates use it, each with an example of its own, which is the same program.
use memory::Description;
use shm::handover;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the program may take for anything that it is asked.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The running program.
pub(crate) struct Process {
    pub child: Child,
    socket: OwnedFd,
}

/// A region as the program describes it, with the descriptor of its memory and those of the files behind the region.
pub(crate) struct Described {
    pub description: Description,
    pub space: OwnedFd,
    pub files: Vec<OwnedFd>,
}

impl Process {
    /// Starts the example of this name, which meets the test at `path`. With `quiet`, without threads that write beside
    /// the regions; as `user`, where one is given.
    pub(crate) fn start(example: &str, path: &Path, quiet: bool, user: Option<u32>) -> Process {
        let listener = handover::listen(path).unwrap();
        let mut command = Command::new(built(example));
        command.arg(path).args(quiet.then_some("quiet"));
        if let Some(user) = user {
            command.uid(user).gid(user);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let (mut child, began) = (command.spawn().unwrap(), Instant::now());
        let socket = loop {
            match handover::accept(listener.as_fd()) {
                Ok(socket) => break socket,
                Err(_) if began.elapsed() < TIMEOUT && child.try_wait().unwrap().is_none() => {
                    sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("the program does not come: {error}"),
            }
        };
        std::fs::remove_file(path).unwrap();
        Process { child, socket }
    }

    pub(crate) fn ask(&self, command: &str) -> Vec<u8> {
        handover::send(self.socket.as_fd(), command.as_bytes(), &[]).unwrap();
        handover::recv_bytes(self.socket.as_fd()).unwrap()
    }

    pub(crate) fn areas(&self) -> Vec<String> {
        String::from_utf8(self.ask("areas")).unwrap().split(' ').map(String::from).collect()
    }

    /// The program's description of a region that it is asked to register; otherwise the error number.
    pub(crate) fn describe(&self, command: &str) -> Result<Described, i32> {
        handover::send(self.socket.as_fd(), command.as_bytes(), &[]).unwrap();
        let (message, mut files) = handover::recv(self.socket.as_fd()).unwrap();
        if let Some(errno) = message.strip_prefix(b"refused ") {
            return Err(String::from_utf8_lossy(errno).parse().unwrap());
        }
        let space = files.remove(0);
        Ok(Described { description: serde_json::from_slice(&message).unwrap(), space, files })
    }

    /// Writes of the program's own threads that were lost, after they have gone round some more.
    pub(crate) fn lost(&self) -> u64 {
        let figures = || -> Vec<u64> {
            let text = String::from_utf8(self.ask("lost")).unwrap();
            text.split(' ').map(|number| number.parse().unwrap()).collect()
        };
        let (before, began) = (figures()[1], Instant::now());
        loop {
            let now = figures();
            if now[1] > before + 20 {
                return now[0];
            }
            assert!(began.elapsed() < TIMEOUT, "the program's threads stand still");
            sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the example lies: beside the folder of the test that runs.
fn built(example: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let found = own.parent().and_then(|deps| deps.parent()).map(|folder| folder.join("examples").join(example));
    let found = found.filter(|path| path.exists());
    found.unwrap_or_else(|| panic!("examples/{example} is missing: `cargo build --examples` of this crate makes it"))
}
