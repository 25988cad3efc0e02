//! Functions that generated modules call: hashes, the math unit's table.
use super::text::{Text, number};
use crate::ir::{HashKind, MathUnit, Ty};
use crate::ops;

/// The hash engine's functions over so many bits. The name has both.
pub(super) fn hash_name(kind: HashKind, width: u32) -> String {
    let kind = match kind {
        HashKind::Identity => "identity",
        HashKind::Crc16 => "crc16",
        HashKind::Crc32 => "crc32",
        HashKind::Random => "random",
    };
    format!("{kind}_of_{width}")
}

/// Bits of a hash function's result.
pub(super) fn hash_width(kind: HashKind, width: u32) -> u32 {
    match kind {
        HashKind::Identity => width.min(128),
        HashKind::Crc16 => 16,
        HashKind::Crc32 | HashKind::Random => 32,
    }
}

/// A reflected CRC, byte after byte from the left, in each the least significant bit first.
pub(super) fn hash(text: &mut Text, kind: HashKind, width: u32) {
    let name = hash_name(kind, width);
    let out = hash_width(kind, width);
    text.line(format!("function automatic logic [{}:0] {name}(input logic [{}:0] data);", out - 1, width - 1));
    if kind == HashKind::Identity {
        text.line(format!("{name} = {out}'(data);"));
    } else {
        let (init, polynomial, xor) = match kind {
            HashKind::Crc16 => (0, 0xa001, 0),
            HashKind::Random => (0x1234_5678, 0xedb8_8320, 0xffff_ffff),
            _ => (0xffff_ffff, 0xedb8_8320, 0xffff_ffff),
        };
        text.line("integer n;");
        text.line(format!("logic [{}:0] crc;", out - 1));
        text.line(format!("crc = {};", number(init, out)));
        text.line(format!("for (n = 0; n < {width}; n = n + 1) begin"));
        text.line(format!("if (crc[0] ^ data[{width} - 8 * (n / 8) - 8 + n % 8])"));
        text.line(format!("  crc = (crc >> 1) ^ {};", number(polynomial, out)));
        text.line("else");
        text.line("  crc = crc >> 1;");
        text.line("end");
        text.line(format!("{name} = crc ^ {};", number(xor, out)));
    }
    text.line("endfunction");
}

/// The math unit: of the highest bit and the three below it.
pub(super) fn math(text: &mut Text, number_of: usize, unit: MathUnit, ty: Ty) {
    let width = ty.width();
    let name = format!("math_{number_of}");
    text.line(format!("function automatic logic [{0}:0] {name}(input logic [{0}:0] x);", width - 1));
    text.line("case (1'b1)");
    let line = |text: &mut Text, top: u128, condition: String| {
        text.line(format!("{condition}: {name} = {};", number(ops::math(unit, top, ty), width)));
    };
    for bit in (4..width).rev() {
        for lower in (0..8u128).rev() {
            let shift = bit - 3;
            let top = (8 + lower) << shift;
            line(text, top, format!("((x >> {shift}) == {})", number(8 + lower, width)));
        }
    }
    (1..16u128.min(1 << width.min(8))).for_each(|x| line(text, x, format!("(x == {})", number(x, width))));
    text.line(format!("default: {name} = {};", number(0, width)));
    text.line("endcase");
    text.line("endfunction");
}
