//! Splits and joins of control-flow paths: code that paths share, and the facts that hold there.
use super::facts::{Bits, Facts};
use super::function::{Lower, Refusal};
use super::live::{Ahead, Fields, may_write};
use super::ways::{COPIES, LAST, Next, Way, follow, selector};
use crate::ir::{FieldId, Program, Stmt};
use cranelift_codegen::ir::{Block, InstBuilder};
use cranelift_frontend::Switch;
use std::rc::Rc;

impl<'p> Lower<'_, 'p> {
    /// Ends the code of this way, as far as it is its own, with a jump.
    pub(super) fn go(&mut self, way: Way<'p>) {
        let mut facts = self.what_matters(&way);
        // Facts of ingress about the headers between the halves parts no ways.
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

/// Liveness from where actions may still write what is known now.
fn ahead_none(program: &Program, half: &crate::ir::Half, f: impl FnOnce(Ahead<'_>)) {
    let facts = Facts::none(program.fields.len());
    f(Ahead { program, half, facts: &facts });
}
