//! Expressions and types (P4-16 section 8), by precedence climbing.
use super::Parser;
use crate::ast::{BinOp, Call, Expr, ExprKind, TypeKind, TypeRef, UnOp};
use crate::diag::{Problem, Res};
use crate::lexer::Tok;

/// Binary operators and how strongly they bind.
fn binary(p: &str) -> Option<(BinOp, u8)> {
    Some(match p {
        "||" => (BinOp::LogOr, 1),
        "&&" => (BinOp::LogAnd, 2),
        "==" => (BinOp::Eq, 3),
        "!=" => (BinOp::Ne, 3),
        "<" => (BinOp::Lt, 4),
        "<=" => (BinOp::Le, 4),
        ">" => (BinOp::Gt, 4),
        ">=" => (BinOp::Ge, 4),
        "|" => (BinOp::Or, 5),
        "^" => (BinOp::Xor, 6),
        "&" => (BinOp::And, 7),
        "<<" => (BinOp::Shl, 8),
        ">>" => (BinOp::Shr, 8),
        "++" => (BinOp::Concat, 9),
        "+" => (BinOp::Add, 9),
        "-" => (BinOp::Sub, 9),
        "|+|" => (BinOp::SatAdd, 9),
        "|-|" => (BinOp::SatSub, 9),
        "*" => (BinOp::Mul, 10),
        "/" => (BinOp::Div, 10),
        "%" => (BinOp::Mod, 10),
        _ => return None,
    })
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Res<Expr> {
        self.deeper(|p| p.ternary())
    }

    fn ternary(&mut self) -> Res<Expr> {
        let cond = self.binary(1)?;
        if !self.is("?") {
            return Ok(cond);
        }
        let pos = self.pos();
        self.at += 1;
        let a = self.expr()?;
        self.expect(":", "between the two values of `?`")?;
        let b = self.expr()?;
        Ok(Expr { kind: ExprKind::Ternary(Box::new(cond), Box::new(a), Box::new(b)), pos })
    }

    fn operator(&self) -> Option<(BinOp, u8, usize)> {
        let Tok::Punct(p) = self.peek() else { return None };
        let here = self.pos();
        if *p == ">" && self.ahead(1) == &Tok::Punct(">") {
            let next = self.tokens[self.at + 1].pos;
            if next.line == here.line && next.col == here.col + 1 {
                return Some((BinOp::Shr, 8, 2));
            }
        }
        binary(p).map(|(op, level)| (op, level, 1))
    }

    fn binary(&mut self, min: u8) -> Res<Expr> {
        let mut left = self.unary()?;
        while let Some((op, level, length)) = self.operator() {
            if level < min {
                break;
            }
            let pos = self.pos();
            self.at += length;
            let right = self.deeper(|p| p.binary(level + 1))?;
            left = Expr { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), pos };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Res<Expr> {
        let pos = self.pos();
        let op = match self.peek() {
            Tok::Punct("!") => UnOp::Not,
            Tok::Punct("~") => UnOp::BitNot,
            Tok::Punct("-") => UnOp::Neg,
            Tok::Punct("(") if self.is_cast() => return self.cast(),
            _ => return self.postfix(),
        };
        self.at += 1;
        let inner = self.deeper(|p| p.unary())?;
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(inner)), pos })
    }

    /// `(bit<32>) x`, `(int<8>) x`, `(bool) x`, `(Name) x` with a known type.
    fn is_cast(&self) -> bool {
        match self.ahead(1) {
            Tok::Ident(w) if matches!(w.as_str(), "bit" | "int" | "bool") => true,
            Tok::Ident(w) => self.types.contains(w) && self.ahead(2) == &Tok::Punct(")"),
            _ => false,
        }
    }

    fn cast(&mut self) -> Res<Expr> {
        let pos = self.pos();
        self.expect("(", "before the type of a cast")?;
        let ty = self.type_ref()?;
        self.expect(")", "after the type of a cast")?;
        let inner = self.deeper(|p| p.unary())?;
        Ok(Expr { kind: ExprKind::Cast(ty, Box::new(inner)), pos })
    }

    fn postfix(&mut self) -> Res<Expr> {
        let mut e = self.primary()?;
        loop {
            let pos = self.pos();
            if self.eat(".") {
                let name = self.name("a member's name")?;
                e = Expr { kind: ExprKind::Member(Box::new(e), name), pos };
            } else if self.eat("[") {
                e = self.subscript(e)?;
            } else if self.is("(") {
                e = self.call(e, Vec::new())?;
            } else if self.is("<") && callable(&e) {
                match self.type_args_before_call() {
                    Some(types) => e = self.call(e, types)?,
                    None => return Ok(e),
                }
            } else {
                return Ok(e);
            }
        }
    }

    fn subscript(&mut self, of: Expr) -> Res<Expr> {
        let pos = of.pos;
        let first = self.expr()?;
        let kind = if self.eat(":") {
            let low = self.expr()?;
            ExprKind::Slice(Box::new(of), Box::new(first), Box::new(low))
        } else {
            ExprKind::Index
        };
        self.expect("]", "after an index")?;
        Ok(Expr { kind, pos })
    }

    fn call(&mut self, callee: Expr, types: Vec<TypeRef>) -> Res<Expr> {
        let pos = callee.pos;
        let args = self.args()?;
        Ok(Expr { kind: ExprKind::Call(Box::new(Call { callee, types, args })), pos })
    }

    /// `(a, b)`.
    pub(super) fn args(&mut self) -> Res<Vec<Expr>> {
        self.expect("(", "before the arguments")?;
        self.list(")")
    }

    /// Expressions up to the closing token, with commas between.
    pub(super) fn list(&mut self, close: &'static str) -> Res<Vec<Expr>> {
        let mut out = Vec::new();
        while !self.eat(close) {
            out.push(self.keyset()?);
            if !self.eat(",") {
                self.expect(close, "at the end of the list")?;
                break;
            }
        }
        Ok(out)
    }

    /// An expression, or a set of values as select cases and table entries have: `_`, `a &&& b`, `a .. b`.
    pub(super) fn keyset(&mut self) -> Res<Expr> {
        let pos = self.pos();
        if self.is_word("_") || self.is_word("default") {
            self.at += 1;
            return Ok(Expr { kind: ExprKind::Any, pos });
        }
        let first = self.expr()?;
        if self.eat("&&&") {
            let mask = self.expr()?;
            return Ok(Expr { kind: ExprKind::Mask(Box::new(first), Box::new(mask)), pos });
        }
        if self.eat("..") {
            let high = self.expr()?;
            return Ok(Expr { kind: ExprKind::Range(Box::new(first), Box::new(high)), pos });
        }
        Ok(first)
    }

    /// `<types>` where a `(` follows, or nothing (then `<` is a comparison).
    fn type_args_before_call(&mut self) -> Option<Vec<TypeRef>> {
        let start = self.at;
        let types = self.type_args().ok();
        if types.is_some() && self.is("(") {
            return types;
        }
        self.at = start;
        None
    }

    fn primary(&mut self) -> Res<Expr> {
        let pos = self.pos();
        let kind = match self.peek().clone() {
            Tok::Int(value, width) => ExprKind::Int(value, width),
            Tok::Str(_) => ExprKind::Str,
            Tok::Ident(w) if w == "true" || w == "false" => ExprKind::Bool(w == "true"),
            Tok::Ident(w) if w == "error" => ExprKind::Name(w),
            Tok::Ident(_) => ExprKind::Name(self.name_ahead()?),
            Tok::Punct("(") => {
                self.at += 1;
                let inner = self.expr()?;
                self.expect(")", "to close the parenthesis")?;
                return Ok(inner);
            }
            Tok::Punct("{") => {
                self.at += 1;
                let list = self.list("}")?;
                return Ok(Expr { kind: ExprKind::List(list), pos });
            }
            _ => return Err(Problem::error(pos, format!("an expression is expected, not {}", self.found()))),
        };
        self.at += 1;
        Ok(Expr { kind, pos })
    }

    fn name_ahead(&mut self) -> Res<String> {
        let name = self.name("an expression")?;
        self.at -= 1;
        Ok(name.text)
    }

    pub(super) fn type_ref(&mut self) -> Res<TypeRef> {
        self.deeper(|p| p.type_inner())
    }

    fn type_inner(&mut self) -> Res<TypeRef> {
        let pos = self.pos();
        let Tok::Ident(word) = self.peek().clone() else {
            return Err(Problem::error(pos, format!("a type is expected, not {}", self.found())));
        };
        let kind = match word.as_str() {
            "bool" => TypeKind::Bool,
            "void" => TypeKind::Void,
            "error" => TypeKind::Error,
            "_" => TypeKind::DontCare,
            "bit" | "int" => {
                self.at += 1;
                let width = self.width(&word)?;
                return Ok(TypeRef { kind: width, pos });
            }
            "varbit" | "tuple" | "header_union" => {
                return Err(Problem::error(pos, format!("`{word}` is not supported: a pipeline has fixed fields")));
            }
            _ => {
                let name = self.name("a type")?;
                let args = if self.is("<") { self.type_args()? } else { Vec::new() };
                return Ok(TypeRef { kind: TypeKind::Named(name.text, args), pos });
            }
        };
        self.at += 1;
        Ok(TypeRef { kind, pos })
    }

    /// `<32>`, `<(W - 1)>` or `<WIDTH>` after `bit` or `int`; `bit` alone is one bit.
    fn width(&mut self, word: &str) -> Res<TypeKind> {
        let pos = self.pos();
        let width = if self.eat("<") {
            let e = self.unary()?;
            self.expect(">", "after a width")?;
            e
        } else if word == "bit" {
            Expr { kind: ExprKind::Int(1, None), pos }
        } else {
            return Err(Problem::error(pos, "`int` without a width is only for constants").help("write int<32>"));
        };
        Ok(if word == "bit" { TypeKind::Bit(Box::new(width)) } else { TypeKind::Int(Box::new(width)) })
    }

    /// `<A, B>`.
    pub(super) fn type_args(&mut self) -> Res<Vec<TypeRef>> {
        self.expect("<", "before type arguments")?;
        let mut out = vec![self.type_ref()?];
        while self.eat(",") {
            out.push(self.type_ref()?);
        }
        self.expect(">", "after type arguments")?;
        Ok(out)
    }
}

fn callable(e: &Expr) -> bool {
    matches!(e.kind, ExprKind::Name(_) | ExprKind::Member(..))
}
