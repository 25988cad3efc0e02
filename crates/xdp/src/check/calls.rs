//! Calls of helpers: are the arguments what the helper takes?
use super::access::Use;
use super::state::State;
use super::value::{FAR, Number, Offset, Value};
use super::{Argument, Check, Refused};
use crate::helpers::{self, Arg, Helper, Name, Returns};
use crate::object::MapKind;

/// Bytes that a helper may be given by a size that is known only at run time.
const MOST_BYTES: u64 = 65_536;

/// Bytes of a record in a ring buffer.
const MOST_RECORD: u64 = 1 << 20;

impl Check<'_> {
    pub(super) fn call_helper(&mut self, state: &mut State, id: u32) -> Result<(), Refused> {
        let helper = helpers::find(id)
            .ok_or_else(|| format!("calls the helper {}, which is not supported here", helpers::name(id)))?;
        let mut map = None;
        for (index, kind) in helper.args.iter().enumerate() {
            let value = state.get(index as u8 + 1);
            let reg = index + 1;
            let wrong = |what: &str| Err(format!("calls {} with {value} in r{reg} instead of {what}", helper.text));
            match kind {
                Arg::None => {}
                Arg::Number | Arg::Fixed | Arg::Size => {
                    if !matches!(value, Value::Number(_)) {
                        return wrong("a number");
                    }
                }
                Arg::Context if value != Value::Context => return wrong("the context"),
                Arg::Context => {}
                Arg::Map | Arg::Ring => match value {
                    Value::Map(index) => map = Some(self.map_argument(helper, index, *kind)?),
                    _ => return wrong("a map"),
                },
                Arg::Record => match value {
                    Value::Record { off: Offset::ZERO, .. } => {}
                    _ => return wrong("the start of a ring buffer's record"),
                },
                Arg::Key | Arg::Value | Arg::Read | Arg::ReadOrNull | Arg::Write => {
                    self.memory_argument(state, helper, index, map)?;
                }
            }
        }
        if let Some(map) = map {
            self.same_map(map)?;
        }
        let result = self.effect(state, helper, map)?;
        let registers = &mut state.frame_mut().registers;
        registers[1..=5].fill(Value::Nothing);
        registers[0] = result;
        Ok(())
    }

    fn map_argument(&self, helper: &Helper, index: u32, kind: Arg) -> Result<u32, Refused> {
        let map = &self.object.maps[index as usize];
        let ring = map.kind == MapKind::RingBuffer;
        if ring != (kind == Arg::Ring) || matches!(map.kind, MapKind::Data { .. }) {
            return Err(format!("calls {} with the map \"{}\" of type {}", helper.text, map.name, map.kind.name()));
        }
        if helper.name == Name::MapDelete && map.kind.is_array() {
            return Err(format!(
                "deletes from the map \"{}\", which is an array: its entries are always there",
                map.name
            ));
        }
        Ok(index)
    }

    fn same_map(&mut self, map: u32) -> Result<(), Refused> {
        let known = self.facts.maps[self.at].get_or_insert(map);
        if *known == map { Ok(()) } else { Err("uses different maps depending on the way that leads here".into()) }
    }

    fn memory_argument(
        &mut self,
        state: &mut State,
        helper: &Helper,
        index: usize,
        map: Option<u32>,
    ) -> Result<(), Refused> {
        let kind = helper.args[index];
        let reg = index as u8 + 1;
        let pointer = state.get(reg);
        let map = map.map(|map| &self.object.maps[map as usize]);
        let (bytes, most) = match (kind, map) {
            (Arg::Key, Some(map)) => (Some(map.key_size), map.key_size),
            (Arg::Value, Some(map)) => (Some(map.value_size), map.value_size),
            _ => {
                let Value::Number(size) = state.get(reg + 1) else {
                    return Err(format!("calls {} without a size in r{}", helper.text, reg + 1));
                };
                if size.max > MOST_BYTES {
                    return Err(format!(
                        "calls {} with a size in r{} that is not known to be small",
                        helper.text,
                        reg + 1
                    ));
                }
                // Null goes with no bytes.
                let null = matches!(pointer, Value::Number(n) if n.known() == Some(0));
                if kind == Arg::ReadOrNull && null && size.known() == Some(0) {
                    return Ok(());
                }
                if size.max == 0 {
                    return Ok(());
                }
                (None, size.max as u32)
            }
        };
        let how = if kind == Arg::Write { Use::Write } else { Use::Read };
        if kind == Arg::Write {
            self.written(state, pointer, 0, most);
        }
        let context = |why: Refused| format!("calls {}, which {why}", helper.text);
        let mut access = self.memory(state, pointer, 0, most, how).map_err(context)?;
        if let Value::Stack(depth, at) = pointer {
            if !access.proved {
                return Err(format!("calls {} with stack that is not known to be in bounds", helper.text));
            }
            let last = at.last() + i64::from(most);
            let frame = &mut state.frames[depth as usize];
            if kind == Arg::Write {
                if at.more == 0 {
                    (at.fixed..last).for_each(|byte| frame.write(byte, 1, Value::ANY));
                } else {
                    frame.blur(at.fixed, last);
                }
            } else if !frame.written(at.fixed, last - at.fixed) {
                return Err(format!("calls {} with stack in r{reg} that was not all written", helper.text));
            }
        } else if matches!(pointer, Value::InMap(..)) && !access.proved {
            return Err(format!("calls {} with a map's value that is not known to be large enough", helper.text));
        }
        access.aligned = false;
        self.note_argument(index, Argument { access, bytes })
    }

    /// What a helper leaves behind, and returns.
    fn effect(&mut self, state: &mut State, helper: &Helper, map: Option<u32>) -> Result<Value, Refused> {
        self.changes(state, helper.name);
        if helper.moves_packet {
            state.each(|value| {
                if matches!(value, Value::Packet { .. } | Value::PacketEnd | Value::Meta { .. }) {
                    *value = Value::Mixed;
                }
            });
        }
        match helper.name {
            Name::RingReserve => return self.reserve(state),
            Name::RingSubmit | Name::RingDiscard => {
                if let Value::Record { id, .. } = state.get(1) {
                    state.open.retain(|open| *open != id);
                    state.each(|value| {
                        if matches!(value, Value::Record { id: other, .. } if *other == id) {
                            *value = Value::Mixed;
                        }
                    });
                }
            }
            _ => {}
        }
        Ok(match (helper.returns, map) {
            (Returns::ValueOrNull, Some(map)) => {
                state.rename(self.name());
                Value::InMapOrNull(map, self.name())
            }
            _ => match helper.name {
                Name::Random | Name::Processor => Value::Number(Number::up_to(u32::MAX.into())),
                Name::FrameLength => Value::Number(Number::up_to(1 << 20)),
                _ => Value::ANY,
            },
        })
    }

    /// What of the packet a helper changes.
    fn changes(&mut self, state: &mut State, name: Name) {
        match name {
            Name::AdjustHead => {
                let by = match state.get(2) {
                    Value::Number(by) => by.known().map(|by| by as i32),
                    _ => None,
                };
                let off = by.map_or(FAR, |by| by.max(0) as u64);
                state.stripped = state.stripped.saturating_add(off).min(FAR);
                let written = self.facts.written.get_or_insert_default();
                written.stripped = written.stripped.max(state.stripped);
                written.below = written.below.max(state.stripped);
            }
            Name::AdjustTail | Name::StoreBytes => self.facts.written.get_or_insert_default().below = FAR,
            _ => {}
        }
    }

    fn reserve(&mut self, state: &mut State) -> Result<Value, Refused> {
        let bytes = match state.get(2) {
            Value::Number(size) => size.known().filter(|size| (1..=MOST_RECORD).contains(size)),
            _ => None,
        };
        let bytes = bytes.ok_or("reserves a ring buffer's record whose size is not a constant of 1 byte to 1 MiB")?;
        let id = self.name();
        if state.open.contains(&id) {
            return Err(
                "reserves another ring buffer's record before the one from the last iteration is given back".into()
            );
        }
        state.open.push(id);
        Ok(Value::RecordOrNull { id, bytes: bytes as u32 })
    }
}
