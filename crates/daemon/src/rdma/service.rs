//! The service thread of one program: it attaches the program, carries out its control requests one after the other,
//! and removes what it had when its socket ends. What waits for the program (reading descriptors, closing them)
//! happens here, and holds nothing else up.
use super::device_record::RdmaPlace;
use super::host_device::DeviceAt;
use super::pipes::{EventEnd, EventPipes};
use super::queues::{self, Fresh};
use super::regions::{NewRegion, Regions};
use crate::datapath::{DataPath, Handle};
use context::queues::{QueueSizes, daemon_bell};
use memory::{Domain, Key};
use rdma::{Device, Failure, Kind, Most, Needs, NewProgram, Object, Objects, ProgramId, Reach, Who};
use shm::handover::{self, Credentials};
use shm::{Doorbell, Region};
use smartns::{NewCq, NewHandle, NewQp, NewSrq, Receives};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use verbs::attach::{Answer as Attached, Device as Stated, Welcome};
use verbs::control::{self, Answer, Request, XrcQueue};
use verbs::flow::FlowRule;
use verbs::{AddressVector, Capacities, Notify, Number, QpAttributes, QpKind, QpNumber};
use verbs::{connections, udp};

/// Elements of the send pipe.
const SENDS: u32 = 4096;
/// In the pipe of a channel of connection management: an event of the device that opened it.
const FIRST_NOTICE: u8 = 1;
/// How long the next hop of a path may take to answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Between two polls for its answer, at first and at most.
const FIRST_POLL: Duration = Duration::from_micros(100);
const LAST_POLL: Duration = Duration::from_millis(10);
/// Polls, one each [`FIRST_POLL`], until what was posted is sent.
const POLLS_OF_POSTED: u32 = 50;

/// A program whose hello was accepted.
pub(super) struct Newcomer {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) peer: Credentials,
    pub(super) command: String,
    /// Name of its host.
    pub(super) host: String,
    /// Where its device is on its data-path thread.
    pub(super) at: DeviceAt,
    pub(super) handle: Handle,
    pub(super) place: RdmaPlace,
    /// The host's other devices that it may use.
    pub(super) others: Vec<Stated>,
    /// Pipes of connection management, of all programs.
    pub(super) pipes: Arc<EventPipes>,
}

/// Serves a program until its socket ends.
///
/// # Errors
/// A sentence: the program could not be attached.
pub(super) fn serve(newcomer: Newcomer) -> Result<(), String> {
    let mut service = Service::attach(newcomer)?;
    while let Ok((message, files)) = handover::recv(service.socket.as_fd()) {
        if message.is_empty() {
            break;
        }
        let (answer, file) = match service.carry_out(&message, files) {
            Ok(done) => (done.answer, done.file),
            Err(failure) => (failure.into(), None),
        };
        let answer = serde_json::to_vec(&answer).unwrap_or_default();
        let file: Vec<BorrowedFd<'_>> = file.iter().map(Sent::fd).collect();
        if handover::send(service.socket.as_fd(), &answer, &file).is_err() {
            break;
        }
    }
    Ok(())
}

/// A program's place on its data-path thread.
struct At {
    handle: Handle,
    device: DeviceAt,
    id: ProgramId,
}

impl At {
    /// Asks the device on its data-path thread, between two rounds.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Device, ProgramId) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (at, id) = (self.device, self.id);
        let answer = self.handle.ask(move |path| path.with_device(at, |device, _| question(device, id)));
        answer.ok().flatten().ok_or_else(ending)
    }
}

fn ending() -> Failure {
    Failure::new(libc::ENODEV, "the daemon is ending")
}

/// What a request leads to.
struct Done {
    answer: Answer,
    file: Option<Sent>,
}

/// A descriptor that goes with an answer.
enum Sent {
    Region(Arc<Region>),
    Pipe(OwnedFd),
}

impl Sent {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Sent::Region(region) => region.fd(),
            Sent::Pipe(fd) => fd.as_fd(),
        }
    }
}

impl From<Answer> for Done {
    fn from(answer: Answer) -> Done {
        Done { answer, file: None }
    }
}

struct Service {
    socket: Arc<OwnedFd>,
    at: At,
    place: RdmaPlace,
    objects: Objects,
    regions: Regions,
    channels: HashMap<Number, Arc<EventEnd>>,
    pipes: Arc<EventPipes>,
    /// Regions whose bytes have other addresses than the program's.
    named: HashSet<Key>,
}

impl Service {
    fn attach(newcomer: Newcomer) -> Result<Service, String> {
        let Newcomer { socket, peer, command, host, at: device, handle, place, others, pipes } = newcomer;
        let broken = |e: io::Error| format!("the daemon cannot make shared memory: {e}");
        let sizes = QueueSizes { send: SENDS, ..QueueSizes::default() };
        let Fresh { region, end: pipe, .. } = queues::create(sizes, |ends| ends.send).map_err(|failure| failure.why)?;
        let bell = Doorbell::eventfd().map_err(broken)?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(broken);
        let (events, read) = EventEnd::pair().map_err(broken)?;
        let who = Who { pid: peer.pid.unsigned_abs(), uid: peer.uid, command };
        let program = NewProgram { who, pipe, bell: daemon_bell(&region, copy(&bell)?), events: Arc::new(events) };
        let watched = copy(&bell)?;
        let id = handle.ask(move |path| path.attach_rdma(device, program, watched))??;
        tracing::debug!(program = id.0, host, pid = peer.pid, "attached to the RDMA device");
        // From here on, what goes wrong removes the program again.
        let (at, objects) = (At { handle, device, id }, Objects::new(Most::of(&place.device.limits)));
        let regions = Regions::new(place.clone());
        let (channels, named) = (HashMap::new(), HashSet::new());
        let service = Service { socket, at, place, objects, regions, channels, pipes, named };
        let welcome = Attached::Welcome(Welcome { host, device: service.place.device.clone(), others, pipes: 1 });
        let answer = serde_json::to_vec(&welcome).map_err(|e| e.to_string())?;
        let files = [region.fd(), bell.as_fd(), read.as_fd()];
        handover::send(service.socket.as_fd(), &answer, &files).map_err(|_| "the program is gone already")?;
        Ok(service)
    }

    fn carry_out(&mut self, message: &[u8], files: Vec<OwnedFd>) -> Result<Done, Failure> {
        let request: Request = serde_json::from_slice(message)
            .map_err(|e| Failure::invalid(format!("this is no request that the daemon understands: {e}")))?;
        let answer = match request {
            Request::HandOver => self.regions.hand_over(files).map(|()| Answer::Done)?,
            Request::AllocateDomain => Answer::Number(self.regions.allocate(&mut self.objects)?),
            Request::FreeDomain(number) => {
                self.regions.free(&mut self.objects, number)?;
                Answer::Done
            }
            Request::Register { domain, description, named } => {
                let region = NewRegion { domain, description: &description, files: &files };
                self.register(&region, named)?
            }
            Request::Deregister(key) => self.deregister(key)?,
            Request::AllocateWindow(domain) => self.allocate_window(domain)?,
            Request::FreeWindow(number) => {
                self.destroy(Object::new(Kind::Window, number), move |device, id| device.remove_window(id, number))?
            }
            Request::OpenChannel => return self.open_channel(),
            Request::CloseChannel(number) => self.close_channel(number)?,
            Request::CreateCq { entries, channel } => return self.create_cq(entries, channel),
            Request::ResizeCq { cq, entries } => return self.resize_cq(cq, entries),
            Request::DestroyCq(number) => {
                self.destroy(Object::new(Kind::Cq, number), move |device, id| device.destroy_cq(id, number))?
            }
            Request::CreateSrq { domain, receives, pieces, xrc } => {
                return self.create_srq(domain, receives, pieces, xrc);
            }
            Request::LimitSrq { srq, limit } => self.limit_srq(srq, limit)?,
            Request::DestroySrq(number) => {
                self.destroy(Object::new(Kind::Srq, number), move |device, id| device.destroy_srq(id, number))?
            }
            Request::OpenXrcDomain => self.open_xrc_domain()?,
            Request::CloseXrcDomain(number) => {
                let object = Object::new(Kind::XrcDomain, number);
                self.objects.may_remove(object)?;
                self.objects.remove(object);
                Answer::Done
            }
            Request::CreateXrcReceiver(domain) => self.create_xrc_receiver(domain)?,
            Request::CreateQp(new) => return self.create_qp(&new),
            Request::ModifyQp { qp, attributes } => self.modify_qp(qp, attributes)?,
            Request::QueryQp(qp) => {
                self.objects.find(Object::new(Kind::Qp, qp))?;
                Answer::Attributes(self.at.ask(move |device, id| device.query_qp(id, qp))??)
            }
            Request::DestroyQp(number) => {
                self.send_datagrams()?;
                self.send_posted(number)?;
                self.destroy(Object::new(Kind::Qp, number), move |device, id| device.destroy_qp(id, number))?
            }
            Request::CreateHandle { domain, path } => self.create_handle(domain, path)?,
            Request::DestroyHandle(number) => {
                self.send_datagrams()?;
                self.destroy(Object::new(Kind::Handle, number), move |device, id| device.destroy_handle(id, number))?
            }
            Request::Connections(connections::Request::OpenChannel) => return self.open_events(),
            Request::Connections(connections::Request::JoinChannel { token }) => self.join_events(&files, token)?,
            Request::Connections(request) => self.connect(request)?,
            Request::Report(report) => self.at.ask(move |device, id| device.report(id, report))??,
            Request::CreateFlow(rule) => self.create_flow(rule)?,
            Request::DestroyFlow(number) => {
                self.destroy(Object::new(Kind::Flow, number), move |device, id| device.destroy_flow(id, number))?
            }
            Request::Udp(udp::Request::Bind(address)) => return self.bind_udp(address),
            Request::Udp(request) => self.at.ask(move |device, id| device.udp(id, &request))??,
            Request::Attach { qp, group } => {
                self.objects.find(Object::new(Kind::Qp, qp))?;
                self.at.ask(move |device, id| device.join_group(id, qp, group))??;
                Answer::Done
            }
            Request::Detach { qp, group } => {
                self.objects.find(Object::new(Kind::Qp, qp))?;
                self.at.ask(move |device, id| device.leave_group(id, qp, group))??;
                Answer::Done
            }
        };
        Ok(answer.into())
    }

    fn register(&mut self, region: &NewRegion<'_>, named: u64) -> Result<Answer, Failure> {
        let key = self.regions.register(&mut self.objects, region)?;
        // The key is not given out yet, so nothing uses the region by the other addresses.
        if named != region.description.address {
            self.at.ask(move |device, id| device.name_region(id, key, named))??;
            self.named.insert(key);
        }
        Ok(Answer::Region(key))
    }

    fn deregister(&mut self, key: Key) -> Result<Answer, Failure> {
        self.regions.deregister(&mut self.objects, key)?;
        if self.named.remove(&key) {
            self.at.ask(move |device, id| device.forget_region(id, key))??;
        }
        Ok(Answer::Done)
    }

    fn allocate_window(&mut self, domain: Number) -> Result<Answer, Failure> {
        let uses = [Object::new(Kind::Domain, domain)];
        self.objects.may_add(Kind::Window, &Needs::only(&uses))?;
        let number = self.at.ask(move |device, id| device.add_window(id, Domain(domain)))??;
        self.objects.add(Object::new(Kind::Window, number), &Needs::only(&uses));
        Ok(Answer::Number(number))
    }

    fn create_flow(&mut self, rule: FlowRule) -> Result<Answer, Failure> {
        let uses = [Object::new(Kind::Qp, rule.qp)];
        self.objects.may_add(Kind::Flow, &Needs::only(&uses))?;
        let number = self.objects.draw(Kind::Flow);
        self.at.ask(move |device, id| device.create_flow(id, number, rule))??;
        self.objects.add(Object::new(Kind::Flow, number), &Needs::only(&uses));
        Ok(Answer::Number(number))
    }

    /// Removes an object that the device has as well.
    fn destroy(
        &mut self,
        object: Object,
        at_device: impl FnOnce(&mut Device, ProgramId) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Answer, Failure> {
        self.objects.may_remove(object)?;
        self.at.ask(at_device)??;
        self.objects.remove(object);
        Ok(Answer::Done)
    }

    fn open_channel(&mut self) -> Result<Done, Failure> {
        let needs = Needs::only(&[]);
        self.objects.may_add(Kind::Channel, &needs)?;
        let made = EventEnd::pair().map_err(|e| Failure::limit(format!("the daemon cannot make a pipe: {e}")));
        let ((end, read), number) = (made?, self.objects.draw(Kind::Channel));
        self.channels.insert(number, Arc::new(end));
        self.objects.add(Object::new(Kind::Channel, number), &needs);
        Ok(Done { answer: Answer::Number(number), file: Some(Sent::Pipe(read)) })
    }

    /// A channel of connection management: the device has its events, so it counts as the device's object.
    fn open_events(&mut self) -> Result<Done, Failure> {
        let made = EventEnd::pair().map_err(|e| Failure::limit(format!("the daemon cannot make a pipe: {e}")));
        let (end, read) = made?;
        let end = Arc::new(end);
        self.pipes.add(&end);
        let number = self.at.ask(move |device, id| device.open_events(id, end, FIRST_NOTICE))??;
        Ok(Done { answer: Answer::Number(number), file: Some(Sent::Pipe(read)) })
    }

    /// Another device's channel at a pipe of the program's, of which it shows the read end.
    fn join_events(&mut self, files: &[OwnedFd], token: u8) -> Result<Answer, Failure> {
        let end = files.first().and_then(|read| self.pipes.find(read));
        let end = end.ok_or_else(|| Failure::invalid("this descriptor is of no event channel that the daemon has"))?;
        Ok(Answer::Number(self.at.ask(move |device, id| device.open_events(id, end, token))??))
    }

    /// A UDP port, whose datagrams the device keeps.
    fn bind_udp(&mut self, address: SocketAddrV4) -> Result<Done, Failure> {
        let made = EventEnd::pair().map_err(|e| Failure::limit(format!("the daemon cannot make a pipe: {e}")));
        let (end, read) = made?;
        let (at, id) = (self.at.device, self.at.id);
        let question = move |path: &mut DataPath| path.bind_udp(at, id, address, Arc::new(end));
        let answer = self.at.handle.ask(question).ok().flatten().ok_or_else(ending)??;
        Ok(Done { answer, file: Some(Sent::Pipe(read)) })
    }

    fn connect(&mut self, request: connections::Request) -> Result<Answer, Failure> {
        let (at, id) = (self.at.device, self.at.id);
        let question = move |path: &mut DataPath| path.with_device(at, |device, now| device.connect(now, id, &request));
        self.at.handle.ask(question).ok().flatten().ok_or_else(ending)?
    }

    fn close_channel(&mut self, number: Number) -> Result<Answer, Failure> {
        let object = Object::new(Kind::Channel, number);
        self.objects.may_remove(object)?;
        self.objects.remove(object);
        self.channels.remove(&number);
        Ok(Answer::Done)
    }

    fn create_cq(&mut self, entries: u32, channel: Option<Number>) -> Result<Done, Failure> {
        let completion = queues::completions(entries, &self.place.device.limits)?;
        let sizes = QueueSizes { completion, ..QueueSizes::default() };
        let uses: Vec<Object> = channel.iter().map(|number| Object::new(Kind::Channel, *number)).collect();
        let needs = Needs { uses: &uses, bytes: queues::bytes(sizes) };
        self.objects.may_add(Kind::Cq, &needs)?;
        let Fresh { region, end: pipe, entries } = queues::create(sizes, |ends| ends.completion)?;
        let number = self.objects.draw(Kind::Cq);
        let channel = channel.and_then(|number| self.channels.get(&number).map(Arc::clone));
        let cq = NewCq { number, pipe, notify: Notify::new(&region), has_channel: channel.is_some() };
        let channel = channel.map(|end| end as Arc<dyn rdma::EventPipe>);
        self.at.ask(move |device, id| device.create_cq(id, cq, channel))??;
        self.objects.add(Object::new(Kind::Cq, number), &needs);
        Ok(Done { answer: Answer::Queue { number, entries }, file: Some(Sent::Region(region)) })
    }

    /// The old pipe's memory stays with the program's end of it, so it counts until the queue ends.
    fn resize_cq(&mut self, number: Number, entries: u32) -> Result<Done, Failure> {
        let completion = queues::completions(entries, &self.place.device.limits)?;
        let (object, sizes) = (Object::new(Kind::Cq, number), QueueSizes { completion, ..QueueSizes::default() });
        self.objects.grow(object, queues::bytes(sizes))?;
        let Fresh { region, end: pipe, entries } = queues::create(sizes, |ends| ends.completion)?;
        self.at.ask(move |device, id| device.resize_cq(id, number, pipe))??;
        Ok(Done { answer: Answer::Queue { number, entries }, file: Some(Sent::Region(region)) })
    }

    fn create_srq(
        &mut self,
        domain: Number,
        receives: u32,
        pieces: u32,
        xrc: Option<XrcQueue>,
    ) -> Result<Done, Failure> {
        let receive = queues::receives(receives, pieces, &self.place.device.limits)?;
        let sizes = QueueSizes { receive, ..QueueSizes::default() };
        let mut uses = vec![Object::new(Kind::Domain, domain)];
        if let Some(XrcQueue { domain, cq }) = xrc {
            uses.extend([Object::new(Kind::XrcDomain, domain), Object::new(Kind::Cq, cq)]);
        }
        let needs = Needs { uses: &uses, bytes: queues::bytes(sizes) };
        self.objects.may_add(Kind::Srq, &needs)?;
        let Fresh { region, end: pipe, entries } = queues::create(sizes, |ends| ends.receive)?;
        let number = self.objects.draw(Kind::Srq);
        let srq = NewSrq { number, domain: Domain(domain), pipe, receives, pieces, xrc };
        self.at.ask(move |device, id| device.create_srq(id, srq))??;
        self.objects.add(Object::new(Kind::Srq, number), &needs);
        Ok(Done { answer: Answer::Queue { number, entries }, file: Some(Sent::Region(region)) })
    }

    fn limit_srq(&mut self, srq: Number, limit: u32) -> Result<Answer, Failure> {
        self.objects.find(Object::new(Kind::Srq, srq))?;
        self.at.ask(move |device, id| device.limit_srq(id, srq, limit))??;
        Ok(Answer::Done)
    }

    /// Queue pairs and shared receive queues name it; nothing else is behind it.
    fn open_xrc_domain(&mut self) -> Result<Answer, Failure> {
        if !self.place.device.xrc {
            return Err(Failure::new(libc::EOPNOTSUPP, "the device has no extended reliable connections (XRC)"));
        }
        self.objects.may_add(Kind::XrcDomain, &Needs::only(&[]))?;
        let number = self.objects.draw(Kind::XrcDomain);
        self.objects.add(Object::new(Kind::XrcDomain, number), &Needs::only(&[]));
        Ok(Answer::Number(number))
    }

    fn create_xrc_receiver(&mut self, domain: Number) -> Result<Answer, Failure> {
        let uses = [Object::new(Kind::XrcDomain, domain)];
        self.objects.may_add(Kind::Qp, &Needs::only(&uses))?;
        let capacities = Capacities::default();
        let qp = NewQp {
            number: 0,
            kind: QpKind::XrcReceive,
            domain: NewQp::NO_DOMAIN,
            send_cq: NewQp::NO_CQ,
            receive_cq: NewQp::NO_CQ,
            receives: Receives::Named(domain),
            capacities,
            signals_all: false,
        };
        let number = self.at.ask(move |device, id| device.create_qp(id, qp))??;
        self.objects.add(Object::new(Kind::Qp, number), &Needs::only(&uses));
        Ok(Answer::Qp { number, capacities, pipe: 0 })
    }

    fn create_qp(&mut self, new: &control::NewQp) -> Result<Done, Failure> {
        let (limits, capacities) = (&self.place.device.limits, new.capacities);
        queues::check(&capacities, limits)?;
        let mut uses = vec![
            Object::new(Kind::Domain, new.domain),
            Object::new(Kind::Cq, new.send_cq),
            Object::new(Kind::Cq, new.receive_cq),
        ];
        let (mut sizes, mut queue) = (QueueSizes::default(), None);
        match new.srq {
            Some(srq) => uses.push(Object::new(Kind::Srq, srq)),
            None => sizes.receive = queues::receives(capacities.receive, capacities.receive_pieces, limits)?,
        }
        let bytes = if sizes.receive > 0 { queues::bytes(sizes) } else { 0 };
        let needs = Needs { uses: &uses, bytes };
        self.objects.may_add(Kind::Qp, &needs)?;
        let receives = match new.srq {
            Some(srq) => Receives::Shared(srq),
            None => {
                let made = queues::create(sizes, |ends| ends.receive)?;
                queue = Some(Sent::Region(made.region));
                Receives::Own(made.end)
            }
        };
        let qp = NewQp {
            // The device draws it.
            number: 0,
            kind: new.kind,
            domain: Domain(new.domain),
            send_cq: new.send_cq,
            receive_cq: new.receive_cq,
            receives,
            capacities,
            signals_all: new.signals_all,
        };
        let number = self.at.ask(move |device, id| device.create_qp(id, qp))??;
        self.objects.add(Object::new(Kind::Qp, number), &needs);
        Ok(Done { answer: Answer::Qp { number, capacities, pipe: 0 }, file: queue })
    }

    fn modify_qp(&mut self, qp: QpNumber, attributes: QpAttributes) -> Result<Answer, Failure> {
        self.objects.find(Object::new(Kind::Qp, qp))?;
        if let Some(vector) = attributes.path {
            self.reach(vector)?;
        }
        self.at.ask(move |device, id| device.modify_qp(id, qp, &attributes))??;
        Ok(Answer::Done)
    }

    fn create_handle(&mut self, domain: Number, path: AddressVector) -> Result<Answer, Failure> {
        let uses = [Object::new(Kind::Domain, domain)];
        self.objects.may_add(Kind::Handle, &Needs::only(&uses))?;
        self.reach(path)?;
        let number = self.objects.draw(Kind::Handle);
        let handle = NewHandle { number, domain: Domain(domain), path: None };
        self.at.ask(move |device, id| device.create_handle(id, handle, path))??;
        self.objects.add(Object::new(Kind::Handle, number), &Needs::only(&uses));
        Ok(Answer::Number(number))
    }

    /// Waits until the datagrams that were posted before are sent: programs destroy what they name right afterwards.
    /// Those whose next hop does not answer are not waited for.
    fn send_datagrams(&self) -> Result<(), Failure> {
        self.poll_posted(|device, id| device.has_datagrams(id))
    }

    /// Waits for one quantum of a queue pair that is to be destroyed, where something that was posted needs it.
    fn send_posted(&self, qp: QpNumber) -> Result<(), Failure> {
        if self.at.ask(move |device, id| device.await_quantum(id, qp))?? {
            self.poll_posted(move |device, id| device.awaits_quantum(id, qp))?;
        }
        Ok(())
    }

    /// Waits while something that was posted `waits`, for a while.
    fn poll_posted(
        &self,
        waits: impl Fn(&mut Device, ProgramId) -> Result<bool, Failure> + Copy + Send + 'static,
    ) -> Result<(), Failure> {
        for _ in 0..POLLS_OF_POSTED {
            if !self.at.ask(waits)?? {
                break;
            }
            sleep(FIRST_POLL);
        }
        Ok(())
    }

    /// Waits until the next hop of a path has answered, as verbs on Ethernet do.
    fn reach(&self, vector: AddressVector) -> Result<(), Failure> {
        let (begin, mut pause) = (Instant::now(), FIRST_POLL);
        let reached = loop {
            match self.at.ask(move |device, id| device.reach(id, Some(&vector)))?? {
                Reach::Known => break Ok(()),
                Reach::NoRoute => break Err(Failure::new(libc::ENETUNREACH, "the host has no route to the peer")),
                Reach::Asked if begin.elapsed() > TIMEOUT => {
                    break Err(Failure::new(libc::ETIMEDOUT, "the next hop to the peer does not answer"));
                }
                Reach::Asked => sleep(pause),
            }
            pause = (pause * 2).min(LAST_POLL);
        };
        if reached.is_err() {
            self.at.ask(|device, id| device.reach(id, None))??;
        }
        reached
    }
}

impl Drop for Service {
    /// The program is gone: first its queue pairs, then its memory.
    fn drop(&mut self) {
        let At { handle, device, id } = &self.at;
        let (device, id) = (*device, *id);
        // Where the thread has ended, the daemon is ending.
        let _ = handle.ask(move |path| path.detach_rdma(device, id));
        self.regions.remove_all(&self.objects);
        tracing::debug!(program = id.0, "an RDMA program is gone");
    }
}
