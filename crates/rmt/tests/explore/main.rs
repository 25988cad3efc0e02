//! Every order of events, not some (thesis 5.3: "TCP state is always kept consistent"): small streams through the
//! compiled P4 program, exhaustively. Segments may be lost, doubled and overtaken. Pseudo segments wait, overtake each
//! other and are lost at the traffic manager. An application reads at any time. In every state that can be reached the
//! application's bytes are right, and from every state the stream can be finished. So with two writers of a shared log.
//!
//! `EXPLORE=7 cargo test --release -p rmt --test explore -- --nocapture` explores longer streams (bytes).
//!
//! The search is a breadth-first walk over the registers and what is under way. A model checker's crate would bring a
//! web server along, and nothing that is used here.
mod flow;
mod log;
mod receive;
mod transmit;

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// What is explored.
pub(crate) trait Model {
    type State: Clone + Eq + Hash + Debug;
    fn first(&self) -> Self::State;
    /// What can happen, by name. Panics where something wrong happens on the way.
    fn steps(&mut self, state: &Self::State) -> Vec<(String, Self::State)>;
    /// What is wrong in this state, or with what can still become of it.
    fn wrong(&mut self, state: &Self::State) -> Option<String>;
}

/// Beyond this a model has grown by mistake.
const MOST_STATES: usize = 5_000_000;

/// Visits every state once; how many there are. On a wrong one, prints the shortest way there.
pub(crate) fn explore<M: Model>(model: &mut M) -> usize {
    let mut from: HashMap<M::State, Option<(M::State, String)>> = HashMap::new();
    let mut next = VecDeque::from([model.first()]);
    from.insert(model.first(), None);
    while let Some(state) = next.pop_front() {
        if let Some(wrong) = model.wrong(&state) {
            panic!("{wrong}\n{}", way(&from, state));
        }
        for (name, after) in model.steps(&state) {
            if !from.contains_key(&after) {
                from.insert(after.clone(), Some((state.clone(), name)));
                next.push_back(after);
            }
        }
        assert!(from.len() < MOST_STATES, "more states than this is made for");
    }
    from.len()
}

fn way<S: Clone + Eq + Hash + Debug>(from: &HashMap<S, Option<(S, String)>>, mut state: S) -> String {
    let mut lines = Vec::new();
    while let Some((before, name)) = &from[&state] {
        lines.push(format!("{name}: {state:x?}"));
        state = before.clone();
    }
    lines.reverse();
    lines.join("\n")
}

/// Bytes of the stream: by default, or as `EXPLORE` sets it.
pub(crate) fn bytes(default: u32) -> u32 {
    std::env::var("EXPLORE").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}
