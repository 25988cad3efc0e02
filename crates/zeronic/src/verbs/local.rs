//! Queue pairs of one host that are each other's peers: their messages go from memory to memory, without a connection.
use super::Verbs;
use super::links::Stashed;
use crate::nic::Memory;
use engine::DropCounts;
use smartns::{Arrived, Content, Denied, FinalMessage, HEADER_LEN, Message, Steer};
use verbs::QpNumber;

/// Messages of a queue pair in a round.
const QUANTUM: usize = 64;

impl Verbs {
    /// A queue pair has a peer on its own host: the two have each other, once both name it.
    pub(super) fn has_local_peer(&mut self, qp: QpNumber, peer: QpNumber) {
        if qp != peer && self.device.peer_of(peer) == Some((self.address, qp)) && !self.local.contains_key(&peer) {
            for (one, other) in [(qp, peer), (peer, qp)] {
                self.local.insert(one, other);
                self.pending.remove(&one);
                self.asked.remove(&one);
                self.device.link(one);
            }
        }
    }

    /// A queue pair is gone, and so is its peer's connection.
    pub(super) fn leave_local(&mut self, qp: QpNumber, last: Option<FinalMessage>, drops: &mut DropCounts) {
        self.stashed.remove(&qp);
        if let Some(peer) = self.local.remove(&qp) {
            if let Some(header) = last.and_then(|last| last.message) {
                self.device.deliver(self.now, peer, Arrived { header, len: 0, kept: None, denied: None }, drops);
            }
            self.stashed.remove(&peer);
            self.local.remove(&peer);
            self.device.lost(self.now, peer, drops);
        }
    }

    /// Carries what a queue pair has to its peer. Returns how many messages.
    pub(super) fn carry_local(
        &mut self,
        qp: QpNumber,
        peer: QpNumber,
        memory: &impl Memory,
        drops: &mut DropCounts,
    ) -> usize {
        for done in 0..QUANTUM {
            let next = match self.stashed.remove(&qp) {
                Some(stashed) => Some(stashed),
                None => self.device.next_message(self.now, qp, drops).map(|message| fetch(message, memory)),
            };
            let Some(next) = next else { return done };
            if let Some(next) = self.deliver_local(peer, next, memory, drops) {
                self.stashed.insert(qp, next);
                self.blocked.insert(qp);
                return done;
            }
        }
        self.again.push(qp);
        QUANTUM
    }

    /// Places a message and delivers it; gives it back where it has no place yet.
    fn deliver_local(
        &mut self,
        peer: QpNumber,
        message: Stashed,
        memory: &impl Memory,
        drops: &mut DropCounts,
    ) -> Option<Stashed> {
        let Stashed { header, payload } = message;
        let len = payload.len() as u32;
        let mut arrived = Arrived { header, len, kept: None, denied: None };
        match self.device.steer(self.now, peer, &header, len + HEADER_LEN as u32, drops) {
            Steer::Later => return Some(Stashed { header, payload }),
            Steer::Keep => arrived.kept = Some(payload),
            Steer::Nowhere(denied) => arrived.denied = Some(denied),
            Steer::Places(domain, places) => {
                let mut from = 0;
                for place in places {
                    let part = &payload[from..from + place.len as usize];
                    from += part.len();
                    if memory.write(domain, place.key, place.offset, part).is_err() {
                        arrived.denied = Some(Denied::ACCESS);
                    }
                }
            }
        }
        self.device.deliver(self.now, peer, arrived, drops);
        None
    }
}

/// A message with its payload. Memory that is gone meanwhile shows as zeros: its program may not read it any more.
fn fetch(message: Message, memory: &impl Memory) -> Stashed {
    let payload = match message.content {
        Content::Bytes(bytes) => bytes,
        Content::Had(len) => vec![0; len as usize],
        Content::Places(domain, places) => {
            let mut bytes = Vec::new();
            for place in places {
                let end = bytes.len() + place.len as usize;
                let appended = memory.append(domain, place.key, place.offset, place.len as usize, &mut bytes);
                if appended.is_err() {
                    bytes.resize(end, 0);
                }
            }
            bytes
        }
    };
    Stashed { header: message.header, payload }
}
