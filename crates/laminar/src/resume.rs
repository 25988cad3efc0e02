//! Flows that leave for another daemon's engine, and come from one (docs/TAKEOVER.md): what host and pipeline have of a
//! flow, in the terms of TCP. A pipeline keeps no more of a flow than its registers, so this is little.
use crate::Laminar;
use crate::flow::Flow;
use engine::stream::{FlowEnd, Resume, Stream};
use engine::{Burst, FlowId};
use tcp::Ends;
use wire::Seq;

impl Laminar {
    /// State of a flow when it leaves, or is frozen.
    pub(crate) fn flow_end(&self, flow: &Flow) -> FlowEnd {
        let program = &self.switch.program;
        let id = flow.params.flow.0;
        let edge = Seq(program.rx_window(id)[1]);
        FlowEnd {
            snd_nxt: flow.max,
            snd_una: flow.una,
            rcv_nxt: flow.rcv_nxt(),
            unread: if flow.member.is_some() { 0 } else { flow.rx_tail.wrapping_sub(flow.rx_head) },
            ts_recent: program.peer_clock(id).map_or(0, |(recent, _)| recent),
            resume: Some(Resume {
                tx_pos: flow.una - flow.tx_base,
                rx_pos: flow.rcv_nxt() - flow.rx_base,
                pending: if flow.ends.all_acknowledged() { 0 } else { flow.head - flow.una },
                window: if flow.rcv_nxt().before(edge) { edge - flow.rcv_nxt() } else { 0 },
                snd_wnd: if flow.una.before(flow.edge) { flow.edge - flow.una } else { 0 },
                state: flow.ends.state(),
            }),
        }
    }

    /// A flow goes on that was installed where another engine left it. What was on its way in between is lost. What is
    /// unacknowledged is sent again, and an ACK reports to the peer what is expected of it.
    pub(crate) fn resume(&mut self, id: FlowId, end: &FlowEnd, burst: &mut Burst<'_, Stream>) {
        let (Some(flow), Some(mut resume)) = (self.flow(id.0), end.resume) else { return };
        // After a kill, all that the ring holds is taken for offered. That may be more than the window's field can
        // advertise (RFC 7323 section 2.2).
        resume.window = resume.window.min(flow.rx_window);
        flow.resume(end, &resume);
        let (sent, received) = ([flow.una, flow.max], [end.rcv_nxt, end.rcv_nxt + resume.window]);
        self.switch.program.resume(id.0, sent, received);
        self.notify(id.0);
        self.may_send(id.0, burst);
        self.acknowledge(id.0, burst);
    }
}

impl Flow {
    /// The host's half: the flow was installed with what is unacknowledged still to be sent.
    fn resume(&mut self, end: &FlowEnd, resume: &Resume) {
        self.ends = Ends::of(resume.state);
        self.head = if self.ends.all_acknowledged() { self.una - 1 } else { self.una + resume.pending };
        self.max = end.snd_nxt;
        if self.max != self.una {
            self.recover_from_here();
        }
        self.rx_tail = resume.rx_pos.wrapping_sub(self.ends.peer_len());
        self.rx_head = self.rx_tail.wrapping_sub(end.unread);
        // The right edge stays where it is, whatever the application has read since.
        self.synced = self.rx_tail.wrapping_add(resume.window).wrapping_sub(self.rx_window);
        // The application may have reported a wrong ring.
        if end.unread > self.rx_most {
            self.outgrow(end.unread);
        }
    }
}
