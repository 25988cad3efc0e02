//! Expressions: names to fields, types to widths, constants folded (P4-16 section 8).
use super::scope::{Binding, Elab, Lvalue, Object};
use crate::ast::{self, BinOp, UnOp};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{Dst, Expr, ExprKind, Ty, mask};
use crate::{ir, ops};

impl<'a> Elab<'a> {
    /// A constant; without `expected`, of any width.
    pub(super) fn const_expr(&mut self, e: &ast::Expr, expected: Option<Ty>) -> Res<u128> {
        let value = self.expr(e, expected)?;
        value.constant().ok_or_else(|| Problem::error(e.pos, "a constant is expected here"))
    }

    /// An expression. `expected` gives constants their width; the result has that type, or it is an error.
    pub(super) fn expr(&mut self, e: &ast::Expr, expected: Option<Ty>) -> Res<Expr> {
        let out = self.infer(e, expected)?;
        match expected {
            Some(ty) => self.coerce(out, ty),
            None => Ok(out),
        }
    }

    fn coerce(&self, e: Expr, ty: Ty) -> Res<Expr> {
        if e.ty == ty {
            return Ok(e);
        }
        match (e.constant(), e.ty) {
            (Some(v), Ty::Inf) if ty != Ty::Bool => {
                // A negative constant arrives as two's complement of 128 bits.
                let fits = v <= mask(ty.width()) || v | mask(ty.width()) == u128::MAX;
                if !fits {
                    return Err(Problem::error(e.pos, format!("{v} does not fit into {} bits", ty.width())));
                }
                Ok(Expr { kind: ExprKind::Const(v & mask(ty.width())), ty, pos: e.pos })
            }
            _ => {
                let help = if ty == Ty::Bool {
                    "compare it: ... != 0".into()
                } else {
                    format!("write a cast: ({}) ...", show(ty))
                };
                Err(Problem::error(e.pos, format!("{} is expected here, not {}", show(ty), show(e.ty))).help(help))
            }
        }
    }

    fn infer(&mut self, e: &ast::Expr, expected: Option<Ty>) -> Res<Expr> {
        let pos = e.pos;
        let make = |kind, ty| Ok(Expr { kind, ty, pos });
        match &e.kind {
            ast::ExprKind::Bool(b) => make(ExprKind::Const(*b as u128), Ty::Bool),
            ast::ExprKind::Int(v, None) => make(ExprKind::Const(*v), Ty::Inf),
            ast::ExprKind::Int(v, Some((w, true))) => make(ExprKind::Const(*v), Ty::Int(*w)),
            ast::ExprKind::Int(v, Some((w, false))) => make(ExprKind::Const(*v), Ty::Bit(*w)),
            ast::ExprKind::Name(_) => self.name_value(e),
            ast::ExprKind::Member(of, member) => self.member_value(e, of, member),
            ast::ExprKind::Slice(of, hi, lo) => self.slice(of, hi, lo),
            ast::ExprKind::Unary(op, a) => self.unary(*op, a, expected, pos),
            ast::ExprKind::Binary(op, a, b) => self.binary(*op, a, b, expected, pos),
            ast::ExprKind::Ternary(c, a, b) => self.ternary(c, a, b, expected, pos),
            ast::ExprKind::Cast(ty, a) => self.cast(ty, a, pos),
            ast::ExprKind::Call(call) => self.call_value(call, expected, pos),
            ast::ExprKind::Index => Err(Problem::error(pos, "header stacks are not supported")),
            ast::ExprKind::Str => Err(Problem::error(pos, "a string has no place here")),
            ast::ExprKind::List(_) => Err(Problem::error(pos, "a list has no place here")),
            ast::ExprKind::Any | ast::ExprKind::Mask(..) | ast::ExprKind::Range(..) => {
                Err(Problem::error(pos, "a set of values has no place here"))
            }
        }
    }

    fn name_value(&mut self, e: &ast::Expr) -> Res<Expr> {
        let ast::ExprKind::Name(name) = &e.kind else { return Err(self.not_a_value(e)) };
        let pos = e.pos;
        match self.lookup(name) {
            Some(Binding::Const(v, ty)) => Ok(Expr { kind: ExprKind::Const(*v), ty: *ty, pos }),
            Some(Binding::Value(value)) => Ok(value.clone()),
            Some(Binding::Arg(i, ty)) => Ok(Expr { kind: ExprKind::Arg(*i), ty: *ty, pos }),
            Some(Binding::Lvalue(place)) => scalar_place(place, pos).ok_or_else(|| self.not_a_value(e)),
            Some(_) => Err(self.not_a_value(e)),
            None => Err(self.unknown(name, pos)),
        }
    }

    fn not_a_value(&self, e: &ast::Expr) -> Box<Problem> {
        Problem::error(e.pos, "this is not a value of some bits")
    }

    pub(super) fn unknown(&self, name: &str, pos: Pos) -> Box<Problem> {
        let names = self.scopes.iter().flat_map(|s| s.keys().map(String::as_str));
        let problem = Problem::error(pos, format!("there is no `{name}` here"));
        match nearest(name, names) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem,
        }
    }

    fn member_value(&mut self, e: &ast::Expr, of: &ast::Expr, member: &ast::Name) -> Res<Expr> {
        if let ast::ExprKind::Name(name) = &of.kind {
            if let Some(Binding::Enum(values, ty)) = self.lookup(name) {
                let value = values
                    .get(&member.text)
                    .ok_or_else(|| Problem::error(member.pos, format!("`{name}` has no member `{}`", member.text)))?;
                return Ok(Expr { kind: ExprKind::Const(*value), ty: *ty, pos: e.pos });
            }
        }
        if let ast::ExprKind::Call(call) = &of.kind {
            return self.lookahead_member(call, member, e.pos);
        }
        let place = self.place(e)?;
        scalar_place(&place, e.pos).ok_or_else(|| self.not_a_value(e))
    }

    /// The place that a path of names stands for.
    pub(super) fn place(&mut self, e: &ast::Expr) -> Res<Lvalue> {
        match &e.kind {
            ast::ExprKind::Name(name) => match self.lookup(name) {
                Some(Binding::Lvalue(place)) => Ok(place.clone()),
                Some(Binding::Value(Expr { kind: ExprKind::Field(id), ty, .. })) => Ok(Lvalue::Scalar(*id, *ty)),
                Some(_) => Err(Problem::error(e.pos, format!("`{name}` is not a variable"))),
                None => Err(self.unknown(name, e.pos)),
            },
            ast::ExprKind::Member(of, member) => {
                let place = self.place(of)?;
                place
                    .member(&member.text, &self.out.headers, &self.out.fields)
                    .ok_or_else(|| self.no_member(&place, member))
            }
            _ => Err(Problem::error(e.pos, "a variable or field is expected here")),
        }
    }

    fn no_member(&self, place: &Lvalue, member: &ast::Name) -> Box<Problem> {
        let names: Vec<String> = match place {
            Lvalue::Struct(s) => s.members.iter().map(|(n, _)| n.clone()).collect(),
            Lvalue::Header(h) => {
                let header = &self.out.headers[*h];
                let short = |id: &ir::FieldId| self.out.field(*id).name[header.name.len() + 1..].to_string();
                header.fields.iter().map(short).collect()
            }
            _ => return Problem::error(member.pos, format!("bits have no member `{}`", member.text)),
        };
        let problem = Problem::error(member.pos, format!("there is no member `{}`", member.text));
        match nearest(&member.text, names.iter().map(String::as_str)) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help(format!("the members are {}", names.join(", "))),
        }
    }

    fn slice(&mut self, of: &ast::Expr, hi: &ast::Expr, lo: &ast::Expr) -> Res<Expr> {
        let value = self.expr(of, None)?;
        let (hi, lo) = self.slice_bounds(hi, lo, value.ty.width())?;
        let ty = Ty::Bit(hi - lo + 1);
        let pos = value.pos;
        if let Some(v) = value.constant() {
            return Ok(Expr { kind: ExprKind::Const(v >> lo & mask(ty.width())), ty, pos });
        }
        Ok(Expr { kind: ExprKind::Slice(Box::new(value), hi, lo), ty, pos })
    }

    fn slice_bounds(&mut self, hi: &ast::Expr, lo: &ast::Expr, width: u32) -> Res<(u32, u32)> {
        let h = self.const_expr(hi, None)?;
        let l = self.const_expr(lo, None)?;
        if h < l || h >= width as u128 {
            return Err(Problem::error(hi.pos, format!("[{h}:{l}] is not within {width} bits")));
        }
        Ok((h as u32, l as u32))
    }

    /// Destination of an assignment, and its type.
    pub(super) fn destination(&mut self, e: &ast::Expr) -> Res<(Dst, Ty)> {
        if let ast::ExprKind::Slice(of, hi, lo) = &e.kind {
            let (dst, ty) = self.destination(of)?;
            let (hi, lo) = self.slice_bounds(hi, lo, ty.width())?;
            return Ok((Dst { hi: dst.lo + hi, lo: dst.lo + lo, ..dst }, Ty::Bit(hi - lo + 1)));
        }
        let (place, ty) = match self.place(e)? {
            Lvalue::Scalar(id, ty) => (ir::Destination::Field(id), ty),
            Lvalue::Mem(w, ty) => (ir::Destination::Mem(w), ty),
            Lvalue::Out(i, ty) => (ir::Destination::Out(i), ty),
            _ => {
                return Err(Problem::error(e.pos, "whole headers and structs can't be assigned")
                    .help("assign the fields one by one"));
            }
        };
        self.writable(place, e.pos)?;
        Ok((Dst { place, hi: ty.width() - 1, lo: 0 }, ty))
    }

    /// "Its port is input only": some of the architecture's fields can't be written.
    fn writable(&self, place: ir::Destination, pos: Pos) -> Res<()> {
        let ir::Destination::Field(id) = place else { return Ok(()) };
        let intrinsic = self.out.headers.iter().any(|h| h.intrinsic && h.fields.contains(&id));
        if intrinsic {
            let name = &self.out.field(id).name;
            return Err(Problem::error(pos, format!("`{name}` is input of the {} only", self.gress.name()))
                .help("the egress port is chosen in ingress, or by the mirror session and mirror_egress_port"));
        }
        Ok(())
    }

    fn unary(&mut self, op: UnOp, a: &ast::Expr, expected: Option<Ty>, pos: Pos) -> Res<Expr> {
        let expected = if op == UnOp::Not { Some(Ty::Bool) } else { expected };
        let a = self.infer(a, expected)?;
        match (op, a.ty) {
            (UnOp::Not, Ty::Bool) | (UnOp::BitNot, Ty::Bit(_) | Ty::Int(_)) => {}
            (UnOp::Neg, Ty::Bit(_) | Ty::Int(_) | Ty::Inf) => {}
            _ => return Err(Problem::error(pos, format!("this operator is not for {}", show(a.ty)))),
        }
        let ty = a.ty;
        if let Some(v) = a.constant() {
            return Ok(Expr { kind: ExprKind::Const(ops::unary(op, v, ty)), ty, pos });
        }
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(a)), ty, pos })
    }

    fn binary(&mut self, op: BinOp, a: &ast::Expr, b: &ast::Expr, expected: Option<Ty>, pos: Pos) -> Res<Expr> {
        let compares = matches!(op, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge);
        let logical = matches!(op, BinOp::LogAnd | BinOp::LogOr);
        let shift = matches!(op, BinOp::Shl | BinOp::Shr);
        let hint = if compares || op == BinOp::Concat { None } else { expected };
        let hint = if logical { Some(Ty::Bool) } else { hint };
        let mut x = self.infer(a, hint)?;
        let mut y = self.infer(b, if shift { None } else { hint })?;
        if !shift && op != BinOp::Concat {
            match (x.ty, y.ty) {
                (Ty::Inf, Ty::Inf) => {}
                (Ty::Inf, ty) => x = self.coerce(x, ty)?,
                (ty, Ty::Inf) => y = self.coerce(y, ty)?,
                (l, r) if l != r => {
                    return Err(Problem::error(pos, format!("the operands are {} and {}", show(l), show(r)))
                        .help("cast one of them"));
                }
                _ => {}
            }
        }
        if shift && x.ty == Ty::Inf && y.constant().is_none() {
            return Err(Problem::error(pos, "a constant shifted by a variable needs a width"));
        }
        let bools = x.ty == Ty::Bool;
        if (logical && !bools) || (bools && !logical && !matches!(op, BinOp::Eq | BinOp::Ne)) {
            return Err(Problem::error(pos, format!("this operator is not for {}", show(x.ty)))
                .help("compare with 0 or 1 to get a bool"));
        }
        self.make_binary(op, x, y, compares, pos)
    }

    fn make_binary(&self, op: BinOp, x: Expr, y: Expr, compares: bool, pos: Pos) -> Res<Expr> {
        let ty = match op {
            _ if compares => Ty::Bool,
            BinOp::Concat => {
                if x.ty == Ty::Inf || y.ty == Ty::Inf || x.ty.width() + y.ty.width() > 128 {
                    return Err(Problem::error(pos, "both parts of `++` need a width, together at most 128 bits"));
                }
                Ty::Bit(x.ty.width() + y.ty.width())
            }
            _ => x.ty,
        };
        if let (Some(a), Some(b)) = (x.constant(), y.constant()) {
            let value = ops::binary(op, a, b, x.ty, y.ty);
            return Ok(Expr { kind: ExprKind::Const(value), ty, pos });
        }
        Ok(Expr { kind: ExprKind::Binary(op, Box::new(x), Box::new(y)), ty, pos })
    }

    fn ternary(&mut self, c: &ast::Expr, a: &ast::Expr, b: &ast::Expr, expected: Option<Ty>, pos: Pos) -> Res<Expr> {
        let c = self.expr(c, Some(Ty::Bool))?;
        let mut x = self.expr(a, expected)?;
        let y = self.expr(b, expected.or(if x.ty == Ty::Inf { None } else { Some(x.ty) }))?;
        if x.ty == Ty::Inf {
            x = self.coerce(x, y.ty)?;
        }
        let ty = x.ty;
        if let Some(v) = c.constant() {
            return Ok(if v != 0 { x } else { y });
        }
        Ok(Expr { kind: ExprKind::Mux(Box::new(c), Box::new(x), Box::new(y)), ty, pos })
    }

    fn cast(&mut self, ty: &ast::TypeRef, a: &ast::Expr, pos: Pos) -> Res<Expr> {
        let ty = self.scalar_type(ty)?;
        let value = self.infer(a, None)?;
        let legal = match (value.ty, ty) {
            (Ty::Bool, to) => to.width() == 1,
            (from, Ty::Bool) => from.width() == 1 || value.constant().is_some_and(|v| v <= 1),
            (Ty::Bit(a), Ty::Int(b)) | (Ty::Int(a), Ty::Bit(b)) => a == b,
            _ => true,
        };
        if !legal {
            return Err(Problem::error(pos, format!("{} can't be cast to {}", show(value.ty), show(ty)))
                .help("change the width and the sign in two casts"));
        }
        if let Some(v) = value.constant() {
            return Ok(Expr { kind: ExprKind::Const(ops::cast(v, value.ty, ty)), ty, pos });
        }
        if value.ty == ty {
            return Ok(value);
        }
        Ok(Expr { kind: ExprKind::Cast(Box::new(value)), ty, pos })
    }

    /// Calls that give a value and change nothing: `isValid`, `min`, `max`, and what only some contexts have.
    fn call_value(&mut self, call: &ast::Call, expected: Option<Ty>, pos: Pos) -> Res<Expr> {
        match &call.callee.kind {
            ast::ExprKind::Name(name) if name == "min" || name == "max" => {
                self.min_max(call, name == "min", expected, pos)
            }
            ast::ExprKind::Member(of, method) => self.method_value(call, of, &method.text, expected, pos),
            _ => Err(Problem::error(pos, "this call has no value")),
        }
    }

    fn min_max(&mut self, call: &ast::Call, min: bool, expected: Option<Ty>, pos: Pos) -> Res<Expr> {
        let [a, b] = &call.args[..] else { return Err(Problem::error(pos, "min and max have two operands")) };
        let mut x = self.expr(a, expected)?;
        let y = self.expr(b, expected.or(if x.ty == Ty::Inf { None } else { Some(x.ty) }))?;
        if x.ty != y.ty {
            x = self.coerce(x, y.ty)?;
        }
        let ty = x.ty;
        let (x, y) = (Box::new(x), Box::new(y));
        Ok(Expr { kind: if min { ExprKind::Min(x, y) } else { ExprKind::Max(x, y) }, ty, pos })
    }

    fn method_value(
        &mut self,
        call: &ast::Call,
        of: &ast::Expr,
        method: &str,
        expected: Option<Ty>,
        pos: Pos,
    ) -> Res<Expr> {
        if let ast::ExprKind::Name(name) = &of.kind {
            if name == "this" && method == "predicate" {
                return self.predicate(call, expected, pos);
            }
            match (self.lookup(name).cloned(), method) {
                (Some(Binding::Object(Object::PacketIn)), "lookahead") => return self.lookahead(call, pos),
                (Some(Binding::Object(Object::Math(unit))), "execute") => return self.math(unit, call, expected, pos),
                (Some(Binding::Object(Object::Param(value, ty))), "read") => {
                    return Ok(Expr { kind: ExprKind::Const(value), ty, pos });
                }
                (Some(Binding::Object(_)), _) => {
                    return Err(Problem::error(
                        pos,
                        format!("the result of `{method}` can't be part of an expression"),
                    )
                    .help("assign it to a variable of its own: x = object.method(...);"));
                }
                _ => {}
            }
        }
        if method == "isValid" {
            if let Lvalue::Header(h) = self.place(of)? {
                let valid = self.out.headers[h].valid;
                return Ok(Expr { kind: ExprKind::Field(valid), ty: Ty::Bool, pos });
            }
        }
        Err(Problem::error(pos, format!("`{method}` has no value here")))
    }

    fn math(&mut self, unit: usize, call: &ast::Call, expected: Option<Ty>, pos: Pos) -> Res<Expr> {
        let [x] = &call.args[..] else { return Err(Problem::error(pos, "a math unit has one operand")) };
        let x = self.expr(x, expected)?;
        let ty = x.ty;
        Ok(Expr { kind: ExprKind::Math(unit, Box::new(x)), ty, pos })
    }
}

fn scalar_place(place: &Lvalue, pos: Pos) -> Option<Expr> {
    match place {
        Lvalue::Scalar(id, ty) => Some(Expr { kind: ExprKind::Field(*id), ty: *ty, pos }),
        Lvalue::Mem(w, ty) => Some(Expr { kind: ExprKind::Mem(*w), ty: *ty, pos }),
        _ => None,
    }
}

/// A type in words.
pub(super) fn show(ty: Ty) -> String {
    match ty {
        Ty::Bool => "bool".into(),
        Ty::Bit(w) => format!("bit<{w}>"),
        Ty::Int(w) => format!("int<{w}>"),
        Ty::Inf => "a constant without a width".into(),
    }
}

/// The most similar name, if one is similar at all.
pub(super) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let limit = name.len().div_ceil(3).min(3);
    let mut best: Option<(usize, &str)> = None;
    for other in names.filter(|n| n.len() < 64 && n.len().abs_diff(name.len()) <= limit && name.len() < 64) {
        let distance = edit_distance(name, other);
        if distance <= limit && best.is_none_or(|(d, n)| (distance, other) < (d, n)) {
            best = Some((distance, other));
        }
    }
    best.map(|(_, n)| n.to_string())
}

/// Letters to insert, delete or replace.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + (x != *y) as usize;
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
