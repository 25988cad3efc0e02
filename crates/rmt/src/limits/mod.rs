//! Limits of the architecture, apart from room: rules for actions, conditions, stateful ALUs, hash and checksum units,
//! and mirrors. Each refusal has what to write instead.
mod action;
mod extern_units;
mod gateway;
mod salu;
mod text;

use crate::diag::{Pos, Problem};
use crate::ir::{Deparse, Gress, Program, Stmt, StmtKind};

pub(crate) use action::{Group, Uses, groups};

/// Checksum units of a parser and of a deparser.
const PARSER_CHECKSUMS: usize = 5;
const DEPARSER_CHECKSUMS: usize = 8;
/// A mirror's digest, bytes, and of these what the hardware needs itself.
const MIRROR_BYTES: u32 = 48;
const MIRROR_OVERHEAD: u32 = 3;

/// Everything that is wrong, or suspicious.
pub(crate) fn check(program: &Program) -> Vec<Problem> {
    let mut out = Vec::new();
    for action in &program.actions {
        action::check_action(program, action, &mut out);
    }
    for gress in [Gress::Ingress, Gress::Egress] {
        control(program, &program.half(gress).control, &mut out);
        half(program, gress, &mut out);
    }
    salu::check(program, &mut out);
    extern_units::check(program, &mut out);
    out
}

/// Conditions, and the statements that stand in a control.
fn control(program: &Program, block: &[Stmt], out: &mut Vec<Problem>) {
    for group in action::groups(program, block) {
        match group {
            Group::Statements(list) => action::check_statements(&list, out),
            Group::Single(stmt) => match &stmt.kind {
                StmtKind::If(cond, then, els) => {
                    gateway::check(program, cond, out);
                    control(program, then, out);
                    control(program, els, out);
                }
                StmtKind::Apply(apply) => {
                    let arms = apply.arms.iter().map(|(_, body)| body);
                    for body in arms.chain([&apply.hit, &apply.miss, &apply.default]) {
                        control(program, body, out);
                    }
                }
                _ => {}
            },
        }
    }
}

fn half(program: &Program, gress: Gress, out: &mut Vec<Problem>) {
    let half = program.half(gress);
    let (parser, deparser) = half.checksums;
    let whole = Pos::default();
    if parser > PARSER_CHECKSUMS {
        let message = format!("the {} parser has {parser} checksums, and {PARSER_CHECKSUMS} units", gress.name());
        out.push(*Problem::error(half.states.first().map_or(whole, |s| s.pos), message));
    }
    if deparser > DEPARSER_CHECKSUMS {
        let message = format!("the {} deparser has {deparser} checksums, and {DEPARSER_CHECKSUMS} units", gress.name());
        out.push(*Problem::error(half.states.first().map_or(whole, |s| s.pos), message));
    }
    mirrors(&half.deparser, out);
}

fn mirrors(list: &[Deparse], out: &mut Vec<Problem>) {
    for item in list {
        match item {
            Deparse::If(_, yes, no) => {
                mirrors(yes, out);
                mirrors(no, out);
            }
            Deparse::Mirror(_, values, pos) => {
                let bits: u32 = values.iter().map(|v| v.ty.width()).sum();
                let bytes = bits.div_ceil(8) + MIRROR_OVERHEAD;
                if bytes > MIRROR_BYTES {
                    let message = format!(
                        "this mirror carries {} bytes; with {MIRROR_OVERHEAD} of its own a digest has {MIRROR_BYTES}",
                        bits.div_ceil(8)
                    );
                    out.push(*Problem::error(*pos, message).help("at most 45 bytes: 11 words and a type byte"));
                }
            }
            _ => {}
        }
    }
}
