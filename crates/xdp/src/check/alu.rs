//! Arithmetic: on numbers, and of pointers with numbers.
use super::state::State;
use super::value::{FAR, Id, Number, Offset, Value};
use super::{Check, Refused};
use crate::insn::{Alu, FP, Operand, Reg, Swap};

const LOW: u64 = u32::MAX as u64;

impl Check<'_> {
    /// A register that may be read.
    pub(super) fn read(&self, state: &State, reg: Reg) -> Result<Value, Refused> {
        match state.get(reg) {
            value @ (Value::Nothing | Value::Mixed) => Err(format!("uses r{reg}, which holds {value}")),
            value => Ok(value),
        }
    }

    pub(super) fn operand(&self, state: &State, operand: Operand) -> Result<Value, Refused> {
        match operand {
            Operand::Reg(reg) => self.read(state, reg),
            Operand::Imm(imm) => Ok(Value::exactly(imm as i64 as u64)),
        }
    }

    /// A register that holds a number.
    pub(super) fn number(&self, state: &State, reg: Reg) -> Result<Number, Refused> {
        match self.read(state, reg)? {
            Value::Number(number) => Ok(number),
            other => Err(format!("needs a number in r{reg}, which holds {other}")),
        }
    }

    fn set(&self, state: &mut State, dst: Reg, value: Value) -> Result<(), Refused> {
        if dst == FP {
            return Err("changes r10, the frame pointer".into());
        }
        state.set(dst, value);
        Ok(())
    }

    pub(super) fn alu(
        &mut self,
        state: &mut State,
        op: Alu,
        wide: bool,
        dst: Reg,
        src: Operand,
    ) -> Result<(), Refused> {
        let right = self.operand(state, src)?;
        if op == Alu::Mov {
            return self.mov(state, wide, dst, src, right);
        }
        let left = self.read(state, dst)?;
        let result = match (left, right) {
            (Value::Number(a), Value::Number(b)) => Value::Number(arithmetic(op, wide, a, b)),
            // Clearing a register by itself, whatever is in it.
            _ if wide && src == Operand::Reg(dst) && matches!(op, Alu::Sub | Alu::Xor) => Value::exactly(0),
            (pointer, Value::Number(number)) if wide && pointer.is_pointer() => {
                self.moved(state, op, pointer, number)?
            }
            (Value::Number(number), pointer) if wide && op == Alu::Add => self.moved(state, op, pointer, number)?,
            (a, b) if wide && op == Alu::Sub && difference(a, b) => Value::ANY,
            (pointer, _) if !wide && pointer.is_pointer() => {
                return Err("computes with half of a pointer".into());
            }
            (a, b) => return Err(format!("computes with {a} and {b}, which gives nothing that can be used")),
        };
        self.set(state, dst, result)
    }

    fn mov(&self, state: &mut State, wide: bool, dst: Reg, src: Operand, value: Value) -> Result<(), Refused> {
        let value = match value {
            Value::Number(number) if !wide && number.max > LOW => {
                Value::Number(number.known().map_or(Number::up_to(LOW), |known| Number::exactly(known & LOW)))
            }
            // An unknown number that gets a copy: a comparison of one of them bounds both.
            Value::Number(number) if number.known().is_none() => match src {
                Operand::Reg(from) if number.id == 0 => {
                    let named = Value::Number(Number { id: self.renamed(state), ..number });
                    state.set(from, named);
                    named
                }
                _ => value,
            },
            Value::Number(_) => value,
            _ if !wide => return Err("copies half of a pointer".into()),
            pointer => pointer,
        };
        self.set(state, dst, value)
    }

    pub(super) fn move_signed(
        &mut self,
        state: &mut State,
        wide: bool,
        bits: u8,
        dst: Reg,
        src: Reg,
    ) -> Result<(), Refused> {
        let number = self.number(state, src)?;
        let same = number.max < 1 << (bits - 1);
        self.set(state, dst, Value::Number(if same { number } else { unknown(wide) }))
    }

    /// Arithmetic after which only the width is known.
    pub(super) fn change_number(&mut self, state: &mut State, dst: Reg, wide: bool) -> Result<(), Refused> {
        let number = self.number(state, dst)?;
        let result = match number.known() {
            Some(known) if wide => Number::exactly(known.wrapping_neg()),
            Some(known) => Number::exactly(known.wrapping_neg() & LOW),
            None => unknown(wide),
        };
        self.set(state, dst, Value::Number(result))
    }

    pub(super) fn byte_swap(&mut self, state: &mut State, how: Swap, bits: u8, dst: Reg) -> Result<(), Refused> {
        let number = self.number(state, dst)?;
        let most = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let result = match number.known() {
            Some(known) => Number::exactly(swapped(how, bits, known)),
            None if how == Swap::Cut && number.max <= most => number,
            None => Number::up_to(most),
        };
        self.set(state, dst, Value::Number(result))
    }

    /// A name for something new, which nothing else in the state has.
    fn renamed(&self, state: &mut State) -> Id {
        state.rename(self.name());
        self.name()
    }

    /// A pointer and a number.
    fn moved(&mut self, state: &mut State, op: Alu, pointer: Value, number: Number) -> Result<Value, Refused> {
        let (fixed, more) = match (op, number.known()) {
            (Alu::Add, Some(known)) => (known as i64, 0),
            (Alu::Sub, Some(known)) => ((known as i64).wrapping_neg(), 0),
            (Alu::Add, None) => (0, number.max),
            // Back by an unknown amount: to be checked where it is used.
            (Alu::Sub, None) => (-(FAR as i64), FAR),
            _ => return Err(format!("computes with {pointer} in another way than adding and subtracting")),
        };
        let by = |off: Offset| {
            let moved = off.plus(fixed);
            Offset { fixed: moved.fixed, more: moved.more.saturating_add(more).min(FAR) }
        };
        Ok(match pointer {
            Value::Stack(depth, off) => Value::Stack(depth, by(off)),
            Value::InMap(map, off) => Value::InMap(map, by(off)),
            Value::Record { id, bytes, off } => Value::Record { id, bytes, off: by(off) },
            Value::Packet { id, off, proved } if more == 0 => Value::Packet { id, off: by(off), proved },
            Value::Meta { id, off, proved } if more == 0 => Value::Meta { id, off: by(off), proved },
            // Another variable part: nothing is proved about it yet.
            Value::Packet { off, .. } => Value::Packet { id: self.renamed(state), off: by(off), proved: 0 },
            Value::Meta { off, .. } => Value::Meta { id: self.renamed(state), off: by(off), proved: 0 },
            other if fixed == 0 && more == 0 => other,
            other => return Err(format!("computes with {other}")),
        })
    }
}

/// A number of which only the width is known.
fn unknown(wide: bool) -> Number {
    if wide { Number::ANY } else { Number::up_to(LOW) }
}

/// The difference of two places in the same memory is a number.
fn difference(a: Value, b: Value) -> bool {
    let packet = |value| matches!(value, Value::Packet { .. } | Value::PacketEnd);
    match (a, b) {
        (a, b) if packet(a) && packet(b) => true,
        (Value::Meta { .. }, Value::Meta { .. }) => true,
        (Value::InMap(a, _), Value::InMap(b, _)) => a == b,
        (Value::Stack(a, _), Value::Stack(b, _)) => a == b,
        _ => false,
    }
}

/// As the instruction does it.
pub(crate) fn swapped(how: Swap, bits: u8, value: u64) -> u64 {
    match (how, bits) {
        (Swap::Swap, 16) => (value as u16).swap_bytes().into(),
        (Swap::Swap, 32) => (value as u32).swap_bytes().into(),
        (Swap::Swap, _) => value.swap_bytes(),
        (Swap::Cut, 16) => value & 0xffff,
        (Swap::Cut, 32) => value & LOW,
        (Swap::Cut, _) => value,
    }
}

fn arithmetic(op: Alu, wide: bool, a: Number, b: Number) -> Number {
    if let (Some(a), Some(b)) = (a.known(), b.known()) {
        return Number::exactly(compute(op, wide, a, b));
    }
    let most = unknown(wide).max;
    let cut = |number: Number| if number.max > most { Number::up_to(most) } else { number };
    let (a, b) = (cut(a), cut(b));
    let between = |min: Option<u64>, max: Option<u64>| match (min, max) {
        (Some(min), Some(max)) if max <= most => Number { min, max, id: 0 },
        _ => Number::up_to(most),
    };
    let width = if wide { 64 } else { 32 };
    match op {
        Alu::Add => match b.known().map(|b| if wide { b as i64 } else { i64::from(b as i32) }) {
            // Adding a negative constant is subtracting, as compilers write it.
            Some(b) if b < 0 && a.min >= b.unsigned_abs() => {
                let less = b.unsigned_abs();
                between(a.min.checked_sub(less), a.max.checked_sub(less))
            }
            _ => between(a.min.checked_add(b.min), a.max.checked_add(b.max)),
        },
        Alu::Sub => between(a.min.checked_sub(b.max), a.max.checked_sub(b.min)),
        Alu::Mul => between(a.min.checked_mul(b.min), a.max.checked_mul(b.max)),
        Alu::Div => between(Some(0), Some(a.max)),
        Alu::Mod => between(Some(0), Some(if b.min > 0 { a.max.min(b.max - 1) } else { a.max })),
        Alu::And => between(Some(0), Some(a.max.min(b.max))),
        Alu::Or | Alu::Xor => {
            let bits = 64 - (a.max | b.max).leading_zeros();
            between(Some(0), Some(if bits == 64 { u64::MAX } else { (1 << bits) - 1 }))
        }
        Alu::ShiftLeft => match b.known().filter(|by| *by < width) {
            Some(by) if a.max.leading_zeros() as u64 >= by => between(Some(a.min << by), Some(a.max << by)),
            _ => Number::up_to(most),
        },
        Alu::ShiftRight => match b.known().filter(|by| *by < width) {
            Some(by) => between(Some(a.min >> by), Some(a.max >> by)),
            None => between(Some(0), Some(a.max)),
        },
        Alu::ShiftRightSigned => match b.known().filter(|by| *by < width && a.max <= most >> 1) {
            Some(by) => between(Some(a.min >> by), Some(a.max >> by)),
            None => Number::up_to(most),
        },
        Alu::SignedDiv | Alu::SignedMod | Alu::Mov => Number::up_to(most),
    }
}

/// As an instruction of one width does it (RFC 9669 section 4.1): the same for both, in numbers of that width.
macro_rules! computed {
    ($op:expr, $a:expr, $b:expr, $signed:ty) => {{
        let (a, b) = ($a, $b);
        let (x, y, by) = (a as $signed, b as $signed, b as u32);
        match $op {
            Alu::Add => a.wrapping_add(b),
            Alu::Sub => a.wrapping_sub(b),
            Alu::Mul => a.wrapping_mul(b),
            Alu::Div => a.checked_div(b).unwrap_or(0),
            Alu::SignedDiv if b == 0 => 0,
            Alu::SignedDiv => x.wrapping_div(y) as _,
            Alu::Mod => a.checked_rem(b).unwrap_or(a),
            Alu::SignedMod if b == 0 => a,
            Alu::SignedMod => x.wrapping_rem(y) as _,
            Alu::Or => a | b,
            Alu::And => a & b,
            Alu::Xor => a ^ b,
            // Only as many bits of the distance count as the width has room for, which is what these do.
            Alu::ShiftLeft => a.wrapping_shl(by),
            Alu::ShiftRight => a.wrapping_shr(by),
            Alu::ShiftRightSigned => x.wrapping_shr(by) as _,
            Alu::Mov => b,
        }
    }};
}

/// As the instruction does it.
pub(crate) fn compute(op: Alu, wide: bool, a: u64, b: u64) -> u64 {
    if wide { computed!(op, a, b, i64) } else { u64::from(computed!(op, a as u32, b as u32, i32)) }
}
