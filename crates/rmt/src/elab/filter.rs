//! Low-pass filters (`Lpf`): exponentially weighted moving averages, one for each index. A filter sits where a stateful
//! ALU does and holds a word for each entry. So it is a register with a program of the hardware's own. The first sample
//! is taken as it is; each later one moves the average by an eighth of the difference.
use super::scope::{Elab, Object};
use crate::ast;
use crate::diag::{Pos, Problem, Res};
use crate::ir::{BinOp, Destination, Dst, Expr, ExprKind, Register, RegisterAction, Stmt, StmtKind, Ty};

/// The average moves by the difference shifted by this. On the chip, the control plane sets the filter's time
/// constants.
const WEIGHT: u128 = 3;
const WORD: Ty = Ty::Bit(32);

impl Elab<'_> {
    /// `Lpf<bit<32>, I>(size) name;`
    pub(super) fn filter(&mut self, i: &ast::Instance) -> Res<Object> {
        let sized = self.sized(i)?;
        let (name, pos, size) = (sized.name, sized.pos, sized.size);
        let (words, initial) = (vec![WORD], vec![0]);
        self.out.registers.push(Register { name, pos, size, words, word_names: Vec::new(), initial });
        Ok(Object::Filter(self.out.registers.len() - 1))
    }

    /// `average = filter.execute(sample, index);`
    pub(super) fn run_filter(
        &mut self,
        register: usize,
        call: &ast::Call,
        to: Option<&ast::Expr>,
        out: &mut Vec<Stmt>,
        pos: Pos,
    ) -> Res<()> {
        let [sample, index] = &call.args[..] else {
            return Err(Problem::error(pos, "a filter takes a sample and an index"));
        };
        let (sample, index) = (self.expr(sample, Some(WORD))?, self.expr(index, None)?);
        if !matches!(sample.kind, ExprKind::Field(_)) || sample.ty != WORD {
            return Err(Problem::error(pos, "the sample of a filter is a field of 32 bits"));
        }
        let dst = match to {
            Some(e) => Some(self.typed_destination(e, WORD)?),
            None => None,
        };
        let name = format!("{}.execute", self.out.registers[register].name);
        let (outputs, body) = (vec![WORD], program(sample, pos));
        self.out.register_actions.push(RegisterAction { name, pos, register, filter: true, outputs, body });
        out.push(Stmt { kind: StmtKind::Exec(self.out.register_actions.len() - 1, index, vec![dst]), pos });
        Ok(())
    }
}

fn program(sample: Expr, pos: Pos) -> Vec<Stmt> {
    let expr = |kind, ty| Expr { kind, ty, pos };
    let average = || expr(ExprKind::Mem(0), WORD);
    let number = |value, ty| expr(ExprKind::Const(value), ty);
    let binary = |op, a, b, ty| expr(ExprKind::Binary(op, Box::new(a), Box::new(b)), ty);
    let set = |place, value| Stmt { kind: StmtKind::Assign(Dst { place, hi: 31, lo: 0 }, value), pos };
    let signed = Ty::Int(32);
    let difference = binary(BinOp::Sub, sample.clone(), average(), WORD);
    let difference = expr(ExprKind::Cast(Box::new(difference)), signed);
    let step = binary(BinOp::Shr, difference, number(WEIGHT, signed), signed);
    let step = expr(ExprKind::Cast(Box::new(step)), WORD);
    let moved = binary(BinOp::Add, average(), step, WORD);
    let first = binary(BinOp::Eq, average(), number(0, WORD), Ty::Bool);
    let choice = StmtKind::If(first, vec![set(Destination::Mem(0), sample)], vec![set(Destination::Mem(0), moved)]);
    vec![Stmt { kind: choice, pos }, set(Destination::Out(0), average())]
}
