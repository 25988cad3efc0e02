//! Conditions of `if`: gateways see 4 bytes and 12 bits, and compare for equality.
use crate::diag::{Problem, Res};
use crate::ir::{BinOp, Expr, ExprKind, FieldId, Program, Ty, UnOp};
use std::collections::BTreeMap;

/// Bits that a gateway sees: 4 bytes and 12 bits.
const GATEWAY_BITS: u32 = 44;
/// Of these, in the part that can compare two fields.
const COMPARE_BITS: u32 = 32;
/// The widest field that can be compared with a constant for order.
const ORDER_BITS: u32 = 8;

/// What a gateway reads.
#[derive(Default)]
struct Seen {
    fields: BTreeMap<FieldId, u32>,
    compared: u32,
}

pub(super) fn check(program: &Program, cond: &Expr, out: &mut Vec<Problem>) {
    let mut seen = Seen::default();
    if let Err(problem) = condition(cond, &mut seen) {
        out.push(*problem);
        return;
    }
    let bits: u32 = seen.fields.values().sum();
    if bits > GATEWAY_BITS || seen.compared > COMPARE_BITS {
        let message = format!("this condition looks at {bits} bits; a gateway sees 4 bytes and 12 bits");
        let names: Vec<&str> = seen.fields.keys().map(|f| program.field(*f).name.as_str()).collect();
        let help = format!("split it, or match in a table on {}", names.join(", "));
        out.push(*Problem::error(cond.pos, message).help(help));
    }
}

fn condition(e: &Expr, seen: &mut Seen) -> Res<()> {
    match &e.kind {
        ExprKind::Binary(BinOp::LogAnd | BinOp::LogOr, a, b) => {
            condition(a, seen)?;
            condition(b, seen)
        }
        ExprKind::Unary(UnOp::Not, a) => condition(a, seen),
        ExprKind::Binary(op @ (BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge), a, b) => {
            compare(*op, a, b, e, seen)
        }
        ExprKind::Field(_) | ExprKind::Cast(_) | ExprKind::Slice(..) if e.ty.width() == 1 => read(e, seen),
        _ => Err(Problem::error(e.pos, "a condition compares fields with constants or with each other")
            .help("compute in an action before, and compare the result")),
    }
}

fn compare(op: BinOp, a: &Expr, b: &Expr, e: &Expr, seen: &mut Seen) -> Res<()> {
    let width = a.ty.width();
    let (left, right) = (a.constant(), b.constant());
    let ordered = !matches!(op, BinOp::Eq | BinOp::Ne);
    if ordered && left.is_none() && right.is_none() {
        return Err(Problem::error(e.pos, format!("a gateway can't order two fields ({width} bits)"))
            .help("subtract in an action, then match the sign bit in a ternary table"));
    }
    if ordered && width > ORDER_BITS {
        return Err(Problem::error(e.pos, format!("a gateway can't order a field of {width} bits and a constant"))
            .help("subtract in an action, then match the sign bit in a ternary table; or match ranges in a table"));
    }
    for side in [a, b] {
        if side.constant().is_none() {
            read(side, seen)?;
        }
    }
    if left.is_none() && right.is_none() {
        seen.compared += width;
    }
    Ok(())
}

/// A field, or a slice of one.
fn read(e: &Expr, seen: &mut Seen) -> Res<()> {
    match &e.kind {
        ExprKind::Field(id) => {
            seen.fields.insert(*id, e.ty.width());
            Ok(())
        }
        ExprKind::Slice(inner, hi, lo) => match inner.kind {
            ExprKind::Field(id) => {
                let known = seen.fields.entry(id).or_default();
                *known = (*known + hi - lo + 1).min(inner.ty.width());
                Ok(())
            }
            _ => read(inner, seen),
        },
        ExprKind::Cast(inner) if inner.ty.width() == e.ty.width() || e.ty == Ty::Bool => read(inner, seen),
        _ => Err(Problem::error(e.pos, "a gateway can't compute")
            .help("compute in an action before, and compare the result")),
    }
}
