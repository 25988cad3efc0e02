//! RDMA in the scenario of a seed. It has random numbers of its own: a seed's part about TCP stays as it is.
use super::device::OWN;
use super::plan::{Break, LEAST_RAW, LinkKind, LinkPlan, Vanish};
use crate::plan::Plan;
use crate::random::Random;
use ::verbs::Mtu;

/// Bytes that a link's work requests move at most, and its memory has.
const MOST_BYTES: u64 = 400_000;

/// Most bytes of a message where receive work requests are shared: there are many of them.
const LONGEST_SHARED: u32 = 3000;

/// Rate of a line on a network that has none, bits a second.
const UNLIMITED: u64 = 100_000_000_000;

/// Seed of the random numbers for several paths, apart from those for all else.
const SPRAY: u64 = 0x5350_5241_5900;

/// Two of three scenarios get one or two links.
pub(crate) fn draw(plan: &mut Plan) {
    let mut random = Random::new(plan.seed ^ OWN);
    let random = &mut random;
    let count = random.pick(&[0, 1, 1, 1, 2, 0]);
    if count > 0 {
        spray(&mut Random::new(plan.seed ^ SPRAY), plan);
    }
    plan.links = (0..count).filter_map(|_| link(random, plan)).collect();
    if count > 0 {
        plan.hosts.iter_mut().for_each(|host| host.selective_repeat = random.one_in(2));
        let line = if plan.fabric.rate_bps > 0 { plan.fabric.rate_bps } else { UNLIMITED };
        // From the slowest that there is to that of the network.
        let lines = [0, 0, 10_000_000, 100_000_000, line, line];
        plan.hosts.iter_mut().for_each(|host| host.dcqcn_bps = random.pick(&lines));
    }
}

/// One of four networks has several paths, and one of three hosts sprays, wherever it is. From a seed of its own: what
/// else a scenario has stays as it was.
fn spray(random: &mut Random, plan: &mut Plan) {
    if random.one_in(4) {
        plan.fabric.paths = random.pick(&[2, 3, 4, 8]);
        plan.fabric.path_skew_ns = random.pick(&[0, 0, 1_000, 20_000]);
    }
    plan.hosts.iter_mut().for_each(|host| host.spray = random.pick(&[0, 0, 0, 0, 1, 3, 4]));
}

fn link(random: &mut Random, plan: &Plan) -> Option<LinkPlan> {
    let most = plan.hosts.len() as u64 - 1;
    let hosts = [random.up_to(most) as usize, random.up_to(most) as usize];
    let ip_mtu = |host: usize| if plan.hosts[host].mtu > 0 { plan.hosts[host].mtu } else { plan.fabric.mtu };
    let fitting = Mtu::fitting(usize::from(ip_mtu(hosts[0]).min(ip_mtu(hosts[1]))))?;
    let kind = random.pick(&[
        LinkKind::Reliable,
        LinkKind::Reliable,
        LinkKind::Reliable,
        LinkKind::Unreliable,
        LinkKind::Datagram,
    ]);
    let qps = random.pick(&[1, 1, 2, 3]);
    let works = [0, 1].map(|_| if random.one_in(6) { 0 } else { random.spread(1, 60) as usize });
    let places = (qps * (works[0] + works[1]) + 10) as u64;
    // An unreliable connection has receive queues of its own (IBTA 1.3, 10.2.9).
    let shared_receives = random.one_in(3) && kind != LinkKind::Unreliable;
    let longest = random.spread(1, MOST_BYTES / places);
    let longest = if shared_receives { longest.min(LONGEST_SHARED.into()) } else { longest };
    let breaks =
        if random.one_in(4) { (0..random.between(1, 3)).map(|_| a_break(random, qps)).collect() } else { Vec::new() };
    let vanish = |random: &mut Random| Vanish { side: random.up_to(1) as usize, at_us: random.spread(10, 200_000) };
    let mut drawn = LinkPlan {
        hosts,
        kind,
        qps,
        works,
        longest: longest as u32,
        depth: random.pick(&[1, 4, 16, 64]),
        receives: random.pick(&[1, 4, 32]),
        shared_receives,
        xrc_queues: 0,
        mtu: random.between(1, u64::from(fitting.code())) as u8,
        psn: random.pick(&[0, 0xff_fff0, 0x7f_fff0, 0x12_3456]),
        timeout: timeout(random, plan),
        reads: random.pick(&[1, 4, 16]),
        events: random.one_in(3),
        start_us: random.spread(1, 50_000),
        latency_us: random.pick(&[0, 1, 20, 1000]),
        gap_us: random.pick(&[0, 0, 10, 500]),
        receive_gap_us: random.pick(&[0, 0, 0, 50, 1000]),
        breaks,
        vanishes: random.one_in(8).then(|| vanish(random)),
    };
    if kind == LinkKind::Reliable && random.one_in(4) {
        extend(random, &mut drawn);
    }
    if kind == LinkKind::Datagram && random.one_in(2) {
        (drawn.kind, drawn.longest) = (LinkKind::Raw, drawn.longest.max(LEAST_RAW as u32));
    }
    if drawn.kind == LinkKind::Reliable && random.one_in(3) {
        drawn.kind = LinkKind::Windowed;
    }
    Some(drawn)
}

/// Makes a link's reliable connections extended ones.
fn extend(random: &mut Random, link: &mut LinkPlan) {
    (link.kind, link.shared_receives) = (LinkKind::Extended, false);
    link.xrc_queues = random.between(1, 3) as usize;
    link.longest = link.longest.min(LONGEST_SHARED);
}

fn a_break(random: &mut Random, qps: usize) -> Break {
    Break {
        side: random.up_to(1) as usize,
        qp: random.up_to(qps as u64 - 1) as usize,
        at_us: random.spread(10, 200_000),
        at_once: random.one_in(2),
    }
}

/// Longer than an acknowledgement takes where nothing is lost: the code of 4.096 us * 2^n.
fn timeout(random: &mut Random, plan: &Plan) -> u8 {
    let fabric = &plan.fabric;
    let slow = plan.hosts.iter().map(|host| host.poll_ns + if host.stall > 0.0 { host.stall_ns } else { 0 });
    let skew = fabric.path_skew_ns * u64::from(fabric.paths);
    let late = 2 * (fabric.delay_ns + fabric.jitter_ns + skew) + fabric.reorder_delay_ns + 4 * slow.max().unwrap_or(0);
    let enough = (12..20).find(|code| 4096 << code > 2 * late).unwrap_or(20);
    enough + random.up_to(1) as u8
}
