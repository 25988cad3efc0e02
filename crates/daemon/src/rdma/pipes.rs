//! Pipes of events to programs: completion channels, and asynchronous events.
use rdma::EventPipe;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;

/// The daemon's end: the writing one. It never waits: the other end is an open file of its own, so a program cannot
/// change how this one behaves.
pub(crate) struct EventEnd(OwnedFd);

impl EventEnd {
    /// A pipe: the daemon's end, and the program's.
    ///
    /// # Errors
    /// The system has no descriptor or no memory left.
    pub(crate) fn pair() -> io::Result<(EventEnd, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&write, OFlags::NONBLOCK)?;
        Ok((EventEnd(write), read))
    }
}

impl EventPipe for EventEnd {
    fn put(&self, message: &[u8]) {
        // Full, or without a reader: then the program does not read, and misses it.
        let _ = rustix::io::write(&self.0, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_read_stops_nobody() {
        let (end, read) = EventEnd::pair().unwrap();
        for number in 0..100_000u32 {
            end.put(&number.to_ne_bytes());
        }
        let mut first = [0; 8];
        assert_eq!(rustix::io::read(&read, &mut first), Ok(8));
        assert_eq!(first, [0, 0, 0, 0, 1, 0, 0, 0]);
        drop(read);
        end.put(&[0; 4]);
    }
}
