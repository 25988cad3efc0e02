//! A plain interpreter: the meaning of each instruction in one place, and every access compared with all memory that a
//! run may use. Slow; the compiled form is tested against it.
use super::{Execute, Fault, Run, helpers};
use crate::check::alu::{compute, swapped};
use crate::check::branch::holds;
use crate::check::{Compared, Facts};
use crate::helpers as table;
use crate::insn::{Atomic, FP, Insn, Operand, Reg, Size};
use crate::maps::Map;
use crate::object::Object;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

const STACK: usize = 512;
const DEEPEST: usize = 8;
const LOW: u64 = u32::MAX as u64;

pub(crate) struct Interpreter {
    object: Object,
    facts: Arc<Facts>,
}

/// A function that is being executed.
struct Frame {
    registers: [u64; 11],
    back: usize,
}

struct State<'a> {
    run: &'a mut Run,
    facts: &'a Facts,
    frames: Vec<Frame>,
    stack: Vec<[u64; STACK / 8]>,
    at: usize,
}

impl Interpreter {
    pub(crate) fn new(object: Object, facts: Arc<Facts>) -> Interpreter {
        Interpreter { object, facts }
    }
}

impl Execute for Interpreter {
    fn execute(&self, run: &mut Run) -> u64 {
        let context = std::ptr::from_mut(run) as u64;
        let stack = vec![[0; STACK / 8]; DEEPEST];
        let mut state = State { run, facts: &self.facts, frames: Vec::new(), stack, at: 0 };
        state.enter([context, 0, 0, 0, 0], usize::MAX);
        loop {
            match state.step(&self.object) {
                Ok(Some(next)) => state.at = next,
                Ok(None) => return state.get(0),
                Err(fault) => {
                    state.run.fault = fault as u32;
                    state.run.fault_at = state.at as u32;
                    return 0;
                }
            }
        }
    }
}

impl State<'_> {
    fn enter(&mut self, arguments: [u64; 5], back: usize) {
        let mut registers = [0; 11];
        registers[1..=5].copy_from_slice(&arguments);
        registers[FP as usize] = self.stack[self.frames.len()].as_ptr() as u64 + STACK as u64;
        self.frames.push(Frame { registers, back });
    }

    fn frame(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    fn get(&mut self, reg: Reg) -> u64 {
        self.frame().registers[reg as usize]
    }

    fn set(&mut self, reg: Reg, value: u64) {
        self.frame().registers[reg as usize] = value;
    }

    fn operand(&mut self, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(reg) => self.get(reg),
            Operand::Imm(imm) => i64::from(imm) as u64,
        }
    }

    fn charge(&mut self, instructions: usize) -> Result<(), Fault> {
        self.run.budget -= instructions as i64;
        if self.run.budget < 0 { Err(Fault::Instructions) } else { Ok(()) }
    }

    fn jump(&mut self, target: usize) -> Result<Option<usize>, Fault> {
        if target <= self.at {
            self.charge(self.at - target + 1)?;
        }
        Ok(Some(target))
    }

    fn step(&mut self, object: &Object) -> Result<Option<usize>, Fault> {
        let next = self.at + 1;
        match object.code[self.at] {
            Insn::Alu { op, wide, dst, src } => {
                let (a, b) = (self.get(dst), self.operand(src));
                self.set(dst, compute(op, wide, a, b));
            }
            Insn::Negate { wide, dst } => {
                let value = self.get(dst).wrapping_neg();
                self.set(dst, if wide { value } else { value & LOW });
            }
            Insn::MoveSigned { wide, bits, dst, src } => {
                let shift = 64 - bits;
                let value = (((self.get(src) << shift) as i64) >> shift) as u64;
                self.set(dst, if wide { value } else { value & LOW });
            }
            Insn::ByteSwap { how, bits, dst } => {
                let value = self.get(dst);
                self.set(dst, swapped(how, bits, value));
            }
            Insn::Load { size, signed, dst, base, off } => {
                let at = self.get(base).wrapping_add_signed(off.into());
                let value = self.load(at, size, signed)?;
                self.set(dst, value);
            }
            Insn::Store { size, base, off, src } => {
                let at = self.get(base).wrapping_add_signed(off.into());
                let value = self.operand(src);
                self.store(at, size, value)?;
            }
            Insn::Atomic { op, size, fetch, base, off, src } => self.atomic(op, size, fetch, (base, off), src)?,
            Insn::Jump { target } => return self.jump(target),
            Insn::Branch { cond, wide, dst, src, target } => {
                let (mut a, mut b) = (self.get(dst), self.operand(src));
                match self.facts.compares[self.at] {
                    Some(Compared::MetaWithPacket) => b = self.run.meta_end as u64,
                    Some(Compared::PacketWithMeta) => a = self.run.meta_end as u64,
                    _ => {}
                }
                return if holds(cond, wide, a, b) { self.jump(target) } else { Ok(Some(next)) };
            }
            Insn::CallHelper { id } => self.call_helper(id)?,
            Insn::CallFunction { target } => {
                self.charge(object.function(target).map_or(0, |function| function.end - function.start))?;
                let arguments = [1, 2, 3, 4, 5].map(|reg| self.get(reg));
                self.enter(arguments, next);
                return Ok(Some(target));
            }
            Insn::Exit => return Ok(self.exit()),
            Insn::Constant { dst, value } => self.set(dst, value),
            Insn::Map { dst, map } => {
                let address = std::ptr::from_ref(&self.run.shared.maps[map as usize]) as u64;
                self.set(dst, address);
            }
            Insn::MapData { dst, map, off } => {
                let start = self.run.shared.maps[map as usize].values.address() as u64;
                self.set(dst, start + u64::from(off));
            }
            Insn::Second => {}
        }
        Ok(Some(next))
    }

    fn exit(&mut self) -> Option<usize> {
        let result = self.get(0);
        if self.frames.len() == 1 {
            return None;
        }
        let back = self.frame().back;
        self.frames.pop();
        self.set(0, result);
        Some(back)
    }

    /// So many bytes at an address are memory that this run may use.
    fn may_use(&self, at: u64, size: u64) -> bool {
        let run = &self.run;
        let inside = |start: usize, end: usize| {
            let room = (end - start) as u64;
            let distance = at.wrapping_sub(start as u64);
            size <= room && distance <= room - size
        };
        let value = |map: &Map| {
            let distance = at.wrapping_sub(map.values.address() as u64);
            let in_value = distance.checked_rem(u64::from(map.stride)).unwrap_or(0);
            distance < map.values.bytes() as u64 && in_value + size <= map.definition.value_size.into()
        };
        let ring = |map: &Map| {
            map.ring().is_some_and(|ring| {
                let (start, bytes) = ring.memory();
                inside(start, start + bytes)
            })
        };
        let stack = self.stack.as_ptr() as usize;
        inside(run.data, run.data_end)
            || inside(run.meta, run.meta_end)
            || inside(stack, stack + DEEPEST * STACK)
            || run.shared.maps.iter().any(|map| value(map) || ring(map))
    }

    fn load(&mut self, at: u64, size: Size, signed: bool) -> Result<u64, Fault> {
        let run = std::ptr::from_mut(self.run) as u64;
        let field = at.wrapping_sub(run);
        if field < 24 {
            return Ok(match field {
                0 => self.run.data as u64,
                4 => self.run.data_end as u64,
                8 => self.run.meta as u64,
                16 => self.run.replica.into(),
                _ => 0,
            });
        }
        if !self.may_use(at, size.into()) {
            return Err(Fault::OutOfBounds);
        }
        let mut bytes = [0; 8];
        // SAFETY: `may_use` found so many bytes in memory of this run; the stack is behind a pointer of its own.
        unsafe { std::ptr::copy_nonoverlapping(at as usize as *const u8, bytes.as_mut_ptr(), size.into()) };
        let value = u64::from_le_bytes(bytes);
        let shift = 64 - 8 * u32::from(size);
        Ok(if signed { (((value << shift) as i64) >> shift) as u64 } else { value })
    }

    fn store(&mut self, at: u64, size: Size, value: u64) -> Result<(), Fault> {
        if !self.may_use(at, size.into()) {
            return Err(Fault::OutOfBounds);
        }
        let bytes = value.to_le_bytes();
        // SAFETY: as for loads.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as usize as *mut u8, size.into()) };
        Ok(())
    }

    fn atomic(&mut self, op: Atomic, size: Size, fetch: bool, (base, off): (Reg, i16), src: Reg) -> Result<(), Fault> {
        let at = self.get(base).wrapping_add_signed(off.into());
        if !self.may_use(at, size.into()) {
            return Err(Fault::OutOfBounds);
        }
        if at % u64::from(size) != 0 {
            return Err(Fault::Unaligned);
        }
        let (value, expected) = (self.get(src), self.get(0));
        let change = |old: u64| match op {
            Atomic::Add => Some(old.wrapping_add(value)),
            Atomic::Or => Some(old | value),
            Atomic::And => Some(old & value),
            Atomic::Xor => Some(old ^ value),
            Atomic::Exchange => Some(value),
            Atomic::CompareExchange => (old == expected).then_some(value),
        };
        let before = if size == 8 {
            // SAFETY: in bounds and aligned, as was just found.
            let word = unsafe { AtomicU64::from_ptr(at as usize as *mut u64) };
            word.fetch_update(SeqCst, SeqCst, change).unwrap_or_else(|old| old)
        } else {
            // SAFETY: the same.
            let word = unsafe { AtomicU32::from_ptr(at as usize as *mut u32) };
            let half = |old: u32| match op {
                Atomic::CompareExchange => (old == expected as u32).then_some(value as u32),
                _ => change(old.into()).map(|new| new as u32),
            };
            word.fetch_update(SeqCst, SeqCst, half).unwrap_or_else(|old| old).into()
        };
        match op {
            Atomic::CompareExchange => self.set(0, before),
            _ if fetch => self.set(src, before),
            _ => {}
        }
        Ok(())
    }

    fn call_helper(&mut self, id: u32) -> Result<(), Fault> {
        let helper = table::find(id).ok_or(Fault::OutOfBounds)?;
        let arguments = [1, 2, 3, 4, 5].map(|reg| self.get(reg));
        for (index, argument) in self.facts.arguments[self.at].iter().enumerate() {
            let Some(argument) = argument else { continue };
            let bytes = argument.bytes.map_or_else(|| arguments[index + 1], u64::from);
            if bytes > 0 && !self.may_use(arguments[index], bytes) {
                return Err(Fault::OutOfBounds);
            }
        }
        let [a, b, c, d, e] = arguments;
        let result = helpers::function(helper.name)(self.run, a, b, c, d, e);
        self.set(0, result);
        Ok(())
    }
}

/// The context's fields are looked up by their offset in `struct xdp_md`, which the run's own fields cover.
const _: () = assert!(offset_of!(Run, now) >= 24);
