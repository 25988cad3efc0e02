//! Types of an object in BTF (kernel Documentation/bpf/btf.rst): for the definitions of maps, and for showing their
//! values. Everything is bounds-checked; an object is untrusted data.

/// Names a type; 0 is `void`.
pub(crate) type TypeId = u32;

/// A member of a struct or union.
#[derive(Debug, Clone)]
pub struct Member {
    /// Empty for an anonymous struct or union inside.
    pub name: String,
    /// Its type.
    pub of: TypeId,
    /// From the start of the struct.
    pub bit_offset: u32,
    /// Bits of a bit field; 0 for others.
    pub bits: u8,
}

/// A type, as far as it matters here.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Type {
    Void,
    Int {
        bytes: u32,
        signed: bool,
        boolean: bool,
        character: bool,
    },
    Float {
        bytes: u32,
    },
    Pointer {
        to: TypeId,
    },
    Array {
        of: TypeId,
        count: u32,
    },
    Struct {
        bytes: u32,
        members: Vec<Member>,
    },
    Union {
        bytes: u32,
        members: Vec<Member>,
    },
    Enum {
        bytes: u32,
        signed: bool,
        values: Vec<(String, u64)>,
    },
    /// Another name for a type; also const, volatile, restrict, tags.
    Alias {
        name: String,
        of: TypeId,
    },
    Variable {
        name: String,
        of: TypeId,
    },
    Section {
        name: String,
        variables: Vec<TypeId>,
    },
    Other,
}

/// All types of an object.
#[derive(Debug, Default, Clone)]
pub struct Types {
    types: Vec<Type>,
    strings: Vec<u8>,
}

/// Reads little-endian numbers, one after the other.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        let (head, remaining) = self.bytes.split_first_chunk()?;
        self.bytes = remaining;
        Some(u16::from_le_bytes(*head))
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (head, remaining) = self.bytes.split_first_chunk()?;
        self.bytes = remaining;
        Some(u32::from_le_bytes(*head))
    }
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, remaining) = self.bytes.split_at_checked(bytes)?;
        self.bytes = remaining;
        Some(head)
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A part of a BTF section by offset and length.
pub(crate) fn part(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

const MAGIC: u16 = 0xeb9f;

impl Types {
    /// Reads a `.BTF` section. `None`: it is damaged.
    pub fn parse(section: &[u8]) -> Option<Types> {
        let mut header = Reader::new(section);
        if header.u16()? != MAGIC {
            return None;
        }
        header.u16()?;
        let start = header.u32()? as usize;
        let (type_at, type_len) = (header.u32()? as usize, header.u32()? as usize);
        let (string_at, string_len) = (header.u32()? as usize, header.u32()? as usize);
        let body = section.get(start..)?;
        let mut types = Types { types: vec![Type::Void], strings: part(body, string_at, string_len)?.to_vec() };
        let mut reader = Reader::new(part(body, type_at, type_len)?);
        while !reader.is_empty() {
            let one = types.read(&mut reader)?;
            types.types.push(one);
        }
        Some(types)
    }

    fn read(&self, reader: &mut Reader<'_>) -> Option<Type> {
        let name = reader.u32()?;
        let info = reader.u32()?;
        let size_or_type = reader.u32()?;
        let (kind, count, flag) = ((info >> 24) & 31, (info & 0xffff) as usize, info >> 31 != 0);
        let name = || self.string(name).unwrap_or_default();
        Some(match kind {
            1 => {
                let encoding = reader.u32()? >> 24;
                let (signed, character, boolean) = (encoding & 1 != 0, encoding & 2 != 0, encoding & 4 != 0);
                let character = character || matches!(name().as_str(), "char" | "unsigned char" | "signed char");
                Type::Int { bytes: size_or_type, signed, boolean, character }
            }
            2 => Type::Pointer { to: size_or_type },
            3 => {
                let (of, _index, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
                Type::Array { of, count }
            }
            4 => Type::Struct { bytes: size_or_type, members: self.members(reader, count, flag)? },
            5 => Type::Union { bytes: size_or_type, members: self.members(reader, count, flag)? },
            6 => Type::Enum { bytes: size_or_type, signed: flag, values: self.values(reader, count, false)? },
            19 => Type::Enum { bytes: size_or_type, signed: flag, values: self.values(reader, count, true)? },
            8..=11 | 18 => Type::Alias { name: if kind == 8 { name() } else { String::new() }, of: size_or_type },
            13 => {
                reader.take(8 * count)?;
                Type::Other
            }
            14 => {
                reader.u32()?;
                Type::Variable { name: name(), of: size_or_type }
            }
            15 => {
                let mut variables = Vec::new();
                for _ in 0..count {
                    variables.push(reader.u32()?);
                    reader.take(8)?;
                }
                Type::Section { name: name(), variables }
            }
            16 => Type::Float { bytes: size_or_type },
            17 => {
                reader.u32()?;
                Type::Other
            }
            7 | 12 => Type::Other,
            _ => return None,
        })
    }

    fn members(&self, reader: &mut Reader<'_>, count: usize, bit_fields: bool) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        for _ in 0..count {
            let name = self.string(reader.u32()?)?;
            let of = reader.u32()?;
            let offset = reader.u32()?;
            let (bits, bit_offset) = if bit_fields { ((offset >> 24) as u8, offset & 0xff_ffff) } else { (0, offset) };
            members.push(Member { name, of, bit_offset, bits });
        }
        Some(members)
    }

    fn values(&self, reader: &mut Reader<'_>, count: usize, wide: bool) -> Option<Vec<(String, u64)>> {
        let mut values = Vec::new();
        for _ in 0..count {
            let name = self.string(reader.u32()?)?;
            let low = u64::from(reader.u32()?);
            let high = if wide { u64::from(reader.u32()?) } else { 0 };
            values.push((name, low | (high << 32)));
        }
        Some(values)
    }

    /// A string by its offset; `None` outside.
    pub fn string(&self, at: u32) -> Option<String> {
        let remaining = self.strings.get(at as usize..)?;
        let end = remaining.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&remaining[..end]).into_owned())
    }

    /// A type by its name; outside all types: [`Type::Other`].
    pub fn get(&self, id: TypeId) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Other)
    }

    /// A type behind its aliases, and the first name on the way.
    pub fn behind_aliases(&self, mut id: TypeId) -> (&Type, &str) {
        let mut first = "";
        for _ in 0..32 {
            let Type::Alias { name, of } = self.get(id) else { break };
            if first.is_empty() {
                first = name;
            }
            id = *of;
        }
        (self.get(id), first)
    }

    /// Bytes of a type's values; `None` for what has none, or is too large or nested to be real.
    pub fn bytes(&self, id: TypeId) -> Option<u32> {
        self.bytes_within(id, 32)
    }

    fn bytes_within(&self, id: TypeId, depth: u32) -> Option<u32> {
        match self.behind_aliases(id).0 {
            Type::Int { bytes, .. } | Type::Float { bytes } | Type::Enum { bytes, .. } => Some(*bytes),
            Type::Struct { bytes, .. } | Type::Union { bytes, .. } => Some(*bytes),
            Type::Pointer { .. } => Some(8),
            Type::Array { of, count } => self.bytes_within(*of, depth.checked_sub(1)?)?.checked_mul(*count),
            _ => None,
        }
    }

    /// The variables of a data section: names and types.
    pub fn variables(&self, section: &str) -> Vec<(&str, TypeId)> {
        let found = self.types.iter().find_map(|one| match one {
            Type::Section { name, variables } if name == section => Some(variables),
            _ => None,
        });
        let variable = |id: &TypeId| match self.get(*id) {
            Type::Variable { name, of } => Some((name.as_str(), *of)),
            _ => None,
        };
        found.map(|ids| ids.iter().filter_map(variable).collect()).unwrap_or_default()
    }
}

/// Where in the source an instruction comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file as the compiler named it.
    pub file: String,
    /// From 1.
    pub line: u32,
}

/// What a `.BTF.ext` section holds that matters here.
#[derive(Default)]
pub(crate) struct Extension {
    /// For each section by name: byte offset of an instruction, and its line.
    pub lines: Vec<(String, u64, Line)>,
    /// It asks for relocation against a kernel's types (CO-RE).
    pub core: bool,
}

impl Extension {
    pub(crate) fn parse(section: &[u8], types: &Types) -> Option<Extension> {
        let mut header = Reader::new(section);
        if header.u16()? != MAGIC {
            return None;
        }
        header.u16()?;
        let start = header.u32()? as usize;
        let _functions = (header.u32()?, header.u32()?);
        let (line_at, line_len) = (header.u32()? as usize, header.u32()? as usize);
        let core = start >= 32 && {
            header.u32()?;
            header.u32()? > 4
        };
        let mut found = Extension { lines: Vec::new(), core };
        let mut reader = Reader::new(part(section.get(start..)?, line_at, line_len)?);
        let record = if reader.is_empty() { 16 } else { reader.u32()? as usize };
        while !reader.is_empty() {
            let name = types.string(reader.u32()?)?;
            for _ in 0..reader.u32()? {
                let mut one = Reader::new(reader.take(record)?);
                let at = u64::from(one.u32()?);
                let file = types.string(one.u32()?)?;
                one.u32()?;
                found.lines.push((name.clone(), at, Line { file, line: one.u32()? >> 10 }));
            }
        }
        Some(found)
    }
}
