//! Abstract values of registers and stack slots.
use std::fmt;

/// An unknown number between two, unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub min: u64,
    pub max: u64,
    /// Copies of one unknown number share a name, so that a comparison of one bounds all; 0: no other copy.
    pub id: u32,
}

/// Names what pointers of one origin share. It is made of the instruction that made it, so that the same state looks
/// the same at the second visit.
pub(super) type Id = u32;

/// Shares with no other.
pub(super) const ALONE: Id = u32::MAX;

/// Stand for names where something is known not to be null, or to be null.
const NOT_NULL: Id = ALONE - 1;
const NULL: Id = ALONE - 2;

/// An offset that is too far to prove anything with: larger than any packet or value.
pub(super) const FAR: u64 = 1 << 29;

/// A distance: `fixed` plus something between 0 and `more`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    pub fixed: i64,
    pub more: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing was written there.
    Nothing,
    /// It differs between the ways that lead here, so that nobody can use it.
    Mixed,
    Number(Number),
    Context,
    /// In the stack of the function at this depth of calls, from its frame pointer.
    Stack(u8, Offset),
    /// In the packet. `proved`: so many bytes are there behind the variable part of what has the name `id` (0: the
    /// start of the packet).
    Packet {
        id: Id,
        off: Offset,
        proved: u32,
    },
    /// In the metadata; the same.
    Meta {
        id: Id,
        off: Offset,
        proved: u32,
    },
    /// The end of the packet.
    PacketEnd,
    Map(u32),
    /// In a value of a map.
    InMap(u32, Offset),
    /// The start of a value, or null.
    InMapOrNull(u32, Id),
    /// In a record of a ring buffer, of so many bytes; `id` names the reservation.
    Record {
        id: Id,
        bytes: u32,
        off: Offset,
    },
    RecordOrNull {
        id: Id,
        bytes: u32,
    },
}

impl Number {
    pub(super) const ANY: Number = Number { min: 0, max: u64::MAX, id: 0 };

    pub(super) fn exactly(value: u64) -> Number {
        Number { min: value, max: value, id: 0 }
    }

    pub(super) fn up_to(max: u64) -> Number {
        Number { min: 0, max, id: 0 }
    }

    /// What it is where only one value is possible.
    pub(super) fn known(self) -> Option<u64> {
        (self.min == self.max).then_some(self.min)
    }

    pub(super) fn contains(self, other: Number) -> bool {
        self.min <= other.min && self.max >= other.max
    }

    /// Both, and where that is more than before, so much that the next time is the last: numbers that grow in a loop
    /// must come to an end.
    fn widened(self, other: Number) -> Number {
        let min = if other.min < self.min { 0 } else { self.min };
        let steps = [0xff, 0xffff, u64::from(u32::MAX), u64::MAX];
        let wide = |max: u64| steps.into_iter().find(|step| *step >= max).unwrap_or(u64::MAX);
        let max = if other.max > self.max { wide(other.max) } else { self.max };
        Number { min, max, id: 0 }
    }
}

impl Offset {
    pub(super) const ZERO: Offset = Offset { fixed: 0, more: 0 };

    pub(super) fn new(fixed: i64) -> Offset {
        Offset { fixed, more: 0 }
    }

    /// The last place where it may be.
    pub(super) fn last(self) -> i64 {
        self.fixed.saturating_add(self.more.min(FAR) as i64)
    }

    pub(super) fn plus(self, other: i64) -> Offset {
        let far = FAR as i64;
        Offset { fixed: self.fixed.saturating_add(other).clamp(-far, far), more: self.more }
    }

    fn contains(self, other: Offset) -> bool {
        self.fixed <= other.fixed && (self.more >= FAR || self.last() >= other.last())
    }

    fn widened(self, other: Offset) -> Offset {
        if self.contains(other) {
            return self;
        }
        // A pointer that walks: it may go anywhere, and is checked where it is used.
        merged(self, other)
    }
}

impl Value {
    pub(super) const ANY: Value = Value::Number(Number::ANY);

    pub(super) fn exactly(value: u64) -> Value {
        Value::Number(Number::exactly(value))
    }

    /// It is a pointer of any kind.
    pub(super) fn is_pointer(self) -> bool {
        !matches!(self, Value::Nothing | Value::Mixed | Value::Number(_))
    }

    /// Whatever `other` stands for, this stands for too, `names` telling which names correspond.
    pub(super) fn contains(self, other: Value, names: &mut Names) -> bool {
        if matches!(self, Value::Nothing | Value::Mixed) {
            return true;
        }
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => {
                a.contains(b) && (a.id == 0 || (b.id != 0 && names.same(a.id, b.id, 0)))
            }
            (Value::Packet { id: a, off: x, proved: p }, Value::Packet { id: b, off: y, proved: q })
            | (Value::Meta { id: a, off: x, proved: p }, Value::Meta { id: b, off: y, proved: q }) => {
                let further = y.fixed - x.fixed;
                let named = if a == 0 { b == 0 && further == 0 } else { names.same(a, b, further) };
                let room = x.more >= FAR || (y.more < FAR && y.more as i64 + further <= x.more as i64);
                named && further >= 0 && room && (p == 0 || i64::from(p) + further <= i64::from(q))
            }
            (Value::Stack(a, x), Value::Stack(b, y)) => a == b && x.contains(y),
            (Value::InMap(a, x), Value::InMap(b, y)) => a == b && x.contains(y),
            (Value::InMapOrNull(a, i), Value::InMapOrNull(b, j)) => a == b && names.same(i, j, 0),
            (Value::InMapOrNull(a, i), Value::InMap(b, Offset::ZERO)) => a == b && names.same(i, NOT_NULL, 0),
            (Value::InMapOrNull(_, i), Value::Number(n)) => n.known() == Some(0) && names.same(i, NULL, 0),
            _ => self == other,
        }
    }

    /// Something that contains both; `fresh` names what is new in it.
    pub(super) fn joined(self, other: Value, fresh: Id) -> Value {
        match self.joined_unnamed(other, fresh) {
            Value::Packet { id: ALONE, off, proved } => Value::Packet { id: fresh, off, proved },
            Value::Meta { id: ALONE, off, proved } => Value::Meta { id: fresh, off, proved },
            joined => joined,
        }
    }

    fn joined_unnamed(self, other: Value, fresh: Id) -> Value {
        if self == other {
            return self;
        }
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => Value::Number(a.widened(b)),
            (Value::Packet { id: a, off: x, proved: p }, Value::Packet { id: b, off: y, proved: q }) => {
                let same = a == b && x == y;
                let (id, off) = if same { (a, x) } else { (fresh, merged(x, y)) };
                Value::Packet { id, off, proved: if same { p.min(q) } else { 0 } }
            }
            (Value::Meta { id: a, off: x, proved: p }, Value::Meta { id: b, off: y, proved: q }) => {
                let same = a == b && x == y;
                let (id, off) = if same { (a, x) } else { (fresh, merged(x, y)) };
                Value::Meta { id, off, proved: if same { p.min(q) } else { 0 } }
            }
            (Value::Stack(a, x), Value::Stack(b, y)) if a == b => Value::Stack(a, x.widened(y)),
            (Value::InMap(a, x), Value::InMap(b, y)) if a == b => Value::InMap(a, x.widened(y)),
            _ => match (self.or_null(), other.or_null()) {
                (Some(a), Some(b)) if a == b || b.is_none() => a.map_or(Value::exactly(0), Value::or_null_of),
                (Some(None), Some(Some(b))) => Value::or_null_of(b),
                _ => Value::Mixed,
            },
        }
    }

    fn or_null_of(map: u32) -> Value {
        Value::InMapOrNull(map, ALONE)
    }

    /// It is the start of a value of a map or null: of which map, where that is known.
    fn or_null(self) -> Option<Option<u32>> {
        match self {
            Value::InMapOrNull(map, _) | Value::InMap(map, Offset::ZERO) => Some(Some(map)),
            Value::Number(n) if n.known() == Some(0) => Some(None),
            _ => None,
        }
    }
}

/// Which name in one state corresponds to which in another, and how far the latter's is ahead.
#[derive(Default)]
pub(super) struct Names(Vec<(Id, Id, i64)>);

impl Names {
    fn same(&mut self, a: Id, b: Id, ahead: i64) -> bool {
        if a == ALONE {
            return true;
        }
        match self.0.iter().find(|(known, ..)| *known == a) {
            // Two that share with nobody do not share with each other.
            Some((_, other, distance)) => (*other, *distance) == (b, ahead) && b != ALONE,
            None => {
                self.0.push((a, b, ahead));
                true
            }
        }
    }
}

/// A pointer that may be at either place: its variable part starts at the nearer one.
fn merged(x: Offset, y: Offset) -> Offset {
    // A second time further back: it walks backwards, and must come to an end.
    let fixed = if x.more >= FAR && y.fixed < x.fixed { -(FAR as i64) } else { x.fixed.min(y.fixed) };
    Offset { fixed, more: FAR }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Value::Nothing => "nothing that was ever written",
            Value::Mixed => "different things depending on the way that leads here",
            Value::Number(_) => "a number",
            Value::Context => "the context",
            Value::Stack(..) => "a pointer to the stack",
            Value::Packet { .. } => "a pointer to the packet",
            Value::Meta { .. } => "a pointer to metadata",
            Value::PacketEnd => "the end of the packet",
            Value::Map(_) => "a map",
            Value::InMap(..) => "a pointer to a map's value",
            Value::InMapOrNull(..) => "a map's value that may be null (compare it with 0 first)",
            Value::Record { .. } => "a pointer to a ring buffer's record",
            Value::RecordOrNull { .. } => "a ring buffer's record that may be null (compare it with 0 first)",
        })
    }
}
