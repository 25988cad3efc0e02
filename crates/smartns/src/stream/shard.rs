//! Interface of a shard for the transport that carries its streams.
use super::datagrams;
use super::quantum::{deliver, next_message};
use super::requester::lost;
use super::responder::steer;
use super::{Arrived, FinalMessage, Header, Message, Steer};
use crate::output::ShardOutput;
use crate::qp::Qp;
use crate::shard::Shard;
use crate::shared::Round;
use engine::{DropReason, Nanos};
use std::net::Ipv4Addr;
use verbs::{QpKind, QpNumber, QpState};

impl Shard {
    /// A queue pair has a connection from now on.
    pub fn link(&mut self, number: QpNumber) {
        let Some(slot) = self.numbers.get(number) else { return };
        if let Some(stream) = self.qps.get_mut(slot).and_then(|qp| qp.stream.as_mut()) {
            stream.linked = true;
        }
        self.wake(slot);
    }

    /// Nothing comes any more: what was asked for, or will be, ends as not answered, once all retries would be over.
    pub fn lost(&mut self, now: Nanos, number: QpNumber, out: &mut ShardOutput<'_>) {
        self.with(now, number, out, lost);
    }

    /// The next message of a queue pair that has a connection; `None`: [`Event::Ready`] comes when there may be one
    /// again.
    pub fn next_message(&mut self, now: Nanos, number: QpNumber, out: &mut ShardOutput<'_>) -> Option<Message> {
        self.with(now, number, out, next_message).flatten()
    }

    /// What is left to send of a queue pair that is about to go, where it has a connection.
    pub fn last_words(&self, number: QpNumber) -> Option<FinalMessage> {
        self.qps.get(self.numbers.get(number)?)?.stream.as_ref()?.last_words()
    }

    /// Where the payload of a message goes, which has `len` bytes with its header. To be asked once for each message,
    /// in any order, unless the answer is [`Steer::Later`].
    pub fn steer(
        &mut self,
        now: Nanos,
        number: QpNumber,
        header: &Header,
        len: u32,
        out: &mut ShardOutput<'_>,
    ) -> Steer {
        let found = self.with(now, number, out, |qp, round| steer(qp, header, len, round));
        found.unwrap_or(Steer::Later)
    }

    /// A message is in order, and its payload where it was steered to.
    pub fn arrived(&mut self, now: Nanos, number: QpNumber, arrived: Arrived, out: &mut ShardOutput<'_>) {
        self.with(now, number, out, |qp, round| deliver(qp, arrived, round));
    }

    /// The host that the next datagram of a queue pair is for; `None`: [`crate::Event::Ready`] comes when there may be
    /// one again.
    pub fn datagram_to(&mut self, now: Nanos, number: QpNumber, out: &mut ShardOutput<'_>) -> Option<Ipv4Addr> {
        let slot = self.of_datagrams(number)?;
        let qp = self.qps.get_mut(slot)?;
        let to = datagrams::destination(qp, &mut Round { now, shared: &mut self.shared, out });
        if qp.state == QpState::Error {
            self.wake(slot);
        }
        to
    }

    /// The next datagram of a queue pair. Its work request has ended.
    pub fn next_datagram(&mut self, now: Nanos, number: QpNumber, out: &mut ShardOutput<'_>) -> Option<Message> {
        let slot = self.of_datagrams(number)?;
        let message = datagrams::next(self.qps.get_mut(slot)?, &mut Round { now, shared: &mut self.shared, out });
        self.wake(slot);
        message
    }

    /// A datagram came for a queue pair, from this host to that one.
    pub fn datagram(
        &mut self,
        now: Nanos,
        from: Ipv4Addr,
        to: Ipv4Addr,
        header: &Header,
        payload: &[u8],
        out: &mut ShardOutput<'_>,
    ) {
        let found = self.of_datagrams(header.receive).and_then(|slot| Some((slot, self.qps.get_mut(slot)?)));
        let Some((slot, qp)) = found else { return out.drops.count(DropReason::QpUnknown) };
        datagrams::arrive(qp, from, to, header, payload, &mut Round { now, shared: &mut self.shared, out });
        self.wake(slot);
    }

    /// The slot of a queue pair of datagrams.
    fn of_datagrams(&self, number: QpNumber) -> Option<u32> {
        let slot = self.numbers.get(number)?;
        self.qps.get(slot).filter(|qp| qp.identity.kind == QpKind::Ud).map(|_| slot)
    }

    fn with<T>(
        &mut self,
        now: Nanos,
        number: QpNumber,
        out: &mut ShardOutput<'_>,
        act: impl FnOnce(&mut Qp, &mut Round<'_, '_>) -> T,
    ) -> Option<T> {
        let slot = self.numbers.get(number)?;
        let qp = self.qps.get_mut(slot).filter(|qp| qp.stream.is_some())?;
        let result = act(qp, &mut Round { now, shared: &mut self.shared, out });
        self.wake(slot);
        Some(result)
    }
}
