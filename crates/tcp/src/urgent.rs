//! Urgent data (RFC 9293 section 3.8.5). The pointer names the byte after the last urgent one. One byte is urgent, as
//! in Linux and all other systems (RFC 6093 section 3.1).
use wire::Seq;

/// Urgent pointers of a connection, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Urgent {
    /// The urgent byte, as long as it has not come.
    incoming: Option<Seq>,
    /// After the last urgent byte that was written, as long as that is not acknowledged.
    outgoing: Option<Seq>,
}

impl Urgent {
    /// The urgent pointer of a segment that begins at `seq`, where `next` is expected next. Returns the urgent byte
    /// where that is new: neither received before nor before the one that was announced.
    pub fn receive(&mut self, seq: Seq, pointer: u16, next: Seq) -> Option<Seq> {
        let byte = seq + u32::from(pointer.saturating_sub(1));
        let is_known = self.incoming.is_some_and(|announced| byte.at_or_before(announced));
        if byte.before(next) || is_known {
            return None;
        }
        self.incoming = Some(byte);
        Some(byte)
    }

    /// The application has written up to `end`, and the last byte is urgent.
    pub fn write(&mut self, end: Seq) {
        if self.outgoing.is_none_or(|earlier| earlier.before(end)) {
            self.outgoing = Some(end);
        }
    }

    /// Something that was written is urgent.
    pub fn is_outgoing(&self) -> bool {
        self.outgoing.is_some()
    }

    /// The urgent pointer of a segment that begins at `seq`, where it has one. What lies further ahead than the field
    /// can express is announced later. A lower number would make another byte urgent, which peers take out of the
    /// stream.
    pub fn pointer(&self, seq: Seq) -> Option<u16> {
        let end = self.outgoing.filter(|end| seq.before(*end))?;
        u16::try_from(end - seq).ok()
    }

    /// All before `next` was received, and all before `una` acknowledged. Whether something is urgent still.
    pub fn pass(&mut self, next: Seq, una: Seq) -> bool {
        self.incoming = self.incoming.filter(|byte| next.at_or_before(*byte));
        self.outgoing = self.outgoing.filter(|end| una.before(*end));
        *self != Urgent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Seq = Seq(u32::MAX - 10);

    #[test]
    fn the_pointer_is_one_past_the_urgent_byte_and_only_moves_on() {
        let mut urgent = Urgent::default();
        assert_eq!(urgent.receive(NEXT - 5, 5, NEXT), None, "that byte has come");
        assert_eq!(urgent.receive(NEXT - 5, 6, NEXT), Some(NEXT));
        assert_eq!(urgent.receive(NEXT, 1, NEXT), None, "the same");
        assert_eq!(urgent.receive(NEXT + 3, 20, NEXT), Some(NEXT + 22));
        assert_eq!(urgent.receive(NEXT, 10, NEXT), None, "an older one, late");
        assert!(urgent.pass(NEXT + 22, NEXT));
        assert!(!urgent.pass(NEXT + 23, NEXT), "it has come");
        assert_eq!(urgent.receive(NEXT + 30, 0, NEXT + 23), Some(NEXT + 30), "0 is taken as 1, as in Linux");
    }

    #[test]
    fn segments_before_the_end_of_urgent_data_point_there() {
        let mut urgent = Urgent::default();
        assert_eq!(urgent.pointer(NEXT), None);
        urgent.write(NEXT + 65_536);
        urgent.write(NEXT + 7);
        assert_eq!(urgent.pointer(NEXT), None, "too far ahead to express");
        assert_eq!(urgent.pointer(NEXT + 1), Some(65_535));
        assert_eq!((urgent.pointer(NEXT + 65_535), urgent.pointer(NEXT + 65_536)), (Some(1), None));
        assert!(urgent.pass(NEXT, NEXT + 65_535) && urgent.is_outgoing());
        assert!(!urgent.pass(NEXT, NEXT + 65_536));
    }
}
