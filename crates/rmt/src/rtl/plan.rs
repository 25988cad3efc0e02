//! The control of one half as nodes in stages: what runs when, which values travel between the stages.
use super::expr::refuse;
use super::text::Names;
use crate::deps::{Graph, Why};
use crate::diag::{Pos, Res};
use crate::ir::{Apply, Deparse, Destination, Dst, Expr, FieldId, Gress, ParseOp, Program, Role, Stmt, StmtKind};
use crate::limits::{Group, groups};
use std::collections::BTreeSet;

/// Work of a node.
pub(super) enum Work<'p> {
    /// Decides.
    Condition(&'p Expr),
    /// A table: lookup and action.
    Table(&'p Apply),
    /// Acts.
    Statements(Vec<&'p Stmt>),
}

/// One logical table, as in [`crate::deps`].
pub(super) struct Node<'p> {
    /// Legal in SystemVerilog, and used once.
    pub name: String,
    pub pos: Pos,
    pub work: Work<'p>,
    /// The signal that lets it run; without one, it always runs.
    pub guard: Option<usize>,
    /// Signals behind which an `exit` stands that came before.
    pub exits: Vec<usize>,
    pub stage: usize,
    /// Behind an `exit` that is always taken.
    dead: bool,
}

/// Which outcome of its node a signal stands for.
#[derive(Clone, PartialEq)]
pub(super) enum When {
    True,
    False,
    Hit,
    Miss,
    /// One of these actions ran, by their places in the table's list.
    Ran(Vec<usize>),
    /// None of these.
    Other(Vec<usize>),
}

/// One bit: its node ran, with this outcome.
pub(super) struct Signal {
    pub name: String,
    pub node: usize,
    pub when: When,
}

/// Values passed on at a boundary between stages.
#[derive(Default, Clone)]
pub(super) struct Carried {
    pub fields: BTreeSet<FieldId>,
    pub signals: BTreeSet<usize>,
}

pub(super) struct Plan<'p> {
    pub program: &'p Program,
    pub gress: Gress,
    pub nodes: Vec<Node<'p>>,
    pub signals: Vec<Signal>,
    /// Nodes of each stage, in the order of the program. Stages without any are left out.
    pub stages: Vec<Vec<usize>>,
    /// Before each stage, and behind the last.
    pub carried: Vec<Carried>,
    /// Names of the fields of this half.
    pub fields: Vec<String>,
    /// Names of all registers and counters.
    pub registers: Vec<String>,
    pub counters: Vec<String>,
}

impl<'p> Plan<'p> {
    /// `graph` and `placed` are of the same program.
    pub(super) fn new(
        program: &'p Program,
        gress: Gress,
        graph: &Graph,
        placed: &[usize],
        names: &mut Names,
    ) -> Res<Plan<'p>> {
        let of_half = |f: &crate::ir::Field| if f.gress == gress { names.name(&f.name) } else { String::new() };
        let fields = program.fields.iter().map(of_half).collect();
        let registers = program.registers.iter().map(|r| names.name(&r.name)).collect();
        let counters = program.counters.iter().map(|c| names.name(&c.name)).collect();
        let mut walk = Walk { program, names, nodes: Vec::new(), signals: Vec::new(), exits: Vec::new() };
        walk.block(&program.half(gress).control, None, false);
        let (mut nodes, signals) = (walk.nodes, walk.signals);
        let own: Vec<usize> = (0..graph.nodes.len()).filter(|i| graph.nodes[*i].gress == gress).collect();
        if own.len() != nodes.len() {
            return refuse(Pos::default(), "a control that the placement counts differently");
        }
        stages_of(&mut nodes, &signals, &Placing { graph, own: &own, placed });
        let count = nodes.iter().map(|n| n.stage + 1).max().unwrap_or(0);
        let in_stage = |s: usize| (0..nodes.len()).filter(|i| nodes[*i].stage == s && !nodes[*i].dead).collect();
        let stages: Vec<Vec<usize>> = (0..count).map(in_stage).filter(|list: &Vec<usize>| !list.is_empty()).collect();
        for (number, list) in stages.iter().enumerate() {
            list.iter().for_each(|i| nodes[*i].stage = number);
        }
        let carried = Vec::new();
        let mut plan = Plan { program, gress, nodes, signals, stages, carried, fields, registers, counters };
        plan.one_stage_each(graph, &own)?;
        plan.carry(graph, &own);
        Ok(plan)
    }

    /// A register is one memory, so all that use it stand in one stage.
    fn one_stage_each(&self, graph: &Graph, own: &[usize]) -> Res<()> {
        for (number, register) in self.program.registers.iter().enumerate() {
            let uses = |i: &usize| graph.nodes[own[*i]].uses.registers.contains(&number);
            let stages: BTreeSet<usize> = (0..own.len()).filter(uses).map(|i| self.nodes[i].stage).collect();
            if stages.len() > 1 {
                return refuse(
                    register.pos,
                    format!("`{}`, which two stages use because of an `exit`,", register.name),
                );
            }
        }
        Ok(())
    }

    fn carry(&mut self, graph: &Graph, own: &[usize]) {
        let count = self.stages.len();
        let mut written = vec![parser_writes(self.program, self.gress)];
        let mut live = vec![deparser_reads(self.program, self.gress)];
        for list in &self.stages {
            let mut all = written.last().cloned().unwrap_or_default();
            list.iter().for_each(|i| all.extend(&graph.nodes[own[*i]].uses.writes));
            written.push(all);
        }
        for list in self.stages.iter().rev() {
            let mut all = live.last().cloned().unwrap_or_default();
            for node in list.iter().map(|i| &graph.nodes[own[*i]]) {
                all.extend(node.uses.reads.iter().chain(&node.matched));
            }
            live.push(all);
        }
        live.reverse();
        for boundary in 0..=count {
            let fields = live[boundary].intersection(&written[boundary]).copied().collect();
            let later = |s: &usize| {
                let known =
                    self.nodes[self.signals[*s].node].stage < boundary && !self.nodes[self.signals[*s].node].dead;
                let asks = |n: &Node| !n.dead && n.stage >= boundary && (n.guard == Some(*s) || n.exits.contains(s));
                known && self.nodes.iter().any(asks)
            };
            let signals = (0..self.signals.len()).filter(later).collect();
            self.carried.push(Carried { fields, signals });
        }
    }

    /// Some node reads this signal.
    pub(super) fn is_read(&self, signal: usize) -> bool {
        let asks = |n: &Node| !n.dead && (n.guard == Some(signal) || n.exits.contains(&signal));
        !self.nodes[self.signals[signal].node].dead && self.nodes.iter().any(asks)
    }

    pub(super) fn width(&self, id: FieldId) -> u32 {
        self.program.field(id).ty.width()
    }

    pub(super) fn field(&self, id: FieldId) -> &str {
        &self.fields[id.0 as usize]
    }
}

/// Where the placement put the nodes.
struct Placing<'g> {
    graph: &'g Graph,
    own: &'g [usize],
    placed: &'g [usize],
}

/// The placement's stages, later where an `exit` decides: the graph does not follow it out of its block.
fn stages_of(nodes: &mut [Node], signals: &[Signal], at: &Placing) {
    for i in 0..nodes.len() {
        let mut stage = at.placed[at.own[i]];
        for (earlier, why) in &at.graph.before[at.own[i]] {
            let Ok(known) = at.own.binary_search(earlier) else { continue };
            stage = stage.max(nodes[known].stage + Why::distance(*why));
        }
        for signal in nodes[i].guard.iter().chain(&nodes[i].exits) {
            stage = stage.max(nodes[signals[*signal].node].stage);
        }
        nodes[i].stage = stage;
    }
}

struct Walk<'p, 'n> {
    program: &'p Program,
    names: &'n mut Names,
    nodes: Vec<Node<'p>>,
    signals: Vec<Signal>,
    exits: Vec<usize>,
}

impl<'p> Walk<'p, '_> {
    /// In the order of `deps`, so that numbers agree.
    fn block(&mut self, block: &'p [Stmt], guard: Option<usize>, dead: bool) {
        let mut dead = dead;
        for group in groups(self.program, block) {
            match group {
                Group::Statements(list) => {
                    let pos = list.first().map(|s| s.pos).unwrap_or_default();
                    let name = format!("statements_{}", pos.line);
                    self.push(&name, Node { dead, guard, ..Node::of(pos, Work::Statements(list)) });
                }
                Group::Single(stmt) => match &stmt.kind {
                    StmtKind::If(cond, then, els) => {
                        let name = format!("if_{}", stmt.pos.line);
                        let node = self.push(&name, Node { dead, guard, ..Node::of(stmt.pos, Work::Condition(cond)) });
                        for (body, when) in [(then, When::True), (els, When::False)] {
                            let signal = self.signal(node, when);
                            self.block(body, Some(signal), dead);
                        }
                    }
                    StmtKind::Apply(apply) => {
                        self.apply(apply, Node { dead, guard, ..Node::of(stmt.pos, Work::Table(apply)) })
                    }
                    _ => match guard {
                        Some(signal) => self.exits.push(signal),
                        None => dead = true,
                    },
                },
            }
        }
    }

    fn apply(&mut self, apply: &'p Apply, node: Node<'p>) {
        let dead = node.dead;
        let node = self.push(&self.program.tables[apply.table].name, node);
        for (labels, body) in &apply.arms {
            let signal = self.signal(node, When::Ran(labels.clone()));
            self.block(body, Some(signal), dead);
        }
        let all = apply.arms.iter().flat_map(|(labels, _)| labels.clone()).collect();
        for (when, body) in [(When::Other(all), &apply.default), (When::Hit, &apply.hit), (When::Miss, &apply.miss)] {
            let signal = self.signal(node, when);
            self.block(body, Some(signal), dead);
        }
    }

    fn push(&mut self, name: &str, node: Node<'p>) -> usize {
        let name = self.names.name(name);
        self.nodes.push(Node { name, exits: self.exits.clone(), ..node });
        self.nodes.len() - 1
    }

    fn signal(&mut self, node: usize, when: When) -> usize {
        let ending = match &when {
            When::True => "then",
            When::False => "else",
            When::Hit => "hits",
            When::Miss => "misses",
            When::Ran(_) => "ran",
            When::Other(_) => "other",
        };
        let name = self.names.name(&format!("{}_{ending}", self.nodes[node].name));
        self.signals.push(Signal { name, node, when });
        self.signals.len() - 1
    }
}

impl<'p> Node<'p> {
    fn of(pos: Pos, work: Work<'p>) -> Node<'p> {
        Node { name: String::new(), pos, work, guard: None, exits: Vec::new(), stage: 0, dead: false }
    }
}

fn parser_writes(program: &Program, gress: Gress) -> BTreeSet<FieldId> {
    let half = program.half(gress);
    let stamp = format!("{}_intrinsic_metadata_from_parser_t.global_tstamp", gress.name());
    let mut out: BTreeSet<FieldId> = half.intrinsic.get(&stamp).copied().into_iter().collect();
    for op in half.states.iter().flat_map(|s| &s.ops) {
        match op {
            ParseOp::Extract(h, _) => {
                out.extend(&program.headers[*h].fields);
                out.insert(program.headers[*h].valid);
            }
            // Fields are zero anyway, as long as nothing else is written to them.
            ParseOp::Assign(_, e) if e.constant() == Some(0) => {}
            ParseOp::Assign(dst, _) | ParseOp::Verify(_, dst) | ParseOp::Residual(_, dst) => out.extend(dst.field()),
            ParseOp::Advance(_) | ParseOp::Checksum(..) => {}
        }
    }
    out
}

/// Fields of the architecture that are read around the pipeline.
pub(super) fn outcomes(gress: Gress) -> &'static [&'static str] {
    match gress {
        Gress::Ingress => &[
            "ingress_intrinsic_metadata_for_deparser_t.drop_ctl",
            "ingress_intrinsic_metadata_for_tm_t.ucast_egress_port",
            "ingress_intrinsic_metadata_for_tm_t.qid",
            "ingress_intrinsic_metadata_for_tm_t.bypass_egress",
            "ingress_intrinsic_metadata_for_deparser_t.mirror_egress_port",
            "ingress_intrinsic_metadata_for_deparser_t.mirror_qid",
            PORT_SET,
        ],
        Gress::Egress => &[
            "egress_intrinsic_metadata_for_deparser_t.drop_ctl",
            "egress_intrinsic_metadata_for_deparser_t.mirror_egress_port",
            "egress_intrinsic_metadata_for_deparser_t.mirror_qid",
        ],
    }
}

/// Whether the control chose a port: without one, the packet goes nowhere.
pub(super) const PORT_SET: &str = "ingress_intrinsic_metadata_for_tm_t.ucast_egress_port_set";

fn deparser_reads(program: &Program, gress: Gress) -> BTreeSet<FieldId> {
    let half = program.half(gress);
    let mut out: BTreeSet<FieldId> =
        outcomes(gress).iter().filter_map(|name| half.intrinsic.get(*name).copied()).collect();
    deparse_reads(program, &half.deparser, &mut out);
    out
}

fn deparse_reads(program: &Program, list: &[Deparse], out: &mut BTreeSet<FieldId>) {
    for item in list {
        match item {
            Deparse::Emit(h) if program.headers[*h].intrinsic => {}
            Deparse::Emit(h) => {
                out.extend(&program.headers[*h].fields);
                out.insert(program.headers[*h].valid);
            }
            Deparse::Checksum(values, ..) | Deparse::Digest(_, values) | Deparse::Resubmit(values) => {
                out.extend(values.iter().flat_map(Expr::fields));
            }
            Deparse::If(cond, yes, no) => {
                out.extend(cond.fields());
                deparse_reads(program, yes, out);
                deparse_reads(program, no, out);
            }
            Deparse::Mirror(session, values, _) => {
                out.extend(session.fields());
                out.extend(values.iter().flat_map(Expr::fields));
            }
        }
    }
}

/// The same program, where each assignment of the unicast port of ingress also sets one bit.
pub(super) fn with_port_set(program: &Program) -> Program {
    let mut program = program.clone();
    let port = "ingress_intrinsic_metadata_for_tm_t.ucast_egress_port";
    let Some(port) = program.ingress.intrinsic.get(port).copied() else { return program };
    let bit = FieldId(program.fields.len() as u32);
    let (name, ty) = (PORT_SET.to_string(), crate::ir::Ty::Bit(1));
    program.fields.push(crate::ir::Field { name: name.clone(), ty, gress: Gress::Ingress, role: Role::Intrinsic });
    program.ingress.intrinsic.insert(name, bit);
    let mark = Mark { port, bit };
    mark.block(&mut program.ingress.control);
    program.actions.iter_mut().for_each(|a| mark.block(&mut a.body));
    program
}

struct Mark {
    port: FieldId,
    bit: FieldId,
}

impl Mark {
    fn block(&self, block: &mut Vec<Stmt>) {
        let mut at = 0;
        while at < block.len() {
            let stmt = &mut block[at];
            let pos = stmt.pos;
            let is_port = |dst: &Dst| dst.field() == Some(self.port);
            let sets = match &mut stmt.kind {
                StmtKind::Assign(dst, _)
                | StmtKind::Hash(_, _, dst)
                | StmtKind::Random(dst)
                | StmtKind::Meter(_, _, dst) => is_port(dst),
                StmtKind::Exec(_, _, dsts) => dsts.iter().flatten().any(is_port),
                StmtKind::If(_, then, els) => {
                    self.block(then);
                    self.block(els);
                    false
                }
                StmtKind::Apply(apply) => {
                    let Apply { hit, miss, arms, default, .. } = apply;
                    [hit, miss, default].into_iter().for_each(|body| self.block(body));
                    arms.iter_mut().for_each(|(_, body)| self.block(body));
                    false
                }
                StmtKind::Count(..) | StmtKind::SetValid(..) | StmtKind::Exit => false,
            };
            at += 1;
            if sets {
                let dst = Dst { place: Destination::Field(self.bit), hi: 0, lo: 0 };
                let one = Expr { kind: crate::ir::ExprKind::Const(1), ty: crate::ir::Ty::Bit(1), pos };
                block.insert(at, Stmt { kind: StmtKind::Assign(dst, one), pos });
                at += 1;
            }
        }
    }
}
