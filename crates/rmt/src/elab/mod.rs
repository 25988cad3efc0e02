//! Elaboration: syntax tree to intermediate form, names resolved, types checked, controls inlined, headers flattened.
//! It starts at `Switch(...) main` and follows the pipeline, so that code that is not reached costs nothing.
mod declare;
mod deparser;
mod expr;
mod filter;
mod objects;
mod parser;
mod pipeline;
mod scope;
mod stateful;
mod stmt;
mod types;

use crate::ast;
use crate::diag::{Pos, Problem, Res};
use crate::ir::{self, FieldId, Gress, Program, Role, Ty};
use scope::{Binding, Elab, Lvalue, Object, StructLvalue};
use std::collections::HashMap;
use std::rc::Rc;
use types::Type;

/// Errors reported at most.
const MAX_PROBLEMS: usize = 40;
/// Controls and actions expanded at most.
const MAX_EXPANSIONS: usize = 4096;

/// A program in intermediate form, and what was wrong.
pub(crate) fn elaborate(decls: &[ast::Decl]) -> (Program, Vec<Problem>) {
    let mut elab = Elab::new();
    if let Err(problem) = elab.program(decls) {
        elab.problems.push(*problem);
    }
    (elab.out, elab.problems)
}

impl<'a> Elab<'a> {
    fn new() -> Self {
        let mut out = Program::default();
        out.actions.push(ir::Action {
            name: "NoAction".into(),
            pos: Pos::default(),
            params: Vec::new(),
            body: Vec::new(),
        });
        Elab {
            controls: HashMap::new(),
            parsers: HashMap::new(),
            instances: Vec::new(),
            types: HashMap::new(),
            scopes: vec![HashMap::new()],
            out,
            problems: Vec::new(),
            gress: Gress::Ingress,
            prefix: String::new(),
            nesting: 0,
            expansions: 0,
        }
    }

    fn program(&mut self, decls: &'a [ast::Decl]) -> Res<()> {
        for decl in decls {
            self.declare(decl)?;
        }
        self.pipeline()
    }

    fn declare(&mut self, decl: &'a ast::Decl) -> Res<()> {
        match decl {
            ast::Decl::Const(c) => self.constant(c),
            ast::Decl::Typedef(name, ty) => {
                let ty = self.type_of(ty)?;
                self.add_type(name, ty)
            }
            ast::Decl::Header(name, members) => self.composite(name, members, true),
            ast::Decl::Struct(name, members) => self.composite(name, members, false),
            ast::Decl::Enum(name, ty, members) => self.enumeration(name, ty.as_ref(), members),
            ast::Decl::Parser(p) => {
                self.unique(&p.name)?;
                self.parsers.insert(p.name.text.clone(), p);
                Ok(())
            }
            ast::Decl::Control(c) => {
                self.unique(&c.name)?;
                self.controls.insert(c.name.text.clone(), c);
                Ok(())
            }
            ast::Decl::Instance(i) => {
                self.instances.push(i);
                match &i.ty.kind {
                    ast::TypeKind::Named(ty, _) if ty == "Pipeline" || ty == "Switch" => Ok(()),
                    _ => {
                        let object = self.instance(i)?;
                        if matches!(object, Object::Checksum(_)) {
                            return Err(Problem::error(
                                i.name.pos,
                                "a checksum unit belongs to one parser or deparser",
                            )
                            .help("declare it there"));
                        }
                        self.bind(&i.name, Binding::Object(object))
                    }
                }
            }
            ast::Decl::Action(a) => self.bind(&a.name, Binding::Macro(Rc::new(a.clone()))),
        }
    }

    fn unique(&self, name: &ast::Name) -> Res<()> {
        if self.controls.contains_key(&name.text) || self.parsers.contains_key(&name.text) {
            return Err(Problem::error(name.pos, format!("`{}` is declared twice", name.text)));
        }
        Ok(())
    }

    fn constant(&mut self, c: &ast::Const) -> Res<()> {
        let ty = self.scalar_type(&c.ty)?;
        let value = self.const_expr(&c.value, Some(ty))?;
        self.bind(&c.name, Binding::Const(value, ty))
    }

    /// Gives a name a meaning in the innermost scope.
    fn bind(&mut self, name: &ast::Name, binding: Binding) -> Res<()> {
        let known = self.scopes.last_mut().and_then(|scope| scope.insert(name.text.clone(), binding));
        match known {
            Some(_) => Err(Problem::error(name.pos, format!("`{}` is declared twice in this block", name.text))),
            None => Ok(()),
        }
    }

    fn lookup(&self, name: &str) -> Option<&Binding> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// Runs `f` in a scope of its own.
    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        self.scopes.push(HashMap::new());
        let out = f(self);
        self.scopes.pop();
        out
    }

    /// Keeps the error and goes on with what follows.
    fn recover(&mut self, result: Res<()>) -> Res<()> {
        match result {
            Err(problem) if self.problems.len() >= MAX_PROBLEMS => Err(problem),
            Err(problem) => {
                self.problems.push(*problem);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Runs `f` one expansion deeper.
    fn expanding<T>(&mut self, pos: Pos, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        self.expansions += 1;
        if self.expansions > MAX_EXPANSIONS {
            return Err(Problem::error(pos, "the program applies too many controls and actions"));
        }
        if self.nesting >= 16 {
            return Err(Problem::error(pos, "controls or actions call each other too deeply")
                .help("recursion can't be a pipeline"));
        }
        self.nesting += 1;
        let out = f(self);
        self.nesting -= 1;
        out
    }

    fn new_field(&mut self, name: String, ty: Ty, role: Role) -> FieldId {
        self.out.fields.push(ir::Field { name, ty, gress: self.gress, role });
        FieldId(self.out.fields.len() as u32 - 1)
    }

    /// Fields for a variable of a type.
    fn instantiate(&mut self, name: &str, ty: &Type, role: Role, pos: Pos) -> Res<Lvalue> {
        if self.out.fields.len() > 20_000 {
            return Err(Problem::error(pos, "the program has too many fields"));
        }
        match ty {
            Type::Scalar(ty) => Ok(Lvalue::Scalar(self.new_field(name.to_string(), *ty, role), *ty)),
            Type::Header(c) => {
                let mut fields = Vec::new();
                let mut bits = 0;
                for (member, ty) in &c.members {
                    let ty = ty.scalar().ok_or_else(|| Problem::error(pos, "headers hold bits only"))?;
                    bits += ty.width();
                    let kind = if role == Role::Intrinsic { Role::Intrinsic } else { Role::Header };
                    fields.push(self.new_field(format!("{name}.{member}"), ty, kind));
                }
                let valid = self.new_field(format!("{name}.$valid"), Ty::Bool, Role::Valid);
                let intrinsic = role == Role::Intrinsic;
                let type_name = c.name.clone();
                let gress = self.gress;
                self.out.headers.push(ir::Header {
                    name: name.into(),
                    type_name,
                    gress,
                    fields,
                    valid,
                    bits,
                    intrinsic,
                });
                Ok(Lvalue::Header(self.out.headers.len() - 1))
            }
            Type::Struct(c) => {
                let mut members = Vec::new();
                for (member, ty) in &c.members {
                    members.push((member.clone(), self.instantiate(&format!("{name}.{member}"), ty, role, pos)?));
                }
                Ok(Lvalue::Struct(Rc::new(StructLvalue { type_name: c.name.clone(), members })))
            }
            Type::Void => Err(Problem::error(pos, "nothing can be of type `void`")),
        }
    }
}

impl Lvalue {
    fn member(&self, name: &str, headers: &[ir::Header], fields: &[ir::Field]) -> Option<Lvalue> {
        match self {
            Lvalue::Struct(s) => s.members.iter().find(|(n, _)| n == name).map(|(_, p)| p.clone()),
            Lvalue::Header(h) => {
                let header = &headers[*h];
                let full = format!("{}.{name}", header.name);
                let id = *header.fields.iter().find(|id| fields[id.0 as usize].name == full)?;
                Some(Lvalue::Scalar(id, fields[id.0 as usize].ty))
            }
            _ => None,
        }
    }
}
