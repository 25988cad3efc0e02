//! Keys and values for people: JSON by the object's types.
use crate::btf::{Member, Type, TypeId, Types};
use crate::object::{MapDefinition, MapKind, Object};
use serde_json::{Map, Value, json};

/// Types inside types.
const DEEPEST: u32 = 16;

pub(super) fn key(object: &Object, map: &MapDefinition, bytes: &[u8]) -> Value {
    if map.kind == MapKind::LpmTrie {
        return Value::String(prefix(bytes));
    }
    match map.key_type {
        Some(of) => show(&object.types, of, bytes, DEEPEST),
        None if map.kind.is_array() => number(bytes, false),
        None => hex(bytes),
    }
}

/// `10.0.0.0/8`; other lengths than IPv4's in hex.
fn prefix(key: &[u8]) -> String {
    let bits = key.first_chunk().map_or(0, |bits| u32::from_ne_bytes(*bits));
    match key.get(4..) {
        Some([a, b, c, d]) => format!("{a}.{b}.{c}.{d}/{bits}"),
        Some(data) if data.len() == 16 => {
            let address = <[u8; 16]>::try_from(data).map(std::net::Ipv6Addr::from);
            address.map_or_else(|_| String::new(), |address| format!("{address}/{bits}"))
        }
        data => format!("{}/{bits}", plain_hex(data.unwrap_or_default())),
    }
}

pub(super) fn value(object: &Object, map: &MapDefinition, bytes: &[u8]) -> Value {
    if let Some(section) = &map.section_name {
        return variables(object, section, bytes);
    }
    match map.value_type {
        Some(of) => show(&object.types, of, bytes, DEEPEST),
        None => hex(bytes),
    }
}

/// A section of variables: by their names.
fn variables(object: &Object, section: &str, bytes: &[u8]) -> Value {
    let mut shown = Map::new();
    for (name, of) in object.types.variables(section) {
        let at = object.variables.get(name).copied().unwrap_or(usize::MAX);
        let size = object.types.bytes(of).unwrap_or(0) as usize;
        if let Some(bytes) = bytes.get(at..).and_then(|from_there| from_there.get(..size)) {
            shown.insert(name.into(), show(&object.types, of, bytes, DEEPEST));
        }
    }
    if shown.is_empty() { hex(bytes) } else { Value::Object(shown) }
}

fn show(types: &Types, of: TypeId, bytes: &[u8], depth: u32) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return hex(bytes) };
    let (real, name) = types.behind_aliases(of);
    match real {
        Type::Int { boolean: true, .. } => Value::Bool(bytes.iter().any(|byte| *byte != 0)),
        Type::Int { .. } if name == "__be32" && bytes.len() == 4 => {
            json!(format!("{}.{}.{}.{}", bytes[0], bytes[1], bytes[2], bytes[3]))
        }
        Type::Int { .. } if name == "__be16" && bytes.len() == 2 => json!(u16::from_be_bytes([bytes[0], bytes[1]])),
        Type::Int { signed, .. } if bytes.len() <= 8 => number(bytes, *signed),
        Type::Pointer { .. } => json!(format!("{:#x}", word(bytes))),
        Type::Enum { values, signed, .. } => {
            let mask = u64::MAX >> (64 - 8 * bytes.len().clamp(1, 8));
            let found = values.iter().find(|(_, value)| value & mask == word(bytes));
            found.map_or_else(|| number(bytes, *signed), |(name, _)| json!(name))
        }
        Type::Array { of, .. } => array(types, *of, bytes, depth),
        Type::Struct { members, .. } | Type::Union { members, .. } => {
            let mut shown = Map::new();
            add_members(types, members, bytes, depth, &mut shown);
            Value::Object(shown)
        }
        _ => hex(bytes),
    }
}

fn add_members(types: &Types, members: &[Member], bytes: &[u8], depth: u32, shown: &mut Map<String, Value>) {
    for member in members {
        let at = member.bit_offset as usize / 8;
        if member.bits > 0 {
            let whole = word(bytes.get(at..).unwrap_or_default()) >> (member.bit_offset % 8);
            shown.insert(member.name.clone(), json!(whole & (u64::MAX >> (64 - u32::from(member.bits).min(64)))));
            continue;
        }
        let size = types.bytes(member.of).unwrap_or(0) as usize;
        let Some(part) = bytes.get(at..).and_then(|from_there| from_there.get(..size)) else { continue };
        match (show(types, member.of, part, depth), member.name.is_empty()) {
            // An anonymous struct inside: its members are the outer one's.
            (Value::Object(inner), true) => shown.extend(inner),
            (value, _) => {
                shown.insert(member.name.clone(), value);
            }
        }
    }
}

fn array(types: &Types, of: TypeId, bytes: &[u8], depth: u32) -> Value {
    let size = types.bytes(of).unwrap_or(0) as usize;
    match types.behind_aliases(of).0 {
        Type::Int { character: true, .. } => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            match std::str::from_utf8(&bytes[..end]) {
                Ok(text) if text.chars().all(|c| !c.is_control()) && !text.is_empty() => json!(text),
                _ => hex(bytes),
            }
        }
        _ if size == 0 => hex(bytes),
        _ => Value::Array(bytes.chunks_exact(size).map(|one| show(types, of, one, depth)).collect()),
    }
}

/// Up to eight bytes, little endian.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

fn number(bytes: &[u8], signed: bool) -> Value {
    let shift = 64 - 8 * bytes.len().clamp(1, 8);
    if signed { json!(((word(bytes) << shift) as i64) >> shift) } else { json!(word(bytes)) }
}

fn plain_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex(bytes: &[u8]) -> Value {
    json!(format!("0x{}", plain_hex(bytes)))
}
