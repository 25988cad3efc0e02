//! Leak check: a run may leave nothing behind.
use crate::network::{PREFIX, namespaces};
use crate::process::MARK;
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// How long something may be left behind.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The state of the machine before a group of cases.
pub struct Before {
    shared_memory: BTreeSet<String>,
    devices: BTreeSet<String>,
}

impl Before {
    /// The state before a run.
    pub fn snapshot() -> Before {
        Before { shared_memory: entries("/dev/shm"), devices: entries("/sys/class/net") }
    }

    /// Compares; everything that is new is an error. Helpers of a daemon end when they see that it has: so there is a
    /// while.
    pub fn compare(&self) -> Result<String, String> {
        let begin = Instant::now();
        loop {
            match self.compare_now() {
                Err(_) if begin.elapsed() < TIMEOUT => std::thread::sleep(TIMEOUT / 100),
                result => return result,
            }
        }
    }

    fn compare_now(&self) -> Result<String, String> {
        let mut left = Vec::new();
        let own = format!("{PREFIX}{}-", std::process::id());
        left.extend(
            namespaces().into_iter().filter(|name| name.starts_with(&own)).map(|name| "namespace ".to_string() + &name),
        );
        left.extend(entries("/dev/shm").difference(&self.shared_memory).map(|name| format!("/dev/shm/{name}")));
        left.extend(entries("/sys/class/net").difference(&self.devices).map(|name| format!("device {name}")));
        left.extend(processes());
        match left.is_empty() {
            true => Ok("no namespace, device, shared memory or process is left".into()),
            false => Err(format!("left behind: {}", left.join(", "))),
        }
    }
}

/// Processes that this driver's programs started and that are still there.
fn processes() -> Vec<String> {
    let mark = format!("{MARK}={}", std::process::id());
    let own = std::process::id().to_string();
    let marked = |id: &String| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    };
    let running = entries("/proc").into_iter().filter(|id| id.bytes().all(|c| c.is_ascii_digit()) && *id != own);
    running.filter(marked).map(|id| format!("process {id} {}", command_of(&id))).collect()
}

fn command_of(id: &str) -> String {
    fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().into()
}

fn entries(dir: &str) -> BTreeSet<String> {
    let list = fs::read_dir(dir).into_iter().flatten().flatten();
    list.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
