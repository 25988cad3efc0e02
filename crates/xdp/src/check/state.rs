//! Abstract state at one point of one path through a program.
use super::value::{ALONE, FAR, Id, Names, Number, Offset, Value};
use crate::insn::{FP, Reg};

/// Bytes of a function's stack.
pub(super) const STACK: i64 = 512;
const SLOTS: usize = STACK as usize / 8;

/// Eight bytes of stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Which of its bytes were written, with what is not known any more.
    Bytes(u8),
    /// All eight, at once.
    Whole(Value),
}

/// A function that is being executed.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub registers: [Value; 11],
    slots: Box<[Slot; SLOTS]>,
    /// Where it returns to.
    pub back: usize,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub frames: Vec<Frame>,
    /// Reservations in ring buffers that must be given back.
    pub open: Vec<Id>,
    /// Bytes that may have been taken off the packet's front, at most.
    pub stripped: u64,
}

impl Frame {
    pub(super) fn new(depth: u8, back: usize) -> Frame {
        let mut registers = [Value::Nothing; 11];
        registers[FP as usize] = Value::Stack(depth, Offset::ZERO);
        Frame { registers, slots: Box::new([Slot::Bytes(0); SLOTS]), back }
    }

    /// The slot and bit of a byte, -1 to -512 from the frame pointer.
    fn place(offset: i64) -> (usize, u8) {
        let from_bottom = (offset + STACK) as usize;
        (from_bottom / 8, 1 << (from_bottom % 8))
    }

    /// Writes at a known offset, in bounds.
    pub(super) fn write(&mut self, offset: i64, size: u8, value: Value) {
        if size == 8 && offset % 8 == 0 {
            self.slots[Frame::place(offset).0] = Slot::Whole(value);
            return;
        }
        for at in offset..offset + i64::from(size) {
            let (slot, bit) = Frame::place(at);
            let written = match self.slots[slot] {
                Slot::Bytes(written) => written,
                // What is left of a pointer is no number that anybody needs.
                Slot::Whole(value) if value == Value::Nothing || value.is_pointer() => 0,
                Slot::Whole(_) => 0xff,
            };
            self.slots[slot] = Slot::Bytes(written | bit);
        }
    }

    /// Something unknown was written somewhere between: what was known there is void; what was written stays written.
    pub(super) fn blur(&mut self, from: i64, to: i64) {
        for offset in from.max(-STACK)..to.min(0) {
            let (slot, _) = Frame::place(offset);
            if let Slot::Whole(value) = self.slots[slot] {
                let gone = value == Value::Nothing || value.is_pointer();
                self.slots[slot] = Slot::Bytes(if gone { 0 } else { 0xff });
            }
        }
    }

    /// What reading at a known offset gives; `None`: a byte was never written.
    pub(super) fn read(&self, offset: i64, size: u8) -> Option<Value> {
        if size == 8 && offset % 8 == 0 {
            if let Slot::Whole(value) = self.slots[Frame::place(offset).0] {
                return (value != Value::Nothing).then_some(value);
            }
        }
        self.written(offset, size.into()).then_some(Value::Number(Number::up_to(match size {
            8 => u64::MAX,
            size => (1 << (8 * size)) - 1,
        })))
    }

    /// All these bytes were written, with numbers.
    pub(super) fn written(&self, offset: i64, bytes: i64) -> bool {
        (offset..offset + bytes).all(|at| {
            let (slot, bit) = Frame::place(at);
            match self.slots[slot] {
                Slot::Bytes(written) => written & bit != 0,
                Slot::Whole(value) => matches!(value, Value::Number(_)),
            }
        })
    }

    fn values(&mut self) -> impl Iterator<Item = &mut Value> {
        let spilled = self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Whole(value) => Some(value),
            Slot::Bytes(_) => None,
        });
        self.registers.iter_mut().chain(spilled)
    }

    fn contains(&self, other: &Frame, names: &mut Names) -> bool {
        let slot = |(a, b): (&Slot, &Slot), names: &mut Names| match (*a, *b) {
            (Slot::Whole(a), Slot::Whole(b)) => (b != Value::Nothing || a == b) && a.contains(b, names),
            (Slot::Bytes(a), Slot::Bytes(b)) => a & !b == 0,
            (Slot::Bytes(a), Slot::Whole(b)) => a == 0 || matches!(b, Value::Number(_)),
            (Slot::Whole(a), Slot::Bytes(b)) => match a {
                Value::Number(n) => n == Number::ANY && b == 0xff,
                Value::Mixed => b == 0xff,
                a => a == Value::Nothing,
            },
        };
        self.back == other.back
            && self.registers.iter().zip(&other.registers).all(|(a, b)| a.contains(*b, names))
            && self.slots.iter().zip(other.slots.iter()).all(|pair| slot(pair, names))
    }

    fn join(&mut self, other: &Frame, fresh: &mut impl FnMut() -> Id) {
        for (a, b) in self.registers.iter_mut().zip(&other.registers) {
            *a = a.joined(*b, fresh());
        }
        let bytes = |slot: Slot| match slot {
            Slot::Bytes(bytes) => bytes,
            Slot::Whole(Value::Number(_)) => 0xff,
            Slot::Whole(_) => 0,
        };
        for (a, b) in self.slots.iter_mut().zip(other.slots.iter()) {
            let id = fresh();
            *a = match (*a, *b) {
                (Slot::Whole(a), Slot::Whole(b)) => match a.joined(b, id) {
                    Value::Mixed if a == Value::Nothing || b == Value::Nothing => Slot::Bytes(0),
                    joined => Slot::Whole(joined),
                },
                (a, b) => Slot::Bytes(bytes(a) & bytes(b)),
            };
        }
    }
}

impl State {
    /// The program's own function, called with its context.
    pub(super) fn start() -> State {
        let mut frame = Frame::new(0, usize::MAX);
        frame.registers[1] = Value::Context;
        State { frames: vec![frame], open: Vec::new(), stripped: 0 }
    }

    pub(super) fn depth(&self) -> u8 {
        (self.frames.len() - 1) as u8
    }

    pub(super) fn frame(&self) -> &Frame {
        &self.frames[self.frames.len() - 1]
    }

    pub(super) fn frame_mut(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    pub(super) fn get(&self, reg: Reg) -> Value {
        self.frame().registers[reg as usize]
    }

    pub(super) fn set(&mut self, reg: Reg, value: Value) {
        self.frame_mut().registers[reg as usize] = value;
    }

    /// Every value anywhere.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut Value)) {
        self.frames.iter_mut().flat_map(Frame::values).for_each(&mut change);
    }

    /// A new thing gets a name that an earlier visit of the same instruction may have given already: what bears it
    /// shares with nobody from now on.
    pub(super) fn rename(&mut self, name: Id) {
        self.each(|value| match value {
            Value::Number(number) if number.id == name => number.id = 0,
            Value::Packet { id, .. } | Value::Meta { id, .. } | Value::InMapOrNull(_, id) if *id == name => {
                *id = ALONE;
            }
            _ => {}
        });
    }

    /// This state stands for everything that the other one stands for.
    pub(super) fn contains(&self, other: &State) -> bool {
        let mut names = Names::default();
        self.open == other.open
            && self.stripped >= other.stripped
            && self.frames.len() == other.frames.len()
            && self.frames.iter().zip(&other.frames).all(|(a, b)| a.contains(b, &mut names))
    }

    /// The two can be made one: they are in the same calls.
    pub(super) fn can_join(&self, other: &State) -> bool {
        self.open == other.open
            && self.frames.len() == other.frames.len()
            && self.frames.iter().zip(&other.frames).all(|(a, b)| a.back == b.back)
    }

    /// Makes this state stand for the other one too.
    pub(super) fn join(&mut self, other: &State, at: usize) {
        // Names of what is made by joining here: apart from those that instructions make. What bears one from an
        // earlier time is another thing now.
        let names = 1 << 31 | (at as Id & 0xffff) << 14;
        let mut other = other.clone();
        for state in [&mut *self, &mut other] {
            state.each(|value| match value {
                Value::Packet { id, .. } | Value::Meta { id, .. } if *id >> 14 == names >> 14 => *id = ALONE,
                _ => {}
            });
        }
        if other.stripped > self.stripped {
            self.stripped = FAR;
        }
        let mut count = 0;
        let mut fresh = || {
            count += 1;
            names | (count & 0x3fff)
        };
        for (a, b) in self.frames.iter_mut().zip(&other.frames) {
            a.join(b, &mut fresh);
        }
    }
}
