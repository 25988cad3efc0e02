//! Requests of applications: each is checked against what the application has.
use super::ControlPlane;
use super::closing::AppPositions;
use super::opening::Connect;
use crate::bindings::Binding;
use crate::connections::Lifecycle;
use crate::contexts::{Application, Holder};
use crate::flows::ReclaimRequest;
use crate::forks::Claim;
use crate::labels::Label;
use crate::logs::Join;
use crate::outbox::Outbox;
use crate::splice::Ask;
use crate::traced;
use context::{Congestion, EarlyData, Endpoint, FlowInfo, Polled, Reply, Request, Slot, SpliceEnd};
use engine::stream::FourTuple;
use engine::{ContextId, DropReason, FlowId};
use trace::{NO_FLOW, Point};
use wire::{IpAddress, Seq};

/// Requests taken from one application in one round, while the engine has nothing to do.
const PER_ROUND: usize = 64;
/// While it has: as many of all applications together, and one more for so much of the engine's work. A request costs
/// as much as several segments, so a program that asks and asks would otherwise have most of the data-path.
const WHILE_BUSY: usize = 2;
const WORK_PER_REQUEST: usize = 16;

impl ControlPlane {
    /// Takes requests of all applications; returns how many.
    pub(crate) fn take_requests(&mut self, out: &mut Outbox<'_>) -> usize {
        let mut done = 0;
        let most = match self.engine_work {
            0 => usize::MAX,
            work => WHILE_BUSY + work / WORK_PER_REQUEST,
        };
        let mut poll_list = self.contexts.take_poll_list();
        poll_list.round(|key| {
            if !self.contexts.begin_poll(ContextId(key)) {
                return Polled::Gone;
            }
            let before = done;
            while done < most && done - before < PER_ROUND {
                let waits = self.contexts.get(key).is_none_or(|context| context.is_backlogged());
                if waits || !self.take_request(out, ContextId(key)) {
                    return if done > before { Polled::Some } else { Polled::Nothing };
                }
                done += 1;
            }
            if done >= most { Polled::Full } else { Polled::Some }
        });
        self.contexts.set_poll_list(poll_list);
        done
    }

    /// Takes what a process left in its ring when it ended: a close may carry the last bytes that it wrote.
    pub(super) fn take_last_requests(&mut self, out: &mut Outbox<'_>, id: ContextId) {
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
                self.contexts.end(out, id);
            }
        }
        true
    }

    fn on_request(&mut self, out: &mut Outbox<'_>, id: ContextId, request: Request) {
        out.tracer.event(Point::Request, NO_FLOW, [traced::word(&request), id.0.into()]);
        let (tag, result) = match request {
            Request::Bind { tag, local, reuse_address, reuse_port, dual_stack } => {
                let wanted = Wanted { local, reuse_address, reuse_port, dual_stack };
                (tag, self.bind(out, id, tag, wanted))
            }
            Request::Listen { tag, binding, backlog } => (tag, self.listen(out, id, tag, binding, backlog)),
            Request::Connect { tag, binding, remote, congestion, mss, early } => {
                let wanted = ToConnect { binding, remote, congestion, mss, early };
                (tag, self.connect(out, id, tag, wanted))
            }
            Request::Info { tag, slot } => (tag, self.info(id, tag, slot)),
            Request::Claim { tag, context, slot } => {
                let claim = Claim { child: id, tag, parent: ContextId(context), slot };
                (tag, self.forks.claim(out, &mut self.contexts, &mut self.flows, &claim))
            }
            Request::Splice { tag, ends } => (tag, self.splice(out, id, tag, ends)),
            Request::OpenLog { tag, shape } => (tag, self.logs.open(out, &mut self.contexts, id, tag, shape)),
            Request::JoinLog { tag, slot, rx_head, mark } => match self.named(id, slot) {
                Some(flow) => {
                    let join = Join { context: id, tag, flow, rx_head, mark };
                    (tag, self.logs.join(out, &self.contexts, &self.flows, join))
                }
                None => (tag, Err(libc::EBADF)),
            },
            Request::Take { tag, binding, credits } => (tag, self.take(out, id, tag, binding, credits)),
            Request::Fork { tag } => (tag, self.fork(out, id, tag)),
            Request::Exec { tag } => (tag, self.exec(out, id, tag)),
            Request::Carry { tag, token, flow, binding } => (tag, self.carry(id, tag, token, flow, binding)),
            Request::Pass { tag, slot, binding } => (tag, self.pass(out, id, tag, slot, binding)),
            Request::Adopt { tag, token } => (tag, self.adopt(out, id, tag, token)),
            other => return self.on_completion(out, id, other),
        };
        if let Err(errno) = result {
            if errno == libc::EINVAL || errno == libc::EBADF {
                out.drops.count(DropReason::RequestInvalid);
            }
            self.contexts.reply(id, Reply::Failed { tag, errno: errno as u16 });
        }
    }

    /// A request without a tag: the application waits for no answer.
    fn on_completion(&mut self, out: &mut Outbox<'_>, id: ContextId, request: Request) {
        let done = match request {
            Request::Reclaim { slot, tx_head, rx_head } => self.named(id, slot).map(|flow| {
                let request = ReclaimRequest { context: id, slot, flow, tx_head, rx_head };
                self.flows.reclaim(out, &mut self.contexts, &request);
            }),
            Request::Arm { binding, credits } => self.arm(out, id, binding, credits),
            Request::Loopback { binding } => self.serve_loopback(id, binding),
            Request::SynData { tag, len } => self.syn_data(out, id, tag, len),
            Request::SynRetries { tag, most } => self.limit_tries(id, tag, most),
            Request::SegmentSize { binding, mss } => self.set_segment_size(id, binding, mss),
            Request::FastOpen { binding, most, keys, no_cookie } => {
                self.set_fast_open(id, binding, most, keys, no_cookie)
            }
            Request::CancelConnect { tag } => {
                self.cancel_connect(out, id, tag);
                Some(())
            }
            Request::Unbind { binding } => {
                self.contexts.has_binding(id, binding).then(|| self.unbind(out, id, binding))
            }
            Request::Close { slot, tx_head, rx_head, abort } => self.named(id, slot).map(|flow| {
                let positions = AppPositions { tx_head, rx_head };
                self.give_up_share(out, flow, Holder::Context(id), Some(positions), abort);
            }),
            Request::Set { slot, option, value } => {
                self.named(id, slot).map(|flow| self.flows.set(out, flow, option, value))
            }
            Request::Withdraw { token } => self.withdraw(out, id, token),
            Request::Label { fd, reason, slot, binding } => self.label(id, fd, Label { reason, slot, binding }),
            _ => None,
        };
        if done.is_none() {
            out.drops.count(DropReason::RequestInvalid);
        }
    }

    /// The flow that an application calls `slot`. Naming it shows that the application has accepted it.
    pub(super) fn named(&mut self, id: ContextId, slot: Slot) -> Option<FlowId> {
        self.flows.named(&self.contexts, id, slot)
    }

    fn bind(&mut self, out: &mut Outbox<'_>, id: ContextId, tag: u32, wanted: Wanted) -> Result<(), i32> {
        let Wanted { local, reuse_address, reuse_port, dual_stack } = wanted;
        let dual_stack = dual_stack && local.ip.is_unspecified() && !local.ip.is_v4();
        let uid = self.may_have(out, id, local.ip)?.uid;
        let local = match local.port {
            0 => Endpoint { ip: local.ip, port: self.free_port(out).ok_or(libc::EADDRINUSE)? },
            _ => local,
        };
        self.may_use(out, id, local.port)?;
        let holders = [Holder::Context(id)].into();
        let binding = Binding { local, uid, reuse_address, reuse_port, dual_stack, number: 0, holders, listener: None };
        let in_use = self.connections.uses_port(local.port);
        let binding = self.bindings.bind(&mut self.contexts, id, binding, in_use)?;
        self.contexts.reply(id, Reply::Bound { tag, binding, local });
        Ok(())
    }

    /// An application may bind one more local address, and this one.
    pub(super) fn may_have(&self, out: &Outbox<'_>, id: ContextId, ip: IpAddress) -> Result<&Application, i32> {
        let context = self.contexts.get(id.0).ok_or(libc::EINVAL)?;
        let has = out.net.is_own(ip) && (context.application.loopback || !ip.is_loopback());
        if !has && !out.net.is_any(ip) {
            return Err(libc::EADDRNOTAVAIL);
        }
        if context.bindings.len() as u32 >= out.config.limits.bindings_per_application {
            return Err(libc::ENOBUFS);
        }
        Ok(&context.application)
    }

    /// An application may bind this port.
    pub(super) fn may_use(&self, out: &Outbox<'_>, id: ContextId, port: u16) -> Result<(), i32> {
        let context = self.contexts.get(id.0).ok_or(libc::EINVAL)?;
        out.config.may_bind(&context.application, port).then_some(()).ok_or(libc::EACCES)
    }

    fn listen(&mut self, out: &Outbox<'_>, id: ContextId, tag: u32, binding: u32, backlog: u32) -> Result<(), i32> {
        if !self.contexts.has_binding(id, binding) {
            return Err(libc::EINVAL);
        }
        self.bindings.listen(out, &self.contexts, binding, backlog)?;
        self.contexts.reply(id, Reply::Done { tag });
        Ok(())
    }

    /// An application takes so many connections of a listener. `None` where it has no such listener.
    pub(super) fn arm(&mut self, out: &mut Outbox<'_>, id: ContextId, binding: u32, credits: u32) -> Option<()> {
        let held = self.contexts.has_binding(id, binding);
        let listener = self.bindings.listener(binding).filter(|_| held)?;
        let new = !listener.armed.contains_key(&id);
        listener.armed.entry(id).or_default().credits = credits;
        self.place(out, binding);
        if new {
            self.taker_came(out, binding);
        }
        Some(())
    }

    /// A listener takes connections to loopback addresses from now on. `None` where the application has no such
    /// listener, or another loopback than the host.
    fn serve_loopback(&mut self, id: ContextId, binding: u32) -> Option<()> {
        let held = self.contexts.has_binding(id, binding);
        self.contexts.get(id.0).filter(|context| held && context.application.loopback)?;
        self.bindings.listener(binding)?.loopback = true;
        Some(())
    }

    /// A listener of this host takes connections to a loopback address from this application, and has room. The kernel
    /// listens there as well, and serves more of them than an application has slots.
    fn serves_loopback(&self, out: &Outbox<'_>, id: ContextId, remote: Endpoint) -> bool {
        let binding =
            self.bindings.listener_of(&self.contexts, remote, || 0).and_then(|binding| self.bindings.get(binding));
        let Some(listener) = binding.and_then(|binding| binding.listener.as_ref()).filter(|found| found.loopback)
        else {
            return false;
        };
        let room = listener.armed.is_empty() || listener.armed.keys().any(|id| !self.contexts.is_full(out, *id));
        room && self.contexts.get(id.0).is_some_and(|context| context.application.loopback)
    }

    // Meets RFC 9293: MUST-44, MUST-45, MUST-46.
    fn connect(&mut self, out: &mut Outbox<'_>, id: ContextId, tag: u32, wanted: ToConnect) -> Result<(), i32> {
        let ToConnect { binding, remote, congestion, mss, early } = wanted;
        // The unspecified address means this host (RFC 1122 section 3.2.1.3).
        let own = if out.net.is_any(remote.ip) { out.net.own_address(remote.ip) } else { None };
        let ip = own.unwrap_or(remote.ip);
        let remote = Endpoint { ip, port: remote.port };
        let context = self.contexts.get(id.0).ok_or(libc::EINVAL)?;
        if context.connects.contains_key(&tag) || (binding != 0 && !context.bindings.contains(&binding)) {
            return Err(libc::EINVAL);
        }
        if self.contexts.is_full(out, id) || !self.has_flow_room(out) {
            return Err(libc::ENOBUFS);
        }
        if shm::reserve::is_short() {
            return Err(libc::ENOMEM);
        }
        let unreachable = ip.is_broadcast() || ip.is_multicast();
        let elsewhere = ip.is_loopback() && !self.serves_loopback(out, id, remote);
        if unreachable || elsewhere || (!out.net.is_own(ip) && out.net.hop(ip).is_none()) {
            return Err(libc::ENETUNREACH);
        }
        if remote.port == 0 {
            return Err(libc::ECONNREFUSED);
        }
        if self.bindings.is_closed(remote.port) {
            return Err(libc::EACCES);
        }
        // Loopback addresses speak with each other only, and addresses with those of their family.
        let bound_to = self.bindings.get(binding).map(|bound| bound.local.ip).filter(|ip| !ip.is_unspecified());
        if bound_to.is_some_and(|from| from.is_loopback() != ip.is_loopback() || from.is_v4() != ip.is_v4()) {
            return Err(libc::EINVAL);
        }
        let tuple = match self.bindings.get(binding).map(|bound| (bound.local, bound.listener.is_some())) {
            Some((_, true)) => return Err(libc::EINVAL),
            Some((local, false)) => out.tuple_of(local, remote),
            None => {
                let port = self.port_towards(out, remote).ok_or(libc::EADDRNOTAVAIL)?;
                out.tuple(port, remote)
            }
        };
        let above = self.vacate(out, &tuple).ok_or(libc::EADDRNOTAVAIL)?;
        let slot = self.contexts.get_mut(id.0).and_then(|context| context.slots.take(false)).ok_or(libc::ENOBUFS)?;
        let congestion = out.config.chosen_congestion(congestion.0);
        self.open(out, Connect { context: id, tag, slot, binding, tuple, congestion, mss, above, early });
        Ok(())
    }

    /// Makes sure that a tuple is free; `None` where it is not. A connection in TIME-WAIT gives way where that is
    /// safe: then the new one starts above its last sequence number.
    fn vacate(&mut self, out: &mut Outbox<'_>, tuple: &FourTuple) -> Option<Option<Seq>> {
        match self.connections.get(tuple) {
            None => Some(None),
            Some(Lifecycle::TimeWait(key)) => {
                let wait = *self.time_waits.get(key)?;
                wait.may_be_reused_locally(out.now).then(|| {
                    self.time_waits.end(out, &mut self.connections, key);
                    Some(wait.snd_nxt + (u16::MAX as u32 + 2))
                })
            }
            Some(_) => None,
        }
    }

    /// Joins two connections of an application.
    fn splice(&mut self, out: &mut Outbox<'_>, id: ContextId, tag: u32, ends: [SpliceEnd; 2]) -> Result<(), i32> {
        if !self.splices.are_supported() {
            return Err(libc::EOPNOTSUPP);
        }
        let mut named = || Some([self.named(id, ends[0].slot)?, self.named(id, ends[1].slot)?]);
        let flows = named().ok_or(libc::EBADF)?;
        for flow in flows {
            // Its SYN-ACK may have to be sent again.
            self.check_early(out, flow);
            if self.early.has(flow) {
                return Err(libc::EAGAIN);
            }
        }
        self.splices.ask(out, &mut self.flows, &Ask { context: id, tag, flows, ends })
    }

    fn info(&mut self, id: ContextId, tag: u32, slot: Slot) -> Result<(), i32> {
        let flow = self.named(id, slot).ok_or(libc::EBADF)?;
        let mut info = self.flows.info(flow).ok_or(libc::EBADF)?;
        if self.early.waits(flow, self.flows.get(flow.0).map(|flow| flow.stats.read()).as_ref()) {
            info.state = FlowInfo::SYN_RECEIVED;
        }
        self.contexts.reply(id, Reply::Info { tag, info });
        Ok(())
    }

    /// A label also means that a connection was accepted: it has a descriptor. `None` where there are too many.
    fn label(&mut self, id: ContextId, fd: u32, label: Label) -> Option<()> {
        if let Some(slot) = label.slot {
            self.named(id, slot);
        }
        let Some(context) = self.contexts.get_mut(id.0) else { return Some(()) };
        context.labels.set(fd, label).then_some(())
    }
}

/// A connection that an application asks for.
struct ToConnect {
    binding: u32,
    remote: Endpoint,
    congestion: Congestion,
    mss: u16,
    early: EarlyData,
}

/// A local address that an application asks for.
struct Wanted {
    local: Endpoint,
    reuse_address: bool,
    reuse_port: bool,
    dual_stack: bool,
}
