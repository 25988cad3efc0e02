//! The stand-in dies, and a successor is there at once, which may have the connections (docs/RESTART.md).
use super::{App, Host};
use context::attach::{Asked, SurvivingConnection, Ticket};
use context::{Reply, Slot, begin_anew};
use shm::Region;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How a stand-in dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// Its successor has none of the connections.
    WithAll,
    /// Its successor goes on with them.
    Survived,
    /// The same, but the successor dies as well, when a program asks for its connections.
    ResumingToo,
    /// The same, but the successor dies as well, when a program asks for its listener.
    ListeningToo,
}

/// What lasts of an attached process: its context's number, region and slots.
pub(super) struct Remains {
    context: u32,
    region: Arc<Region>,
    slots: Vec<(u16, bool)>,
}

impl Host {
    pub(super) fn die(&mut self, death: Death) {
        let apps = std::mem::take(&mut self.apps);
        (self.bindings, self.openings) = Default::default();
        self.dies_again = Some(death).filter(|death| matches!(death, Death::ResumingToo | Death::ListeningToo));
        if death == Death::WithAll {
            self.connections.clear();
            return;
        }
        let remains = apps.into_iter().map(|(context, App { region, slots, .. })| Remains { context, region, slots });
        self.remains.extend(remains);
    }

    /// The region that a process brings, with what was in it.
    pub(super) fn take_remains(&mut self, descriptors: Vec<OwnedFd>) -> Option<Remains> {
        let number = Region::from_fd(descriptors.into_iter().next()?).ok()?.number();
        let at = self.remains.iter().position(|remains| remains.region.number() == number)?;
        begin_anew(&self.remains[at].region, &super::GEOMETRY).unwrap();
        Some(self.remains.swap_remove(at))
    }

    /// A process is back, where its context has another number.
    pub(super) fn rename(&mut self, remains: Remains, context: u32) -> (Arc<Region>, Vec<(u16, bool)>) {
        for end in self.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            if end.owner.0 == remains.context {
                end.owner.0 = context;
                (end.names, end.holders) = (vec![end.owner], [context].into());
            }
        }
        (remains.region, remains.slots)
    }

    /// The ticket of a listener, which its successor takes without checking its seal.
    pub(super) fn ticket(&self, binding: u32) -> Option<Ticket> {
        let (local, reuse_port) = self.bindings.get(&binding).map(|binding| (binding.local, binding.reuse))?;
        let listener = binding.into();
        Some(Ticket { listener, local, reuse_address: false, reuse_port, dual_stack: false, uid: 0, seal: 0 })
    }

    /// A listener comes back.
    pub(super) fn listen_again(&mut self, context: u32, ticket: &Ticket, backlog: u32) -> Asked {
        let Reply::Bound { binding, .. } = self.bind(context, 0, ticket.local, ticket.reuse_port) else {
            return Asked::Failed(libc::EADDRINUSE);
        };
        self.listen(binding, backlog);
        Asked::Listens(binding)
    }

    /// The connections of a process go on; those that it does not name end.
    pub(super) fn resume(&mut self, context: u32, connections: &[SurvivingConnection]) -> Vec<Slot> {
        let (mut on, mut completions) = (Vec::new(), Vec::new());
        for end in self.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            let (owner, slot) = end.owner;
            if owner != context {
                continue;
            }
            match connections.iter().find(|kept| kept.slot == slot) {
                Some(kept) => {
                    end.advance(kept.tx_head, kept.rx_head);
                    end.fin |= kept.shut;
                    on.push(slot);
                    completions.push(end.completion());
                }
                None => (end.closed, end.aborted) = (true, true),
            }
        }
        completions.into_iter().for_each(|completion| self.notify(context, completion));
        on
    }
}
