//! Draining contexts: those whose processes are gone, until all that they left in their rings has been taken. What
//! comes later is not waited for: others may have the memory, and could write for ever.
use crate::EngineEnd;
use shm::Mark;

/// Those of a host, by their numbers, with the ends of what they left.
#[derive(Debug, Default)]
pub struct DrainingContexts {
    list: Vec<(u32, Mark)>,
}

impl DrainingContexts {
    /// The process of a context is gone.
    pub fn add(&mut self, context: u32, end: &EngineEnd) {
        self.list.push((context, end.bumps.mark()));
    }

    /// A context is not waited for any more.
    pub fn forget(&mut self, context: u32) {
        self.list.retain(|(other, _)| *other != context);
    }

    /// Takes out those that have nothing left. `end` gives a context's end, where anything is still taken from it.
    #[inline]
    pub fn gone<'a>(&mut self, end: impl Fn(u32) -> Option<&'a EngineEnd>) -> Vec<u32> {
        if self.list.is_empty() {
            return Vec::new();
        }
        let stays = |(context, mark): &(u32, Mark)| end(*context).is_some_and(|end| !end.bumps.has_passed(*mark));
        let gone: Vec<u32> =
            self.list.iter().filter(|drained_context| !stays(drained_context)).map(|(context, _)| *context).collect();
        self.list.retain(stays);
        gone
    }
}
