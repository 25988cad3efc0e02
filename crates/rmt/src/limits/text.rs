//! Expressions in short.
use crate::ir::{Expr, ExprKind, Program};

/// An expression in short, for messages and to compare expressions apart from their places.
pub(super) fn text(program: &Program, e: &Expr) -> String {
    let two = |op: &str, a: &Expr, b: &Expr| format!("({} {op} {})", text(program, a), text(program, b));
    match &e.kind {
        ExprKind::Const(v) => v.to_string(),
        ExprKind::Field(id) => program.field(*id).name.clone(),
        ExprKind::Arg(i) => format!("argument {i}"),
        ExprKind::Mem(w) => format!("memory word {w}"),
        ExprKind::Slice(a, hi, lo) => format!("{}[{hi}:{lo}]", text(program, a)),
        ExprKind::Unary(op, a) => format!("{op:?}({})", text(program, a)),
        ExprKind::Binary(op, a, b) => two(&format!("{op:?}"), a, b),
        ExprKind::Cast(a) => format!("({:?}){}", e.ty, text(program, a)),
        ExprKind::Mux(a, b, c) => format!("({} ? {})", text(program, a), two(":", b, c)),
        ExprKind::Min(a, b) => two("min", a, b),
        ExprKind::Max(a, b) => two("max", a, b),
        ExprKind::Math(unit, a) => format!("math{unit}({})", text(program, a)),
        ExprKind::Predicate(list) => {
            format!("predicate({})", list.iter().map(|c| text(program, c)).collect::<Vec<_>>().join(", "))
        }
        ExprKind::Lookahead(offset) => format!("lookahead {offset}"),
    }
}
