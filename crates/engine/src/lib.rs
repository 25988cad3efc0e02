//! The contract between the control plane and engines: an engine is a data-path for established flows; the control
//! plane does everything else. It passes [`Command`]s in and takes [`Event`]s and exceptions out. No behaviour lives
//! here.
//!
//! The contract has two layers. What stands at the root is neutral. What one family of engines needs is a
//! [`Transport`]: [`stream`] is that of TCP.
#![forbid(unsafe_code)]

mod drops;
mod message;
mod module;
mod registers;
mod runner;
pub mod stream;

pub use context::Slot;
pub use drops::{DropCounts, DropReason, DropSet};
pub use message::{Command, Event, Transport};
pub use module::{Changes, Counts, Front, LoadedModule, Module, ModuleFigures, ModuleId, ModuleSource};
pub use module::{Packet, Stage, Verdict};
pub use port::{Checksum, Frame, FramePool, Nanos, Recorder, cut};
pub use registers::{RegisterShape, Registers};
pub use runner::{Backend, Runner};

use serde::{Deserialize, Serialize};
use trace::Traces;

/// Bytes that a data-path sends in one round, but for the last frame, where no rates bound it. What is to be answered
/// quickly waits for the copies of a round, wherever it comes in (thesis 5.5.4.4).
pub const ROUND_BYTES: u32 = 128 << 10;

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

/// Why an engine does not process a frame but passes it to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exception {
    /// Not a packet of the engine's transport: ARP, ICMP.
    Foreign,
    /// A packet of its transport, but for no installed flow.
    NoFlow,
    /// A module sent it ([`Verdict::Redirect`]).
    Redirected,
}

/// What goes into and comes out of one [`Engine::poll`]. Lists are appended to, except `rx` and `back`, which are
/// drained.
pub struct Burst<'a, T: Transport> {
    /// Frames received.
    pub rx: &'a mut Vec<Box<Frame>>,
    /// Frames that do not come from the port, and so pass no ingress modules, before those of `rx`. They are what the
    /// control plane gives back, with the reason for which it got it, and what the host sent to itself, as
    /// [`Exception::NoFlow`]. One that a module redirected passes no flow modules either.
    pub back: &'a mut Vec<(Exception, Box<Frame>)>,
    /// Frames to send, in order.
    pub tx: &'a mut Vec<Box<Frame>>,
    /// The exception path.
    pub exceptions: &'a mut Vec<(Exception, Box<Frame>)>,
    /// Events for the control plane.
    pub events: &'a mut Vec<Event<T>>,
    /// Commands of the control plane, drained.
    pub commands: &'a mut Vec<Command<T>>,
    /// Frames to use and to give back.
    pub pool: &'a mut FramePool,
    /// What was dropped, host-wide.
    pub drops: &'a mut DropCounts,
    /// While somebody captures: takes each frame where it leaves the engine, with what became of it. Frames on the
    /// exception path are the control plane's to record, and those marked [`Frame::recorded`] were recorded before.
    pub recorder: Option<&'a mut Recorder>,
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

/// What an engine offers beyond the least: one value, of which the control plane takes what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features<F> {
    /// Its flows can go on in another engine of its kind: an [`Event::Removed`] holds all that this needs.
    pub hands_over: bool,
    /// Where it runs modules that an operator adds.
    pub stages: &'static [Stage],
    /// What it offers of its transport.
    pub transport: F,
}

/// A data-path for the established flows of a transport.
pub trait Engine<T: Transport>: Send {
    /// `flextoe`, `laminar`, ...
    fn name(&self) -> &'static str;
    /// What it offers. Changes at most when a program is loaded.
    fn features(&self) -> Features<T::Features>;
    /// One bounded round: commands, then received frames, then descriptors of applications, then transmissions that
    /// are due. Returns how much was done; 0 means idle.
    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_, T>) -> usize;
    /// The frames of `burst.tx` from number `from` on, the engine's and the control plane's, are about to leave by the
    /// port. They pass the egress modules. To be called once after the polls whose frames leave together, also where
    /// there are none; uses `tx`, `pool`, `drops` and `recorder` of the burst. Does nothing by default.
    fn egress(&mut self, _now: Nanos, _from: usize, _burst: &mut Burst<'_, T>) {}
    /// There are descriptors or transmissions to process now. Checked before sleeping.
    fn has_work(&self, now: Nanos) -> bool;
    /// When the next transmission is due, where one waits for its time.
    fn next_deadline(&self) -> Option<Nanos>;
    /// Modules mapped to threads of their own; empty with everything in [`Engine::poll`]. The caller gives each a
    /// thread. Called once.
    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        Vec::new()
    }
    /// There has been little to do for a while: gives back memory that only busy times need.
    fn trim(&mut self) {}
    /// Writes to these tracepoints from now on, each of its threads by itself. Called once, before anything else. An
    /// engine that has none of them does nothing.
    fn trace(&mut self, _traces: &Traces) {}
    /// From now on this program runs, with the flows of the present one.
    ///
    /// # Errors
    /// Why not, with places in the program; then nothing has changed. Engines that run no program always refuse.
    fn load(&mut self, _program: &ProgramSource) -> Result<(), String> {
        Err(format!("engine {} runs no program that can be exchanged", self.name()))
    }
    /// The registers of its program, where it runs one.
    fn registers(&mut self) -> Option<&mut dyn Registers> {
        None
    }
    /// Why its data-path runs no more and drops everything, in a sentence: what it needs besides itself has ended.
    /// Asked before sleeping.
    fn failure(&self) -> Option<String> {
        None
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
    /// There has been little to do for a while: gives back what busy times need. True where that was more than a quiet
    /// host needs, so that the allocator may have pages to give back.
    fn trim(&mut self) -> bool;
}
