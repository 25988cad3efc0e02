//! `xdp/splice.c` and [`wire::Translation`] are the same arithmetic: the Linux kernel runs the module on random
//! segments (BPF_PROG_TEST_RUN), and what comes out is compared. Needs root, clang and bpftool; prints that where it is
//! skipped.
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::tcp::{Flags, Options, Timestamps};
use wire::{EtherType, Mac, Seq, Translation, ethernet, ipv4, tcp};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 3);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SEGMENTS: usize = 150;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
    fn chance(&mut self, one_in: u32) -> bool {
        self.next() % one_in == 0
    }
}

/// Where this cannot be done here, why.
fn obstacle() -> Option<&'static str> {
    let works = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success());
    let root = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    let tools = works("clang") && works("bpftool") && Path::new("/usr/include/bpf/bpf_helpers.h").exists();
    match (root, tools) {
        (false, _) => Some("it needs root"),
        (_, false) => Some("it needs clang, bpftool and libbpf's headers"),
        _ => None,
    }
}

/// A segment of the connection that is spliced, with options of all sorts.
fn segment(rng: &mut Rng) -> Vec<u8> {
    let timestamps = (!rng.chance(4)).then(|| Timestamps { value: rng.next(), echo: rng.next() });
    let mut block = |wanted: bool| wanted.then(|| (Seq(rng.next()), Seq(rng.next())));
    let sack = [block(true), block(true), block(timestamps.is_none()), None];
    let sack = if rng.chance(2) { sack } else { [None; 4] };
    let mss = rng.chance(10).then_some(1460);
    let options = Options { timestamps, sack, mss, ..Options::default() };
    let odd = [Flags::FIN, Flags::SYN, Flags::RST, Flags::ECE, Flags::PSH];
    let mut flags = Flags::ACK;
    if rng.chance(4) {
        flags |= odd[rng.next() as usize % odd.len()];
    }
    let (seq, ack, window) = (Seq(rng.next()), Seq(rng.next()), rng.next() as u16);
    let header = tcp::Header { src_port: 4000, dst_port: 80, seq, ack, flags, window, options };
    let payload = (rng.next() % 600) as usize;
    let (at, start) = (ethernet::HEADER_LEN, ethernet::HEADER_LEN + ipv4::HEADER_LEN);
    let mut bytes = vec![7; start + header.len() + payload];
    ethernet::Header { dst: MAC, src: Mac([2; 6]), ethertype: EtherType::Ipv4 }.emit(&mut bytes);
    let ip = ipv4::Header {
        src: PEER,
        dst: HERE,
        protocol: ipv4::TCP,
        ttl: if rng.chance(20) { 1 } else { 64 },
        ecn: ipv4::Ecn::from(rng.next() as u8),
        dscp: 3,
        id: rng.next() as u16,
        dont_fragment: true,
        is_fragment: false,
        payload_len: (header.len() + payload) as u16,
    };
    ip.emit(&mut bytes[at..]);
    header.emit(&mut bytes[start..]);
    if timestamps.is_some() && rng.chance(4) {
        // Other padding than most send, and options that cannot be.
        bytes[start + 20..start + 24].copy_from_slice(if rng.chance(2) { &[1, 8, 10, 1] } else { &[1, 1, 8, 11] });
    }
    bytes
}

fn translation(rng: &mut Rng) -> Translation {
    Translation {
        dst_mac: Mac([9, 8, 7, 6, 5, 4]),
        src_mac: MAC,
        src: HERE,
        dst: OTHER,
        src_port: 40_000,
        dst_port: 81,
        seq: rng.next(),
        ack: rng.next(),
        timestamps: Some((rng.next(), rng.next())),
        sack: true,
        window_in: 7,
        window_out: 3,
    }
}

/// Key and value of the module's map, as `xdp/splice.c` lays them out.
fn entry(t: &Translation) -> (Vec<u8>, Vec<u8>) {
    let key = [&PEER.octets()[..], &HERE.octets(), &4000u16.to_be_bytes(), &80u16.to_be_bytes()].concat();
    let (value, echo) = t.timestamps.unwrap_or_default();
    let mut bytes = [&t.dst_mac.0[..], &t.src_mac.0, &t.src.octets(), &t.dst.octets()].concat();
    bytes.extend([t.src_port.to_be_bytes(), t.dst_port.to_be_bytes()].concat());
    [t.seq, t.ack, value, echo].iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
    bytes.extend([t.window_in, t.window_out, 3, 0, 0, 0, 0, 0]);
    (key, bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

/// The module's verdict on each segment, in a mount namespace of its own; what comes out lies in `out.N`.
fn run_in_kernel(folder: &Path, translation: &Translation) -> Vec<u32> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xdp/splice.c");
    let headers = "-I/usr/include/x86_64-linux-gnu";
    run(Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-Wall", "-Werror", headers, "-c"])
        .arg(source)
        .arg("-o")
        .arg(folder.join("splice.o")));
    let (key, value) = entry(translation);
    let mut script = String::from("set -e\nmount -t bpf bpf /sys/fs/bpf\ncd \"$1\"\n");
    script += "bpftool prog load splice.o /sys/fs/bpf/splice type xdp pinmaps /sys/fs/bpf/maps\n";
    let enter =
        format!("bpftool map update pinned /sys/fs/bpf/maps/splices key hex {} value hex {}", hex(&key), hex(&value));
    for at in 0..SEGMENTS {
        writeln!(script, "{enter}\nbpftool prog run pinned /sys/fs/bpf/splice data_in in.{at} data_out out.{at}")
            .unwrap();
    }
    let printed = run(Command::new("unshare").args(["-m", "bash", "-c", &script, "bash"]).arg(folder));
    let verdict = |line: &str| line.strip_prefix("Return value: ")?.split(',').next()?.parse().ok();
    printed.lines().filter_map(verdict).collect()
}

/// Without the checksums, which are the engine's.
fn without_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[ethernet::HEADER_LEN + 10..ethernet::HEADER_LEN + 12].fill(0);
    let field = ethernet::HEADER_LEN + ipv4::HEADER_LEN + tcp::CHECKSUM_AT;
    bytes[field..field + 2].fill(0);
    bytes
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_kernel_runs_the_module_as_the_control_plane_translates() {
    if let Some(why) = obstacle() {
        return println!("skipped: {why}");
    }
    let folder = Folder(std::env::temp_dir().join(format!("splice-module-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let mut rng = Rng(2026);
    let translation = translation(&mut rng);
    let segments: Vec<Vec<u8>> = (0..SEGMENTS).map(|_| segment(&mut rng)).collect();
    for (at, segment) in segments.iter().enumerate() {
        std::fs::write(folder.0.join(format!("in.{at}")), segment).unwrap();
    }
    let verdicts = run_in_kernel(&folder.0, &translation);
    assert_eq!(verdicts.len(), SEGMENTS);
    const TRANSMIT: u32 = 3;
    const REDIRECT: u32 = 4;
    let mut seen = [0, 0];
    for (at, (segment, verdict)) in segments.into_iter().zip(verdicts).enumerate() {
        let out = std::fs::read(folder.0.join(format!("out.{at}"))).unwrap();
        let start = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
        let parsed = tcp::Header::parse(&segment[start..]);
        let known = parsed.is_ok_and(|(header, _)| header.options.mss.is_none());
        let ends = Flags(segment[start + 13]).any(Flags::SYN | Flags::FIN | Flags::RST);
        if ends || !known || segment[ethernet::HEADER_LEN + 8] == 1 {
            assert_eq!((verdict, out), (REDIRECT, segment), "{at}: to the control plane, unchanged");
            seen[0] += 1;
            continue;
        }
        let mut expected = segment;
        translation.apply(&mut expected).unwrap();
        assert_eq!((verdict, without_checksums(out)), (TRANSMIT, without_checksums(expected)), "{at}");
        seen[1] += 1;
    }
    assert!(seen[0] > 20 && seen[1] > 60, "both happened: {seen:?}");
}
