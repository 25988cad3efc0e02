//! An ELF object that clang made from C (`clang -O2 -g -target bpf`): its one program with all functions it calls,
//! linked; its maps; its types and lines.
mod maps;
mod sections;

use crate::btf::{Extension, Line, Types};
use crate::insn::{CALL, CONSTANT, IS_FUNCTION, IS_MAP, IS_MAP_DATA, Insn, Raw};
use engine::Stage;
use sections::{Sections, Symbol};
use std::collections::BTreeMap;

pub use maps::{MapDefinition, MapKind};

/// Instructions of a program with all functions that it calls. The kernel allows a million; nothing that runs for each
/// frame needs as many.
const MOST_INSTRUCTIONS: usize = 65_536;

/// The kernel's limit too.
const MOST_FUNCTIONS: usize = 256;

/// A function in a linked program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// As in C.
    pub name: String,
    /// First instruction.
    pub start: usize,
    /// After the last.
    pub end: usize,
}

/// A linked program, not yet checked.
#[derive(Debug, Clone)]
pub struct Object {
    /// The C function's name.
    pub name: String,
    /// By the section's name: `xdp` or `xdp/devmap`.
    pub stage: Stage,
    /// `xdp.frags`: it only needs the headers.
    pub frags: bool,
    /// All instructions; the program's own function first.
    pub code: Vec<Insn>,
    /// In the order of their instructions.
    pub functions: Vec<Function>,
    /// Its maps; [`Insn::Map`] has the index.
    pub maps: Vec<MapDefinition>,
    /// Its types.
    pub types: Types,
    /// Where in their section global variables stand, in bytes.
    pub(crate) variables: BTreeMap<String, usize>,
    lines: BTreeMap<usize, Line>,
    /// The instructions as linked, for the kernel; the `imm` of one that refers to a map is its index.
    pub(crate) raw: Vec<Raw>,
    /// Its licence: some helpers of the kernel are for GPL programs only.
    pub(crate) license: Vec<u8>,
}

impl Object {
    /// Reads an object that has one program. Errors: one sentence with the reason why it cannot be a module.
    pub fn parse(bytes: &[u8]) -> Result<Object, String> {
        Object::parse_program(bytes, None)
    }

    /// Reads one program of an object, by the name of its function: libxdp's objects have several, and may have
    /// programs of other kinds beside them.
    pub fn parse_program(bytes: &[u8], name: Option<&str>) -> Result<Object, String> {
        let sections = Sections::read(bytes)?;
        let (types, extension) = debug_information(&sections)?;
        let (program, stage, frags) = the_program(&sections, name)?;
        let maps = maps::definitions(&sections, &types)?;
        let mut linker = Linker { sections: &sections, maps: &maps, raw: Vec::new(), linked: Vec::new() };
        linker.link(&program)?;
        let mut object = Object {
            name: program.name.clone(),
            stage,
            frags,
            code: Vec::new(),
            functions: linker.linked.iter().map(|(_, function)| function.clone()).collect(),
            lines: lines(&sections, &linker.linked, extension),
            maps: Vec::new(),
            types,
            variables: sections.variables(),
            raw: Vec::new(),
            license: license(&sections),
        };
        let raw = linker.raw;
        object.maps = maps.into_iter().map(|(_, map)| map).collect();
        object.decode(&raw)?;
        object.raw = raw;
        Ok(object)
    }

    /// An object from instructions alone, as tests make it.
    pub fn from_code(name: &str, code: Vec<Insn>, maps: Vec<MapDefinition>) -> Object {
        let functions = vec![Function { name: name.into(), start: 0, end: code.len() }];
        let (types, variables, lines) = (Types::default(), BTreeMap::new(), BTreeMap::new());
        let (name, stage) = (name.into(), Stage::Ingress);
        let (raw, license) = (Vec::new(), Vec::new());
        Object { name, stage, frags: true, code, functions, maps, types, variables, lines, raw, license }
    }

    fn decode(&mut self, raw: &[Raw]) -> Result<(), String> {
        let mut at = 0;
        while let Some(one) = raw.get(at) {
            let insn = one.decode(at, raw.get(at + 1)).map_err(|why| self.sentence(at, &why))?;
            self.code.push(insn);
            if one.code == CONSTANT {
                self.code.push(Insn::Second);
            }
            at = self.code.len();
        }
        Ok(())
    }

    /// The line of C that an instruction comes from, where the object has line information.
    pub fn line(&self, at: usize) -> Option<&Line> {
        let start = self.function(at)?.start;
        self.lines.range(start..=at).next_back().map(|(_, line)| line)
    }

    /// The function that an instruction belongs to.
    pub fn function(&self, at: usize) -> Option<&Function> {
        self.functions.iter().find(|function| (function.start..function.end).contains(&at))
    }

    /// `instruction 12 (in parse, firewall.c:40) WHY`.
    pub fn sentence(&self, at: usize, why: &str) -> String {
        let function = self.function(at).map_or("no function", |function| &function.name);
        match self.line(at) {
            Some(line) => {
                let file = line.file.rsplit('/').next().unwrap_or_default();
                format!("{}: instruction {at} (in {function}, {file}:{}) {why}", self.name, line.line)
            }
            None => format!("{}: instruction {at} (in {function}) {why}", self.name),
        }
    }
}

/// The text of the section `license`, as the kernel's loaders take it.
fn license(sections: &Sections<'_>) -> Vec<u8> {
    let text = sections.by_name("license").map_or(&[][..], |section| section.data);
    text.iter().copied().take_while(|byte| *byte != 0).collect()
}

fn debug_information(sections: &Sections<'_>) -> Result<(Types, Extension), String> {
    let Some(btf) = sections.by_name(".BTF") else {
        return Err("the object has no type information (BTF): compile it with clang -O2 -g -target bpf".into());
    };
    let types = Types::parse(btf.data).ok_or("the object's type information (BTF) is damaged")?;
    let extension = match sections.by_name(".BTF.ext") {
        Some(section) => Extension::parse(section.data, &types).ok_or("the object's BTF.ext section is damaged")?,
        None => Extension::default(),
    };
    if extension.core {
        return Err("the object needs to be adapted to the types of a running kernel (CO-RE), which a module of a \
                    data-path outside the kernel cannot"
            .into());
    }
    Ok((types, extension))
}

/// Kind of the programs in a section, by its name (libbpf's names); `None` for no program, an error for another
/// kind of program.
fn meaning(section: &str) -> Result<Option<(Stage, bool)>, String> {
    match section {
        "xdp" => Ok(Some((Stage::Ingress, false))),
        "xdp.frags" => Ok(Some((Stage::Ingress, true))),
        "xdp/devmap" => Ok(Some((Stage::Egress, false))),
        "xdp.frags/devmap" => Ok(Some((Stage::Egress, true))),
        ".text" => Ok(None),
        other => Err(format!(
            "the section \"{other}\" is for another kind of program: use SEC(\"xdp\"), SEC(\"xdp.frags\"), \
             SEC(\"xdp/devmap\") or SEC(\"xdp.frags/devmap\")"
        )),
    }
}

/// The program of this name, or the only one.
fn the_program(sections: &Sections<'_>, name: Option<&str>) -> Result<(Symbol, Stage, bool), String> {
    let mut found = Vec::new();
    let wanted = |symbol: &&Symbol| name.is_none_or(|name| symbol.name == name);
    for symbol in sections.functions().filter(wanted) {
        let section = &sections.all[symbol.section].name;
        if let Some((stage, frags)) = meaning(section)? {
            // A static function beside the program is one that it calls.
            if symbol.global {
                found.push((symbol.clone(), stage, frags));
            }
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 if name.is_some() => {
            Err(format!("the object has no program `{}`{}", name.unwrap_or_default(), others(sections)))
        }
        0 => Err("the object has no program: mark a function that is not static with SEC(\"xdp\")".into()),
        _ => {
            let names: Vec<&str> = found.iter().map(|(symbol, ..)| symbol.name.as_str()).collect();
            Err(format!("the object has several programs ({}): name one with --program", names.join(", ")))
        }
    }
}

/// Which programs an object has, as the end of a sentence.
fn others(sections: &Sections<'_>) -> String {
    let is_program =
        |symbol: &&Symbol| symbol.global && matches!(meaning(&sections.all[symbol.section].name), Ok(Some(_)));
    let names: Vec<&str> = sections.functions().filter(is_program).map(|symbol| symbol.name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(": it has {}", names.join(", ")) }
}

/// Appends functions to a program as they are called, and makes references to maps and functions good.
struct Linker<'a> {
    sections: &'a Sections<'a>,
    maps: &'a [((usize, u64), MapDefinition)],
    raw: Vec<Raw>,
    linked: Vec<(Symbol, Function)>,
}

impl Linker<'_> {
    /// Appends a function with all that it calls, and returns where it starts.
    fn link(&mut self, symbol: &Symbol) -> Result<usize, String> {
        if let Some((_, function)) = self.linked.iter().find(|(known, _)| known.same_place(symbol)) {
            return Ok(function.start);
        }
        let bytes = self.sections.bytes(symbol).filter(|bytes| !bytes.is_empty() && bytes.len() % 8 == 0);
        let bytes = bytes.ok_or_else(|| format!("the function {} is not made of instructions", symbol.name))?;
        let start = self.raw.len();
        self.raw.extend(bytes.chunks_exact(8).map(Raw::read));
        let function = Function { name: symbol.name.clone(), start, end: self.raw.len() };
        if self.raw.len() > MOST_INSTRUCTIONS || self.linked.len() >= MOST_FUNCTIONS {
            return Err(format!(
                "the program has more than {MOST_INSTRUCTIONS} instructions or {MOST_FUNCTIONS} functions"
            ));
        }
        let range = function.start..function.end;
        self.linked.push((symbol.clone(), function));
        let mut at = range.start;
        while at < range.end {
            self.relocate(symbol, range.start, at)?;
            at += if self.raw[at].code == CONSTANT { 2 } else { 1 };
        }
        Ok(start)
    }

    fn relocate(&mut self, symbol: &Symbol, start: usize, at: usize) -> Result<(), String> {
        let offset = symbol.address + 8 * (at - start) as u64;
        let insn = self.raw[at];
        let target = self.sections.relocation(symbol.section, offset);
        if insn.code == CALL && (insn.src == IS_FUNCTION || target.is_some()) {
            return self.call(symbol, at, offset, target);
        }
        let Some(target) = target else { return Ok(()) };
        if insn.code != CONSTANT || at + 1 >= self.raw.len() {
            return Err(format!("{}: instruction {at} refers to \"{}\" in an unknown way", symbol.name, target.name));
        }
        self.reference(symbol, at, target)
    }

    fn reference(&mut self, symbol: &Symbol, at: usize, target: &Symbol) -> Result<(), String> {
        let imm = self.raw[at].imm as u32;
        let map = self.maps.iter().position(|((section, address), map)| {
            let whole_section = matches!(map.kind, MapKind::Data { .. });
            *section == target.section && (whole_section || *address == target.address + u64::from(imm))
        });
        let map = map.ok_or_else(|| {
            format!("{}: instruction {at} refers to \"{}\", which is no map and no data", symbol.name, target.name)
        })?;
        if matches!(self.maps[map].1.kind, MapKind::Data { .. }) {
            self.raw[at].src = IS_MAP_DATA;
            self.raw[at + 1].imm = imm.wrapping_add(target.address as u32) as i32;
        } else {
            self.raw[at].src = IS_MAP;
            self.raw[at + 1].imm = 0;
        }
        self.raw[at].imm = map as i32;
        Ok(())
    }

    fn call(&mut self, symbol: &Symbol, at: usize, offset: u64, target: Option<&Symbol>) -> Result<(), String> {
        let imm = i64::from(self.raw[at].imm);
        let (section, address) = match target {
            Some(target) if !target.defined => {
                return Err(format!("the program calls \"{}\", which the object does not define", target.name));
            }
            // A symbol of a whole section: the constant is its place in it, less one instruction.
            Some(target) if target.is_section => (target.section, (imm + 1).wrapping_mul(8)),
            Some(target) => (target.section, target.address as i64),
            None => (symbol.section, (offset as i64).wrapping_add((imm + 1).wrapping_mul(8))),
        };
        let callee = self.sections.functions().find(|f| f.section == section && f.address as i64 == address).cloned();
        let callee = callee.ok_or_else(|| format!("{}: instruction {at} calls no function", symbol.name))?;
        let start = self.link(&callee)?;
        self.raw[at].src = IS_FUNCTION;
        self.raw[at].imm = (start as i64 - at as i64 - 1) as i32;
        Ok(())
    }
}

fn lines(sections: &Sections<'_>, linked: &[(Symbol, Function)], extension: Extension) -> BTreeMap<usize, Line> {
    let mut found = BTreeMap::new();
    for (section, at, line) in extension.lines {
        for (symbol, function) in linked {
            let inside = at.checked_sub(symbol.address).map(|bytes| bytes as usize / 8);
            if let Some(inside) = inside.filter(|inside| *inside < function.end - function.start) {
                if sections.all[symbol.section].name == section {
                    found.insert(function.start + inside, line.clone());
                }
            }
        }
    }
    found
}
