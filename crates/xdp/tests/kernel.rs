//! The kernel beside us: its verifier lets in what we let in, and BPF_PROG_TEST_RUN gives the same verdicts and bytes.
//! Needs root and bpftool; skipped with a line where there is neither. bpffs is mounted in a private mount namespace.
mod common;
use common::*;
use engine::{ModuleSource, Verdict};
use std::path::Path;
use std::process::Command;
use xdp::{KernelVerdict, Object};

/// Runs a script with a bpffs of its own at /sys/fs/bpf; none where that is not possible here.
fn with_bpffs(script: &str) -> Option<String> {
    let mounted = format!("mount -t bpf bpf /sys/fs/bpf || exit 77; bpftool version >/dev/null || exit 77; {script}");
    let output = Command::new("unshare").args(["-m", "sh", "-ec", &mounted]).output().ok()?;
    match output.status.code() {
        Some(0) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(1 | 77 | 126 | 127) if !privileged() => None,
        _ => panic!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
    }
}

/// `mount -t bpf` works here.
fn privileged() -> bool {
    let tried =
        Command::new("unshare").args(["-m", "sh", "-c", "mount -t bpf bpf /sys/fs/bpf && bpftool version"]).output();
    tried.is_ok_and(|output| output.status.success())
}

fn skipped() {
    println!("skipped: the kernel may not be asked here (no root, no bpffs or no bpftool)");
}

const ALL: [&str; 7] = ["null", "firewall", "vlan_strip", "vlan_push", "classify", "syn_limit", "splice"];

#[test]
fn the_kernels_verifier_lets_the_shipped_modules_in() {
    for name in ALL {
        let file = temporary("module.o");
        std::fs::write(&file, shipped(name)).unwrap();
        let loaded = with_bpffs(&format!("bpftool prog load {} /sys/fs/bpf/it", file.display()));
        let _ = std::fs::remove_file(&file);
        if loaded.is_none() {
            return skipped();
        }
    }
}

/// `opentoe xdp load` asks in the same way, and the shipped modules are let in. What only OpenTOE lets in (an access
/// that is tested while the program runs) is refused with the verifier's reason.
#[test]
fn the_kernel_is_asked_by_ourselves_too() {
    let asked = |bytes: &[u8]| KernelVerdict::ask(&Object::parse(bytes).unwrap());
    for name in ALL {
        match asked(&shipped(name)) {
            KernelVerdict::NotAsked(_) if !privileged() => return skipped(),
            verdict => assert_eq!(verdict, KernelVerdict::Accepted, "{name}"),
        }
    }
    let bold = "SEC(\"xdp\") int bold(struct xdp_md *c) { __u8 *p = (void *)(long)c->data; return p[40] & 1 ? XDP_PASS : XDP_DROP; }";
    let object = compile(bold);
    assert!(load(&object).is_ok(), "checked while it runs");
    match asked(&object) {
        KernelVerdict::Refused(why) => {
            assert!(why.contains("packet") && why.contains("instruction"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

/// The kernel's verdict and bytes for each frame of a folder.
fn in_the_kernel(object: &Path, setup: &str, folder: &Path, frames: usize) -> Option<Vec<(u32, Vec<u8>)>> {
    let run = format!(
        "bpftool prog load {} /sys/fs/bpf/it pinmaps /sys/fs/bpf/maps; {setup}\n\
         i=0; while [ $i -lt {frames} ]; do bpftool prog run pinned /sys/fs/bpf/it data_in {f}/$i data_out {f}/$i.out \
         repeat 1 | sed -n 's/^Return value: \\([0-9]*\\).*/\\1/p'; i=$((i+1)); done",
        object.display(),
        f = folder.display()
    );
    let verdicts = with_bpffs(&run)?;
    let out = |index: usize| std::fs::read(folder.join(format!("{index}.out"))).unwrap_or_default();
    Some(verdicts.lines().enumerate().map(|(index, line)| (line.parse().unwrap(), out(index))).collect())
}

fn number(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Aborted => 0,
        Verdict::Drop => 1,
        Verdict::Pass => 2,
        Verdict::Transmit => 3,
        Verdict::Redirect => 4,
    }
}

/// Ours and the kernel's, on frames at random; `setup` fills the kernel's maps, `ours` the same of ours.
fn compare(name: &str, setup: &str, ours: &[(&str, &str, &str)]) {
    const FRAMES: usize = 60;
    let folder = temporary("frames");
    std::fs::create_dir(&folder).unwrap();
    let object = folder.join("module.o");
    // The kernel runs no program of the way out on a test's frames: the same source, as one of the way in.
    let source = std::fs::read_to_string(root().join(format!("xdp/{name}.c"))).unwrap();
    let changed = folder.join("module.c");
    std::fs::write(&changed, source.replace("xdp.frags/devmap", "xdp.frags")).unwrap();
    let bytes = compile_file(&changed, &[&format!("-I{}", root().join("xdp").display())]);
    std::fs::write(&object, &bytes).unwrap();
    // The kernel's test run takes no frame shorter than an Ethernet header.
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(|seed| noisy(seed as u32)).collect();
    for (index, frame) in frames.iter().enumerate() {
        std::fs::write(folder.join(index.to_string()), frame).unwrap();
    }
    let theirs = in_the_kernel(&object, setup, &folder, FRAMES);
    let _ = std::fs::remove_dir_all(&folder);
    let Some(theirs) = theirs else { return skipped() };
    assert_eq!(theirs.len(), FRAMES);
    let program = load(&bytes).unwrap();
    ours.iter().for_each(|(map, key, value)| program.set(map, key, value).unwrap());
    let mut replica = program.replica(0);
    for (index, bytes) in frames.iter().enumerate() {
        let mut one = frame(bytes);
        let verdict = number(run(&mut *replica, &mut one));
        // The kernel gives metadata and frame as one.
        let count = one.metadata.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let mut out: Vec<u8> = one.metadata[..count].iter().flat_map(|word| word.to_le_bytes()).collect();
        out.extend(one.bytes());
        assert_eq!((verdict, &out), (theirs[index].0, &theirs[index].1), "{name}, frame {index}: {bytes:x?}");
    }
}

#[test]
fn vlan_strip_does_as_in_the_kernel() {
    compare("vlan_strip", "", &[]);
}

#[test]
fn vlan_push_does_as_in_the_kernel() {
    let setup = "bpftool map update pinned /sys/fs/bpf/maps/config key 0 0 0 0 value 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0;";
    compare("vlan_push", setup, &[("config", "0", r#"{"tag": 5}"#)]);
}

#[test]
fn firewall_does_as_in_the_kernel() {
    let value = "1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
    let setup = format!("bpftool map update pinned /sys/fs/bpf/maps/rules key 31 0 0 0 10 0 0 2 value {value};");
    compare("firewall", &setup, &[("rules", "10.0.0.2/31", r#"{"action": 1}"#)]);
}

#[test]
fn syn_limit_does_as_in_the_kernel() {
    // No burst at all: with one, it would matter how long bpftool takes.
    let value = "1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
    let setup = format!("bpftool map update pinned /sys/fs/bpf/maps/limits key 0 0 0 0 value {value};");
    compare("syn_limit", &setup, &[("limits", "0", r#"{"per_second": 1, "burst": 0}"#)]);
}
