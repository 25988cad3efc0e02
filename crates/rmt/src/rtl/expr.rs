//! Expressions of the intermediate form as SystemVerilog. What is returned is complete in itself: a name, a constant,
//! or in parentheses; its width is the expression's.
use super::text::{fit, number};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{BinOp, Dst, Expr, ExprKind, FieldId, UnOp, mask};

/// Names of operands at an expression's place.
pub(super) trait Operands {
    fn field(&self, id: FieldId) -> String;
    fn arg(&self, _number: usize, width: u32) -> String {
        number(0, width)
    }
    fn mem(&self, _word: usize, width: u32) -> String {
        number(0, width)
    }
    fn ahead(&self, _offset: u32, width: u32) -> String {
        number(0, width)
    }
}

pub(super) fn refuse<T>(pos: Pos, what: impl Into<String>) -> Res<T> {
    Err(Problem::error(pos, format!("{} cannot be made RTL", what.into())).help("docs/RTL.md lists what can"))
}

pub(super) fn expression(e: &Expr, o: &dyn Operands) -> Res<String> {
    let width = e.ty.width();
    let sub = |e: &Expr| expression(e, o);
    Ok(match &e.kind {
        ExprKind::Const(v) => number(*v, width),
        ExprKind::Field(id) => o.field(*id),
        ExprKind::Arg(i) => o.arg(*i, width),
        ExprKind::Mem(w) => o.mem(*w, width),
        ExprKind::Lookahead(offset) => o.ahead(*offset, width),
        ExprKind::Slice(a, hi, lo) => slice(&sub(a)?, a.ty.width(), *hi, *lo),
        ExprKind::Unary(UnOp::Not | UnOp::BitNot, a) => format!("(~{})", sub(a)?),
        ExprKind::Unary(UnOp::Neg, a) => format!("(-{})", sub(a)?),
        ExprKind::Binary(op, a, b) => match against_zero(*op, [a, b], o)? {
            Some(text) => text,
            None => binary(*op, e, [a, b], [&sub(a)?, &sub(b)?])?,
        },
        ExprKind::Cast(a) if a.ty.signed() && a.ty.width() < width => {
            format!("$unsigned({width}'($signed({})))", sub(a)?)
        }
        ExprKind::Cast(a) => fit(&sub(a)?, a.ty.width(), width),
        ExprKind::Mux(c, a, b) => format!("({} ? {} : {})", sub(c)?, sub(a)?, sub(b)?),
        ExprKind::Min(a, b) => extreme("<=", a, [&sub(a)?, &sub(b)?]),
        ExprKind::Max(a, b) => extreme(">=", a, [&sub(a)?, &sub(b)?]),
        ExprKind::Math(unit, a) => format!("math_{unit}({})", fit(&sub(a)?, a.ty.width(), width)),
        ExprKind::Predicate(list) => {
            let conditions = list.iter().rev().map(sub).collect::<Res<Vec<String>>>()?;
            match conditions.is_empty() {
                true => number(1, width),
                false => format!("({width}'d1 << {{{}}})", conditions.join(", ")),
            }
        }
    })
}

/// Bits of a name, or of anything else.
fn slice(value: &str, from: u32, hi: u32, lo: u32) -> String {
    let name = value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    match (hi - lo + 1 == from, name) {
        (true, _) => value.into(),
        (false, true) => format!("{value}[{hi}:{lo}]"),
        (false, false) => format!("{}'({value} >> {lo})", hi - lo + 1),
    }
}

fn binary(op: BinOp, e: &Expr, operands: [&Expr; 2], [a, b]: [&str; 2]) -> Res<String> {
    let [left, _] = operands;
    let (signed, width) = (left.ty.signed(), left.ty.width());
    let plain = |sign: &str| Ok(format!("({a} {sign} {b})"));
    let order = |sign: &str| match signed {
        true => Ok(format!("($signed({a}) {sign} $signed({b}))")),
        false => plain(sign),
    };
    match op {
        BinOp::Add => plain("+"),
        BinOp::Sub => plain("-"),
        BinOp::And => plain("&"),
        BinOp::Or => plain("|"),
        BinOp::Xor => plain("^"),
        BinOp::LogAnd => plain("&&"),
        BinOp::LogOr => plain("||"),
        BinOp::Shl => plain("<<"),
        BinOp::Shr if signed => Ok(format!("$unsigned($signed({a}) >>> {b})")),
        BinOp::Shr => plain(">>"),
        BinOp::Concat => Ok(format!("{{{a}, {b}}}")),
        BinOp::Eq => plain("=="),
        BinOp::Ne => plain("!="),
        BinOp::Lt => order("<"),
        BinOp::Le => order("<="),
        BinOp::Gt => order(">"),
        BinOp::Ge => order(">="),
        BinOp::SatAdd | BinOp::SatSub if signed => Ok(saturating_signed(op, width, [a, b])),
        BinOp::SatAdd => Ok(format!("(({a} + {b}) < {a} ? {} : ({a} + {b}))", number(mask(width), width))),
        BinOp::SatSub => Ok(format!("({a} < {b} ? {} : ({a} - {b}))", number(0, width))),
        BinOp::Mul | BinOp::Div | BinOp::Mod => refuse(e.pos, "a product or quotient"),
    }
}

/// A signed order against zero, by the sign and not by a second subtraction. A difference is zero where its operands
/// are equal, which is compared beside the subtraction and not behind it.
fn against_zero(op: BinOp, [left, right]: [&Expr; 2], o: &dyn Operands) -> Res<Option<String>> {
    if !left.ty.signed() || right.constant() != Some(0) {
        return Ok(None);
    }
    let (width, value) = (left.ty.width(), expression(left, o)?);
    // Not `< 0`, which Yosys makes a subtraction of.
    let sign = format!("(({value} & {}) != {})", number(1 << (width - 1), width), number(0, width));
    let zero = match difference(left) {
        Some([a, b]) => format!("({} == {})", expression(a, o)?, expression(b, o)?),
        None => format!("({value} == {})", number(0, width)),
    };
    Ok(match op {
        BinOp::Lt => Some(sign),
        BinOp::Ge => Some(format!("(!{sign})")),
        BinOp::Gt => Some(format!("(!{sign} && !{zero})")),
        BinOp::Le => Some(format!("({sign} || {zero})")),
        _ => None,
    })
}

/// The operands of a difference, also behind casts that change the sign only.
fn difference(e: &Expr) -> Option<[&Expr; 2]> {
    match &e.kind {
        ExprKind::Binary(BinOp::Sub, a, b) => Some([a, b]),
        ExprKind::Cast(a) if a.ty.width() == e.ty.width() => difference(a),
        _ => None,
    }
}

/// Of the sum in one more bit, the two upper bits differ where it does not fit.
fn saturating_signed(op: BinOp, width: u32, [a, b]: [&str; 2]) -> String {
    let wide = |v: &str| format!("{}'($signed({v}))", width + 1);
    let sign = if op == BinOp::SatAdd { "+" } else { "-" };
    let sum = format!("({} {sign} {})", wide(a), wide(b));
    let (least, most) = (number(1 << (width - 1), width), number(mask(width - 1), width));
    let (lower, upper) = (number(1 << (width - 1), width + 1), number(mask(width - 1), width + 1));
    format!(
        "(({sum}) > $signed({upper}) ? {most} : ({sum}) < $signed(-{lower}) ? {least} : $unsigned({width}'({sum})))"
    )
}

fn extreme(sign: &str, left: &Expr, [a, b]: [&str; 2]) -> String {
    match left.ty.signed() {
        true => format!("($signed({a}) {sign} $signed({b}) ? {a} : {b})"),
        false => format!("({a} {sign} {b} ? {a} : {b})"),
    }
}

/// An assignment of a value of so many bits.
pub(super) fn assignment(name: &str, of: u32, dst: &Dst, value: &str, width: u32) -> String {
    let wanted = dst.hi - dst.lo + 1;
    let value = fit(value, width, wanted);
    if wanted == of { format!("{name} = {value};") } else { format!("{name}[{}:{}] = {value};", dst.hi, dst.lo) }
}

/// Expressions one behind the other, filled to whole units of bits; and their bits.
pub(super) fn packed(values: &[Expr], unit: u32, o: &dyn Operands) -> Res<Packed> {
    let mut parts = values.iter().map(|e| expression(e, o)).collect::<Res<Vec<String>>>()?;
    let used: u32 = values.iter().map(|e| e.ty.width()).sum();
    let width = used.next_multiple_of(unit).max(unit);
    if width > used {
        parts.push(format!("{}'d0", width - used));
    }
    Ok(Packed { text: format!("{{{}}}", parts.join(", ")), width })
}

/// Bits one behind the other.
pub(super) struct Packed {
    pub text: String,
    pub width: u32,
}
