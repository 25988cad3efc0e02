//! The ELF file: sections, symbols, relocations.
use object::elf;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolKind};
use std::collections::{BTreeMap, HashMap};

pub(super) struct Section<'a> {
    pub name: String,
    pub data: &'a [u8],
    /// Bytes; larger than the data where the section is only zeros.
    pub size: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Symbol {
    pub name: String,
    /// Index into [`Sections::all`].
    pub section: usize,
    /// Bytes from the start of the section.
    pub address: u64,
    size: u64,
    pub global: bool,
    pub defined: bool,
    pub is_section: bool,
    is_function: bool,
}

impl Symbol {
    pub(super) fn same_place(&self, other: &Symbol) -> bool {
        self.section == other.section && self.address == other.address
    }
}

pub(super) struct Sections<'a> {
    pub all: Vec<Section<'a>>,
    symbols: Vec<Symbol>,
    /// From section and byte offset to an index of `symbols`.
    relocations: HashMap<(usize, u64), usize>,
}

/// Names of other machines in the ELF header, for the sentence.
fn machine(number: u16) -> String {
    match number {
        elf::EM_X86_64 => "x86-64".into(),
        elf::EM_AARCH64 => "arm64".into(),
        elf::EM_386 => "x86".into(),
        elf::EM_RISCV => "RISC-V".into(),
        other => format!("machine {other}"),
    }
}

fn check_header(bytes: &[u8]) -> Result<(), String> {
    let how = "compile it with clang -O2 -g -target bpf";
    if !bytes.starts_with(b"\x7fELF") || bytes.len() < 64 {
        return Err(format!("this is no ELF object: {how}"));
    }
    if bytes[5] != 1 {
        return Err(format!("the object is for big-endian machines: {how} (or bpfel)"));
    }
    let number = u16::from_le_bytes([bytes[18], bytes[19]]);
    if number != elf::EM_BPF || bytes[4] != 2 {
        return Err(format!("the object is for {}, not for BPF: {how}", machine(number)));
    }
    Ok(())
}

impl<'a> Sections<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Sections<'a>, String> {
        check_header(bytes)?;
        Sections::from_elf(bytes).map_err(|error| format!("the object is damaged: {error}"))
    }

    fn from_elf(bytes: &'a [u8]) -> object::Result<Sections<'a>> {
        let file = ElfFile64::<Endianness, &[u8]>::parse(bytes)?;
        let mut found = Sections { all: Vec::new(), symbols: Vec::new(), relocations: HashMap::new() };
        let mut place = HashMap::new();
        for section in file.sections() {
            place.insert(section.index(), found.all.len());
            let name = section.name()?.to_string();
            found.all.push(Section { name, data: section.data()?, size: section.size() });
        }
        let mut symbol_place = HashMap::new();
        for symbol in file.symbols() {
            let section = symbol.section_index().and_then(|index| place.get(&index));
            symbol_place.insert(symbol.index(), found.symbols.len());
            let mut name = symbol.name()?.to_string();
            let is_section = symbol.kind() == SymbolKind::Section;
            if let (true, Some(section)) = (is_section, section) {
                name.clone_from(&found.all[*section].name);
            }
            found.symbols.push(Symbol {
                name,
                section: section.copied().unwrap_or(usize::MAX),
                address: symbol.address(),
                size: symbol.size(),
                global: symbol.is_global(),
                defined: section.is_some(),
                is_section,
                is_function: symbol.kind() == SymbolKind::Text && !is_section,
            });
        }
        for section in file.sections() {
            // Only sections of programs: those of debug information are many and not needed.
            if section.name()?.starts_with('.') && section.name()? != ".text" {
                continue;
            }
            for (offset, relocation) in section.relocations() {
                if let RelocationTarget::Symbol(index) = relocation.target() {
                    if let (Some(at), Some(symbol)) = (place.get(&section.index()), symbol_place.get(&index)) {
                        found.relocations.insert((*at, offset), *symbol);
                    }
                }
            }
        }
        Ok(found)
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Section<'a>> {
        self.all.iter().find(|section| section.name == name)
    }

    pub(super) fn functions(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.is_function && symbol.defined)
    }

    /// The symbol at a name in a section.
    pub(super) fn symbol(&self, section: usize, name: &str) -> Option<&Symbol> {
        self.symbols.iter().find(|symbol| symbol.section == section && symbol.name == name && !symbol.is_section)
    }

    /// Where in their section global variables stand.
    pub(super) fn variables(&self) -> BTreeMap<String, usize> {
        let data = self.symbols.iter().filter(|symbol| symbol.defined && !symbol.is_function && !symbol.is_section);
        data.map(|symbol| (symbol.name.clone(), symbol.address as usize)).collect()
    }

    /// What the bytes at an offset of a section refer to.
    pub(super) fn relocation(&self, section: usize, offset: u64) -> Option<&Symbol> {
        self.relocations.get(&(section, offset)).map(|index| &self.symbols[*index])
    }

    /// The bytes of a symbol.
    pub(super) fn bytes(&self, symbol: &Symbol) -> Option<&'a [u8]> {
        let data = self.all.get(symbol.section)?.data;
        data.get(symbol.address as usize..symbol.address.checked_add(symbol.size)? as usize)
    }
}
