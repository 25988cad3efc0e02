//! Closing a connection that an engine runs: the control plane's view of its state (RFC 9293 section 3.6), from the
//! engine's events and the application's close.

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum State {
    /// Both sides may send.
    #[default]
    Established,
    /// The peer sent FIN.
    CloseWait,
    /// This host sent FIN.
    FinWait1,
    /// This host sent FIN, and the peer acknowledged it.
    FinWait2,
    /// Both sent FIN; the peer has not acknowledged this host's.
    Closing,
    /// The peer sent FIN first; it has not acknowledged this host's.
    LastAck,
    /// Both FINs are acknowledged, and this host's was first: old segments may still come.
    TimeWait,
    /// Both FINs are acknowledged, and the peer's was first.
    Closed,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingEvent {
    /// The application closed: FIN is sent after its last byte.
    LocalClose,
    /// The application ended its own stream, and still reads: FIN is sent after its last byte.
    LocalShutdown,
    /// This host's FIN was acknowledged.
    FinAcked,
    /// The peer's FIN came.
    PeerFin,
    /// The peer's FIN came, and the application had ended its own stream before (RFC 9293 section 3.6, figure 13:
    /// simultaneous close).
    PeerFinToo,
}

/// A connection's state, and whether its application still has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Closing {
    /// RFC 9293's state.
    pub state: State,
    /// The application has closed it: nobody reads or writes any more.
    pub orphan: bool,
}

impl Closing {
    /// Takes an event; one that does not fit the state changes nothing.
    pub fn on(&mut self, event: ClosingEvent) {
        use ClosingEvent::*;
        use State::*;
        self.orphan |= event == LocalClose;
        self.state = match (self.state, event) {
            (Established, LocalClose | LocalShutdown) => FinWait1,
            (CloseWait, LocalClose | LocalShutdown) => LastAck,
            (Established | FinWait1, FinAcked) => FinWait2,
            (CloseWait | LastAck, FinAcked) => Closed,
            (Closing, FinAcked) => TimeWait,
            (Established, PeerFin) => CloseWait,
            (Established, PeerFinToo) | (FinWait1, PeerFin | PeerFinToo) => Closing,
            (FinWait2, PeerFin | PeerFinToo) => TimeWait,
            (state, _) => state,
        };
    }

    /// The engine has nothing more to do for it: our FIN is acknowledged and nobody reads.
    pub fn leaves_engine(&self) -> bool {
        self.orphan && matches!(self.state, State::FinWait2 | State::TimeWait | State::Closed)
    }
}

impl State {
    /// RFC 9293's name.
    pub fn name(self) -> &'static str {
        match self {
            State::Established => "ESTABLISHED",
            State::CloseWait => "CLOSE-WAIT",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
            State::Closed => "CLOSED",
        }
    }

    /// Linux's number, for `TCP_INFO`.
    pub fn number(self) -> u8 {
        match self {
            State::Established => 1,
            State::FinWait1 => 4,
            State::FinWait2 => 5,
            State::TimeWait => 6,
            State::Closed => 7,
            State::CloseWait => 8,
            State::LastAck => 9,
            State::Closing => 11,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClosingEvent::*;
    use super::*;

    #[test]
    fn every_order_of_closing_ends_where_rfc_9293_figure_5_says() {
        let table: &[(&[ClosingEvent], State, bool)] = &[
            (&[LocalClose], State::FinWait1, false),
            (&[LocalClose, FinAcked], State::FinWait2, true),
            (&[LocalClose, FinAcked, PeerFin], State::TimeWait, true),
            (&[LocalClose, PeerFin], State::Closing, false),
            (&[LocalClose, PeerFin, FinAcked], State::TimeWait, true),
            (&[PeerFin], State::CloseWait, false),
            (&[PeerFin, LocalClose], State::LastAck, false),
            (&[PeerFin, LocalClose, FinAcked], State::Closed, true),
            // Half-close: the application still reads.
            (&[LocalShutdown], State::FinWait1, false),
            (&[LocalShutdown, FinAcked], State::FinWait2, false),
            (&[LocalShutdown, LocalClose, FinAcked], State::FinWait2, true),
            (&[PeerFin, LocalShutdown], State::LastAck, false),
            (&[PeerFin, LocalShutdown, FinAcked, LocalClose], State::Closed, true),
            (&[LocalClose, LocalShutdown], State::FinWait1, false),
            (&[FinAcked, LocalShutdown], State::FinWait2, false),
            (&[FinAcked], State::FinWait2, false),
            (&[FinAcked, PeerFin], State::TimeWait, false),
            (&[FinAcked, PeerFin, LocalClose], State::TimeWait, true),
            (&[PeerFin, FinAcked], State::Closed, false),
            (&[PeerFin, FinAcked, LocalClose], State::Closed, true),
            (&[FinAcked, LocalClose], State::FinWait2, true),
            // Likewise, and the peer closed at the same time: whose acknowledgement is lost must be answered again.
            (&[PeerFinToo], State::Closing, false),
            (&[PeerFinToo, FinAcked], State::TimeWait, false),
            (&[PeerFinToo, LocalClose, FinAcked], State::TimeWait, true),
            (&[LocalClose, PeerFinToo, FinAcked], State::TimeWait, true),
            (&[FinAcked, PeerFinToo, LocalClose], State::TimeWait, true),
            // Repeated events change nothing.
            (&[PeerFin, PeerFin, LocalClose, LocalClose], State::LastAck, false),
        ];
        for (events, state, leaves) in table {
            let mut closing = Closing::default();
            events.iter().for_each(|event| closing.on(*event));
            assert_eq!((closing.state, closing.leaves_engine()), (*state, *leaves), "{events:?}");
        }
    }
}
