//! Elaboration of the pipeline: from `Switch(...) main` to its six parts, and controls within controls.
use super::scope::{Binding, Elab, Lvalue, Object};
use super::types::Type;
use crate::ast::{self, ExprKind, Param, TypeKind};
use crate::diag::{Pos, Problem, Res};
use crate::ir::{self, FieldId, Gress, Role};
use std::collections::{BTreeMap, HashMap};

/// The parameters that all three parts of a half share, by the name of their type.
type Shared = HashMap<String, Lvalue>;

impl<'a> Elab<'a> {
    pub(super) fn pipeline(&mut self) -> Res<()> {
        let nowhere = Pos { file: self.last_file(), line: 0, col: 0 };
        let main = self.instances.iter().find(|i| i.name.text == "main").copied();
        let main = main.ok_or_else(|| {
            Problem::error(nowhere, "the program has no `main`")
                .help("end it with Pipeline(...) pipe; Switch(pipe) main;")
        })?;
        let pipe = match (&main.ty.kind, &main.args[..]) {
            (TypeKind::Named(ty, _), [ast::Expr { kind: ExprKind::Name(pipe), .. }]) if ty == "Switch" => pipe.clone(),
            _ => return Err(Problem::error(main.ty.pos, "`main` is a Switch of one Pipeline: Switch(pipe) main;")),
        };
        let pipe = self.instances.iter().find(|i| i.name.text == pipe).copied();
        let pipe = pipe.ok_or_else(|| Problem::error(main.name.pos, "there is no pipeline of this name"))?;
        let mut names = Vec::new();
        for arg in &pipe.args {
            match &arg.kind {
                ExprKind::Call(call) if call.args.is_empty() => match &call.callee.kind {
                    ExprKind::Name(name) => names.push((name.clone(), arg.pos)),
                    _ => return Err(Problem::error(arg.pos, "a parser or control is expected: Name()")),
                },
                _ => return Err(Problem::error(arg.pos, "a parser or control is expected: Name()")),
            }
        }
        if names.len() != 6 {
            return Err(Problem::error(pipe.ty.pos, format!("a Pipeline has six parts, not {}", names.len()))
                .help("parser, control and deparser of ingress, then those of egress"));
        }
        self.half(Gress::Ingress, &names[..3])?;
        self.half(Gress::Egress, &names[3..])
    }

    fn last_file(&self) -> u16 {
        self.instances
            .last()
            .map(|i| i.ty.pos.file)
            .or(self.controls.values().map(|c| c.name.pos.file).max())
            .unwrap_or(0)
    }

    fn half(&mut self, gress: Gress, names: &[(String, Pos)]) -> Res<()> {
        self.gress = gress;
        let parser = *self.parsers.get(&names[0].0).ok_or_else(|| missing("parser", &names[0]))?;
        let control = *self.controls.get(&names[1].0).ok_or_else(|| missing("control", &names[1]))?;
        let deparser = *self.controls.get(&names[2].0).ok_or_else(|| missing("deparser control", &names[2]))?;
        let mut shared = self.intrinsic(gress)?;
        let result = self.scoped(|s| {
            s.bind_params(&parser.params, &mut shared, true)?;
            s.parser(parser)
        });
        self.recover(result)?;
        let result = self.scoped(|s| s.control(control, &mut shared));
        self.recover(result)?;
        let parser_units = self.out.half(gress).checksums.0;
        let result = self.scoped(|s| {
            s.bind_params(&deparser.params, &mut shared, false)?;
            s.deparser(deparser)
        });
        self.recover(result)?;
        let half = self.out.half_mut(gress);
        half.checksums = (parser_units, half.checksums.0 - parser_units);
        Ok(())
    }

    fn control(&mut self, control: &'a ast::Control, shared: &mut Shared) -> Res<()> {
        self.bind_params(&control.params, shared, false)?;
        let mut body = Vec::new();
        self.locals(&control.locals, &mut body)?;
        self.block(&control.apply, &mut body)?;
        let gress = self.gress;
        self.out.half_mut(gress).control = body;
        Ok(())
    }

    /// The architecture's metadata of a half: fields under short names, too.
    fn intrinsic(&mut self, gress: Gress) -> Res<Shared> {
        let prefix = format!("{}_intrinsic_metadata", gress.name());
        let mut names: Vec<String> = self.types.keys().filter(|n| n.starts_with(&prefix)).cloned().collect();
        names.sort();
        if names.is_empty() {
            let pos = Pos { file: self.last_file(), line: 0, col: 0 };
            return Err(Problem::error(pos, "the architecture is missing").help("add #include <t2na.p4>"));
        }
        let mut shared = Shared::new();
        let mut by_name: BTreeMap<String, FieldId> = BTreeMap::new();
        for name in names {
            let ty = self.types[&name].clone();
            let place = self.instantiate(&name, &ty, Role::Intrinsic, Pos::default())?;
            let (Type::Header(c) | Type::Struct(c)) = &ty else { continue };
            for (member, _) in &c.members {
                if let Some(Lvalue::Scalar(id, _)) = place.member(member, &self.out.headers, &self.out.fields) {
                    by_name.insert(format!("{name}.{member}"), id);
                }
            }
            shared.insert(name, place);
        }
        self.out.half_mut(gress).intrinsic = by_name;
        Ok(shared)
    }

    fn bind_params(&mut self, params: &[Param], shared: &mut Shared, parser: bool) -> Res<()> {
        for param in params {
            let name = match &param.ty.kind {
                TypeKind::Named(name, _) => name.clone(),
                _ => return Err(Problem::error(param.ty.pos, "a header, struct or packet is expected here")),
            };
            let binding = match name.as_str() {
                "packet_in" => Binding::Object(Object::PacketIn),
                "packet_out" => Binding::Object(Object::PacketOut),
                _ => Binding::Lvalue(self.shared_place(param, name, shared, parser)?),
            };
            self.bind(&param.name, binding)?;
        }
        Ok(())
    }

    fn shared_place(&mut self, param: &Param, name: String, shared: &mut Shared, parser: bool) -> Res<Lvalue> {
        // A typedef may stand for the type: the composite's own name decides.
        let ty = self.type_of(&param.ty)?;
        let key = ty.composite_name().map(str::to_string).unwrap_or(name);
        if let Some(place) = shared.get(&key) {
            return Ok(place.clone());
        }
        if key.contains("_intrinsic_metadata") {
            return Err(Problem::error(param.ty.pos, format!("`{key}` is not of {}", self.gress.name())));
        }
        if !parser {
            return Err(Problem::error(param.ty.pos, format!("the parser of {} has no `{key}`", self.gress.name()))
                .help("parser, control and deparser share the same headers and metadata"));
        }
        let place = self.instantiate(&param.name.text, &ty, Role::Metadata, param.ty.pos)?;
        shared.insert(key, place.clone());
        Ok(place)
    }

    /// `control.apply(...)` within a control: its body in place.
    pub(super) fn inline_control(
        &mut self,
        instance: &str,
        call: &ast::Call,
        out: &mut Vec<ir::Stmt>,
        pos: Pos,
    ) -> Res<()> {
        let (type_name, name) = instance.split_once(' ').unwrap_or((instance, ""));
        let control = *self.controls.get(type_name).ok_or_else(|| missing("control", &(type_name.into(), pos)))?;
        if control.params.len() != call.args.len() {
            return Err(Problem::error(pos, format!("`{type_name}` has {} parameters", control.params.len())));
        }
        let mut places = Vec::new();
        for (param, arg) in control.params.iter().zip(&call.args) {
            places.push(self.argument(param, arg)?);
        }
        let scopes = self.scopes.split_off(1);
        let prefix = format!("{}{name}.", self.prefix);
        let outer = std::mem::replace(&mut self.prefix, prefix);
        let result = self.expanding(pos, |s| {
            s.scoped(|s| {
                for (param, place) in control.params.iter().zip(places) {
                    s.bind(&param.name, place)?;
                }
                s.locals(&control.locals, out)?;
                s.block(&control.apply, out)
            })
        });
        self.prefix = outer;
        self.scopes.extend(scopes);
        result
    }

    fn argument(&mut self, param: &Param, arg: &ast::Expr) -> Res<Binding> {
        let ty = self.type_of(&param.ty)?;
        if let (Some(ty), ast::Dir::In | ast::Dir::None) = (ty.scalar(), param.dir) {
            return Ok(Binding::Value(self.expr(arg, Some(ty))?));
        }
        let place = self.place(arg)?;
        let same = match &place {
            Lvalue::Header(h) => ty.composite_name() == Some(&self.out.headers[*h].type_name),
            Lvalue::Struct(s) => ty.composite_name() == Some(&s.type_name),
            Lvalue::Scalar(_, found) | Lvalue::Mem(_, found) | Lvalue::Out(_, found) => ty.scalar() == Some(*found),
        };
        if !same {
            return Err(Problem::error(arg.pos, format!("this is not what `{}` is declared as", param.name.text)));
        }
        Ok(Binding::Lvalue(place))
    }
}

fn missing(what: &str, (name, pos): &(String, Pos)) -> Box<Problem> {
    Problem::error(*pos, format!("there is no {what} `{name}`"))
}
