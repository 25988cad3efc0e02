//! `libibverbs.so.1` and `librdmacm.so.1`, preloaded or found in place of the system's (docs/VERBS.md).
//!
//! It has no policy, and no protocol but that of rsockets. Control calls are requests to the daemon over the attach
//! socket. Data calls go through pipes in shared memory (crate `verbs`, docs/RDMA.md). The program `libibverbs` of this
//! crate exports its C functions, with the versions of `versions.map`.
//!
//! From the outside in. What programs call: `open`, `device`, `query`, `cq_calls`, `poll`, `extended_poll`, `qp_calls`,
//! `post`, `extended_send`, `shared_receive`, `events`, `region`, `window`, `handle`, `channel`, `domain`.
//! librdmacm: `cm`, and `rsockets` above it. What they call seldom: `strings`, `rates`, `system`, `provider`.
//! Where programs search for a device: `nodes`, `place`, `interfaces`.
//! Memory that the data-path can map: `allocator`. What stands behind it: `completion_queue`, `queue_pair`,
//! `attributes`, `build`, `polled`, `queues`, `context`, `attachment`. The structures of C: `abi`. And `errno`.
//!
//! What a program passes is checked where C could not express it. A pointer is believed, as by every C library: the
//! `SAFETY` comments name the call that gave it out.

mod abi;
mod allocator;
mod attachment;
mod attributes;
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
mod flows;
mod handle;
mod interfaces;
mod nodes;
mod numa;
mod open;
mod place;
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
mod ucx;
mod window;
mod xrc;
