//! Offer timing: connections that wait in a process of a shared listener (docs/LISTENERS.md).
use crate::accept_queue::{AcceptQueue, Overdue, QueuedConnection};
use crate::bindings::{Bindings, Listener};
use crate::contexts::Holder;
use crate::flow::Flow;
use crate::flows::Flows;
use engine::{ContextId, FlowId, Nanos};

impl Bindings {
    /// Forgets connections that were accepted meanwhile.
    pub(crate) fn settle(&mut self, flows: &Flows, binding: u32) {
        let Some(listener) = self.listener(binding) else { return };
        for (context, accept_queue) in &mut listener.armed {
            let waits = |connection: &QueuedConnection| waits(flows, connection.flow, *context, binding);
            while accept_queue.queued.front().is_some_and(|connection| !waits(connection)) {
                accept_queue.queued.pop_front();
                accept_queue.has_accepted();
            }
        }
    }

    /// A connection waits in a process from now on.
    pub(crate) fn offered(&mut self, binding: u32, at: ContextId, flow: FlowId, offers: u8, now: Nanos) {
        let accept_queue = self.listener(binding).and_then(|listener| listener.armed.get_mut(&at));
        if let Some(accept_queue) = accept_queue {
            accept_queue.queued.push_back(QueuedConnection { flow, since: now, offers });
        }
    }

    /// Connections that are to go on: their offer has expired, or they wait where none was accepted in time lately. For
    /// a process that found none (`empty`), also those that wait where none was ever accepted. At most `most`.
    pub(crate) fn overdue(&self, binding: u32, now: Nanos, empty: Option<ContextId>, most: usize) -> Vec<Overdue> {
        let Some(listener) = self.get(binding).and_then(|binding| binding.listener.as_ref()) else { return Vec::new() };
        let of_queue = |(at, accept_queue): (&ContextId, &AcceptQueue)| {
            let (at, passive) = (*at, accept_queue.passive_until > now || (empty.is_some() && !accept_queue.accepts));
            let found = accept_queue.queued.iter().map(move |connection| (connection.flow, connection.due() <= now));
            let found = found.filter(move |(_, due)| *due || passive);
            found.map(move |(flow, due)| Overdue { flow, at, anywhere: due || empty.is_some() }).collect::<Vec<_>>()
        };
        let others = listener.armed.iter().filter(|(at, _)| empty != Some(**at));
        others.flat_map(of_queue).take(most).collect()
    }

    /// Withdraws the expired offer of a connection. Returns how many have expired by now.
    pub(crate) fn withdraw_offer(&mut self, binding: u32, at: ContextId, flow: FlowId, now: Nanos) -> u8 {
        let Some(accept_queue) = self.listener(binding).and_then(|listener| listener.armed.get_mut(&at)) else {
            return 0;
        };
        accept_queue.offer_expired(now);
        let place = accept_queue.queued.iter().position(|connection| connection.flow == flow);
        place
            .and_then(|place| accept_queue.queued.remove(place))
            .map_or(0, |connection| connection.offers.saturating_add(1))
    }

    /// A connection was accepted in the last moment.
    pub(crate) fn accepted(&mut self, binding: u32, at: ContextId, flow: FlowId) {
        let Some(accept_queue) = self.listener(binding).and_then(|listener| listener.armed.get_mut(&at)) else {
            return;
        };
        accept_queue.has_accepted();
        accept_queue.queued.retain(|connection| connection.flow != flow);
    }

    /// Nothing waits in a process that tries to accept.
    pub(crate) fn is_empty_at(&self, binding: u32, at: ContextId) -> bool {
        let accept_queue = self.get(binding).and_then(|binding| binding.listener.as_ref()?.armed.get(&at));
        accept_queue.is_some_and(|accept_queue| accept_queue.queued.is_empty())
    }

    /// After a takeover: connections that wait are offered anew.
    pub(crate) fn offer_again(&mut self, flows: &Flows, now: Nanos) {
        for (id, flow) in flows.iter() {
            let waiting = flow.unaccepted.filter(|_| flow.holders.contains(&Holder::Context(flow.names[0].context)));
            if let Some(binding) = waiting {
                self.offered(binding, flow.names[0].context, FlowId(id), 0, now);
            }
        }
    }
}

/// A connection waits in a process to be accepted.
fn waits(flows: &Flows, flow: FlowId, at: ContextId, binding: u32) -> bool {
    let waits = |flow: &Flow| {
        flow.unaccepted == Some(binding) && flow.names[0].context == at && flow.holders.contains(&Holder::Context(at))
    };
    flows.get(flow.0).is_some_and(waits)
}

impl Listener {
    /// When the next offer of a connection expires that another process might take.
    pub(crate) fn next_reassignment(&self) -> Option<Nanos> {
        if self.armed.len() < 2 {
            return None;
        }
        // Not always the front one: those that were offered elsewhere wait longer.
        self.armed.values().flat_map(|accept_queue| accept_queue.queued.iter().map(QueuedConnection::due)).min()
    }

    /// Where in the order of those that take connections a process comes: first all that are not passive, then those
    /// whose time is over first.
    pub(crate) fn order_of(&self, context: ContextId, now: Nanos) -> Nanos {
        self.armed.get(&context).map_or(Nanos::MAX, |accept_queue| accept_queue.passive_until).saturating_sub(now)
    }
}
