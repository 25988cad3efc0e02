//! A queue pair: what it is, and the state of its two halves.
use crate::config::Recovery;
use crate::congestion::{Congestion, Marks, OVERHEAD, Pacer, marked_path};
use crate::objects::{NewQp, Receives};
use crate::receive_queue::{Receive, ReceiveQueue};
use crate::replies::Replies;
use crate::selective::{Held, Selective};
use crate::send_queue::SendQueue;
use crate::stream::Stream;
use engine::{Frame, Nanos};
use memory::{Domain, Rights};
use verbs::{
    Capacities, Completion, CompletionFlags, CompletionOpcode, Number, QpAttributes, QpKind, QpNumber, QpState, Status,
};
use wire::roce::{Extension, Path, Psn, Service, Syndrome, sprayed_port};

/// What does not change. Of the receiving half of an XRC, each message names the protection domain and the completion
/// queue of what it receives.
pub(crate) struct Identity {
    pub(crate) number: QpNumber,
    pub(crate) kind: QpKind,
    pub(crate) domain: Domain,
    pub(crate) send_cq: Number,
    pub(crate) receive_cq: Number,
    pub(crate) signals_all: bool,
    pub(crate) capacities: Capacities,
    /// It buffers what comes too early, and signals that to its peer.
    pub(crate) is_selective: bool,
    /// Its packets with payload may take 2^`spray` paths.
    pub(crate) spray: u8,
}

/// Attributes in the form in which packets need them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings {
    pub(crate) rights: Rights,
    pub(crate) queue_key: u32,
    /// Payload bytes of a packet.
    pub(crate) mtu: u32,
    /// How long an acknowledgement may take; 0 for ever.
    pub(crate) timeout: Nanos,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rnr_timer: u8,
    /// Reads and atomics that may be outstanding here, and at the peer's responder.
    pub(crate) resources: u8,
    pub(crate) depth: u8,
    pub(crate) remote_qp: QpNumber,
}

impl Settings {
    /// Of all attributes that were set so far.
    pub(crate) fn of(attributes: &QpAttributes) -> Settings {
        Settings {
            rights: attributes.rights.unwrap_or_default(),
            queue_key: attributes.queue_key.unwrap_or(0),
            mtu: attributes.mtu.map_or(256, |mtu| mtu.bytes() as u32),
            // IBTA 1.3, 9.7.6.1.3: 4.096 us * 2^n.
            timeout: attributes.timeout.filter(|code| *code > 0).map_or(0, |code| 4096 << code.min(31)),
            retries: attributes.retries.unwrap_or(0),
            rnr_retries: attributes.rnr_retries.unwrap_or(0),
            rnr_timer: attributes.rnr_timer.unwrap_or(0),
            resources: attributes.responder_resources.unwrap_or(0),
            depth: attributes.initiator_depth.unwrap_or(0),
            remote_qp: attributes.remote_qp.unwrap_or(0),
        }
    }
}

impl Settings {
    /// Fields of a frame of so many packets about their payload.
    pub(crate) fn segment(&self, count: u32) -> u16 {
        // A path MTU is at most 4096.
        if count > 1 { self.mtu as u16 } else { 0 }
    }
}

/// The half that sends requests.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// The next work request begins with this packet.
    pub(crate) next: Psn,
    /// The oldest packet that is not acknowledged.
    pub(crate) unacked: Psn,
    /// One behind the newest packet that was sent.
    pub(crate) sent_to: Psn,
    /// The work request that is being sent, as an index into the queue, and how many of its packets are sent.
    pub(crate) at: usize,
    pub(crate) sent: u32,
    /// Work requests that have packet sequence numbers: the first ones of the queue.
    pub(crate) begun: usize,
    /// Reads and atomics among them.
    pub(crate) fetches: u8,
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    /// When the oldest packet is taken for lost.
    pub(crate) deadline: Option<Nanos>,
    /// The peer has no receive work request: nothing is sent before.
    pub(crate) rnr_until: Option<Nanos>,
    /// The packet from which on all were sent again, until it is acknowledged.
    pub(crate) recovering: Option<Psn>,
    pub(crate) selective: Selective,
}

impl Requester {
    /// How often a packet was sent before.
    #[inline]
    pub(crate) fn times_sent(&self, psn: Psn) -> u32 {
        if self.selective.peer && psn.since(self.sent_to) < 0 { self.selective.times(psn) } else { 0 }
    }
}

/// A message that is being received.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Incoming {
    /// A SEND, and how many bytes of it were placed.
    Send(u32),
    /// A WRITE.
    Write(IncomingWrite),
}

/// Where the next packet of a WRITE goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingWrite {
    pub(crate) key: u32,
    pub(crate) address: u64,
    /// Bytes of the message that have not come.
    pub(crate) left: u32,
    /// Bytes of the whole message.
    pub(crate) len: u32,
}

/// A refusal that is to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nak {
    pub(crate) psn: Psn,
    pub(crate) syndrome: Syndrome,
}

/// The half that serves requests.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// The next packet.
    pub(crate) expected: Psn,
    /// Messages completed, modulo 2^24.
    pub(crate) messages: u32,
    pub(crate) message: Option<Incoming>,
    /// The receive work request that the message has taken.
    pub(crate) receive: Receive,
    pub(crate) has_receive: bool,
    /// The packet that is expected was asked for: no further NAK before it comes.
    pub(crate) nak_sent: bool,
    pub(crate) nak: Option<Nak>,
    /// It was refused because no receive work request was there.
    pub(crate) not_ready: bool,
    /// Requests that came too early; the peer is to be notified of them.
    pub(crate) held: Held,
    pub(crate) reports_held: bool,
    /// An acknowledgement is to be sent.
    pub(crate) ack_due: bool,
    /// Answers to reads and atomics.
    pub(crate) replies: Replies,
    /// The queue pair fails once the NAK is sent: nothing is processed any more.
    pub(crate) is_fatal: bool,
    /// A message came before the queue pair could send; that was reported.
    pub(crate) established: bool,
}

/// Where receive work requests come from.
pub(crate) enum Source {
    Own(ReceiveQueue),
    Shared(Number),
    /// The receiving half of an XRC: its domain, and the queue that the last message named.
    Named {
        domain: Number,
        srq: Option<Number>,
    },
}

/// What a queue pair's next quantum does beside sending. With hardware, what was posted is on its way when a program
/// moves the queue pair to the error state or destroys it. Here it may still wait, so it gets one quantum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum NextQuantum {
    /// Nothing.
    #[default]
    Usual,
    /// The program waits for it: it destroys the queue pair afterwards.
    Awaited,
    /// Sends what was posted before, then goes to the error state.
    SendsAndFails,
    /// Goes to the error state, and sends nothing.
    Fails,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) identity: Identity,
    pub(crate) state: QpState,
    /// All attributes that were set.
    pub(crate) attributes: QpAttributes,
    pub(crate) settings: Settings,
    pub(crate) path: Option<Path>,
    /// In each of its packets.
    pub(crate) extension: Extension,
    pub(crate) queue: SendQueue,
    pub(crate) source: Source,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// Its halves over a stream instead of packets.
    pub(crate) stream: Option<Box<Stream>>,
    /// Its rate, where its host answers congestion, and it is connected.
    pub(crate) pacer: Option<Box<Pacer>>,
    /// It is among those that have something to send.
    pub(crate) is_active: bool,
    /// When its timer is set; `None` for no timer.
    pub(crate) timer: Option<Nanos>,
    /// The program gets an event when the send queue has drained.
    pub(crate) reports_drained: bool,
    pub(crate) next_quantum: NextQuantum,
    /// Work requests were posted that bind or invalidate memory windows.
    pub(crate) has_local: bool,
}

impl Qp {
    pub(crate) fn new(qp: NewQp, recovery: Recovery, congestion: Congestion) -> Qp {
        let NewQp { number, kind, domain, send_cq, receive_cq, receives, capacities, signals_all } = qp;
        let source = match receives {
            Receives::Own(pipe) => Source::Own(ReceiveQueue::new(pipe, capacities.receive, capacities.receive_pieces)),
            Receives::Shared(number) => Source::Shared(number),
            Receives::Named(domain) => Source::Named { domain, srq: None },
        };
        let is_selective = recovery == Recovery::SelectiveRepeat && kind == QpKind::Rc;
        Qp {
            extension: Qp::unsprayed(is_selective),
            identity: Identity {
                number,
                kind,
                domain,
                send_cq,
                receive_cq,
                signals_all,
                capacities,
                is_selective,
                spray: 0,
            },
            state: QpState::Reset,
            attributes: QpAttributes::default(),
            settings: Settings::default(),
            path: None,
            queue: SendQueue::default(),
            source,
            requester: Requester::default(),
            responder: Responder::default(),
            stream: None,
            pacer: if kind.is_connected() { Pacer::new(congestion) } else { None },
            is_active: false,
            timer: None,
            reports_drained: false,
            next_quantum: NextQuantum::default(),
            has_local: false,
        }
    }

    /// Back to where it began: nothing completes.
    pub(crate) fn reset(&mut self) {
        self.queue.clear();
        if let Source::Own(queue) = &mut self.source {
            queue.clear();
        }
        (self.requester, self.responder) = (Requester::default(), Responder::default());
        self.stream.iter_mut().for_each(|stream| **stream = Stream::default());
        (self.attributes, self.settings) = (QpAttributes::default(), Settings::default());
        (self.path, self.reports_drained, self.next_quantum) = (None, false, NextQuantum::default());
        self.extension = Qp::unsprayed(self.identity.is_selective);
        self.pacer.iter_mut().for_each(|pacer| pacer.reset());
    }

    /// Before its peer is known to keep what comes too early.
    fn unsprayed(is_selective: bool) -> Extension {
        if is_selective { Extension::selective(0) } else { Extension::NONE }
    }

    /// It goes to the error state with its next quantum.
    #[inline]
    pub(crate) fn fails(&self) -> bool {
        matches!(self.next_quantum, NextQuantum::Fails | NextQuantum::SendsAndFails)
    }

    /// It takes send work requests: to send them, or to flush them.
    pub(crate) fn takes_work(&self) -> bool {
        use QpState::*;
        matches!(self.state, ReadyToSend | SendQueueDrained | SendQueueError | Error)
    }

    /// The service of its packets, where it is connected.
    #[inline]
    pub(crate) fn service(&self) -> Service {
        match self.identity.kind {
            QpKind::Uc => Service::Uc,
            QpKind::XrcSend | QpKind::XrcReceive => Service::Xrc,
            _ => Service::Rc,
        }
    }

    /// Its own receive queue has something.
    pub(crate) fn has_receives(&self) -> bool {
        matches!(&self.source, Source::Own(queue) if queue.has_any())
    }

    /// Its receive queue is to be polled by itself.
    pub(crate) fn waits_for_receives(&self) -> bool {
        self.state == QpState::Error || self.stream.as_ref().is_some_and(|stream| stream.is_stalled())
    }

    /// The frame of a packet that came too early and is the next one now.
    pub(crate) fn take_held(&mut self) -> Option<Box<Frame>> {
        let request = self.responder.held.take(self.responder.expected);
        request.or_else(|| self.requester.selective.held.take(self.requester.unacked))
    }

    /// It takes requests of its peer.
    pub(crate) fn receives(&self) -> bool {
        use QpState::*;
        matches!(self.state, ReadyToReceive | ReadyToSend | SendQueueDrained | SendQueueError)
            && !self.responder.is_fatal
    }

    /// It sends requests, or waits for responses.
    pub(crate) fn sends(&self) -> bool {
        matches!(self.state, QpState::ReadyToSend | QpState::SendQueueDrained)
    }

    /// A completion of this queue pair with nothing but its status.
    #[inline]
    pub(crate) fn completion(&self, status: Status, opcode: CompletionOpcode, number: u32) -> Completion {
        Completion {
            qp: self.identity.number,
            status,
            opcode,
            flags: CompletionFlags::default(),
            vendor_error: 0,
            number,
            bytes: 0,
            immediate: 0,
            remote_qp: 0,
            service_level: 0,
            at: 0,
        }
    }

    /// The shared receive queue that the last message named; 0 where none are named.
    pub(crate) fn named(&self) -> Number {
        if let Source::Named { srq: Some(srq), .. } = self.source { srq } else { 0 }
    }

    /// Nothing may be sent now: the rate does not allow it before its timer.
    #[inline]
    pub(crate) fn is_held(&mut self, now: Nanos) -> bool {
        self.pacer.as_mut().is_some_and(|pacer| pacer.holds(now))
    }

    /// Packets with so many bytes of payload that one frame may have, at least one.
    #[inline]
    pub(crate) fn packets_of_frame(&self) -> u32 {
        let packets = |pacer: &Pacer| pacer.frame_bytes() / (self.settings.mtu as usize + OVERHEAD);
        if !self.requester.selective.paths.are_whole() {
            // Where a train is cut, its packets take all paths.
            return 1;
        }
        self.pacer.as_deref().map_or(u32::MAX, |pacer| packets(pacer).clamp(1, u32::MAX as usize) as u32)
    }

    /// A frame of so many packets and bytes of payload was sent.
    #[inline]
    pub(crate) fn note_frame(&mut self, now: Nanos, packets: u32, payload: usize) {
        self.pacer.iter_mut().for_each(|pacer| pacer.sent(now, payload + packets as usize * OVERHEAD));
    }

    /// The way of packets with payload.
    #[inline]
    pub(crate) fn payload_path(&self, path: &Path) -> Path {
        if self.pacer.is_some() { marked_path(path, Marks::May) } else { *path }
    }

    /// The same for packet `psn` of those that are sprayed. One that is sent again takes another path each of `times`.
    #[inline]
    pub(crate) fn sprayed_path(&self, path: &Path, psn: Psn, times: u32) -> Path {
        let path = self.payload_path(path);
        match self.spray() {
            0 => path,
            spray => {
                let path_index = self.requester.selective.paths.of(psn.plus(times), spray);
                Path { source_port: sprayed_port(path.source_port, spray, path_index), ..path }
            }
        }
    }

    /// Packets with payload take 2^this paths: only where the peer keeps what comes too early.
    #[inline]
    pub(crate) fn spray(&self) -> u8 {
        self.extension.spray()
    }

    /// When something is due by itself.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let paced = self.pacer.as_ref().and_then(|pacer| pacer.waits_until());
        let given_up = self.stream.as_deref().and_then(Stream::gives_up);
        let given_up = given_up.filter(|_| self.sends() && !self.queue.is_empty());
        earlier(earlier(self.requester.deadline, self.requester.rnr_until), earlier(paced, given_up))
    }
}

/// The peer signals in a packet whether it buffers what comes too early.
#[inline]
pub(crate) fn note_selective(qp: &mut Qp, of_peer: Extension) {
    let requester = &mut qp.requester;
    if of_peer.is_selective() && qp.identity.is_selective && !requester.selective.peer {
        requester.selective.peer = true;
        requester.selective.sprayed_from = Some(requester.sent_to);
        qp.extension = Extension::selective(qp.identity.spray);
    }
}

/// The earlier of two times. (The smallest of an array of options costs five times as much.)
#[inline(always)]
fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
