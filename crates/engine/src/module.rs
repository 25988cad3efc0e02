//! Modules that an operator adds to a running engine: the contract between an engine and what runs in it
//! (FlexTOE section 3.3; thesis section 4.3.3). docs/MODULES.md is the guide.
use crate::FlowId;
use port::{Frame, Nanos};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What becomes of a frame after a module: XDP's result codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// On to the next module.
    Pass,
    /// Dropped, as [`crate::DropReason::ModuleDrop`].
    Drop,
    /// Sent out of the port on which it came, past what else the host does with received frames.
    Transmit,
    /// To the control plane, as [`crate::Exception::Redirected`]. In [`Stage::Egress`] there is nobody to redirect to:
    /// as `Drop`.
    Redirect,
    /// The module failed: dropped, as [`crate::DropReason::ModuleAborted`].
    Aborted,
}

/// Where in the pipeline a module stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// On received frames, before pre-processing. Replicated as pre-processing is; order is restored after it.
    Ingress,
    /// On received segments of flows, before protocol processing. Segments of a flow are steered to the same replica,
    /// one after the other: for state that must be changed atomically (an "atomic stage"). What a module changes here
    /// is read again, but the segment stays this flow's.
    Flow,
    /// On frames that leave by the port, after their payload is attached: the engine's, those that other modules
    /// transmit, and the control plane's. One replica: they leave in one order. `Pass` and `Transmit` mean the same.
    Egress,
}

impl Stage {
    /// `ingress`, `flow`, `egress`.
    pub fn label(self) -> &'static str {
        match self {
            Stage::Ingress => "ingress",
            Stage::Flow => "flow",
            Stage::Egress => "egress",
        }
    }
}

impl Verdict {
    /// All, in their order.
    pub const ALL: [Verdict; 5] =
        [Verdict::Pass, Verdict::Drop, Verdict::Transmit, Verdict::Redirect, Verdict::Aborted];

    /// `pass`, `drop`, `transmit`, `redirect`, `aborted`.
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Drop => "drop",
            Verdict::Transmit => "transmit",
            Verdict::Redirect => "redirect",
            Verdict::Aborted => "aborted",
        }
    }
}

/// A frame as a module gets it, once (XDP: `xdp_md`). A module keeps nothing of it.
pub struct Packet<'a> {
    /// The frame. A module may change its headers, its length at both ends, and its metadata, which travels with it. It
    /// may change its payload too, where it asks for whole frames. The engine makes the checksums of IPv4 and TCP good
    /// afterwards.
    pub frame: &'a mut Frame,
    /// The flow; known in [`Stage::Flow`] only.
    pub flow: Option<FlowId>,
    /// The time.
    pub now: Nanos,
}

/// What a module may change of frames besides their metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Nothing: the engine leaves checksums alone.
    Nothing,
    /// Only something in front, as a VLAN tag that is pushed or stripped: the engine need not check the rest.
    Front(Front),
    /// Any of its bytes, and its length.
    Anything,
}

/// The part of a frame that a module changes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front {
    /// Whatever it writes stands before this byte, counted from where the frame began before; what it puts in front of
    /// that, too. The length changes at the front only.
    pub below: u32,
    /// Most bytes that it takes off the front.
    pub strips: u32,
}

/// One replica of a module. Its state is its own: no other module or replica sees it. What later modules should know
/// it leaves in the frame's metadata.
pub trait Module: Send {
    /// Processes one segment.
    fn process(&mut self, packet: Packet<'_>) -> Verdict;

    /// The same of those frames of a batch, of no known flow, that were let pass so far; counts the verdicts. Here so
    /// that each module has a loop of its own.
    fn process_frames(&mut self, frames: &mut [Box<Frame>], verdicts: &mut [Verdict], now: Nanos) -> Counts {
        let mut counts = Counts::default();
        for (frame, verdict) in frames.iter_mut().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Pass) {
            *verdict = self.process(Packet { frame, flow: None, now });
            counts[*verdict as usize] += 1;
        }
        counts
    }
}

/// How often there was each verdict, in the order of [`Verdict::ALL`].
pub type Counts = [u64; Verdict::ALL.len()];

/// What replicas of a module are made from.
pub trait ModuleSource: Send + Sync {
    /// For people: `firewall`.
    fn name(&self) -> &str;
    /// Where it stands.
    fn stage(&self) -> Stage;
    /// It must see all bytes of a frame in one piece: payload by reference is copied into the frame first. Otherwise
    /// it sees at least all headers.
    fn whole_frames(&self) -> bool;
    /// What it may change of a frame.
    fn changes(&self) -> Changes {
        Changes::Anything
    }
    /// Makes a replica. `index` counts the replicas of this module in this engine from 0.
    fn replica(&self, index: u32) -> Box<dyn Module>;
}

/// Names a loaded module for as long as it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// A module as an engine gets it.
#[derive(Clone)]
pub struct LoadedModule {
    /// Its name in [`crate::Command::Modules`]: where it stays the same, replicas and their state stay.
    pub id: ModuleId,
    /// Where its replicas come from.
    pub source: Arc<dyn ModuleSource>,
    /// What its replicas count.
    pub figures: Arc<ModuleFigures>,
    /// Read before and after some batches, to measure what the module costs: engines read no clock of their own.
    pub ticks: fn() -> u64,
}

/// What a module did, all replicas together. Replicas add what they counted once a batch.
#[derive(Default, Debug)]
pub struct ModuleFigures {
    /// Frames seen.
    pub runs: AtomicU64,
    /// Frames seen in batches whose time was taken: one in [`ModuleFigures::TIMED`], since reading a clock may cost
    /// more than a module.
    pub timed: AtomicU64,
    /// Ticks that those took ([`LoadedModule::ticks`]).
    pub ticks: AtomicU64,
    /// Frames by verdict, in the order of [`Verdict`].
    pub verdicts: [AtomicU64; 5],
}

impl ModuleFigures {
    /// One batch of so many has its time taken, the first one among them.
    pub const TIMED: u64 = 16;

    /// Adds what one replica did in a batch, and the ticks that it took where they were counted.
    pub fn add(&self, verdicts: Counts, ticks: Option<u64>) {
        let runs = verdicts.iter().sum();
        self.runs.fetch_add(runs, Relaxed);
        if let Some(ticks) = ticks {
            self.timed.fetch_add(runs, Relaxed);
            self.ticks.fetch_add(ticks, Relaxed);
        }
        for (total, more) in self.verdicts.iter().zip(verdicts) {
            if more > 0 {
                total.fetch_add(more, Relaxed);
            }
        }
    }
}
