//! Datagrams leave on connections between hosts.
use super::Verbs;
use super::links::Link;
use crate::nic::{FlowId, Memory};
use crate::stack::Stack;
use crate::transport::Transport;
use engine::DropReason;
use smartns::{Content, Header, MessageKind};
use std::net::Ipv4Addr;
use verbs::QpNumber;
use wire::Nanos;

/// Datagrams of a queue pair in a round.
const QUANTUM: usize = 64;
/// A connection on which no datagram came or went for so long is ended by the side that began it.
const IDLE: Nanos = 60_000_000_000;

/// What a datagram can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Leave(FlowId),
    Wait,
    Nowhere,
}

impl<T: Transport, M: Memory> Stack<T, M> {
    /// Sends the datagrams that a queue pair has, as far as there is room. Returns how many.
    pub(super) fn pull_datagrams(&mut self, verbs: &mut Verbs, qp: QpNumber) -> usize {
        for done in 0..QUANTUM {
            let Some(to) = verbs.device.datagram_to(self.now, qp, &mut self.unit.drops) else { return done };
            let is_own = to == verbs.address;
            let room = if is_own { Room::Nowhere } else { self.room_to(verbs, to) };
            if room == Room::Wait {
                verbs.blocked.insert(qp);
                return done;
            }
            let Some(datagram) = verbs.device.next_datagram(self.now, qp, &mut self.unit.drops) else { return done };
            match (room, datagram.content) {
                (Room::Leave(flow), content) => {
                    self.post_operation(flow, &datagram.header, content);
                }
                (_, Content::Bytes(payload)) if is_own => {
                    verbs.device.datagram(self.now, to, &datagram.header, &payload, &mut self.unit.drops);
                }
                _ => self.unit.drops.count(DropReason::HostUnreachable),
            }
        }
        verbs.again.push(qp);
        QUANTUM
    }

    /// A message of connection management goes over the connection to its host, or is dropped: it is sent again.
    pub(super) fn send_host_mail(&mut self, verbs: &mut Verbs, to: Ipv4Addr, mail: Vec<u8>) {
        match self.room_to(verbs, to) {
            Room::Leave(flow) => {
                self.post_operation(flow, &Header::new(MessageKind::Management), Content::Bytes(mail));
            }
            Room::Wait | Room::Nowhere => self.unit.drops.count(DropReason::HostUnreachable),
        }
    }

    /// Whether there is room on the connection to a host, which is opened where there is none.
    fn room_to(&mut self, verbs: &mut Verbs, to: Ipv4Addr) -> Room {
        let flow = match verbs.hosts.get(to).flow {
            Some(flow) => flow,
            None => match self.open_to_host(verbs, to) {
                Some(flow) => flow,
                None => return Room::Nowhere,
            },
        };
        let (Some(link), host) = (verbs.links.get_mut(&flow), verbs.hosts.get(to)) else { return Room::Nowhere };
        if !self.is_full(flow) {
            host.has_room();
            link.used = self.now;
            return Room::Leave(flow);
        }
        if host.may_wait(self.now) && link.is_open { Room::Wait } else { Room::Nowhere }
    }

    fn open_to_host(&mut self, verbs: &mut Verbs, to: Ipv4Addr) -> Option<FlowId> {
        if verbs.hosts.get(to).attempts.next > self.now {
            return None;
        }
        let opened = self.open_link(verbs, to).ok();
        let host = verbs.hosts.get(to);
        match opened {
            Some(flow) => {
                host.flow = Some(flow);
                verbs.links.entry(flow).and_modify(|link| link.is_of_hosts = true);
            }
            None => host.attempts.failed(self.now),
        }
        opened
    }

    /// Polls a connection between hosts: it ends where it is not needed any more.
    pub(super) fn poll_host(&mut self, verbs: &mut Verbs, flow: FlowId) {
        let is_idle = |link: &Link| link.is_begun_here && self.now >= link.used + IDLE;
        if verbs.links.get(&flow).is_some_and(is_idle) {
            self.leave_host(verbs, flow);
            self.end_link(verbs, flow);
        }
    }

    /// Datagrams do not go out on this connection any more.
    pub(super) fn leave_host(&mut self, verbs: &mut Verbs, flow: FlowId) {
        if let Some(link) = verbs.links.get(&flow).filter(|link| link.is_of_hosts) {
            verbs.hosts.ended(self.now, link.peer, flow, link.is_open);
        }
    }
}
