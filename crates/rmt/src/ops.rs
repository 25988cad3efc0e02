//! Arithmetic of P4-16 section 8 on values in the low bits of a `u128`. It is used for folding constants and by the
//! interpreter, so that both agree.
use crate::ir::{BinOp, MathOp, MathUnit, Ty, UnOp, mask};

/// The value with its sign, as a wide integer.
pub(crate) fn signed(value: u128, ty: Ty) -> i128 {
    let w = ty.width();
    if ty.signed() && w < 128 && value >> (w - 1) & 1 == 1 { (value | !mask(w)) as i128 } else { value as i128 }
}

/// Converts between types.
pub(crate) fn cast(value: u128, from: Ty, to: Ty) -> u128 {
    signed(value, from) as u128 & mask(to.width())
}

pub(crate) fn unary(op: UnOp, a: u128, ty: Ty) -> u128 {
    let out = match op {
        UnOp::Not => (a == 0) as u128,
        UnOp::BitNot => !a,
        UnOp::Neg => a.wrapping_neg(),
    };
    out & mask(ty.width())
}

/// `ty` is the type of the left operand, `right` that of the right one. Division by zero gives zero.
pub(crate) fn binary(op: BinOp, a: u128, b: u128, ty: Ty, right: Ty) -> u128 {
    let order = if ty.signed() { signed(a, ty).cmp(&signed(b, ty)) } else { a.cmp(&b) };
    let out = match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::SatAdd | BinOp::SatSub => return saturating(op, a, b, ty),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Div => a.checked_div(b).unwrap_or(0),
        BinOp::Mod => a.checked_rem(b).unwrap_or(0),
        BinOp::And | BinOp::LogAnd => a & b,
        BinOp::Or | BinOp::LogOr => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => a.checked_shl(b.min(128) as u32).unwrap_or(0),
        BinOp::Shr if ty.signed() => (signed(a, ty) >> b.min(127)) as u128,
        BinOp::Shr => a.checked_shr(b.min(128) as u32).unwrap_or(0),
        BinOp::Concat => return concat(a, b, ty, right),
        BinOp::Eq => return order.is_eq() as u128,
        BinOp::Ne => return order.is_ne() as u128,
        BinOp::Lt => return order.is_lt() as u128,
        BinOp::Le => return order.is_le() as u128,
        BinOp::Gt => return order.is_gt() as u128,
        BinOp::Ge => return order.is_ge() as u128,
    };
    out & mask(ty.width())
}

fn concat(a: u128, b: u128, ty: Ty, right: Ty) -> u128 {
    let width = ty.width() + right.width();
    (a.checked_shl(right.width()).unwrap_or(0) | b) & mask(width)
}

fn saturating(op: BinOp, a: u128, b: u128, ty: Ty) -> u128 {
    let w = ty.width();
    if !ty.signed() {
        return if op == BinOp::SatAdd { a.saturating_add(b).min(mask(w)) } else { a.saturating_sub(b) };
    }
    let (a, b) = (signed(a, ty), signed(b, ty));
    let sum = if op == BinOp::SatAdd { a.saturating_add(b) } else { a.saturating_sub(b) };
    let top = (mask(w) >> 1) as i128;
    sum.clamp(-top - 1, top) as u128 & mask(w)
}

/// `(a / b) * f(x)`, of the four most significant bits of `x`: what the math unit's table of 16 entries can give.
pub(crate) fn math(unit: MathUnit, x: u128, ty: Ty) -> u128 {
    let (a, b) = (unit.a.max(1) as u128, unit.b.max(1) as u128);
    if x == 0 {
        return 0;
    }
    let exponent = (128 - x.leading_zeros()).saturating_sub(4);
    let top = x >> exponent << exponent;
    let out = match unit.op {
        MathOp::Mul => top.saturating_mul(a) / b,
        MathOp::Sqr => top.saturating_mul(top).saturating_mul(a) / b,
        MathOp::Sqrt => top.isqrt().saturating_mul(a) / b,
        MathOp::Div => a / (top.saturating_mul(b)).max(1),
    };
    out.min(mask(ty.width()))
}
