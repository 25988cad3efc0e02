//! Declared types, and widths.
use super::scope::{Binding, Elab};
use super::types::{Composite, Type};
use crate::ast::{self, TypeKind, TypeRef};
use crate::diag::{Problem, Res};
use crate::ir::Ty;
use std::collections::HashMap;
use std::rc::Rc;

impl<'a> Elab<'a> {
    pub(super) fn add_type(&mut self, name: &ast::Name, ty: Type) -> Res<()> {
        match self.types.insert(name.text.clone(), ty) {
            Some(_) => Err(Problem::error(name.pos, format!("the type `{}` is declared twice", name.text))),
            None => Ok(()),
        }
    }

    pub(super) fn type_of(&mut self, ty: &TypeRef) -> Res<Type> {
        Ok(match &ty.kind {
            TypeKind::Bool => Type::Scalar(Ty::Bool),
            TypeKind::Bit(w) => Type::Scalar(Ty::Bit(self.width(w)?)),
            TypeKind::Int(w) => Type::Scalar(Ty::Int(self.width(w)?)),
            TypeKind::Error => Type::Scalar(Ty::Bit(16)),
            TypeKind::Void => Type::Void,
            TypeKind::DontCare => return Err(Problem::error(ty.pos, "a type is expected, not `_`")),
            TypeKind::Named(name, args) => {
                if !args.is_empty() {
                    return Err(Problem::error(ty.pos, format!("`{name}` can't be used as a type of values")));
                }
                self.types.get(name).cloned().ok_or_else(|| self.unknown_type(name, ty))?
            }
        })
    }

    fn unknown_type(&self, name: &str, ty: &TypeRef) -> Box<Problem> {
        let near = super::expr::nearest(name, self.types.keys().map(String::as_str));
        let problem = Problem::error(ty.pos, format!("there is no type `{name}`"));
        match near {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem,
        }
    }

    pub(super) fn scalar_type(&mut self, ty: &TypeRef) -> Res<Ty> {
        self.type_of(ty)?
            .scalar()
            .ok_or_else(|| Problem::error(ty.pos, "bits are expected here, not a header or struct"))
    }

    fn width(&mut self, e: &ast::Expr) -> Res<u32> {
        match self.const_expr(e, None)? {
            w @ 1..=128 => Ok(w as u32),
            w => Err(Problem::error(e.pos, format!("a width of {w} bits is not supported: it is 1 to 128"))),
        }
    }

    pub(super) fn composite(&mut self, name: &ast::Name, members: &[(TypeRef, ast::Name)], header: bool) -> Res<()> {
        let mut list: Vec<(String, Type)> = Vec::new();
        for (ty, member) in members {
            let ty_pos = ty.pos;
            let ty = self.type_of(ty)?;
            if list.iter().any(|(n, _)| *n == member.text) {
                return Err(Problem::error(member.pos, format!("`{}` has two members `{}`", name.text, member.text)));
            }
            match (&ty, header) {
                (Type::Void, _) => return Err(Problem::error(ty_pos, "a member can't be of type `void`")),
                (Type::Scalar(Ty::Bool) | Type::Header(_) | Type::Struct(_), true) => {
                    return Err(Problem::error(ty_pos, "a header holds bit<> and int<> fields only"));
                }
                _ => list.push((member.text.clone(), ty)),
            }
        }
        let bits: u32 = list.iter().filter_map(|(_, t)| t.scalar()).map(Ty::width).sum();
        if header && bits % 8 != 0 {
            return Err(Problem::error(
                name.pos,
                format!("the header `{}` has {bits} bits: not whole bytes", name.text),
            )
            .help("add a field of padding"));
        }
        let composite = Rc::new(Composite { name: name.text.clone(), members: list });
        self.add_type(name, if header { Type::Header(composite) } else { Type::Struct(composite) })
    }

    /// Members without values count from 0, as the architecture's enums do here.
    pub(super) fn enumeration(
        &mut self,
        name: &ast::Name,
        ty: Option<&TypeRef>,
        members: &[(ast::Name, Option<ast::Expr>)],
    ) -> Res<()> {
        let ty = match ty {
            Some(ty) => self.scalar_type(ty)?,
            None => Ty::Bit(8),
        };
        let mut values = HashMap::new();
        for (i, (member, value)) in members.iter().enumerate() {
            let value = match value {
                Some(e) => self.const_expr(e, Some(ty))?,
                None => i as u128,
            };
            values.insert(member.text.clone(), value);
        }
        self.add_type(name, Type::Scalar(ty))?;
        self.bind(name, Binding::Enum(values, ty))
    }
}
