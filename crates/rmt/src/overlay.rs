//! Overlay of headers: those that are never there at once share containers of the packet header vector. Parsers for
//! either version of IP need it.
use crate::ir::{
    Apply, BinOp, Dst, Entry, Expr, ExprKind, FieldId, Gress, Match, ParseOp, Program, Stmt, StmtKind, Target, UnOp,
};
use std::collections::{BTreeSet, HashMap};

/// Combinations of headers that are followed at most; beyond, nothing is shared.
const MOST: usize = 4096;

/// Which headers are valid, and which ones take room: those that are valid, and those that were written to before.
type Held = (u64, u64);
type States = BTreeSet<Held>;

struct Walk<'p> {
    program: &'p Program,
    /// By field, and by the bit that reports whether it is there: a header's place in the masks.
    header_of: HashMap<FieldId, u64>,
    valid_of: HashMap<FieldId, u64>,
    /// By header of the program.
    bits: Vec<u64>,
    sizes: Vec<u32>,
    most: u32,
    steps: usize,
}

/// The most bits that headers of one half take at once. Only those of `counted` do.
pub(crate) fn header_bits(program: &Program, gress: Gress, counted: impl Fn(usize) -> bool) -> u32 {
    let headers: Vec<usize> = (0..program.headers.len()).filter(|h| program.headers[*h].gress == gress).collect();
    let headers: Vec<usize> = headers.into_iter().filter(|h| counted(*h)).collect();
    let all = headers.iter().map(|h| program.headers[*h].bits).sum();
    if headers.len() > 64 {
        return all;
    }
    let mut walk = Walk {
        program,
        header_of: HashMap::new(),
        valid_of: HashMap::new(),
        bits: vec![0; program.headers.len()],
        sizes: headers.iter().map(|h| program.headers[*h].bits).collect(),
        most: 0,
        steps: 0,
    };
    for (place, h) in headers.iter().enumerate() {
        let (header, bit) = (&program.headers[*h], 1 << place);
        walk.bits[*h] = bit;
        walk.header_of.extend(header.fields.iter().map(|field| (*field, bit)));
        walk.valid_of.insert(header.valid, bit);
    }
    let parsed = walk.parser(gress);
    walk.block(&program.half(gress).control, parsed);
    if walk.steps > MOST * 64 { all } else { walk.most }
}

impl<'p> Walk<'p> {
    fn parser(&mut self, gress: Gress) -> States {
        let states = &self.program.half(gress).states;
        let (mut known, mut accepted) = (BTreeSet::new(), States::new());
        let mut open = vec![(0, (0, 0))];
        while let Some((number, held)) = open.pop() {
            let Some(state) = states.get(number).filter(|_| known.len() < MOST && known.insert((number, held))) else {
                self.steps += usize::from(known.len() >= MOST) * MOST * 64;
                continue;
            };
            let held = state.ops.iter().fold(held, |held, op| match op {
                ParseOp::Extract(h, _) => (held.0 | self.bits[*h], held.1 | self.bits[*h]),
                ParseOp::Assign(dst, _) | ParseOp::Verify(_, dst) | ParseOp::Residual(_, dst) => {
                    self.written(held, dst)
                }
                ParseOp::Advance(_) | ParseOp::Checksum(..) => held,
            });
            self.note(held);
            for (_, target) in &state.cases {
                match target {
                    Target::Accept => drop(accepted.insert(held)),
                    Target::State(next) => open.push((*next, held)),
                    Target::Reject => {}
                }
            }
        }
        accepted
    }

    fn note(&mut self, held: Held) {
        let sizes = self.sizes.iter().enumerate().filter(|(place, _)| held.1 >> place & 1 != 0);
        self.most = self.most.max(sizes.map(|(_, bits)| bits).sum());
    }

    fn written(&self, held: Held, dst: &Dst) -> Held {
        let bit = dst.field().and_then(|field| self.header_of.get(&field)).unwrap_or(&0);
        (held.0, held.1 | bit)
    }

    /// What may be held behind some statements.
    fn block(&mut self, body: &'p [Stmt], before: States) -> States {
        body.iter().fold(before, |states, stmt| self.stmt(stmt, states))
    }

    fn stmt(&mut self, stmt: &'p Stmt, before: States) -> States {
        self.steps += before.len();
        if self.steps > MOST * 64 {
            return States::new();
        }
        let after: States = match &stmt.kind {
            StmtKind::Assign(dst, _)
            | StmtKind::Hash(_, _, dst)
            | StmtKind::Random(dst)
            | StmtKind::Meter(_, _, dst) => before.into_iter().map(|held| self.written(held, dst)).collect(),
            StmtKind::Exec(_, _, dsts) => {
                let all = |held| dsts.iter().flatten().fold(held, |held, dst| self.written(held, dst));
                before.into_iter().map(all).collect()
            }
            StmtKind::SetValid(h, there) => {
                let bit = self.bits[*h];
                let set = |mask: u64| if *there { mask | bit } else { mask & !bit };
                before.into_iter().map(|(valid, room)| (set(valid), set(room))).collect()
            }
            StmtKind::If(cond, then, els) => {
                let way = |holds: bool| {
                    before.iter().copied().filter(|held| self.truth(cond, held.0) != Some(!holds)).collect::<States>()
                };
                let (yes, no) = (way(true), way(false));
                let mut after = self.block(then, yes);
                after.append(&mut self.block(els, no));
                after
            }
            StmtKind::Apply(apply) => self.apply(apply, &before),
            StmtKind::Count(..) => before,
            StmtKind::Exit => States::new(),
        };
        after.iter().for_each(|held| self.note(*held));
        after
    }

    fn apply(&mut self, apply: &'p Apply, before: &States) -> States {
        let program = self.program;
        let table = &program.tables[apply.table];
        let mut ways: Vec<(usize, bool, States)> = vec![(table.default.action, false, before.clone())];
        if table.entries.is_empty() {
            ways.extend(table.actions.iter().map(|action| (*action, true, before.clone())));
        }
        for entry in &table.entries {
            let fits = before.iter().copied().filter(|held| self.fits(apply.table, entry, held.0)).collect();
            ways.push((entry.call.action, true, fits));
        }
        let mut after = States::new();
        for (action, hit, states) in ways {
            let states = self.block(&program.actions[action].body, states);
            let states = self.block(if hit { &apply.hit } else { &apply.miss }, states);
            let place = table.actions.iter().position(|other| *other == action);
            let arm = apply.arms.iter().find(|(labels, _)| place.is_some_and(|place| labels.contains(&place)));
            after.append(&mut self.block(arm.map_or(&apply.default, |(_, body)| body), states));
        }
        after
    }

    /// The entry may match where these headers are there.
    fn fits(&self, table: usize, entry: &Entry, valid: u64) -> bool {
        self.program.tables[table].keys.iter().zip(&entry.keys).all(|(key, wanted)| {
            let there = self.truth(&key.expr, valid).map(u128::from);
            there.is_none_or(|there| match wanted {
                Match::Mask(value, mask) => there & mask == *value,
                Match::Range(low, high) => (low..=high).contains(&&there),
            })
        })
    }

    /// Whether a condition holds that depends on headers alone.
    fn truth(&self, cond: &Expr, valid: u64) -> Option<bool> {
        match &cond.kind {
            ExprKind::Field(field) => self.valid_of.get(field).map(|bit| valid & bit != 0),
            ExprKind::Unary(UnOp::Not, a) => self.truth(a, valid).map(|holds| !holds),
            ExprKind::Binary(BinOp::LogAnd, a, b) => match (self.truth(a, valid), self.truth(b, valid)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (a, b) => a.zip(b).map(|(a, b)| a && b),
            },
            ExprKind::Binary(BinOp::LogOr, a, b) => match (self.truth(a, valid), self.truth(b, valid)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (a, b) => a.zip(b).map(|(a, b)| a || b),
            },
            _ => None,
        }
    }
}
