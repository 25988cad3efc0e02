//! Objects that the control plane creates, and reasons to refuse them.
use memory::Domain;
use shm::{PipeConsumer, PipeProducer};
use std::fmt;
use verbs::control::XrcQueue;
use verbs::{Capacities, Notify, Number, QpKind, QpNumber};
use wire::roce::Path;

/// A completion queue that is to be made. Numbers of objects are the control plane's, and small: below the limit of
/// their kind in [`crate::Limits`].
pub struct NewCq {
    /// Its number.
    pub number: Number,
    /// The producer's end of its pipe. Its fresh region is empty.
    pub pipe: PipeProducer<8>,
    /// The program's wish for events.
    pub notify: Notify,
    /// It has a completion channel: [`crate::Event::Completion`] is wanted.
    pub has_channel: bool,
}

/// A shared receive queue that is to be made.
pub struct NewSrq {
    /// Its number.
    pub number: Number,
    /// Protection domain of its memory.
    pub domain: Domain,
    /// The consumer's end of its pipe.
    pub pipe: PipeConsumer<2>,
    /// Work requests that it holds.
    pub receives: u32,
    /// Scatter-gather entries of each at most.
    pub pieces: u32,
    /// It is one of extended reliable connections.
    pub xrc: Option<XrcQueue>,
}

/// Where a queue pair takes receive work requests from.
pub enum Receives {
    /// A pipe of its own.
    Own(PipeConsumer<2>),
    /// A shared receive queue.
    Shared(Number),
    /// The queue that each message names, of this domain of extended reliable connections.
    Named(Number),
}

/// A queue pair that is to be made; its state is reset.
pub struct NewQp {
    /// Its number, unique on the host.
    pub number: QpNumber,
    /// RC, UC, UD, or a half of an XRC.
    pub kind: QpKind,
    /// Its protection domain. The receiving half of an XRC has that of the queue which a message names, and its
    /// completion queue; here stand [`NewQp::NO_DOMAIN`] and [`NewQp::NO_CQ`].
    pub domain: Domain,
    /// Where completions of send work requests go.
    pub send_cq: Number,
    /// Where those of receive work requests go.
    pub receive_cq: Number,
    /// Where it takes receive work requests from.
    pub receives: Receives,
    /// What it holds.
    pub capacities: Capacities,
    /// Every send work request gets a completion.
    pub signals_all: bool,
}

impl NewQp {
    /// No region is in this domain.
    pub const NO_DOMAIN: Domain = Domain(u32::MAX);
    /// No completion queue has this number.
    pub const NO_CQ: Number = Number::MAX;
}

/// An address handle that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewHandle {
    /// Its number.
    pub number: Number,
    /// Its protection domain: a queue pair of another one may not use it.
    pub domain: Domain,
    /// The way, where it is known already. Otherwise, work requests that use the handle wait for
    /// [`crate::Shard::set_handle_path`].
    pub path: Option<Path>,
}

/// Why a control operation is not carried out. The sentence has what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No object has this number.
    Unknown(&'static str),
    /// It is used by others.
    Busy(&'static str),
    /// A limit is reached.
    Limit(&'static str),
    /// It makes no sense.
    Invalid(&'static str),
    /// It is not offered.
    Unsupported(&'static str),
    /// The program may not do that.
    Forbidden(&'static str),
}

impl Refusal {
    /// As verbs return it.
    pub fn errno(self) -> i32 {
        match self {
            Refusal::Unknown(_) | Refusal::Invalid(_) => libc::EINVAL,
            Refusal::Busy(_) => libc::EBUSY,
            Refusal::Limit(_) => libc::ENOMEM,
            Refusal::Unsupported(_) => libc::EOPNOTSUPP,
            Refusal::Forbidden(_) => libc::EPERM,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refusal::Unknown(why)
        | Refusal::Busy(why)
        | Refusal::Limit(why)
        | Refusal::Invalid(why)
        | Refusal::Unsupported(why)
        | Refusal::Forbidden(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Refusal {}
