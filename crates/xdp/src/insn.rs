//! Instructions of eBPF (RFC 9669), decoded once, so that no other file contains an opcode.
use std::fmt;

/// A register: 0 to 10. 10 is the frame pointer, which is read only.
pub type Reg = u8;

/// The frame pointer.
pub const FP: Reg = 10;

/// Bytes of a memory access.
pub type Size = u8;

/// The second operand of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A constant, sign-extended to 64 bits (RFC 9669 section 4.1).
    Imm(i32),
}

/// Arithmetic with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Alu {
    Add,
    Sub,
    Mul,
    /// By zero gives zero.
    Div,
    SignedDiv,
    /// By zero leaves the first operand.
    Mod,
    SignedMod,
    Or,
    And,
    Xor,
    /// Shifts take the amount modulo the width.
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    Mov,
}

/// Conditions of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cond {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
    SignedGt,
    SignedGe,
    SignedLt,
    SignedLe,
    /// Any bit in common.
    Set,
}

/// Atomic operations on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Atomic {
    Add,
    Or,
    And,
    Xor,
    Exchange,
    /// Register 0 is what is expected, and gets what was there.
    CompareExchange,
}

/// Byte swaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// To big endian, or always.
    Swap,
    /// To little endian: cuts to the width.
    Cut,
}

/// One instruction. Targets are indices into the linked program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Insn {
    /// `wide`: on 64 bits; otherwise on the lower 32, and the upper become zero.
    Alu {
        op: Alu,
        wide: bool,
        dst: Reg,
        src: Operand,
    },
    Negate {
        wide: bool,
        dst: Reg,
    },
    /// A move that extends the sign of the lower `bits`.
    MoveSigned {
        wide: bool,
        bits: u8,
        dst: Reg,
        src: Reg,
    },
    ByteSwap {
        how: Swap,
        bits: u8,
        dst: Reg,
    },
    Load {
        size: Size,
        signed: bool,
        dst: Reg,
        base: Reg,
        off: i16,
    },
    Store {
        size: Size,
        base: Reg,
        off: i16,
        src: Operand,
    },
    /// `fetch`: the register gets what was there before.
    Atomic {
        op: Atomic,
        size: Size,
        fetch: bool,
        base: Reg,
        off: i16,
        src: Reg,
    },
    Jump {
        target: usize,
    },
    Branch {
        cond: Cond,
        wide: bool,
        dst: Reg,
        src: Operand,
        target: usize,
    },
    CallHelper {
        id: u32,
    },
    CallFunction {
        target: usize,
    },
    Exit,
    Constant {
        dst: Reg,
        value: u64,
    },
    /// The map of this index.
    Map {
        dst: Reg,
        map: u32,
    },
    /// A byte in the only value of a map that holds a data section.
    MapData {
        dst: Reg,
        map: u32,
        off: u32,
    },
    /// The second half of a 64-bit constant: no instruction.
    Second,
}

/// An instruction as it stands in the object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub code: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
}

/// Meaning of the source register field of a 64-bit constant (RFC 9669 section 5.4), as linking leaves it.
pub(crate) const IS_MAP: u8 = 1;
pub(crate) const IS_MAP_DATA: u8 = 2;
/// Meaning of the source register field of a call.
pub(crate) const IS_FUNCTION: u8 = 1;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const CONSTANT: u8 = 0x18;

impl Raw {
    /// From eight bytes.
    pub(crate) fn read(bytes: &[u8]) -> Raw {
        Raw {
            code: bytes[0],
            dst: bytes[1] & 15,
            src: bytes[1] >> 4,
            off: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// Decodes the instruction at index `at`; `next` follows it. Errors: why it is none.
    pub(crate) fn decode(&self, at: usize, next: Option<&Raw>) -> Result<Insn, String> {
        if self.dst > FP || (self.src > FP && self.code != CONSTANT) {
            return Err("names a register that does not exist".into());
        }
        match self.code & 7 {
            0 => self.constant(next),
            1 => self.load(),
            2 | 3 => self.store(),
            4 => self.alu(false),
            7 => self.alu(true),
            5 => self.jump(at, true),
            _ => self.jump(at, false),
        }
    }

    fn unknown<T>(&self) -> Result<T, String> {
        Err(format!("has the unknown opcode {:#04x}", self.code))
    }

    fn constant(&self, next: Option<&Raw>) -> Result<Insn, String> {
        if self.code != CONSTANT {
            return Err("reads the packet in the way of classic BPF, which XDP programs cannot".into());
        }
        let second = next.filter(|next| next.code == 0).ok_or("is half of a 64-bit constant without the other half")?;
        let dst = self.dst;
        match self.src {
            0 => Ok(Insn::Constant { dst, value: u64::from(self.imm as u32) | (u64::from(second.imm as u32) << 32) }),
            IS_MAP => Ok(Insn::Map { dst, map: self.imm as u32 }),
            IS_MAP_DATA => Ok(Insn::MapData { dst, map: self.imm as u32, off: second.imm as u32 }),
            other => Err(format!("loads a constant of kind {other}, which is not supported")),
        }
    }

    fn size(&self) -> Size {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    fn load(&self) -> Result<Insn, String> {
        let signed = match self.code & 0xe0 {
            0x60 => false,
            0x80 if self.size() < 8 => true,
            _ => return self.unknown(),
        };
        Ok(Insn::Load { size: self.size(), signed, dst: self.dst, base: self.src, off: self.off })
    }

    fn store(&self) -> Result<Insn, String> {
        let (size, base, off) = (self.size(), self.dst, self.off);
        match (self.code & 7, self.code & 0xe0) {
            (2, 0x60) => Ok(Insn::Store { size, base, off, src: Operand::Imm(self.imm) }),
            (3, 0x60) => Ok(Insn::Store { size, base, off, src: Operand::Reg(self.src) }),
            (3, 0xc0) if size >= 4 => {
                let fetch = self.imm & 1 != 0;
                let op = match self.imm & !1 {
                    0x00 => Atomic::Add,
                    0x40 => Atomic::Or,
                    0x50 => Atomic::And,
                    0xa0 => Atomic::Xor,
                    0xe0 if fetch => Atomic::Exchange,
                    0xf0 if fetch => Atomic::CompareExchange,
                    other => return Err(format!("has the unknown atomic operation {other:#x}")),
                };
                Ok(Insn::Atomic { op, size, fetch, base, off, src: self.src })
            }
            _ => self.unknown(),
        }
    }

    fn operand(&self) -> Operand {
        if self.code & 8 != 0 { Operand::Reg(self.src) } else { Operand::Imm(self.imm) }
    }

    fn alu(&self, wide: bool) -> Result<Insn, String> {
        let dst = self.dst;
        let op = match (self.code >> 4, self.off) {
            (0x0, 0) => Alu::Add,
            (0x1, 0) => Alu::Sub,
            (0x2, 0) => Alu::Mul,
            (0x3, 0) => Alu::Div,
            (0x3, 1) => Alu::SignedDiv,
            (0x4, 0) => Alu::Or,
            (0x5, 0) => Alu::And,
            (0x6, 0) => Alu::ShiftLeft,
            (0x7, 0) => Alu::ShiftRight,
            (0x8, 0) => return Ok(Insn::Negate { wide, dst }),
            (0x9, 0) => Alu::Mod,
            (0x9, 1) => Alu::SignedMod,
            (0xa, 0) => Alu::Xor,
            (0xb, 0) => Alu::Mov,
            (0xb, 8 | 16 | 32) if self.code & 8 != 0 && (wide || self.off < 32) => {
                return Ok(Insn::MoveSigned { wide, bits: self.off as u8, dst, src: self.src });
            }
            (0xc, 0) => Alu::ShiftRightSigned,
            (0xd, 0) if matches!(self.imm, 16 | 32 | 64) => {
                let how = if wide || self.code & 8 != 0 { Swap::Swap } else { Swap::Cut };
                return Ok(Insn::ByteSwap { how, bits: self.imm as u8, dst });
            }
            _ => return self.unknown(),
        };
        Ok(Insn::Alu { op, wide, dst, src: self.operand() })
    }

    fn jump(&self, at: usize, wide: bool) -> Result<Insn, String> {
        let relative = |distance: i64| {
            usize::try_from(at as i64 + 1 + distance).map_err(|_| "jumps out of the program".to_string())
        };
        let cond = match self.code >> 4 {
            0x0 if wide => return Ok(Insn::Jump { target: relative(self.off.into())? }),
            0x0 => return Ok(Insn::Jump { target: relative(self.imm.into())? }),
            0x1 => Cond::Eq,
            0x2 => Cond::Gt,
            0x3 => Cond::Ge,
            0x4 => Cond::Set,
            0x5 => Cond::Ne,
            0x6 => Cond::SignedGt,
            0x7 => Cond::SignedGe,
            0x8 if wide => return self.call(relative(self.imm.into())),
            0x9 if wide => return Ok(Insn::Exit),
            0xa => Cond::Lt,
            0xb => Cond::Le,
            0xc => Cond::SignedLt,
            0xd => Cond::SignedLe,
            _ => return self.unknown(),
        };
        Ok(Insn::Branch { cond, wide, dst: self.dst, src: self.operand(), target: relative(self.off.into())? })
    }

    fn call(&self, target: Result<usize, String>) -> Result<Insn, String> {
        match (self.code, self.src) {
            (CALL, 0) => Ok(Insn::CallHelper { id: self.imm as u32 }),
            (CALL, IS_FUNCTION) => Ok(Insn::CallFunction { target: target? }),
            (CALL, _) => Err("calls a function of the kernel (kfunc), which is not supported".into()),
            _ => Err("calls through a register, which is not supported".into()),
        }
    }
}

impl Insn {
    /// The instruction after which control never goes on to the next one.
    pub fn ends(&self) -> bool {
        matches!(self, Insn::Jump { .. } | Insn::Exit)
    }

    /// Where a jump or branch may go, besides the next instruction.
    pub fn target(&self) -> Option<usize> {
        match self {
            Insn::Jump { target } | Insn::Branch { target, .. } => Some(*target),
            _ => None,
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Reg(reg) => write!(f, "r{reg}"),
            Operand::Imm(imm) => write!(f, "{imm}"),
        }
    }
}
