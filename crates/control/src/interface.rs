//! The owner's interface to a host's TCP, beside polling: applications, views, modules, handover.
use crate::config::HostConfig;
use crate::contexts::Application;
use crate::counters::Counters;
use crate::flow_view::{FlowPage, FlowTotals, FlowView};
use crate::handover::{self, HostState};
use crate::journal::Records;
use crate::offers::Offers;
use crate::outbox::Queues;
use crate::plane::{ControlPlane, ShownTicket};
use crate::splice::SpliceTable;
use crate::tcp_config::TcpConfig;
use crate::timers::MILLISECOND;
use crate::transport::Tcp;
use crate::view::{BindingView, ContextView, LabelView};
use ::host::{Link, NeighbourTable, NeighbourTiming, Net, NetConfig, NetContext, RouteTable};
use context::attach::{SurvivingConnection, Ticket};
use context::{ControlEnd, EngineEnd, Geometry, Slot};
use engine::stream::{FourTuple, Stream};
use engine::{Command, ContextId, Engine, FlowId, LoadedModule, Nanos, ProgramSource, Registers};
use port::TcpPorts;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use wire::ipv6::LEAST_MTU;

/// A host with TCP.
pub type Host = ::host::Host<Tcp>;

/// A host with TCP on ports, the first of which has the configured address ([`HostConfig::link`]). The secret makes its
/// numbers unguessable; a simulation passes a fixed one.
///
/// # Errors
/// A sentence, where the configuration cannot be.
pub fn host(
    config: HostConfig,
    links: Vec<Link>,
    engine: Box<dyn Engine<Stream>>,
    secret: [u8; 16],
) -> Result<Host, String> {
    config.validate()?;
    let v6 = engine.features().transport.v6;
    // Meets RFC 8200: 5-a.
    let short = links.iter().find(|link| link.v6.is_some() && link.caps.mtu < LEAST_MTU);
    if let Some(link) = short {
        let (name, mtu) = (&config.name, link.caps.mtu);
        return Err(format!("host {name}: IPv6 needs packets of {LEAST_MTU} bytes, and a port of it carries {mtu}"));
    }
    if config.ipv6.address.is_some() && !v6 {
        return Err(format!("host {}: its engine does not carry IPv6: leave ipv6.address out", config.name));
    }
    let tcp = Tcp::new(config.clone(), &links, engine, secret);
    let mut net = Net::new(net_config(&config, links));
    if config.loopback {
        net.set_loopback(tcp.queues.random.loopback_mac(), v6);
    }
    Ok(Host::with_base(net, tcp))
}

/// The host's place in the network, as its configuration has it.
fn net_config(config: &HostConfig, links: Vec<Link>) -> NetConfig {
    // Of routers that advertise themselves, the network layer has a list.
    let gateway6 = config.ipv6.gateway.filter(|_| !config.ipv6.auto);
    NetConfig {
        routes: Box::new(RouteTable::new(&links, &[config.gateway, gateway6], &config.routes)),
        links,
        neighbours: Box::new(NeighbourTable::new(
            config.limits.arp_entries,
            NeighbourTiming {
                reachable: config.timers.arp_reachable_ms as Nanos * MILLISECOND,
                retry: config.timers.arp_retry_ms as Nanos * MILLISECOND,
                tries: config.timers.arp_tries,
            },
        )),
        icmp_per_s: config.limits.icmp_per_s,
    }
}

impl Tcp {
    fn new(mut config: HostConfig, links: &[Link], engine: Box<dyn Engine<Stream>>, secret: [u8; 16]) -> Tcp {
        let features = engine.features().transport;
        config.memory = config.memory.on(&features);
        let mut queues = Queues::new(config, secret);
        let mut plane = ControlPlane::new(&mut queues, links, features.carries);
        plane.set_features(&features);
        Tcp::of(plane, queues, engine)
    }

    /// Why the engine's data-path runs no more, in a sentence.
    pub fn failure(&self) -> Option<String> {
        self.engine.failure()
    }

    /// From now on, another stack has the same addresses: no application gets a port of that one's.
    pub fn share_ports(&mut self, ports: Arc<TcpPorts>) {
        self.plane.share_ports(ports);
    }

    /// Connections that begin from now on have these options, and receive so.
    pub fn set_tcp(&mut self, tcp: TcpConfig) {
        self.plane.set_tcp(tcp);
    }

    /// Connections that begin from now on offer and accept this, as far as the engine carries it.
    pub fn set_offers(&mut self, offers: Offers) {
        self.plane.set_offers(offers);
    }

    /// Forgets what earlier connections learned of peers for later ones: their Fast Open cookies (RFC 7413).
    pub fn forget_peers(&mut self) {
        self.plane.forget_peers(&self.queues.config);
    }

    /// An application attaches with the daemon's ends of its region. With the token of a fork, it shares what its
    /// parent had. Fails with a sentence.
    pub fn attach(
        &mut self,
        context: NetContext<'_>,
        application: Application,
        ends: (EngineEnd, ControlEnd),
        token: Option<u64>,
    ) -> Result<ContextId, String> {
        let (plane, mut out) = self.parts(context);
        plane.attach(&mut out, application, ends.0, ends.1, token)
    }

    /// The process of a context is gone: its sockets are closed as the kernel closes those of a process that ends.
    pub fn detach(&mut self, context: NetContext<'_>, id: ContextId) {
        let (plane, mut out) = self.parts(context);
        plane.detach(&mut out, id);
    }

    /// The region of a context, for another one that has a share of a connection whose buffers are there.
    ///
    /// # Errors
    /// There is none, or no descriptor is left.
    pub fn region_for(&self, asks: ContextId, of: ContextId) -> std::io::Result<(OwnedFd, Geometry)> {
        self.plane.region_for(asks, of)
    }

    /// The ticket of a listener that a context has, for the next daemon; not sealed yet.
    pub fn ticket(&mut self, context: NetContext<'_>, id: ContextId, binding: u32) -> Option<Ticket> {
        let (plane, mut out) = self.parts(context);
        plane.ticket(&mut out, id, binding)
    }

    /// A context listens again with a ticket; gives the binding.
    ///
    /// # Errors
    /// A Linux error number.
    pub fn listen_again(
        &mut self,
        context: NetContext<'_>,
        id: ContextId,
        ticket: &ShownTicket,
        backlog: u32,
    ) -> Result<u32, i32> {
        let (plane, out) = self.parts(context);
        plane.listen_again(&out, id, ticket, backlog)
    }

    /// From now on each connection has a record there, so that the next daemon can go on with it (docs/RESTART.md).
    /// Those that an earlier daemon left wait for their programs, for a few seconds; returns how many.
    pub fn keep_records(&mut self, context: NetContext<'_>, records: Box<dyn Records>) -> usize {
        let (plane, mut out) = self.parts(context);
        plane.keep_records(&mut out, records)
    }

    /// An earlier daemon left connections that are in this region ([`shm::Region::number`]).
    pub fn has_survivors_in(&self, region: u64) -> bool {
        self.plane.has_survivors_in(region)
    }

    /// Connections of an earlier daemon go on, in the region that their context came back with. Returns those that do.
    pub fn go_on_with(&mut self, context: NetContext<'_>, id: ContextId, kept: &[SurvivingConnection]) -> Vec<Slot> {
        let (plane, mut out) = self.parts(context);
        plane.go_on_with(&mut out, id, kept)
    }

    /// Nothing is in the middle of something that takes several rounds: it may be stopped.
    pub fn is_settled(&self) -> bool {
        self.plane.is_settled()
    }

    /// Stops: from now on nothing is received or taken from applications. Poll the host until [`Tcp::is_stopped`].
    pub fn stop(&mut self) {
        self.plane.stop(&mut self.queues.commands);
    }

    /// The engine has given up everything.
    pub fn is_stopped(&self) -> bool {
        self.queues.commands.is_empty() && self.plane.is_stopped()
    }

    /// The host's state, for another daemon. The host has stopped.
    pub fn state(&self, now: Nanos, net: &Net) -> HostState {
        let engine = (self.engine.name().into(), self.engine.features().transport.carries);
        self.plane.state(now, net, &self.queues, engine)
    }

    /// The descriptors of a context: its region, this side's end of its doorbell, and this side's own doorbell.
    pub fn descriptors(&self, context: ContextId) -> Option<[BorrowedFd<'_>; 3]> {
        self.plane.contexts().get(context.0).map(|context| context.end.descriptors())
    }

    /// A stopped host goes on: no daemon took it over.
    pub fn go_on(&mut self, context: NetContext<'_>) {
        let (plane, mut out) = self.parts(context);
        plane.go_on(&mut out);
    }

    /// A fresh host becomes one that another daemon stopped, with the ends of its contexts. The clock goes on from that
    /// daemon's. Fails with a sentence; then this host is of no use.
    pub fn restore(
        &mut self,
        context: NetContext<'_>,
        state: HostState,
        ends: HashMap<ContextId, (EngineEnd, ControlEnd)>,
    ) -> Result<(), String> {
        let name = self.queues.config.name.clone();
        let links = handover::own_addresses(context.net);
        let addresses = links.iter().map(|(address, _)| *address);
        if addresses.eq(state.links.iter().map(|(address, _)| *address)) && links != state.links {
            return Err(format!(
                "host {name}: its device has another hardware address than the one of the daemon that runs, as a device \
                 has that was deleted and made again: end that daemon and start this one"
            ));
        }
        if links != state.links || state.geometry() != self.geometry() {
            return Err(format!(
                "host {name}: address, hardware address or memory are not those of the daemon that runs: they cannot change"
            ));
        }
        // A connection keeps the options that it began with.
        if state.engine != (self.engine.name().to_string(), self.engine.features().transport.carries) {
            return Err(format!(
                "host {name}: it runs engine {} with other TCP options than this configuration's {}: the engine cannot change",
                state.engine.0,
                self.engine.name()
            ));
        }
        let (plane, mut out) = self.parts(context);
        plane.restore(&mut out, state, ends).map_err(|sentence| format!("host {name}: {sentence}"))
    }

    /// The descriptor of a context's doorbell, to sleep on.
    pub fn bell(&self, context: ContextId) -> Option<BorrowedFd<'_>> {
        self.plane.contexts().get(context.0).map(|context| context.end.daemon_bell.fd())
    }

    /// The splice module of the data-path was loaded, or unloaded. In the second case, the control plane passes on what
    /// is spliced, and nothing more is spliced.
    pub fn set_splice_table(&mut self, table: Option<Box<dyn SpliceTable>>) {
        self.plane.set_splice_table(table);
    }

    /// The addresses of a flow.
    pub fn tuple(&self, flow: FlowId) -> Option<FourTuple> {
        self.plane.flows().get(flow.0).map(|flow| flow.tuple.get())
    }

    /// Connections may be over IPv6.
    pub fn speaks_v6(&self) -> bool {
        self.engine.features().transport.v6
    }

    /// It sends and receives urgent data.
    pub fn has_urgent_data(&self) -> bool {
        self.engine.features().transport.urgent
    }

    /// Its configuration, as far as its engine goes along with it.
    pub fn config(&self) -> &HostConfig {
        &self.queues.config
    }

    /// Sizes of the regions that applications get.
    pub fn geometry(&self) -> Geometry {
        self.queues.config.memory.geometry()
    }

    /// `flextoe`, ...
    pub fn engine_name(&self) -> &'static str {
        self.engine.name()
    }

    /// All connections: for hosts with few of them. See [`Tcp::flow_page`].
    pub fn flows(&self) -> Vec<FlowView> {
        self.plane.tables().flow_page(0, usize::MAX).flows
    }

    /// At most `most` connections from place `from` on; 0 is the first place, [`FlowPage::next`] names later ones.
    pub fn flow_page(&self, from: u64, most: usize) -> FlowPage {
        self.plane.tables().flow_page(from, most)
    }

    /// Adds up at most `most` connections from place `from` on; returns where to go on, none after the last one.
    pub fn add_up(&self, totals: &mut FlowTotals, from: u64, most: usize) -> Option<u64> {
        self.plane.tables().add_up(totals, from, most)
    }

    /// A connection that the engine runs, by its number there.
    pub fn flow(&self, flow: FlowId) -> Option<FlowView> {
        self.plane.tables().flow_view(flow)
    }

    /// Connections that are installed in the engine or have a name in an application.
    pub fn flow_count(&self) -> usize {
        self.plane.flows().len()
    }

    /// All attached applications.
    pub fn contexts(&self) -> Vec<ContextView> {
        self.plane.contexts().views()
    }

    /// All reserved local addresses.
    pub fn bindings(&self) -> Vec<BindingView> {
        self.plane.bindings().views()
    }

    /// All labels that an application gave its descriptors, also of those that it has closed; none where it is not
    /// attached.
    pub fn labels(&self, pid: u32) -> Option<Vec<LabelView>> {
        self.plane.contexts().label_views(pid)
    }

    /// Sums over the connections that are over.
    pub fn counters(&self) -> &Counters {
        &self.queues.counters
    }

    /// Adds what at most `most` connections from place `from` on counted so far; returns where to go on.
    pub fn add_to_ledger(&self, counters: &mut Counters, from: u32, most: usize) -> Option<u32> {
        self.plane.flows().add_to(counters, from, most)
    }

    /// The number of entries in the control plane's tables.
    pub fn tables(&self) -> Vec<(&'static str, u64)> {
        let mut tables = self.plane.table_sizes();
        tables.push(("timers", self.queues.timers.len() as u64));
        tables
    }

    /// From now on the engine runs this program.
    ///
    /// # Errors
    /// As [`Engine::load`]: nothing has changed then.
    pub fn load_program(&mut self, program: &ProgramSource) -> Result<(), String> {
        self.engine.load(program)?;
        self.plane.set_features(&self.engine.features().transport);
        Ok(())
    }

    /// The registers of the engine's program, where it runs one.
    pub fn registers(&mut self) -> Option<&mut dyn Registers> {
        self.engine.registers()
    }

    /// From now on exactly these modules run in the engine, in this order. Fails with a sentence, and nothing changes,
    /// where the engine runs none in a stage that one of them is for.
    pub fn set_modules(&mut self, modules: Vec<LoadedModule>) -> Result<(), String> {
        let stages = self.engine.features().stages;
        if let Some(module) = modules.iter().find(|module| !stages.contains(&module.source.stage())) {
            let (name, stage) = (module.source.name(), module.source.stage().label());
            return Err(format!(
                "{name} is for the {stage} stage, where engine {} runs no modules",
                self.engine.name()
            ));
        }
        self.queues.commands.push(Command::Modules(modules));
        Ok(())
    }

    /// Figures of the engine's modules, and of what is spliced: module, counter, value.
    pub fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        let splices = self.plane.splice_figures().into_iter();
        let mut stats = self.engine.module_stats();
        stats.extend(splices.map(|(counter, value)| ("splice".into(), counter, value)));
        stats
    }
}
