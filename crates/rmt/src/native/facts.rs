//! Facts about fields on the control-flow path to a place. Packets of one kind take few of all ways, and on each of
//! them most headers' presence and most verdicts are constants. Code is made for each such way (see [`super::ways`]).
use crate::ir::{BinOp, Expr, ExprKind, FieldId, Match, Program, UnOp, mask};
use crate::ops;

/// Known bits of a value.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(super) struct Bits {
    pub mask: u128,
    pub value: u128,
}

impl Bits {
    pub(super) fn constant(value: u128, width: u32) -> Bits {
        Bits { mask: mask(width), value: value & mask(width) }
    }

    /// The value, where all bits are known.
    pub(super) fn whole(self, width: u32) -> Option<u128> {
        (self.mask == mask(width)).then_some(self.value)
    }

    /// The match depends on bits that are not known.
    pub(super) fn leaves_open(self, m: Match) -> bool {
        match m {
            Match::Mask(_, bits) => bits & !self.mask != 0,
            Match::Range(..) => true,
        }
    }

    /// The match is possible.
    pub(super) fn allow(self, m: Match) -> bool {
        match m {
            Match::Mask(value, bits) => (value ^ self.value) & bits & self.mask == 0,
            Match::Range(..) => true,
        }
    }

    /// The bits known once the match holds.
    pub(super) fn and(self, m: Match) -> Bits {
        match m {
            Match::Mask(value, bits) => Bits { mask: self.mask | bits, value: self.value | (value & bits) },
            Match::Range(..) => self,
        }
    }

    /// The bits known once it does not hold: some only where one bit decided.
    pub(super) fn without(self, m: Match) -> Bits {
        match m {
            Match::Mask(value, bits) if (bits & !self.mask).count_ones() == 1 => {
                let bit = bits & !self.mask;
                Bits { mask: self.mask | bit, value: self.value | (!value & bit) }
            }
            _ => self,
        }
    }

    /// Both ask for the same of the bits that are not known.
    pub(super) fn same(self, a: Match, b: Match) -> bool {
        match (a, b) {
            (Match::Mask(v, m), Match::Mask(w, n)) => m & !self.mask == n & !self.mask && (v ^ w) & m & !self.mask == 0,
            (Match::Range(a, b), Match::Range(c, d)) => (a, b) == (c, d),
            _ => false,
        }
    }

    /// Once it is known whether `wanted` holds, `m` is decided, or at least nearer to it.
    pub(super) fn decides(self, wanted: Match, m: Match) -> bool {
        match (wanted, m) {
            (Match::Mask(_, n), Match::Mask(_, m)) => m & !self.mask != 0 && n & !m & !self.mask == 0,
            _ => self.same(wanted, m),
        }
    }

    /// What is known where either may be true.
    fn or(self, other: Bits) -> Bits {
        let mask = self.mask & other.mask & !(self.value ^ other.value);
        Bits { mask, value: self.value & mask }
    }
}

/// Facts on a way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Facts {
    /// Of every field, by its number.
    bits: Vec<Bits>,
    /// Tables in memory, and which of their actions ran: what follows a miss is seldom what follows a hit.
    ran: Vec<(usize, usize)>,
}

impl Facts {
    /// Nothing.
    pub(super) fn none(fields: usize) -> Facts {
        Facts { bits: vec![Bits::default(); fields], ran: Vec::new() }
    }

    pub(super) fn of(&self, id: FieldId) -> Bits {
        self.bits[id.0 as usize]
    }

    pub(super) fn set(&mut self, id: FieldId, bits: Bits) {
        self.bits[id.0 as usize] = bits;
    }

    /// The facts that hold after either of two ways.
    pub(super) fn meet(&self, other: &Facts) -> Facts {
        let bits = self.bits.iter().zip(&other.bits).map(|(a, b)| a.or(*b)).collect();
        let ran = self.ran.iter().filter(|action| other.ran.contains(action)).copied().collect();
        Facts { bits, ran }
    }

    /// This action of a table in memory ran.
    pub(super) fn ran(&mut self, table: usize, action: usize) {
        self.ran.push((table, action));
    }

    /// From here on it does not matter which actions ran.
    pub(super) fn forget_actions(&mut self) {
        self.ran.clear();
    }

    /// Only of these fields, and only where the whole value of one is known.
    pub(super) fn restricted(&self, keep: impl Fn(FieldId) -> bool, width: impl Fn(FieldId) -> u32) -> Facts {
        let restrict = |(at, bits): (usize, &Bits)| {
            let id = FieldId(at as u32);
            if keep(id) && bits.whole(width(id)).is_some() { *bits } else { Bits::default() }
        };
        Facts { bits: self.bits.iter().enumerate().map(restrict).collect(), ran: self.ran.clone() }
    }

    /// Only of these fields, and nothing of tables.
    pub(super) fn restricted_to(&self, keep: impl Fn(FieldId) -> bool) -> Facts {
        let restrict = |(at, bits): (usize, &Bits)| if keep(FieldId(at as u32)) { *bits } else { Bits::default() };
        Facts { bits: self.bits.iter().enumerate().map(restrict).collect(), ran: Vec::new() }
    }

    /// A condition holds, or does not.
    pub(super) fn assume(&mut self, cond: &Expr, holds: bool) {
        match &cond.kind {
            ExprKind::Field(id) if cond.ty.width() == 1 => self.set(*id, Bits::constant(holds as u128, 1)),
            ExprKind::Unary(UnOp::Not, a) if a.ty.width() == 1 => self.assume(a, !holds),
            ExprKind::Binary(BinOp::Eq, a, b) if holds => self.equal(a, b),
            ExprKind::Binary(BinOp::Ne, a, b) if !holds => self.equal(a, b),
            ExprKind::Binary(BinOp::LogAnd, a, b) if holds => {
                self.assume(a, true);
                self.assume(b, true);
            }
            _ => {}
        }
    }

    fn equal(&mut self, a: &Expr, b: &Expr) {
        for (field, other) in [(a, b), (b, a)] {
            if let (ExprKind::Field(id), Some(value)) = (&field.kind, other.constant()) {
                self.set(*id, Bits::constant(value, field.ty.width()));
            }
        }
    }

    /// The value of a field, where it is known.
    pub(super) fn fold_field(&self, program: &Program, id: FieldId) -> Option<u128> {
        self.of(id).whole(program.field(id).ty.width())
    }

    /// The value of an expression, where it follows from these facts and an action's constant data.
    pub(super) fn fold(&self, e: &Expr, args: &[Option<u128>]) -> Option<u128> {
        let ty = e.ty;
        Some(match &e.kind {
            ExprKind::Const(v) => *v,
            ExprKind::Field(id) => self.of(*id).whole(ty.width())?,
            ExprKind::Arg(i) => args.get(*i).copied().flatten()?,
            ExprKind::Slice(a, _, lo) => self.fold(a, args)? >> lo & mask(ty.width()),
            ExprKind::Unary(op, a) => ops::unary(*op, self.fold(a, args)?, ty),
            ExprKind::Binary(op, a, b) => match (op, self.fold(a, args), self.fold(b, args)) {
                (BinOp::LogAnd, Some(0), _) | (BinOp::LogAnd, _, Some(0)) => 0,
                (BinOp::LogOr, Some(1), _) | (BinOp::LogOr, _, Some(1)) => 1,
                (op, x, y) => ops::binary(*op, x?, y?, a.ty, b.ty),
            },
            ExprKind::Cast(a) => ops::cast(self.fold(a, args)?, a.ty, ty),
            ExprKind::Mux(c, a, b) => self.fold(if self.fold(c, args)? != 0 { a } else { b }, args)?,
            _ => return None,
        })
    }
}
