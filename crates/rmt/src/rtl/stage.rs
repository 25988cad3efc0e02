//! A stage of the match-action pipeline as a module: up to six clocks. Tables in memories take two, registers one,
//! decisions and actions one. Where timing is split, a register's memory takes two, and decisions, the registers'
//! programs and actions take one each.
use super::expr::{Operands, Packed, assignment, expression, packed, refuse};
use super::functions;
use super::hold::{self, HELD, Names};
use super::lookup;
use super::plan::{Node, Plan, Signal, When, Work};
use super::tables::{Layout, Shape};
use super::text::{Text, fit, logic, number};
use super::timing::Timing;
use super::units::{Holds, Unit, units};
use crate::diag::Res;
use crate::ir::{ExprKind, FieldId, HashKind, Stmt, StmtKind};
use std::collections::BTreeSet;

/// Writes what a body does, or only reports whether it does anything.
type Visit<'v> = dyn FnMut(&mut Option<&mut Text>, &[&Stmt], &Phase) -> Res<bool> + 'v;

/// State that all modules of a half share.
pub(super) struct Shared<'s> {
    /// `ingress` or `egress`.
    pub half: &'static str,
    pub timing: Timing,
    /// Bits of a control operation's data.
    pub control_bits: u32,
    /// Of each table.
    pub layouts: Vec<Option<Layout>>,
    /// The number of a table, register or counter on the control bus.
    pub target: &'s dyn Fn(Target) -> usize,
    /// File and line of a place.
    pub place: &'s dyn Fn(crate::diag::Pos) -> String,
}

/// Targets that the control plane names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Table(usize),
    Holds(Holds),
}

/// Generated module of a stage.
pub(super) struct Made {
    pub text: String,
    pub units: Vec<Unit>,
    /// From its input to its output.
    pub clocks: u32,
}

struct Stage<'s, 'p> {
    plan: &'s Plan<'p>,
    shared: &'s Shared<'s>,
    number: usize,
    units: Vec<Unit>,
    /// It has tables in memories.
    looks_up: bool,
}

/// Names in a phase of a stage: of the struct that holds the fields, and of the action data.
struct Phase<'s, 'p> {
    stage: &'s Stage<'s, 'p>,
    holder: &'s str,
    /// Fields that have a variable, since the stage writes them.
    variables: &'s BTreeSet<FieldId>,
    /// Action data: its name, its bits, and where each parameter begins.
    args: Option<(String, u32, Vec<u32>)>,
}

impl Operands for Phase<'_, '_> {
    fn field(&self, id: FieldId) -> String {
        let plan = self.stage.plan;
        if self.variables.contains(&id) {
            plan.field(id).into()
        } else if plan.carried[self.stage.number].fields.contains(&id) {
            format!("{}.{}", self.holder, plan.field(id))
        } else {
            number(0, plan.width(id))
        }
    }
    fn arg(&self, number_of: usize, width: u32) -> String {
        match &self.args {
            Some((name, bits, _)) if *bits == width => name.clone(),
            Some((name, _, at)) => format!("{name}[{}:{}]", at[number_of] + width - 1, at[number_of]),
            None => number(0, width),
        }
    }
}

/// The module of a stage.
pub(super) fn module(plan: &Plan, shared: &Shared, number: usize) -> Res<Made> {
    let mut stage = Stage { plan, shared, number, units: units(plan, number)?, looks_up: false };
    stage.looks_up = stage.tables().iter().any(|(_, t)| stage.layout(*t).shape != Shape::Constant);
    let mut text = Text::default();
    stage.head(&mut text);
    stage.hashes(&mut text)?;
    stage.delays(&mut text);
    for node in &plan.stages[number] {
        stage.decide(&mut text, &plan.nodes[*node])?;
        stage.signals(&mut text, *node)?;
    }
    for unit in &stage.units {
        stage.access(&mut text, unit)?;
    }
    stage.holds(&mut text);
    stage.act(&mut text)?;
    let runs = plan.stages[number].iter().map(|i| format!("{}_run", plan.nodes[*i].name));
    text.line(format!("wire unused_bits = &{{1'b0, m, m_ctl, {}}};", runs.collect::<Vec<_>>().join(", ")));
    text.line("endmodule");
    let clocks = 1 + 2 * u32::from(stage.looks_up) + stage.held() as u32;
    Ok(Made { text: text.text(), units: stage.units, clocks })
}

impl<'p> Stage<'_, 'p> {
    fn layout(&self, table: usize) -> &Layout {
        self.shared.layouts[table].as_ref().expect("each table of the half has a layout")
    }

    /// Nodes that are tables.
    fn tables(&self) -> Vec<(&Node<'p>, usize)> {
        let nodes = self.plan.stages[self.number].iter().map(|i| &self.plan.nodes[*i]);
        nodes.filter_map(|n| if let Work::Table(apply) = &n.work { Some((n, apply.table)) } else { None }).collect()
    }

    fn head(&self, text: &mut Text) {
        let (half, n) = (self.shared.half, self.number);
        text.line(format!("// Stage {n} of {half}:"));
        for node in self.plan.stages[n].iter().map(|i| &self.plan.nodes[*i]) {
            text.line(format!("//   {} ({})", node.name, (self.shared.place)(node.pos)));
        }
        text.line(format!("module {half}_stage_{n} ("));
        text.ports(&[
            "input  logic clk".into(),
            "input  logic rst".into(),
            format!("input  {half}_pkg::s{n}_t in"),
            format!("input  {half}_pkg::control_t in_ctl"),
            format!("output {half}_pkg::s{}_t out", n + 1),
            format!("output {half}_pkg::control_t out_ctl"),
        ]);
    }

    /// Functions of the hash units that this stage uses.
    fn hashes(&self, text: &mut Text) -> Res<()> {
        let mut done = BTreeSet::new();
        for node in &self.plan.stages[self.number] {
            for stmt in super::units::bodies(self.plan, *node).into_iter().flatten() {
                if let StmtKind::Hash(unit, inputs, _) = &stmt.kind {
                    let kind = self.plan.program.hashes[*unit].kind;
                    let bits: u32 = inputs.iter().map(|e| e.ty.width()).sum();
                    let bits = bits.next_multiple_of(8).max(8);
                    if done.insert(functions::hash_name(kind, bits)) {
                        functions::hash(text, kind, bits);
                    }
                }
            }
        }
        Ok(())
    }

    /// `m` is what decisions read: the input, or the input two clocks later where memories are read in between.
    fn delays(&self, text: &mut Text) {
        let (half, n) = (self.shared.half, self.number);
        if self.looks_up {
            text.line(format!("{half}_pkg::s{n}_t p, m;"));
            text.line(format!("{half}_pkg::control_t p_ctl, m_ctl;"));
            text.line("always_ff @(posedge clk) begin");
            text.line("p <= in;");
            text.line("m <= p;");
            text.line("p_ctl <= in_ctl;");
            text.line("m_ctl <= p_ctl;");
            hold::reset(text, &["p", "m"]);
            text.line("end");
        } else {
            text.line(format!("{half}_pkg::s{n}_t m;"));
            text.line(format!("{half}_pkg::control_t m_ctl;"));
            text.line("assign m = in;");
            text.line("assign m_ctl = in_ctl;");
        }
    }

    fn phase<'a>(&'a self, holder: &'a str, variables: &'a BTreeSet<FieldId>) -> Phase<'a, 'p> {
        Phase { stage: self, holder, variables, args: None }
    }

    /// Whether a node runs, and what its table finds.
    fn decide(&self, text: &mut Text, node: &Node) -> Res<()> {
        let none = BTreeSet::new();
        text.line("");
        let mut run = vec!["m.live".to_string()];
        run.extend(node.guard.map(|s| self.signal_at(s)));
        run.extend(node.exits.iter().map(|s| format!("!{}", self.signal_at(*s))));
        text.line(format!("// {}", (self.shared.place)(node.pos)));
        text.line(format!("wire {}_run = {};", node.name, run.join(" && ")));
        let Work::Table(apply) = &node.work else { return Ok(()) };
        let (program, layout) = (self.plan.program, self.layout(apply.table));
        let at = lookup::Lookup {
            program,
            table: &program.tables[apply.table],
            layout,
            name: &node.name,
            target: (self.shared.target)(Target::Table(apply.table)),
        };
        let early = layout.shape != Shape::Constant;
        let operands = self.phase(if early { "in" } else { "m" }, &none);
        if early { at.in_memory(text, &operands) } else { at.constant(text, &operands) }
    }

    /// A signal of an earlier stage, or of this one.
    fn signal_at(&self, signal: usize) -> String {
        let Signal { name, node, .. } = &self.plan.signals[signal];
        if self.plan.nodes[*node].stage < self.number { format!("m.{name}") } else { name.clone() }
    }

    /// Outcomes of a node that others ask for.
    fn signals(&self, text: &mut Text, node: usize) -> Res<()> {
        let none = BTreeSet::new();
        let name = &self.plan.nodes[node].name;
        for (i, signal) in self.plan.signals.iter().enumerate().filter(|(_, s)| s.node == node) {
            if !self.plan.is_read(i) {
                continue;
            }
            let outcome = match (&self.plan.nodes[node].work, &signal.when) {
                (Work::Condition(cond), When::True) => expression(cond, &self.phase("m", &none))?,
                (Work::Condition(cond), _) => format!("!{}", expression(cond, &self.phase("m", &none))?),
                (_, When::Hit) => format!("{name}_hit"),
                (_, When::Miss) => format!("!{name}_hit"),
                (Work::Table(apply), When::Ran(labels)) => self.ran(apply.table, name, labels),
                (Work::Table(apply), When::Other(labels)) => format!("!({})", self.ran(apply.table, name, labels)),
                _ => "1'b1".into(),
            };
            text.line(format!("wire {} = {name}_run && {outcome};", signal.name));
        }
        Ok(())
    }

    /// Whether one of these of the table's actions runs.
    fn ran(&self, table: usize, name: &str, labels: &[usize]) -> String {
        let (layout, info) = (self.layout(table), &self.plan.program.tables[table]);
        let mut numbers: Vec<usize> = labels.iter().map(|l| layout.number(info.actions[*l])).collect();
        numbers.dedup();
        let one = |n: &usize| match layout.action_bits {
            0 => "1'b1".to_string(),
            bits => format!("{name}_action == {}", number(*n as u128, bits)),
        };
        let list: Vec<String> = numbers.iter().map(one).collect();
        if list.is_empty() { "1'b0".into() } else { format!("({})", list.join(" || ")) }
    }

    /// The index of a unit, where all that use it have the same, which is no action data.
    fn index(&self, unit: &Unit) -> Res<Option<String>> {
        let none = BTreeSet::new();
        let phase = self.phase("m", &none);
        let mut all = BTreeSet::new();
        for node in &self.plan.stages[self.number] {
            for stmt in super::units::bodies(self.plan, *node).into_iter().flatten() {
                let (holds, index) = match &stmt.kind {
                    StmtKind::Exec(action, index, _) => {
                        (Holds::Register(self.plan.program.register_actions[*action].register), index)
                    }
                    StmtKind::Count(counter, index) => (Holds::Counter(*counter), index),
                    _ => continue,
                };
                if holds == unit.holds {
                    let mut data = false;
                    index.walk(&mut |e| data |= matches!(e.kind, ExprKind::Arg(_)));
                    let value = fit(&expression(index, &phase)?, index.ty.width(), unit.index_bits);
                    all.insert((!data).then_some(value));
                }
            }
        }
        Ok(if all.len() == 1 { all.pop_first().flatten() } else { None })
    }

    /// A unit's operation and index, in the clock before it works.
    fn access(&self, text: &mut Text, unit: &Unit) -> Res<()> {
        let (name, none) = (&unit.name, BTreeSet::new());
        let target = (self.shared.target)(Target::Holds(unit.holds));
        text.line("");
        text.line(format!("// {}", (self.shared.place)(unit.pos)));
        text.line(format!("{} {name}_op;", logic(unit.op_bits())));
        text.line(format!("{} {name}_index;", logic(unit.index_bits)));
        text.line("always_comb begin");
        text.line(format!("{name}_op = '0;"));
        // Where all have the same index, it does not wait for what is decided.
        let one = self.index(unit)?;
        text.line(format!("{name}_index = {};", one.as_deref().unwrap_or("'0")));
        for node in &self.plan.stages[self.number] {
            self.each_body(
                text,
                *node,
                "",
                &mut |text, stmts, phase| {
                    let mut any = false;
                    for stmt in stmts {
                        let (holds, op, index) = match &stmt.kind {
                            StmtKind::Exec(action, index, _) => {
                                let register = self.plan.program.register_actions[*action].register;
                                (Holds::Register(register), unit.op(*action), index)
                            }
                            StmtKind::Count(counter, index) => (Holds::Counter(*counter), 1, index),
                            _ => continue,
                        };
                        if holds == unit.holds {
                            any = true;
                            if let Some(text) = text.as_deref_mut() {
                                text.line(format!("{name}_op = {};", number(op as u128, unit.op_bits())));
                                let value = fit(&expression(index, phase)?, index.ty.width(), unit.index_bits);
                                if one.is_none() {
                                    text.line(format!("{name}_index = {value};"));
                                }
                            }
                        }
                    }
                    Ok(any)
                },
                &none,
            )?;
        }
        text.line("end");
        let bits: u32 = unit.words(self.plan.program).iter().sum();
        text.line(format!("logic [{}:0] {name}_old;", bits - 1));
        unit.outputs.iter().for_each(|(i, width)| text.line(format!("{} {name}_out_{i};", logic(*width))));
        let working = HELD[self.reads()].holder;
        let mut ports = vec![
            ".clk(clk)".into(),
            format!(".op({name}_op)"),
            format!(".index({name}_index)"),
            format!(".control(m_ctl.valid && m_ctl.target == 8'd{target})"),
            ".control_write(m_ctl.write)".into(),
            ".control_index(m_ctl.index)".into(),
            format!(".control_word({})", fit(&format!("{working}_ctl.data"), self.shared.control_bits, bits)),
            format!(".old({name}_old)"),
        ];
        let phase = self.phase(working, &none);
        ports.extend(unit.fields.iter().map(|f| format!(".{}({})", self.plan.field(*f), phase.field(*f))));
        ports.extend(unit.outputs.keys().map(|i| format!(".out_{i}({name}_out_{i})")));
        text.line(format!("{}_{name} {name} (", self.shared.half));
        text.connect(&ports);
        Ok(())
    }

    /// Calls `f` inside the condition of each of a node's bodies: first without text, to ask whether it has any.
    fn each_body(
        &self,
        text: &mut Text,
        node: usize,
        late: &str,
        f: &mut Visit,
        variables: &BTreeSet<FieldId>,
    ) -> Res<()> {
        let node = &self.plan.nodes[node];
        let holder = if late.is_empty() && variables.is_empty() { "m" } else { self.acting().holder };
        let plain = Phase { stage: self, holder, variables, args: None };
        match &node.work {
            Work::Condition(_) => Ok(()),
            Work::Statements(list) => {
                if f(&mut None, list, &plain)? {
                    text.line(format!("if ({}_run{late}) begin", node.name));
                    f(&mut Some(text), list, &plain)?;
                    text.line("end");
                }
                Ok(())
            }
            Work::Table(apply) => {
                let (program, layout) = (self.plan.program, self.layout(apply.table));
                let mut open = false;
                for (i, action) in layout.actions.iter().enumerate() {
                    let info = &program.actions[*action];
                    let body: Vec<&Stmt> = info.body.iter().collect();
                    let at = (0..info.params.len()).map(|p| layout.arg_at(program, *action, p)).collect();
                    let args =
                        (layout.args_bits > 0).then(|| (format!("{}_args{late}", node.name), layout.args_bits, at));
                    let phase = Phase { stage: self, holder, variables, args };
                    if !f(&mut None, &body, &phase)? {
                        continue;
                    }
                    if !open {
                        text.line(format!("if ({}_run{late}) begin", node.name));
                        if layout.action_bits > 0 {
                            text.line(format!("case ({}_action{late})", node.name));
                        }
                        open = true;
                    }
                    match layout.action_bits {
                        0 => text.line(format!("// {}", info.name)),
                        bits => text.line(format!("{}: begin // {}", number(i as u128, bits), info.name)),
                    }
                    f(&mut Some(text), &body, &phase)?;
                    if layout.action_bits > 0 {
                        text.line("end");
                    }
                }
                if open {
                    if layout.action_bits > 0 {
                        text.line("default: ;");
                        text.line("endcase");
                    }
                    text.line("end");
                }
                Ok(())
            }
        }
    }

    fn split(&self) -> bool {
        self.shared.timing == Timing::Split
    }

    /// Clocks in which the units' memories are read.
    fn reads(&self) -> usize {
        if self.units.is_empty() { 0 } else { self.shared.timing.register_clocks() }
    }

    /// How often what was decided is held for a clock. It is held while the units' memories are read, until it is acted
    /// upon, and behind the units' programs.
    fn held(&self) -> usize {
        self.reads() + usize::from(self.split())
    }

    /// The ending of what the units' programs made, where it is acted upon.
    fn made_ending(&self) -> &'static str {
        if self.split() { "_q" } else { "" }
    }

    /// Of the actions: the struct that holds the fields, and the ending of what was decided.
    fn acting(&self) -> Names {
        HELD[self.held()]
    }

    /// The clocks in which what was decided is held.
    fn holds(&self, text: &mut Text) {
        let mut held: Vec<(String, u32)> = Vec::new();
        for i in &self.plan.stages[self.number] {
            let node = &self.plan.nodes[*i];
            if !matches!(node.work, Work::Condition(_)) {
                held.push((format!("{}_run", node.name), 1));
            }
            if let Work::Table(apply) = &node.work {
                let layout = self.layout(apply.table);
                held.push((format!("{}_action", node.name), layout.action_bits));
                held.push((format!("{}_args", node.name), layout.args_bits));
            }
        }
        held.extend(self.new_signals().into_iter().map(|s| (s, 1)));
        held.retain(|(_, bits)| *bits > 0);
        for clock in 1..=self.held() {
            if clock > 1 {
                held.iter_mut().for_each(|(name, _)| name.push_str(HELD[1].ending));
            }
            if clock > self.reads() {
                held.extend(self.made());
            }
            let kind = format!("{}_pkg::s{}_t", self.shared.half, self.number);
            hold::hold(text, [self.shared.half, &kind], &held, clock);
        }
    }

    /// What the units' programs make of an entry, and the entry.
    fn made(&self) -> Vec<(String, u32)> {
        let mut out = Vec::new();
        for unit in &self.units {
            out.push((format!("{}_old", unit.name), unit.words(self.plan.program).iter().sum()));
            out.extend(unit.outputs.iter().map(|(i, width)| (format!("{}_out_{i}", unit.name), *width)));
        }
        out
    }

    /// Signals of this stage that later ones ask for.
    fn new_signals(&self) -> Vec<String> {
        let carried = &self.plan.carried[self.number + 1].signals;
        let new = carried.iter().map(|s| &self.plan.signals[*s]);
        new.filter(|s| self.plan.nodes[s.node].stage == self.number).map(|s| s.name.clone()).collect()
    }

    /// The actions, and what is handed on.
    fn act(&self, text: &mut Text) -> Res<()> {
        let (half, n) = (self.shared.half, self.number);
        let plan = self.plan;
        let (Names { holder, ending: late }, made) = (self.acting(), self.made_ending());
        let written: BTreeSet<FieldId> = self.written();
        text.line("");
        written.iter().for_each(|f| text.line(format!("{} {};", logic(plan.width(*f)), plan.field(*f))));
        text.line(format!("{half}_pkg::s{}_t next;", n + 1));
        text.line(format!("{half}_pkg::control_t next_ctl;"));
        text.line("always_comb begin");
        let signals = written.iter().map(|f| plan.field(*f)).chain(["next", "next_ctl"]);
        text.begin_gated(&format!("{holder}.slot || {holder}_ctl.valid"), signals);
        let none = BTreeSet::new();
        let before = self.phase(holder, &none);
        written.iter().for_each(|f| text.line(format!("{} = {};", plan.field(*f), before.field(*f))));
        for node in &plan.stages[n] {
            self.each_body(text, *node, late, &mut |text, body, phase| self.statements(text, body, phase), &written)?;
        }
        let after = self.phase(holder, &written);
        for name in ["slot", "live", "rest", "port"] {
            text.line(format!("next.{name} = {holder}.{name};"));
        }
        for id in &plan.carried[n + 1].fields {
            text.line(format!("next.{} = {};", plan.field(*id), after.field(*id)));
        }
        let new = self.new_signals();
        for signal in plan.carried[n + 1].signals.iter().map(|s| &plan.signals[*s].name) {
            let value = if new.contains(signal) { format!("{signal}{late}") } else { format!("{holder}.{signal}") };
            text.line(format!("next.{signal} = {value};"));
        }
        text.line(format!("next_ctl = {holder}_ctl;"));
        for unit in &self.units {
            let bits: u32 = unit.words(plan.program).iter().sum();
            let target = (self.shared.target)(Target::Holds(unit.holds));
            text.line(format!("if ({holder}_ctl.target == 8'd{target})"));
            let old = fit(&format!("{}_old{made}", unit.name), bits, self.shared.control_bits);
            text.line(format!("  next_ctl.data = {old};"));
        }
        text.end_gated();
        text.line("end");
        text.line("always_ff @(posedge clk) begin");
        text.line("out <= next;");
        text.line("out_ctl <= next_ctl;");
        hold::reset(text, &["out"]);
        text.line("end");
        Ok(())
    }

    /// Fields that the stage writes and somebody reads later.
    fn written(&self) -> BTreeSet<FieldId> {
        let mut out = BTreeSet::new();
        for node in &self.plan.stages[self.number] {
            for stmt in super::units::bodies(self.plan, *node).into_iter().flatten() {
                out.extend(crate::limits::Uses::of(self.plan.program, stmt).writes);
            }
        }
        out.retain(|f| self.plan.carried[self.number + 1].fields.contains(f));
        out
    }

    /// Statements of an action; whether there is anything to do.
    fn statements(&self, text: &mut Option<&mut Text>, body: &[&Stmt], phase: &Phase) -> Res<bool> {
        let mut any = false;
        for stmt in body {
            for line in self.statement(stmt, phase)? {
                any = true;
                if let Some(text) = text {
                    text.line(line);
                }
            }
        }
        Ok(any)
    }

    fn statement(&self, stmt: &Stmt, phase: &Phase) -> Res<Vec<String>> {
        let plan = self.plan;
        let to = |dst: &crate::ir::Dst, value: &Packed| {
            let id = dst.field().filter(|id| phase.variables.contains(id))?;
            Some(assignment(plan.field(id), plan.width(id), dst, &value.text, value.width))
        };
        let line = match &stmt.kind {
            StmtKind::Assign(dst, e) => to(dst, &Packed { text: expression(e, phase)?, width: e.ty.width() }),
            StmtKind::SetValid(h, valid) => {
                let id = plan.program.headers[*h].valid;
                let known = phase.variables.contains(&id);
                known.then(|| format!("{} = 1'b{};", plan.field(id), u32::from(*valid)))
            }
            StmtKind::Hash(unit, inputs, dst) => {
                let info = &plan.program.hashes[*unit];
                let bits = packed(inputs, 8, phase)?;
                let out = functions::hash_width(info.kind, bits.width);
                let call = format!("{}({})", functions::hash_name(info.kind, bits.width), bits.text);
                let value = fit(&call, out, info.width);
                debug_assert!(info.kind != HashKind::Identity || out <= 128);
                to(dst, &Packed { text: value, width: info.width })
            }
            StmtKind::Exec(action, _, dsts) => {
                let register = plan.program.register_actions[*action].register;
                let Some(unit) = self.units.iter().find(|u| u.holds == Holds::Register(register)) else {
                    return refuse(stmt.pos, "a register that stands in another stage");
                };
                let made = self.made_ending();
                let value = |i: usize| {
                    let text = format!("{}_out_{i}{made}", unit.name);
                    unit.outputs.get(&i).map(|width| Packed { text, width: *width })
                };
                let each = |(i, dst): (usize, &Option<crate::ir::Dst>)| to(dst.as_ref()?, &value(i)?);
                return Ok(dsts.iter().enumerate().filter_map(each).collect());
            }
            StmtKind::Count(..) => None,
            StmtKind::Random(_) => return refuse(stmt.pos, "a random number"),
            StmtKind::Meter(..) => return refuse(stmt.pos, "a meter"),
            StmtKind::If(..) | StmtKind::Apply(_) | StmtKind::Exit => {
                return refuse(stmt.pos, "a decision in an action");
            }
        };
        Ok(line.into_iter().collect())
    }
}
