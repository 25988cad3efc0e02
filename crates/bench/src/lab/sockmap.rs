//! The kernel's sockmap: programs in a control group of their own, whose connections over loopback are short-circuited
//! by `bench/sockmap.c`. bpftool loads and attaches it, in a file system for BPF objects of this measurement's own.
use crate::directory::Directory;
use crate::tools::Tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Loaded and attached; taken off when dropped, which is after the programs' end.
pub(super) struct Sockmap {
    /// Where BPF objects have names.
    objects: PathBuf,
    group: PathBuf,
    _directory: Directory,
}

impl Sockmap {
    pub(super) fn new(tools: &Tools) -> Result<Sockmap, String> {
        let directory = Directory::new("sockmap")?;
        let (file, objects) = (directory.path().join("sockmap.o"), directory.path().join("bpf"));
        let group = control_groups()?.join(format!("toe-bench-{}", std::process::id()));
        std::fs::write(&file, tools.module("sockmap")?).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        for made in [&objects, &group] {
            std::fs::create_dir(made).map_err(|e| format!("cannot make {}: {e}", made.display()))?;
        }
        let sockmap = Sockmap { objects, group, _directory: directory };
        run("mount", &["-t", "bpf", "bpf", &super::text(&sockmap.objects)])?;
        sockmap.attach(&file)?;
        Ok(sockmap)
    }

    fn attach(&self, file: &Path) -> Result<(), String> {
        // In a folder there: bpftool mounts one more where the folder above is of another file system.
        let folder = self.objects.join("all");
        let pinned = |name: &str| super::text(&folder.join(name));
        let (all, group) = (super::text(&folder), super::text(&self.group));
        run("bpftool", &["prog", "loadall", &super::text(file), &all, "pinmaps", &all])?;
        run("bpftool", &["cgroup", "attach", &group, "sock_ops", "pinned", &pinned("enter")])?;
        run("bpftool", &["prog", "attach", "pinned", &pinned("redirect"), "msg_verdict", "pinned", &pinned("sockets")])
    }

    /// What stands in front of a program to bring it into the group.
    pub(super) fn joining(&self) -> Vec<String> {
        let join = format!("echo 0 >{}/cgroup.procs; exec \"$@\"", self.group.display());
        ["sh", "-ec", &join, "sh"].map(String::from).to_vec()
    }
}

impl Drop for Sockmap {
    fn drop(&mut self) {
        // The group's program goes with the group, the others with the last of their names.
        let _ = run("umount", &["--lazy", &super::text(&self.objects)]);
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// Where control groups of version 2 are.
fn control_groups() -> Result<PathBuf, String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if after.starts_with("cgroup2 ") { before.split(' ').nth(4) } else { None }
    });
    place.map(PathBuf::from).ok_or_else(|| "there are no control groups of version 2, which sockmap needs".into())
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(words).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = command.output().map_err(|e| format!("cannot run {program}: {e} (tests/setup installs it)"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
