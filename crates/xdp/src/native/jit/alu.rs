//! Arithmetic.
use super::Body;
use crate::insn::{Alu, Operand, Reg, Swap};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

impl Body<'_, '_, '_> {
    pub(super) fn alu(&mut self, op: Alu, wide: bool, dst: Reg, src: Operand) {
        let b = self.operand(src);
        let result = if wide {
            let a = if op == Alu::Mov { b } else { self.get(dst) };
            self.compute(op, a, b)
        } else {
            let b = self.b.ins().ireduce(I32, b);
            let a = if op == Alu::Mov {
                b
            } else {
                let a = self.get(dst);
                self.b.ins().ireduce(I32, a)
            };
            let half = self.compute(op, a, b);
            self.b.ins().uextend(I64, half)
        };
        self.set(dst, result);
    }

    fn compute(&mut self, op: Alu, a: Value, b: Value) -> Value {
        match op {
            Alu::Add => self.b.ins().iadd(a, b),
            Alu::Sub => self.b.ins().isub(a, b),
            Alu::Mul => self.b.ins().imul(a, b),
            Alu::Or => self.b.ins().bor(a, b),
            Alu::And => self.b.ins().band(a, b),
            Alu::Xor => self.b.ins().bxor(a, b),
            Alu::ShiftLeft => self.b.ins().ishl(a, b),
            Alu::ShiftRight => self.b.ins().ushr(a, b),
            Alu::ShiftRightSigned => self.b.ins().sshr(a, b),
            Alu::Mov => b,
            Alu::Div | Alu::Mod | Alu::SignedDiv | Alu::SignedMod => self.divide(op, a, b),
        }
    }

    /// By zero gives zero, and the remainder is the dividend; the machine's instruction would trap. So does its signed
    /// form for the smallest number by -1: that is a negation.
    fn divide(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let width = self.b.func.dfg.value_type(b);
        let one = self.b.ins().iconst(width, 1);
        let zero = self.b.ins().iconst(width, 0);
        let is_zero = self.b.ins().icmp_imm(IntCC::Equal, b, 0);
        let mut divisor = self.b.ins().select(is_zero, one, b);
        let signed = matches!(op, Alu::SignedDiv | Alu::SignedMod);
        if !signed {
            let (quotient, none) = match op {
                Alu::Div => (self.b.ins().udiv(a, divisor), zero),
                _ => (self.b.ins().urem(a, divisor), a),
            };
            return self.b.ins().select(is_zero, none, quotient);
        }
        let is_minus_one = self.b.ins().icmp_imm(IntCC::Equal, b, -1);
        divisor = self.b.ins().select(is_minus_one, one, divisor);
        let (result, by_zero, by_minus_one) = match op {
            Alu::SignedDiv => (self.b.ins().sdiv(a, divisor), zero, self.b.ins().ineg(a)),
            _ => (self.b.ins().srem(a, divisor), a, zero),
        };
        let result = self.b.ins().select(is_minus_one, by_minus_one, result);
        self.b.ins().select(is_zero, by_zero, result)
    }

    pub(super) fn negate(&mut self, wide: bool, dst: Reg) {
        let value = self.get(dst);
        let negative = self.b.ins().ineg(value);
        let result = if wide { negative } else { self.low(negative, 32) };
        self.set(dst, result);
    }

    /// The lower bits; the rest is zero.
    fn low(&mut self, value: Value, bits: u8) -> Value {
        let narrow = self.b.ins().ireduce(if bits == 32 { I32 } else { I16 }, value);
        self.b.ins().uextend(I64, narrow)
    }

    pub(super) fn move_signed(&mut self, wide: bool, bits: u8, dst: Reg, src: Reg) {
        let value = self.get(src);
        let width = match bits {
            8 => I8,
            16 => I16,
            _ => I32,
        };
        let narrow = self.b.ins().ireduce(width, value);
        let extended = self.b.ins().sextend(I64, narrow);
        let result = if wide { extended } else { self.low(extended, 32) };
        self.set(dst, result);
    }

    pub(super) fn byte_swap(&mut self, how: Swap, bits: u8, dst: Reg) {
        let value = self.get(dst);
        let result = match (how, bits) {
            (Swap::Cut, 64) => value,
            (Swap::Cut, bits) => self.low(value, bits),
            (Swap::Swap, 64) => self.b.ins().bswap(value),
            (Swap::Swap, bits) => {
                let narrow = self.b.ins().ireduce(if bits == 32 { I32 } else { I16 }, value);
                let swapped = self.b.ins().bswap(narrow);
                self.b.ins().uextend(I64, swapped)
            }
        };
        self.set(dst, result);
    }
}
