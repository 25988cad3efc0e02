//! The service thread of one program that uses queues: it attaches the program, registers its memory, and removes what
//! it had when its socket ends. What waits for the program (reading descriptors) happens here.
use super::devices::ProgramDevices;
use super::seat::{Failure, Seat, Who};
use context::ProgramQueues;
use context::comm::{Answer, COMPLETIONS, POSTS, Request, program_bell};
use context::queues::{DaemonQueues, QueueSizes, daemon_bell};
use memory::{AddressSpace, Description, Domain, Key, Refusal, Rights};
use shm::{Doorbell, handover};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Between two polls of an access that is still under way.
const BREATH: Duration = Duration::from_micros(50);

/// Serves a program until its socket ends.
pub(super) fn serve(socket: &OwnedFd, seat: Box<dyn Seat>, who: Who) -> Result<(), Failure> {
    let mut service = Service::attach(socket, seat, who)?;
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
    seat: Box<dyn Seat>,
    domain: Domain,
    space: Option<Arc<AddressSpace>>,
    devices: ProgramDevices,
    /// The eventfd that wakes the data-path thread.
    bell: OwnedFd,
}

impl Service {
    fn attach(socket: &OwnedFd, mut seat: Box<dyn Seat>, who: Who) -> Result<Service, Failure> {
        let broken = |e: io::Error| (libc::ENOMEM, format!("the daemon cannot make shared memory: {e}"));
        let sizes = QueueSizes { send: POSTS, completion: COMPLETIONS, ..QueueSizes::default() };
        let (region, ends) = DaemonQueues::create("opentoe-queues", sizes).map_err(broken)?;
        let (Some(posts), Some(completions)) = (ends.send, ends.completion) else {
            return Err((libc::EINVAL, "the queues have no entries".into()));
        };
        let bell = Doorbell::eventfd().map_err(broken)?;
        let (to_program, of_program) = Doorbell::pair().map_err(broken)?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(broken);
        let domain = seat.domains().draw();
        let daemons = daemon_bell(&region, copy(&bell)?);
        daemons.promise_barrier();
        let program_bell = program_bell(&region, of_program);
        let queues = ProgramQueues::new(posts, completions, daemons, program_bell);
        let (watched, own) = (copy(&bell)?, copy(&bell)?);
        let attached = seat.attach(who, domain, queues, watched);
        // From here on, what goes wrong removes the program again.
        let service = Service { seat, domain, space: None, devices: ProgramDevices::default(), bell: own };
        let answer = serde_json::to_vec(&attached?).unwrap_or_default();
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
                let made = self.seat.table().register(self.domain, &description, &files, self.space.as_ref());
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
        let none = || (libc::EOPNOTSUPP, "this place has no devices: use a ZeroNIC host".to_string());
        let timeout = self.seat.device_timeout().ok_or_else(none)?;
        let bell = self.bell.try_clone().map_err(failed)?;
        let (number, socket) = self.devices.make(self.seat.table(), bell, timeout).map_err(failed)?;
        Ok((Answer::Device(number), Some(socket)))
    }

    fn register_device(&mut self, device: u32, address: u64, len: u64) -> Result<Answer, Failure> {
        let unknown = || (libc::EINVAL, format!("the program has no device {device}"));
        let queue = self.devices.queue(device).ok_or_else(unknown)?;
        let made = self.seat.table().register_device(self.domain, queue, address, len, Rights::LOCAL_WRITE);
        let key = made.map_err(refusal)?.0;
        self.devices.registered(key, device);
        Ok(Answer::Key(key))
    }

    fn deregister(&mut self, key: u32) -> Result<Answer, Failure> {
        let unknown = |_| (libc::EINVAL, "nothing is registered by this key".to_string());
        self.seat.table().revoke(self.domain, Key(key)).map_err(unknown)?;
        // A device's copies end, or the device is lost.
        while !self.seat.table().finish(self.domain, Key(key)).map_err(unknown)? {
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
        self.seat.detach();
        self.devices.end(self.seat.table());
        while !self.seat.table().remove(self.domain) {
            thread::sleep(BREATH);
        }
        self.seat.domains().give_back(self.domain);
    }
}
