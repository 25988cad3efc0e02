//! Takeovers: a host stops in the middle of anything, and another one goes on from its state, as between two daemons.
use crate::host::{SimHost, fresh_host};
use crate::pair::{CLIENT, SERVER, SideState, script};
use crate::plan::{Midst, Takeover};
use crate::scene::Scene;
use context::daemon_ends;
use control::{FlowView, HostState, Records};
use port::Nanos;
use shm::Region;
use std::collections::HashMap;
use std::sync::Arc;

/// Rounds within which an engine has given everything up.
const STOPS_WITHIN: u32 = 10_000;

impl SimHost {
    /// A takeover, where one is due and nothing is in the middle of several rounds. Returns whether there was one.
    pub(crate) fn change_hands(&mut self, now: Nanos, scene: &Scene) -> Result<bool, String> {
        let due = self.takeovers.first().filter(|(at, _)| *at <= now);
        let ready =
            |(_, it): &(Nanos, Takeover)| is_in_the_midst(it.host, it.with, scene) && self.host.base().is_settled();
        let Some((_, takeover)) = due.filter(ready) else { return Ok(false) };
        self.takeovers.pop();
        if self.host.handover_obstacle().is_some() {
            return Ok(false);
        }
        let (clock, before) = (self.clock(now), self.host.base().flows());
        self.host.base_mut().stop();
        for _ in 0..STOPS_WITHIN {
            if self.host.base().is_stopped() {
                break;
            }
            self.host.poll(clock, &mut Vec::new(), &mut self.tx, &mut self.pool);
            self.poll_workers(clock);
        }
        if !self.host.base().is_stopped() {
            return Err("it does not stop for a takeover".into());
        }
        if takeover.refused {
            self.host.use_base(clock, |tcp, context| tcp.go_on(context));
        } else {
            self.go_on_as_another(clock)?;
        }
        self.lose_frames(now, takeover.lost_us);
        self.before_takeover = before;
        Ok(true)
    }

    /// Once a host that changed hands runs again: it has everything to send that it had.
    pub(crate) fn check_takeover(&mut self) -> Result<(), String> {
        if self.before_takeover.is_empty() {
            return Ok(());
        }
        let after = self.host.base().flows();
        for old in std::mem::take(&mut self.before_takeover) {
            let same = |new: &&FlowView| new.flow == old.flow && (new.local, new.remote) == (old.local, old.remote);
            let Some(new) = after.iter().find(same) else { continue };
            if [old.state, new.state].contains(&"CLOSED") {
                continue;
            }
            // Acknowledgements may have come with the round.
            let una = |flow: &FlowView| flow.figures.get("snd_una").map_or(0, |una| *una as u32);
            let acked = u64::from(una(new).wrapping_sub(una(&old)));
            let (had, has) = (to_send(&old), to_send(new) + acked);
            if has < had {
                return Err(format!("after a takeover {has} bytes are to be sent, {had} were: {old:?}, now {new:?}"));
            }
        }
        Ok(())
    }

    /// Another host takes the place of the stopped one, with nothing but its state and descriptors.
    fn go_on_as_another(&mut self, clock: Nanos) -> Result<(), String> {
        let old = &self.host;
        let text = serde_json::to_string(&old.base().state(clock, old.net()))
            .map_err(|error| format!("its state: {error}"))?;
        let state: HostState = serde_json::from_str(&text).map_err(|error| format!("its state: {error}"))?;
        let mut ends = HashMap::new();
        for id in state.contexts() {
            let descriptors = old.base().descriptors(id).ok_or("a context of its state has no descriptors")?;
            let [region, bell, own] = descriptors.map(|fd| fd.try_clone_to_owned());
            let copied = |error: std::io::Error| format!("a descriptor: {error}");
            let region = Arc::new(Region::from_fd(region.map_err(copied)?).map_err(copied)?);
            ends.insert(id, daemon_ends(&region, state.geometry(), bell.map_err(copied)?, own.map_err(copied)?));
        }
        // What the new one would make its numbers from is replaced by the old one's.
        let (config, mac, caps) = (old.base().config().clone(), old.net().links()[0].mac, self.capabilities());
        let mut new = fresh_host(&self.plan, config, caps, mac, &self.pool, [0xee; 16])?;
        if let Some(mut records) = self.records.clone() {
            (0..records.count()).for_each(|at| records.clear(at));
            new.use_base(clock, |tcp, context| tcp.keep_records(context, Box::new(records)));
        }
        self.workers = new.workers();
        new.use_base(clock, |tcp, context| tcp.restore(context, state, ends))?;
        self.host = new;
        if let Some(device) = self.rdma.clone() {
            self.add_rdma(device)?;
        }
        Ok(())
    }
}

/// What the application wrote and the peer has not acknowledged, with FIN.
fn to_send(flow: &FlowView) -> u64 {
    ["unsent", "outstanding"].iter().filter_map(|name| flow.figures.get(name)).sum()
}

/// One of a host's connections has what a takeover or a kill of it waits for.
pub(crate) fn is_in_the_midst(host: usize, with: Option<Midst>, scene: &Scene) -> bool {
    let Some(with) = with else { return true };
    let plan = &scene.plan;
    scene.pairs.iter().any(|pair| {
        let call = &plan.calls[pair.call];
        [(CLIENT, call.app), (SERVER, plan.listens[call.to].app)].into_iter().any(|(side, app)| {
            let (mine, theirs) = (&pair.halves[side], &pair.halves[1 - side]);
            let here = plan.apps[app].host == host && mine.stage == SideState::Open;
            here && match with {
                Midst::Unacknowledged => mine.written > mine.acked && mine.written == script(call, side).send,
                Midst::Unread => theirs.acked > mine.read,
            }
        })
    })
}
