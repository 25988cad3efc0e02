//! Listeners that a program has just closed: requests for them wait a moment, because many programs open them again.
//!
//! perftest does (`-R`): on one port it listens for the connection over which both sides agree, closes that listener,
//! and listens for the queue pairs, those of datagrams included. Its client does not wait for that, and Debian's (4.5)
//! uses an identifier after its end where it is refused then.
use super::outbox::Sender;
use engine::Nanos;
use std::collections::BTreeMap;
use wire::roce::cm::{Mad, Message, Service};

/// How long after the end of a listener: perftest sleeps for a second before it listens again.
pub(crate) const GRACE: Nanos = 2_000_000_000;
/// Requests that wait at most, at all listeners together.
const MOST: usize = 256;

/// Their ports, in whichever port space, each with the requests that wait for it.
#[derive(Default)]
pub(crate) struct Reopening {
    closed: BTreeMap<u16, Vec<(Sender, Mad)>>,
    waiting: usize,
}

impl Reopening {
    /// A listener was closed, and its program is there still.
    pub(crate) fn close(&mut self, port: u16) {
        self.closed.entry(port).or_default();
    }

    /// Keeps a request for a service that nobody listens for. False: it does not wait.
    pub(crate) fn keep(
        &mut self,
        service: u64,
        from: Sender,
        transaction: u64,
        message: impl FnOnce() -> Message,
    ) -> bool {
        let waiting = Service::from_name(service).and_then(|service| self.closed.get_mut(&service.port));
        let Some(waiting) = waiting.filter(|_| self.waiting < MOST) else { return false };
        // Sent again: the transaction is that of the first.
        let is_new =
            !waiting.iter().any(|(other, mad)| other.address == from.address && mad.transaction == transaction);
        if is_new {
            waiting.push((from, Mad { transaction, message: message() }));
            self.waiting += 1;
        }
        true
    }

    /// Somebody listens again, or nobody does in time: the requests that waited.
    pub(crate) fn end(&mut self, port: u16) -> Vec<(Sender, Mad)> {
        let waited = self.closed.remove(&port).unwrap_or_default();
        self.waiting -= waited.len();
        waited
    }
}
