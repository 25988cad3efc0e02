//! Views of a host's connections: plain values, a bounded number at a time. So tens of thousands of connections can be
//! listed and added up while their data-path runs.
use crate::contexts::Contexts;
use crate::flow::Spliced;
use crate::flows::Flows;
use crate::half_open::HalfOpen;
use crate::handshakes::Handshakes;
use crate::splice::{Side, Splices};
use crate::time_waits::TimeWaits;
use engine::{DropReason, FlowId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A connection, in whatever stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowView {
    /// Number in the engine; none while it is being opened or when it waits in TIME-WAIT.
    pub flow: Option<u32>,
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// RFC 9293's name.
    pub state: &'static str,
    /// The context that it belongs to.
    pub context: Option<u32>,
    /// Its slot there.
    pub slot: Option<u32>,
    /// Process of that context.
    pub pid: Option<u32>,
    /// Congestion-control policy.
    pub congestion: Option<&'static str>,
    /// Payload bytes of a full segment.
    pub mss: u16,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow-start threshold, bytes; none before the first congestion and where the policy has none.
    pub ssthresh: Option<u32>,
    /// Sending rate, bytes a second; 0 for no limit.
    pub rate: u64,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u64,
    /// Mean deviation of the round-trip time, microseconds.
    pub rttvar_us: u64,
    /// Retransmission timeout, microseconds.
    pub rto_us: u64,
    /// Retransmissions because time was up (RFC 6298 section 5.4).
    pub timeouts: u32,
    /// ECN was negotiated.
    pub ecn: bool,
    /// Counters of the engine.
    pub figures: BTreeMap<&'static str, u64>,
    /// The last drop's reason.
    pub last_drop: Option<&'static str>,
}

/// Some of a host's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowPage {
    /// The connections.
    pub flows: Vec<FlowView>,
    /// Where the next page begins; none after the last one. Connections that open and close meanwhile may be missed.
    pub next: Option<u64>,
}

/// Connections of a host, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FlowTotals {
    /// Count of connections, by state.
    pub states: BTreeMap<&'static str, u64>,
    /// Counters of the engine that can be added up, of those that it runs.
    pub totals: BTreeMap<&'static str, u64>,
}

/// Counters that are states of one connection: their sum would mean nothing.
const STATES: [&str; 7] = ["snd_wnd", "snd_nxt", "snd_una", "rcv_nxt", "rtt_ns", "last_drop", "last_rx_ns"];

/// A connection in one of the tables.
enum Row<'a> {
    Flow(FlowId),
    HalfOpen(&'a HalfOpen),
    TimeWait(&'a tcp::TimeWait),
    /// One side of a splice.
    Side(u32, usize, &'a Side),
}

/// The tables that a host's connections are in.
pub(crate) struct Tables<'a> {
    pub contexts: &'a Contexts,
    pub flows: &'a Flows,
    pub handshakes: &'a Handshakes,
    pub time_waits: &'a TimeWaits,
    pub splices: &'a Splices,
}

impl Tables<'_> {
    /// At most `most` connections from place `from` on; 0 is the first place.
    pub(crate) fn flow_page(&self, from: u64, most: usize) -> FlowPage {
        let mut rows = self.rows(from);
        let views = rows.by_ref().take(most).filter_map(|(_, row)| self.row_view(&row));
        let flows = views.collect();
        FlowPage { flows, next: rows.next().map(|(place, _)| place) }
    }

    /// Adds up at most `most` connections from place `from` on; returns where to go on.
    pub(crate) fn add_up(&self, totals: &mut FlowTotals, from: u64, most: usize) -> Option<u64> {
        let mut rows = self.rows(from);
        for (_, row) in rows.by_ref().take(most) {
            let (state, figures) = match row {
                Row::Flow(id) => {
                    let Some(flow) = self.flows.get(id.0) else { continue };
                    (flow.state().name(), flow.stats.read().list())
                }
                Row::HalfOpen(half_open) => (half_open.state().name(), Vec::new()),
                Row::TimeWait(wait) => (wait.ends.state().name(), Vec::new()),
                Row::Side(key, at, _) => ("SPLICED", self.side_figures(key, at).to_vec()),
            };
            *totals.states.entry(state).or_default() += 1;
            for (name, value) in figures.into_iter().filter(|(name, _)| !STATES.contains(name)) {
                *totals.totals.entry(name).or_default() += value;
            }
        }
        rows.next().map(|(place, _)| place)
    }

    /// All tables of connections as one row of places: the table in the upper half of a number, the key in the lower
    /// one.
    fn rows(&self, from: u64) -> impl Iterator<Item = (u64, Row<'_>)> {
        let first = move |table: u64| match table.cmp(&(from >> 32)) {
            std::cmp::Ordering::Less => u32::MAX,
            std::cmp::Ordering::Equal => from as u32,
            std::cmp::Ordering::Greater => 0,
        };
        let place = |table: u64, key: u32| table << 32 | u64::from(key);
        let flows = self.flows.iter_from(first(0)).filter(|(_, flow)| !matches!(flow.spliced, Spliced::In(_)));
        let flows = flows.map(move |(key, _)| (place(0, key), Row::Flow(FlowId(key))));
        let handshakes = self.handshakes.iter_from(first(1));
        let handshakes = handshakes.map(move |(key, half_open)| (place(1, key), Row::HalfOpen(half_open)));
        let waits = self.time_waits.iter_from(first(2)).map(move |(key, wait)| (place(2, key), Row::TimeWait(wait)));
        let splices = self.splices.iter_from(first(3) / 2).flat_map(move |(key, splice)| {
            let sides = splice.sides.iter().enumerate();
            sides.map(move |(at, side)| (place(3, key * 2 + at as u32), Row::Side(key, at, side)))
        });
        let splices = splices.filter(move |(place, _)| *place as u32 >= first(3));
        flows.chain(handshakes).chain(waits).chain(splices)
    }

    fn row_view(&self, row: &Row<'_>) -> Option<FlowView> {
        match row {
            Row::Flow(id) => self.flow_view(*id),
            Row::HalfOpen(half_open) => Some(bare_view(&half_open.tuple, half_open.state().name())),
            Row::TimeWait(wait) => Some(bare_view(&wait.tuple, wait.ends.state().name())),
            Row::Side(key, at, side) => Some(self.splice_view(*key, *at, side)),
        }
    }

    /// What came in at one side of a splice and was passed on.
    fn side_figures(&self, key: u32, at: usize) -> [(&'static str, u64); 2] {
        let seen = self.splices.seen(key, at);
        [("rx_bytes", seen.bytes), ("rx_segments", seen.segments)]
    }

    /// One side of a splice, with what came in there and was passed on.
    fn splice_view(&self, key: u32, at: usize, side: &Side) -> FlowView {
        let figures = self.side_figures(key, at).into();
        let view = FlowView { figures, ..bare_view(&side.tuple, "SPLICED") };
        let named = side.flow.and_then(|id| self.flow_view(id));
        let Some(FlowView { flow, context, slot, pid, mss, .. }) = named else { return view };
        FlowView { flow, context, slot, pid, mss, ..view }
    }

    /// A connection that an engine runs, by its number there.
    pub(crate) fn flow_view(&self, id: FlowId) -> Option<FlowView> {
        let flow = self.flows.get(id.0)?;
        let figures = flow.stats.read();
        let name = flow.name();
        let context = self.contexts.get(name.context.0);
        let mut list: BTreeMap<_, _> = figures.list().into_iter().collect();
        // Where there is a heap: bytes that landed in the program's memory. All others were copied out of the ring.
        let end = context.map(|context| &context.end).filter(|end| end.geometry().heap_bytes > 0);
        list.extend(end.map(|end| ("landed_bytes", end.landed_bytes(name.slot.index))));
        // Bytes that it wanted to send from there, and why some were copied: in the order of `context::Sent::ALL`.
        let ways = ["referred_bytes", "copied_outside", "copied_short", "copied_crowded", "copied_barred"];
        list.extend(end.into_iter().flat_map(|end| ways.into_iter().zip(end.sent_counts(name.slot.index))));
        list.extend(flow.marks.no_line.then_some(("no_line", 1)));
        let last_drop = (figures.last_drop as usize).checked_sub(1).and_then(|at| DropReason::ALL.get(at));
        Some(FlowView {
            flow: Some(id.0),
            context: Some(name.context.0),
            slot: Some(name.slot.index),
            pid: context.map(|context| context.application.pid),
            congestion: Some(flow.timers.policy.kind().name),
            mss: flow.agreed.mss,
            cwnd: flow.timers.cwnd(&figures),
            ssthresh: Some(flow.timers.policy.ssthresh()).filter(|bytes| *bytes != u32::MAX),
            rate: flow.timers.enforced.rate,
            rtt_us: flow.timers.rtt.srtt().unwrap_or(0) / 1000,
            rttvar_us: flow.timers.rtt.rttvar() / 1000,
            rto_us: flow.timers.rtt.rto().nanos() / 1000,
            timeouts: flow.timers.timeouts,
            ecn: flow.agreed.ecn,
            figures: list,
            last_drop: last_drop.map(|reason| reason.label()),
            ..bare_view(&flow.tuple.get(), flow.state().name())
        })
    }
}

fn bare_view(tuple: &engine::stream::FourTuple, state: &'static str) -> FlowView {
    FlowView {
        flow: None,
        local: tuple.local().into(),
        remote: tuple.remote().into(),
        state,
        context: None,
        slot: None,
        pid: None,
        congestion: None,
        mss: 0,
        cwnd: 0,
        ssthresh: None,
        rate: 0,
        rtt_us: 0,
        rttvar_us: 0,
        rto_us: 0,
        timeouts: 0,
        ecn: false,
        figures: BTreeMap::new(),
        last_drop: None,
    }
}
