//! Program replacement: a changed program takes the place of the running one; a bad one does not.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::Config;
use common::solo::{ACK, START, Seg, Solo, seg};
use engine::stream::Stream;
use engine::{Engine, FramePool, Limits, ProgramSource};
use laminar::{Extensions, Laminar};

const S: u32 = START;

fn make(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    Box::new(Laminar::new(limits, config.wscale, Extensions { delayed_acks: false, ..Extensions::default() }).unwrap())
}

fn solo() -> Solo {
    Solo::new(Config { engine: make, timestamps: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..Config::clean(1) })
}

fn changed(file: &str, from: &str, to: &str) -> ProgramSource {
    let mut source = Extensions { delayed_acks: false, ..Extensions::default() }.source();
    let (_, text) = source.files.iter_mut().find(|(name, _)| name == file).unwrap();
    assert!(text.contains(from));
    *text = text.replacen(from, to, 1);
    source
}

#[test]
fn a_changed_program_goes_on_with_the_flows() {
    let mut s = solo();
    s.receive(&[seg(S, S, ACK, 500), seg(S + 1000, S, ACK, 500)]);
    assert_eq!(s.write(100, false).len(), 1);
    // Acknowledgements of another kind: each is marked as urgent data would be.
    s.side.engine.load(&changed("ingress.p4", "): rx(TCP_ACK);", "): rx(TCP_ACK | 0x08);")).unwrap();
    let sent: Vec<Seg> = s.receive(&[seg(S + 500, S + 100, ACK, 500)]);
    assert_eq!((sent[0].ack, sent[0].flags.0), (S + 1500, 0x18), "the interval was known to the new program");
    s.read(1500);
    assert_eq!(s.write(100, false)[0].seq, S + 100);
}

#[test]
fn a_bad_program_is_refused_and_the_running_one_untouched() {
    let mut s = solo();
    s.receive(&[seg(S, S, ACK, 500)]);
    let refused = |s: &mut Solo, source: &ProgramSource| s.side.engine.load(source).unwrap_err();
    let error = refused(
        &mut s,
        &changed("reassembly.p4", "w.edge = w.edge + hdr.seg.amount;", "w.edge = w.edge + hdr.seg.amuont;"),
    );
    assert!(error.starts_with("reassembly.p4:") && error.contains("amuont"), "{error}");
    let error =
        refused(&mut s, &changed("reassembly.p4", "w.edge = w.edge + hdr.seg.amount;", "w.edge = w.edge + w.next;"));
    assert!(error.starts_with("reassembly.p4:"), "a stateful ALU adds no two words of memory: {error}");
    let error = refused(&mut s, &changed("transmission.p4", "ecn_bytes;", "marked_bytes;"));
    assert!(error.contains("ecn_bytes"), "{error}");
    let error = refused(
        &mut s,
        &changed("egress.p4", "bit<48> dst_mac, bit<48> src_mac,", "bit<8> more, bit<48> dst_mac, bit<48> src_mac,"),
    );
    assert!(error.contains("not Laminar's"), "{error}");
    let error = refused(&mut s, &Extensions::NONE.source());
    assert!(error.contains("-D SACK"), "{error}");
    assert_eq!(s.receive(&[seg(S + 500, S, ACK, 500)])[0].ack, S + 1000);
}
