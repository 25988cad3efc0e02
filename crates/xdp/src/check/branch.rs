//! Branches: the bounds that follow from a comparison on either way.
use super::state::State;
use super::value::{ALONE, FAR, Id, Number, Offset, Value};
use super::{Check, Compared, Refused};
use crate::insn::{Cond, Operand, Reg};

const LOW: u64 = u32::MAX as u64;

impl Check<'_> {
    pub(super) fn branch(
        &mut self,
        state: &mut State,
        cond: Cond,
        wide: bool,
        dst: Reg,
        src: Operand,
        target: usize,
    ) -> Result<Option<usize>, Refused> {
        let left = self.read(state, dst)?;
        let right = self.operand(state, src)?;
        let next = self.at + 1;
        if let (Value::Number(a), Value::Number(b)) = (left, right) {
            if let Some(taken) = decided(cond, wide, a, b) {
                return Ok(Some(if taken { target } else { next }));
            }
            let mut taken = state.clone();
            let reg = |operand| if let Operand::Reg(reg) = operand { Some(reg) } else { None };
            numbers(&mut taken, cond, wide, (Some(dst), a), (reg(src), b));
            numbers(state, opposite(cond), wide, (Some(dst), a), (reg(src), b));
            self.waiting.push((target, taken));
            return Ok(Some(next));
        }
        if !wide {
            return Err("compares half of a pointer".into());
        }
        let mut taken = state.clone();
        self.pointers(&mut taken, state, cond, left, right)?;
        self.waiting.push((target, taken));
        Ok(Some(next))
    }

    fn pointers(
        &mut self,
        taken: &mut State,
        other: &mut State,
        cond: Cond,
        left: Value,
        right: Value,
    ) -> Result<(), Refused> {
        let null = |value| matches!(value, Value::Number(number) if number.known() == Some(0));
        if null(right) || null(left) {
            let pointer = if null(right) { left } else { right };
            match cond {
                Cond::Eq => nullness(taken, other, pointer),
                Cond::Ne => nullness(other, taken, pointer),
                _ => return Err(format!("compares {pointer} with 0 for more than being it")),
            }
            return Ok(());
        }
        if !related(left, right) {
            return Err(format!("compares {left} with {right}, whose addresses have nothing to do with each other"));
        }
        let packet = |value| matches!(value, Value::Packet { .. });
        let meta = |value| matches!(value, Value::Meta { .. });
        if (packet(left) && right == Value::PacketEnd) || (meta(left) && packet(right)) {
            bounds(taken, other, cond, left);
        } else if (left == Value::PacketEnd && packet(right)) || (packet(left) && meta(right)) {
            bounds(taken, other, mirrored(cond), right);
        }
        let (near, far) = if meta(left) { (left, right) } else { (right, left) };
        if meta(near) && packet(far) {
            // Metadata lies elsewhere in memory and ends where it would meet the packet.
            if !matches!(far, Value::Packet { id: 0, off: Offset::ZERO, .. }) {
                return Err("compares metadata with another place of the packet than its start".into());
            }
        }
        let compared = match (meta(near) && packet(far), meta(left)) {
            (false, _) => Compared::Plainly,
            (true, true) => Compared::MetaWithPacket,
            (true, false) => Compared::PacketWithMeta,
        };
        if *self.facts.compares[self.at].get_or_insert(compared) != compared {
            return Err("compares different things depending on the way that leads here".into());
        }
        Ok(())
    }
}

/// Two pointers whose order means something.
fn related(a: Value, b: Value) -> bool {
    let packet = |value| matches!(value, Value::Packet { .. } | Value::PacketEnd);
    let meta = |value| matches!(value, Value::Meta { .. });
    match (a, b) {
        (Value::InMap(a, _), Value::InMap(b, _)) => a == b,
        (Value::Stack(a, _), Value::Stack(b, _)) => a == b,
        (Value::Record { id: a, .. }, Value::Record { id: b, .. }) => a == b,
        (a, b) => {
            (packet(a) || meta(a))
                && (packet(b) || meta(b))
                && !(a == Value::PacketEnd && meta(b) || meta(a) && b == Value::PacketEnd)
        }
    }
}

/// One way on which a pointer is null, and one on which it is not.
fn nullness(null: &mut State, pointer_state: &mut State, pointer: Value) {
    let set = |state: &mut State, id: Id, value: Value| {
        let same = |other: &Value| match (*other, pointer) {
            (Value::InMapOrNull(_, other), Value::InMapOrNull(..)) => other == id && id != ALONE,
            (Value::RecordOrNull { id: other, .. }, Value::RecordOrNull { .. }) => other == id,
            _ => false,
        };
        state.each(|other| {
            if same(other) {
                *other = value;
            }
        });
        if id == ALONE {
            // Nothing else bears the name: only the compared register itself, the first that is equal.
            if let Some(one) = state.frame_mut().registers.iter_mut().find(|other| **other == pointer) {
                *one = value;
            }
        }
    };
    match pointer {
        Value::InMapOrNull(map, id) => {
            set(null, id, Value::exactly(0));
            set(pointer_state, id, Value::InMap(map, Offset::ZERO));
        }
        Value::RecordOrNull { id, bytes } => {
            set(null, id, Value::exactly(0));
            null.open.retain(|open| *open != id);
            set(pointer_state, id, Value::Record { id, bytes, off: Offset::ZERO });
        }
        _ => {}
    }
}

/// `pointer COND end`: on the way where the pointer is not behind the end, so much of the packet is there.
fn bounds(taken: &mut State, other: &mut State, cond: Cond, pointer: Value) {
    match cond {
        Cond::Le => prove(taken, pointer, 0),
        Cond::Lt => prove(taken, pointer, 1),
        Cond::Gt => prove(other, pointer, 0),
        Cond::Ge => prove(other, pointer, 1),
        _ => {}
    }
}

fn prove(state: &mut State, pointer: Value, extra: i64) {
    let (name, off, meta) = match pointer {
        Value::Packet { id, off, .. } => (id, off, false),
        Value::Meta { id, off, .. } => (id, off, true),
        _ => return,
    };
    // A distance that could leave the address space would be behind the end and compare as before it.
    if name == ALONE || off.more >= FAR || off.fixed < 0 || off.fixed >= FAR as i64 {
        return;
    }
    let more = (off.fixed + extra) as u32;
    state.each(|value| match value {
        Value::Packet { id, proved, .. } if !meta && *id == name => *proved = more.max(*proved),
        Value::Meta { id, proved, .. } if meta && *id == name => *proved = more.max(*proved),
        _ => {}
    });
}

/// `b COND' a` for `a COND b`.
fn mirrored(cond: Cond) -> Cond {
    match cond {
        Cond::Gt => Cond::Lt,
        Cond::Ge => Cond::Le,
        Cond::Lt => Cond::Gt,
        Cond::Le => Cond::Ge,
        Cond::SignedGt => Cond::SignedLt,
        Cond::SignedGe => Cond::SignedLe,
        Cond::SignedLt => Cond::SignedGt,
        Cond::SignedLe => Cond::SignedGe,
        same => same,
    }
}

/// What holds where a condition does not; `Set` has no opposite among them.
fn opposite(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Le => Cond::Gt,
        Cond::SignedGt => Cond::SignedLe,
        Cond::SignedGe => Cond::SignedLt,
        Cond::SignedLt => Cond::SignedGe,
        Cond::SignedLe => Cond::SignedGt,
        Cond::Set => return None,
    })
}

/// As the instruction does it.
pub(crate) fn holds(cond: Cond, wide: bool, a: u64, b: u64) -> bool {
    let (a, b) = if wide { (a, b) } else { (a & LOW, b & LOW) };
    let signed = |value: u64| if wide { value as i64 } else { i64::from(value as i32) };
    let (x, y) = (signed(a), signed(b));
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::SignedGt => x > y,
        Cond::SignedGe => x >= y,
        Cond::SignedLt => x < y,
        Cond::SignedLe => x <= y,
        Cond::Set => a & b != 0,
    }
}

/// Where all possible numbers give the same answer.
fn decided(cond: Cond, wide: bool, a: Number, b: Number) -> Option<bool> {
    if let (Some(a), Some(b)) = (a.known(), b.known()) {
        return Some(holds(cond, wide, a, b));
    }
    let half = if wide { u64::MAX >> 1 } else { LOW >> 1 };
    let most = if wide { u64::MAX } else { LOW };
    if a.max > most || b.max > most {
        return None;
    }
    let cond = unsigned(cond, a.max <= half && b.max <= half)?;
    let (less, not_more) = (a.max < b.min, a.max <= b.min);
    let (more, not_less) = (a.min > b.max, a.min >= b.max);
    match cond {
        Cond::Eq | Cond::Ne if less || more => Some(cond == Cond::Ne),
        Cond::Gt | Cond::Le if more || not_more => Some((cond == Cond::Gt) == more),
        Cond::Lt | Cond::Ge if less || not_less => Some((cond == Cond::Lt) == less),
        _ => None,
    }
}

/// The unsigned form of a condition; a signed one has it where no number is negative.
fn unsigned(cond: Cond, not_negative: bool) -> Option<Cond> {
    let same = match cond {
        Cond::SignedGt => Cond::Gt,
        Cond::SignedGe => Cond::Ge,
        Cond::SignedLt => Cond::Lt,
        Cond::SignedLe => Cond::Le,
        other => return Some(other),
    };
    not_negative.then_some(same)
}

type Side = (Option<Reg>, Number);

/// Narrows two numbers by a condition that holds.
fn numbers(state: &mut State, cond: impl Into<Option<Cond>>, wide: bool, left: Side, right: Side) {
    let Some(cond) = cond.into() else { return };
    let (a, b) = (left.1, right.1);
    let most = if wide { u64::MAX } else { LOW };
    let half = most >> 1;
    if b.max <= most {
        narrow(state, left, narrowed(cond, a, b, most, half));
    }
    if a.max <= most {
        narrow(state, right, narrowed(mirrored(cond), b, a, most, half));
    }
}

/// What is left of `a` where `a COND b`.
fn narrowed(cond: Cond, a: Number, b: Number, most: u64, half: u64) -> Number {
    if a.max > most {
        return a;
    }
    let mut left = a;
    let mut least = |min: u64| left.min = left.min.max(min);
    match cond {
        // Not negative and above a number that is not: signed means unsigned, with a limit.
        Cond::SignedGt | Cond::SignedGe if b.max <= half => {
            least(b.min.saturating_add(u64::from(cond == Cond::SignedGt)));
            left.max = left.max.min(half);
            return left;
        }
        _ => {}
    }
    let Some(cond) = unsigned(cond, a.max <= half && b.max <= half) else { return a };
    match cond {
        Cond::Eq => {
            left.min = a.min.max(b.min);
            left.max = a.max.min(b.max);
        }
        Cond::Ne if b.known() == Some(a.min) => left.min += 1,
        Cond::Ne if b.known() == Some(a.max) => left.max -= 1,
        Cond::Gt => left.min = a.min.max(b.min.saturating_add(1)),
        Cond::Ge => left.min = a.min.max(b.min),
        Cond::Lt => left.max = a.max.min(b.max.saturating_sub(1)),
        Cond::Le => left.max = a.max.min(b.max),
        _ => {}
    }
    left
}

fn narrow(state: &mut State, side: Side, to: Number) {
    let (Some(reg), from) = side else { return };
    // No number is left: this way is not possible, and no fact about it matters.
    if to.min > to.max || to == from {
        return;
    }
    state.set(reg, Value::Number(to));
    if from.id != 0 {
        state.each(|value| match value {
            Value::Number(number) if number.id == from.id => *number = to,
            _ => {}
        });
    }
}
