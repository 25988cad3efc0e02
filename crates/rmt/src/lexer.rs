//! Lexer: characters to tokens (P4-16 section 6.4). `>` is always a token of its own. The parser joins `> >` to a shift
//! where an operator is expected, so that `Register<bit<32>, bit<16>>` needs no tricks.
use crate::diag::{Pos, Problem, Res};

/// Kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tok {
    Ident(String),
    /// Value, and width and signedness where written (`16w0xff`, `8s1`).
    Int(u128, Option<(u32, bool)>),
    Str(String),
    /// Punctuation and operators.
    Punct(&'static str),
    /// `#` as the first character of a line: a directive follows.
    Hash,
    End,
}

/// A token and its place.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub tok: Tok,
    pub pos: Pos,
    /// First of its line.
    pub first: bool,
}

/// Longest first.
const PUNCT: &[&str] = &[
    "|+|", "|-|", "&&&", "...", "<<", "<=", ">=", "==", "!=", "&&", "||", "++", "..", "{", "}", "(", ")", "[", "]",
    "<", ">", ",", ";", ":", ".", "=", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "?", "@",
];

/// Reads one file.
pub(crate) fn lex(file: u16, text: &str) -> Res<Vec<Token>> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, pos: Pos { file, line: 1, col: 1 }, first: true };
    let mut out = Vec::new();
    while let Some(token) = lexer.next()? {
        out.push(token);
    }
    Ok(out)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    pos: Pos,
    first: bool,
}

impl Lexer {
    fn peek(&self, n: usize) -> char {
        self.chars.get(self.at + n).copied().unwrap_or('\0')
    }

    fn bump(&mut self) -> char {
        let c = self.peek(0);
        self.at += 1;
        if c == '\n' {
            self.pos.line += 1;
            self.pos.col = 1;
            self.first = true;
        } else {
            self.pos.col += 1;
        }
        c
    }

    fn next(&mut self) -> Res<Option<Token>> {
        self.skip_blank()?;
        if self.at >= self.chars.len() {
            return Ok(None);
        }
        let (pos, first) = (self.pos, self.first);
        self.first = false;
        let c = self.peek(0);
        let tok = if c.is_ascii_alphabetic() || c == '_' {
            Tok::Ident(self.word())
        } else if c.is_ascii_digit() {
            self.number(pos)?
        } else if c == '"' {
            self.string(pos)?
        } else if c == '#' {
            self.bump();
            Tok::Hash
        } else {
            self.punct(pos)?
        };
        Ok(Some(Token { tok, pos, first }))
    }

    /// Blanks, comments, and a backslash before a line's end.
    fn skip_blank(&mut self) -> Res<()> {
        loop {
            match (self.peek(0), self.peek(1)) {
                ('/', '/') => {
                    while self.at < self.chars.len() && self.peek(0) != '\n' {
                        self.bump();
                    }
                }
                ('/', '*') => self.block_comment()?,
                ('\\', '\n') => {
                    let first = self.first;
                    self.bump();
                    self.bump();
                    self.first = first;
                }
                (c, _) if c.is_whitespace() && self.at < self.chars.len() => {
                    self.bump();
                }
                _ => return Ok(()),
            }
        }
    }

    fn block_comment(&mut self) -> Res<()> {
        let start = self.pos;
        let first = self.first;
        while (self.peek(0), self.peek(1)) != ('*', '/') {
            if self.at >= self.chars.len() {
                return Err(Problem::error(start, "this comment is never closed").help("add `*/`"));
            }
            self.bump();
        }
        self.bump();
        self.bump();
        self.first = first || self.first;
        Ok(())
    }

    fn word(&mut self) -> String {
        let mut s = String::new();
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == '_' {
            s.push(self.bump());
        }
        s
    }

    fn string(&mut self, pos: Pos) -> Res<Tok> {
        self.bump();
        let mut s = String::new();
        loop {
            match self.peek(0) {
                '"' => {
                    self.bump();
                    return Ok(Tok::Str(s));
                }
                '\n' | '\0' => return Err(Problem::error(pos, "this string is not closed on its line")),
                _ => s.push(self.bump()),
            }
        }
    }

    /// `12`, `0x1f`, `0b10`, `8w0xff`, `32s5`, with `_` between digits.
    fn number(&mut self, pos: Pos) -> Res<Tok> {
        let word = self.word();
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let (width, rest) = match word.as_bytes().get(digits) {
            Some(&sign @ (b'w' | b's')) => {
                let width: u32 = word[..digits].parse().unwrap_or(0);
                if width == 0 || width > 128 {
                    return Err(Problem::error(pos, format!("`{word}`: a width is 1 to 128 bits")));
                }
                (Some((width, sign == b's')), &word[digits + 1..])
            }
            _ => (None, word.as_str()),
        };
        let clean: String = rest.chars().filter(|c| *c != '_').collect();
        let (radix, body) = match clean.get(..2).map(str::to_ascii_lowercase).as_deref() {
            Some("0x") => (16, &clean[2..]),
            Some("0b") => (2, &clean[2..]),
            Some("0o") => (8, &clean[2..]),
            Some("0d") => (10, &clean[2..]),
            _ => (10, clean.as_str()),
        };
        let value = u128::from_str_radix(body, radix)
            .map_err(|_| Problem::error(pos, format!("`{word}` is not a number of at most 128 bits")))?;
        if let Some((w, _)) = width {
            if w < 128 && value >> w != 0 {
                return Err(Problem::error(pos, format!("`{word}` does not fit into {w} bits")));
            }
        }
        Ok(Tok::Int(value, width))
    }

    fn punct(&mut self, pos: Pos) -> Res<Tok> {
        for p in PUNCT {
            if p.chars().enumerate().all(|(i, c)| self.peek(i) == c) {
                for _ in 0..p.len() {
                    self.bump();
                }
                return Ok(Tok::Punct(p));
            }
        }
        Err(Problem::error(pos, format!("the character {:?} has no meaning in P4", self.peek(0))))
    }
}
