//! A connection that outlives its daemon (docs/RESTART.md): where it stands, for the next one to go on from there.
use super::Stream;
use crate::state::mapped_region::MappedRegion;
use crate::state::slot_state::{RX_FIN, SHUT_WRITE, SPLICED, SlotState};
use context::attach::SurvivingConnection;
use context::{Endpoint, FourTuple, Slot};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Nowhere: where the addresses do not matter.
const NOWHERE: Endpoint = Endpoint::v4(Ipv4Addr::UNSPECIFIED, 0);

impl Stream {
    /// Where it stands, for the next daemon to go on from there. Nothing of one that cannot: it is over, or another
    /// process may have it as well.
    pub(crate) fn surviving_connection(&self) -> Option<SurvivingConnection> {
        let may = !self.gone && !self.shared && self.flags() & SPLICED == 0;
        let slot =
            self.name.filter(|slot| may && *slot == self.home_slot && self.claim_by == (self.home.context(), *slot))?;
        let (state, flags) = (self.state(), self.flags());
        Some(SurvivingConnection {
            slot,
            rx_tail: state.rx_tail.load(Acquire),
            tx_tail: state.tx_tail.load(Acquire),
            rx_head: state.rx_head.load(Relaxed),
            tx_head: state.tx_head.load(Relaxed),
            shut: flags & SHUT_WRITE != 0,
            peer_ended: flags & RX_FIN != 0,
        })
    }

    /// It has come to another daemon, where its region's context has this number.
    pub(crate) fn goes_on(&mut self, context: u32) {
        self.claim_by.0 = context;
        self.state().owner.store(context.into(), Release);
    }

    /// Where a connection of this process stands that was closed in a slot of `home`, with these positions.
    pub(crate) fn closed(
        home: &Arc<MappedRegion>,
        slot: Slot,
        tx_head: u32,
        rx_head: u32,
    ) -> Option<SurvivingConnection> {
        let here = |state: &SlotState| state.read_for.load(Acquire) == slot.mark() && state.lock.load(Relaxed) == 0;
        let mut stream = Stream::at(home, slot, FourTuple::new(NOWHERE, NOWHERE), 0);
        stream.name = Some(slot).filter(|_| here(stream.state()));
        stream.surviving_connection().map(|kept| SurvivingConnection { tx_head, rx_head, ..kept })
    }
}
