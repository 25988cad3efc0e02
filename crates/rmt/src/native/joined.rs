//! Both halves in one function. Ingress may pass a packet on to egress, with headers that are known at that place. Then
//! egress goes on in the same function. The fields of its headers are those of ingress, and no bytes are written or
//! read between the halves. What ingress does otherwise ends as in a function of its own; the caller does the rest.
use super::context::{self as at, In};
use super::function::{Joint, Lower, Refusal};
use super::ways::Ways;
use crate::ir::{Deparse, Expr, ExprKind, FieldId, Gress, ParseOp, Program};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use std::collections::HashMap;

const DROP: [&str; 2] =
    ["ingress_intrinsic_metadata_for_deparser_t.drop_ctl", "egress_intrinsic_metadata_for_deparser_t.drop_ctl"];
const PORT: &str = "ingress_intrinsic_metadata_for_tm_t.ucast_egress_port";
const QUEUE: &str = "ingress_intrinsic_metadata_for_tm_t.qid";
const BYPASS: &str = "ingress_intrinsic_metadata_for_tm_t.bypass_egress";

impl<'p> Lower<'_, 'p> {
    /// From the begin of a function of both halves.
    pub(super) fn join(&mut self) {
        self.joint = Some(Joint::default());
        let program = self.program;
        let made: Vec<usize> = emitted(&program.ingress.deparser).unwrap_or_default();
        let selector = super::ways::selector_of(program, &program.egress);
        let ops = program.egress.states.iter().flat_map(|state| &state.ops);
        let read = ops.filter_map(|op| if let ParseOp::Extract(h, _) = op { Some(&program.headers[*h]) } else { None });
        let limits = limits(program);
        let mut bounds = Vec::new();
        for theirs in read {
            let like = |h: &&usize| program.headers[**h].type_name == theirs.type_name;
            let ours = made.iter().filter(like).flat_map(|h| program.headers[*h].fields.iter().zip(&theirs.fields));
            for (ours, theirs) in ours {
                if selector == Some(*theirs) {
                    self.ways.also_decides(*ours);
                }
                bounds.extend(limits.get(theirs).map(|limit| (*ours, *theirs, *limit)));
            }
        }
        self.joint.iter_mut().for_each(|joint| (joint.selector, joint.bounds) = (selector, bounds.clone()));
        for name in [DROP[0], BYPASS] {
            program.ingress.intrinsic.get(name).into_iter().for_each(|id| self.ways.also_decides(*id));
        }
    }

    /// The type of the header that egress reads first.
    fn first_of_egress(&self) -> &'p str {
        let program = self.program;
        let mut ops = program.egress.states.iter().flat_map(|state| &state.ops);
        let header = ops.find_map(|op| match op {
            ParseOp::Extract(h, _) if !program.headers[*h].intrinsic => Some(&program.headers[*h]),
            _ => None,
        });
        header.map_or("", |header| &header.type_name)
    }

    /// Bits of the headers between the halves, while this is egress in a function of both.
    pub(super) fn between(&self) -> Option<u32> {
        let joint = self.joint.as_ref().filter(|_| self.gress == Gress::Egress)?;
        Some(joint.headers.iter().map(|h| self.program.headers[*h].bits).sum())
    }

    /// The packet goes no further than egress, whose headers need not be written.
    pub(super) fn drops(&self) -> bool {
        self.joint.as_ref().is_some_and(|joint| joint.drops)
    }

    /// A field of egress is that of ingress which lies there between the halves.
    pub(super) fn hand_over(&mut self, id: FieldId, bit: u32) -> Result<(), Refusal> {
        let program = self.program;
        let headers = self.joint.iter().flat_map(|joint| &joint.headers);
        let mut before = 0;
        let place = |field: &FieldId| {
            before += program.field(*field).ty.width();
            (*field, before - program.field(*field).ty.width())
        };
        let all: Vec<(FieldId, u32)> = headers.flat_map(|h| &program.headers[*h].fields).map(place).collect();
        let same = |(field, at): &&(FieldId, u32)| *at == bit && program.field(*field).ty == program.field(id).ty;
        let Some((from, _)) = all.iter().find(same) else {
            return Err(Refusal::new("a header that egress divides otherwise"));
        };
        let from = *from;
        let value = self.get_field(from);
        self.set_field(id, value);
        self.facts.set(id, self.facts.of(from));
        if let Some(joint) = &mut self.joint {
            let bounded = joint.bounds.iter().any(|(ours, theirs, _)| (*ours, *theirs) == (from, id));
            joint.inside.extend(bounded.then_some(id));
        }
        if self.joint.as_ref().is_some_and(|joint| joint.selector != Some(id)) {
            self.handed.push(id);
        }
        Ok(())
    }

    /// No packet came here whose index is beyond the end.
    pub(super) fn is_inside(&self, index: &Expr) -> bool {
        let ExprKind::Field(id) = index.kind else { return false };
        let joint = self.joint.as_ref().filter(|_| self.gress == Gress::Egress);
        joint.is_some_and(|joint| joint.inside.contains(&id))
    }

    /// Intrinsic metadata of a packet. Between the halves it is ingress that set it.
    pub(super) fn given(&mut self, what: In) -> Value {
        let Some(bits) = self.between() else { return self.input(what) };
        match what {
            In::Port => self.intrinsic_of(PORT),
            In::Queue => self.intrinsic_of(QUEUE),
            In::Length => {
                let (length, payload_at) = (self.input(In::Length), self.b.use_var(self.payload_at));
                let behind = self.b.ins().isub(length, payload_at);
                self.b.ins().iadd_imm(behind, i64::from(bits / 8))
            }
            _ => self.input(what),
        }
    }

    /// Intrinsic metadata that ingress sets for the traffic manager.
    fn intrinsic_of(&mut self, name: &str) -> Value {
        match self.program.ingress.intrinsic.get(name) {
            Some(id) => {
                let value = self.get_field(*id);
                self.resize(value, I64)
            }
            None => self.constant(I64, 0),
        }
    }

    /// Behind all statements.
    pub(super) fn end(&mut self) -> Result<(), Refusal> {
        match (self.joint.is_some(), self.gress) {
            (false, _) => {}
            (true, Gress::Ingress) => self.leave_ingress()?,
            (true, Gress::Egress) => return self.leave_both(),
        }
        self.deparser()?;
        self.answer(1);
        Ok(())
    }

    /// To egress, if ingress made the headers that all others have who go there. The builder stands where it does not.
    fn leave_ingress(&mut self) -> Result<(), Refusal> {
        let Some(list) = emitted(&self.half.deparser) else {
            return Err(Refusal::new("an ingress deparser that does more than emit headers"));
        };
        let program = self.program;
        let there = |h: &usize| self.facts.of(program.headers[*h].valid).whole(1);
        let open = list.iter().any(|h| there(h).is_none() || program.headers[*h].bits % 8 != 0);
        let made: Vec<usize> = list.into_iter().filter(|h| there(h) == Some(1)).collect();
        let first = |h: &usize| program.headers[*h].type_name == self.first_of_egress();
        let fact =
            |name: &str| program.ingress.intrinsic.get(name).map_or(Some(0), |id| self.facts.fold_field(program, *id));
        let stays = fact(DROP[0]).is_some_and(|drop| drop & 1 != 0) || fact(BYPASS) == Some(1);
        let expected = made.first().is_some_and(first);
        let Some(joint) = self.joint.as_mut().filter(|joint| joint.headers.is_empty() || joint.headers == made) else {
            return Ok(());
        };
        if open || stays || !expected {
            return Ok(());
        }
        joint.headers = made;
        let (crossing, stay) = (self.b.create_block(), self.b.create_block());
        joint.crossings.push((crossing, self.facts.clone()));
        let drop = self.intrinsic_of(DROP[0]);
        let drop = self.b.ins().band_imm(drop, 1);
        let bypass = self.intrinsic_of(BYPASS);
        let not = self.b.ins().bor(drop, bypass);
        let set = self.b.use_var(self.port_set);
        let unset = self.b.ins().bxor_imm(set, 1);
        let mut not = self.b.ins().bor(not, unset);
        for (ours, _, limit) in self.joint.as_ref().map(|joint| joint.bounds.clone()).unwrap_or_default() {
            let index = self.get_field(ours);
            let limit = self.constant(self.type_of(index), limit.into());
            let beyond = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, limit);
            let beyond = self.b.ins().uextend(I64, beyond);
            not = self.b.ins().bor(not, beyond);
        }
        self.b.ins().brif(not, stay, &[], crossing, &[]);
        self.enter(stay);
        Ok(())
    }

    /// Egress, from all places where ingress goes there.
    pub(super) fn cross(&mut self) -> Result<(), Refusal> {
        let crossings = self.joint.as_mut().map(|joint| std::mem::take(&mut joint.crossings)).unwrap_or_default();
        if crossings.is_empty() {
            return Err(Refusal::new("nothing that goes straight on"));
        }
        (self.gress, self.half, self.port) = (Gress::Egress, &self.program.egress, None);
        self.ways = Ways::new(self.program, self.half);
        self.reject = self.b.create_block();
        for (block, facts) in crossings {
            self.enter(block);
            self.facts = facts;
            self.facts.forget_actions();
            self.begin_half();
            self.handed.clear();
            self.parser()?;
        }
        self.handed.clear();
        self.all_ways()?;
        // A packet that egress does not take is gone, whatever it was.
        let reject = self.reject;
        self.b.switch_to_block(reject);
        let (none, dropped) = (self.constant(I64, 0), self.constant(I64, 1));
        self.store(none, self.context, at::HEAD_LEN);
        self.leave(dropped);
        Ok(())
    }

    /// Ends a packet that went through both halves: where it is not known whether egress drops it, with code for
    /// either.
    fn leave_both(&mut self) -> Result<(), Refusal> {
        let Some(id) = self.half.intrinsic.get(DROP[1]).copied() else { return self.emit_or_drop(false) };
        if let Some(drop) = self.facts.fold_field(self.program, id) {
            return self.emit_or_drop(drop & 1 != 0);
        }
        let drop = self.get_field(id);
        let drop = self.b.ins().band_imm(drop, 1);
        let (dropped, forwarded) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(drop, dropped, &[], forwarded, &[]);
        let before = self.facts.clone();
        self.enter(dropped);
        self.emit_or_drop(true)?;
        self.facts = before;
        self.enter(forwarded);
        self.emit_or_drop(false)
    }

    fn emit_or_drop(&mut self, drops: bool) -> Result<(), Refusal> {
        let position = self.variable_of(I64);
        let half = self.half;
        self.joint.iter_mut().for_each(|joint| joint.drops = drops);
        self.deparse(&half.deparser, position)?;
        self.joint.iter_mut().for_each(|joint| joint.drops = false);
        let length = self.b.use_var(position);
        self.store(length, self.context, at::HEAD_LEN);
        let drop = half.intrinsic.get(DROP[1]).map(|id| self.get_field(*id));
        let drop = match drop {
            Some(drop) => self.resize(drop, I64),
            None => self.constant(I64, 0),
        };
        self.leave(drop);
        Ok(())
    }

    /// The results of both halves.
    fn leave(&mut self, drop: Value) {
        let payload_at = self.b.use_var(self.payload_at);
        self.store(payload_at, self.context, at::PAYLOAD_AT);
        let (port, queue) = (self.intrinsic_of(PORT), self.intrinsic_of(QUEUE));
        for (place, value) in [(at::OUT_DROP, drop), (at::OUT_PORT, port), (at::OUT_QUEUE, queue)] {
            self.store(value, self.context, at::out(place));
        }
        self.answer(at::CROSSED);
    }
}

/// Fields that choose entries of registers in egress and that egress does not write, and the size of the smallest
/// register.
fn limits(program: &Program) -> HashMap<FieldId, u32> {
    let egress = &program.egress;
    let (mut written, mut used, mut out) = (vec![false; program.fields.len()], Vec::new(), HashMap::new());
    super::live::may_write(program, &egress.control, &mut written);
    super::live::deparser_writes(&egress.deparser, &mut written);
    super::live::indices(program, &egress.control, &mut used);
    for (register, index) in used {
        let ExprKind::Field(id) = index.kind else { continue };
        if !written[id.0 as usize] && program.field(id).ty.width() <= 32 {
            let limit = out.entry(id).or_insert(u32::MAX);
            *limit = program.registers[register].size.min(*limit);
        }
    }
    out
}

/// The headers that a deparser emits, where it does nothing else.
fn emitted(list: &[Deparse]) -> Option<Vec<usize>> {
    list.iter().map(|item| if let Deparse::Emit(h) = item { Some(*h) } else { None }).collect()
}
