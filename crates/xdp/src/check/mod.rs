//! The check of a program before it is let in. It follows every way through the program, with what is known of each
//! register and each byte of its stack. The kernel's verifier does so, too (Documentation/bpf/verifier.rst).
//!
//! Different from the kernel's: a program is not refused where an access to the packet or to a map's value cannot be
//! proved to be in bounds. Nor is it where a loop cannot be proved to end. The code gets a check, and what fails ends
//! the run. So the search need not be exact. Where many ways meet at one instruction, what is known on them is made
//! one, and loops end soon. What would need a check that cannot be made (a pointer of unknown kind, memory that was
//! never written) is refused.
mod access;
pub(crate) mod alu;
pub(crate) mod branch;
mod calls;
mod flow;
mod state;
mod value;

use crate::insn::Insn;
use crate::object::Object;
use state::{Frame, State};
use value::Value;

/// Calls inside calls, as in the kernel.
const DEEPEST: usize = 8;

/// States that are kept apart at one instruction; after that they are made one.
const STATES: usize = 24;

/// Steps of the search. Made-one states climb a finite ladder, so that this only ends what is unreasonable.
const STEPS: usize = 2_000_000;

/// What kind of memory an instruction uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    Context,
    /// The stack of the function that the instruction is in.
    Stack,
    Packet,
    Meta,
    /// A value of this map.
    Map(u32),
    /// Proved to be in bounds, of different kinds on different ways.
    Any,
}

/// What is known about the memory that an instruction uses, on all ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub region: Region,
    /// It is in bounds; otherwise the code must check.
    pub proved: bool,
    /// It is a multiple of its size; otherwise an atomic operation must check.
    pub aligned: bool,
}

/// What an argument of a helper that points to memory needs: the same, with the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Argument {
    pub access: Access,
    /// Bytes: so many, or as many as the next argument has.
    pub bytes: Option<u32>,
}

/// What a branch compares. Metadata ends where the packet starts, for a program; but it lies elsewhere in memory, so
/// that the packet's start stands for the end of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    Plainly,
    MetaWithPacket,
    PacketWithMeta,
}

/// What a program changes of the packet, at most. Much more than there can be stands for anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes before this one, counted from where the packet began at first.
    pub below: u64,
    /// Bytes off its front.
    pub stripped: u64,
}

/// Results of the check, for the interpreter and the compiler.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// For each instruction that uses memory.
    pub accesses: Vec<Option<Access>>,
    /// For each call of a helper, the arguments that point to memory.
    pub arguments: Vec<[Option<Argument>; 5]>,
    /// For each comparison of pointers.
    pub compares: Vec<Option<Compared>>,
    /// The map in the first argument of a helper, where it is the same on all ways.
    pub maps: Vec<Option<u32>>,
    /// It was reached.
    pub reached: Vec<bool>,
    /// It changes the packet, and what of it.
    pub written: Option<Written>,
    /// Somewhere the stack is used at an offset that is known only at run time.
    pub wild_stack: bool,
}

pub(super) struct Check<'a> {
    object: &'a Object,
    facts: Facts,
    /// The instruction that is checked.
    at: usize,
    /// For each instruction where ways meet: states that were followed from there.
    seen: Vec<Vec<State>>,
    meets: Vec<bool>,
    waiting: Vec<(usize, State)>,
}

/// Checks a program. Errors: one sentence, with the instruction and the reason.
pub(crate) fn check(object: &Object) -> Result<Facts, String> {
    let meets = flow::check(object)?;
    let count = object.code.len();
    let facts = Facts {
        accesses: vec![None; count],
        arguments: vec![[None; 5]; count],
        compares: vec![None; count],
        maps: vec![None; count],
        reached: vec![false; count],
        written: None,
        wild_stack: false,
    };
    let waiting = vec![(0, State::start())];
    let mut check = Check { object, facts, at: 0, seen: vec![Vec::new(); count], meets, waiting };
    check.run().map_err(|why| object.sentence(check.at, &why))?;
    Ok(check.facts)
}

/// What is wrong with the present instruction.
type Refused = String;

impl Check<'_> {
    fn run(&mut self) -> Result<(), Refused> {
        let mut steps = 0;
        while let Some((mut at, mut state)) = self.waiting.pop() {
            loop {
                steps += 1;
                if steps > STEPS {
                    self.at = at;
                    return Err("is on too many different ways through the program: make it simpler".into());
                }
                if self.meets[at] && self.known(at, &mut state) {
                    break;
                }
                self.at = at;
                self.facts.reached[at] = true;
                match self.step(&mut state)? {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// The state, or one that stands for it, was followed from there already. Otherwise it is noted; with many there,
    /// it becomes one with the last.
    fn known(&mut self, at: usize, state: &mut State) -> bool {
        let seen = &mut self.seen[at];
        if seen.iter().any(|old| old.contains(state)) {
            return true;
        }
        let same_calls = seen.iter().filter(|old| old.can_join(state)).count();
        if same_calls >= STATES {
            if let Some(last) = seen.iter_mut().rev().find(|old| old.can_join(state)) {
                last.join(state, at);
                *state = last.clone();
                return false;
            }
        }
        seen.push(state.clone());
        false
    }

    /// Follows one instruction; returns the next, or none where the way ends.
    fn step(&mut self, state: &mut State) -> Result<Option<usize>, Refused> {
        let next = self.at + 1;
        match self.object.code[self.at] {
            Insn::Alu { op, wide, dst, src } => self.alu(state, op, wide, dst, src)?,
            Insn::Negate { wide, dst } => self.change_number(state, dst, wide)?,
            Insn::MoveSigned { wide, bits, dst, src } => self.move_signed(state, wide, bits, dst, src)?,
            Insn::ByteSwap { how, bits, dst } => self.byte_swap(state, how, bits, dst)?,
            Insn::Load { size, signed, dst, base, off } => self.load(state, size, signed, dst, base, off)?,
            Insn::Store { size, base, off, src } => self.store(state, size, base, off, src)?,
            Insn::Atomic { op, size, fetch, base, off, src } => {
                self.atomic(state, op, size, fetch, (base, off), src)?;
            }
            Insn::Jump { target } => return Ok(Some(target)),
            Insn::Branch { cond, wide, dst, src, target } => {
                return self.branch(state, cond, wide, dst, src, target);
            }
            Insn::CallHelper { id } => self.call_helper(state, id)?,
            Insn::CallFunction { target } => return self.call(state, target).map(Some),
            Insn::Exit => return self.exit(state),
            Insn::Constant { dst, value } => {
                state.set(dst, Value::exactly(value));
                return Ok(Some(next + 1));
            }
            Insn::Map { dst, map } => {
                state.set(dst, Value::Map(map));
                return Ok(Some(next + 1));
            }
            Insn::MapData { dst, map, off } => {
                state.set(dst, Value::InMap(map, value::Offset::new(off.into())));
                return Ok(Some(next + 1));
            }
            Insn::Second => return Err("is the second half of a constant".into()),
        }
        Ok(Some(next))
    }

    fn call(&mut self, state: &mut State, target: usize) -> Result<usize, Refused> {
        if state.frames.len() >= DEEPEST {
            return Err(format!("calls functions more than {DEEPEST} deep"));
        }
        let mut frame = Frame::new(state.depth() + 1, self.at + 1);
        frame.registers[1..=5].copy_from_slice(&state.frame().registers[1..=5]);
        state.frames.push(frame);
        Ok(target)
    }

    fn exit(&mut self, state: &mut State) -> Result<Option<usize>, Refused> {
        let result = state.get(0);
        if !matches!(result, Value::Number(_)) {
            return Err(format!("returns {result} in r0 instead of a number"));
        }
        if state.frames.len() > 1 {
            let depth = state.depth();
            let back = state.frame().back;
            state.frames.pop();
            // Pointers to the stack of the function that ended point nowhere.
            state.each(|value| {
                if matches!(value, Value::Stack(of, _) if *of == depth) {
                    *value = Value::Mixed;
                }
            });
            let registers = &mut state.frame_mut().registers;
            registers[1..=5].fill(Value::Nothing);
            registers[0] = result;
            return Ok(Some(back));
        }
        if !state.open.is_empty() {
            return Err("ends the program with a ring buffer's record neither submitted nor discarded".into());
        }
        Ok(None)
    }

    /// A name for what the present instruction makes.
    fn name(&self) -> value::Id {
        1 + self.at as value::Id
    }
}
