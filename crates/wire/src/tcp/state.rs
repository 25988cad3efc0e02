//! The states of a connection, as RFC 9293 section 3.3.2 names them.
use serde::{Deserialize, Serialize};

/// State of a connection. The crate `tcp` has which one follows from its finer states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// Waits for any peer's SYN.
    Listen,
    /// This host sent SYN.
    SynSent,
    /// Both sent SYN; this host's is not acknowledged.
    SynReceived,
    /// Both sides may send.
    Established,
    /// This host ended its stream.
    FinWait1,
    /// This host ended its stream, and the peer acknowledged it.
    FinWait2,
    /// The peer ended its stream.
    CloseWait,
    /// Both ended their streams, this host first; the peer has not acknowledged this host's FIN.
    Closing,
    /// Likewise, and the peer was first.
    LastAck,
    /// Both FINs are acknowledged, and this host's was first: old segments may still come.
    TimeWait,
    /// There is no connection, or no more.
    Closed,
}

impl State {
    /// All of them.
    pub const ALL: [State; 11] = [
        State::Listen,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
        State::Closed,
    ];

    /// RFC 9293's name.
    pub fn name(self) -> &'static str {
        match self {
            State::Listen => "LISTEN",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECEIVED",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
            State::Closed => "CLOSED",
        }
    }

    /// Linux's number, for `TCP_INFO` (`tcp_states.h`).
    pub fn number(self) -> u8 {
        match self {
            State::Established => 1,
            State::SynSent => 2,
            State::SynReceived => 3,
            State::FinWait1 => 4,
            State::FinWait2 => 5,
            State::TimeWait => 6,
            State::Closed => 7,
            State::CloseWait => 8,
            State::LastAck => 9,
            State::Listen => 10,
            State::Closing => 11,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::State;
    use std::collections::BTreeSet;

    #[test]
    fn each_state_has_its_own_name_and_number() {
        let names: BTreeSet<_> = State::ALL.iter().map(|state| state.name()).collect();
        let numbers: Vec<_> =
            State::ALL.iter().map(|state| state.number()).collect::<BTreeSet<_>>().into_iter().collect();
        assert_eq!((names.len(), numbers), (State::ALL.len(), (1..=11).collect()));
    }
}
