//! The SmartNS engine: the data-path of verbs on RoCEv2 (docs/RDMA.md; the paper's sections 3.1 to 3.4).
//!
//! A [`Shard`] holds the queue pairs of one program's context, and what they share: completion queues, shared receive
//! queues, address handles. It is a state machine: frames, time and commands are passed in; frames, events and times
//! come out. Control operations are calls between two polls.
//!
//! A user of it:
//! 1. makes a [`Shard`], and gives it the consumer's end of the context's send pipe;
//! 2. makes objects ([`Shard::add_cq`], [`Shard::add_qp`], ...), changes their states ([`Shard::modify_qp`]) and
//!    gives each connected queue pair its way ([`Shard::set_path`]) once the neighbour is known;
//! 3. shares received frames out by [`destination_qp`], and calls [`Shard::poll`] while [`Shard::has_work`], at
//!    [`Shard::next_deadline`], and when frames come;
//! 4. carries out the [`Event`]s: numbers to write into completion channels, and asynchronous events.
#![forbid(unsafe_code)]

mod cnp;
mod completion_queue;
mod config;
mod congestion;
mod control;
mod datagram;
mod dcqcn;
mod ending;
mod frames;
mod intake;
mod notification_point;
mod numbers;
mod objects;
mod output;
mod pack;
mod payload;
mod placement;
mod qp;
mod raw;
mod receive_queue;
mod refused;
mod replies;
mod requester;
mod requester_recovery;
mod requester_responses;
mod requests;
mod responder;
mod responder_output;
mod selective;
mod send_queue;
mod shard;
mod shared;
mod spray;
mod states;
mod stream;
mod unpack;
mod windows;

pub use config::{Limits, LowerLayer, RawPackets, Recovery, ShardConfig, TransmitPath};
pub use congestion::{Congestion, Sender};
pub use objects::{NewCq, NewHandle, NewQp, NewSrq, Receives, Refusal};
pub use output::{CnpCounts, Event, ShardOutput};
pub use shard::Shard;
pub use stream::{
    Arrived, Content, Denied, FinalMessage, HEADER_LEN, Header, MOST_DATAGRAM, Message, MessageKind, RegionRange, Steer,
};
pub use wire::roce::{Path, destination_qp};
