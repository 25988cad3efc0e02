//! Ways through a control. Its statements form a tree without loops, so code can be made for each way separately: where
//! ways come together, those on which the same is known share the code that follows, the others have code of their own,
//! in which tables are already decided. What is known counts only where it still decides something and is still read.
use super::facts::{Bits, Facts};
use super::live::{Ahead, Fields, may_write};
use super::lower::{Lower, Refusal};
use crate::ir::{ActionCall, Apply, Entry, ExprKind, FieldId, Match, Program, Stmt, mask};
use cranelift_codegen::ir::{Block, InstBuilder};
use cranelift_frontend::Switch;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Copies of the code of one place, for each value of the field that parts the ways at the begin: packets of a kind
/// that take many ways leave room for those of others. Ways beyond share code that knows only what no statement
/// changes, as many copies again, and those beyond code that knows only the kind.
const COPIES: usize = 64;
/// Tables that must ask for a field's value, so that it parts the ways at the begin.
const SELECTS: usize = 3;
/// In the order of [`Ways::order`]: behind all statements.
const LAST: u32 = u32::MAX;

/// What follows: statements, and what follows these; at the end the deparser.
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
    fn blocks(&self) -> Vec<&'p [Stmt]> {
        let (mut at, mut list) = (self, Vec::new());
        while let Some(entry) = &at.0 {
            list.push(entry.0);
            at = &entry.1;
        }
        list
    }

    /// Which place it is: statements stand in one place of the tree each.
    fn place(&self) -> usize {
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
type Place<'p> = (usize, Option<(usize, &'p [u128], bool)>);

/// All places that were reached.
pub(super) struct Ways<'p> {
    /// Numbers of statements, such that every way goes up.
    order: HashMap<usize, u32>,
    known: HashMap<Place<'p>, Vec<(Facts, Block)>>,
    work: BTreeMap<(u32, u32), (Block, Way<'p>)>,
    /// What is the same on all ways that lead to a block so far.
    met: HashMap<Block, Facts>,
    count: u32,
    deciders: Fields,
    /// The field by whose values ways part at the begin.
    selector: Option<FieldId>,
    /// Fields that may be written from a place on.
    written: HashMap<usize, Rc<Fields>>,
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

    /// This field's values decide about something that this half does not know.
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
    fn place(&self) -> Place<'p> {
        match self {
            Way::On(next) => (next.place(), None),
            Way::Chosen(apply, call, hit, _) => {
                (std::ptr::from_ref(*apply).addr(), Some((call.action, &call.args[..], *hit)))
            }
        }
    }

    fn next(&self) -> &Next<'p> {
        let (Way::On(next) | Way::Chosen(_, _, _, next)) = self;
        next
    }
}

impl<'p> Lower<'_, 'p> {
    /// Ends the code of this way, as far as it is its own, with a jump.
    pub(super) fn go(&mut self, way: Way<'p>) {
        let mut facts = self.what_matters(&way);
        // What ingress knew of the headers between the halves parts no ways.
        self.handed.iter().for_each(|id| facts.set(*id, Bits::default()));
        let place = way.place();
        let control = self.written(&Next::END.then(&self.half.control));
        let fixed = facts.restricted_to(|id| !control[id.0 as usize]);
        let selector = self.ways.selector;
        let kind = fixed.restricted_to(|id| Some(id) == selector);
        let of = |facts: &Facts| selector.map(|id| facts.of(id));
        let copies = self.ways.known.entry(place).or_default();
        let mut room = COPIES;
        let mut fits = |facts: &Facts| {
            let alike = copies.iter().filter(|(other, _)| of(other) == of(facts)).count();
            let fits = alike < room || copies.iter().any(|(other, _)| other == facts);
            room += COPIES;
            fits
        };
        let facts = [facts, fixed].into_iter().find(|facts| fits(facts)).unwrap_or(kind);
        if let Some((_, block)) = copies.iter().find(|(f, _)| *f == facts) {
            let block = *block;
            // What decides nothing is still a constant, where it is the same on all ways: it needs no register.
            self.ways.met.entry(block).and_modify(|met| *met = met.meet(&self.facts));
            self.b.ins().jump(block, &[]);
            return;
        }
        let block = self.b.create_block();
        copies.push((facts, block));
        self.ways.met.insert(block, self.facts.clone());
        self.b.ins().jump(block, &[]);
        // An action stands between its table and what follows.
        let order = match &way {
            Way::On(next) => next.split().map_or(LAST, |(stmt, _)| self.order(stmt)),
            Way::Chosen(..) => self.table + 1,
        };
        self.ways.count += 1;
        let key = (order, self.ways.count);
        self.ways.work.insert(key, (block, way));
    }

    pub(super) fn order(&self, stmt: &Stmt) -> u32 {
        self.ways.order.get(&std::ptr::from_ref(stmt).addr()).copied().unwrap_or(LAST)
    }

    /// Of what is known, what may still decide something.
    fn what_matters(&mut self, way: &Way<'p>) -> Facts {
        let live = self.live(way);
        let program = self.program;
        let deciders = &self.ways.deciders;
        let keep = |id: crate::ir::FieldId| live[id.0 as usize] && deciders[id.0 as usize];
        self.facts.restricted(keep, |id| program.field(id).ty.width())
    }

    /// Fields that are read on this way from here on.
    pub(super) fn live(&mut self, way: &Way<'p>) -> Fields {
        let next = way.next();
        let written = self.written(next);
        let stable = self.facts.restricted_to(|id| !written[id.0 as usize]);
        let ahead = Ahead { program: self.program, half: self.half, facts: &stable };
        let end = ahead.end();
        let mut live = end.clone();
        for block in next.blocks().into_iter().rev() {
            ahead.block(block, &mut live, &end);
        }
        if let Way::Chosen(apply, call, hit, _) = way {
            for block in follow(self.program, apply, call.action, *hit).into_iter().rev() {
                ahead_none(self.program, self.half, |ahead| ahead.block(block, &mut live, &end));
            }
            let body = &self.program.actions[call.action].body;
            ahead_none(self.program, self.half, |ahead| ahead.block(body, &mut live, &end));
        }
        live
    }

    fn written(&mut self, next: &Next<'p>) -> Rc<Fields> {
        let place = next.place();
        if let Some(known) = self.ways.written.get(&place) {
            return Rc::clone(known);
        }
        let mut out = vec![false; self.program.fields.len()];
        next.blocks().into_iter().for_each(|block| may_write(self.program, block, &mut out));
        super::live::deparser_writes(&self.half.deparser, &mut out);
        let out = Rc::new(out);
        self.ways.written.insert(place, Rc::clone(&out));
        out
    }

    /// The control, from its begin. Where many tables ask for the same field, which nobody writes, its values part the
    /// ways first.
    pub(super) fn control(&mut self) {
        let next = Next::END.then(&self.half.control);
        let written = self.written(&next);
        let selector = selector(self.program, &self.half.control, &written);
        let open = |(id, _): &(FieldId, _)| self.facts.of(*id) == Bits::default();
        let Some((id, values)) = selector.filter(open) else { return self.go(Way::On(next)) };
        let width = self.program.field(id).ty.width();
        let field = self.get_field(id);
        let blocks: Vec<Block> = values.iter().map(|_| self.b.create_block()).collect();
        let other = self.b.create_block();
        let mut switch = Switch::new();
        values.iter().zip(&blocks).for_each(|(value, block)| switch.set_entry(*value, *block));
        switch.emit(&mut self.b, field, other);
        let before = self.facts.clone();
        for (value, block) in values.iter().zip(blocks) {
            self.enter(block);
            self.facts = before.clone();
            self.facts.set(id, Bits::constant(*value, width));
            self.go(Way::On(next.clone()));
        }
        self.enter(other);
        self.facts = before;
        self.go(Way::On(next));
    }

    /// Everything that follows, until it ends in jumps.
    pub(super) fn statements(&mut self, mut next: Next<'p>) -> Result<(), Refusal> {
        loop {
            let Some((stmt, rest)) = next.split() else {
                self.go(Way::On(Next::END));
                return Ok(());
            };
            match self.control_stmt(stmt, rest)? {
                Some(after) => next = after,
                None => return Ok(()),
            }
        }
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
fn selector(program: &Program, block: &[Stmt], written: &Fields) -> Option<(FieldId, BTreeSet<u128>)> {
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

/// What follows a table of which this action ran, in order.
pub(super) fn follow<'p>(program: &'p Program, apply: &'p Apply, action: usize, hit: bool) -> Vec<&'p [Stmt]> {
    let outcome: &[Stmt] = if hit { &apply.hit } else { &apply.miss };
    let place = super::record::actions_of(&program.tables[apply.table]).iter().position(|a| *a == action);
    let arm = apply.arms.iter().find(|(labels, _)| place.is_some_and(|place| labels.contains(&place)));
    vec![outcome, arm.map_or(&apply.default[..], |(_, body)| body)]
}

/// Looks ahead from where actions may still write what is known now.
fn ahead_none(program: &Program, half: &crate::ir::Half, f: impl FnOnce(Ahead<'_>)) {
    let facts = Facts::none(program.fields.len());
    f(Ahead { program, half, facts: &facts });
}
