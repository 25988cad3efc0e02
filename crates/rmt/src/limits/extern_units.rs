//! Rules about what stands beside actions: defaults of tables, hash units, verdicts of checksum units.
use super::text::text;
use crate::diag::{Pos, Problem};
use crate::ir::{Dst, Gress, ParseOp, Program, Stmt, StmtKind};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(program: &Program, out: &mut Vec<Problem>) {
    defaults(program, out);
    let mut hashed = BTreeMap::new();
    for action in &program.actions {
        hashes(program, &action.body, &mut hashed, out);
    }
    for gress in [Gress::Ingress, Gress::Egress] {
        hashes(program, &program.half(gress).control, &mut hashed, out);
        verdicts(program, gress, out);
    }
}

/// The index of a register comes from the hash distribution unit, which only a hit reaches.
fn defaults(program: &Program, out: &mut Vec<Problem>) {
    for table in &program.tables {
        let action = &program.actions[table.default.action];
        if !table.keys.is_empty() && executes(&action.body) {
            let message = format!("the default action `{}` of `{}` uses a register", action.name, table.name);
            let help = "name it in entries, the last of which matches all, and let NoAction be the default";
            out.push(*Problem::error(table.pos, message).help(help));
        }
    }
}

fn executes(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Exec(..) => true,
        StmtKind::If(_, then, els) => executes(then) || executes(els),
        _ => false,
    })
}

/// A hash unit has one list of inputs.
fn hashes(program: &Program, body: &[Stmt], seen: &mut BTreeMap<usize, String>, out: &mut Vec<Problem>) {
    for stmt in body {
        match &stmt.kind {
            StmtKind::Hash(unit, inputs, _) => {
                let list = inputs.iter().map(|e| text(program, e)).collect::<Vec<_>>().join(", ");
                if seen.entry(*unit).or_insert_with(|| list.clone()) != &list {
                    let message = format!("`{}` is used with two lists of fields", program.hashes[*unit].name);
                    out.push(*Problem::error(stmt.pos, message).help("declare one Hash for each list"));
                }
            }
            StmtKind::If(_, then, els) => {
                hashes(program, then, seen, out);
                hashes(program, els, seen, out);
            }
            StmtKind::Apply(apply) => {
                let arms = apply.arms.iter().map(|(_, body)| body);
                let bodies = arms.chain([&apply.hit, &apply.miss, &apply.default]);
                bodies.for_each(|body| hashes(program, body, seen, out));
            }
            _ => {}
        }
    }
}

/// A checksum unit sets its verdict's field where the sum is wrong, and never clears it: so it begins with 0.
fn verdicts(program: &Program, gress: Gress, out: &mut Vec<Problem>) {
    let half = program.half(gress);
    let ops = || half.states.iter().flat_map(|state| state.ops.iter().map(move |op| (op, state.pos)));
    let field = |dst: &Dst| dst.field();
    let verified: BTreeSet<_> = ops()
        .filter_map(|(op, _)| match op {
            ParseOp::Verify(_, dst) => field(dst),
            _ => None,
        })
        .collect();
    for (op, pos) in ops() {
        let ParseOp::Assign(dst, value) = op else { continue };
        if let Some(id) = field(dst).filter(|id| verified.contains(id) && value.constant() != Some(0)) {
            out.push(*assigned(
                program.field(id).name.as_str(),
                if value.pos == Pos::default() { pos } else { value.pos },
            ));
        }
    }
}

fn assigned(name: &str, pos: Pos) -> Box<Problem> {
    let message = format!("`{name}` takes the verdict of a checksum, and is set to something else than false");
    Problem::error(pos, message).help("verify() gives true for a wrong checksum, and adds to what is there")
}
