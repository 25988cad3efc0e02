//! A listening socket: its address, and the connections that wait to be accepted.
use context::attach::Ticket;
use context::{Endpoint, Request, Slot};
use libc::c_int;
use std::collections::VecDeque;

/// A local address that a socket holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// Names the binding in the daemon.
    pub binding: u32,
    /// The address.
    pub local: Endpoint,
    /// The host chose the port: it goes when an attempt to connect fails or a listener is shut down.
    pub chosen: bool,
}

/// A listening socket.
pub(crate) struct Listener {
    /// Its bound address.
    pub bound: Bound,
    /// Most connections that wait in the queue.
    pub backlog: u32,
    /// Connections that may still be handed over; `None` until the process shows interest.
    pub credits: Option<u32>,
    /// Connections that wait to be accepted.
    pub queue: VecDeque<Pending>,
    /// Another process may have it as well: what waits there may come here.
    pub shared: bool,
    /// The right to listen again at the next daemon.
    pub ticket: Option<Box<Ticket>>,
}

/// A connection that waits to be accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    /// Its slot.
    pub slot: Slot,
    /// This end.
    pub local: Endpoint,
    /// The other end.
    pub remote: Endpoint,
    /// Payload bytes of a full segment.
    pub mss: u16,
    /// The error with which it ended while it waited; 0 for none.
    pub errno: c_int,
    /// It is this process's: the control plane takes it back no more.
    pub taken: bool,
}

/// Most connections that wait in one context for one listener.
const MOST_CREDITS: u32 = 256;

impl Listener {
    /// Most connections that wait here.
    pub(crate) fn most(&self) -> u32 {
        self.backlog.clamp(1, MOST_CREDITS)
    }

    /// The request that lets more connections come, when it is time for one.
    pub(crate) fn arm(&mut self) -> Option<Request> {
        let waiting = self.queue.len() as u32;
        let wanted = self.most().saturating_sub(waiting);
        if self.credits.is_some_and(|credits| credits > self.most() / 2 || credits >= wanted) {
            return None;
        }
        self.credits = Some(wanted);
        Some(Request::Arm { binding: self.bound.binding, credits: wanted })
    }

    /// A connection that waited went to another process.
    pub(crate) fn took_back(&mut self, slot: Slot) {
        let before = self.queue.len();
        self.queue.retain(|pending| pending.slot != slot);
        let gone = (before - self.queue.len()) as u32;
        self.credits = self.credits.map(|credits| credits + gone);
    }
}
