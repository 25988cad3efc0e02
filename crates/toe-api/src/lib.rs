//! Rust interface for what OpenTOE offers programs beyond sockets: the functions of `include/toe.h`.
//!
//! They are looked up in the running program, so the same program runs with and without `libtoe.so` preloaded;
//! [`Connection::new`] returns which it is.

mod buffer;
mod comm;
mod comm_functions;
mod functions;
mod log;
mod reader;
mod writer;

pub use buffer::Buffer;
pub use comm::{Carries, Comm, ConnectionId, Event};
pub use functions::{api_version, splice};
pub use log::{Log, Record, Records};
pub use reader::{Bytes, Reader, Taken, Unread};
pub use writer::{Room, Writer};

use std::io;
use std::net::TcpStream;

/// A connection whose buffers the program reads and writes in place.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Takes a connected socket.
    ///
    /// # Safety
    /// While this value lives, nothing else reads, writes or closes the connection: no clone of the stream, no use of
    /// its descriptor, no other process after a fork. The bytes that slices refer to would change.
    ///
    /// # Errors
    /// `Unsupported` where `libtoe.so` is not loaded. A connection that is the kernel's fails at its first use.
    pub unsafe fn new(stream: TcpStream) -> io::Result<Connection> {
        functions::get()?;
        Ok(Connection { stream })
    }

    /// The reading and the writing side; they may be used in different threads.
    pub fn halves(&mut self) -> (Reader<'_>, Writer<'_>) {
        (Reader::new(&self.stream), Writer::new(&self.stream))
    }

    /// The socket, for sockets' own calls.
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }
}
