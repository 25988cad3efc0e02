//! The program as written: what the parser gives and elaboration reads.
use crate::diag::Pos;
pub(crate) use crate::ir::{BinOp, UnOp};

/// A name and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub text: String,
    pub pos: Pos,
}

#[derive(Debug, Clone)]
pub(crate) struct TypeRef {
    pub kind: TypeKind,
    pub pos: Pos,
}

#[derive(Debug, Clone)]
pub(crate) enum TypeKind {
    Bool,
    Bit(Box<Expr>),
    Int(Box<Expr>),
    Void,
    Error,
    Named(String, Vec<TypeRef>),
    DontCare,
}

#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub pos: Pos,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    Bool(bool),
    Int(u128, Option<(u32, bool)>),
    Str,
    Name(String),
    Member(Box<Expr>, Name),
    Index,
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    Unary(UnOp, Box<Expr>),
    Binary(BinOp, Box<Expr>, Box<Expr>),
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(TypeRef, Box<Expr>),
    Call(Box<Call>),
    List(Vec<Expr>),
    /// `default` or `_`.
    Any,
    /// `value &&& mask`.
    Mask(Box<Expr>, Box<Expr>),
    /// `low .. high`.
    Range(Box<Expr>, Box<Expr>),
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub callee: Expr,
    pub types: Vec<TypeRef>,
    pub args: Vec<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) struct Stmt {
    pub kind: StmtKind,
    pub pos: Pos,
}

#[derive(Debug, Clone)]
pub(crate) enum StmtKind {
    Empty,
    Block(Vec<Stmt>),
    Var(TypeRef, Name, Option<Expr>),
    Const(Const),
    Instance(Instance),
    Assign(Expr, Expr),
    Call(Call),
    If(Expr, Box<Stmt>, Option<Box<Stmt>>),
    Switch(Expr, Vec<Case>),
    Return,
    Exit,
}

/// A case of a switch: without a label it is `default`; without a body it falls through to the next.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub label: Option<Name>,
    pub body: Option<Vec<Stmt>>,
    pub pos: Pos,
}

#[derive(Debug, Clone)]
pub(crate) struct Const {
    pub ty: TypeRef,
    pub name: Name,
    pub value: Expr,
}

/// `Type<...>(args) name;`, with the methods of an abstract extern in braces.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub ty: TypeRef,
    pub args: Vec<Expr>,
    pub name: Name,
    pub methods: Vec<Function>,
}

#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub name: Name,
    pub params: Vec<Param>,
    pub body: Vec<Stmt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dir {
    None,
    In,
    Out,
    InOut,
}

#[derive(Debug, Clone)]
pub(crate) struct Param {
    pub dir: Dir,
    pub ty: TypeRef,
    pub name: Name,
}

#[derive(Debug, Clone)]
pub(crate) enum Decl {
    Const(Const),
    Typedef(Name, TypeRef),
    Header(Name, Vec<(TypeRef, Name)>),
    Struct(Name, Vec<(TypeRef, Name)>),
    Enum(Name, Option<TypeRef>, Vec<(Name, Option<Expr>)>),
    Parser(Parser),
    Control(Control),
    Instance(Instance),
    Action(Action),
}

#[derive(Debug, Clone)]
pub(crate) struct Parser {
    pub name: Name,
    pub params: Vec<Param>,
    pub locals: Vec<Stmt>,
    pub states: Vec<State>,
}

#[derive(Debug, Clone)]
pub(crate) struct State {
    pub name: Name,
    pub body: Vec<Stmt>,
    pub next: Transition,
    pub pos: Pos,
}

#[derive(Debug, Clone)]
pub(crate) enum Transition {
    To(Name),
    Select(Vec<Expr>, Vec<(Vec<Expr>, Name)>),
}

#[derive(Debug, Clone)]
pub(crate) struct Control {
    pub name: Name,
    pub params: Vec<Param>,
    pub locals: Vec<Local>,
    pub apply: Vec<Stmt>,
}

/// Declared inside a control, in order.
#[derive(Debug, Clone)]
pub(crate) enum Local {
    Stmt(Stmt),
    Action(Action),
    Table(Table),
}

#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub name: Name,
    pub params: Vec<Param>,
    pub body: Vec<Stmt>,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub name: Name,
    pub keys: Vec<(Expr, Name)>,
    /// Action, arguments given, annotations (`defaultonly`, `tableonly`).
    pub actions: Vec<(Name, Vec<Expr>, Vec<String>)>,
    pub default: Option<(Name, Vec<Expr>, bool)>,
    pub size: Option<Expr>,
    pub entries: Vec<(Vec<Expr>, Name, Vec<Expr>)>,
}
