//! Connections of clients: they come by RDMA's connection management to the ports of host programs, and each is
//! given to a thread.
use crate::device::{Channel, Device};
use crate::dma::Host;
use crate::limits::{CONNECTIONS, SLOTS};
use crate::link::{self, Link};
use crate::runner::{Gone, Message, Thread};
use crate::wake::Wake;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use verbs::connections::{Answer, Event, Happened, Parameters, Request, Space};
use verbs::control::{Answer as Answered, NewQp, Request as Control};
use verbs::{Capacities, Number, QpKind, QpNumber, QpState};

/// Requests of clients that may wait for this thread.
const BACKLOG: u32 = 128;
/// Reads and atomics: a client of offload functions may use them, too, but there is no memory for them.
const READS: u8 = 1;
const RETRIES: u8 = 7;

/// All of them.
pub(crate) struct Connections {
    device: Arc<Device>,
    threads: Vec<Thread>,
    gone: Receiver<Gone>,
    wake: Arc<Wake>,
    channel: Channel,
    domain: Number,
    listeners: HashMap<Number, Arc<Host>>,
    open: HashMap<Number, Open>,
}

/// A connection.
struct Open {
    qp: QpNumber,
    thread: usize,
    host: Arc<Host>,
    key: memory::Key,
    ends: bool,
}

impl Connections {
    /// None so far.
    pub(crate) fn new(
        device: Arc<Device>,
        threads: Vec<Thread>,
        gone: Receiver<Gone>,
        wake: Arc<Wake>,
    ) -> io::Result<Connections> {
        let channel = device.channel(&Control::Connections(Request::OpenChannel))?;
        rustix::io::ioctl_fionbio(&channel.pipe, true)?;
        let domain = device.number(&Control::AllocateDomain)?;
        wake.going_to_sleep();
        let (listeners, open) = (HashMap::new(), HashMap::new());
        Ok(Connections { device, threads, gone, wake, channel, domain, listeners, open })
    }

    /// What is readable when [`Connections::poll`] has something to do.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.channel.pipe.as_fd(), self.wake.fd()].into_iter()
    }

    /// Takes in what has happened.
    ///
    /// # Errors
    /// The daemon has gone.
    pub(crate) fn poll(&mut self) -> io::Result<()> {
        self.wake.awake();
        self.wake.going_to_sleep();
        self.take_back();
        let mut events = [0; 64];
        let read = rustix::io::read(&self.channel.pipe, &mut events);
        if matches!(read, Ok(0)) || self.device.is_gone() {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the daemon has gone"));
        }
        while let Answer::Event(Some(Event { id, what })) = self.answer(Request::Event(self.channel.number))? {
            self.happened(id, what);
            // Events may come for as long as clients do: those that have gone make room meanwhile.
            self.take_back();
        }
        Ok(())
    }

    /// Takes in what threads have given back.
    fn take_back(&mut self) {
        while let Ok(gone) = self.gone.try_recv() {
            match gone {
                Gone::Ended(link) => self.destroy(*link),
                Gone::Broken(qp) => self.end(|open| open.qp == qp),
            }
        }
    }

    /// Clients may connect to a host program's port.
    pub(crate) fn listen(&mut self, host: &Arc<Host>) -> io::Result<()> {
        let create = Request::Create { channel: self.channel.number, space: Space::Connections };
        let id = self.device.number(&Control::Connections(create))?;
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, host.port);
        let done = self.answer(Request::Bind { id, address, shared: false });
        let done = done.and_then(|_| self.done(Request::Listen { id, backlog: BACKLOG }));
        if done.is_err() {
            let _ = self.done(Request::Destroy(id));
        } else {
            self.listeners.insert(id, Arc::clone(host));
        }
        done
    }

    /// And no longer: connections of its clients end.
    pub(crate) fn stop(&mut self, host: &Arc<Host>) {
        let mut listeners = self.listeners.iter();
        let found = listeners.find(|(_, of)| Arc::ptr_eq(of, host)).map(|(id, _)| *id);
        if let Some(id) = found {
            self.listeners.remove(&id);
            let _ = self.done(Request::Destroy(id));
        }
        self.end(|open| Arc::ptr_eq(&open.host, host));
    }

    fn happened(&mut self, id: Number, what: Happened) {
        match what {
            Happened::Requested { listener, parameters, .. } => {
                if let Err(error) = self.accept(id, listener, &parameters) {
                    eprintln!("opentoe-offload: a client was refused: {error}");
                    let _ = self.done(Request::Reject { id, data: Vec::new() });
                    let _ = self.done(Request::Destroy(id));
                }
            }
            Happened::Established(_) | Happened::TimeWaitOver => {}
            // Ended by the client, or never finished.
            _ => {
                let qp = self.open.get(&id).map(|open| open.qp);
                self.end(|open| Some(open.qp) == qp);
            }
        }
    }

    fn accept(&mut self, id: Number, listener: Number, parameters: &Parameters) -> io::Result<()> {
        let host = Arc::clone(self.listeners.get(&listener).ok_or(io::ErrorKind::NotFound)?);
        let thread = (0..self.threads.len()).min_by_key(|at| self.threads[*at].links).unwrap_or(0);
        if self.threads[thread].links >= CONNECTIONS {
            return Err(io::Error::other("there are as many connections as may be"));
        }
        let memory = link::memory()?;
        let key = self.device.register(self.domain, &memory)?;
        let capacities = Capacities {
            send: SLOTS as u32,
            receive: SLOTS as u32,
            send_pieces: 1,
            receive_pieces: 1,
            ..Capacities::default()
        };
        let (domain, cq) = (self.domain, self.threads[thread].cq);
        let new =
            NewQp { kind: QpKind::Rc, domain, send_cq: cq, receive_cq: cq, srq: None, capacities, signals_all: false };
        let made = match self.device.qp(new) {
            Ok(made) => made,
            Err(error) => {
                let _ = self.device.ask(&Control::Deregister(key), &[]);
                return Err(error);
            }
        };
        let qp = made.qp;
        let link = Link::new(made, Arc::clone(&host), memory, key);
        self.open.insert(id, Open { qp, thread, host, key, ends: false });
        self.threads[thread].links += 1;
        // Before the client is accepted: its first request may come at once.
        self.threads[thread].send(Message::Link(Box::new(link)));
        self.make_ready(id, qp, parameters).inspect_err(|_| self.end(|open| open.qp == qp))
    }

    /// Takes a queue pair to the state ready to send, and accepts.
    fn make_ready(&self, id: Number, qp: QpNumber, parameters: &Parameters) -> io::Result<()> {
        for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
            let request = Control::Connections(Request::Attributes { id, state });
            let Answered::Attributes(attributes) = self.device.ask(&request, &[])?.0 else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            self.device.ask(&Control::ModifyQp { qp, attributes }, &[])?;
        }
        let parameters = Parameters {
            responder_resources: parameters.responder_resources.min(READS),
            initiator_depth: parameters.initiator_depth.min(READS),
            retries: RETRIES,
            rnr_retries: RETRIES,
            qp,
            ..Parameters::default()
        };
        self.done(Request::Accept { id, parameters })
    }

    /// Ends connections: their threads give them back once their calls have ended.
    fn end(&mut self, which: impl Fn(&Open) -> bool) {
        for open in self.open.values_mut().filter(|open| !open.ends && which(open)) {
            open.ends = true;
            self.threads[open.thread].send(Message::End(open.qp));
        }
    }

    /// A thread has given a connection back.
    fn destroy(&mut self, link: Link) {
        let qp = link.qp;
        drop(link);
        let Some(id) = self.open.iter().find(|(_, open)| open.qp == qp).map(|(id, _)| *id) else { return };
        let Some(open) = self.open.remove(&id) else { return };
        self.threads[open.thread].links -= 1;
        // Fails where the client has disconnected.
        let _ = self.done(Request::Disconnect(id));
        self.forget(qp, open.key);
        let _ = self.done(Request::Destroy(id));
    }

    fn forget(&self, qp: QpNumber, key: memory::Key) {
        let _ = self.device.ask(&Control::DestroyQp(qp), &[]);
        let _ = self.device.ask(&Control::Deregister(key), &[]);
    }

    fn done(&self, request: Request) -> io::Result<()> {
        self.device.ask(&Control::Connections(request), &[]).map(drop)
    }

    fn answer(&self, request: Request) -> io::Result<Answer> {
        match self.device.ask(&Control::Connections(request), &[])?.0 {
            Answered::Connections(answer) => Ok(answer),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
