//! Reading in place.
use crate::functions::{self, get};
use libc::iovec;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::ops::Deref;
use std::os::fd::AsFd;

/// The reading side of a [`crate::Connection`]. Its `Read` copies, in the same order.
#[derive(Debug)]
pub struct Reader<'a> {
    stream: &'a TcpStream,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Reader<'a> {
        Reader { stream }
    }

    /// All bytes that have come and were not released; waits for `least` (1 or more), unless the socket does not block.
    /// Fewer at the end of the stream, then none.
    ///
    /// # Errors
    /// As `toe_zc_peek`: `WouldBlock`, and what sockets have.
    pub fn peek(&mut self, least: usize) -> io::Result<Unread<'_>> {
        let pieces = functions::pieces(get()?.peek, self.stream.as_fd(), least)?;
        Ok(Unread { stream: self.stream, bytes: Bytes { pieces }, of: PhantomData })
    }

    /// The next `len` bytes (1 or more), which stay where they are until what is returned is dropped, in whatever
    /// order; waits until all are there. Fewer at the end of the stream, then none.
    ///
    /// # Errors
    /// As `toe_zc_take`: `WouldBlock`; `ENOBUFS` where so much is kept that `len` bytes cannot come.
    pub fn take(&mut self, len: usize) -> io::Result<Taken<'a>> {
        let pieces = functions::pieces(get()?.take, self.stream.as_fd(), len)?;
        Ok(Taken { stream: self.stream, bytes: Bytes { pieces } })
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

/// Bytes of the receive buffer, in at most two pieces.
#[derive(Debug)]
pub struct Bytes {
    pieces: [iovec; 2],
}

// SAFETY: whoever has this value has the place for as long, and libtoe's functions may be called from any thread.
unsafe impl Send for Bytes {}
// SAFETY: as above; shared, it only gives bytes to read.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// The bytes; the second piece goes on where the first one ends.
    pub fn pieces(&self) -> [&[u8]; 2] {
        self.pieces.each_ref().map(|piece| {
            if piece.iov_len == 0 {
                return &[][..];
            }
            // SAFETY: libtoe gave this place; it stays mapped and unchanged until it is released, freed or closed,
            // which the borrow of `self` excludes, and nobody else does (`Connection::new`).
            unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) }
        })
    }

    /// Bytes of both pieces.
    pub fn len(&self) -> usize {
        self.pieces[0].iov_len + self.pieces[1].iov_len
    }

    /// The end of the stream.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes that were received, and are still to be read or released.
#[derive(Debug)]
pub struct Unread<'r> {
    stream: &'r TcpStream,
    bytes: Bytes,
    of: PhantomData<&'r mut [u8]>,
}

impl Unread<'_> {
    /// Gives the first `len` bytes back to the connection.
    ///
    /// # Errors
    /// `EINVAL` where there are not so many.
    pub fn release(self, len: usize) -> io::Result<()> {
        get()?.release(self.stream.as_fd(), len)
    }
}

impl Deref for Unread<'_> {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// Bytes that were read and stay in the receive buffer until this is dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    stream: &'a TcpStream,
    bytes: Bytes,
}

impl Deref for Taken<'_> {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // It can fail only where the connection is gone, and the place with it.
        let _ = get().map(|functions| functions.free(self.stream.as_fd(), &self.bytes.pieces));
    }
}
