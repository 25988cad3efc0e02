//! A host with a device, and programs that attach to it.
use context::queues::{DaemonQueues, QueueSizes, daemon_bell};
use host::{Host, Link, NeighbourTable, NeighbourTiming, Net, NetConfig, RouteTable};
use memory::{Limits, MemoryTable};
use port::Capabilities;
use rdma::{
    Config, Congestion, Device, EventPipe, LIMITS, LowerLayer, NewProgram, ProgramId, Recovery, TransmitPath, Who,
};
use shm::Doorbell;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use wire::Mac;

pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// A pipe that nobody reads.
pub(crate) struct Nowhere;

impl EventPipe for Nowhere {
    fn put(&self, _message: &[u8]) {}
}

pub(crate) fn config() -> Config {
    Config {
        host: "h".into(),
        name: "toe0".into(),
        mac: MAC,
        address: OWN,
        ip_mtu: 1500,
        speed: 100,
        limits: LIMITS,
        programs: 2,
        table: Arc::new(MemoryTable::with_secret(Limits::default(), [1; 16])),
        recovery: Recovery::GoBackN,
        spray: 0,
        transmit_path: TransmitPath::Auto,
        raw_packets: true,
        congestion: Congestion::None,
        lower_layer: LowerLayer::Packets,
        secret: [1; 16],
    }
}

/// A host with a device, and the device.
pub(crate) fn host(config: Config) -> (Host, Arc<Mutex<Device>>) {
    let caps = Capabilities { mtu: config.ip_mtu, super_segment: 0, checksum: false };
    let link = Link { mac: MAC, address: OWN.into(), prefix_len: 24, v6: None, caps };
    let timing = NeighbourTiming { reachable: 60_000_000_000, retry: 1_000_000_000, tries: 3 };
    let mut host = Host::new(Net::new(NetConfig {
        routes: Box::new(RouteTable::new(&[link], &[], &[])),
        links: vec![link],
        neighbours: Box::new(NeighbourTable::new(16, timing)),
        icmp_per_s: 100,
    }));
    let device = Arc::new(Mutex::new(Device::new(config).unwrap()));
    host.add(Box::new(Arc::clone(&device))).unwrap();
    (host, device)
}

pub(crate) fn attach(device: &mut Device) -> ProgramId {
    let (region, queues) = DaemonQueues::create("program", QueueSizes { send: 8, ..QueueSizes::default() }).unwrap();
    let program = NewProgram {
        who: Who { pid: 1, uid: 1, command: "a program".into() },
        pipe: queues.send.unwrap(),
        bell: daemon_bell(&region, Doorbell::eventfd().unwrap()),
        events: Arc::new(Nowhere),
    };
    device.attach(program).unwrap()
}
