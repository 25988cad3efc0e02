//! The interpreter on small programs: tables of all kinds, control flow, externs, and the control API.
mod support;

use rmt::interp::{ControlError, EntryKey, Machine, Session};
use support::{folder, ingress_control, program_around, small_program};

/// A program around these controls, with `tests/p4/frame.p4`.
fn machine(controls: &str) -> Machine {
    Machine::new(program_around(controls).program)
}

/// The ingress control with these declarations and this apply block.
fn ingress(decls: &str, apply: &str) -> Machine {
    Machine::new(small_program(decls, apply).program)
}

/// `seg_h`.
#[derive(Default, Clone, Copy)]
struct Seg {
    kind: u8,
    small: u8,
    flow: u16,
    len: u16,
    port: u16,
    seq: u32,
    seq_end: u32,
    ack: u32,
    word: u32,
}

impl Seg {
    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.kind, self.small];
        [self.flow, self.len, self.port].iter().for_each(|v| out.extend(v.to_be_bytes()));
        [self.seq, self.seq_end, self.ack, self.word].iter().for_each(|v| out.extend(v.to_be_bytes()));
        out
    }
}

/// The word that comes out where `apply` left it.
fn word(m: &mut Machine, seg: &Seg) -> u32 {
    let out = m.ingress(3, &seg.bytes()).queued.expect("not dropped");
    assert_eq!((out.port, out.data.len()), (1, 24));
    u32::from_be_bytes(out.data[20..24].try_into().unwrap())
}

const SET: &str = "action set(bit<32> v) { hdr.seg.word = v; }\n";

#[test]
fn exact_ternary_prefix_and_range() {
    let table = |keys: &str| {
        let decls = format!(
            "{SET}table t {{ key = {{ {keys} }} actions = {{ set; NoAction; }} default_action = set(9); size = 4; }}"
        );
        ingress(&decls, "t.apply();")
    };
    let at = |seq| Seg { seq, ..Seg::default() };

    let mut m = table("hdr.seg.seq: exact;");
    m.table_add("t", &[EntryKey::Exact(5)], 0, "set", &[1]).unwrap();
    assert_eq!((word(&mut m, &at(5)), word(&mut m, &at(6))), (1, 9));
    assert!(m.table_remove("t", &[EntryKey::Exact(5)]).unwrap());
    assert!(!m.table_remove("t", &[EntryKey::Exact(5)]).unwrap());
    m.table_set_default("t", "set", &[7]).unwrap();
    assert_eq!(word(&mut m, &at(5)), 7);

    let mut m = table("hdr.seg.seq: ternary;");
    m.table_add("t", &[EntryKey::Ternary(0x10, 0xf0)], 2, "set", &[1]).unwrap();
    m.table_add("t", &[EntryKey::Ternary(0x18, 0xff)], 1, "set", &[2]).unwrap();
    assert_eq!((word(&mut m, &at(0x17)), word(&mut m, &at(0x18)), word(&mut m, &at(0x20))), (1, 2, 9));

    let mut m = table("hdr.seg.seq: lpm;");
    m.table_add("t", &[EntryKey::Prefix(0x0a00_0000, 8)], 0, "set", &[1]).unwrap();
    m.table_add("t", &[EntryKey::Prefix(0x0a01_0000, 16)], 0, "set", &[2]).unwrap();
    m.table_add("t", &[EntryKey::Prefix(0x0a01_0203, 32)], 0, "set", &[3]).unwrap();
    m.table_add("t", &[EntryKey::Prefix(0, 0)], 0, "set", &[4]).unwrap();
    let found = [0x0a02_0000, 0x0a01_0204, 0x0a01_0203, 1].map(|s| word(&mut m, &at(s)));
    assert_eq!(found, [1, 2, 3, 4]);
    let full = m.table_add("t", &[EntryKey::Prefix(0x0b00_0000, 8)], 0, "set", &[5]);
    assert_eq!(full, Err(ControlError::Full("t".into())));
    m.table_add("t", &[EntryKey::Prefix(0, 0)], 0, "set", &[6]).expect("replacing is not adding");
    assert_eq!((word(&mut m, &at(1)), m.table_len("t").unwrap()), (6, 4));

    let mut m = table("hdr.seg.len: range;");
    m.table_add("t", &[EntryKey::Range(10, 20)], 0, "set", &[1]).unwrap();
    let found = [9, 10, 20, 21].map(|len| word(&mut m, &Seg { len, ..Seg::default() }));
    assert_eq!(found, [9, 1, 1, 9]);
}

#[test]
fn the_control_plane_gets_what_is_wrong() {
    let decls = format!(
        "{SET}table t {{ key = {{ hdr.seg.len: exact; }} actions = {{ set; @defaultonly NoAction; }} size = 2; }}\n\
         table fixed {{ key = {{ hdr.seg.kind: exact; }} actions = {{ set; }} const entries = {{ 1: set(2); }}\n\
         const default_action = set(3); }}"
    );
    let mut m = ingress(&decls, "t.apply(); fixed.apply();");
    let exact = [EntryKey::Exact(1)];
    assert!(matches!(m.table_add("u", &exact, 0, "set", &[1]), Err(ControlError::Unknown(_))));
    assert!(matches!(m.table_add("t", &exact, 0, "sit", &[1]), Err(ControlError::Unknown(_))));
    assert!(matches!(m.table_add("t", &exact, 0, "set", &[]), Err(ControlError::Mismatch(_))));
    assert!(matches!(m.table_add("t", &exact, 0, "set", &[1 << 32]), Err(ControlError::Mismatch(_))));
    assert!(matches!(m.table_add("t", &[EntryKey::Exact(1 << 16)], 0, "set", &[1]), Err(ControlError::Mismatch(_))));
    assert!(matches!(m.table_add("t", &[EntryKey::Prefix(1, 3)], 0, "set", &[1]), Err(ControlError::Mismatch(_))));
    assert!(matches!(m.table_add("t", &[], 0, "set", &[1]), Err(ControlError::Mismatch(_))));
    assert!(matches!(m.table_add("t", &exact, 0, "NoAction", &[]), Err(ControlError::NotAllowed(_))));
    assert!(matches!(m.table_add("fixed", &exact, 0, "set", &[1]), Err(ControlError::NotAllowed(_))));
    assert!(matches!(m.table_remove("fixed", &exact), Err(ControlError::NotAllowed(_))));
    assert!(matches!(m.table_set_default("fixed", "set", &[1]), Err(ControlError::NotAllowed(_))));
    assert!(matches!(m.register_read("r", 0), Err(ControlError::Unknown(_))));
}

#[test]
fn hit_miss_action_run_and_exit() {
    let decls = format!(
        "{SET}action one() {{ hdr.seg.word = 1; }}\naction two() {{ hdr.seg.word = 2; }}\n\
         table t {{ key = {{ hdr.seg.kind: exact; }} actions = {{ one; two; NoAction; }} size = 4; }}\n\
         table u {{ key = {{ hdr.seg.small: exact; }} actions = {{ NoAction; }} size = 4; }}"
    );
    let apply = "if (u.apply().miss) { exit; }\n\
                 switch (t.apply().action_run) {\n one: { hdr.seg.seq = 10; }\n two:\n NoAction: { hdr.seg.seq = 20; }\n\
                 default: { hdr.seg.seq = 30; } }\n hdr.seg.word = hdr.seg.word + hdr.seg.seq;";
    let mut m = ingress(&decls, apply);
    m.table_add("u", &[EntryKey::Exact(1)], 0, "NoAction", &[]).unwrap();
    m.table_add("t", &[EntryKey::Exact(1)], 0, "one", &[]).unwrap();
    m.table_add("t", &[EntryKey::Exact(2)], 0, "two", &[]).unwrap();
    let mut run = |kind, small| word(&mut m, &Seg { kind, small, word: 100, ..Seg::default() });
    assert_eq!((run(1, 0), run(1, 1), run(2, 1), run(3, 1)), (100, 11, 22, 120));
}

#[test]
fn registers_hold_words_within_their_size() {
    let decls = "Register<pair_t, bit<16>>(4, {7, 8}) r;\n\
        RegisterAction2<pair_t, bit<16>, bit<32>, bit<16>>(r) add = {\n\
        void apply(inout pair_t v, out bit<32> now, out bit<16> which) {\n\
        which = this.predicate<bit<16>>(v.lo == 7, v.hi == 9);\n v.lo = v.lo |+| hdr.seg.seq; now = v.lo; } };\n\
        action do() { hdr.seg.word = add.execute(hdr.seg.flow, hdr.seg.len); }\n\
        table t { actions = { do; } default_action = do(); }";
    let mut m = ingress(decls, "t.apply();");
    let seg = Seg { seq: 0xffff_ffff, flow: 2, ..Seg::default() };
    let out = m.ingress(0, &seg.bytes()).queued.unwrap().data;
    assert_eq!((&out[4..6], &out[20..24]), (&[0, 2][..], &[255; 4][..]), "saturated; only the first condition held");
    assert_eq!(m.register_read("r", 2).unwrap(), [0xffff_ffff, 8]);
    assert_eq!(m.register_read("r", 1).unwrap(), [7, 8]);
    assert_eq!(m.register_read("r", 4), Err(ControlError::Index(4)));
    assert!(matches!(m.register_write("r", 0, &[1]), Err(ControlError::Mismatch(_))));
    assert!(matches!(m.register_write("r", 0, &[1, 1 << 32]), Err(ControlError::Mismatch(_))));
    // Beyond the end: zero, and nothing changes.
    assert_eq!(word(&mut m, &Seg { seq: 5, flow: 4, ..Seg::default() }), 5);
}

#[test]
fn counters_hashes_and_slices() {
    let decls = "Counter<bit<32>, bit<16>>(8, CounterType_t.PACKETS) c;\n\
        Hash<bit<32>>(HashAlgorithm_t.CRC32) h;\n\
        action count() { c.count(hdr.seg.flow); }\n\
        table t { actions = { count; } default_action = count(); }";
    let mut m = ingress(
        decls,
        "t.apply();\nhdr.seg.word = h.get({ hdr.seg.seq, hdr.seg.ack[15:0] });\n\
        hdr.seg.ack[31:16] = hdr.seg.seq[15:0];",
    );
    let seg = Seg { seq: 0x3132_3334, ack: 0x3536, flow: 3, ..Seg::default() };
    // CRC-32 of "123456".
    assert_eq!(word(&mut m, &seg), 0x0972_d361);
    let out = m.ingress(0, &seg.bytes()).queued.unwrap().data;
    assert_eq!(&out[16..20], &[0x33, 0x34, 0x35, 0x36]);
    assert_eq!((m.counter_read("c", 3), m.counter_read("c", 2)), (Ok(2), Ok(0)));
}

const DEPARSER: &str = "#define OWN_INGRESS_DEPARSER\ncontrol IngressDeparser(packet_out pkt, inout headers_t hdr, \
    in metadata_t meta, in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {\n\
    Mirror() mirror; Digest<mirror_h>() learn; Resubmit() resubmit;\n apply {\n\
    if (ig_dprsr_md.mirror_type == 1) { mirror.emit<mirror_h>(meta.session, { hdr.seg.kind, hdr.seg.small, hdr.seg.seq, \
    hdr.seg.seq_end, hdr.seg.ack, hdr.seg.word, hdr.seg.seq }); }\n\
    if (ig_dprsr_md.digest_type == 2) { learn.pack({ hdr.seg.flow, hdr.seg.len }); }\n\
    if (ig_dprsr_md.resubmit_type == 3) { resubmit.emit({ hdr.seg.flow }); }\n pkt.emit(hdr.seg); } }\n";

/// Ingress that sets these, with the deparser above.
fn ingress_copies(apply: &str) -> Machine {
    let control = ingress_control("", apply);
    machine(&format!("{control}{DEPARSER}"))
}

#[test]
fn mirror_digest_and_resubmit() {
    let seg = Seg { kind: 9, flow: 4, len: 5, seq: 1, ..Seg::default() };
    let frame = [seg.bytes(), vec![1, 2, 3]].concat();

    let mut m = ingress_copies("ig_dprsr_md.mirror_type = 1; meta.session = 7; ig_dprsr_md.digest_type = 2;");
    assert!(m.ingress(0, &frame).mirrored.is_empty(), "a session that nobody set");
    m.set_session(7, Session { port: 12, truncate: 2 });
    let out = m.ingress(0, &frame);
    assert_eq!(out.queued, None, "no port was chosen");
    let copy = &out.mirrored[0];
    assert_eq!(
        (copy.port, copy.data.len(), &copy.data[..6], &copy.data[22..]),
        (12, 24, &[9, 0, 0, 0, 0, 1][..], &[9, 0][..])
    );
    assert_eq!(out.digests, [("learn".to_string(), vec![4, 5])]);

    let mut m = ingress_copies("ig_tm_md.ucast_egress_port = 2; ig_dprsr_md.resubmit_type = 3;");
    let out = m.ingress(0, &frame);
    assert_eq!((out.queued, out.resubmit), (None, Some(vec![0, 4])));

    let mut m = ingress_copies("ig_tm_md.ucast_egress_port = 2; ig_dprsr_md.drop_ctl = 1;");
    assert_eq!(m.ingress(0, &frame).queued, None);
    let mut m = ingress_copies("ig_tm_md.ucast_egress_port = 2;");
    assert!(m.ingress(0, &frame[..23]).queued.is_none(), "too short for its header");
    let out = m.process(&[(0, &frame), (0, &frame[..10]), (0, &frame)]);
    assert_eq!((out.sent.len(), out.sent[0].port, &out.sent[0].data), (2, 2, &frame));
}

#[test]
fn checksums_of_headers_and_residual() {
    let case = folder("tests/p4/accept/parser_checksum.p4");
    let mut m = Machine::new(rmt::load(&case, &[]).unwrap().program);
    let seg = Seg { seq: 0x0001_0002, ack: 0x0003_0004, ..Seg::default() };
    let frame = [seg.bytes(), vec![0x11, 0x22, 0x33]].concat();
    let out = m.process(&[(0, &frame)]);
    // seq + ack - (seq + ack) + payload: 0x1122 + 0x3300, complemented.
    assert_eq!(&out.sent[0].data[4..6], &(!0x4422u16).to_be_bytes());
}
