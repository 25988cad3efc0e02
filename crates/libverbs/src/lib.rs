//! `libibverbs.so.1` and `librdmacm.so.1`, preloaded or found in place of the system's (docs/VERBS.md).
//!
//! It has no protocol and no policy: control calls are requests to the daemon over the attach socket, data calls go
//! through pipes in shared memory (crate `verbs`, docs/RDMA.md). Its C functions are exported by the program
//! `libibverbs` of this crate, with the versions of `versions.map`.
//!
//! From the outside in: `open`, `device`, `query`, `cq_calls`, `poll`, `extended_poll`, `qp_calls`, `post`,
//! `extended_send`, `shared_receive`, `events`, `region`, `handle`, `channel`, `domain` (what programs call); `cm`
//! (librdmacm); `strings`, `rates`, `system`, `provider`, `rsockets` (what they call seldom); `allocator`, `buffers`
//! (memory that the data-path can map); `completion_queue`, `queue_pair`, `attributes`, `build`, `polled`, `queues`,
//! `context`, `attachment` (what stands behind it); `abi` (the structures of C); `lock`, `errno`.
//!
//! What a program passes is checked where C could not express it. A pointer is believed, as by every C library: the
//! `SAFETY` comments say which call gave it out.

mod abi;
mod allocator;
mod attachment;
mod attributes;
mod buffers;
mod build;
mod channel;
mod cm;
mod completion_queue;
mod context;
mod cq_calls;
mod device;
mod domain;
mod errno;
mod events;
mod extended_poll;
mod extended_send;
mod handle;
mod lock;
mod open;
mod poll;
mod polled;
mod post;
mod provider;
mod qp_calls;
mod query;
mod queue_pair;
mod queues;
mod rates;
mod region;
mod rsockets;
mod shared_receive;
mod strings;
mod system;
