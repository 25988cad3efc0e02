//! Identifiers and event channels of the programs (`struct rdma_cm_id`, `struct rdma_event_channel`).
use crate::failure::Failure;
use crate::user_context::{EventPipe, ProgramId};
use engine::Nanos;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use verbs::Number;
use verbs::connections::{Event, Happened, Space};
use wire::Mac;
use wire::roce::cm::{CommId, Mad, Service};

/// Channels and identifiers of a program at most: the library makes a channel for each identifier that is used without
/// events.
const MOST_CHANNELS: usize = 1024;
const MOST_IDS: usize = 4096;
/// Events of a program that may wait, before it is refused what leads to more: a few for each identifier.
const MOST_EVENTS: usize = 4 * MOST_IDS;

/// An identifier of some program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IdKey {
    pub(crate) program: ProgramId,
    pub(crate) number: Number,
}

/// A lookup that waits for the program's answer, or has it.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) request: u32,
    pub(crate) transaction: u64,
    pub(crate) service: u64,
    pub(crate) peer: Ipv4Addr,
    pub(crate) next_hop: Mac,
    /// Sent again where the question comes again.
    pub(crate) answer: Option<Mad>,
}

/// What an identifier does.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    /// Nothing yet.
    New,
    /// The next hop is being resolved.
    Resolving,
    /// It is known.
    Resolved,
    /// It listens.
    Listening {
        backlog: u32,
        /// Requests that the program has not taken.
        waiting: u32,
    },
    /// It has a connection.
    Connection(CommId),
    /// It has asked for a queue pair of datagrams.
    Asking(u32),
    /// It was asked for one.
    Asked(Box<Asker>),
    /// What it had has ended.
    Ended,
}

/// An identifier.
#[derive(Debug)]
pub(crate) struct Id {
    pub(crate) channel: Number,
    pub(crate) space: Space,
    pub(crate) local: Option<SocketAddrV4>,
    pub(crate) remote: Option<SocketAddrV4>,
    /// The port that it is bound to by itself.
    pub(crate) port: Option<Service>,
    /// The destination whose next hop it uses.
    pub(crate) way: Option<Ipv4Addr>,
    /// When the looking for it ends.
    pub(crate) until: Nanos,
    pub(crate) role: Role,
}

struct Channel {
    pipe: Arc<dyn EventPipe>,
    /// In the pipe: an event. The program may have channels of other devices at the same pipe.
    token: u8,
    queue: VecDeque<Event>,
}

/// What a program has.
#[derive(Default)]
pub(crate) struct Program {
    channels: HashMap<Number, Channel>,
    pub(crate) ids: BTreeMap<Number, Id>,
    last: Number,
}

impl Program {
    /// Adds a channel.
    pub(crate) fn open(&mut self, pipe: Arc<dyn EventPipe>, token: u8) -> Result<Number, Failure> {
        if self.channels.len() >= MOST_CHANNELS {
            return Err(Failure::limit(format!("the program has {MOST_CHANNELS} event channels already")));
        }
        let number = self.draw(|program, number| program.channels.contains_key(&number));
        self.channels.insert(number, Channel { pipe, token, queue: VecDeque::new() });
        Ok(number)
    }

    /// Removes a channel that no identifier uses.
    pub(crate) fn close(&mut self, number: Number) -> Result<(), Failure> {
        self.channel(number)?;
        if self.ids.values().any(|id| id.channel == number) {
            return Err(Failure::busy("the event channel has identifiers: destroy them first"));
        }
        self.channels.remove(&number);
        Ok(())
    }

    /// EINVAL where there is no such channel.
    pub(crate) fn channel(&self, number: Number) -> Result<(), Failure> {
        let known = self.channels.contains_key(&number);
        if known { Ok(()) } else { Err(Failure::invalid(format!("the program has no event channel {number}"))) }
    }

    /// Adds an identifier.
    pub(crate) fn create(&mut self, id: Id) -> Result<Number, Failure> {
        self.channel(id.channel)?;
        if self.ids.len() >= MOST_IDS {
            return Err(Failure::limit(format!("the program has {MOST_IDS} identifiers already: destroy some first")));
        }
        let number = self.draw(|program, number| program.ids.contains_key(&number));
        self.ids.insert(number, id);
        Ok(number)
    }

    fn draw(&mut self, taken: impl Fn(&Program, Number) -> bool) -> Number {
        loop {
            self.last = self.last.wrapping_add(1);
            if !taken(self, self.last) {
                return self.last;
            }
        }
    }

    /// EINVAL where there is no such identifier.
    pub(crate) fn id(&mut self, number: Number) -> Result<&mut Id, Failure> {
        self.ids.get_mut(&number).ok_or_else(|| Failure::invalid(format!("the program has no identifier {number}")))
    }

    /// ENOMEM where so many events wait that there are to be no more.
    pub(crate) fn room_for_events(&self) -> Result<(), Failure> {
        let waiting: usize = self.channels.values().map(|channel| channel.queue.len()).sum();
        if waiting < MOST_EVENTS {
            return Ok(());
        }
        Err(Failure::limit(format!("{waiting} events of the program wait already: take them first")))
    }

    /// An event for an identifier.
    pub(crate) fn post(&mut self, id: Number, what: Happened) {
        let channel = self.ids.get(&id).and_then(|id| self.channels.get_mut(&id.channel));
        if let Some(channel) = channel {
            channel.queue.push_back(Event { id, what });
            channel.pipe.put(&[channel.token]);
        }
    }

    /// The next event of a channel.
    pub(crate) fn take(&mut self, channel: Number) -> Result<Option<Event>, Failure> {
        self.channel(channel)?;
        let event = self.channels.get_mut(&channel).and_then(|channel| channel.queue.pop_front());
        if let Some(Event { what: Happened::Requested { listener, .. }, .. }) = &event {
            if let Some(Id { role: Role::Listening { waiting, .. }, .. }) = self.ids.get_mut(listener) {
                *waiting = waiting.saturating_sub(1);
            }
        }
        Ok(event)
    }

    /// An identifier's events go to another channel from now on, also those that wait.
    pub(crate) fn migrate(&mut self, number: Number, to: Number) -> Result<(), Failure> {
        self.channel(to)?;
        let from = std::mem::replace(&mut self.id(number)?.channel, to);
        if from == to {
            return Ok(());
        }
        // A request goes with its listener: until the program has it, so does the new identifier.
        let follow = |event: &Event| match &event.what {
            Happened::Requested { listener, .. } => *listener == number,
            _ => event.id == number,
        };
        let queue = self.channels.get_mut(&from).map(|channel| std::mem::take(&mut channel.queue)).unwrap_or_default();
        let (moved, left): (VecDeque<Event>, VecDeque<Event>) = queue.into_iter().partition(follow);
        if let Some(channel) = self.channels.get_mut(&from) {
            channel.queue = left;
        }
        let children = moved.iter().filter(|event| matches!(event.what, Happened::Requested { .. }));
        for child in children.map(|event| event.id).collect::<Vec<_>>() {
            self.ids.entry(child).and_modify(|id| id.channel = to);
        }
        if let Some(channel) = self.channels.get_mut(&to) {
            moved.iter().for_each(|_| channel.pipe.put(&[channel.token]));
            channel.queue.extend(moved);
        }
        Ok(())
    }

    /// Drops the events of an identifier that nobody took, and returns the identifiers that were never reported to the
    /// program of because of that.
    pub(crate) fn purge(&mut self, number: Number) -> Vec<Number> {
        let mut orphans = Vec::new();
        let Some(channel) = self.ids.get(&number).and_then(|id| self.channels.get_mut(&id.channel)) else {
            return orphans;
        };
        channel.queue.retain(|event| match &event.what {
            Happened::Requested { listener, .. } if *listener == number => {
                orphans.push(event.id);
                false
            }
            _ => event.id != number,
        });
        orphans
    }
}
