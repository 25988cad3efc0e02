//! Completion queues.
use crate::objects::NewCq;
use shm::PipeProducer;
use verbs::{Completion, Notify, Status};

/// A completion queue.
// Meets IBTA: 10.10.2-a.
pub(crate) struct CompletionQueue {
    pipe: PipeProducer<8>,
    notify: Notify,
    has_channel: bool,
    /// Completions were added since the last [`CompletionQueue::needs_event`]; one of them was solicited, or an error.
    added: bool,
    solicited: bool,
    /// It was full once: nothing is added any more (IBTA 1.3, 10.10.2.1).
    overrun: bool,
    /// Queue pairs that use it; a queue pair counts twice where it uses it for both.
    pub(crate) users: u32,
}

/// Whether a completion asks for an event where only solicited ones are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Solicited {
    Yes,
    No,
}

/// What became of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is there, the first one since the program's request was read.
    First,
    /// It is there.
    Another,
    /// The queue has just overrun.
    Overrun,
    /// The queue overran before.
    Lost,
}

impl CompletionQueue {
    pub(crate) fn new(cq: NewCq) -> CompletionQueue {
        let NewCq { pipe, notify, has_channel, .. } = cq;
        CompletionQueue { pipe, notify, has_channel, added: false, solicited: false, overrun: false, users: 0 }
    }

    /// Completions go to this pipe from now on.
    pub(crate) fn resize(&mut self, pipe: PipeProducer<8>) {
        self.pipe = pipe;
    }

    #[inline]
    pub(crate) fn add(&mut self, completion: &Completion, solicited: Solicited) -> Added {
        if self.overrun {
            return Added::Lost;
        }
        if self.pipe.push(completion.encode()).is_err() {
            self.overrun = true;
            return Added::Overrun;
        }
        self.solicited |= solicited == Solicited::Yes || completion.status != Status::Success;
        if std::mem::replace(&mut self.added, true) { Added::Another } else { Added::First }
    }

    /// After completions were added: the program is to get an event.
    pub(crate) fn needs_event(&mut self) -> bool {
        self.added = false;
        let solicited = std::mem::take(&mut self.solicited);
        self.has_channel && self.notify.take(solicited)
    }
}
