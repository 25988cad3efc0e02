//! Native code for a checked program, made by Cranelift: one function for each of the program's, with registers as
//! variables. Where the check could not prove something, there is a test before the access.
mod alu;
mod calls;
mod memory;

use super::{Execute, Fault, Run, Shared, helpers};
use crate::check::{Compared, Facts};
use crate::helpers::Name;
use crate::insn::{Cond, FP, Insn, Operand, Reg};
use crate::object::{Function, Object};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, MemFlags, Signature, StackSlot, StackSlotData};
use cranelift_codegen::ir::{StackSlotKind, Value};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::Arc;

/// Compiled code.
pub(crate) struct Code {
    entry: extern "C" fn(&mut Run, u64, u64, u64, u64, u64) -> u64,
    module: Option<JITModule>,
    /// The code has the addresses of its maps in it.
    _shared: Arc<Shared>,
}

// SAFETY: finished code is only executed, which any number of threads may do; the module that owns its memory is not
// touched before the last of them is gone and it is dropped.
unsafe impl Send for Code {}
// SAFETY: see above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: `entry` is the only way into this memory, and it goes now.
            unsafe { module.free_memory() }
        }
    }
}

impl Execute for Code {
    #[inline]
    fn execute(&self, run: &mut Run) -> u64 {
        let context = std::ptr::from_mut(run) as u64;
        (self.entry)(run, context, 0, 0, 0, 0)
    }
}

/// Compiles a program. Errors: a sentence; only where Cranelift does not support this machine.
pub(crate) fn compile(object: &Object, facts: &Facts, shared: &Arc<Shared>) -> Result<Code, String> {
    let module = new_module()?;
    let compiler = Compiler { object, facts, shared, module, functions: BTreeMap::new(), helpers: BTreeMap::new() };
    compiler.all().map_err(|error| format!("{}: cannot be compiled: {error:#}", object.name))
}

fn new_module() -> Result<JITModule, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let wanted = [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("enable_verifier", verify),
        ("enable_probestack", "false"),
    ];
    for (name, value) in wanted {
        flags.set(name, value).map_err(|error| format!("the compiler does not have {name}: {error}"))?;
    }
    let builder = cranelift_native::builder().map_err(|why| format!("cannot compile for this machine: {why}"))?;
    let isa = builder.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    for name in Name::ALL {
        builder.symbol(symbol(name), helpers::function(name) as *const u8);
    }
    Ok(JITModule::new(builder))
}

fn symbol(name: Name) -> String {
    format!("helper_{name:?}")
}

struct Compiler<'a> {
    object: &'a Object,
    facts: &'a Facts,
    shared: &'a Arc<Shared>,
    module: JITModule,
    /// By first instruction.
    functions: BTreeMap<usize, FuncId>,
    helpers: BTreeMap<Name, FuncId>,
}

type Compiled<T> = Result<T, Box<cranelift_module::ModuleError>>;

impl Compiler<'_> {
    /// The run, five arguments; one result.
    fn signature(&self) -> Signature {
        let mut signature = self.module.make_signature();
        signature.params.extend([AbiParam::new(I64); 6]);
        signature.returns.push(AbiParam::new(I64));
        signature
    }

    fn all(mut self) -> Compiled<Code> {
        let signature = self.signature();
        for name in Name::ALL {
            let id = self.module.declare_function(&symbol(name), Linkage::Import, &signature)?;
            self.helpers.insert(name, id);
        }
        for function in &self.object.functions {
            let name = format!("function_{}", function.start);
            let id = self.module.declare_function(&name, Linkage::Local, &signature)?;
            self.functions.insert(function.start, id);
        }
        for function in &self.object.functions {
            self.function(function)?;
        }
        self.module.finalize_definitions()?;
        let address = self.module.get_finalized_function(self.functions[&0]);
        // SAFETY: it was compiled with this signature and calling convention.
        let entry = unsafe {
            std::mem::transmute::<*const u8, extern "C" fn(&mut Run, u64, u64, u64, u64, u64) -> u64>(address)
        };
        Ok(Code { entry, module: Some(self.module), _shared: self.shared.clone() })
    }

    fn function(&mut self, function: &Function) -> Compiled<()> {
        let mut context = self.module.make_context();
        context.func.signature = self.signature();
        let mut memory = FunctionBuilderContext::new();
        let builder = FunctionBuilder::new(&mut context.func, &mut memory);
        Body::new(self, builder, function).build();
        self.module.define_function(self.functions[&function.start], &mut context)?;
        Ok(())
    }
}

/// A function that is being compiled.
struct Body<'c, 'a, 'b> {
    compiler: &'c mut Compiler<'a>,
    b: FunctionBuilder<'b>,
    range: (usize, usize),
    run: Value,
    stack: StackSlot,
    blocks: BTreeMap<usize, Block>,
    /// The instruction that is being compiled.
    at: usize,
}

/// Loads and stores of the program: at any alignment, and they do not fault.
fn plain() -> MemFlags {
    MemFlags::new().with_notrap()
}

/// Loads and stores of fields of the run.
fn own() -> MemFlags {
    MemFlags::trusted()
}

const STACK: i64 = 512;

impl<'c, 'a, 'b> Body<'c, 'a, 'b> {
    fn new(compiler: &'c mut Compiler<'a>, mut b: FunctionBuilder<'b>, function: &Function) -> Self {
        let range = (function.start, function.end);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        for reg in 0..FP {
            b.declare_var(Variable::from_u32(reg.into()), I64);
        }
        let run = b.block_params(entry)[0];
        let stack = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, STACK as u32, 3));
        let blocks = BTreeMap::new();
        Body { compiler, b, range, run, stack, blocks, at: function.start }
    }

    fn build(mut self) {
        self.begin();
        let mut open = true;
        let mut at = self.range.0;
        while at < self.range.1 {
            self.at = at;
            if let Some(block) = self.blocks.get(&at).copied() {
                if open {
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
                open = true;
            }
            let insn = self.compiler.object.code[at];
            if open && insn != Insn::Second {
                if self.compiler.facts.reached[at] {
                    open = self.insn(insn);
                } else {
                    // The check has shown that nothing comes here.
                    self.stop(Fault::OutOfBounds);
                    open = false;
                }
            }
            at += 1;
        }
        self.b.seal_all_blocks();
        self.b.finalize();
    }

    fn begin(&mut self) {
        let entry = self.b.current_block().expect("the entry was made with the body");
        let zero = self.b.ins().iconst(I64, 0);
        for reg in 0..FP {
            let argument = (1..=5).contains(&reg).then(|| self.b.block_params(entry)[reg as usize]);
            self.b.def_var(Variable::from_u32(reg.into()), argument.unwrap_or(zero));
        }
        if self.compiler.facts.wild_stack {
            for at in (0..STACK).step_by(8) {
                self.b.ins().stack_store(zero, self.stack, at as i32);
            }
        }
        for at in self.leaders() {
            let block = self.b.create_block();
            self.blocks.insert(at, block);
        }
    }

    fn leaders(&self) -> BTreeSet<usize> {
        let mut leaders = BTreeSet::new();
        let (start, end) = self.range;
        for (at, insn) in self.compiler.object.code[start..end].iter().enumerate() {
            leaders.extend(insn.target());
            if matches!(insn, Insn::Branch { .. }) {
                leaders.insert(start + at + 1);
            }
        }
        leaders
    }

    fn get(&mut self, reg: Reg) -> Value {
        if reg == FP {
            return self.b.ins().stack_addr(I64, self.stack, STACK as i32);
        }
        self.b.use_var(Variable::from_u32(reg.into()))
    }

    fn set(&mut self, reg: Reg, value: Value) {
        self.b.def_var(Variable::from_u32(reg.into()), value);
    }

    fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Reg(reg) => self.get(reg),
            Operand::Imm(imm) => self.number(imm.into()),
        }
    }

    fn number(&mut self, value: i64) -> Value {
        self.b.ins().iconst(I64, value)
    }

    /// A field of the run.
    fn field(&mut self, offset: usize) -> Value {
        self.b.ins().load(I64, own(), self.run, offset as i32)
    }

    /// A field of four bytes.
    fn small_field(&mut self, offset: usize) -> Value {
        self.b.ins().uload32(own(), self.run, offset as i32)
    }

    /// Ends the run.
    fn stop(&mut self, fault: Fault) {
        let number = self.b.ins().iconst(I32, i64::from(fault as u32));
        let at = self.b.ins().iconst(I32, self.at as i64);
        self.b.ins().store(own(), number, self.run, offset_of!(Run, fault) as i32);
        self.b.ins().store(own(), at, self.run, offset_of!(Run, fault_at) as i32);
        let zero = self.number(0);
        self.b.ins().return_(&[zero]);
    }

    /// Goes on where `good` is not zero, and ends the run otherwise.
    fn require(&mut self, good: Value, fault: Fault) {
        let (next, bad) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        self.b.ins().brif(good, next, &[], bad, &[]);
        self.b.switch_to_block(bad);
        self.stop(fault);
        self.b.switch_to_block(next);
    }

    /// Takes from the run's budget; every loop and every call passes here, so that each run ends.
    fn charge(&mut self, instructions: usize) {
        let budget = self.field(offset_of!(Run, budget));
        let left = self.b.ins().iadd_imm(budget, -(instructions as i64));
        self.b.ins().store(own(), left, self.run, offset_of!(Run, budget) as i32);
        let good = self.b.ins().icmp_imm(IntCC::SignedGreaterThanOrEqual, left, 0);
        self.require(good, Fault::Instructions);
    }

    /// Compiles an instruction; false where control does not go on behind it.
    fn insn(&mut self, insn: Insn) -> bool {
        match insn {
            Insn::Alu { op, wide, dst, src } => self.alu(op, wide, dst, src),
            Insn::Negate { wide, dst } => self.negate(wide, dst),
            Insn::MoveSigned { wide, bits, dst, src } => self.move_signed(wide, bits, dst, src),
            Insn::ByteSwap { how, bits, dst } => self.byte_swap(how, bits, dst),
            Insn::Load { size, signed, dst, base, off } => self.load(size, signed, dst, base, off),
            Insn::Store { size, base, off, src } => self.store(size, base, off, src),
            Insn::Atomic { op, size, fetch, base, off, src } => self.atomic(op, size, fetch, (base, off), src),
            Insn::Jump { target } => {
                if target <= self.at {
                    self.charge(self.at - target + 1);
                }
                self.b.ins().jump(self.blocks[&target], &[]);
                return false;
            }
            Insn::Branch { cond, wide, dst, src, target } => {
                self.branch(cond, wide, dst, src, target);
                return false;
            }
            Insn::CallHelper { id } => self.call_helper(id),
            Insn::CallFunction { target } => self.call_function(target),
            Insn::Exit => {
                let result = self.get(0);
                self.b.ins().return_(&[result]);
                return false;
            }
            Insn::Constant { dst, value } => {
                let value = self.number(value as i64);
                self.set(dst, value);
            }
            Insn::Map { dst, map } => {
                let address = std::ptr::from_ref(&self.compiler.shared.maps[map as usize]) as i64;
                let value = self.number(address);
                self.set(dst, value);
            }
            Insn::MapData { dst, map, off } => {
                let start = self.compiler.shared.maps[map as usize].values.address() as i64;
                let value = self.number(start + i64::from(off));
                self.set(dst, value);
            }
            Insn::Second => {}
        }
        true
    }

    fn branch(&mut self, cond: Cond, wide: bool, dst: Reg, src: Operand, target: usize) {
        let (mut a, mut b) = (self.get(dst), self.operand(src));
        match self.compiler.facts.compares[self.at] {
            Some(Compared::MetaWithPacket) => b = self.field(offset_of!(Run, meta_end)),
            Some(Compared::PacketWithMeta) => a = self.field(offset_of!(Run, meta_end)),
            _ => {}
        }
        if !wide {
            (a, b) = (self.b.ins().ireduce(I32, a), self.b.ins().ireduce(I32, b));
        }
        let good = match condition(cond) {
            Some(code) => self.b.ins().icmp(code, a, b),
            None => self.b.ins().band(a, b),
        };
        let (taken, next) = (self.blocks[&target], self.blocks[&(self.at + 1)]);
        if target > self.at {
            self.b.ins().brif(good, taken, &[], next, &[]);
            return;
        }
        let back = self.b.create_block();
        self.b.ins().brif(good, back, &[], next, &[]);
        self.b.switch_to_block(back);
        self.charge(self.at - target + 1);
        self.b.ins().jump(taken, &[]);
    }
}

/// The condition code; none for "any bit in common".
fn condition(cond: Cond) -> Option<IntCC> {
    Some(match cond {
        Cond::Eq => IntCC::Equal,
        Cond::Ne => IntCC::NotEqual,
        Cond::Gt => IntCC::UnsignedGreaterThan,
        Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
        Cond::Lt => IntCC::UnsignedLessThan,
        Cond::Le => IntCC::UnsignedLessThanOrEqual,
        Cond::SignedGt => IntCC::SignedGreaterThan,
        Cond::SignedGe => IntCC::SignedGreaterThanOrEqual,
        Cond::SignedLt => IntCC::SignedLessThan,
        Cond::SignedLe => IntCC::SignedLessThanOrEqual,
        Cond::Set => return None,
    })
}
