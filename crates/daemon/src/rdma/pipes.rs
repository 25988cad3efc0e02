//! Pipes of events to programs: completion channels, and asynchronous events.
use rdma::EventPipe;
use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

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

/// A pipe, as the system numbers it: both ends of one have the same number, and no other pipe has, as long as an end is
/// open.
type PipeNumber = (u64, u64);

/// The pipes of channels to which several devices may write. A program that has several devices has one pipe for the
/// events of all. It names it by the read end, which no other process has.
#[derive(Default)]
pub(crate) struct EventPipes(Mutex<HashMap<PipeNumber, Weak<EventEnd>>>);

fn pipe_number(end: &OwnedFd) -> Option<PipeNumber> {
    let stat = fstat(end).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

impl EventPipes {
    /// A pipe that was made.
    pub(crate) fn add(&self, end: &Arc<EventEnd>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, known| known.strong_count() > 0);
        all.extend(pipe_number(&end.0).map(|number| (number, Arc::downgrade(end))));
    }

    /// The pipe of which this is the read end.
    pub(crate) fn find(&self, read: &OwnedFd) -> Option<Arc<EventEnd>> {
        let number = pipe_number(read)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_found_by_its_read_end() {
        let pipes = EventPipes::default();
        let ends: Vec<_> = (0..3).map(|_| EventEnd::pair().unwrap()).map(|(end, read)| (Arc::new(end), read)).collect();
        ends.iter().for_each(|(end, _)| pipes.add(end));
        for (end, read) in &ends {
            let found = pipes.find(&read.try_clone().unwrap()).expect("known");
            assert!(Arc::ptr_eq(&found, end));
        }
        let (_strange, read) = EventEnd::pair().unwrap();
        assert!(pipes.find(&read).is_none(), "without an owner");
        let (end, read) = ends.into_iter().next().unwrap();
        drop(end);
        assert!(pipes.find(&read).is_none(), "its channels are gone");
    }

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
