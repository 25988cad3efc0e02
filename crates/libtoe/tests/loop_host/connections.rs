//! Connections of the stand-in: two ends, and bytes that go from one's transmit to the other's receive buffer.
use super::Host;
use context::{Bump, Completion, Endpoint, Reply, Slot};
use shm::ByteRing;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One end of a connection.
pub(super) struct End {
    /// Context and slot that its completions go to.
    pub owner: (u32, Slot),
    /// All names that it had: an inherited connection is claimed by an earlier one.
    pub names: Vec<(u32, Slot)>,
    /// Contexts that share it.
    pub holders: BTreeSet<u32>,
    /// Tokens of forks whose child has not come yet.
    pub held_for_child: BTreeSet<u64>,
    pub rx: Arc<ByteRing>,
    /// Bytes that are offered to the other end.
    pub offered: u32,
    pub tx: Arc<ByteRing>,
    pub tx_head: u32,
    pub tx_sent: u32,
    pub rx_head: u32,
    pub rx_tail: u32,
    pub fin: bool,
    pub fin_sent: bool,
    pub peer_fin: bool,
    /// The position of the urgent byte, of what is written and of what was received.
    pub urgent_sent: Option<u32>,
    pub urgent_got: Option<u32>,
    /// The end of a record that the next bump is to cover.
    pub record: Option<u32>,
    pub closed: bool,
    pub aborted: bool,
}

/// A connection.
pub(super) struct Connection {
    pub ends: [End; 2],
}

impl End {
    pub(super) fn new(owner: (u32, Slot), (rx, tx): (ByteRing, ByteRing)) -> End {
        End {
            owner,
            names: vec![owner],
            holders: BTreeSet::from([owner.0]),
            held_for_child: BTreeSet::new(),
            offered: rx.usual(),
            rx: Arc::new(rx),
            tx: Arc::new(tx),
            tx_head: 0,
            tx_sent: 0,
            rx_head: 0,
            rx_tail: 0,
            fin: false,
            fin_sent: false,
            peer_fin: false,
            urgent_sent: None,
            urgent_got: None,
            record: None,
            closed: false,
            aborted: false,
        }
    }

    /// Nobody holds it, and nobody will.
    pub(super) fn is_unshared(&self) -> bool {
        self.holders.is_empty() && self.held_for_child.is_empty()
    }

    /// The application has come so far, or another one that shares the connection further already.
    pub(super) fn advance(&mut self, tx_head: u32, rx_head: u32) {
        let further = |now: u32, reported: u32| if reported.wrapping_sub(now) as i32 > 0 { reported } else { now };
        (self.tx_head, self.rx_head) = (further(self.tx_head, tx_head), further(self.rx_head, rx_head));
    }

    pub(super) fn completion(&self) -> Completion {
        Completion {
            slot: self.owner.1,
            rx_tail: self.rx_tail,
            tx_tail: self.tx_sent,
            fin: self.peer_fin,
            ring: self.rx.number(),
            urgent: self.urgent_got.is_some(),
        }
    }
}

/// Copies what there is room for; returns whether anything moved.
fn carry(from: &mut End, to: &mut End) -> bool {
    let unsent = from.tx_head.wrapping_sub(from.tx_sent);
    // What comes for a closed end is thrown away.
    let room = if to.closed { u32::MAX } else { to.offered - to.rx_tail.wrapping_sub(to.rx_head) };
    // Small pieces, so that wrapping and partial reads are exercised.
    let len = unsent.min(room).min(5000);
    if len > 0 && !to.closed {
        let mut bytes = vec![0; len as usize];
        from.tx.read(from.tx_sent, &mut bytes);
        to.rx = to.rx.holding(to.rx_head, to.rx_tail.wrapping_add(len));
        to.rx.write(to.rx_tail, &bytes);
    }
    to.urgent_got = from.urgent_sent.or(to.urgent_got);
    from.tx_sent = from.tx_sent.wrapping_add(len);
    to.rx_tail = to.rx_tail.wrapping_add(len);
    // A reset is no end of what was sent.
    let fin = from.fin && !from.aborted && !from.fin_sent && from.tx_sent == from.tx_head;
    if fin {
        from.fin_sent = true;
        to.peer_fin = true;
    }
    len > 0 || fin
}

impl Host {
    pub(super) fn take_bumps(&mut self, id: u32) -> bool {
        let mut busy = false;
        while let Some(words) = self.apps.get_mut(&id).and_then(|app| app.engine.bumps.pop().unwrap()) {
            busy = true;
            let bump = Bump::from_words(words);
            let all = self.connections.iter_mut().flat_map(|connection| &mut connection.ends);
            let Some(end) = all.into_iter().find(|end| end.owner == (id, bump.slot)) else { continue };
            if bump.ring == Bump::URGENT {
                end.urgent_sent = Some(bump.tx_head.wrapping_sub(1));
                continue;
            }
            if bump.ring == Bump::RECORD {
                assert!(bump.tx_head.wrapping_sub(end.tx_head) as i32 > 0, "{bump:?} against {}", end.tx_head);
                end.record = Some(bump.tx_head);
                continue;
            }
            let record = end.record.take();
            assert!(record.is_none_or(|record| bump.tx_head.wrapping_sub(record) as i32 >= 0), "{bump:?}, {record:?}");
            if let Some(ring) = end.tx.grown().filter(|_| bump.ring > end.tx.number()) {
                end.tx = ring;
            }
            end.advance(bump.tx_head, bump.rx_head);
            assert!(end.tx_head.wrapping_sub(end.tx_sent) <= end.tx.size(), "{bump:?} against {}", end.tx_sent);
            assert!(end.rx_tail.wrapping_sub(end.rx_head) <= end.offered, "{bump:?} against {}", end.rx_tail);
            end.fin |= bump.fin;
        }
        busy
    }

    pub(super) fn move_bytes(&mut self) -> bool {
        let mut busy = false;
        for i in 0..self.connections.len() {
            let [a, b] = &mut self.connections[i].ends;
            let moved = carry(a, b) | carry(b, a);
            if moved {
                busy = true;
                for (end, at) in [&*a, &*b].into_iter().filter_map(|end| Some((end, end.urgent_got?))) {
                    let (context, slot) = end.owner;
                    self.apps.get(&context).into_iter().for_each(|app| app.engine.report_urgent(slot.index, at));
                }
                let completions = [(a.owner.0, a.completion()), (b.owner.0, b.completion())];
                completions.into_iter().for_each(|(context, completion)| self.notify(context, completion));
            }
        }
        self.reap();
        busy
    }

    pub(super) fn notify(&mut self, context: u32, completion: Completion) {
        let Some(app) = self.apps.get_mut(&context) else { return };
        // A full ring would have to be remembered; here the application gets time to empty it.
        for _ in 0..1000 {
            if app.engine.completions.push(completion.to_words()).is_ok() {
                break;
            }
            app.engine.app_bell.ring();
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        app.engine.app_bell.ring();
    }

    /// Ends connections: an abort resets the peer; two closed ends with nothing unsent are over.
    fn reap(&mut self) {
        let mut over = Vec::new();
        for (i, connection) in self.connections.iter_mut().enumerate() {
            let [a, b] = &connection.ends;
            let reset = (a.aborted && a.closed) || (b.aborted && b.closed);
            let done = |end: &super::End| end.closed && end.fin_sent;
            if reset || (done(a) && done(b)) {
                over.push(i);
            }
        }
        for i in over.into_iter().rev() {
            let connection = self.connections.remove(i);
            for end in connection.ends {
                let (context, slot) = end.owner;
                let Some(app) = self.apps.get_mut(&context) else { continue };
                if end.closed {
                    app.slots[slot.index as usize].1 = false;
                    app.reply(Reply::Freed { slot });
                } else {
                    app.reply(Reply::Error { slot, errno: libc::ECONNRESET as u16 });
                }
            }
        }
    }

    /// Opens a connection between two contexts; `None` where one has no slot left.
    pub(super) fn join(&mut self, a: u32, b: u32) -> Option<(Slot, Slot)> {
        let slot_a = self.apps.get_mut(&a)?.take_slot()?;
        let slot_b = self.apps.get_mut(&b)?.take_slot()?;
        self.apps[&b].control.offer(slot_b);
        let end = |id: u32, slot: Slot| End::new((id, slot), self.apps[&id].control.map_buffers(slot.index).unwrap());
        let ends = [end(a, slot_a), end(b, slot_b)];
        self.connections.push(Connection { ends });
        Some((slot_a, slot_b))
    }
}

/// Whether two endpoints collide.
pub(super) fn collide(a: Endpoint, b: Endpoint) -> bool {
    a.port == b.port && (a.ip == b.ip || a.ip.is_unspecified() || b.ip.is_unspecified())
}
