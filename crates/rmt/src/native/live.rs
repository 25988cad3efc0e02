//! Liveness: fields that are still read after a place in a program, on the paths that the facts there leave open. What
//! is not read needs not be looked up, computed or distinguished.
use super::facts::{Bits, Facts};
use crate::ir::{
    Apply, Deparse, Destination, Dst, Expr, ExprKind, FieldId, Half, Program, Stmt, StmtKind, Table, mask,
};

/// One flag for each field of the program.
pub(super) type Fields = Vec<bool>;

/// Liveness of fields in one half, from a place on.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    pub program: &'a Program,
    pub half: &'a Half,
    /// Facts that hold until the end: none about a field that may still be written.
    pub facts: &'a Facts,
}

fn read(live: &mut Fields, e: &Expr) {
    e.walk(&mut |e| {
        if let ExprKind::Field(id) = e.kind {
            live[id.0 as usize] = true;
        }
    });
}

/// The value is written, and read only if it is live afterwards.
fn written(live: &mut Fields, program: &Program, dst: &Dst) -> bool {
    let Destination::Field(id) = dst.place else { return false };
    let is_live = live[id.0 as usize];
    if dst.lo == 0 && dst.hi + 1 >= program.field(id).ty.width() {
        live[id.0 as usize] = false;
    }
    is_live
}

fn join(into: &mut Fields, other: &Fields) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a |= *b);
}

impl Ahead<'_> {
    /// Liveness where the deparser begins.
    pub(super) fn end(&self) -> Fields {
        let mut live = vec![false; self.program.fields.len()];
        let gress = self.half_gress();
        let (results, mirrors) = (super::context::results(gress), super::context::mirror_results(gress));
        for (name, _) in results.iter().chain(&mirrors) {
            if let Some(id) = self.half.intrinsic.get(*name) {
                live[id.0 as usize] = true;
            }
        }
        self.deparser(&self.half.deparser, &mut live);
        live
    }

    fn half_gress(&self) -> crate::ir::Gress {
        if std::ptr::eq(self.half, &self.program.egress) { crate::ir::Gress::Egress } else { crate::ir::Gress::Ingress }
    }

    fn deparser(&self, list: &[Deparse], live: &mut Fields) {
        for item in list.iter().rev() {
            match item {
                Deparse::Emit(h) => {
                    let header = &self.program.headers[*h];
                    // That it is not there matters, too.
                    live[header.valid.0 as usize] |= !header.intrinsic;
                    if self.facts.of(header.valid).whole(1) != Some(0) && !header.intrinsic {
                        header.fields.iter().for_each(|id| live[id.0 as usize] = true);
                    }
                }
                Deparse::Checksum(values, dst, _) => {
                    if written(live, self.program, dst) {
                        values.iter().for_each(|e| read(live, e));
                    }
                }
                Deparse::If(cond, yes, no) => match self.facts.fold(cond, &[]) {
                    Some(value) => {
                        self.deparser(if value != 0 { yes } else { no }, live);
                        read(live, cond);
                    }
                    None => {
                        let mut other = live.clone();
                        self.deparser(yes, live);
                        self.deparser(no, &mut other);
                        join(live, &other);
                        read(live, cond);
                    }
                },
                Deparse::Mirror(session, values, _) => {
                    read(live, session);
                    values.iter().for_each(|e| read(live, e));
                }
                Deparse::Digest(_, values) | Deparse::Resubmit(values) => values.iter().for_each(|e| read(live, e)),
            }
        }
    }

    /// What is live before these statements, if `live` is so behind them and `end` where the deparser begins.
    pub(super) fn block(&self, block: &[Stmt], live: &mut Fields, end: &Fields) {
        for stmt in block.iter().rev() {
            self.stmt(stmt, live, end);
        }
    }

    fn stmt(&self, stmt: &Stmt, live: &mut Fields, end: &Fields) {
        match &stmt.kind {
            StmtKind::Assign(dst, e) => {
                if written(live, self.program, dst) {
                    read(live, e);
                }
            }
            StmtKind::If(cond, yes, no) => match self.facts.fold(cond, &[]) {
                Some(value) => {
                    self.block(if value != 0 { yes } else { no }, live, end);
                    read(live, cond);
                }
                None => {
                    let mut other = live.clone();
                    self.block(yes, live, end);
                    self.block(no, &mut other, end);
                    join(live, &other);
                    read(live, cond);
                }
            },
            StmtKind::Apply(apply) => self.apply(apply, live, end),
            StmtKind::Exec(action, index, dsts) => {
                let used = dsts.iter().flatten().filter(|dst| written(live, self.program, dst)).count() > 0;
                if used || self.writes(*action) {
                    read(live, index);
                    for stmt in &self.program.register_actions[*action].body {
                        stmt_reads(stmt, live);
                    }
                }
            }
            StmtKind::Hash(_, inputs, dst) => {
                if written(live, self.program, dst) {
                    inputs.iter().for_each(|e| read(live, e));
                }
            }
            StmtKind::Random(dst) => {
                written(live, self.program, dst);
            }
            StmtKind::Count(_, index) => read(live, index),
            StmtKind::Meter(_, index, dst) => {
                written(live, self.program, dst);
                read(live, index);
            }
            StmtKind::SetValid(h, _) => live[self.program.headers[*h].valid.0 as usize] = false,
            StmtKind::Exit => live.clone_from(end),
        }
    }

    /// Whether a stateful program may change its register.
    fn writes(&self, action: usize) -> bool {
        self.program.register_actions[action].body.iter().any(stmt_writes)
    }

    fn apply(&self, apply: &Apply, live: &mut Fields, end: &Fields) {
        let table = &self.program.tables[apply.table];
        let known: Vec<Bits> = table.keys.iter().map(|key| self.known(&key.expr)).collect();
        if self.is_idle(apply, live) {
            let used = used(known, |known| self.idles(apply, possible(table, known).actions(table), live));
            return used.into_iter().for_each(|key| read(live, &table.keys[key].expr));
        }
        let mut after = live.clone();
        let follow = [&apply.hit, &apply.miss, &apply.default].into_iter().chain(apply.arms.iter().map(|(_, b)| b));
        for block in follow.filter(|block| !block.is_empty()) {
            let mut before = live.clone();
            self.block(block, &mut before, end);
            join(&mut after, &before);
        }
        let here = possible(table, &known);
        let mut before = vec![false; live.len()];
        for action in here.actions(table) {
            let mut way = after.clone();
            self.block(&self.program.actions[action].body, &mut way, end);
            join(&mut before, &way);
        }
        *live = before;
        for (key, _) in table.keys.iter().zip(&here.asked).filter(|(_, asked)| **asked) {
            read(live, &key.expr);
        }
        let used = used(known, |known| possible(table, known) == here);
        used.into_iter().for_each(|key| read(live, &table.keys[key].expr));
    }

    /// Nothing that a table may do matters to anybody.
    pub(super) fn is_idle(&self, apply: &Apply, live: &Fields) -> bool {
        let table = &self.program.tables[apply.table];
        let known: Vec<Bits> = table.keys.iter().map(|key| self.known(&key.expr)).collect();
        self.idles(apply, possible(table, &known).actions(table), live)
    }

    fn idles(&self, apply: &Apply, actions: Vec<usize>, live: &Fields) -> bool {
        let follows = [&apply.hit, &apply.miss, &apply.default].into_iter().any(|block| !block.is_empty());
        let idle = |action: &usize| self.no_matter(&self.program.actions[*action].body, live);
        !follows && apply.arms.is_empty() && actions.iter().all(idle)
    }

    fn no_matter(&self, body: &[Stmt], live: &Fields) -> bool {
        let dead = |dst: &Dst| matches!(dst.place, Destination::Field(id) if !live[id.0 as usize]);
        body.iter().all(|stmt| match &stmt.kind {
            StmtKind::Assign(dst, _) | StmtKind::Hash(_, _, dst) => dead(dst),
            StmtKind::SetValid(h, _) => !live[self.program.headers[*h].valid.0 as usize],
            StmtKind::Exec(action, _, dsts) => !self.writes(*action) && dsts.iter().flatten().all(dead),
            _ => false,
        })
    }

    /// Known bits of a key.
    pub(super) fn known(&self, e: &Expr) -> Bits {
        let width = e.ty.width();
        match (&e.kind, self.facts.fold(e, &[])) {
            (_, Some(value)) => Bits { mask: mask(width), value },
            (ExprKind::Field(id), None) => self.facts.of(*id),
            _ => Bits::default(),
        }
    }
}

/// What a table may still do.
#[derive(PartialEq)]
struct Possible {
    /// Entries that may match, in order.
    entries: Vec<usize>,
    /// None of them must.
    open: bool,
    /// The keys that decide which.
    asked: Vec<bool>,
}

impl Possible {
    fn actions(&self, table: &Table) -> Vec<usize> {
        if self.open && !table.const_default || table.entries.is_empty() {
            return super::entry_layout::actions_of(table);
        }
        let default = self.open.then_some(table.default.action);
        self.entries.iter().map(|entry| table.entries[*entry].call.action).chain(default).collect()
    }
}

fn possible(table: &Table, known: &[Bits]) -> Possible {
    let mut here = Possible { entries: Vec::new(), open: true, asked: vec![table.entries.is_empty(); known.len()] };
    for (at, entry) in table.entries.iter().enumerate() {
        if !entry.keys.iter().zip(known).all(|(m, k)| k.allow(*m)) {
            continue;
        }
        here.entries.push(at);
        let open: Vec<bool> = entry.keys.iter().zip(known).map(|(m, k)| k.leaves_open(*m)).collect();
        if !open.contains(&true) {
            here.open = false;
            break;
        }
        here.asked.iter_mut().zip(open).for_each(|(asked, open)| *asked |= open);
    }
    here
}

/// Keys of which something is known that matters: without it, something would not be so any more.
fn used(mut known: Vec<Bits>, so: impl Fn(&[Bits]) -> bool) -> Vec<usize> {
    let mut used = Vec::new();
    for key in 0..known.len() {
        let before = std::mem::take(&mut known[key]);
        if before.mask != 0 && !so(&known) {
            known[key] = before;
            used.push(key);
        }
    }
    used
}

fn stmt_reads(stmt: &Stmt, live: &mut Fields) {
    match &stmt.kind {
        StmtKind::Assign(_, e) => read(live, e),
        StmtKind::If(cond, yes, no) => {
            read(live, cond);
            yes.iter().chain(no).for_each(|stmt| stmt_reads(stmt, live));
        }
        _ => {}
    }
}

fn stmt_writes(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Assign(dst, _) => matches!(dst.place, Destination::Mem(_)),
        StmtKind::If(_, yes, no) => yes.iter().chain(no).any(stmt_writes),
        _ => false,
    }
}

/// Fields that these statements may write, actions of their tables included.
pub(super) fn may_write(program: &Program, block: &[Stmt], out: &mut Fields) {
    let field = |dst: &Dst, out: &mut Fields| {
        if let Destination::Field(id) = dst.place {
            out[id.0 as usize] = true;
        }
    };
    for stmt in block {
        match &stmt.kind {
            StmtKind::Assign(dst, _)
            | StmtKind::Hash(_, _, dst)
            | StmtKind::Random(dst)
            | StmtKind::Meter(_, _, dst) => field(dst, out),
            StmtKind::Exec(_, _, dsts) => dsts.iter().flatten().for_each(|dst| field(dst, out)),
            StmtKind::SetValid(h, _) => out[program.headers[*h].valid.0 as usize] = true,
            StmtKind::If(_, yes, no) => [yes, no].into_iter().for_each(|b| may_write(program, b, out)),
            StmtKind::Apply(apply) => {
                let actions = super::entry_layout::actions_of(&program.tables[apply.table]);
                actions.iter().for_each(|a| may_write(program, &program.actions[*a].body, out));
                let follow = [&apply.hit, &apply.miss, &apply.default].into_iter();
                follow.chain(apply.arms.iter().map(|(_, b)| b)).for_each(|b| may_write(program, b, out));
            }
            StmtKind::Count(..) | StmtKind::Exit => {}
        }
    }
}

/// Registers that these statements use, with their indices; actions of their tables included.
pub(super) fn indices<'p>(program: &'p Program, block: &'p [Stmt], out: &mut Vec<(usize, &'p Expr)>) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::Exec(action, index, _) => out.push((program.register_actions[*action].register, index)),
            StmtKind::If(_, yes, no) => [yes, no].into_iter().for_each(|b| indices(program, b, out)),
            StmtKind::Apply(apply) => {
                let actions = super::entry_layout::actions_of(&program.tables[apply.table]);
                actions.iter().for_each(|a| indices(program, &program.actions[*a].body, out));
                let follow = [&apply.hit, &apply.miss, &apply.default].into_iter();
                follow.chain(apply.arms.iter().map(|(_, b)| b)).for_each(|b| indices(program, b, out));
            }
            _ => {}
        }
    }
}

/// Numbers of the tables that these statements apply.
pub(super) fn tables(block: &[Stmt], out: &mut Vec<usize>) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::If(_, yes, no) => [yes, no].into_iter().for_each(|b| tables(b, out)),
            StmtKind::Apply(apply) => {
                out.push(apply.table);
                let follow = [&apply.hit, &apply.miss, &apply.default].into_iter();
                follow.chain(apply.arms.iter().map(|(_, b)| b)).for_each(|b| tables(b, out));
            }
            _ => {}
        }
    }
}

/// Fields that a deparser writes: checksums.
pub(super) fn deparser_writes(list: &[Deparse], out: &mut Fields) {
    for item in list {
        match item {
            Deparse::Checksum(_, dst, _) => dst.field().into_iter().for_each(|id| out[id.0 as usize] = true),
            Deparse::If(_, yes, no) => {
                deparser_writes(yes, out);
                deparser_writes(no, out);
            }
            _ => {}
        }
    }
}

/// Fields whose values decide about a half's ways: keys, conditions, presence, and what these are copied from.
pub(super) fn deciders(program: &Program, half: &Half) -> Fields {
    let mut out = vec![false; program.fields.len()];
    let mut copies = Vec::new();
    conditions(&half.deparser, &mut out);
    program.headers.iter().for_each(|h| out[h.valid.0 as usize] = true);
    decisions(program, &half.control, &mut out, &mut copies);
    loop {
        let before = out.clone();
        for (id, e) in &copies {
            if out[id.0 as usize] {
                read(&mut out, e);
            }
        }
        if out == before {
            return out;
        }
    }
}

fn conditions(list: &[Deparse], out: &mut Fields) {
    for item in list {
        if let Deparse::If(cond, yes, no) = item {
            read(out, cond);
            conditions(yes, out);
            conditions(no, out);
        }
    }
}

fn decisions<'p>(program: &'p Program, block: &'p [Stmt], out: &mut Fields, copies: &mut Vec<(FieldId, &'p Expr)>) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::Assign(dst, e) => copies.extend(dst.field().map(|id| (id, e))),
            StmtKind::If(cond, yes, no) => {
                read(out, cond);
                [yes, no].into_iter().for_each(|b| decisions(program, b, out, copies));
            }
            StmtKind::Apply(apply) => {
                let table = &program.tables[apply.table];
                table.keys.iter().for_each(|key| read(out, &key.expr));
                let actions = super::entry_layout::actions_of(table);
                actions.iter().for_each(|a| decisions(program, &program.actions[*a].body, out, copies));
                let follow = [&apply.hit, &apply.miss, &apply.default].into_iter();
                follow.chain(apply.arms.iter().map(|(_, b)| b)).for_each(|b| decisions(program, b, out, copies));
            }
            _ => {}
        }
    }
}
