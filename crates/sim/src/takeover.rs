//! Takeovers: a host stops in the middle of anything, and another one goes on from its state, as between two daemons.
use crate::host::{SimHost, fresh_host};
use crate::plan::Plan;
use context::daemon_ends;
use control::HostState;
use port::Nanos;
use shm::Region;
use std::collections::HashMap;
use std::sync::Arc;

/// Rounds within which an engine has given everything up.
const STOPS_WITHIN: u32 = 10_000;

/// When a host is to be taken over: times, and whether nobody takes it in the end.
pub(crate) struct Takeovers(Vec<(Nanos, bool)>);

impl Takeovers {
    pub fn new(plan: &Plan, host: usize, start: Nanos) -> Takeovers {
        let mine = plan.takeovers.iter().filter(|takeover| takeover.host == host);
        let mut all: Vec<_> = mine.map(|takeover| (start + takeover.at_us * 1000, takeover.refused)).collect();
        all.sort_unstable();
        all.reverse();
        Takeovers(all)
    }

    /// When the next one is.
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        self.0.last().map(|(at, _)| *at).filter(|at| *at > now)
    }
}

impl SimHost {
    /// A takeover, where one is due and nothing is in the middle of several rounds. Says whether there was one.
    pub(crate) fn change_hands(&mut self, now: Nanos) -> Result<bool, String> {
        let due = self.takeovers.0.last().copied().filter(|(at, _)| *at <= now);
        let Some((_, refused)) = due.filter(|_| self.host.is_settled()) else { return Ok(false) };
        self.takeovers.0.pop();
        if self.host.handover_obstacle().is_some() {
            return Ok(false);
        }
        let clock = self.clock(now);
        self.host.stop();
        for _ in 0..STOPS_WITHIN {
            if self.host.is_stopped() {
                break;
            }
            self.host.poll(clock, &mut Vec::new(), &mut self.tx, &mut self.pool);
            self.poll_workers(clock);
        }
        if !self.host.is_stopped() {
            return Err("it does not stop for a takeover".into());
        }
        if refused {
            self.host.go_on(clock);
        } else {
            self.go_on_as_another(clock)?;
        }
        Ok(true)
    }

    /// Another host takes the place of the stopped one, with nothing but its state and descriptors.
    fn go_on_as_another(&mut self, clock: Nanos) -> Result<(), String> {
        let old = &self.host;
        let text = serde_json::to_string(&old.state(clock)).map_err(|error| format!("its state: {error}"))?;
        let state: HostState = serde_json::from_str(&text).map_err(|error| format!("its state: {error}"))?;
        let mut ends = HashMap::new();
        for id in state.contexts() {
            let descriptors = old.descriptors(id).ok_or("a context of its state has no descriptors")?;
            let [region, bell, own] = descriptors.map(|fd| fd.try_clone_to_owned());
            let copied = |error: std::io::Error| format!("a descriptor: {error}");
            let region = Arc::new(Region::from_fd(region.map_err(copied)?).map_err(copied)?);
            ends.insert(id, daemon_ends(&region, state.geometry(), bell.map_err(copied)?, own.map_err(copied)?));
        }
        // What the new one would make its numbers from is replaced by the old one's.
        let (config, mac, caps) = (old.config().clone(), old.mac(), self.capabilities());
        let mut new = fresh_host(&self.plan, config, caps, mac, &self.pool, [0xee; 16])?;
        self.workers = new.workers();
        new.restore(clock, state, ends)?;
        self.host = new;
        Ok(())
    }
}
