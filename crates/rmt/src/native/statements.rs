//! Native code of statements and actions. One half of a program becomes one function, or both do ([`super::joined`]):
//! parser, control, deparser.
use super::context as at;
use super::facts::Bits;
use super::function::{Helpers, Lower, Refusal, call, container};
use super::values::{Operand, Scope};
use super::ways::{Next, Way, follow};
use crate::ir::{Destination, Dst, Expr, Gress, Program, Stmt, StmtKind};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64, I128};
use cranelift_codegen::ir::{InstBuilder, MemFlags, Type, Value};
use cranelift_frontend::FunctionBuilder;

/// Shape of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Half(Gress),
    /// Ingress, and egress where the packet goes on at once.
    Joined,
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Half(gress) => gress.name(),
            Shape::Joined => "joined",
        }
    }
}

impl<'f, 'p> Lower<'f, 'p> {
    /// The whole function.
    pub(super) fn function(
        b: FunctionBuilder<'f>,
        program: &'p Program,
        shape: Shape,
        helpers: Helpers,
    ) -> Result<(), Refusal> {
        let gress = if let Shape::Half(gress) = shape { gress } else { Gress::Ingress };
        let mut l = Lower::begin(b, program, gress, helpers);
        if shape == Shape::Joined {
            l.join();
        }
        l.parser()?;
        l.all_ways()?;
        let reject = l.reject;
        l.b.switch_to_block(reject);
        l.answer(0);
        if shape == Shape::Joined {
            l.cross()?;
        }
        l.b.seal_all_blocks();
        l.b.finalize();
        Ok(())
    }

    pub(super) fn all_ways(&mut self) -> Result<(), Refusal> {
        while let Some((block, way, facts)) = self.ways.pop() {
            // Everything that leads here stands before it.
            self.enter(block);
            self.facts = facts;
            self.way(way)?;
        }
        Ok(())
    }

    fn way(&mut self, way: Way<'p>) -> Result<(), Refusal> {
        match way {
            Way::On(next) if next.split().is_none() => self.end(),
            Way::On(next) => self.statements(next),
            Way::Chosen(apply, call, hit, next) => {
                let params = &self.program.actions[call.action].params;
                let args: Vec<Operand> = call
                    .args
                    .iter()
                    .zip(params)
                    .map(|(value, (_, ty))| Operand::constant(*value, ty.width()))
                    .collect();
                let body = &self.program.actions[call.action].body;
                self.block(body, Scope { args: &args, ..Scope::default() })?;
                let after = follow(self.program, apply, call.action, hit);
                let next = after.into_iter().rev().fold(next, Next::then);
                self.go(Way::On(next));
                Ok(())
            }
        }
    }

    /// An action's body.
    pub(super) fn block(&mut self, block: &[Stmt], scope: Scope<'_>) -> Result<(), Refusal> {
        block.iter().try_for_each(|stmt| self.stmt(stmt, scope))
    }

    /// A statement of the control; what follows it here, unless it ends in jumps.
    pub(super) fn control_stmt(&mut self, stmt: &'p Stmt, rest: Next<'p>) -> Result<Option<Next<'p>>, Refusal> {
        match &stmt.kind {
            StmtKind::If(cond, then, els) => {
                if let Some(value) = self.facts.fold(cond, &[]) {
                    return Ok(Some(rest.then(if value != 0 { then } else { els })));
                }
                let value = self.eval(cond, Scope::default())?;
                let value = self.holds(value);
                let (yes, no) = (self.b.create_block(), self.b.create_block());
                self.b.ins().brif(value, yes, &[], no, &[]);
                let before = self.facts.clone();
                for (block, holds, body) in [(yes, true, then), (no, false, els)] {
                    self.enter(block);
                    self.facts = before.clone();
                    self.facts.assume(cond, holds);
                    self.go(Way::On(rest.clone().then(body)));
                }
                Ok(None)
            }
            StmtKind::Apply(apply) => {
                self.table = self.order(stmt);
                self.apply(apply, rest)
            }
            StmtKind::Exit => {
                self.go(Way::On(Next::END));
                Ok(None)
            }
            _ => {
                self.stmt(stmt, Scope::default())?;
                Ok(Some(rest))
            }
        }
    }

    fn stmt(&mut self, stmt: &Stmt, scope: Scope<'_>) -> Result<(), Refusal> {
        match &stmt.kind {
            StmtKind::Assign(dst, e) => self.assign(dst, e, scope)?,
            StmtKind::If(cond, then, els) => {
                let cond = self.eval(cond, scope)?;
                let cond = self.holds(cond);
                return self.branch(cond, |l| l.block(then, scope), |l| l.block(els, scope));
            }
            StmtKind::Apply(_) => return Err(Refusal::new("a table applied by an action")),
            StmtKind::Exec(action, index, dsts) => {
                let inside = self.is_inside(index);
                let index = self.eval(index, scope)?;
                return self.stateful(*action, (index, inside), dsts);
            }
            StmtKind::Hash(unit, inputs, dst) => return self.hash(*unit, inputs, dst, scope),
            StmtKind::Random(dst) => self.random(dst),
            StmtKind::Count(counter, index) => {
                let index = self.eval(index, scope)?;
                return self.count(*counter, index);
            }
            StmtKind::Meter(unit, index, dst) => {
                let index = self.eval(index, scope)?;
                let (index, unit) = (self.resize(index, I64), self.b.ins().iconst(I64, *unit as i64));
                let context = self.context;
                let colour = call(self, |h| h.meter, &[context, unit, index]);
                self.assign_field(dst, colour, 8);
            }
            StmtKind::SetValid(h, valid) => self.settle_field(self.program.headers[*h].valid, *valid as u128),
            StmtKind::Exit => {
                self.go(Way::On(Next::END));
                // What stands behind it is never reached.
                let after = self.b.create_block();
                self.enter(after);
            }
        }
        Ok(())
    }

    pub(super) fn assign(&mut self, dst: &Dst, e: &Expr, scope: Scope<'_>) -> Result<(), Refusal> {
        let known = self.fold(e, scope);
        let value = self.eval(e, scope)?;
        self.assign_field(dst, value, e.ty.width());
        if let (Some(value), Some(id)) = (known, dst.field()) {
            let width = self.program.field(id).ty.width();
            if dst.lo == 0 && dst.hi + 1 == width && e.ty.width() <= width {
                self.facts.set(id, Bits::constant(value, width));
            }
        }
        Ok(())
    }

    /// One word of the context, which is an array's address, and there the address of its n-th part.
    fn part_of(&mut self, offset: i32, index: usize) -> Value {
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        let list = self.b.ins().load(I64, flags, self.context, offset);
        self.b.ins().load(I64, flags, list, index as i32 * 8)
    }

    /// An index of at most 64 bits, and whether it is inside.
    fn in_range(&mut self, index: Value, size: u32) -> (Value, Value) {
        let index = if self.type_of(index) == I128 { self.resize(index, I64) } else { index };
        let limit = self.constant(self.type_of(index), size as u128);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, limit);
        (index, inside)
    }

    /// The entry of a register that an index means: beyond the end, one more that is there for this, zero now.
    fn entry_of(&mut self, index: Value, size: u32, base: Value, stride: u32) -> Value {
        let (index, inside) = self.in_range(index, size);
        let index = self.resize(index, I64);
        let (beyond, after) = (self.b.create_block(), self.b.create_block());
        let entry = self.b.append_block_param(after, I64);
        self.b.set_cold_block(beyond);
        self.b.ins().brif(inside, after, &[index.into()], beyond, &[]);
        self.enter(beyond);
        let zero = self.constant(I8, 0);
        for byte in 0..stride {
            let offset = i32::try_from(u64::from(size) * u64::from(stride) + u64::from(byte)).unwrap_or(i32::MAX);
            self.store(zero, base, offset);
        }
        let last = self.constant(I64, size.into());
        self.b.ins().jump(after, &[last.into()]);
        self.enter(after);
        entry
    }

    /// Reads, modifies and writes one entry of a register: index, and whether it is known to be inside. Beyond the end,
    /// zero is read and nothing is written.
    fn stateful(&mut self, action: usize, index: (Value, bool), dsts: &[Option<Dst>]) -> Result<(), Refusal> {
        let program = self.program;
        let ra = &program.register_actions[action];
        let info = &program.registers[ra.register];
        let word = memory_type(info.words[0].width())?;
        let stride = info.words.len() as i64 * word.bytes() as i64;
        let base = self.part_of(at::REGISTERS, ra.register);
        let index = match index {
            (index, true) => self.resize(index, I64),
            (index, false) => self.entry_of(index, info.size, base, stride as u32),
        };
        let offset = self.b.ins().imul_imm(index, stride);
        let address = self.b.ins().iadd(base, offset);
        let mut state = State { mem: Vec::new(), outs: Vec::new(), changed: vec![false; info.words.len()] };
        for (i, ty) in info.words.iter().enumerate() {
            let value = self.load(word, address, i as i32 * word.bytes() as i32);
            state.mem.push(self.resize(value, container(ty.width())));
        }
        for ty in &ra.outputs {
            state.outs.push(self.constant(container(ty.width()), 0));
        }
        self.stateful_block(&ra.body, &mut state, action, None)?;
        for (i, value) in state.mem.iter().enumerate().filter(|(i, _)| state.changed[*i]) {
            let value = self.resize(*value, word);
            self.store(value, address, i as i32 * word.bytes() as i32);
        }
        for ((dst, value), ty) in dsts.iter().zip(&state.outs).zip(&ra.outputs) {
            if let Some(dst) = dst {
                self.assign_field(dst, *value, ty.width());
            }
        }
        Ok(())
    }

    /// A stateful ALU's program, without a branch: what a condition decides about is chosen by it.
    fn stateful_block(
        &mut self,
        body: &[Stmt],
        state: &mut State,
        action: usize,
        only_if: Option<Value>,
    ) -> Result<(), Refusal> {
        let ra = &self.program.register_actions[action];
        for stmt in body {
            let mem = state.mem.clone();
            let scope = Scope { mem: &mem, ..Scope::default() };
            match &stmt.kind {
                StmtKind::Assign(dst, e) => {
                    let (old, whole) = match dst.place {
                        Destination::Mem(w) => (state.mem[w], self.program.registers[ra.register].words[w].width()),
                        Destination::Out(i) => (state.outs[i], ra.outputs[i].width()),
                        Destination::Field(_) => continue,
                    };
                    let value = self.eval(e, scope)?;
                    let value = self.merged(|_| old, whole, dst, value, e.ty.width());
                    let value = match only_if {
                        Some(cond) => self.b.ins().select(cond, value, old),
                        None => value,
                    };
                    match dst.place {
                        Destination::Mem(w) => (state.mem[w], state.changed[w]) = (value, true),
                        Destination::Out(i) => state.outs[i] = value,
                        Destination::Field(_) => {}
                    }
                }
                StmtKind::If(cond, then, els) => {
                    let cond = self.eval(cond, scope)?;
                    let cond = self.holds(cond);
                    let not = self.b.ins().icmp_imm(IntCC::Equal, cond, 0);
                    for (way, body) in [(cond, then), (not, els)] {
                        let way = match only_if {
                            Some(before) => self.b.ins().band(before, way),
                            None => way,
                        };
                        self.stateful_block(body, state, action, Some(way))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn hash(&mut self, unit: usize, inputs: &[Expr], dst: &Dst, scope: Scope<'_>) -> Result<(), Refusal> {
        let width = self.program.hashes[unit].width;
        if width > 64 {
            return Err(Refusal::new("a hash of more than 64 bits"));
        }
        let mut values = Vec::new();
        for e in inputs {
            values.push((self.eval(e, scope)?, e.ty.width()));
        }
        let bits: u32 = values.iter().map(|v| v.1).sum();
        let bytes = self.scratch(bits.div_ceil(8));
        self.pack(&values, bytes);
        let (unit, len) = (self.b.ins().iconst(I64, unit as i64), self.b.ins().iconst(I64, bits.div_ceil(8) as i64));
        let context = self.context;
        let value = call(self, |h| h.hash, &[context, unit, bytes, len]);
        self.assign_field(dst, value, width);
        Ok(())
    }

    /// xorshift64, as the interpreter's.
    fn random(&mut self, dst: &Dst) {
        let mut x = self.load(I64, self.context, at::RANDOM);
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            let moved = if left { self.b.ins().ishl_imm(x, by) } else { self.b.ins().ushr_imm(x, by) };
            x = self.b.ins().bxor(x, moved);
        }
        self.store(x, self.context, at::RANDOM);
        self.assign_field(dst, x, 64);
    }

    fn count(&mut self, counter: usize, index: Value) -> Result<(), Refusal> {
        let base = self.part_of(at::COUNTERS, counter);
        let (index, inside) = self.in_range(index, self.program.counters[counter].size);
        let index = self.resize(index, I64);
        let more = |l: &mut Self| {
            let offset = l.b.ins().imul_imm(index, 8);
            let address = l.b.ins().iadd(base, offset);
            let value = l.load(I64, address, 0);
            let value = l.b.ins().iadd_imm(value, 1);
            l.store(value, address, 0);
            Ok(())
        };
        self.branch(inside, more, |_| Ok(()))
    }
}

/// A stateful ALU at work: its words, its outputs, and which words its program may change.
struct State {
    mem: Vec<Value>,
    outs: Vec<Value>,
    changed: Vec<bool>,
}

/// How a word of a register lies in memory.
fn memory_type(width: u32) -> Result<Type, Refusal> {
    match width {
        1..=8 => Ok(I8),
        9..=16 => Ok(I16),
        17..=32 => Ok(I32),
        _ => Err(Refusal::new("a register word of more than 32 bits")),
    }
}
