//! The contract between the control plane and engines: an engine is a data-path for established connections;
//! the control plane does everything else. It passes [`Command`]s in and takes [`Event`]s and exceptions out.
//! No behaviour lives here.
#![forbid(unsafe_code)]

mod drops;
mod module;
mod stats;

pub use context::Slot;
pub use drops::{DropCounts, DropReason, DropSet};
pub use module::{Changes, Counts, Front, LoadedModule, Module, ModuleFigures, ModuleId, ModuleSource};
pub use module::{Segment, Stage, Verdict};
pub use port::{Frame, FramePool, Nanos, Recorder};
pub use stats::{FlowFigures, FlowStats};
pub use wire::FourTuple;
pub use wire::tcp::TimestampState;

use context::{EngineEnd, LogEnd};
use serde::{Deserialize, Serialize};
use shm::{Mirror, Pooled};
use std::sync::Arc;
use trace::Traces;
use wire::{Mac, Seq};

/// A flow of a host: an index below [`Limits::flows`], chosen by the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowId(pub u32);

/// A context of a host: an index below [`Limits::contexts`], chosen by the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContextId(pub u32);

/// Sizes that an engine allocates at start and never exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Flows at once.
    pub flows: u32,
    /// Contexts at once.
    pub contexts: u32,
}

/// A connection at the moment when the handshake is done and the engine takes over.
///
/// Stream positions count payload bytes from 0 in each direction; they, and the positions in [`context::Bump`]
/// and [`context::Notice`], are modulo 2^32. The byte at position `p` of the transmit stream has sequence number
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
    /// Where its notices go.
    pub context: ContextId,
    /// Its name there.
    pub slot: Slot,
    /// Its receive buffer, or the small ring before it ([`Engine::starts_small`]).
    pub rx: Arc<Mirror>,
    /// Its transmit buffer, or the small ring before it.
    pub tx: Arc<Mirror>,
    /// Next sequence number to send; everything before it is acknowledged.
    pub snd_nxt: Seq,
    /// Stream position of `snd_nxt`.
    pub tx_pos: u32,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Stream position of `rcv_nxt`.
    pub rx_pos: u32,
    /// The peer's receive window, bytes (already scaled).
    pub snd_wnd: u32,
    /// Shift for windows that the peer sends.
    pub snd_wscale: u8,
    /// Shift for windows that this host sends.
    pub rcv_wscale: u8,
    /// Most payload bytes of a segment on the wire, options already taken off.
    pub mss: u16,
    /// Most payload bytes of a super-segment, from the port; 0 for none.
    pub super_segment: u32,
    /// The port completes checksums.
    pub checksum_offload: bool,
    /// Timestamps are in use: the peer's last TSval, and what to add to this host's clock (RFC 7323 section 5.4).
    pub timestamps: Option<TimestampState>,
    /// SACK is permitted: send one block for the out-of-order interval (RFC 2018).
    pub sack: bool,
    /// ECN was negotiated (RFC 3168).
    pub ecn: bool,
    /// With ECN: echo each mark as DCTCP does (RFC 8257 section 3.2) instead of until CWR (RFC 3168 section 6.1.3).
    pub dctcp_echo: bool,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Sending rate, bytes a second; 0 for no limit.
    pub rate: u64,
    /// Its counters, shared with the control plane.
    pub stats: Pooled<FlowStats>,
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
    /// Timestamps, as last seen.
    pub timestamps: Option<TimestampState>,
    /// What another engine needs besides to go on; `None` from an engine whose flows cannot go elsewhere.
    pub resume: Option<Resume>,
}

/// The rest of a flow's state: with [`FlowEnd`], enough to go on in another engine ([`Command::Resume`]). What was received
/// out of order is not in it: the peer sends it again, as it must (RFC 2018 section 8).
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
    /// A FIN follows what is pending.
    pub fin: bool,
    /// It was acknowledged.
    pub fin_acked: bool,
    /// The peer's FIN was received in order.
    pub peer_fin: bool,
}

/// Control plane to engine. Commands take effect in order, before any frame or descriptor of the same
/// [`Engine::poll`]. Commands for a flow that is not installed are ignored.
pub enum Command {
    /// A context came: take descriptors from it.
    Attach(ContextId, EngineEnd),
    /// The process of a context is gone, or broke the protocol. What it has left in its ring by now is taken; when that has
    /// had its effect, also on what the control plane reads in [`FlowStats`], [`Event::Drained`] follows.
    Drain(ContextId),
    /// A context went: its flows have been moved or removed by commands before this one.
    Detach(ContextId),
    /// Take a connection over.
    Install(Box<FlowParams>),
    /// Stop at once and answer with [`Event::Removed`]. Nothing is sent.
    Remove(FlowId),
    /// From now on the flow's notices go to `slot` of `context`, and that context's descriptors for `slot` are for
    /// this flow; the earlier name is invalid. A notice with the present positions is sent at once (fork: claim).
    Rename {
        /// Which flow.
        flow: FlowId,
        /// Its new context.
        context: ContextId,
        /// Its name there.
        slot: Slot,
    },
    /// As `Rename`, and the flow's buffers are from now on `rx` and `tx`: what is unread, out of order or
    /// unacknowledged is copied over at the same stream positions.
    Move {
        /// Which flow.
        flow: FlowId,
        /// Its new context.
        context: ContextId,
        /// Its name there.
        slot: Slot,
        /// Its new receive buffer, of the same full size.
        rx: Arc<Mirror>,
        /// Its new transmit buffer, of the same full size.
        tx: Arc<Mirror>,
    },
    /// Takes in the application's positions, as in [`context::Bump`], and stops the flow if it is quiet: established,
    /// with nothing unread, out of order, unsent or unacknowledged. Answered by [`Event::Frozen`] or, where it is not
    /// quiet, by [`Event::Busy`]. Nothing changes in a frozen flow: descriptors for it are ignored, its segments go to
    /// the control plane as [`Exception::NoFlow`]. Then [`Command::Remove`] or [`Command::Thaw`] follows.
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
    /// Directly after [`Command::Install`]: the flow goes on where another engine left it. What was sent and is not
    /// acknowledged is sent again; the peer and the application are told where it stands.
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
    /// Nobody will read any more: no notices; new data that arrives raises [`Event::OrphanData`].
    Orphan(FlowId),
    /// Set the congestion window, bytes.
    Window(FlowId, u32),
    /// Set the sending rate, bytes a second; 0 for no limit.
    Rate(FlowId, u64),
    /// Set the payload bytes of a full segment (path MTU discovery); sends again from the oldest unacknowledged byte.
    Mss(FlowId, u16),
    /// Timeout: send again from the oldest unacknowledged byte (go-back-N).
    Retransmit(FlowId),
    /// Send an empty segment just below the window, which asks for an acknowledgement: zero-window probe, keepalive.
    Probe(FlowId),
    /// The control plane has stopped timing this flow: raise [`Event::Active`] when it next has something to time
    /// (at once, where it has already).
    Untrack(FlowId),
    /// The next hop's hardware address changed.
    NextHop(FlowId, Mac),
    /// The context has a shared log now (docs/SHARED-LOG.md), its only one. For engines with [`Engine::keeps_logs`].
    OpenLog(ContextId, Box<LogEnd>),
    /// From now on the flow's stream, from the application's position `rx_head` on, is records of its context's log, marked
    /// with `mark`. Always answered, in order, by [`Event::LogJoined`]. The application's positions in the receive stream mean nothing
    /// afterwards; notices say of it only its end.
    JoinLog {
        /// Which flow.
        flow: FlowId,
        /// Bytes taken from the receive buffer since the connection began.
        rx_head: u32,
        /// For the application.
        mark: u64,
    },
    /// From now on exactly these modules run, in this order within each [`Stage`]. The change is atomic: no segment
    /// passes some modules of the old list and some of the new one. An engine is told of modules only for the stages
    /// that [`Engine::stages`] names.
    Modules(Vec<LoadedModule>),
}

/// Engine to control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The flow now has bytes (or FIN) that are not sent or not acknowledged and is not being timed: start its
    /// retransmission, persist and congestion timers.
    Active(FlowId),
    /// The peer's FIN was received in order.
    PeerFin(FlowId),
    /// Likewise, where the application had ended its own stream before: the control plane may not know, as applications do
    /// that through the data pair.
    PeerFinToo(FlowId),
    /// This host's FIN was acknowledged.
    FinAcked(FlowId),
    /// A valid RST came (RFC 5961 section 3.2).
    Reset(FlowId),
    /// Data came for a flow that nobody reads.
    OrphanData(FlowId),
    /// Answer to [`Command::Freeze`]: the flow stands still, as described.
    Frozen(FlowId, FlowEnd),
    /// Answer to [`Command::Freeze`]: the flow is not quiet, and goes on.
    Busy(FlowId),
    /// Answer to [`Command::JoinLog`].
    LogJoined(FlowId, Result<(), LogRefusal>),
    /// Answer to [`Command::Remove`].
    Removed(FlowId, FlowEnd),
    /// Answer to [`Command::Drain`].
    Drained(ContextId),
    /// The application broke the protocol of its ring: detach it.
    RingCorrupt(ContextId),
}

/// Logs of a host at once, for engines that keep any.
pub const MOST_LOGS: usize = 64;

/// Why a flow's records do not go to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRefusal {
    /// The log has not the room that the flow's window promises its peer.
    Full,
    /// They go to it already.
    Joined,
    /// The flow is gone, stands still, or never was where the application says; or its context has no log.
    Unfit,
}

/// Why an engine does not process a frame but hands it to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exception {
    /// Not IPv4 and TCP: ARP, ICMP.
    NotTcp,
    /// TCP, but for no installed flow.
    NoFlow,
    /// A module sent it ([`Verdict::Redirect`]).
    Redirected,
}

/// What goes into and comes out of one [`Engine::poll`]. Lists are appended to, except `rx` and `back`, which are
/// drained.
pub struct Burst<'a> {
    /// Frames received.
    pub rx: &'a mut Vec<Box<Frame>>,
    /// Frames that do not come from the port, and so pass no ingress modules, before those of `rx`: what the control
    /// plane gives back, with the reason for which it got it, and what the host sent to itself, as
    /// [`Exception::NoFlow`]. One that a module redirected passes no flow modules either.
    pub back: &'a mut Vec<(Exception, Box<Frame>)>,
    /// Frames to send, in order.
    pub tx: &'a mut Vec<Box<Frame>>,
    /// The exception path.
    pub exceptions: &'a mut Vec<(Exception, Box<Frame>)>,
    /// What the control plane should know.
    pub events: &'a mut Vec<Event>,
    /// Commands of the control plane, drained.
    pub commands: &'a mut Vec<Command>,
    /// Frames to use and to give back.
    pub pool: &'a mut FramePool,
    /// What was dropped, host-wide.
    pub drops: &'a mut DropCounts,
    /// While somebody captures: takes each frame where it leaves the engine, with what became of it. Frames on the
    /// exception path are the control plane's to record, and those marked [`Frame::recorded`] were recorded before.
    pub recorder: Option<&'a mut Recorder>,
}

/// TCP options that an engine's segments can carry. What it does not carry is not negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carries {
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Selective acknowledgement (RFC 2018).
    pub sack: bool,
    /// Its windows are shifted by the host's window scale, whatever was agreed: one program has one shift.
    pub one_shift: bool,
}

/// A program for an engine that runs one: sources, as texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSource {
    /// Name of the main file, one of `files`.
    pub main: String,
    /// Names, as other files include them, and texts.
    pub files: Vec<(String, String)>,
    /// Names defined for the preprocessor, and their values.
    pub defines: Vec<(String, String)>,
}

/// A data-path for established connections.
pub trait Engine: Send {
    /// `flextoe`, `laminar`, ...
    fn name(&self) -> &'static str;
    /// One bounded round: commands, then received frames, then descriptors of applications, then transmissions that
    /// are due. Returns how much was done; 0 means idle.
    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_>) -> usize;
    /// The frames of `burst.tx` from number `from` on, the engine's and the control plane's, are about to leave by the
    /// port: they pass the egress modules. To be called once after the polls whose frames leave together, also where
    /// there are none; uses `tx`, `pool`, `drops` and `recorder` of the burst. Does nothing by default.
    fn egress(&mut self, _now: Nanos, _from: usize, _burst: &mut Burst<'_>) {}
    /// There are descriptors or transmissions to process now. Looked at before sleeping.
    fn has_work(&self, now: Nanos) -> bool;
    /// When the next transmission is due, where one waits for its time.
    fn next_deadline(&self) -> Option<Nanos>;
    /// Modules mapped to threads of their own; empty with everything in [`Engine::poll`]. The caller gives each a
    /// thread. Called once.
    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        Vec::new()
    }
    /// Writes to these tracepoints from now on, each of its threads by itself. Called once, before anything else. An
    /// engine that has none of them does nothing.
    fn trace(&mut self, _traces: &Traces) {}
    /// Which TCP options it carries; by default, all.
    fn carries(&self) -> Carries {
        Carries { timestamps: true, sack: true, one_shift: false }
    }
    /// From now on this program runs, with the flows of the present one.
    ///
    /// # Errors
    /// Why not, with places in the program; then nothing has changed. Engines that run no program always refuse.
    fn load(&mut self, _program: &ProgramSource) -> Result<(), String> {
        Err(format!("engine {} runs no program that can be exchanged", self.name()))
    }
    /// Flows' records can go to a context's log: [`Command::OpenLog`]. By default they cannot.
    fn keeps_logs(&self) -> bool {
        false
    }
    /// Its flows can go on in another engine of its kind: [`FlowEnd::resume`]. By default they cannot.
    fn hands_over(&self) -> bool {
        false
    }
    /// Streams may begin in small rings (docs/MEMORY.md): it grows a receive stream where a segment does not fit, and goes on in the
    /// transmit buffer where a bump says so, or a position comes by another way. By default they may not.
    fn starts_small(&self) -> bool {
        false
    }
    /// Where it runs modules that an operator adds; nowhere by default.
    fn stages(&self) -> &'static [Stage] {
        &[]
    }
    /// Figures of the modules for people: (module, counter, value).
    fn module_stats(&self) -> Vec<(String, &'static str, u64)>;
}

/// Modules of an engine that run on a thread of their own.
pub trait Worker: Send {
    /// For the thread's name.
    fn name(&self) -> String;
    /// One bounded round; returns how much was done, 0 when idle.
    fn poll(&mut self, now: Nanos) -> usize;
    /// There has been nothing to do for a while: gives back what busy times need.
    fn rest(&mut self);
}
