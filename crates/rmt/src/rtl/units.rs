//! Registers and counters of a stage: their users, and each as a module with its stateful ALU's programs.
use super::expr::{Operands, assignment, expression, refuse};
use super::functions;
use super::plan::{Plan, Work};
use super::text::{Text, bits_for, logic, number};
use crate::diag::{Pos, Res};
use crate::ir::{Destination, Expr, ExprKind, FieldId, Program, Stmt, StmtKind};
use crate::limits::Uses;
use std::collections::{BTreeMap, BTreeSet};

/// Content of a unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holds {
    Register(usize),
    Counter(usize),
}

/// One memory with its programs.
pub(super) struct Unit {
    pub holds: Holds,
    /// As a module, and as an instance in its stage.
    pub name: String,
    /// Programs by their numbers from 1; a counter has one that is no program of the P4's.
    pub programs: Vec<usize>,
    /// Outputs that somebody takes, with their widths.
    pub outputs: BTreeMap<usize, u32>,
    /// Fields of the packet that the programs read.
    pub fields: BTreeSet<FieldId>,
    pub index_bits: u32,
    pub pos: Pos,
}

impl Unit {
    pub(super) fn op_bits(&self) -> u32 {
        bits_for(self.programs.len().max(1) + 1)
    }

    /// Widths of the words of an entry, the lowest first.
    pub(super) fn words(&self, program: &Program) -> Vec<u32> {
        match self.holds {
            Holds::Register(r) => program.registers[r].words.iter().map(|ty| ty.width()).collect(),
            Holds::Counter(_) => vec![64],
        }
    }

    pub(super) fn size(&self, program: &Program) -> u32 {
        match self.holds {
            Holds::Register(r) => program.registers[r].size,
            Holds::Counter(c) => program.counters[c].size,
        }
    }

    /// The number of a program, in the hardware.
    pub(super) fn op(&self, program: usize) -> usize {
        self.programs.iter().position(|p| *p == program).unwrap_or(0) + 1
    }
}

/// The statements that a node runs: of each of its actions, or its own.
pub(super) fn bodies<'p>(plan: &Plan<'p>, node: usize) -> Vec<Vec<&'p Stmt>> {
    match &plan.nodes[node].work {
        Work::Condition(_) => Vec::new(),
        Work::Statements(list) => vec![list.clone()],
        Work::Table(apply) => {
            let table = &plan.program.tables[apply.table];
            let all: BTreeSet<usize> = table.actions.iter().chain([&table.default.action]).copied().collect();
            all.iter().map(|a| plan.program.actions[*a].body.iter().collect()).collect()
        }
    }
}

/// The units of a stage. What is written in it must not be an input of its units, which see the stage's inputs only.
pub(super) fn units(plan: &Plan, stage: usize) -> Res<Vec<Unit>> {
    let mut found: BTreeMap<Holds, Unit> = BTreeMap::new();
    let live = &plan.carried[stage + 1].fields;
    for node in &plan.stages[stage] {
        let mut here = BTreeSet::new();
        for body in bodies(plan, *node) {
            let mut written = Uses::default();
            for stmt in body {
                let uses = Uses::of(plan.program, stmt);
                if let StmtKind::Exec(..) | StmtKind::Count(..) = stmt.kind {
                    if uses.reads.intersection(&written.writes).next().is_some() {
                        return refuse(stmt.pos, "a register whose input the same action writes before");
                    }
                    here.insert(use_of(plan, stmt, live, &mut found)?);
                }
                written.merge(uses);
            }
        }
        for holds in here.into_iter().filter(|h| matches!(h, Holds::Counter(_))) {
            let Some(unit) = found.get_mut(&holds) else { continue };
            // A second node would count with a number of its own: only one may use a counter.
            unit.programs.push(*node);
            if unit.programs.len() > 1 {
                return refuse(plan.nodes[*node].pos, "a counter that two tables or statements use");
            }
        }
    }
    Ok(found.into_values().collect())
}

fn use_of(plan: &Plan, stmt: &Stmt, live: &BTreeSet<FieldId>, found: &mut BTreeMap<Holds, Unit>) -> Res<Holds> {
    let program = plan.program;
    let (holds, index, name, pos) = match &stmt.kind {
        StmtKind::Exec(action, index, _) => {
            let register = program.register_actions[*action].register;
            let info = &program.registers[register];
            (Holds::Register(register), index, &plan.registers[register], info.pos)
        }
        StmtKind::Count(counter, index) => {
            let info = &program.counters[*counter];
            (Holds::Counter(*counter), index, &plan.counters[*counter], info.pos)
        }
        _ => return refuse(stmt.pos, "this use of a register"),
    };
    let width = index.ty.width();
    if width > 32 {
        return refuse(stmt.pos, "an index above 32 bits");
    }
    let new = || Unit {
        holds,
        name: name.clone(),
        programs: Vec::new(),
        outputs: BTreeMap::new(),
        fields: BTreeSet::new(),
        index_bits: 1,
        pos,
    };
    let unit = found.entry(holds).or_insert_with(new);
    unit.index_bits = unit.index_bits.max(width);
    if let StmtKind::Exec(action, _, dsts) = &stmt.kind {
        if !unit.programs.contains(action) {
            unit.programs.push(*action);
        }
        let info = &program.register_actions[*action];
        for (i, dst) in dsts.iter().enumerate() {
            if dst.as_ref().and_then(|d| d.field()).is_some_and(|f| live.contains(&f)) {
                let width = unit.outputs.entry(i).or_insert(1);
                *width = (*width).max(info.outputs[i].width());
            }
        }
        let mut reads = Uses::of(program, stmt).reads;
        // The index is read a clock earlier; what only it reads is no input of the unit.
        let mut body = BTreeSet::new();
        info.body.iter().for_each(|s| body_fields(s, &mut body));
        reads.retain(|f| body.contains(f));
        unit.fields.extend(reads);
    }
    Ok(holds)
}

fn body_fields(stmt: &Stmt, out: &mut BTreeSet<FieldId>) {
    match &stmt.kind {
        StmtKind::Assign(_, e) => out.extend(e.fields()),
        StmtKind::If(cond, then, els) => {
            out.extend(cond.fields());
            then.iter().chain(els).for_each(|s| body_fields(s, out));
        }
        _ => {}
    }
}

/// The stateful ALU's names: words of memory, fields as they come.
struct Alu<'u, 'p> {
    plan: &'u Plan<'p>,
    words: Vec<String>,
}

impl Operands for Alu<'_, '_> {
    fn field(&self, id: FieldId) -> String {
        self.plan.field(id).into()
    }
    fn mem(&self, word: usize, width: u32) -> String {
        self.words.get(word).cloned().unwrap_or_else(|| number(0, width))
    }
}

/// The module of a unit, as `module`, whose entries are read in so many clocks.
pub(super) fn module(plan: &Plan, unit: &Unit, clocks: usize, module: &str, place: &str) -> Res<String> {
    let program = plan.program;
    let (size, widths) = (unit.size(program), unit.words(program));
    let total: u32 = widths.iter().sum();
    let names = word_names(program, unit);
    let mut text = Text::default();
    text.line(format!("// {} ({place}): {size} entries of {}.", unit.name, names.join(" and ")));
    text.line("// The control plane reads and writes entries in clocks of its own, by the same memory port.");
    text.line(format!("module {module} ("));
    text.ports(&ports(plan, unit, total));
    functions_of(&mut text, program, unit);
    let address = bits_for(size as usize);
    let index = super::text::fit("index", unit.index_bits, 32);
    // By clocks behind the index: as late as the entry is at last.
    let late: Vec<String> = (0..=clocks).map(|clock| "_q".repeat(clock)).collect();
    for (name, kind) in [("op", logic(unit.op_bits())), ("control_write", logic(1))] {
        let names: Vec<String> = late[1..].iter().map(|ending| format!("{name}{ending}")).collect();
        text.line(format!("{kind} {};", names.join(", ")));
    }
    text.line("always_ff @(posedge clk) begin");
    for (from, to) in late.iter().zip(&late[1..]) {
        text.line(format!("op{to} <= op{from};"));
        let write = if from.is_empty() { "control && control_write".into() } else { format!("control_write{from}") };
        text.line(format!("control_write{to} <= {write};"));
    }
    text.line("end");
    text.line(format!("logic [{}:0] stored, changed;", total - 1));
    let initial: Vec<String> = match unit.holds {
        Holds::Register(r) => {
            program.registers[r].initial.iter().zip(&widths).rev().map(|(v, w)| number(*v, *w)).collect()
        }
        Holds::Counter(_) => vec!["64'd0".into()],
    };
    text.line(format!(
        "rtl_register #(.WIDTH({total}), .SIZE({size}), .ADDR({address}), .CLOCKS({clocks}), .INITIAL({{{}}})) memory (",
        initial.join(", ")
    ));
    let late = &late[clocks];
    text.connect(&[
        ".clk(clk)".into(),
        format!(".index(control ? control_index : {index})"),
        ".stored(stored)".into(),
        format!(".write(control_write{late} || op{late} != '0)"),
        ".changed(changed)".into(),
    ]);
    programs(&mut text, plan, unit, &names, late)?;
    text.line("endmodule");
    Ok(text.text())
}

fn ports(plan: &Plan, unit: &Unit, total: u32) -> Vec<String> {
    let mut ports = vec![
        "input  logic clk".into(),
        format!("input  {} op", logic(unit.op_bits())),
        format!("input  {} index", logic(unit.index_bits)),
        "input  logic control".into(),
        "input  logic control_write".into(),
        "input  logic [31:0] control_index".into(),
        // With the entry.
        format!("input  {} control_word", logic(total)),
        format!("output {} old", logic(total)),
    ];
    ports.extend(unit.fields.iter().map(|f| format!("input  {} {}", logic(plan.width(*f)), plan.field(*f))));
    ports.extend(unit.outputs.iter().map(|(i, width)| format!("output {} out_{i}", logic(*width))));
    ports
}

fn word_names(program: &Program, unit: &Unit) -> Vec<String> {
    match unit.holds {
        Holds::Register(r) => {
            let info = &program.registers[r];
            (0..info.words.len()).map(|i| format!("mem_{}", info.word_names.get(i).map_or("value", |n| n))).collect()
        }
        Holds::Counter(_) => vec!["mem_value".into()],
    }
}

fn functions_of(text: &mut Text, program: &Program, unit: &Unit) {
    let Holds::Register(_) = unit.holds else { return };
    let mut done = BTreeSet::new();
    for action in &unit.programs {
        program.register_actions[*action].body.iter().for_each(|s| {
            maths(s, &mut |e: &Expr| {
                if let ExprKind::Math(n, _) = e.kind {
                    if done.insert(n) {
                        functions::math(text, n, program.maths[n], e.ty);
                    }
                }
            })
        });
    }
}

fn maths(stmt: &Stmt, f: &mut dyn FnMut(&Expr)) {
    match &stmt.kind {
        StmtKind::Assign(_, e) => e.walk(&mut |e| f(e)),
        StmtKind::If(cond, then, els) => {
            cond.walk(&mut |e| f(e));
            then.iter().chain(els).for_each(|s| maths(s, f));
        }
        _ => {}
    }
}

/// `late` ends the names of what comes with the entry.
fn programs(text: &mut Text, plan: &Plan, unit: &Unit, names: &[String], late: &str) -> Res<()> {
    let program = plan.program;
    let widths = unit.words(program);
    for (name, width) in names.iter().zip(&widths) {
        text.line(format!("{} {name};", logic(*width)));
    }
    text.line("always_comb begin");
    let mut at = 0;
    for (name, width) in names.iter().zip(&widths) {
        text.line(format!("{name} = stored[{}:{at}];", at + width - 1));
        at += width;
    }
    unit.outputs.keys().for_each(|i| text.line(format!("out_{i} = '0;")));
    text.line(format!("case (op{late})"));
    let op = unit.op_bits();
    match unit.holds {
        Holds::Counter(_) => text.line(format!("{op}'d1: mem_value = mem_value + 64'd1;")),
        Holds::Register(_) => {
            let alu = Alu { plan, words: names.to_vec() };
            for action in &unit.programs {
                let info = &program.register_actions[*action];
                text.line(format!("{}: begin // {}", number(unit.op(*action) as u128, op), info.name));
                block(text, &alu, unit, &info.body)?;
                text.line("end");
            }
        }
    }
    text.line("default: ;");
    text.line("endcase");
    text.line("end");
    let joined = names.iter().rev().cloned().collect::<Vec<_>>().join(", ");
    text.line(format!("assign changed = control_write{late} ? control_word : {{{joined}}};"));
    text.line("assign old = stored;");
    Ok(())
}

fn block(text: &mut Text, alu: &Alu, unit: &Unit, body: &[Stmt]) -> Res<()> {
    let widths = unit.words(alu.plan.program);
    for stmt in body {
        match &stmt.kind {
            StmtKind::Assign(dst, e) => {
                let value = expression(e, alu)?;
                match dst.place {
                    Destination::Mem(w) => text.line(assignment(&alu.words[w], widths[w], dst, &value, e.ty.width())),
                    Destination::Out(i) => {
                        if let Some(width) = unit.outputs.get(&i) {
                            text.line(assignment(&format!("out_{i}"), *width, dst, &value, e.ty.width()));
                        }
                    }
                    Destination::Field(_) => {}
                }
            }
            StmtKind::If(cond, then, els) => {
                text.line(format!("if ({}) begin", expression(cond, alu)?));
                block(text, alu, unit, then)?;
                text.line("end");
                if !els.is_empty() {
                    text.line("else begin");
                    block(text, alu, unit, els)?;
                    text.line("end");
                }
            }
            _ => return refuse(stmt.pos, "this statement of a stateful program"),
        }
    }
    Ok(())
}
