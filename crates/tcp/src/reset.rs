//! Resets that answer segments of no connection (RFC 9293 section 3.5.2, group 1).
use crate::Segment;
use wire::tcp::{Flags, Header, Options};

/// The reset that answers a segment; `None` for a reset, which is never answered.
// Meets RFC 9293: SHLD-2.
pub fn reset_for(segment: &Segment) -> Option<Header> {
    if segment.rst() {
        return None;
    }
    let header = &segment.header;
    // "If the incoming segment has the ACK bit set, the reset takes its sequence number from the ACK field of the
    // segment; otherwise, the reset has sequence number zero and the ACK field is set to the sum of the sequence
    // number and segment length of the incoming segment."
    let (seq, ack, flags) = match segment.ack() {
        true => (header.ack, wire::Seq(0), Flags::RST),
        false => (wire::Seq(0), header.seq + segment.len(), Flags::RST | Flags::ACK),
    };
    let (src_port, dst_port) = (segment.tuple.local_port, segment.tuple.remote_port);
    Some(Header { src_port, dst_port, seq, ack, flags, window: 0, options: Options::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::testing::segment;
    use wire::Seq;

    // Checks RFC 9293: SHLD-2.
    #[test]
    fn follows_the_two_rules_and_never_answers_a_reset() {
        let with_ack = reset_for(&segment(Flags::ACK, 5, 77, 3)).unwrap();
        assert_eq!((with_ack.seq, with_ack.flags), (Seq(77), Flags::RST));
        let syn = reset_for(&segment(Flags::SYN, 5, 0, 3)).unwrap();
        assert_eq!((syn.seq, syn.ack, syn.flags), (Seq(0), Seq(9), Flags::RST | Flags::ACK));
        assert_eq!(reset_for(&segment(Flags::RST, 5, 0, 0)), None);
    }
}
