//! `xdp/splice.c`, compiled and run as the data-path does, translates as the control plane does
//! ([`wire::Translation`]). Needs clang and libbpf's headers; prints where it is skipped.
use control::{Seen, SpliceTable};
use daemon::SpliceMaps;
use engine::{FramePool, Module, ModuleSource, Packet, Verdict};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use wire::tcp::{Flags, Options, Timestamps};
use wire::{EtherType, Ipv4Tuple, Mac, Seq, Translation, ethernet, ipv4, tcp};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TUPLE: Ipv4Tuple = Ipv4Tuple {
    local_ip: Ipv4Addr::new(10, 1, 0, 1),
    remote_ip: Ipv4Addr::new(10, 2, 0, 2),
    local_port: 80,
    remote_port: 4000,
};

fn program() -> Option<Arc<xdp::Program>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xdp/splice.c");
    let object = std::env::temp_dir().join(format!("splice-{}.o", std::process::id()));
    let flags = ["-O2", "-g", "-target", "bpf", "-I/usr/include/x86_64-linux-gnu", "-c"];
    let made = Command::new("clang").args(flags).arg(source).arg("-o").arg(&object).status();
    let bytes = made.ok().filter(|status| status.success()).and_then(|_| std::fs::read(&object).ok());
    let _ = std::fs::remove_file(&object);
    let object = xdp::Object::parse(&bytes?).expect("an object");
    Some(xdp::Program::load(object, &xdp::Limits::default()).expect("a sound program"))
}

fn translation() -> Translation {
    Translation {
        dst_mac: Mac([9, 8, 7, 6, 5, 4]),
        src_mac: MAC,
        src: TUPLE.local_ip,
        dst: Ipv4Addr::new(10, 3, 0, 3),
        src_port: 40_000,
        dst_port: 81,
        seq: 0xdead_beef,
        ack: 0x1234_5678,
        timestamps: Some((u32::MAX, 77)),
        sack: true,
        window_in: 7,
        window_out: 3,
    }
}

fn segment(flags: Flags, options: Options, payload: usize) -> Vec<u8> {
    let (seq, ack, window) = (Seq(u32::MAX - 5), Seq(900), 4321);
    let (src_port, dst_port) = (TUPLE.remote_port, TUPLE.local_port);
    let header = tcp::Header { src_port, dst_port, seq, ack, flags, window, options };
    let (at, start) = (ethernet::HEADER_LEN, ethernet::HEADER_LEN + ipv4::HEADER_LEN);
    let mut bytes = vec![7; start + header.len() + payload];
    ethernet::Header { dst: MAC, src: Mac([2; 6]), ethertype: EtherType::Ipv4 }.emit(&mut bytes);
    let ip = ipv4::Header {
        src: TUPLE.remote_ip,
        dst: TUPLE.local_ip,
        protocol: ipv4::TCP,
        ttl: 64,
        ecn: ipv4::Ecn::Ce,
        dscp: 3,
        id: 5,
        dont_fragment: true,
        is_fragment: false,
        payload_len: (header.len() + payload) as u16,
    };
    ip.emit(&mut bytes[at..]);
    header.emit(&mut bytes[start..]);
    bytes
}

/// Without the checksums, which are the engine's.
fn without_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[ethernet::HEADER_LEN + 10..ethernet::HEADER_LEN + 12].fill(0);
    let field = ethernet::HEADER_LEN + ipv4::HEADER_LEN + tcp::CHECKSUM_AT;
    bytes[field..field + 2].fill(0);
    bytes
}

fn run(module: &mut dyn Module, bytes: &[u8]) -> (Verdict, Vec<u8>) {
    let mut frame = FramePool::new(8).large();
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    let verdict = module.process(Packet { frame: &mut frame, flow: None, now: 0 });
    (verdict, frame.bytes().to_vec())
}

#[test]
fn the_module_translates_as_the_control_plane_does() {
    let Some(program) = program() else { return println!("skipped: it needs clang and libbpf's headers") };
    let mut maps = SpliceMaps::of(&program).expect("the maps of a splice module");
    let mut module = program.replica(0);
    let block = |left: u32| Some((Seq(left), Seq(left.wrapping_add(9))));
    let timestamps = Some(Timestamps { value: 3, echo: 4 });
    let sack = [block(5), block(u32::MAX - 3), None, None];
    let all = [
        Options::default(),
        Options { timestamps, ..Options::default() },
        Options { sack, ..Options::default() },
        Options { timestamps, sack, ..Options::default() },
    ];
    assert_eq!(run(&mut *module, &segment(Flags::ACK, all[1], 9)).0, Verdict::Pass, "no splice yet");
    maps.start(5, &Seen { window: 1, ..Seen::default() });
    assert_eq!(maps.seen(5).window, 1);
    assert!(maps.insert(5, &TUPLE.into(), &translation()) && maps.capacity() == 16_384);
    for (at, options) in all.into_iter().enumerate() {
        let segment = segment(Flags::ACK | Flags::PSH | Flags::ECE, options, 100 * at);
        let (verdict, out) = run(&mut *module, &segment);
        let mut expected = segment;
        translation().apply(&mut expected).unwrap();
        assert_eq!((verdict, without_checksums(out)), (Verdict::Transmit, without_checksums(expected)), "{options:?}");
    }
    let next = Seq(u32::MAX - 5) + 300;
    assert_eq!(maps.seen(5), Seen { segments: 4, bytes: 600, next, ack: Seq(900), window: 4321 << 7 });
    // What it cannot translate, and what ends a connection, goes to the control plane as it came.
    let unknown = segment(Flags::ACK, Options { mss: Some(9), timestamps, ..Options::default() }, 5);
    assert_eq!(run(&mut *module, &unknown), (Verdict::Redirect, unknown));
    let fin = segment(Flags::ACK | Flags::FIN, all[1], 5);
    assert_eq!(run(&mut *module, &fin), (Verdict::Redirect, fin.clone()));
    assert_eq!(run(&mut *module, &fin), (Verdict::Pass, fin), "its direction is out of the map");
    maps.insert(5, &TUPLE.into(), &translation());
    maps.remove(&TUPLE.into());
    assert_eq!(run(&mut *module, &segment(Flags::ACK, all[0], 1)).0, Verdict::Pass);
}
