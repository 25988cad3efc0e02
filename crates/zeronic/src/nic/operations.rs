//! Messages of verbs over a stream (docs/ZERONIC.md, "Verbs"). Each begins with a header of 32 bytes. Where its payload
//! goes is asked for as soon as that has come, and before a byte of the payload is written. A segment's data about its
//! message are checked as for other messages (`messages.rs`).
use super::payload::{Memory, Payload};
use memory::{Domain, Fault};
use smartns::{Content, Denied, HEADER_LEN, Header, MessageKind, RegionRange, Steer};
use std::collections::VecDeque;
use std::ops::Range;

/// Messages of a flow on their way in or out.
pub(super) const MOST: usize = 8192;
/// Bytes of messages that are kept until they are in order, or when their queue pair goes.
const MOST_KEPT: usize = 1 << 20;
/// Bytes of a message at most, with its header.
const MOST_BYTES: u32 = (1 << 30) + HEADER_LEN as u32;

/// A message may have so many bytes.
pub(super) fn may_have(len: u32) -> bool {
    (HEADER_LEN as u32..=MOST_BYTES).contains(&len)
}

/// A message that goes out.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Its header.
    pub header: [u8; HEADER_LEN],
    /// Its payload.
    pub content: Content,
}

/// A message that is behind the cursor.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its header.
    pub header: [u8; HEADER_LEN],
    /// Bytes of its payload.
    pub len: u32,
    /// The payload, where it was kept.
    pub kept: Option<Vec<u8>>,
    /// It was steered nowhere.
    pub denied: Option<Denied>,
    /// Its last byte, and where it goes, where that is not written yet.
    pub last: Option<(Domain, RegionRange, u8)>,
}

/// Decides where the payload of a message goes, by its header and its length.
pub type Guide<'a> = &'a mut dyn FnMut(&[u8; HEADER_LEN], u32) -> Steer;

#[derive(Debug, Clone)]
enum Target {
    Unknown,
    Places(Domain, Vec<RegionRange>),
    Kept(Vec<u8>),
    Nowhere(Denied),
}

#[derive(Debug, Clone)]
struct Incoming {
    len: u32,
    header: [u8; HEADER_LEN],
    /// Which bytes of the header have come.
    have: u32,
    target: Target,
    /// Its last byte, which shows only when all others do: programs poll it.
    last: Option<u8>,
}

/// The messages of a flow that are under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations {
    incoming: VecDeque<Option<Incoming>>,
    done: VecDeque<Finished>,
    outgoing: VecDeque<Outgoing>,
    kept: usize,
}

/// A part of a message that came.
pub(super) struct Part<'a> {
    /// The message's place among those that are under way, and its bytes.
    pub(super) index: usize,
    pub(super) len: u32,
    /// Offset of the part in the message, and in the payload of its segment.
    pub(super) from: u32,
    pub(super) skip: usize,
    pub(super) payload: Payload<'a>,
    /// Everything before it has come.
    pub(super) is_next: bool,
}

impl Outgoing {
    /// Bytes of the message.
    pub fn len(&self) -> u64 {
        HEADER_LEN as u64 + content_len(&self.content)
    }

    /// It has no bytes: never.
    pub fn is_empty(&self) -> bool {
        false
    }
}

fn content_len(content: &Content) -> u64 {
    match content {
        Content::Bytes(bytes) => bytes.len() as u64,
        Content::Had(len) => *len,
        Content::Places(_, places) => places.iter().map(|place| place.len).sum(),
    }
}

/// Shows the parts of `len` bytes from byte `from` on of what the places are in a row.
fn walk(places: &[RegionRange], mut from: u64, mut len: u64, mut each: impl FnMut(RegionRange)) {
    for place in places {
        let here = from.min(place.len);
        let count = (place.len - here).min(len);
        if count > 0 {
            each(RegionRange { offset: place.offset + here, len: count, ..*place });
        }
        (from, len) = (from - here, len - count);
    }
}

impl Incoming {
    fn new(len: u32) -> Incoming {
        Incoming { len, header: [0; HEADER_LEN], have: 0, target: Target::Unknown, last: None }
    }

    fn is_write(&self) -> bool {
        [MessageKind::Write as u8, MessageKind::WriteImmediate as u8].contains(&self.header[0])
    }

    /// Takes those bytes of a part that are the header's. Returns how many.
    fn take_header(&mut self, part: &Part<'_>, count: usize) -> usize {
        let from = part.from as usize;
        let bytes = HEADER_LEN.saturating_sub(from).min(count);
        if bytes > 0 {
            let head = part.payload.copy(part.skip..part.skip + bytes);
            self.header[from..from + bytes].copy_from_slice(&head);
            (from..from + bytes).for_each(|at| self.have |= 1 << at);
        }
        bytes
    }

    /// Writes bytes of a segment's payload to byte `at` of the message's.
    fn write(&mut self, at: u32, range: Range<usize>, part: &Part<'_>, memory: &impl Memory) -> Result<(), Fault> {
        let is_last = at + range.len() as u32 == self.len - HEADER_LEN as u32;
        let (domain, places) = match &mut self.target {
            Target::Unknown | Target::Nowhere(_) => return Ok(()),
            Target::Kept(kept) => {
                let bytes = part.payload.copy(range);
                kept[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                return Ok(());
            }
            Target::Places(domain, places) => (*domain, std::mem::take(places)),
        };
        let put = |range: Range<usize>, at: u32| {
            let (mut from, mut result) = (range.start, Ok(()));
            walk(&places, at.into(), range.len() as u64, |place| {
                let here = from..from + place.len as usize;
                from = here.end;
                if result.is_ok() {
                    result = part.payload.write(domain, place.key, place.offset, here, memory).map(drop);
                }
            });
            result
        };
        let (end, before) = (range.end - 1, range.len() as u32 - 1);
        let result = match is_last && self.is_write() {
            false => put(range, at),
            true => put(range.start..end, at).and_then(|()| match part.is_next {
                true => put(end..range.end, at + before),
                false => {
                    self.last = part.payload.copy(end..range.end).first().copied();
                    Ok(())
                }
            }),
        };
        self.target = Target::Places(domain, places);
        result
    }
}

impl Operations {
    /// Something of a message came. False where there is no place for it yet.
    pub(super) fn place(&mut self, part: &Part<'_>, memory: &impl Memory, guide: Guide<'_>) -> bool {
        if self.incoming.len() <= part.index {
            self.incoming.resize(part.index + 1, None);
        }
        let room = MOST_KEPT.saturating_sub(self.kept);
        let message = self.incoming[part.index].get_or_insert_with(|| Incoming::new(part.len));
        let count = part.payload.len() - part.skip;
        let head = message.take_header(part, count);
        if matches!(message.target, Target::Unknown) && message.have == u32::MAX {
            message.target = match guide(&message.header, message.len) {
                Steer::Places(domain, places) => Target::Places(domain, places),
                Steer::Nowhere(denied) => Target::Nowhere(denied),
                Steer::Keep if message.len as usize <= room => {
                    self.kept += message.len as usize;
                    Target::Kept(vec![0; message.len as usize - HEADER_LEN])
                }
                Steer::Keep | Steer::Later => Target::Unknown,
            };
        }
        // A header alone has its place, unless it is whole and for no known operation.
        let is_known = !matches!(message.target, Target::Unknown);
        if head == count {
            return is_known || message.have != u32::MAX;
        }
        if !is_known {
            return false;
        }
        let at = part.from + head as u32 - HEADER_LEN as u32;
        let range = part.skip + head..part.payload.len();
        if message.write(at, range, part, memory).is_err() {
            // It was there when the header came.
            message.target = Target::Nowhere(Denied::ACCESS);
        }
        true
    }

    /// The first message is behind the cursor.
    pub(super) fn finish(&mut self) {
        let Some(Some(message)) = self.incoming.pop_front() else { return };
        let Incoming { len, header, target, last, .. } = message;
        let mut finished = Finished { header, len: len - HEADER_LEN as u32, kept: None, denied: None, last: None };
        match target {
            Target::Places(domain, places) => {
                let place =
                    places.last().map(|place| RegionRange { offset: place.offset + place.len - 1, len: 1, ..*place });
                finished.last = place.zip(last).map(|(place, byte)| (domain, place, byte));
            }
            Target::Kept(kept) => {
                self.kept -= len as usize;
                finished.kept = Some(kept);
            }
            Target::Nowhere(denied) => finished.denied = Some(denied),
            Target::Unknown => {}
        }
        self.done.push_back(finished);
    }

    /// The next message that is behind the cursor.
    pub(super) fn take(&mut self) -> Option<Finished> {
        self.done.pop_front()
    }

    /// A message goes out behind the others. False where there are too many.
    pub(super) fn post(&mut self, message: Outgoing) -> bool {
        let has_room = self.outgoing.len() < MOST;
        if has_room {
            self.outgoing.push_back(message);
        }
        has_room
    }

    /// Messages on their way out.
    pub(super) fn unsent(&self) -> usize {
        self.outgoing.len()
    }

    /// Nothing is written to memory any more. True where messages on their way out have payload in it.
    pub(super) fn stop(&mut self) -> bool {
        for message in self.incoming.iter_mut().flatten() {
            message.last = None;
            if matches!(message.target, Target::Places(..)) {
                message.target = Target::Nowhere(Denied::ACCESS);
            }
        }
        self.done.iter_mut().for_each(|done| done.last = None);
        let refers = |message: &Outgoing| matches!(&message.content, Content::Places(_, places) if !places.is_empty());
        self.outgoing.iter().any(refers)
    }

    /// Messages on their way out shall refer to memory no longer. The payload is not read again of requests that the
    /// peer has carried out. That of others is copied, as far as there is not too much.
    pub(super) fn release(&mut self, acknowledged: u32, memory: &impl Memory) {
        let mut room = MOST_KEPT as u64;
        for message in &mut self.outgoing {
            let len = content_len(&message.content);
            let Content::Places(domain, places) = &message.content else { continue };
            let is_before = |number: u32| (number.wrapping_sub(acknowledged) as i32) < 0;
            let is_over = |header: Header| header.kind.is_request() && is_before(header.number);
            if Header::parse(&message.header).is_some_and(is_over) {
                message.content = Content::Had(len);
                continue;
            }
            let mut bytes = Vec::new();
            let copied = len <= room
                && places.iter().all(|place| {
                    memory.append(*domain, place.key, place.offset, place.len as usize, &mut bytes).is_ok()
                });
            if copied {
                room -= len;
                message.content = Content::Bytes(bytes);
            }
        }
    }

    /// The peer has the first `count` messages.
    pub(super) fn retire(&mut self, count: usize) {
        self.outgoing.drain(..count.min(self.outgoing.len()));
    }

    /// Appends `len` bytes of a message, from byte `from` on.
    pub(super) fn append(
        &self,
        index: usize,
        from: u32,
        len: u32,
        into: &mut Vec<u8>,
        memory: &impl Memory,
    ) -> Result<(), Fault> {
        let Some(message) = self.outgoing.get(index) else { return Err(Fault::Bounds) };
        let (from, len) = (from as usize, len as usize);
        let head = HEADER_LEN.saturating_sub(from).min(len);
        into.extend_from_slice(&message.header[from.min(HEADER_LEN)..from.min(HEADER_LEN) + head]);
        let (at, rest) = ((from + head).saturating_sub(HEADER_LEN), len - head);
        match &message.content {
            Content::Bytes(bytes) => into.extend_from_slice(bytes.get(at..at + rest).ok_or(Fault::Bounds)?),
            Content::Had(_) => into.resize(into.len() + rest, 0),
            Content::Places(domain, places) => {
                let mut result = Ok(());
                walk(places, at as u64, rest as u64, |place| {
                    if result.is_ok() {
                        result = memory.append(*domain, place.key, place.offset, place.len as usize, into);
                    }
                });
                result?;
            }
        }
        Ok(())
    }

    /// The first place of `len` bytes of a message from byte `from` on; `None` where they are not memory's.
    pub(super) fn place_at(&self, index: usize, from: u32, len: u32) -> Option<(Domain, RegionRange)> {
        let at = u64::from(from).checked_sub(HEADER_LEN as u64)?;
        let Content::Places(domain, places) = &self.outgoing.get(index)?.content else { return None };
        let mut first = None;
        walk(places, at, len.into(), |place| first = first.or(Some(place)));
        Some((*domain, first?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Key;

    /// One region; none where it is unmapped.
    struct Region(Option<Vec<u8>>);

    impl Memory for Region {
        fn write(&self, _: Domain, _: Key, _: u64, _: &[u8]) -> Result<(), Fault> {
            Err(Fault::Key)
        }
        fn append(&self, _: Domain, _: Key, at: u64, len: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
            let region = self.0.as_ref().ok_or(Fault::Key)?;
            into.extend_from_slice(region.get(at as usize..at as usize + len).ok_or(Fault::Bounds)?);
            Ok(())
        }
        fn check(&self, _: Domain, _: Key, _: u64, _: u64) -> Result<(), Fault> {
            Ok(())
        }
    }

    /// Requests 7 and 8, of eight bytes each.
    fn two_requests() -> Operations {
        let mut operations = Operations::default();
        for number in [7, 8] {
            let header = Header { number, ..Header::new(MessageKind::Send) }.bytes();
            let place = RegionRange { key: Key(1), offset: u64::from(number), len: 8 };
            assert!(operations.post(Outgoing { header, content: Content::Places(Domain(1), vec![place]) }));
        }
        operations
    }

    fn payload(operations: &Operations, index: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        operations.append(index, HEADER_LEN as u32, 8, &mut bytes, &Region(None))?;
        Ok(bytes)
    }

    #[test]
    fn what_leaves_after_its_queue_pair_refers_to_no_memory() {
        let mut operations = two_requests();
        operations.release(8, &Region(Some((0..32).collect())));
        assert!(!operations.stop(), "nothing refers to memory");
        assert_eq!(payload(&operations, 0), Ok(vec![0; 8]), "the peer has it");
        assert_eq!(payload(&operations, 1), Ok((8..16).collect()), "it was copied");
        // Where that is not there any more, nothing is made up.
        let mut operations = two_requests();
        operations.release(8, &Region(None));
        assert!(operations.stop());
        assert_eq!(payload(&operations, 1), Err(Fault::Key));
    }
}
