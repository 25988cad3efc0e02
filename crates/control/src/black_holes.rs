//! Connections whose segments may be too large for their path, though no router reports it (RFC 4821).
use crate::flow::Flow;
use crate::flow_timers::TimerActions;
use crate::outbox::Outbox;
use crate::path_mtu::{header_bytes, least_mtu, mss_of};
use engine::FlowId;
use engine::stream::{self, FlowFigures};
use std::collections::HashMap;
use tcp::{BlackHole, Finding};
use wire::{IpAddress, Seq};

/// The first path MTU that is tried over IPv4 (RFC 4821 section 7.2).
const BASE_MTU: u16 = 1024;

/// Suspicions, by flow. Beside the flows: there are hardly any.
#[derive(Default)]
pub(crate) struct BlackHoles {
    /// They are looked for.
    pub wanted: bool,
    suspected: HashMap<u32, BlackHole>,
}

impl BlackHoles {
    /// A flow ends, or a router has reported what its path carries.
    pub(crate) fn forget(&mut self, id: FlowId) {
        self.suspected.remove(&id.0);
    }

    /// Takes in what a poll of a flow found, before the commands that follow from it: what is sent again has the new
    /// size. What a path carries counts for later connections, too.
    #[inline]
    pub(crate) fn watch(
        &mut self,
        out: &mut Outbox<'_>,
        id: FlowId,
        flow: &mut Flow,
        figures: &FlowFigures,
        done: &TimerActions,
    ) {
        let suspect = done.suspect_path && done.retransmit && self.wanted;
        if !suspect && self.suspected.is_empty() {
            return;
        }
        let finding = match self.suspected.get_mut(&id.0) {
            Some(path) => {
                let cwnd = flow.timers.enforced.cwnd;
                path.watch(Seq(figures.snd_una), figures.outstanding, cwnd, done.retransmit)
            }
            None if suspect => self.suspect(id, flow, figures),
            None => None,
        };
        let dst = flow.tuple.get().remote_ip;
        match finding {
            Some(Finding::Size(mss)) => {
                flow.agreed.mss = mss;
                out.commands.push(stream::Command::Mss(id, mss).into());
            }
            Some(Finding::Found(mss)) => {
                out.net.path_mtus.learn(out.now, dst, mss + header_bytes(dst, &flow.agreed));
                self.forget(id);
            }
            Some(Finding::Clear) => self.forget(id),
            None => {}
        }
    }

    #[cold]
    fn suspect(&mut self, id: FlowId, flow: &Flow, figures: &FlowFigures) -> Option<Finding> {
        let dst = flow.tuple.get().remote_ip;
        let sizes = tried_mtus(dst).map(|mtu| mss_of(mtu, dst, &flow.agreed));
        let path = BlackHole::suspect(flow.agreed.mss, sizes, Seq(figures.snd_una))?;
        // What is sent again is not larger otherwise.
        let path = Some(path).filter(|path| figures.outstanding > path.size().into())?;
        self.suspected.insert(id.0, path);
        Some(Finding::Size(path.size()))
    }
}

/// Path MTUs that are tried, the larger first.
// Meets RFC 4821: 7.2-a.
fn tried_mtus(dst: IpAddress) -> [u16; 2] {
    [BASE_MTU.max(least_mtu(dst)), least_mtu(dst)]
}
