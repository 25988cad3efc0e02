//! Network faults of a scenario, for RDMA.
use crate::plan::Plan;
use port::Nanos;

/// What the network may do to messages that nobody repeats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    /// Frames stay in their order.
    pub(crate) keeps_order: bool,
    /// No frame comes twice.
    pub(crate) keeps_count: bool,
    /// Nothing is lost or late: no retry is ever exceeded.
    pub(crate) is_calm: bool,
}

impl Network {
    /// That of a scenario.
    pub(crate) fn of(plan: &Plan) -> Network {
        let fabric = &plan.fabric;
        let steady = fabric.jitter_ns == 0 && fabric.reorder == 0.0;
        let prompt = plan.hosts.iter().all(|host| host.stall == 0.0 && host.poll_ns <= 2000 && host.burst >= 8);
        Network {
            keeps_order: steady,
            keeps_count: fabric.duplicate == 0.0,
            is_calm: prompt && plan.loses_nothing() && plan.cuts.is_empty() && plan.jumps.is_empty(),
        }
    }
}

/// How long a frame may be on its way.
pub(crate) fn settle(plan: &Plan) -> Nanos {
    let fabric = &plan.fabric;
    let slow = plan.hosts.iter().map(|host| host.poll_ns + host.stall_ns).max().unwrap_or(0);
    2 * (fabric.delay_ns + fabric.jitter_ns + fabric.reorder_delay_ns) + 100 * slow + 1_000_000
}
