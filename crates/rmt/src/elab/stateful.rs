//! Registers and the programs of their stateful ALUs (RegisterAction).
use super::expr::show;
use super::scope::{Binding, Elab, Lvalue, Object, StructLvalue};
use super::types::Type;
use crate::ast::{self, Dir};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{self, Expr, ExprKind, MathOp, MathUnit, Ty};
use std::rc::Rc;

impl<'a> Elab<'a> {
    /// `Register<T, I>(size[, initial]) name;`
    pub(super) fn register(&mut self, i: &ast::Instance, types: &[ast::TypeRef]) -> Res<Object> {
        let [cell, _index] = types else {
            return Err(Problem::error(
                i.ty.pos,
                "a Register has two types: that of its entries and that of its index",
            ));
        };
        let (words, word_names) = self.cell(cell)?;
        let size = match i.args.first() {
            Some(e) => self.const_expr(e, None)?,
            None => 0,
        };
        if size == 0 || size > 1 << 24 {
            return Err(Problem::error(i.name.pos, "a register has 1 to 16 million entries"));
        }
        let initial = match i.args.get(1) {
            None => vec![0; words.len()],
            Some(e) => self.initial(e, &words)?,
        };
        let name = self.full_name(&i.name);
        let register = ir::Register { name, pos: i.name.pos, size: size as u32, words, word_names, initial };
        self.out.registers.push(register);
        Ok(Object::Register(self.out.registers.len() - 1))
    }

    /// Words of an entry: bits, or a struct of two.
    fn cell(&mut self, ty: &ast::TypeRef) -> Res<(Vec<Ty>, Vec<String>)> {
        let (words, names): (Vec<Ty>, Vec<String>) = match self.type_of(ty)? {
            Type::Scalar(t) => (vec![t], Vec::new()),
            Type::Struct(c) => {
                let scalar = |(n, t): &(String, Type)| t.scalar().map(|t| (t, n.clone()));
                let list: Option<Vec<_>> = c.members.iter().map(scalar).collect();
                list.ok_or_else(|| Problem::error(ty.pos, "an entry of a register holds bits only"))?
                    .into_iter()
                    .unzip()
            }
            _ => return Err(Problem::error(ty.pos, "an entry of a register is bits, or a struct of two fields")),
        };
        if words.len() > 2 {
            return Err(Problem::error(ty.pos, format!("an entry of a register has {} fields", words.len()))
                .help("a stateful ALU works on one word or a pair"));
        }
        for word in &words {
            if !matches!(word.width(), 1 | 8 | 16 | 32) || words.len() == 2 && word.width() < 8 {
                return Err(Problem::error(
                    ty.pos,
                    format!("a register word of {} bits is not supported", word.width()),
                )
                .help("words have 1, 8, 16 or 32 bits, and those of a pair 8, 16 or 32"));
            }
        }
        if words.len() == 2 && words[0].width() != words[1].width() {
            return Err(Problem::error(ty.pos, "the two fields of a register's entry have different widths"));
        }
        Ok((words, names))
    }

    fn initial(&mut self, e: &ast::Expr, words: &[Ty]) -> Res<Vec<u128>> {
        match &e.kind {
            ast::ExprKind::List(list) if list.len() == words.len() => {
                list.iter().zip(words).map(|(e, ty)| self.const_expr(e, Some(*ty))).collect()
            }
            _ if words.len() == 1 => Ok(vec![self.const_expr(e, Some(words[0]))?]),
            _ => Err(Problem::error(e.pos, "the initial value is a list of both fields: {a, b}")),
        }
    }

    /// `RegisterAction<T, I, U>(register) name = { void apply(inout T value, out U rv) { ... } };`
    pub(super) fn register_action(&mut self, i: &ast::Instance, types: &[ast::TypeRef], outs: usize) -> Res<Object> {
        let register = match i.args.first() {
            Some(e) => self.object(e)?,
            None => return Err(Problem::error(i.ty.pos, "which register? give it in parentheses")),
        };
        let Object::Register(register) = register else {
            return Err(Problem::error(i.args[0].pos, "a register is expected here"));
        };
        if types.len() != 2 + outs.max(1) {
            return Err(Problem::error(i.ty.pos, "the types are those of the entry, the index and each output"));
        }
        if self.cell(&types[0])?.0 != self.out.registers[register].words {
            return Err(Problem::error(types[0].pos, "this is not the type of the register's entries"));
        }
        let [method] = &i.methods[..] else {
            return Err(Problem::error(i.name.pos, "a register action has one method")
                .help("write = { void apply(inout T value, out U rv) { ... } };"));
        };
        let (outputs, body) = self.scoped(|s| {
            let outputs = s.stateful_params(method, register, &types[2..], outs)?;
            let mut body = Vec::new();
            s.block(&method.body, &mut body)?;
            Ok((outputs, body))
        })?;
        let name = self.full_name(&i.name);
        let pos = i.name.pos;
        self.out.register_actions.push(ir::RegisterAction { name, pos, register, filter: false, outputs, body });
        Ok(Object::RegisterAction(self.out.register_actions.len() - 1))
    }

    fn stateful_params(
        &mut self,
        method: &ast::Function,
        register: usize,
        types: &[ast::TypeRef],
        outs: usize,
    ) -> Res<Vec<Ty>> {
        if method.name.text != "apply" {
            return Err(Problem::error(method.name.pos, "only the method `apply` is supported"));
        }
        let Some((value, outputs)) = method.params.split_first().filter(|(v, _)| v.dir == Dir::InOut) else {
            return Err(Problem::error(method.name.pos, "the first parameter of apply is `inout` and holds the entry"));
        };
        let words = &self.out.registers[register].words;
        let place = if words.len() == 1 {
            Lvalue::Mem(0, words[0])
        } else {
            let names = &self.out.registers[register].word_names;
            let member = |(i, n): (usize, &String)| (n.clone(), Lvalue::Mem(i, words[i]));
            let members = names.iter().enumerate().map(member).collect();
            Lvalue::Struct(Rc::new(StructLvalue { type_name: String::new(), members }))
        };
        self.bind(&value.name, Binding::Lvalue(place))?;
        if outputs.len() > 4 {
            return Err(Problem::error(outputs[4].name.pos, "a stateful ALU has at most four outputs"));
        }
        let mut list = Vec::new();
        for (i, param) in outputs.iter().enumerate() {
            let declared = self.scalar_type(if outs == 0 { &types[0] } else { types.get(i).unwrap_or(&types[0]) })?;
            let ty = self.scalar_type(&param.ty)?;
            if param.dir != Dir::Out || ty != declared {
                return Err(Problem::error(param.name.pos, format!("this output is `out {}`", show(declared))));
            }
            self.bind(&param.name, Binding::Lvalue(Lvalue::Out(i, ty)))?;
            list.push(ty);
        }
        Ok(list)
    }

    /// `this.predicate(c0, ...)`.
    pub(super) fn predicate(&mut self, call: &ast::Call, expected: Option<Ty>, pos: Pos) -> Res<Expr> {
        if call.args.len() > 4 {
            return Err(Problem::error(pos, "predicate has at most four conditions"));
        }
        if call.types.is_empty() {
            return Err(Problem::error(pos, "the type of `this.predicate` is not named")
                .help("the chip's compiler infers none: write this.predicate<bit<16>>(...)"));
        }
        let list: Res<Vec<Expr>> = call.args.iter().map(|e| self.expr(e, Some(Ty::Bool))).collect();
        Ok(Expr { kind: ExprKind::Predicate(list?), ty: expected.unwrap_or(Ty::Bit(16)), pos })
    }

    /// `x = action.execute(index[, y, ...]);` and the same without `x`.
    pub(super) fn execute(
        &mut self,
        action: usize,
        call: &ast::Call,
        first: Option<&ast::Expr>,
        out: &mut Vec<ir::Stmt>,
        pos: Pos,
    ) -> Res<()> {
        let Some((index, rest)) = call.args.split_first() else {
            return Err(Problem::error(pos, "execute needs the index of the entry"));
        };
        let index = self.expr(index, None)?;
        let index = match index.constant() {
            Some(v) => Expr { kind: ExprKind::Const(v), ty: Ty::Bit(32), pos },
            None => index,
        };
        let outputs = self.out.register_actions[action].outputs.clone();
        let targets: Vec<Option<&ast::Expr>> = std::iter::once(first).chain(rest.iter().map(Some)).collect();
        if targets.len() > outputs.len().max(1) || first.is_some() && outputs.is_empty() {
            let name = &self.out.register_actions[action].name;
            return Err(Problem::error(pos, format!("`{name}` has {} outputs", outputs.len())));
        }
        let mut dsts = Vec::new();
        for (target, ty) in targets.into_iter().zip(&outputs) {
            dsts.push(match target {
                None => None,
                Some(e) => Some(self.typed_destination(e, *ty)?),
            });
        }
        out.push(ir::Stmt { kind: ir::StmtKind::Exec(action, index, dsts), pos });
        Ok(())
    }

    /// A destination of exactly this type.
    pub(super) fn typed_destination(&mut self, e: &ast::Expr, ty: Ty) -> Res<ir::Dst> {
        let (dst, found) = self.destination(e)?;
        if found != ty {
            return Err(Problem::error(e.pos, format!("the result is {}, this is {}", show(ty), show(found))));
        }
        Ok(dst)
    }

    /// `MathUnit<T>(MathOp_t.MUL, a, b)`.
    pub(super) fn math_unit(&mut self, i: &ast::Instance) -> Res<Object> {
        if i.args.len() > 3 || i.args.is_empty() {
            return Err(Problem::error(i.ty.pos, "this form of MathUnit is not supported")
                .help("write MathUnit<T>(MathOp_t.MUL, numerator, denominator)"));
        }
        let op = match self.const_expr(&i.args[0], None)? {
            0 => MathOp::Mul,
            1 => MathOp::Sqr,
            2 => MathOp::Sqrt,
            3 => MathOp::Div,
            _ => return Err(Problem::error(i.args[0].pos, "this function of the math unit is not supported")),
        };
        let mut factor = [1, 1];
        for (slot, e) in factor.iter_mut().zip(&i.args[1..]) {
            *slot = match self.const_expr(e, None)? {
                v @ 1..=0xffff => v as u32,
                _ => return Err(Problem::error(e.pos, "a factor of the math unit is 1 to 65535")),
            };
        }
        self.out.maths.push(MathUnit { op, a: factor[0], b: factor[1] });
        Ok(Object::Math(self.out.maths.len() - 1))
    }
}
