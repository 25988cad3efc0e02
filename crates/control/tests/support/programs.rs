//! Programs with their sockets, on two hosts with the FlexTOE engine.
use super::sockets::Sockets;
use super::*;
use context::Slot;
use engine::Limits;
use flextoe::{FlexToe, Mapping};

pub(crate) fn flextoe_net() -> Net {
    mapped_net(Mapping::default())
}

pub(crate) fn mapped_net(mapping: Mapping) -> Net {
    configured_net(mapping, config(0))
}

pub(crate) fn configured_net(mapping: Mapping, first: control::HostConfig) -> Net {
    let engine = |_: usize, config: &control::HostConfig| -> Box<dyn engine::Engine<engine::stream::Stream>> {
        let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
        Box::new(FlexToe::new(limits, mapping.clone(), port::FramePool::new(64)))
    };
    Net::new(vec![first, config(1)], engine)
}

/// An application with its sockets.
pub(crate) struct Program {
    pub app: App,
    pub sockets: Sockets,
}

impl Program {
    pub(crate) fn new(net: &mut Net, node: usize) -> Program {
        Program { app: net.attach(node), sockets: Sockets::default() }
    }
    pub(crate) fn write(&mut self, slot: Slot, bytes: &[u8]) -> usize {
        self.sockets.write(&mut self.app, slot, bytes)
    }
    pub(crate) fn read(&mut self, slot: Slot) -> Vec<u8> {
        self.sockets.read(&mut self.app, slot)
    }
    pub(crate) fn at_end(&mut self, slot: Slot) -> bool {
        self.sockets.at_end(&mut self.app, slot)
    }
    pub(crate) fn shut(&mut self, slot: Slot) {
        self.sockets.shut(&mut self.app, slot);
    }
    pub(crate) fn abort(&mut self, slot: Slot) {
        let socket = self.sockets.0.remove(&slot).unwrap();
        self.app.close(slot, socket.tx_head, socket.rx_head, true);
    }
    pub(crate) fn close(&mut self, net: &mut Net, slot: Slot) {
        self.sockets.close(net, &mut self.app, slot);
    }
}

/// Two programs, the first on node 0 connected to the second on node 1.
pub(crate) fn pair() -> (Net, Program, Slot, Program, Slot) {
    pair_in(flextoe_net())
}

pub(crate) fn pair_in(mut net: Net) -> (Net, Program, Slot, Program, Slot) {
    let (mut a, mut b) = (Program::new(&mut net, 0), Program::new(&mut net, 1));
    b.app.serve(&mut net, 80);
    let (first, second) = join(&mut net, &mut a, &mut b);
    (net, a, first, b, second)
}

pub(crate) fn join(net: &mut Net, a: &mut Program, b: &mut Program) -> (Slot, Slot) {
    join_at(net, a, b, 80)
}

/// The same where `b` serves another port.
pub(crate) fn join_at(net: &mut Net, a: &mut Program, b: &mut Program, port: u16) -> (Slot, Slot) {
    let ip = net.nodes[b.app.node].ip;
    let tag = a.app.connect(ip, port, 0);
    let (mut first, mut second) = (None, None);
    net.run_until(20 * SECOND, |_| {
        first = first.or_else(|| a.app.connected(tag));
        second = second.or_else(|| b.app.accepted());
        first.is_some() && second.is_some()
    });
    let (first, second) = (first.unwrap().unwrap(), second.unwrap());
    (a.sockets.open(&a.app, first), b.sockets.open(&b.app, second))
}

pub(crate) fn end(mut net: Net, a: Program, b: Program) {
    net.end_all(vec![a.app, b.app]);
}

/// Sends `len` bytes from `a` to `b`, reading as they come.
pub(crate) fn transfer(net: &mut Net, (a, first): (&mut Program, Slot), (b, second): (&mut Program, Slot), len: usize) {
    let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
    let (mut written, mut got) = (0, Vec::new());
    net.run_until(600 * SECOND, |_| {
        written += a.write(first, &bytes[written..]);
        got.extend(b.read(second));
        got.len() >= len
    });
    assert!(got == bytes, "the bytes are the same");
}

/// Every module replicated, on a thread of its own (here: polled in turn).
pub(crate) fn spread_net() -> Net {
    mapped_net(Mapping { threads: true, preprocess: 2, flow_groups: 2, postprocess: 2, dma: 2 })
}
