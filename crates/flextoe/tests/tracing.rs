//! Tracepoints that are only counted say the same as those whose records somebody watches.
mod common;

use common::{Config, Lab};
use flextoe::Mapping;
use std::collections::BTreeMap;
use trace::{Kind, Point, PointSet, Traces};

/// What each tracepoint of the first side counted in a run, but for times and how much modules took at once; and the
/// measured values added up.
fn counted(config: &Config, watched: bool) -> BTreeMap<&'static str, (u64, u64)> {
    let traces = Traces::new(|| 5);
    let mut lab = Lab::new(config.clone());
    lab.sides[0].engine.trace(&traces);
    let held = (!watched).then(|| traces.hold(PointSet::all()));
    let watch = watched.then(|| traces.watch(PointSet::all(), None));
    lab.finish(20);
    let figures = traces.figures();
    drop((held, watch));
    let is_time = |point: Point| point.name().ends_with("time") || point.name().contains(".time.");
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
    // A turn is unused only where an order or a segment comes between the report and the turn.
    let rare = ["flextoe.protocol.turn_unused", "flextoe.protocol.reset"];
    assert!(silent.iter().all(|name| rare.contains(name)), "nobody resets here: {silent:?}");
}
