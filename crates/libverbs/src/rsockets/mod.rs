//! rsockets: sockets over a reliable connection, as librdmacm offers them. Bytes go by WRITE with immediate data; the
//! messages are those of Linux' own rsockets, so either side may be one.
//!
//! `protocol` is what goes over the wire; `registered` the memory; `queue` the queue pair; `stream` the two ways of a
//! connection; `socket` its steps and its waiting threads; `table` the descriptors; `calls`, `options`, `transfer`,
//! `readiness` and `placement` are what programs call.
mod calls;
mod options;
mod placement;
mod protocol;
mod queue;
mod readiness;
mod registered;
mod socket;
mod stream;
mod table;
mod transfer;
