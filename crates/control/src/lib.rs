//! The control plane: everything but the data-path of established connections (FlexTOE appendix D, thesis section
//! 3.1): ARP, routes, ICMP, opening and closing connections, timers, congestion control, limits. And the [`Host`],
//! which joins it with an engine. Sans-I/O: frames, time and randomness are passed in.
#![forbid(unsafe_code)]

mod bindings;
mod closing;
mod config;
mod contexts;
mod cookies;
mod flow;
mod flow_view;
mod handover;
mod holders;
mod host;
mod icmp;
mod input;
mod labels;
mod logs;
mod opening;
mod pacing;
mod packet;
mod placement;
mod plane;
mod ports;
mod random;
mod requests;
mod resting;
mod shares;
mod splice;
mod timers;
mod timing;
mod traced;
mod tuples;
mod view;

pub use ::host::{Claim, Io, RouteConfig, Transport};
pub use config::{HostConfig, LimitConfig, MemoryConfig, PortRule, TimerConfig};
pub use contexts::Application;
pub use engine::ContextId;
pub use flow_view::{FlowPage, FlowTotals, FlowView};
pub use handover::HostState;
pub use host::Host;
pub use splice::{Seen, SpliceTable};
pub use view::{ArpView, BindingView, ContextView, DropView, LabelView};
