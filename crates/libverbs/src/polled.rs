//! The program's end of a completion pipe: completions, with the program's names for the work requests.
use crate::queues::{Queues, ReceiveQueue};
use context::queues::COMPLETION_WORDS;
use shm::PipeConsumer;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use verbs::{Completion, Number, QpNumber};

/// What one thread at a time polls.
pub(crate) struct Polled {
    pipe: PipeConsumer<COMPLETION_WORDS>,
    /// Pipes of which completions come once those before are empty: the queue was resized.
    later: VecDeque<PipeConsumer<COMPLETION_WORDS>>,
    /// Queue pairs that add completions here.
    known: HashMap<QpNumber, Arc<Queues>>,
    /// Shared receive queues of extended reliable connections that do.
    named: HashMap<Number, Arc<ReceiveQueue>>,
    /// Of the last completion.
    last: Option<Arc<Queues>>,
    /// The completion that is read member by member (`ibv_start_poll`).
    pub(crate) current: Option<Completion>,
    /// Polls that found nothing, since one that did.
    pub(crate) empty: u32,
}

/// A completion and the program's name for its work request.
pub(crate) struct Ended {
    /// The daemon's completion.
    pub(crate) completion: Completion,
    /// `wr_id`.
    pub(crate) id: u64,
}

impl Polled {
    /// No queue pair uses it yet.
    pub(crate) fn new(pipe: PipeConsumer<COMPLETION_WORDS>) -> Polled {
        Polled {
            pipe,
            later: VecDeque::new(),
            known: HashMap::new(),
            named: HashMap::new(),
            last: None,
            current: None,
            empty: 0,
        }
    }

    /// Completions of this queue pair may come.
    pub(crate) fn add(&mut self, queues: &Arc<Queues>) {
        self.known.insert(queues.qp, Arc::clone(queues));
    }

    /// It was destroyed: those of its completions that are here still are dropped, as network cards do.
    pub(crate) fn remove(&mut self, qp: QpNumber) {
        self.known.remove(&qp);
        self.last = None;
    }

    /// Completions of this shared receive queue may come, whichever queue pair its messages came to.
    pub(crate) fn add_named(&mut self, srq: Number, queue: &Arc<ReceiveQueue>) {
        self.named.insert(srq, Arc::clone(queue));
    }

    /// It was destroyed.
    pub(crate) fn remove_named(&mut self, srq: Number) {
        self.named.remove(&srq);
    }

    /// The daemon adds completions to this pipe from now on, and none to those before.
    pub(crate) fn resize(&mut self, pipe: PipeConsumer<COMPLETION_WORDS>) {
        self.later.push_back(pipe);
    }

    /// Takes the next completion.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Ended> {
        loop {
            while let Some(words) = self.pipe.pop() {
                let Some(completion) = Completion::decode(&words) else { continue };
                if let Some(id) = self.end(&completion) {
                    self.empty = 0;
                    return Some(Ended { completion, id });
                }
            }
            self.pipe = self.later.pop_front()?;
        }
    }

    /// The program's name for the work request. `None` where its queue pair is gone or was reset.
    #[inline]
    fn end(&mut self, completion: &Completion) -> Option<u64> {
        if self.last.as_ref().is_none_or(|last| last.qp != completion.qp) {
            let Some(known) = self.known.get(&completion.qp) else { return self.end_named(completion) };
            self.last = Some(Arc::clone(known));
        }
        let queues = self.last.as_ref()?;
        match completion.is_receive() {
            true => queues.receive.as_ref()?.end(completion.number),
            false => queues.send.end(completion.number),
        }
    }

    /// The same of a message that named its shared receive queue.
    #[cold]
    fn end_named(&self, completion: &Completion) -> Option<u64> {
        let queue = self.named.get(&completion.remote_qp).filter(|_| completion.is_receive())?;
        queue.end(completion.number)
    }
}
