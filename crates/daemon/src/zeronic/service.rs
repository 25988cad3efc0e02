//! The service thread of one program of a ZeroNIC host: it attaches the program, registers its memory, and removes what
//! it had when its socket ends. What waits for the program (looking at descriptors) happens here.
use super::devices::ProgramDevices;
use super::maker::ZeronicPlace;
use crate::attaching::printable;
use context::comm::{Answer, COMPLETIONS, Hello, POSTS, Request, VERSION, program_bell};
use context::queues::{DaemonQueues, QueueSizes, daemon_bell};
use memory::{AddressSpace, Description, Domain, Key, Refusal, Rights};
use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;
use shm::{Doorbell, handover, reserve};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use zeronic::{NewProgram, ProgramId};

/// Service threads at once, of all hosts.
const MOST: usize = 256;
/// Bytes of a service thread's stack.
const STACK: usize = 512 << 10;
/// Between two looks at an access that is still under way.
const BREATH: Duration = Duration::from_micros(50);

/// All programs of the daemon's ZeroNIC hosts.
pub(crate) struct CommPrograms {
    places: Vec<ZeronicPlace>,
    alive: Arc<Alive>,
}

/// The service threads.
struct Alive {
    count: AtomicUsize,
    /// Readable when one has ended.
    wake: OwnedFd,
}

/// One service thread; it is gone when this is dropped, also where the thread panicked.
struct OneAlive(Arc<Alive>);

impl OneAlive {
    fn of(alive: &Arc<Alive>) -> OneAlive {
        alive.count.fetch_add(1, Relaxed);
        OneAlive(Arc::clone(alive))
    }
}

impl Drop for OneAlive {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
        // Failing means that the counter is at its limit: it is signalled.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }
}

/// A first message that asks for a ZeroNIC host.
pub(crate) fn is_hello(message: &[u8]) -> bool {
    version(message).is_some()
}

/// The version of a library. Of one of another version, only that is understood.
fn version(message: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Version {
        comm: u32,
    }
    serde_json::from_slice::<Version>(message).ok().map(|version| version.comm)
}

impl CommPrograms {
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(places: Vec<ZeronicPlace>) -> io::Result<CommPrograms> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(CommPrograms { places, alive: Arc::new(Alive { count: AtomicUsize::new(0), wake }) })
    }

    /// Where the hosts are served.
    pub(crate) fn places(&self) -> &[ZeronicPlace] {
        &self.places
    }

    /// Readable when a service thread has ended: then call [`CommPrograms::reap`].
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.alive.wake.as_fd()
    }

    /// [`CommPrograms::count`] is asked again.
    pub(crate) fn reap(&self) {
        let _ = rustix::io::read(&self.alive.wake, &mut [0; 8]);
    }

    /// Programs that are attached, or about to be.
    pub(crate) fn count(&self) -> usize {
        self.alive.count.load(Relaxed)
    }

    /// A program has said hello: starts its service thread, or refuses it with a sentence.
    pub(crate) fn start(&self, socket: OwnedFd, message: &[u8]) {
        let socket = Arc::new(socket);
        let refused = Arc::clone(&socket);
        let started = self.place_of(&socket, message).and_then(|(place, who)| {
            let alive = OneAlive::of(&self.alive);
            let body = move || {
                if let Err((errno, sentence)) = serve(&socket, place, who) {
                    refuse(&socket, errno, sentence);
                }
                drop(alive);
            };
            let thread = thread::Builder::new().name("zeronic".into()).stack_size(STACK).spawn(body);
            thread.map(drop).map_err(|e| (libc::EAGAIN, format!("the daemon cannot start a thread: {e}")))
        });
        if let Err((errno, sentence)) = started {
            refuse(&refused, errno, sentence);
        }
    }

    fn place_of(&self, socket: &OwnedFd, message: &[u8]) -> Result<(ZeronicPlace, Who), Failure> {
        let invalid = |sentence: String| (libc::EPROTO, sentence);
        let version = version(message).unwrap_or_default();
        if version != VERSION {
            return Err(invalid(format!(
                "libtoe speaks version {version} of toe_comm and the daemon version {VERSION}: use the libtoe.so that \
                 came with this daemon"
            )));
        }
        let hello: Hello = serde_json::from_slice(message).map_err(|e| invalid(format!("this is no hello: {e}")))?;
        let mut found = self.places.iter();
        let found = found.find(|place| hello.host.as_ref().is_none_or(|name| place.section.is_called(name)));
        let place = found.ok_or_else(|| {
            (libc::ENODEV, "this daemon has no such ZeroNIC host: its configuration has [[zeronic]] sections".into())
        })?;
        let peer =
            handover::credentials(socket.as_fd()).map_err(|e| (libc::EACCES, format!("cannot see who asks: {e}")))?;
        place.admit(socket.as_fd(), peer.uid).map_err(|sentence| (libc::EACCES, sentence))?;
        if self.count() >= MOST || reserve::is_short() {
            return Err((libc::EAGAIN, "the daemon serves as many programs as it can: end some first".into()));
        }
        let who = Who { pid: peer.pid.unsigned_abs(), uid: peer.uid, command: printable(&hello.command) };
        tracing::debug!(host = place.section.name, pid = who.pid, "{} uses toe_comm", who.command);
        Ok((place.clone(), who))
    }
}

/// A program.
struct Who {
    pid: u32,
    uid: u32,
    command: String,
}

/// A Linux error number and a sentence.
type Failure = (i32, String);

fn refuse(socket: &OwnedFd, errno: i32, sentence: String) {
    tracing::warn!("a program was refused: {sentence}");
    let answer = serde_json::to_vec(&Answer::Refused(errno, sentence)).unwrap_or_default();
    // It may be gone already.
    let _ = handover::send(socket.as_fd(), &answer, &[]);
}

/// Serves a program until its socket ends.
fn serve(socket: &OwnedFd, place: ZeronicPlace, who: Who) -> Result<(), Failure> {
    let mut service = Service::attach(socket, place, who)?;
    loop {
        service.devices.wait(socket);
        let Ok((message, files)) = handover::recv(socket.as_fd()) else { break };
        if message.is_empty() {
            break;
        }
        let done = service.carry_out(&message, files);
        let (answer, file) = done.unwrap_or_else(|(errno, why)| (Answer::Refused(errno, why), None));
        let answer = serde_json::to_vec(&answer).unwrap_or_default();
        let files: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
        if handover::send(socket.as_fd(), &answer, &files).is_err() {
            break;
        }
    }
    Ok(())
}

struct Service {
    place: ZeronicPlace,
    id: ProgramId,
    domain: Domain,
    space: Option<Arc<AddressSpace>>,
    devices: ProgramDevices,
    /// The eventfd that wakes the host's thread.
    bell: OwnedFd,
}

impl Service {
    fn attach(socket: &OwnedFd, place: ZeronicPlace, who: Who) -> Result<Service, Failure> {
        let broken = |e: io::Error| (libc::ENOMEM, format!("the daemon cannot make shared memory: {e}"));
        let sizes = QueueSizes { send: POSTS, completion: COMPLETIONS, ..QueueSizes::default() };
        let (region, ends) = DaemonQueues::create("opentoe-comm", sizes).map_err(broken)?;
        let (Some(posts), Some(completions)) = (ends.send, ends.completion) else {
            return Err((libc::EINVAL, "the queues have no entries".into()));
        };
        let bell = Doorbell::eventfd().map_err(broken)?;
        let (to_program, of_program) = Doorbell::pair().map_err(broken)?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(broken);
        let domain = place.rdma.domains.draw();
        let daemons = daemon_bell(&region, copy(&bell)?);
        daemons.promise_barrier();
        let program_bell = program_bell(&region, of_program);
        let Who { pid, uid, command } = who;
        let program = NewProgram { pid, command, uid, domain, posts, completions, bell: daemons, program_bell };
        let (index, watched, own) = (place.index, copy(&bell)?, copy(&bell)?);
        let attached = place.handle.ask(move |path| path.attach_zeronic(index, program, watched));
        let id = attached.and_then(|attached| attached).map_err(|why| (libc::ENODEV, why))?;
        // From here on, what goes wrong removes the program again.
        let service = Service { place, id, domain, space: None, devices: ProgramDevices::default(), bell: own };
        let welcome = Answer::Welcome(service.place.section.name.clone());
        let answer = serde_json::to_vec(&welcome).unwrap_or_default();
        handover::send(socket.as_fd(), &answer, &[region.fd(), bell.as_fd(), to_program.as_fd()])
            .map_err(|_| (libc::EPIPE, "the program is gone already".to_string()))?;
        Ok(service)
    }

    /// The answer, and a descriptor that goes with it.
    fn carry_out(&mut self, message: &[u8], files: Vec<OwnedFd>) -> Result<(Answer, Option<OwnedFd>), Failure> {
        let request: Request<Description> = serde_json::from_slice(message)
            .map_err(|e| (libc::EINVAL, format!("this is no request that the daemon understands: {e}")))?;
        let answer = match request {
            Request::HandOver => {
                let [mem] = <[OwnedFd; 1]>::try_from(files)
                    .map_err(|_| (libc::EINVAL, "one descriptor must come along: /proc/self/mem".to_string()))?;
                self.space = Some(Arc::new(AddressSpace::from_fd(mem).map_err(refusal)?));
                Answer::Done
            }
            Request::Register(description) => {
                let made = self.place.table.register(self.domain, &description, &files, self.space.as_ref());
                Answer::Key(made.map_err(refusal)?.0)
            }
            Request::Device => return self.make_device(),
            Request::RegisterDevice { device, address, len } => self.register_device(device, address, len)?,
            Request::Deregister(key) => self.deregister(key)?,
        };
        Ok((answer, None))
    }

    fn make_device(&mut self) -> Result<(Answer, Option<OwnedFd>), Failure> {
        let failed = |e: io::Error| {
            (e.raw_os_error().unwrap_or(libc::ENOMEM), format!("the daemon can make no DMA queue for the program: {e}"))
        };
        let bell = self.bell.try_clone().map_err(failed)?;
        let timeout = u64::from(self.place.section.device_timeout_ms) * 1_000_000;
        let (number, socket) = self.devices.make(&self.place.table, bell, timeout).map_err(failed)?;
        Ok((Answer::Device(number), Some(socket)))
    }

    fn register_device(&mut self, device: u32, address: u64, len: u64) -> Result<Answer, Failure> {
        let unknown = || (libc::EINVAL, format!("the program has no device {device}"));
        let queue = self.devices.queue(device).ok_or_else(unknown)?;
        let made = self.place.table.register_device(self.domain, queue, address, len, Rights::LOCAL_WRITE);
        let key = made.map_err(refusal)?.0;
        self.devices.registered(key, device);
        Ok(Answer::Key(key))
    }

    fn deregister(&mut self, key: u32) -> Result<Answer, Failure> {
        let unknown = |_| (libc::EINVAL, "nothing is registered by this key".to_string());
        self.place.table.revoke(self.domain, Key(key)).map_err(unknown)?;
        // A device's copies end, or the device is lost.
        while !self.place.table.finish(self.domain, Key(key)).map_err(unknown)? {
            thread::sleep(BREATH);
        }
        if !self.devices.deregistered(key) {
            let sentence = "it is registered no more, but its device is lost: what was under way there may go on";
            return Err((libc::EIO, sentence.into()));
        }
        Ok(Answer::Done)
    }
}

fn refusal(refusal: Refusal) -> Failure {
    (refusal.errno(), refusal.to_string())
}

impl Drop for Service {
    /// The program is gone: first its connections, then its memory.
    fn drop(&mut self) {
        let (index, id) = (self.place.index, self.id);
        // Where the thread has ended, the daemon is ending.
        let _ = self.place.handle.ask(move |path| path.detach_zeronic(index, id));
        self.devices.end(&self.place.table);
        while !self.place.table.remove(self.domain) {
            thread::sleep(BREATH);
        }
        self.place.rdma.domains.give_back(self.domain);
    }
}
