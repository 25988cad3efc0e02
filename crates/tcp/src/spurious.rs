//! Spurious timeouts and fast retransmits: the Eifel detection algorithm (RFC 3522), and F-RTO
//! with SACK (RFC 5682 section 3.1), with Linux's refinements.
//!
//! Eifel: an acknowledgement that echoes a timestamp from before the first retransmission answers the first
//! transmission. F-RTO: something came that was sent once, before the timeout. So not all was lost, and what was
//! outstanding is late.
use wire::Seq;

/// An acknowledgement, taken in by the scoreboard already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckUpdate {
    /// What was not acknowledged before it, and what is not now.
    pub old: Seq,
    /// See there.
    pub una: Seq,
    /// The timestamp that it echoes.
    pub echo: Option<u32>,
}

/// Verdict of an acknowledgement on the loss that is being recovered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing that would change anything.
    Open,
    /// There was none.
    Spurious,
    /// Something new is to be sent, where there is something: its answer shows it.
    SendNew,
}

/// Where F-RTO stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Frto {
    /// No timeout is in question.
    #[default]
    Off,
    /// The first segment was sent again.
    First,
    /// That was answered, and something new is sent.
    New,
}

/// State of a loss until it is decided whether it was spurious.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpuriousCheck {
    /// The loss is in question: what is sent again for another reason is not.
    open: bool,
    /// The timestamp of the first retransmission (`RetransmitTS`), and where that began.
    stamp: Option<(u32, Seq)>,
    /// It was answered, and no earlier transmission.
    answered: bool,
    frto: Frto,
    /// Only what lies between these two was sent once, and before the timeout.
    from: Seq,
    end: Seq,
    /// Some of that came.
    original: bool,
}

impl SpuriousCheck {
    /// A loss was found.
    pub(crate) fn of_loss() -> SpuriousCheck {
        SpuriousCheck { open: true, ..SpuriousCheck::default() }
    }

    /// The retransmission timer ended. What lies before `from` was sent again, or the peer had it; what lies behind
    /// `end` was sent just now. F-RTO is for a timeout that is `first`: not within the recovery of another loss.
    // Meets RFC 5682: 3.1-a.
    pub(crate) fn time_out(&mut self, from: Seq, end: Seq, first: bool) {
        let from = if self.frto == Frto::Off { from } else { from.max(self.from) };
        let runs = self.open && (first || self.frto != Frto::Off);
        (self.frto, self.from, self.end) = (if runs { Frto::First } else { Frto::Off }, from, end);
        self.original = false;
    }

    /// Something is sent again from `begin` on, with this timestamp.
    // Meets RFC 3522: 3.2-a.
    pub(crate) fn note_resent(&mut self, begin: Seq, stamp: u32) {
        if self.open {
            self.stamp.get_or_insert((stamp, begin));
        }
    }

    /// `left` to `right` came, which was not sent again since the timeout.
    pub(crate) fn note_original(&mut self, left: Seq, right: Seq) {
        let end = if self.end.before(right) { self.end } else { right };
        self.original |= self.frto != Frto::Off && left.max(self.from).before(end);
    }

    /// Only what is new is sent now.
    #[inline]
    pub(crate) fn sends_new_only(&self) -> bool {
        self.frto == Frto::New
    }

    /// Nothing new can be sent: the conventional recovery follows.
    // Meets RFC 5682: 3.1-c.
    pub(crate) fn give_up(&mut self) {
        self.frto = Frto::Off;
    }

    /// The first acknowledgement of what was sent again decides by its timestamp. F-RTO takes two: the first one lets
    /// something new out, the second one shows what became of the rest. Recovery goes on where it is `active`.
    // Meets RFC 3522: 3.2-b.
    // Meets RFC 5682: 3.1-b, 3.1-c, 3.1-d.
    pub(crate) fn decide(&mut self, update: &AckUpdate, active: bool) -> Verdict {
        let answer = self.stamp.filter(|(_, begin)| !self.answered && begin.before(update.una));
        let is_late = answer.zip(update.echo).is_some_and(|((stamp, _), echo)| Seq(echo).before(Seq(stamp)));
        self.answered |= answer.is_some();
        if is_late || std::mem::take(&mut self.original) {
            *self = SpuriousCheck::default();
            return Verdict::Spurious;
        }
        let waits = self.frto == Frto::First && !update.old.before(update.una);
        match self.frto {
            _ if !active => *self = SpuriousCheck::default(),
            Frto::First if !waits => {
                self.frto = Frto::New;
                return Verdict::SendNew;
            }
            Frto::New => self.frto = Frto::Off,
            _ => {}
        }
        Verdict::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNA: Seq = Seq(u32::MAX - 1999);

    fn update(old: u32, una: u32, echo: Option<u32>) -> AckUpdate {
        AckUpdate { old: UNA + old, una: UNA + una, echo }
    }

    // Checks RFC 3522: 3.2-a, 3.2-b.
    #[test]
    fn an_echo_from_before_the_first_retransmission_is_late() {
        let decide = |una, echo| {
            let mut check = SpuriousCheck::of_loss();
            check.note_resent(UNA, 5);
            check.note_resent(UNA + 1000, 9);
            let first = check.decide(&update(0, una, echo), true);
            (first, check.decide(&update(una, 3000, Some(u32::MAX)), true))
        };
        assert_eq!(decide(1000, Some(4)), (Verdict::Spurious, Verdict::Open));
        assert_eq!(decide(1000, Some(u32::MAX)).0, Verdict::Spurious, "clocks wrap");
        assert_eq!(decide(1000, Some(5)), (Verdict::Open, Verdict::Open), "it decides");
        assert_eq!(decide(1000, None), (Verdict::Open, Verdict::Open));
        assert_eq!(decide(0, Some(4)), (Verdict::Open, Verdict::Spurious), "an answer to nothing of it");
    }

    // Checks RFC 5682: 3.1-a, 3.1-b, 3.1-c, 3.1-d.
    #[test]
    fn what_was_sent_once_shows_a_timeout_in_vain() {
        let mut check = SpuriousCheck::of_loss();
        check.time_out(UNA + 2000, UNA + 8000, true);
        assert_eq!(check.decide(&update(0, 0, None), true), Verdict::Open, "a duplicate decides nothing");
        assert_eq!(check.decide(&update(0, 1000, None), true), Verdict::SendNew);
        assert!(check.sends_new_only());
        let mut late = check;
        late.note_original(UNA + 1000, UNA + 2000);
        late.note_original(UNA + 8000, UNA + 9000);
        let mut lost = late;
        assert_eq!(lost.decide(&update(1000, 1000, None), true), Verdict::Open);
        assert!(!lost.sends_new_only(), "the conventional recovery");
        late.note_original(UNA + 1000, UNA + 2001);
        assert_eq!(late.decide(&update(1000, 1000, None), true), Verdict::Spurious);
        check.give_up();
        assert!(!check.sends_new_only());
    }

    /// A flow goes on after another daemon was killed: what that one sent is unknown.
    #[test]
    fn what_is_sent_again_without_a_loss_is_not_checked() {
        let mut check = SpuriousCheck::default();
        check.note_resent(UNA, 5);
        assert_eq!(check.decide(&update(0, 1000, Some(4)), true), Verdict::Open);
    }

    // Checks RFC 5682: 3.1-a.
    #[test]
    fn a_timeout_within_a_recovery_is_not_checked() {
        let mut check = SpuriousCheck::of_loss();
        check.time_out(UNA, UNA + 8000, false);
        check.note_original(UNA, UNA + 2000);
        assert_eq!(check.decide(&update(0, 1000, None), true), Verdict::Open);
        let mut again = SpuriousCheck::of_loss();
        again.time_out(UNA + 2000, UNA + 8000, true);
        again.time_out(UNA, UNA + 9000, false);
        again.note_original(UNA, UNA + 2000);
        assert_eq!(again.decide(&update(0, 0, None), true), Verdict::Open, "it was sent again before the second one");
        again.note_original(UNA + 8000, UNA + 9000);
        assert_eq!(again.decide(&update(0, 0, None), true), Verdict::Spurious);
    }
}
