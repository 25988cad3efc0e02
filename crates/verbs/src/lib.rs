//! The contract between a program's verbs library and the daemon (docs/RDMA.md): elements of the queues, control
//! requests and their answers. No behaviour lives here.
//!
//! Everything that the daemon reads here is hostile: it is copied once and then checked. Codes of statuses, opcodes,
//! states and rights are those of `infiniband/verbs.h`, so that the library passes them on as they are.
#![forbid(unsafe_code)]

pub mod attach;
mod attributes;
mod codes;
mod completion_element;
pub mod connections;
pub mod control;
mod event;
pub mod flow;
pub mod functions;
mod notify;
pub mod port;
mod receive_element;
mod send_element;
pub mod udp;

pub use attributes::{AddressVector, Capacities, Gid, QpAttributes};
pub use codes::{AsyncEvent, CompletionOpcode, Mtu, QpKind, QpState, SendOpcode, Status};
pub use completion_element::{Completion, CompletionFlags};
pub use event::{AsyncMessage, ChannelMessage};
pub use notify::{Notify, Wish};
pub use receive_element::ReceivePiece;
pub use send_element::{
    Binding, Datagram, INLINE_FIRST, INLINE_NEXT, MOST_ELEMENTS, MOST_INLINE, MOST_PIECES, Operand, PIECES_FIRST,
    PIECES_NEXT, Piece, SendElement, SendFlags,
};

/// Version of everything in this crate that both sides must agree on. Raise it with every change.
pub const VERSION: u32 = 11;

/// The number of a queue pair: 24 bits (IBTA 1.3, 3.5.1).
pub type QpNumber = u32;
/// The number of an object of a program: a protection domain, completion queue, address handle, ...
pub type Number = u32;

/// Mask of a queue pair's number.
pub const QP_MASK: u32 = 0xff_ffff;
