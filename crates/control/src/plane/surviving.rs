//! Return of connections of an earlier daemon: their programs come back with the regions where they lie
//! (docs/RESTART.md).
use super::ControlPlane;
use crate::contexts::Holder;
use crate::flow::{EngineState, Name, Spliced};
use crate::flow_options::FlowOptions;
use crate::handover::{FlowState, restore_flow};
use crate::journal::{Record, Records};
use crate::outbox::Outbox;
use crate::timers::Timer;
use context::attach::SurvivingConnection;
use context::{Geometry, Slot};
use engine::stream::{FlowEnd, Resume};
use engine::{ContextId, FlowId};
use tcp::{Closing, Ends, State};

impl ControlPlane {
    /// The host's connections have records there from now on; those that an earlier daemon left wait for their
    /// programs. Returns how many.
    pub(crate) fn keep_records(&mut self, out: &mut Outbox<'_>, records: Box<dyn Records>) -> usize {
        self.survivors.begin(records, out, &mut self.connections)
    }

    /// Connections of an earlier daemon wait for their programs.
    pub(crate) fn has_survivors(&self) -> bool {
        self.survivors.len() > 0
    }

    /// Connections wait that are in this region.
    pub(crate) fn has_survivors_in(&self, region: u64) -> bool {
        self.survivors.are_in(region)
    }

    /// Programs had their time.
    pub(super) fn survivors_due(&mut self, out: &mut Outbox<'_>) {
        self.survivors.give_up(out, &mut self.connections);
    }

    /// Connections of a context that came back with its region go on. Returns those that do.
    pub(crate) fn go_on_with(
        &mut self,
        out: &mut Outbox<'_>,
        id: ContextId,
        kept: &[SurvivingConnection],
    ) -> Vec<Slot> {
        kept.iter().filter(|kept| self.go_on_with_one(out, id, kept).is_some()).map(|kept| kept.slot).collect()
    }

    fn go_on_with_one(&mut self, out: &mut Outbox<'_>, id: ContextId, kept: &SurvivingConnection) -> Option<()> {
        let context = self.contexts.get_mut(id.0)?;
        let geometry = context.end.geometry();
        if !is_possible(kept, &geometry) {
            return None;
        }
        let (number, record) = self.survivors.take(context.end.region_number(), kept.slot)?;
        let flow = self.flows.vacant().filter(|_| context.slots.take_at(kept.slot));
        let Some(flow) = flow else {
            self.connections.remove(&record.tuple);
            out.journal.remove(Some(number));
            return None;
        };
        context.slots.assign(kept.slot, FlowId(flow));
        context.flows.insert(FlowId(flow));
        out.counters.opened += 1;
        let state = state_of(out, flow, id, &record, kept, &geometry);
        let restored = restore_flow(out, &mut self.contexts, &mut self.flows, &mut self.connections, state);
        // It has a record of its own now.
        out.journal.remove(Some(number));
        if restored.is_ok() {
            return Some(());
        }
        // Its buffers cannot be mapped.
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.engine = EngineState::Gone;
            out.journal.remove(flow.record.take());
        }
        out.timers.cancel(Timer::Flow(flow));
        self.connections.remove(&record.tuple);
        self.give_up_share(out, FlowId(flow), Holder::Context(id), None, true);
        None
    }
}

/// Positions that a connection can have: what the program reports of it is checked here, once.
fn is_possible(kept: &SurvivingConnection, geometry: &Geometry) -> bool {
    let index = kept.slot.index;
    let written = kept.tx_head.wrapping_sub(kept.tx_tail);
    let unread = kept.rx_tail.wrapping_sub(kept.rx_head);
    index < geometry.slots && written <= geometry.tx_most(index) && unread <= geometry.rx_most(index)
}

/// What the connection was, as far as its record and its program have it. What was written may all have been sent, and
/// what was sent may have arrived: all that is not acknowledged is sent again.
fn state_of(
    out: &mut Outbox<'_>,
    id: u32,
    context: ContextId,
    record: &Record,
    kept: &SurvivingConnection,
    geometry: &Geometry,
) -> FlowState {
    let Record { tuple, remote_mac, agreed, iss, irs, ts_recent, .. } = *record;
    // A host's loopback has another hardware address each time.
    let next_hop = out.net.next_hop(tuple.remote_ip);
    let remote_mac = out.net.resolve(out.now, next_hop).unwrap_or(remote_mac);
    let SurvivingConnection { slot, rx_tail, tx_tail, rx_head, tx_head, shut, peer_ended } = *kept;
    // Where this host's FIN may have been acknowledged, it is sent again all the same: then the peer acknowledges it
    // again.
    let state = match (shut, peer_ended) {
        (false, false) => State::Established,
        (false, true) => State::CloseWait,
        (true, false) => State::FinWait1,
        (true, true) => State::LastAck,
    };
    let closing = Closing { ends: Ends::of(state), ..Closing::default() };
    let (snd_una, pending, unread) = (iss + 1 + tx_tail, tx_head.wrapping_sub(tx_tail), rx_tail.wrapping_sub(rx_head));
    let end = FlowEnd {
        snd_nxt: snd_una + pending + u32::from(shut),
        snd_una,
        rcv_nxt: irs + 1 + rx_tail + u32::from(peer_ended),
        unread,
        ts_recent,
        resume: Some(Resume {
            tx_pos: tx_tail,
            rx_pos: rx_tail.wrapping_add(u32::from(peer_ended)),
            pending,
            // As much as the peer may have been offered: an edge does not move back.
            window: geometry.rx_most(slot.index) - unread,
            // The peer's next segment has it.
            snd_wnd: u32::from(agreed.mss),
            state,
        }),
    };
    FlowState {
        id,
        tuple,
        remote_mac,
        agreed,
        iss,
        since: out.now,
        with_data: false,
        names: vec![Name { context, slot, open: true, taken: true }],
        current: 0,
        holders: vec![Holder::Context(context)],
        unaccepted: None,
        closing,
        options: FlowOptions::of(out.config),
        congestion: out.config.default_congestion(),
        rtt: None,
        bytes: (rx_tail.into(), tx_tail.into()),
        spliced: Spliced::No,
        logged: false,
        end: Some(end),
    }
}
