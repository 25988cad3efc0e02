//! Sockets of a test application: positions and buffers of connections, over the data pair.
use super::{App, Net};
use context::attach::SurvivingConnection;
use context::{Bump, Completion, Slot};
use shm::ByteRing;
use std::collections::HashMap;
use std::sync::Arc;

/// A connection, as an application sees it.
pub(crate) struct Socket {
    pub slot: Slot,
    pub rx: Arc<ByteRing>,
    pub tx: Arc<ByteRing>,
    pub tx_head: u32,
    pub tx_tail: u32,
    pub rx_head: u32,
    pub rx_tail: u32,
    pub peer_fin: bool,
    fin: bool,
}

/// An application's connections.
#[derive(Default)]
pub(crate) struct Sockets(pub HashMap<Slot, Socket>);

impl Sockets {
    /// A connection that was opened just now.
    pub(crate) fn open(&mut self, app: &App, slot: Slot) -> Slot {
        let (rx, tx) = app.end.map_buffers(slot).map(|(rx, tx)| (Arc::new(rx), Arc::new(tx))).unwrap();
        let (tx_head, tx_tail, rx_head, rx_tail) = (0, 0, 0, 0);
        let socket = Socket { slot, rx, tx, tx_head, tx_tail, rx_head, rx_tail, peer_fin: false, fin: false };
        self.0.insert(slot, socket);
        slot
    }

    /// Takes completions.
    pub(crate) fn drain(&mut self, app: &mut App) {
        while let Some(words) = app.end.completions.pop().unwrap() {
            let completion = Completion::from_words(words);
            if let Some(socket) = self.0.get_mut(&completion.slot) {
                socket.rx_tail = completion.rx_tail;
                socket.tx_tail = completion.tx_tail;
                socket.peer_fin |= completion.fin;
                let grown = socket.rx.grown().filter(|_| completion.ring > socket.rx.number());
                socket.rx = grown.unwrap_or(Arc::clone(&socket.rx));
            }
        }
    }

    /// Writes as much as there is room for; returns how much.
    pub(crate) fn write(&mut self, app: &mut App, slot: Slot, bytes: &[u8]) -> usize {
        self.drain(app);
        let socket = self.0.get_mut(&slot).unwrap();
        let room = socket.tx.most() - socket.tx_head.wrapping_sub(socket.tx_tail);
        let len = bytes.len().min(room as usize);
        socket.tx = socket.tx.holding(socket.tx_tail, socket.tx_head.wrapping_add(len as u32));
        socket.tx.write(socket.tx_head, &bytes[..len]);
        socket.tx_head = socket.tx_head.wrapping_add(len as u32);
        socket.bump(app);
        len
    }

    /// Reads what is there.
    pub(crate) fn read(&mut self, app: &mut App, slot: Slot) -> Vec<u8> {
        self.drain(app);
        let socket = self.0.get_mut(&slot).unwrap();
        let mut bytes = vec![0; socket.rx_tail.wrapping_sub(socket.rx_head) as usize];
        socket.rx.read(socket.rx_head, &mut bytes);
        socket.rx_head = socket.rx_tail;
        socket.bump(app);
        bytes
    }

    /// Shuts the writing side down.
    pub(crate) fn shut(&mut self, app: &mut App, slot: Slot) {
        let socket = self.0.get_mut(&slot).unwrap();
        socket.fin = true;
        socket.bump(app);
    }

    /// The peer has closed, and everything was read.
    pub(crate) fn at_end(&mut self, app: &mut App, slot: Slot) -> bool {
        self.drain(app);
        let socket = &self.0[&slot];
        socket.peer_fin && socket.rx_head == socket.rx_tail
    }

    /// Closes with the positions as they are.
    pub(crate) fn close(&mut self, net: &mut Net, app: &mut App, slot: Slot) {
        self.drain(app);
        let socket = self.0.remove(&slot).unwrap();
        app.close(slot, socket.tx_head, socket.rx_head, false);
        net.settle();
    }
}

impl Socket {
    /// Where it stands, for the next daemon.
    pub(crate) fn kept(&self) -> SurvivingConnection {
        let Socket { slot, rx_tail, tx_tail, rx_head, tx_head, fin, peer_fin, .. } = *self;
        SurvivingConnection { slot, rx_tail, tx_tail, rx_head, tx_head, shut: fin, peer_ended: peer_fin }
    }

    pub(crate) fn bump(&self, app: &mut App) {
        let Socket { slot, tx_head, rx_head, fin, .. } = *self;
        let ring = self.tx.number();
        let bump = Bump { slot, tx_head, rx_head, fin, ring };
        app.end.bumps.push(bump.to_words()).unwrap();
    }
}
