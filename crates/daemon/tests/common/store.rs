//! Volumes of tests: a directory for their files and sockets, and the sections that name them.
use crate::common::nbd::Nbd;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a block of a volume.
pub(crate) const BLOCK: usize = 4096;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const EIO: u32 = 5;
pub(crate) const ENOSPC: u32 = 28;

/// A directory for volumes and sockets.
pub(crate) struct Store(PathBuf);

impl Store {
    pub(crate) fn new() -> Store {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("toe-block-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Store(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A volume of a host.
    pub(crate) fn volume(&self, name: &str, host: &str, more: &str) -> String {
        let file = self.path(name);
        format!("[[volume]]\nname = \"{name}\"\nhost = \"{host}\"\nfile = \"{}\"\n{more}\n", file.display())
    }

    /// A host's use of a volume of the host at 10.0.0.1.
    pub(crate) fn block(&self, volume: &str, host: &str, socket: &str, more: &str) -> String {
        let socket = self.path(socket);
        let socket = socket.display();
        format!(
            "[[block]]\nvolume = \"{volume}\"\nhost = \"{host}\"\nserver = \"10.0.0.1\"\nsocket = \"{socket}\"\n{more}\n"
        )
    }

    pub(crate) fn open(&self, socket: &str) -> Nbd {
        Nbd::open(&self.path(socket)).unwrap()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Three hosts on a fabric: `s` at 10.0.0.1, `c` at 10.0.0.2, `d` at 10.0.0.3.
pub(crate) fn hosts(fabric: &str) -> String {
    let host = |(name, last)| format!("[[host]]\nname = \"{name}\"\naddress = \"10.0.0.{last}\"\n");
    let hosts: String = [("s", 1), ("c", 2), ("d", 3)].map(host).concat();
    format!("log = \"warn\"\n[[fabric]]\nname = \"f\"\n{fabric}\n{hosts}")
}

/// A fabric whose packets carry blocks.
pub(crate) const WIDE: &str = "mtu = 9000";

/// Bytes that differ everywhere, for a seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let word = |at: u64| (at ^ seed << 40).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (0..len.div_ceil(8) as u64).flat_map(|at| (word(at) ^ word(at) >> 31).to_le_bytes()).take(len).collect()
}

/// Runs a program, which must succeed: what it printed.
pub(crate) fn run(program: &mut Command) -> String {
    let output = program.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program:?}: {errors}{printed}");
    printed
}

/// Of an NBD socket, as programs of libnbd take it.
pub(crate) fn address(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}
