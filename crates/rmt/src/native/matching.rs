//! Native code of table look-ups. Constant entries become comparisons, by a tree where keys are exact. Only those
//! branches are made that the way to the table leaves open. Entries that the control plane adds are looked up in
//! memory.
use super::context as at;
use super::entry_layout::{Form, HASH_FACTOR, HASH_SEED, RECORD_DATA, actions_of, packed_words, packing, record_words};
use super::facts::Bits;
use super::function::{Lower, Refusal, call, container};
use super::live::Ahead;
use super::values::{Operand, Scope};
use super::ways::{Next, Way, follow};
use crate::ir::{ActionCall, Apply, Entry, ExprKind, Match, MatchKind, Stmt, Table, mask};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64, I128};
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value};
use cranelift_frontend::Switch;
use std::collections::BTreeSet;

/// Branches of one table's tree at most: each may repeat the entries that leave its key open. What is left then is
/// compared entry by entry.
const NODES: usize = 200;

/// An applied table while its code is made.
struct Site<'p> {
    apply: &'p Apply,
    table: &'p Table,
    keys: Vec<Value>,
    /// What follows the table.
    next: Next<'p>,
}

impl<'p> Lower<'_, 'p> {
    /// A table; what follows it here, unless it ends in jumps.
    pub(super) fn apply(&mut self, apply: &'p Apply, next: Next<'p>) -> Result<Option<Next<'p>>, Refusal> {
        let program = self.program;
        let table = &program.tables[apply.table];
        let live = self.live(&Way::On(next.clone()));
        let ahead = Ahead { program, half: self.half, facts: &self.facts };
        if ahead.is_idle(apply, &live) {
            return Ok(Some(next));
        }
        let known: Vec<Bits> = table.keys.iter().map(|key| ahead.known(&key.expr)).collect();
        let mut keys = Vec::new();
        for key in &table.keys {
            keys.push(self.eval(&key.expr, Scope::default())?);
        }
        let site = Site { apply, table, keys, next };
        if !table.entries.is_empty() {
            let entries: Vec<&Entry> = table.entries.iter().collect();
            let mut known = known;
            self.tree(&site, &entries, &mut known, &mut { NODES })?;
        } else if table.keys.is_empty() {
            self.miss(&site)?;
        } else {
            self.look_up(&site)?;
        }
        Ok(None)
    }

    /// To the code of the action that an entry asks for, if the keys are as they are known to be here.
    fn chosen(&mut self, site: &Site<'p>, call: &'p ActionCall, hit: bool, known: &[Bits]) {
        let before = self.facts.clone();
        for (key, bits) in site.table.keys.iter().zip(known) {
            if let ExprKind::Field(id) = key.expr.kind {
                self.facts.set(id, *bits);
            }
        }
        self.go(Way::Chosen(site.apply, call, hit, site.next.clone()));
        self.facts = before;
    }

    fn miss(&mut self, site: &Site<'p>) -> Result<(), Refusal> {
        if site.table.const_default {
            self.go(Way::Chosen(site.apply, &site.table.default, false, site.next.clone()));
            return Ok(());
        }
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        let list = self.b.ins().load(I64, flags, self.context, at::DEFAULTS);
        // Not read-only: the control plane may change it between two passes, and no pass reads it twice.
        let record = self.load(I64, list, site.apply.table as i32 * 8);
        self.run_record(site, record, false)
    }

    /// The content of a record in memory: action, hit, data. Whether it is an entry is in the record, where that is
    /// open.
    fn run_record(&mut self, site: &Site<'p>, record: Value, may_hit: bool) -> Result<(), Refusal> {
        let actions = actions_of(site.table);
        let blocks: Vec<Block> = actions.iter().map(|_| self.b.create_block()).collect();
        let action = self.load(I64, record, 0);
        let mut switch = Switch::new();
        for (place, block) in blocks.iter().enumerate().skip(1) {
            switch.set_entry(place as u128, *block);
        }
        switch.emit(&mut self.b, action, blocks[0]);
        let before = self.facts.clone();
        for (place, (action, block)) in actions.iter().zip(blocks).enumerate() {
            self.enter(block);
            self.facts = before.clone();
            if may_hit {
                self.facts.ran(site.apply.table, place);
            }
            let args = self.record_data(*action, record);
            let program = self.program;
            self.block(&program.actions[*action].body, Scope { args: &args, ..Scope::default() })?;
            self.after_record(site, *action, record, may_hit);
        }
        Ok(())
    }

    fn record_data(&mut self, action: usize, record: Value) -> Vec<Operand> {
        // Nothing in a pass writes to records, so each piece is read where it is used.
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        let mut offset = RECORD_DATA as i32 * 8;
        let mut args = Vec::new();
        for (_, ty) in &self.program.actions[action].params {
            let to = container(ty.width());
            args.push(Operand::Value(if to == I128 {
                let low = self.b.ins().load(I64, flags, record, offset);
                let high = self.b.ins().load(I64, flags, record, offset + 8);
                self.b.ins().iconcat(low, high)
            } else {
                let value = self.b.ins().load(I64, flags, record, offset);
                self.resize(value, to)
            }));
            offset += to.bytes().max(8) as i32;
        }
        args
    }

    fn after_record(&mut self, site: &Site<'p>, action: usize, record: Value, may_hit: bool) {
        let way = |hit| {
            let blocks: Vec<&'p [Stmt]> = follow(self.program, site.apply, action, hit);
            Way::On(blocks.into_iter().rev().fold(site.next.clone(), Next::then))
        };
        let (hit, miss) = (way(true), way(false));
        if !may_hit || (site.apply.hit.is_empty() && site.apply.miss.is_empty()) {
            return self.go(miss);
        }
        let found = self.load(I64, record, 8);
        let (yes, no) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(found, yes, &[], no, &[]);
        for (block, way) in [(yes, hit), (no, miss)] {
            self.enter(block);
            self.go(way);
        }
    }

    /// Entries in memory, by their packed keys ([`packing`]).
    fn look_up(&mut self, site: &Site<'p>) -> Result<(), Refusal> {
        let widths: Vec<u32> = site.table.keys.iter().map(|k| k.expr.ty.width()).collect();
        let mut words: Vec<Option<Value>> = vec![None; packed_words(&widths)];
        for (key, (word, shift)) in site.keys.iter().zip(packing(&widths)) {
            if self.type_of(*key) == I128 {
                let (low, high) = self.b.ins().isplit(*key);
                (words[word], words[word + 1]) = (Some(low), Some(high));
                continue;
            }
            let key = self.resize(*key, I64);
            let key = if shift > 0 { self.b.ins().ishl_imm(key, shift as i64) } else { key };
            words[word] = Some(match words[word] {
                Some(before) => self.b.ins().bor(before, key),
                None => key,
            });
        }
        let words: Vec<Value> = words.into_iter().flatten().collect();
        let record = self.find(site, &words);
        self.run_record(site, record, true)
    }

    /// The record for a packed key.
    fn find(&mut self, site: &Site<'p>, words: &[Value]) -> Value {
        match (Form::of(site.table), words) {
            (Form::Direct, [key]) => self.find_direct(site, *key),
            (Form::Hashed, [_] | [_, _]) => self.find_hashed(site, words),
            _ => {
                let address = self.scratch(words.len() as u32 * 8);
                for (at, word) in words.iter().enumerate() {
                    self.store(*word, address, at as i32 * 8);
                }
                let (context, table) = (self.context, self.b.ins().iconst(I64, site.apply.table as i64));
                call(self, |h| h.lookup, &[context, table, address])
            }
        }
    }

    /// At the slot of its hash, where it mostly is; otherwise a function probes further.
    fn find_hashed(&mut self, site: &Site<'p>, words: &[Value]) -> Value {
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        let views = self.b.ins().load(I64, flags, self.context, at::VIEWS);
        let view = (site.apply.table * at::VIEW_SIZE) as i32;
        let [probe, miss, further, after] = [(); 4].map(|()| self.b.create_block());
        let record = self.b.append_block_param(after, I64);
        let hash = self.hash_words(words);
        let limit = self.b.ins().load(I64, flags, views, view + at::VIEW_LIMIT);
        let place = self.b.ins().band(hash, limit);
        let slots = self.b.ins().load(I64, flags, views, view + at::VIEW_SLOTS);
        let offset = self.b.ins().ishl_imm(place, 2);
        let slot = self.b.ins().iadd(slots, offset);
        let number = self.b.ins().load(I32, flags, slot, 0);
        self.b.ins().brif(number, probe, &[], miss, &[]);
        self.enter(probe);
        let width = (words.len() + record_words(self.program, site.table)) as i64 * 8;
        let entries = self.b.ins().load(I64, flags, views, view + at::VIEW_ENTRIES);
        let number = self.b.ins().uextend(I64, number);
        let offset = self.b.ins().imul_imm(number, width);
        // The first entry's number is 1.
        let end = self.b.ins().iadd(entries, offset);
        let mut differ = None;
        for (at, word) in words.iter().enumerate() {
            let key = self.b.ins().load(I64, flags, end, at as i32 * 8 - width as i32);
            let other = self.b.ins().bxor(key, *word);
            differ = Some(match differ {
                Some(before) => self.b.ins().bor(before, other),
                None => other,
            });
        }
        let found = self.b.ins().iadd_imm(end, words.len() as i64 * 8 - width);
        let differ = differ.unwrap_or(found);
        self.b.ins().brif(differ, further, &[], after, &[found.into()]);
        self.enter(miss);
        let default = self.b.ins().load(I64, flags, views, view + at::VIEW_DEFAULT);
        self.b.ins().jump(after, &[default.into()]);
        self.b.set_cold_block(further);
        self.enter(further);
        let view = self.b.ins().iadd_imm(views, i64::from(view));
        let found = match words {
            [key] => call(self, |h| h.probe_one, &[view, *key]),
            _ => call(self, |h| h.probe_two, &[view, words[0], words[1]]),
        };
        self.b.ins().jump(after, &[found.into()]);
        self.enter(after);
        record
    }

    /// As [`super::entry_layout::hash`].
    fn hash_words(&mut self, words: &[Value]) -> Value {
        let mut mixed = self.b.ins().iconst(I64, HASH_SEED as i64);
        let factor = self.b.ins().iconst(I64, HASH_FACTOR as i64);
        for word in words {
            let one = self.b.ins().bxor(mixed, *word);
            let (high, low) = (self.b.ins().umulhi(one, factor), self.b.ins().imul(one, factor));
            mixed = self.b.ins().bxor(high, low);
        }
        mixed
    }

    /// A small key is its own place.
    fn find_direct(&mut self, site: &Site<'p>, key: Value) -> Value {
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        let views = self.b.ins().load(I64, flags, self.context, at::VIEWS);
        let view = (site.apply.table * at::VIEW_SIZE) as i32;
        let limit = self.b.ins().load(I64, flags, views, view + at::VIEW_LIMIT);
        let (probe, hit, miss, after) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block(), self.b.create_block());
        let record = self.b.append_block_param(after, I64);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, key, limit);
        self.b.ins().brif(inside, probe, &[], miss, &[]);
        self.enter(probe);
        let slots = self.b.ins().load(I64, flags, views, view + at::VIEW_SLOTS);
        let offset = self.b.ins().ishl_imm(key, 2);
        let slot = self.b.ins().iadd(slots, offset);
        let number = self.b.ins().load(I32, flags, slot, 0);
        self.b.ins().brif(number, hit, &[], miss, &[]);
        self.enter(hit);
        let width = (1 + record_words(self.program, site.table)) as i64 * 8;
        let entries = self.b.ins().load(I64, flags, views, view + at::VIEW_ENTRIES);
        let number = self.b.ins().uextend(I64, number);
        let offset = self.b.ins().imul_imm(number, width);
        let entry = self.b.ins().iadd(entries, offset);
        // Behind its key; the first entry's number is 1.
        let found = self.b.ins().iadd_imm(entry, 8 - width);
        self.b.ins().jump(after, &[found.into()]);
        self.enter(miss);
        let default = self.b.ins().load(I64, flags, views, view + at::VIEW_DEFAULT);
        self.b.ins().jump(after, &[default.into()]);
        self.enter(after);
        record
    }

    /// Constant entries: a branch by value where a key has several, otherwise the test that decides about most entries.
    /// This goes on until the first entry that is still possible must match. `known` are the keys' bits that the way to
    /// here fixes.
    fn tree(
        &mut self,
        site: &Site<'p>,
        entries: &[&'p Entry],
        known: &mut [Bits],
        left: &mut usize,
    ) -> Result<(), Refusal> {
        let possible: Vec<&'p Entry> = entries.iter().copied().filter(|e| agrees(e, known)).collect();
        let Some(first) = possible.first() else { return self.miss(site) };
        if *left == 0 {
            return self.chain(site, &possible, known);
        }
        *left -= 1;
        if let Some(column) = best_column(site.table, &possible, known) {
            return self.by_value(site, &possible, known, (column, left));
        }
        let Some((column, wanted)) = best_test(first, &possible, known) else {
            self.chosen(site, &first.call, true, known);
            return Ok(());
        };
        let before = known[column];
        let cond = self.test(site.keys[column], wanted, before.mask);
        let (yes, no) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(cond, yes, &[], no, &[]);
        self.enter(yes);
        known[column] = before.and(wanted);
        self.tree(site, &possible, known, left)?;
        self.enter(no);
        known[column] = before.without(wanted);
        let rest: Vec<&'p Entry> = possible.iter().copied().filter(|e| !before.same(e.keys[column], wanted)).collect();
        self.tree(site, &rest, known, left)?;
        known[column] = before;
        Ok(())
    }

    /// One way for each exact value of a key, and one for all others.
    fn by_value(
        &mut self,
        site: &Site<'p>,
        possible: &[&'p Entry],
        known: &mut [Bits],
        (column, left): (usize, &mut usize),
    ) -> Result<(), Refusal> {
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
            self.enter(block);
            known[column] = Bits { mask: full, value: *value };
            self.tree(site, possible, known, left)?;
        }
        known[column] = before;
        self.enter(other);
        let rest: Vec<&'p Entry> = possible.iter().copied().filter(|e| exact(e).is_none()).collect();
        self.tree(site, &rest, known, left)
    }

    fn chain(&mut self, site: &Site<'p>, entries: &[&'p Entry], known: &[Bits]) -> Result<(), Refusal> {
        for entry in entries {
            let Some(cond) = self.matches(site, entry, known) else {
                self.chosen(site, &entry.call, true, known);
                return Ok(());
            };
            let (yes, no) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(cond, yes, &[], no, &[]);
            self.enter(yes);
            self.chosen(site, &entry.call, true, known);
            self.enter(no);
        }
        self.miss(site)
    }

    /// Whether the keys are as the entry demands; nothing where they must be.
    fn matches(&mut self, site: &Site<'p>, entry: &Entry, known: &[Bits]) -> Option<Value> {
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

/// The key that most entries match exactly, of at least three values.
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
