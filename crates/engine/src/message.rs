//! Messages between the control plane and an engine: neutral ones, and a transport's own inside them.
use crate::{ContextId, FlowId, LoadedModule};
use context::EngineEnd;
use std::fmt::Debug;
use wire::Mac;

/// A family of engines and of control planes that fit each other: the types of what they exchange.
pub trait Transport: Copy + Debug + Eq + 'static {
    /// A flow at the moment when the engine takes it over, with the counters that the engine writes and the control
    /// plane reads.
    type Install: Send;
    /// What a flow was when it left the engine.
    type End: Copy + Debug + Eq + Send;
    /// Commands that only this family has.
    type Command: Send;
    /// Events that only this family has.
    type Event: Clone + Debug + Eq + Send;
    /// What an engine offers of this family.
    type Features: Copy + Debug + Eq;
}

/// Control plane to engine. Commands take effect in order, before any frame or descriptor of the same
/// [`crate::Engine::poll`]. Commands for a flow that is not installed are ignored.
pub enum Command<T: Transport> {
    /// A context came: take descriptors from it.
    Attach(ContextId, EngineEnd),
    /// The process of a context is gone, or broke the protocol. What it has left in its ring by now is taken; when that
    /// has had its effect, also on the counters of flows, [`Event::Drained`] follows.
    Drain(ContextId),
    /// A context went: its flows have been moved or removed by commands before this one.
    Detach(ContextId),
    /// Take a flow over.
    Install(Box<T::Install>),
    /// Stop at once and answer with [`Event::Removed`]. Nothing is sent.
    Remove(FlowId),
    /// The next hop's hardware address changed.
    NextHop(FlowId, Mac),
    /// From now on exactly these modules run, in this order within each [`crate::Stage`]. The change is atomic: no
    /// frame passes some modules of the old list and some of the new one. An engine gets modules only for the stages
    /// that [`crate::Features::stages`] names.
    Modules(Vec<LoadedModule>),
    /// A command of the transport.
    Transport(T::Command),
}

/// Engine to control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<T: Transport> {
    /// Answer to [`Command::Remove`].
    Removed(FlowId, T::End),
    /// Answer to [`Command::Drain`].
    Drained(ContextId),
    /// The application broke the protocol of its ring: detach it.
    RingCorrupt(ContextId),
    /// An event of the transport.
    Transport(T::Event),
}
