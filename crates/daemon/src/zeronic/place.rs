//! Makes a ZeroNIC host, and what the attach socket needs to know of it.
use super::config::{ZeronicSection, ZeronicUsers};
use super::kernel;
use super::seat::ZeronicSeat;
use super::transport::{Below, TransportKind};
use crate::datapath::{DataPath, Handle};
use crate::rdma::{RdmaPlace, RdmaUsers, ZeronicHost, over_streams};
use crate::secret::secret;
use control::{HostConfig, MemoryConfig};
use engines::{EngineKind, Mapping};
use memory::{Limits, MemoryTable};
use port::{Fabric, FabricPort, FramePool, Port, local_mac};
use std::io;
use std::sync::Arc;
use zeronic::{EngineTcp, LinuxConfig, Programs, Shortage, Stack};

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
}

/// Makes the host on its data-path thread. The error is a sentence.
pub(crate) fn place(
    path: &mut DataPath,
    handle: &Handle,
    section: &ZeronicSection,
    fabrics: &[(String, Fabric)],
    pool: &FramePool,
) -> Result<ZeronicPlace, String> {
    let wanted = section.fabric.as_ref();
    let found = fabrics.iter().find(|(fabric, _)| wanted.is_none_or(|wanted| wanted == fabric));
    let (_, fabric) = found.ok_or("its fabric is not there")?;
    let (transport, port) = match section.transport {
        TransportKind::Engine(kind) => over_engine(section, kind, fabric, pool)?,
        TransportKind::Linux => over_linux(section, fabric)?,
    };
    let table = MemoryTable::new(Limits::default()).map_err(|e| format!("no random numbers: {e}"))?;
    let table = Arc::new(table);
    // Programs may receive into as little as they like.
    let made = Stack::new(transport, Arc::clone(&table), zeronic::Limits::default(), Shortage::Defer, pool.clone());
    let mut stack = made.map_err(|e| format!("cannot make shared memory: {e}"))?;
    let users = match section.users {
        ZeronicUsers::Own => RdmaUsers::Own,
        ZeronicUsers::All => RdmaUsers::All,
    };
    let (mac, ip_mtu) = (port.mac(), port.capabilities().mtu);
    let host = ZeronicHost { name: &section.name, mac, address: section.address, ip_mtu, users };
    let (device, rdma) = over_streams(&host, &table)?;
    stack.serve_verbs(device, section.address)?;
    let index = path.zeronics.len();
    let seat = ZeronicSeat::new(Programs::new(stack), Box::new(port));
    path.add_zeronic(seat).map_err(|e| e.to_string())?;
    Ok(ZeronicPlace { section: section.clone(), index, handle: handle.clone(), table, rdma })
}

/// A host of its own for a stream engine.
fn over_engine(
    section: &ZeronicSection,
    kind: EngineKind,
    fabric: &Fabric,
    pool: &FramePool,
) -> Result<(Below, FabricPort), String> {
    let mac = local_mac(&format!("{} {}", section.name, section.address));
    let port = fabric.join(&section.name, mac).map_err(not_joined)?;
    let memory = MemoryConfig {
        slots: CONNECTIONS,
        rx_bytes: BUFFER,
        tx_bytes: BUFFER,
        long_path_bytes: 0,
        most_tx_bytes: 0,
        context_bytes: 0,
        small_bytes: 0,
        ..MemoryConfig::default()
    };
    let stack = HostConfig {
        name: section.name.clone(),
        address: section.address.into(),
        prefix_len: section.prefix_len,
        gateway: section.gateway.map(Into::into),
        congestion: section.congestion,
        max_flows: CONNECTIONS,
        max_contexts: 1,
        memory,
        ..HostConfig::default()
    };
    let engine = kind.make(&stack, &Mapping::default(), pool)?;
    let transport = EngineTcp::new(stack, engine, mac, port.capabilities().mtu, pool.clone(), secret()?)?;
    Ok((Below::Engine(Box::new(transport)), port))
}

/// The kernel's TCP in a namespace of its own: the host's hardware address is that of the kernel's side there.
fn over_linux(section: &ZeronicSection, fabric: &Fabric) -> Result<(Below, FabricPort), String> {
    let config = LinuxConfig {
        device: "zeronic".into(),
        address: (section.address, section.prefix_len),
        gateway: section.gateway,
        mtu: fabric.capabilities().mtu,
        congestion: section.congestion.map_or("cubic", |congestion| congestion.name).into(),
    };
    let transport = kernel::open(config)?;
    let port = fabric.join(&section.name, transport.mac()).map_err(not_joined)?;
    Ok((Below::Linux(Box::new(transport)), port))
}

fn not_joined(error: io::Error) -> String {
    format!("cannot join the fabric: {error}")
}
