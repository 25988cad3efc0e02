//! Shrinker: makes a scenario that fails smaller, as long as it goes on failing.
use crate::plan::{Ending, Plan, Script};
use crate::zeronic::plan::{ShortagePlan, SidePlan};
use control::TcpConfig;
use engines::{EngineKind, Mapping};
use port::FabricConfig;
use zeronic::Carries;

/// A smaller scenario that fails too, after at most `tries` runs. `fails` reports whether one does.
pub fn shrink(plan: &Plan, tries: u32, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut left = tries;
    loop {
        let mut smaller = false;
        for candidate in candidates(&best) {
            if left == 0 {
                return best;
            }
            if candidate == best || candidate.check().is_err() {
                continue;
            }
            left -= 1;
            if fails(&candidate) {
                best = candidate;
                smaller = true;
                break;
            }
        }
        if !smaller {
            return best;
        }
    }
}

/// Scenarios that are one step smaller, the largest steps first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    for index in 0..plan.calls.len() {
        add(&|plan| {
            plan.calls.remove(index);
        });
    }
    add(&drop_unused);
    add(&|plan| {
        plan.fabric = FabricConfig { mtu: plan.fabric.mtu, delay_ns: plan.fabric.delay_ns, ..Default::default() }
    });
    add(&|plan| plan.links.clear());
    for index in 0..plan.links.len() {
        smaller_link(index, &mut add);
    }
    add(&|plan| plan.talks.clear());
    for index in 0..plan.talks.len() {
        smaller_talk(index, &mut add);
    }
    add(&|plan| plan.cuts.clear());
    add(&|plan| plan.jumps.clear());
    add(&|plan| plan.takeovers.clear());
    for index in 0..plan.takeovers.len() {
        add(&|plan| {
            plan.takeovers.remove(index);
        });
    }
    add(&|plan| plan.kills.clear());
    for index in 0..plan.kills.len() {
        add(&|plan| {
            plan.kills.remove(index);
        });
    }
    add(&|plan| plan.aim = None);
    impairments(&mut add);
    for index in 0..plan.calls.len() {
        smaller_call(index, &mut add);
    }
    for index in 0..plan.apps.len() {
        add(&|plan| plan.apps[index].crash_us = None);
        add(&|plan| plan.apps[index].fork_us = None);
        add(&|plan| plan.apps[index].latency_us = 0);
        add(&|plan| plan.apps[index].rests = false);
    }
    for index in 0..plan.listens.len() {
        add(&|plan| plan.listens[index].close_us = None);
        add(&|plan| {
            plan.listens.remove(index);
            plan.calls.retain(|call| call.to != index);
            plan.calls.iter_mut().filter(|call| call.to > index).for_each(|call| call.to -= 1);
        });
        add(&|plan| plan.listens[index].backlog = 128);
        add(&|plan| plan.listens[index].credits = 128);
    }
    for index in 0..plan.hosts.len() {
        simpler_host(index, &mut add);
    }
    all
}

/// Removes hosts, applications and listeners that no call needs.
fn drop_unused(plan: &mut Plan) {
    let used = |plan: &Plan, listen: usize| plan.calls.iter().any(|call| call.to == listen);
    for listen in (0..plan.listens.len()).rev().filter(|listen| !used(plan, *listen)).collect::<Vec<_>>() {
        plan.listens.remove(listen);
        plan.calls.iter_mut().filter(|call| call.to > listen).for_each(|call| call.to -= 1);
    }
    for app in (0..plan.apps.len()).rev() {
        let needed =
            plan.calls.iter().any(|call| call.app == app) || plan.listens.iter().any(|listen| listen.app == app);
        if !needed {
            plan.apps.remove(app);
            plan.calls.iter_mut().filter(|call| call.app > app).for_each(|call| call.app -= 1);
            plan.listens.iter_mut().filter(|listen| listen.app > app).for_each(|listen| listen.app -= 1);
        }
    }
    for host in (0..plan.hosts.len()).rev() {
        let linked = plan.links.iter().any(|link| link.hosts.contains(&host));
        if plan.hosts.len() > 1 && !linked && !plan.apps.iter().any(|app| app.host == host) {
            plan.hosts.remove(host);
            plan.apps.iter_mut().filter(|app| app.host > host).for_each(|app| app.host -= 1);
            let ends = plan.links.iter_mut().flat_map(|link| &mut link.hosts);
            ends.filter(|end| **end > host).for_each(|end| *end -= 1);
            plan.cuts.retain(|cut| cut.host != host);
            plan.cuts.iter_mut().filter(|cut| cut.host > host).for_each(|cut| cut.host -= 1);
            plan.jumps.retain(|jump| jump.host != host);
            plan.jumps.iter_mut().filter(|jump| jump.host > host).for_each(|jump| jump.host -= 1);
            plan.takeovers.retain(|takeover| takeover.host != host);
            plan.takeovers.iter_mut().filter(|takeover| takeover.host > host).for_each(|it| it.host -= 1);
            plan.kills.retain(|kill| kill.host != host);
            plan.kills.iter_mut().filter(|kill| kill.host > host).for_each(|it| it.host -= 1);
        }
    }
}

type Add<'a> = dyn FnMut(&dyn Fn(&mut Plan)) + 'a;

fn impairments(add: &mut Add<'_>) {
    add(&|plan| plan.fabric.loss = 0.0);
    add(&|plan| plan.fabric.burst_begin = 0.0);
    add(&|plan| plan.fabric.reorder = 0.0);
    add(&|plan| plan.fabric.duplicate = 0.0);
    add(&|plan| plan.fabric.corrupt = 0.0);
    add(&|plan| plan.fabric.jitter_ns = 0);
    add(&|plan| (plan.fabric.paths, plan.fabric.path_skew_ns) = (1, 0));
    add(&|plan| plan.fabric.rate_bps = 0);
    add(&|plan| plan.fabric.ecn_threshold_bytes = 0);
    add(&|plan| plan.fabric.buffer_bytes = FabricConfig::default().buffer_bytes);
    add(&|plan| plan.fabric.mtu = 1500);
    add(&|plan| plan.fabric.delay_ns = 1000);
}

fn smaller_link(index: usize, add: &mut Add<'_>) {
    add(&|plan| {
        plan.links.remove(index);
    });
    add(&|plan| plan.links[index].breaks.clear());
    add(&|plan| plan.links[index].vanishes = None);
    add(&|plan| {
        plan.links[index].qps = 1;
        plan.links[index].breaks.retain(|it| it.qp == 0);
    });
    for side in 0..2 {
        add(&|plan| plan.links[index].works[side] = 0);
        add(&|plan| plan.links[index].works[side] /= 2);
        add(&|plan| plan.links[index].works[side] = plan.links[index].works[side].saturating_sub(1));
    }
    add(&|plan| plan.links[index].longest = 8);
    add(&|plan| plan.links[index].longest = plan.links[index].longest.div_ceil(2));
    add(&|plan| plan.links[index].depth = 1);
    add(&|plan| plan.links[index].shared_receives = false);
    add(&|plan| plan.links[index].make_plain());
    add(&|plan| plan.links[index].xrc_queues = plan.links[index].xrc_queues.min(1));
    add(&|plan| plan.links[index].events = false);
    add(&|plan| plan.links[index].latency_us = 0);
    add(&|plan| (plan.links[index].gap_us, plan.links[index].receive_gap_us) = (0, 0));
    add(&|plan| plan.links[index].psn = 0);
    add(&|plan| plan.links[index].receives = 32);
}

fn smaller_talk(index: usize, add: &mut Add<'_>) {
    add(&|plan| plan.leave_talks());
    add(&|plan| {
        plan.talks.remove(index);
    });
    add(&|plan| plan.talks[index].trouble = None);
    add(&|plan| plan.talks[index].carries = Carries::Stream);
    add(&|plan| plan.talks[index].connections = 1);
    add(&|plan| plan.talks[index].start_us = 1);
    for side in 0..2 {
        let mut change = |change: &dyn Fn(&mut SidePlan)| add(&|plan| change(&mut plan.talks[index].sides[side]));
        change(&|side| side.engine = EngineKind::Flextoe);
        change(&|side| side.shortage = ShortagePlan::Defer);
        change(&|side| side.lines = None);
        change(&|side| side.congestion = String::new());
        change(&|side| side.buffer_bytes = 1 << 16);
        change(&|side| (side.min_rto_ms, side.max_rto_ms) = (10, 500));
        change(&|side| (side.poll_ns, side.stall) = (2000, 0.0));
        change(&|side| (side.entries, side.holes) = (128, 128));
        change(&|side| side.shortest = side.longest);
        change(&|side| (side.receives, side.sends) = (1, 1));
        change(&|side| (side.receive_gap_us, side.send_gap_us, side.latency_us) = (0, 0, 0));
        add(&|plan| plan.talks[index].bytes[side] = 0);
        add(&|plan| plan.talks[index].bytes[side] /= 2);
        add(&|plan| plan.talks[index].bytes[side] = plan.talks[index].bytes[side].saturating_sub(1));
    }
}

fn smaller_call(index: usize, add: &mut Add<'_>) {
    add(&|plan| plan.calls[index].count = 1);
    add(&|plan| plan.calls[index].count = plan.calls[index].count.div_ceil(2));
    add(&|plan| plan.calls[index].count = plan.calls[index].count.saturating_sub(1).max(1));
    add(&|plan| plan.calls[index].parallel = 1);
    add(&|plan| plan.calls[index].parallel = plan.calls[index].parallel.div_ceil(2));
    add(&|plan| plan.calls[index].bind = 0);
    add(&|plan| plan.calls[index].turns = None);
    add(&|plan| {
        let call = &mut plan.calls[index];
        if let Some(turns) = call.turns {
            let rounds = (call.client.send / turns.request.max(1)).div_ceil(2);
            (call.client.send, call.server.send) = (rounds * turns.request, rounds * turns.response);
        }
    });
    add(&|plan| {
        let call = &mut plan.calls[index];
        if let Some(turns) = &mut call.turns {
            let rounds = call.client.send / turns.request.max(1);
            (turns.request, turns.response) = (turns.request.div_ceil(2), turns.response.div_ceil(2));
            (call.client.send, call.server.send) = (rounds * turns.request, rounds * turns.response);
        }
    });
    add(&|plan| plan.calls[index].gap_us = 0);
    add(&|plan| plan.calls[index].start_us = 1);
    smaller_script(index, true, add);
    smaller_script(index, false, add);
}

fn smaller_script(index: usize, client: bool, add: &mut Add<'_>) {
    let change = |add: &mut Add<'_>, change: &dyn Fn(&mut Script)| {
        add(&|plan| {
            let call = &mut plan.calls[index];
            change(if client { &mut call.client } else { &mut call.server });
        });
    };
    change(add, &|script| script.send = 0);
    change(add, &|script| script.send /= 2);
    change(add, &|script| script.send = script.send * 3 / 4);
    for step in [100, 10, 1] {
        change(add, &|script| script.send = script.send.saturating_sub(step));
    }
    change(add, &|script| script.ending = Ending::Close);
    change(add, &|script| script.keepalive = false);
    change(add, &|script| (script.write, script.write_gap_us) = (1 << 20, 0));
    change(add, &|script| (script.read, script.read_gap_us) = (1 << 20, 0));
}

fn simpler_host(index: usize, add: &mut Add<'_>) {
    add(&|plan| plan.hosts[index].engine = EngineKind::Flextoe);
    add(&|plan| plan.hosts[index].mapping = Mapping::default());
    add(&|plan| plan.hosts[index].stall = 0.0);
    add(&|plan| plan.hosts[index].syn_backlog = None);
    add(&|plan| plan.hosts[index].mtu = 0);
    add(&|plan| (plan.hosts[index].flows, plan.hosts[index].max_time_wait) = (1024, 1024));
    add(&|plan| plan.hosts[index].ecn = false);
    add(&|plan| plan.hosts[index].nagle = false);
    add(&|plan| plan.hosts[index].tcp = TcpConfig::default());
    add(&|plan| plan.hosts[index].lines = 0);
    add(&|plan| plan.hosts[index].selective_repeat = false);
    add(&|plan| plan.hosts[index].spray = 0);
    add(&|plan| plan.hosts[index].dcqcn_bps = 0);
    add(&|plan| plan.hosts[index].congestion = String::new());
    add(&|plan| plan.hosts[index].burst = 64);
    add(&|plan| plan.hosts[index].poll_ns = 2000);
    add(&|plan| (plan.hosts[index].data_entries, plan.hosts[index].control_entries) = (1024, 1024));
    add(&|plan| plan.hosts[index].slots = 64);
    add(&|plan| plan.hosts[index].context_bytes = 0);
    add(&|plan| plan.hosts[index].small_bytes = 0);
    add(&|plan| plan.hosts[index].long_path_bytes = 0);
    add(&|plan| plan.hosts[index].most_bytes = 0);
    add(&|plan| (plan.hosts[index].rx_bytes, plan.hosts[index].tx_bytes) = (1 << 16, 1 << 16));
    add(&|plan| plan.hosts[index].min_rto_ms = 10);
    add(&|plan| plan.hosts[index].time_wait_ms = 100);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;

    #[test]
    fn what_does_not_matter_goes_and_what_matters_stays() {
        let plan = (0..200).map(generate).find(|plan| plan.calls.len() > 2 && plan.fabric.loss > 0.0).unwrap();
        let small =
            shrink(&plan, 10_000, |plan| plan.fabric.loss > 0.0 && plan.calls.iter().any(|call| call.count > 1));
        assert_eq!((small.calls.len(), small.calls[0].count, small.cuts.len()), (1, 2, 0));
        assert!(small.fabric.loss > 0.0 && small.fabric.reorder == 0.0 && small.hosts.len() <= 2);
    }
}
