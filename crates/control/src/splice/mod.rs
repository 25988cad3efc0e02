//! Splicing: two connections of one application become one path (FlexTOE appendix B, thesis section 4.3.3). A module
//! of the data-path translates their segments from then on; what it hands over (FIN, RST, options that it does not
//! know) the control plane translates and passes on, with the same arithmetic, and it ends the pair.
mod joining;
mod passing;
mod table;

pub use table::{Seen, SpliceTable};
pub(crate) use table::{Side, Splice, Splices};

use crate::connections::Stage;
use crate::flow::Spliced;
use crate::outbox::Outbox;
use crate::plane::Plane;
use crate::timers::Timer;
use context::Reply;
use engine::FlowId;
use wire::{IpAddress, Mac};

impl Plane {
    /// The splice module came or went. What is spliced goes on either way: without the module, by the control plane.
    pub fn set_splice_table(&mut self, table: Option<Box<dyn SpliceTable>>) {
        let keys: Vec<u32> = self.splices.all.iter().map(|(key, _)| key).collect();
        for key in &keys {
            let seen = [0, 1].map(|side| self.splices.seen(*key, side));
            if let Some(splice) = self.splices.all.get_mut(*key) {
                splice.sides.iter_mut().zip(seen).for_each(|(side, seen)| side.seen = seen);
            }
            self.splices.take_back(*key);
        }
        self.splices.table = table;
        for key in keys {
            for side in 0..2 {
                self.start_direction(key, side);
            }
        }
    }

    /// Tells the module where a direction stands, and hands it over.
    fn start_direction(&mut self, key: u32, side: usize) {
        let Some(splice) = self.splices.all.get(key) else { return };
        let seen = Seen { segments: 0, bytes: 0, ..splice.sides[side].seen };
        let direction = 2 * key + side as u32;
        if let Some(table) = self.splices.table.as_mut().filter(|table| direction < table.capacity()) {
            table.start(direction, &seen);
        }
        self.splices.hand_over(key, side);
    }

    /// The next hop's hardware address changed.
    pub fn splice_next_hop(&mut self, ip: IpAddress, mac: Mac) {
        let mut changed = Vec::new();
        for (key, splice) in self.splices.all.iter_mut() {
            for side in 0..2 {
                let beyond = splice.sides[1 - side].next_hop;
                let dst_mac = &mut splice.sides[side].translation.dst_mac;
                if beyond == ip && *dst_mac != mac {
                    *dst_mac = mac;
                    changed.push((key, side));
                }
            }
        }
        changed.into_iter().for_each(|(key, side)| self.splices.hand_over(key, side));
    }

    /// Forgets a splice: its four-tuples are free, its applications are told.
    fn end_splice(&mut self, out: &mut Outbox<'_>, key: u32, errno: i32) -> Option<Splice> {
        let seen = [0, 1].map(|side| self.splices.seen(key, side));
        self.splices.take_back(key);
        out.timers.cancel(Timer::Splice(key));
        let splice = self.splices.all.remove(key)?;
        for (side, seen) in splice.sides.iter().zip(seen) {
            self.splices.totals.segments += seen.segments;
            self.splices.totals.bytes += seen.bytes;
            if matches!(self.connections.get(&side.tuple), Some(Stage::Splice(..))) {
                self.connections.remove(&side.tuple);
            }
            if let Some(flow) = side.flow {
                self.tell_over(flow, errno);
            }
        }
        Some(splice)
    }

    /// Tells the applications that have a name for a spliced connection that it is over.
    fn tell_over(&mut self, id: FlowId, errno: i32) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        flow.spliced = Spliced::Over(errno as u16);
        let open: Vec<_> = flow.names.iter().filter(|name| name.open).copied().collect();
        for name in open {
            self.contexts.reply(name.context, Reply::SpliceOver { slot: name.slot, errno: errno as u16 });
        }
    }

    /// The last application that had a name for a spliced connection gave it up. The splice goes on (AccelTCP).
    pub fn forget_splice_name(&mut self, id: FlowId, spliced: Spliced) {
        let Spliced::In(key) = spliced else { return };
        if let Some(splice) = self.splices.all.get_mut(key) {
            splice.sides.iter_mut().filter(|side| side.flow == Some(id)).for_each(|side| side.flow = None);
        }
    }
}
