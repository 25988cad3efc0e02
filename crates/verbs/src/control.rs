//! Control requests and their answers, as JSON over the attach socket, some with descriptors, as stated there. A
//! library has one request outstanding.
use crate::flow::FlowRule;
use crate::functions::Report;
use crate::{AddressVector, Capacities, Gid, Number, QpAttributes, QpKind, QpNumber};
use crate::{connections, udp};
use memory::{Description, Key};
use serde::{Deserialize, Serialize};

/// Library to daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The program's address space comes along (`memory::Registrar::address_space`); once, before the first region that
    /// needs it. [`Answer::Done`].
    HandOver,
    /// A protection domain. [`Answer::Number`].
    AllocateDomain,
    /// Ends a protection domain; EBUSY while something is in it.
    FreeDomain(Number),
    /// Registers memory; the files of the description come along. [`Answer::Region`].
    Register {
        /// Its protection domain.
        domain: Number,
        /// What the library states about it.
        description: Description,
        /// The address by which its first byte is named in work requests; elsewhere than in the program for
        /// `ibv_reg_mr_iova`, 0 for zero-based regions.
        named: u64,
    },
    /// Deregisters memory: afterwards no byte of it is touched.
    Deregister(Key),
    /// A memory window in this protection domain. [`Answer::Number`]: the upper 24 bits of its keys.
    AllocateWindow(Number),
    /// Ends a memory window, also a bound one.
    FreeWindow(Number),
    /// A completion channel. [`Answer::Number`], with the read end of a pipe in which each event is a
    /// [`crate::ChannelMessage`].
    OpenChannel,
    /// Ends a channel; EBUSY while a completion queue uses it.
    CloseChannel(Number),
    /// A completion queue. [`Answer::Queue`], with its region.
    CreateCq {
        /// How many completions it is to hold.
        entries: u32,
        /// Where its events go.
        channel: Option<Number>,
    },
    /// Completions go to a larger pipe from now on; what is in the old one is to be taken first.
    /// [`Answer::Queue`], with the region of the new pipe; the program's wish for events stays in the first one.
    ResizeCq {
        /// Which.
        cq: Number,
        /// How many completions it is to hold.
        entries: u32,
    },
    /// Ends a completion queue; EBUSY while a queue pair uses it.
    DestroyCq(Number),
    /// A shared receive queue. [`Answer::Queue`], with its region.
    CreateSrq {
        /// Its protection domain.
        domain: Number,
        /// Work requests.
        receives: u32,
        /// Scatter-gather entries of each.
        pieces: u32,
        /// It is one of extended reliable connections.
        xrc: Option<XrcQueue>,
    },
    /// An event is wanted once the queue has fewer work requests than this.
    LimitSrq {
        /// The queue.
        srq: Number,
        /// The limit; 0 for none.
        limit: u32,
    },
    /// Ends a shared receive queue; EBUSY while a queue pair uses it.
    DestroySrq(Number),
    /// A domain of extended reliable connections. [`Answer::Number`].
    OpenXrcDomain,
    /// Ends it; EBUSY while something is in it.
    CloseXrcDomain(Number),
    /// The receiving half of an extended reliable connection, in this domain. [`Answer::Qp`], without a region.
    CreateXrcReceiver(Number),
    /// A queue pair, in state reset. [`Answer::Qp`], with the region of its receive queue, unless it uses an SRQ.
    CreateQp(NewQp),
    /// Changes attributes.
    ModifyQp {
        /// Which.
        qp: QpNumber,
        /// To what.
        attributes: QpAttributes,
    },
    /// [`Answer::Attributes`].
    QueryQp(QpNumber),
    /// Ends a queue pair: afterwards none of its work requests touches memory, and it adds no completion.
    DestroyQp(QpNumber),
    /// An address handle. [`Answer::Number`].
    CreateHandle {
        /// Its protection domain.
        domain: Number,
        /// The path.
        path: AddressVector,
    },
    /// Ends an address handle.
    DestroyHandle(Number),
    /// A queue pair of datagrams receives what is sent to a multicast group.
    Attach {
        /// Which.
        qp: QpNumber,
        /// The group.
        group: Gid,
    },
    /// And no longer.
    Detach {
        /// Which.
        qp: QpNumber,
        /// The group.
        group: Gid,
    },
    /// An offload engine reports what its functions came to. [`Answer::Done`].
    Report(Report),
    /// A rule for frames, of a queue pair of raw packets. [`Answer::Number`].
    CreateFlow(FlowRule),
    /// Ends a rule.
    DestroyFlow(Number),
    /// Connection management.
    Connections(connections::Request),
    /// UDP ports of the host's address.
    Udp(udp::Request),
}

/// What a shared receive queue of extended reliable connections belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XrcQueue {
    /// The domain of queue pairs whose messages may come to it.
    pub domain: Number,
    /// Where their completions go.
    pub cq: Number,
}

/// A queue pair that is to be made (`struct ibv_qp_init_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewQp {
    /// What it transports.
    pub kind: QpKind,
    /// Its protection domain.
    pub domain: Number,
    /// Where completions of send work requests go.
    pub send_cq: Number,
    /// Where those of receive work requests go.
    pub receive_cq: Number,
    /// Where it takes receive work requests from, where not from a queue of its own.
    pub srq: Option<Number>,
    /// What it is to hold at least.
    pub capacities: Capacities,
    /// Every send work request gets a completion (`sq_sig_all`).
    pub signals_all: bool,
}

/// Daemon to library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// Done: the number of the new object.
    Number(Number),
    /// Done: the new region's key, local and remote.
    Region(Key),
    /// Done: the new queue.
    Queue {
        /// Its number.
        number: Number,
        /// Entries that it has: a power of two, and at least what was asked for.
        entries: u32,
    },
    /// Done: the new queue pair.
    Qp {
        /// Its number.
        number: QpNumber,
        /// What it holds.
        capacities: Capacities,
        /// Which send pipe it uses.
        pipe: u32,
    },
    /// The attributes asked for.
    Attributes(QpAttributes),
    /// An answer of connection management.
    Connections(connections::Answer),
    /// An answer of UDP ports.
    Udp(udp::Answer),
    /// Not done.
    Failed {
        /// As verbs return it.
        errno: i32,
        /// A sentence for people.
        why: String,
    },
}
