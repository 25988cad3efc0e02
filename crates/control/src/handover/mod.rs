//! Handover of a host to another daemon: the state of its parts at a standstill, and how they go on from that.
//! docs/TAKEOVER.md is the page.
mod restore;
mod standstill;
mod state;
mod taking;

pub(crate) use restore::{restore_binding, restore_context, restore_flow, restore_half_open, resume_flow, resume_log};
pub(crate) use standstill::{Left, Standstill};
pub use state::HostState;
pub(crate) use state::{FlowState, HoldState, own_addresses};
pub(crate) use taking::{binding_states, context_states, flow_state, half_open_states, hold_states};
