//! Tracepoints that are only counted, and those whose records are streamed: both agree, and what they record of fixed
//! scenarios stays the same.
mod common;

use common::{Config, Lab};
use engine::stream::Stream;
use engine::{Engine, FramePool, Limits};
use flextoe::{FlexToe, Mapping};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use trace::{Kind, Point, PointSet, Traces};

/// The point measures a time that the engine's clock gives.
fn is_time(point: Point) -> bool {
    point.name().ends_with("time") || point.name().contains(".time.")
}

/// What each tracepoint of the first side counted in a run, with the measured values added up. Times, and how much
/// modules took at once, are left out.
fn counted(config: &Config, watched: bool) -> BTreeMap<&'static str, (u64, u64)> {
    let traces = Traces::new(|| 5);
    let mut lab = Lab::new(config.clone());
    lab.sides[0].engine.trace(&traces);
    let held = (!watched).then(|| traces.hold(PointSet::all()));
    let watch = watched.then(|| traces.watch(PointSet::all(), None));
    lab.finish(20);
    let figures = traces.figures();
    drop((held, watch));
    let is_batch = |point: Point| point.name().ends_with("batch");
    let events = figures.iter().filter(|figure| !is_time(figure.point) && !is_batch(figure.point));
    let sum = |figure: &trace::Figure| figure.distribution.as_ref().map_or(0, |distribution| distribution.sum);
    events.map(|figure| (figure.point.name(), (figure.count, sum(figure)))).collect()
}

#[test]
fn counting_and_streaming_agree() {
    let mut seen = BTreeMap::new();
    for seed in 0..40 {
        // With one flow group, plain segments never become works.
        let mapping = Mapping { flow_groups: 1 + seed as u8 % 2, ..Mapping::default() };
        let config = Config { mapping, ..Config::random(seed) };
        let (counts, streams) = (counted(&config, false), counted(&config, true));
        assert_eq!(counts, streams, "seed {seed}");
        counts.iter().for_each(|(name, (count, _))| *seen.entry(*name).or_insert(0) += count);
    }
    // All that can happen to a stream did happen in one run or another.
    let protocol = Point::ALL.iter().filter(|point| point.name().starts_with("flextoe.protocol."));
    let silent: Vec<&str> = protocol
        .filter(|point| point.kind() == Kind::Event && seen.get(point.name()).copied().unwrap_or(0) == 0)
        .map(|point| point.name())
        .collect();
    // A grant is unused only where an order or a segment comes between the report and the grant.
    let rare = ["flextoe.protocol.grant_unused", "flextoe.protocol.reset"];
    assert!(silent.iter().all(|name| rare.contains(name)), "nobody resets here: {silent:?}");
}

thread_local! {
    static TRACES: RefCell<Arc<Traces>> = RefCell::new(Traces::new(|| 5));
}

/// An engine whose modules have tracers before they go to threads of their own.
fn traced(config: &Config, limits: Limits, pool: FramePool) -> Box<dyn Engine<Stream>> {
    let mut engine = FlexToe::new(limits, config.mapping.clone(), pool);
    TRACES.with_borrow(|traces| engine.trace(traces));
    Box::new(engine)
}

/// Of each tracepoint: how often it was counted, and what was measured, added up. Of its records: how many there are,
/// with their values and flows added up.
type Recorded = BTreeMap<&'static str, [u64; 6]>;

/// Adds what the tracepoints of both sides record in a run.
fn record(config: &Config, into: &mut Recorded) {
    for streamed in [false, true] {
        let traces = Traces::new(|| 5);
        TRACES.set(Arc::clone(&traces));
        let mut lab = Lab::new(Config { engine: traced, ..config.clone() });
        let held = (!streamed).then(|| traces.hold(PointSet::all()));
        let mut watch = streamed.then(|| traces.watch(PointSet::all(), None));
        let mut records = Vec::new();
        lab.finish_with(20, |_| watch.iter_mut().for_each(|watch| watch.read(usize::MAX, &mut records)));
        drop(held);
        for record in records.iter().filter(|record| !is_time(record.point)) {
            let sums = into.entry(record.point.name()).or_default();
            let values = [1, record.values[0], record.values[1], record.flow.into()];
            sums[2..].iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
        }
        for figure in traces.figures().iter().filter(|figure| !streamed && !is_time(figure.point)) {
            let sums = into.entry(figure.point.name()).or_default();
            sums[0] += figure.count;
            sums[1] += figure.distribution.as_ref().map_or(0, |distribution| distribution.sum);
        }
    }
}

#[test]
fn fixed_scenarios_record_what_they_did() {
    let mut recorded = Recorded::new();
    for seed in 100..130 {
        let threads = seed % 3 == 0;
        let (flow_groups, replicas) = (1 + seed as u8 % 2, 2);
        let mapping = Mapping { threads, preprocess: replicas, flow_groups, postprocess: replicas, dma: replicas };
        let config = Config { mapping, ..Config::random(seed) };
        record(&config, &mut recorded);
    }
    let mut text = String::from("# point: counted, measured; records, first values, second values, flows\n");
    for (name, sums) in &recorded {
        let [counted, measured, records, first, second, flows] = sums;
        writeln!(text, "{name}: {counted}, {measured}; {records}, {first}, {second}, {flows}").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tracepoints.txt");
    if std::env::var_os("WRITE_TRACEPOINTS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let before = std::fs::read_to_string(path).unwrap();
    assert_eq!(before, text, "WRITE_TRACEPOINTS=1 writes {path} anew");
}
