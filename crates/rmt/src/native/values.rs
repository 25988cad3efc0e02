//! Native code of expressions. A value of W bits lies zero-extended in 32, 64 or 128 bits, whichever is the least that
//! holds it. It agrees with [`crate::ops`] to the bit.
use super::function::{Lower, Refusal, call, container};
use crate::ir::{BinOp, Destination, Dst, Expr, ExprKind, Match, Ty, UnOp, mask};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64, I128};
use cranelift_codegen::ir::{InstBuilder, Type, Value};

/// A piece of an action's data.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Constant(u128),
    Value(Value),
}

impl Operand {
    pub(super) fn constant(value: u128, width: u32) -> Operand {
        Operand::Constant(value & mask(width))
    }
}

/// Names in scope of an expression beside fields.
#[derive(Default, Clone, Copy)]
pub(super) struct Scope<'s> {
    /// Action data.
    pub args: &'s [Operand],
    /// Words of a register.
    pub mem: &'s [Value],
    /// Bit position of a parser.
    pub cursor: u32,
}

impl Lower<'_, '_> {
    /// A constant.
    pub(super) fn constant(&mut self, ty: Type, value: u128) -> Value {
        if ty == I128 {
            let low = self.b.ins().iconst(I64, value as u64 as i64);
            let high = self.b.ins().iconst(I64, (value >> 64) as u64 as i64);
            return self.b.ins().iconcat(low, high);
        }
        let value = if ty == I32 { value as u32 as i64 } else { value as u64 as i64 };
        self.b.ins().iconst(ty, value)
    }

    /// Only the low bits.
    pub(super) fn low_bits(&mut self, value: Value, width: u32) -> Value {
        let ty = self.type_of(value);
        if width >= ty.bits() {
            return value;
        }
        let ones = self.constant(ty, mask(width));
        self.b.ins().band(value, ones)
    }

    pub(super) fn type_of(&self, value: Value) -> Type {
        self.b.func.dfg.value_type(value)
    }

    /// Zero-extended or cut.
    pub(super) fn resize(&mut self, value: Value, to: Type) -> Value {
        let from = self.type_of(value);
        match from.bits().cmp(&to.bits()) {
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Less => self.b.ins().uextend(to, value),
            std::cmp::Ordering::Greater => self.b.ins().ireduce(to, value),
        }
    }

    /// From the bits of type `ty` to a whole container, with the sign where the type has one.
    fn signed(&mut self, value: Value, ty: Ty) -> Value {
        let unused = self.type_of(value).bits() - ty.width();
        if !ty.signed() || unused == 0 {
            return value;
        }
        let up = self.b.ins().ishl_imm(value, unused as i64);
        self.b.ins().sshr_imm(up, unused as i64)
    }

    /// Sign-extended to a wider container.
    fn signed_in(&mut self, value: Value, ty: Ty, to: Type) -> Value {
        let value = self.signed(value, ty);
        if self.type_of(value).bits() >= to.bits() { value } else { self.b.ins().sextend(to, value) }
    }

    fn truth(&mut self, flag: Value) -> Value {
        self.b.ins().uextend(I32, flag)
    }

    /// Not zero, as a condition to branch on.
    pub(super) fn holds(&mut self, value: Value) -> Value {
        let zero = self.constant(self.type_of(value), 0);
        self.b.ins().icmp(IntCC::NotEqual, value, zero)
    }

    /// Whether a key is as a match demands it, in the bits that are not `known` to be so.
    pub(super) fn test(&mut self, key: Value, m: Match, known: u128) -> Value {
        let ty = self.type_of(key);
        match m {
            Match::Mask(value, bits) => {
                let open = bits & !known & mask(ty.bits());
                if open == 1 << (ty.bits() - 1) && ty != I128 {
                    let code = if value & open == 0 { IntCC::SignedGreaterThanOrEqual } else { IntCC::SignedLessThan };
                    return self.b.ins().icmp_imm(code, key, 0);
                }
                if open.is_power_of_two() && ty != I128 {
                    let ones = self.constant(ty, open);
                    let seen = self.b.ins().band(key, ones);
                    let code = if value & open == 0 { IntCC::Equal } else { IntCC::NotEqual };
                    return self.b.ins().icmp_imm(code, seen, 0);
                }
                let wanted = self.constant(ty, value & open);
                let seen = if open == mask(ty.bits()) {
                    key
                } else {
                    let ones = self.constant(ty, open);
                    self.b.ins().band(key, ones)
                };
                self.b.ins().icmp(IntCC::Equal, seen, wanted)
            }
            Match::Range(low, high) => {
                let (low, high) = (self.constant(ty, low), self.constant(ty, high));
                let above = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, key, low);
                let below = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, key, high);
                self.b.ins().band(above, below)
            }
        }
    }

    pub(super) fn eval(&mut self, e: &Expr, scope: Scope<'_>) -> Result<Value, Refusal> {
        let ty = e.ty;
        let to = container(ty.width());
        if let Some(known) = self.fold(e, scope) {
            return Ok(self.constant(to, known));
        }
        Ok(match &e.kind {
            ExprKind::Const(v) => self.constant(to, *v),
            ExprKind::Field(id) => {
                let value = self.get_field(*id);
                self.resize(value, to)
            }
            ExprKind::Arg(i) => match scope.args.get(*i) {
                Some(Operand::Value(value)) => self.resize(*value, to),
                Some(Operand::Constant(value)) => self.constant(to, *value),
                None => self.constant(to, 0),
            },
            ExprKind::Mem(w) => match scope.mem.get(*w) {
                Some(value) => self.resize(*value, to),
                None => self.constant(to, 0),
            },
            ExprKind::Slice(a, _, lo) => {
                let a = self.eval(a, scope)?;
                let shifted = if *lo == 0 { a } else { self.b.ins().ushr_imm(a, *lo as i64) };
                let cut = self.resize(shifted, to);
                self.low_bits(cut, ty.width())
            }
            ExprKind::Unary(op, a) => {
                let a = self.eval(a, scope)?;
                self.unary(*op, a, ty)
            }
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, ty, scope)?,
            ExprKind::Cast(a) => {
                let value = self.eval(a, scope)?;
                let value = if a.ty.signed() { self.signed_in(value, a.ty, to) } else { value };
                let value = self.resize(value, to);
                self.low_bits(value, ty.width())
            }
            ExprKind::Mux(c, a, b) => {
                let (c, a, b) = (self.eval(c, scope)?, self.eval(a, scope)?, self.eval(b, scope)?);
                let c = self.holds(c);
                self.b.ins().select(c, a, b)
            }
            ExprKind::Min(a, b) => self.extreme(a, b, BinOp::Le, scope)?,
            ExprKind::Max(a, b) => self.extreme(a, b, BinOp::Ge, scope)?,
            ExprKind::Math(unit, a) => self.math(*unit, a, ty, scope)?,
            ExprKind::Predicate(list) => self.predicate(list, scope)?,
            ExprKind::Lookahead(offset) => self.lookahead(scope.cursor / 8 * 8 + offset, ty.width())?,
        })
    }

    /// The value, where it follows from the way to here.
    pub(super) fn fold(&self, e: &Expr, scope: Scope<'_>) -> Option<u128> {
        let constant = |arg: &Operand| match arg {
            Operand::Constant(value) => Some(*value),
            Operand::Value(_) => None,
        };
        let args: Vec<Option<u128>> = scope.args.iter().map(constant).collect();
        self.facts.fold(e, &args)
    }

    fn unary(&mut self, op: UnOp, a: Value, ty: Ty) -> Value {
        let out = match op {
            UnOp::Not => {
                let zero = self.constant(self.type_of(a), 0);
                let flag = self.b.ins().icmp(IntCC::Equal, a, zero);
                self.truth(flag)
            }
            UnOp::BitNot => self.b.ins().bnot(a),
            UnOp::Neg => self.b.ins().ineg(a),
        };
        self.low_bits(out, ty.width())
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr, out: Ty, scope: Scope<'_>) -> Result<Value, Refusal> {
        let (ty, right) = (a.ty, b.ty);
        let (x, y) = (self.eval(a, scope)?, self.eval(b, scope)?);
        if matches!(op, BinOp::Shl | BinOp::Shr) {
            return self.shift(op, x, y, ty, b);
        }
        if op == BinOp::Concat {
            let to = container(out.width());
            let (x, y) = (self.resize(x, to), self.resize(y, to));
            let x = self.b.ins().ishl_imm(x, right.width() as i64);
            return Ok(self.b.ins().bor(x, y));
        }
        let wide = if self.type_of(x).bits() >= self.type_of(y).bits() { self.type_of(x) } else { self.type_of(y) };
        if ty.signed() && self.type_of(x) != self.type_of(y) {
            return Err(Refusal::new("operands of different widths, one of them signed"));
        }
        let (x, y) = (self.resize(x, wide), self.resize(y, wide));
        let value = match op {
            BinOp::Add => self.b.ins().iadd(x, y),
            BinOp::Sub => self.b.ins().isub(x, y),
            BinOp::SatAdd | BinOp::SatSub => return self.saturating(op, x, y, ty),
            BinOp::Mul => self.b.ins().imul(x, y),
            BinOp::Div | BinOp::Mod => self.divide(op, x, y)?,
            BinOp::And | BinOp::LogAnd => self.b.ins().band(x, y),
            BinOp::Or | BinOp::LogOr => self.b.ins().bor(x, y),
            BinOp::Xor => self.b.ins().bxor(x, y),
            _ => {
                let flag = self.compare(op, x, y, ty);
                return Ok(self.truth(flag));
            }
        };
        let value = self.resize(value, container(out.width()));
        Ok(self.low_bits(value, ty.width()))
    }

    fn compare(&mut self, op: BinOp, x: Value, y: Value, ty: Ty) -> Value {
        let (x, y) = (self.signed(x, ty), self.signed(y, ty));
        let code = match (op, ty.signed()) {
            (BinOp::Eq, _) => IntCC::Equal,
            (BinOp::Ne, _) => IntCC::NotEqual,
            (BinOp::Lt, false) => IntCC::UnsignedLessThan,
            (BinOp::Le, false) => IntCC::UnsignedLessThanOrEqual,
            (BinOp::Gt, false) => IntCC::UnsignedGreaterThan,
            (_, false) => IntCC::UnsignedGreaterThanOrEqual,
            (BinOp::Lt, true) => IntCC::SignedLessThan,
            (BinOp::Le, true) => IntCC::SignedLessThanOrEqual,
            (BinOp::Gt, true) => IntCC::SignedGreaterThan,
            (_, true) => IntCC::SignedGreaterThanOrEqual,
        };
        self.b.ins().icmp(code, x, y)
    }

    fn extreme(&mut self, a: &Expr, b: &Expr, op: BinOp, scope: Scope<'_>) -> Result<Value, Refusal> {
        let (x, y) = (self.eval(a, scope)?, self.eval(b, scope)?);
        let first = self.compare(op, x, y, a.ty);
        Ok(self.b.ins().select(first, x, y))
    }

    /// By zero gives zero, without a trap.
    fn divide(&mut self, op: BinOp, x: Value, y: Value) -> Result<Value, Refusal> {
        let ty = self.type_of(x);
        if ty == I128 {
            return Err(Refusal::new("a division of more than 64 bits"));
        }
        let (zero, one) = (self.constant(ty, 0), self.constant(ty, 1));
        let by_zero = self.b.ins().icmp(IntCC::Equal, y, zero);
        let by = self.b.ins().select(by_zero, one, y);
        let value = if op == BinOp::Div { self.b.ins().udiv(x, by) } else { self.b.ins().urem(x, by) };
        Ok(self.b.ins().select(by_zero, zero, value))
    }

    fn shift(&mut self, op: BinOp, x: Value, by: Value, ty: Ty, by_expr: &Expr) -> Result<Value, Refusal> {
        let bits = self.type_of(x).bits();
        let signed = op == BinOp::Shr && ty.signed();
        let x = if signed { self.signed(x, ty) } else { x };
        let most = bits as u128 - 1;
        if let ExprKind::Const(by) = by_expr.kind {
            let by_most = by.min(most) as i64;
            let value = match op {
                BinOp::Shl if by <= most => self.b.ins().ishl_imm(x, by_most),
                BinOp::Shr if signed => self.b.ins().sshr_imm(x, by_most),
                BinOp::Shr if by <= most => self.b.ins().ushr_imm(x, by_most),
                _ => self.constant(self.type_of(x), 0),
            };
            return Ok(self.low_bits(value, ty.width()));
        }
        let by_ty = self.type_of(by);
        if by_ty == I128 || self.type_of(x) == I128 {
            return Err(Refusal::new("a shift of or by a value of more than 64 bits"));
        }
        let limit = self.constant(by_ty, most);
        let beyond = self.b.ins().icmp(IntCC::UnsignedGreaterThan, by, limit);
        let by = self.b.ins().select(beyond, limit, by);
        let by = self.resize(by, I32);
        let value = match op {
            BinOp::Shl => self.b.ins().ishl(x, by),
            _ if signed => self.b.ins().sshr(x, by),
            _ => self.b.ins().ushr(x, by),
        };
        let zero = self.constant(self.type_of(x), 0);
        let value = if signed { value } else { self.b.ins().select(beyond, zero, value) };
        Ok(self.low_bits(value, ty.width()))
    }

    fn saturating(&mut self, op: BinOp, x: Value, y: Value, ty: Ty) -> Result<Value, Refusal> {
        if ty.signed() {
            return self.saturating_signed(op, x, y, ty);
        }
        let to = self.type_of(x);
        if op == BinOp::SatSub {
            let zero = self.constant(to, 0);
            let below = self.b.ins().icmp(IntCC::UnsignedLessThan, x, y);
            let value = self.b.ins().isub(x, y);
            return Ok(self.b.ins().select(below, zero, value));
        }
        let top = self.constant(to, mask(ty.width()));
        let value = self.b.ins().iadd(x, y);
        let wrapped = self.b.ins().icmp(IntCC::UnsignedLessThan, value, x);
        let above = self.b.ins().icmp(IntCC::UnsignedGreaterThan, value, top);
        let beyond = self.b.ins().bor(wrapped, above);
        Ok(self.b.ins().select(beyond, top, value))
    }

    fn saturating_signed(&mut self, op: BinOp, x: Value, y: Value, ty: Ty) -> Result<Value, Refusal> {
        if ty.width() > 32 {
            return Err(Refusal::new("a signed saturating operation of more than 32 bits"));
        }
        let (x, y) = (self.signed_in(x, ty, I64), self.signed_in(y, ty, I64));
        let value = if op == BinOp::SatAdd { self.b.ins().iadd(x, y) } else { self.b.ins().isub(x, y) };
        let top = (mask(ty.width()) >> 1) as i64;
        let (high, low) = (self.b.ins().iconst(I64, top), self.b.ins().iconst(I64, -top - 1));
        let value = self.b.ins().smin(value, high);
        let value = self.b.ins().smax(value, low);
        let value = self.resize(value, I32);
        Ok(self.low_bits(value, ty.width()))
    }

    fn math(&mut self, unit: usize, a: &Expr, ty: Ty, scope: Scope<'_>) -> Result<Value, Refusal> {
        if a.ty.width() > 64 || ty.width() > 64 {
            return Err(Refusal::new("a math unit of more than 64 bits"));
        }
        let value = self.eval(a, scope)?;
        let value = self.resize(value, I64);
        let (unit, width) = (self.b.ins().iconst(I64, unit as i64), self.b.ins().iconst(I64, ty.width() as i64));
        let context = self.context;
        let out = call(self, |h| h.math, &[context, unit, value, width]);
        Ok(self.resize(out, container(ty.width())))
    }

    fn predicate(&mut self, list: &[Expr], scope: Scope<'_>) -> Result<Value, Refusal> {
        let mut bits = self.b.ins().iconst(I32, 0);
        for (i, cond) in list.iter().enumerate() {
            let cond = self.eval(cond, scope)?;
            let cond = self.resize(cond, I32);
            let cond = self.b.ins().ishl_imm(cond, i as i64);
            bits = self.b.ins().iadd(bits, cond);
        }
        let one = self.b.ins().iconst(I32, 1);
        Ok(self.b.ins().ishl(one, bits))
    }

    /// What a destination holds with a value of `width` bits in the bits that it names; `old` gives what was there,
    /// where not all are.
    pub(super) fn merged(
        &mut self,
        old: impl FnOnce(&mut Self) -> Value,
        whole: u32,
        dst: &Dst,
        value: Value,
        width: u32,
    ) -> Value {
        let to = container(whole);
        let part = dst.hi - dst.lo + 1;
        let value = self.resize(value, to);
        let value = if width > part { self.low_bits(value, part) } else { value };
        if part == whole {
            return value;
        }
        let old = old(self);
        let keep = self.constant(to, mask(whole) & !(mask(part) << dst.lo));
        let kept = self.b.ins().band(old, keep);
        let value = if dst.lo == 0 { value } else { self.b.ins().ishl_imm(value, dst.lo as i64) };
        self.b.ins().bor(kept, value)
    }

    /// A value to a field.
    pub(super) fn assign_field(&mut self, dst: &Dst, value: Value, width: u32) {
        let Destination::Field(id) = dst.place else { return };
        let whole = self.program.field(id).ty.width();
        let value = self.merged(|l| l.get_field(id), whole, dst, value, width);
        self.set_field(id, value);
        if Some(id) == self.port {
            let one = self.b.ins().iconst(I64, 1);
            self.b.def_var(self.port_set, one);
        }
    }
}
