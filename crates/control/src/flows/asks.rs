//! Requests about one connection: options and figures.
use super::Flows;
use crate::contexts::Contexts;
use crate::flow::EngineState;
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer};
use context::{FlowInfo, OptionName, Slot};
use engine::{ContextId, FlowId, Nanos, stream};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Flows {
    /// The flow that an application calls `slot`. Naming it shows that the application has accepted it.
    pub(crate) fn named(&mut self, contexts: &Contexts, id: ContextId, slot: Slot) -> Option<FlowId> {
        let flow = contexts.get(id.0)?.slots.flow(slot)?;
        let open = self.get_mut(flow.0)?;
        if !open.names.iter().any(|name| name.context == id && name.slot == slot && name.open) {
            return None;
        }
        open.unaccepted = None;
        Some(flow)
    }

    /// Which of these flows a context calls `slot`.
    pub(crate) fn called(&self, flows: &BTreeSet<FlowId>, context: ContextId, slot: Slot) -> Option<FlowId> {
        let called = |id: &&FlowId| self.get(id.0).is_some_and(|flow| flow.is_called(context, slot));
        flows.iter().find(called).copied()
    }

    /// Sets an option of a connection.
    // Meets RFC 9293: MUST-17, MUST-21, MUST-24, MUST-27.
    pub(crate) fn set(&mut self, out: &mut Outbox<'_>, id: FlowId, option: OptionName, value: u64) {
        let default_give_up = out.config.timers.give_up_ms as Nanos * MILLISECOND;
        if option == OptionName::ReceiveWindow {
            let bytes = u32::try_from(value).unwrap_or(u32::MAX);
            let runs = self.get(id.0).is_some_and(|flow| flow.engine == EngineState::Engine);
            // With a shared log, a window is a promise of records.
            if !runs || out.config.memory.log_bytes > 0 {
                return;
            }
            return out.commands.push(stream::Command::Offer(id, bytes).into());
        }
        let Some(flow) = self.get_mut(id.0) else { return };
        let options = Arc::make_mut(&mut flow.options);
        // A day is longer than any of these times needs to be, and keeps sums of them in range.
        let seconds = value.min(86_400) * 1000 * MILLISECOND;
        match option {
            OptionName::Keepalive => options.keepalive = value != 0,
            OptionName::KeepaliveIdle => options.keepalive_idle = seconds.max(1),
            OptionName::KeepaliveInterval => options.keepalive_interval = seconds.max(1),
            OptionName::KeepaliveCount => options.keepalive_probes = value.clamp(1, 127) as u32,
            OptionName::UserTimeout => {
                options.give_up = if value == 0 { default_give_up } else { value.min(86_400_000) * MILLISECOND };
            }
            OptionName::Congestion => {
                let kind = out.config.chosen_congestion(value as u8);
                flow.timers.policy = kind.start(flow.agreed.mss as u32, out.now);
            }
            OptionName::PacingRate => options.pacing_rate = value,
            OptionName::FinTimeout => options.fin_timeout = seconds.max(1),
            OptionName::NoDelay => {
                options.nagle = out.config.limits.nagle && value == 0;
                let command = stream::Command::Nagle(id, options.nagle);
                out.commands.extend((flow.engine == EngineState::Engine).then(|| command.into()));
            }
            OptionName::ReceiveWindow => {}
        }
        // The new values count at once, also for a flow that is quiet.
        out.timers.set(Timer::Flow(id.0), out.now);
    }

    /// Figures of a connection, as `TCP_INFO` has them.
    pub(crate) fn info(&self, id: FlowId) -> Option<FlowInfo> {
        let flow = self.get(id.0)?;
        let figures = flow.stats.read();
        let timers = &flow.timers;
        Some(FlowInfo {
            state: flow.state().number(),
            ca_state: timers.ca_state(&figures),
            congestion: timers.policy.kind().code,
            mss: flow.agreed.mss,
            rtt_us: (timers.rtt.srtt().unwrap_or(0) / 1000) as u32,
            rttvar_us: (timers.rtt.rttvar() / 1000) as u32,
            cwnd: timers.cwnd(&figures),
            ssthresh: timers.policy.ssthresh(),
            retransmits: figures.retransmitted_segments,
            dsack_dups: figures.dsack_dups,
            syn_data: flow.marks.with_data,
            unacked: figures.outstanding,
            unsent: figures.unsent,
            snd_wnd: figures.snd_wnd,
            bytes_acked: figures.acked_bytes,
            bytes_received: figures.rx_bytes,
        })
    }
}
