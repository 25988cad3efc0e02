//! Dependency graph: the logical tables of both halves, and the dependencies between them (match, action and
//! successor dependencies, as in the RMT literature).
use crate::diag::{Pos, Problem, Res, Sources};
use crate::ir::{Apply, FieldId, Gress, Program, Stmt, StmtKind};
use crate::limits::{Group, Uses, groups};
use std::collections::BTreeSet;

/// More can't fit, whatever they are.
const MAX_NODES: usize = 1000;

/// Kind of a logical table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A table of the program.
    Table(usize),
    /// Statements of a control: an action that always runs.
    Statements,
    /// A condition.
    Gateway,
}

/// One logical table.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub name: String,
    pub pos: Pos,
    pub gress: Gress,
    pub kind: Kind,
    /// Fields that decide which action runs.
    pub matched: BTreeSet<FieldId>,
    /// Fields that actions read and write, and registers they use.
    pub uses: Uses,
    /// Instruction words: different actions.
    pub instructions: u32,
    /// Which way at each branch around it: two nodes that differ at one branch never both run.
    path: Vec<(usize, usize)>,
    /// Nodes whose outcome decides whether this one runs.
    parents: Vec<usize>,
}

/// Why one node waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It matches on what the other writes.
    Match,
    /// Its actions need or overwrite what the other writes.
    Action,
    /// It overwrites what the other reads.
    Anti,
    /// The other decides whether it runs.
    Successor,
}

impl Why {
    /// Stages between the two at least.
    pub(crate) fn distance(self) -> usize {
        matches!(self, Why::Match | Why::Action) as usize
    }
}

/// The logical tables in the order of the program, and for each the earlier ones that it waits for.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    pub before: Vec<Vec<(usize, Why)>>,
}

impl Graph {
    /// What has no name of its own is named by its file and line.
    pub(crate) fn name_places(&mut self, sources: &Sources) {
        for node in self.nodes.iter_mut().filter(|node| matches!(node.kind, Kind::Gateway | Kind::Statements)) {
            node.name += &format!(" ({}:{})", sources.file_name(node.pos.file), node.pos.line);
        }
    }

    pub(crate) fn new(program: &Program) -> Res<Graph> {
        let mut builder = Builder { program, nodes: Vec::new(), branches: 0 };
        for gress in [Gress::Ingress, Gress::Egress] {
            builder.block(gress, &program.half(gress).control, &[], &[]);
        }
        if let Some(node) = builder.nodes.get(MAX_NODES) {
            let message = format!("the program has more than {MAX_NODES} tables and conditions");
            return Err(Problem::error(node.pos, message).help("20 stages have 16 tables and 16 gateways each"));
        }
        let mut graph = Graph { before: vec![Vec::new(); builder.nodes.len()], nodes: builder.nodes };
        for later in 0..graph.nodes.len() {
            for earlier in 0..later {
                if let Some(why) = graph.dependency(earlier, later) {
                    graph.before[later].push((earlier, why));
                }
            }
        }
        Ok(graph)
    }

    fn dependency(&self, earlier: usize, later: usize) -> Option<Why> {
        let (a, b) = (&self.nodes[earlier], &self.nodes[later]);
        if a.gress != b.gress || self.exclusive(earlier, later) {
            return None;
        }
        if !a.uses.writes.is_disjoint(&b.matched) {
            Some(Why::Match)
        } else if !a.uses.writes.is_disjoint(&b.uses.reads) || !a.uses.writes.is_disjoint(&b.uses.writes) {
            Some(Why::Action)
        } else if b.parents.contains(&earlier) {
            Some(Why::Successor)
        } else if !a.uses.reads.is_disjoint(&b.uses.writes) || !a.matched.is_disjoint(&b.uses.writes) {
            Some(Why::Anti)
        } else {
            None
        }
    }

    /// Never both for one packet.
    pub(crate) fn exclusive(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.nodes[a].path, &self.nodes[b].path);
        a.iter().zip(b).take_while(|(x, y)| x.0 == y.0).any(|(x, y)| x.1 != y.1)
    }

    /// A register is accessed once in a pass, in one place.
    pub(crate) fn check_registers(&self, program: &Program, out: &mut Vec<Problem>) {
        for earlier in 0..self.nodes.len() {
            if self.nodes[earlier].uses.registers.is_empty() {
                continue;
            }
            let distance = self.distances(earlier);
            for (later, stages) in distance.iter().enumerate().skip(earlier + 1) {
                self.check_pair(program, earlier, later, stages.unwrap_or(0) > 0, out);
            }
        }
    }

    /// A table is one piece of memory in one place of the pipeline.
    pub(crate) fn check_tables(&self, out: &mut Vec<Problem>) {
        let mut seen = BTreeSet::new();
        for node in &self.nodes {
            if let Kind::Table(table) = node.kind {
                if !seen.insert(table) {
                    let message = format!("`{}` is applied in two places", node.name);
                    out.push(*Problem::error(node.pos, message).help("apply it once, or declare two tables"));
                }
            }
        }
    }

    fn check_pair(&self, program: &Program, earlier: usize, later: usize, apart: bool, out: &mut Vec<Problem>) {
        let (a, b) = (&self.nodes[earlier], &self.nodes[later]);
        let Some(r) = a.uses.registers.intersection(&b.uses.registers).next() else { return };
        if a.gress != b.gress || self.exclusive(earlier, later) || out.len() > 40 {
            return;
        }
        let (name, x, y) = (&program.registers[*r].name, &a.name, &b.name);
        let message = if apart {
            format!("`{name}` is used by `{x}`, and by `{y}` that depends on it: they can't share its stage")
        } else {
            format!("`{name}` is used by `{x}` and by `{y}`, and both can run for one packet")
        };
        let help = "a register is accessed once in a pass: use one table whose actions exclude each other";
        out.push(*Problem::error(b.pos, message).help(help));
    }

    /// Stages from a node to each later one that waits for it.
    fn distances(&self, from: usize) -> Vec<Option<usize>> {
        let mut reach = vec![None; self.nodes.len()];
        reach[from] = Some(0);
        for node in from + 1..self.nodes.len() {
            let step = |(b, why): &(usize, Why)| reach[*b].map(|d: usize| d + why.distance());
            reach[node] = self.before[node].iter().filter(|(b, _)| *b >= from).filter_map(step).max();
        }
        reach
    }
}

struct Builder<'p> {
    program: &'p Program,
    nodes: Vec<Node>,
    branches: usize,
}

impl Builder<'_> {
    fn block(&mut self, gress: Gress, block: &[Stmt], path: &[(usize, usize)], parents: &[usize]) {
        let mut parents = parents.to_vec();
        for group in groups(self.program, block) {
            match group {
                Group::Statements(list) => self.statements(gress, &list, path, &parents),
                Group::Single(stmt) => match &stmt.kind {
                    StmtKind::If(cond, then, els) => {
                        let node = self.gateway(gress, cond.fields(), stmt.pos, path, &parents);
                        self.branch(gress, &[then, els], node, path, &parents);
                    }
                    StmtKind::Apply(apply) => self.apply(gress, apply, stmt.pos, path, &parents),
                    // What follows an `exit` runs only if the branch with the exit was not taken.
                    _ => parents.extend(self.nodes.len().checked_sub(1)),
                },
            }
        }
    }

    /// Alternatives after a node; each excludes the others.
    fn branch(&mut self, gress: Gress, ways: &[&Vec<Stmt>], node: usize, path: &[(usize, usize)], parents: &[usize]) {
        let branch = self.branches;
        self.branches += 1;
        let mut parents = parents.to_vec();
        parents.push(node);
        for (way, body) in ways.iter().enumerate() {
            let mut path = path.to_vec();
            path.push((branch, way));
            self.block(gress, body, &path, &parents);
        }
    }

    fn gateway(
        &mut self,
        gress: Gress,
        fields: Vec<FieldId>,
        pos: Pos,
        path: &[(usize, usize)],
        parents: &[usize],
    ) -> usize {
        let (matched, uses) = (fields.into_iter().collect::<BTreeSet<_>>(), Uses::default());
        let on = matched.iter().next().map_or("", |f| self.program.field(*f).name.as_str());
        let name = format!("if on {on}");
        self.push(Node {
            name,
            pos,
            gress,
            kind: Kind::Gateway,
            matched,
            uses,
            instructions: 0,
            path: path.into(),
            parents: parents.into(),
        })
    }

    fn statements(&mut self, gress: Gress, list: &[&Stmt], path: &[(usize, usize)], parents: &[usize]) {
        let mut uses = Uses::default();
        list.iter().for_each(|s| uses.merge(Uses::of(self.program, s)));
        let pos = list.first().map(|s| s.pos).unwrap_or_default();
        let sets = uses.writes.iter().next().map_or("nothing", |f| self.program.field(*f).name.as_str());
        let name = format!("set {sets}");
        self.push(Node {
            name,
            pos,
            gress,
            kind: Kind::Statements,
            matched: BTreeSet::new(),
            uses,
            instructions: 1,
            path: path.into(),
            parents: parents.into(),
        });
    }

    fn apply(&mut self, gress: Gress, apply: &Apply, pos: Pos, path: &[(usize, usize)], parents: &[usize]) {
        let table = &self.program.tables[apply.table];
        let mut uses = Uses::default();
        let mut actions: BTreeSet<usize> = table.actions.iter().copied().collect();
        actions.insert(table.default.action);
        for action in &actions {
            self.program.actions[*action].body.iter().for_each(|s| uses.merge(Uses::of(self.program, s)));
        }
        let node = self.push(Node {
            name: table.name.clone(),
            pos,
            gress,
            kind: Kind::Table(apply.table),
            matched: table.keys.iter().flat_map(|k| k.expr.fields()).collect(),
            uses,
            instructions: actions.len() as u32,
            path: path.into(),
            parents: parents.into(),
        });
        let mut ways: Vec<&Vec<Stmt>> = apply.arms.iter().map(|(_, body)| body).collect();
        ways.push(&apply.default);
        self.branch(gress, &ways, node, path, parents);
        self.branch(gress, &[&apply.hit, &apply.miss], node, path, parents);
    }

    fn push(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }
}
