//! The TCP option for messages (the paper's section 3.5; docs/ZERONIC.md, "Messages"). It names the message of a
//! segment's payload; on a SYN, it shows that the sender carries messages. Transports never see it.
use crate::frames::Segment;
use crate::nic::Mark;
use port::Frame;
use wire::Seq;
use wire::tcp::{self, HEADER_LEN, MAX_HEADER_LEN};

/// Kind of options for experiments (RFC 4727), and the number of this one (RFC 6994), which IANA has not registered.
const KIND: u8 = 253;
const EXPERIMENT: [u8; 2] = [0x5a, 0x4e];
/// Bytes of the option on a SYN, and of a mark: both are whole words.
const OFFER_LEN: usize = 4;
pub(crate) const MARK_LEN: usize = 16;
const NO_OPERATION: u8 = 1;

/// The option's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkOption {
    /// The sender of a SYN carries messages.
    Offer,
    /// Of which message the payload is a part.
    Mark(Mark),
}

/// The option of a TCP header, whose other options were parsed before, and where it stands in the header.
pub(crate) fn find(header: &[u8]) -> Option<(usize, MarkOption)> {
    let mut at = HEADER_LEN;
    while let [kind, rest @ ..] = header.get(at..)? {
        let len = match (*kind, rest.first()) {
            (0, _) | (2.., None) => return None,
            (NO_OPERATION, _) => 1,
            (_, Some(len)) => usize::from(*len).max(2),
        };
        if let Some(mark_option) = header.get(at..at + len).and_then(parse) {
            return Some((at, mark_option));
        }
        at += len;
    }
    None
}

fn parse(option: &[u8]) -> Option<MarkOption> {
    let [KIND, _, first, second, body @ ..] = option else { return None };
    let word = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    match ([*first, *second] == EXPERIMENT, option.len()) {
        (true, OFFER_LEN) => Some(MarkOption::Offer),
        (true, MARK_LEN) => Some(MarkOption::Mark(Mark { number: word(0), start: Seq(word(4)), len: word(8) })),
        _ => None,
    }
}

fn bytes_of(mark_option: MarkOption) -> ([u8; MARK_LEN], usize) {
    let mut bytes = [0; MARK_LEN];
    let len = match mark_option {
        MarkOption::Offer => OFFER_LEN,
        MarkOption::Mark(Mark { number, start, len }) => {
            for (at, word) in [(4, number), (8, start.0), (12, len)] {
                bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
            }
            MARK_LEN
        }
    };
    bytes[..2].copy_from_slice(&[KIND, len as u8]);
    bytes[2..4].copy_from_slice(&EXPERIMENT);
    (bytes, len)
}

impl Segment {
    /// Appends the option to the headers, which are all that the frame has. Where there is no room, SACK blocks go, the
    /// oldest first (RFC 2018 section 3: a segment has as many as fit).
    pub(crate) fn append_option(&mut self, frame: &mut Frame, mark_option: MarkOption) {
        let (option, len) = bytes_of(mark_option);
        let mut header = self.header(frame).to_vec();
        while header.len() + len > MAX_HEADER_LEN {
            // Those that this host has no name for go as well.
            match self.options.sack.iter_mut().rev().find(|block| block.is_some()) {
                Some(block) => *block = None,
                None => self.options = tcp::Options { timestamps: self.options.timestamps, ..Default::default() },
            }
            let Ok((parsed, _)) = tcp::Header::parse(&header) else { return };
            header.resize(MAX_HEADER_LEN, 0);
            let shorter = tcp::Header { options: self.options, ..parsed }.emit(&mut header);
            header.truncate(shorter);
        }
        header.extend_from_slice(&option[..len]);
        self.set_header(frame, &header);
    }

    /// Takes the option at this place of the TCP header out. The frame has headers only.
    pub(crate) fn hide(&mut self, frame: &mut Frame, at: usize) {
        let mut header = self.header(frame).to_vec();
        let end = at + usize::from(header[at + 1]);
        if end == header.len() && at % 4 == 0 {
            header.truncate(at);
        } else {
            header[at..end].fill(NO_OPERATION);
        }
        self.set_header(frame, &header);
    }

    /// The transport's segments are to have room for a mark: the peer's SYN names a segment size that is so much less.
    pub(crate) fn leave_room(&mut self, frame: &mut Frame) {
        let Some(mss) = self.options.mss.map(|mss| mss.saturating_sub(MARK_LEN as u16)) else { return };
        self.options.mss = Some(mss);
        self.change(frame, |header| tcp::set_mss(header, mss));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> MarkOption {
        MarkOption::Mark(Mark { number: 0x0102_0304, start: Seq(u32::MAX), len: 77 })
    }

    fn header(options: &[u8]) -> Vec<u8> {
        [&[0; HEADER_LEN][..], options].concat()
    }

    #[test]
    fn an_option_is_found_behind_other_options() {
        for mark_option in [MarkOption::Offer, mark()] {
            let (bytes, len) = bytes_of(mark_option);
            for before in [&[][..], &[1, 1], &[8, 10, 1, 2, 3, 4, 5, 6, 7, 8], &[253, 4, 9, 9]] {
                let options = [before, &bytes[..len]].concat();
                assert_eq!(find(&header(&options)), Some((HEADER_LEN + before.len(), mark_option)));
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_foreign_is_ignored() {
        let (bytes, len) = bytes_of(mark());
        for cut in 0..len {
            assert_eq!(find(&header(&bytes[..cut])), None, "{cut} bytes");
        }
        for options in
            [&[0, 253, 4, 0x5a, 0x4e][..], &[253, 4, 0x5a, 0x4f], &[253, 5, 0x5a, 0x4e, 0], &[253], &[9, 0, 1]]
        {
            assert_eq!(find(&header(options)), None, "{options:?}");
        }
    }
}
