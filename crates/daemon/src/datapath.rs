//! A data-path thread: ports, hosts and fabrics in rounds. While there is work it polls; then it yields. At last it
//! sleeps on the doorbells of all contexts and the descriptors of all ports, so that an idle daemon uses no CPU.
mod failures;
mod handover;
mod surviving;

pub(crate) use handover::Stopped;

use crate::clock::Clock;
use crate::config::PollingConfig;
use crate::memory_trim::{self, Quiet};
use crate::rdma::{DeviceAt, ThreadDevice};
use crate::wake::{Wake, watch};
use crate::workers::{EndWithThread, Workers};
use crate::zeronic::ThreadZeronic;
use ::rdma::{Device, EventPipe, Failure, NewProgram, ProgramId};
use context::{ControlEnd, EngineEnd};
use control::{Application, Host};
use engine::{ContextId, DropReason, ROUND_BYTES};
use host::{Claim, Ports};
use port::{Fabric, Frame, FramePool, Nanos, Port, PortDrops};
use rustix::event::{Timespec, epoll};
use shm::{Contention, SETTLE, reserve};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use trace::{NO_FLOW, Point, Tracer, Traces};
use verbs::control::Answer;

/// Frames taken from a port in one round.
const BURST: usize = 64;
/// Actions that may wait for a thread.
const ACTIONS: usize = 64;

/// A host with its ports.
pub(crate) struct ThreadHost {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) ports: Ports,
    /// Its RDMA device, where it has one.
    pub(crate) rdma: Option<ThreadDevice>,
    received: Vec<Box<Frame>>,
    to_send: Vec<Box<Frame>>,
    /// Doorbells that are watched: of contexts whose process lives.
    bells: HashMap<ContextId, OwnedFd>,
    /// The ports' descriptors while they are watched: one that failed no longer has its number.
    watched: Vec<Option<OwnedFd>>,
    /// Which ports have failed.
    failed: Vec<bool>,
    /// Its engine has failed.
    engine_failed: bool,
    /// The ports' tracepoints.
    tracer: Tracer,
}

/// An emulated network whose uplinks this thread serves.
pub(crate) struct ThreadFabric {
    pub(crate) name: String,
    pub(crate) fabric: Fabric,
    /// What its uplinks dropped.
    pub(crate) drops: PortDrops,
    failures: usize,
    /// Watched while sleeping.
    fds: Vec<OwnedFd>,
}

/// Rounds that a host is the first one: a change delays frames that are under way by a part of a round.
const ROUNDS_FIRST: u64 = 16;

/// Rounds after one in which a host had something to do: until then, ZeroNIC's rounds stay short.
const ROUNDS_SHARED: u64 = 64;
/// How many times as long ZeroNIC's rounds may be beside idle hosts: nothing waits for their copies.
const WIDE: usize = 4;

/// All that one data-path thread serves.
pub(crate) struct DataPath {
    pub(crate) hosts: Vec<ThreadHost>,
    /// The host that is first in this round. The first one to send finds links empty: were it always the same one, its
    /// packets would be neither marked nor dropped where others' are.
    first: usize,
    /// Until this round, a host may have something to do soon.
    shared_until: u64,
    pub(crate) fabrics: Vec<ThreadFabric>,
    pub(crate) zeronics: Vec<ThreadZeronic>,
    /// Of programs of RDMA devices; watched while they live.
    verbs_bells: HashMap<(DeviceAt, ProgramId), OwnedFd>,
    pub(crate) clock: Clock,
    pool: FramePool,
    polling: PollingConfig,
    pub(crate) epoll: OwnedFd,
    actions: Receiver<Action>,
    wake: Arc<Wake>,
    workers: Workers,
    tracer: Tracer,
    pub(crate) figures: ThreadFigures,
    quiet: Quiet,
    /// Rounds with work until it last gave memory back.
    rested: u64,
    stopping: bool,
    /// Its hosts are being handed over: it only does what it is asked to.
    pub(crate) paused: bool,
}

/// What a data-path thread has done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadFigures {
    /// Rounds over all hosts and fabrics.
    pub(crate) rounds: u64,
    /// Of these, rounds in which something was done.
    pub(crate) busy_rounds: u64,
    /// How long those took, from their beginning to that of the next one.
    pub(crate) busy: Nanos,
    /// Times that it slept.
    pub(crate) sleeps: u64,
    /// How long altogether.
    pub(crate) asleep: Nanos,
}

type Action = Box<dyn FnOnce(&mut DataPath) + Send>;

/// How other threads reach a data-path thread.
#[derive(Clone)]
pub(crate) struct Handle {
    actions: SyncSender<Action>,
    wake: Arc<Wake>,
}

impl Handle {
    /// Has the thread do something between two rounds, and waits for what it returns.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut DataPath) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (reply, answer) = sync_channel(1);
        let action = Box::new(move |path: &mut DataPath| {
            // The caller has given up: nothing needs the result.
            let _ = reply.send(question(path));
        });
        let gone = "the data-path thread has ended";
        self.actions.send(action).map_err(|_| gone)?;
        self.wake.notify();
        answer.recv().map_err(|_| gone.into())
    }

    /// Wakes the thread where it sleeps: for what others leave for a transport of its hosts.
    pub(crate) fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let wake = Arc::clone(&self.wake);
        Box::new(move || wake.ring())
    }

    /// Ends the thread after the present round.
    pub(crate) fn stop(&self) {
        let _ = self.ask(|path| path.stopping = true);
    }
}

impl DataPath {
    pub(crate) fn new(
        clock: Clock,
        pool: FramePool,
        polling: PollingConfig,
        traces: &Traces,
    ) -> io::Result<(DataPath, Handle)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(Wake::new()?);
        watch(&epoll, wake.fd(), epoll::EventFlags::ET)?;
        let (sender, actions) = sync_channel(ACTIONS);
        let handle = Handle { actions: sender, wake: Arc::clone(&wake) };
        let path = DataPath {
            hosts: Vec::new(),
            first: 0,
            shared_until: 0,
            fabrics: Vec::new(),
            zeronics: Vec::new(),
            verbs_bells: HashMap::new(),
            clock,
            pool,
            polling,
            epoll,
            actions,
            wake,
            workers: Workers::new(),
            tracer: traces.tracer("data-path"),
            figures: ThreadFigures::default(),
            quiet: Quiet::new(clock.now()),
            rested: 0,
            stopping: false,
            paused: false,
        };
        Ok((path, handle))
    }

    /// Serves a host from now on.
    /// Threads of its modules are bound to these cores in turn.
    pub(crate) fn add_host(
        &mut self,
        name: &str,
        cores: &[usize],
        mut host: Host,
        ports: Ports,
        traces: &Traces,
    ) -> io::Result<()> {
        host.trace(traces);
        let own = |port: &dyn Port| port.wait_fd().map(|fd| fd.try_clone_to_owned()).transpose();
        let watched = ports.iter().map(own).collect::<io::Result<Vec<_>>>()?;
        for fd in watched.iter().flatten() {
            watch(&self.epoll, fd.as_fd(), epoll::EventFlags::empty())?;
        }
        for (at, worker) in host.workers().into_iter().enumerate() {
            let core = cores.get(at % cores.len().max(1)).copied();
            self.workers.start(worker, core, self.clock, self.polling, Arc::clone(&self.wake))?;
        }
        self.hosts.push(ThreadHost {
            name: name.into(),
            host,
            rdma: None,
            failed: vec![false; watched.len()],
            engine_failed: false,
            ports,
            received: Vec::new(),
            to_send: Vec::new(),
            bells: HashMap::new(),
            watched,
            tracer: traces.tracer("port"),
        });
        Ok(())
    }

    /// Serves the uplinks of a fabric from now on.
    pub(crate) fn add_fabric(&mut self, name: &str, fabric: Fabric) -> io::Result<()> {
        let fds = fabric.wait_fds()?;
        for fd in &fds {
            watch(&self.epoll, fd.as_fd(), epoll::EventFlags::empty())?;
        }
        self.fabrics.push(ThreadFabric { name: name.into(), fabric, drops: PortDrops::default(), failures: 0, fds });
        Ok(())
    }

    /// Attaches an application to a host; `bell` is the eventfd of the daemon's doorbell.
    pub(crate) fn attach(
        &mut self,
        host: usize,
        application: Application,
        ends: (EngineEnd, ControlEnd),
        token: Option<u64>,
        bell: OwnedFd,
    ) -> Result<ContextId, String> {
        let now = self.clock.now();
        let seat = self.hosts.get_mut(host).ok_or("the host is gone")?;
        let context = seat.host.use_base(now, |tcp, context| tcp.attach(context, application, ends, token))?;
        // Edge-triggered, so the eventfd needs no read: each ring wakes once.
        if let Err(error) = watch(&self.epoll, bell.as_fd(), epoll::EventFlags::ET) {
            seat.host.use_base(now, |tcp, net| tcp.detach(net, context));
            return Err(format!("the daemon has no room for another doorbell: {error}"));
        }
        seat.bells.insert(context, bell);
        Ok(context)
    }

    /// A host, and the present time.
    pub(crate) fn seat(&mut self, host: usize) -> Option<(Nanos, &mut ThreadHost)> {
        Some((self.clock.now(), self.hosts.get_mut(host)?))
    }

    /// The application of a context is gone.
    pub(crate) fn detach(&mut self, host: usize, context: ContextId) {
        let now = self.clock.now();
        let Some(seat) = self.hosts.get_mut(host) else { return };
        if let Some(bell) = seat.bells.remove(&context) {
            let _ = epoll::delete(&self.epoll, bell);
            seat.host.use_base(now, |tcp, net| tcp.detach(net, context));
        }
    }

    /// The region of a context, for another one of the host that has a share of a connection there.
    pub(crate) fn region_for(
        &self,
        host: usize,
        asks: ContextId,
        of: ContextId,
    ) -> io::Result<(OwnedFd, context::Geometry)> {
        let seat = self.hosts.get(host).ok_or(io::ErrorKind::NotFound)?;
        seat.host.base().region_for(asks, of)
    }

    /// A host that was added has an RDMA device from now on.
    pub(crate) fn add_rdma(&mut self, host: usize, device: Device) -> Result<(), String> {
        let seat = self.hosts.get_mut(host).ok_or("the host is gone")?;
        let (rdma, transport) = ThreadDevice::new(device);
        seat.host.add(transport)?;
        seat.rdma = Some(rdma);
        Ok(())
    }

    /// Asks an RDMA device, between two rounds; `None` where it is gone.
    pub(crate) fn with_device<T>(&mut self, at: DeviceAt, ask: impl FnOnce(&mut Device, Nanos) -> T) -> Option<T> {
        let now = self.clock.now();
        match at {
            DeviceAt::Host(host) => Some(ask(&mut self.hosts.get_mut(host)?.rdma.as_mut()?.device(), now)),
            DeviceAt::Zeronic(index) => self.zeronics.get_mut(index)?.with_device(now, |device| ask(device, now)),
        }
    }

    /// Binds a program of an RDMA device to a UDP port that no transport of its host claims.
    pub(crate) fn bind_udp(
        &mut self,
        at: DeviceAt,
        id: ProgramId,
        address: SocketAddrV4,
        pipe: Arc<dyn EventPipe>,
    ) -> Option<Result<Answer, Failure>> {
        let DeviceAt::Host(host) = at else {
            return self.with_device(at, |device, _| device.bind_udp(id, address, pipe, |_| false));
        };
        let ThreadHost { host, rdma, .. } = self.hosts.get_mut(host)?;
        let is_claimed = |port| host.is_claimed(Claim::UdpPort(port));
        Some(rdma.as_mut()?.device().bind_udp(id, address, pipe, is_claimed))
    }

    /// Attaches a program to an RDMA device; `bell` is the eventfd of its doorbell.
    pub(crate) fn attach_rdma(
        &mut self,
        at: DeviceAt,
        program: NewProgram,
        bell: OwnedFd,
    ) -> Result<ProgramId, String> {
        if self.paused {
            return Err("the daemon is handing over to another one: try again".into());
        }
        let attached = self.with_device(at, |device, _| device.attach(program)).ok_or("the host has no RDMA device")?;
        let id = attached.map_err(|failure| failure.why)?;
        // Edge-triggered, so the eventfd needs no read: each ring wakes once.
        if let Err(error) = watch(&self.epoll, bell.as_fd(), epoll::EventFlags::ET) {
            self.with_device(at, |device, now| device.detach(now, id));
            return Err(format!("the daemon has no room for another doorbell: {error}"));
        }
        self.verbs_bells.insert((at, id), bell);
        Ok(id)
    }

    /// A program of an RDMA device is gone.
    pub(crate) fn detach_rdma(&mut self, at: DeviceAt, id: ProgramId) {
        if let Some(bell) = self.verbs_bells.remove(&(at, id)) {
            let _ = epoll::delete(&self.epoll, bell);
        }
        self.with_device(at, |device, now| device.detach(now, id));
    }

    /// Connections that are not closed yet; those that only wait for old duplicates do not count.
    pub(crate) fn open_flows(&self) -> usize {
        self.hosts.iter().map(|seat| seat.host.base().flow_count()).sum()
    }

    /// Serves until stopped.
    pub(crate) fn run(mut self) {
        let _guard = EndWithThread;
        let spin = Nanos::from(self.polling.spin_us) * 1000;
        let limit = spin + Nanos::from(self.polling.yield_us) * 1000;
        let mut idle_since: Option<Nanos> = None;
        // When the last round with work began, where that was the last round.
        let mut busy_since: Option<Nanos> = None;
        let (contention, mut yielded_at) = (Contention::new(), None);
        while !self.stopping {
            if self.paused {
                match self.actions.recv() {
                    Ok(action) => action(&mut self),
                    Err(_) => return,
                }
                continue;
            }
            self.figures.rounds += 1;
            let acted = self.act();
            // Asked once a round: a clock costs a good part of a round in which nothing happens.
            let now = self.clock.now();
            if let Some(at) = yielded_at.take() {
                contention.yielded(Duration::from_nanos(now - at));
            }
            if let Some(since) = busy_since.take() {
                self.figures.busy += now - since;
                self.tracer.value(Point::RoundTime, NO_FLOW, now - since);
            }
            if self.round(now) + acted > 0 {
                self.figures.busy_rounds += 1;
                busy_since = Some(now);
                idle_since = None;
                continue;
            }
            let idle = now - *idle_since.get_or_insert(now);
            if idle > limit || (idle > spin && contention.is_there()) {
                self.sleep();
                idle_since = None;
            } else if idle > spin {
                yielded_at = Some(now);
                std::thread::yield_now();
            }
        }
    }

    /// One round over everything; returns how much was done.
    fn round(&mut self, now: Nanos) -> usize {
        self.tracer.refresh();
        let mut done = 0;
        // Two hosts send to each other, and share no link.
        if self.hosts.len() > 2 && self.figures.rounds % ROUNDS_FIRST == 0 {
            self.first = if self.first + 1 < self.hosts.len() { self.first + 1 } else { 0 };
        }
        // A host may have left since.
        let first = self.first.min(self.hosts.len());
        let (later, sooner) = self.hosts.split_at_mut(first);
        for seat in sooner.iter_mut().chain(later) {
            done += seat.round(now, &mut self.pool);
        }
        if done > 0 {
            self.shared_until = self.figures.rounds + ROUNDS_SHARED;
        }
        let wide = if self.figures.rounds < self.shared_until { 1 } else { WIDE };
        let bytes = wide * ROUND_BYTES as usize;
        done += self.zeronics.iter_mut().map(|seat| seat.round(now, bytes)).sum::<usize>();
        for seat in &mut self.fabrics {
            done += seat.fabric.poll(now, &mut self.pool, &mut seat.drops);
        }
        done
    }

    /// What other threads asked for.
    fn act(&mut self) -> usize {
        let mut done = 0;
        if self.wake.take_pending() {
            // A client that turned a tracepoint on before its request finds that request among the records.
            self.tracer.refresh();
            while let Ok(action) = self.actions.try_recv() {
                self.tracer.event(Point::Action, NO_FLOW, [0; 2]);
                action(self);
                done += 1;
            }
        }
        done
    }

    /// Sleeps until somebody rings or a deadline comes.
    fn sleep(&mut self) {
        self.wake.set_asleep(true);
        self.hosts.iter().for_each(|seat| {
            seat.host.prepare_to_sleep();
            seat.ports.prepare_to_sleep();
        });
        self.fabrics.iter().for_each(|seat| seat.fabric.prepare_to_sleep());
        self.zeronics.iter().for_each(ThreadZeronic::prepare_to_sleep);
        let now = self.clock.now();
        let deadline = self.next_deadline();
        if !self.has_work(now) && deadline.is_none_or(|deadline| deadline > now) {
            let trim_at = self.may_release().then_some(now + memory_trim::PERIOD);
            self.tracer.event(Point::Asleep, NO_FLOW, [deadline.map_or(0, |deadline| deadline - now), 0]);
            let woken = self.wait(now, deadline.into_iter().chain(trim_at).min());
            let awake = self.clock.now();
            let slept = awake - now;
            if self.quiet.is_over(awake, self.figures.busy_rounds) && self.may_release() {
                self.release_idle();
            }
            self.figures.sleeps += 1;
            self.figures.asleep += slept;
            self.tracer.refresh();
            self.tracer.value(Point::Awake, NO_FLOW, slept);
            if woken > 0 {
                self.tracer.event(Point::Woken, NO_FLOW, [woken as u64, 0]);
            }
        }
        self.fabrics.iter().for_each(|seat| seat.fabric.awake());
        self.zeronics.iter_mut().for_each(ThreadZeronic::awake);
        self.hosts.iter().for_each(|seat| {
            seat.ports.awake();
            seat.host.awake();
        });
        self.wake.set_asleep(false);
        self.workers.unpark();
        self.note_failures();
    }

    /// Waits for a ring or for the end, and polls once more for work after [`SETTLE`], for its reason. Returns how
    /// many descriptors rang; none where it was interrupted or found work, too: the next round polls everything.
    fn wait(&self, begin: Nanos, end: Option<Nanos>) -> usize {
        let wait = |now: Nanos, end: Option<Nanos>| {
            let event = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
            let timeout = end.map(|end| timespec(end.saturating_sub(now)));
            epoll::wait(&self.epoll, &mut [event; 16][..], timeout.as_ref())
        };
        let settled_at = begin + SETTLE.as_nanos() as Nanos;
        if end.is_some_and(|end| end <= settled_at) {
            return wait(begin, end).unwrap_or(0);
        }
        match wait(begin, Some(settled_at)) {
            Ok(0) => {}
            woken => return woken.unwrap_or(0),
        }
        let now = self.clock.now();
        if self.has_work(now) { 0 } else { wait(now, end).unwrap_or(0) }
    }

    /// There may be something to give back, once little has been done for a while.
    fn may_release(&self) -> bool {
        self.pool.has_spare() || self.figures.busy_rounds - self.rested >= memory_trim::FEW
    }

    /// Gives back what busy times needed.
    fn release_idle(&mut self) {
        self.rested = self.figures.busy_rounds;
        self.hosts.iter_mut().for_each(|seat| seat.host.trim());
        if self.pool.has_spare() {
            self.pool.free_spare();
            reserve::give_back();
        }
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.wake.is_pending()
            || self.hosts.iter().any(|seat| seat.ports.has_work(now) || seat.host.has_work(now))
            || self.fabrics.iter().any(|seat| seat.fabric.has_work(now))
            || self.zeronics.iter().any(|seat| seat.has_work(now))
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let hosts = self.hosts.iter().flat_map(|seat| [seat.host.next_deadline(), seat.ports.next_deadline()]);
        let fabrics = self.fabrics.iter().map(|seat| seat.fabric.next_deadline());
        let zeronics = self.zeronics.iter().map(ThreadZeronic::next_deadline);
        hosts.chain(fabrics).chain(zeronics).flatten().min()
    }
}

impl ThreadHost {
    fn round(&mut self, now: Nanos, pool: &mut FramePool) -> usize {
        self.tracer.refresh();
        let received = self.ports.receive(now, BURST, pool, &mut self.received);
        if received > 0 {
            self.tracer.value(Point::PortReceived, NO_FLOW, received as u64);
        }
        received + self.poll_host(now, pool)
    }

    /// The host's part of a round.
    fn poll_host(&mut self, now: Nanos, pool: &mut FramePool) -> usize {
        let done = self.host.poll(now, &mut self.received, &mut self.to_send, pool);
        if !self.to_send.is_empty() {
            let before = self.tracer.is_on(Point::PortDropped).then(|| self.ports.drops());
            self.tracer.value(Point::PortSent, NO_FLOW, self.to_send.len() as u64);
            self.ports.send(now, &mut self.to_send, pool);
            if let Some(before) = before {
                self.trace_drops(&before);
            }
        }
        done
    }

    /// What the ports dropped of a burst.
    #[cold]
    fn trace_drops(&self, before: &PortDrops) {
        let drops = self.ports.drops();
        for reason in drops.since(before).iter() {
            let frames = drops.get(reason) - before.get(reason);
            self.tracer.event(Point::PortDropped, NO_FLOW, [DropReason::from(reason) as u64, frames]);
        }
    }
}

fn timespec(nanos: Nanos) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}
