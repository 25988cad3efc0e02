//! Splices and their applications: pairs that join no more, and what follows for the connections of a pair.
use super::ControlPlane;
use crate::flow::Spliced;
use crate::outbox::Outbox;
use crate::splice::{Joining, Over, Then};
use context::Reply;
use engine::FlowId;

impl ControlPlane {
    /// A flow is closed, or fails, while it is stopped or about to be: it goes on as it is.
    pub(super) fn leave_joining(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        self.flows.leave_reclaim(out, &mut self.contexts, id);
        if let Some(joining) = self.splices.withdraw(id) {
            self.give_up_joining(out, &joining);
        }
    }

    pub(super) fn give_up_joining(&mut self, out: &mut Outbox<'_>, joining: &Joining) {
        self.splices.give_up(out, joining);
        self.contexts.reply(joining.context, Reply::Failed { tag: joining.tag, errno: libc::EAGAIN as u16 });
    }

    /// Carries out the consequences for a spliced pair's connections and applications.
    pub(super) fn after_splice(&mut self, out: &mut Outbox<'_>, then: Then) {
        match then {
            Then::GoesOn => {}
            Then::Reset(flows) => flows.into_iter().for_each(|flow| self.report_splice_over(flow, libc::ECONNRESET)),
            Then::Over(over) | Then::Reopened(over, _) => {
                out.counters.closed += over.sides.len() as u64;
                self.splice_over(&over);
                if let Some(wait) = over.wait {
                    self.time_waits.start(out, &mut self.connections, wait);
                }
            }
        }
    }

    /// A splice is over: its four-tuples are free, its applications are notified.
    fn splice_over(&mut self, over: &Over) {
        for side in &over.sides {
            self.connections.remove_splice(&side.tuple);
            if let Some(flow) = side.flow {
                self.report_splice_over(flow, over.errno);
            }
        }
    }

    fn report_splice_over(&mut self, id: FlowId, errno: i32) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        let errno = errno as u16;
        flow.spliced = Spliced::Over(errno);
        flow.reply(&mut self.contexts, |slot| Reply::SpliceOver { slot, errno });
    }
}
