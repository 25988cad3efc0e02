//! One half of a program to one function: parser, control, deparser. Fields are variables of the function, so what is
//! never looked at costs nothing.
use super::context::{self as at, In};
use super::values::{Scope, container};
use crate::ir::{ActionCall, Dst, Expr, Field, FieldId, Gress, Half, Place, Program, Stmt, StmtKind, mask};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64, I128};
use cranelift_codegen::ir::{
    AliasRegion, Block, FuncRef, InstBuilder, MemFlags, StackSlotData, StackSlotKind, Type, Value,
};
use cranelift_frontend::{FunctionBuilder, Variable};

/// What the code generator does not take, though the interpreter would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    pub(super) fn new(what: impl Into<String>) -> Refusal {
        Refusal(what.into())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the program cannot be compiled to native code: {} is not supported", self.0)
    }
}

impl std::error::Error for Refusal {}

/// Functions that generated code calls.
#[derive(Clone, Copy)]
pub(super) struct Helpers {
    pub lookup: FuncRef,
    pub hash: FuncRef,
    pub math: FuncRef,
    pub meter: FuncRef,
    pub sum: FuncRef,
}

/// Calls a helper and gives its result.
pub(super) fn call(l: &mut Lower<'_, '_>, which: impl Fn(&Helpers) -> FuncRef, args: &[Value]) -> Value {
    let call = l.b.ins().call(which(&l.helpers), args);
    l.b.inst_results(call)[0]
}

pub(super) struct Lower<'f, 'p> {
    pub b: FunctionBuilder<'f>,
    pub program: &'p Program,
    pub half: &'p Half,
    pub gress: Gress,
    pub helpers: Helpers,
    /// The function's argument.
    pub context: Value,
    /// The field of the unicast port, and whether it was written.
    pub port: Option<FieldId>,
    pub port_set: Variable,
    /// Byte of the packet where the parser stopped.
    pub rest: Variable,
    /// Of the parser's checksum units.
    pub sums: Vec<Variable>,
    /// Where a packet goes that the parser rejects, and where the control ends.
    pub reject: Block,
    pub end: Block,
    next: u32,
    /// Where each field lies, and the address of them all. In memory, since tables are many branches: as values of
    /// the function, every field that any of a table's actions sets would be moved at the end of each.
    layout: Vec<i32>,
    fields: Value,
}

/// Where each field of a half lies, and how many bytes they are.
pub(super) fn layout(program: &Program, gress: Gress) -> (Vec<i32>, usize) {
    let mut end = 0;
    let place = |field: &Field| {
        let bytes = if field.gress == gress { container(field.ty.width()).bytes() as usize } else { 0 };
        let at = if bytes == 0 { 0 } else { usize::next_multiple_of(end, bytes) };
        end = if bytes == 0 { end } else { at + bytes };
        at as i32
    };
    let list = program.fields.iter().map(place).collect();
    (list, end)
}

impl<'f, 'p> Lower<'f, 'p> {
    /// The whole function.
    pub fn function(
        b: FunctionBuilder<'f>,
        program: &'p Program,
        gress: Gress,
        helpers: Helpers,
    ) -> Result<(), Refusal> {
        let mut l = Lower::begin(b, program, gress, helpers);
        let control = l.b.create_block();
        l.parser(control)?;
        l.b.switch_to_block(control);
        l.block(&l.half.control, Scope::default())?;
        let end = l.end;
        l.b.ins().jump(end, &[]);
        l.b.switch_to_block(end);
        l.deparser()?;
        let one = l.b.ins().iconst(I64, 1);
        l.b.ins().return_(&[one]);
        let reject = l.reject;
        l.b.switch_to_block(reject);
        let zero = l.b.ins().iconst(I64, 0);
        l.b.ins().return_(&[zero]);
        l.b.seal_all_blocks();
        l.b.finalize();
        Ok(())
    }

    fn begin(mut b: FunctionBuilder<'f>, program: &'p Program, gress: Gress, helpers: Helpers) -> Lower<'f, 'p> {
        let half = program.half(gress);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let context = b.block_params(entry)[0];
        let (reject, end) = (b.create_block(), b.create_block());
        let port = half.intrinsic.get("ingress_intrinsic_metadata_for_tm_t.ucast_egress_port").copied();
        let none = Variable::from_u32(0);
        let mut l = Lower {
            b,
            program,
            half,
            gress,
            helpers,
            context,
            port,
            port_set: none,
            rest: none,
            sums: Vec::new(),
            reject,
            end,
            next: 0,
            layout: layout(program, gress).0,
            fields: context,
        };
        l.fields = l.input(In::Fields);
        l.port_set = l.variable_of(I64);
        l.rest = l.variable_of(I64);
        l.sums = (0..half.checksums.0).map(|_| l.variable_of(I32)).collect();
        let stamp = format!("{}_intrinsic_metadata_from_parser_t.global_tstamp", gress.name());
        if let Some(id) = half.intrinsic.get(&stamp) {
            let now = l.input(In::Now);
            let now = l.low_bits(now, 48);
            l.set_field(*id, now);
        }
        l
    }

    /// Fields, and everything else, are zero at the start.
    fn declare(&mut self, var: Variable, ty: Type) {
        self.b.declare_var(var, ty);
        let zero = self.constant(ty, 0);
        self.b.def_var(var, zero);
    }

    pub fn variable_of(&mut self, ty: Type) -> Variable {
        let var = Variable::from_u32(self.next);
        self.next += 1;
        self.declare(var, ty);
        var
    }

    fn field_flags() -> MemFlags {
        MemFlags::new().with_notrap().with_alias_region(Some(AliasRegion::Heap))
    }

    /// A field's value, in its container.
    pub fn get_field(&mut self, id: FieldId) -> Value {
        let ty = container(self.program.field(id).ty.width());
        self.b.ins().load(ty, Self::field_flags(), self.fields, self.layout[id.0 as usize])
    }

    pub fn set_field(&mut self, id: FieldId, value: Value) {
        let value = self.resize(value, container(self.program.field(id).ty.width()));
        self.b.ins().store(Self::field_flags(), value, self.fields, self.layout[id.0 as usize]);
    }

    /// A value that the caller gave.
    pub fn input(&mut self, what: In) -> Value {
        self.b.ins().load(I64, MemFlags::trusted().with_readonly(), self.context, what.offset())
    }

    pub fn load(&mut self, ty: Type, base: Value, offset: i32) -> Value {
        self.b.ins().load(ty, MemFlags::new().with_notrap(), base, offset)
    }

    pub fn store(&mut self, value: Value, base: Value, offset: i32) {
        self.b.ins().store(MemFlags::new().with_notrap(), value, base, offset);
    }

    /// Memory of the function of its own.
    pub fn scratch(&mut self, bytes: u32) -> Value {
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes.max(8), 3));
        self.b.ins().stack_addr(I64, slot, 0)
    }

    /// Code for both ways; the builder stands after both then.
    pub fn branch(
        &mut self,
        cond: Value,
        then: impl FnOnce(&mut Self) -> Result<(), Refusal>,
        els: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let (yes, no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(cond, yes, &[], no, &[]);
        self.b.switch_to_block(yes);
        then(self)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(no);
        els(self)?;
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
        Ok(())
    }

    pub fn block(&mut self, block: &[Stmt], scope: Scope<'_>) -> Result<(), Refusal> {
        block.iter().try_for_each(|stmt| self.stmt(stmt, scope))
    }

    fn stmt(&mut self, stmt: &Stmt, scope: Scope<'_>) -> Result<(), Refusal> {
        match &stmt.kind {
            StmtKind::Assign(dst, e) => {
                let value = self.eval(e, scope)?;
                self.assign_field(dst, value, e.ty.width());
            }
            StmtKind::If(cond, then, els) => {
                let cond = self.eval(cond, scope)?;
                let cond = self.holds(cond);
                return self.branch(cond, |l| l.block(then, scope), |l| l.block(els, scope));
            }
            StmtKind::Apply(apply) => return self.apply(apply),
            StmtKind::Exec(action, index, dsts) => {
                let index = self.eval(index, scope)?;
                return self.stateful(*action, index, dsts);
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
            StmtKind::SetValid(h, valid) => {
                let value = self.constant(I32, *valid as u128);
                self.set_field(self.program.headers[*h].valid, value);
            }
            StmtKind::Exit => {
                let end = self.end;
                self.b.ins().jump(end, &[]);
                // What stands behind it is never reached.
                let after = self.b.create_block();
                self.b.switch_to_block(after);
            }
        }
        Ok(())
    }

    /// One word of the context, which is an array's address, and there the address of its n-th part.
    fn part_of(&mut self, offset: i32, index: usize) -> Value {
        let flags = MemFlags::trusted().with_readonly();
        let list = self.b.ins().load(I64, flags, self.context, offset);
        self.b.ins().load(I64, flags, list, index as i32 * 8)
    }

    fn in_range(&mut self, index: Value, size: u32) -> (Value, Value) {
        let index = if self.type_of(index) == I128 { self.resize(index, I64) } else { index };
        let limit = self.constant(self.type_of(index), size as u128);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, limit);
        (self.resize(index, I64), inside)
    }

    /// Reads, modifies and writes one entry of a register. Beyond the end, zero is read and nothing is written.
    fn stateful(&mut self, action: usize, index: Value, dsts: &[Option<Dst>]) -> Result<(), Refusal> {
        let program = self.program;
        let ra = &program.register_actions[action];
        let info = &program.registers[ra.register];
        let word = memory_type(info.words[0].width())?;
        let stride = info.words.len() as i64 * word.bytes() as i64;
        let base = self.part_of(at::REGISTERS, ra.register);
        let (index, inside) = self.in_range(index, info.size);
        let offset = self.b.ins().imul_imm(index, stride);
        let address = self.b.ins().iadd(base, offset);
        let mem: Vec<Variable> = info.words.iter().map(|ty| self.variable_of(container(ty.width()))).collect();
        let outs: Vec<Variable> = ra.outputs.iter().map(|ty| self.variable_of(container(ty.width()))).collect();
        let read = |l: &mut Self| {
            for (i, var) in mem.iter().enumerate() {
                let value = l.load(word, address, i as i32 * word.bytes() as i32);
                let value = l.resize(value, container(info.words[i].width()));
                l.b.def_var(*var, value);
            }
            Ok(())
        };
        self.branch(inside, read, |_| Ok(()))?;
        self.stateful_block(&ra.body, &mem, &outs, action)?;
        let write = |l: &mut Self| {
            for (i, var) in mem.iter().enumerate() {
                let value = l.b.use_var(*var);
                let value = l.resize(value, word);
                l.store(value, address, i as i32 * word.bytes() as i32);
            }
            Ok(())
        };
        self.branch(inside, write, |_| Ok(()))?;
        for ((dst, var), ty) in dsts.iter().zip(&outs).zip(&ra.outputs) {
            if let Some(dst) = dst {
                let value = self.b.use_var(*var);
                self.assign_field(dst, value, ty.width());
            }
        }
        Ok(())
    }

    fn stateful_block(
        &mut self,
        body: &[Stmt],
        mem: &[Variable],
        outs: &[Variable],
        action: usize,
    ) -> Result<(), Refusal> {
        let ra = &self.program.register_actions[action];
        for stmt in body {
            let scope = Scope { mem, ..Scope::default() };
            match &stmt.kind {
                StmtKind::Assign(dst, e) => {
                    let (var, whole) = match dst.place {
                        Place::Mem(w) => (mem[w], self.program.registers[ra.register].words[w].width()),
                        Place::Out(i) => (outs[i], ra.outputs[i].width()),
                        Place::Field(_) => continue,
                    };
                    let value = self.eval(e, scope)?;
                    self.assign_to(var, whole, dst, value, e.ty.width());
                }
                StmtKind::If(cond, then, els) => {
                    let cond = self.eval(cond, scope)?;
                    let cond = self.holds(cond);
                    let way = |block| move |l: &mut Self| l.stateful_block(block, mem, outs, action);
                    self.branch(cond, way(then), way(els))?;
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

    /// Variables that hold an action's data.
    pub fn args_of(&mut self, action: usize) -> Vec<Variable> {
        let program = self.program;
        program.actions[action].params.iter().map(|(_, ty)| self.variable_of(container(ty.width()))).collect()
    }

    pub fn set_args(&mut self, call: &ActionCall, args: &[Variable]) {
        let params = &self.program.actions[call.action].params;
        for ((var, value), (_, ty)) in args.iter().zip(&call.args).zip(params) {
            let value = self.constant(container(ty.width()), *value & mask(ty.width()));
            self.b.def_var(*var, value);
        }
    }
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
