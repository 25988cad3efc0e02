//! A client, a proxy whose two connections are joined, and a server.
use super::programs::{Program, join_at};
use super::splicer::{Shared, Splicer, Table, shared};
use super::takeover::{restore, stop};
use super::*;
use context::SpliceEnd;
use engine::Limits;
use flextoe::{FlexToe, Mapping};

pub(crate) const CLIENT: usize = 0;
pub(crate) const PROXY: usize = 1;
pub(crate) const SERVER: usize = 2;

/// A client, a proxy with a connection to each of the others, and a server.
pub(crate) struct Lab {
    pub net: Net,
    pub client: Program,
    pub proxy: Program,
    pub server: Program,
    pub model: Shared,
    /// Of the client, of the proxy to the client, of the proxy to the server, of the server.
    pub slots: [Slot; 4],
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab::with(Mapping::default(), |_, config| config)
    }

    pub(crate) fn with(mapping: Mapping, change: impl Fn(usize, HostConfig) -> HostConfig) -> Lab {
        let model = shared(64);
        let of_engine = model.clone();
        let engine = move |node: usize, config: &HostConfig| -> Box<dyn engine::Engine<engine::stream::Stream>> {
            let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
            let inner = Box::new(FlexToe::new(limits, mapping.clone(), port::FramePool::new(64)));
            if node == PROXY { Box::new(Splicer { inner, model: of_engine.clone() }) } else { inner }
        };
        let mut net = Net::new((0..3).map(|node| change(node, config(node))).collect(), engine);
        net.nodes[PROXY].host.base_mut().set_splice_table(Some(Box::new(Table(model.clone()))));
        let (mut client, mut proxy, mut server) =
            (Program::new(&mut net, CLIENT), Program::new(&mut net, PROXY), Program::new(&mut net, SERVER));
        proxy.app.serve(&mut net, 80);
        server.app.serve(&mut net, 81);
        let slots = pair(&mut net, &mut client, &mut proxy, &mut server);
        Lab { net, client, proxy, server, model, slots }
    }

    /// Asks for the splice; the errno where it is refused.
    pub(crate) fn splice(&mut self) -> Result<(), u16> {
        let [_, a, b, _] = self.slots;
        self.splice_slots(a, b)
    }

    pub(crate) fn splice_slots(&mut self, a: Slot, b: Slot) -> Result<(), u16> {
        let tag = self.proxy.app.next_tag();
        let end = |slot: Slot| {
            let socket = self.proxy.sockets.0.get(&slot);
            let (tx_head, rx_head) = socket.map_or((0, 0), |socket| (socket.tx_head, socket.rx_head));
            SpliceEnd { slot, tx_head, rx_head }
        };
        self.proxy.app.ask(Request::Splice { tag, ends: [end(a), end(b)] });
        self.net.settle();
        self.proxy.app.expect(|reply| match *reply {
            Reply::Done { tag: of } if of == tag => Some(Ok(())),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    }

    pub(crate) fn over(&mut self) -> Option<(Slot, u16)> {
        over(&mut self.proxy)
    }

    /// `len` bytes each way, which must arrive as they are.
    pub(crate) fn exchange(&mut self, len: usize) {
        let up: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
        let down: Vec<u8> = (0..len).map(|at| (at * 17 + at / 239) as u8).collect();
        let Lab { net, client, server, slots, .. } = self;
        let (mut sent, mut got) = ([0, 0], [Vec::new(), Vec::new()]);
        net.run_until(2000 * SECOND, |_| {
            sent[0] += client.write(slots[0], &up[sent[0]..]);
            sent[1] += server.write(slots[3], &down[sent[1]..]);
            got[0].extend(server.read(slots[3]));
            got[1].extend(client.read(slots[0]));
            got[0].len() >= len && got[1].len() >= len
        });
        assert!(got[0] == up && got[1] == down, "the bytes are the same");
    }

    pub(crate) fn tables(&self) -> Vec<(&'static str, u64)> {
        self.net.nodes[PROXY].host.base().tables().into_iter().filter(|(_, size)| *size > 0).collect()
    }

    pub(crate) fn splices(&self) -> u64 {
        self.net.nodes[PROXY].host.base().tables().into_iter().find(|(name, _)| *name == "splices").unwrap().1
    }

    pub(crate) fn figure(&self, counter: &str) -> u64 {
        let stats = self.net.nodes[PROXY].host.base().module_stats();
        stats.iter().find(|(module, name, _)| module == "splice" && *name == counter).unwrap().2
    }

    /// Both ends close, the client first, and the proxy closes its names.
    pub(crate) fn close_all(&mut self) {
        let [first, a, b, last] = self.slots;
        self.client.shut(first);
        let Lab { net, server, .. } = self;
        net.run_until(100 * SECOND, |_| server.at_end(last));
        self.server.shut(last);
        let Lab { net, client, .. } = self;
        net.run_until(100 * SECOND, |_| client.at_end(first));
        // The last acknowledgements may be lost, too.
        let Lab { net, proxy, .. } = self;
        let mut ends = Vec::new();
        net.run_until(100 * SECOND, |_| {
            ends.extend(over(proxy));
            ends.len() == 2
        });
        ends.sort_by_key(|(slot, _)| slot.index);
        assert_eq!(ends, [(a, 0), (b, 0)]);
    }

    pub(crate) fn end(self) {
        let Lab { mut net, client, proxy, server, model, .. } = self;
        net.end_all(vec![client.app, proxy.app, server.app]);
        assert!(model.lock().unwrap().entries.is_empty(), "the module's table is empty");
    }
}

pub(crate) fn pair(net: &mut Net, client: &mut Program, proxy: &mut Program, server: &mut Program) -> [Slot; 4] {
    let (first, a) = join_at(net, client, proxy, 80);
    let (b, last) = join_at(net, proxy, server, 81);
    [first, a, b, last]
}

impl Lab {
    /// Another daemon goes on with the proxy's host: its own module, where it has one, has no state yet.
    pub(crate) fn hand_over(&mut self, has_module: bool) {
        let model = shared(64);
        let of_engine = model.clone();
        stop(&mut self.net, PROXY);
        let made = restore(&mut self.net, PROXY, |config| {
            let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
            let inner = Box::new(FlexToe::new(limits, Mapping::default(), port::FramePool::new(64)));
            Box::new(Splicer { inner, model: of_engine.clone() })
        });
        made.unwrap();
        if has_module {
            self.net.nodes[PROXY].host.base_mut().set_splice_table(Some(Box::new(Table(model.clone()))));
        }
        self.model = model;
    }

    /// The net, the socket that sends after `closer` has closed, and `closer`.
    pub(crate) fn ends(&mut self, closer: usize) -> (&mut Net, [(&mut Program, Slot); 2]) {
        let [first, _, _, last] = self.slots;
        let Lab { net, client, server, .. } = self;
        let (client, server) = ((client, first), (server, last));
        (net, if closer == CLIENT { [server, client] } else { [client, server] })
    }

    /// The client or the server closes, and the other one gets its end.
    pub(crate) fn close_one(&mut self, closer: usize) {
        let (net, [(other, at), (closer, slot)]) = self.ends(closer);
        closer.shut(slot);
        net.run_until(100 * SECOND, |_| other.at_end(at));
    }

    /// What the other one sends still arrives.
    pub(crate) fn send_to(&mut self, closer: usize, len: usize) {
        let (net, [(from, out), (to, into)]) = self.ends(closer);
        let (bytes, mut sent, mut got) = (vec![5; len], 0, 0);
        net.run_until(2000 * SECOND, |_| {
            sent += from.write(out, &bytes[sent..]);
            got += to.read(into).len();
            got == len
        });
    }
}

/// A splice of the proxy's is over: which of its slots, and with which error number.
fn over(proxy: &mut Program) -> Option<(Slot, u16)> {
    proxy.app.find(|reply| if let Reply::SpliceOver { slot, errno } = *reply { Some((slot, errno)) } else { None })
}
