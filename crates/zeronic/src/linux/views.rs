//! Connections of the kernel's TCP, for people.
use super::{Kernel, LinuxTcp, tuple_of};
use control::FlowView;
use port::{KernelTcp, kernel_tcp};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use wire::tcp::State;

/// What a host may ask for.
const CONGESTION: [&str; 2] = ["cubic", "dctcp"];
/// Linux' threshold before the first congestion (`TCP_INFINITE_SSTHRESH`).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

impl LinuxTcp {
    /// The kernel's state of at most `most` connections; nothing of one that is not connected yet.
    pub fn views(&self, most: usize) -> Vec<FlowView> {
        let congestion = CONGESTION.into_iter().find(|name| *name == self.config.congestion);
        self.sockets.iter().flatten().filter_map(|kernel| view(kernel, congestion)).take(most).collect()
    }
}

fn view(kernel: &Kernel, congestion: Option<&'static str>) -> Option<FlowView> {
    let (tuple, info) = (tuple_of(&kernel.socket).ok()?, kernel_tcp(&kernel.socket).ok()?);
    let KernelTcp { state, mss, cwnd, ssthresh, rtt_us, rttvar_us, rto_us, outstanding, sacked, resent } = info;
    let bytes = |segments: u32| segments.saturating_mul(mss);
    let figures = [
        ("retransmitted_segments", resent.into()),
        ("sacked", bytes(sacked).into()),
        ("outstanding", bytes(outstanding).into()),
    ];
    Some(FlowView {
        flow: None,
        local: SocketAddr::from((tuple.local_ip, tuple.local_port)),
        remote: SocketAddr::from((tuple.remote_ip, tuple.remote_port)),
        state: state.map_or("", State::name),
        context: None,
        slot: None,
        pid: None,
        congestion,
        mss: mss.min(u16::MAX.into()) as u16,
        cwnd: bytes(cwnd),
        ssthresh: (ssthresh != NO_THRESHOLD).then(|| bytes(ssthresh)),
        rate: 0,
        rtt_us: rtt_us.into(),
        rttvar_us: rttvar_us.into(),
        rto_us: rto_us.into(),
        timeouts: 0,
        ecn: false,
        figures: BTreeMap::from(figures),
        last_drop: None,
    })
}
