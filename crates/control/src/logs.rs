//! Shared logs (docs/SHARED-LOG.md): the checks of applications' requests. The engine keeps them.
use crate::contexts::Contexts;
use crate::flow::{EngineState, Spliced};
use crate::flows::Flows;
use crate::outbox::Outbox;
use context::{LogShape, Reply};
use engine::stream::{self, LogRefusal, MOST_LOGS};
use engine::{ContextId, FlowId};
use std::collections::VecDeque;

/// The control plane's state of shared logs.
#[derive(Default)]
pub(crate) struct Logs {
    /// The engine keeps them.
    offered: bool,
    /// Flows that the engine was commanded to let join a log, in order: the asking context, and its tag.
    joins: VecDeque<(FlowId, ContextId, u32)>,
}

/// A connection that is to join its application's log.
pub(crate) struct Join {
    pub context: ContextId,
    pub tag: u32,
    pub flow: FlowId,
    /// Read position of the application.
    pub rx_head: u32,
    /// Mark of its records.
    pub mark: u64,
}

impl Logs {
    /// Sets whether the engine offers logs.
    pub(crate) fn set_offered(&mut self, offered: bool) {
        self.offered = offered;
    }

    /// Whether the engine offers logs.
    pub(crate) fn are_offered(&self) -> bool {
        self.offered
    }

    /// An application registers its log.
    pub(crate) fn open(
        &self,
        out: &mut Outbox<'_>,
        contexts: &mut Contexts,
        id: ContextId,
        tag: u32,
        shape: LogShape,
    ) -> Result<(), i32> {
        let (rx_bytes, room) = (out.config.memory.rx_bytes, out.config.memory.log_bytes);
        let keeps_logs = self.offered && room > 0;
        let others = contexts.iter().filter(|(_, context)| context.has_log).count();
        let context = contexts.get_mut(id.0).ok_or(libc::EINVAL)?;
        if !keeps_logs {
            return Err(libc::EOPNOTSUPP);
        }
        if context.has_log {
            return Err(libc::EEXIST);
        }
        if others >= MOST_LOGS {
            return Err(libc::ENOSPC);
        }
        let geometry = context.end.geometry();
        // A connection joins only where the log can take all that its window offers.
        let bytes = shape.record as u64 * shape.records as u64;
        if bytes < rx_bytes as u64 || shape.record > rx_bytes {
            return Err(libc::EINVAL);
        }
        if !shape.fits(&geometry) {
            // What is wrong with the numbers, or only too large for this host.
            let fits_elsewhere = shape.fits(&context::Geometry { log_bytes: 1 << 30, ..geometry });
            return Err(if fits_elsewhere { libc::ENOMEM } else { libc::EINVAL });
        }
        let end = context.end.open_log(shape).map_err(|_| libc::ENOMEM)?;
        context.has_log = true;
        out.commands.push(stream::Command::OpenLog(id, Box::new(end)).into());
        contexts.reply(id, Reply::Done { tag });
        Ok(())
    }

    /// Joins a connection to the application's log: its received data become records.
    pub(crate) fn join(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &Contexts,
        flows: &Flows,
        join: Join,
    ) -> Result<(), i32> {
        let Join { context, tag, flow: id, rx_head, mark } = join;
        if contexts.get(context.0).is_none_or(|context| !context.has_log) {
            return Err(libc::EBADF);
        }
        let flow = flows.get(id.0).ok_or(libc::EBADF)?;
        if flow.engine != EngineState::Engine {
            return Err(libc::ENOTCONN);
        }
        // One that several processes have may be read by another at this moment; a joined pair's bytes pass by.
        if flow.holders.len() != 1 || flow.spliced != Spliced::No {
            return Err(libc::EBUSY);
        }
        if flow.freezing > 0 {
            return Err(libc::EAGAIN);
        }
        self.joins.push_back((id, context, tag));
        out.commands.push(stream::Command::JoinLog { flow: id, rx_head, mark }.into());
        Ok(())
    }

    /// The engine has answered the oldest question.
    pub(crate) fn joined(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &mut Contexts,
        flows: &mut Flows,
        id: FlowId,
        result: Result<(), LogRefusal>,
    ) {
        let Some((flow_id, context, tag)) = self.joins.pop_front() else { return };
        debug_assert_eq!(flow_id, id, "answers come in order");
        if let Some(flow) = flows.get_mut(id.0).filter(|_| result.is_ok()) {
            flow.marks.logged = true;
            out.journal.remove(flow.record.take());
        }
        let reply = match result {
            Ok(()) => Reply::Done { tag },
            Err(refusal) => Reply::Failed { tag, errno: errno_of(refusal) as u16 },
        };
        contexts.reply(context, reply);
    }
}

fn errno_of(refusal: LogRefusal) -> i32 {
    match refusal {
        LogRefusal::Full => libc::ENOBUFS,
        LogRefusal::Joined => libc::EALREADY,
        LogRefusal::Unfit => libc::ENOTCONN,
    }
}
