//! Packet filters as libpcap compiles them: classic BPF (McCanne and Jacobson, USENIX 1993). A program comes from
//! outside, so it is checked whole before it runs. Every opcode is known, and every jump goes forward and stays inside.
//! Scratch memory is not left, nothing is divided by a constant 0, and the end is a return. So each run ends after at
//! most as many steps as the program has, and a load beyond the frame refuses the frame.
use shm::Span;

/// Most instructions of a program. libpcap's programs for what people write have less than a hundred.
pub const MOST_INSTRUCTIONS: usize = 2048;

/// An instruction as `tcpdump -ddd` prints it: opcode, jump if true, jump if false, operand.
pub type Instruction = (u16, u8, u8, u32);

/// Words of scratch memory.
const MEMORY: usize = 16;

/// A program that was checked.
#[derive(Debug, Clone)]
pub struct Filter(Box<[Step]>);

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Into the accumulator.
    Load(LoadSource),
    /// Into the index register.
    LoadIndex(LoadSource),
    Store(usize),
    StoreIndex(usize),
    Calculate(Operator, Operand),
    Negate,
    Jump(usize),
    /// Where to go on if it holds and if not, relative to the next instruction.
    Branch(Relation, Operand, u8, u8),
    Return(Operand),
    /// Between accumulator and index register.
    ToIndex,
    FromIndex,
}

#[derive(Debug, Clone, Copy)]
enum LoadSource {
    Constant(u32),
    /// Bytes of the frame: where, and how many.
    Frame(u32, usize),
    /// As `Frame`, from the index register's place.
    Indexed(u32, usize),
    Memory(usize),
    /// Of the frame.
    Length,
    /// Four times the low half of a byte of the frame: an IPv4 header's length.
    HeaderLength(u32),
}

#[derive(Debug, Clone, Copy)]
enum Operand {
    Constant(u32),
    Index,
    Accumulator,
}

#[derive(Debug, Clone, Copy)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Remainder,
    ExclusiveOr,
}

#[derive(Debug, Clone, Copy)]
enum Relation {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

impl Filter {
    /// Checks a program. The error is a sentence that names the instruction.
    pub fn new(program: &[Instruction]) -> Result<Filter, String> {
        if program.is_empty() || program.len() > MOST_INSTRUCTIONS {
            return Err(format!(
                "the filter has {} instructions: it must have 1 to {MOST_INSTRUCTIONS}",
                program.len()
            ));
        }
        let steps = program.iter().enumerate().map(|(at, instruction)| {
            let left = program.len() - at - 1;
            step(*instruction, left).map_err(|what| format!("the filter's instruction {at} {what}"))
        });
        let steps = steps.collect::<Result<Box<[Step]>, String>>()?;
        match steps.last() {
            Some(Step::Return(_)) => Ok(Filter(steps)),
            _ => Err("the filter does not end with a return".into()),
        }
    }

    /// The one that accepts every frame.
    pub fn everything() -> Filter {
        Filter(Box::new([Step::Return(Operand::Constant(u32::MAX))]))
    }

    /// The frame, whose payload may stand elsewhere, is wanted.
    #[inline]
    pub fn accepts(&self, bytes: &[u8], payload: Option<&Span>) -> bool {
        if let [Step::Return(Operand::Constant(wanted))] = &self.0[..] {
            return *wanted != 0;
        }
        Run { view: View { bytes, payload }, accumulator: 0, index: 0, memory: [0; MEMORY] }.run(&self.0).unwrap_or(0)
            != 0
    }
}

fn step((code, jt, jf, k): Instruction, left: usize) -> Result<Step, &'static str> {
    const UNKNOWN: &str = "has an opcode that does not exist";
    let slot = || if (k as usize) < MEMORY { Ok(k as usize) } else { Err("leaves the scratch memory") };
    let operand = if code & 0x08 == 0 { Operand::Constant(k) } else { Operand::Index };
    Ok(match code & 0x07 {
        0x00 => Step::Load(place(code, k)?),
        0x01 => Step::LoadIndex(place_of_index(code, k)?),
        0x02 if code == 0x02 => Step::Store(slot()?),
        0x03 if code == 0x03 => Step::StoreIndex(slot()?),
        0x04 if code == 0x84 => Step::Negate,
        0x04 => Step::Calculate(operator(code)?, checked_divisor(code, operand)?),
        0x05 if code == 0x05 => match (k as usize) < left {
            true => Step::Jump(k as usize),
            false => return Err("jumps backwards or out of the program"),
        },
        0x05 => match (usize::from(jt) < left) && (usize::from(jf) < left) {
            true => Step::Branch(relation(code)?, operand, jt, jf),
            false => return Err("jumps out of the program"),
        },
        0x06 if code == 0x06 => Step::Return(Operand::Constant(k)),
        0x06 if code == 0x16 => Step::Return(Operand::Accumulator),
        0x07 if code == 0x07 => Step::ToIndex,
        0x07 if code == 0x87 => Step::FromIndex,
        _ => return Err(UNKNOWN),
    })
}

fn place(code: u16, k: u32) -> Result<LoadSource, &'static str> {
    Ok(match code {
        0x00 => LoadSource::Constant(k),
        0x20 => LoadSource::Frame(k, 4),
        0x28 => LoadSource::Frame(k, 2),
        0x30 => LoadSource::Frame(k, 1),
        0x40 => LoadSource::Indexed(k, 4),
        0x48 => LoadSource::Indexed(k, 2),
        0x50 => LoadSource::Indexed(k, 1),
        0x60 if (k as usize) < MEMORY => LoadSource::Memory(k as usize),
        0x60 => return Err("leaves the scratch memory"),
        0x80 => LoadSource::Length,
        _ => return Err("has an opcode that does not exist"),
    })
}

fn place_of_index(code: u16, k: u32) -> Result<LoadSource, &'static str> {
    Ok(match code {
        0x01 => LoadSource::Constant(k),
        0x61 if (k as usize) < MEMORY => LoadSource::Memory(k as usize),
        0x61 => return Err("leaves the scratch memory"),
        0x81 => LoadSource::Length,
        0xb1 => LoadSource::HeaderLength(k),
        _ => return Err("has an opcode that does not exist"),
    })
}

fn operator(code: u16) -> Result<Operator, &'static str> {
    Ok(match code & !0x0f {
        0x00 => Operator::Add,
        0x10 => Operator::Subtract,
        0x20 => Operator::Multiply,
        0x30 => Operator::Divide,
        0x40 => Operator::Or,
        0x50 => Operator::And,
        0x60 => Operator::ShiftLeft,
        0x70 => Operator::ShiftRight,
        0x90 => Operator::Remainder,
        0xa0 => Operator::ExclusiveOr,
        _ => return Err("has an opcode that does not exist"),
    })
}

fn checked_divisor(code: u16, operand: Operand) -> Result<Operand, &'static str> {
    match (code & !0x0f, operand) {
        (0x30 | 0x90, Operand::Constant(0)) => Err("divides by 0"),
        _ => Ok(operand),
    }
}

fn relation(code: u16) -> Result<Relation, &'static str> {
    Ok(match code & !0x0f {
        0x10 => Relation::Equal,
        0x20 => Relation::Greater,
        0x30 => Relation::GreaterOrEqual,
        0x40 => Relation::AnyBit,
        _ => return Err("has an opcode that does not exist"),
    })
}

/// A frame's bytes: the contiguous ones, then those that stand elsewhere.
struct View<'a> {
    bytes: &'a [u8],
    payload: Option<&'a Span>,
}

impl View<'_> {
    fn len(&self) -> u32 {
        (self.bytes.len() + self.payload.map_or(0, Span::len)) as u32
    }

    /// `count` bytes (1, 2 or 4) from `at`, big-endian; none beyond the end.
    fn load(&self, at: u32, count: usize) -> Option<u32> {
        let at = at as usize;
        let end = at.checked_add(count)?;
        let mut word = [0; 4];
        let into = &mut word[4 - count..];
        if let Some(bytes) = self.bytes.get(at..end) {
            into.copy_from_slice(bytes);
        } else {
            let payload = self.payload.filter(|span| end <= self.bytes.len() + span.len())?;
            let front = self.bytes.get(at..).unwrap_or_default();
            into[..front.len()].copy_from_slice(front);
            let skip = (at + front.len() - self.bytes.len()) as u32;
            payload.slice(skip, (count - front.len()) as u32).read(&mut into[front.len()..]);
        }
        Some(u32::from_be_bytes(word))
    }
}

/// A program at work on a frame.
struct Run<'a> {
    view: View<'a>,
    accumulator: u32,
    index: u32,
    memory: [u32; MEMORY],
}

impl Run<'_> {
    /// What the program returns; none where it reads beyond the frame or divides by 0.
    fn run(&mut self, steps: &[Step]) -> Option<u32> {
        let mut at = 0;
        loop {
            let step = steps.get(at)?;
            at += 1;
            match *step {
                Step::Load(place) => self.accumulator = self.load(place)?,
                Step::LoadIndex(place) => self.index = self.load(place)?,
                Step::Store(slot) => self.memory[slot] = self.accumulator,
                Step::StoreIndex(slot) => self.memory[slot] = self.index,
                Step::Calculate(operator, operand) => self.accumulator = self.calculate(operator, operand)?,
                Step::Negate => self.accumulator = self.accumulator.wrapping_neg(),
                Step::Jump(by) => at += by,
                Step::Branch(relation, operand, jt, jf) => {
                    at += usize::from(if self.holds(relation, operand) { jt } else { jf });
                }
                Step::Return(operand) => return Some(self.value(operand)),
                Step::ToIndex => self.index = self.accumulator,
                Step::FromIndex => self.accumulator = self.index,
            }
        }
    }

    fn load(&self, place: LoadSource) -> Option<u32> {
        match place {
            LoadSource::Constant(value) => Some(value),
            LoadSource::Frame(at, count) => self.view.load(at, count),
            LoadSource::Indexed(at, count) => self.view.load(self.index.checked_add(at)?, count),
            LoadSource::Memory(slot) => Some(self.memory[slot]),
            LoadSource::Length => Some(self.view.len()),
            LoadSource::HeaderLength(at) => Some((self.view.load(at, 1)? & 0xf) << 2),
        }
    }

    fn value(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Constant(value) => value,
            Operand::Index => self.index,
            Operand::Accumulator => self.accumulator,
        }
    }

    fn calculate(&self, operator: Operator, operand: Operand) -> Option<u32> {
        let (a, b) = (self.accumulator, self.value(operand));
        Some(match operator {
            Operator::Add => a.wrapping_add(b),
            Operator::Subtract => a.wrapping_sub(b),
            Operator::Multiply => a.wrapping_mul(b),
            Operator::Divide => a.checked_div(b)?,
            Operator::Or => a | b,
            Operator::And => a & b,
            Operator::ShiftLeft => a.checked_shl(b).unwrap_or(0),
            Operator::ShiftRight => a.checked_shr(b).unwrap_or(0),
            Operator::Remainder => a.checked_rem(b)?,
            Operator::ExclusiveOr => a ^ b,
        })
    }

    fn holds(&self, relation: Relation, operand: Operand) -> bool {
        let (a, b) = (self.accumulator, self.value(operand));
        match relation {
            Relation::Equal => a == b,
            Relation::Greater => a > b,
            Relation::GreaterOrEqual => a >= b,
            Relation::AnyBit => a & b != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURN: Instruction = (0x06, 0, 0, 1);

    #[test]
    fn what_could_run_wild_is_refused() {
        let refused = |program: &[Instruction], why: &str| {
            let sentence = Filter::new(program).err().unwrap_or_else(|| panic!("{program:?} was taken"));
            assert!(sentence.contains(why), "{program:?}: {sentence}");
        };
        refused(&[], "0 instructions");
        refused(&vec![RETURN; MOST_INSTRUCTIONS + 1], "instructions");
        refused(&[(0x20, 0, 0, 0)], "does not end with a return");
        refused(&[(0x05, 0, 0, u32::MAX), RETURN], "backwards");
        refused(&[(0x05, 0, 0, 1), RETURN], "out of the program");
        refused(&[(0x15, 0, 1, 7), RETURN], "out of the program");
        refused(&[(0x15, 255, 0, 7), RETURN], "out of the program");
        refused(&[(0x34, 0, 0, 0), RETURN], "divides by 0");
        refused(&[(0x94, 0, 0, 0), RETURN], "divides by 0");
        refused(&[(0x02, 0, 0, 16), RETURN], "scratch");
        refused(&[(0x03, 0, 0, 16), RETURN], "scratch");
        refused(&[(0x60, 0, 0, 16), RETURN], "scratch");
        refused(&[(0x61, 0, 0, u32::MAX), RETURN], "scratch");
        for code in [0x08, 0x0a, 0x10, 0x1d + 0x40, 0x0e, 0x1e, 0x88, 0xa0, 0xb0, 0xb4, 0x94 + 0x1000, 0xffff] {
            refused(&[(code, 0, 0, 1), RETURN], "does not exist");
        }
    }

    #[test]
    fn registers_memory_and_arithmetic() {
        let returned = |program: &[Instruction], bytes: &[u8]| {
            let filter = Filter::new(program).unwrap();
            Run { view: View { bytes, payload: None }, accumulator: 0, index: 0, memory: [0; MEMORY] }.run(&filter.0)
        };
        let end = (0x16, 0, 0, 0);
        // (frame[2] & 0xf) * 4 + frame[0..2], kept in memory and in the index register on the way.
        let program = [(0xb1, 0, 0, 2), (0x03, 0, 0, 3), (0x28, 0, 0, 0), (0x61, 0, 0, 3), (0x0c, 0, 0, 0), end];
        assert_eq!(returned(&program, &[1, 2, 0x45]), Some(0x102 + 20));
        assert_eq!(returned(&program, &[1, 2]), None, "beyond the frame");
        let by_index = |code| [(0x01, 0, 0, 0), (0x00, 0, 0, 9), (code, 0, 0, 0), end];
        assert_eq!(returned(&by_index(0x3c), &[]), None, "divided by 0");
        assert_eq!(returned(&by_index(0x9c), &[]), None, "divided by 0");
        let shift = |code, by| [(0x00, 0, 0, 0x8000_0001), (code, 0, 0, by), end];
        assert_eq!((returned(&shift(0x64, 1), &[]), returned(&shift(0x64, 32), &[])), (Some(2), Some(0)));
        assert_eq!((returned(&shift(0x74, 31), &[]), returned(&shift(0x74, 99), &[])), (Some(1), Some(0)));
        // An index near the end of the address space does not wrap round.
        assert_eq!(returned(&[(0x01, 0, 0, u32::MAX), (0x50, 0, 0, 1), end], &[7, 7]), None);
    }
}
