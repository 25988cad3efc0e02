//! What carries the stream asks of a shard.
use super::requester::lost;
use super::responder::steer;
use super::turns::{deliver, next_message};
use super::{Arrived, Header, Message, Steer};
use crate::output::ShardOutput;
use crate::qp::Qp;
use crate::shard::Shard;
use crate::shared::Round;
use engine::Nanos;
use verbs::QpNumber;

impl Shard {
    /// A queue pair has a connection from now on.
    pub fn link(&mut self, number: QpNumber) {
        let Some(slot) = self.numbers.get(number) else { return };
        if let Some(stream) = self.qps.get_mut(slot).and_then(|qp| qp.stream.as_mut()) {
            stream.linked = true;
        }
        self.wake(slot);
    }

    /// Nothing comes any more: what was asked for, or will be, ends as not answered.
    pub fn lost(&mut self, now: Nanos, number: QpNumber, out: &mut ShardOutput<'_>) {
        self.with(now, number, out, lost);
    }

    /// The next message of a queue pair that has a connection; `None`: [`Event::Ready`] says when to ask again.
    pub fn next_message(&mut self, now: Nanos, number: QpNumber, out: &mut ShardOutput<'_>) -> Option<Message> {
        self.with(now, number, out, next_message).flatten()
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
