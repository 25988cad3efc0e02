//! Views of ZeroNIC hosts, for the management socket.
use super::host_on_thread::ThreadZeronic;
use super::maker::ZeronicPlace;
use crate::clock::Clock;
use control::{DropView, FlowView};
use port::PortCounters;
use serde_json::{Value, json};
use zeronic::{ConnectionView, Counters, ProgramView};

/// Connections of a host in one answer.
const CONNECTIONS: usize = 1000;

/// Read on the data-path thread; the caller makes JSON of it.
pub(crate) struct ZeronicView {
    programs: Vec<ProgramView>,
    /// Those that use verbs.
    verbs: Vec<rdma::ProgramView>,
    connections: Vec<ConnectionView>,
    /// The same from the transport's state.
    flows: Vec<FlowView>,
    listening: Vec<u16>,
    counters: Counters,
    /// What the host and its port dropped.
    pub(crate) drops: Vec<DropView>,
    port: PortCounters,
}

impl ZeronicPlace {
    /// What is there now.
    pub(crate) fn read(&self) -> Result<ZeronicView, String> {
        let index = self.index;
        let seen = self.handle.ask(move |path| path.zeronics.get_mut(index).map(ZeronicView::of))?;
        seen.ok_or_else(|| "the ZeroNIC host is gone".to_string())
    }
}

impl ZeronicView {
    fn of(seat: &mut ThreadZeronic) -> ZeronicView {
        let (programs, port, port_drops) = seat.parts();
        let mut drops = DropView::all(&programs.stack().drops());
        let of_port = port_drops.iter();
        drops.extend(of_port.map(|(of, count)| DropView { reason: of.label(), sentence: of.sentence(), count }));
        let port = port.counters();
        let views = programs.views();
        let stack = programs.stack();
        let flows = stack.transport().views(CONNECTIONS);
        let verbs = stack.device_view().map(|device| device.views(Clock::ticks(), CONNECTIONS)).unwrap_or_default();
        ZeronicView {
            programs: views,
            verbs,
            connections: stack.views(CONNECTIONS),
            flows,
            listening: stack.listening(),
            counters: stack.counters(),
            drops,
            port,
        }
    }

    /// For `opentoe ls`.
    pub(crate) fn inventory(&self, place: &ZeronicPlace) -> Value {
        let programs = self.programs.iter().map(|program| {
            let connections = program.connections.len();
            json!({ "pid": program.pid, "command": program.command, "connections": connections })
        });
        let section = &place.section;
        json!({
            "name": section.name,
            "host": section.host,
            "address": section.address,
            "prefix_len": section.prefix_len,
            "transport": section.transport.name(),
            "programs": programs.collect::<Vec<_>>(),
            "rdma": place.rdma.json(&self.verbs),
            "listeners": self.listening,
            "connections": self.connections.iter().map(|of| self.connection(of)).collect::<Vec<_>>(),
        })
    }

    fn connection(&self, view: &ConnectionView) -> Value {
        let owner = self.programs.iter().find_map(|program| {
            let own = program.connections.iter().find(|(_, flow)| *flow == view.connection);
            own.map(|(number, _)| (*number, program.pid))
        });
        let tuple = &view.tuple;
        let ends = (tuple.local_ip.into(), tuple.local_port, tuple.remote_ip.into(), tuple.remote_port);
        let is_it =
            |flow: &&FlowView| (flow.local.ip(), flow.local.port(), flow.remote.ip(), flow.remote.port()) == ends;
        let transport = self.flows.iter().find(is_it).map(|flow| {
            let figure = |name: &str| flow.figures.get(name).copied();
            json!({
                "state": flow.state,
                "congestion": flow.congestion,
                "mss": flow.mss,
                "cwnd": flow.cwnd,
                "rtt_us": flow.rtt_us,
                "rto_us": flow.rto_us,
                "timeouts": flow.timeouts,
                "fast_retransmits": figure("fast_retransmits"),
                "retransmitted_segments": figure("retransmitted_segments"),
                "duplicate_acks": figure("duplicate_acks"),
                "sacked": figure("sacked"),
                "out_of_order": figure("out_of_order"),
                "outstanding": figure("outstanding"),
                "peer_window": figure("snd_wnd"),
            })
        });
        json!({
            "connection": owner.map(|(number, _)| number),
            "pid": owner.map(|(_, pid)| pid),
            "local": format!("{}:{}", tuple.local_ip, tuple.local_port),
            "remote": format!("{}:{}", tuple.remote_ip, tuple.remote_port),
            "carries": view.carries,
            "received": view.received,
            "placed": view.moved.placed,
            "deferred": view.moved.deferred,
            "has_line": view.has_line,
            "copied_in": view.moved.copied_in,
            "kept": view.kept,
            "fetched": view.moved.fetched,
            "copied_out": view.moved.copied_out,
            "unsent": view.unsent,
            "receives": view.receives,
            "sends": view.sends,
            "peer_ended": view.ended,
            "transport": transport,
        })
    }

    /// For `opentoe stats`.
    pub(crate) fn figures(&self, place: &ZeronicPlace) -> Value {
        let counters = &self.counters;
        let drops: serde_json::Map<_, _> =
            self.drops.iter().map(|drop| (drop.reason.to_string(), drop.count.into())).collect();
        json!({
            "name": place.section.name,
            "transport": place.section.transport.name(),
            "programs": self.programs.len(),
            "open": self.connections.len(),
            "port": {
                "rx_frames": self.port.rx_frames, "rx_bytes": self.port.rx_bytes,
                "tx_frames": self.port.tx_frames, "tx_bytes": self.port.tx_bytes,
            },
            "payload": {
                "placed_bytes": counters.placed_bytes,
                "fetched_bytes": counters.fetched_bytes,
                "copied_out_bytes": counters.copied_out_bytes,
                "without_place": counters.without_place,
                "connections_without_line": counters.without_line,
                "old": counters.old,
            },
            "headers": {
                "in": counters.headers_in, "merged": counters.merged, "out": counters.headers_out,
                "frames_out": counters.frames_out, "window_updates": counters.window_updates,
            },
            "drops": drops,
            "connections": self.connections.iter().map(|of| self.connection(of)).collect::<Vec<_>>(),
        })
    }
}
