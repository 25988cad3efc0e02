//! Survivors: connections of a killed daemon, until their programs come back for them (docs/RESTART.md).
use crate::connections::{Connections, Lifecycle};
use crate::journal::{Record, RecordNumber, Records};
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer};
use context::Slot;
use engine::Nanos;
use std::collections::BTreeMap;
use wire::tcp::{Flags, Header, Options, Timestamps};

/// Time in which programs may reattach.
pub(crate) const TIMEOUT: Nanos = 5000 * MILLISECOND;

/// Where a connection's buffers lie: number of a region, and of a slot there.
type Spot = (u64, u32);

/// Surviving connections of a host, by region and slot.
#[derive(Default)]
pub(crate) struct Survivors {
    waiting: BTreeMap<Spot, (RecordNumber, Record)>,
}

impl Survivors {
    /// Records lie there from now on. The connections that an earlier daemon left in them wait. Until their programs
    /// have come back, their peers get no answer, and send again.
    pub(crate) fn begin(
        &mut self,
        records: Box<dyn Records>,
        out: &mut Outbox<'_>,
        connections: &mut Connections,
    ) -> usize {
        for (number, record) in out.journal.keep(records) {
            let place = (record.region, record.slot.index);
            // One that is killed just when a connection goes on leaves two records of it.
            let taken = connections.get(&record.tuple).is_some() || self.waiting.contains_key(&place);
            if taken {
                out.journal.remove(Some(number));
                continue;
            }
            connections.set(record.tuple, Lifecycle::Survivor);
            self.waiting.insert(place, (number, record));
        }
        if !self.waiting.is_empty() {
            out.timers.set(Timer::Survivors, out.now + TIMEOUT);
        }
        self.waiting.len()
    }

    /// The connection in a slot of a region, for the process that has that region.
    pub(crate) fn take(&mut self, region: u64, slot: Slot) -> Option<(RecordNumber, Record)> {
        let place = (region, slot.index);
        let (_, record) = self.waiting.get(&place)?;
        if record.slot == slot { self.waiting.remove(&place) } else { None }
    }

    /// Some are in this region.
    pub(crate) fn are_in(&self, region: u64) -> bool {
        self.waiting.range((region, 0)..=(region, u32::MAX)).next().is_some()
    }

    /// Number of waiting connections.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Nobody came for those that are left: their peers get a reset when they send again. They are made to: a peer that
    /// only waits for bytes would wait for ever.
    pub(crate) fn give_up(&mut self, out: &mut Outbox<'_>, connections: &mut Connections) {
        let spots: Vec<Spot> = self.waiting.keys().copied().collect();
        spots.into_iter().for_each(|spot| self.leave(out, connections, spot));
    }

    /// The same for the one that was there, if any. With another connection in its slot, whoever takes that for this
    /// one would send its bytes to another peer.
    pub(crate) fn leave(&mut self, out: &mut Outbox<'_>, connections: &mut Connections, spot: Spot) {
        let Some((number, record)) = self.waiting.remove(&spot) else { return };
        connections.remove(&record.tuple);
        out.journal.remove(Some(number));
        out.send_tcp(&record.tuple, question(out.now, &record));
    }
}

/// A segment whose sequence number is one of long ago. A peer that has the connection answers it with an ACK (RFC 9293
/// section 3.10.7.4, first check). That ACK has the one number that a reset must bear to count (RFC 5961 section 3.2).
fn question(now: Nanos, record: &Record) -> Header {
    let clock = (now / MILLISECOND) as u32;
    let stamp = |offset: u32| Timestamps { value: clock.wrapping_add(offset), echo: record.ts_recent };
    Header {
        src_port: record.tuple.local_port,
        dst_port: record.tuple.remote_port,
        seq: record.iss,
        ack: record.irs,
        flags: Flags::ACK,
        window: 0,
        options: Options { timestamps: record.agreed.ts_offset.map(stamp), ..Options::default() },
    }
}
