//! Deparsers: headers in order, checksums, mirror, digest.
use super::scope::{Elab, Lvalue, Object};
use super::types::Type;
use crate::ast::{self, StmtKind};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{Deparse, Expr, Gress, Ty};

impl<'a> Elab<'a> {
    pub(super) fn deparser(&mut self, control: &'a ast::Control) -> Res<()> {
        let mut none = Vec::new();
        self.locals(&control.locals, &mut none)?;
        let mut out = Vec::new();
        self.deparse_block(&control.apply, &mut out)?;
        let gress = self.gress;
        self.out.half_mut(gress).deparser = out;
        Ok(())
    }

    fn deparse_block(&mut self, stmts: &[ast::Stmt], out: &mut Vec<Deparse>) -> Res<()> {
        for stmt in stmts {
            let result = self.deparse_stmt(stmt, out);
            self.recover(result)?;
        }
        Ok(())
    }

    fn deparse_stmt(&mut self, stmt: &ast::Stmt, out: &mut Vec<Deparse>) -> Res<()> {
        let pos = stmt.pos;
        match &stmt.kind {
            StmtKind::Empty => Ok(()),
            StmtKind::Block(body) => self.deparse_block(body, out),
            StmtKind::Assign(left, right) => self.checksum_update(left, right, out),
            StmtKind::Call(call) => self.deparse_call(call, out, pos),
            StmtKind::If(cond, then, els) => {
                let cond = self.expr(cond, Some(Ty::Bool))?;
                let (mut yes, mut no) = (Vec::new(), Vec::new());
                self.deparse_block(std::slice::from_ref(then), &mut yes)?;
                if let Some(els) = els {
                    self.deparse_block(std::slice::from_ref(els), &mut no)?;
                }
                out.push(Deparse::If(cond, yes, no));
                Ok(())
            }
            _ => Err(Problem::error(pos, "this statement is not supported in a deparser")),
        }
    }

    /// `field = checksum.update({...}[, zeros_as_ones]);`
    fn checksum_update(&mut self, left: &ast::Expr, right: &ast::Expr, out: &mut Vec<Deparse>) -> Res<()> {
        let problem = || Problem::error(right.pos, "a deparser can't compute, except by checksum.update({...})");
        let ast::ExprKind::Call(call) = &right.kind else { return Err(problem()) };
        let ast::ExprKind::Member(of, method) = &call.callee.kind else { return Err(problem()) };
        let Object::Checksum(_) = self.object(of)? else { return Err(problem()) };
        let (true, Some((list, rest))) = (method.text == "update", call.args.split_first()) else {
            return Err(problem());
        };
        let zeros = match rest.first() {
            Some(e) => self.const_expr(e, Some(Ty::Bool))? != 0,
            None => false,
        };
        let values = self.value_list(std::slice::from_ref(list))?;
        let bits: u32 = values.iter().map(|v| v.ty.width()).sum();
        if bits % 8 != 0 {
            return Err(Problem::error(
                list.pos,
                format!("the inputs of a checksum have {bits} bits: not whole bytes"),
            ));
        }
        let dst = self.typed_destination(left, Ty::Bit(16))?;
        out.push(Deparse::Checksum(values, dst, zeros));
        Ok(())
    }

    fn deparse_call(&mut self, call: &ast::Call, out: &mut Vec<Deparse>, pos: Pos) -> Res<()> {
        let ast::ExprKind::Member(of, method) = &call.callee.kind else {
            return Err(Problem::error(pos, "this can't be called in a deparser"));
        };
        if self.binding_is_packet_out(of) && method.text == "emit" {
            let [e] = &call.args[..] else { return Err(Problem::error(pos, "emit has one argument")) };
            let place = self.place(e)?;
            return emit(&place, out, e.pos);
        }
        match (self.object(of)?, method.text.as_str()) {
            (Object::Mirror, "emit") => self.mirror(call, out, pos),
            (Object::Digest(name), "pack") => {
                self.ingress_only("digest", pos)?;
                let values = self.value_list(&call.args)?;
                out.push(Deparse::Digest(name, values));
                Ok(())
            }
            (Object::Resubmit, "emit") => {
                self.ingress_only("resubmit", pos)?;
                let values = self.value_list(&call.args)?;
                out.push(Deparse::Resubmit(values));
                Ok(())
            }
            (_, name) => Err(Problem::error(pos, format!("`{name}` is not supported in a deparser"))),
        }
    }

    fn ingress_only(&self, what: &str, pos: Pos) -> Res<()> {
        if self.gress == Gress::Egress {
            return Err(Problem::error(pos, format!("egress has no {what}")).help("mirror the packet instead"));
        }
        Ok(())
    }

    /// `mirror.emit<header>(session, {fields});`
    fn mirror(&mut self, call: &ast::Call, out: &mut Vec<Deparse>, pos: Pos) -> Res<()> {
        let Some((session, rest)) = call.args.split_first() else {
            return Err(Problem::error(pos, "emit of a mirror needs a session"));
        };
        let session = self.expr(session, Some(Ty::Bit(8)))?;
        let mut values: Vec<Expr> = Vec::new();
        if let Some(list) = rest.first() {
            let ast::ExprKind::List(items) = &list.kind else {
                return Err(Problem::error(list.pos, "a list of fields is expected: {a, b}"));
            };
            for item in items {
                let value = self.expr(item, None)?;
                if value.constant().is_some() {
                    return Err(Problem::error(item.pos, "a constant can't be in a mirror's list")
                        .help("put it into a metadata field in the control, and list that"));
                }
                values.push(value);
            }
            self.mirror_widths(call, &values, pos)?;
        }
        out.push(Deparse::Mirror(session, values, pos));
        Ok(())
    }

    fn mirror_widths(&mut self, call: &ast::Call, values: &[Expr], pos: Pos) -> Res<()> {
        let [ty] = &call.types[..] else { return Err(Problem::error(pos, "which header? emit<header>(...)")) };
        let Type::Header(c) = self.type_of(ty)? else { return Err(Problem::error(ty.pos, "a header is expected")) };
        if c.members.len() != values.len() {
            let message = format!("`{}` has {} fields, the list has {}", c.name, c.members.len(), values.len());
            return Err(Problem::error(pos, message));
        }
        for ((name, ty), value) in c.members.iter().zip(values) {
            if ty.scalar().map(Ty::width) != Some(value.ty.width()) {
                return Err(Problem::error(value.pos, format!("this is not as wide as `{}.{name}`", c.name)));
            }
        }
        Ok(())
    }
}

/// A header, or all headers of a struct in order.
fn emit(place: &Lvalue, out: &mut Vec<Deparse>, pos: Pos) -> Res<()> {
    match place {
        Lvalue::Header(h) => {
            out.push(Deparse::Emit(*h));
            Ok(())
        }
        Lvalue::Struct(s) => s.members.iter().try_for_each(|(_, p)| emit(p, out, pos)),
        _ => Err(Problem::error(pos, "only headers can be emitted")),
    }
}
