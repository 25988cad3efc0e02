//! Ways through a control. Its statements form a tree without loops, so code can be made for each way separately. Where
//! ways come together, those with the same facts share the code that follows. The others have code of their own, in
//! which tables are already decided. What is known counts only where it still decides something and is still read.
use super::facts::Facts;
use super::live::{Fields, may_write};
use crate::ir::{ActionCall, Apply, Entry, ExprKind, FieldId, Match, Program, Stmt, mask};
use cranelift_codegen::ir::Block;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Copies of the code of one place, for each value of the field that parts the ways at the begin. Packets of a kind
/// that take many ways leave room for those of others. Ways beyond share code that relies only on what no statement
/// changes, as many copies again. Those beyond share code that relies only on the kind.
pub(super) const COPIES: usize = 64;
/// Tables that must ask for a field's value, so that it parts the ways at the begin.
const SELECTS: usize = 3;
/// In the order of [`Ways::order`]: behind all statements.
pub(super) const LAST: u32 = u32::MAX;

/// Continuation: statements, and what follows these; at the end the deparser.
#[derive(Clone)]
pub(super) struct Next<'p>(Option<Rc<(&'p [Stmt], Next<'p>)>>);

impl<'p> Next<'p> {
    /// The deparser.
    pub(super) const END: Next<'p> = Next(None);

    /// These statements, then the rest.
    pub(super) fn then(self, block: &'p [Stmt]) -> Next<'p> {
        if block.is_empty() { self } else { Next(Some(Rc::new((block, self)))) }
    }

    /// The first statement, and what follows it.
    pub(super) fn split(&self) -> Option<(&'p Stmt, Next<'p>)> {
        let (block, rest) = &**self.0.as_ref()?;
        let (first, others) = block.split_first()?;
        Some((first, rest.clone().then(others)))
    }

    /// All blocks, the nearest first.
    pub(super) fn blocks(&self) -> Vec<&'p [Stmt]> {
        let (mut at, mut list) = (self, Vec::new());
        while let Some(entry) = &at.0 {
            list.push(entry.0);
            at = &entry.1;
        }
        list
    }

    /// Which place it is: statements stand in one place of the tree each.
    pub(super) fn place(&self) -> usize {
        self.0.as_ref().map_or(0, |entry| std::ptr::from_ref(&entry.0[0]).addr())
    }
}

/// A place for which code is to be made.
#[derive(Clone)]
pub(super) enum Way<'p> {
    /// What follows.
    On(Next<'p>),
    /// An action that a table's constant entries or its constant default chose, and what follows: whether it was an
    /// entry.
    Chosen(&'p Apply, &'p ActionCall, bool, Next<'p>),
}

/// A place: statement, and for an action of a table its entry's data.
pub(super) type CodePoint<'p> = (usize, Option<(usize, &'p [u128], bool)>);

/// All places that were reached.
pub(super) struct Ways<'p> {
    /// Numbers of statements, such that every way goes up.
    pub order: HashMap<usize, u32>,
    pub known: HashMap<CodePoint<'p>, Vec<(Facts, Block)>>,
    pub work: BTreeMap<(u32, u32), (Block, Way<'p>)>,
    /// Facts that all ways to a block share so far.
    pub met: HashMap<Block, Facts>,
    pub count: u32,
    pub deciders: Fields,
    /// The field by whose values ways part at the begin.
    pub selector: Option<FieldId>,
    /// Fields that may be written from a place on.
    pub written: HashMap<usize, Rc<Fields>>,
}

impl<'p> Ways<'p> {
    pub(super) fn new(program: &'p Program, half: &'p crate::ir::Half) -> Ways<'p> {
        let mut order = HashMap::new();
        number(&half.control, &mut order);
        let deciders = super::live::deciders(program, half);
        let (known, work, met) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        let selector = selector_of(program, half);
        Ways { order, known, work, met, count: 0, deciders, selector, written: HashMap::new() }
    }

    /// The next place whose ways there are all known, and what is known on each of them.
    pub(super) fn pop(&mut self) -> Option<(Block, Way<'p>, Facts)> {
        let (block, way) = self.work.pop_first()?.1;
        let facts = self.met.remove(&block)?;
        Some((block, way, facts))
    }

    /// This field's values decide about something outside this half.
    pub(super) fn also_decides(&mut self, field: FieldId) {
        self.deciders[field.0 as usize] = true;
    }

    pub(super) fn decides(&self, field: usize) -> bool {
        self.deciders[field]
    }
}

fn number(block: &[Stmt], order: &mut HashMap<usize, u32>) {
    for stmt in block {
        let next = 2 * order.len() as u32 + 2;
        order.insert(std::ptr::from_ref(stmt).addr(), next);
        match &stmt.kind {
            crate::ir::StmtKind::If(_, yes, no) => {
                number(yes, order);
                number(no, order);
            }
            crate::ir::StmtKind::Apply(apply) => {
                let follow = [&apply.hit, &apply.miss].into_iter().chain(apply.arms.iter().map(|(_, b)| b));
                follow.chain([&apply.default]).for_each(|b| number(b, order));
            }
            _ => {}
        }
    }
}

impl<'p> Way<'p> {
    pub(super) fn place(&self) -> CodePoint<'p> {
        match self {
            Way::On(next) => (next.place(), None),
            Way::Chosen(apply, call, hit, _) => {
                (std::ptr::from_ref(*apply).addr(), Some((call.action, &call.args[..], *hit)))
            }
        }
    }

    pub(super) fn next(&self) -> &Next<'p> {
        let (Way::On(next) | Way::Chosen(_, _, _, next)) = self;
        next
    }
}

/// The field by whose values a half parts its ways first.
pub(super) fn selector_of(program: &Program, half: &crate::ir::Half) -> Option<FieldId> {
    let mut written = vec![false; program.fields.len()];
    may_write(program, &half.control, &mut written);
    super::live::deparser_writes(&half.deparser, &mut written);
    selector(program, &half.control, &written).map(|(id, _)| id)
}

/// The field that most tables ask for by value, of those that no statement writes, and the values asked for.
pub(super) fn selector(program: &Program, block: &[Stmt], written: &Fields) -> Option<(FieldId, BTreeSet<u128>)> {
    let mut asked: BTreeMap<FieldId, (usize, BTreeSet<u128>)> = BTreeMap::new();
    let mut tables = Vec::new();
    super::live::tables(block, &mut tables);
    for table in tables.into_iter().map(|table| &program.tables[table]) {
        for (at, key) in table.keys.iter().enumerate() {
            let ExprKind::Field(id) = key.expr.kind else { continue };
            let width = key.expr.ty.width();
            let exact = |entry: &Entry| match entry.keys[at] {
                Match::Mask(value, bits) if bits == mask(width) => Some(value),
                _ => None,
            };
            let values: Vec<u128> = table.entries.iter().filter_map(exact).collect();
            if !written[id.0 as usize] && width <= 16 && !values.is_empty() {
                let known = asked.entry(id).or_default();
                known.0 += 1;
                known.1.extend(values);
            }
        }
    }
    let most = asked.into_iter().max_by_key(|(_, (count, _))| *count)?;
    (most.1.0 >= SELECTS && most.1.1.len() <= COPIES).then_some((most.0, most.1.1))
}

/// Statements after a table of which this action ran, in order.
pub(super) fn follow<'p>(program: &'p Program, apply: &'p Apply, action: usize, hit: bool) -> Vec<&'p [Stmt]> {
    let outcome: &[Stmt] = if hit { &apply.hit } else { &apply.miss };
    let place = super::entry_layout::actions_of(&program.tables[apply.table]).iter().position(|a| *a == action);
    let arm = apply.arms.iter().find(|(labels, _)| place.is_some_and(|place| labels.contains(&place)));
    vec![outcome, arm.map_or(&apply.default[..], |(_, body)| body)]
}
