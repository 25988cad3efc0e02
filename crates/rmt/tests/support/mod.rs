//! Programs, packets and table entries that tests of native code and of RTL share.
#![allow(dead_code, reason = "each test file uses its part")]
use rmt::interp::EntryKey;
use rmt::ir::{Key, MatchKind, Program, Table, mask};
use std::path::{Path, PathBuf};

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    /// Small, large, near a power of two: where things break.
    pub(crate) fn value(&mut self, width: u32) -> u128 {
        let wide = (self.next() as u128) << 64 | self.next() as u128;
        let value = match self.below(6) {
            0 => 0,
            1 => self.below(4) as u128,
            2 => (1u128 << self.below(width as u64)).wrapping_sub(self.below(2) as u128),
            3 => mask(width).wrapping_sub(self.below(3) as u128),
            _ => wide,
        };
        value & mask(width)
    }
}

/// Bytes that resemble the packets of a program: numbers of all sizes at random.
pub(crate) fn bytes(random: &mut Random, most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let len = random.below(most as u64 + 1) as usize;
    while out.len() < len {
        let width = [8, 16, 32][random.below(3) as usize];
        let value = random.value(width) as u32;
        out.extend(&value.to_be_bytes()[4 - width as usize / 8..]);
    }
    out
}

pub(crate) fn load(path: &Path) -> rmt::Loaded {
    rmt::load(path, &[]).unwrap_or_else(|list| panic!("{}", list[0]))
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The programs that are accepted, in the order of their names.
pub(crate) fn accepted() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder("tests/p4/accept")).unwrap().map(|file| file.unwrap().path());
    let mut out: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "p4")).collect();
    out.sort();
    out
}

pub(crate) const LAMINAR: &str = "../../p4/laminar.p4";
pub(crate) const FLOWS: u64 = 4;
/// The one that has timestamps, in programs that take them.
pub(crate) const STAMPED: u64 = 1;
/// The one whose segments leave over IPv6. All are met over both versions.
pub(crate) const OVER_V6: u64 = 3;
/// Where the addresses of the peer and of this host begin.
pub(crate) const PEER_V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0002;
pub(crate) const OWN_V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;

pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut s: u32 = bytes.chunks(2).map(|c| (c[0] as u32) << 8 | *c.get(1).unwrap_or(&0) as u32).sum();
    while s > 0xffff {
        s = (s & 0xffff) + (s >> 16);
    }
    s as u16
}

/// Laminar with few flows, and the extensions of these names.
pub(crate) fn laminar_defines(extensions: &[&str]) -> Vec<(String, String)> {
    let mut defines = vec![("FLOWS".to_string(), "64".to_string()), ("NOTIFY_ACKS".to_string(), String::new())];
    defines.extend(extensions.iter().map(|name| (name.to_string(), String::new())));
    defines
}

/// Takes an entry: table, keys, action, action data.
pub(crate) type Add<'a> = dyn FnMut(&str, &[EntryKey], &str, &[u128]) + 'a;

/// Entries for a few flows whose sequence numbers lie close together, so that random segments meet all cases.
pub(crate) fn laminar_entries(extensions: &[&str], add: &mut Add) {
    let clock = extensions.contains(&"TIMELY").then_some(123_456);
    let exact = |v: u64| EntryKey::Exact(v as u128);
    for flow in 0..FLOWS {
        let tuple = [exact(0x0a00_0002), exact(0x0a00_0001), exact(4000 + flow), exact(80)];
        let mut arrival = vec![flow as u128, 3, 8, 77, 0xffff, 0x1000];
        // A segment of the flow with timestamps that has none goes to the host.
        arrival.extend(clock.map(|_| u128::from(flow == STAMPED)).into_iter().chain([flow as u128]));
        add("flows", &tuple, "rx_flow", &arrival);
        let tuple = [EntryKey::Exact(PEER_V6), EntryKey::Exact(OWN_V6), exact(4000 + flow), exact(80)];
        add("flows_v6", &tuple, "rx_flow", &arrival);
        add("contexts", &[exact(flow), exact(3)], "tx_flow", &[5000, 8, flow as u128 % 4]);
        let (action, own, peer) = match flow {
            OVER_V6 => ("addresses_v6", OWN_V6, PEER_V6),
            _ => ("addresses", 0x0a00_0001, 0x0a00_0002),
        };
        let mut headers = vec![2, 1, own, peer, 80, 4000];
        headers.extend(clock.into_iter().chain([(flow | (flow & 1) << 2) as u128]));
        add("headers", &[exact(flow)], action, &headers);
        add("grants", &[exact(flow)], "granted", &[3, 3000, 8000]);
    }
    // Two of the flows write to one log.
    for flow in (0..2).filter(|_| extensions.contains(&"SHARED_LOG")) {
        add("logs", &[exact(flow)], "appends", &[1, 2000, 2063, 0xffff_ffc0]);
    }
    add("l2", &[exact(0x0200_0000_0001)], "forward", &[9]);
}

pub(crate) fn ipv4_header(random: &mut Random, length: u16) -> Vec<u8> {
    let mut ip = vec![0x45, random.below(4) as u8];
    ip.extend((20 + length).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    let checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip
}

/// Some are shorter than a TCP header, or have an extension header.
pub(crate) fn ipv6_header(random: &mut Random, length: u16) -> Vec<u8> {
    let length = if random.below(20) == 0 { random.below(40) as u16 } else { length };
    let mut ip = vec![0x60, (random.below(4) << 4) as u8, 0, 0];
    ip.extend(length.to_be_bytes());
    ip.extend([if random.below(20) == 0 { 60 } else { 6 }, 64]);
    ip.extend(PEER_V6.to_be_bytes());
    ip.extend(OWN_V6.to_be_bytes());
    ip
}

/// A frame for a flow, mostly sound.
pub(crate) fn segment(random: &mut Random, timely: bool) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let flow = random.below(FLOWS + 1);
    // Timestamps, a block of SACK, which only that extension's program takes at once, or nothing.
    let options = match random.below(12) {
        1.. if timely && flow == STAMPED => Some([1, 1, 8, 10]),
        0..=3 => Some([1, 1, 8, 10]),
        4 => Some([1, 1, 5, 10]),
        _ => None,
    };
    let payload = if random.below(3) == 0 { 0 } else { random.below(900) as usize };
    let length = 20 + 12 * options.is_some() as u16 + payload as u16;
    if flow == OVER_V6 || random.below(4) == 0 {
        out[12..].copy_from_slice(&[0x86, 0xdd]);
        out.extend(ipv6_header(random, length));
    } else {
        out.extend(ipv4_header(random, length));
    }
    out.extend((4000 + flow as u16).to_be_bytes());
    out.extend(80u16.to_be_bytes());
    out.extend((0u32.wrapping_sub(2000).wrapping_add(random.below(4000) as u32)).to_be_bytes());
    out.extend((5000 + random.below(3000) as u32).to_be_bytes());
    out.push(if options.is_some() { 0x80 } else { 0x50 });
    out.push([0x10, 0x18, 0x50, 0x11, 0x02][random.below(5).min(random.below(5)) as usize]);
    out.extend((random.below(2000) as u16).to_be_bytes());
    out.extend([0; 4]);
    if let Some(kinds) = options {
        out.extend(kinds);
        out.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    }
    out.extend((0..payload).map(|i| i as u8));
    if random.below(10) == 0 {
        let at = random.below(out.len() as u64) as usize;
        out[at] ^= 1 << random.below(8);
    }
    if random.below(20) == 0 {
        out.truncate(random.below(out.len() as u64) as usize);
    }
    out
}

/// A descriptor of the host or the control plane.
pub(crate) fn descriptor(random: &mut Random) -> Vec<u8> {
    let mut out = vec![1 + random.below(4) as u8, random.next() as u8];
    let length = random.below(1500) as u16;
    for v in [3, random.below(FLOWS + 1) as u16, length, random.next() as u16, 0] {
        out.extend(v.to_be_bytes());
    }
    for v in [0, 0, random.below(4000) as u32, 0, random.below(9000) as u32, 0] {
        out.extend(v.to_be_bytes());
    }
    out.extend((0..length.min(50)).map(|i| i as u8));
    out
}

pub(crate) const EXTENSIONS: [&[&str]; 6] = [
    &[],
    &["SACK"],
    &["DELAYED_ACKS"],
    &["TIMELY"],
    &["SHARED_LOG"],
    &["SACK", "DELAYED_ACKS", "TIMELY", "SHARED_LOG"],
];

/// A recording of what meets a pipeline: segments in order and not, acknowledgements, descriptors, ticks.
pub(crate) fn laminar_segments(random: &mut Random, extensions: &[&str], count: usize) -> Vec<(u16, Vec<u8>)> {
    let timely = extensions.contains(&"TIMELY");
    let mut out = Vec::new();
    for _ in 0..count {
        out.push(match random.below(10) {
            0..=5 => (8, segment(random, timely)),
            6 | 7 => (64, descriptor(random)),
            8 => (65, descriptor(random)),
            _ => (6, vec![0, 0, 0, 0, 0, random.below(FLOWS + 1) as u8]),
        });
    }
    out
}

/// An ingress control with these declarations and this apply block.
pub(crate) fn ingress_control(decls: &str, apply: &str) -> String {
    format!(
        "#define OWN_INGRESS\ncontrol Ingress(inout headers_t hdr, inout metadata_t meta, \
         in ingress_intrinsic_metadata_t ig_intr_md, in ingress_intrinsic_metadata_from_parser_t ig_prsr_md, \
         inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md, inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)\n\
         {{\n{decls}\napply {{\n{apply}\n}}\n}}\n"
    )
}

/// A whole program around these controls.
pub(crate) fn program_around(controls: &str) -> rmt::Loaded {
    let folder = folder("tests/p4");
    let read = |path: &Path| std::fs::read_to_string(folder.join(path)).ok();
    let text = format!(
        "#include \"frame.p4\"\ncontrol Body(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}\n\
         {controls}#include \"pipe.p4\"\n"
    );
    rmt::load_text("case.p4", text, &[], &read).unwrap_or_else(|list| panic!("{}", list[0]))
}

/// A whole program around an ingress control, which sends to port 1 unless it sets another one.
pub(crate) fn small_program(decls: &str, apply: &str) -> rmt::Loaded {
    program_around(&ingress_control(decls, &format!("ig_tm_md.ucast_egress_port = 1;\n{apply}")))
}

/// A change of a table at random: of its default where there are no keys.
pub(crate) struct Change {
    pub(crate) keys: Option<Vec<EntryKey>>,
    /// The entry goes.
    pub(crate) removes: bool,
    pub(crate) priority: u32,
    pub(crate) action: String,
    pub(crate) args: Vec<u128>,
}

impl Change {
    pub(crate) fn of(program: &Program, table: &Table, random: &mut Random) -> Change {
        let action = &program.actions[table.actions[random.below(table.actions.len() as u64) as usize]];
        let args = action.params.iter().map(|(_, ty)| random.value(ty.width())).collect();
        let is_default = random.below(8) == 0;
        let mut key = |key: &Key| {
            let width = key.expr.ty.width();
            let (a, b) = (random.value(width), random.value(width));
            match key.kind {
                MatchKind::Exact => EntryKey::Exact(a),
                MatchKind::Ternary => EntryKey::Ternary(a, b),
                MatchKind::Lpm => EntryKey::Prefix(a, random.below(u64::from(width) + 1) as u32),
                MatchKind::Range => EntryKey::Range(a.min(b), a.max(b)),
            }
        };
        let keys = (!is_default).then(|| table.keys.iter().map(&mut key).collect());
        let (removes, priority) = (random.below(4) == 0, random.below(3) as u32);
        Change { keys, removes, priority, action: action.name.clone(), args }
    }
}
