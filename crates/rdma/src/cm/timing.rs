//! Times of connection management. Those on the wire are codes: 4.096 us * 2^n (IBTA 1.3, 9.7.6.1.3).
use engine::Nanos;

/// How long a peer's control plane may take for an answer: 1.1 s. A program may take longer: then it sends MRA.
pub(crate) const RESPONSE: u8 = 18;
/// How often a message is sent again.
pub(crate) const RETRIES: u8 = 15;
/// How long a program may take for an answer to a request: 69 s.
pub(crate) const PROGRAM: u8 = 24;
/// Time-out of the queue pairs for an acknowledgement: 67 ms.
pub(crate) const ACKNOWLEDGEMENT: u8 = 14;

/// What a peer may ask for at most: longer answers, 8.6 s, and longer waits, 69 s, would only help a flood.
const LONGEST_RESPONSE: u8 = 21;
const LONGEST_WAIT: u8 = 24;
/// Both ways through the network, besides what the peer takes: 67 ms.
const WAY: u8 = 14;

const fn of_code(code: u8) -> Nanos {
    4096 << code
}

/// From a message until it is sent again, where the peer takes so long for its answer.
pub(crate) fn response(code: u8) -> Nanos {
    of_code(code.min(LONGEST_RESPONSE)) + of_code(WAY)
}

/// From an MRA on.
pub(crate) fn wait(code: u8) -> Nanos {
    of_code(code.min(LONGEST_WAIT)) + of_code(WAY)
}

/// How long packets of a connection may still be under way, by the time-out of its queue pairs.
pub(crate) fn time_wait(code: u8) -> Nanos {
    2 * of_code(code.min(LONGEST_RESPONSE))
}
