//! Function under construction: fields are its variables, so what is never read costs nothing. What is known of them on
//! a way needs no code ([`super::ways`]).
use super::context::In;
use super::facts::{Bits, Facts};
use super::ways::Ways;
use crate::ir::{FieldId, Gress, Half, Program};
use cranelift_codegen::ir::types::{I32, I64, I128};
use cranelift_codegen::ir::{Block, FuncRef, InstBuilder, MemFlags, StackSlotData, StackSlotKind, Type, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

/// A construct that the code generator refuses, though the interpreter runs it.
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
    pub probe_one: FuncRef,
    pub probe_two: FuncRef,
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

/// Crossing from one half to the other, in a function of both.
#[derive(Default)]
pub(super) struct Joint {
    /// The headers between the halves, the same at all crossings.
    pub headers: Vec<usize>,
    /// Begins of egress, with the facts there.
    pub crossings: Vec<(Block, Facts)>,
    /// Egress drops the packet.
    pub drops: bool,
    /// The field by whose values egress parts its ways first. What else is known in ingress is a constant where it is
    /// the same on all ways, and parts none: it would multiply them.
    pub selector: Option<FieldId>,
    /// A field between the halves, as ingress and egress have it, that chooses entries of registers in egress. Only
    /// packets cross in which it is below this, so that egress needs no check.
    pub bounds: Vec<(FieldId, FieldId, u32)>,
    /// Fields of egress that came from such fields.
    pub inside: Vec<FieldId>,
}

/// Container type of a value of this width.
pub(super) fn container(width: u32) -> Type {
    match width {
        0..=32 => I32,
        33..=64 => I64,
        _ => I128,
    }
}

/// A function that is being made.
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
    pub payload_at: Variable,
    /// Of the parser's checksum units.
    pub sums: Vec<Variable>,
    /// Block for a packet that the parser rejects.
    pub reject: Block,
    next: u32,
    /// Facts about fields on the way to here.
    pub facts: Facts,
    pub ways: Ways<'p>,
    /// Place of the table that is being applied, in the order of ways.
    pub table: u32,
    /// Crossing from one half to the other, in a function of both.
    pub joint: Option<Joint>,
    /// Fields that egress got from ingress just now, and by whose values it does not part its ways at the begin.
    pub handed: Vec<FieldId>,
}

impl<'f, 'p> Lower<'f, 'p> {
    /// The function's result.
    pub(super) fn answer(&mut self, end: u64) {
        let end = self.constant(I64, end.into());
        self.b.ins().return_(&[end]);
    }

    /// The begin of a function.
    pub(super) fn begin(
        mut b: FunctionBuilder<'f>,
        program: &'p Program,
        gress: Gress,
        helpers: Helpers,
    ) -> Lower<'f, 'p> {
        let half = program.half(gress);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        b.seal_block(entry);
        let context = b.block_params(entry)[0];
        let reject = b.create_block();
        let port = half.intrinsic.get("ingress_intrinsic_metadata_for_tm_t.ucast_egress_port").copied();
        let none = Variable::from_u32(0);
        let mut facts = Facts::none(program.fields.len());
        for (at, field) in program.fields.iter().enumerate() {
            // Variables of fields have the fields' numbers.
            b.declare_var(Variable::from_u32(at as u32), container(field.ty.width()));
            facts.set(FieldId(at as u32), Bits::constant(0, field.ty.width()));
        }
        let mut l = Lower {
            b,
            program,
            half,
            gress,
            helpers,
            context,
            port,
            port_set: none,
            payload_at: none,
            sums: Vec::new(),
            reject,
            next: program.fields.len() as u32,
            facts,
            ways: Ways::new(program, half),
            table: 0,
            joint: None,
            handed: Vec::new(),
        };
        l.port_set = l.variable_of(I64);
        l.payload_at = l.variable_of(I64);
        l.begin_half();
        l
    }

    /// Initial state of a half: zeros, the time.
    pub(super) fn begin_half(&mut self) {
        let (program, gress) = (self.program, self.gress);
        for (at, _) in program.fields.iter().enumerate().filter(|(_, field)| field.gress == gress) {
            self.settle_field(FieldId(at as u32), 0);
        }
        self.sums = (0..self.half.checksums.0).map(|_| self.variable_of(I32)).collect();
        let stamp = format!("{}_intrinsic_metadata_from_parser_t.global_tstamp", gress.name());
        if let Some(id) = self.half.intrinsic.get(&stamp) {
            let now = self.input(In::Now);
            let now = self.low_bits(now, 48);
            self.set_field(*id, now);
        }
    }

    /// Fields, and everything else, are zero at the start.
    fn declare(&mut self, var: Variable, ty: Type) {
        self.b.declare_var(var, ty);
        let zero = self.constant(ty, 0);
        self.b.def_var(var, zero);
    }

    pub(super) fn variable_of(&mut self, ty: Type) -> Variable {
        let var = Variable::from_u32(self.next);
        self.next += 1;
        self.declare(var, ty);
        var
    }

    /// A field's value, in its container.
    pub(super) fn get_field(&mut self, id: FieldId) -> Value {
        let width = self.program.field(id).ty.width();
        match self.facts.of(id).whole(width) {
            Some(value) => self.constant(container(width), value),
            None => self.b.use_var(Variable::from_u32(id.0)),
        }
    }

    pub(super) fn set_field(&mut self, id: FieldId, value: Value) {
        let value = self.resize(value, container(self.program.field(id).ty.width()));
        self.b.def_var(Variable::from_u32(id.0), value);
        self.facts.set(id, Bits::default());
    }

    /// A field becomes a constant.
    pub(super) fn settle_field(&mut self, id: FieldId, value: u128) {
        let width = self.program.field(id).ty.width();
        let constant = self.constant(container(width), value);
        self.set_field(id, constant);
        self.facts.set(id, Bits::constant(value, width));
    }

    /// A value that the caller gave.
    pub(super) fn input(&mut self, what: In) -> Value {
        self.b.ins().load(I64, MemFlags::trusted().with_readonly().with_can_move(), self.context, what.offset())
    }

    pub(super) fn load(&mut self, ty: Type, base: Value, offset: i32) -> Value {
        self.b.ins().load(ty, MemFlags::new().with_notrap(), base, offset)
    }

    pub(super) fn store(&mut self, value: Value, base: Value, offset: i32) {
        self.b.ins().store(MemFlags::new().with_notrap(), value, base, offset);
    }

    /// Memory of the function of its own.
    pub(super) fn scratch(&mut self, bytes: u32) -> Value {
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes.max(8), 3));
        self.b.ins().stack_addr(I64, slot, 0)
    }

    /// Code for both ways; the builder stands after both then.
    pub(super) fn branch(
        &mut self,
        cond: Value,
        then: impl FnOnce(&mut Self) -> Result<(), Refusal>,
        els: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let (yes, no, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().brif(cond, yes, &[], no, &[]);
        let before = self.facts.clone();
        self.enter(yes);
        then(self)?;
        self.b.ins().jump(after, &[]);
        let one = std::mem::replace(&mut self.facts, before);
        self.enter(no);
        els(self)?;
        self.b.ins().jump(after, &[]);
        self.facts = self.facts.meet(&one);
        self.enter(after);
        Ok(())
    }

    /// Goes on in a block to which all jumps are made.
    pub(super) fn enter(&mut self, block: Block) {
        self.b.switch_to_block(block);
        self.b.seal_block(block);
    }
}
