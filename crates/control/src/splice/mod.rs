//! Splicing: two connections of one application become one path (FlexTOE appendix B, thesis section 4.3.3). A module of
//! the data-path translates their segments from then on. What it passes up (FIN, RST, unknown options) the control
//! plane translates and passes on, with the same arithmetic; it also ends the pair.
mod handover;
mod joining;
mod passing;
mod table;

pub(crate) use handover::SplicesState;
pub(crate) use joining::Ask;
pub(crate) use passing::{Passed, Then};
pub(crate) use table::{Joining, Over, Side, Splices};
pub use table::{Seen, SpliceTable};

use crate::flow::Spliced;
use crate::outbox::Outbox;
use crate::timers::Timer;
use engine::FlowId;
use table::Splice;
use wire::{IpAddress, Mac};

impl Splices {
    /// The splice module came or went. What is spliced goes on either way: without the module, by the control plane.
    pub(crate) fn set_table(&mut self, table: Option<Box<dyn SpliceTable>>) {
        let keys: Vec<u32> = self.all.iter().map(|(key, _)| key).collect();
        for key in &keys {
            let seen = [0, 1].map(|side| self.seen(*key, side));
            if let Some(splice) = self.all.get_mut(*key) {
                splice.sides.iter_mut().zip(seen).for_each(|(side, seen)| side.seen = seen);
            }
            self.take_back(*key);
        }
        self.table = table;
        for key in keys {
            for side in 0..2 {
                self.start_direction(key, side);
            }
        }
    }

    /// Sends the module the positions of a direction, and gives the direction to it.
    fn start_direction(&mut self, key: u32, side: usize) {
        let Some(splice) = self.all.get(key) else { return };
        let seen = Seen { segments: 0, bytes: 0, ..splice.sides[side].seen };
        let direction = 2 * key + side as u32;
        if let Some(table) = self.table.as_mut().filter(|table| direction < table.capacity()) {
            table.start(direction, &seen);
        }
        self.hand_over(key, side);
    }

    /// The next hop's hardware address changed.
    pub(crate) fn neighbour_learned(&mut self, ip: IpAddress, mac: Mac) {
        let mut changed = Vec::new();
        for (key, splice) in self.all.iter_mut() {
            for side in 0..2 {
                let beyond = splice.sides[1 - side].next_hop;
                let dst_mac = &mut splice.sides[side].translation.dst_mac;
                if beyond == ip && *dst_mac != mac {
                    *dst_mac = mac;
                    changed.push((key, side));
                }
            }
        }
        changed.into_iter().for_each(|(key, side)| self.hand_over(key, side));
    }

    /// Forgets a splice. Its four-tuples are to be freed, its applications to be notified.
    fn end(&mut self, out: &mut Outbox<'_>, key: u32) -> Option<Splice> {
        let seen = [0, 1].map(|side| self.seen(key, side));
        self.take_back(key);
        out.timers.cancel(Timer::Splice(key));
        let splice = self.all.remove(key)?;
        for seen in seen {
            self.totals.segments += seen.segments;
            self.totals.bytes += seen.bytes;
        }
        Some(splice)
    }

    /// The last application that had a name for a spliced connection gave it up. The splice goes on (AccelTCP).
    pub(crate) fn forget_name(&mut self, id: FlowId, spliced: Spliced) {
        let Spliced::In(key) = spliced else { return };
        if let Some(splice) = self.all.get_mut(key) {
            splice.sides.iter_mut().filter(|side| side.flow == Some(id)).for_each(|side| side.flow = None);
        }
    }
}
