//! Requests of applications: each is checked against what the application has.
use crate::bindings::{Binding, Listener};
use crate::closing::Positions;
use crate::config::PortRule;
use crate::connections::Stage;
use crate::contexts::{Application, Holder};
use crate::labels::Label;
use crate::opening::Connect;
use crate::outbox::Outbox;
use crate::plane::{MILLISECOND, Plane};
use crate::timers::Timer;
use crate::traced;
use context::{Congestion, Endpoint, FlowInfo, Look, OptionName, Reply, Request, Slot};
use engine::stream::FourTuple;
use engine::{ContextId, DropReason, FlowId, Nanos};
use std::sync::Arc;
use trace::{NO_FLOW, Point};
use wire::Seq;

/// Requests taken from one application in one round, while the engine has nothing to do.
const PER_ROUND: usize = 64;
/// While it has: as many of all applications together, and one more for so much of the engine's work. A request costs as much
/// as several segments, so whoever asks and asks would otherwise have most of the data-path.
const WHILE_BUSY: usize = 2;
const WORK_PER_REQUEST: usize = 16;

impl Plane {
    /// Takes requests of all applications; returns how many.
    pub fn take_requests(&mut self, out: &mut Outbox<'_>) -> usize {
        let mut done = 0;
        let most = match self.engine_work {
            0 => usize::MAX,
            work => WHILE_BUSY + work / WORK_PER_REQUEST,
        };
        let mut turns = std::mem::take(&mut self.contexts.turns);
        turns.round(|key| {
            let Some(context) = self.contexts.get_mut(key) else { return Look::Gone };
            if context.is_backlogged() {
                context.push_replies();
                self.contexts.reply_later(ContextId(key));
            }
            let before = done;
            while done < most && done - before < PER_ROUND {
                let waits = self.contexts.get(key).is_none_or(|context| context.is_backlogged());
                if waits || !self.take_request(out, ContextId(key)) {
                    return if done > before { Look::Some } else { Look::Nothing };
                }
                done += 1;
            }
            if done >= most { Look::Full } else { Look::Some }
        });
        self.contexts.turns = turns;
        done
    }

    /// Takes what a process left in its ring when it ended: a close may carry the last bytes that it wrote.
    pub fn take_last_requests(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        let most = self.contexts.get(id.0).map_or(0, |context| context.end.geometry().control_entries);
        for _ in 0..most {
            if !self.take_request(out, id) {
                break;
            }
        }
    }

    /// Takes one request of a context; false where there is none.
    fn take_request(&mut self, out: &mut Outbox<'_>, id: ContextId) -> bool {
        let Some(context) = self.contexts.get_mut(id.0).filter(|context| context.alive()) else { return false };
        match context.end.requests.pop() {
            Ok(None) => return false,
            Ok(Some(words)) => match Request::from_words(words) {
                Some(request) => self.on_request(out, id, request),
                None => out.drops.count(DropReason::RequestInvalid),
            },
            Err(_) => {
                out.drops.count(DropReason::RingCorrupt);
                self.end_context(out, id);
            }
        }
        true
    }

    fn on_request(&mut self, out: &mut Outbox<'_>, id: ContextId, request: Request) {
        self.tracer.event(Point::Request, NO_FLOW, [traced::word(&request), id.0.into()]);
        let (tag, result) = match request {
            Request::Bind { tag, local, reuse_address, reuse_port } => {
                (tag, self.bind(out, id, tag, local, reuse_address, reuse_port))
            }
            Request::Listen { tag, binding, backlog } => (tag, self.listen(id, tag, binding, backlog)),
            Request::Connect { tag, binding, remote, congestion, mss } => {
                (tag, self.connect(out, id, tag, binding, remote, congestion, mss))
            }
            Request::Info { tag, slot } => (tag, self.info(id, tag, slot)),
            Request::Claim { tag, context, slot } => (tag, self.claim(out, id, tag, ContextId(context), slot)),
            Request::Splice { tag, ends } => (tag, self.splice(out, id, tag, ends)),
            Request::OpenLog { tag, shape } => (tag, self.open_log(out, id, tag, shape)),
            Request::JoinLog { tag, slot, rx_head, mark } => (tag, self.join_log(out, id, tag, slot, (rx_head, mark))),
            Request::Fork { tag } => (tag, self.fork(out, id, tag)),
            Request::Rest { slot, tx_head, rx_head } => return self.rest(out, id, slot, tx_head, rx_head),
            Request::Arm { binding, credits } => return self.arm(out, id, binding, credits),
            Request::CancelConnect { tag } => return self.cancel_connect(out, id, tag),
            Request::Unbind { binding } => match self.holds_binding(id, binding) {
                true => return self.unbind(out, id, binding),
                false => return out.drops.count(DropReason::RequestInvalid),
            },
            Request::Close { slot, tx_head, rx_head, abort } => {
                return self.close(out, id, slot, Positions { tx_head, rx_head }, abort);
            }
            Request::Set { slot, option, value } => return self.set(out, id, slot, option, value),
            Request::Label { fd, reason, slot, binding } => {
                return self.label(out, id, fd, Label { reason, slot, binding });
            }
        };
        if let Err(errno) = result {
            if errno == libc::EINVAL || errno == libc::EBADF {
                out.drops.count(DropReason::RequestInvalid);
            }
            self.contexts.reply(id, Reply::Failed { tag, errno: errno as u16 });
        }
    }

    fn holds_binding(&self, id: ContextId, binding: u32) -> bool {
        self.contexts.get(id.0).is_some_and(|context| context.bindings.contains(&binding))
    }

    /// The flow that an application calls `slot`. Naming it shows that the application has accepted it.
    pub fn named(&mut self, id: ContextId, slot: Slot) -> Option<FlowId> {
        let flow = self.contexts.get(id.0)?.slots.flow(slot)?;
        let open = self.flows.get_mut(flow.0)?;
        if !open.names.iter().any(|name| name.context == id && name.slot == slot && name.open) {
            return None;
        }
        open.unaccepted = None;
        Some(flow)
    }

    // Meets RFC 9293: MUST-43.
    fn bind(
        &mut self,
        out: &mut Outbox<'_>,
        id: ContextId,
        tag: u32,
        local: Endpoint,
        address: bool,
        port: bool,
    ) -> Result<(), i32> {
        let context = self.contexts.get(id.0).ok_or(libc::EINVAL)?;
        if !out.net.is_own(local.ip) && !out.net.is_any(local.ip) {
            return Err(libc::EADDRNOTAVAIL);
        }
        if context.bindings.len() as u32 >= self.config.limits.bindings_per_application {
            return Err(libc::ENOBUFS);
        }
        let uid = context.application.uid;
        let local = match local.port {
            0 => Endpoint { ip: local.ip, port: self.free_port().ok_or(libc::EADDRINUSE)? },
            _ => local,
        };
        let context = self.contexts.get(id.0).ok_or(libc::EINVAL)?;
        if !may_bind(&self.config.port_rules, self.config.unprivileged_port_start, &context.application, local.port) {
            return Err(libc::EACCES);
        }
        let holders = [Holder::Context(id)].into();
        let binding = Binding { local, uid, reuse_address: address, reuse_port: port, holders, listener: None };
        let runs = |holder| self.runs(holder);
        // Connections that outlive their listener keep its port, unless the new one says otherwise.
        let in_use = !address && !self.bindings.is_held(local.port, runs) && self.connections.uses_port(local.port);
        if in_use || self.bindings.conflicts(&binding, runs) {
            return Err(libc::EADDRINUSE);
        }
        let binding = self.bindings.add(binding);
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.bindings.insert(binding);
        }
        self.contexts.reply(id, Reply::Bound { tag, binding, local });
        Ok(())
    }

    // Meets RFC 9293: MUST-41, MUST-42.
    fn listen(&mut self, id: ContextId, tag: u32, binding: u32, backlog: u32) -> Result<(), i32> {
        if !self.holds_binding(id, binding) {
            return Err(libc::EINVAL);
        }
        if self.bindings.listener_conflicts(binding, |holder| self.runs(holder)) {
            return Err(libc::EADDRINUSE);
        }
        let most = self.config.limits.max_backlog.max(1);
        let entry = self.bindings.get_mut(binding).ok_or(libc::EINVAL)?;
        entry.listener.get_or_insert_with(Listener::default).backlog = backlog.clamp(1, most);
        self.contexts.reply(id, Reply::Done { tag });
        Ok(())
    }

    fn arm(&mut self, out: &mut Outbox<'_>, id: ContextId, binding: u32, credits: u32) {
        let listener = if self.holds_binding(id, binding) { self.bindings.listener(binding) } else { None };
        match listener {
            Some(listener) => {
                listener.armed.insert(id, credits);
                self.place(out, binding);
            }
            None => out.drops.count(DropReason::RequestInvalid),
        }
    }

    // Meets RFC 9293: MUST-44, MUST-45, MUST-46.
    #[allow(clippy::too_many_arguments)]
    fn connect(
        &mut self,
        out: &mut Outbox<'_>,
        id: ContextId,
        tag: u32,
        binding: u32,
        remote: Endpoint,
        congestion: Congestion,
        mss: u16,
    ) -> Result<(), i32> {
        // The unspecified address means this host (RFC 1122 section 3.2.1.3).
        let ip = if out.net.is_any(remote.ip) { out.net.links()[0].address } else { remote.ip };
        let remote = Endpoint { ip, port: remote.port };
        let context = self.contexts.get(id.0).ok_or(libc::EINVAL)?;
        if context.connects.contains_key(&tag) || (binding != 0 && !context.bindings.contains(&binding)) {
            return Err(libc::EINVAL);
        }
        let limit = self.config.limits.connections_per_application;
        let full = context.slots.is_full() || (limit > 0 && context.slots.used() >= limit);
        if full || !self.has_flow_room() {
            return Err(libc::ENOBUFS);
        }
        if shm::reserve::is_short() {
            return Err(libc::ENOMEM);
        }
        let unreachable = ip.is_broadcast() || ip.is_multicast();
        if unreachable || (!out.net.is_own(ip) && out.net.routes.next_hop(ip).is_none()) {
            return Err(libc::ENETUNREACH);
        }
        if remote.port == 0 {
            return Err(libc::ECONNREFUSED);
        }
        let tuple = match self.bindings.get(binding).map(|bound| (bound.local, bound.listener.is_some())) {
            Some((_, true)) => return Err(libc::EINVAL),
            Some((local, false)) => self.tuple_of(out, local, remote),
            None => {
                let port = self.port_towards(out, remote).ok_or(libc::EADDRNOTAVAIL)?;
                self.tuple(out, port, remote)
            }
        };
        let above = self.vacate(out, &tuple).ok_or(libc::EADDRNOTAVAIL)?;
        let slot = self.contexts.get_mut(id.0).and_then(|context| context.slots.take()).ok_or(libc::ENOBUFS)?;
        let congestion = self.config.chosen_congestion(congestion.0);
        let local = tuple.local();
        self.contexts.reply(id, Reply::Connecting { tag, local });
        self.open(out, Connect { context: id, tag, slot, binding, tuple, congestion, mss, above });
        Ok(())
    }

    /// Makes sure that a tuple is free; `None` where it is not. A connection in TIME-WAIT gives way where that is
    /// safe: then the new one starts above its last sequence number.
    fn vacate(&mut self, out: &mut Outbox<'_>, tuple: &FourTuple) -> Option<Option<Seq>> {
        match self.connections.get(tuple) {
            None => Some(None),
            Some(Stage::Wait(key)) => {
                let wait = *self.waits.get(key)?;
                wait.may_be_reused_locally(out.now).then(|| {
                    self.waits.end(out, &mut self.connections, key);
                    Some(wait.snd_nxt + (u16::MAX as u32 + 2))
                })
            }
            Some(_) => None,
        }
    }

    fn close(&mut self, out: &mut Outbox<'_>, id: ContextId, slot: Slot, positions: Positions, abort: bool) {
        match self.named(id, slot) {
            Some(flow) => self.give_up_share(out, flow, Holder::Context(id), Some(positions), abort),
            None => out.drops.count(DropReason::RequestInvalid),
        }
    }

    // Meets RFC 9293: MUST-21, MUST-24, MUST-27.
    fn set(&mut self, out: &mut Outbox<'_>, id: ContextId, slot: Slot, option: OptionName, value: u64) {
        let Some(flow_id) = self.named(id, slot) else { return out.drops.count(DropReason::RequestInvalid) };
        let default_give_up = self.config.timers.give_up_ms as Nanos * MILLISECOND;
        let Some(flow) = self.flows.get_mut(flow_id.0) else { return };
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
                let kind = self.config.chosen_congestion(value as u8);
                flow.pace.policy = kind.start(flow.agreed.mss as u32, out.now);
            }
            OptionName::PacingRate => options.pacing_rate = value,
            OptionName::FinTimeout => options.fin_timeout = seconds.max(1),
        }
        // The new values count at once, also for a flow that is quiet.
        out.timers.set(Timer::Flow(flow_id.0), out.now);
    }

    fn info(&mut self, id: ContextId, tag: u32, slot: Slot) -> Result<(), i32> {
        let flow_id = self.named(id, slot).ok_or(libc::EBADF)?;
        let flow = self.flows.get(flow_id.0).ok_or(libc::EBADF)?;
        let figures = flow.stats.read();
        let pace = &flow.pace;
        let info = FlowInfo {
            state: flow.state().number(),
            congestion: pace.policy.kind().code,
            mss: flow.agreed.mss,
            rtt_us: (pace.rtt.srtt().unwrap_or(0) / 1000) as u32,
            rttvar_us: (pace.rtt.rttvar() / 1000) as u32,
            cwnd: pace.enforced.cwnd,
            ssthresh: pace.policy.ssthresh(),
            retransmits: figures.retransmitted_segments,
            unacked: figures.outstanding,
            snd_wnd: figures.snd_wnd,
            bytes_acked: figures.acked_bytes,
            bytes_received: figures.rx_bytes,
        };
        self.contexts.reply(id, Reply::Info { tag, info });
        Ok(())
    }

    /// A label also says that a connection was accepted: it has a descriptor.
    fn label(&mut self, out: &mut Outbox<'_>, id: ContextId, fd: u32, label: Label) {
        if let Some(slot) = label.slot {
            self.named(id, slot);
        }
        let Some(context) = self.contexts.get_mut(id.0) else { return };
        if !context.labels.set(fd, label) {
            out.drops.count(DropReason::RequestInvalid);
        }
    }
}

/// Port partitioning (FlexTOE appendix D).
fn may_bind(rules: &[PortRule], unprivileged_from: u16, application: &Application, port: u16) -> bool {
    let mut naming = rules.iter().filter(|rule| (rule.first..=rule.last).contains(&port)).peekable();
    if naming.peek().is_none() {
        return port >= unprivileged_from || application.uid == 0;
    }
    let first = application.command.split_whitespace().next().unwrap_or_default();
    let program = first.rsplit('/').next().unwrap_or_default();
    naming.any(|rule| {
        let user = rule.uids.is_empty() || rule.uids.contains(&application.uid);
        user && (rule.commands.is_empty() || rule.commands.iter().any(|command| command == program))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_partitioned_by_user_and_program() {
        let application = |uid, command: &str| Application { pid: 1, uid, gid: uid, command: command.into() };
        let rule = |uids: &[u32], commands: &[&str]| PortRule {
            first: 6000,
            last: 6999,
            uids: uids.to_vec(),
            commands: commands.iter().map(|command| command.to_string()).collect(),
        };
        let rules = [rule(&[7], &[]), rule(&[], &["redis-server"])];
        assert!(may_bind(&rules, 1024, &application(7, "anything"), 6379));
        assert!(may_bind(&rules, 1024, &application(8, "/usr/bin/redis-server *:6379"), 6379));
        assert!(!may_bind(&rules, 1024, &application(8, "memcached"), 6379));
        assert!(may_bind(&rules, 1024, &application(8, "memcached"), 11211));
        assert!(!may_bind(&rules, 1024, &application(8, "nginx"), 80));
        assert!(may_bind(&rules, 1024, &application(0, "nginx"), 80));
    }
}
