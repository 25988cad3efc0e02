//! Parser of P4: tokens to syntax tree, by recursive descent. The first error ends it: later ones would be guesses.
mod decl;
mod expr;
mod stmt;

use crate::ast::{Decl, Name};
use crate::diag::{Pos, Problem, Res};
use crate::lexer::{Tok, Token};
use std::collections::HashSet;

/// Nesting of expressions, statements and types.
const MAX_DEPTH: u32 = 120;

/// Parses a whole program.
pub(crate) fn parse(tokens: &[Token]) -> Res<Vec<Decl>> {
    let mut parser = Parser { tokens, at: 0, depth: 0, types: HashSet::new() };
    let mut out = Vec::new();
    while parser.peek() != &Tok::End {
        parser.top(&mut out)?;
    }
    Ok(out)
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: u32,
    /// Names declared as types so far: `(name) x` is a cast only then.
    types: HashSet<String>,
}

impl Parser<'_> {
    fn peek(&self) -> &Tok {
        self.ahead(0)
    }

    fn ahead(&self, n: usize) -> &Tok {
        &self.tokens[(self.at + n).min(self.tokens.len() - 1)].tok
    }

    fn pos(&self) -> Pos {
        self.tokens[self.at.min(self.tokens.len() - 1)].pos
    }

    fn is(&self, p: &'static str) -> bool {
        self.peek() == &Tok::Punct(p)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Tok::Ident(w) if w == word)
    }

    fn eat(&mut self, p: &'static str) -> bool {
        let found = self.is(p);
        self.at += found as usize;
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += found as usize;
        found
    }

    fn expect(&mut self, p: &'static str, place: &str) -> Res<()> {
        if self.eat(p) {
            return Ok(());
        }
        Err(Problem::error(self.pos(), format!("`{p}` is expected {place}, not {}", self.found())))
    }

    /// The next token in words.
    fn found(&self) -> String {
        match self.peek() {
            Tok::Ident(w) => format!("`{w}`"),
            Tok::Int(v, _) => format!("the number {v}"),
            Tok::Str(s) => format!("the string \"{s}\""),
            Tok::Punct(p) => format!("`{p}`"),
            Tok::Hash => "`#`".into(),
            Tok::End => "the end of the program".into(),
        }
    }

    fn name(&mut self, what: &str) -> Res<Name> {
        let pos = self.pos();
        match self.peek() {
            Tok::Ident(w) if !RESERVED.contains(&w.as_str()) => {
                let text = w.clone();
                self.at += 1;
                Ok(Name { text, pos })
            }
            _ => Err(Problem::error(pos, format!("{what} is expected, not {}", self.found()))),
        }
    }

    /// Runs `f` one level deeper.
    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.depth >= MAX_DEPTH {
            return Err(Problem::error(self.pos(), format!("nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let out = f(self);
        self.depth -= 1;
        out
    }

    /// `@name` and `@name(...)`: the names, without what they hold.
    fn annotations(&mut self) -> Res<Vec<String>> {
        let mut out = Vec::new();
        while self.eat("@") {
            let pos = self.pos();
            let Tok::Ident(name) = self.peek().clone() else {
                return Err(Problem::error(pos, "an annotation's name is expected after `@`"));
            };
            self.at += 1;
            if self.eat("(") {
                let mut open = 1;
                while open > 0 {
                    match self.peek() {
                        Tok::End => return Err(Problem::error(pos, "this annotation is never closed")),
                        Tok::Punct("(") => open += 1,
                        Tok::Punct(")") => open -= 1,
                        _ => {}
                    }
                    self.at += 1;
                }
            }
            out.push(name);
        }
        Ok(out)
    }
}

/// Words that can't be names.
const RESERVED: &[&str] = &[
    "action",
    "apply_",
    "bit",
    "bool",
    "const",
    "control",
    "default",
    "else",
    "enum",
    "error",
    "exit",
    "extern",
    "false",
    "header",
    "header_union",
    "if",
    "in",
    "inout",
    "int",
    "match_kind",
    "out",
    "package",
    "parser",
    "return",
    "select",
    "struct",
    "switch",
    "table",
    "transition",
    "true",
    "tuple",
    "typedef",
    "varbit",
    "void",
];
