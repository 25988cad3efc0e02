//! Handover of a data-path thread's hosts to another daemon, and from one (docs/TAKEOVER.md).
use super::{DataPath, ThreadFabric, ThreadHost};
use crate::takeover::Device;
use crate::wake::watch;
use context::{ControlEnd, EngineEnd};
use control::HostState;
use engine::ContextId;
use port::Nanos;
use rustix::event::epoll;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// How long a daemon that is taken over waits for a moment at which it may stop.
const SETTLE: Nanos = 500_000_000;
/// Most rounds in which a daemon that is taken over empties its fabrics.
const LAST_ROUNDS: usize = 16;

impl DataPath {
    /// The devices of a host's ports, for a new daemon: none of a port that has none. Fails with a sentence
    /// where the host cannot be handed over.
    pub(crate) fn handover_of(&self, host: usize) -> Result<Vec<Option<Device>>, String> {
        let seat = self.hosts.get(host).ok_or("the host is gone")?;
        if !self.zeronics.is_empty() {
            return Err("a daemon with ZeroNIC hosts cannot be taken over".into());
        }
        if let Some(sentence) = seat.host.handover_obstacle() {
            return Err(sentence);
        }
        let devices: io::Result<Vec<_>> = seat.ports.iter().map(Device::of).collect();
        devices.map_err(|e| format!("no descriptor of a port of {}: {e}", seat.name))
    }

    /// The devices of the uplinks that this thread serves, by fabric.
    pub(crate) fn uplinks(&self) -> io::Result<Vec<(String, Vec<Option<Device>>)>> {
        let of = |seat: &ThreadFabric| {
            let devices: io::Result<Vec<_>> = seat.fabric.each_uplink(Device::of).into_iter().collect();
            Ok((seat.name.clone(), devices?))
        };
        self.fabrics.iter().map(of).collect()
    }

    /// Frames from outside wait in the uplinks' devices, or they come in again.
    pub(crate) fn hold_uplinks(&mut self, held: bool) {
        self.fabrics.iter().for_each(|seat| seat.fabric.hold_uplinks(held));
    }

    /// What stopped hosts sent last goes out over the uplinks.
    pub(crate) fn empty_uplinks(&mut self) {
        let now = self.clock.now();
        for seat in &mut self.fabrics {
            for _ in 0..LAST_ROUNDS {
                if seat.fabric.poll(now, &mut self.pool, &mut seat.drops) == 0 {
                    break;
                }
            }
        }
    }

    /// Stops all hosts, as a daemon does that is taken over. Where that fails, with a sentence, they have to be asked
    /// to go on.
    pub(crate) fn stop_hosts(&mut self) -> Result<Vec<Stopped>, String> {
        let begin = self.clock.now();
        // What came in over uplinks is with the hosts before they stop: a fabric is not handed over.
        for _ in 0..LAST_ROUNDS {
            let now = self.clock.now();
            if !self.hosts.iter().any(|seat| seat.ports.has_work(now)) {
                break;
            }
            self.round(now);
        }
        while !self.hosts.iter().all(|seat| seat.host.base().is_settled()) {
            let now = self.clock.now();
            if now - begin > SETTLE {
                return Err("programs are leaving at this moment: try again".into());
            }
            self.round(now);
        }
        // Programs went on meanwhile.
        if let Some(sentence) = self.hosts.iter().find_map(|seat| seat.host.handover_obstacle()) {
            return Err(sentence);
        }
        self.paused = true;
        self.hosts.iter_mut().for_each(|seat| seat.host.base_mut().stop());
        while !self.hosts.iter().all(|seat| seat.host.base().is_stopped()) {
            let now = self.clock.now();
            if now - begin > 2 * SETTLE {
                return Err("an engine does not stop".into());
            }
            for seat in &mut self.hosts {
                seat.poll_host(now, &mut self.pool);
            }
        }
        let now = self.clock.now();
        self.hosts.iter().map(|seat| Stopped::of(seat, now)).collect()
    }

    /// No daemon took the hosts over.
    pub(crate) fn go_on(&mut self) {
        if std::mem::take(&mut self.paused) {
            let now = self.clock.now();
            self.hosts.iter_mut().for_each(|seat| seat.host.use_base(now, |tcp, context| tcp.go_on(context)));
        }
        self.hold_uplinks(false);
    }

    /// A host goes on with what another daemon's was; `bells` are to be watched.
    pub(crate) fn restore(
        &mut self,
        host: usize,
        state: HostState,
        ends: HashMap<ContextId, (EngineEnd, ControlEnd)>,
        bells: Vec<(ContextId, OwnedFd)>,
    ) -> Result<(), String> {
        let seat = self.hosts.get_mut(host).ok_or("the host is gone")?;
        seat.host.use_base(self.clock.now(), |tcp, context| tcp.restore(context, state, ends))?;
        for (context, bell) in bells {
            watch(&self.epoll, bell.as_fd(), epoll::EventFlags::ET)
                .map_err(|e| format!("no room for a doorbell: {e}"))?;
            seat.bells.insert(context, bell);
        }
        Ok(())
    }
}

/// A host that stands still.
pub(crate) struct Stopped {
    pub(crate) state: HostState,
    /// Of its contexts: region, both doorbells.
    pub(crate) descriptors: Vec<(ContextId, [OwnedFd; 3])>,
}

impl Stopped {
    fn of(seat: &ThreadHost, now: Nanos) -> Result<Stopped, String> {
        let state = seat.host.base().state(now, seat.host.net());
        let descriptors = state.contexts().map(|context| {
            let own = seat.host.base().descriptors(context).ok_or("a context is gone")?;
            let [region, bell, mine] = own.map(|fd| fd.try_clone_to_owned().map_err(|e| e.to_string()));
            Ok::<_, String>((context, [region?, bell?, mine?]))
        });
        let descriptors = descriptors.collect::<Result<_, _>>()?;
        Ok(Stopped { state, descriptors })
    }
}
