//! Tables. Constant entries become comparisons, by a tree where keys are exact; entries that the control plane adds are
//! looked up in memory. Each action of an applied table is one piece of code, whichever entry leads there.
use super::context as at;
use super::lower::{Lower, Refusal, call};
use super::values::{Scope, container};
use crate::ir::{ActionCall, Apply, Entry, Match, MatchKind, Table, mask};
use cranelift_codegen::ir::types::{I32, I64, I128};
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value};
use cranelift_frontend::{Switch, Variable};
use std::collections::BTreeSet;

/// Branches of one table's tree at most: each may repeat the entries that leave its key open. What is left then is
/// compared entry by entry.
const NODES: usize = 200;
/// Of a record in memory: words before the action's data.
pub(super) const RECORD_DATA: usize = 2;

/// An applied table while its code is made.
struct Site<'t> {
    table: &'t Table,
    keys: Vec<Value>,
    /// Code and data of each action, in the order of [`actions_of`].
    actions: Vec<(usize, Block, Vec<Variable>)>,
    /// Outcome, where something depends on it.
    hit: Option<Variable>,
}

/// The actions that may run: those of the table, and its default. Records name an action by its place here.
pub(super) fn actions_of(table: &Table) -> Vec<usize> {
    let mut list = table.actions.clone();
    if !list.contains(&table.default.action) {
        list.push(table.default.action);
    }
    list
}

impl Lower<'_, '_> {
    pub fn apply(&mut self, apply: &Apply) -> Result<(), Refusal> {
        let program = self.program;
        let table = &program.tables[apply.table];
        let mut keys = Vec::new();
        for key in &table.keys {
            keys.push(self.eval(&key.expr, Scope::default())?);
        }
        let mut actions = Vec::new();
        for action in actions_of(table) {
            let args = self.args_of(action);
            actions.push((action, self.b.create_block(), args));
        }
        let asks = !apply.hit.is_empty() || !apply.miss.is_empty();
        let hit = asks.then(|| self.variable_of(I32));
        let chooses = !apply.arms.is_empty();
        let ran = chooses.then(|| self.variable_of(I32));
        let site = Site { table, keys, actions, hit };
        self.find(&site, apply.table)?;
        let after = self.b.create_block();
        for (place, (action, block, args)) in site.actions.iter().enumerate() {
            self.b.switch_to_block(*block);
            if let Some(ran) = ran {
                let place = self.constant(I32, place as u128);
                self.b.def_var(ran, place);
            }
            self.block(&program.actions[*action].body, Scope { args, ..Scope::default() })?;
            self.b.ins().jump(after, &[]);
        }
        self.b.switch_to_block(after);
        if let Some(hit) = hit {
            let hit = self.b.use_var(hit);
            let hit = self.holds(hit);
            self.branch(hit, |l| l.block(&apply.hit, Scope::default()), |l| l.block(&apply.miss, Scope::default()))?;
        }
        match ran {
            Some(ran) => self.arms(apply, ran),
            None => self.block(&apply.default, Scope::default()),
        }
    }

    fn arms(&mut self, apply: &Apply, ran: Variable) -> Result<(), Refusal> {
        let (after, other) = (self.b.create_block(), self.b.create_block());
        let ran = self.b.use_var(ran);
        let mut switch = Switch::new();
        let mut taken = Vec::new();
        let mut blocks = Vec::new();
        for (labels, body) in &apply.arms {
            let block = self.b.create_block();
            for label in labels.iter().filter(|label| !taken.contains(*label)).collect::<Vec<_>>() {
                switch.set_entry(*label as u128, block);
                taken.push(*label);
            }
            blocks.push((block, body));
        }
        switch.emit(&mut self.b, ran, other);
        for (block, body) in blocks.into_iter().chain([(other, &apply.default)]) {
            self.b.switch_to_block(block);
            self.block(body, Scope::default())?;
            self.b.ins().jump(after, &[]);
        }
        self.b.switch_to_block(after);
        Ok(())
    }

    /// To the code of the action that the keys ask for.
    fn find(&mut self, site: &Site<'_>, number: usize) -> Result<(), Refusal> {
        let table = site.table;
        if !table.entries.is_empty() {
            let entries: Vec<&Entry> = table.entries.iter().collect();
            self.tree(site, number, &entries, &mut vec![Bits::default(); table.keys.len()], &mut { NODES });
        } else if table.keys.is_empty() {
            self.miss(site, number);
        } else {
            self.look_up(site, number);
        }
        Ok(())
    }

    fn hit(&mut self, site: &Site<'_>, call: &ActionCall) {
        if let Some(hit) = site.hit {
            let one = self.constant(I32, 1);
            self.b.def_var(hit, one);
        }
        self.enter(site, call);
    }

    fn enter(&mut self, site: &Site<'_>, call: &ActionCall) {
        let entry = site.actions.iter().find(|a| a.0 == call.action);
        if let Some((_, block, args)) = entry {
            self.set_args(call, args);
            self.b.ins().jump(*block, &[]);
        }
    }

    fn miss(&mut self, site: &Site<'_>, number: usize) {
        if let Some(hit) = site.hit {
            let zero = self.constant(I32, 0);
            self.b.def_var(hit, zero);
        }
        if site.table.const_default {
            return self.enter(site, &site.table.default);
        }
        let flags = MemFlags::trusted().with_readonly();
        let list = self.b.ins().load(I64, flags, self.context, at::DEFAULTS);
        // Not read-only: the control plane may change it between two passes, and no pass reads it twice.
        let record = self.load(I64, list, number as i32 * 8);
        self.run_record(site, record);
    }

    /// What a record in memory says: action, hit, data.
    fn run_record(&mut self, site: &Site<'_>, record: Value) {
        let mut targets = Vec::new();
        for (_, block, args) in &site.actions {
            let entry = if args.is_empty() { *block } else { self.b.create_block() };
            targets.push((entry, *block, args.clone()));
        }
        let action = self.load(I64, record, 0);
        let mut switch = Switch::new();
        for (place, (entry, ..)) in targets.iter().enumerate().skip(1) {
            switch.set_entry(place as u128, *entry);
        }
        switch.emit(&mut self.b, action, targets[0].0);
        for (place, (entry, block, args)) in targets.iter().enumerate() {
            if entry == block {
                continue;
            }
            self.b.switch_to_block(*entry);
            let params = &self.program.actions[site.actions[place].0].params;
            let mut offset = RECORD_DATA as i32 * 8;
            for (var, (_, ty)) in args.iter().zip(params) {
                let to = container(ty.width());
                let value = if to == I128 {
                    let (low, high) = (self.load(I64, record, offset), self.load(I64, record, offset + 8));
                    self.b.ins().iconcat(low, high)
                } else {
                    let value = self.load(I64, record, offset);
                    self.resize(value, to)
                };
                self.b.def_var(*var, value);
                offset += to.bytes().max(8) as i32;
            }
            self.b.ins().jump(*block, &[]);
        }
    }

    /// Entries in memory: keys as words, low word first.
    fn look_up(&mut self, site: &Site<'_>, number: usize) {
        let words: usize = site.table.keys.iter().map(|k| key_words(k.expr.ty.width())).sum();
        let address = self.scratch(words as u32 * 8);
        let mut offset = 0;
        for key in &site.keys {
            if self.type_of(*key) == I128 {
                let (low, high) = self.b.ins().isplit(*key);
                self.store(low, address, offset);
                self.store(high, address, offset + 8);
                offset += 16;
            } else {
                let key = self.resize(*key, I64);
                self.store(key, address, offset);
                offset += 8;
            }
        }
        let (context, table) = (self.context, self.b.ins().iconst(I64, number as i64));
        let record = call(self, |h| h.lookup, &[context, table, address]);
        if let Some(hit) = site.hit {
            let found = self.load(I64, record, 8);
            let found = self.resize(found, I32);
            self.b.def_var(hit, found);
        }
        self.run_record(site, record);
    }

    /// Constant entries: a branch by value where a key has several, otherwise the test that decides about most entries,
    /// and so on, until the first entry that is still possible must match. `known` are the keys' bits that the way to
    /// here says.
    fn tree(&mut self, site: &Site<'_>, number: usize, entries: &[&Entry], known: &mut [Bits], left: &mut usize) {
        let possible: Vec<&Entry> = entries.iter().copied().filter(|e| agrees(e, known)).collect();
        let Some(first) = possible.first() else { return self.miss(site, number) };
        if *left == 0 {
            return self.chain(site, number, &possible, known);
        }
        *left -= 1;
        if let Some(column) = best_column(site.table, &possible, known) {
            return self.by_value(site, number, &possible, known, (column, left));
        }
        let Some((column, wanted)) = best_test(first, &possible, known) else {
            return self.hit(site, &first.call);
        };
        let before = known[column];
        let cond = self.test(site.keys[column], wanted, before.mask);
        let (yes, no) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(cond, yes, &[], no, &[]);
        self.b.switch_to_block(yes);
        known[column] = before.and(wanted);
        self.tree(site, number, &possible, known, left);
        self.b.switch_to_block(no);
        known[column] = before.without(wanted);
        let rest: Vec<&Entry> = possible.iter().copied().filter(|e| !before.same(e.keys[column], wanted)).collect();
        self.tree(site, number, &rest, known, left);
        known[column] = before;
    }

    /// One way for each exact value of a key, and one for all others.
    fn by_value(
        &mut self,
        site: &Site<'_>,
        number: usize,
        possible: &[&Entry],
        known: &mut [Bits],
        (column, left): (usize, &mut usize),
    ) {
        let full = mask(site.table.keys[column].expr.ty.width());
        let exact = |e: &Entry| exact_value(&e.keys[column], full);
        let mut values: Vec<u128> = possible.iter().filter_map(|e| exact(e)).collect();
        values.sort_unstable();
        values.dedup();
        let other = self.b.create_block();
        let mut switch = Switch::new();
        let blocks: Vec<Block> = values.iter().map(|_| self.b.create_block()).collect();
        for (value, block) in values.iter().zip(&blocks) {
            switch.set_entry(*value, *block);
        }
        switch.emit(&mut self.b, site.keys[column], other);
        let before = known[column];
        for (value, block) in values.iter().zip(blocks) {
            self.b.switch_to_block(block);
            known[column] = Bits { mask: full, value: *value };
            self.tree(site, number, possible, known, left);
        }
        known[column] = before;
        self.b.switch_to_block(other);
        let rest: Vec<&Entry> = possible.iter().copied().filter(|e| exact(e).is_none()).collect();
        self.tree(site, number, &rest, known, left);
    }

    fn chain(&mut self, site: &Site<'_>, number: usize, entries: &[&Entry], known: &[Bits]) {
        for entry in entries {
            let Some(cond) = self.matches(site, entry, known) else {
                return self.hit(site, &entry.call);
            };
            let (yes, no) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(cond, yes, &[], no, &[]);
            self.b.switch_to_block(yes);
            self.hit(site, &entry.call);
            self.b.switch_to_block(no);
        }
        self.miss(site, number);
    }

    /// Whether the keys are as the entry wants them; nothing where they must be.
    fn matches(&mut self, site: &Site<'_>, entry: &Entry, known: &[Bits]) -> Option<Value> {
        let mut all = None;
        for ((m, key), known) in entry.keys.iter().zip(&site.keys).zip(known) {
            if !known.leaves_open(*m) {
                continue;
            }
            let flag = self.test(*key, *m, known.mask);
            all = Some(match all {
                None => flag,
                Some(so_far) => self.b.ins().band(so_far, flag),
            });
        }
        all
    }
}

/// What the way through a tree says of a key's bits.
#[derive(Clone, Copy, Default)]
struct Bits {
    mask: u128,
    value: u128,
}

impl Bits {
    /// The match needs a look at bits that are not known.
    fn leaves_open(self, m: Match) -> bool {
        match m {
            Match::Mask(_, bits) => bits & !self.mask != 0,
            Match::Range(..) => true,
        }
    }

    /// The match is possible.
    fn allow(self, m: Match) -> bool {
        match m {
            Match::Mask(value, bits) => (value ^ self.value) & bits & self.mask == 0,
            Match::Range(..) => true,
        }
    }

    /// What is known once the match holds.
    fn and(self, m: Match) -> Bits {
        match m {
            Match::Mask(value, bits) => Bits { mask: self.mask | bits, value: self.value | (value & bits) },
            Match::Range(..) => self,
        }
    }

    /// What is known once it does not: something only where one bit decided.
    fn without(self, m: Match) -> Bits {
        match m {
            Match::Mask(value, bits) if (bits & !self.mask).count_ones() == 1 => {
                let bit = bits & !self.mask;
                Bits { mask: self.mask | bit, value: self.value | (!value & bit) }
            }
            _ => self,
        }
    }

    /// Both ask for the same of the bits that are not known.
    fn same(self, a: Match, b: Match) -> bool {
        match (a, b) {
            (Match::Mask(v, m), Match::Mask(w, n)) => m & !self.mask == n & !self.mask && (v ^ w) & m & !self.mask == 0,
            (Match::Range(a, b), Match::Range(c, d)) => (a, b) == (c, d),
            _ => false,
        }
    }

    /// Once it is known whether `wanted` holds, `m` is decided, or at least nearer to it.
    fn decides(self, wanted: Match, m: Match) -> bool {
        match (wanted, m) {
            (Match::Mask(_, n), Match::Mask(_, m)) => m & !self.mask != 0 && n & !m & !self.mask == 0,
            _ => self.same(wanted, m),
        }
    }
}

/// Words of a key in memory.
pub(super) fn key_words(width: u32) -> usize {
    if width > 64 { 2 } else { 1 }
}

/// Not against what is known of the keys.
fn agrees(entry: &Entry, known: &[Bits]) -> bool {
    entry.keys.iter().zip(known).all(|(m, known)| known.allow(*m))
}

/// Of the first entry's open conditions, that which decides about most entries; nothing where it must match.
fn best_test(first: &Entry, entries: &[&Entry], known: &[Bits]) -> Option<(usize, Match)> {
    let open = (0..known.len()).filter(|c| known[*c].leaves_open(first.keys[*c]));
    let score = |c: &usize| entries.iter().filter(|e| known[*c].decides(first.keys[*c], e.keys[*c])).count();
    let best = open.max_by_key(|c| (score(c), std::cmp::Reverse(*c)))?;
    Some((best, first.keys[best]))
}

fn exact_value(m: &Match, full: u128) -> Option<u128> {
    match m {
        Match::Mask(value, bits) if *bits == full => Some(*value),
        _ => None,
    }
}

/// The key that most entries want exactly, of at least three values.
fn best_column(table: &Table, entries: &[&Entry], known: &[Bits]) -> Option<usize> {
    let exact = |column: usize| {
        let key = &table.keys[column];
        let full = mask(key.expr.ty.width());
        let wanted = entries.iter().filter_map(|e| exact_value(&e.keys[column], full));
        let values: BTreeSet<u128> = wanted.clone().collect();
        let useless = key.expr.ty.width() > 64 || key.kind == MatchKind::Range || values.len() < 3;
        if useless { 0 } else { wanted.count() }
    };
    let open = (0..table.keys.len()).filter(|c| known[*c].mask == 0);
    open.map(|c| (exact(c), c))
        .filter(|(count, _)| *count > 0)
        .max_by_key(|(count, c)| (*count, usize::MAX - c))
        .map(|x| x.1)
}
