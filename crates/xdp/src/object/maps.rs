//! Map definitions of an object. They are structs in the section `.maps` (libbpf's BTF-defined maps), and
//! sections of global variables, each a map with one value.
use super::sections::Sections;
use crate::btf::{Type, TypeId, Types};

/// What a map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// Values by index.
    Array,
    /// The same, each replica its own.
    PerCpuArray,
    /// Values by key.
    Hash,
    /// The same, each replica its own values.
    PerCpuHash,
    /// Values by key; when full, one that was not used lately goes.
    LruHash,
    /// The same, each replica its own values.
    LruPerCpuHash,
    /// Values by prefix; the longest that matches counts.
    LpmTrie,
    /// Records from the program to whoever reads.
    RingBuffer,
    /// A section of global variables.
    Data {
        /// Constants.
        read_only: bool,
    },
}

impl MapKind {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            MapKind::Array => "array",
            MapKind::PerCpuArray => "percpu_array",
            MapKind::Hash => "hash",
            MapKind::PerCpuHash => "percpu_hash",
            MapKind::LruHash => "lru_hash",
            MapKind::LruPerCpuHash => "lru_percpu_hash",
            MapKind::LpmTrie => "lpm_trie",
            MapKind::RingBuffer => "ringbuf",
            MapKind::Data { .. } => "data",
        }
    }

    /// Each replica has its own values.
    pub fn per_cpu(self) -> bool {
        matches!(self, MapKind::PerCpuArray | MapKind::PerCpuHash | MapKind::LruPerCpuHash)
    }

    /// Keys are indices, and all entries are always there.
    pub fn is_array(self) -> bool {
        matches!(self, MapKind::Array | MapKind::PerCpuArray | MapKind::Data { .. })
    }

    /// By its number in linux/bpf.h; otherwise the name, for the sentence.
    fn from_number(number: u32) -> Result<MapKind, String> {
        Ok(match number {
            1 => MapKind::Hash,
            2 => MapKind::Array,
            5 => MapKind::PerCpuHash,
            6 => MapKind::PerCpuArray,
            9 => MapKind::LruHash,
            10 => MapKind::LruPerCpuHash,
            11 => MapKind::LpmTrie,
            27 => MapKind::RingBuffer,
            other => return Err(unsupported(other)),
        })
    }
}

fn unsupported(number: u32) -> String {
    let name = match number {
        3 => "program array",
        4 => "perf event array",
        7 => "stack trace",
        12 => "array of maps",
        13 => "hash of maps",
        14 => "device map",
        15 => "socket map",
        16 => "CPU map",
        17 => "AF_XDP socket map",
        18 => "socket hash",
        22 => "queue",
        23 => "stack",
        25 => "device hash",
        30 => "bloom filter",
        _ => return format!("number {number}"),
    };
    name.into()
}

/// Definition of a map in an object.
#[derive(Debug, Clone)]
pub struct MapDefinition {
    /// The C variable's name, or the section's.
    pub name: String,
    /// What it is.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries; bytes for a ring buffer.
    pub max_entries: u32,
    /// Its keys' type.
    pub key_type: Option<TypeId>,
    /// Its values' type.
    pub value_type: Option<TypeId>,
    /// What a data section starts with.
    pub initial: Vec<u8>,
    /// The variables of a data section and their types.
    pub section_name: Option<String>,
}

impl MapDefinition {
    /// A map without types, as tests make it.
    pub fn plain(name: &str, kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapDefinition {
        MapDefinition {
            name: name.into(),
            kind,
            key_size,
            value_size,
            max_entries,
            key_type: None,
            value_type: None,
            initial: Vec::new(),
            section_name: None,
        }
    }
}

/// A map and where in the object it stands: section and byte.
pub(super) type Placed = ((usize, u64), MapDefinition);

pub(super) fn definitions(sections: &Sections<'_>, types: &Types) -> Result<Vec<Placed>, String> {
    let mut found = Vec::new();
    for (index, section) in sections.all.iter().enumerate() {
        if section.name == ".maps" {
            for (name, of) in types.variables(".maps") {
                let symbol = sections.symbol(index, name);
                let symbol = symbol.ok_or_else(|| format!("the map \"{name}\" has no symbol in the object"))?;
                let map = definition(name, of, types).map_err(|why| format!("the map \"{name}\" {why}"))?;
                found.push(((index, symbol.address), map));
            }
        } else if section.name == "maps" {
            return Err("the object defines maps in the old way (section \"maps\"): define them with \
                        SEC(\".maps\"), as libbpf does"
                .into());
        } else if let Some(map) = data_section(&section.name, section.data, section.size)? {
            found.push(((index, 0), map));
        }
    }
    Ok(found)
}

fn data_section(name: &str, data: &[u8], size: u64) -> Result<Option<MapDefinition>, String> {
    let is = |prefix: &str| name == prefix || name.strip_prefix(prefix).is_some_and(|suffix| suffix.starts_with('.'));
    let read_only = is(".rodata");
    if size == 0 || !(read_only || is(".data") || is(".bss")) {
        return Ok(None);
    }
    let size = u32::try_from(size).ok().filter(|size| *size <= 1 << 20);
    let size = size.ok_or_else(|| format!("the section {name} has more than 1 MiB of variables"))?;
    let mut map = MapDefinition::plain(name, MapKind::Data { read_only }, 4, size, 1);
    map.initial = data.to_vec();
    map.section_name = Some(name.into());
    Ok(Some(map))
}

/// `__uint(name, number)` is a pointer to an array of so many `int`s.
fn number(of: TypeId, types: &Types) -> Option<u32> {
    match types.behind_aliases(of).0 {
        Type::Pointer { to } => match types.behind_aliases(*to).0 {
            Type::Array { count, .. } => Some(*count),
            _ => None,
        },
        _ => None,
    }
}

/// `__type(name, type)` is a pointer to the type.
fn pointee(of: TypeId, types: &Types) -> Option<TypeId> {
    match types.behind_aliases(of).0 {
        Type::Pointer { to } => Some(*to),
        _ => None,
    }
}

fn definition(name: &str, of: TypeId, types: &Types) -> Result<MapDefinition, String> {
    let Type::Struct { members, .. } = types.behind_aliases(of).0 else {
        return Err("is not defined as a struct".into());
    };
    let mut map = MapDefinition::plain(name, MapKind::Array, 0, 0, 0);
    let mut kind = None;
    for member in members {
        let value = || number(member.of, types).ok_or_else(|| format!("has a \"{}\" that is no number", member.name));
        match member.name.as_str() {
            "type" => kind = Some(value()?),
            "max_entries" => map.max_entries = value()?,
            "key_size" => map.key_size = value()?,
            "value_size" => map.value_size = value()?,
            // Flags are hints (BPF_F_NO_PREALLOC), and pinning means file names: neither changes what a program sees.
            "map_flags" | "pinning" | "numa_node" | "map_extra" => {}
            "key" | "value" => {
                let to = pointee(member.of, types);
                let bytes = to.and_then(|to| types.bytes(to));
                let bytes = bytes.ok_or_else(|| format!("has a \"{}\" type without a size", member.name))?;
                if member.name == "key" {
                    (map.key_type, map.key_size) = (to, bytes);
                } else {
                    (map.value_type, map.value_size) = (to, bytes);
                }
            }
            other => return Err(format!("has an attribute \"{other}\", which is not supported")),
        }
    }
    map.kind = match kind {
        Some(number) => MapKind::from_number(number)
            .map_err(|kind| format!("is of a type that is not supported here: {kind}; supported are {SUPPORTED}"))?,
        None => return Err("does not have a type".into()),
    };
    Ok(map)
}

const SUPPORTED: &str = "array, hash, LRU hash, their per-CPU forms, LPM trie and ring buffer";
