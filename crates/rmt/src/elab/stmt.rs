//! Statements of controls, actions and stateful programs.
use super::scope::{Binding, Elab, Lvalue, Object};
use crate::ast::{self, StmtKind};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{self, Dst, Role, Ty};
use std::rc::Rc;

impl<'a> Elab<'a> {
    /// Statements in a scope of their own; an error in one does not hide those in the next.
    pub(super) fn block(&mut self, stmts: &[ast::Stmt], out: &mut Vec<ir::Stmt>) -> Res<()> {
        self.scoped(|s| {
            for stmt in stmts {
                let result = s.stmt(stmt, out);
                s.recover(result)?;
            }
            Ok(())
        })
    }

    fn stmt(&mut self, stmt: &ast::Stmt, out: &mut Vec<ir::Stmt>) -> Res<()> {
        let pos = stmt.pos;
        match &stmt.kind {
            StmtKind::Empty => Ok(()),
            StmtKind::Block(body) => self.block(body, out),
            StmtKind::Const(c) => self.constant(c),
            StmtKind::Var(ty, name, init) => self.variable(ty, name, init.as_ref(), out),
            StmtKind::Assign(left, right) => self.assign(left, right, out, pos),
            StmtKind::Call(call) => self.call(call, None, out, pos),
            StmtKind::If(cond, then, els) => self.if_stmt(cond, then, els.as_deref(), out, pos),
            StmtKind::Switch(on, cases) => self.switch(on, cases, out, pos),
            StmtKind::Exit => {
                out.push(ir::Stmt { kind: ir::StmtKind::Exit, pos });
                Ok(())
            }
            StmtKind::Return => {
                Err(Problem::error(pos, "`return` is not supported").help("put the rest into an else branch"))
            }
            StmtKind::Instance(i) => Err(Problem::error(i.name.pos, "instances are declared outside of blocks")),
        }
    }

    pub(super) fn variable(
        &mut self,
        ty: &ast::TypeRef,
        name: &ast::Name,
        init: Option<&ast::Expr>,
        out: &mut Vec<ir::Stmt>,
    ) -> Res<()> {
        let t = self.type_of(ty)?;
        let full = self.full_name(name);
        let place = self.instantiate(&full, &t, Role::Metadata, ty.pos)?;
        self.bind(name, Binding::Lvalue(place))?;
        match init {
            Some(e) => {
                let left = ast::Expr { kind: ast::ExprKind::Name(name.text.clone()), pos: name.pos };
                self.assign(&left, e, out, name.pos)
            }
            None => Ok(()),
        }
    }

    fn assign(&mut self, left: &ast::Expr, right: &ast::Expr, out: &mut Vec<ir::Stmt>, pos: Pos) -> Res<()> {
        if let ast::ExprKind::Call(call) = &right.kind {
            if self.is_object_call(call) {
                return self.call(call, Some(left), out, pos);
            }
        }
        let (dst, ty) = self.destination(left)?;
        let value = self.expr(right, Some(ty))?;
        out.push(ir::Stmt { kind: ir::StmtKind::Assign(dst, value), pos });
        Ok(())
    }

    /// `object.method(...)` on an extern that does something.
    fn is_object_call(&self, call: &ast::Call) -> bool {
        let ast::ExprKind::Member(of, _) = &call.callee.kind else { return false };
        let ast::ExprKind::Name(name) = &of.kind else { return false };
        let pure = |o: &Object| matches!(o, Object::PacketIn | Object::Math(_) | Object::Param(..));
        matches!(self.lookup(name), Some(Binding::Object(o)) if !pure(o))
    }

    fn if_stmt(
        &mut self,
        cond: &ast::Expr,
        then: &ast::Stmt,
        els: Option<&ast::Stmt>,
        out: &mut Vec<ir::Stmt>,
        pos: Pos,
    ) -> Res<()> {
        let (mut yes, mut no) = (Vec::new(), Vec::new());
        let hit = self.applied(cond);
        let value = if hit.is_none() { Some(self.expr(cond, Some(Ty::Bool))?) } else { None };
        self.block(std::slice::from_ref(then), &mut yes)?;
        if let Some(els) = els {
            self.block(std::slice::from_ref(els), &mut no)?;
        }
        if let Some((table, on_hit)) = hit {
            let (hit, miss) = if on_hit { (yes, no) } else { (no, yes) };
            let apply = ir::Apply { table, hit, miss, arms: Vec::new(), default: Vec::new() };
            out.push(ir::Stmt { kind: ir::StmtKind::Apply(apply), pos });
        } else if let Some(e) = value {
            match e.constant() {
                Some(0) => out.append(&mut no),
                Some(_) => out.append(&mut yes),
                None => out.push(ir::Stmt { kind: ir::StmtKind::If(e, yes, no), pos }),
            }
        }
        Ok(())
    }

    /// `table.apply().hit`, `.miss`, and either with `!`.
    fn applied(&self, e: &ast::Expr) -> Option<(usize, bool)> {
        match &e.kind {
            ast::ExprKind::Unary(ast::UnOp::Not, inner) => self.applied(inner).map(|(t, hit)| (t, !hit)),
            ast::ExprKind::Member(of, member) => {
                let hit = match member.text.as_str() {
                    "hit" => true,
                    "miss" => false,
                    _ => return None,
                };
                self.apply_of(of).map(|table| (table, hit))
            }
            _ => None,
        }
    }

    /// The table in `table.apply()`.
    fn apply_of(&self, e: &ast::Expr) -> Option<usize> {
        let ast::ExprKind::Call(call) = &e.kind else { return None };
        let ast::ExprKind::Member(of, method) = &call.callee.kind else { return None };
        let ast::ExprKind::Name(name) = &of.kind else { return None };
        match self.lookup(name) {
            Some(Binding::Table(table)) if method.text == "apply" => Some(*table),
            _ => None,
        }
    }

    fn switch(&mut self, on: &ast::Expr, cases: &[ast::Case], out: &mut Vec<ir::Stmt>, pos: Pos) -> Res<()> {
        let table = match &on.kind {
            ast::ExprKind::Member(of, member) if member.text == "action_run" => self.apply_of(of),
            _ => None,
        };
        let table = table.ok_or_else(|| {
            Problem::error(pos, "`switch` is only for `table.apply().action_run`").help("use a table or `if`")
        })?;
        let mut apply = ir::Apply { table, hit: Vec::new(), miss: Vec::new(), arms: Vec::new(), default: Vec::new() };
        let mut labels = Vec::new();
        let mut default = false;
        for ast::Case { label, body, pos } in cases {
            match label {
                Some(name) => labels.push(self.arm_label(table, name)?),
                None => default = true,
            }
            if let Some(body) = body {
                let mut list = Vec::new();
                self.block(body, &mut list)?;
                if default {
                    apply.default = list;
                } else {
                    apply.arms.push((std::mem::take(&mut labels), list));
                }
            } else if default {
                return Err(Problem::error(*pos, "the default case has no body"));
            }
        }
        out.push(ir::Stmt { kind: ir::StmtKind::Apply(apply), pos });
        Ok(())
    }

    fn arm_label(&self, table: usize, name: &ast::Name) -> Res<usize> {
        let table = &self.out.tables[table];
        let found = match self.lookup(&name.text) {
            Some(Binding::Action(_, id)) => Some(*id),
            None if name.text == "NoAction" => Some(0),
            _ => None,
        };
        found.and_then(|id| table.actions.iter().position(|a| *a == id)).ok_or_else(|| {
            Problem::error(name.pos, format!("`{}` is not an action of table `{}`", name.text, table.name))
        })
    }

    /// A call as a statement, with or without a destination for its value.
    pub(super) fn call(
        &mut self,
        call: &ast::Call,
        to: Option<&ast::Expr>,
        out: &mut Vec<ir::Stmt>,
        pos: Pos,
    ) -> Res<()> {
        match &call.callee.kind {
            ast::ExprKind::Name(name) => self.call_action(name, call, out, pos),
            ast::ExprKind::Member(of, method) => self.call_method(of, method, call, to, out, pos),
            _ => Err(Problem::error(pos, "this can't be called")),
        }
    }

    fn call_action(&mut self, name: &str, call: &ast::Call, out: &mut Vec<ir::Stmt>, pos: Pos) -> Res<()> {
        let action = match self.lookup(name) {
            Some(Binding::Action(action, _) | Binding::Macro(action)) => Rc::clone(action),
            None if name == "NoAction" => return Ok(()),
            Some(_) => return Err(Problem::error(pos, format!("`{name}` is not an action"))),
            None => return Err(self.unknown(name, pos)),
        };
        if action.params.len() != call.args.len() {
            return Err(Problem::error(pos, format!("`{name}` has {} parameters", action.params.len())));
        }
        self.expanding(pos, |s| {
            s.scopes.push(Default::default());
            let result = s.expand_action(&action, call, out);
            s.scopes.pop();
            result
        })
    }

    fn expand_action(&mut self, action: &ast::Action, call: &ast::Call, out: &mut Vec<ir::Stmt>) -> Res<()> {
        let mut bound = Vec::new();
        for (param, arg) in action.params.iter().zip(&call.args) {
            let binding = match self.type_of(&param.ty)?.scalar() {
                Some(ty) if matches!(param.dir, ast::Dir::None | ast::Dir::In) => {
                    Binding::Value(self.expr(arg, Some(ty))?)
                }
                _ => Binding::Lvalue(self.place(arg)?),
            };
            bound.push(binding);
        }
        for (param, binding) in action.params.iter().zip(bound) {
            self.bind(&param.name, binding)?;
        }
        self.block(&action.body, out)
    }

    fn call_method(
        &mut self,
        of: &ast::Expr,
        method: &ast::Name,
        call: &ast::Call,
        to: Option<&ast::Expr>,
        out: &mut Vec<ir::Stmt>,
        pos: Pos,
    ) -> Res<()> {
        if matches!(method.text.as_str(), "setValid" | "setInvalid") {
            let Lvalue::Header(h) = self.place(of)? else {
                return Err(Problem::error(pos, "only a header can be made valid"));
            };
            out.push(ir::Stmt { kind: ir::StmtKind::SetValid(h, method.text == "setValid"), pos });
            return Ok(());
        }
        let ast::ExprKind::Name(name) = &of.kind else {
            return Err(Problem::error(pos, format!("`{}` is not known here", method.text)));
        };
        match (self.lookup(name).cloned(), method.text.as_str()) {
            (Some(Binding::Table(table)), "apply") => {
                let apply =
                    ir::Apply { table, hit: Vec::new(), miss: Vec::new(), arms: Vec::new(), default: Vec::new() };
                out.push(ir::Stmt { kind: ir::StmtKind::Apply(apply), pos });
                Ok(())
            }
            (Some(Binding::Object(object)), method) => self.call_object(object, method, call, to, out, pos),
            (Some(_), method) => Err(Problem::error(pos, format!("`{name}` has no method `{method}`"))),
            (None, _) => Err(self.unknown(name, pos)),
        }
    }

    fn call_object(
        &mut self,
        object: Object,
        method: &str,
        call: &ast::Call,
        to: Option<&ast::Expr>,
        out: &mut Vec<ir::Stmt>,
        pos: Pos,
    ) -> Res<()> {
        let kind = match (object, method) {
            (Object::RegisterAction(action), "execute") => return self.execute(action, call, to, out, pos),
            (Object::Control(instance), "apply") => return self.inline_control(&instance, call, out, pos),
            (Object::Register(_), "read" | "write") => {
                return Err(Problem::error(pos, "registers are only used through a RegisterAction")
                    .help("reading and writing in one place is what a stateful ALU does"));
            }
            (Object::Hash(hash), "get") => {
                let width = self.out.hashes[hash].width;
                let dst = self.result(to, Ty::Bit(width), pos)?;
                ir::StmtKind::Hash(hash, self.value_list(&call.args)?, dst)
            }
            (Object::Random(width), "get") => ir::StmtKind::Random(self.result(to, Ty::Bit(width), pos)?),
            (Object::Counter(counter), "count") if !call.args.is_empty() => {
                ir::StmtKind::Count(counter, self.expr(&call.args[0], None)?)
            }
            (Object::Meter(meter), "execute") if !call.args.is_empty() => {
                let dst = self.result(to, Ty::Bit(8), pos)?;
                ir::StmtKind::Meter(meter, self.expr(&call.args[0], None)?, dst)
            }
            (Object::Filter(filter), "execute") => return self.run_filter(filter, call, to, out, pos),
            (Object::Checksum(_) | Object::Mirror | Object::Digest(_) | Object::Resubmit, _) => {
                return Err(Problem::error(pos, format!("`{method}` belongs into a parser or deparser")));
            }
            _ => return Err(Problem::error(pos, format!("`{method}` is not supported here"))),
        };
        out.push(ir::Stmt { kind, pos });
        Ok(())
    }

    fn result(&mut self, to: Option<&ast::Expr>, ty: Ty, pos: Pos) -> Res<Dst> {
        match to {
            Some(e) => self.typed_destination(e, ty),
            None => Err(Problem::error(pos, "the result is lost").help("assign it to a variable")),
        }
    }

    /// Values of a list argument `{a, b}`, or of plain arguments. Headers stand for all of their fields.
    pub(super) fn value_list(&mut self, args: &[ast::Expr]) -> Res<Vec<ir::Expr>> {
        let mut out = Vec::new();
        for e in args {
            match &e.kind {
                ast::ExprKind::List(list) => out.extend(self.value_list(list)?),
                ast::ExprKind::Name(_) | ast::ExprKind::Member(..) => match self.place(e) {
                    Ok(Lvalue::Header(h)) => out.extend(self.header_values(h, e.pos)),
                    _ => out.push(self.expr(e, None)?),
                },
                _ => out.push(self.expr(e, None)?),
            }
        }
        Ok(out)
    }

    fn header_values(&self, h: usize, pos: Pos) -> Vec<ir::Expr> {
        let value = |id: &ir::FieldId| ir::Expr { kind: ir::ExprKind::Field(*id), ty: self.out.field(*id).ty, pos };
        self.out.headers[h].fields.iter().map(value).collect()
    }
}
