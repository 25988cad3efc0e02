//! A directory of one run, gone when it ends.
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The directory. Servers that give root up pass through it.
pub struct Directory(PathBuf);

impl Directory {
    /// A new one in the system's place for temporary files; `what` is part of its name.
    pub fn new(what: &str) -> Result<Directory, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("toe-{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(0o711).create(&path);
        made.map(|()| Directory(path.clone())).map_err(|e| format!("cannot make {}: {e}", path.display()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
