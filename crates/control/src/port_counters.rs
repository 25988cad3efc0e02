//! Local port selection for connections to one peer: incremental, with random steps (RFC 6056).

/// Counters of [`PortCounters`]: peers that share one only see each other's rate.
const COUNTERS: usize = 256;
/// A step is one to so many ports: the next one cannot be predicted exactly, and the range still lasts for thousands of
/// connections.
const LARGEST_STEP: u64 = 4;

/// The next port for connections to a peer: RFC 6056 section 3.3.4, with steps of random size as in its section 3.3.5.
/// Ports drawn at random soon hit one that was in use a moment ago. Its peer is in TIME-WAIT and takes a SYN of the
/// same millisecond for an old one (RFC 6191). Then the connection waits a second for its next.
pub(crate) struct PortCounters(Box<[u32; COUNTERS]>);

impl PortCounters {
    /// They begin somewhere: one host's successor not where that one did, among ports that were just used.
    pub(crate) fn new(random: u64) -> PortCounters {
        PortCounters(Box::new([random as u32; COUNTERS]))
    }

    /// The next one, as a distance from the begin of the range, for the peer that `place` belongs to.
    pub(crate) fn next(&mut self, place: u64, random: u64) -> u64 {
        let counter = &mut self.0[place as usize % COUNTERS];
        *counter = counter.wrapping_add((1 + random % LARGEST_STEP) as u32);
        (place >> 32) + u64::from(*counter)
    }
}
