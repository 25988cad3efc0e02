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
    /// Dropped, as [`crate::Drop::ModuleDrop`].
    Drop,
    /// Sent out of the port on which it came.
    Transmit,
    /// To the control plane, as [`crate::Exception::Redirected`].
    Redirect,
    /// The module failed: dropped, as [`crate::Drop::ModuleAborted`].
    Aborted,
}

/// Where in the pipeline a module stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// On received frames, before pre-processing. Replicated as pre-processing is; order is restored after it.
    Ingress,
    /// On received segments of flows, before protocol processing. Segments of a flow are steered to the same replica,
    /// one after the other: for state that must be changed atomically (an "atomic stage").
    Flow,
    /// On frames that leave, after their payload is attached. `Pass` and `Transmit` mean the same here.
    Egress,
}

/// One-shot access to a segment: a module sees each once and keeps nothing of it.
pub struct Segment<'a> {
    /// The frame. A module may change its bytes, its length at both ends, and its metadata, which travels with it.
    /// The engine makes the checksums good afterwards.
    pub frame: &'a mut Frame,
    /// The flow; known in [`Stage::Flow`] only.
    pub flow: Option<FlowId>,
    /// The time.
    pub now: Nanos,
}

/// One replica of a module. Its state is its own: no other module or replica sees it. What later modules should know
/// it leaves in the frame's metadata.
pub trait Module: Send {
    /// Processes one segment.
    fn process(&mut self, segment: Segment<'_>) -> Verdict;
}

/// What replicas of a module are made from.
pub trait ModuleSource: Send + Sync {
    /// For people: `firewall`.
    fn name(&self) -> &str;
    /// Where it stands.
    fn stage(&self) -> Stage;
    /// It must see all bytes of a frame in one piece: payload by reference is copied into the frame first. Otherwise
    /// it sees at least all headers.
    fn whole_frames(&self) -> bool;
    /// It may change a frame's bytes or length. Where it never does, the engine leaves checksums alone.
    fn changes_frames(&self) -> bool {
        true
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
}

/// What a module did, all replicas together. Replicas add what they counted once a batch.
#[derive(Default, Debug)]
pub struct ModuleFigures {
    /// Frames seen.
    pub runs: AtomicU64,
    /// Ticks of the engine's tick source spent in it; 0 where there is none.
    pub ticks: AtomicU64,
    /// Frames by verdict, in the order of [`Verdict`].
    pub verdicts: [AtomicU64; 5],
}

impl ModuleFigures {
    /// Adds what one replica did in a batch.
    pub fn add(&self, verdicts: [u64; 5], ticks: u64) {
        self.runs.fetch_add(verdicts.iter().sum(), Relaxed);
        self.ticks.fetch_add(ticks, Relaxed);
        for (total, more) in self.verdicts.iter().zip(verdicts) {
            if more > 0 {
                total.fetch_add(more, Relaxed);
            }
        }
    }
}
