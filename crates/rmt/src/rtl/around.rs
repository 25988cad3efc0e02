//! The top module, around both halves: `top`. It has packets by AXI4-Stream, the control bus by AXI4-Lite, and a
//! traffic manager between the halves. Its register map comes along, as a C header and as JSON.
use super::map::{Map, MappedKind};
use super::{Design, SourceFile};
use crate::ir::Gress;
use std::fmt::Write as _;
use std::path::Path;

/// Modules around the halves, each behind those that it uses.
const MODULES: &[(&str, &str)] = &[
    ("rtl_fifo", include_str!("lib/rtl_fifo.sv")),
    ("rtl_traffic_manager", include_str!("lib/rtl_traffic_manager.sv")),
    ("rtl_packet_generator", include_str!("lib/rtl_packet_generator.sv")),
    ("rtl_packet_in", include_str!("lib/rtl_packet_in.sv")),
    ("rtl_packet_out", include_str!("lib/rtl_packet_out.sv")),
    ("rtl_results", include_str!("lib/rtl_results.sv")),
    ("rtl_control", include_str!("lib/rtl_control.sv")),
    ("top", include_str!("lib/top.sv")),
];

/// Addresses of the AXI4-Lite slave, as in `rtl_control.sv`: name, address, what it is.
const ADDRESSES: &[(&str, u32, &str)] = &[
    ("ID", 0x000, "reads as 0x4f544f45"),
    ("TOO_LONG", 0x010, "packets that were longer than a slot, and dropped"),
    ("TAIL_DROPS", 0x014, "packets and copies that found their queue full"),
    ("ENTERED", 0x018, "packets that entered ingress"),
    ("LEFT", 0x01c, "packets that left"),
    ("TARGET", 0x020, "of the next command: number of a table, register or counter"),
    ("INDEX", 0x024, "which entry; 0xffffffff is a table's default"),
    ("COMMAND", 0x028, "1 writes the entry, 2 reads it; answered when done"),
    ("SESSION", 0x02c, "a mirror session: its number in bits 19:16, 0x200, its port in bits 8:0"),
    ("GENERATOR_PERIOD", 0x030, "clocks from batch to batch of the packet generator; 0 stops it"),
    ("GENERATOR_BATCH", 0x034, "packets of a batch in bits 15:0, the port at which they come in bits 24:16"),
    ("DATA", 0x100, "what is written, the lowest word first"),
    ("RESULT", 0x200, "what was read, the lowest word first"),
];
/// Targets of egress have numbers from here on.
const EGRESS: usize = 256;

/// Both halves, and all around them.
#[derive(Debug, Clone)]
pub struct Around {
    /// All files of the design, each behind those that it uses.
    pub files: Vec<SourceFile>,
    /// The register map for C.
    pub header: String,
    /// The register map as JSON.
    pub json: String,
}

impl Around {
    /// The modules around both halves, ingress first.
    pub fn new(halves: &[Design; 2]) -> Around {
        let mut files = vec![SourceFile { name: "top_pkg".into(), text: package(halves) }];
        let around = MODULES.iter().map(|(name, text)| SourceFile { name: (*name).into(), text: (*text).into() });
        for file in halves.iter().flat_map(|half| half.files.iter().cloned()).chain(around) {
            if files.iter().all(|known| known.name != file.name) {
                files.push(file);
            }
        }
        let maps = [&halves[0].map, &halves[1].map];
        Around { files, header: header(maps), json: json(maps) }
    }

    /// Writes what the halves' own folder does not have yet, with `top.f`, `top.h` and `top.json`.
    ///
    /// # Errors
    /// A sentence, where the system refuses.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let list: String = self.files.iter().map(|file| format!("{}.sv\n", file.name)).collect();
        let files = self.files.iter().map(|file| (format!("{}.sv", file.name), &file.text));
        let maps = [("top.f", &list), ("top.h", &self.header), ("top.json", &self.json)];
        for (name, text) in files.chain(maps.map(|(name, text)| (name.to_string(), text))) {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
        Ok(())
    }
}

/// Sizes of both halves.
fn package(halves: &[Design; 2]) -> String {
    let mut out = String::from("// Sizes of both halves, for top.\npackage top_pkg;\n");
    let mut between = 0;
    let mut control = 0;
    for Design { map, .. } in halves {
        let letter = if map.gress == Gress::Ingress { 'I' } else { 'E' };
        // A half without mirrors has ports of one that is never valid.
        let copies = if map.mirrors.is_empty() { vec![8] } else { map.mirrors.clone() };
        let bits: Vec<String> = copies.iter().rev().map(|bits| format!("16'd{bits}")).collect();
        let sizes = [
            ("IN", map.in_bytes),
            ("OUT", map.out_bytes),
            ("COPIES", copies.len() as u32),
            ("COPY_TOTAL", copies.iter().sum()),
            ("CONTROL", map.control_bits),
        ];
        for (name, value) in sizes {
            let _ = writeln!(out, "  localparam int {letter}_{name} = {value};");
        }
        let last = 16 * copies.len() - 1;
        let _ = writeln!(out, "  localparam logic [{last}:0] {letter}_COPY_BITS = {{{}}};", bits.join(", "));
        // What egress sees of a packet, or a copy as a whole.
        let seen = if map.gress == Gress::Egress { map.in_bytes } else { 0 };
        between = copies.iter().map(|bits| bits.div_ceil(8)).chain([seen, between]).max().unwrap_or(0);
        control = control.max(map.control_bits);
    }
    let _ = writeln!(out, "  localparam int BETWEEN = {between};\n  localparam int CONTROL = {control};\nendpackage");
    out
}

/// A name of the program as one of C.
fn constant(map: &Map, name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("TOP_{}_{plain}", map.gress.name().to_uppercase())
}

/// Number of a half's first target.
fn first(map: &Map) -> usize {
    if map.gress == Gress::Egress { EGRESS } else { 0 }
}

fn header(maps: [&Map; 2]) -> String {
    let mut out = String::from(
        "/* Register map of top, for AXI4-Lite: 32 bits at each address. Made by opentoe p4 rtl; docs/RTL.md. */\n\
         #ifndef TOP_H\n#define TOP_H\n\n",
    );
    for (name, address, what) in ADDRESSES {
        let _ = writeln!(out, "#define TOP_{name} 0x{address:03x} /* {what} */");
    }
    for map in maps {
        out.push('\n');
        for (number, target) in map.targets.iter().enumerate() {
            let (name, number) = (constant(map, &target.name), first(map) + number);
            let _ = writeln!(out, "#define {name} {number} /* {} */", target.name);
            if let MappedKind::Register { size, .. } | MappedKind::Counter { size, .. } = target.kind {
                let _ = writeln!(out, "#define {name}_ENTRIES {size}");
            }
        }
    }
    out.push_str("\n#endif\n");
    out
}

fn json(maps: [&Map; 2]) -> String {
    let address = |(name, at, what): &(&str, u32, &str)| {
        format!("{{\"name\": \"{name}\", \"address\": {at}, \"description\": \"{what}\"}}")
    };
    let addresses: Vec<String> = ADDRESSES.iter().map(address).collect();
    let halves = maps.map(|map| {
        let text = map.json();
        format!("{{\"first_target\": {}, \"map\": {}}}", first(map), text.trim_end())
    });
    format!("{{\n\"addresses\": [\n  {}\n],\n\"halves\": [\n{}\n]\n}}\n", addresses.join(",\n  "), halves.join(",\n"))
}
