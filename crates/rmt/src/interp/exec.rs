//! Execution of controls, actions, stateful programs and expressions, in the interpreter.
use super::bits::{BitWriter, bits};
use super::hash::hash;
use super::machine::Machine;
use crate::ir::{ActionCall, Apply, BinOp, Destination, Dst, Expr, ExprKind, FieldId, Program, Stmt, StmtKind, mask};
use crate::ops;
use std::ops::ControlFlow;

/// Names in scope of an expression.
pub(super) struct Scope<'s> {
    pub program: &'s Program,
    pub phv: &'s [u128],
    pub args: &'s [u128],
    pub mem: &'s [u128],
    /// The packet from the parser's cursor on.
    pub ahead: &'s [u8],
}

impl Scope<'_> {
    pub(super) fn eval(&self, e: &Expr) -> u128 {
        let ty = e.ty;
        match &e.kind {
            ExprKind::Const(v) => *v,
            ExprKind::Field(id) => self.phv[id.0 as usize],
            ExprKind::Arg(i) => self.args.get(*i).copied().unwrap_or(0),
            ExprKind::Mem(w) => self.mem.get(*w).copied().unwrap_or(0),
            ExprKind::Slice(a, _, lo) => self.eval(a) >> lo & mask(ty.width()),
            ExprKind::Unary(op, a) => ops::unary(*op, self.eval(a), ty),
            ExprKind::Binary(BinOp::LogAnd, a, b) => (self.eval(a) != 0 && self.eval(b) != 0) as u128,
            ExprKind::Binary(BinOp::LogOr, a, b) => (self.eval(a) != 0 || self.eval(b) != 0) as u128,
            ExprKind::Binary(op, a, b) => ops::binary(*op, self.eval(a), self.eval(b), a.ty, b.ty),
            ExprKind::Cast(a) => ops::cast(self.eval(a), a.ty, ty),
            ExprKind::Mux(c, a, b) => self.eval(if self.eval(c) != 0 { a } else { b }),
            ExprKind::Min(a, b) => self.extreme(a, b, BinOp::Le),
            ExprKind::Max(a, b) => self.extreme(a, b, BinOp::Ge),
            ExprKind::Math(unit, a) => ops::math(self.program.maths[*unit], self.eval(a), ty),
            ExprKind::Predicate(list) => {
                let bits = list.iter().enumerate().map(|(i, c)| (self.eval(c) as usize) << i);
                1 << bits.sum::<usize>()
            }
            ExprKind::Lookahead(offset) => bits(self.ahead, *offset as usize, ty.width()).unwrap_or(0),
        }
    }

    fn extreme(&self, a: &Expr, b: &Expr, op: BinOp) -> u128 {
        let (x, y) = (self.eval(a), self.eval(b));
        if ops::binary(op, x, y, a.ty, b.ty) == 1 { x } else { y }
    }
}

/// Replaces the bits that a destination names.
pub(super) fn insert(old: u128, dst: &Dst, value: u128) -> u128 {
    let field = mask(dst.hi - dst.lo + 1);
    (old & !(field << dst.lo)) | (value & field) << dst.lo
}

/// One pass through a control.
pub(super) struct Run<'m> {
    pub machine: &'m mut Machine,
    pub program: &'m Program,
    pub phv: Vec<u128>,
    /// The field that holds the unicast port, and whether it was written.
    pub port: Option<FieldId>,
    pub port_set: bool,
}

/// `Break` after `exit`.
type Flow = ControlFlow<()>;

impl Run<'_> {
    fn eval(&self, e: &Expr, args: &[u128]) -> u128 {
        Scope { program: self.program, phv: &self.phv, args, mem: &[], ahead: &[] }.eval(e)
    }

    pub(super) fn assign(&mut self, dst: &Dst, value: u128) {
        let Destination::Field(id) = dst.place else { return };
        self.port_set |= Some(id) == self.port;
        let slot = &mut self.phv[id.0 as usize];
        *slot = insert(*slot, dst, value);
    }

    pub(super) fn block(&mut self, block: &[Stmt], args: &[u128]) -> Flow {
        for stmt in block {
            self.stmt(stmt, args)?;
        }
        Flow::Continue(())
    }

    fn stmt(&mut self, stmt: &Stmt, args: &[u128]) -> Flow {
        match &stmt.kind {
            StmtKind::Assign(dst, e) => {
                let value = self.eval(e, args);
                self.assign(dst, value);
            }
            StmtKind::If(cond, then, els) => {
                let way = if self.eval(cond, args) != 0 { then } else { els };
                return self.block(way, args);
            }
            StmtKind::Apply(apply) => return self.apply(apply),
            StmtKind::Exec(action, index, dsts) => {
                let index = self.eval(index, args);
                self.stateful(*action, index, dsts);
            }
            StmtKind::Hash(unit, inputs, dst) => {
                let mut bits = BitWriter::default();
                inputs.iter().for_each(|e| bits.put(self.eval(e, args), e.ty.width()));
                let info = &self.program.hashes[*unit];
                self.assign(dst, hash(info.kind, &bits.bytes(), info.width));
            }
            StmtKind::Random(dst) => {
                let value = self.random();
                self.assign(dst, value);
            }
            StmtKind::Count(counter, index) => {
                let index = self.eval(index, args) as usize;
                if let Some(value) = self.machine.counters[*counter].get_mut(index) {
                    *value += 1;
                }
            }
            StmtKind::Meter(meter, index, dst) => {
                let index = self.eval(index, args) as u64;
                let Machine { meters, now_ns, length, .. } = &mut *self.machine;
                let colour = meters[*meter].execute(index, *now_ns, *length as u64);
                self.assign(dst, colour as u128);
            }
            StmtKind::SetValid(h, valid) => {
                let field = self.program.headers[*h].valid;
                self.phv[field.0 as usize] = *valid as u128;
            }
            StmtKind::Exit => return Flow::Break(()),
        }
        Flow::Continue(())
    }

    /// xorshift64: the same numbers in every run.
    fn random(&mut self) -> u128 {
        let x = &mut self.machine.random;
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x as u128
    }

    fn apply(&mut self, apply: &Apply) -> Flow {
        let table = &self.program.tables[apply.table];
        let keys: Vec<u128> = table.keys.iter().map(|k| self.eval(&k.expr, &[])).collect();
        let state = &self.machine.tables[apply.table];
        let found = if table.keys.is_empty() { None } else { state.find(&keys).cloned() };
        let hit = found.is_some();
        let ActionCall { action, args } = found.unwrap_or_else(|| state.default().clone());
        self.block(&self.program.actions[action].body, &args)?;
        self.block(if hit { &apply.hit } else { &apply.miss }, &[])?;
        let ran = table.actions.iter().position(|a| *a == action);
        let arm = apply.arms.iter().find(|(labels, _)| ran.is_some_and(|r| labels.contains(&r)));
        self.block(arm.map_or(&apply.default, |(_, body)| body), &[])
    }

    /// Reads, modifies and writes one entry of a register.
    fn stateful(&mut self, action: usize, index: u128, dsts: &[Option<Dst>]) {
        let ra = &self.program.register_actions[action];
        let info = &self.program.registers[ra.register];
        let words = info.words.len();
        let mut mem = vec![0; words];
        let at = (index < info.size as u128).then_some(index as usize * words);
        if let Some(at) = at {
            mem.copy_from_slice(&self.machine.registers[ra.register][at..at + words]);
        }
        let mut outs = vec![0; ra.outputs.len()];
        self.stateful_block(&ra.body, &mut mem, &mut outs);
        if let Some(at) = at {
            self.machine.registers[ra.register][at..at + words].copy_from_slice(&mem);
        }
        for (dst, value) in dsts.iter().zip(outs) {
            if let Some(dst) = dst {
                self.assign(dst, value);
            }
        }
    }

    fn stateful_block(&self, body: &[Stmt], mem: &mut [u128], outs: &mut [u128]) {
        for stmt in body {
            let scope = Scope { program: self.program, phv: &self.phv, args: &[], mem, ahead: &[] };
            match &stmt.kind {
                StmtKind::Assign(dst, e) => {
                    let value = scope.eval(e);
                    let slot = match dst.place {
                        Destination::Mem(w) => &mut mem[w],
                        Destination::Out(i) => &mut outs[i],
                        Destination::Field(_) => continue,
                    };
                    *slot = insert(*slot, dst, value);
                }
                StmtKind::If(cond, then, els) => {
                    let way = if scope.eval(cond) != 0 { then } else { els };
                    self.stateful_block(way, mem, outs);
                }
                _ => {}
            }
        }
    }
}
