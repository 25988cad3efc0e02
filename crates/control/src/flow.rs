//! The control plane's state of a flow that an engine runs.
use crate::flow_options::FlowOptions;
use crate::flow_timers::FlowTimers;
use crate::holders::Holders;
use crate::journal::RecordNumber;
use context::Slot;
use engine::stream::FlowStats;
use engine::{ContextId, Nanos};
use serde::{Deserialize, Serialize};
use shm::Pooled;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use tcp::{Agreed, Closing, State};
use wire::{CompactTuple, Mac, Seq};

/// A flow.
pub(crate) struct Flow {
    pub tuple: CompactTuple,
    pub remote_mac: Mac,
    pub agreed: Agreed,
    pub iss: Seq,
    /// Time at which an engine first ran it.
    pub since: Nanos,
    pub stats: Pooled<FlowStats>,
    /// Its slots in the applications' contexts.
    pub names: Names,
    /// Which of them its completions go to.
    pub current: usize,
    pub holders: Holders,
    /// The listener that it came in on, until an application has accepted it.
    pub unaccepted: Option<u32>,
    /// Read position of a process that gave up its share, while others have one.
    pub read: Option<u32>,
    pub closing: Closing,
    pub engine: EngineState,
    pub options: Arc<FlowOptions>,
    pub timers: FlowTimers,
    /// Answers to [`engine::Command::Freeze`] that are still to come.
    pub freezing: u16,
    /// It is stopped so that its memory can be given back: the application that asked, and its name for the flow.
    pub reclaim: Option<(engine::ContextId, Slot)>,
    pub spliced: Spliced,
    pub marks: Marks,
    /// Its record for the next daemon.
    pub record: Option<RecordNumber>,
}

/// Boolean properties of a flow, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks {
    /// Received bytes are records of its context's log.
    pub logged: bool,
    /// Data of the SYN was acknowledged with it (RFC 7413).
    pub with_data: bool,
    /// See [`engine::stream::Event::NoLine`].
    pub no_line: bool,
}

/// The state of joining a connection with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Spliced {
    /// It was not.
    No,
    /// It is part of this splice.
    In(u32),
    /// It was, and is over, with this error number or 0.
    Over(u16),
}

/// A slot of a context that names a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name {
    pub context: ContextId,
    pub slot: Slot,
    /// The context has not closed it.
    pub open: bool,
    /// The slot is taken. A name that is not is only remembered for children that have the flow under it.
    pub taken: bool,
}

/// The names of a flow in contexts. The first name is where its buffers are. Others come with forks, and cost memory of
/// their own, since tens of thousands of flows have none.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    home: Name,
    #[expect(clippy::box_collection, reason = "one word instead of three where there are none")]
    others: Option<Box<Vec<Name>>>,
}

impl Names {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Name> {
        std::iter::once(&self.home).chain(self.others.iter().flat_map(|others| others.iter()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Name> {
        std::iter::once(&mut self.home).chain(self.others.iter_mut().flat_map(|others| others.iter_mut()))
    }

    /// Adds a name; returns its place.
    pub(crate) fn push(&mut self, name: Name) -> usize {
        let others = self.others.get_or_insert_default();
        others.push(name);
        others.len()
    }
}

impl From<Name> for Names {
    fn from(home: Name) -> Names {
        Names { home, others: None }
    }
}

impl TryFrom<Vec<Name>> for Names {
    type Error = &'static str;
    fn try_from(mut names: Vec<Name>) -> Result<Names, Self::Error> {
        if names.is_empty() {
            return Err("a connection has no name");
        }
        let home = names.remove(0);
        Ok(Names { home, others: (!names.is_empty()).then(|| Box::new(names)) })
    }
}

impl Index<usize> for Names {
    type Output = Name;
    fn index(&self, at: usize) -> &Name {
        match (at, &self.others) {
            (0, _) | (_, None) => &self.home,
            (_, Some(others)) => &others[at - 1],
        }
    }
}

impl IndexMut<usize> for Names {
    fn index_mut(&mut self, at: usize) -> &mut Name {
        match (at, &mut self.others) {
            (0, _) | (_, None) => &mut self.home,
            (_, Some(others)) => &mut others[at - 1],
        }
    }
}

/// A flow's state in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineState {
    /// The engine runs it.
    Engine,
    /// It is being removed; then this.
    Leaving(After),
    /// The engine has given it up. What is left is a name that an application has not closed yet.
    Gone,
}

/// The fate of a connection when its flow has left the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It waits for the peer's FIN or for old segments to die: TIME-WAIT or FIN-WAIT-2.
    TimeWait,
    /// The peer is reset.
    Reset,
    /// It goes on, joined with another one.
    Splice,
    /// It is over on both sides.
    Nothing,
}

impl Flow {
    /// A process that gives up its share had read as far.
    pub(crate) fn note_read(&mut self, rx_head: u32) {
        let further = self.read.is_none_or(|read| rx_head.wrapping_sub(read) as i32 > 0);
        self.read = if further { Some(rx_head) } else { self.read };
    }

    /// Whether one of so many received bytes was not read. This is judged by the reports of those that gave up their
    /// shares, the last one with this position. Not that one alone: it may have asked before another one read, and be
    /// received after it.
    pub(crate) fn has_unread(&self, rx_bytes: u32, last: u32) -> bool {
        [Some(last), self.read].into_iter().flatten().all(|read| rx_bytes.wrapping_sub(read) as i32 > 0)
    }

    /// RFC 9293's state. One whose flow left the engine is over, but for a splice's, which goes on.
    pub(crate) fn state(&self) -> State {
        let over = self.engine == EngineState::Gone && !matches!(self.spliced, Spliced::In(_));
        if over { State::Closed } else { self.closing.state() }
    }

    /// Nobody has a share of it any more, and it was not closed: a reset follows what it may still send.
    pub(crate) fn awaits_reset(&self) -> bool {
        self.engine == EngineState::Engine && self.holders.is_empty() && !self.closing.is_orphan()
    }

    /// The name that completions go to.
    pub(crate) fn name(&self) -> Name {
        self.names[self.current]
    }

    /// The name that `context` has open.
    pub(crate) fn name_in(&self, context: ContextId) -> Option<usize> {
        self.names.iter().position(|name| name.context == context && name.open)
    }

    /// The flow is known to an application as `slot` of `context`, or was.
    pub(crate) fn is_called(&self, context: ContextId, slot: Slot) -> bool {
        self.names.iter().any(|name| name.context == context && name.slot == slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/MEMORY.md: tens of thousands of flows may be idle.
    #[test]
    fn what_the_control_plane_keeps_of_a_flow_is_small() {
        println!("{} {} {}", size_of::<Option<Flow>>(), size_of::<FlowTimers>(), size_of::<tcp::RttEstimator>());
        println!("{} {}", size_of::<FlowStats>(), size_of::<tcp::congestion::Controller>());
        assert!(size_of::<Option<Flow>>() <= 416, "{}", size_of::<Option<Flow>>());
    }
}
