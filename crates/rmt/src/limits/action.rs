//! Actions: all assignments of an action happen at once, each is one operation of two operands.
use crate::diag::{Pos, Problem};
use crate::ir::{Action, BinOp, Destination, Expr, ExprKind, FieldId, Program, Stmt, StmtKind};
use std::collections::BTreeSet;

/// A run of statements that is one action without a table, or one statement that is not part of an action.
pub(crate) enum Group<'p> {
    Statements(Vec<&'p Stmt>),
    Single(&'p Stmt),
}

/// Reads and writes of a statement.
#[derive(Debug, Default, Clone)]
pub(crate) struct Uses {
    pub reads: BTreeSet<FieldId>,
    pub writes: BTreeSet<FieldId>,
    pub registers: BTreeSet<usize>,
}

impl Uses {
    pub(crate) fn of(program: &Program, stmt: &Stmt) -> Uses {
        let mut uses = Uses::default();
        match &stmt.kind {
            StmtKind::Assign(dst, e) => {
                uses.reads.extend(e.fields());
                uses.writes.extend(dst.field());
            }
            StmtKind::Exec(action, index, dsts) => {
                uses.reads.extend(index.fields());
                let ra = &program.register_actions[*action];
                body_reads(&ra.body, &mut uses.reads);
                uses.registers.insert(ra.register);
                uses.writes.extend(dsts.iter().flatten().filter_map(|d| d.field()));
            }
            StmtKind::Hash(_, inputs, dst) => {
                uses.reads.extend(inputs.iter().flat_map(Expr::fields));
                uses.writes.extend(dst.field());
            }
            StmtKind::Random(dst) => uses.writes.extend(dst.field()),
            StmtKind::Count(_, index) => uses.reads.extend(index.fields()),
            StmtKind::Meter(_, index, dst) => {
                uses.reads.extend(index.fields());
                uses.writes.extend(dst.field());
            }
            StmtKind::SetValid(h, _) => {
                uses.writes.insert(program.headers[*h].valid);
            }
            StmtKind::If(..) | StmtKind::Apply(_) | StmtKind::Exit => {}
        }
        uses
    }

    pub(crate) fn merge(&mut self, other: Uses) {
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
        self.registers.extend(other.registers);
    }
}

/// Fields that a stateful program takes from the packet.
pub(super) fn body_reads(body: &[Stmt], out: &mut BTreeSet<FieldId>) {
    for stmt in body {
        match &stmt.kind {
            StmtKind::Assign(_, e) => out.extend(e.fields()),
            StmtKind::If(cond, then, els) => {
                out.extend(cond.fields());
                body_reads(then, out);
                body_reads(els, out);
            }
            _ => {}
        }
    }
}

/// Statements next to each other become one action, as long as none needs what another one of them wrote.
pub(crate) fn groups<'p>(program: &Program, block: &'p [Stmt]) -> Vec<Group<'p>> {
    let mut out = Vec::new();
    let mut run: Vec<&Stmt> = Vec::new();
    let mut written = Uses::default();
    for stmt in block {
        if matches!(stmt.kind, StmtKind::If(..) | StmtKind::Apply(_) | StmtKind::Exit) {
            if !run.is_empty() {
                out.push(Group::Statements(std::mem::take(&mut run)));
            }
            written = Uses::default();
            out.push(Group::Single(stmt));
            continue;
        }
        let uses = Uses::of(program, stmt);
        let conflict = !uses.reads.is_disjoint(&written.writes)
            || !uses.writes.is_disjoint(&written.writes)
            || !uses.registers.is_disjoint(&written.registers);
        if conflict {
            out.push(Group::Statements(std::mem::take(&mut run)));
            written = Uses::default();
        }
        written.merge(uses);
        run.push(stmt);
    }
    if !run.is_empty() {
        out.push(Group::Statements(run));
    }
    out
}

pub(super) fn check_action(program: &Program, action: &Action, out: &mut Vec<Problem>) {
    let list: Vec<&Stmt> = action.body.iter().collect();
    check_statements(&list, out);
    let mut written = Uses::default();
    for stmt in list {
        let uses = Uses::of(program, stmt);
        let name = |id: &FieldId| program.field(*id).name.clone();
        if let Some(id) = uses.reads.intersection(&written.writes).next() {
            let message = format!("`{}` reads `{}`, which it wrote before", action.name, name(id));
            let help = "all of an action happens at once: split it into two tables";
            out.push(*Problem::error(stmt.pos, message).help(help));
        }
        if let Some(r) = uses.registers.intersection(&written.registers).next() {
            let message = format!("`{}` uses the register `{}` twice", action.name, program.registers[*r].name);
            out.push(*Problem::error(stmt.pos, message).help("a register is accessed once in a pass"));
        }
        written.merge(uses);
    }
}

pub(super) fn check_statements(list: &[&Stmt], out: &mut Vec<Problem>) {
    for stmt in list {
        let result = match &stmt.kind {
            StmtKind::Assign(dst, e) if matches!(dst.place, Destination::Field(_)) => operation(e),
            StmtKind::If(..) => Err(Problem::error(stmt.pos, "an action can't decide")
                .help("decide by a table's key, or by `if` around tables in the control")),
            StmtKind::Apply(_) => Err(Problem::error(stmt.pos, "an action can't apply a table")),
            StmtKind::Exec(_, index, _) | StmtKind::Count(_, index) | StmtKind::Meter(_, index, _) => {
                operand(index).map_err(|p| p.help("compute the index in an earlier action"))
            }
            _ => Ok(()),
        };
        if let Err(problem) = result {
            out.push(*problem);
        }
    }
}

/// One operation: at most two operands.
fn operation(e: &Expr) -> Result<(), Box<Problem>> {
    match &e.kind {
        ExprKind::Binary(op, a, b) => binary(*op, a, b, e),
        ExprKind::Min(a, b) | ExprKind::Max(a, b) => two(a, b, e.pos),
        ExprKind::Unary(_, a) => two(a, a, e.pos),
        // A conversion after the operation is a move of its low bits.
        ExprKind::Cast(a) if operand(a).is_err() && a.ty.width() >= e.ty.width() => operation(a),
        _ => operand(e).map_err(|p| too_many(p, e.pos)),
    }
}

fn binary(op: BinOp, a: &Expr, b: &Expr, e: &Expr) -> Result<(), Box<Problem>> {
    let pos = e.pos;
    match op {
        BinOp::Mul | BinOp::Div | BinOp::Mod => {
            let message = "there is no multiplication or division in a match-action unit";
            return Err(Problem::error(pos, message).help("shift by a constant, or use a table or a MathUnit"));
        }
        BinOp::Shl | BinOp::Shr if b.constant().is_none() => {
            return Err(Problem::error(pos, "there is no shift by a variable")
                .help("let a table choose among actions that shift by constants"));
        }
        BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge | BinOp::LogAnd | BinOp::LogOr => {
            return Err(Problem::error(pos, "an action can't compare").help("match on the value in a table"));
        }
        BinOp::Add | BinOp::Sub | BinOp::SatAdd | BinOp::SatSub if e.ty.width() > 32 => {
            let message = format!("arithmetic on {} bits: a container has 32", e.ty.width());
            return Err(Problem::error(pos, message).help("split the field into words"));
        }
        _ => {}
    }
    let args = |e: &Expr| matches!(e.kind, ExprKind::Arg(_) | ExprKind::Const(_));
    if args(a) && args(b) && !(a.constant().is_some() && b.constant().is_some()) {
        let message = "an operation on action data alone can be done by the control plane";
        return Err(Problem::error(pos, message));
    }
    two(a, b, pos)
}

fn two(a: &Expr, b: &Expr, pos: Pos) -> Result<(), Box<Problem>> {
    operand(a).and_then(|()| operand(b)).map_err(|p| too_many(p, pos))
}

fn too_many(problem: Box<Problem>, pos: Pos) -> Box<Problem> {
    match problem.help {
        Some(_) => problem,
        None => Problem::error(pos, "an action has one operation of two operands for each field")
            .help("compute a part of it in an earlier action"),
    }
}

/// A field, a slice of one, action data or a constant, converted or not.
fn operand(e: &Expr) -> Result<(), Box<Problem>> {
    match &e.kind {
        ExprKind::Const(_) | ExprKind::Field(_) | ExprKind::Arg(_) => Ok(()),
        ExprKind::Slice(a, ..) | ExprKind::Cast(a) => operand(a),
        ExprKind::Mux(..) => {
            Err(Problem::error(e.pos, "an action can't choose between values").help("use a table with two actions"))
        }
        _ => Err(Problem::error(e.pos, "too many operations")),
    }
}
