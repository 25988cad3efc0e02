//! A host's RDMA device, shared by the host and the programs.
use super::plan::LinkKind;
use crate::plan::Plan;
use crate::random::Random;
use ::memory::{Limits, MemoryTable};
use host::Transport;
use rdma::{Config, Congestion, Device, LIMITS, LowerLayer, Recovery, TransmitPath};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Mac;

/// What has a random source of its own, so that a seed's part about TCP stays as it is.
pub(crate) const OWN: u64 = 0x0052_444d_4100;

/// Regions of all programs at once.
const REGIONS: usize = 256;

/// A device with two owners: its host and the judge.
#[derive(Clone)]
pub(crate) struct SharedDevice(Arc<Mutex<Device>>);

impl SharedDevice {
    /// The device of a host. Keys and numbers follow from the plan's seed.
    pub(crate) fn new(plan: &Plan, host: usize, mac: Mac, table: &Arc<MemoryTable>) -> Result<SharedDevice, String> {
        let of_host = &plan.hosts[host];
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&Random::new(plan.seed ^ OWN ^ (host as u64 + 1)).bits().to_le_bytes());
        let congestion = match of_host.dcqcn_bps {
            0 => Congestion::None,
            line_rate => Congestion::Dcqcn { line_rate },
        };
        let config = Config {
            host: format!("h{host}"),
            name: "toe0".into(),
            mac,
            address: Plan::ipv4(host),
            ip_mtu: if of_host.mtu > 0 { of_host.mtu } else { plan.fabric.mtu },
            speed: 100,
            limits: LIMITS,
            programs: 64,
            table: Arc::clone(table),
            recovery: if of_host.selective_repeat { Recovery::SelectiveRepeat } else { Recovery::GoBackN },
            spray: of_host.spray,
            transmit_path: TransmitPath::Auto,
            raw_packets: plan.links.iter().any(|link| link.kind == LinkKind::Raw),
            congestion,
            lower_layer: LowerLayer::Packets,
            secret,
        };
        Ok(SharedDevice(Arc::new(Mutex::new(Device::new(config)?))))
    }

    /// The table of all programs of a scenario.
    pub(crate) fn table(seed: u64) -> Arc<MemoryTable> {
        let mut secret = [0x11; 16];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        Arc::new(MemoryTable::with_secret(Limits { regions: REGIONS, ..Limits::default() }, secret))
    }

    /// The device as its host has it.
    pub(crate) fn transport(&self) -> Box<dyn Transport> {
        Box::new(Arc::clone(&self.0))
    }

    /// The device, between two rounds.
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
