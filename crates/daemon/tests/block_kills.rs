//! Storage over Solar when something ends: the server's daemon, the client's, a path, the disk's room, a bit on the
//! disk. What is read is what was written, or an error. Server and client are daemons of their own, joined by the
//! kernel.
//!
//! `BLOCK_KILLS=100 cargo test --profile bench -p daemon --test block_kills` kills each daemon a hundred times.
mod common;

use common::application::until;
use common::judge::Judge;
use common::pair::{Pair, Pauses, kills};
use common::store::{BLOCK, EIO, ENOSPC, MIB, Store, WIDE, address, bytes, hosts, run};
use common::{Toed, toed};
use daemon::protocol::Question;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Blocks of a volume that a judge uses: few, so that most are written again and again.
const BLOCKS: usize = 512;

#[test]
fn a_server_that_is_killed_and_started_again_is_a_pause() {
    let store = Store::new();
    let Some(mut pair) = Pair::start(&store, (BLOCKS * BLOCK) as u64) else { return };
    let (mut judge, mut nbd) = (Judge::new(BLOCKS), store.open("v.sock"));
    let (answers, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let working = scope.spawn(|| judge.work(&mut nbd, &answers, || enough.load(Ordering::SeqCst)));
        let mut pauses = Pauses(1);
        for _ in 0..kills() {
            pauses.among(&answers);
            pair.server.kill_and_restart();
        }
        pauses.among(&answers);
        enough.store(true, Ordering::SeqCst);
        working.join().unwrap().unwrap();
    });
    assert_eq!(judge.check(&mut nbd), 0);
}

#[test]
fn a_client_that_is_killed_leaves_what_was_answered() {
    let store = Store::new();
    let Some(mut pair) = Pair::start(&store, (BLOCKS * BLOCK) as u64) else { return };
    let mut judge = Judge::new(BLOCKS);
    let mut pauses = Pauses(2);
    for _ in 0..kills() {
        let answers = AtomicU64::new(0);
        let mut nbd = store.open("v.sock");
        thread::scope(|scope| {
            let working = scope.spawn(|| judge.work(&mut nbd, &answers, || false));
            pauses.among(&answers);
            pair.client.kill_and_restart();
            working.join().unwrap().unwrap_err();
        });
        assert_eq!(judge.check(&mut store.open("v.sock")), 0);
    }
}

/// Has the kernel between the daemons follow a rule; false where there is no nft.
fn nft(pair: &Pair, rule: &str) -> bool {
    let mut command = Command::new("nft");
    command.arg(rule);
    pair.netns.start_inside(&mut command).unwrap();
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn a_path_that_is_cut_is_left_without_an_error_and_found_again() {
    let store = Store::new();
    let Some(pair) = Pair::start(&store, (BLOCKS * BLOCK) as u64) else { return };
    if !nft(&pair, "add table ip cut") {
        return println!("SKIPPED: there is no nft");
    }
    assert!(nft(&pair, "add chain ip cut forward { type filter hook forward priority 0; }"));
    let (mut judge, mut nbd) = (Judge::new(BLOCKS), store.open("v.sock"));
    let (answers, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let first = || pair.client.ask(&Question::Ls)["blocks"][0]["paths"][0].clone();
    assert_eq!(first()["port"], 4800);
    let mut pauses = Pauses(6);
    thread::scope(|scope| {
        let working = scope.spawn(|| judge.work(&mut nbd, &answers, || enough.load(Ordering::SeqCst)));
        pauses.among(&answers);
        assert!(nft(&pair, "add rule ip cut forward udp sport 4800 drop"));
        until("the path to fail", || first()["state"] == "failed");
        pauses.among(&answers);
        // What was acknowledged late may have brought it back for a moment.
        let storage = || pair.client.ask(&Question::Drops)["storage"].to_string();
        until("opentoe why to report it", || storage().contains("UDP port 4800 has failed"));
        assert!(nft(&pair, "delete table ip cut"));
        until("the path to be found again", || first()["state"] == "up");
        pauses.among(&answers);
        enough.store(true, Ordering::SeqCst);
        working.join().unwrap().unwrap();
    });
    assert_eq!(judge.check(&mut nbd), 0);
}

#[test]
fn fio_verifies_what_it_wrote_while_the_server_is_killed() {
    let store = Store::new();
    let Some(mut pair) = Pair::start(&store, 64 * MIB) else { return };
    let uri = format!("--uri={}", address(&store.path("v.sock")));
    let (mut killed, mut rounds, mut pauses) = (0, 0, Pauses(3));
    while killed < kills() {
        rounds += 1;
        let mut fio = Command::new("fio");
        fio.args(["--name=kills", "--ioengine=nbd", &uri, "--rw=randwrite", "--bs=4k", "--iodepth=32", "--size=16m"]);
        fio.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0", "--thread"]);
        fio.arg(format!("--randseed={rounds}")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (output, times) = pair.kill_server_under(&mut fio, &mut pauses);
        killed += times;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && printed.contains("err= 0"), "{printed}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let store = Store::new();
    let small = store.path("small");
    fs::create_dir(&small).unwrap();
    // A disk of 1 MiB, in a namespace of mounts: a volume of 2 MiB does not fit.
    let mounted = format!("mount -t tmpfs -o size=1m tmpfs {} && exec \"$@\"", small.display());
    if !Command::new("unshare").args(["-m", "sh", "-c", &mounted, "sh", "true"]).status().is_ok_and(|s| s.success()) {
        return println!("SKIPPED: a mount needs privileges");
    }
    let size = (BLOCKS * BLOCK) as u64;
    let sections = store.volume("small/v", "s", &format!("size = {size}")) + &store.block("small/v", "c", "v.sock", "");
    let _toed = Toed::start_by(&(hosts(WIDE) + &sections), |directory| {
        let plain = toed(directory);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &mounted, "sh"]).arg(plain.get_program()).args(plain.get_args());
        command.stdin(Stdio::null());
        command
    });
    let (mut judge, mut nbd) = (Judge::new(BLOCKS), store.open("v.sock"));
    judge.allowed = &[ENOSPC];
    let answers = AtomicU64::new(0);
    judge.work(&mut nbd, &answers, || answers.load(Ordering::SeqCst) > 4 * BLOCKS as u64).unwrap();
    assert!(judge.refused > 0, "all blocks found room");
    judge.allowed = &[];
    assert_eq!(judge.check(&mut nbd), 0);
}

#[test]
fn flipped_bits_on_the_disk_are_errors_and_never_other_bytes() {
    let store = Store::new();
    let size = (BLOCKS * BLOCK) as u64;
    // What is read comes from the disk: a block in the server's memory is right, whatever becomes of that.
    let volume = store.volume("v", "s", &format!("size = {size}\ncache_bytes = 0"));
    let mut toed = Toed::start(&(hosts(WIDE) + &volume + &store.block("v", "c", "v.sock", "")));
    let (mut judge, mut nbd) = (Judge::new(BLOCKS), store.open("v.sock"));
    let answers = AtomicU64::new(0);
    judge.work(&mut nbd, &answers, || answers.load(Ordering::SeqCst) > 4 * BLOCKS as u64).unwrap();
    judge.allowed = &[EIO];
    // Bits of blocks, and of their checksums, which begin at 4096 with 8 bytes for each block.
    let mut flip = |name: &str, from: u64, len: u64| {
        let file = File::options().read(true).write(true).open(store.path(name)).unwrap();
        for _ in 0..16 {
            let (at, mut byte) = (from + judge.random(len), [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << judge.random(8)], at).unwrap();
        }
    };
    flip("v", 0, size);
    flip("v.crc", 4096, BLOCKS as u64 * 8);
    let lost = judge.check(&mut nbd);
    assert!((1..=32).contains(&lost), "{lost} blocks are lost");
    let copied = Command::new("nbdcopy").arg(address(&store.path("v.sock"))).arg(store.path("out")).output().unwrap();
    assert!(!copied.status.success(), "a program read damaged blocks");
    toed.kill_and_restart();
    assert_eq!(judge.check(&mut store.open("v.sock")), lost, "another daemon finds the same");
}

#[test]
fn a_damaged_file_of_checksums_is_not_made_anew() {
    let store = Store::new();
    fs::write(store.path("v"), bytes(1, 8192)).unwrap();
    let text = hosts(WIDE) + &store.volume("v", "s", "");
    drop(Toed::start(&text));
    let file = File::options().write(true).open(store.path("v.crc")).unwrap();
    file.write_all_at(&[b't' ^ 4], 0).unwrap();
    let (status, output) = common::refused(&text);
    assert!(!status.success() && output.contains("v.crc is damaged"), "{output}");
    let _ = run(Command::new("rm").arg(store.path("v.crc")));
    drop(Toed::start(&text));
}
