//! Loads, stores, and the bounds checks before them.
use super::{Body, STACK, own, plain};
use crate::check::{Access, Region};
use crate::insn::{Atomic, Operand, Reg, Size};
use crate::native::{Fault, Run};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, Value};
use std::mem::offset_of;

impl Body<'_, '_, '_> {
    pub(super) fn load(&mut self, size: Size, signed: bool, dst: Reg, base: Reg, off: i16) {
        let access = self.access();
        if access.region == Region::Context {
            let value = self.context_field(off);
            self.set(dst, value);
            return;
        }
        let pointer = self.get(base);
        self.check(access, pointer, off, size);
        let off = i32::from(off);
        let value = match (size, signed) {
            (1, false) => self.b.ins().uload8(I64, plain(), pointer, off),
            (2, false) => self.b.ins().uload16(I64, plain(), pointer, off),
            (4, false) => self.b.ins().uload32(plain(), pointer, off),
            (1, true) => self.b.ins().sload8(I64, plain(), pointer, off),
            (2, true) => self.b.ins().sload16(I64, plain(), pointer, off),
            (4, true) => self.b.ins().sload32(plain(), pointer, off),
            _ => self.b.ins().load(I64, plain(), pointer, off),
        };
        self.set(dst, value);
    }

    /// `struct xdp_md` has 32-bit fields; what a program gets from them are whole addresses, as in the kernel.
    fn context_field(&mut self, off: i16) -> Value {
        match off {
            0 => self.field(offset_of!(Run, data)),
            4 => self.field(offset_of!(Run, data_end)),
            8 => self.field(offset_of!(Run, meta)),
            // rx_queue_index: the replica. Interfaces have no numbers here.
            16 => self.small_field(offset_of!(Run, replica)),
            _ => self.small_field(offset_of!(Run, zero)),
        }
    }

    fn access(&self) -> Access {
        let unknown = Access { region: Region::Any, proved: true, aligned: false };
        self.compiler.facts.accesses[self.at].unwrap_or(unknown)
    }

    /// Checks whether an access is in bounds, where that is not proved.
    fn check(&mut self, access: Access, pointer: Value, off: i16, size: Size) {
        if !access.proved {
            let at = self.b.ins().iadd_imm(pointer, i64::from(off));
            let size = self.number(size.into());
            self.check_region(access.region, at, size);
        }
    }

    /// Checks whether `size` bytes at an address are in a region.
    pub(super) fn check_region(&mut self, region: Region, at: Value, size: Value) {
        let good = match region {
            Region::Packet => self.inside(at, size, (offset_of!(Run, data), offset_of!(Run, data_end))),
            Region::Meta => self.inside(at, size, (offset_of!(Run, meta), offset_of!(Run, meta_end))),
            Region::Stack => {
                let start = self.b.ins().stack_addr(I64, self.stack, 0);
                let distance = self.b.ins().isub(at, start);
                let room = self.number(STACK);
                self.fits(distance, size, room)
            }
            Region::Map(map) => self.inside_value(map, at, size),
            Region::Context | Region::Any => return,
        };
        self.require(good, Fault::OutOfBounds);
    }

    fn inside(&mut self, at: Value, size: Value, (start, end): (usize, usize)) -> Value {
        let (start, end) = (self.field(start), self.field(end));
        let distance = self.b.ins().isub(at, start);
        let room = self.b.ins().isub(end, start);
        self.fits(distance, size, room)
    }

    /// `size <= room && distance <= room - size`, which no overflow can fool.
    fn fits(&mut self, distance: Value, size: Value, room: Value) -> Value {
        let small = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, size, room);
        let last = self.b.ins().isub(room, size);
        let near = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, distance, last);
        self.b.ins().band(small, near)
    }

    /// In one value of a map: in its memory, and not across the end of a value.
    fn inside_value(&mut self, map: u32, at: Value, size: Value) -> Value {
        let map = &self.compiler.shared.maps[map as usize];
        let (start, bytes) = (map.values.address() as i64, map.values.bytes() as i64);
        let (stride, value) = (i64::from(map.stride), i64::from(map.definition.value_size));
        let distance = self.b.ins().iadd_imm(at, start.wrapping_neg());
        let in_map = self.b.ins().icmp_imm(IntCC::UnsignedLessThan, distance, bytes);
        let in_value = self.b.ins().urem_imm(distance, stride);
        let room = self.number(value);
        let fits = self.fits(in_value, size, room);
        self.b.ins().band(in_map, fits)
    }

    pub(super) fn store(&mut self, size: Size, base: Reg, off: i16, src: Operand) {
        let access = self.access();
        let value = self.operand(src);
        let pointer = self.get(base);
        self.check(access, pointer, off, size);
        let off = i32::from(off);
        match size {
            1 => self.b.ins().istore8(plain(), value, pointer, off),
            2 => self.b.ins().istore16(plain(), value, pointer, off),
            4 => self.b.ins().istore32(plain(), value, pointer, off),
            _ => self.b.ins().store(plain(), value, pointer, off),
        };
    }

    pub(super) fn atomic(&mut self, op: Atomic, size: Size, fetch: bool, (base, off): (Reg, i16), src: Reg) {
        let access = self.access();
        let pointer = self.get(base);
        self.check(access, pointer, off, size);
        let at = self.b.ins().iadd_imm(pointer, i64::from(off));
        if !access.aligned {
            let low = self.b.ins().band_imm(at, i64::from(size) - 1);
            let good = self.b.ins().icmp_imm(IntCC::Equal, low, 0);
            self.require(good, Fault::Unaligned);
        }
        let width = if size == 4 { I32 } else { I64 };
        let value = self.narrow(src, size);
        let before = match op {
            Atomic::CompareExchange => {
                let expected = self.narrow(0, size);
                self.b.ins().atomic_cas(own(), at, expected, value)
            }
            _ => self.b.ins().atomic_rmw(width, own(), operation(op), at, value),
        };
        let before = if size == 4 { self.b.ins().uextend(I64, before) } else { before };
        match op {
            Atomic::CompareExchange => self.set(0, before),
            _ if fetch => self.set(src, before),
            _ => {}
        }
    }

    fn narrow(&mut self, reg: Reg, size: Size) -> Value {
        let value = self.get(reg);
        if size == 4 { self.b.ins().ireduce(I32, value) } else { value }
    }
}

fn operation(op: Atomic) -> AtomicRmwOp {
    match op {
        Atomic::Add => AtomicRmwOp::Add,
        Atomic::Or => AtomicRmwOp::Or,
        Atomic::And => AtomicRmwOp::And,
        Atomic::Xor => AtomicRmwOp::Xor,
        Atomic::Exchange | Atomic::CompareExchange => AtomicRmwOp::Xchg,
    }
}
