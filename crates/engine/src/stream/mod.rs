//! The contract of stream engines: TCP's commands to a data-path for established connections, and its events.
mod log;
mod stats;

pub use log::{LogMember, LogState};
pub use stats::{FlowFigures, FlowStats, ticks, time_of_ticks};
pub use wire::FourTuple;
pub use wire::tcp::{Agreed, Growth, State};

use crate::{ContextId, FlowId, Slot, Transport};
use context::LogEnd;
use serde::{Deserialize, Serialize};
use shm::{ByteRing, Pooled};
use std::sync::Arc;
use wire::{Mac, Seq};

/// The transport of byte streams: TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {}

impl Transport for Stream {
    type Install = FlowParams;
    type End = FlowEnd;
    type Command = Command;
    type Event = Event;
    type Features = Features;
}

impl From<Command> for crate::Command<Stream> {
    fn from(command: Command) -> Self {
        crate::Command::Transport(command)
    }
}

impl From<Event> for crate::Event<Stream> {
    #[inline]
    fn from(event: Event) -> Self {
        crate::Event::Transport(event)
    }
}

/// A connection at the moment when the handshake is done and the engine takes over.
///
/// Stream positions count payload bytes from 0 in each direction; they, and the positions in [`context::Bump`]
/// and [`context::Completion`], are modulo 2^32. The byte at position `p` of the transmit stream has sequence number
/// `iss + 1 + p`, that at position `p` of the receive stream `irs + 1 + p`.
#[derive(Clone)]
pub struct FlowParams {
    /// Its number.
    pub flow: FlowId,
    /// Its addresses.
    pub tuple: FourTuple,
    /// This host's hardware address.
    pub local_mac: Mac,
    /// The next hop's hardware address.
    pub remote_mac: Mac,
    /// Where its completions go.
    pub context: ContextId,
    /// Its name there.
    pub slot: Slot,
    /// Its receive buffer, or the small ring before it ([`Features::starts_small`]).
    pub rx: Arc<ByteRing>,
    /// Its transmit buffer, or the small ring before it.
    pub tx: Arc<ByteRing>,
    /// Next sequence number to send; everything before it is acknowledged.
    pub snd_nxt: Seq,
    /// Stream position of `snd_nxt`.
    pub tx_pos: u32,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Stream position of `rcv_nxt`.
    pub rx_pos: u32,
    /// Bytes from `rcv_nxt` on that the SYN-ACK has acknowledged (RFC 7413): they come as a segment, and an engine need
    /// not acknowledge them again.
    pub answered: u32,
    /// The peer's receive window, bytes (already scaled).
    pub snd_wnd: u32,
    /// What both ends agreed on.
    pub agreed: Agreed,
    /// How it receives.
    pub receiving: Receiving,
    /// The peer's last TSval, where timestamps are in use (RFC 7323).
    pub ts_recent: u32,
    /// The handshake's round trip, nanoseconds; 0 where it was not measured.
    pub rtt: u32,
    /// Most payload bytes of a super-segment, from the port; 0 for none.
    pub super_segment: u32,
    /// The port completes checksums.
    pub checksum_offload: bool,
    /// With ECN: echo each mark as DCTCP does (RFC 8257 section 3.2) instead of until CWR (RFC 3168 section 6.1.3).
    pub dctcp_echo: bool,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// How acknowledgements make it grow.
    pub growth: Growth,
    /// Sending rate, bytes a second; 0 for no limit.
    pub rate: u64,
    /// Its counters, shared with the control plane.
    pub stats: Pooled<FlowStats>,
}

/// A receiver's choices, which no peer has to agree on. Laminar has its program's instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiving {
    /// Acknowledgements wait for a second full segment, or for what is sent (RFC 9293 section 3.8.6.3). Without it,
    /// each segment with payload is acknowledged at once, as in FlexTOE (section 5.2).
    pub delayed_acks: bool,
    /// Ranges beyond holes that are kept at once, up to [`Receiving::INTERVALS`]; FlexTOE (section 3.1.3) has 1. With
    /// 0, what is out of order is dropped.
    pub intervals: u8,
}

impl Receiving {
    /// Most intervals, and those by default.
    pub const INTERVALS: u8 = 32;
}

impl Default for Receiving {
    fn default() -> Receiving {
        Receiving { delayed_acks: true, intervals: Receiving::INTERVALS }
    }
}

/// What a flow was when it left the engine: for TIME-WAIT and for moving flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnd {
    /// Next sequence number to send.
    pub snd_nxt: Seq,
    /// Oldest sequence number not acknowledged.
    pub snd_una: Seq,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Received bytes that the application did not take.
    pub unread: u32,
    /// The peer's last TSval, where timestamps are in use.
    pub ts_recent: u32,
    /// What another engine needs besides to go on; `None` from an engine whose flows cannot go elsewhere.
    pub resume: Option<Resume>,
}

/// The rest of a flow's state: with [`FlowEnd`], enough to go on in another engine ([`Command::Resume`]). What was
/// received out of order is not in it: the peer sends it again, as it must (RFC 2018 section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// Stream position of `snd_una`, a FIN counted as a byte.
    pub tx_pos: u32,
    /// Stream position of `rcv_nxt`, a FIN counted as a byte.
    pub rx_pos: u32,
    /// Bytes written and not acknowledged.
    pub pending: u32,
    /// Bytes between `rcv_nxt` and the right edge of the advertised window, which never moves back.
    pub window: u32,
    /// The peer's receive window, bytes.
    pub snd_wnd: u32,
    /// RFC 9293's state, from ESTABLISHED on. With it come whether a FIN follows what is pending or was acknowledged,
    /// and whether the peer's was received in order.
    pub state: State,
}

/// Control plane to stream engine, beside what every engine obeys ([`crate::Command`]).
pub enum Command {
    /// From now on the flow's completions go to `slot` of `context`, and that context's descriptors for `slot` are for
    /// this flow. The earlier name is invalid. A completion with the present positions is sent at once (fork: claim).
    Rename {
        /// Which flow.
        flow: FlowId,
        /// Its new context.
        context: ContextId,
        /// Its name there.
        slot: Slot,
    },
    /// As `Rename`, and the flow's buffers are from now on `rx` and `tx`. What is unread, out of order or
    /// unacknowledged is copied over at the same stream positions.
    Move {
        /// Which flow.
        flow: FlowId,
        /// Its new context.
        context: ContextId,
        /// Its name there.
        slot: Slot,
        /// Its new receive buffer, of the same full size.
        rx: Arc<ByteRing>,
        /// Its new transmit buffer, of the same full size.
        tx: Arc<ByteRing>,
    },
    /// Takes in the application's positions, as in [`context::Bump`], and stops the flow if it is quiet. Quiet is
    /// established, with nothing unread, out of order, unsent or unacknowledged. Answered by [`Event::Frozen`] or,
    /// where it is not quiet, by [`Event::Busy`]. Nothing changes in a frozen flow: descriptors for it are ignored, its
    /// segments go to the control plane as [`crate::Exception::NoFlow`]. Then [`crate::Command::Remove`] or
    /// [`Command::Thaw`] follows.
    Freeze {
        /// Which flow.
        flow: FlowId,
        /// Bytes written into the transmit buffer since the connection began.
        tx_head: u32,
        /// Bytes taken from the receive buffer since then.
        rx_head: u32,
    },
    /// A frozen flow goes on. The application's descriptors since [`Command::Freeze`] are lost: it repeats them.
    Thaw(FlowId),
    /// Directly after [`crate::Command::Install`]: the flow goes on where another engine left it. What was sent and is
    /// not acknowledged is sent again; the peer and the application get its positions.
    Resume(FlowId, FlowEnd),
    /// The application's positions, as in [`context::Bump`], from the control plane (a closing socket).
    Advance {
        /// Which flow.
        flow: FlowId,
        /// Bytes written into the transmit buffer since the connection began.
        tx_head: u32,
        /// Bytes taken from the receive buffer since then.
        rx_head: u32,
        /// Send FIN after `tx_head`.
        fin: bool,
    },
    /// Nobody will read any more: no completions; new data that arrives raises [`Event::OrphanData`].
    Orphan(FlowId),
    /// Set the congestion window, bytes.
    Window(FlowId, u32),
    /// From now on acknowledgements make the congestion window grow like this. They do not in fast recovery.
    Growth(FlowId, Growth),
    /// Set the sending rate, bytes a second; 0 for no limit.
    Rate(FlowId, u64),
    /// Offer the peer up to so many bytes of the receive stream: no more than its rings may hold, never fewer than
    /// before. A flow begins with what its usual ring holds ([`ByteRing::usual`]).
    Offer(FlowId, u32),
    /// Whoever places the flow's payload ahead of the engine has let its received stream grow. Completions have the
    /// number of this ring from now on ([`ByteRing::number`]).
    Grown(FlowId, u8),
    /// Set the payload bytes of a full segment (path MTU discovery); sends again from the oldest unacknowledged byte.
    Mss(FlowId, u16),
    /// Nagle's algorithm (RFC 9293 section 3.7.4): whether a segment that is not full waits for the acknowledgement of
    /// the last one that was not. Never, before the first command. An engine that cannot do it ignores this.
    Nagle(FlowId, bool),
    /// Timeout: send again from the oldest unacknowledged byte (go-back-N). What was sent from that number on may be on
    /// its way; an engine with [`Features::rack`] holds it for lost only where something shows that (RFC 8985 section
    /// 6.3).
    Retransmit(FlowId, Option<Seq>),
    /// The segment with the oldest unacknowledged byte is lost, where the peer has something beyond it. It had long
    /// enough to arrive (RFC 8985 section 6.2, step 5). Nothing where a loss is being made up for already.
    Overdue(FlowId),
    /// Send a tail loss probe. What is outstanding may be lost, and nothing follows that would show it (RFC 8985
    /// section 7.3). An engine without [`Features::rack`] sends again what is outstanding, where that is at most one
    /// segment. Nothing where a loss is being made up for already.
    ProbeTail(FlowId),
    /// Send an empty segment just below the window, which asks for an acknowledgement: zero-window probe, keepalive.
    Probe(FlowId),
    /// The control plane has stopped timing this flow: raise [`Event::Active`] when it next has something to time
    /// (at once, where it has already).
    Untrack(FlowId),
    /// The context has a shared log now (docs/SHARED-LOG.md), its only one. For engines with [`Features::keeps_logs`].
    OpenLog(ContextId, Box<LogEnd>),
    /// From now on the flow's stream, from the application's position `rx_head` on, is records of its context's log,
    /// marked with `mark`. Always answered, in order, by [`Event::LogJoined`]. The application's positions in the
    /// receive stream mean nothing afterwards; completions report only its end.
    JoinLog {
        /// Which flow.
        flow: FlowId,
        /// Bytes taken from the receive buffer since the connection began.
        rx_head: u32,
        /// For the application.
        mark: u64,
    },
    /// Give the context's log up, so that another engine goes on with it: its flows are streams again. Before their own
    /// [`crate::Command::Remove`]; answered by [`Event::LogGivenUp`].
    GiveUpLog(ContextId),
    /// After its flows' [`Command::Resume`]: a log that an engine gave up goes on, in the memory where it lies.
    ResumeLog(ContextId, Box<LogEnd>, Box<LogState>),
}

/// Stream engine to control plane, beside what every engine raises ([`crate::Event`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The flow now has bytes (or FIN) that are not sent or not acknowledged and is not being timed. Its
    /// retransmission, persist and congestion timers are to start.
    Active(FlowId),
    /// The application has ended its own stream: FIN follows its last byte.
    LocalFin(FlowId),
    /// The peer's FIN was received in order.
    PeerFin(FlowId),
    /// Likewise, where the application had ended its own stream before: the control plane may not know, as applications
    /// do that through the data pair.
    PeerFinToo(FlowId),
    /// This host's FIN was acknowledged.
    FinAcked(FlowId),
    /// A loss was found, or one turned out to be none: congestion control should run at once.
    Congestion(FlowId),
    /// A valid RST came (RFC 5961 section 3.2).
    Reset(FlowId),
    /// Data came for a flow that nobody reads.
    OrphanData(FlowId),
    /// Answer to [`Command::Freeze`]: the flow stands still, as described.
    Frozen(FlowId, FlowEnd),
    /// Answer to [`Command::Freeze`]: the flow is not quiet, and goes on.
    Busy(FlowId),
    /// The flow was installed without a line in the flow table of an engine that places payload: a stream engine behind
    /// that one copies its payload.
    NoLine(FlowId),
    /// Answer to [`Command::JoinLog`].
    LogJoined(FlowId, Result<(), LogRefusal>),
    /// Answer to [`Command::GiveUpLog`]: what the log was; nothing where the context has none.
    LogGivenUp(ContextId, Option<Box<LogState>>),
}

/// Logs of a host at once, for engines that keep any.
pub const MOST_LOGS: usize = 64;

/// Why a flow's records do not go to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRefusal {
    /// The log has not the room that the flow's window offers its peer.
    Full,
    /// They go to it already.
    Joined,
    /// The flow is gone, stands still, or was never where the application states; or its context has no log.
    Unfit,
}

/// Extensions of TCP that an engine's segments can carry. What it does not carry is not negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carries {
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Selective acknowledgement (RFC 2018).
    pub sack: bool,
    /// Marks are echoed until CWR comes (RFC 3168 section 6.1.3). Without it, each acknowledgement echoes the mark of
    /// its own segment. So ECN is negotiated only for policies that want just that ([`FlowParams::dctcp_echo`]).
    pub echoes_until_cwr: bool,
}

impl Default for Carries {
    /// All of them.
    fn default() -> Carries {
        Carries { timestamps: true, sack: true, echoes_until_cwr: true }
    }
}

/// What a stream engine offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Which TCP options its segments carry.
    pub carries: Carries,
    /// Flows' records can go to a context's log: [`Command::OpenLog`].
    pub keeps_logs: bool,
    /// Flows may be over IPv6.
    pub v6: bool,
    /// It runs RACK-TLP (RFC 8985) on connections with SACK. It times reordering itself, so that it needs no
    /// [`Command::Overdue`], and [`Command::ProbeTail`] is for whatever is outstanding.
    pub rack: bool,
    /// Streams may outgrow their buffers (docs/MEMORY.md). It grows a receive stream where a segment does not fit. It
    /// goes on in the next ring of a transmit stream where a bump has that, or a position comes by another way.
    pub grows: bool,
    /// They may begin in small rings, too.
    pub starts_small: bool,
    /// It sends and receives urgent data (RFC 9293 section 3.8.5).
    pub urgent: bool,
}
