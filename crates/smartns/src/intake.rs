//! Send pipe: its elements become work requests of their queue pairs (SmartNS, section 3.2, "shared send queue").
use crate::qp::Qp;
use shm::PipeConsumer;
use verbs::{MOST_ELEMENTS, QpKind, SendElement, SendFlags, SendOpcode, Status};

/// Bytes that an atomic fetches.
const WORD: u32 = 8;

/// A work request with all of its elements.
pub(crate) struct Posted<'a> {
    pub(crate) element: SendElement,
    pub(crate) further: &'a [[u64; 8]],
}

/// What the pipe has.
pub(crate) enum Next<'a> {
    /// A whole work request.
    Posted(Posted<'a>),
    /// Nothing, or a part of a work request.
    Nothing,
    /// Something that is no work request, now or before.
    Corrupt,
}

/// The consumer of a send pipe.
pub(crate) struct Intake {
    pipe: PipeConsumer<8>,
    /// A first element whose further ones have not all come, and those that have.
    begun: Option<SendElement>,
    further: Vec<[u64; 8]>,
    pub(crate) is_corrupt: bool,
}

impl Intake {
    pub(crate) fn new(pipe: PipeConsumer<8>) -> Intake {
        Intake { pipe, begun: None, further: Vec::with_capacity(MOST_ELEMENTS), is_corrupt: false }
    }

    /// There is something in the pipe.
    pub(crate) fn has_any(&self) -> bool {
        !self.is_corrupt && !self.pipe.is_empty()
    }

    /// Takes the next work request.
    #[inline]
    pub(crate) fn next(&mut self) -> Next<'_> {
        if self.is_corrupt {
            return Next::Corrupt;
        }
        let element = match self.begun {
            Some(element) => element,
            None => {
                let Some(words) = self.pipe.pop() else { return Next::Nothing };
                let Some(element) = SendElement::decode(&words) else {
                    self.is_corrupt = true;
                    return Next::Corrupt;
                };
                self.further.clear();
                if element.more == 0 {
                    return Next::Posted(Posted { element, further: &[] });
                }
                element
            }
        };
        self.begun = Some(element);
        while self.further.len() < usize::from(element.more) {
            match self.pipe.pop() {
                Some(words) => self.further.push(words),
                None => return Next::Nothing,
            }
        }
        self.begun = None;
        Next::Posted(Posted { element, further: &self.further })
    }
}

/// Adds a work request to its queue pair's list, with a fault where the queue pair cannot carry it out.
#[inline]
pub(crate) fn post(qp: &mut Qp, posted: &Posted<'_>, message_bytes: u32) {
    let full = qp.queue.len() >= qp.identity.capacities.send.max(1) as usize;
    let (kind, fails) = (qp.identity.kind, qp.fails());
    let work = qp.queue.add(posted.element, posted.further);
    work.fault = match () {
        // What was posted before the queue pair's way to the error state is sent; this is not.
        _ if fails => Some(Status::Flushed),
        // The library counts free places: only a program that does without it comes here.
        _ if full || !is_offered(kind, &posted.element, &mut qp.has_local) => Some(Status::LocalQpOperation),
        _ if work.len > message_bytes || work.element.opcode.is_atomic() && work.len != WORD => {
            Some(Status::LocalLength)
        }
        _ => None,
    };
}

/// Queue pairs of this kind carry such work requests out. Notes those that need no packet. A memory window is one queue
/// pair's (type 2B), so XRCs, which have another one for each direction, are without.
fn is_offered(kind: QpKind, element: &SendElement, has_local: &mut bool) -> bool {
    use SendOpcode::*;
    let inline = element.flags.has(SendFlags::INLINE);
    match (kind, element.opcode) {
        (QpKind::Rc | QpKind::Uc | QpKind::XrcSend, Send | SendImmediate | Write | WriteImmediate) => true,
        (QpKind::Rc, SendInvalidate) => true,
        (QpKind::Rc, BindWindow | LocalInvalidate) => {
            *has_local = true;
            !inline && element.pieces == 0
        }
        (QpKind::Rc | QpKind::XrcSend, Read | CompareSwap | FetchAdd) => !inline,
        (QpKind::Ud, Send | SendImmediate) | (QpKind::RawPacket, Send) => true,
        _ => false,
    }
}
