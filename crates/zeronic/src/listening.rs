//! Listeners of the control stack: ports on which connections are accepted, and the connections that peers begin there.
use crate::nic::{FlowId, Kind, Memory};
use crate::stack::{Event, Listener, Stack, Talk, kind};
use crate::transport::Transport;
use context::comm::Carries;
use memory::Domain;
use port::TcpPorts;
use std::sync::Arc;
use wire::Nanos;

/// Connections that a listener's peers have begun and nobody has accepted yet. More than the transports' backlogs.
const MOST_BEGUN: usize = 1024;

/// For so long after a peer has begun a connection that nobody will accept, the transport may accept it.
const STRAYS_NS: Nanos = 60_000_000_000;

impl<T: Transport, M: Memory> Stack<T, M> {
    /// From now on, another stack has the same address: ports that it has bound are not listened on. The transport
    /// connects from ports of [`TcpPorts::range`].
    pub fn share_ports(&mut self, ports: Arc<TcpPorts>) {
        self.transport.share_ports(&ports);
        self.shared = Some(ports);
    }

    /// Begins to accept connections that carry this; others are reset.
    pub fn listen(&mut self, port: u16, domain: Domain, carries: Carries) -> Result<(), String> {
        self.serve(port, Listener { domain, kind: kind(carries) })
    }

    pub(crate) fn serve(&mut self, port: u16, listener: Listener) -> Result<(), String> {
        if self.listeners.get(&port).is_some_and(|held| held.is_some_and(|held| held.kind == Kind::Operations)) {
            return Err(format!("port {port} is that of verbs"));
        }
        if self.shared.as_ref().is_some_and(|ports| !ports.take(port)) {
            return Err(format!("port {port} is in use: a socket of the host's programs is bound to it"));
        }
        if !self.listeners.contains_key(&port) {
            let failed = |_: &String| self.shared.iter().for_each(|ports| ports.leave(port));
            self.transport.listen(port).inspect_err(failed)?;
        }
        if listener.kind == Kind::Operations {
            // A program's socket there would speak for the host's queue pairs.
            self.shared.iter().for_each(|ports| ports.close(port));
        }
        self.listeners.insert(port, Some(listener));
        Ok(())
    }

    /// Accepts no more connections to a port: what peers begin there is reset.
    pub fn unlisten(&mut self, port: u16) {
        if let Some(listener) = self.listeners.get_mut(&port) {
            *listener = None;
        }
        self.leave_ports();
    }

    /// The other stack has bound a port.
    pub fn is_bound(&self, port: u16) -> bool {
        self.shared.as_ref().is_some_and(|ports| ports.is_bound(port))
    }

    /// The other stack may bind ports that have neither a listener nor a connection of a program here. The transport
    /// may still close connections there: what comes for them still goes to it.
    pub(crate) fn leave_ports(&mut self) {
        let Some(shared) = &self.shared else { return };
        let left = self.listeners.iter().filter(|(_, listener)| listener.is_none()).map(|(port, _)| *port);
        for port in left.collect::<Vec<_>>() {
            let unit = &mut self.unit;
            let mut has = |flow: &FlowId| unit.header_state(*flow).is_some_and(|way| way.tuple.local_port == port);
            if !self.talks.keys().any(&mut has) {
                shared.leave(port);
            }
        }
    }

    /// Received SYNs for listeners get a flow before they are split: the stream begins with them.
    pub(crate) fn begin_connections(&mut self) {
        if self.listeners.is_empty() {
            return;
        }
        for at in 0..self.received.len() {
            let Some((tuple, carries)) = crate::split::begins(&self.received[at]) else { continue };
            let Some(listener) = self.listeners.get(&tuple.local_port).copied() else { continue };
            // A peer that can carry messages can carry a stream.
            let fits = |listener: &Listener| listener.kind == Kind::Stream || carries == Carries::Messages;
            let Some(Listener { domain, kind }) = listener.filter(fits) else {
                self.strays_until = self.now + STRAYS_NS;
                continue;
            };
            if self.unit.find(&tuple).is_some() {
                continue;
            }
            if self.begun.len() >= MOST_BEGUN {
                self.begun.pop_front().into_iter().for_each(|oldest| self.unit.remove_header_state(oldest));
            }
            match self.unit.add_flow(tuple, domain, kind) {
                Some(flow) => self.begun.push_back(flow),
                None => {
                    self.strays_until = self.now + STRAYS_NS;
                    self.unit.refuse();
                }
            }
        }
    }

    /// Takes the connections that the transport has accepted.
    pub(crate) fn accept(&mut self) {
        while let Some((socket, tuple)) = self.transport.accept() {
            let flow = self.unit.find(&tuple).filter(|flow| self.begun.contains(flow));
            let Some(flow) = flow else {
                // It waited too long, or there was no number for it.
                self.transport.close(socket);
                self.unit.refuse();
                continue;
            };
            self.begun.retain(|begun| *begun != flow);
            if let Some(way) = self.unit.header_state(flow) {
                way.settled = true;
            }
            self.talks.insert(flow, Talk::new(socket));
            match &mut self.unit.verbs {
                Some(verbs) if verbs.accepts(tuple.local_port) => verbs.accepted(flow, tuple.remote_ip),
                _ => self.events.push_back(Event::Accepted { connection: flow, tuple }),
            }
            self.unit.touch(flow);
        }
    }
}
