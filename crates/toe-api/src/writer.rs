//! Writing in place.
use crate::functions::{self, get};
use libc::iovec;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::net::TcpStream;
use std::os::fd::AsFd;

/// The writing side of a [`crate::Connection`]. Its `Write` copies, in the same order.
#[derive(Debug)]
pub struct Writer<'a> {
    stream: &'a TcpStream,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(stream: &'a TcpStream) -> Writer<'a> {
        Writer { stream }
    }

    /// All room of the transmit buffer; waits for `least` bytes of it (1 or more), unless the socket does not block.
    ///
    /// # Errors
    /// As `toe_zc_reserve`: `WouldBlock`, `BrokenPipe`, and what sockets have.
    pub fn reserve(&mut self, least: usize) -> io::Result<Room<'_>> {
        let pieces = functions::pieces(get()?.reserve, self.stream.as_fd(), least)?;
        Ok(Room { stream: self.stream, pieces, of: PhantomData })
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Room of the transmit buffer, in at most two pieces.
#[derive(Debug)]
pub struct Room<'w> {
    stream: &'w TcpStream,
    pieces: [iovec; 2],
    of: PhantomData<&'w mut [u8]>,
}

fn room(piece: &mut iovec) -> &mut [u8] {
    if piece.iov_len == 0 {
        return &mut [];
    }
    // SAFETY: libtoe gave this place, whose bytes have values; until it is committed, nobody else touches it, which the
    // borrow that `piece` stands in and `Connection::new` make sure of.
    unsafe { std::slice::from_raw_parts_mut(piece.iov_base.cast(), piece.iov_len) }
}

impl Room<'_> {
    /// The room; the second piece goes on where the first one ends. What it holds before it is written to is of no use.
    pub fn pieces(&mut self) -> [&mut [u8]; 2] {
        let [first, second] = &mut self.pieces;
        [room(first), room(second)]
    }

    /// Bytes of both pieces.
    pub fn len(&self) -> usize {
        self.pieces[0].iov_len + self.pieces[1].iov_len
    }

    /// Never: one byte of room is the least that is waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends the first `len` bytes.
    ///
    /// # Errors
    /// `EINVAL` where there are not so many; `BrokenPipe` where the connection ended meanwhile.
    pub fn commit(self, len: usize) -> io::Result<()> {
        get()?.commit(self.stream.as_fd(), len, 0)
    }

    /// As [`Room::commit`]; more is to come soon, so less than a segment may wait for it (`MSG_MORE`).
    ///
    /// # Errors
    /// As [`Room::commit`].
    pub fn commit_more(self, len: usize) -> io::Result<()> {
        get()?.commit(self.stream.as_fd(), len, libc::MSG_MORE)
    }
}
