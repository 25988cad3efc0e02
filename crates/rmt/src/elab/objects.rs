//! Declarations of a control: instances of externs and controls, actions, tables.
use super::scope::{Binding, Elab, Object};
use crate::ast::{self, Dir, Local, TypeKind};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{self, HashKind, Match, MatchKind, Ty, mask};
use std::rc::Rc;

impl<'a> Elab<'a> {
    /// Its name in the control plane.
    pub(super) fn full_name(&self, name: &ast::Name) -> String {
        format!("{}{}", self.prefix, name.text)
    }

    pub(super) fn locals(&mut self, locals: &'a [Local], out: &mut Vec<ir::Stmt>) -> Res<()> {
        for local in locals {
            let result = match local {
                Local::Stmt(stmt) => self.local(stmt, out),
                Local::Action(action) => self.action(action),
                Local::Table(table) => self.table(table),
            };
            self.recover(result)?;
        }
        Ok(())
    }

    pub(super) fn local(&mut self, stmt: &ast::Stmt, out: &mut Vec<ir::Stmt>) -> Res<()> {
        match &stmt.kind {
            ast::StmtKind::Const(c) => self.constant(c),
            ast::StmtKind::Var(ty, name, init) => self.variable(ty, name, init.as_ref(), out),
            ast::StmtKind::Instance(i) => {
                let object = self.instance(i)?;
                self.bind(&i.name, Binding::Object(object))
            }
            _ => Err(Problem::error(stmt.pos, "a declaration is expected here")),
        }
    }

    /// The object that a name stands for.
    pub(super) fn object(&mut self, e: &ast::Expr) -> Res<Object> {
        match &e.kind {
            ast::ExprKind::Name(name) => match self.lookup(name) {
                Some(Binding::Object(object)) => Ok(object.clone()),
                Some(_) => Err(Problem::error(e.pos, format!("`{name}` is not an instance"))),
                None => Err(self.unknown(name, e.pos)),
            },
            _ => Err(Problem::error(e.pos, "the name of an instance is expected here")),
        }
    }

    pub(super) fn instance(&mut self, i: &ast::Instance) -> Res<Object> {
        let TypeKind::Named(ty, types) = &i.ty.kind else {
            return Err(Problem::error(i.ty.pos, "this type has no instances"));
        };
        match ty.as_str() {
            "Register" => self.register(i, types),
            "RegisterAction" => self.register_action(i, types, 0),
            "RegisterAction2" => self.register_action(i, types, 2),
            "RegisterAction3" => self.register_action(i, types, 3),
            "RegisterAction4" => self.register_action(i, types, 4),
            "RegisterParam" => {
                let ty = self.one_type(i, types)?;
                let value = self.first_const(i, Some(ty))?;
                Ok(Object::Param(value, ty))
            }
            "MathUnit" => self.math_unit(i),
            "Hash" => self.hash(i, types),
            "Random" => Ok(Object::Random(self.one_type(i, types)?.width())),
            "Counter" => {
                let counter = self.sized(i)?;
                self.out.counters.push(counter);
                Ok(Object::Counter(self.out.counters.len() - 1))
            }
            "Meter" => {
                let ir::Counter { name, size, .. } = self.sized(i)?;
                let bytes = match i.args.get(1) {
                    Some(e) => self.const_expr(e, None)? == 1,
                    None => false,
                };
                self.out.meters.push(ir::Meter { name, size, bytes });
                Ok(Object::Meter(self.out.meters.len() - 1))
            }
            "Lpf" => self.filter(i),
            "Checksum" => Ok(Object::Checksum(self.next_checksum())),
            "Mirror" => Ok(Object::Mirror),
            "Digest" => Ok(Object::Digest(self.full_name(&i.name))),
            "Resubmit" => Ok(Object::Resubmit),
            name if self.controls.contains_key(name) => Ok(Object::Control(format!("{name} {}", i.name.text))),
            name => Err(Problem::error(i.ty.pos, format!("instances of `{name}` are not supported here"))),
        }
    }

    fn next_checksum(&mut self) -> usize {
        let gress = self.gress;
        let half = self.out.half_mut(gress);
        half.checksums.0 += 1;
        half.checksums.0 - 1
    }

    fn one_type(&mut self, i: &ast::Instance, types: &[ast::TypeRef]) -> Res<Ty> {
        match types {
            [ty] => self.scalar_type(ty),
            _ => Err(Problem::error(i.ty.pos, "one type is expected in <>")),
        }
    }

    fn first_const(&mut self, i: &ast::Instance, expected: Option<Ty>) -> Res<u128> {
        match i.args.first() {
            Some(e) => self.const_expr(e, expected),
            None => Err(Problem::error(i.name.pos, "an argument is missing")),
        }
    }

    pub(super) fn sized(&mut self, i: &ast::Instance) -> Res<ir::Counter> {
        let size = self.first_const(i, None)?;
        if size == 0 || size > 1 << 24 {
            return Err(Problem::error(i.name.pos, "1 to 16 million entries are supported"));
        }
        Ok(ir::Counter { name: self.full_name(&i.name), size: size as u32, pos: i.name.pos })
    }

    fn hash(&mut self, i: &ast::Instance, types: &[ast::TypeRef]) -> Res<Object> {
        let width = self.one_type(i, types)?.width();
        let kind = match self.first_const(i, None)? {
            0 => HashKind::Identity,
            1 => HashKind::Random,
            6 => HashKind::Crc16,
            7 => HashKind::Crc32,
            _ => {
                return Err(Problem::error(i.name.pos, "this hash function is not supported")
                    .help("supported are IDENTITY, RANDOM, CRC16 and CRC32"));
            }
        };
        self.out.hashes.push(ir::Hash { name: self.full_name(&i.name), kind, width });
        Ok(Object::Hash(self.out.hashes.len() - 1))
    }

    fn action(&mut self, action: &ast::Action) -> Res<()> {
        let shared = Rc::new(action.clone());
        if action.params.iter().any(|p| p.dir != Dir::None) {
            return self.bind(&action.name, Binding::Macro(shared));
        }
        let mut params = Vec::new();
        for p in &action.params {
            params.push((p.name.text.clone(), self.scalar_type(&p.ty)?));
        }
        let body = self.scoped(|s| {
            for (i, p) in action.params.iter().enumerate() {
                s.bind(&p.name, Binding::Arg(i, params[i].1))?;
            }
            let mut body = Vec::new();
            s.block(&action.body, &mut body)?;
            Ok(body)
        })?;
        let name = self.full_name(&action.name);
        self.out.actions.push(ir::Action { name, pos: action.name.pos, params, body });
        self.bind(&action.name, Binding::Action(shared, self.out.actions.len() - 1))
    }

    fn action_id(&self, name: &ast::Name) -> Res<usize> {
        match self.lookup(&name.text) {
            Some(Binding::Action(_, id)) => Ok(*id),
            None if name.text == "NoAction" => Ok(0),
            Some(Binding::Macro(_)) => Err(Problem::error(
                name.pos,
                format!("`{}` can't be in a table: its parameters have directions", name.text),
            )),
            Some(_) => Err(Problem::error(name.pos, format!("`{}` is not an action", name.text))),
            None => Err(self.unknown(&name.text, name.pos)),
        }
    }

    fn table(&mut self, t: &ast::Table) -> Res<()> {
        let keys = self.keys(t)?;
        let (mut actions, mut default_only) = (Vec::new(), Vec::new());
        for (name, args, notes) in &t.actions {
            if !args.is_empty() {
                return Err(Problem::error(name.pos, "arguments are not given in the list of actions"));
            }
            let id = self.action_id(name)?;
            actions.push(id);
            if notes.iter().any(|n| n == "defaultonly") {
                default_only.push(id);
            }
        }
        let default = match &t.default {
            Some((name, args, _)) => self.action_call(t, &actions, name, args)?,
            None => ir::ActionCall { action: 0, args: Vec::new() },
        };
        let mut entries = Vec::new();
        for (values, name, args) in &t.entries {
            let keys = self.matches(values, &keys, name.pos)?;
            entries.push(ir::Entry { keys, call: self.action_call(t, &actions, name, args)? });
        }
        let size = match &t.size {
            Some(e) => self.const_expr(e, None)?,
            None => 512.max(entries.len() as u128),
        };
        let size = u32::try_from(size).ok().filter(|s| *s >= 1 && *s <= 1 << 24 && *s as usize >= entries.len());
        let size = size.ok_or_else(|| Problem::error(t.name.pos, "a table's size is its entries to 16 million"))?;
        // With constant entries only those take room.
        let size = if entries.is_empty() { size } else { entries.len() as u32 };
        let size = if keys.is_empty() { 1 } else { size };
        let const_default = t.default.as_ref().is_some_and(|d| d.2);
        let (name, pos, gress) = (self.full_name(&t.name), t.name.pos, self.gress);
        let table = ir::Table { name, pos, gress, keys, actions, default_only, default, const_default, entries, size };
        self.out.tables.push(table);
        self.bind(&t.name, Binding::Table(self.out.tables.len() - 1))
    }

    fn keys(&mut self, t: &ast::Table) -> Res<Vec<ir::Key>> {
        let mut out = Vec::new();
        for (e, kind) in &t.keys {
            let expr = self.expr(e, None)?;
            let kind = match kind.text.as_str() {
                "exact" => MatchKind::Exact,
                "ternary" => MatchKind::Ternary,
                "lpm" => MatchKind::Lpm,
                "range" => MatchKind::Range,
                other => {
                    return Err(Problem::error(kind.pos, format!("the match kind `{other}` is not supported"))
                        .help("supported are exact, ternary, lpm and range"));
                }
            };
            let plain = match &expr.kind {
                ir::ExprKind::Field(_) => true,
                ir::ExprKind::Slice(of, ..) => matches!(of.kind, ir::ExprKind::Field(_)),
                _ => false,
            };
            if !plain {
                return Err(Problem::error(e.pos, "a key is a field or a slice of one")
                    .help("compute it into metadata in an earlier action"));
            }
            let name = expr.fields().first().map(|f| self.out.field(*f).name.clone()).unwrap_or_default();
            out.push(ir::Key { name, expr, kind });
        }
        Ok(out)
    }

    fn action_call(
        &mut self,
        t: &ast::Table,
        actions: &[usize],
        name: &ast::Name,
        args: &[ast::Expr],
    ) -> Res<ir::ActionCall> {
        let action = self.action_id(name)?;
        // NoAction is every table's default where none is given.
        if !actions.contains(&action) && action != 0 {
            return Err(Problem::error(name.pos, format!("`{}` is not an action of `{}`", name.text, t.name.text)));
        }
        let params: Vec<Ty> = self.out.actions[action].params.iter().map(|p| p.1).collect();
        if params.len() != args.len() {
            return Err(Problem::error(name.pos, format!("`{}` has {} parameters", name.text, params.len())));
        }
        let args: Res<Vec<u128>> = args.iter().zip(params).map(|(e, ty)| self.const_expr(e, Some(ty))).collect();
        Ok(ir::ActionCall { action, args: args? })
    }

    /// One set of values for each key.
    fn matches(&mut self, values: &[ast::Expr], keys: &[ir::Key], pos: Pos) -> Res<Vec<Match>> {
        if values.len() != keys.len() {
            return Err(Problem::error(pos, format!("{} keys are expected, not {}", keys.len(), values.len())));
        }
        let mut out = Vec::new();
        for (e, key) in values.iter().zip(keys) {
            let m = self.match_value(e, key.expr.ty)?;
            let full = mask(key.expr.ty.width());
            if key.kind == MatchKind::Exact && !matches!(m, Match::Mask(_, mask) if mask == full) {
                return Err(Problem::error(e.pos, format!("`{}` is matched exactly: one value is expected", key.name)));
            }
            out.push(m);
        }
        Ok(out)
    }

    /// A value, `value &&& mask`, `low .. high` or `_`.
    pub(super) fn match_value(&mut self, e: &ast::Expr, ty: Ty) -> Res<Match> {
        let full = mask(ty.width());
        Ok(match &e.kind {
            ast::ExprKind::Any => Match::Mask(0, 0),
            ast::ExprKind::Mask(value, m) => {
                let m = self.const_expr(m, Some(ty))?;
                Match::Mask(self.const_expr(value, Some(ty))? & m, m)
            }
            ast::ExprKind::Range(low, high) => {
                Match::Range(self.const_expr(low, Some(ty))?, self.const_expr(high, Some(ty))?)
            }
            _ => Match::Mask(self.const_expr(e, Some(ty))?, full),
        })
    }
}
