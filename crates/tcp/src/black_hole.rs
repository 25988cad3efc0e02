//! Paths that drop large packets and report nothing: black holes (RFC 4821 section 7.7).
//!
//! Timeouts in a row have two causes: the path drops what is large, or it is down for a while. So smaller segments are
//! tried. Once one of them is acknowledged, full segments are sent again. Where these time out once more, and smaller
//! ones arrive once more, the path does not carry them. So an outage leaves no connection with smaller segments.
use wire::Seq;

/// Timeouts with one size of segments before a smaller one is tried.
const TIMEOUTS: u8 = 2;

/// The suspicion that a path drops the full segments of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlackHole {
    /// Payload bytes of a full segment.
    full: u16,
    /// Of smaller ones, the larger first, and which of them is tried.
    sizes: [u16; 2],
    tried: u8,
    /// What was acknowledged when smaller segments began; of full ones, what has to be before they count as carried.
    una: Seq,
    /// Timeouts with this size.
    timeouts: u8,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Full segments timed out: smaller ones are sent.
    Smaller,
    /// A smaller one was acknowledged: full ones are sent.
    Full,
    /// They timed out again: smaller ones are sent.
    SmallerAgain,
}

/// What follows for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// Segments carry so many bytes from now on.
    Size(u16),
    /// The path carries full segments.
    Clear,
    /// The path drops full segments, and carries these.
    Found(u16),
}

impl BlackHole {
    /// Full segments timed out several times in a row, from the byte `una` on. `None` where no smaller size is left.
    // Meets RFC 4821: 7.7-a.
    pub fn suspect(full: u16, sizes: [u16; 2], una: Seq) -> Option<BlackHole> {
        let tried = sizes.iter().position(|size| *size < full)? as u8;
        Some(BlackHole { full, sizes, tried, una, timeouts: 0, stage: Stage::Smaller })
    }

    /// Payload bytes of the segments that are tried.
    pub fn size(&self) -> u16 {
        self.sizes[usize::from(self.tried)]
    }

    /// What follows from the acknowledgement of all before `una`, and from a timeout. `outstanding` bytes are sent and
    /// not acknowledged; `cwnd` of them may be in flight.
    pub fn watch(&mut self, una: Seq, outstanding: u32, cwnd: u32, timed_out: bool) -> Option<Finding> {
        let is_acked = self.una.before(una);
        match (self.stage, timed_out) {
            (Stage::Smaller, _) if is_acked => {
                // Segments that are in flight may be small ones. What is acknowledged beyond them was full.
                (self.stage, self.una) = (Stage::Full, una + outstanding.min(cwnd) + self.full.into());
                Some(Finding::Size(self.full))
            }
            (Stage::SmallerAgain, _) if is_acked => Some(Finding::Found(self.size())),
            (Stage::Full, true) if outstanding > self.size().into() => {
                (self.stage, self.una, self.timeouts) = (Stage::SmallerAgain, una, 0);
                Some(Finding::Size(self.size()))
            }
            (Stage::Full, false) if self.una.at_or_before(una) => Some(Finding::Clear),
            (Stage::Smaller | Stage::SmallerAgain, true) => self.try_smaller(),
            _ => None,
        }
    }

    // Meets RFC 4821: 7.7-b.
    fn try_smaller(&mut self) -> Option<Finding> {
        self.timeouts = self.timeouts.saturating_add(1);
        let next = *self.sizes.get(usize::from(self.tried) + 1)?;
        if self.timeouts < TIMEOUTS || next >= self.size() {
            return None;
        }
        (self.tried, self.timeouts) = (self.tried + 1, 0);
        Some(Finding::Size(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNA: Seq = Seq(u32::MAX - 500);
    const CWND: u32 = 3000;

    fn suspected() -> BlackHole {
        BlackHole::suspect(1460, [984, 536], UNA).unwrap()
    }

    /// So many bytes are acknowledged, and the path's end waits for as many as there ever are.
    fn watch(path: &mut BlackHole, acked: u32, timed_out: bool) -> Option<Finding> {
        path.watch(UNA + acked, 20_000 - acked, CWND, timed_out)
    }

    // Checks RFC 4821: 7.7-a.
    #[test]
    fn where_only_small_segments_pass_is_a_black_hole() {
        let mut path = suspected();
        assert_eq!(path.size(), 984);
        assert_eq!(watch(&mut path, 0, false), None);
        assert_eq!(watch(&mut path, 984, false), Some(Finding::Size(1460)), "full ones once more");
        assert_eq!(watch(&mut path, 984 + CWND, false), None, "these may be small ones");
        assert_eq!(watch(&mut path, 984 + CWND, true), Some(Finding::Size(984)));
        assert_eq!(watch(&mut path, 984 + CWND, false), None);
        assert_eq!(watch(&mut path, 1968 + CWND, false), Some(Finding::Found(984)));
    }

    #[test]
    fn an_outage_is_no_black_hole() {
        let mut path = suspected();
        assert_eq!(watch(&mut path, 984, false), Some(Finding::Size(1460)));
        assert_eq!(watch(&mut path, 984 + CWND + 1459, false), None);
        assert_eq!(watch(&mut path, 984 + CWND + 1460, false), Some(Finding::Clear));
        let mut path = suspected();
        watch(&mut path, 984, false);
        assert_eq!(path.watch(UNA + 984, 900, CWND, true), None, "what is lost was small");
    }

    // Checks RFC 4821: 7.7-b.
    #[test]
    fn sizes_shrink_while_nothing_arrives() {
        let mut path = suspected();
        let tried: Vec<_> = (0..6).map(|_| watch(&mut path, 0, true)).collect();
        assert_eq!(tried, [None, Some(Finding::Size(536)), None, None, None, None]);
        assert_eq!(watch(&mut path, 536, false), Some(Finding::Size(1460)));
        assert_eq!(watch(&mut path, 536, true), Some(Finding::Size(536)), "what has arrived before");
        assert_eq!(BlackHole::suspect(536, [984, 536], UNA), None);
        assert_eq!(BlackHole::suspect(984, [984, 536], UNA).unwrap().size(), 536);
        let mut of_ipv6 = BlackHole::suspect(1440, [1220, 1220], UNA).unwrap();
        assert!((0..6).all(|_| watch(&mut of_ipv6, 0, true).is_none()), "each link carries so much");
    }
}
