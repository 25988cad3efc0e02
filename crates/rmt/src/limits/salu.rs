//! Stateful ALUs: what one RegisterAction can do with an entry of a register.
use super::action::body_reads;
use super::text::text;
use crate::diag::{Pos, Problem, Res};
use crate::ir::{BinOp, Destination, Dst, Expr, ExprKind, Gress, Program, RegisterAction, Stmt, StmtKind, Ty, UnOp};
use std::collections::{BTreeMap, BTreeSet};

const MAX_COMPARES: usize = 4;
const MAX_INPUTS: usize = 2;
const MAX_ACTIONS: usize = 4;
const MAX_LARGE_CONSTANTS: usize = 4;
/// Updates of one word under different conditions.
const MAX_UPDATES: usize = 2;

pub(super) fn check(program: &Program, out: &mut Vec<Problem>) {
    for action in program.register_actions.iter().filter(|action| !action.filter) {
        if let Err(problem) = Alu::new(program, action).check(out) {
            out.push(*problem);
        }
    }
    for (number, register) in program.registers.iter().enumerate() {
        let actions: Vec<&RegisterAction> =
            program.register_actions.iter().filter(|a| a.register == number && !a.filter).collect();
        if actions.len() > MAX_ACTIONS {
            let message = format!("`{}` has {} register actions", register.name, actions.len());
            out.push(*Problem::error(actions[MAX_ACTIONS].pos, message).help("a stateful ALU holds four programs"));
        }
        let mut constants = BTreeSet::new();
        actions.iter().for_each(|a| large_constants(&a.body, &mut constants));
        if constants.len() > MAX_LARGE_CONSTANTS {
            let message = format!("`{}` uses {} large constants", register.name, constants.len());
            out.push(*Problem::error(register.pos, message).help("four fit; those from -8 to 7 cost nothing"));
        }
    }
    shared_registers(program, out);
}

/// A register lives in one stage of one half.
fn shared_registers(program: &Program, out: &mut Vec<Problem>) {
    let ingress = used(program, Gress::Ingress);
    for (register, pos) in used(program, Gress::Egress) {
        if ingress.contains_key(&register) {
            let message = format!("`{}` is used in ingress and in egress", program.registers[register].name);
            out.push(*Problem::error(pos, message).help("keep it in one half, and carry its value in a header"));
        }
    }
}

fn used(program: &Program, gress: Gress) -> BTreeMap<usize, Pos> {
    let mut out = BTreeMap::new();
    collect(program, &program.half(gress).control, &mut out);
    out
}

fn collect(program: &Program, block: &[Stmt], out: &mut BTreeMap<usize, Pos>) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::Exec(action, ..) => {
                out.insert(program.register_actions[*action].register, stmt.pos);
            }
            StmtKind::If(_, a, b) => {
                collect(program, a, out);
                collect(program, b, out);
            }
            StmtKind::Apply(apply) => {
                for action in &program.tables[apply.table].actions {
                    collect(program, &program.actions[*action].body, out);
                }
                let arms = apply.arms.iter().map(|(_, body)| body);
                arms.chain([&apply.hit, &apply.miss, &apply.default]).for_each(|b| collect(program, b, out));
            }
            _ => {}
        }
    }
}

fn large_constants(body: &[Stmt], out: &mut BTreeSet<(u128, u32)>) {
    let mut collect = |e: &Expr| {
        e.walk(&mut |e| {
            let signed = crate::ops::signed(e.constant().unwrap_or(0), Ty::Int(e.ty.width()));
            if !(-8..=7).contains(&signed) {
                out.insert((e.constant().unwrap_or(0), e.ty.width()));
            }
        })
    };
    for stmt in body {
        match &stmt.kind {
            StmtKind::Assign(_, e) => collect(e),
            StmtKind::If(cond, ..) => collect(cond),
            _ => {}
        }
    }
    for stmt in body {
        if let StmtKind::If(_, then, els) = &stmt.kind {
            large_constants(then, out);
            large_constants(els, out);
        }
    }
}

/// One RegisterAction under examination.
struct Alu<'p> {
    program: &'p Program,
    action: &'p RegisterAction,
    compares: BTreeSet<String>,
    updates: Vec<BTreeSet<String>>,
    /// Outputs that need a result computed for them.
    computed: BTreeSet<usize>,
    warnings: Vec<Problem>,
}

impl<'p> Alu<'p> {
    fn new(program: &'p Program, action: &'p RegisterAction) -> Self {
        Alu {
            program,
            action,
            compares: BTreeSet::new(),
            updates: vec![BTreeSet::new(); program.registers[action.register].words.len()],
            computed: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }

    fn check(mut self, out: &mut Vec<Problem>) -> Res<()> {
        let mut written = vec![false; self.updates.len()];
        self.block(&self.action.body, "", &mut written)?;
        out.append(&mut self.warnings);
        self.inputs()?;
        self.outputs()?;
        self.sums_of_pairs(&self.action.body)
    }

    fn refuse<T>(&self, pos: Pos, message: &str, help: &str) -> Res<T> {
        Err(Problem::error(pos, format!("`{}`: {message}", self.action.name)).help(help))
    }

    fn inputs(&self) -> Res<()> {
        let mut fields = BTreeSet::new();
        body_reads(&self.action.body, &mut fields);
        if fields.len() > MAX_INPUTS {
            let message = format!("{} fields of the packet go into one stateful operation", fields.len());
            return self.refuse(
                self.action.pos,
                &message,
                "two fit, of up to 32 bits: combine them in an earlier stage",
            );
        }
        match fields.iter().find(|f| self.program.field(**f).ty.width() > 32) {
            Some(f) => {
                let message = format!("`{}` is wider than 32 bits", self.program.field(*f).name);
                self.refuse(self.action.pos, &message, "two inputs of up to 32 bits fit")
            }
            None => Ok(()),
        }
    }

    /// A word that is not updated leaves its ALU free for one computed output; a single word has a second ALU beside.
    fn outputs(&self) -> Res<()> {
        let idle = self.updates.iter().filter(|u| u.is_empty()).count();
        let free = if self.updates.len() == 1 { 1 } else { idle };
        if self.computed.len() > free {
            let message = format!("{} outputs are computed, and {free} can be", self.computed.len());
            let help = "the old and the new words and predicate() cost nothing; compute the rest in the next stage";
            return self.refuse(self.action.pos, &message, help);
        }
        Ok(())
    }

    /// The ALUs of a pair give an operation's result only where they also write it to the register.
    fn sums_of_pairs(&self, body: &[Stmt]) -> Res<()> {
        if self.updates.len() == 1 {
            return Ok(());
        }
        for stmt in body {
            match &stmt.kind {
                StmtKind::Assign(dst, e) if matches!(dst.place, Destination::Out(_)) => {
                    if matches!(strip(e).kind, ExprKind::Binary(..) | ExprKind::Min(..) | ExprKind::Max(..)) {
                        let help = "write it to a word and return that, or compute it in the next stage";
                        return self.refuse(stmt.pos, "a result of a pair is returned and not written", help);
                    }
                }
                StmtKind::If(_, then, els) => {
                    self.sums_of_pairs(then)?;
                    self.sums_of_pairs(els)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn block(&mut self, body: &[Stmt], guard: &str, written: &mut [bool]) -> Res<()> {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Assign(dst, e) => self.assign(dst, e, guard, written, stmt.pos)?,
                StmtKind::If(cond, then, els) => {
                    self.condition(cond, written)?;
                    let name = text(self.program, cond);
                    let (mut a, mut b) = (written.to_vec(), written.to_vec());
                    self.block(then, &format!("{guard} {name}"), &mut a)?;
                    self.block(els, &format!("{guard} !{name}"), &mut b)?;
                    for (w, (x, y)) in written.iter_mut().zip(a.into_iter().zip(b)) {
                        *w = x || y;
                    }
                }
                _ => return self.refuse(stmt.pos, "only assignments and `if`", "a stateful ALU can do no more"),
            }
        }
        Ok(())
    }

    fn assign(&mut self, dst: &Dst, e: &Expr, guard: &str, written: &mut [bool], pos: Pos) -> Res<()> {
        match dst.place {
            Destination::Mem(word) => {
                if dst.lo != 0 || dst.hi + 1 != self.program.registers[self.action.register].words[word].width() {
                    return self.refuse(pos, "a part of a word is assigned", "assign whole words");
                }
                self.operation(e, written)?;
                self.updates[word].insert(format!("{guard}: {}", text(self.program, e)));
                if self.updates[word].len() > MAX_UPDATES {
                    let help = "two conditional updates of a word fit";
                    return self.refuse(pos, "a third way to update the same word", help);
                }
                written[word] = true;
                Ok(())
            }
            Destination::Out(output) => match &strip(e).kind {
                ExprKind::Mem(_) => Ok(()),
                ExprKind::Predicate(list) => list.iter().try_for_each(|c| self.condition(c, written)),
                _ => {
                    self.computed.insert(output);
                    self.operation(e, written)
                }
            },
            Destination::Field(_) => {
                self.refuse(pos, "a field of the packet is assigned", "return it as output and assign the result")
            }
        }
    }

    /// One operation of two operands, of which one may be a word of the register.
    fn operation(&self, e: &Expr, written: &[bool]) -> Res<()> {
        match &strip(e).kind {
            ExprKind::Binary(op, a, b) => match op {
                BinOp::Add | BinOp::Sub | BinOp::SatAdd | BinOp::SatSub | BinOp::And | BinOp::Or | BinOp::Xor => {
                    self.two(a, b, e.pos, written)
                }
                BinOp::Shl | BinOp::Shr => {
                    self.refuse(e.pos, "a stateful ALU can't shift", "use a MathUnit, or shift before or after")
                }
                _ => {
                    self.refuse(e.pos, "a stateful ALU has no such operation", "add, subtract, and, or, xor, min, max")
                }
            },
            ExprKind::Min(a, b) | ExprKind::Max(a, b) => self.two(a, b, e.pos, written),
            ExprKind::Unary(UnOp::BitNot, a) => self.operand(a, written),
            ExprKind::Slice(inner, ..) if !matches!(inner.kind, ExprKind::Field(_)) => {
                self.refuse(e.pos, "a slice of a result or of memory", "slice it after it is returned")
            }
            _ => self.operand(e, written),
        }
    }

    fn two(&self, a: &Expr, b: &Expr, pos: Pos, written: &[bool]) -> Res<()> {
        let help = "compute a part of it in an earlier stage";
        let kind = |e: &Expr| match strip(e).kind {
            ExprKind::Mem(_) | ExprKind::Math(..) => 'm',
            ExprKind::Field(_) | ExprKind::Slice(..) => 'p',
            ExprKind::Const(_) => 'c',
            _ => '?',
        };
        match (kind(a), kind(b)) {
            ('m', 'm') => self.refuse(pos, "an operation on two words of memory", "one operand is memory at most"),
            ('p', 'p') => self.refuse(pos, "an operation on two fields of the packet", help),
            ('?', _) | (_, '?') => self.refuse(pos, "more than one operation in an assignment", help),
            _ => self.operand(a, written).and_then(|()| self.operand(b, written)),
        }
    }

    fn operand(&self, e: &Expr, written: &[bool]) -> Res<()> {
        match &strip(e).kind {
            ExprKind::Const(_) | ExprKind::Field(_) => Ok(()),
            ExprKind::Slice(inner, ..) if matches!(inner.kind, ExprKind::Field(_)) => Ok(()),
            ExprKind::Mem(w) if written[*w] => self.refuse(
                e.pos,
                "a word is used after it was updated",
                "operations see the old value; return the new one",
            ),
            ExprKind::Mem(_) => Ok(()),
            ExprKind::Math(_, inner) => self.operand(inner, written),
            _ => self.refuse(
                e.pos,
                "more than one operation in an assignment",
                "compute a part of it in an earlier stage",
            ),
        }
    }

    /// Comparisons under any logic of `&&`, `||` and `!`.
    fn condition(&mut self, e: &Expr, written: &[bool]) -> Res<()> {
        match &e.kind {
            ExprKind::Binary(BinOp::LogAnd | BinOp::LogOr, a, b) => {
                self.condition(a, written)?;
                self.condition(b, written)
            }
            ExprKind::Unary(UnOp::Not, a) => self.condition(a, written),
            ExprKind::Binary(op @ (BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge), a, b) => {
                self.compare(*op, a, b, e.pos, written)?;
                self.compares.insert(text(self.program, e));
                if self.compares.len() > MAX_COMPARES {
                    return self.refuse(e.pos, "more than four comparisons", "compare in the stages before or after");
                }
                Ok(())
            }
            _ => self.refuse(e.pos, "a condition that is not a comparison", "write == 0 or != 0"),
        }
    }

    /// `± memory ± field + constant` against 0.
    fn compare(&mut self, op: BinOp, a: &Expr, b: &Expr, pos: Pos, written: &[bool]) -> Res<()> {
        let (mut memory, mut fields) = (BTreeSet::new(), BTreeSet::new());
        self.linear(a, &mut memory, &mut fields, written)?;
        self.linear(b, &mut memory, &mut fields, written)?;
        let help = "each comparison has one word of memory, one field and a constant";
        if memory.len() > 1 {
            return self.refuse(pos, "a comparison of two words of memory", help);
        }
        if fields.len() > 1 {
            return self.refuse(pos, "a comparison with two fields of the packet", help);
        }
        let ordered = !matches!(op, BinOp::Eq | BinOp::Ne);
        if ordered && !a.ty.signed() && memory.len() == 1 && fields.len() == 1 {
            let message = format!("`{}`: this comparison is wrong when sequence numbers wrap around", self.action.name);
            let help = "for serial numbers write (int<32>)(a - b) <= 0";
            self.warnings.push(*Problem::warning(pos, message).help(help));
        }
        Ok(())
    }

    fn linear(
        &self,
        e: &Expr,
        memory: &mut BTreeSet<usize>,
        fields: &mut BTreeSet<String>,
        written: &[bool],
    ) -> Res<()> {
        match &e.kind {
            ExprKind::Cast(a) => self.linear(a, memory, fields, written),
            ExprKind::Binary(BinOp::Add | BinOp::Sub, a, b) => {
                self.linear(a, memory, fields, written)?;
                self.linear(b, memory, fields, written)
            }
            ExprKind::Unary(UnOp::Neg, a) => self.linear(a, memory, fields, written),
            ExprKind::Mem(w) if !written[*w] => {
                memory.insert(*w);
                Ok(())
            }
            ExprKind::Field(_) => {
                fields.insert(text(self.program, e));
                Ok(())
            }
            ExprKind::Slice(inner, ..) if matches!(inner.kind, ExprKind::Field(_)) => {
                fields.insert(text(self.program, e));
                Ok(())
            }
            ExprKind::Const(_) => Ok(()),
            _ => self.refuse(e.pos, "this can't be compared", "sums of memory, a field and a constant can"),
        }
    }
}

/// Without conversions.
fn strip(e: &Expr) -> &Expr {
    match &e.kind {
        ExprKind::Cast(inner) => strip(inner),
        _ => e,
    }
}
