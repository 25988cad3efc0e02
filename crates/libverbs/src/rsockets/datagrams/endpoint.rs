//! A datagram socket that is bound: its UDP port, its queue pair, its destinations, and what has come.
use super::header::{self, GREETING_LEN, Greeting, HEADER_LEN};
use super::peers::Peers;
use super::port::Port;
use super::queue::{Arrival, Done, Queue, SLOT};
use crate::cm::service_of;
use crate::errno::Result;
use crate::rsockets::settings::Sizes;
use libc::{c_int, iovec, pollfd};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use verbs::udp::{Datagram, MOST_BYTES};

/// Datagrams that came by UDP and wait for the program.
const MOST_BUFFERED: usize = 64;
/// Most datagrams by UDP that one call takes.
const MOST_AT_ONCE: usize = 16;
/// Of the rounds in which something else may have been found, each such one polls for datagrams by UDP as well.
const ROUNDS_A_POLL: u32 = 64;

/// A datagram that waits for the program.
enum Waiting {
    /// In a slot of the queue pair.
    Slot(Arrival),
    /// By UDP.
    Buffered(Vec<u8>),
}

/// See the module's page.
pub(super) struct Endpoint {
    port: Port,
    queue: Queue,
    peers: Peers,
    arrived: VecDeque<(SocketAddrV4, Waiting)>,
    /// How many of them came by UDP.
    buffered: usize,
    /// The only one whose datagrams count.
    only: Option<SocketAddrV4>,
    /// Most bytes of the program's in a datagram.
    most: usize,
    rounds: u32,
    broken: bool,
}

/// A datagram as a call gives it.
pub(in crate::rsockets) struct Taken {
    /// Its sender.
    pub(in crate::rsockets) from: SocketAddrV4,
    /// Its bytes, and how many of them the program has.
    pub(in crate::rsockets) len: usize,
    pub(in crate::rsockets) given: usize,
}

impl Endpoint {
    /// Binds a socket to an address, which may be unspecified and may have port 0.
    pub(super) fn bind(address: SocketAddrV4, sizes: &Sizes) -> Result<Endpoint> {
        let service = service_of(*address.ip())?;
        let port = Port::bind(service, address)?;
        let domain = service.domain()?;
        // SAFETY: the service's domain stays.
        let (queue, peers) = unsafe { (Queue::new(service, domain, sizes)?, Peers::new(domain)) };
        let packet = service.attachment.device().mtu.bytes();
        let most = (packet.min(SLOT) - HEADER_LEN).min(MOST_BYTES - GREETING_LEN);
        let arrived = VecDeque::new();
        Ok(Endpoint { port, queue, peers, arrived, buffered: 0, only: None, most, rounds: 0, broken: false })
    }

    /// The host's address, and the port.
    pub(super) fn local(&self) -> SocketAddrV4 {
        self.port.local
    }

    /// Datagrams of others than this one are dropped from now on.
    pub(super) fn only_from(&mut self, peer: Option<SocketAddrV4>) {
        self.only = peer;
    }

    /// Goes on with whatever has happened.
    pub(super) fn progress(&mut self) {
        self.poll();
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds % ROUNDS_A_POLL == 0 {
            self.poll_udp();
        }
    }

    fn poll(&mut self) {
        for done in self.queue.poll() {
            match done {
                Done::Received(arrival) => self.arrive(arrival),
                Done::Failed => self.broken = true,
            }
        }
    }

    /// A datagram between queue pairs. Its header has to name the host that it came from.
    fn arrive(&mut self, arrival: Arrival) {
        let mut bytes = [0; HEADER_LEN];
        self.queue.read(arrival, 0, &mut bytes);
        let from = header::decode(&bytes).filter(|from| arrival.len >= HEADER_LEN && self.counts(*from));
        match from.filter(|from| *from.ip() == self.queue.sender(arrival)) {
            Some(from) => self.arrived.push_back((from, Waiting::Slot(arrival))),
            None => self.broken |= self.queue.free(arrival).is_err(),
        }
    }

    fn counts(&self, from: SocketAddrV4) -> bool {
        self.only.is_none_or(|only| only == from)
    }

    /// Takes what came by UDP, and answers it.
    fn poll_udp(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            match self.port.receive() {
                Ok(Some(datagram)) => self.greeted(datagram),
                Ok(None) => return,
                Err(_) => return self.broken = true,
            }
        }
    }

    /// A datagram by UDP. An answer counts where this side has asked.
    fn greeted(&mut self, datagram: Datagram) {
        let Datagram { from, payload, reached } = datagram;
        let Some((greeting, data)) = Greeting::decode(&payload) else { return };
        if !self.counts(from) || !greeting.has_data && !self.peers.has(from) {
            return;
        }
        if greeting.has_data {
            let answer = self.greeting(false).encode().to_vec();
            // What is lost is asked again: the peer's next datagram comes by UDP as well.
            let _ = self.port.send(from, answer);
            if self.buffered < MOST_BUFFERED {
                self.buffered += 1;
                self.arrived.push_back((from, Waiting::Buffered(data.to_vec())));
            }
        }
        self.peers.learn(from, greeting.qp, reached);
    }

    fn greeting(&self, has_data: bool) -> Greeting {
        Greeting { has_data, qp: self.queue.number(), address: *self.local().ip() }
    }

    /// Sends a datagram; `None` where it has to wait.
    ///
    /// # Safety
    /// The entries name bytes of the program.
    pub(super) unsafe fn send(&mut self, to: SocketAddrV4, list: &[iovec]) -> Option<Result<usize>> {
        let len = list.iter().fold(0usize, |len, entry| len.saturating_add(entry.iov_len));
        if len > self.most {
            return Some(Err(libc::EMSGSIZE));
        }
        if self.broken {
            return Some(Err(libc::EIO));
        }
        if self.peers.way(to).is_none() {
            self.poll_udp();
        }
        match self.peers.way(to) {
            Some(way) => {
                let header = header::encode(self.local());
                // SAFETY: as the caller guarantees; the length was checked just now.
                let sent = unsafe { self.queue.send(way, header, list) };
                sent.map(|done| done.then_some(len)).transpose()
            }
            None => {
                let mut bytes = self.greeting(true).encode().to_vec();
                for entry in list.iter().filter(|entry| entry.iov_len > 0) {
                    // SAFETY: as the caller guarantees.
                    bytes.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(entry.iov_base.cast::<u8>(), entry.iov_len)
                    });
                }
                Some(self.port.send(to, bytes).map(|()| len))
            }
        }
    }

    /// Takes the next datagram, as much of it as there is room for. `keep` leaves it for the next call.
    ///
    /// # Safety
    /// The entries name room of the program.
    pub(super) unsafe fn receive(&mut self, list: &[iovec], keep: bool) -> Option<Taken> {
        let (from, waiting) = self.arrived.front()?;
        let len = match waiting {
            Waiting::Slot(arrival) => arrival.len - HEADER_LEN,
            Waiting::Buffered(data) => data.len(),
        };
        let mut given = 0;
        for entry in list {
            let count = entry.iov_len.min(len - given);
            if count > 0 {
                // SAFETY: as the caller guarantees.
                let into = unsafe { std::slice::from_raw_parts_mut(entry.iov_base.cast::<u8>(), count) };
                match waiting {
                    Waiting::Slot(arrival) => self.queue.read(*arrival, HEADER_LEN + given, into),
                    Waiting::Buffered(data) => into.copy_from_slice(&data[given..given + count]),
                }
                given += count;
            }
        }
        let taken = Taken { from: *from, len, given };
        if !keep {
            self.forget();
        }
        Some(taken)
    }

    /// The next datagram was taken.
    fn forget(&mut self) {
        match self.arrived.pop_front() {
            Some((_, Waiting::Slot(arrival))) => self.broken |= self.queue.free(arrival).is_err(),
            Some((_, Waiting::Buffered(_))) => self.buffered -= 1,
            None => {}
        }
    }

    /// A datagram waits for the program.
    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// A datagram can be sent.
    pub(super) fn can_send(&self) -> bool {
        self.queue.can_send()
    }

    /// All that was sent is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.broken || self.queue.is_quiet()
    }

    /// Nothing goes on any more.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The descriptors become readable with what happens next; what has happened is polled.
    pub(super) fn arm(&mut self) {
        self.queue.completions.arm();
        self.poll();
        self.poll_udp();
    }

    /// What a thread that sleeps waits for.
    pub(super) fn fds(&self) -> Vec<pollfd> {
        let readable = |fd: c_int| pollfd { fd, events: libc::POLLIN, revents: 0 };
        vec![readable(self.port.fd()), readable(self.queue.completions.fd())]
    }

    /// Takes what the descriptors have.
    pub(super) fn drain(&mut self) {
        self.queue.completions.drain();
        self.broken |= !self.queue.completions.is_alive();
    }
}

/// The address that a program names for a datagram is one host's.
pub(super) fn is_station(to: SocketAddrV4) -> bool {
    let ip: Ipv4Addr = *to.ip();
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_loopback()) && to.port() != 0
}
