//! Connections that an application still has to open.
use crate::plan::{CallPlan, Plan};
use port::Nanos;

/// Groups of connections that an application opens.
pub(crate) struct Caller {
    pub(crate) groups: Vec<Group>,
    /// Connections to try again, and when.
    pub(crate) again: Vec<(Nanos, usize)>,
    pub(crate) live: u32,
}

/// Connections of one call of the plan.
pub(crate) struct Group {
    pub(crate) call: usize,
    pub(crate) started: u32,
    pub(crate) next_start: Nanos,
}

impl Caller {
    /// The calls of an application.
    pub(crate) fn new(plan: &Plan, app: usize, start: Nanos) -> Caller {
        let mine = plan.calls.iter().enumerate().filter(|(_, call)| call.app == app);
        let group =
            |(call, plan): (usize, &CallPlan)| Group { call, started: 0, next_start: start + plan.start_us * 1000 };
        Caller { groups: mine.map(group).collect(), again: Vec::new(), live: 0 }
    }

    /// Opens nothing.
    pub(crate) fn none() -> Caller {
        Caller { groups: Vec::new(), again: Vec::new(), live: 0 }
    }

    /// Nothing is left to open.
    pub(crate) fn is_over(&self) -> bool {
        self.groups.is_empty() && self.again.is_empty()
    }

    /// Opens nothing more; the connections that it was about to try again.
    pub(crate) fn forget(&mut self) -> impl Iterator<Item = usize> {
        self.groups.clear();
        std::mem::take(&mut self.again).into_iter().map(|(_, pair)| pair)
    }

    /// One of its connections is over.
    pub(crate) fn ended(&mut self) {
        self.live = self.live.saturating_sub(1);
    }
}
