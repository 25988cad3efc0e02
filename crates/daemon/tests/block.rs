//! Block storage over Solar of a real `toed`: a volume in a file at one host, its NBD socket at another, and programs
//! that are not changed. What is read is what was written, or an error.
mod common;

use common::application::until;
use common::nbd::{Command, Nbd, request};
use common::store::{BLOCK, EIO, ENOSPC, MIB, Store, WIDE, address, bytes, hosts, run};
use common::{Toed, refused};
use daemon::config::parse;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command as Program;

const EPERM: u32 = 1;
const EINVAL: u32 = 22;

#[test]
fn nbdcopy_writes_a_volume_and_reads_it_back_through_loss() {
    for fabric in [WIDE, "mtu = 9000\nloss = 0.02\nreorder = 0.02\nduplicate = 0.02\ncorrupt = 0.01"] {
        let store = Store::new();
        let size = 16 * MIB;
        let sections = store.volume("v", "s", &format!("size = {size}")) + &store.block("v", "c", "v.sock", "");
        let mut toed = Toed::start(&(hosts(fabric) + &sections));
        let (content, copy, socket) = (store.path("in"), store.path("out"), store.path("v.sock"));
        fs::write(&content, bytes(1, size as usize)).unwrap();
        run(Program::new("nbdcopy").arg("--flush").arg(&content).arg(address(&socket)));
        run(Program::new("nbdcopy").arg(address(&socket)).arg(&copy));
        let expected = fs::read(&content).unwrap();
        assert!(expected == fs::read(&copy).unwrap(), "other bytes came back");
        assert!(expected == fs::read(store.path("v")).unwrap(), "the file has other bytes");
        assert!(toed.end().success());
        assert!(!socket.exists(), "the socket stays behind");
    }
}

#[test]
fn a_narrow_network_is_refused_in_one_sentence() {
    let store = Store::new();
    let sentence = "a packet carries a block of 4096 bytes, so the MTU must be at least 4180, not";
    for (section, section_name) in
        [(store.volume("v", "s", "size = 4096"), "volume v"), (store.block("v", "c", "x", ""), "block v")]
    {
        let text = hosts("mtu = 4179") + &section;
        assert_eq!(parse(&text, "t").unwrap_err(), format!("t: {section_name}: {sentence} 4179"));
        let (status, output) = refused(&text);
        assert!(!status.success() && output.contains(sentence), "{output}");
        assert!(parse(&(hosts("mtu = 4180") + &section), "t").is_ok());
        let tap = "port = { kind = \"tap\" }\n[[fabric]]";
        let text = hosts(WIDE).replacen("address = \"10.0.0.1\"", &format!("address = \"10.0.0.1\"\n{tap}"), 1);
        let text = text.replace("[[fabric]]\n[[host]]", "[[host]]") + &section;
        assert_eq!(parse(&text, "t").is_err(), section_name == "volume v", "{text}");
    }
    assert!(!store.path("v").exists(), "a file was made all the same");
}

#[test]
fn requests_of_any_size_and_place() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 1048576") + &store.block("v", "c", "v.sock", "");
    let _toed = Toed::start(&(hosts(WIDE) + &sections));
    let mut nbd = store.open("v.sock");
    assert_eq!(nbd.bytes, MIB);
    let mut expected = vec![0; MIB as usize];
    for (seed, (at, len)) in
        [(0, 4096), (1, 1), (4095, 2), (5000, 9000), (8192, 8192), (1_048_575, 1)].iter().enumerate()
    {
        let data = bytes(seed as u64 + 9, *len);
        nbd.write(*at as u64, &data).unwrap();
        expected[*at..at + len].copy_from_slice(&data);
    }
    nbd.command(Command::Flush).unwrap();
    assert!(nbd.read(0, MIB as u32).unwrap() == expected);
    assert!(nbd.read(4090, 20).unwrap() == expected[4090..4110]);
    assert_eq!(nbd.read(MIB, 1), Err(EINVAL));
    assert_eq!(nbd.read(u64::MAX, 4096), Err(EINVAL));
    assert_eq!(nbd.write(MIB - 1, &[1, 2]), Err(ENOSPC));
    assert_eq!(nbd.command(Command::Trim), Err(EINVAL));
    assert!(fs::read(store.path("v")).unwrap() == expected);
}

#[test]
fn many_requests_that_come_at_once_are_answered_each() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 1048576") + &store.block("v", "c", "v.sock", "");
    let _toed = Toed::start(&(hosts(WIDE) + &sections));
    let mut nbd = store.open("v.sock");
    // All in one piece, in any mixture of sizes: writes of blocks and of less, commands that are refused, reads.
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    let mut ask = |command, offset: u64, data: &[u8], len: u32, error: u32| {
        requests.extend(request(command, expected.len() as u64, offset, len));
        requests.extend(data);
        expected.push((error, if command == Command::Read && error == 0 { len as usize } else { 0 }));
    };
    let content = bytes(7, 300_000);
    for round in 0..3 {
        for at in (0..64).map(|block| block * BLOCK) {
            ask(Command::Write, (at + round * 64 * BLOCK) as u64, &content[at..at + BLOCK], BLOCK as u32, 0);
        }
        ask(Command::Read, 900_000, &[], 70_000, 0);
        ask(Command::Write, 800_000 + round as u64, &content[..5], 5, 0);
        ask(Command::Trim, 0, &[], 4096, EINVAL);
        ask(Command::Write, 500_000, &content, 300_000, 0);
        ask(Command::Read, MIB, &[], 1, EINVAL);
        ask(Command::Write, MIB, &content[..4096], 4096, ENOSPC);
        ask(Command::Flush, 0, &[], 0, 0);
    }
    let count = expected.len();
    std::thread::scope(|scope| {
        let mut sender = nbd.sender();
        scope.spawn(move || sender.write_all(&requests).unwrap());
        for _ in 0..count {
            let (handle, error) = nbd.answer().unwrap();
            let (wanted, len) = std::mem::replace(&mut expected[handle as usize], (u32::MAX, 0));
            assert_eq!(error, wanted, "of request {handle}");
            nbd.skip(len);
        }
    });
    for round in 0..3 {
        let found = nbd.read(round * 64 * BLOCK as u64, 64 * BLOCK as u32).unwrap();
        let under = 500_000usize.saturating_sub(round as usize * 64 * BLOCK).min(64 * BLOCK);
        assert!(found[..under] == content[..under], "round {round}");
    }
    assert!(nbd.read(800_000 + 2, 5).unwrap() == content[..5]);
}

#[test]
fn a_client_that_takes_no_answers_in_is_not_served_without_end() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 1048576") + &store.block("v", "c", "v.sock", "");
    let toed = Toed::start(&(hosts(WIDE) + &sections));
    let before = peak(&toed);
    let mut silent = store.open("v.sock");
    silent.ask_often(512, MIB as u32).unwrap();
    toed.comes_to_rest();
    let used = peak(&toed) - before;
    assert!(used < 160 * MIB, "{used} bytes for answers that no client reads");
    assert!(store.open("v.sock").read(0, BLOCK as u32).is_ok(), "others are served");
    // It takes them in after all.
    for _ in 0..512 {
        let (_, error) = silent.answer().unwrap();
        assert_eq!(error, 0);
        silent.skip(MIB as usize);
    }
}

/// The most memory that a daemon had, bytes.
fn peak(toed: &Toed) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", toed.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_changed_byte_on_disk_is_an_error_until_it_is_written() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 65536\ncache_bytes = 0") + &store.block("v", "c", "v.sock", "");
    let _toed = Toed::start(&(hosts(WIDE) + &sections));
    let mut nbd = store.open("v.sock");
    let content = bytes(3, 65536);
    nbd.write(0, &content).unwrap();
    let file = File::options().write(true).open(store.path("v")).unwrap();
    file.write_all_at(&[content[5 * BLOCK + 9] ^ 4], 5 * BLOCK as u64 + 9).unwrap();
    assert_eq!(nbd.read(5 * BLOCK as u64, BLOCK as u32), Err(EIO));
    assert_eq!(nbd.read(0, 65536), Err(EIO));
    // A part of the block cannot be written: the rest is not known.
    assert_eq!(nbd.write(5 * BLOCK as u64, &[1]), Err(EIO));
    assert!(nbd.read(6 * BLOCK as u64, BLOCK as u32).unwrap() == content[6 * BLOCK..7 * BLOCK]);
    nbd.write(5 * BLOCK as u64, &content[5 * BLOCK..6 * BLOCK]).unwrap();
    assert!(nbd.read(0, 65536).unwrap() == content);
}

#[test]
fn a_block_in_the_servers_memory_outlives_the_one_on_the_disk() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 65536") + &store.block("v", "c", "v.sock", "");
    let mut toed = Toed::start(&(hosts(WIDE) + &sections));
    let mut nbd = store.open("v.sock");
    let content = bytes(3, 65536);
    nbd.write(0, &content).unwrap();
    assert!(nbd.read(0, 65536).unwrap() == content);
    let file = File::options().write(true).open(store.path("v")).unwrap();
    file.write_all_at(&[content[5 * BLOCK + 9] ^ 4], 5 * BLOCK as u64 + 9).unwrap();
    // On a filesystem that has no reads without waiting, nothing was cached.
    let found = nbd.read(5 * BLOCK as u64, BLOCK as u32);
    assert!(found == Err(EIO) || found.is_ok_and(|found| found == content[5 * BLOCK..6 * BLOCK]), "other bytes");
    toed.kill_and_restart();
    let mut nbd = store.open("v.sock");
    assert_eq!(nbd.read(5 * BLOCK as u64, BLOCK as u32), Err(EIO), "another daemon finds what is on the disk");
    // What is written is read, also where it was in memory before.
    nbd.write(5 * BLOCK as u64, &content[..BLOCK]).unwrap();
    assert!(nbd.read(5 * BLOCK as u64, BLOCK as u32).unwrap() == content[..BLOCK]);
    nbd.write(5 * BLOCK as u64, &content[5 * BLOCK..6 * BLOCK]).unwrap();
    assert!(nbd.read(0, 65536).unwrap() == content);
}

#[test]
fn volumes_are_for_the_users_that_the_configuration_names() {
    let store = Store::new();
    fs::write(store.path("kept"), bytes(5, 8192)).unwrap();
    let sections = [
        store.volume("v", "s", "size = 8192"),
        store.volume("own", "s", "size = 8192\nclients = [\"10.0.0.2\"]"),
        store.volume("kept", "s", "read_only = true"),
        store.block("v", "c", "c.sock", ""),
        store.block("v", "d", "reader.sock", "read_only = true"),
        store.block("own", "c", "own.sock", ""),
        store.block("own", "d", "foreign.sock", ""),
        store.block("none", "d", "none.sock", ""),
        store.block("kept", "c", "kept.sock", "read_only = true"),
        store.block("kept", "d", "kept-writer.sock", ""),
    ];
    let _toed = Toed::start(&(hosts(WIDE) + &sections.concat()));
    let content = bytes(4, 8192);
    let (mut writer, mut reader) = (store.open("c.sock"), store.open("reader.sock"));
    writer.write(0, &content).unwrap();
    assert!(reader.read(0, 8192).unwrap() == content, "a write that was answered is what others read");
    assert_eq!((reader.flags & 2, reader.write(0, &[1])), (2, Err(EPERM)));
    assert!(store.open("own.sock").read(0, 8192).unwrap().iter().all(|&byte| byte == 0));
    for refused in ["foreign.sock", "none.sock", "kept-writer.sock"] {
        assert!(Nbd::open(&store.path(refused)).is_err(), "{refused}");
    }
    assert!(store.open("kept.sock").read(0, 8192).unwrap() == bytes(5, 8192));
    assert!(store.open("c.sock").read(0, 8192).unwrap() == content, "a second client of a socket");
}

#[test]
fn one_client_writes_until_another_takes_the_volume_over() {
    let store = Store::new();
    let served = store.volume("v", "s", "size = 8192") + &store.block("v", "c", "first.sock", "");
    let toed = Toed::start(&(hosts(WIDE) + &served + &store.block("v", "d", "second.sock", "")));
    // One of them has it, whichever came first.
    let held = |name| Nbd::open(&store.path(name)).is_ok();
    assert!(held("first.sock") != held("second.sock"));
    drop(toed);
    let toed = Toed::start(&(hosts(WIDE) + &served + &store.block("v", "d", "second.sock", "take_over = true")));
    let taken = || Nbd::open(&store.path("second.sock")).is_ok_and(|mut nbd| nbd.write(0, &[7; BLOCK]).is_ok());
    until("the volume is taken over", taken);
    let late = Nbd::open(&store.path("first.sock")).map(|mut nbd| nbd.write(0, &[1; BLOCK]));
    assert!(!matches!(late, Ok(Ok(()))), "two clients write");
    assert!(store.open("second.sock").read(0, BLOCK as u32).unwrap() == [7; BLOCK]);
    drop(toed);
}

#[test]
fn an_nbd_client_that_is_killed_leaves_the_volume_to_others() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 16777216") + &store.block("v", "c", "v.sock", "");
    let _toed = Toed::start(&(hosts(WIDE) + &sections));
    let content = store.path("in");
    fs::write(&content, bytes(6, 16 << 20)).unwrap();
    for pause in [1, 3, 10, 30] {
        let mut copy = Program::new("nbdcopy").arg(&content).arg(address(&store.path("v.sock"))).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let _ = copy.kill();
        copy.wait().unwrap();
    }
    let mut nbd = store.open("v.sock");
    let expected = fs::read(&content).unwrap();
    for (at, block) in expected.chunks(BLOCK).enumerate() {
        let found = nbd.read((at * BLOCK) as u64, BLOCK as u32).unwrap();
        assert!(found == block || found.iter().all(|&byte| byte == 0), "block {at} is neither old nor new");
    }
}
