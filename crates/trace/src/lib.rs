//! Tracepoints (FlexTOE section 5.1; thesis section 4.5.1). Each is declared once, in `points.rs`; from that list come
//! counters, histograms, streamed records, Prometheus metrics and docs/TRACEPOINTS.md.
//!
//! Every thread, and every replica of an engine's module, writes with a [`Tracer`] of its own. A point that is off
//! costs one predicted branch. One that is on costs an addition in memory that only this thread writes. A record is
//! made only while a reader is attached. No reader can make a writer wait: see [`log`](Watch).
//!
//! | part | has | file |
//! |---|---|---|
//! | a host, or a data-path thread | [`Traces`]: what is on, and all tracers | `traces` |
//! | a thread of it | [`Tracer`]: what it has counted, and its latest records | `tracer` |
//! | reader | [`Watch`]: a stream of records; [`Traces::figures`]: counts | `watch`, `traces` |
#![forbid(unsafe_code)]

mod histogram;
mod log;
mod pattern;
mod points;
mod set;
mod table;
mod tracer;
mod traces;
mod watch;

pub use histogram::Distribution;
pub use log::Record;
pub use points::{Kind, Point, Unit};
pub use set::PointSet;
pub use table::markdown;
pub use tracer::{NO_FLOW, Ticks, Tracer};
pub use traces::{Figure, Held, Traces};
pub use watch::Watch;
