//! A question for the queue pair of a service of datagrams (IBTA 1.3, 12.11): SIDR_REQ is sent, again until SIDR_REP
//! comes. The side that is asked has no state but its answer.
use super::timing;
use engine::Nanos;
use wire::roce::cm::{Lookup, Mad, Message};

/// A question that has no answer yet.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    mad: Mad,
    left: u8,
    due: Nanos,
}

impl Question {
    /// Asks: the datagram is to be sent.
    pub(crate) fn new(now: Nanos, lookup: Lookup, transaction: u64) -> (Question, Mad) {
        let mad = Mad { transaction, message: Message::Lookup(lookup) };
        let due = now + timing::response(timing::RESPONSE);
        (Question { mad: mad.clone(), left: timing::RETRIES, due }, mad)
    }

    /// When it is to be asked again.
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    /// That time has come: the datagram, again; `None` where it was sent often enough.
    // Meets IBTA: 12.11-a.
    pub(crate) fn fire(&mut self, now: Nanos) -> Option<Mad> {
        self.left = self.left.checked_sub(1)?;
        self.due = now + timing::response(timing::RESPONSE);
        Some(self.mad.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks IBTA: 12.11-a.
    #[test]
    fn a_question_is_asked_again_and_given_up() {
        let lookup = Lookup { request: 7, pkey: 0xffff, service: 1, data: Default::default() };
        let (mut question, mad) = Question::new(0, lookup, 3);
        let mut times = 0;
        while let Some(again) = question.fire(question.due()) {
            assert_eq!(again, mad);
            times += 1;
        }
        assert_eq!(times, timing::RETRIES);
    }
}
