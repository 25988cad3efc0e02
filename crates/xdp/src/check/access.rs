//! Loads and stores: which memory, and is it certain that it is in bounds?
use super::state::{STACK, State};
use super::value::{FAR, Number, Offset, Value};
use super::{Access, Argument, Check, Refused, Region};
use crate::insn::{Atomic, Operand, Reg, Size};
use crate::object::MapKind;

/// Fields of `struct xdp_md` (linux/bpf.h), all of 4 bytes.
const DATA: i64 = 0;
const DATA_END: i64 = 4;
const DATA_META: i64 = 8;
const CONTEXT: i64 = 24;

/// What is done with memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

impl Check<'_> {
    /// What is known of the use of `size` bytes at `off` from a pointer. Errors where it is certainly wrong, or where
    /// nothing could be checked at run time.
    pub(super) fn memory(
        &mut self,
        state: &State,
        pointer: Value,
        off: i64,
        size: u32,
        how: Use,
    ) -> Result<Access, Refused> {
        let bytes = i64::from(size);
        let access = |region, proved, at: Offset| {
            let known = at.more == 0 && at.fixed.abs() < FAR as i64;
            Access { region, proved, aligned: known && size > 0 && at.fixed % bytes == 0 }
        };
        match pointer {
            Value::Stack(depth, at) => {
                let at = at.plus(off);
                let proved = at.more < FAR && at.fixed >= -STACK && at.last() + bytes <= 0;
                certain(at, bytes, -STACK, 0, "the stack (512 bytes below r10)")?;
                if !proved {
                    if depth != state.depth() {
                        return Err("uses a caller's stack at an offset that is not known to be in bounds".into());
                    }
                    self.facts.wild_stack = true;
                }
                Ok(access(Region::Stack, proved, at))
            }
            Value::Packet { off: at, proved, .. } => Ok(packet_access(Region::Packet, at.plus(off), proved, bytes)),
            Value::Meta { off: at, proved, .. } => Ok(packet_access(Region::Meta, at.plus(off), proved, bytes)),
            Value::InMap(map, at) => {
                let at = at.plus(off);
                let definition = &self.object.maps[map as usize];
                let value = i64::from(definition.value_size);
                if how == Use::Write && definition.kind == (MapKind::Data { read_only: true }) {
                    return Err(format!("writes to constants ({})", definition.name));
                }
                certain(at, bytes, 0, value, &format!("the value of the map \"{}\" ({value} bytes)", definition.name))?;
                let proved = at.more < FAR && at.fixed >= 0 && at.last() + bytes <= value;
                Ok(access(Region::Map(map), proved, at))
            }
            Value::Record { bytes: room, off: at, .. } => {
                let at = at.plus(off);
                let what = format!("the ring buffer's record ({room} bytes)");
                certain(at, bytes, 0, room.into(), &what)?;
                if at.more >= FAR || at.fixed < 0 || at.last() + bytes > room.into() {
                    return Err("uses a ring buffer's record at an offset that is not known to be in bounds".into());
                }
                Ok(access(Region::Any, true, at))
            }
            Value::Context => Err("uses the context where memory is needed".into()),
            other => Err(format!("uses memory through a register that holds {other}")),
        }
    }

    /// Notes what is known about the present instruction's access, together with earlier ways.
    fn note(&mut self, access: Access) -> Result<(), Refused> {
        let known = &mut self.facts.accesses[self.at];
        *known = Some(known.map_or(Ok(access), |known| together(known, access))?);
        Ok(())
    }

    /// The same for an argument of a helper.
    pub(super) fn note_argument(&mut self, index: usize, argument: Argument) -> Result<(), Refused> {
        let known = &mut self.facts.arguments[self.at][index];
        *known = Some(match *known {
            None => argument,
            Some(known) if known.bytes == argument.bytes => {
                Argument { access: together(known.access, argument.access)?, bytes: known.bytes }
            }
            Some(_) => return Err("is called with arguments of different kinds".into()),
        });
        Ok(())
    }

    pub(super) fn load(
        &mut self,
        state: &mut State,
        size: Size,
        signed: bool,
        dst: Reg,
        base: Reg,
        off: i16,
    ) -> Result<(), Refused> {
        let pointer = state.get(base);
        let number = Value::Number(match (signed, size) {
            (true, _) | (_, 8) => Number::ANY,
            (false, size) => Number::up_to((1 << (8 * size)) - 1),
        });
        if pointer == Value::Context {
            let value = self.load_context(size, i64::from(off), signed)?;
            state.set(dst, value);
            return Ok(());
        }
        let access = self.memory(state, pointer, off.into(), size.into(), Use::Read)?;
        self.note(access)?;
        let value = match pointer {
            Value::Stack(depth, at) if access.proved => {
                let at = at.plus(off.into());
                let frame = &state.frames[depth as usize];
                if at.more == 0 {
                    frame.read(at.fixed, size).ok_or("reads stack that was never written")?
                } else if frame.written(at.fixed, at.last() + i64::from(size) - at.fixed) {
                    number
                } else {
                    return Err("reads stack that was never written".into());
                }
            }
            Value::InMap(map, at) => self.constant(map, at.plus(off.into()), size).unwrap_or(number),
            _ => number,
        };
        state.set(dst, if signed && !value.is_pointer() { number } else { value });
        Ok(())
    }

    fn load_context(&mut self, size: Size, off: i64, signed: bool) -> Result<Value, Refused> {
        if size != 4 || off % 4 != 0 || !(0..CONTEXT).contains(&off) || signed {
            return Err(format!("reads {size} bytes at {off} of the context, where struct xdp_md has no field"));
        }
        self.note(Access { region: Region::Context, proved: true, aligned: true })?;
        let start = Offset::ZERO;
        Ok(match off {
            DATA => Value::Packet { id: 0, off: start, proved: 0 },
            DATA_END => Value::PacketEnd,
            DATA_META => Value::Meta { id: 0, off: start, proved: 0 },
            _ => Value::Number(Number::up_to(u32::MAX.into())),
        })
    }

    /// What stands in a section of constants.
    fn constant(&self, map: u32, at: Offset, size: Size) -> Option<Value> {
        let definition = &self.object.maps[map as usize];
        if definition.kind != (MapKind::Data { read_only: true }) || at.more > 0 {
            return None;
        }
        let bytes = definition.initial.get(at.fixed as usize..)?.get(..size as usize)?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Some(Value::exactly(u64::from_le_bytes(word)))
    }

    pub(super) fn store(
        &mut self,
        state: &mut State,
        size: Size,
        base: Reg,
        off: i16,
        src: Operand,
    ) -> Result<(), Refused> {
        let value = self.operand(state, src)?;
        let pointer = state.get(base);
        if pointer == Value::Context {
            return Err("writes to the context".into());
        }
        let access = self.memory(state, pointer, off.into(), size.into(), Use::Write)?;
        self.note(access)?;
        if value.is_pointer() && !matches!(pointer, Value::Stack(..)) {
            return Err(format!("writes {value} where others can read it: addresses stay inside"));
        }
        self.written(state, pointer, off.into(), size.into());
        self.put(state, pointer, off.into(), size, value, access.proved);
        Ok(())
    }

    /// Notes what a store of `bytes` may change of the packet. Where the front moved, it may have moved less than it
    /// should.
    pub(super) fn written(&mut self, state: &State, pointer: Value, off: i64, bytes: u32) {
        if let Value::Packet { off: at, .. } = pointer {
            let at = at.plus(off);
            let end = at.last().saturating_add(bytes.into()).max(0) as u64;
            let known = at.more < FAR && at.fixed.abs() < FAR as i64;
            let written = self.facts.written.get_or_insert_default();
            written.below = written.below.max(if known { end + state.stripped } else { FAR });
        }
    }

    /// What a store leaves in the stack.
    fn put(&self, state: &mut State, pointer: Value, off: i64, size: Size, value: Value, proved: bool) {
        let Value::Stack(depth, at) = pointer else { return };
        let at = at.plus(off);
        let frame = &mut state.frames[depth as usize];
        if proved && at.more == 0 {
            frame.write(at.fixed, size, value);
        } else if proved {
            frame.blur(at.fixed, at.last() + i64::from(size));
        } else {
            frame.blur(-STACK, 0);
        }
    }

    pub(super) fn atomic(
        &mut self,
        state: &mut State,
        op: Atomic,
        size: Size,
        fetch: bool,
        (base, off): (Reg, i16),
        src: Reg,
    ) -> Result<(), Refused> {
        let pointer = state.get(base);
        if !matches!(pointer, Value::Stack(..) | Value::InMap(..)) {
            return Err(format!(
                "is an atomic operation through a register that holds {pointer}; only maps' values \
                                and the stack can be changed so"
            ));
        }
        self.number(state, src)?;
        if op == Atomic::CompareExchange {
            self.number(state, 0)?;
        }
        self.memory(state, pointer, off.into(), size.into(), Use::Read)?;
        let access = self.memory(state, pointer, off.into(), size.into(), Use::Write)?;
        if let (Value::Stack(depth, at), true) = (pointer, access.proved) {
            let at = at.plus(off.into());
            if !state.frames[depth as usize].written(at.fixed, at.last() + i64::from(size) - at.fixed) {
                return Err("changes stack that was never written".into());
            }
        }
        self.note(access)?;
        self.put(state, pointer, off.into(), size, Value::ANY, access.proved);
        let before = Value::Number(if size == 8 { Number::ANY } else { Number::up_to(u32::MAX.into()) });
        match op {
            Atomic::CompareExchange => state.set(0, before),
            _ if fetch => state.set(src, before),
            _ => {}
        }
        Ok(())
    }
}

fn packet_access(region: Region, at: Offset, proved: u32, bytes: i64) -> Access {
    // The variable part is never negative, and what was proved is counted from behind it.
    let proved = at.more < FAR && at.fixed >= 0 && at.fixed + bytes <= i64::from(proved);
    Access { region, proved, aligned: false }
}

/// An access at a fixed offset that cannot be in bounds.
fn certain(at: Offset, bytes: i64, first: i64, end: i64, what: &str) -> Result<(), Refused> {
    if at.more == 0 && at.fixed.abs() < FAR as i64 && (at.fixed < first || at.fixed + bytes > end) {
        return Err(format!("uses {bytes} bytes at offset {}, which is outside {what}", at.fixed));
    }
    Ok(())
}

/// What is known of an access on two ways.
fn together(a: Access, b: Access) -> Result<Access, Refused> {
    let (proved, aligned) = (a.proved && b.proved, a.aligned && b.aligned);
    if a.region == b.region {
        return Ok(Access { region: a.region, proved, aligned });
    }
    let context = a.region == Region::Context || b.region == Region::Context;
    if proved && !context {
        return Ok(Access { region: Region::Any, proved, aligned });
    }
    Err("uses different kinds of memory depending on the way that leads here, so that its bounds cannot be checked"
        .into())
}
