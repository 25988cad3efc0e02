//! TCP's rules, pure: values and state machines that take a segment or an event and return what is to be done.
//!
//! Nothing here does I/O, reads a clock, holds a buffer or names an engine. Time, randomness and segments are passed
//! in. The control plane, the engines' software parts and the tests share these rules.
#![forbid(unsafe_code)]

mod acceptance;
mod black_hole;
mod challenge;
mod closing;
pub mod congestion;
mod established;
pub mod fast_open;
mod few;
mod flight;
mod handshake;
mod negotiate;
mod prr;
mod rack;
mod reassembly;
mod records;
mod reset;
mod rtt;
mod scoreboard;
mod segment;
mod sent_marks;
mod single_block;
mod spurious;
pub mod syn_cookie;
mod time_wait;
mod undo;
mod urgent;
pub mod window;

pub use acceptance::{ReceiveWindow, Rejected, ack_counts_alone, check_ack, check_timestamp};
pub use black_hole::{BlackHole, Finding};
pub use challenge::ChallengeLimit;
pub use closing::{Closing, ClosingEvent, Ends, LocalFin, Owner, PeerFin};
pub use established::Established;
pub use flight::{Acknowledged, FlightLimit, WindowUse};
pub use handshake::{Disposition, Handshake};
pub use negotiate::{DCTCP_ECN_TRIES, Offer, Peer};
pub use prr::PrrInput;
pub use rack::RackInput;
pub use reassembly::Reassembly;
pub use records::RecordEnds;
pub use reset::reset_for;
pub use rtt::{Rto, RtoBounds, RttEstimator, RttTimer};
pub use scoreboard::{Scoreboard, Timeout};
pub use segment::Segment;
pub use sent_marks::SentMarks;
pub use single_block::{DUPLICATES, Recovery};
pub use spurious::{AckUpdate, Verdict};
pub use time_wait::{TimeWait, TimeWaitDisposition};
pub use urgent::Urgent;
pub use wire::tcp::{Agreed, Growth, State, TimestampState, Unacceptable};
pub use wire::{FourTuple, Nanos};
