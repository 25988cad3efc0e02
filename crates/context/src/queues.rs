//! Queues of messages (verbs): send and receive queues from the application, completions to it.
//!
//! They come and go while a context lives. So each set of queues has a sealed region of its own, with a directory like
//! every region, and is passed by descriptor. The context's own region stays as it was checked. A queue pair and its
//! completion queue can be one set, or a set each where queue pairs share completions.
//!
//! Elements are those of SmartNS' notification pipe (section 3.4): 64 bytes to send, 16 bytes to receive, 64 bytes of
//! completion. Each has a valid bit that toggles at the wrap ([`shm::VALID`]).
use crate::directory::{AreaKind, DAEMON_BELL, Directory};
use shm::{Doorbell, PipeConsumer, PipeProducer, Region};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Words of an element of a send queue.
pub const SEND_WORDS: usize = 8;
/// Words of an element of a receive queue.
pub const RECEIVE_WORDS: usize = 2;
/// Words of a completion.
pub const COMPLETION_WORDS: usize = 8;
/// Elements of a receive queue in a line of the cache: what is best taken at once.
pub const RECEIVES_AT_ONCE: usize = shm::CACHE_LINE / 8 / RECEIVE_WORDS;

/// The daemon's doorbell of a context that has queues only, in the region of its first send queue. `fd` is its eventfd.
/// The daemon [promises](Doorbell::promise_barrier) a barrier, and the application may rely on that.
pub fn daemon_bell(region: &Arc<Region>, fd: OwnedFd) -> Doorbell {
    Doorbell::new(region, DAEMON_BELL, fd)
}

/// Sizes of the queues of a set, in elements: a power of two up to 2^20, or 0 where there is no such queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueSizes {
    /// Of the send queue.
    pub send: u32,
    /// Of the receive queue.
    pub receive: u32,
    /// Of the completion queue.
    pub completion: u32,
}

/// Positions of each end of a set, modulo 2^32: what another daemon needs to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueuePositions {
    /// Elements of the send queue.
    pub send: u32,
    /// Elements of the receive queue.
    pub receive: u32,
    /// Elements of the completion queue.
    pub completion: u32,
}

impl QueueSizes {
    /// Whether there can be such queues.
    pub fn is_valid(&self) -> bool {
        let ok = |entries: u32| entries == 0 || (entries.is_power_of_two() && entries <= 1 << 20);
        ok(self.send) && ok(self.receive) && ok(self.completion)
    }

    fn directory(&self) -> Directory {
        let mut directory = Directory::new();
        let queues = [
            (AreaKind::SendQueue, self.send, SEND_WORDS),
            (AreaKind::ReceiveQueue, self.receive, RECEIVE_WORDS),
            (AreaKind::CompletionQueue, self.completion, COMPLETION_WORDS),
        ];
        for (kind, entries, words) in queues.into_iter().filter(|(_, entries, _)| *entries > 0) {
            directory.add(kind, entries, words as u32 * 8);
        }
        directory
    }
}

/// So many times in a lap, a producer reads the consumer's counter.
const READS_IN_A_LAP: u32 = 4;

fn producer<const W: usize>(
    region: &Arc<Region>,
    directory: &Directory,
    kind: AreaKind,
    from: u32,
) -> Option<PipeProducer<W>> {
    let area = directory.find(kind)?;
    Some(PipeProducer::new(region, area.at, area.entries, from, area.entries.div_ceil(READS_IN_A_LAP)))
}

fn consumer<const W: usize>(
    region: &Arc<Region>,
    directory: &Directory,
    kind: AreaKind,
    from: u32,
) -> Option<PipeConsumer<W>> {
    directory.find(kind).map(|area| PipeConsumer::new(region, area.at, area.entries, from))
}

/// The daemon's ends of a set. What it takes is the application's word: each element is to be checked.
pub struct DaemonQueues {
    /// Work requests to send.
    pub send: Option<PipeConsumer<SEND_WORDS>>,
    /// Work requests to receive.
    pub receive: Option<PipeConsumer<RECEIVE_WORDS>>,
    /// Completions.
    pub completion: Option<PipeProducer<COMPLETION_WORDS>>,
}

impl DaemonQueues {
    /// Makes the region of a set and the daemon's ends of it.
    ///
    /// # Errors
    /// The sizes cannot be, or the system has no memory or no descriptor.
    pub fn create(name: &str, sizes: QueueSizes) -> io::Result<(Arc<Region>, DaemonQueues)> {
        if !sizes.is_valid() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "queue sizes must be powers of two up to 2^20"));
        }
        let region = Arc::new(sizes.directory().create(name)?);
        let ends = DaemonQueues::at(&region, &sizes.directory(), QueuePositions::default());
        Ok((region, ends))
    }

    /// Goes on with a set that another daemon made, where that one stopped. Sizes and positions are that daemon's, not
    /// what stands in the region.
    ///
    /// # Errors
    /// The region is smaller than these queues.
    pub fn resume(region: &Arc<Region>, sizes: QueueSizes, from: QueuePositions) -> io::Result<DaemonQueues> {
        let directory = sizes.directory();
        if !sizes.is_valid() || region.len() < directory.end() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the region of these queues is too small"));
        }
        Ok(DaemonQueues::at(region, &directory, from))
    }

    fn at(region: &Arc<Region>, directory: &Directory, from: QueuePositions) -> DaemonQueues {
        DaemonQueues {
            send: consumer(region, directory, AreaKind::SendQueue, from.send),
            receive: consumer(region, directory, AreaKind::ReceiveQueue, from.receive),
            completion: producer(region, directory, AreaKind::CompletionQueue, from.completion),
        }
    }

    /// How far its ends have come.
    pub fn positions(&self) -> QueuePositions {
        QueuePositions {
            send: self.send.as_ref().map_or(0, PipeConsumer::position),
            receive: self.receive.as_ref().map_or(0, PipeConsumer::position),
            completion: self.completion.as_ref().map_or(0, PipeProducer::position),
        }
    }
}

/// The application's ends of a set.
pub struct AppQueues {
    /// Work requests to send.
    pub send: Option<PipeProducer<SEND_WORDS>>,
    /// Work requests to receive.
    pub receive: Option<PipeProducer<RECEIVE_WORDS>>,
    /// Completions.
    pub completion: Option<PipeConsumer<COMPLETION_WORDS>>,
}

impl AppQueues {
    /// The ends of a set in a region that the daemon passed.
    ///
    /// # Errors
    /// The region's directory cannot be read: the error has the sentence.
    pub fn new(region: &Arc<Region>) -> io::Result<AppQueues> {
        let directory = Directory::read(region).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        Ok(AppQueues {
            send: producer(region, &directory, AreaKind::SendQueue, 0),
            receive: producer(region, &directory, AreaKind::ReceiveQueue, 0),
            completion: consumer(region, &directory, AreaKind::CompletionQueue, 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn elements_pass_through_a_region_passed_by_descriptor() {
        let sizes = QueueSizes { send: 4, receive: 8, completion: 4 };
        let (region, mut daemon) = DaemonQueues::create("queues", sizes).unwrap();
        let passed = Arc::new(Region::from_fd(region.fd().try_clone_to_owned().unwrap()).unwrap());
        let mut app = AppQueues::new(&passed).unwrap();
        // The application's copy of the directory is its own business from now on.
        (0..512).for_each(|word| passed.u64_at(word * 8).store(u64::MAX, Relaxed));
        for lap in 0..10u64 {
            for number in 0..4 {
                app.send.as_mut().unwrap().push([lap, number, 0, 0, 0, 0, 0, 7]).unwrap();
                app.receive.as_mut().unwrap().push([lap, number]).unwrap();
            }
            assert!(app.send.as_mut().unwrap().push([0; 8]).is_err(), "full");
            let mut receives = [[0; 2]; RECEIVES_AT_ONCE];
            assert_eq!(daemon.receive.as_mut().unwrap().take(&mut receives), 4);
            assert_eq!(receives, [[lap, 0], [lap, 1], [lap, 2], [lap, 3]]);
            for number in 0..4 {
                let sent = daemon.send.as_mut().unwrap().pop().unwrap();
                assert_eq!(sent, [lap, number, 0, 0, 0, 0, 0, 7]);
                daemon.completion.as_mut().unwrap().push(sent).unwrap();
                assert_eq!(app.completion.as_mut().unwrap().pop(), Some(sent));
            }
            // Another daemon takes over.
            daemon = DaemonQueues::resume(&region, sizes, daemon.positions()).unwrap();
        }
        assert_eq!(daemon.positions(), QueuePositions { send: 40, receive: 40, completion: 40 });
    }

    #[test]
    fn sets_that_cannot_be_are_refused_and_a_set_may_be_a_part() {
        assert!(DaemonQueues::create("queues", QueueSizes { send: 3, ..QueueSizes::default() }).is_err());
        let sizes = QueueSizes { completion: 16, ..QueueSizes::default() };
        let (region, daemon) = DaemonQueues::create("queues", sizes).unwrap();
        assert!(daemon.send.is_none() && daemon.receive.is_none() && daemon.completion.is_some());
        let app = AppQueues::new(&region).unwrap();
        assert!(app.send.is_none() && app.completion.is_some());
        let larger = QueueSizes { send: 1 << 20, ..sizes };
        assert!(DaemonQueues::resume(&region, larger, QueuePositions::default()).is_err());
        let strange = Arc::new(Region::create("queues", 4096).unwrap());
        assert!(AppQueues::new(&strange).is_err());
    }
}
