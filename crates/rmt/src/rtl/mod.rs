//! SystemVerilog for one half of a program: a parser, the stages of the placement, a deparser, as a pipeline that takes
//! a packet each clock. `docs/RTL.md` describes what is made and what is refused.
mod around;
mod control;
mod deparser;
mod explain;
mod expr;
mod functions;
mod hold;
mod lookup;
mod map;
mod parser;
mod pipeline;
mod plan;
mod stage;
mod sums;
mod tables;
mod text;
mod timing;
mod units;

pub use around::Around;
pub use control::{Control, Operation};
pub use explain::{Explained, Set, explain};
pub use map::{Map, Mapped, MappedKind};
pub use tables::{Layout, Shape};
pub use timing::Timing;

use crate::deps::Graph;
use crate::diag::{Diagnostic, Pos, Res};
use crate::ir::{Gress, Program};
use crate::place::Placement;
use crate::{Loaded, place};
use plan::Plan;
use stage::{Shared, Target};
use std::path::Path;
use units::Holds;

/// A file of SystemVerilog.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Its name: that of the module or package that it holds.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// One half as RTL.
#[derive(Debug, Clone)]
pub struct Design {
    /// Packages first, each module behind those that it uses.
    pub files: Vec<SourceFile>,
    /// Its interface, for what is around it.
    pub map: Map,
}

impl Design {
    /// Writes the files to a folder, which is made where it is missing, with `HALF.f`, which lists them in order, and
    /// `HALF.json`, the map.
    ///
    /// # Errors
    /// A sentence, where the system refuses.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        std::fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
        let write = |name: String, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
        };
        for file in &self.files {
            write(format!("{}.sv", file.name), &file.text)?;
        }
        let half = self.map.gress.name();
        let list: String = self.files.iter().map(|file| format!("{}.sv\n", file.name)).collect();
        write(format!("{half}.f"), &list)?;
        write(format!("{half}.json"), &self.map.json())
    }
}

/// Modules that are the same for all programs.
const LIBRARY: &[(&str, &str)] = &[
    ("rtl_register", include_str!("lib/rtl_register.sv")),
    ("rtl_sum", include_str!("lib/rtl_sum.sv")),
    ("rtl_crc", include_str!("lib/rtl_crc.sv")),
    ("rtl_exact_table", include_str!("lib/rtl_exact_table.sv")),
    ("rtl_ternary_table", include_str!("lib/rtl_ternary_table.sv")),
];

/// One half of a program as SystemVerilog.
///
/// # Errors
/// What cannot be made, with its place.
pub fn generate(loaded: &Loaded, gress: Gress, timing: Timing) -> Result<Design, Vec<Diagnostic>> {
    let program = plan::with_port_set(&loaded.program);
    make(loaded, &program, gress, timing).map_err(|problem| vec![loaded.sources.diagnostic(&problem)])
}

fn make(loaded: &Loaded, program: &Program, gress: Gress, timing: Timing) -> Res<Design> {
    let graph = Graph::new(program)?;
    let Placement { stage, .. } = place::place(program, &graph)?;
    let mut names = text::Names::default();
    let plan = Plan::new(program, gress, &graph, &stage, &mut names)?;
    let mut layouts = Vec::new();
    for table in &program.tables {
        layouts.push(if table.gress == gress { Some(Layout::new(program, table)?) } else { None });
    }
    let targets = targets(&plan, &layouts)?;
    let number = |wanted: Target| targets.iter().position(|t| *t == wanted).unwrap_or(usize::from(u8::MAX));
    let where_is = |pos: Pos| loaded.place(pos);
    let mapped: Vec<Mapped> = targets.iter().map(|t| mapped(program, &layouts, *t)).collect();
    let control_bits = mapped.iter().map(bits).max().unwrap_or(1).max(32);
    let shared = Shared { half: gress.name(), timing, control_bits, layouts, target: &number, place: &where_is };
    let parser = parser::module(&plan, &shared)?;
    let deparser = deparser::module(&plan, &shared)?;
    let mut modules = Vec::new();
    let mut latency = parser.clocks + deparser.clocks;
    for n in 0..plan.stages.len() {
        let made = stage::module(&plan, &shared, n)?;
        latency += made.clocks;
        for unit in &made.units {
            let name = format!("{}_{}", gress.name(), unit.name);
            let text = units::module(&plan, unit, timing.register_clocks(), &name, &where_is(unit.pos))?;
            modules.push(SourceFile { name, text });
        }
        modules.push(SourceFile { name: format!("{}_stage_{n}", gress.name()), text: made.text });
    }
    let map = Map {
        gress,
        in_bytes: parser.in_bytes,
        out_bytes: deparser.out_bytes,
        mirrors: deparser.mirrors,
        control_bits,
        latency,
        targets: mapped,
    };
    let file = |name: &str, text: String| SourceFile { name: name.into(), text };
    let mut files = vec![file(&format!("{}_pkg", gress.name()), pipeline::package(&plan, &map))];
    let ends = [&parser.text, &deparser.text].map(String::as_str);
    let all: String = modules.iter().map(|m| m.text.as_str()).chain(ends).collect();
    // Of the library what these use, and what that uses.
    let uses = |text: &str, name: &str| text.contains(name);
    let needed =
        |name: &str| uses(&all, name) || LIBRARY.iter().any(|(user, text)| uses(&all, user) && uses(text, name));
    files.extend(LIBRARY.iter().filter(|(name, _)| needed(name)).map(|(name, text)| file(name, (*text).into())));
    files.push(file(&format!("{}_parser", gress.name()), parser.text));
    files.extend(modules);
    files.push(file(&format!("{}_deparser", gress.name()), deparser.text));
    files.push(file(gress.name(), pipeline::top(&plan, &map)));
    Ok(Design { files, map })
}

/// What the control bus reaches, in the order of their numbers.
fn targets(plan: &Plan, layouts: &[Option<Layout>]) -> Res<Vec<Target>> {
    let mut out = Vec::new();
    for (i, table) in plan.program.tables.iter().enumerate() {
        let open = layouts[i].as_ref().is_some_and(|l| l.shape != Shape::Constant || !table.const_default);
        if open {
            out.push(Target::Table(i));
        }
    }
    for n in 0..plan.stages.len() {
        out.extend(units::units(plan, n)?.into_iter().map(|u| Target::Holds(u.holds)));
    }
    if out.len() > usize::from(u8::MAX) {
        return expr::refuse(Pos::default(), "a program with more than 255 tables, registers and counters");
    }
    Ok(out)
}

fn mapped(program: &Program, layouts: &[Option<Layout>], target: Target) -> Mapped {
    match target {
        Target::Table(table) => {
            let layout = layouts[table].clone().expect("tables among the targets have a layout");
            Mapped { name: program.tables[table].name.clone(), kind: MappedKind::Table { table, layout } }
        }
        Target::Holds(Holds::Register(register)) => {
            let info = &program.registers[register];
            let words = info.words.iter().map(|ty| ty.width()).collect();
            Mapped { name: info.name.clone(), kind: MappedKind::Register { register, size: info.size, words } }
        }
        Target::Holds(Holds::Counter(counter)) => {
            let info = &program.counters[counter];
            Mapped { name: info.name.clone(), kind: MappedKind::Counter { counter, size: info.size } }
        }
    }
}

/// Bits of control data.
fn bits(target: &Mapped) -> u32 {
    match &target.kind {
        MappedKind::Table { layout, .. } => layout.entry_bits().max(layout.data_bits()),
        MappedKind::Register { words, .. } => words.iter().sum(),
        MappedKind::Counter { .. } => 64,
    }
}
