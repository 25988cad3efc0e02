//! Tracepoints of what does not happen in the simulation's random scenarios: sleepers, readers that stop, narrow paths.
mod support;

use context::Slot;
use engine::Limits;
use flextoe::{FlexToe, Mapping};
use port::FramePool;
use std::sync::Arc;
use support::sockets::Sockets;
use support::unknown_peers::icmp_unreachable;
use support::*;
use trace::{Point, PointSet, Traces};

/// Two programs that are connected, and what the first one's host counts.
struct Pair {
    net: Net,
    apps: [App; 2],
    slots: [Slot; 2],
    sockets: Sockets,
    traces: Arc<Traces>,
}

impl Pair {
    fn new() -> Pair {
        let mut net = Net::new(vec![config(0), config(1)], |_, config| {
            let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
            Box::new(FlexToe::new(limits, Mapping::default(), FramePool::new(64)))
        });
        let traces = Traces::new(|| 1);
        traces.enable(PointSet::all());
        net.nodes[0].host.trace(&traces);
        let (mut a, mut b) = (net.attach(0), net.attach(1));
        b.serve(&mut net, 80);
        let tag = a.connect(ip_of(1), 80, 0);
        net.settle();
        let slots = [a.connected(tag).unwrap().unwrap(), b.accepted().unwrap()];
        let mut sockets = Sockets::default();
        sockets.open(&a, slots[0]);
        Pair { net, apps: [a, b], slots, sockets, traces }
    }

    /// The first program writes as much as there is room for.
    fn write(&mut self) {
        self.sockets.write(&mut self.apps[0], self.slots[0], &[7; 200_000]);
    }

    fn count(&self, point: Point) -> u64 {
        self.traces.figures().iter().find(|figure| figure.point == point).map_or(0, |figure| figure.count)
    }
}

#[test]
fn a_sleeping_application_is_rung() {
    let mut pair = Pair::new();
    assert_eq!((pair.count(Point::ControlBell), pair.count(Point::ContextBell)), (0, 0), "it has not slept");
    pair.apps[0].end.app_bell.prepare_to_sleep();
    pair.apps[0].bind(&mut pair.net, 90, false, false).unwrap();
    assert_eq!((pair.count(Point::ControlBell), pair.count(Point::ContextBell)), (1, 0), "an answer");
    pair.apps[0].end.app_bell.awake();
    pair.write();
    pair.apps[0].end.app_bell.prepare_to_sleep();
    pair.net.settle();
    assert_eq!(pair.count(Point::ControlBell), 1);
    assert!(pair.count(Point::ContextBell) > 0, "there is room to write again");
}

#[test]
fn a_peer_that_does_not_read_is_probed() {
    let mut pair = Pair::new();
    // What fills the peer's buffer, and what has to wait then.
    pair.write();
    pair.net.run_for(100 * MS);
    pair.write();
    pair.net.run_for(10 * SECOND);
    assert!(pair.count(Point::WindowClosed) > 0 && pair.count(Point::ProbeDue) > 0);
}

#[test]
fn a_narrow_path_makes_segments_smaller() {
    let mut pair = Pair::new();
    // Nothing comes back, so that something stays on its way.
    pair.net.filter = Box::new(|from, _| from != 1);
    pair.net.seen.clear();
    pair.write();
    pair.net.settle();
    let sent = pair.net.seen.iter().find(|(from, bytes)| *from == 0 && bytes.len() > 1000).unwrap().1.clone();
    pair.net.inject(0, &icmp_unreachable(4, 1000, &sent, 1));
    pair.net.settle();
    assert_eq!(pair.count(Point::FlowMss), 1);
}
