//! Scopes of elaboration: the program so far, and the meaning of names in it.
use super::types::Type;
use crate::ast;
use crate::diag::Problem;
use crate::ir::{self, FieldId, Gress, Program, Ty};
use std::collections::HashMap;
use std::rc::Rc;

/// Meaning of a name.
#[derive(Debug, Clone)]
pub(super) enum Binding {
    Const(u128, Ty),
    Enum(HashMap<String, u128>, Ty),
    Lvalue(Lvalue),
    /// A parameter of an action that is expanded in place.
    Value(ir::Expr),
    /// Action data.
    Arg(usize, Ty),
    Object(Object),
    Action(Rc<ast::Action>, usize),
    /// An action that is only expanded where it is called.
    Macro(Rc<ast::Action>),
    Table(usize),
}

/// Something with fields.
#[derive(Debug, Clone)]
pub(super) enum Lvalue {
    Scalar(FieldId, Ty),
    Mem(usize, Ty),
    Out(usize, Ty),
    Header(usize),
    Struct(Rc<StructLvalue>),
}

#[derive(Debug)]
pub(super) struct StructLvalue {
    pub(super) type_name: String,
    pub(super) members: Vec<(String, Lvalue)>,
}

/// Instances of externs, and the architecture's objects.
#[derive(Debug, Clone)]
pub(super) enum Object {
    PacketIn,
    PacketOut,
    Register(usize),
    RegisterAction(usize),
    Hash(usize),
    Random(u32),
    Counter(usize),
    Meter(usize),
    Math(usize),
    /// A low-pass filter: the register that holds its averages.
    Filter(usize),
    /// A value that the control plane could set; here always the initial one.
    Param(u128, Ty),
    Checksum(usize),
    Mirror,
    Digest(String),
    Resubmit,
    Control(String),
}

/// A program on its way from syntax to intermediate form.
pub(super) struct Elab<'a> {
    pub(super) controls: HashMap<String, &'a ast::Control>,
    pub(super) parsers: HashMap<String, &'a ast::Parser>,
    pub(super) instances: Vec<&'a ast::Instance>,
    pub(super) types: HashMap<String, Type>,
    pub(super) scopes: Vec<HashMap<String, Binding>>,
    pub(super) out: Program,
    pub(super) problems: Vec<Problem>,
    pub(super) gress: Gress,
    /// Names of the control instances around, each with a dot.
    pub(super) prefix: String,
    /// Controls and actions being expanded, and all that were.
    pub(super) nesting: usize,
    pub(super) expansions: usize,
}
