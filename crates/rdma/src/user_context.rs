//! A program's context at a device: its shard, the addresses that it uses, where its events go.
use crate::address_resolution::{AddressResolution, Station, path};
use crate::view::{self, CongestionView, ProgramView, QpView};
use engine::{DropCounts, FramePool, Nanos};
use port::Frame;
use shm::{Doorbell, PipeConsumer};
use smartns::{Event, Shard, ShardConfig, ShardOutput};
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use verbs::functions::Report;
use verbs::{AddressVector, AsyncEvent, AsyncMessage, ChannelMessage, Number, QpAttributes, QpKind, QpNumber};

/// A program of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub u32);

/// The daemon's end of a pipe of events. Writing to it waits for nobody: what finds it full is lost.
pub trait EventPipe: Send + Sync {
    /// Writes one message.
    fn put(&self, message: &[u8]);
}

/// Identity of a program, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its command line.
    pub command: String,
}

/// A program that attaches: the daemon's ends of what it shares with it.
pub struct NewProgram {
    /// Its identity.
    pub who: Who,
    /// Of its send pipe.
    pub pipe: PipeConsumer<8>,
    /// The doorbell that it rings.
    pub bell: Doorbell,
    /// Where asynchronous events go.
    pub events: Arc<dyn EventPipe>,
}

/// What has a way to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Qp(QpNumber),
    Handle(Number),
}

pub(crate) struct UserContext {
    pub(crate) who: Who,
    pub(crate) shard: Shard,
    pub(crate) bell: Doorbell,
    /// Received frames; none between polls.
    pub(crate) rx: Vec<Box<Frame>>,
    /// Where events of completion queues go that have a channel.
    pub(crate) channels: HashMap<Number, Arc<dyn EventPipe>>,
    events: Arc<dyn EventPipe>,
    /// Its queue pairs.
    pub(crate) kinds: BTreeMap<QpNumber, QpKind>,
    ends: BTreeMap<End, (Ipv4Addr, AddressVector)>,
    /// Queue pairs over a stream that may have messages.
    pub(crate) ready: Vec<QpNumber>,
    /// The destination that its service thread waits for.
    wanted: Option<Ipv4Addr>,
    /// What it reported last of its functions.
    pub(crate) functions: Option<Report>,
}

/// What a round of a seat needs.
pub(crate) struct Round<'a> {
    pub(crate) now: Nanos,
    pub(crate) tx: &'a mut Vec<Box<Frame>>,
    pub(crate) pool: &'a mut FramePool,
    pub(crate) drops: &'a mut DropCounts,
    /// Empty between rounds.
    pub(crate) events: &'a mut Vec<Event>,
}

impl UserContext {
    pub(crate) fn new(program: NewProgram, config: ShardConfig) -> UserContext {
        let NewProgram { who, pipe, bell, events } = program;
        bell.promise_barrier();
        UserContext {
            who,
            shard: Shard::new(config, pipe),
            bell,
            rx: Vec::new(),
            channels: HashMap::new(),
            events,
            kinds: BTreeMap::new(),
            ends: BTreeMap::new(),
            ready: Vec::new(),
            wanted: None,
            functions: None,
        }
    }

    /// One bounded round of its shard. Returns how much was done.
    pub(crate) fn poll(&mut self, round: &mut Round<'_>) -> usize {
        let Round { now, tx, pool, drops, events } = round;
        let done = self.shard.poll(*now, &mut self.rx, &mut ShardOutput { tx, pool, drops, events });
        self.carry_out(events);
        done
    }

    /// A frame for one of its queue pairs of raw packets.
    pub(crate) fn take_raw(&mut self, qp: QpNumber, frame: &Frame, round: &mut Round<'_>) {
        let Round { now, tx, pool, drops, events } = round;
        self.shard.receive_raw(*now, qp, frame, &mut ShardOutput { tx, pool, drops, events });
        self.carry_out(events);
    }

    /// Passes events on, and keeps which queue pairs have messages.
    pub(crate) fn carry_out(&mut self, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            self.notify(event);
        }
    }

    fn notify(&mut self, event: Event) {
        match event {
            Event::Ready(number) => self.ready.push(number),
            Event::Completion(cq) => {
                if let Some(channel) = self.channels.get(&cq) {
                    channel.put(&ChannelMessage(cq).encode());
                }
            }
            Event::Async(event, number) => self.events.put(&AsyncMessage { event, number }.encode()),
            Event::SendPipeCorrupt => {
                self.events.put(&AsyncMessage { event: AsyncEvent::DeviceFatal, number: 0 }.encode());
            }
        }
    }

    /// What people see of it, with at most so many queue pairs.
    pub(crate) fn view(&self, now: Nanos, most: usize) -> ProgramView {
        let Who { pid, uid, command } = self.who.clone();
        let qps = self.kinds.iter().take(most).map(|(number, kind)| self.qp_view(now, *number, *kind)).collect();
        let functions = self.functions.clone();
        ProgramView { pid, uid, command, qp_count: self.kinds.len(), qps, id_count: 0, ids: Vec::new(), functions }
    }

    fn qp_view(&self, now: Nanos, number: QpNumber, kind: QpKind) -> QpView {
        let QpAttributes { state, remote_qp, .. } = self.shard.query_qp(number).unwrap_or_default();
        let peer = self.ends.get(&End::Qp(number)).map(|(remote, _)| remote.to_string());
        QpView {
            number,
            kind: view::kind(kind),
            state: state.map_or("", view::state),
            remote_qp: remote_qp.filter(|_| peer.is_some()),
            peer,
            congestion: self.shard.sender(number, now).map(CongestionView::from),
        }
    }

    /// An end goes this way from now on.
    pub(crate) fn go(&mut self, end: End, remote: Ipv4Addr, vector: AddressVector, resolution: &mut AddressResolution) {
        resolution.add(remote);
        if let Some((before, _)) = self.ends.insert(end, (remote, vector)) {
            resolution.remove(before);
        }
    }

    /// An end has no way any more.
    pub(crate) fn forget(&mut self, end: End, resolution: &mut AddressResolution) {
        if let Some((remote, _)) = self.ends.remove(&end) {
            resolution.remove(remote);
        }
    }

    /// Its service thread waits for a destination, or no longer.
    pub(crate) fn want(&mut self, remote: Option<Ipv4Addr>, resolution: &mut AddressResolution) {
        if let Some(remote) = remote {
            resolution.add(remote);
        }
        if let Some(before) = std::mem::replace(&mut self.wanted, remote) {
            resolution.remove(before);
        }
    }

    /// It is gone: its destinations are used once less.
    pub(crate) fn leave(&mut self, resolution: &mut AddressResolution) {
        self.want(None, resolution);
        std::mem::take(&mut self.ends).into_iter().for_each(|(_, (remote, _))| resolution.remove(remote));
    }

    /// The peer's address of a queue pair that has a way.
    pub(crate) fn peer_of(&self, number: QpNumber) -> Option<Ipv4Addr> {
        self.ends.get(&End::Qp(number)).map(|(remote, _)| *remote)
    }

    /// Sends the shard the way of an end, where its next hop is known.
    pub(crate) fn set_way(&mut self, end: End, local: Station, resolution: &AddressResolution) {
        let Some((remote, vector)) = self.ends.get(&end) else { return };
        let Some(mac) = resolution.mac(*remote) else { return };
        let remote = Station { mac, address: *remote };
        // The object is there: its end goes with it.
        let _ = match end {
            End::Qp(number) => self.shard.set_path(number, path(local, remote, vector, number)),
            End::Handle(number) => self.shard.set_handle_path(number, path(local, remote, vector, number)),
        };
    }

    /// The same for all ends whose destination is this one.
    pub(crate) fn set_ways(&mut self, to: Ipv4Addr, local: Station, resolution: &AddressResolution) {
        let ends = self.ends.iter().filter(|(_, (remote, _))| *remote == to);
        let ends: Vec<End> = ends.map(|(end, _)| *end).collect();
        ends.into_iter().for_each(|end| self.set_way(end, local, resolution));
    }
}
