//! A host's RDMA device: the shards of all programs, and whose each queue pair is.
use crate::address_resolution::{AddressResolution, Reach, Station, remote_of};
use crate::cm::{Context, Manager};
use crate::config::Config;
use crate::failure::Failure;
use crate::flows::Flows;
use crate::groups::{self, Groups};
use crate::numbers::Numbers;
use crate::stream_binding::StreamBinding;
use crate::udp::UdpPorts;
use crate::user_context::{End, EventPipe, NewProgram, ProgramId, Round, UserContext};
use crate::view::ProgramView;
use crate::{gsi, limits};
use engine::{DropReason, Nanos};
use host::{Claim, Io, Neighbour, Transport};
use memory::{Domain, Key};
use port::Frame;
use port::capture::{Direction, Fate, Sight};
use shm::PipeProducer;
use smartns::{CnpCounts, Event, LowerLayer, NewCq, NewHandle, NewQp, NewSrq, Refusal, destination_qp};
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use verbs::attach::Device as Stated;
use verbs::connections;
use verbs::control::Answer;
use verbs::functions::Report;
use verbs::{AddressVector, Number, QpAttributes, QpNumber, QpState};
use wire::roce::{GSI_QP, MULTICAST_QP, UDP_PORT};

/// Where the destination address of a frame's IPv4 packet stands: the host passes it without a VLAN tag.
const IP_DESTINATION: std::ops::Range<usize> = 30..34;

/// A host's RDMA device. All that it does between two polls is bounded and waits for nobody.
pub struct Device {
    pub(crate) config: Config,
    pub(crate) stated: Stated,
    numbers: Numbers,
    /// Numbers of memory windows: the unguessable part of their keys.
    window_numbers: Numbers,
    windows: HashMap<Number, ProgramId>,
    pub(crate) owners: HashMap<QpNumber, ProgramId>,
    pub(crate) users: BTreeMap<ProgramId, UserContext>,
    attached: u32,
    pub(crate) resolution: AddressResolution,
    pub(crate) groups: Groups,
    /// Rules for frames that no transport claims.
    pub(crate) flows: Flows,
    pub(crate) connections: Manager,
    pub(crate) udp: UdpPorts,
    /// Empty between polls.
    pub(crate) events: Vec<Event>,
    /// Of a device over streams: what is to be reported to whoever carries them, and frames that nobody sends.
    pub(crate) stream_binding: StreamBinding,
    /// The last poll sent something.
    sending: bool,
    /// Congestion notifications of programs that are gone.
    past_cnps: CnpCounts,
}

impl Device {
    /// A device without programs.
    ///
    /// # Errors
    /// A sentence: the port carries packets that are too small for any payload.
    pub fn new(config: Config) -> Result<Device, String> {
        let stated = config.stated().ok_or_else(|| {
            format!("RDMA needs a port that carries packets of {} bytes or more, not {}", 340, config.ip_mtu)
        })?;
        Ok(Device {
            numbers: Numbers::new(config.secret),
            // Another permutation than that of queue pairs.
            window_numbers: Numbers::new(config.secret.map(|byte| !byte)),
            windows: HashMap::new(),
            connections: Manager::new(gsi::place(&config, stated.mtu)),
            resolution: if config.lower_layer == LowerLayer::Stream {
                AddressResolution::elsewhere()
            } else {
                AddressResolution::default()
            },
            stream_binding: StreamBinding::new(config.lower_layer),
            udp: UdpPorts::new(config.address),
            config,
            stated,
            owners: HashMap::new(),
            users: BTreeMap::new(),
            attached: 0,
            groups: Groups::default(),
            flows: Flows::default(),
            events: Vec::new(),
            sending: false,
            past_cnps: CnpCounts::default(),
        })
    }

    /// What is reported to programs of it.
    pub fn stated(&self) -> &Stated {
        &self.stated
    }

    /// A program attaches.
    ///
    /// # Errors
    /// ENOMEM: there are as many as may be.
    pub fn attach(&mut self, program: NewProgram) -> Result<ProgramId, Failure> {
        let most = self.config.programs;
        if self.users.len() >= most as usize {
            return Err(Failure::limit(format!("host has {most} RDMA programs already (rdma.programs)")));
        }
        loop {
            self.attached = self.attached.wrapping_add(1);
            let id = ProgramId(self.attached);
            if !self.users.contains_key(&id) {
                self.users.insert(id, UserContext::new(program, self.config.shard(self.stated.mtu)));
                return Ok(id);
            }
        }
    }

    /// A program is gone: its queue pairs and all else that it had here. Afterwards nothing of this device touches its
    /// memory.
    pub fn detach(&mut self, now: Nanos, id: ProgramId) {
        if let Some(mut user) = self.users.remove(&id) {
            self.connections.detach(now, id, &mut self.resolution);
            user.leave(&mut self.resolution);
            self.groups.leave(id);
            self.flows.leave(id);
            self.udp.leave(id);
            self.past_cnps.add(user.shard.cnps());
            user.kinds.keys().for_each(|qp| self.stream_binding.gone(*qp, user.shard.last_words(*qp)));
            self.owners.retain(|_, owner| *owner != id);
            self.windows.retain(|_, owner| *owner != id);
        }
    }

    /// What people see, with at most so many queue pairs altogether.
    pub fn views(&self, now: Nanos, most: usize) -> Vec<ProgramView> {
        let mut left = most;
        let view = |(id, user): (&ProgramId, &UserContext)| {
            let mut view = user.view(now, left);
            left -= view.qps.len();
            (view.id_count, view.ids) = self.connections.view(*id, left);
            self.udp.show(*id, left, &mut view);
            left -= view.ids.len();
            view
        };
        self.users.iter().map(view).collect()
    }

    /// A program reports what its functions came to. [`Answer::Done`].
    ///
    /// # Errors
    /// EINVAL: more than the limit.
    pub fn report(&mut self, id: ProgramId, report: Report) -> Result<Answer, Failure> {
        if !report.is_bounded() {
            return Err(Failure::invalid("a report of functions is longer than may be"));
        }
        user(&mut self.users, id)?.functions = Some(report.printable());
        Ok(Answer::Done)
    }

    /// What offload engines reported, by their processes.
    pub fn reports(&self) -> Vec<(u32, Report)> {
        let reports = self.users.values().filter_map(|user| Some((user.who.pid, user.functions.clone()?)));
        reports.collect()
    }

    /// Congestion notifications of all its queue pairs, also of those that are gone.
    pub fn cnps(&self) -> CnpCounts {
        let mut cnps = self.past_cnps;
        self.users.values().for_each(|user| cnps.add(user.shard.cnps()));
        cnps
    }

    /// Adds a completion queue, with where its events go.
    ///
    /// # Errors
    /// As the engine's.
    pub fn create_cq(&mut self, id: ProgramId, cq: NewCq, channel: Option<Arc<dyn EventPipe>>) -> Result<(), Failure> {
        let user = user(&mut self.users, id)?;
        let number = cq.number;
        user.shard.add_cq(cq)?;
        user.channels.extend(channel.map(|channel| (number, channel)));
        Ok(())
    }

    /// Completions of a queue go to another pipe from now on.
    ///
    /// # Errors
    /// As the engine's.
    pub fn resize_cq(&mut self, id: ProgramId, number: Number, pipe: PipeProducer<8>) -> Result<(), Failure> {
        Ok(user(&mut self.users, id)?.shard.resize_cq(number, pipe)?)
    }

    /// Removes a completion queue.
    ///
    /// # Errors
    /// As the engine's.
    pub fn destroy_cq(&mut self, id: ProgramId, number: Number) -> Result<(), Failure> {
        let user = user(&mut self.users, id)?;
        user.shard.remove_cq(number)?;
        user.channels.remove(&number);
        Ok(())
    }

    /// The bytes of a region are named by other addresses than the program's: `address` is that of the first one.
    ///
    /// # Errors
    /// ENODEV: the program is not attached any more.
    pub fn name_region(&mut self, id: ProgramId, key: Key, address: u64) -> Result<(), Failure> {
        user(&mut self.users, id)?.shard.name_region(key, address);
        Ok(())
    }

    /// A region that had such a name is gone.
    ///
    /// # Errors
    /// As [`Device::name_region`].
    pub fn forget_region(&mut self, id: ProgramId, key: Key) -> Result<(), Failure> {
        user(&mut self.users, id)?.shard.forget_region(key);
        Ok(())
    }

    /// Adds a memory window, whose number is drawn here, and returns that.
    ///
    /// # Errors
    /// As the engine's.
    pub fn add_window(&mut self, id: ProgramId, domain: Domain) -> Result<Number, Failure> {
        let user = user(&mut self.users, id)?;
        let number = self.window_numbers.draw(|number| self.windows.contains_key(&number));
        user.shard.add_window(number, domain)?;
        self.windows.insert(number, id);
        Ok(number)
    }

    /// Removes a memory window: afterwards no peer accesses memory by it.
    ///
    /// # Errors
    /// As the engine's.
    pub fn remove_window(&mut self, id: ProgramId, number: Number) -> Result<(), Failure> {
        user(&mut self.users, id)?.shard.remove_window(number)?;
        self.windows.remove(&number);
        Ok(())
    }

    /// Adds a shared receive queue.
    ///
    /// # Errors
    /// As the engine's.
    pub fn create_srq(&mut self, id: ProgramId, srq: NewSrq) -> Result<(), Failure> {
        Ok(user(&mut self.users, id)?.shard.add_srq(srq)?)
    }

    /// Asks for an event when the queue has fewer work requests than `limit`.
    ///
    /// # Errors
    /// As the engine's.
    pub fn limit_srq(&mut self, id: ProgramId, number: Number, limit: u32) -> Result<(), Failure> {
        Ok(user(&mut self.users, id)?.shard.limit_srq(number, limit)?)
    }

    /// Removes a shared receive queue.
    ///
    /// # Errors
    /// As the engine's.
    pub fn destroy_srq(&mut self, id: ProgramId, number: Number) -> Result<(), Failure> {
        Ok(user(&mut self.users, id)?.shard.remove_srq(number)?)
    }

    /// Adds a queue pair, whose number is drawn here, and returns that.
    ///
    /// # Errors
    /// As the engine's.
    pub fn create_qp(&mut self, id: ProgramId, mut qp: NewQp) -> Result<QpNumber, Failure> {
        let user = user(&mut self.users, id)?;
        let number = self.numbers.draw(|number| self.owners.contains_key(&number));
        qp.number = number;
        let kind = qp.kind;
        user.shard.add_qp(qp)?;
        user.kinds.insert(number, kind);
        self.owners.insert(number, id);
        Ok(number)
    }

    /// Changes attributes of a queue pair. Its way is set as soon as the next hop is known; see [`Device::reach`].
    ///
    /// # Errors
    /// EINVAL: what the port or the device does not have; or as the engine's.
    pub fn modify_qp(&mut self, id: ProgramId, number: QpNumber, attributes: &QpAttributes) -> Result<(), Failure> {
        limits::check(attributes, &self.stated)?;
        let remote = attributes.path.map(|vector| self.remote(&vector).map(|remote| (remote, vector))).transpose()?;
        if remote.is_some_and(|(remote, _)| remote.is_multicast()) {
            return Err(Failure::invalid("a connection has one peer: only datagrams are sent to multicast groups"));
        }
        let local = self.local();
        let user = user(&mut self.users, id)?;
        let (end, last) = (End::Qp(number), user.shard.last_words(number));
        user.shard.modify_qp(number, attributes)?;
        if attributes.state == Some(QpState::Reset) {
            user.forget(end, &mut self.resolution);
            self.stream_binding.gone(number, last);
        }
        if let Some((remote, vector)) = remote {
            user.go(end, remote, vector, &mut self.resolution);
            user.set_way(end, local, &self.resolution);
            self.stream_binding.has_peer(number, remote, attributes.remote_qp);
        }
        Ok(())
    }

    /// The attributes of a queue pair.
    ///
    /// # Errors
    /// As the engine's.
    pub fn query_qp(&self, id: ProgramId, number: QpNumber) -> Result<QpAttributes, Failure> {
        let user = self.users.get(&id).ok_or_else(gone)?;
        Ok(user.shard.query_qp(number)?)
    }

    /// Removes a queue pair: afterwards none of its work requests touches memory.
    ///
    /// # Errors
    /// EBUSY: it is a member of a multicast group; or as the engine's.
    pub fn destroy_qp(&mut self, id: ProgramId, number: QpNumber) -> Result<(), Failure> {
        let user = user(&mut self.users, id)?;
        if self.groups.has(id, number) || self.flows.memberships(id, Some(number)) > 0 {
            return Err(Failure::busy("the queue pair is a member of a multicast group: detach it first"));
        }
        let last = user.shard.last_words(number);
        user.shard.remove_qp(number)?;
        user.kinds.remove(&number);
        user.forget(End::Qp(number), &mut self.resolution);
        self.owners.remove(&number);
        self.stream_binding.gone(number, last);
        Ok(())
    }

    /// Adds an address handle; its way is set as soon as the next hop is known.
    ///
    /// # Errors
    /// EINVAL: a path that is not carried. EOPNOTSUPP: a multicast group's over streams; or as the engine's.
    pub fn create_handle(&mut self, id: ProgramId, handle: NewHandle, vector: AddressVector) -> Result<(), Failure> {
        let (remote, local) = (self.remote(&vector)?, self.local());
        if remote.is_multicast() {
            self.only_with_packets("multicast")?;
        }
        let (user, end) = (user(&mut self.users, id)?, End::Handle(handle.number));
        user.shard.add_handle(handle)?;
        user.go(end, remote, vector, &mut self.resolution);
        user.set_way(end, local, &self.resolution);
        Ok(())
    }

    /// Removes an address handle.
    ///
    /// # Errors
    /// As the engine's.
    pub fn destroy_handle(&mut self, id: ProgramId, number: Number) -> Result<(), Failure> {
        let user = user(&mut self.users, id)?;
        user.shard.remove_handle(number)?;
        user.forget(End::Handle(number), &mut self.resolution);
        Ok(())
    }

    /// Adds an event channel of connection management.
    ///
    /// # Errors
    /// ENODEV: the program is not attached any more. ENOMEM: it has as many as it may.
    pub fn open_events(&mut self, id: ProgramId, pipe: Arc<dyn EventPipe>, token: u8) -> Result<Number, Failure> {
        user(&mut self.users, id)?;
        self.connections.open_channel(id, pipe, token)
    }

    /// Carries out a request of connection management.
    ///
    /// # Errors
    /// ENODEV: the program is not attached any more; or as [`connections::Request`] has them.
    pub fn connect(&mut self, now: Nanos, id: ProgramId, request: &connections::Request) -> Result<Answer, Failure> {
        user(&mut self.users, id)?;
        self.over_streams(id, request)?;
        self.connections.call(&mut Context { now, resolution: &mut self.resolution }, id, request)
    }

    /// Whether the next hop of a path is known. A program's service thread asks until it is, before it uses the path;
    /// `None`: it has stopped asking.
    ///
    /// # Errors
    /// EINVAL: a path that is not carried.
    pub fn reach(&mut self, id: ProgramId, vector: Option<&AddressVector>) -> Result<Reach, Failure> {
        let remote = vector.map(|vector| self.remote(vector)).transpose()?;
        let user = user(&mut self.users, id)?;
        user.want(remote, &mut self.resolution);
        Ok(remote.map_or(Reach::Known, |remote| self.resolution.reach(remote)))
    }

    fn remote(&self, vector: &AddressVector) -> Result<Ipv4Addr, Failure> {
        remote_of(vector, self.stated.gids.len())
    }

    fn local(&self) -> Station {
        Station { mac: self.config.mac, address: self.config.address }
    }

    /// Gives each received frame to the program whose queue pair it is for.
    fn share_out(&mut self, now: Nanos, frame: Box<Frame>, io: &mut Io<'_>) {
        let ours = frame.bytes().get(IP_DESTINATION) == Some(&self.config.address.octets()[..]);
        let number = destination_qp(frame.bytes());
        if ours && number == Some(GSI_QP) {
            return self.manage(now, frame, io);
        }
        let owner = number.and_then(|number| self.owners.get(&number));
        match owner.and_then(|owner| self.users.get_mut(owner)) {
            Some(user) if ours => user.rx.push(frame),
            _ if number == Some(MULTICAST_QP) && !ours => self.share_group(frame, io),
            _ => {
                io.drops.count(if ours { DropReason::QpUnknown } else { DropReason::NotOurs });
                io.pool.put(frame);
            }
        }
    }

    /// A datagram for a multicast group: each program that has members gets it.
    #[cold]
    fn share_group(&mut self, mut frame: Box<Frame>, io: &mut Io<'_>) {
        io.pool.flatten(&mut frame);
        match groups::group_of(&frame).map(|group| self.groups.programs(group)) {
            None => io.drops.count(DropReason::NotOurs),
            Some(members) if members.is_empty() => io.drops.count(DropReason::GroupUnknown),
            Some(members) => {
                for id in members {
                    let twin = io.pool.copy(&frame);
                    self.users.entry(id).and_modify(|user| user.rx.push(twin));
                }
            }
        }
        io.pool.put(frame);
    }

    /// What the host sends to groups reaches its own members, too, also those of the program that sends it.
    #[cold]
    fn loop_groups(&self, from: usize, io: &mut Io<'_>) {
        for at in from..io.tx.len() {
            let group = groups::group_of(&io.tx[at]);
            if group.is_some_and(|group| !self.groups.programs(group).is_empty()) {
                let twin = io.pool.copy(&io.tx[at]);
                io.send_to_self(twin);
            }
        }
    }

    /// A frame for the general services interface.
    #[cold]
    fn manage(&mut self, now: Nanos, mut frame: Box<Frame>, io: &mut Io<'_>) {
        io.pool.flatten(&mut frame);
        if let Err(reason) = self.connections.receive(now, frame.bytes()) {
            io.drops.count(reason);
        }
        io.pool.put(frame);
    }

    /// While somebody captures: one frame after the other, so that each is recorded with what became of it.
    #[cold]
    fn receive_recorded(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) {
        for frame in rx.drain(..) {
            io.recorder.iter_mut().for_each(|recorder| recorder.keep(&frame));
            let (before, mut events) = (io.drops.clone(), std::mem::take(&mut self.events));
            self.share_out(now, frame, io);
            for user in self.users.values_mut().filter(|user| !user.rx.is_empty()) {
                let mut round = Round { now, tx: io.tx, pool: io.pool, drops: io.drops, events: &mut events };
                user.poll(&mut round);
            }
            self.events = events;
            let fate = Fate::of_received(io.drops.since(&before));
            io.recorder.iter_mut().for_each(|recorder| recorder.record_kept(now, &sight(Direction::In, fate)));
        }
    }
}

/// What a capture has of a frame of the device's.
fn sight(direction: Direction, fate: Fate) -> Sight<'static> {
    Sight { direction, flow: None, module: "rdma", fate }
}

impl Transport for Device {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::UdpPort(UDP_PORT)]
    }

    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        let mut done = rx.len();
        let from = io.tx.len();
        if io.recorder.is_some() {
            self.receive_recorded(now, rx, io);
        }
        for frame in rx.drain(..) {
            self.share_out(now, frame, io);
        }
        let local = self.local();
        for remote in self.resolution.poll(now, self.sending, io.net) {
            done += 1;
            self.users.values_mut().for_each(|user| user.set_ways(remote, local, &self.resolution));
        }
        done += self.connections.round(now, &self.resolution);
        done += gsi::send(&mut self.connections, local, &self.resolution, io);
        done += self.udp.send(now, io);
        let round = &mut Round { now, tx: io.tx, pool: io.pool, drops: io.drops, events: &mut self.events };
        done += self.users.values_mut().map(|user| user.poll(round)).sum::<usize>();
        self.sending = io.tx.len() > from;
        if self.sending && !self.groups.is_empty() {
            self.loop_groups(from, io);
        }
        if let Some(recorder) = &mut io.recorder {
            io.tx[from..].iter().for_each(|frame| recorder.record(now, frame, &sight(Direction::Out, Fate::Sent)));
        }
        done
    }

    fn offer(&mut self, now: Nanos, frame: Box<Frame>, io: &mut Io<'_>) -> Option<Box<Frame>> {
        let frame = self.udp.offer(now, frame, io)?;
        self.take_raw(now, frame, io)
    }

    /// A neighbour that moved: its destinations are checked again. One that does not answer is left to the queue
    /// pairs' own time-outs.
    fn on_neighbour(&mut self, _now: Nanos, neighbour: &Neighbour, _io: &mut Io<'_>) {
        if neighbour.mac.is_some() {
            self.resolution.check_again();
        }
    }

    /// Without programs and connections of earlier ones only a peer's messages are left to be answered.
    fn is_dormant(&self) -> bool {
        self.users.is_empty() && self.connections.is_quiet() && !self.udp.has_work()
    }

    fn handover_obstacle(&self) -> Option<String> {
        let names = self.users.values().take(3).map(|user| format!("{} ({})", user.who.pid, user.who.command));
        let (host, count, names) = (&self.config.host, self.users.len(), names.collect::<Vec<_>>().join(", "));
        (count > 0).then(|| {
            format!(
                "host {host} has RDMA programs ({count}), whose queue pairs cannot be handed over: end {names} first"
            )
        })
    }

    fn prepare_to_sleep(&self) {
        let bells: Vec<_> = self.users.values().map(|user| &user.bell).collect();
        shm::Doorbell::prepare_all(bells.iter().copied());
    }

    /// Nobody reads the bells: they are watched edge-triggered.
    fn awake(&self) {
        self.users.values().for_each(|user| user.bell.reset());
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.connections.has_work(now)
            || self.udp.has_work()
            || self.users.values().any(|user| user.shard.has_work(now))
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let shards = self.users.values().filter_map(|user| user.shard.next_deadline());
        shards.chain(self.connections.next_deadline()).min()
    }
}

pub(crate) fn user(users: &mut BTreeMap<ProgramId, UserContext>, id: ProgramId) -> Result<&mut UserContext, Failure> {
    users.get_mut(&id).ok_or_else(gone)
}

pub(crate) fn gone() -> Failure {
    Failure::new(libc::ENODEV, "the program is not attached any more")
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::new(refusal.errno(), refusal.to_string())
    }
}
