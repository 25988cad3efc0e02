//! Asynchronous sends and receives in place, by a ZeroNIC host of the daemon (man toe_comm, docs/ZERONIC.md).
use crate::buffer::{Attached, Buffer};
use crate::comm_functions::{Move, RawEvent};
use crate::functions::done;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Events that are taken at once.
const EVENTS: usize = 64;

/// What the connections of a listener, or a connection, carry. Both ends carry the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// A stream of bytes: any TCP host may be the peer.
    Stream,
    /// Messages: each send takes one receive of the peer's, which has the message's bytes.
    Messages,
}

/// Names a connection of a [`Comm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u32);

/// What has happened. `id` is the program's own number of a post.
#[derive(Debug)]
pub enum Event {
    /// A connect has a connection, which may be used at once.
    Connected {
        /// It.
        connection: ConnectionId,
        /// The connect.
        id: u64,
    },
    /// A listen is done.
    Listening {
        /// The listen.
        id: u64,
    },
    /// A peer has opened a connection.
    Accepted {
        /// It.
        connection: ConnectionId,
        /// The port that was listened on.
        port: u16,
    },
    /// The peer has a send's bytes; a datagram has left, or was dropped.
    Sent {
        /// The connection.
        connection: ConnectionId,
        /// The send.
        id: u64,
        /// What was sent.
        buffer: Buffer,
    },
    /// A receive is done.
    Received {
        /// The connection.
        connection: ConnectionId,
        /// The receive.
        id: u64,
        /// The bytes: of a stream, fewer than were asked for only where it ended; none where nothing more will come. Of
        /// datagrams, those of one, which may be none.
        buffer: Buffer,
    },
    /// The peer sends no more.
    Ended {
        /// The connection.
        connection: ConnectionId,
    },
    /// A post was not carried out.
    Failed {
        /// The post.
        id: u64,
        /// Why.
        error: io::Error,
        /// What it had.
        buffer: Option<Buffer>,
    },
    /// A connection is gone, with all that was posted on it.
    Lost {
        /// It.
        connection: ConnectionId,
        /// Why.
        error: io::Error,
        /// What its posts had, in no order.
        buffers: Vec<Buffer>,
    },
}

fn raw(to: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// A post that is under way.
struct Posted {
    id: u64,
    connection: Option<ConnectionId>,
    buffer: Option<Buffer>,
}

/// A program's part of a ZeroNIC host. It is ready to read, for `poll`, when an event has come since [`Comm::wait`]
/// gave fewer than it takes. A child of fork does not have it.
pub struct Comm {
    /// By the numbers that the library is given. Dropped before the attachment.
    posted: HashMap<u64, Posted>,
    next: u64,
    attached: Arc<Attached>,
}

impl Comm {
    /// Attaches to the ZeroNIC host of this name, or to the daemon's first.
    ///
    /// # Errors
    /// As `toe_comm_open`; `Unsupported` where `libtoe.so` is not loaded.
    pub fn open(host: Option<&str>) -> io::Result<Comm> {
        Ok(Comm { posted: HashMap::new(), next: 0, attached: Attached::open(host)? })
    }

    /// Memory to send from and to receive into, of so many zero bytes.
    ///
    /// # Errors
    /// The system has no memory, or the daemon registers no more.
    pub fn buffer(&self, len: usize) -> io::Result<Buffer> {
        Buffer::new(&self.attached, len)
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// `WouldBlock`, as of all posts, where too many wait to be taken: take events first.
    pub fn connect(&mut self, to: SocketAddrV4, carries: Carries, id: u64) -> io::Result<()> {
        let functions = self.attached.functions;
        let call = match carries {
            Carries::Stream => functions.connect,
            Carries::Messages => functions.connect_messages,
        };
        let address = raw(to);
        // SAFETY: the handle is open, and the address is a local value.
        self.post(Posted { id, connection: None, buffer: None }, |of, number| unsafe {
            call(of.handle, &raw const address, number)
        })
        .map_err(|(error, _)| error)
    }

    /// Opens a flow of unreliable datagrams from a port of the host (0: one that it chooses) to a peer's. Each datagram
    /// that comes takes the next receive, whose buffer has its bytes; one that finds none, or is longer, is dropped.
    /// [`Event::Sent`] follows when one has left.
    ///
    /// # Errors
    /// As [`Comm::connect`].
    pub fn connect_datagrams(&mut self, port: u16, to: SocketAddrV4, id: u64) -> io::Result<()> {
        let (address, call) = (raw(to), self.attached.functions.connect_datagrams);
        // SAFETY: the handle is open, and the address is a local value.
        self.post(Posted { id, connection: None, buffer: None }, |of, number| unsafe {
            call(of.handle, port, &raw const address, number)
        })
        .map_err(|(error, _)| error)
    }

    /// Accepts connections to a port, from now on.
    ///
    /// # Errors
    /// As [`Comm::connect`].
    pub fn listen(&mut self, port: u16, carries: Carries, id: u64) -> io::Result<()> {
        let functions = self.attached.functions;
        let call = match carries {
            Carries::Stream => functions.listen,
            Carries::Messages => functions.listen_messages,
        };
        // SAFETY: the handle is open.
        self.post(Posted { id, connection: None, buffer: None }, |of, number| unsafe { call(of.handle, port, number) })
            .map_err(|(error, _)| error)
    }

    /// Sends a buffer. It comes back with [`Event::Sent`].
    ///
    /// # Errors
    /// As [`Comm::connect`], with the buffer; `InvalidInput` where it is another [`Comm`]'s.
    pub fn send(&mut self, to: ConnectionId, buffer: Buffer, id: u64) -> Result<(), (io::Error, Buffer)> {
        self.post_buffer(self.attached.functions.send, to, buffer, id)
    }

    /// Receives the stream's next bytes, or the next message, into a buffer. It comes back with [`Event::Received`].
    /// Receives are done in their order.
    ///
    /// # Errors
    /// As [`Comm::send`].
    pub fn receive(&mut self, from: ConnectionId, buffer: Buffer, id: u64) -> Result<(), (io::Error, Buffer)> {
        self.post_buffer(self.attached.functions.recv, from, buffer, id)
    }

    /// The stream of this end ends behind what was posted.
    ///
    /// # Errors
    /// As [`Comm::connect`].
    pub fn end(&mut self, connection: ConnectionId) -> io::Result<()> {
        // SAFETY: the handle is open.
        done(unsafe { (self.attached.functions.end)(self.attached.handle, connection.0) })
    }

    /// Forgets a connection. One whose streams have not both ended is reset. Its posts get no completions any more:
    /// buffers that are under way on it do not come back.
    ///
    /// # Errors
    /// As [`Comm::connect`].
    pub fn forget(&mut self, connection: ConnectionId) -> io::Result<()> {
        // SAFETY: the handle is open.
        done(unsafe { (self.attached.functions.drop)(self.attached.handle, connection.0) })
    }

    /// The next events, after waiting for one; for `most` at most, where that is given. Nothing after that time.
    ///
    /// # Errors
    /// `ConnectionReset`: the daemon is gone.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<Vec<Event>> {
        let milliseconds = most.map_or(-1, |most| i32::try_from(most.as_millis()).unwrap_or(i32::MAX));
        let mut list = [RawEvent::default(); EVENTS];
        // SAFETY: the handle is open, and the list has so many places.
        let count = unsafe {
            (self.attached.functions.wait)(self.attached.handle, list.as_mut_ptr(), EVENTS as i32, milliseconds)
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(list[..count].iter().filter_map(|raw| self.event(raw)).collect())
    }

    fn post_buffer(
        &mut self,
        call: Move,
        connection: ConnectionId,
        buffer: Buffer,
        id: u64,
    ) -> Result<(), (io::Error, Buffer)> {
        let Some((key, at)) = buffer.place(&self.attached) else {
            return Err((io::Error::new(io::ErrorKind::InvalidInput, "the buffer is of another Comm"), buffer));
        };
        let len = buffer.len();
        let posted = Posted { id, connection: Some(connection), buffer: Some(buffer) };
        // SAFETY: the handle is open, and the place is the buffer's, which nobody else has until it comes back.
        let done = self.post(posted, |of, number| unsafe { call(of.handle, connection.0, key, at, len, number) });
        done.map_err(|(error, posted)| (error, posted.buffer.expect("it was posted with one")))
    }

    /// Posts under a number of its own.
    fn post(&mut self, posted: Posted, call: impl FnOnce(&Attached, u64) -> i32) -> Result<(), (io::Error, Posted)> {
        let number = self.next;
        if let Err(error) = done(call(&self.attached, number)) {
            return Err((error, posted));
        }
        self.next += 1;
        self.posted.insert(number, posted);
        Ok(())
    }

    fn event(&mut self, raw: &RawEvent) -> Option<Event> {
        let connection = ConnectionId(raw.connection);
        let error = || io::Error::from_raw_os_error(raw.value as i32);
        Some(match raw.what {
            1 => Event::Connected { connection, id: self.posted.remove(&raw.id)?.id },
            2 => Event::Listening { id: self.posted.remove(&raw.id)?.id },
            3 => Event::Accepted { connection, port: raw.value as u16 },
            4 => {
                let Posted { id, buffer, .. } = self.posted.remove(&raw.id)?;
                Event::Sent { connection, id, buffer: buffer? }
            }
            5 => {
                let Posted { id, buffer, .. } = self.posted.remove(&raw.id)?;
                let mut buffer = buffer?;
                buffer.set_len(buffer.len().min(raw.value as usize));
                Event::Received { connection, id, buffer }
            }
            6 => Event::Ended { connection },
            7 => {
                let Posted { id, buffer, .. } = self.posted.remove(&raw.id)?;
                Event::Failed { id, error: error(), buffer }
            }
            8 => {
                let all = std::mem::take(&mut self.posted).into_iter();
                let (lost, rest): (HashMap<_, _>, _) = all.partition(|(_, of)| of.connection == Some(connection));
                self.posted = rest;
                let buffers = lost.into_values().filter_map(|posted| posted.buffer).collect();
                Event::Lost { connection, error: error(), buffers }
            }
            _ => return None,
        })
    }
}

impl AsFd for Comm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the handle is.
        unsafe { BorrowedFd::borrow_raw((self.attached.functions.fd)(self.attached.handle)) }
    }
}
