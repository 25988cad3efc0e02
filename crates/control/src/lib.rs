//! The control plane: everything but the data-path of established connections (FlexTOE appendix D, thesis section
//! 3.1): opening and closing connections, timers, congestion control, limits. [`Tcp`] joins it with an engine and is
//! the base transport of a host. Sans-I/O: frames, time and randomness are passed in.
#![forbid(unsafe_code)]

mod accept_queue;
mod accept_timing;
mod bindings;
mod config;
mod connections;
mod contexts;
mod counters;
mod fast_open;
mod flow;
mod flow_options;
mod flow_timers;
mod flow_view;
mod flows;
mod forks;
mod half_open;
mod handover;
mod handshakes;
mod holders;
mod icmp;
mod interface;
mod journal;
mod labels;
mod listening;
mod local_ports;
mod logs;
mod memory_config;
mod offers;
mod outbox;
mod packet;
mod plane;
mod port_counters;
mod port_set;
mod random;
mod records;
mod splice;
mod survivors;
mod tcp_config;
mod time_waits;
mod timers;
mod traced;
mod transport;
mod tuples;
mod used_syn_cookies;
mod view;

pub use ::host::{Claim, Io, RouteConfig, Transport};
pub use config::{HostConfig, Ipv6Config, LimitConfig, PortRule, TimerConfig};
pub use contexts::Application;
pub use counters::{Counters, Times};
pub use engine::ContextId;
pub use flow_view::{FlowPage, FlowTotals, FlowView};
pub use handover::HostState;
pub use interface::{Host, host};
pub use journal::{ADDRESS_WORDS, RECORD_WORDS, Records};
pub use memory_config::MemoryConfig;
pub use offers::{Ecn, Offers};
pub use plane::ShownTicket;
pub use records::RecordsInMemory;
pub use splice::{Seen, SpliceTable};
pub use tcp::congestion::CongestionName;
pub use tcp_config::TcpConfig;
pub use transport::Tcp;
pub use view::{ArpView, BindingView, ContextView, DropView, LabelView};
