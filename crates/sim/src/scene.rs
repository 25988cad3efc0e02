//! Shared state of a simulation's applications: the plan, all connections, the listeners.
use crate::inspect::Inspector;
use crate::pair::{Pair, SERVER, SideState, script};
use crate::plan::Plan;
use console::several;
use port::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::Endpoint;

/// How far a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listening {
    /// Nobody listens yet.
    Before,
    /// So many applications hold it.
    Open(u32),
    /// Nobody listens any more.
    Over,
}

/// Shared by all applications.
pub(crate) struct Scene {
    /// The scenario.
    pub plan: Arc<Plan>,
    /// Time of the start: virtual times of the plan count from here.
    pub start: Nanos,
    /// All connections so far.
    pub pairs: Vec<Pair>,
    /// How far the plan's listeners are.
    pub listening: Vec<Listening>,
    /// When a connection came in whose client has no completion of it, by both ends. Processes may have it in turn.
    pub unknown_since: BTreeMap<(Endpoint, Endpoint), Nanos>,
    /// Watches the frames.
    pub inspector: Inspector,
    /// What happened, for people.
    pub figures: Figures,
}

/// Counts of what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Connections whose both sides ended as planned.
    pub completed: u64,
    /// Connections that were reset, refused or left.
    pub spoiled: u64,
    /// Bytes read, all of them right.
    pub bytes: u64,
    /// Frames sent.
    pub frames: u64,
    /// Segments with data or FIN that were sent again.
    pub resent: u64,
    /// Hosts that another daemon took over, or that stopped for one and went on.
    pub takeovers: u64,
    /// Hosts that were killed, and whose place another one took.
    pub kills: u64,
    /// Connections that went on after such a kill.
    pub survivors: u64,
    /// SYNs answered with cookies.
    pub cookies: u64,
    /// Connections that rested.
    pub rested: u64,
    /// Streams of connections that outgrew their buffers.
    pub grown: u64,
    /// RDMA operations that were judged: work requests that have ended well, and messages received.
    pub operations: u64,
    /// Queue pairs that began anew after an error.
    pub renewed: u64,
    /// Posts of ZeroNIC programs that were judged.
    pub posts: u64,
    /// Virtual time, nanoseconds.
    pub virtual_ns: u64,
    /// Sum over everything that was sent, with its time: equal for equal runs.
    pub digest: u64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Figures {
            completed, spoiled, bytes, frames, resent, takeovers, cookies, rested, virtual_ns, digest, ..
        } = self;
        let Figures { kills, survivors, operations, renewed, posts, grown, .. } = self;
        let seconds = *virtual_ns as f64 / 1e9;
        let all = several(completed + spoiled, "connection");
        write!(f, "{all}, {spoiled} of them spoiled by plan; {} read; ", several(*bytes, "byte"))?;
        write!(f, "{}, {} sent again; ", several(*frames, "frame"), several(*resent, "segment"))?;
        write!(f, "{}, {}, ", several(*takeovers, "takeover"), several(*kills, "kill"))?;
        write!(f, "{} survived, {}, ", several(*survivors, "connection"), several(*cookies, "cookie"))?;
        write!(f, "{} judged, ", several(*operations, "RDMA operation"))?;
        write!(f, "{} renewed, {}; ", several(*renewed, "queue pair"), several(*posts, "ZeroNIC post"))?;
        write!(f, "{} outgrew their buffers, ", several(*grown, "stream"))?;
        write!(f, "{} rested; {seconds:.1} virtual seconds; digest {digest:016x}", several(*rested, "connection"))
    }
}

impl Scene {
    /// A holder of a listener comes.
    pub(crate) fn listener_comes(&mut self, listen: usize) {
        self.listening[listen] = match self.listening[listen] {
            Listening::Open(holders) => Listening::Open(holders + 1),
            _ => Listening::Open(1),
        };
    }

    /// A holder of a listener goes; connections that it had not accepted may end with it.
    pub(crate) fn listener_goes(&mut self, listen: usize) {
        self.listening[listen] = match self.listening[listen] {
            Listening::Open(holders) if holders > 1 => Listening::Open(holders - 1),
            _ => Listening::Over,
        };
        if self.listening[listen] == Listening::Over {
            let plan = Arc::clone(&self.plan);
            let waiting = |pair: &&mut Pair| {
                plan.share_port(plan.calls[pair.call].to, listen) && pair.halves[SERVER].stage == SideState::Waiting
            };
            self.pairs.iter_mut().filter(waiting).for_each(|pair| pair.spoil("its listener went"));
        }
    }

    /// A side of a connection asks for keepalive.
    pub(crate) fn keeps_alive(&self, pair: usize, side: usize) -> bool {
        script(&self.plan.calls[self.pairs[pair].call], side).keepalive
    }

    /// Counts what became of a connection: its client is done with it.
    pub(crate) fn count_end(&mut self, pair: usize) {
        if self.pairs[pair].spoiled.is_some() {
            self.figures.spoiled += 1;
        } else {
            self.figures.completed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_counted_in_words() {
        let figures = Figures { completed: 1, cookies: 1, resent: 2, ..Figures::default() };
        let text = figures.to_string();
        assert!(text.starts_with("1 connection, 0 of them spoiled by plan; 0 bytes read; 0 frames, 2 segments sent"));
        assert!(
            text.contains("; 0 takeovers, 0 kills, 0 connections survived, 1 cookie, 0 RDMA operations judged, "),
            "{text}"
        );
    }
}
