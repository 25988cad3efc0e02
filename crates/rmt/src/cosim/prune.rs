//! Cache of built models: they are kept for the next start, but not all of them for ever. Each change of a program
//! makes another one.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Models that are kept at most.
const MOST: usize = 24;
/// One that nobody has used for so long goes.
const AGE: Duration = Duration::from_secs(60 * 60 * 24 * 60);
/// One that was used so recently stays: whoever found it may be about to start it.
const RECENT: Duration = Duration::from_secs(60 * 60);

/// The model in this folder is used now.
pub(super) fn mark_used(folder: &Path) {
    // Where that fails, it only goes earlier than it should.
    let _ = File::open(folder).and_then(|open| open.set_modified(SystemTime::now()));
}

/// Removes models that were not used for long, and those beyond the most that are kept; never one that runs.
pub(super) fn prune(cache: &Path) {
    // Without the list of processes, none is known to be idle.
    let (Some(running), Ok(list)) = (running(), fs::read_dir(cache)) else { return };
    let cache = fs::canonicalize(cache).unwrap_or_else(|_| cache.to_path_buf());
    let now = SystemTime::now();
    let mut models: Vec<(Duration, PathBuf)> = list
        .flatten()
        .filter(|entry| is_ours(&entry.file_name().to_string_lossy()))
        .filter_map(|entry| {
            let modified = entry.metadata().ok().filter(fs::Metadata::is_dir)?.modified().ok()?;
            Some((now.duration_since(modified).unwrap_or_default(), cache.join(entry.file_name())))
        })
        .collect();
    models.sort();
    for (rank, (age, folder)) in models.iter().enumerate() {
        let goes = *age > AGE || rank >= MOST && *age > RECENT;
        if goes && !running.iter().any(|exe| exe.starts_with(folder)) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A folder of a model, or one in which a build was interrupted.
fn is_ours(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) || name.starts_with("build-")
}

/// Executables of all processes that can be seen: this user's, at least. `None` where there is no /proc.
fn running() -> Option<Vec<PathBuf>> {
    let list = fs::read_dir("/proc").ok()?;
    let all: Vec<PathBuf> = list.flatten().filter_map(|entry| fs::read_link(entry.path().join("exe")).ok()).collect();
    // This process is among them, or /proc shows nothing.
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A folder of one test's own, which goes with it.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("prune-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn model(&self, name: &str, age: Duration) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("opentoe-rtl"), "").unwrap();
            File::open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
            path
        }
    }

    #[test]
    fn old_ones_and_those_beyond_the_most_go() {
        let folder = Folder::new("old");
        let day = Duration::from_secs(60 * 60 * 24);
        let models: Vec<PathBuf> =
            (0..30).map(|i| folder.model(&format!("{i:016x}"), day * i + Duration::from_secs(60))).collect();
        let [old, broken] = ["00000000000000ff", "build-1-ThreadId(2)"].map(|name| folder.model(name, day * 61));
        let foreign = folder.model("notes", day * 400);
        prune(&folder.0);
        let kept = models.iter().filter(|path| path.exists()).count();
        assert_eq!((kept, models[23].exists(), models[24].exists()), (MOST, true, false));
        assert!(!old.exists() && !broken.exists() && foreign.exists());
    }

    #[test]
    fn recent_ones_stay_and_so_does_one_that_is_used_again() {
        let folder = Folder::new("recent");
        for i in 0..30 {
            folder.model(&format!("{i:016x}"), Duration::from_secs(i));
        }
        let again = folder.model("00000000000000ff", AGE * 2);
        mark_used(&again);
        prune(&folder.0);
        assert_eq!((fs::read_dir(&folder.0).unwrap().count(), again.exists()), (31, true));
    }

    #[test]
    fn one_that_runs_stays() {
        let folder = Folder::new("runs");
        let model = folder.model("00000000000000aa", AGE * 2);
        fs::copy("/bin/cat", model.join("opentoe-rtl")).unwrap();
        File::open(&model).unwrap().set_modified(SystemTime::now() - AGE * 2).unwrap();
        // It ends when its input does.
        let mut child = Command::new(model.join("opentoe-rtl")).stdin(Stdio::piped()).spawn().unwrap();
        prune(&folder.0);
        let stayed = model.exists();
        drop(child.stdin.take());
        child.wait().unwrap();
        prune(&folder.0);
        assert!(stayed && !model.exists());
    }
}
