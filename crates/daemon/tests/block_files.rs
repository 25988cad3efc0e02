//! Filesystems on volumes over Solar, by nbdfuse: the commands of docs/SOLAR.md as they are there, and daemons that are
//! killed while files are written. `BLOCK_KILLS=100 cargo test --profile bench -p daemon --test block_files` kills each
//! daemon a hundred times.
mod common;

use common::application::until;
use common::pair::{Pair, Pauses, kills};
use common::store::{MIB, Store, bytes, run};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Programs may be missing, or the right to mount.
fn can_mount() -> bool {
    let there = |program: &str| Command::new(program).arg("-V").output().is_ok();
    let all = ["nbdfuse", "mkfs.ext4", "fuse2fs", "fusermount3"].iter().all(|program| there(program));
    let may = all && File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !may {
        println!("SKIPPED: nbdfuse, mkfs.ext4, fuse2fs or fusermount3 is missing, or /dev/fuse may not be used");
    }
    may
}

/// The checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of the first two blocks of commands of a section of docs/SOLAR.md.
fn commands(section: &str) -> [String; 2] {
    let page = fs::read_to_string(root().join("docs/SOLAR.md")).unwrap();
    let text = page.split_once(section).unwrap().1;
    let blocks: Vec<&str> = text.split("```\n").skip(1).step_by(2).take(2).collect();
    [blocks[0].into(), blocks[1].into()]
}

#[test]
fn the_commands_of_the_page_lead_from_nothing_to_files() {
    if !can_mount() {
        return;
    }
    let store = Store::new();
    let place = store.path("toe");
    let here = |text: &str| text.replace("/tmp/toe-volume", &place.display().to_string());
    let config = fs::read_to_string(root().join("config/volume.toml")).unwrap();
    fs::write(store.path("volume.toml"), here(&config)).unwrap();
    let [begin, end] = commands("## From nothing to files");
    assert_eq!(begin.lines().count(), 5, "five commands: {begin}");
    let begin = here(&begin).replace("config/volume.toml", &store.path("volume.toml").display().to_string());
    let (files, image) = (place.join("files"), place.join("v.img"));
    let used = format!("cp README.md {0}/copy && cmp README.md {0}/copy && ls {0}", files.display());
    let toed = Path::new(env!("CARGO_BIN_EXE_toed")).parent().unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", toed.display(), std::env::var("PATH").unwrap());
    let script = format!("{begin}\n{used}; used=$?\n{}\nwait; exit $used", here(&end));
    let printed = run(Command::new("bash").args(["-c", &script]).env("PATH", path).current_dir(root()));
    assert!(printed.contains("copy"), "{printed}");
    // What was written is in the volume, once all has ended.
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(&image));
    let copied = run(Command::new("debugfs").args(["-R", "cat copy"]).arg(&image));
    assert_eq!(copied, fs::read_to_string(root().join("README.md")).unwrap());
}

/// A volume that nbdfuse shows as a file, and a filesystem on it, mounted by the kernel.
struct Mounted {
    fuse: Child,
    disk: PathBuf,
    files: PathBuf,
}

impl Mounted {
    /// Mounts the volume of a pair, with a new filesystem where it is `fresh`.
    fn mount(store: &Store, fresh: bool) -> Mounted {
        let (disk, files) = (store.path("disk"), store.path("files"));
        fs::create_dir_all(&disk).unwrap();
        fs::create_dir_all(&files).unwrap();
        let mut command = Command::new("nbdfuse");
        command.arg(&disk).arg("--unix").arg(store.path("v.sock")).stdin(Stdio::null());
        let mut mounted = Mounted { fuse: command.spawn().unwrap(), disk, files };
        let image = mounted.disk.join("nbd");
        until("nbdfuse to show the volume", || {
            assert!(mounted.fuse.try_wait().unwrap().is_none(), "nbdfuse has ended");
            image.exists()
        });
        if fresh {
            run(Command::new("mkfs.ext4").arg("-q").arg(&image));
        }
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mounted.files));
        mounted
    }

    /// Takes all away, also where the volume does not answer any more.
    fn unmount(mut self) {
        let quietly = |command: &mut Command| {
            let _ = command.stderr(Stdio::null()).status();
        };
        until("the filesystem to be given up", || {
            quietly(Command::new("umount").arg(&self.files));
            !is_mounted(&self.files)
        });
        until("the volume's file to be given up", || {
            quietly(Command::new("fusermount3").arg("-u").arg(&self.disk));
            !is_mounted(&self.disk)
        });
        self.fuse.wait().unwrap();
    }
}

impl Drop for Mounted {
    /// After a failure: nothing stays mounted.
    fn drop(&mut self) {
        for place in [&self.files, &self.disk] {
            if is_mounted(place) {
                let _ = Command::new("umount").arg("-l").arg(place).status();
            }
        }
        let _ = self.fuse.kill();
        let _ = self.fuse.wait();
    }
}

fn is_mounted(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == place.to_str())
}

#[test]
fn a_filesystem_does_not_notice_that_the_server_is_killed() {
    let store = Store::new();
    let Some(mut pair) = can_mount().then(|| Pair::start(&store, 64 * MIB)).flatten() else { return };
    let mounted = Mounted::mount(&store, true);
    let (mut killed, mut pauses) = (0, Pauses(4));
    while killed < kills() {
        let mut fio = Command::new("fio");
        fio.arg("--directory").arg(&mounted.files).args(["--name=kills", "--rw=randwrite", "--bs=4k", "--size=2m"]);
        fio.args(["--numjobs=2", "--fsync=32", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--thread"]);
        fio.args(["--verify_state_save=0", "--invalidate=1"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let (output, times) = pair.kill_server_under(&mut fio, &mut pauses);
        killed += times;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    mounted.unmount();
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(store.path("v")));
}

/// A file with bytes of its own, and its name, are durable when this returns.
fn keep(directory: &Path, number: u64) -> io::Result<()> {
    let mut file = File::create(directory.join(number.to_string()))?;
    file.write_all(&bytes(number, 20_000))?;
    file.sync_all()?;
    File::open(directory)?.sync_all()
}

#[test]
fn files_that_were_synced_outlive_a_client_that_is_killed() {
    let store = Store::new();
    let Some(mut pair) = can_mount().then(|| Pair::start(&store, 64 * MIB)).flatten() else { return };
    let (mut mounted, mut pauses) = (Mounted::mount(&store, true), Pauses(5));
    let mut last = 0;
    for _ in 0..kills() {
        let (written, directory) = (AtomicU64::new(last), mounted.files.clone());
        let first = last + 1;
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                while keep(&directory, written.load(Ordering::SeqCst) + 1).is_ok() {
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
            until("files to be written", || written.load(Ordering::SeqCst) >= first + 4);
            thread::sleep(Duration::from_micros(pauses.below(50_000)));
            pair.client.kill_and_restart();
            writing.join().unwrap();
        });
        last = written.into_inner();
        mounted.unmount();
        mounted = Mounted::mount(&store, false);
        for number in first..=last {
            let found = fs::read(mounted.files.join(number.to_string()));
            let found = found.unwrap_or_else(|error| panic!("file {number} of {first} to {last}: {error}"));
            assert!(found == bytes(number, 20_000), "file {number} has other bytes");
            fs::remove_file(mounted.files.join(number.to_string())).unwrap();
        }
        let _ = fs::remove_file(mounted.files.join((last + 1).to_string()));
    }
    mounted.unmount();
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(store.path("v")));
}
