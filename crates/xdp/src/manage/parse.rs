//! Keys and values as people write them: numbers, addresses, hex bytes, JSON by the object's types.
use crate::btf::{Member, Type, TypeId, Types};
use crate::object::{MapDefinition, MapKind, Object};
use serde_json::Value;
use std::net::IpAddr;

const DEEPEST: u32 = 16;

/// A key: `5`, `10.0.0.1`, `10.0.0.0/8` (for an LPM trie), hex bytes (`0x0a000001`, or `0a 00 00 01`), or JSON.
pub(super) fn key(object: &Object, map: &MapDefinition, text: &str) -> Result<Vec<u8>, String> {
    let size = map.key_size as usize;
    if map.kind == MapKind::LpmTrie {
        if let Some(bytes) = prefix(text, size) {
            return bytes;
        }
    }
    bytes(object, map.key_type, text, vec![0; size]).map_err(|why| sentence(map, "key", size, text, &why))
}

/// A value, in the same ways. `before`: what is there, for members that JSON leaves out.
pub(super) fn value(object: &Object, map: &MapDefinition, text: &str, before: Vec<u8>) -> Result<Vec<u8>, String> {
    let size = map.value_size as usize;
    bytes(object, map.value_type, text, before).map_err(|why| sentence(map, "value", size, text, &why))
}

fn sentence(map: &MapDefinition, what: &str, size: usize, text: &str, why: &str) -> String {
    format!("\"{text}\" is no {what} of the map \"{}\" ({size} bytes): {why}", map.name)
}

/// `10.0.0.0/8` as prefix length and data; none: it has another form.
fn prefix(text: &str, size: usize) -> Option<Result<Vec<u8>, String>> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let data = match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let most = data.len() * 8;
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most);
    Some(match bits {
        None => Err(format!("\"{text}\" is no prefix: the length is 0 to {most}")),
        Some(_) if data.len() + 4 != size => Err(format!("\"{text}\" has another length than the map's keys")),
        Some(bits) => Ok([(bits as u32).to_ne_bytes().to_vec(), data].concat()),
    })
}

fn bytes(object: &Object, of: Option<TypeId>, text: &str, mut into: Vec<u8>) -> Result<Vec<u8>, String> {
    let text = text.trim();
    if let Some(hex) = hex(text) {
        let hex = hex?;
        if hex.len() != into.len() {
            return Err(format!("these are {} bytes", hex.len()));
        }
        return Ok(hex);
    }
    let json = match serde_json::from_str::<Value>(text) {
        Ok(value) => value,
        Err(error) if text.starts_with(['{', '[']) => return Err(format!("it is no JSON: {error}")),
        Err(_) => Value::String(text.into()),
    };
    match of {
        Some(of) => put(&object.types, of, &json, &mut into, DEEPEST)?,
        None => scalar(&json, false, &mut into)?,
    }
    Ok(into)
}

/// `0x...` with an even number of digits that are bytes in their order, or bytes with spaces between; none: neither.
fn hex(text: &str) -> Option<Result<Vec<u8>, String>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let digits: String = match words.as_slice() {
        [one] => one.strip_prefix("0x")?.into(),
        many if many.len() > 1 && many.iter().all(|word| word.len() == 2) => many.concat(),
        _ => return None,
    };
    if digits.len() % 2 != 0 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Some(Err("hex bytes have two digits each".into()));
    }
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|error| error.to_string());
    Some((0..digits.len()).step_by(2).map(byte).collect())
}

fn put(types: &Types, of: TypeId, json: &Value, into: &mut [u8], depth: u32) -> Result<(), String> {
    let depth = depth.checked_sub(1).ok_or("its type is nested too deep")?;
    let (real, name) = types.behind_aliases(of);
    match (real, json) {
        (Type::Struct { members, .. } | Type::Union { members, .. }, Value::Object(given)) => {
            for (name, value) in given {
                let (member, at) = find(types, members, name, 0, depth).ok_or_else(|| unknown(types, members, name))?;
                put_member(types, member, at, value, into, depth)?;
            }
            Ok(())
        }
        // A struct of one member is as good as the member.
        (Type::Struct { members, .. }, _) if members.len() == 1 => {
            put_member(types, &members[0], members[0].bit_offset as usize, json, into, depth)
        }
        (Type::Struct { members, .. } | Type::Union { members, .. }, _) => {
            let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            Err(format!("it has members: write {{\"{}\": ...}}", names.join("\": ..., \"")))
        }
        (Type::Array { of, count }, Value::Array(given)) if given.len() == *count as usize => {
            let size = types.bytes(*of).unwrap_or(0).max(1) as usize;
            given.iter().zip(into.chunks_mut(size)).try_for_each(|(one, part)| put(types, *of, one, part, depth))
        }
        (Type::Array { .. }, Value::String(text)) => {
            let good = hex(text).and_then(Result::ok).unwrap_or_else(|| text.clone().into_bytes());
            if good.len() > into.len() {
                return Err(format!("\"{text}\" is longer than {} bytes", into.len()));
            }
            into.fill(0);
            into[..good.len()].copy_from_slice(&good);
            Ok(())
        }
        (Type::Enum { values, .. }, Value::String(text)) => {
            let value = values.iter().find(|(name, _)| name == text);
            let names = || values.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            let value = value.ok_or_else(|| format!("\"{text}\" is none of {}", names()))?.1;
            let len = into.len().min(8);
            into[..len].copy_from_slice(&value.to_le_bytes()[..len]);
            Ok(())
        }
        _ => scalar(json, matches!(name, "__be16" | "__be32" | "__be64"), into),
    }
}

/// A member by its name, also in anonymous structs inside, and its offset in bits.
fn find<'t>(types: &'t Types, members: &'t [Member], name: &str, at: usize, depth: u32) -> Option<(&'t Member, usize)> {
    let depth = depth.checked_sub(1)?;
    members.iter().find_map(|member| {
        let at = at + member.bit_offset as usize;
        match types.behind_aliases(member.of).0 {
            _ if member.name == name => Some((member, at)),
            Type::Struct { members, .. } | Type::Union { members, .. } if member.name.is_empty() => {
                find(types, members, name, at, depth)
            }
            _ => None,
        }
    })
}

fn unknown(_: &Types, members: &[Member], name: &str) -> String {
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    format!("there is no member \"{name}\" among {}", names.join(", "))
}

fn put_member(
    types: &Types,
    member: &Member,
    at: usize,
    value: &Value,
    into: &mut [u8],
    depth: u32,
) -> Result<(), String> {
    if member.bits > 0 {
        return Err(format!("\"{}\" is a bit field: write the whole as hex bytes", member.name));
    }
    let size = types.bytes(member.of).unwrap_or(0) as usize;
    let part = into.get_mut(at / 8..).and_then(|from_there| from_there.get_mut(..size));
    put(types, member.of, value, part.ok_or("its type is damaged")?, depth)
        .map_err(|why| format!("{}: {why}", member.name))
}

/// A number or an address.
fn scalar(json: &Value, network_order: bool, into: &mut [u8]) -> Result<(), String> {
    if let Value::String(text) = json {
        if let Ok(address) = text.parse::<IpAddr>() {
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            if octets.len() != into.len() {
                return Err(format!("{text} has {} bytes, not {}", octets.len(), into.len()));
            }
            into.copy_from_slice(&octets);
            return Ok(());
        }
    }
    let number = match json {
        Value::Bool(value) => i128::from(*value),
        Value::Number(number) => {
            number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)).ok_or("it is no whole number")?
        }
        Value::String(text) => {
            text.parse::<i128>().map_err(|_| "it is neither a number, an address, hex bytes nor JSON")?
        }
        _ => return Err("a number is wanted".into()),
    };
    let bits = 8 * into.len().min(8);
    if into.len() > 8 || number >= 1 << bits || number < -(1 << (bits - 1)) {
        return Err(format!("{number} does not fit into {} bytes", into.len()));
    }
    let mut little = (number as u64).to_le_bytes();
    let little = &mut little[..into.len()];
    if network_order {
        little.reverse();
    }
    into.copy_from_slice(little);
    Ok(())
}
