//! Test network: hosts joined by a list, in virtual time, and applications attached by real contexts.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod families;
pub(crate) mod programs;
pub(crate) mod recording;
pub(crate) mod sockets;
pub(crate) mod splice_lab;
pub(crate) mod splicer;
pub(crate) mod takeover;
pub(crate) mod unknown_peers;

use context::{AppEnd, Congestion, Endpoint, Reply, Request, Slot, daemon_ends};
use control::{Application, ContextId, Host, HostConfig, MemoryConfig};
use engine::stream::Stream;
use engine::{Engine, Nanos, Worker};
use port::{Capabilities, Frame, FramePool};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use shm::Doorbell;
use std::net::Ipv4Addr;
use std::sync::Arc;
use wire::{IpAddress, Mac, ethernet};

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1000 * MS;

/// So many cases of a property: the same ones in each run, others where `PROPTEST_RNG_SEED` is set. The seed stands in
/// the output of a test that fails.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let rng_seed = if config.rng_seed == RngSeed::Random { RngSeed::Fixed(17) } else { config.rng_seed };
    println!("PROPTEST_RNG_SEED={rng_seed}");
    ProptestConfig { rng_seed, ..config }
}

/// Decides whether a frame from a node gets through.
pub(crate) type Filter = Box<dyn FnMut(usize, &Frame) -> bool>;

pub(crate) struct Node {
    pub host: Host,
    pub ip: Ipv4Addr,
    pub mac: Mac,
    pub inbox: Vec<Box<Frame>>,
    pub pool: FramePool,
    /// Modules that have threads of their own; here they run in turn.
    pub workers: Vec<Box<dyn Worker>>,
}

pub(crate) struct Net {
    pub now: Nanos,
    pub nodes: Vec<Node>,
    pub filter: Filter,
    /// Frames that left any node: (from, bytes).
    pub seen: Vec<(usize, Vec<u8>)>,
}

pub(crate) fn ip_of(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + node as u8)
}

pub(crate) fn mac_of(node: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, 1 + node as u8])
}

pub(crate) fn config(node: usize) -> HostConfig {
    let memory = MemoryConfig {
        slots: 64,
        data_entries: 256,
        control_entries: 256,
        rx_bytes: 65_536,
        tx_bytes: 65_536,
        long_path_bytes: 0,
        most_bytes: 0,
        context_bytes: 0,
        small_bytes: 0,
        log_bytes: 0,
        heap_bytes: 0,
        placed_connections: 0,
        cached_buffers: 8,
    };
    HostConfig {
        name: format!("h{node}"),
        address: ip_of(node).into(),
        max_flows: 128,
        memory,
        ..HostConfig::default()
    }
}

pub(crate) const CAPS: Capabilities = Capabilities { mtu: 1500, super_segment: 0, checksum: false };

impl Net {
    /// Hosts with the configurations given, each with an engine made by `engine`.
    pub(crate) fn new(
        configs: Vec<HostConfig>,
        engine: impl FnMut(usize, &HostConfig) -> Box<dyn Engine<Stream>>,
    ) -> Net {
        Net::with_ports(configs, CAPS, engine)
    }

    /// The same with ports that offer this.
    pub(crate) fn with_ports(
        configs: Vec<HostConfig>,
        offer: Capabilities,
        mut engine: impl FnMut(usize, &HostConfig) -> Box<dyn Engine<Stream>>,
    ) -> Net {
        let nodes = configs.into_iter().enumerate().map(|(at, config)| {
            let (ip, engine) = (ip_of(at), engine(at, &config));
            let links = vec![config.link(mac_of(at), offer)];
            let mut host = control::host(config, links, engine, [at as u8; 16]).unwrap();
            let workers = host.workers();
            Node { host, ip, mac: mac_of(at), inbox: Vec::new(), pool: FramePool::new(256), workers }
        });
        Net { now: SECOND, nodes: nodes.collect(), filter: Box::new(|_, _| true), seen: Vec::new() }
    }

    /// One round of every host; returns how much was done.
    pub(crate) fn round(&mut self) -> usize {
        let mut done = 0;
        let mut sent: Vec<(usize, Box<Frame>)> = Vec::new();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let mut tx = Vec::new();
            done += node.host.poll(self.now, &mut node.inbox, &mut tx, &mut node.pool);
            done += node.workers.iter_mut().map(|worker| worker.poll(self.now)).sum::<usize>();
            assert!(node.inbox.is_empty(), "a host drains what it receives");
            sent.extend(tx.into_iter().map(|frame| (at, frame)));
        }
        done += sent.len();
        for (from, frame) in sent {
            self.deliver(from, frame);
        }
        done
    }

    fn deliver(&mut self, from: usize, mut frame: Box<Frame>) {
        frame.complete_checksum();
        self.seen.push((from, frame.bytes().to_vec()));
        if !(self.filter)(from, &frame) {
            return;
        }
        let dst = ethernet::Header::parse(frame.bytes()).unwrap().dst;
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if at != from && (dst == node.mac || dst.is_group()) {
                node.inbox.push(copy(&frame, &mut node.pool));
            }
        }
    }

    /// Puts a frame before a host.
    pub(crate) fn inject(&mut self, to: usize, bytes: &[u8]) {
        let node = &mut self.nodes[to];
        let mut frame = node.pool.large();
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        node.inbox.push(frame);
    }

    /// Runs without time passing until nothing happens any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            let waiting = self.nodes.iter().any(|node| !node.inbox.is_empty());
            if self.round() == 0 && !waiting {
                return;
            }
        }
        panic!("the hosts do not become idle");
    }

    /// Runs for a time, jumping from deadline to deadline.
    pub(crate) fn run_for(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = self.nodes.iter().filter_map(|node| node.host.next_deadline()).min();
            match next {
                Some(next) if next <= end => self.now = next.max(self.now + 1),
                _ => break,
            }
        }
        self.now = end;
        self.settle();
    }

    /// Runs until a condition holds, for at most a time.
    pub(crate) fn run_until(&mut self, most: Nanos, mut done: impl FnMut(&mut Net) -> bool) {
        let end = self.now + most;
        loop {
            self.settle();
            if done(self) {
                return;
            }
            let next = self.nodes.iter().filter_map(|node| node.host.next_deadline()).min();
            self.now = next.unwrap_or(self.now + MS).clamp(self.now + 1, self.now + MS);
            assert!(self.now <= end, "it did not happen in time");
        }
    }

    pub(crate) fn attach(&mut self, node: usize) -> App {
        self.attach_as(node, 0, None).unwrap()
    }

    pub(crate) fn attach_as(&mut self, node: usize, uid: u32, token: Option<u64>) -> Result<App, String> {
        let command = format!("app{node}");
        let application = Application { pid: 100 + node as u32, uid, gid: uid, command, loopback: true };
        self.attach_application(node, application, token)
    }

    pub(crate) fn attach_application(
        &mut self,
        node: usize,
        application: Application,
        token: Option<u64>,
    ) -> Result<App, String> {
        let host = &mut self.nodes[node].host;
        let geometry = host.base().geometry();
        let region = Arc::new(geometry.create_region("test").unwrap());
        let (app_bell, daemon_bell) = (Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap());
        let (app_bell2, daemon_bell2) = (app_bell.try_clone().unwrap(), daemon_bell.try_clone().unwrap());
        let ends = daemon_ends(&region, geometry, app_bell, daemon_bell);
        let id = host.use_base(self.now, |tcp, context| tcp.attach(context, application, ends, token))?;
        let end = AppEnd::new(region, geometry, app_bell2, daemon_bell2).unwrap();
        Ok(App { node, id, end, replies: Vec::new(), tag: 0 })
    }

    /// Count of a drop reason on a host.
    pub(crate) fn drops(&self, node: usize, reason: engine::DropReason) -> u64 {
        self.nodes[node].host.drops().get(reason)
    }

    /// Nothing is left: no connection, application or address.
    pub(crate) fn assert_empty(&self) {
        for node in &self.nodes {
            assert_eq!(node.host.base().flows(), vec![]);
            assert_eq!(node.host.base().bindings(), vec![]);
            assert_eq!(node.host.base().contexts(), vec![]);
        }
    }

    /// States of a host's connections.
    pub(crate) fn states(&self, node: usize) -> Vec<&'static str> {
        self.nodes[node].host.base().flows().iter().map(|flow| flow.state).collect()
    }

    /// All go, and after a while nothing is left of them.
    pub(crate) fn end_all(&mut self, apps: Vec<App>) {
        for app in apps {
            self.nodes[app.node].host.use_base(self.now, |tcp, context| tcp.detach(context, app.id));
        }
        self.run_for(1000 * SECOND);
        self.assert_empty();
        let pending: Vec<_> = self.nodes.iter().map(|node| node.host.next_deadline()).collect();
        assert!(pending.iter().all(Option::is_none), "timers are left: {pending:?}");
        for node in &self.nodes {
            let left: Vec<_> = node.host.base().tables().into_iter().filter(|(_, size)| *size > 0).collect();
            assert_eq!(left, []);
        }
    }
}

pub(crate) fn copy(frame: &Frame, pool: &mut FramePool) -> Box<Frame> {
    let mut to = pool.large();
    to.resize(frame.bytes().len());
    to.bytes_mut().copy_from_slice(frame.bytes());
    to.segment_size = frame.segment_size;
    to
}

/// An application's side of a context.
pub(crate) struct App {
    pub node: usize,
    pub id: ContextId,
    pub end: AppEnd,
    pub replies: Vec<Reply>,
    tag: u32,
}

impl App {
    pub(crate) fn ask(&mut self, request: Request) {
        self.end.requests.push(request.to_words()).unwrap();
    }

    fn drain(&mut self) {
        while let Some(words) = self.end.replies.pop().unwrap() {
            self.replies.push(Reply::from_words(words).unwrap());
        }
    }

    /// Takes the first reply of which `pick` makes something.
    pub(crate) fn find<T>(&mut self, mut pick: impl FnMut(&Reply) -> Option<T>) -> Option<T> {
        self.drain();
        let (at, value) = self.replies.iter().enumerate().find_map(|(at, reply)| Some((at, pick(reply)?)))?;
        self.replies.remove(at);
        Some(value)
    }

    pub(crate) fn expect<T>(&mut self, pick: impl FnMut(&Reply) -> Option<T>) -> T {
        match self.find(pick) {
            Some(value) => value,
            None => panic!("no such reply among {:?}", self.replies),
        }
    }

    pub(crate) fn no_replies(&mut self) {
        self.drain();
        assert_eq!(self.replies, vec![]);
    }

    pub(crate) fn next_tag(&mut self) -> u32 {
        self.tag += 1;
        self.tag
    }

    /// Binds; gives the binding and the address, or the error.
    pub(crate) fn bind(
        &mut self,
        net: &mut Net,
        port: u16,
        address: bool,
        reuse_port: bool,
    ) -> Result<(u32, Endpoint), u16> {
        let tag = self.next_tag();
        let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, port);
        self.ask(Request::Bind { tag, local, reuse_address: address, reuse_port, dual_stack: false });
        net.settle();
        self.expect(|reply| match *reply {
            Reply::Bound { tag: of, binding, local } if of == tag => Some(Ok((binding, local))),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    }

    pub(crate) fn listen(&mut self, net: &mut Net, binding: u32, backlog: u32) -> Result<(), u16> {
        let tag = self.next_tag();
        self.ask(Request::Listen { tag, binding, backlog });
        net.settle();
        self.expect(|reply| match *reply {
            Reply::Done { tag: of } if of == tag => Some(Ok(())),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    }

    /// Listens on a port with an armed context.
    pub(crate) fn serve(&mut self, net: &mut Net, port: u16) -> u32 {
        let (binding, _) = self.bind(net, port, true, false).unwrap();
        self.listen(net, binding, 16).unwrap();
        self.arm(net, binding, 16);
        binding
    }

    pub(crate) fn arm(&mut self, net: &mut Net, binding: u32, credits: u32) {
        self.ask(Request::Arm { binding, credits });
        net.settle();
    }

    /// Starts to connect; gives the tag.
    pub(crate) fn connect(&mut self, ip: impl Into<IpAddress>, port: u16, binding: u32) -> u32 {
        let tag = self.next_tag();
        let remote = Endpoint::new(ip.into(), port);
        self.ask(Request::Connect {
            tag,
            binding,
            remote,
            congestion: Congestion::DEFAULT,
            mss: 0,
            early: context::EarlyData::No,
        });
        tag
    }

    /// What came of a connection attempt, if something did.
    pub(crate) fn connected(&mut self, tag: u32) -> Option<Result<Slot, u16>> {
        self.find(|reply| match *reply {
            Reply::Connected { tag: of, slot, .. } if of == tag => Some(Ok(slot)),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    }

    /// Accepts a connection.
    pub(crate) fn accepted(&mut self) -> Option<Slot> {
        let slot = self.offered()?;
        assert!(self.end.accept(slot), "it was taken back");
        Some(slot)
    }

    /// A connection that waits to be accepted.
    pub(crate) fn offered(&mut self) -> Option<Slot> {
        self.find(|reply| if let Reply::Accept { slot, .. } = *reply { Some(slot) } else { None })
    }

    /// A connection that went to another program before it was accepted.
    pub(crate) fn taken_back(&mut self) -> Option<Slot> {
        self.find(|reply| if let Reply::Unaccept { slot, .. } = *reply { Some(slot) } else { None })
    }

    pub(crate) fn freed(&mut self) -> Option<Slot> {
        self.find(|reply| if let Reply::Freed { slot } = *reply { Some(slot) } else { None })
    }

    pub(crate) fn error(&mut self) -> Option<(Slot, u16)> {
        self.find(|reply| if let Reply::Error { slot, errno } = *reply { Some((slot, errno)) } else { None })
    }

    pub(crate) fn close(&mut self, slot: Slot, tx_head: u32, rx_head: u32, abort: bool) {
        self.ask(Request::Close { slot, tx_head, rx_head, abort });
    }

    pub(crate) fn fork(&mut self, net: &mut Net) -> u64 {
        let tag = self.next_tag();
        self.ask(Request::Fork { tag });
        net.settle();
        self.expect(|reply| if let Reply::Forked { token, .. } = *reply { Some(token) } else { None })
    }

    /// Passes a connection, or otherwise a local address; gives the token.
    pub(crate) fn pass(&mut self, net: &mut Net, slot: Option<Slot>, binding: u32) -> Result<u64, u16> {
        let tag = self.next_tag();
        self.ask(Request::Pass { tag, slot, binding });
        net.settle();
        self.expect(|reply| match *reply {
            Reply::Forked { tag: of, token } if of == tag => Some(Ok(token)),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    }

    /// Adopts what was passed; gives the home of a connection and the number of a local address.
    pub(crate) fn adopt(&mut self, net: &mut Net, token: u64) -> Result<(Option<(u32, Slot)>, u32), u16> {
        let tag = self.next_tag();
        self.ask(Request::Adopt { tag, token });
        net.settle();
        self.expect(|reply| match *reply {
            Reply::Adopted { tag: of, home, binding } if of == tag => Some(Ok((home, binding))),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    }

    pub(crate) fn claim(&mut self, net: &mut Net, context: ContextId, slot: Slot) -> Result<Slot, u16> {
        let tag = self.next_tag();
        self.ask(Request::Claim { tag, context: context.0, slot });
        net.settle();
        self.expect(|reply| match *reply {
            Reply::Claimed { tag: of, slot, .. } if of == tag => Some(Ok(slot)),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    }
}
