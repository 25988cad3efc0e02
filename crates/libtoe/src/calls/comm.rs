//! Asynchronous sends and receives in place: the program's end of a ZeroNIC host (`context::comm`, docs/ZERONIC.md).
use super::attached::{Attached, Event, of};
use crate::daemon::attach::command_line;
use crate::system::errno::Result;
use context::comm::{Answer, Completion, Hello, Order, Post, Request, VERSION};
use context::queues::COMPLETION_WORDS;
use cuda::DeviceMemory;
use libc::c_int;
use memory::DmaServer;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

/// `struct toe_comm_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommEvent {
    what: u32,
    connection: u32,
    id: u64,
    value: u64,
}

impl Event for CommEvent {
    fn of(words: [u64; COMPLETION_WORDS]) -> Option<CommEvent> {
        let Completion { outcome, id, connection, value } = Completion::from_words(words)?;
        Some(CommEvent { what: outcome as u32, connection, id, value })
    }
}

/// A program's place on a ZeroNIC host.
pub(crate) struct Comm {
    attached: Attached,
    /// Contexts of CUDA whose memory is registered, and the devices that they are here.
    contexts: Vec<(usize, u32)>,
    /// Behind the socket, with whose end their queues end.
    servers: Servers,
}

/// Threads that serve queues of devices. They have ended when this is dropped.
#[derive(Default)]
struct Servers(Vec<JoinHandle<()>>);

impl Drop for Servers {
    fn drop(&mut self) {
        // A thread that has panicked serves no more, either.
        self.0.drain(..).for_each(|server| drop(server.join()));
    }
}

impl Comm {
    /// Attaches to the ZeroNIC host of this name, or the daemon's first one.
    pub(crate) fn open(host: Option<String>) -> Result<Comm> {
        let hello = Hello { comm: VERSION, host, command: command_line() };
        let (attached, answer) = Attached::open(&hello)?;
        match answer {
            Answer::Welcome(_) => Ok(Comm { attached, contexts: Vec::new(), servers: Servers::default() }),
            _ => Err(libc::EPROTO),
        }
    }

    /// Readable when a completion has come, once [`Comm::take`] has found none.
    pub(crate) fn fd(&self) -> c_int {
        self.attached.fd()
    }

    /// Makes a device; returns its number, and the socket for whoever serves its queue.
    pub(crate) fn device(&mut self) -> Result<(u32, OwnedFd)> {
        match self.attached.ask_for_files(&Request::Device, &[])? {
            (Answer::Device(number), files) => {
                let [queue] = <[OwnedFd; 1]>::try_from(files).map_err(|_| libc::EPROTO)?;
                Ok((number, queue))
            }
            _ => Err(libc::EPROTO),
        }
    }

    /// Registers a device's memory; returns its key.
    pub(crate) fn register_device(&mut self, device: u32, address: u64, len: u64) -> Result<u32> {
        match self.attached.ask(&Request::RegisterDevice { device, address, len }, &[])? {
            Answer::Key(key) => Ok(key),
            _ => Err(libc::EPROTO),
        }
    }

    /// Registers memory; returns its key.
    pub(crate) fn register(&mut self, address: u64, len: u64) -> Result<u32> {
        if let Some(found) = DeviceMemory::find(address, len) {
            let device = self.device_of(&found?)?;
            return self.register_device(device, address, len);
        }
        self.attached.register(address, len)
    }

    /// The device that a context's memory is, with a thread that serves its queue.
    fn device_of(&mut self, memory: &DeviceMemory) -> Result<u32> {
        let known = self.contexts.iter().find(|(context, _)| *context == memory.context());
        if let Some((_, device)) = known {
            return Ok(*device);
        }
        let (device, queue) = self.device()?;
        let queue = DmaServer::open(queue).map_err(of)?;
        self.servers.0.push(memory.serve(queue).map_err(of)?);
        self.contexts.push((memory.context(), device));
        Ok(device)
    }

    /// Ends a registration: afterwards no byte of it is touched.
    pub(crate) fn deregister(&mut self, key: u32) -> Result<()> {
        self.attached.deregister(key)
    }

    /// Posts.
    pub(crate) fn post(&mut self, id: u64, connection: u32, order: Order) -> Result<()> {
        self.attached.post(Post { id, connection, order }.to_words())
    }

    /// Takes completions. Where there are fewer than asked for, the descriptor is readable when the next one comes.
    pub(crate) fn take(&mut self, list: &mut [CommEvent]) -> usize {
        self.attached.take(list)
    }

    /// As [`Comm::take`], after waiting for the first one; at most `timeout` milliseconds where that is not negative.
    pub(crate) fn wait(&mut self, list: &mut [CommEvent], timeout: c_int) -> Result<usize> {
        self.attached.wait(list, timeout)
    }
}
