//! Placement of logical tables into the stages of the match-action pipeline: earliest first, the longest chain first.
//! Ingress and egress share the stages, as they do in the chip.
//!
//! The sizes below are the architecture's as far as they are public. How tables are packed is estimated, on the
//! cautious side, since that is the compiler's own art.
use crate::deps::{Graph, Kind, Node};
use crate::diag::{Problem, Res};
use crate::ir::{Action, ExprKind, MatchKind, Program, Table};
use std::collections::BTreeSet;

/// Stages of the pipeline.
pub const STAGES: usize = 20;

/// Things of which a stage has so many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    /// Logical tables.
    pub tables: u32,
    /// Gateways.
    pub gateways: u32,
    /// Stateful ALUs (and meters).
    pub alus: u32,
    /// SRAM blocks of 1024 x 128 bits.
    pub sram: u32,
    /// Map RAM blocks.
    pub map_ram: u32,
    /// TCAM blocks of 512 x 44 bits.
    pub tcam: u32,
    /// Instruction words.
    pub vliw: u32,
    /// Bytes of the match crossbar, exact.
    pub exact_bytes: u32,
    /// Bytes of the match crossbar, ternary.
    pub ternary_bytes: u32,
}

/// Resources of a stage.
pub const STAGE: Resources = Resources {
    tables: 16,
    gateways: 16,
    alus: 4,
    sram: 80,
    map_ram: 48,
    tcam: 24,
    vliw: 32,
    exact_bytes: 128,
    ternary_bytes: 66,
};

/// SRAM blocks that one register can have, a spare one among them: half of the stage's map RAM. The chip's compiler
/// accepted 90,113 words of 32 bits and 45,056 pairs, and refused 98,304 and 49,152.
const REGISTER_BLOCKS: u32 = 24;

impl Resources {
    /// In the order of the fields, with names for people.
    pub fn list(&self) -> [(&'static str, u32); 9] {
        [
            ("logical tables", self.tables),
            ("gateways", self.gateways),
            ("stateful ALUs", self.alus),
            ("SRAM blocks", self.sram),
            ("map RAM blocks", self.map_ram),
            ("TCAM blocks", self.tcam),
            ("instructions", self.vliw),
            ("bytes of the exact match crossbar", self.exact_bytes),
            ("bytes of the ternary match crossbar", self.ternary_bytes),
        ]
    }

    /// Sum of both.
    pub fn plus(&self, other: &Resources) -> Resources {
        Resources {
            tables: self.tables + other.tables,
            gateways: self.gateways + other.gateways,
            alus: self.alus + other.alus,
            sram: self.sram + other.sram,
            map_ram: self.map_ram + other.map_ram,
            tcam: self.tcam + other.tcam,
            vliw: self.vliw + other.vliw,
            exact_bytes: self.exact_bytes + other.exact_bytes,
            ternary_bytes: self.ternary_bytes + other.ternary_bytes,
        }
    }

    /// What is not enough, in words.
    fn excess(&self) -> Option<String> {
        let pairs = self.list().into_iter().zip(STAGE.list());
        pairs
            .into_iter()
            .find(|(need, has)| need.1 > has.1)
            .map(|(need, has)| format!("{} {} are needed, and a stage has {}", need.1, need.0, has.1))
    }
}

/// Placement of all tables in stages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    /// Last stage of each node, from 0.
    pub stage: Vec<usize>,
    /// Resources used in each stage.
    pub used: Vec<Resources>,
}

/// Places all nodes, or returns which does not fit where, and why.
pub(crate) fn place(program: &Program, graph: &Graph) -> Res<Placement> {
    let needs: Vec<Resources> = graph.nodes.iter().map(|n| need(program, n)).collect();
    let mut groups = Vec::new();
    for members in register_groups(graph) {
        let shared = group_need(graph, &members, &needs, program);
        fits_a_stage(program, graph, &members, shared)?;
        groups.push(Group { members, shared });
    }
    let mut run = Run { graph, needs, chain: chains(graph), stage: vec![None; graph.nodes.len()], used: Vec::new() };
    for _ in 0..STAGES {
        run.fill_stage(&groups);
    }
    run.finish()
}

/// Nodes that use the same registers, and what they need together.
struct Group {
    members: Vec<usize>,
    shared: Resources,
}

/// Nodes that use the same register must share its stage.
fn register_groups(graph: &Graph) -> Vec<Vec<usize>> {
    let mut groups: Vec<(BTreeSet<usize>, Vec<usize>)> = Vec::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let mut merged = (node.uses.registers.clone(), vec![i]);
        groups.retain(|(registers, members)| {
            let apart = registers.is_disjoint(&merged.0);
            if !apart {
                merged.0.extend(registers);
                merged.1.extend(members);
            }
            apart
        });
        merged.1.sort();
        groups.push(merged);
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// The longest way from each node to an end, in stages.
fn chains(graph: &Graph) -> Vec<usize> {
    let mut chain = vec![0; graph.nodes.len()];
    for later in (0..graph.nodes.len()).rev() {
        for (earlier, why) in &graph.before[later] {
            chain[*earlier] = chain[*earlier].max(chain[later] + why.distance());
        }
    }
    chain
}

/// Registers and their tables stay together; other tables may be spread over stages.
fn fits_a_stage(program: &Program, graph: &Graph, group: &[usize], total: Resources) -> Res<()> {
    for node in group.iter().map(|i| &graph.nodes[*i]) {
        for r in &node.uses.registers {
            let register = &program.registers[*r];
            let blocks = register_blocks(register.size, register.words.iter().map(|w| w.width()).sum());
            if blocks > REGISTER_BLOCKS {
                let message = format!("`{}` with {} entries does not fit into one stage", register.name, register.size);
                return Err(Problem::error(register.pos, message).help(
                    "94,208 entries of 32 bits or 47,104 pairs fit; split it into registers of separate stages",
                ));
            }
        }
    }
    let spread = group.len() == 1 && graph.nodes[group[0]].uses.registers.is_empty();
    let total = if spread { Resources { sram: 0, tcam: 0, map_ram: 0, ..total } } else { total };
    match total.excess() {
        Some(reason) => {
            let node = &graph.nodes[group[0]];
            Err(Problem::error(node.pos, format!("`{}` does not fit into one stage: {reason}", node.name)))
        }
        None => Ok(()),
    }
}

/// Together; a register counts once, however many tables use it.
fn group_need(graph: &Graph, group: &[usize], needs: &[Resources], program: &Program) -> Resources {
    let mut total = group.iter().fold(Resources::default(), |sum, i| sum.plus(&needs[*i]));
    let registers: BTreeSet<usize> = group.iter().flat_map(|i| graph.nodes[*i].uses.registers.clone()).collect();
    for r in registers {
        let register = &program.registers[r];
        let blocks = register_blocks(register.size, register.words.iter().map(|w| w.width()).sum());
        total = total.plus(&Resources { alus: 1, sram: blocks, map_ram: blocks, ..Resources::default() });
    }
    total
}

struct Run<'g> {
    graph: &'g Graph,
    needs: Vec<Resources>,
    chain: Vec<usize>,
    stage: Vec<Option<usize>>,
    used: Vec<Resources>,
}

impl Run<'_> {
    fn fill_stage(&mut self, groups: &[Group]) {
        let now = self.used.len();
        self.used.push(Resources::default());
        loop {
            let mut ready: Vec<&Group> = groups.iter().filter(|g| self.ready(&g.members, now)).collect();
            ready.sort_by_key(|g| std::cmp::Reverse(g.members.iter().map(|i| self.chain[*i]).max()));
            let before = self.stage.iter().flatten().count();
            for group in ready {
                self.try_group(group, now);
            }
            if self.stage.iter().flatten().count() == before {
                return;
            }
        }
    }

    fn ready(&self, group: &[usize], now: usize) -> bool {
        group.iter().all(|i| self.stage[*i].is_none())
            && group.iter().all(|i| {
                self.graph.before[*i].iter().all(|(b, why)| match self.stage[*b] {
                    Some(stage) => stage + why.distance() <= now,
                    None => group.contains(b) && why.distance() == 0,
                })
            })
    }

    fn try_group(&mut self, group: &Group, now: usize) {
        let first = group.members[0];
        let alone = self.graph.nodes[first].uses.registers.is_empty();
        let need = if alone { self.needs[first] } else { group.shared };
        let total = self.used[now].plus(&need);
        if total.excess().is_none() {
            self.used[now] = total;
            group.members.iter().for_each(|i| self.stage[*i] = Some(now));
        } else if alone {
            self.spread(first, now);
        }
    }

    /// A part of a large table's memory into this stage; the rest follows in the next ones.
    fn spread(&mut self, node: usize, now: usize) {
        let need = self.needs[node];
        let free = |used: u32, has: u32| has.saturating_sub(used);
        let sram = need.sram.min(free(self.used[now].sram, STAGE.sram));
        let tcam = need.tcam.min(free(self.used[now].tcam, STAGE.tcam));
        let part = Resources { sram, tcam, ..need };
        let total = self.used[now].plus(&part);
        if total.excess().is_some() || sram * 4 < need.sram.min(16) || (need.tcam > 0 && tcam == 0) {
            return;
        }
        self.used[now] = total;
        self.needs[node].sram -= sram;
        self.needs[node].tcam -= tcam;
    }

    fn finish(self) -> Res<Placement> {
        let missing = (0..self.stage.len()).filter(|i| self.stage[*i].is_none());
        if let Some(first) = missing.min_by_key(|i| std::cmp::Reverse(self.chain[*i])) {
            let node = &self.graph.nodes[first];
            if self.used.last().is_some_and(|last| *last == Resources::default()) {
                let message = format!("`{}` and other users of its registers wait for each other", node.name);
                return Err(Problem::error(node.pos, message).help("all users of a register share its one stage"));
            }
            let message = format!("`{}` would need a stage after the last: the pipeline has {STAGES}", node.name);
            return Err(Problem::error(node.pos, message).help(self.reason(first)));
        }
        let last = self.stage.iter().flatten().max().map_or(0, |s| s + 1);
        let used = self.used[..last].to_vec();
        Ok(Placement { stage: self.stage.into_iter().flatten().collect(), used })
    }

    /// The chain of dependencies that leads to a node.
    fn reason(&self, node: usize) -> String {
        let mut names = vec![self.graph.nodes[node].name.clone()];
        let mut at = node;
        let depth = |i: &usize| self.stage[*i].unwrap_or(STAGES);
        while let Some((b, _)) = self.graph.before[at].iter().max_by_key(|(b, why)| depth(b) + why.distance()) {
            let stage = self.stage[*b].map_or("no stage".into(), |s| format!("stage {s}"));
            names.push(format!("{} ({stage})", self.graph.nodes[*b].name));
            at = *b;
            if names.len() > 24 {
                break;
            }
        }
        names.reverse();
        format!("it waits for {}", names.join(", then "))
    }
}

/// A spare block belongs to each register.
pub(crate) fn register_blocks(entries: u32, bits: u32) -> u32 {
    (entries as u64 * bits.max(8) as u64).div_ceil(1024 * 128) as u32 + 1
}

fn need(program: &Program, node: &Node) -> Resources {
    let mut out = Resources { tables: 1, vliw: node.instructions, ..Resources::default() };
    match node.kind {
        Kind::Gateway => {
            out.tables = 0;
            out.gateways = 1;
            out.exact_bytes = node.matched.iter().map(|f| program.field(*f).ty.width().div_ceil(8)).sum();
        }
        Kind::Statements => {}
        Kind::Table(t) => out = out.plus(&table_memory(program, &program.tables[t])),
    }
    out
}

fn key_bits(table: &Table) -> u32 {
    table.keys.iter().map(|k| k.expr.ty.width()).sum()
}

fn key_bytes(table: &Table) -> u32 {
    table.keys.iter().map(|k| k.expr.ty.width().div_ceil(8)).sum()
}

fn table_memory(program: &Program, table: &Table) -> Resources {
    if table.keys.is_empty() {
        return Resources::default();
    }
    let data = table.actions.iter().map(|a| data_bits(&program.actions[*a])).max().unwrap_or(0);
    let exact = table.keys.iter().all(|k| k.kind == MatchKind::Exact);
    // Action data of up to 32 bits stays beside the match entry.
    let (beside, apart) = if data <= 32 { (data, 0) } else { (0, data) };
    let mut sram = if apart > 0 { data_blocks(table.size, apart) } else { 0 };
    let mut out = Resources::default();
    if exact {
        sram += exact_blocks(table.size, key_bits(table), beside);
        out.exact_bytes = key_bytes(table);
    } else {
        let blocks = (key_bits(table) + 4).div_ceil(44);
        out.tcam = blocks * table.size.div_ceil(512);
        out.ternary_bytes = key_bytes(table);
        if beside > 0 || table.actions.len() > 1 {
            sram += (table.size as u64 * (8 + beside) as u64).div_ceil(1024 * 128).max(1) as u32;
        }
    }
    out.sram = sram;
    out
}

fn data_bits(action: &Action) -> u32 {
    action.params.iter().map(|p| p.1.width().div_ceil(8) * 8).sum()
}

/// Rows of action data are a power of two of bytes wide.
fn data_blocks(entries: u32, bits: u32) -> u32 {
    (entries as u64 * bits.next_power_of_two() as u64).div_ceil(1024 * 128) as u32
}

/// Cuckoo ways of entries: key, data beside it, and 8 bits of version and address, packed into rows one to four
/// blocks wide. Ten bits of the key are known from the hash.
fn exact_blocks(entries: u32, key: u32, beside: u32) -> u32 {
    let entry = key.saturating_sub(10) + beside + 8;
    let best = (1..=4).filter(|w| w * 128 >= entry).map(|wide| {
        let rows = entries.div_ceil(wide * 128 / entry).div_ceil(1024).max(if entries > 64 { 2 } else { 1 });
        rows * wide
    });
    best.min().unwrap_or_else(|| entries.div_ceil(1024) * entry.div_ceil(128))
}

/// Bits of the packet header vector: fields that the program uses, rounded to containers. Headers that are never there
/// at once share theirs.
pub(crate) fn phv_bits(program: &Program, graph: &Graph) -> u32 {
    let used = used_fields(program, graph);
    let round = |w: u32| match w {
        0..=8 => 8,
        9..=16 => 16,
        _ => w.div_ceil(32) * 32,
    };
    let counted = |h: usize| {
        let header = &program.headers[h];
        !header.intrinsic && header.fields.iter().any(|f| used.contains(f))
    };
    let halves = [crate::ir::Gress::Ingress, crate::ir::Gress::Egress];
    let mut bits: u32 = halves.into_iter().map(|gress| crate::overlay::header_bits(program, gress, counted)).sum();
    for (i, field) in program.fields.iter().enumerate() {
        let id = crate::ir::FieldId(i as u32);
        if used.contains(&id) && matches!(field.role, crate::ir::Role::Metadata | crate::ir::Role::Intrinsic) {
            bits += round(field.ty.width());
        }
    }
    bits
}

fn used_fields(program: &Program, graph: &Graph) -> BTreeSet<crate::ir::FieldId> {
    use crate::ir::{Deparse, Gress, ParseOp};
    let mut used = BTreeSet::new();
    for node in &graph.nodes {
        used.extend(node.matched.iter().chain(&node.uses.reads).chain(&node.uses.writes));
    }
    fn deparse(program: &Program, list: &[Deparse], used: &mut BTreeSet<crate::ir::FieldId>) {
        for item in list {
            match item {
                Deparse::Emit(h) => used.extend(&program.headers[*h].fields),
                Deparse::Checksum(values, dst, _) => {
                    used.extend(values.iter().flat_map(|v| v.fields()));
                    used.extend(dst.field());
                }
                Deparse::If(cond, yes, no) => {
                    used.extend(cond.fields());
                    deparse(program, yes, used);
                    deparse(program, no, used);
                }
                Deparse::Mirror(_, values, _) | Deparse::Digest(_, values) | Deparse::Resubmit(values) => {
                    used.extend(values.iter().flat_map(|v| v.fields()));
                }
            }
        }
    }
    for gress in [Gress::Ingress, Gress::Egress] {
        for op in program.half(gress).states.iter().flat_map(|s| &s.ops) {
            if let ParseOp::Assign(dst, value) = op {
                used.extend(dst.field());
                if let ExprKind::Field(f) = value.kind {
                    used.insert(f);
                }
            }
        }
        deparse(program, &program.half(gress).deparser, &mut used);
    }
    used
}
