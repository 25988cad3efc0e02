//! Table of all cases: how each is measured, shown and drawn.
use crate::arguments::Common;
use crate::cases::compare::Comparison;
use crate::cases::{
    block, collectives, compare, connect, echo, extensions, fairness, http, idle, incast, incast_rdma, instructions,
    isolation, kv, kv_cache, log, loss, notification, offload, parallel, rdma, stream, training, volume, wan,
    working_set, zeronic,
};
use crate::charts;
use crate::plot::Chart;
use crate::report::Report;
use crate::tools::Tools;
use clap::Subcommand;
use std::time::Instant;

/// A measurement and its arguments. A new one is a file in `cases/`, a line in `cases/mod.rs`, and its lines here.
#[derive(Subcommand, Debug)]
pub enum Case {
    /// Small messages there and back: rate, latency, CPU
    Echo(echo::Arguments),
    /// Bulk flows: throughput, CPU
    Stream(stream::Arguments),
    /// memcached and redis: rate, latency, CPU
    Kv(kv::Arguments),
    /// Short connections: open, request, reply, close
    Connect(connect::Arguments),
    /// nginx and wrk: requests a second
    Http(http::Arguments),
    /// A disk over the network: random blocks a second (thesis figure 5.16)
    Block(block::Arguments),
    /// A volume over Solar, over clients, beside NBD over TCP (SmartNS figure 16)
    Volume(volume::Arguments),
    /// Transfers of a KV cache by Mooncake, over TCP and RDMA, on one path and on two (SmartNS figure 17)
    KvCache(kv_cache::Arguments),
    /// Many idle connections: memory of each, CPU
    Idle(idle::Arguments),
    /// Instructions for a request, in the engine and in libtoe (needs valgrind)
    Instructions(instructions::Arguments),
    /// Quick answers beside bulk flows (thesis figure 5.19)
    Isolation(isolation::Arguments),
    /// Records of many connections appended to one log, by a server and by the data-path (thesis 5.5.2)
    Log(log::Arguments),
    /// Many hosts send to one through a slow port: throughput, tail latency, fairness (thesis table 4.5)
    Incast(incast::Arguments),
    /// The same for RDMA, with DCQCN and without: throughput, fairness, what a short message waits
    IncastRdma(incast_rdma::Arguments),
    /// Many bulk flows over one link: the share that each of them gets (thesis figure 4.17)
    Fairness(fairness::Arguments),
    /// Throughput over loss rates: small echoes and bulk flows (thesis figure 4.16)
    Loss(loss::Arguments),
    /// Long and lossy paths: one flow, or transfers from connect to their end, over round trips, rates and losses
    Wan(wan::Arguments),
    /// RDMA programs beside TCP: perftest and UCX, rate and latency, also over loss (SmartNS section 5.2)
    Rdma(rdma::Arguments),
    /// Offload functions beside one-sided verbs: a list over its hops, batched reads (SmartNS figure 15)
    Offload(offload::Arguments),
    /// The receive path over its working set, by the order in which receive buffers are used again (SmartNS figure 13)
    WorkingSet(working_set::Arguments),
    /// The notification pipe beside a doorbell, between two threads: nanoseconds and instructions (SmartNS figure 14)
    Notification(notification::Arguments),
    /// Flows from memory to memory by ZeroNIC, over each transport, beside Linux' TCP and RoCEv2: rate, loss, short
    /// messages beside (ZeroNIC table 2, figures 12 and 13)
    Zeronic(zeronic::Arguments),
    /// Broadcast and all-reduce between two ranks of Open MPI, over Linux' TCP, OpenTOE's sockets, ZeroNIC and RoCEv2
    /// (ZeroNIC figure 10)
    Collectives(collectives::Arguments),
    /// A model that two ranks train by PyTorch, over Linux' TCP and OpenTOE's sockets: seconds of an epoch (ZeroNIC
    /// table 4)
    Training(training::Arguments),
    /// Cores: what each step of a pipeline's parallelism brings, and how rates grow with programs (FlexTOE table 3,
    /// figure 8)
    Parallel(parallel::Arguments),
    /// What tracepoints, a capture and modules cost, put on and off while echoes run (thesis table 4.3)
    Extensions(extensions::Arguments),
}

impl Case {
    /// What all cases take.
    pub fn common(&self) -> &Common {
        match self {
            Case::Echo(arguments) => &arguments.comparison.common,
            Case::Stream(arguments) => &arguments.comparison.common,
            Case::Kv(arguments) => &arguments.comparison.common,
            Case::Connect(arguments) => &arguments.comparison.common,
            Case::Http(arguments) => &arguments.comparison.common,
            Case::Block(arguments) => &arguments.comparison.common,
            Case::Volume(arguments) => &arguments.common,
            Case::KvCache(arguments) => &arguments.common,
            Case::Idle(arguments) => &arguments.comparison.common,
            Case::Instructions(arguments) => &arguments.common,
            Case::Isolation(arguments) => &arguments.comparison.common,
            Case::Log(arguments) => &arguments.comparison.common,
            Case::Incast(arguments) => &arguments.common,
            Case::IncastRdma(arguments) => &arguments.common,
            Case::Fairness(arguments) => &arguments.common,
            Case::Loss(arguments) => &arguments.common,
            Case::Wan(arguments) => &arguments.common,
            Case::Rdma(arguments) => &arguments.common,
            Case::Offload(arguments) => &arguments.common,
            Case::WorkingSet(arguments) => &arguments.common,
            Case::Notification(arguments) => &arguments.common,
            Case::Zeronic(arguments) => &arguments.common,
            Case::Collectives(arguments) => &arguments.common,
            Case::Training(arguments) => &arguments.common,
            Case::Parallel(arguments) => &arguments.common,
            Case::Extensions(arguments) => &arguments.common,
        }
    }

    /// Why it cannot be measured on this machine, where it needs a program that no package of Debian's has.
    pub(crate) fn lacks(&self, tools: &Tools) -> Option<String> {
        match self {
            Case::KvCache(_) => tools.mooncake().err(),
            Case::Training(_) => training::lacks(),
            _ => None,
        }
    }

    /// How long it takes, seconds, roughly.
    pub fn estimate(&self) -> f64 {
        let points = |text: &str| text.split(',').count();
        let speed = |comparison: &Comparison, points: usize| {
            comparison.estimate(comparison.stacks.all().map_or(1, |setups| setups.len()), points)
        };
        match self {
            Case::Echo(a) => {
                let replies = a.reply.as_deref().map_or(1, points) * a.rate.len().max(1) * a.work.len().max(1);
                speed(&a.comparison, points(&a.conns) * points(&a.size) * points(&a.depth) * replies)
            }
            Case::Stream(a) => {
                let mtus = a.mtu.as_deref().map_or(1, points);
                speed(&a.comparison, points(&a.flows) * points(&a.size) * points(&a.dir) * mtus)
            }
            // Two measurements, and time to become quiet before each.
            Case::Idle(a) => speed(&a.comparison, points(&a.conns)) * 4.0,
            Case::Kv(a) => speed(&a.comparison, points(&a.server) * points(&a.conns) * points(&a.depth)),
            Case::Connect(a) => speed(&a.comparison, points(&a.conns) * points(&a.size)),
            Case::Http(a) => speed(&a.comparison, points(&a.conns)),
            Case::Block(a) => speed(&a.comparison, points(&a.disk) * points(&a.depth) * points(&a.size)),
            Case::Instructions(_) => instructions::estimate(),
            Case::Isolation(a) => speed(&a.comparison, 1 + points(&a.flows)),
            Case::Log(a) => {
                let ways = a.comparison.stacks.all().map_or(1, |setups| log::ways(&setups));
                a.comparison.estimate(ways, points(&a.conns) * points(&a.size))
            }
            Case::Loss(a) => {
                let measurements = points(&a.loss) * points(&a.load) * points(&a.stack) * a.common.pairs as usize;
                measurements as f64 * (a.common.seconds(4.0) + a.common.warm_up() + 1.0)
            }
            Case::IncastRdma(a) => incast_rdma::estimate(a),
            Case::Wan(a) => wan::estimate(a),
            Case::Rdma(a) => rdma::estimate(a),
            Case::Offload(a) => offload::estimate(a),
            Case::WorkingSet(a) => working_set::estimate(a),
            Case::Notification(a) => notification::estimate(a),
            Case::Zeronic(a) => zeronic::estimate(a),
            Case::Collectives(a) => collectives::estimate(a),
            Case::Training(a) => training::estimate(a),
            Case::Volume(a) => volume::estimate(a),
            Case::KvCache(a) => kv_cache::estimate(a),
            Case::Parallel(a) => parallel::estimate(a),
            _ => 0.0,
        }
    }
}

/// Measures; the table is for people.
pub(crate) fn measure(case: &Case, tools: &Tools) -> Result<(Report, String), String> {
    let begin = Instant::now();
    let mut report = match case {
        Case::Echo(arguments) => echo::run(tools, arguments),
        Case::Stream(arguments) => stream::run(tools, arguments),
        Case::Kv(arguments) => kv::run(tools, arguments),
        Case::Connect(arguments) => connect::run(tools, arguments),
        Case::Http(arguments) => http::run(tools, arguments),
        Case::Block(arguments) => block::run(tools, arguments),
        Case::Volume(arguments) => volume::run(tools, arguments),
        Case::KvCache(arguments) => kv_cache::run(tools, arguments),
        Case::Idle(arguments) => idle::run(tools, arguments),
        Case::Instructions(arguments) => instructions::run(tools, arguments),
        Case::Isolation(arguments) => isolation::run(tools, arguments),
        Case::Log(arguments) => log::run(tools, arguments),
        Case::Incast(arguments) => incast::run(tools, arguments),
        Case::IncastRdma(arguments) => incast_rdma::run(tools, arguments),
        Case::Fairness(arguments) => fairness::run(tools, arguments),
        Case::Loss(arguments) => loss::run(tools, arguments),
        Case::Wan(arguments) => wan::run(tools, arguments),
        Case::Rdma(arguments) => rdma::run(tools, arguments),
        Case::Offload(arguments) => offload::run(tools, arguments),
        Case::WorkingSet(arguments) => working_set::run(tools, arguments),
        Case::Notification(arguments) => notification::run(tools, arguments),
        Case::Zeronic(arguments) => zeronic::run(tools, arguments),
        Case::Collectives(arguments) => collectives::run(tools, arguments),
        Case::Training(arguments) => training::run(tools, arguments),
        Case::Parallel(arguments) => parallel::run(tools, arguments),
        Case::Extensions(arguments) => extensions::run(tools, arguments),
    }?
    .unless_empty()?;
    report.provenance.took_s = begin.elapsed().as_secs_f64();
    let table = shown(&report);
    Ok((report, table))
}

/// A report's table.
pub(crate) fn shown(report: &Report) -> String {
    match report.case.as_str() {
        "idle" => idle::show(report),
        "kv-cache" => kv_cache::show(report),
        "instructions" => instructions::show(report),
        "isolation" => isolation::show(report),
        "incast" => incast::show(report),
        "incast-rdma" => incast_rdma::show(report),
        "fairness" => fairness::show(report),
        "loss" => loss::show(report),
        "wan" => wan::show(report),
        "working-set" => working_set::show(report),
        "notification" => notification::show(report),
        "rdma" => rdma::show(report),
        "zeronic" => zeronic::show(report),
        "collectives" => collectives::show(report),
        "training" => training::show(report),
        "extensions" => extensions::show(report),
        _ => compare::show(report),
    }
}

/// What can be drawn of a report, with a name for each plot.
pub(crate) fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    match report.case.as_str() {
        "incast" => incast::plots(report),
        "fairness" => fairness::plots(report),
        "loss" => loss::plots(report),
        "zeronic" => zeronic::plots(report),
        "collectives" => collectives::plots(report),
        "parallel" => parallel::plots(report),
        _ => charts::of(report),
    }
}
