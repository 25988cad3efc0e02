//! Native code of deparsers: headers and copies to bytes, checksums, and intrinsic metadata for the architecture.
use super::context::{self as at, In, MOST_MIRRORS, MOST_SIDE_BYTES};
use super::function::{Lower, Refusal};
use super::values::Scope;
use crate::ir::{Deparse, Expr, FieldId};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::Variable;

impl Lower<'_, '_> {
    pub(super) fn deparser(&mut self) -> Result<(), Refusal> {
        let position = self.variable_of(I64);
        let half = self.half;
        self.deparse(&half.deparser, position)?;
        let length = self.b.use_var(position);
        self.store(length, self.context, at::HEAD_LEN);
        let payload_at = self.b.use_var(self.payload_at);
        self.store(payload_at, self.context, at::PAYLOAD_AT);
        let set = self.b.use_var(self.port_set);
        self.store(set, self.context, at::PORT_SET);
        for (name, offset) in at::results(self.gress) {
            let value = match half.intrinsic.get(*name) {
                Some(id) => self.get_field(*id),
                None => self.constant(I64, 0),
            };
            let value = self.resize(value, I64);
            self.store(value, self.context, *offset);
        }
        Ok(())
    }

    pub(super) fn deparse(&mut self, list: &[Deparse], position: Variable) -> Result<(), Refusal> {
        for item in list {
            match item {
                Deparse::Emit(h) => self.emit(*h, position)?,
                Deparse::Checksum(values, dst, zeros_as_ones) => {
                    let sum = self.sum_of(values, Scope::default())?;
                    let value = self.b.ins().bxor_imm(sum, 0xffff);
                    let value = if *zeros_as_ones {
                        let ones = self.constant(I32, 0xffff);
                        let zero = self.b.ins().icmp_imm(IntCC::Equal, value, 0);
                        self.b.ins().select(zero, ones, value)
                    } else {
                        value
                    };
                    self.assign_field(dst, value, 16);
                }
                Deparse::If(cond, yes, no) => {
                    if let Some(value) = self.fold(cond, Scope::default()) {
                        self.deparse(if value != 0 { yes } else { no }, position)?;
                        continue;
                    }
                    let cond = self.eval(cond, Scope::default())?;
                    let cond = self.holds(cond);
                    self.branch(cond, |l| l.deparse(yes, position), |l| l.deparse(no, position))?;
                }
                Deparse::Mirror(session, values, _) => self.mirror(session, values)?,
                Deparse::Digest(..) => return Err(Refusal::new("a digest")),
                Deparse::Resubmit(_) => return Err(Refusal::new("resubmission")),
            }
        }
        Ok(())
    }

    fn emit(&mut self, h: usize, position: Variable) -> Result<(), Refusal> {
        let program = self.program;
        let header = &program.headers[h];
        if header.intrinsic || self.drops() {
            return Ok(());
        }
        let known = self.facts.of(header.valid).whole(1);
        if known == Some(0) {
            return Ok(());
        }
        let valid = self.get_field(header.valid);
        let valid = self.holds(valid);
        let write = |l: &mut Self| {
            l.write_header(h, position);
            Ok(())
        };
        if known == Some(1) { write(self) } else { self.branch(valid, write, |_| Ok(())) }
    }

    /// A header, behind those that were written before.
    pub(super) fn write_header(&mut self, h: usize, position: Variable) {
        let header = &self.program.headers[h];
        let (head, at) = (self.input(In::Head), self.b.use_var(position));
        let address = self.b.ins().iadd(head, at);
        let values: Vec<(Value, u32)> = header.fields.iter().map(|id| self.field(*id)).collect();
        self.pack(&values, address);
        let at = self.b.ins().iadd_imm(at, header.bits.div_ceil(8) as i64);
        self.b.def_var(position, at);
    }

    fn field(&mut self, id: FieldId) -> (Value, u32) {
        (self.get_field(id), self.program.field(id).ty.width())
    }

    /// Where a copy goes, as far as the program sets it.
    fn mirror_port(&mut self) {
        for (name, offset) in at::mirror_results(self.gress) {
            let value = match self.half.intrinsic.get(name) {
                Some(id) => self.get_field(*id),
                None => self.constant(I64, 0),
            };
            let value = self.resize(value, I64);
            self.store(value, self.context, offset);
        }
    }

    /// A copy: its session, its length, and what stands in front.
    fn mirror(&mut self, session: &Expr, values: &[Expr]) -> Result<(), Refusal> {
        let bits: u32 = values.iter().map(|e| e.ty.width()).sum();
        if bits.div_ceil(8) > MOST_SIDE_BYTES as u32 {
            return Err(Refusal::new(format!("a mirror of more than {MOST_SIDE_BYTES} bytes")));
        }
        let session = self.eval(session, Scope::default())?;
        let session = self.resize(session, I64);
        let session = self.low_bits(session, 8);
        let mut list = Vec::new();
        for e in values {
            list.push((self.eval(e, Scope::default())?, e.ty.width()));
        }
        let count = self.load(I64, self.context, at::MIRROR_COUNT);
        let room = self.b.ins().icmp_imm(IntCC::UnsignedLessThan, count, MOST_MIRRORS as i64);
        let write = |l: &mut Self| {
            let offset = l.b.ins().imul_imm(count, at::MIRROR_SIZE as i64);
            let base = l.b.ins().iadd(l.context, offset);
            let address = l.b.ins().iadd_imm(base, at::MIRRORS as i64);
            l.store(session, address, at::MIRROR_SESSION);
            let length = l.b.ins().iconst(I64, bits.div_ceil(8) as i64);
            l.store(length, address, at::MIRROR_LEN);
            let bytes = l.b.ins().iadd_imm(address, at::MIRROR_BYTES as i64);
            l.pack(&list, bytes);
            let count = l.b.ins().iadd_imm(count, 1);
            l.store(count, l.context, at::MIRROR_COUNT);
            l.mirror_port();
            Ok(())
        };
        self.branch(room, write, |_| Ok(()))
    }
}
