//! Closing a connection (RFC 9293 section 3.6). It has how far each stream has come to its end, the owner of the
//! connection, and the state that follows from both. Engines and control plane keep the same types, so they cannot
//! differ in it.
use crate::State;
use serde::{Deserialize, Serialize};

/// The end of the stream that this host sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum LocalFin {
    /// The application may write more.
    #[default]
    Open,
    /// The application ended it: FIN follows the last byte, or was sent.
    Queued,
    /// The peer acknowledged FIN.
    Acknowledged,
}

/// The end of the stream that the peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum PeerFin {
    /// More may come.
    #[default]
    Open,
    /// FIN was received in order, while this host's stream was open.
    First,
    /// FIN was received in order, after this host had ended its own stream.
    Second,
}

/// The ends of a connection's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ends {
    local: LocalFin,
    peer: PeerFin,
}

impl Ends {
    /// The ends of both streams in this state.
    pub fn of(state: State) -> Ends {
        let (local, peer) = match state {
            State::Listen | State::SynSent | State::SynReceived | State::Established => (LocalFin::Open, PeerFin::Open),
            State::FinWait1 => (LocalFin::Queued, PeerFin::Open),
            State::FinWait2 => (LocalFin::Acknowledged, PeerFin::Open),
            State::CloseWait => (LocalFin::Open, PeerFin::First),
            State::Closing => (LocalFin::Queued, PeerFin::Second),
            State::LastAck => (LocalFin::Queued, PeerFin::First),
            State::TimeWait => (LocalFin::Acknowledged, PeerFin::Second),
            State::Closed => (LocalFin::Acknowledged, PeerFin::First),
        };
        Ends { local, peer }
    }

    /// RFC 9293's state of a connection whose handshake is done.
    pub fn state(self) -> State {
        match (self.local, self.peer) {
            (LocalFin::Open, PeerFin::Open) => State::Established,
            // After this host's FIN the peer's cannot be the first, so `Second` means nothing else here.
            (LocalFin::Open, PeerFin::First | PeerFin::Second) => State::CloseWait,
            (LocalFin::Queued, PeerFin::Open) => State::FinWait1,
            (LocalFin::Queued, PeerFin::First) => State::LastAck,
            (LocalFin::Queued, PeerFin::Second) => State::Closing,
            (LocalFin::Acknowledged, PeerFin::Open) => State::FinWait2,
            (LocalFin::Acknowledged, PeerFin::First) => State::Closed,
            (LocalFin::Acknowledged, PeerFin::Second) => State::TimeWait,
        }
    }

    /// The application may write more.
    #[inline(always)]
    pub fn may_write(self) -> bool {
        self.local == LocalFin::Open
    }

    /// This host's FIN is acknowledged.
    #[inline(always)]
    pub fn all_acknowledged(self) -> bool {
        self.local == LocalFin::Acknowledged
    }

    /// The peer's FIN was received in order.
    #[inline(always)]
    pub fn peer_ended(self) -> bool {
        self.peer != PeerFin::Open
    }

    /// Sequence numbers that this host's FIN takes behind the last byte: one, once there is one.
    #[inline(always)]
    pub fn local_len(self) -> u32 {
        !self.may_write() as u32
    }

    /// Sequence numbers that the peer's FIN took: one, once it was received.
    #[inline(always)]
    pub fn peer_len(self) -> u32 {
        self.peer_ended() as u32
    }

    /// Both sides have ended, and both ends are acknowledged.
    pub fn are_over(self) -> bool {
        self.all_acknowledged() && self.peer_ended()
    }

    /// Neither stream has ended.
    #[inline(always)]
    pub fn are_open(self) -> bool {
        self == Ends::default()
    }

    /// The application ends its stream. True where it had not before.
    pub fn end_local(&mut self) -> bool {
        let ends = self.may_write();
        if ends {
            self.local = LocalFin::Queued;
        }
        ends
    }

    /// This host's FIN is acknowledged, so the stream had ended.
    pub fn acknowledge(&mut self) {
        self.local = LocalFin::Acknowledged;
    }

    /// The peer's FIN is received; it counts once.
    pub fn end_peer(&mut self) -> PeerFin {
        if self.peer == PeerFin::Open {
            self.peer = if self.may_write() { PeerFin::First } else { PeerFin::Second };
        }
        self.peer
    }
}

/// The owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Owner {
    /// An application reads and writes.
    #[default]
    Owned,
    /// Nobody reads or writes any more; what was written is still sent.
    Orphan,
    /// It was reset: nothing is sent or accepted any more.
    Dead,
}

impl Owner {
    /// Nobody has it any more. A reset is final.
    pub fn orphan(&mut self) {
        if *self == Owner::Owned {
            *self = Owner::Orphan;
        }
    }
}

/// An event of a connection's streams.
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

/// The control plane's view of a connection's end, from the engine's events and the application's close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Closing {
    /// Its streams' ends.
    pub ends: Ends,
    /// Its owner.
    pub life: Owner,
}

impl Closing {
    /// Takes an event; a repeated one changes nothing.
    pub fn on(&mut self, event: ClosingEvent) {
        match event {
            ClosingEvent::LocalClose => {
                self.life.orphan();
                self.ends.end_local();
            }
            ClosingEvent::LocalShutdown => {
                self.ends.end_local();
            }
            ClosingEvent::FinAcked => self.ends.acknowledge(),
            ClosingEvent::PeerFin => {
                self.ends.end_peer();
            }
            ClosingEvent::PeerFinToo => {
                // Where the peer's FIN is known, which was first is, too.
                if !self.ends.peer_ended() {
                    self.ends.end_local();
                    self.ends.end_peer();
                }
            }
        }
    }

    /// RFC 9293's state: what `TCP_INFO`, lists of connections and the control plane's own decisions go by.
    pub fn state(self) -> State {
        if self.life == Owner::Dead { State::Closed } else { self.ends.state() }
    }

    /// Nobody has the connection any more.
    pub fn is_orphan(self) -> bool {
        self.life != Owner::Owned
    }

    /// The engine has nothing more to do for it: our FIN is acknowledged, and there is no reader.
    pub fn leaves_engine(self) -> bool {
        self.is_orphan() && self.ends.all_acknowledged()
    }
}

#[cfg(test)]
mod tests {
    use super::ClosingEvent::{FinAcked, LocalClose, LocalShutdown, PeerFin as PeerFinNow, PeerFinToo};
    use super::*;

    const LOCAL: [LocalFin; 3] = [LocalFin::Open, LocalFin::Queued, LocalFin::Acknowledged];
    const PEER: [PeerFin; 3] = [PeerFin::Open, PeerFin::First, PeerFin::Second];
    const LIFE: [Owner; 3] = [Owner::Owned, Owner::Orphan, Owner::Dead];

    /// RFC 9293 figure 5, as a table: rows are this host's FIN, columns the peer's.
    const STATES: [[State; 3]; 3] = [
        [State::Established, State::CloseWait, State::CloseWait],
        [State::FinWait1, State::LastAck, State::Closing],
        [State::FinWait2, State::Closed, State::TimeWait],
    ];

    #[test]
    fn every_combination_has_the_state_that_rfc_9293_gives_it() {
        for (row, local) in LOCAL.into_iter().enumerate() {
            for (column, peer) in PEER.into_iter().enumerate() {
                for life in LIFE {
                    let ends = Ends { local, peer };
                    let closing = Closing { ends, life };
                    let expected = if life == Owner::Dead { State::Closed } else { STATES[row][column] };
                    assert_eq!(closing.state(), expected, "{closing:?}");
                    assert_eq!(ends.state(), STATES[row][column], "{ends:?}");
                    assert_eq!(closing.leaves_engine(), row == 2 && life != Owner::Owned, "{closing:?}");
                    assert_eq!((ends.local_len(), ends.peer_len()), ((row > 0) as u32, (column > 0) as u32));
                    assert_eq!(ends.are_open(), (row, column) == (0, 0));
                }
            }
        }
    }

    #[test]
    fn a_state_determines_both_ends() {
        for state in State::ALL {
            let opening = matches!(state, State::Listen | State::SynSent | State::SynReceived);
            assert_eq!(Ends::of(state).state(), if opening { State::Established } else { state });
        }
    }

    /// Each event on each state that a connection can be in, against figure 5's arrows.
    #[test]
    fn every_event_in_every_state_follows_figure_5() {
        use State::{CloseWait, Closed, Established, FinWait1, FinWait2, LastAck, TimeWait};
        let expected = |state: State, event: ClosingEvent| match (state, event) {
            (Established, LocalClose | LocalShutdown) => FinWait1,
            (CloseWait, LocalClose | LocalShutdown) => LastAck,
            (Established | FinWait1, FinAcked) => FinWait2,
            (CloseWait | LastAck, FinAcked) => Closed,
            (State::Closing, FinAcked) => TimeWait,
            (Established, PeerFinNow) => CloseWait,
            (Established, PeerFinToo) | (FinWait1, PeerFinNow | PeerFinToo) => State::Closing,
            (FinWait2, PeerFinNow | PeerFinToo) => TimeWait,
            (state, _) => state,
        };
        for state in State::ALL.into_iter().filter(|state| Ends::of(*state).state() == *state) {
            for event in [LocalClose, LocalShutdown, FinAcked, PeerFinNow, PeerFinToo] {
                for life in LIFE {
                    let mut closing = Closing { ends: Ends::of(state), life };
                    closing.on(event);
                    let dead = life == Owner::Dead;
                    assert_eq!(
                        closing.state(),
                        if dead { Closed } else { expected(state, event) },
                        "{state:?} {event:?}"
                    );
                    let orphan = life == Owner::Orphan || (life == Owner::Owned && event == LocalClose);
                    assert_eq!(closing.life == Owner::Orphan, orphan, "{state:?} {event:?}");
                }
            }
        }
    }

    #[test]
    fn every_order_of_closing_ends_as_in_rfc_9293_figure_5() {
        let table: &[(&[ClosingEvent], State, bool)] = &[
            (&[LocalClose], State::FinWait1, false),
            (&[LocalClose, FinAcked], State::FinWait2, true),
            (&[LocalClose, FinAcked, PeerFinNow], State::TimeWait, true),
            (&[LocalClose, PeerFinNow], State::Closing, false),
            (&[LocalClose, PeerFinNow, FinAcked], State::TimeWait, true),
            (&[PeerFinNow], State::CloseWait, false),
            (&[PeerFinNow, LocalClose], State::LastAck, false),
            (&[PeerFinNow, LocalClose, FinAcked], State::Closed, true),
            // Half-close: the application still reads.
            (&[LocalShutdown], State::FinWait1, false),
            (&[LocalShutdown, FinAcked], State::FinWait2, false),
            (&[LocalShutdown, LocalClose, FinAcked], State::FinWait2, true),
            (&[PeerFinNow, LocalShutdown], State::LastAck, false),
            (&[PeerFinNow, LocalShutdown, FinAcked, LocalClose], State::Closed, true),
            (&[LocalClose, LocalShutdown], State::FinWait1, false),
            (&[FinAcked, LocalShutdown], State::FinWait2, false),
            (&[FinAcked], State::FinWait2, false),
            (&[FinAcked, PeerFinNow], State::TimeWait, false),
            (&[FinAcked, PeerFinNow, LocalClose], State::TimeWait, true),
            (&[PeerFinNow, FinAcked], State::Closed, false),
            (&[PeerFinNow, FinAcked, LocalClose], State::Closed, true),
            (&[FinAcked, LocalClose], State::FinWait2, true),
            // Likewise, and the peer closed at the same time: whose acknowledgement is lost must be answered again.
            (&[PeerFinToo], State::Closing, false),
            (&[PeerFinToo, FinAcked], State::TimeWait, false),
            (&[PeerFinToo, LocalClose, FinAcked], State::TimeWait, true),
            (&[LocalClose, PeerFinToo, FinAcked], State::TimeWait, true),
            (&[FinAcked, PeerFinToo, LocalClose], State::TimeWait, true),
            // Repeated events change nothing.
            (&[PeerFinNow, PeerFinNow, LocalClose, LocalClose], State::LastAck, false),
        ];
        for (events, state, leaves) in table {
            let mut closing = Closing::default();
            events.iter().for_each(|event| closing.on(*event));
            assert_eq!((closing.state(), closing.leaves_engine()), (*state, *leaves), "{events:?}");
        }
    }
}
