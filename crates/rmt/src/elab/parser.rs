//! Parsers: states with operations and transitions.
use super::scope::{Binding, Elab, Lvalue, Object};
use super::types::Type;
use crate::ast::{self, StmtKind, Transition};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{self, Expr, ExprKind, ParseOp, Target, Ty};
use std::collections::HashMap;

/// Bits of lookahead beyond the cursor.
const MAX_LOOKAHEAD: u32 = 256;

impl<'a> Elab<'a> {
    pub(super) fn parser(&mut self, parser: &'a ast::Parser) -> Res<()> {
        let mut init = Vec::new();
        for stmt in &parser.locals {
            self.local(stmt, &mut init)?;
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let start = parser.states.iter().position(|s| s.name.text == "start");
        let start = start.ok_or_else(|| Problem::error(parser.name.pos, "the parser has no state `start`"))?;
        // `start` is number 0.
        let order = std::iter::once(start).chain((0..parser.states.len()).filter(|i| *i != start));
        let states: Vec<&ast::State> = order.map(|i| &parser.states[i]).collect();
        for (i, state) in states.iter().enumerate() {
            if numbers.insert(&state.name.text, i).is_some() {
                return Err(Problem::error(state.name.pos, format!("the state `{}` exists twice", state.name.text)));
            }
        }
        for (i, state) in states.iter().enumerate() {
            let mut done = match self.state(state, &numbers) {
                Ok(done) => done,
                Err(problem) => {
                    self.recover(Err(problem))?;
                    continue;
                }
            };
            if i == 0 {
                let assign = init.drain(..).filter_map(|s: ir::Stmt| match s.kind {
                    ir::StmtKind::Assign(dst, e) => Some(ParseOp::Assign(dst, e)),
                    _ => None,
                });
                done.ops.splice(0..0, assign);
            }
            let gress = self.gress;
            self.out.half_mut(gress).states.push(done);
        }
        Ok(())
    }

    fn state(&mut self, state: &ast::State, numbers: &HashMap<&str, usize>) -> Res<ir::State> {
        let mut ops = Vec::new();
        for stmt in &state.body {
            let result = self.parse_stmt(stmt, &mut ops);
            self.recover(result)?;
        }
        let target = |name: &ast::Name| match name.text.as_str() {
            "accept" => Ok(Target::Accept),
            "reject" => Ok(Target::Reject),
            other => numbers
                .get(other)
                .map(|i| Target::State(*i))
                .ok_or_else(|| Problem::error(name.pos, format!("there is no state `{other}`"))),
        };
        let mut on = Vec::new();
        let mut cases = Vec::new();
        match &state.next {
            Transition::To(name) => cases.push((Vec::new(), target(name)?)),
            Transition::Select(exprs, list) => {
                for e in exprs {
                    on.push(self.expr(e, None)?);
                }
                for (values, name) in list {
                    cases.push((self.case(values, &on, name.pos)?, target(name)?));
                }
            }
        }
        Ok(ir::State { name: state.name.text.clone(), ops, on, cases, pos: state.pos })
    }

    fn case(&mut self, values: &[ast::Expr], on: &[Expr], pos: Pos) -> Res<Vec<ir::Match>> {
        if let [ast::Expr { kind: ast::ExprKind::Any, .. }] = values {
            return Ok(vec![ir::Match::Mask(0, 0); on.len()]);
        }
        if values.len() != on.len() {
            return Err(Problem::error(pos, format!("{} values are expected, not {}", on.len(), values.len())));
        }
        values.iter().zip(on).map(|(e, on)| self.match_value(e, on.ty)).collect()
    }

    fn parse_stmt(&mut self, stmt: &ast::Stmt, ops: &mut Vec<ParseOp>) -> Res<()> {
        let pos = stmt.pos;
        match &stmt.kind {
            StmtKind::Empty => Ok(()),
            StmtKind::Assign(left, right) => self.parse_assign(left, right, ops),
            StmtKind::Call(call) => self.parse_call(call, ops, pos),
            StmtKind::If(..) => Err(Problem::error(pos, "`if` is not for parsers").help("use transition select(...)")),
            _ => Err(Problem::error(pos, "this statement is not supported in a parser")),
        }
    }

    fn parse_assign(&mut self, left: &ast::Expr, right: &ast::Expr, ops: &mut Vec<ParseOp>) -> Res<()> {
        if let ast::ExprKind::Call(call) = &right.kind {
            if let ast::ExprKind::Member(of, method) = &call.callee.kind {
                if let Ok(Object::Checksum(unit)) = self.object(of) {
                    if method.text != "verify" {
                        return Err(Problem::error(method.pos, "a parser's checksum is verified, or left as residual"));
                    }
                    let (dst, _) = self.destination(left)?;
                    ops.push(ParseOp::Verify(unit, dst));
                    return Ok(());
                }
            }
        }
        let (dst, ty) = self.destination(left)?;
        let value = self.expr(right, Some(ty))?;
        let simple = matches!(value.kind, ExprKind::Const(_) | ExprKind::Field(_) | ExprKind::Lookahead(_));
        if !simple && !matches!(&value.kind, ExprKind::Slice(..) | ExprKind::Cast(_)) {
            return Err(Problem::error(right.pos, "a parser can't compute, only copy").help("compute in the control"));
        }
        ops.push(ParseOp::Assign(dst, value));
        Ok(())
    }

    fn parse_call(&mut self, call: &ast::Call, ops: &mut Vec<ParseOp>, pos: Pos) -> Res<()> {
        let ast::ExprKind::Member(of, method) = &call.callee.kind else {
            return Err(Problem::error(pos, "this can't be called in a parser"));
        };
        if let Ok(Lvalue::Header(_)) = self.place(of) {
            return Err(Problem::error(pos, "a header becomes valid in a parser by extract only"));
        }
        match (self.object(of)?, method.text.as_str()) {
            (Object::PacketIn, "extract") => self.extract(call, ops, pos),
            (Object::PacketIn, "advance") => {
                let bits = match call.args.first() {
                    Some(e) => self.const_expr(e, None)?,
                    None => 0,
                };
                if bits % 8 != 0 || bits == 0 || bits > 8 * 4096 {
                    return Err(Problem::error(pos, "advance skips a constant number of bits, whole bytes"));
                }
                ops.push(ParseOp::Advance(bits as u32));
                Ok(())
            }
            (Object::Checksum(unit), "add" | "subtract") => {
                let values = self.value_list(&call.args)?;
                ops.push(ParseOp::Checksum(unit, values, method.text == "subtract"));
                Ok(())
            }
            (Object::Checksum(unit), "subtract_all_and_deposit") => {
                let [e] = &call.args[..] else { return Err(Problem::error(pos, "where to? one field is expected")) };
                let dst = self.typed_destination(e, Ty::Bit(16))?;
                ops.push(ParseOp::Residual(unit, dst));
                Ok(())
            }
            (Object::PacketIn, "length") => Err(Problem::error(pos, "a parser does not have the packet's length")),
            (_, name) => Err(Problem::error(pos, format!("`{name}` is not supported in a parser"))),
        }
    }

    fn extract(&mut self, call: &ast::Call, ops: &mut Vec<ParseOp>, pos: Pos) -> Res<()> {
        let [e] = &call.args[..] else {
            return Err(Problem::error(pos, "extract has one header; variable lengths are not supported"));
        };
        match self.place(e)? {
            Lvalue::Header(h) => {
                ops.push(ParseOp::Extract(h, pos));
                Ok(())
            }
            _ => Err(Problem::error(e.pos, "only a header can be extracted")),
        }
    }

    /// `pkt.lookahead<T>()` with bits as T.
    pub(super) fn lookahead(&mut self, call: &ast::Call, pos: Pos) -> Res<Expr> {
        let [ty] = &call.types[..] else {
            return Err(Problem::error(pos, "lookahead needs a type: lookahead<bit<8>>()"));
        };
        let ty = self.scalar_type(ty)?;
        Ok(Expr { kind: ExprKind::Lookahead(0), ty, pos })
    }

    /// `pkt.lookahead<header>().field`.
    pub(super) fn lookahead_member(&mut self, call: &ast::Call, member: &ast::Name, pos: Pos) -> Res<Expr> {
        let ast::ExprKind::Member(of, method) = &call.callee.kind else {
            return Err(Problem::error(pos, "this call has no members"));
        };
        if method.text != "lookahead" || !matches!(self.object(of), Ok(Object::PacketIn)) {
            return Err(Problem::error(pos, "this call has no members").help(
                "of a table's outcome, only `if (t.apply().hit)` and `switch (t.apply().action_run)` are supported",
            ));
        }
        let [ty] = &call.types[..] else { return Err(Problem::error(pos, "lookahead needs a type")) };
        let Type::Header(c) = self.type_of(ty)? else {
            return Err(Problem::error(ty.pos, "only a header has members here"));
        };
        let mut offset = 0;
        for (name, t) in &c.members {
            let ty = t.scalar().unwrap_or(Ty::Bit(1));
            if *name == member.text && offset + ty.width() <= MAX_LOOKAHEAD {
                return Ok(Expr { kind: ExprKind::Lookahead(offset), ty, pos });
            }
            offset += ty.width();
        }
        Err(Problem::error(member.pos, format!("there is no member `{}` in the first 256 bits", member.text)))
    }

    pub(super) fn binding_is_packet_out(&self, e: &ast::Expr) -> bool {
        let ast::ExprKind::Name(name) = &e.kind else { return false };
        matches!(self.lookup(name), Some(Binding::Object(Object::PacketOut)))
    }
}
