//! Counters of the split and merge unit.

/// Totals of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes that the NIC's half placed.
    pub placed_bytes: u64,
    /// Bytes that it fetched, retransmissions included.
    pub fetched_bytes: u64,
    /// Of these, bytes that were copied into frames: the wire takes no references, or too few lay in a row.
    pub copied_out_bytes: u64,
    /// Header entries that went up, after merging.
    pub headers_in: u64,
    /// Headers that were merged into the one before.
    pub merged: u64,
    /// Headers that the transport made.
    pub headers_out: u64,
    /// Frames that they became.
    pub frames_out: u64,
    /// Incoming segments that lay below the cursor altogether.
    pub old: u64,
    /// Incoming segments, or their ends, for which no segment was posted.
    pub without_place: u64,
    /// Of these, what is kept until memory is posted did not fit.
    pub not_kept: u64,
    /// Incoming segments that would have made a hole too many.
    pub holes: u64,
    /// Frames with a wrong checksum, wrong headers, or fragments.
    pub malformed: u64,
    /// Frames whose memory could not be read or written.
    pub faults: u64,
    /// Frames that were dropped because the device of their memory had too much to do.
    pub device_busy: u64,
    /// Outgoing segments with bytes that nobody posted.
    pub not_posted: u64,
    /// Outgoing segments of which some bytes were acknowledged, so that they were not fetched.
    pub acknowledged_already: u64,
    /// ACKs of the NIC's half's own, which widen a window.
    pub window_updates: u64,
    /// Connections that found no line in the flow table, and whose payload was copied.
    pub without_line: u64,
    /// Connections and flows of datagrams that were refused: nobody accepts them any more, or there was no line.
    pub refused: u64,
}
