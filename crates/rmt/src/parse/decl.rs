//! Declarations (P4-16 sections 7, 11, 13, 14).
use super::Parser;
use crate::ast::{
    Action, Control, Decl, Dir, Expr, Local, Name, Param, State, Stmt, StmtKind, Table, Transition, TypeRef,
};
use crate::diag::{Problem, Res};
use crate::lexer::Tok;

/// An annotated member list of a header or struct.
type Members = Vec<(TypeRef, Name)>;

impl Parser<'_> {
    /// One declaration of the program.
    pub(super) fn top(&mut self, out: &mut Vec<Decl>) -> Res<()> {
        self.annotations()?;
        let pos = self.pos();
        let Tok::Ident(word) = self.peek().clone() else {
            if self.eat(";") {
                return Ok(());
            }
            return Err(Problem::error(pos, format!("a declaration is expected, not {}", self.found())));
        };
        let decl = match word.as_str() {
            "const" => Decl::Const(self.const_decl()?),
            "typedef" | "type" => self.typedef()?,
            "header" | "struct" => self.composite(&word)?,
            "enum" => self.enum_decl()?,
            "parser" => Decl::Parser(self.parser_decl()?),
            "control" => Decl::Control(self.control_decl()?),
            "action" => Decl::Action(self.action()?),
            "extern" | "package" | "match_kind" | "header_union" => {
                return Err(Problem::error(pos, format!("`{word}` can't be declared by a program here"))
                    .help("the architecture's externs and packages are built in"));
            }
            "error" => return Err(Problem::error(pos, "errors of a program's own are not supported")),
            _ => {
                let ty = self.type_ref()?;
                Decl::Instance(self.instance(ty)?)
            }
        };
        out.push(decl);
        Ok(())
    }

    fn typedef(&mut self) -> Res<Decl> {
        self.at += 1;
        let ty = self.type_ref()?;
        let name = self.type_name()?;
        self.expect(";", "after a type's name")?;
        Ok(Decl::Typedef(name, ty))
    }

    fn type_name(&mut self) -> Res<Name> {
        let name = self.name("a type's name")?;
        self.types.insert(name.text.clone());
        Ok(name)
    }

    fn composite(&mut self, word: &str) -> Res<Decl> {
        self.at += 1;
        let name = self.type_name()?;
        self.expect("{", "before the members")?;
        let mut members: Members = Vec::new();
        while !self.eat("}") {
            self.annotations()?;
            let ty = self.type_ref()?;
            if self.is("[") {
                return Err(Problem::error(self.pos(), "header stacks are not supported")
                    .help("declare one header for each element"));
            }
            let member = self.name("a member's name")?;
            self.expect(";", "after a member")?;
            members.push((ty, member));
        }
        Ok(if word == "header" { Decl::Header(name, members) } else { Decl::Struct(name, members) })
    }

    fn enum_decl(&mut self) -> Res<Decl> {
        self.at += 1;
        let ty = if self.is_word("bit") { Some(self.type_ref()?) } else { None };
        let name = self.type_name()?;
        self.expect("{", "before the members of an enum")?;
        let mut members = Vec::new();
        while !self.eat("}") {
            let member = self.name("a member's name")?;
            let value = if self.eat("=") { Some(self.expr()?) } else { None };
            members.push((member, value));
            if !self.eat(",") {
                self.expect("}", "after the members of an enum")?;
                break;
            }
        }
        Ok(Decl::Enum(name, ty, members))
    }

    pub(super) fn params(&mut self) -> Res<Vec<Param>> {
        self.expect("(", "before the parameters")?;
        let mut out = Vec::new();
        while !self.eat(")") {
            self.annotations()?;
            let dir = match self.peek() {
                Tok::Ident(w) if w == "in" => Dir::In,
                Tok::Ident(w) if w == "out" => Dir::Out,
                Tok::Ident(w) if w == "inout" => Dir::InOut,
                _ => Dir::None,
            };
            self.at += (dir != Dir::None) as usize;
            let ty = self.type_ref()?;
            let name = self.name("a parameter's name")?;
            out.push(Param { dir, ty, name });
            if !self.eat(",") {
                self.expect(")", "after the parameters")?;
                break;
            }
        }
        Ok(out)
    }

    fn no_generics(&mut self, what: &str) -> Res<()> {
        if self.is("<") {
            return Err(Problem::error(self.pos(), format!("a {what} with type parameters is not supported")));
        }
        Ok(())
    }

    fn parser_decl(&mut self) -> Res<crate::ast::Parser> {
        self.at += 1;
        let name = self.type_name()?;
        self.no_generics("parser")?;
        let params = self.params()?;
        self.expect("{", "before a parser's states")?;
        let (mut locals, mut states) = (Vec::new(), Vec::new());
        while !self.eat("}") {
            self.annotations()?;
            if self.is_word("state") {
                states.push(self.state()?);
            } else if self.is_word("value_set") {
                return Err(Problem::error(self.pos(), "value sets are not supported"));
            } else {
                locals.push(self.local_stmt()?);
            }
        }
        Ok(crate::ast::Parser { name, params, locals, states })
    }

    /// A declaration among a parser's or control's: a constant, a variable or an instance.
    fn local_stmt(&mut self) -> Res<Stmt> {
        let pos = self.pos();
        if self.is_word("const") {
            return Ok(Stmt { kind: StmtKind::Const(self.const_decl()?), pos });
        }
        self.declaration(pos)
    }

    fn state(&mut self) -> Res<State> {
        let pos = self.pos();
        self.at += 1;
        let name = self.name("a state's name")?;
        self.expect("{", "before a state's body")?;
        let mut body = Vec::new();
        loop {
            if self.eat_word("transition") {
                let next = self.transition()?;
                self.expect("}", "after a transition")?;
                return Ok(State { name, body, next, pos });
            }
            if self.is("}") {
                return Err(Problem::error(self.pos(), format!("the state `{}` has no transition", name.text))
                    .help("end it with `transition accept;` or another state"));
            }
            body.push(self.stmt()?);
        }
    }

    fn transition(&mut self) -> Res<Transition> {
        if !self.eat_word("select") {
            let to = self.name("a state's name")?;
            self.expect(";", "after a transition")?;
            return Ok(Transition::To(to));
        }
        let on = self.args()?;
        self.expect("{", "before the cases of `select`")?;
        let mut cases = Vec::new();
        while !self.eat("}") {
            let keys = if self.eat("(") { self.list(")")? } else { vec![self.keyset()?] };
            self.expect(":", "after a case")?;
            let to = self.name("a state's name")?;
            self.expect(";", "after a case's state")?;
            cases.push((keys, to));
        }
        self.eat(";");
        Ok(Transition::Select(on, cases))
    }

    fn control_decl(&mut self) -> Res<Control> {
        self.at += 1;
        let name = self.type_name()?;
        self.no_generics("control")?;
        let params = self.params()?;
        self.expect("{", "before a control's body")?;
        let (mut locals, mut apply) = (Vec::new(), None);
        while !self.eat("}") {
            self.annotations()?;
            if self.is_word("action") {
                locals.push(Local::Action(self.action()?));
            } else if self.is_word("table") {
                locals.push(Local::Table(self.table()?));
            } else if self.eat_word("apply") {
                apply = Some(self.block()?);
            } else {
                locals.push(Local::Stmt(self.local_stmt()?));
            }
        }
        let apply = apply.ok_or_else(|| Problem::error(name.pos, format!("`{}` has no apply block", name.text)))?;
        Ok(Control { name, params, locals, apply })
    }

    fn action(&mut self) -> Res<Action> {
        self.at += 1;
        let name = self.name("an action's name")?;
        let params = self.params()?;
        let body = self.block()?;
        Ok(Action { name, params, body })
    }

    fn table(&mut self) -> Res<Table> {
        self.at += 1;
        let name = self.name("a table's name")?;
        let mut table =
            Table { name, keys: Vec::new(), actions: Vec::new(), default: None, size: None, entries: Vec::new() };
        self.expect("{", "before a table's properties")?;
        while !self.eat("}") {
            self.property(&mut table)?;
        }
        Ok(table)
    }

    fn property(&mut self, table: &mut Table) -> Res<()> {
        self.annotations()?;
        let constant = self.eat_word("const");
        let name = self.name("a table property")?;
        self.expect("=", "after a table property's name")?;
        match name.text.as_str() {
            "key" => self.keys(table),
            "actions" => self.table_actions(table),
            "default_action" => {
                let (action, args) = self.action_call()?;
                table.default = Some((action, args, constant));
                self.expect(";", "after the default action")
            }
            "size" => {
                table.size = Some(self.expr()?);
                self.expect(";", "after a table's size")
            }
            "entries" => self.entries(table),
            // They carry no meaning for the subset.
            "idle_timeout" => {
                self.expr()?;
                self.expect(";", "after a property")
            }
            other => Err(Problem::error(name.pos, format!("the table property `{other}` is not supported"))
                .help("known are key, actions, default_action, size and entries")),
        }
    }

    fn keys(&mut self, table: &mut Table) -> Res<()> {
        self.expect("{", "before the keys")?;
        while !self.eat("}") {
            let e = self.expr()?;
            self.expect(":", "after a key")?;
            let kind = self.name("a match kind")?;
            self.annotations()?;
            self.expect(";", "after a key")?;
            table.keys.push((e, kind));
        }
        Ok(())
    }

    fn table_actions(&mut self, table: &mut Table) -> Res<()> {
        self.expect("{", "before the actions")?;
        while !self.eat("}") {
            let notes = self.annotations()?;
            let (name, args) = self.action_call()?;
            self.expect(";", "after an action")?;
            table.actions.push((name, args, notes));
        }
        Ok(())
    }

    /// `name` or `name(args)`.
    fn action_call(&mut self) -> Res<(Name, Vec<Expr>)> {
        let name = self.name("an action's name")?;
        let args = if self.is("(") { self.args()? } else { Vec::new() };
        Ok((name, args))
    }

    fn entries(&mut self, table: &mut Table) -> Res<()> {
        self.expect("{", "before the entries")?;
        while !self.eat("}") {
            let keys = if self.eat("(") { self.list(")")? } else { vec![self.keyset()?] };
            self.expect(":", "after an entry's keys")?;
            let (action, args) = self.action_call()?;
            self.annotations()?;
            self.expect(";", "after an entry")?;
            table.entries.push((keys, action, args));
        }
        Ok(())
    }
}
