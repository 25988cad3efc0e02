//! Statements (P4-16 section 12).
use super::Parser;
use crate::ast::{Case, Const, Expr, ExprKind, Function, Instance, Stmt, StmtKind, TypeRef};
use crate::diag::{Pos, Problem, Res};
use crate::lexer::Tok;

impl Parser<'_> {
    /// `{ ... }`.
    pub(super) fn block(&mut self) -> Res<Vec<Stmt>> {
        self.expect("{", "before a block")?;
        let mut out = Vec::new();
        while !self.eat("}") {
            out.push(self.stmt()?);
        }
        Ok(out)
    }

    pub(super) fn stmt(&mut self) -> Res<Stmt> {
        self.deeper(|p| p.stmt_inner())
    }

    fn stmt_inner(&mut self) -> Res<Stmt> {
        self.annotations()?;
        let pos = self.pos();
        let word = match self.peek() {
            Tok::Ident(w) => w.clone(),
            Tok::Punct(";") => String::new(),
            Tok::Punct("{") => {
                let body = self.block()?;
                return Ok(Stmt { kind: StmtKind::Block(body), pos });
            }
            _ => return Err(Problem::error(pos, format!("a statement is expected, not {}", self.found()))),
        };
        let kind = match word.as_str() {
            "" => {
                self.at += 1;
                return Ok(Stmt { kind: StmtKind::Empty, pos });
            }
            "if" => return self.if_stmt(pos),
            "switch" => return self.switch(pos),
            "return" | "exit" => {
                let kind = if word == "exit" { StmtKind::Exit } else { StmtKind::Return };
                self.at += 1;
                if kind_is_return(&kind) && !self.is(";") {
                    return Err(Problem::error(self.pos(), "`return` has no value here"));
                }
                kind
            }
            "const" => StmtKind::Const(self.const_decl()?),
            _ if self.is_declaration() => return self.declaration(pos),
            _ => self.assignment_or_call()?,
        };
        if !matches!(kind, StmtKind::Const(_)) {
            self.expect(";", "after the statement")?;
        }
        Ok(Stmt { kind, pos })
    }

    fn if_stmt(&mut self, pos: Pos) -> Res<Stmt> {
        self.at += 1;
        self.expect("(", "after `if`")?;
        let cond = self.expr()?;
        self.expect(")", "after the condition")?;
        let then = Box::new(self.stmt()?);
        let els = if self.eat_word("else") { Some(Box::new(self.stmt()?)) } else { None };
        Ok(Stmt { kind: StmtKind::If(cond, then, els), pos })
    }

    fn switch(&mut self, pos: Pos) -> Res<Stmt> {
        self.at += 1;
        self.expect("(", "after `switch`")?;
        let on = self.expr()?;
        self.expect(")", "after what `switch` looks at")?;
        self.expect("{", "before the cases")?;
        let mut cases = Vec::new();
        while !self.eat("}") {
            let pos = self.pos();
            let label = if self.eat_word("default") { None } else { Some(self.name("an action's name")?) };
            self.expect(":", "after a case")?;
            let body = if self.is("{") { Some(self.block()?) } else { None };
            cases.push(Case { label, body, pos });
        }
        Ok(Stmt { kind: StmtKind::Switch(on, cases), pos })
    }

    pub(super) fn const_decl(&mut self) -> Res<Const> {
        self.at += 1;
        let ty = self.type_ref()?;
        let name = self.name("a constant's name")?;
        self.expect("=", "after a constant's name")?;
        let value = self.expr()?;
        self.expect(";", "after a constant")?;
        Ok(Const { ty, name, value })
    }

    /// A type and then a name, or a type with arguments and then a name: found by trying.
    fn is_declaration(&mut self) -> bool {
        let start = self.at;
        let found = self.try_declaration();
        self.at = start;
        found
    }

    fn try_declaration(&mut self) -> bool {
        if self.type_ref().is_err() {
            return false;
        }
        if self.is("(") {
            let mut open = 0;
            loop {
                match self.peek() {
                    Tok::Punct("(") => open += 1,
                    Tok::Punct(")") => open -= 1,
                    Tok::End => return false,
                    _ => {}
                }
                self.at += 1;
                if open == 0 {
                    break;
                }
            }
        }
        matches!(self.peek(), Tok::Ident(_)) && matches!(self.ahead(1), Tok::Punct(";" | "=" | "{"))
    }

    pub(super) fn declaration(&mut self, pos: Pos) -> Res<Stmt> {
        let ty = self.type_ref()?;
        if self.is("(") {
            let instance = self.instance(ty)?;
            return Ok(Stmt { kind: StmtKind::Instance(instance), pos });
        }
        let name = self.name("a variable's name")?;
        let init = if self.eat("=") { Some(self.expr()?) } else { None };
        self.expect(";", "after a declaration")?;
        Ok(Stmt { kind: StmtKind::Var(ty, name, init), pos })
    }

    /// `(args) name;` or `(args) name = { methods };`.
    pub(super) fn instance(&mut self, ty: TypeRef) -> Res<Instance> {
        let args = self.args()?;
        let name = self.name("an instance's name")?;
        let mut methods = Vec::new();
        if self.eat("=") {
            self.expect("{", "before the methods")?;
            while !self.eat("}") {
                methods.push(self.function()?);
            }
        }
        self.expect(";", "after an instance")?;
        Ok(Instance { ty, args, name, methods })
    }

    fn function(&mut self) -> Res<Function> {
        self.annotations()?;
        self.type_ref()?;
        let name = self.name("a method's name")?;
        let params = self.params()?;
        let body = self.block()?;
        Ok(Function { name, params, body })
    }

    fn assignment_or_call(&mut self) -> Res<StmtKind> {
        let left = self.expr()?;
        if self.eat("=") {
            let right = self.expr()?;
            return Ok(StmtKind::Assign(left, right));
        }
        let pos = left.pos;
        match left {
            Expr { kind: ExprKind::Call(call), .. } => Ok(StmtKind::Call(*call)),
            _ => Err(Problem::error(pos, "this expression does nothing").help("assign it, or call something")),
        }
    }
}

fn kind_is_return(kind: &StmtKind) -> bool {
    matches!(kind, StmtKind::Return)
}
