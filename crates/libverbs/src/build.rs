//! Send work requests as elements of the send pipe.
use crate::errno::Result;
use verbs::{
    INLINE_FIRST, INLINE_NEXT, MOST_ELEMENTS, MOST_INLINE, MOST_PIECES, PIECES_FIRST, PIECES_NEXT, Piece, SendElement,
    SendFlags, SendOpcode,
};

/// Elements of one work request, the first one first.
pub(crate) type Elements = [[u64; 8]; MOST_ELEMENTS];

/// What a queue pair takes.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Scatter-gather entries.
    pub(crate) pieces: usize,
    /// Bytes of inline data.
    pub(crate) inline: usize,
}

/// Where the payload of a work request is.
pub(crate) enum Payload<P, B> {
    /// In registered memory: scatter-gather entries.
    Pieces(P),
    /// In memory that the program may use again at once: what is copied, part by part.
    Inline(B),
}

/// Writes the elements of a work request and returns how many there are; `first` lacks the payload and how much there
/// is of it. EINVAL where the payload is more than the queue pair takes, or not what the operation needs.
#[inline]
pub(crate) fn elements<'a>(
    first: &mut SendElement,
    payload: Payload<impl ExactSizeIterator<Item = Piece>, impl Iterator<Item = &'a [u8]>>,
    bounds: Bounds,
    into: &mut Elements,
) -> Result<usize> {
    match payload {
        Payload::Pieces(pieces) => add_pieces(first, pieces, bounds, into)?,
        Payload::Inline(parts) => add_inline(first, parts, bounds, into)?,
    }
    first.more = first.further().ok_or(libc::EINVAL)?;
    into[0] = first.encode();
    Ok(1 + usize::from(first.more))
}

#[inline]
fn add_pieces(
    first: &mut SendElement,
    pieces: impl ExactSizeIterator<Item = Piece>,
    bounds: Bounds,
    into: &mut Elements,
) -> Result<()> {
    if pieces.len() > bounds.pieces.min(MOST_PIECES) {
        return Err(libc::EINVAL);
    }
    first.pieces = pieces.len() as u8;
    for (at, piece) in pieces.enumerate() {
        if at < PIECES_FIRST {
            // The second place of an atomic has its operands; `further` refuses one that has two entries.
            if at == 0 || !first.opcode.is_atomic() {
                first.set_piece(at, piece);
            }
            continue;
        }
        let (element, place) = ((at - PIECES_FIRST) / PIECES_NEXT + 1, (at - PIECES_FIRST) % PIECES_NEXT);
        if place == 0 {
            into[element] = [0; 8];
        }
        into[element][2 * place..2 * place + 2].copy_from_slice(&piece.words());
    }
    Ok(())
}

fn add_inline<'a>(
    first: &mut SendElement,
    mut parts: impl Iterator<Item = &'a [u8]>,
    bounds: Bounds,
    into: &mut Elements,
) -> Result<()> {
    if first.opcode.is_atomic() || first.opcode == SendOpcode::Read {
        return Err(libc::EINVAL);
    }
    first.flags = first.flags | SendFlags::INLINE;
    let (head, second) = (parts.next().unwrap_or_default(), parts.next());
    if second.is_none() && head.len() <= INLINE_FIRST.min(bounds.inline) {
        first.inline = head.len() as u32;
        fill(&mut first.words, head);
        return Ok(());
    }
    let mut bytes = [0u8; MOST_INLINE];
    let mut len = 0;
    for part in std::iter::once(head).chain(second).chain(parts) {
        let end = len + part.len();
        if end > bounds.inline.min(MOST_INLINE) {
            return Err(libc::EINVAL);
        }
        bytes[len..end].copy_from_slice(part);
        len = end;
    }
    first.inline = len as u32;
    let (head, remaining) = bytes[..len].split_at(len.min(INLINE_FIRST));
    fill(&mut first.words, head);
    for (element, chunk) in into[1..].iter_mut().zip(remaining.chunks(INLINE_NEXT)) {
        fill(element, chunk);
    }
    Ok(())
}

/// Bytes as words of an element, zeros behind them.
fn fill(words: &mut [u64], bytes: &[u8]) {
    words.fill(0);
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_ne_bytes(whole);
    }
}

/// Work requests between `ibv_wr_start` and `ibv_wr_complete`.
#[derive(Default)]
pub(crate) struct Building {
    /// The last one, which still lacks its payload.
    pub(crate) open: Option<Open>,
    /// Elements of those before it.
    pub(crate) elements: Vec<[u64; 8]>,
    /// `wr_id`s of all.
    pub(crate) ids: Vec<u64>,
    /// What was wrong first.
    pub(crate) error: Option<libc::c_int>,
}

impl Building {
    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        (self.open, self.error) = (None, None);
        self.elements.clear();
        self.ids.clear();
    }

    /// The list cannot be posted; the first reason counts.
    pub(crate) fn fail(&mut self, number: libc::c_int) {
        self.error = self.error.or(Some(number));
    }
}

/// A work request whose payload is still to be named.
pub(crate) struct Open {
    /// Its first element.
    pub(crate) first: SendElement,
    /// Its scatter-gather entries.
    pub(crate) pieces: Vec<Piece>,
    /// Its inline data.
    pub(crate) inline: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(opcode: SendOpcode) -> SendElement {
        SendElement { flags: SendFlags::SIGNALED, number: 3, ..SendElement::new(7, opcode) }
    }

    const BOUNDS: Bounds = Bounds { pieces: 8, inline: 200 };

    fn piece(at: usize) -> Piece {
        Piece { address: at as u64, len: at as u32 + 1, key: 9 }
    }

    #[test]
    fn entries_go_to_the_first_element_and_on() {
        let mut into = [[u64::MAX; 8]; MOST_ELEMENTS];
        for count in 0..=8usize {
            let payload = Payload::<_, std::iter::Empty<&[u8]>>::Pieces((0..count).map(piece));
            let elements = elements(&mut first(SendOpcode::Send), payload, BOUNDS, &mut into).unwrap();
            assert_eq!(elements, 1 + count.saturating_sub(2).div_ceil(3));
            let read = SendElement::decode(&into[0]).unwrap();
            for at in 0..count {
                let found = match at {
                    0 | 1 => read.piece(at),
                    _ => Piece::of_further(&into[(at - 2) / 3 + 1], (at - 2) % 3),
                };
                assert_eq!(found, piece(at));
            }
        }
        let payload = Payload::<_, std::iter::Empty<&[u8]>>::Pieces((0..9).map(piece));
        assert_eq!(elements(&mut first(SendOpcode::Send), payload, BOUNDS, &mut into), Err(libc::EINVAL));
        let payload = Payload::<_, std::iter::Empty<&[u8]>>::Pieces((0..2).map(piece));
        assert_eq!(elements(&mut first(SendOpcode::FetchAdd), payload, BOUNDS, &mut into), Err(libc::EINVAL));
    }

    #[test]
    fn inline_data_are_copied_part_by_part() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut into = [[u64::MAX; 8]; MOST_ELEMENTS];
        for len in [0, 1, 31, 32, 33, 88, 89, 200] {
            let parts = bytes[..len].chunks(13);
            let payload = Payload::<std::iter::Empty<Piece>, _>::Inline(parts);
            let count = elements(&mut first(SendOpcode::Write), payload, BOUNDS, &mut into).unwrap();
            let read = SendElement::decode(&into[0]).unwrap();
            assert_eq!((read.inline as usize, read.pieces, count), (len, 0, 1 + read.more as usize));
            let following = into[1..count].iter().flat_map(|element| element[..7].to_vec());
            let copy: Vec<u8> = read.words.into_iter().chain(following).flat_map(u64::to_ne_bytes).take(len).collect();
            assert_eq!(copy, bytes[..len]);
        }
        let too_much = Payload::<std::iter::Empty<Piece>, _>::Inline([&bytes[..], &bytes[..1]].into_iter());
        assert_eq!(elements(&mut first(SendOpcode::Write), too_much, BOUNDS, &mut into), Err(libc::EINVAL));
        let reads = Payload::<std::iter::Empty<Piece>, _>::Inline([&bytes[..1]].into_iter());
        assert_eq!(elements(&mut first(SendOpcode::Read), reads, BOUNDS, &mut into), Err(libc::EINVAL));
    }
}
