//! Control operations of a shard: objects come, change and go, between two rounds of the data-path.
use crate::completion_queue::CompletionQueue;
use crate::config::LowerLayer;
use crate::congestion::{Marks, Sender, marked_path};
use crate::objects::{NewCq, NewHandle, NewQp, NewSrq, Receives, Refusal};
use crate::output::CnpCounts;
use crate::qp::{NextQuantum, Qp, Settings, Source};
use crate::shard::Shard;
use crate::shared::SharedReceives;
use crate::states::check;
use engine::Nanos;
use memory::{Domain, Key};
use shm::PipeProducer;
use std::net::Ipv4Addr;
use std::sync::Arc;
use verbs::{Number, QpAttributes, QpKind, QpNumber, QpState};
use wire::roce::{Path, Psn};

/// A queue pair's packets take 2^this paths at most: the BTH has three bits for it.
const MOST_SPRAY: u8 = 7;

impl Shard {
    /// Adds a completion queue.
    ///
    /// # Errors
    /// The number is taken or beyond the limit.
    pub fn add_cq(&mut self, cq: NewCq) -> Result<(), Refusal> {
        let number = cq.number;
        added(self.shared.cqs.insert_at(number, CompletionQueue::new(cq)))
    }

    /// Completions go to this pipe from now on, which is empty.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn resize_cq(&mut self, number: Number, pipe: PipeProducer<8>) -> Result<(), Refusal> {
        let cq = self.shared.cqs.get_mut(number);
        cq.map(|cq| cq.resize(pipe)).ok_or(Refusal::Unknown("no completion queue has this number"))
    }

    /// Removes a completion queue.
    ///
    /// # Errors
    /// There is none, or a queue pair uses it.
    pub fn remove_cq(&mut self, number: Number) -> Result<(), Refusal> {
        match self.shared.cqs.get(number).map(|cq| cq.users) {
            None => Err(Refusal::Unknown("no completion queue has this number")),
            Some(0) => {
                self.shared.cqs.remove(number);
                Ok(())
            }
            Some(_) => Err(Refusal::Busy("a queue pair uses the completion queue: remove it first")),
        }
    }

    /// Adds a shared receive queue.
    ///
    /// # Errors
    /// As [`Shard::add_cq`].
    pub fn add_srq(&mut self, srq: NewSrq) -> Result<(), Refusal> {
        let (number, xrc) = (srq.number, srq.xrc);
        if xrc.is_some() && self.shared.config.lower_layer == LowerLayer::Stream {
            return Err(NO_XRC);
        }
        if xrc.is_some_and(|xrc| self.shared.cqs.get(xrc.cq).is_none()) {
            return Err(Refusal::Unknown("no completion queue has this number"));
        }
        added(self.shared.srqs.insert_at(number, SharedReceives::new(srq)))?;
        let cq = xrc.and_then(|xrc| self.shared.cqs.get_mut(xrc.cq));
        cq.into_iter().for_each(|cq| cq.users += 1);
        Ok(())
    }

    /// Asks for [`verbs::AsyncEvent::SrqLimitReached`], once, when the queue has fewer work requests than `limit`; 0
    /// asks for none.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn limit_srq(&mut self, number: Number, limit: u32) -> Result<(), Refusal> {
        let srq = self.shared.srqs.get_mut(number);
        srq.ok_or(Refusal::Unknown("no shared receive queue has this number"))?.limit = limit;
        Ok(())
    }

    /// Removes a shared receive queue.
    ///
    /// # Errors
    /// As [`Shard::remove_cq`].
    pub fn remove_srq(&mut self, number: Number) -> Result<(), Refusal> {
        match self.shared.srqs.get(number).map(|srq| srq.users) {
            None => Err(Refusal::Unknown("no shared receive queue has this number")),
            Some(0) => {
                self.forget_named(number)?;
                let xrc = self.shared.srqs.remove(number).and_then(|srq| srq.xrc);
                let cq = xrc.and_then(|xrc| self.shared.cqs.get_mut(xrc.cq));
                cq.into_iter().for_each(|cq| cq.users -= 1);
                Ok(())
            }
            Some(_) => Err(Refusal::Busy("a queue pair uses the shared receive queue: remove it first")),
        }
    }

    /// No queue pair has a message for this shared receive queue.
    fn forget_named(&mut self, number: Number) -> Result<(), Refusal> {
        let names = |qp: &Qp| matches!(qp.source, Source::Named { srq, .. } if srq == Some(number));
        let slots: Vec<u32> = self.qps.iter().filter(|(_, qp)| names(qp)).map(|(slot, _)| slot).collect();
        let receives = |qp: &Qp| qp.responder.message.is_some() || qp.responder.has_receive;
        if slots.iter().any(|slot| self.qps.get(*slot).is_some_and(|qp| receives(qp))) {
            return Err(Refusal::Busy("a message for the shared receive queue has begun: end its queue pair first"));
        }
        for qp in slots {
            if let Some(Source::Named { srq, .. }) = self.qps.get_mut(qp).map(|qp| &mut qp.source) {
                *srq = None;
            }
        }
        Ok(())
    }

    /// Adds an address handle.
    ///
    /// # Errors
    /// As [`Shard::add_cq`].
    pub fn add_handle(&mut self, handle: NewHandle) -> Result<(), Refusal> {
        added(self.shared.handles.insert_at(handle.number, handle))
    }

    /// Sets the way of a handle: work requests that waited for it go on. Also for a neighbour that has moved.
    ///
    /// # Errors
    /// There is no such handle.
    pub fn set_handle_path(&mut self, number: Number, path: Path) -> Result<(), Refusal> {
        let handle = self.shared.handles.get_mut(number);
        handle.ok_or(Refusal::Unknown("no address handle has this number"))?.path = Some(path);
        let waiting = self.qps.iter().filter(|(_, qp)| qp.identity.kind == QpKind::Ud && !qp.queue.is_empty());
        let slots: Vec<u32> = waiting.map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.wake(slot));
        Ok(())
    }

    /// Datagrams were posted and are not sent yet. Whoever removes their handle or their queue pair waits for a round
    /// first: with hardware, what was posted is on its way.
    pub fn has_datagrams(&mut self) -> bool {
        self.take_whole_pipe();
        let waits = |qp: &Qp| !qp.identity.kind.is_connected() && qp.sends() && !qp.queue.is_empty();
        self.qps.iter().any(|(_, qp)| waits(qp))
    }

    /// A queue pair is to be destroyed. Returns whether something that was posted to it waits for its next quantum.
    /// Then the caller waits until [`Shard::awaits_quantum`] is false.
    pub fn await_quantum(&mut self, number: QpNumber) -> bool {
        self.take_whole_pipe();
        let slot = self.numbers.find(number).unwrap_or(u32::MAX);
        match self.qps.get_mut(slot) {
            Some(qp) if qp.is_active && qp.next_quantum == NextQuantum::Usual => qp.next_quantum = NextQuantum::Awaited,
            _ => {}
        }
        self.awaits_quantum(number)
    }

    /// The quantum that [`Shard::await_quantum`] asks for has not come yet, or one with which the queue pair fails.
    pub fn awaits_quantum(&self, number: QpNumber) -> bool {
        let qp = self.numbers.get(number).and_then(|slot| self.qps.get(slot));
        qp.is_some_and(|qp| matches!(qp.next_quantum, NextQuantum::Awaited | NextQuantum::SendsAndFails))
    }

    /// Removes an address handle. Work requests that name it fail.
    ///
    /// # Errors
    /// There is no such handle.
    pub fn remove_handle(&mut self, number: Number) -> Result<(), Refusal> {
        self.take_whole_pipe();
        let handle = self.shared.handles.remove(number);
        handle.map(drop).ok_or(Refusal::Unknown("no address handle has this number"))
    }

    /// Of a region whose bytes are named by other addresses than the program's own: the address of its first byte
    /// (`ibv_reg_mr_iova`, zero-based regions). For each shard of the program.
    pub fn name_region(&mut self, key: Key, address: u64) {
        Arc::make_mut(&mut self.shared.memory).name(key, address);
    }

    /// A region that had such a name is gone.
    pub fn forget_region(&mut self, key: Key) {
        Arc::make_mut(&mut self.shared.memory).forget(key);
    }

    /// Adds a memory window, which is free. Its number is the upper part of its keys, which nobody is to guess.
    ///
    /// # Errors
    /// The number is taken.
    pub fn add_window(&mut self, number: Number, domain: Domain) -> Result<(), Refusal> {
        added(self.shared.windows.add(number, domain).then_some(()))
    }

    /// Removes a memory window: afterwards no peer accesses memory by it.
    ///
    /// # Errors
    /// There is no such window.
    pub fn remove_window(&mut self, number: Number) -> Result<(), Refusal> {
        let removed = self.shared.windows.remove(number);
        removed.then_some(()).ok_or(Refusal::Unknown("no memory window has this number"))
    }

    /// Adds a queue pair, in state reset.
    ///
    /// # Errors
    /// The number is taken, a queue that it names does not exist, a limit is reached, or its kind is not offered.
    pub fn add_qp(&mut self, qp: NewQp) -> Result<(), Refusal> {
        let over_stream = self.shared.config.lower_layer == LowerLayer::Stream;
        match qp.kind {
            QpKind::RawPacket if over_stream => {
                return Err(Refusal::Unsupported("raw packets are not carried over TCP"));
            }
            QpKind::RawPacket if self.shared.config.raw.is_none() => return Err(NO_RAW),
            QpKind::XrcSend | QpKind::XrcReceive if over_stream => return Err(NO_XRC),
            _ => {}
        }
        let names = matches!(qp.receives, Receives::Named(_));
        if names != (qp.kind == QpKind::XrcReceive) {
            return Err(Refusal::Invalid("the receiving half of an XRC, and nothing else, is in an XRC domain"));
        }
        if qp.kind == QpKind::Uc && matches!(qp.receives, Receives::Shared(_)) {
            return Err(Refusal::Invalid("an unreliable connection has a receive queue of its own"));
        }
        if self.numbers.get(qp.number).is_some() {
            return Err(Refusal::Invalid("the number is taken"));
        }
        let known = |cq: Number| self.shared.cqs.get(cq).is_some();
        if !(names || known(qp.send_cq) && known(qp.receive_cq)) {
            return Err(Refusal::Unknown("no completion queue has this number"));
        }
        if self.qps.is_full() {
            return Err(Refusal::Limit("the program has as many queue pairs as it may"));
        }
        if let Receives::Shared(number) = qp.receives {
            let srq = self.shared.srqs.get_mut(number);
            let srq = srq.ok_or(Refusal::Unknown("no shared receive queue has this number"))?;
            if srq.xrc.is_some() {
                return Err(Refusal::Invalid("messages name the queues of XRCs: queue pairs have others"));
            }
            srq.users += 1;
        }
        let (number, queues) = (qp.number, [qp.send_cq, qp.receive_cq]);
        let (recovery, congestion) = (self.shared.config.recovery, self.shared.config.congestion);
        let is_connected = qp.kind.is_connected();
        let mut made = Qp::new(qp, recovery, congestion);
        made.stream = (over_stream && is_connected).then(Box::default);
        made.identity.spray = self.shared.config.spray.min(MOST_SPRAY);
        let Some(slot) = self.qps.insert(Box::new(made)) else {
            return Err(Refusal::Limit("the program has as many queue pairs as it may"));
        };
        self.numbers.insert(number, slot);
        for cq in queues {
            if let Some(cq) = self.shared.cqs.get_mut(cq) {
                cq.users += 1;
            }
        }
        Ok(())
    }

    fn slot(&self, number: QpNumber) -> Result<u32, Refusal> {
        self.numbers.get(number).ok_or(Refusal::Unknown("no queue pair has this number"))
    }

    /// Changes attributes and the state of a queue pair (`ibv_modify_qp`; IBTA 1.3, 10.3.1). What a move to the error
    /// state flushes shows with the next poll.
    ///
    /// # Errors
    /// There is no such queue pair, the transition is none, an attribute is missing, may not be set in it, or has an
    /// impossible value. Then nothing has changed.
    pub fn modify_qp(&mut self, number: QpNumber, attributes: &QpAttributes) -> Result<(), Refusal> {
        let slot = self.slot(number)?;
        let limits = self.shared.config.limits;
        let Some(qp) = self.qps.get(slot) else { return Ok(()) };
        let (from, to) = (qp.state, check(qp.identity.kind, qp.state, attributes, &limits)?);
        if matches!(to, QpState::Reset | QpState::Error) {
            // What was posted before the reset is not for after it; what was posted before the error state is sent.
            self.take_whole_pipe();
        }
        if to == QpState::Reset {
            self.watched.remove(&slot);
        }
        let Some(qp) = self.qps.get_mut(slot) else { return Ok(()) };
        merge(&mut qp.attributes, attributes);
        qp.settings = Settings::of(&qp.attributes);
        match to {
            QpState::Reset => qp.reset(),
            QpState::ReadyToReceive if from != to => {
                qp.responder.expected = Psn::new(qp.attributes.receive_psn.unwrap_or(0));
            }
            QpState::ReadyToSend if from == QpState::ReadyToReceive => {
                let (first, requester) = (qp.attributes.send_psn.unwrap_or(0), &mut qp.requester);
                requester.next = Psn::new(first);
                (requester.unacked, requester.sent_to) = (requester.next, requester.next);
                (requester.retries_left, requester.rnr_left) = (qp.settings.retries, qp.settings.rnr_retries);
            }
            QpState::SendQueueDrained if from != to => qp.reports_drained = true,
            _ => {}
        }
        // The error state is entered in a round, where completions can be added.
        let fails = to == QpState::Error && from != to;
        qp.next_quantum = if fails { NextQuantum::SendsAndFails } else { NextQuantum::Usual };
        if !fails {
            qp.state = to;
        }
        self.wake(slot);
        Ok(())
    }

    /// The attributes of a queue pair, with its present state.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn query_qp(&self, number: QpNumber) -> Result<QpAttributes, Refusal> {
        let slot = self.slot(number)?;
        let qp = self.qps.get(slot).ok_or(Refusal::Unknown("no queue pair has this number"))?;
        let state = if qp.fails() { QpState::Error } else { qp.state };
        Ok(QpAttributes { state: Some(state), ..qp.attributes })
    }

    /// The rate of a queue pair, and its congestion notifications; `None` where there is no such queue pair, or it
    /// answers none.
    pub fn sender(&self, number: QpNumber, now: Nanos) -> Option<Sender> {
        let qp = self.qps.get(self.numbers.get(number)?)?;
        qp.pacer.as_ref().map(|pacer| pacer.view(now))
    }

    /// Congestion notifications of all queue pairs so far.
    pub fn cnps(&self) -> CnpCounts {
        self.shared.cnps
    }

    /// Sets the way to the peer of a connected queue pair, of the address vector that [`Shard::modify_qp`] got. Until
    /// then, it holds back what it would send. Also for a neighbour that has moved.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn set_path(&mut self, number: QpNumber, path: Path) -> Result<(), Refusal> {
        let slot = self.slot(number)?;
        if let Some(qp) = self.qps.get_mut(slot) {
            // The bits of ECN belong to congestion control.
            qp.path = Some(if qp.pacer.is_some() { marked_path(&path, Marks::Never) } else { path });
        }
        self.wake(slot);
        Ok(())
    }

    /// Removes a queue pair: afterwards none of its work requests touches memory, and it adds no completion.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn remove_qp(&mut self, number: QpNumber) -> Result<(), Refusal> {
        let slot = self.slot(number)?;
        self.take_whole_pipe();
        self.numbers.remove(number);
        self.shared.windows.unbind_of(number);
        self.timers.cancel(slot);
        self.watched.remove(&slot);
        self.active.retain(|other| *other != slot);
        self.groups.retain(|(_, member)| *member != slot);
        let Some(qp) = self.qps.remove(slot) else { return Ok(()) };
        let named = matches!(qp.source, Source::Named { .. });
        for cq in [qp.identity.send_cq, qp.identity.receive_cq].into_iter().filter(|_| !named) {
            if let Some(cq) = self.shared.cqs.get_mut(cq) {
                cq.users -= 1;
            }
        }
        if let Source::Shared(srq) = qp.source {
            if let Some(srq) = self.shared.srqs.get_mut(srq) {
                srq.users -= 1;
            }
        }
        Ok(())
    }

    /// A queue pair of datagrams gets what is sent to a group. Frames to [`wire::roce::MULTICAST_QP`] are to be passed
    /// to each shard that has members.
    ///
    /// # Errors
    /// There is no such queue pair, it is not one of datagrams, or the address is none of a group.
    pub fn attach(&mut self, number: QpNumber, group: Ipv4Addr) -> Result<(), Refusal> {
        let slot = self.slot(number)?;
        let is_datagrams = self.qps.get(slot).is_some_and(|qp| qp.identity.kind == QpKind::Ud);
        if !group.is_multicast() || !is_datagrams {
            return Err(Refusal::Invalid("a group has a multicast address, and queue pairs of datagrams as members"));
        }
        self.groups.insert((group, slot));
        Ok(())
    }

    /// And no longer.
    ///
    /// # Errors
    /// The queue pair is not a member.
    pub fn detach(&mut self, number: QpNumber, group: Ipv4Addr) -> Result<(), Refusal> {
        let member = (group, self.slot(number)?);
        if self.groups.remove(&member) { Ok(()) } else { Err(Refusal::Invalid("the queue pair is not a member")) }
    }
}

/// The error of a device over streams.
const NO_XRC: Refusal = Refusal::Unsupported("extended reliable connections (XRC) are not carried over TCP");

/// The error of a host whose programs may not use raw packets.
const NO_RAW: Refusal = Refusal::Forbidden(
    "programs of this host may not use raw packets: rdma_raw_packets = true in its section permits it",
);

/// Whether an object found its place.
fn added(done: Option<()>) -> Result<(), Refusal> {
    done.ok_or(Refusal::Limit("the number is taken, or beyond the limit on objects of this kind"))
}

/// Takes over what is set.
fn merge(held: &mut QpAttributes, set: &QpAttributes) {
    let before = *held;
    *held = QpAttributes {
        state: None,
        rights: set.rights.or(before.rights),
        partition_index: set.partition_index.or(before.partition_index),
        port: set.port.or(before.port),
        queue_key: set.queue_key.or(before.queue_key),
        path: set.path.or(before.path),
        mtu: set.mtu.or(before.mtu),
        timeout: set.timeout.or(before.timeout),
        retries: set.retries.or(before.retries),
        rnr_retries: set.rnr_retries.or(before.rnr_retries),
        rnr_timer: set.rnr_timer.or(before.rnr_timer),
        receive_psn: set.receive_psn.or(before.receive_psn),
        send_psn: set.send_psn.or(before.send_psn),
        responder_resources: set.responder_resources.or(before.responder_resources),
        initiator_depth: set.initiator_depth.or(before.initiator_depth),
        remote_qp: set.remote_qp.or(before.remote_qp),
    };
}
