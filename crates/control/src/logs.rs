//! Shared logs (docs/SHARED-LOG.md): what an application may ask for. The engine keeps them.
use crate::flow::{Place, Spliced};
use crate::outbox::Outbox;
use crate::plane::Plane;
use context::{LogShape, Reply, Slot};
use engine::stream::{self, LogRefusal, MOST_LOGS};
use engine::{ContextId, FlowId};

impl Plane {
    /// An application registers its log.
    pub fn open_log(&mut self, out: &mut Outbox<'_>, id: ContextId, tag: u32, shape: LogShape) -> Result<(), i32> {
        let (rx_bytes, room) = (self.config.memory.rx_bytes, self.config.memory.log_bytes);
        let keeps_logs = self.logs.kept && room > 0;
        let others = self.contexts.iter().filter(|(_, context)| context.has_log).count();
        let context = self.contexts.get_mut(id.0).ok_or(libc::EINVAL)?;
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
        // A connection joins only where the log can take all that its window promises.
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
        self.contexts.reply(id, Reply::Done { tag });
        Ok(())
    }

    /// What comes on a connection is to be records of the application's log.
    pub fn join_log(
        &mut self,
        out: &mut Outbox<'_>,
        id: ContextId,
        tag: u32,
        slot: Slot,
        (rx_head, mark): (u32, u64),
    ) -> Result<(), i32> {
        let flow_id = self.named(id, slot).ok_or(libc::EBADF)?;
        if self.contexts.get(id.0).is_none_or(|context| !context.has_log) {
            return Err(libc::EBADF);
        }
        let flow = self.flows.get(flow_id.0).ok_or(libc::EBADF)?;
        if flow.place != Place::Engine {
            return Err(libc::ENOTCONN);
        }
        // One that several processes have may be read by another at this moment; a joined pair's bytes pass by.
        if flow.holders.len() != 1 || flow.spliced != Spliced::No {
            return Err(libc::EBUSY);
        }
        if flow.freezing > 0 {
            return Err(libc::EAGAIN);
        }
        self.logs.joins.push_back((flow_id, id, tag));
        out.commands.push(stream::Command::JoinLog { flow: flow_id, rx_head, mark }.into());
        Ok(())
    }

    /// The engine has answered the oldest question.
    pub fn log_joined(&mut self, id: FlowId, result: Result<(), LogRefusal>) {
        let Some((flow_id, context, tag)) = self.logs.joins.pop_front() else { return };
        debug_assert_eq!(flow_id, id, "answers come in order");
        if let Some(flow) = self.flows.get_mut(id.0).filter(|_| result.is_ok()) {
            flow.logged = true;
        }
        let reply = match result {
            Ok(()) => Reply::Done { tag },
            Err(refusal) => Reply::Failed { tag, errno: errno_of(refusal) as u16 },
        };
        self.contexts.reply(context, reply);
    }
}

fn errno_of(refusal: LogRefusal) -> i32 {
    match refusal {
        LogRefusal::Full => libc::ENOBUFS,
        LogRefusal::Joined => libc::EALREADY,
        LogRefusal::Unfit => libc::ENOTCONN,
    }
}
