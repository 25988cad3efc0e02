//! A shared log: records of many connections in one order (man toe_log, docs/SHARED-LOG.md).
use crate::functions::{RawRecord, get};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The process's shared log. It is ready to read, for `poll`, while there are records.
#[derive(Debug)]
pub struct Log {
    fd: OwnedFd,
    record: usize,
    list: Vec<RawRecord>,
}

impl Log {
    /// Makes the log, with room for `records` records of `record` bytes, both powers of two. There can be one, which
    /// lives as long as the process.
    ///
    /// # Errors
    /// As `toe_log_create`; `Unsupported` where `libtoe.so` is not loaded or the host keeps no logs.
    pub fn create(record: usize, records: usize) -> io::Result<Log> {
        Ok(Log { fd: get()?.log_create(record, records)?, record, list: Vec::new() })
    }

    /// From now on, what comes on the connection is records, beginning with the first byte that was not read; each says
    /// `mark`. The connection must stay open.
    ///
    /// # Errors
    /// As `toe_log_add`: `ENOBUFS` where the log has no room for what the connection's window offers its peer.
    pub fn add(&self, connection: impl AsFd, mark: u64) -> io::Result<()> {
        get()?.log_add(self.fd.as_fd(), connection.as_fd(), mark)
    }

    /// The next records, at most `most` (1 or more); waits for the first one. They are given back when what is returned
    /// is dropped.
    ///
    /// # Errors
    /// As `toe_log_read`.
    pub fn read(&mut self, most: usize) -> io::Result<Records<'_>> {
        self.list.resize(most, RawRecord::default());
        let count = get()?.log_read(self.fd.as_fd(), &mut self.list)?;
        Ok(Records { log: self, count })
    }
}

impl AsFd for Log {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Records that were read.
#[derive(Debug)]
pub struct Records<'l> {
    log: &'l mut Log,
    count: usize,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'r> {
    /// Its bytes; nothing where it is a hole: its connection ended before all of it had come.
    pub bytes: Option<&'r [u8]>,
    /// Its place in the log.
    pub index: u64,
    /// Of its connection.
    pub mark: u64,
    /// Records of its connection before it.
    pub number: u64,
}

impl Records<'_> {
    /// In the log's order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.log.list[..self.count].iter().map(|raw| {
            // SAFETY: libtoe gave this place, of one record; it stays mapped, and unchanged until it is given back,
            // which only the drop of `self` does.
            let bytes = (!raw.data.is_null()).then(|| unsafe { std::slice::from_raw_parts(raw.data, self.log.record) });
            Record { bytes, index: raw.index, mark: raw.mark, number: raw.number }
        })
    }
}

impl Drop for Records<'_> {
    fn drop(&mut self) {
        // It can fail only where the daemon is gone, and the log with it.
        let _ = get().map(|functions| functions.log_trim(self.log.fd.as_fd(), self.count));
    }
}
