//! Construction of a ZeroNIC host, and of what the attach socket needs of it.
use super::config::{ZeronicSection, ZeronicUsers};
use super::host_on_thread::ThreadZeronic;
use super::kernel;
use super::transport::{Below, TransportKind};
use crate::access::Access;
use crate::datapath::{DataPath, Handle};
use crate::rdma::{RdmaPlace, RdmaUsers, ZeronicHost, over_streams};
use crate::secret::secret;
use control::{HostConfig, MemoryConfig};
use engines::{EngineKind, Mapping};
use memory::{Limits, MemoryTable};
use port::{Fabric, FramePool, Port, SharedPort, TcpPorts, local_mac};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use zeronic::{EngineTcp, LinuxConfig, LinuxTcp, Programs, Share, Stack};

/// Connections of a host at once, and bytes of the buffers of each, which hold dummy payload.
const CONNECTIONS: u32 = 1024;
const BUFFER: u32 = 1 << 20;

/// Where a ZeroNIC host is served.
#[derive(Clone)]
pub(crate) struct ZeronicPlace {
    pub(crate) section: ZeronicSection,
    /// Its index on its data-path thread.
    pub(crate) index: usize,
    pub(crate) handle: Handle,
    /// Registered memory of its programs.
    pub(crate) table: Arc<MemoryTable>,
    /// Its RDMA device.
    pub(crate) rdma: RdmaPlace,
    /// Users who may attach to the host whose address it shares; all where it has its own.
    access: Access,
}

impl ZeronicPlace {
    /// A program may use it; a sentence where it may not.
    pub(crate) fn admit(&self, socket: BorrowedFd<'_>, uid: u32) -> Result<(), String> {
        let name = &self.section.name;
        if !self.access.may_attach(socket) {
            return Err(format!(
                "user {uid} may not use zeronic {name}: users and groups of its host do not name them"
            ));
        }
        match self.section.users.may_attach(uid) {
            true => Ok(()),
            false => Err(format!("user {uid} may not use zeronic {name}: users = \"all\" allows it")),
        }
    }
}

/// The address and the port of a `[[host]]` that the ZeroNIC host shares.
pub(crate) struct Shared {
    /// Its part of the port.
    pub(crate) port: SharedPort,
    /// Whose TCP ports are whose.
    pub(crate) ports: Arc<TcpPorts>,
    /// How that host reaches others.
    pub(crate) stack: HostConfig,
    /// Users who may attach to that host.
    pub(crate) access: Access,
}

/// Makes the host on its data-path thread. The error is a sentence.
pub(crate) fn make(
    path: &mut DataPath,
    handle: &Handle,
    section: &ZeronicSection,
    fabrics: &[(String, Fabric)],
    pool: &FramePool,
    shared: Option<Shared>,
) -> Result<ZeronicPlace, String> {
    let with = shared.as_ref().map(|of| (Arc::clone(&of.ports), of.access.clone(), of.stack.clone()));
    let (transport, port) = match shared {
        Some(shared) => over_shared(section, shared, pool)?,
        None => over_fabric(section, fabrics, pool)?,
    };
    let table = MemoryTable::new(Limits::default()).map_err(|e| format!("no random numbers: {e}"))?;
    let table = Arc::new(table);
    // Programs may receive into as little as they like.
    let limits = match section.placed_connections {
        0 => zeronic::Limits::default(),
        lines => zeronic::Limits { flows: lines.into(), ..zeronic::Limits::default() },
    };
    let made = Stack::new(transport, Arc::clone(&table), limits, section.no_segment, pool.clone());
    let mut stack = made.map_err(|e| format!("cannot make shared memory: {e}"))?;
    let users = match section.users {
        ZeronicUsers::Own => RdmaUsers::Own,
        ZeronicUsers::All => RdmaUsers::All,
    };
    let (mac, ip_mtu) = (port.mac(), port.capabilities().mtu);
    let host = ZeronicHost { name: &section.name, mac, address: section.address, ip_mtu, users };
    let (device, rdma) = over_streams(&host, &table)?;
    if let Some((ports, ..)) = &with {
        stack.share_ports(Arc::clone(ports));
    }
    stack.serve_verbs(device, section.address)?;
    let index = path.zeronics.len();
    let mut programs = Programs::new(stack);
    let access = with.map_or_else(Access::default, |(_, access, host)| {
        programs.keep_rules_of(host);
        access
    });
    path.add_zeronic(ThreadZeronic::new(programs, port)).map_err(|e| e.to_string())?;
    Ok(ZeronicPlace { section: section.clone(), index, handle: handle.clone(), table, rdma, access })
}

/// With an address of its own on a fabric.
fn over_fabric(
    section: &ZeronicSection,
    fabrics: &[(String, Fabric)],
    pool: &FramePool,
) -> Result<(Below, Box<dyn Port>), String> {
    let wanted = section.fabric.as_ref();
    let found = fabrics.iter().find(|(fabric, _)| wanted.is_none_or(|wanted| wanted == fabric));
    let (_, fabric) = found.ok_or("its fabric is not there")?;
    let join = |mac| fabric.join(&section.name, mac).map_err(|error| format!("cannot join the fabric: {error}"));
    match section.transport {
        TransportKind::Engine(kind) => {
            let port = join(local_mac(&format!("{} {}", section.name, section.address)))?;
            let transport = over_engine(HostConfig::default(), section, kind, &port, pool)?;
            Ok((transport, Box::new(port)))
        }
        TransportKind::Linux => {
            let transport = over_linux(section, section.gateway, fabric.capabilities().mtu, None)?;
            let port = join(transport.mac())?;
            Ok((Below::Linux(Box::new(transport)), Box::new(port)))
        }
    }
}

/// With the address, the port and the ways of a host.
fn over_shared(section: &ZeronicSection, shared: Shared, pool: &FramePool) -> Result<(Below, Box<dyn Port>), String> {
    let Shared { port, ports, stack, .. } = shared;
    let range = ports.range();
    let transport = match section.transport {
        TransportKind::Engine(kind) => {
            let (gateway, routes) = (stack.gateway, stack.routes);
            let (ephemeral_first, ephemeral_last) = (*range.start(), *range.end());
            let ways = HostConfig { gateway, routes, ephemeral_first, ephemeral_last, ..HostConfig::default() };
            over_engine(ways, section, kind, &port, pool)?
        }
        TransportKind::Linux => {
            let share = Share { mac: port.mac().0, ports: range.into_inner() };
            let gateway = stack.gateway.and_then(|gateway| gateway.as_v4());
            let transport = over_linux(section, gateway, port.capabilities().mtu, Some(share))?;
            Below::Linux(Box::new(transport))
        }
    };
    Ok((transport, Box::new(port)))
}

/// A host of its own for a stream engine; `ways` has how it reaches others, as far as the section does not give it.
fn over_engine(
    ways: HostConfig,
    section: &ZeronicSection,
    kind: EngineKind,
    port: &dyn Port,
    pool: &FramePool,
) -> Result<Below, String> {
    let memory = MemoryConfig {
        slots: CONNECTIONS,
        rx_bytes: BUFFER,
        tx_bytes: BUFFER,
        long_path_bytes: 0,
        most_bytes: 0,
        context_bytes: 0,
        small_bytes: 0,
        ..MemoryConfig::default()
    };
    let stack = HostConfig {
        name: section.name.clone(),
        address: section.address.into(),
        prefix_len: section.prefix_len,
        gateway: section.gateway.map(Into::into).or(ways.gateway),
        congestion: section.congestion,
        max_flows: CONNECTIONS,
        max_contexts: 1,
        memory,
        ..ways
    };
    let engine = kind.make(&stack, &Mapping::default(), pool)?;
    let (mac, mtu) = (port.mac(), port.capabilities().mtu);
    Ok(Below::Engine(Box::new(EngineTcp::new(stack, engine, mac, mtu, pool.clone(), secret()?)?)))
}

/// The kernel's TCP in a namespace of its own: the host's hardware address is that of the kernel's side there.
fn over_linux(
    section: &ZeronicSection,
    gateway: Option<Ipv4Addr>,
    mtu: u16,
    shared: Option<Share>,
) -> Result<LinuxTcp, String> {
    kernel::open(LinuxConfig {
        device: "zeronic".into(),
        address: (section.address, section.prefix_len),
        gateway,
        mtu,
        congestion: section.congestion.map_or("cubic", |congestion| congestion.name).into(),
        shared,
    })
}
