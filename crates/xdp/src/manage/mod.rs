//! Management of a loaded program's maps: list, dump, get, set, delete, read rings. No I/O: text and JSON in,
//! text and JSON out; errors are sentences.
mod format;
mod parse;

use crate::maps::{Error, Map, Update};
use crate::object::MapKind;
use crate::program::Program;
use serde_json::{Value, json};

/// What a map is, for a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// Its name.
    pub name: String,
    /// `hash`, `array` and so on ([`MapKind::name`]).
    pub kind: &'static str,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries now; bytes that wait, for a ring buffer.
    pub entries: u32,
    /// Entries at most; bytes for a ring buffer.
    pub max_entries: u32,
}

/// Entries that a dump shows at most.
const MOST_ENTRIES: usize = 65_536;

impl Program {
    /// All maps.
    pub fn map_infos(&self) -> Vec<MapInfo> {
        let info = |map: &Map| MapInfo {
            name: map.definition.name.clone(),
            kind: map.definition.kind.name(),
            key_size: map.definition.key_size,
            value_size: map.definition.value_size,
            entries: map.ring().map_or_else(|| map.entries(), crate::maps::Ring::waiting),
            max_entries: map.definition.max_entries,
        };
        self.maps().iter().map(info).collect()
    }

    /// A map by its name.
    pub fn map(&self, name: &str) -> Result<&Map, String> {
        self.maps().iter().find(|map| map.definition.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.maps().iter().map(|map| map.definition.name.as_str()).collect();
            let has = if names.is_empty() { "it has no maps".into() } else { format!("it has {}", names.join(", ")) };
            format!("the module {} has no map \"{name}\": {has}", self.object().name)
        })
    }

    /// All entries of a map: an array of `{"key": ..., "value": ...}`, values as the object's types show them; per-CPU
    /// maps have `"values"`, one for each replica, instead. At most 65,536.
    pub fn dump(&self, map: &str) -> Result<Value, String> {
        let map = self.keyed(map)?;
        let mut entries = Vec::new();
        map.each(|key, slot| {
            if entries.len() < MOST_ENTRIES {
                entries.push(self.entry(map, key, slot));
            }
        });
        Ok(Value::Array(entries))
    }

    /// One entry of a map, as [`Program::dump`] shows it. `key`: see [`Program::key`].
    pub fn get(&self, map: &str, key: &str) -> Result<Value, String> {
        let map = self.keyed(map)?;
        let bytes = parse::key(self.object(), &map.definition, key)?;
        map.with(&bytes, |slot| slot.map(|slot| self.entry(map, &bytes, slot)))
            .ok_or_else(|| format!("the map \"{}\" has no entry {key}", map.definition.name))
    }

    /// Adds or replaces an entry. `value`: as for keys, or JSON as [`Program::dump`] shows it (members that are left
    /// out keep what they had, or are 0). Per-CPU maps get it for the first replica, and zeros for the others.
    pub fn set(&self, map: &str, key: &str, value: &str) -> Result<(), String> {
        let map = self.keyed(map)?;
        let name = &map.definition.name;
        if map.definition.kind == (MapKind::Data { read_only: true }) {
            return Err(format!("the map \"{name}\" holds constants, which cannot be changed"));
        }
        let key_bytes = parse::key(self.object(), &map.definition, key)?;
        let before = map.with(&key_bytes, |slot| slot.map(|slot| value_bytes(map, slot, 0)));
        let before = before.unwrap_or_else(|| vec![0; map.definition.value_size as usize]);
        let value_bytes = parse::value(self.object(), &map.definition, value, before)?;
        map.update(&key_bytes, &value_bytes, Update::Any, 0).map_err(|error| match error {
            Error::Full if map.definition.kind.is_array() => {
                format!("the map \"{name}\" has entries 0 to {}, not {key}", map.definition.max_entries - 1)
            }
            Error::Full => format!("the map \"{name}\" is full: it has {} entries", map.definition.max_entries),
            Error::Busy => format!("the map \"{name}\" is changing too fast: try again"),
            _ => format!("the map \"{name}\" cannot have the key {key}"),
        })
    }

    /// Removes an entry.
    pub fn delete(&self, map: &str, key: &str) -> Result<(), String> {
        let map = self.keyed(map)?;
        let name = &map.definition.name;
        if map.definition.kind.is_array() {
            return Err(format!("the map \"{name}\" is an array: its entries can be set, not deleted"));
        }
        let bytes = parse::key(self.object(), &map.definition, key)?;
        map.delete(&bytes).map_err(|_| format!("the map \"{name}\" has no entry {key}"))
    }

    /// Takes records out of a ring buffer, oldest first, as bytes; at most `most`.
    pub fn read_ring(&self, map: &str, most: usize) -> Result<Vec<Vec<u8>>, String> {
        let map = self.map(map)?;
        let ring = map.ring().ok_or_else(|| format!("the map \"{}\" is no ring buffer", map.definition.name))?;
        Ok(std::iter::from_fn(|| ring.take()).take(most).collect())
    }

    fn keyed(&self, name: &str) -> Result<&Map, String> {
        let map = self.map(name)?;
        match map.definition.kind {
            MapKind::RingBuffer => Err(format!("the map \"{name}\" is a ring buffer: it has records, not entries")),
            _ => Ok(map),
        }
    }

    fn entry(&self, map: &Map, key: &[u8], slot: u32) -> Value {
        let definition = &map.definition;
        let key = format::key(self.object(), definition, key);
        let show = |copy| format::value(self.object(), definition, &value_bytes(map, slot, copy));
        if definition.kind.per_cpu() {
            json!({ "key": key, "values": (0..map.copies).map(show).collect::<Vec<_>>() })
        } else {
            json!({ "key": key, "value": show(0) })
        }
    }
}

impl Map {
    /// A value as bytes; `replica`: whose, in a per-CPU map.
    pub fn value(&self, key: &[u8], replica: u32) -> Option<Vec<u8>> {
        self.with(key, |slot| slot.map(|slot| value_bytes(self, slot, replica)))
    }

    /// Sets a value as bytes. Errors: a sentence where the sizes are wrong, or it cannot be done.
    pub fn set_value(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let definition = &self.definition;
        let sizes = (definition.key_size as usize, definition.value_size as usize);
        if (key.len(), value.len()) != sizes {
            let name = &definition.name;
            return Err(format!("the map \"{name}\" has keys of {} and values of {} bytes", sizes.0, sizes.1));
        }
        self.update(key, value, Update::Any, 0).map_err(|error| format!("{}: {error:?}", definition.name))
    }

    /// Removes an entry; false: there was none.
    pub fn remove(&self, key: &[u8]) -> bool {
        self.delete(key).is_ok()
    }
}

fn value_bytes(map: &Map, slot: u32, replica: u32) -> Vec<u8> {
    let mut bytes = vec![0; map.definition.value_size as usize];
    map.values.read(map.word(slot, replica), &mut bytes);
    bytes
}
