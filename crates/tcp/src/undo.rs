//! Detection of spurious retransmissions by D-SACK (RFC 3708, with the count of Linux). What was sent again since it
//! was found is counted. If the peer reports all of that to have come twice (D-SACK, RFC 2883), nothing was lost:
//! segments were late.
use wire::Seq;

/// Retransmissions for one loss, and how many of them were unnecessary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Undo {
    /// The loss was found with this acknowledged, and so much sent.
    from: Seq,
    end: Seq,
    /// Bytes sent again that were not reported to have come twice.
    left: u32,
    armed: bool,
}

impl Undo {
    /// A loss was found between `from` and `end`, and the congestion window is reduced for it.
    pub(crate) fn arm(&mut self, from: Seq, end: Seq) {
        *self = Undo { from, end, left: 0, armed: true };
    }

    /// Something is sent again for another reason.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }

    /// So many bytes are sent again.
    pub(crate) fn note_resent(&mut self, bytes: u32) {
        self.left = self.left.saturating_add(bytes);
    }

    /// The peer reports that it got `left` to `right` twice. True where that was the last of what was sent again.
    pub(crate) fn note_dsack(&mut self, left: Seq, right: Seq) -> bool {
        let ours = self.armed && self.left > 0 && !left.before(self.from) && !self.end.before(right);
        if !ours {
            return false;
        }
        self.left = self.left.saturating_sub(right - left);
        self.armed = self.left > 0;
        !self.armed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Seq = Seq(u32::MAX - 999);

    #[test]
    fn a_loss_was_none_where_all_came_twice() {
        let mut undo = Undo::default();
        assert!(!undo.note_dsack(FROM, FROM + 100), "nothing was lost");
        undo.arm(FROM, FROM + 2000);
        assert!(!undo.note_dsack(FROM, FROM + 100), "nothing was sent again");
        undo.note_resent(300);
        assert!(!undo.note_dsack(FROM + 1900, FROM + 2200), "sent after the loss was found");
        assert!(!undo.note_dsack(FROM, FROM + 100) && !undo.note_dsack(FROM + 100, FROM + 200));
        assert!(undo.note_dsack(FROM + 200, FROM + 300));
        assert!(!undo.note_dsack(FROM + 200, FROM + 300), "once");
        undo.arm(FROM, FROM + 2000);
        undo.note_resent(100);
        undo.disarm();
        assert!(!undo.note_dsack(FROM, FROM + 100));
    }
}
