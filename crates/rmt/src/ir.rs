//! The intermediate form: one pipeline, everything inlined and resolved. Headers and metadata are flat fields; names
//! are numbers. The checker, the interpreter and a code generator all read this.
use crate::diag::Pos;

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnOp {
    /// `!`.
    Not,
    /// `~`.
    BitNot,
    /// `-`.
    Neg,
}

/// Binary operators of P4-16 section 8, named as there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinOp {
    Add,
    Sub,
    SatAdd,
    SatSub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Concat,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LogAnd,
    LogOr,
}

/// Which half of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gress {
    /// Before the traffic manager.
    Ingress,
    /// After it.
    Egress,
}

impl Gress {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Gress::Ingress => "ingress",
            Gress::Egress => "egress",
        }
    }
}

/// Index into [`Program::fields`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldId(pub u32);

/// Type of a value. Widths are 1 to 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    /// `bool`: 0 or 1.
    Bool,
    /// `bit<W>`.
    Bit(u32),
    /// `int<W>`: two's complement in the low W bits.
    Int(u32),
    /// A constant of no width yet. Never in a finished program.
    Inf,
}

impl Ty {
    /// Bits of the value.
    pub fn width(self) -> u32 {
        match self {
            Ty::Bool => 1,
            Ty::Bit(w) | Ty::Int(w) => w,
            Ty::Inf => 128,
        }
    }

    /// Compared and extended with its sign.
    pub fn signed(self) -> bool {
        matches!(self, Ty::Int(_))
    }
}

/// Role of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Part of a header.
    Header,
    /// Validity of a header.
    Valid,
    /// The program's metadata, and its local variables.
    Metadata,
    /// Of the architecture.
    Intrinsic,
}

/// A field of the packet header vector (PHV).
#[derive(Debug, Clone)]
pub struct Field {
    /// As in the program: `hdr.tcp.seq_no`.
    pub name: String,
    /// Its type.
    pub ty: Ty,
    /// Its half.
    pub gress: Gress,
    /// Its role.
    pub role: Role,
}

/// A header instance: its fields in the order of the wire, most significant bit first.
#[derive(Debug, Clone)]
pub struct Header {
    /// As in the program: `hdr.tcp`.
    pub name: String,
    /// Of its type.
    pub type_name: String,
    /// Its half.
    pub gress: Gress,
    /// In the order of the wire.
    pub fields: Vec<FieldId>,
    /// The one bit that reports whether the header is there.
    pub valid: FieldId,
    /// Length.
    pub bits: u32,
    /// Of the architecture: never emitted.
    pub intrinsic: bool,
}

/// A typed expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Operation and operands.
    pub kind: ExprKind,
    /// Type of the result.
    pub ty: Ty,
    /// Source position.
    pub pos: Pos,
}

/// Operations.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// In the low bits.
    Const(u128),
    /// A field.
    Field(FieldId),
    /// Action data: the n-th parameter of the action.
    Arg(usize),
    /// A word of the register (stateful ALU only): 0 is `lo`.
    Mem(usize),
    /// Bits high to low, both included.
    Slice(Box<Expr>, u32, u32),
    /// One operand.
    Unary(UnOp, Box<Expr>),
    /// Two operands.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// To [`Expr::ty`]: truncates or extends, with the sign where the operand has one.
    Cast(Box<Expr>),
    /// `a ? b : c`.
    Mux(Box<Expr>, Box<Expr>, Box<Expr>),
    /// The lesser.
    Min(Box<Expr>, Box<Expr>),
    /// The greater.
    Max(Box<Expr>, Box<Expr>),
    /// Through the math unit with this number (stateful ALU only).
    Math(usize, Box<Expr>),
    /// One bit of 16 set: which of up to four conditions hold (stateful ALU only).
    Predicate(Vec<Expr>),
    /// Bits of the packet from this bit after the cursor (parser only).
    Lookahead(u32),
}

/// Destination of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Dst {
    /// Field, register word or output.
    pub place: Destination,
    /// Highest bit written.
    pub hi: u32,
    /// Lowest bit written.
    pub lo: u32,
}

/// Kinds of destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// A field.
    Field(FieldId),
    /// A word of the register.
    Mem(usize),
    /// An output of the stateful ALU.
    Out(usize),
}

/// A statement of a control, an action or a stateful ALU's program.
#[derive(Debug, Clone)]
pub struct Stmt {
    /// Its operation.
    pub kind: StmtKind,
    /// Source position.
    pub pos: Pos,
}

/// Statements.
#[derive(Debug, Clone)]
pub enum StmtKind {
    /// Value to destination.
    Assign(Dst, Expr),
    /// Both ways.
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// A table, and what follows one outcome.
    Apply(Apply),
    /// Register action, index, destinations of the outputs.
    Exec(usize, Expr, Vec<Option<Dst>>),
    /// Hash, inputs, destination.
    Hash(usize, Vec<Expr>, Dst),
    /// Random bits.
    Random(Dst),
    /// Counter and index.
    Count(usize, Expr),
    /// Meter, index, colour: 0 green, 1 yellow, 3 red.
    Meter(usize, Expr, Dst),
    /// Validity of a header, by its number.
    SetValid(usize, bool),
    /// Leave the control.
    Exit,
}

/// Applying a table.
#[derive(Debug, Clone)]
pub struct Apply {
    /// Which.
    pub table: usize,
    /// After a hit.
    pub hit: Vec<Stmt>,
    /// After a miss.
    pub miss: Vec<Stmt>,
    /// After one of these actions (indices into [`Table::actions`]).
    pub arms: Vec<(Vec<usize>, Vec<Stmt>)>,
    /// After any other action.
    pub default: Vec<Stmt>,
}

/// How a key is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchKind {
    /// All bits.
    Exact,
    /// The bits of a mask.
    Ternary,
    /// A prefix; the longest wins.
    Lpm,
    /// Between two values.
    Range,
}

/// A key of a table.
#[derive(Debug, Clone)]
pub struct Key {
    /// As in the program.
    pub name: String,
    /// The key of the lookup.
    pub expr: Expr,
    /// Kind of the match.
    pub kind: MatchKind,
}

/// An entry's match on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// `key & mask == value`.
    Mask(u128, u128),
    /// Both ends included.
    Range(u128, u128),
}

/// A table's action with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionCall {
    /// Index into [`Program::actions`].
    pub action: usize,
    /// Values of its parameters.
    pub args: Vec<u128>,
}

/// An entry of a table.
#[derive(Debug, Clone)]
pub struct Entry {
    /// One for each key.
    pub keys: Vec<Match>,
    /// The action call.
    pub call: ActionCall,
}

/// A match-action table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Name, with the instance's names before it.
    pub name: String,
    /// Source position.
    pub pos: Pos,
    /// Which half.
    pub gress: Gress,
    /// The key of the lookup.
    pub keys: Vec<Key>,
    /// Indices into [`Program::actions`].
    pub actions: Vec<usize>,
    /// Of these, only as the default.
    pub default_only: Vec<usize>,
    /// On a miss.
    pub default: ActionCall,
    /// The default can't be changed.
    pub const_default: bool,
    /// Constant entries, the first match wins.
    pub entries: Vec<Entry>,
    /// Entries at most.
    pub size: u32,
}

/// An action: parameters are action data.
#[derive(Debug, Clone)]
pub struct Action {
    /// Name, with the instance's names before it.
    pub name: String,
    /// Source position.
    pub pos: Pos,
    /// Names and types.
    pub params: Vec<(String, Ty)>,
    /// Its operation.
    pub body: Vec<Stmt>,
}

/// An array of state.
#[derive(Debug, Clone)]
pub struct Register {
    /// Name.
    pub name: String,
    /// Source position.
    pub pos: Pos,
    /// Entries.
    pub size: u32,
    /// Types of the words of an entry: `lo`, and `hi` for a pair.
    pub words: Vec<Ty>,
    /// Names of the words, empty for a single word.
    pub word_names: Vec<String>,
    /// Initial value of each word.
    pub initial: Vec<u128>,
}

/// A program of the stateful ALU.
#[derive(Debug, Clone)]
pub struct RegisterAction {
    /// Name.
    pub name: String,
    /// Source position.
    pub pos: Pos,
    /// Which register.
    pub register: usize,
    /// What a filter does (`Lpf`): the hardware's own program, which need not keep to a stateful ALU's limits.
    pub filter: bool,
    /// Types of the outputs.
    pub outputs: Vec<Ty>,
    /// Its operation.
    pub body: Vec<Stmt>,
}

/// Hash functions of the hash engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashKind {
    /// The low bits of the input.
    Identity,
    /// CRC-16/ARC.
    Crc16,
    /// CRC-32 (IEEE).
    Crc32,
    /// Not specified; here, CRC-32 with another start.
    Random,
}

/// A hash unit.
#[derive(Debug, Clone)]
pub struct Hash {
    /// Name.
    pub name: String,
    /// Function.
    pub kind: HashKind,
    /// Bits of the result.
    pub width: u32,
}

/// An array of counters.
#[derive(Debug, Clone)]
pub struct Counter {
    /// Name.
    pub name: String,
    /// Entries.
    pub size: u32,
    /// Source position.
    pub pos: Pos,
}

/// An array of meters.
#[derive(Debug, Clone)]
pub struct Meter {
    /// Name.
    pub name: String,
    /// Entries.
    pub size: u32,
    /// It counts bytes, not packets.
    pub bytes: bool,
}

/// The math unit of a stateful ALU: `scale * f(x)` from four significant bits of x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MathUnit {
    /// Which function.
    pub op: MathOp,
    /// Factor: numerator.
    pub a: u32,
    /// Factor: denominator.
    pub b: u32,
}

/// Functions of the math unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MathOp {
    /// x.
    Mul,
    /// x squared.
    Sqr,
    /// Square root.
    Sqrt,
    /// 1 / x.
    Div,
}

/// Operation of a parser state.
#[derive(Debug, Clone)]
pub enum ParseOp {
    /// The next bytes into a header.
    Extract(usize, Pos),
    /// Skip bits.
    Advance(u32),
    /// Value to field.
    Assign(Dst, Expr),
    /// Into checksum unit: values, subtracted or added.
    Checksum(usize, Vec<Expr>, bool),
    /// Whether the sum is wrong: on the chip, a checksum unit gives 1 for an error.
    Verify(usize, Dst),
    /// Sum of the rest of the packet, less what is extracted from here on.
    Residual(usize, Dst),
}

/// A state of a parser.
#[derive(Debug, Clone)]
pub struct State {
    /// Name.
    pub name: String,
    /// In order.
    pub ops: Vec<ParseOp>,
    /// The selected values, empty for an unconditional transition.
    pub on: Vec<Expr>,
    /// First match wins; none rejects.
    pub cases: Vec<(Vec<Match>, Target)>,
    /// Source position.
    pub pos: Pos,
}

/// Target of a parser transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Done.
    Accept,
    /// The packet is dropped.
    Reject,
    /// Index of a state.
    State(usize),
}

/// Operation of a deparser.
#[derive(Debug, Clone)]
pub enum Deparse {
    /// A header, if it is valid.
    Emit(usize),
    /// Checksum of the inputs into a field; whether 0 is written as all ones.
    Checksum(Vec<Expr>, Dst, bool),
    /// Conditional.
    If(Expr, Vec<Deparse>, Vec<Deparse>),
    /// Copy of the packet behind these fields: session, fields.
    Mirror(Expr, Vec<Expr>, Pos),
    /// Fields to the control plane: name of the digest, fields.
    Digest(String, Vec<Expr>),
    /// The packet again through ingress.
    Resubmit(Vec<Expr>),
}

/// One half.
#[derive(Debug, Clone, Default)]
pub struct Half {
    /// Number of the first state is 0.
    pub states: Vec<State>,
    /// The control.
    pub control: Vec<Stmt>,
    /// The deparser.
    pub deparser: Vec<Deparse>,
    /// Intrinsic fields by name (`drop_ctl`, `mirror_type`), and of headers with the header's type before
    /// (`ingress_intrinsic_metadata_t.ingress_port`).
    pub intrinsic: std::collections::BTreeMap<String, FieldId>,
    /// Checksum units used by parser and deparser.
    pub checksums: (usize, usize),
}

/// A whole pipeline.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The packet header vectors of both halves.
    pub fields: Vec<Field>,
    /// Header instances.
    pub headers: Vec<Header>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Actions; number 0 is `NoAction`.
    pub actions: Vec<Action>,
    /// Registers.
    pub registers: Vec<Register>,
    /// Stateful ALU programs.
    pub register_actions: Vec<RegisterAction>,
    /// Hash units.
    pub hashes: Vec<Hash>,
    /// Counters.
    pub counters: Vec<Counter>,
    /// Meters.
    pub meters: Vec<Meter>,
    /// Math units.
    pub maths: Vec<MathUnit>,
    /// Before the traffic manager.
    pub ingress: Half,
    /// After it.
    pub egress: Half,
}

impl Program {
    /// One half.
    pub fn half(&self, gress: Gress) -> &Half {
        match gress {
            Gress::Ingress => &self.ingress,
            Gress::Egress => &self.egress,
        }
    }

    pub(crate) fn half_mut(&mut self, gress: Gress) -> &mut Half {
        match gress {
            Gress::Ingress => &mut self.ingress,
            Gress::Egress => &mut self.egress,
        }
    }

    /// A field.
    pub fn field(&self, id: FieldId) -> &Field {
        &self.fields[id.0 as usize]
    }
}

/// All ones in the low `width` bits.
pub fn mask(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}
