//! Native code of parsers. A parser's states are laid out once for each position at which they are reached. So every
//! field is at an offset that is known when the code is made.
use super::context::In;
use super::facts::Facts;
use super::function::{Lower, Refusal, call, container};
use super::values::Scope;
use crate::ir::{Dst, Expr, ExprKind, FieldId, Gress, Match, ParseOp, Target, mask};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64, I128};
use cranelift_codegen::ir::{Block, InstBuilder, InstructionData, MemFlags, Opcode, Type, Value};

/// States of a parser, each counted for every position at which it is reached.
const MOST_STATES: usize = 256;
/// Bits of port metadata behind the architecture's header at ingress; always zero here.
const PORT_METADATA: u32 = 192;

/// Code of one state at one position for different facts, at most; beyond, one for no known facts.
const COPIES: usize = 8;
/// Where a parser can be: state, bits consumed, sums of the rest that are still to be made, what is known of fields.
type Spot = (usize, u32, Vec<(usize, Dst)>, Facts);
/// In place of a state's number.
const ACCEPTED: usize = usize::MAX;

impl<'p> Lower<'_, 'p> {
    /// Bits that the architecture puts in front of a packet.
    fn front(&self) -> u32 {
        let (name, port_metadata) = match self.gress {
            Gress::Ingress => ("ingress_intrinsic_metadata_t", PORT_METADATA),
            Gress::Egress => ("egress_intrinsic_metadata_t", 0),
        };
        let mut headers = self.program.headers.iter().filter(|h| h.gress == self.gress);
        headers.find(|h| h.type_name == name).map_or(0, |h| h.bits.next_multiple_of(8)) + port_metadata
    }

    pub(super) fn parser(&mut self) -> Result<(), Refusal> {
        let start = self.b.create_block();
        self.b.ins().jump(start, &[]);
        let mut known: Vec<(Spot, Block)> = vec![((0, 0, Vec::new(), self.facts.clone()), start)];
        let mut done = 0;
        while let Some((spot, block)) = known.get(done).cloned() {
            done += 1;
            self.b.switch_to_block(block);
            self.facts = spot.3.clone();
            if spot.0 == ACCEPTED {
                self.accept(spot.1, &spot.2)?;
                self.control();
            } else {
                self.state(spot, &mut known)?;
            }
            if known.len() > MOST_STATES {
                return Err(Refusal::new(format!("a parser that goes through more than {MOST_STATES} states")));
            }
        }
        Ok(())
    }

    fn state(&mut self, spot: Spot, known: &mut Vec<(Spot, Block)>) -> Result<(), Refusal> {
        let (number, mut cursor, mut residuals, _) = spot;
        let program = self.program;
        let half = program.half(self.gress);
        let Some(state) = half.states.get(number) else {
            let reject = self.reject;
            self.b.ins().jump(reject, &[]);
            return Ok(());
        };
        for (at, op) in state.ops.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &state.ops[before]);
            if let Some(sum) = self.sum_of_header(op, before, cursor) {
                self.add_sum(sum.0, sum.1);
                continue;
            }
            self.parse_op(op, &mut cursor, &mut residuals)?;
        }
        let mut keys = Vec::new();
        for e in &state.on {
            keys.push(self.eval(e, Scope { cursor, ..Scope::default() })?);
        }
        let before = self.facts.clone();
        for (set, target) in &state.cases {
            let cond = self.case(set, &keys);
            self.facts = before.clone();
            for (m, e) in set.iter().zip(&state.on) {
                if let ExprKind::Field(id) = e.kind {
                    self.facts.set(id, self.facts.of(id).and(*m));
                }
            }
            let block = self.target(*target, cursor, &residuals, known)?;
            let Some(cond) = cond else {
                self.b.ins().jump(block, &[]);
                return Ok(());
            };
            let next = self.b.create_block();
            self.b.ins().brif(cond, block, &[], next, &[]);
            self.enter(next);
        }
        let reject = self.reject;
        self.b.ins().jump(reject, &[]);
        Ok(())
    }

    /// Whether a case holds; nothing where it always does.
    fn case(&mut self, set: &[Match], keys: &[Value]) -> Option<Value> {
        let mut all = None;
        for (m, key) in set.iter().zip(keys) {
            if matches!(m, Match::Mask(_, 0)) {
                continue;
            }
            let flag = self.test(*key, *m, 0);
            all = Some(match all {
                None => flag,
                Some(before) => self.b.ins().band(before, flag),
            });
        }
        all
    }

    /// The code for a transition's target.
    fn target(
        &mut self,
        target: Target,
        cursor: u32,
        residuals: &[(usize, Dst)],
        known: &mut Vec<(Spot, Block)>,
    ) -> Result<Block, Refusal> {
        match target {
            Target::Reject => Ok(self.reject),
            Target::State(next) => Ok(self.spot(next, cursor, residuals, known)),
            Target::Accept if cursor < self.front() => {
                Err(Refusal::new("a parser that accepts before the metadata of the architecture"))
            }
            Target::Accept => Ok(self.spot(ACCEPTED, cursor, residuals, known)),
        }
    }

    fn spot(&mut self, state: usize, cursor: u32, residuals: &[(usize, Dst)], known: &mut Vec<(Spot, Block)>) -> Block {
        let program = self.program;
        let on: Vec<FieldId> = self.half.states.iter().flat_map(|state| &state.on).flat_map(Expr::fields).collect();
        let all = self.between().is_some();
        let keep = |id: FieldId| all || self.ways.decides(id.0 as usize) || on.contains(&id);
        let facts = self.facts.restricted(keep, |id| program.field(id).ty.width());
        let here = |k: &Spot| k.0 == state && k.1 == cursor && k.2 == residuals;
        let full = known.iter().filter(|(k, _)| here(k)).count() >= COPIES;
        for facts in [facts, Facts::none(program.fields.len())] {
            if let Some((_, block)) = known.iter().find(|(k, _)| here(k) && k.3 == facts) {
                return *block;
            }
            if !full || facts == Facts::none(program.fields.len()) {
                let block = self.b.create_block();
                known.push(((state, cursor, residuals.to_vec(), facts), block));
                return block;
            }
        }
        self.reject
    }

    fn accept(&mut self, cursor: u32, residuals: &[(usize, Dst)]) -> Result<(), Refusal> {
        if let Some(bits) = self.between() {
            let all = cursor - self.front() == bits && residuals.is_empty();
            return if all { Ok(()) } else { Err(Refusal::new("headers between the halves that egress leaves")) };
        }
        // All of them are there: the step that moved the cursor checked.
        let payload_at = (cursor - self.front()).div_ceil(8);
        let payload_at = self.b.ins().iconst(I64, payload_at as i64);
        self.b.def_var(self.payload_at, payload_at);
        for (unit, dst) in residuals {
            let (packet, len) = (self.input(In::Packet), self.input(In::Len));
            let from = self.b.ins().iadd(packet, payload_at);
            let left = self.b.ins().isub(len, payload_at);
            let more = call(self, |h| h.sum, &[from, left]);
            let more = self.resize(more, I32);
            let sum = self.b.use_var(self.sums[*unit]);
            let sum = self.b.ins().iadd(sum, more);
            let sum = self.carried(sum);
            self.assign_field(dst, sum, 16);
        }
        Ok(())
    }

    fn parse_op(&mut self, op: &ParseOp, cursor: &mut u32, residuals: &mut Vec<(usize, Dst)>) -> Result<(), Refusal> {
        let scope = Scope { cursor: *cursor, ..Scope::default() };
        match op {
            ParseOp::Extract(h, _) => {
                self.extract(*h, *cursor)?;
                *cursor += self.program.headers[*h].bits;
            }
            ParseOp::Advance(n) => {
                *cursor = cursor.checked_add(*n).ok_or_else(|| Refusal::new("an advance beyond any packet"))?;
                self.need(*cursor)?;
            }
            ParseOp::Assign(dst, e) => self.assign(dst, e, scope)?,
            ParseOp::Checksum(unit, values, subtract) => {
                let sum = self.sum_of(values, scope)?;
                let sum = if *subtract { self.b.ins().bxor_imm(sum, 0xffff) } else { sum };
                self.add_sum(*unit, sum);
            }
            ParseOp::Verify(unit, dst) => {
                let sum = self.b.use_var(self.sums[*unit]);
                let wrong = self.b.ins().icmp_imm(IntCC::NotEqual, sum, 0xffff);
                let wrong = self.b.ins().uextend(I32, wrong);
                self.assign_field(dst, wrong, 1);
            }
            ParseOp::Residual(unit, dst) => residuals.push((*unit, dst.clone())),
        }
        Ok(())
    }

    fn add_sum(&mut self, unit: usize, sum: Value) {
        let var = self.sums[unit];
        let before = self.b.use_var(var);
        let sum = self.b.ins().iadd(before, sum);
        let sum = self.carried(sum);
        self.b.def_var(var, sum);
    }

    /// A checksum over the whole header that was extracted just now is one over the packet's bytes. The unit and the
    /// sum.
    fn sum_of_header(&mut self, op: &ParseOp, before: Option<&ParseOp>, cursor: u32) -> Option<(usize, Value)> {
        let (ParseOp::Checksum(unit, values, false), Some(ParseOp::Extract(h, _))) = (op, before) else { return None };
        let header = &self.program.headers[*h];
        let whole = values.len() == header.fields.len()
            && values.iter().zip(&header.fields).all(|(e, id)| e.kind == ExprKind::Field(*id));
        let begin = cursor.checked_sub(header.bits)?.checked_sub(self.front())?;
        if !whole || header.intrinsic || self.between().is_some() || begin % 8 != 0 || header.bits % 32 != 0 {
            return None;
        }
        let flags = MemFlags::new().with_notrap().with_readonly().with_can_move();
        let packet = self.input(In::Packet);
        let mut total = self.b.ins().iconst(I64, 0);
        for word in 0..header.bits / 32 {
            let part = self.b.ins().uload32(flags, packet, (begin / 8 + word * 4) as i32);
            total = self.b.ins().iadd(total, part);
        }
        // Sums of swapped bytes are the swapped bytes of the sum (RFC 1071 section 2).
        let sum = self.carried_down(total);
        let sum = self.b.ins().ireduce(I16, sum);
        let sum = self.b.ins().bswap(sum);
        Some((*unit, self.b.ins().uextend(I32, sum)))
    }

    /// Rejects a packet that is shorter than these bits, the architecture's included.
    fn need(&mut self, bits: u32) -> Result<(), Refusal> {
        if bits <= self.front() {
            return Ok(());
        }
        if let Some(between) = self.between() {
            let there = bits - self.front() <= between;
            return if there { Ok(()) } else { Err(Refusal::new("egress behind the headers between the halves")) };
        }
        let enough = self.reaches(bits);
        let next = self.b.create_block();
        let reject = self.reject;
        self.b.ins().brif(enough, next, &[], reject, &[]);
        self.enter(next);
        Ok(())
    }

    fn reaches(&mut self, bits: u32) -> Value {
        let bytes = (bits - self.front()).div_ceil(8);
        let len = self.input(In::Len);
        self.b.ins().icmp_imm(IntCC::UnsignedGreaterThanOrEqual, len, bytes as i64)
    }

    fn extract(&mut self, h: usize, cursor: u32) -> Result<(), Refusal> {
        let program = self.program;
        let header = &program.headers[h];
        if cursor < self.front() {
            if !header.intrinsic || cursor != 0 {
                return Err(Refusal::new("a header in the metadata of the architecture"));
            }
            self.architecture(h);
        } else {
            self.need(cursor + header.bits)?;
            let mut at = cursor;
            for id in &header.fields {
                let width = program.field(*id).ty.width();
                if self.between().is_some() {
                    self.hand_over(*id, at - self.front())?;
                } else {
                    let value = self.bits(at, width);
                    self.set_field(*id, value);
                }
                at += width;
            }
        }
        self.settle_field(header.valid, 1);
        Ok(())
    }

    /// Intrinsic metadata of a packet.
    fn architecture(&mut self, h: usize) {
        let program = self.program;
        let header = &program.headers[h];
        for id in &header.fields {
            let field = program.field(*id);
            let what = match &field.name[header.name.len() + 1..] {
                "ingress_port" | "egress_port" => In::Port,
                "egress_qid" => In::Queue,
                "pkt_length" => In::Length,
                "ingress_mac_tstamp" | "enq_tstamp" => In::Now,
                _ => continue,
            };
            let width = field.ty.width();
            let value = self.given(what);
            let value = self.resize(value, container(width));
            let value = self.low_bits(value, width);
            self.set_field(*id, value);
        }
    }

    /// Bits of the packet that are there, as a number.
    fn bits(&mut self, at: u32, width: u32) -> Value {
        if width > 64 {
            let (high, low) = (self.bits(at, width - 64), self.bits(at + width - 64, 64));
            let high = self.resize(high, I64);
            return self.b.ins().iconcat(low, high);
        }
        let at = at - self.front();
        let (first, last) = (at / 8, (at + width - 1) / 8);
        let trailing = (last + 1) * 8 - (at + width);
        let bytes = last - first + 1;
        if bytes == 9 {
            let high = self.bytes(first, 8);
            let low = self.bytes(last, 1);
            let high = self.b.ins().ishl_imm(high, 8 - trailing as i64);
            let low = self.b.ins().ushr_imm(low, trailing as i64);
            let value = self.b.ins().bor(high, low);
            return self.low_bits(value, width);
        }
        let value = self.bytes(first, bytes);
        let value = if trailing == 0 { value } else { self.b.ins().ushr_imm(value, trailing as i64) };
        let value = self.low_bits(value, width);
        self.resize(value, container(width))
    }

    /// Up to eight bytes of the packet, most significant first, in 64 bits.
    fn bytes(&mut self, first: u32, count: u32) -> Value {
        let flags = MemFlags::new().with_notrap().with_readonly().with_can_move();
        let packet = self.input(In::Packet);
        let mut value = None;
        let (mut at, mut left) = (first, count);
        while left > 0 {
            let size = [8, 4, 2, 1].into_iter().find(|size| *size <= left).unwrap_or(1);
            let ty = [I8, I16, I32, I64][size.trailing_zeros() as usize];
            let part = self.b.ins().load(ty, flags, packet, at as i32);
            let part = if size > 1 { self.b.ins().bswap(part) } else { part };
            let part = self.resize(part, I64);
            value = Some(match value {
                None => part,
                Some(before) => {
                    let before = self.b.ins().ishl_imm(before, size as i64 * 8);
                    self.b.ins().bor(before, part)
                }
            });
            (at, left) = (at + size, left - size);
        }
        value.unwrap_or_else(|| self.constant(I64, 0))
    }

    /// Bits ahead of the cursor; zero where the packet ends before.
    pub(super) fn lookahead(&mut self, at: u32, width: u32) -> Result<Value, Refusal> {
        if self.between().is_some() {
            return Err(Refusal::new("a look ahead between the halves"));
        }
        if at < self.front() {
            return Err(Refusal::new("a look ahead into the metadata of the architecture"));
        }
        let to = container(width);
        let var = self.variable_of(to);
        let there = self.reaches(at + width);
        let read = |l: &mut Self| {
            let value = l.bits(at, width);
            l.b.def_var(var, value);
            Ok(())
        };
        self.branch(there, read, |_| Ok(()))?;
        Ok(self.b.use_var(var))
    }

    /// Ones' complement addition: carries come round (RFC 1071).
    fn carried(&mut self, sum: Value) -> Value {
        let low = self.low_bits(sum, 16);
        let high = self.b.ins().ushr_imm(sum, 16);
        self.b.ins().iadd(low, high)
    }

    /// The ones' complement sum of values that stand one after the other, as 16-bit words, in 32 bits. Constants are
    /// summed now.
    pub(super) fn sum_of(&mut self, values: &[Expr], scope: Scope<'_>) -> Result<Value, Refusal> {
        let (mut at, mut constants) = (0, 0);
        let mut total = None;
        for e in values {
            let width = e.ty.width();
            at += width;
            let up = (16 - at % 16) % 16;
            if width > 48 {
                if up > 0 {
                    return Err(Refusal::new("a checksum over a field of more than 48 bits that ends within a word"));
                }
                let value = self.eval(e, scope)?;
                let sum = self.sum_of_wide(value);
                total = Some(match total {
                    Some(before) => self.b.ins().iadd(before, sum),
                    None => sum,
                });
                continue;
            }
            if let Some(known) = self.fold(e, scope) {
                let value = (known as u64) << up;
                constants += (value & 0xffff_ffff) + (value >> 32);
                continue;
            }
            let value = self.eval(e, scope)?;
            let value = self.resize(value, I64);
            let value = if up == 0 { value } else { self.b.ins().ishl_imm(value, up as i64) };
            let parts = match width + up > 48 {
                true => vec![self.low_bits(value, 32), self.b.ins().ushr_imm(value, 32)],
                false => vec![value],
            };
            for part in parts {
                total = Some(match total {
                    Some(before) => self.b.ins().iadd(before, part),
                    None => part,
                });
            }
        }
        let constants = self.constant(I64, constants.into());
        let total = match total {
            Some(total) => self.b.ins().iadd(total, constants),
            None => constants,
        };
        let sum = self.carried_down(total);
        Ok(self.resize(sum, I32))
    }

    /// The words of up to 128 bits, added up in twos: less than 35 bits.
    fn sum_of_wide(&mut self, value: Value) -> Value {
        let halves = match self.type_of(value) {
            I128 => {
                let (low, high) = self.b.ins().isplit(value);
                vec![low, high]
            }
            _ => vec![self.resize(value, I64)],
        };
        let mut sum = self.b.ins().iconst(I64, 0);
        for half in halves {
            for part in [self.low_bits(half, 32), self.b.ins().ushr_imm(half, 32)] {
                sum = self.b.ins().iadd(sum, part);
            }
        }
        sum
    }

    /// A sum of less than 2^16 values of 48 bits each, with all carries come round: 16 bits, zero only if all were
    /// zero.
    fn carried_down(&mut self, mut total: Value) -> Value {
        // A number and itself with its halves exchanged: the upper half is their sum, with the carry of the lower one.
        let turned = self.b.ins().rotl_imm(total, 32);
        total = self.b.ins().iadd(total, turned);
        total = self.b.ins().ushr_imm(total, 32);
        let word = self.resize(total, I32);
        let turned = self.b.ins().rotl_imm(word, 16);
        let sum = self.b.ins().iadd(word, turned);
        self.b.ins().ushr_imm(sum, 16)
    }

    /// Writes values one after the other, most significant bit first; the last byte is filled with zeros.
    pub(super) fn pack(&mut self, values: &[(Value, u32)], address: Value) {
        let mut pieces = Vec::new();
        for (value, width) in values {
            if *width > 64 {
                let wide = self.resize(*value, I128);
                let (low, high) = self.b.ins().isplit(wide);
                pieces.extend([(high, *width - 64), (low, 64)]);
            } else {
                pieces.push((self.resize(*value, I64), *width));
            }
        }
        let bytes = pieces.iter().map(|(_, width)| width).sum::<u32>().div_ceil(8);
        // Bits that wait until they are whole bytes; constants, for others behind them, too.
        let (mut waiting, mut count, mut at) = (None, 0, 0);
        for (place, (value, width)) in pieces.iter().enumerate() {
            let mut left = *width;
            while left > 0 {
                let take = left.min(64 - count);
                let part = if take == left { *value } else { self.b.ins().ushr_imm(*value, (left - take) as i64) };
                let part = self.low_bits(part, take);
                waiting = Some(match waiting {
                    None => part,
                    Some(before) => self.behind(before, part, take),
                });
                (count, left) = (count + take, left - take);
                let next = pieces.get(place + 1).filter(|_| left == 0 && count < 64);
                let constants = next.map(|(next, _)| *next).into_iter().chain(waiting);
                if count % 8 == 0 && !(next.is_some() && constants.clone().all(|value| self.known(value).is_some())) {
                    self.put(waiting.take(), count / 8, address, (at, bytes));
                    (at, count) = (at + count / 8, 0);
                }
            }
        }
        if let Some(last) = waiting {
            let last = self.b.ins().ishl_imm(last, (8 - count % 8) as i64);
            self.put(Some(last), count.div_ceil(8), address, (at, bytes));
        }
    }

    /// Bits, and so many more behind them.
    fn behind(&mut self, before: Value, bits: Value, count: u32) -> Value {
        if let (Some(before), Some(bits)) = (self.known(before), self.known(bits)) {
            return self.constant(I64, u128::from(before.wrapping_shl(count) | bits));
        }
        let before = self.b.ins().ishl_imm(before, count as i64);
        self.b.ins().bor(before, bits)
    }

    /// The value, if it is a constant.
    fn known(&self, value: Value) -> Option<u64> {
        let dfg = &self.b.func.dfg;
        match dfg.insts[dfg.value_def(value).inst()?] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => {
                Some(imm.bits() as u64 & mask(self.type_of(value).bits()) as u64)
            }
            InstructionData::Unary { opcode: Opcode::Uextend, arg } => self.known(arg),
            InstructionData::Binary { opcode: Opcode::Band, args: [a, b] } => Some(self.known(a)? & self.known(b)?),
            _ => None,
        }
    }

    /// Writes the low bytes of a number, most significant first, at a place of so many bytes. A number of an odd size
    /// is written with zeros behind it where other bytes follow, which are written later.
    fn put(&mut self, value: Option<Value>, count: u32, address: Value, (at, bytes): (u32, u32)) {
        let Some(mut value) = value else { return };
        let (mut at, mut left) = (at, count);
        let whole = count.next_power_of_two();
        if count != whole && whole <= 8 && at + whole <= bytes {
            value = self.b.ins().ishl_imm(value, i64::from(whole - count) * 8);
            left = whole;
        }
        while left > 0 {
            let size = [8, 4, 2, 1].into_iter().find(|size| *size <= left).unwrap_or(1);
            left -= size;
            let part = if left == 0 { value } else { self.b.ins().ushr_imm(value, left as i64 * 8) };
            let ty: Type = [I8, I16, I32, I64][size.trailing_zeros() as usize];
            let part = self.resize(part, ty);
            let part = if size > 1 { self.b.ins().bswap(part) } else { part };
            self.store(part, address, at as i32);
            at += size;
        }
    }
}
