//! A host that another one takes over, as one daemon's from another.
use super::{CAPS, Net, Node, mac_of};
use context::daemon_ends;
use control::{HostConfig, HostState};
use engine::Engine;
use engine::stream::Stream;
use shm::Region;
use std::collections::HashMap;
use std::sync::Arc;

/// Stops the host of a node, as a daemon does.
pub(crate) fn stop(net: &mut Net, node: usize) {
    let Node { host, pool, .. } = &mut net.nodes[node];
    assert!(host.handover_obstacle().is_none() && host.base().is_settled());
    host.base_mut().stop();
    let mut sent = Vec::new();
    for _ in 0..100 {
        if host.base().is_stopped() {
            break;
        }
        host.poll(net.now, &mut Vec::new(), &mut sent, pool);
    }
    assert!(host.base().is_stopped());
}

/// Engine and control plane report the same state of each connection.
fn agree_on_states(state: &str) {
    let state: serde_json::Value = serde_json::from_str(state).unwrap();
    for flow in state["flows"].as_array().unwrap().iter().filter(|flow| !flow["end"].is_null()) {
        let ends: tcp::Ends = serde_json::from_value(flow["closing"]["ends"].clone()).unwrap();
        let of_engine: tcp::State = serde_json::from_value(flow["end"]["resume"]["state"].clone()).unwrap();
        assert_eq!(ends.state(), of_engine, "{flow}");
    }
}

/// What all connections of a host counted so far.
fn counted(host: &control::Host) -> control::Counters {
    let (mut counters, mut next) = (host.base().counters().clone(), Some(0));
    while let Some(from) = next {
        next = host.base().add_to_ledger(&mut counters, from, 3);
    }
    counters
}

/// Another daemon's host takes the place of a stopped one, with nothing but its state and descriptors.
pub(crate) fn take_over(net: &mut Net, node: usize, make: impl Fn(&HostConfig) -> Box<dyn Engine<Stream>>) {
    restore(net, node, make).unwrap();
}

pub(crate) fn restore(
    net: &mut Net,
    node: usize,
    make: impl Fn(&HostConfig) -> Box<dyn Engine<Stream>>,
) -> Result<(), String> {
    let old = &net.nodes[node].host;
    let before = counted(old);
    let text = serde_json::to_string(&old.base().state(net.now, old.net())).unwrap();
    agree_on_states(&text);
    let state: HostState = serde_json::from_str(&text).unwrap();
    let mut ends = HashMap::new();
    for id in state.contexts() {
        let [region, bell, own] = old.base().descriptors(id).unwrap().map(|fd| fd.try_clone_to_owned().unwrap());
        let region = Arc::new(Region::from_fd(region).unwrap());
        ends.insert(id, daemon_ends(&region, state.geometry(), bell, own));
    }
    let config = old.base().config().clone();
    let engine = make(&config);
    let links = vec![config.link(mac_of(node), CAPS)];
    let mut new = control::host(config, links, engine, [99; 16]).unwrap();
    new.use_base(net.now, |tcp, context| tcp.restore(context, state, ends))?;
    assert_eq!(counted(&new), before, "counters of connections go on");
    net.nodes[node].host = new;
    Ok(())
}
