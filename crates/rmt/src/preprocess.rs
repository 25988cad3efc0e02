//! The simple part of the C preprocessor that P4 programs use: `#include`, `#define` of names, `#undef`, `#ifdef`,
//! `#ifndef`, `#if`/`#elif` with `defined(X)`, integers, `!`, `&&`, `||`, `==`, `#else`, `#endif`, `#error`.
use crate::diag::{Pos, Problem, Res, Sources};
use crate::lexer::{Tok, Token, lex};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Limits against programs made to exhaust the compiler.
const MAX_DEPTH: usize = 16;
const MAX_TOKENS: usize = 1 << 20;

/// Gives the text of an included file: `Ok(None)` where there is none.
pub(crate) type Loader<'a> = &'a dyn Fn(&Path) -> Option<String>;

pub(crate) struct Preprocessor<'a> {
    pub sources: Sources,
    defines: HashMap<String, Vec<Token>>,
    out: Vec<Token>,
    loader: Loader<'a>,
    arch: bool,
    /// Names given from outside that no file has had yet.
    pub unread: BTreeSet<String>,
}

/// One `#if`: whether its branch is read now, and whether some branch was.
struct Cond {
    active: bool,
    taken: bool,
    pos: Pos,
}

impl<'a> Preprocessor<'a> {
    /// `defines` are names given from outside (`-D`), with their values.
    pub(crate) fn new(defines: &[(String, String)], loader: Loader<'a>) -> Self {
        let mut sources = Sources::default();
        let mut table = HashMap::new();
        for (name, value) in defines.iter().chain(&[("__TARGET_TOFINO__".into(), "2".into())]) {
            let file = sources.add(format!("-D{name}"), value.clone());
            table.insert(name.clone(), lex(file, value).unwrap_or_default());
        }
        let unread = defines.iter().map(|(name, _)| name.clone()).collect();
        Preprocessor { sources, defines: table, out: Vec::new(), loader, arch: false, unread }
    }

    /// Reads a program; the tokens end with [`Tok::End`].
    pub(crate) fn run(&mut self, name: &str, text: String) -> Res<Vec<Token>> {
        let file = self.sources.add(name.to_string(), text);
        self.file(file, Path::new(name), 0)?;
        let pos = self.out.last().map(|t| t.pos).unwrap_or(Pos { file, line: 1, col: 1 });
        self.out.push(Token { tok: Tok::End, pos, first: true });
        Ok(std::mem::take(&mut self.out))
    }

    fn file(&mut self, file: u16, path: &Path, depth: usize) -> Res<()> {
        let tokens = lex(file, self.sources.text(file))?;
        for token in &tokens {
            if let Tok::Ident(name) = &token.tok {
                self.unread.remove(name);
            }
        }
        let mut conds: Vec<Cond> = Vec::new();
        let mut i = 0;
        while i < tokens.len() {
            if tokens[i].first && tokens[i].tok == Tok::Hash {
                let end = (i + 1..tokens.len()).find(|&j| tokens[j].first).unwrap_or(tokens.len());
                self.directive(&tokens[i..end], &mut conds, path, depth)?;
                i = end;
                continue;
            }
            if conds.iter().all(|c| c.active) {
                self.expand(&tokens[i], tokens[i].pos, 0)?;
            }
            i += 1;
        }
        match conds.last() {
            Some(c) => Err(Problem::error(c.pos, "this condition is never closed").help("add `#endif`")),
            None => Ok(()),
        }
    }

    /// Emits a token, or what it is defined as, placed where it is used.
    fn expand(&mut self, token: &Token, pos: Pos, depth: usize) -> Res<()> {
        if self.out.len() >= MAX_TOKENS {
            return Err(Problem::error(pos, format!("the program has more than {MAX_TOKENS} tokens")));
        }
        if let Tok::Ident(name) = &token.tok {
            if let Some(body) = self.defines.get(name).cloned() {
                if depth >= MAX_DEPTH {
                    return Err(Problem::error(pos, format!("the definition of `{name}` refers to itself")));
                }
                return body.iter().try_for_each(|t| self.expand(t, pos, depth + 1));
            }
        }
        self.out.push(Token { tok: token.tok.clone(), pos, first: token.first });
        Ok(())
    }

    fn directive(&mut self, line: &[Token], conds: &mut Vec<Cond>, path: &Path, depth: usize) -> Res<()> {
        let pos = line[0].pos;
        let word = ident(line.get(1));
        let rest = line.get(2..).unwrap_or(&[]);
        let active = conds.iter().all(|c| c.active);
        match word {
            "ifdef" | "ifndef" => {
                let known = self.defines.contains_key(self.name(rest, pos)?);
                push(conds, active && (known == (word == "ifdef")), pos);
            }
            "if" => {
                let value = active && self.condition(rest, pos)?;
                push(conds, value, pos);
            }
            "elif" | "else" => self.alternative(word, rest, conds, pos)?,
            "endif" => {
                conds.pop().ok_or_else(|| Problem::error(pos, "`#endif` without `#if`"))?;
            }
            _ if !active => {}
            "define" => self.define(rest, pos)?,
            "undef" => {
                let name = self.name(rest, pos)?.to_string();
                self.defines.remove(&name);
            }
            "include" => self.include(rest, path, depth, pos)?,
            "error" => return Err(Problem::error(pos, format!("#error {}", words(rest)))),
            "pragma" | "" => {}
            other => return Err(Problem::error(pos, format!("`#{other}` is not known to this preprocessor"))),
        }
        Ok(())
    }

    fn alternative(&mut self, word: &str, rest: &[Token], conds: &mut [Cond], pos: Pos) -> Res<()> {
        let outer = conds.len() < 2 || conds[..conds.len() - 1].iter().all(|c| c.active);
        let taken = conds.last().ok_or_else(|| Problem::error(pos, format!("`#{word}` without `#if`")))?.taken;
        let now = outer && !taken && (word == "else" || self.condition(rest, pos)?);
        if let Some(cond) = conds.last_mut() {
            cond.active = now;
            cond.taken |= now;
        }
        Ok(())
    }

    fn name<'t>(&self, rest: &'t [Token], pos: Pos) -> Res<&'t str> {
        match ident(rest.first()) {
            "" => Err(Problem::error(pos, "a name must follow")),
            name => Ok(name),
        }
    }

    fn define(&mut self, rest: &[Token], pos: Pos) -> Res<()> {
        let name = self.name(rest, pos)?.to_string();
        if let Some(open) = rest.get(1) {
            let adjacent = open.pos.line == rest[0].pos.line && open.pos.col == rest[0].pos.col + name.len() as u32;
            if open.tok == Tok::Punct("(") && adjacent {
                return Err(Problem::error(open.pos, "macros with parameters are not supported")
                    .help("write an action or a constant instead"));
            }
        }
        self.defines.insert(name, rest[1..].to_vec());
        Ok(())
    }

    fn include(&mut self, rest: &[Token], path: &Path, depth: usize, pos: Pos) -> Res<()> {
        if depth >= MAX_DEPTH || self.sources.len() > 1000 {
            return Err(Problem::error(pos, "files include each other too deeply"));
        }
        if let [Token { tok: Tok::Str(name), .. }] = rest {
            let full: PathBuf = path.parent().unwrap_or(Path::new("")).join(name);
            let text =
                (self.loader)(&full).ok_or_else(|| Problem::error(pos, format!("cannot read `{}`", full.display())))?;
            let file = self.sources.add(full.display().to_string(), text);
            return self.file(file, &full, depth + 1);
        }
        match words(rest).replace(' ', "").as_str() {
            "<core.p4>" => Ok(()),
            "<t2na.p4>" if self.arch => Ok(()),
            "<t2na.p4>" => {
                self.arch = true;
                let file = self.sources.add("<t2na.p4>".into(), include_str!("arch/t2na.p4").into());
                self.file(file, Path::new("<t2na.p4>"), depth + 1)
            }
            "<tna.p4>" => {
                Err(Problem::error(pos, "this is the architecture of the first Tofino")
                    .help("write `#include <t2na.p4>`"))
            }
            other => Err(Problem::error(pos, format!("there is no `{other}` here"))
                .help("known are <core.p4> and <t2na.p4>; files of your own are included with quotes")),
        }
    }

    fn condition(&self, rest: &[Token], pos: Pos) -> Res<bool> {
        let mut parser = Condition { tokens: rest, at: 0, pos, defines: &self.defines, depth: 0 };
        let value = parser.or()?;
        match rest.get(parser.at) {
            Some(t) => Err(Problem::error(t.pos, "this condition is too complicated for the preprocessor")),
            None => Ok(value != 0),
        }
    }
}

fn push(conds: &mut Vec<Cond>, active: bool, pos: Pos) {
    conds.push(Cond { active, taken: active, pos });
}

fn ident(token: Option<&Token>) -> &str {
    match token.map(|t| &t.tok) {
        Some(Tok::Ident(name)) => name,
        _ => "",
    }
}

fn words(tokens: &[Token]) -> String {
    let text = |t: &Token| match &t.tok {
        Tok::Ident(s) | Tok::Str(s) => s.clone(),
        Tok::Int(v, _) => v.to_string(),
        Tok::Punct(p) => p.to_string(),
        Tok::Hash => "#".into(),
        Tok::End => String::new(),
    };
    tokens.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// `a || b && !defined(c) == 1`.
struct Condition<'t> {
    tokens: &'t [Token],
    at: usize,
    pos: Pos,
    defines: &'t HashMap<String, Vec<Token>>,
    depth: usize,
}

impl Condition<'_> {
    fn eat(&mut self, p: &'static str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(t) if t.tok == Tok::Punct(p));
        self.at += found as usize;
        found
    }

    fn or(&mut self) -> Res<u128> {
        let mut value = self.and()?;
        while self.eat("||") {
            value = (self.and()? != 0 || value != 0) as u128;
        }
        Ok(value)
    }

    fn and(&mut self) -> Res<u128> {
        let mut value = self.equal()?;
        while self.eat("&&") {
            value = (self.equal()? != 0 && value != 0) as u128;
        }
        Ok(value)
    }

    fn equal(&mut self) -> Res<u128> {
        let value = self.primary()?;
        if self.eat("==") {
            return Ok((self.primary()? == value) as u128);
        }
        if self.eat("!=") {
            return Ok((self.primary()? != value) as u128);
        }
        Ok(value)
    }

    fn primary(&mut self) -> Res<u128> {
        self.depth += 1;
        if self.depth > 64 {
            return Err(Problem::error(self.pos, "this condition is nested too deeply"));
        }
        let value = self.value();
        self.depth -= 1;
        value
    }

    fn value(&mut self) -> Res<u128> {
        if self.eat("!") {
            return Ok((self.primary()? == 0) as u128);
        }
        if self.eat("(") {
            let value = self.or()?;
            return if self.eat(")") { Ok(value) } else { Err(Problem::error(self.pos, "`)` is missing")) };
        }
        let token = self.tokens.get(self.at).ok_or_else(|| Problem::error(self.pos, "a value is missing"))?;
        self.at += 1;
        match &token.tok {
            Tok::Int(value, _) => Ok(*value),
            Tok::Ident(name) if name == "defined" => {
                let paren = self.eat("(");
                let known = self.defines.contains_key(ident(self.tokens.get(self.at)));
                self.at += 1;
                if paren && !self.eat(")") {
                    return Err(Problem::error(token.pos, "`)` is missing"));
                }
                Ok(known as u128)
            }
            Tok::Ident(name) => match self.defines.get(name).map(|b| b.as_slice()) {
                Some([Token { tok: Tok::Int(value, _), .. }]) => Ok(*value),
                // As in C, a name that is not defined counts as 0.
                _ => Ok(0),
            },
            _ => Err(Problem::error(token.pos, "this condition is too complicated for the preprocessor")),
        }
    }
}
