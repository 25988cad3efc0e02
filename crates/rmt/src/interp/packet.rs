//! Execution of parsers and deparsers: bits of packets to fields and back, in the interpreter.
use super::bits::{BitWriter, bits};
use super::exec::{Run, Scope};
use super::machine::Machine;
use crate::ir::{Deparse, Destination, Dst, Expr, FieldId, Gress, ParseOp, Program, Target, mask};
use crate::scan::one;

/// States that a parser goes through at most.
const MAX_STATES: usize = 256;

/// Ones' complement sum of 16-bit words (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let word = |c: &[u8]| (c[0] as u32) << 8 | c.get(1).copied().unwrap_or(0) as u32;
    bytes.chunks(2).fold(0, |s, c| add(s, word(c)))
}

fn add(a: u32, b: u32) -> u32 {
    let s = a + b;
    (s & 0xffff) + (s >> 16)
}

/// Result of a pass.
#[derive(Debug)]
pub(super) struct Outcome {
    pub gress: Gress,
    phv: Vec<u128>,
    /// The packet as the deparser made it.
    pub data: Vec<u8>,
    pub mirrors: Vec<(u8, Vec<u8>)>,
    pub digests: Vec<(String, Vec<u128>)>,
    pub resubmit: Option<Vec<u8>>,
    pub port_set: bool,
}

impl Outcome {
    /// A field of the architecture.
    pub(super) fn intrinsic(&self, program: &Program, name: &str) -> Option<u128> {
        let id = program.half(self.gress).intrinsic.get(name)?;
        Some(self.phv[id.0 as usize])
    }
}

/// A parser at work.
struct Parse<'p> {
    program: &'p Program,
    packet: &'p [u8],
    cursor: usize,
    sums: Vec<u32>,
    residuals: Vec<(usize, Dst)>,
}

impl Machine {
    /// Parser, control and deparser of one half; nothing if the parser rejects the packet.
    pub(super) fn pass(&mut self, gress: Gress, front: &[u8], frame: &[u8]) -> Option<Outcome> {
        // The program is lent out for the pass, so that the rest of the machine can change.
        let program = std::mem::take(&mut self.program);
        self.length = frame.len();
        let out = self.pass_of(&program, gress, front, frame);
        self.program = program;
        out
    }

    fn pass_of(&mut self, program: &Program, gress: Gress, front: &[u8], frame: &[u8]) -> Option<Outcome> {
        let half = program.half(gress);
        let packet = [front, frame].concat();
        let mut phv = vec![0; program.fields.len()];
        let stamp = format!("{}_intrinsic_metadata_from_parser_t.global_tstamp", gress.name());
        if let Some(id) = half.intrinsic.get(&stamp) {
            phv[id.0 as usize] = self.now_ns as u128 & mask(48);
        }
        let mut parse =
            Parse { program, packet: &packet, cursor: 0, sums: vec![0; half.checksums.0], residuals: Vec::new() };
        parse.run(gress, &mut phv)?;
        let payload = parse.cursor.div_ceil(8);
        let port = half.intrinsic.get("ingress_intrinsic_metadata_for_tm_t.ucast_egress_port").copied();
        let mut run = Run { machine: self, program, phv, port, port_set: false };
        // `exit` ends the control as its end does.
        let _ = run.block(&half.control, &[]);
        let (phv, port_set) = (run.phv, run.port_set);
        let mut out = Outcome {
            gress,
            phv,
            data: Vec::new(),
            mirrors: Vec::new(),
            digests: Vec::new(),
            resubmit: None,
            port_set,
        };
        deparse(program, &half.deparser, &mut out);
        out.data.extend_from_slice(&packet[payload.min(packet.len())..]);
        Some(out)
    }
}

impl Parse<'_> {
    /// Whether the packet was accepted.
    fn run(&mut self, gress: Gress, phv: &mut [u128]) -> Option<()> {
        let states = &self.program.half(gress).states;
        let mut at = 0;
        for _ in 0..MAX_STATES {
            let state = states.get(at)?;
            for op in &state.ops {
                self.op(op, phv)?;
            }
            let keys: Vec<u128> = state.on.iter().map(|e| self.eval(e, phv)).collect();
            let case = state.cases.iter().find(|(set, _)| set.iter().zip(&keys).all(|(m, k)| one(m, *k)));
            match case.map(|(_, target)| *target) {
                Some(Target::Accept) => {
                    self.deposit(phv);
                    return Some(());
                }
                Some(Target::State(next)) => at = next,
                Some(Target::Reject) | None => return None,
            }
        }
        None
    }

    fn eval(&self, e: &Expr, phv: &[u128]) -> u128 {
        let ahead = self.packet.get(self.cursor / 8..).unwrap_or(&[]);
        Scope { program: self.program, phv, args: &[], mem: &[], ahead }.eval(e)
    }

    fn op(&mut self, op: &ParseOp, phv: &mut [u128]) -> Option<()> {
        match op {
            ParseOp::Extract(h, _) => self.extract(*h, phv)?,
            ParseOp::Advance(n) => {
                self.cursor += *n as usize;
                if self.cursor > self.packet.len() * 8 {
                    return None;
                }
            }
            ParseOp::Assign(dst, e) => {
                let value = self.eval(e, phv);
                set(phv, dst, value);
            }
            ParseOp::Checksum(unit, values, subtract) => {
                let s = sum(&self.pack(values, phv));
                self.sums[*unit] = add(self.sums[*unit], if *subtract { !s & 0xffff } else { s });
            }
            ParseOp::Verify(unit, dst) => set(phv, dst, (self.sums[*unit] != 0xffff) as u128),
            ParseOp::Residual(unit, dst) => self.residuals.push((*unit, dst.clone())),
        }
        Some(())
    }

    fn extract(&mut self, h: usize, phv: &mut [u128]) -> Option<()> {
        let header = &self.program.headers[h];
        for id in &header.fields {
            let width = self.program.field(*id).ty.width();
            phv[id.0 as usize] = bits(self.packet, self.cursor, width)?;
            self.cursor += width as usize;
        }
        phv[header.valid.0 as usize] = 1;
        Some(())
    }

    fn pack(&self, values: &[Expr], phv: &[u128]) -> Vec<u8> {
        let mut out = BitWriter::default();
        values.iter().for_each(|e| out.put(self.eval(e, phv), e.ty.width()));
        out.bytes()
    }

    /// Sums of what no header holds.
    fn deposit(&mut self, phv: &mut [u128]) {
        let rest = sum(self.packet.get(self.cursor.div_ceil(8)..).unwrap_or(&[]));
        for (unit, dst) in std::mem::take(&mut self.residuals) {
            set(phv, &dst, add(self.sums[unit], rest) as u128);
        }
    }
}

fn set(phv: &mut [u128], dst: &Dst, value: u128) {
    if let Destination::Field(FieldId(id)) = dst.place {
        phv[id as usize] = super::exec::insert(phv[id as usize], dst, value);
    }
}

fn deparse(program: &Program, list: &[Deparse], out: &mut Outcome) {
    for item in list {
        let scope = Scope { program, phv: &out.phv, args: &[], mem: &[], ahead: &[] };
        let pack = |values: &[Expr]| {
            let mut bits = BitWriter::default();
            values.iter().for_each(|e| bits.put(scope.eval(e), e.ty.width()));
            bits.bytes()
        };
        match item {
            Deparse::Emit(h) => {
                let header = &program.headers[*h];
                if out.phv[header.valid.0 as usize] == 1 && !header.intrinsic {
                    let mut bits = BitWriter::default();
                    header.fields.iter().for_each(|id| bits.put(out.phv[id.0 as usize], program.field(*id).ty.width()));
                    out.data.extend(bits.bytes());
                }
            }
            Deparse::Checksum(values, dst, zeros_as_ones) => {
                let value = !sum(&pack(values)) & 0xffff;
                let value = if value == 0 && *zeros_as_ones { 0xffff } else { value };
                set(&mut out.phv, dst, value as u128);
            }
            Deparse::If(cond, yes, no) => {
                let way = if scope.eval(cond) != 0 { yes } else { no };
                deparse(program, way, out);
            }
            Deparse::Mirror(session, values, _) => {
                let copy = (scope.eval(session) as u8, pack(values));
                out.mirrors.push(copy);
            }
            Deparse::Digest(name, values) => {
                let values = values.iter().map(|e| scope.eval(e)).collect();
                out.digests.push((name.clone(), values));
            }
            Deparse::Resubmit(values) => out.resubmit = Some(pack(values)),
        }
    }
}
