//! Proportional rate reduction (RFC 9937): how much is sent in fast recovery. What is in flight comes down to the new
//! congestion window in one round trip, with the acknowledgements, and neither at once nor too far.
//!
//! Congestion control runs beside the data-path, and sets the new window a little after the loss: with FlexTOE at once,
//! with Laminar at its next run. Until then, as much is sent as is delivered, within the old one.
use wire::Seq;

/// State at the begin of recovery. All else is the difference to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prr {
    /// Bytes that were in flight (`RecoverFS`).
    flight: u32,
    /// First byte that was not acknowledged, after the last one that was sent, and bytes beyond holes.
    una: Seq,
    max: Seq,
    sacked: u32,
    /// Bytes that had been sent again.
    resent: u32,
    /// `prr_delivered` at the last acknowledgement.
    delivered: u32,
    /// The window has been reduced.
    pub(crate) reduced: bool,
}

/// A sender's positions at an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrrInput {
    /// First byte that is not acknowledged.
    pub una: Seq,
    /// After the last one that was sent.
    pub max: Seq,
    /// Bytes in flight.
    pub in_flight: u32,
    /// The congestion window, bytes: `ssthresh` once it has been reduced.
    pub cwnd: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

impl Prr {
    /// Recovery begins with an acknowledgement. Before it there were `una` and `sacked` bytes beyond holes; up to `max`
    /// was sent, and `resent` bytes were sent again.
    pub(crate) fn new(una: Seq, max: Seq, sacked: u32, resent: u32) -> Prr {
        Prr {
            flight: (max - una).saturating_sub(sacked).max(1),
            una,
            max,
            sacked,
            resent,
            delivered: 0,
            reduced: false,
        }
    }

    /// Bytes that may be sent now (`sndcnt`), with `sacked` bytes beyond holes and `resent` sent again in all. The
    /// acknowledgement is `safe` where it acknowledges something, and shows no other loss.
    // Meets RFC 9937: 6-a, 6-b, 6-c, 6-d.
    pub(crate) fn room(&mut self, at: &PrrInput, sacked: u32, resent: u32, safe: bool) -> u32 {
        let delivered = (at.una - self.una).wrapping_add(sacked).saturating_sub(self.sacked);
        let out = (at.max - self.max).saturating_add(resent.wrapping_sub(self.resent));
        let newly_delivered = delivered.saturating_sub(std::mem::replace(&mut self.delivered, delivered));
        let saved = delivered.saturating_sub(out);
        let room = if !self.reduced {
            saved.min(at.cwnd.saturating_sub(at.in_flight))
        } else if at.in_flight > at.cwnd {
            let share = (u64::from(delivered) * u64::from(at.cwnd)).div_ceil(self.flight.into());
            (share as u32).saturating_sub(out)
        } else {
            let more = if safe { at.mss } else { 0 };
            (saved.max(newly_delivered) + more).min(at.cwnd - at.in_flight)
        };
        // The first retransmission goes whatever is in flight; and where nothing is, no acknowledgement would come.
        if out == 0 || at.in_flight < at.mss { room.max(at.mss) } else { room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNA: Seq = Seq(u32::MAX - 4999);

    /// Of twenty segments of 1000 bytes, the first is lost. Each acknowledgement reports one of the others.
    struct Run {
        prr: Prr,
        sacked: u32,
        sent: u32,
        resent: u32,
        lost: u32,
    }

    impl Run {
        fn new(lost: u32) -> Run {
            let prr = Prr::new(UNA, UNA + 20_000, 3000, 0);
            Run { prr, sacked: 3000, sent: 0, resent: 0, lost }
        }

        fn standing(&self, cwnd: u32) -> PrrInput {
            let max = UNA + 20_000 + self.sent;
            let in_flight = 20_000 + self.sent + self.resent - self.sacked - self.lost;
            PrrInput { una: UNA, max, in_flight, cwnd, mss: 1000 }
        }

        /// An acknowledgement, and what is sent then: whole segments, first what is lost.
        fn acknowledge(&mut self, cwnd: u32, safe: bool) -> u32 {
            self.sacked += 1000;
            let room = self.prr.room(&self.standing(cwnd), self.sacked, self.resent, safe) / 1000 * 1000;
            let again = room.min(self.lost - self.resent);
            (self.resent, self.sent) = (self.resent + again, self.sent + room - again);
            room / 1000
        }
    }

    // Checks RFC 9937: 6-a, 6-b.
    #[test]
    fn what_is_in_flight_comes_down_in_proportion() {
        let mut run = Run::new(1000);
        assert_eq!(run.acknowledge(20_000, false), 1, "the lost one at once");
        run.prr.reduced = true;
        let sent: Vec<u32> = (0..15).map(|_| run.acknowledge(10_000, false)).collect();
        assert!((3..=5).contains(&sent[..8].iter().sum::<u32>()), "{sent:?}: about half of what came");
        assert!(sent.iter().all(|segments| *segments <= 1), "{sent:?}: one by one");
        assert_eq!(run.standing(10_000).in_flight, 10_000, "{sent:?}: and in the end, the window");
    }

    // Checks RFC 9937: 6-c, 6-d.
    #[test]
    fn after_many_losses_it_grows_up_to_the_window() {
        let mut run = Run::new(12_000);
        run.prr.reduced = true;
        let careful: Vec<u32> = (0..2).map(|_| run.acknowledge(10_000, false)).collect();
        assert_eq!(careful, [1, 1], "as much as came");
        let safe: Vec<u32> = (0..2).map(|_| run.acknowledge(10_000, true)).collect();
        assert_eq!(safe, [2, 2], "one more for each");
        (0..10).for_each(|_| _ = run.acknowledge(10_000, true));
        assert!(run.standing(10_000).in_flight <= 10_000);
    }

    #[test]
    fn until_the_window_is_reduced_as_much_is_sent_as_comes() {
        let mut run = Run::new(3000);
        let sent: Vec<u32> = (0..6).map(|_| run.acknowledge(20_000, true)).collect();
        assert_eq!(sent, [1; 6]);
    }

    /// The retransmissions are lost: nothing comes that would let anything out.
    #[test]
    fn a_segment_goes_where_nothing_is_in_flight() {
        let mut prr = Prr::new(UNA, UNA + 3000, 1000, 0);
        let at = PrrInput { una: UNA, max: UNA + 3000, in_flight: 0, cwnd: 4000, mss: 1000 };
        assert_eq!(prr.room(&at, 1000, 2000, false), 1000);
    }
}
