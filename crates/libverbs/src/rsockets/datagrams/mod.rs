//! Datagram sockets, as librdmacm has them. The first datagrams to a destination go by plain UDP, from the host's own
//! address, with the sender's queue pair. Once the destination has sent its own, datagrams go between the two queue
//! pairs. So either side may be Linux' librdmacm.
//!
//! `header` is what goes over the wire; `port` the UDP port; `queue` the queue pair and its buffers; `peers` the
//! destinations; `endpoint` all of these together; `socket` what calls ask of them.
//!
//! Linux has a thread that answers what comes by UDP. Here calls do: what comes meanwhile waits at the daemon, and a
//! sender that has no answer yet goes on by UDP.
mod endpoint;
mod header;
mod peers;
mod port;
mod queue;
mod socket;

pub(super) use socket::Datagrams;
