//! Walking over the expressions of the intermediate form.
use crate::ir::{Destination, Dst, Expr, ExprKind, FieldId};

impl Expr {
    /// Calls `f` for this expression and all below it.
    pub fn walk(&self, f: &mut impl FnMut(&Expr)) {
        f(self);
        self.children(&mut |child| child.walk(f));
    }

    /// Calls `f` for the operands.
    pub fn children(&self, f: &mut dyn FnMut(&Expr)) {
        match &self.kind {
            ExprKind::Const(_) | ExprKind::Field(_) | ExprKind::Arg(_) | ExprKind::Mem(_) | ExprKind::Lookahead(_) => {}
            ExprKind::Slice(a, _, _) | ExprKind::Unary(_, a) | ExprKind::Cast(a) | ExprKind::Math(_, a) => f(a),
            ExprKind::Binary(_, a, b) | ExprKind::Min(a, b) | ExprKind::Max(a, b) => {
                f(a);
                f(b);
            }
            ExprKind::Mux(a, b, c) => {
                f(a);
                f(b);
                f(c);
            }
            ExprKind::Predicate(list) => list.iter().for_each(f),
        }
    }

    /// Fields read.
    pub fn fields(&self) -> Vec<FieldId> {
        let mut out = Vec::new();
        self.walk(&mut |e| {
            if let ExprKind::Field(id) = e.kind {
                out.push(id);
            }
        });
        out
    }

    /// The value, where it is constant.
    pub fn constant(&self) -> Option<u128> {
        match self.kind {
            ExprKind::Const(v) => Some(v),
            _ => None,
        }
    }
}

impl Dst {
    /// The field, where it is one.
    pub fn field(&self) -> Option<FieldId> {
        match self.place {
            Destination::Field(id) => Some(id),
            _ => None,
        }
    }
}
