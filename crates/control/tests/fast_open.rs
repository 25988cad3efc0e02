//! TCP Fast Open (RFC 7413) between two hosts, with both engines: cookies, data of a SYN, what is lost, and limits.
mod support;

use context::{Congestion, EarlyData, Endpoint, FastOpenKeys, Reply, Request, Slot};
use control::HostConfig;
use engine::Limits;
use flextoe::{FlexToe, Mapping};
use laminar::{Extensions, Laminar};
use support::families::{listen, v6_config, v6_of};
use support::programs::Program;
use support::takeover::{stop, take_over};
use support::*;
use wire::ip::packet_at;
use wire::tcp::{Cookie, Flags, Header};
use wire::{IpAddress, Seq, ip};

type Boxed = Box<dyn engine::Engine<engine::stream::Stream>>;

fn flextoe(config: &HostConfig) -> Boxed {
    let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
    Box::new(FlexToe::new(limits, Mapping::default(), port::FramePool::new(64)))
}

fn threads(config: &HostConfig) -> Boxed {
    let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
    let mapping = Mapping { threads: true, preprocess: 2, flow_groups: 2, postprocess: 2, dma: 2 };
    Box::new(FlexToe::new(limits, mapping, port::FramePool::new(64)))
}

fn laminar_with(config: &HostConfig, extensions: Extensions) -> Boxed {
    let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
    Box::new(Laminar::new(limits, config.window_shift(), extensions).unwrap())
}

fn laminar(config: &HostConfig) -> Boxed {
    laminar_with(config, Extensions::default())
}

fn laminar_with_timestamps(config: &HostConfig) -> Boxed {
    laminar_with(config, Extensions { timely: true, ..Extensions::NONE })
}

const ENGINES: [fn(&HostConfig) -> Boxed; 4] = [flextoe, threads, laminar, laminar_with_timestamps];

/// A client on node 0 and a listener on node 1.
struct Lab {
    net: Net,
    client: Program,
    server: Program,
    binding: u32,
    to: IpAddress,
}

fn early_config(node: usize) -> HostConfig {
    let mut config = v6_config(node);
    config.limits.fast_open_server = true;
    config
}

impl Lab {
    fn new(make: fn(&HostConfig) -> Boxed, v6: bool, most: u32) -> Lab {
        Lab::with(make, v6, most, early_config)
    }

    fn with(make: fn(&HostConfig) -> Boxed, v6: bool, most: u32, config: fn(usize) -> HostConfig) -> Lab {
        let mut net = Net::new(vec![config(0), config(1)], |_, config| make(config));
        let (client, mut server) = (Program::new(&mut net, 0), Program::new(&mut net, 1));
        let binding = match v6 {
            true => listen(&mut net, &mut server.app, true),
            false => server.app.serve(&mut net, 80),
        };
        let mut lab = Lab { net, client, server, binding, to: if v6 { v6_of(1) } else { IpAddress::from(ip_of(1)) } };
        lab.set(most, FastOpenKeys::default(), false);
        lab
    }

    fn set(&mut self, most: u32, keys: FastOpenKeys, no_cookie: bool) {
        self.server.app.ask(Request::FastOpen { binding: self.binding, most, keys, no_cookie });
        self.net.settle();
    }

    /// Connects with data; gives the tag, and how much data the SYN took.
    fn connect(&mut self, early: EarlyData, data: &[u8]) -> (u32, usize) {
        let tag = self.client.app.next_tag();
        let remote = Endpoint::new(self.to, 80);
        self.client.app.ask(Request::Connect {
            tag,
            binding: 0,
            remote,
            congestion: Congestion::DEFAULT,
            mss: 0,
            early,
        });
        self.net.settle();
        let (slot, room) = self.client.app.expect(|reply| match *reply {
            Reply::Connecting { tag: of, slot, room, .. } if of == tag => Some((slot, room)),
            _ => None,
        });
        let len = data.len().min(room.into());
        if room > 0 {
            let (_, tx) = self.client.app.end.map_buffers(slot).unwrap();
            tx.write(0, &data[..len]);
            self.client.app.ask(Request::SynData { tag, len: len as u32 });
            self.net.settle();
        }
        (tag, len)
    }

    /// The client's connection, of whose bytes so many are in its buffer already; and how many are acknowledged.
    fn opened(&mut self, tag: u32, written: usize) -> (Slot, u16) {
        let mut found = None;
        let client = &mut self.client;
        self.net.run_until(30 * SECOND, |_| {
            found = found.or_else(|| {
                client.app.find(|reply| match *reply {
                    Reply::Connected { tag: of, slot, early, .. } if of == tag => Some((slot, early)),
                    _ => None,
                })
            });
            found.is_some()
        });
        let (slot, early) = found.unwrap();
        client.sockets.open(&client.app, slot);
        let socket = client.sockets.0.get_mut(&slot).unwrap();
        (socket.tx_head, socket.tx_tail) = (written as u32, early.into());
        socket.bump(&mut client.app);
        (slot, early)
    }

    fn accept(&mut self) -> Option<Slot> {
        let slot = self.server.app.accepted()?;
        Some(self.server.sockets.open(&self.server.app, slot))
    }

    /// A first connection, with which the client gets a cookie.
    fn get_cookie(&mut self) {
        let (tag, len) = self.connect(EarlyData::WithCookie, b"x");
        assert_eq!(len, 0);
        let (slot, _) = self.opened(tag, 0);
        self.net.settle();
        let served = self.accept().unwrap();
        self.client.close(&mut self.net, slot);
        self.server.close(&mut self.net, served);
        self.net.seen.clear();
    }

    /// The SYNs that were seen: the sender of each, its header, and its payload.
    fn syns(&self) -> Vec<(usize, Header, Vec<u8>)> {
        let syns = self.net.seen.iter().filter_map(|(from, bytes)| {
            let (header, payload) = read(bytes)?;
            header.flags.has(Flags::SYN).then_some((*from, header, payload))
        });
        syns.collect()
    }

    fn info(&mut self, slot: Slot) -> context::FlowInfo {
        let tag = self.server.app.next_tag();
        self.server.app.ask(Request::Info { tag, slot });
        self.net.settle();
        self.server.app.expect(|reply| match *reply {
            Reply::Info { tag: of, info } if of == tag => Some(info),
            _ => None,
        })
    }

    fn early_flows(&self) -> u64 {
        let tables = self.net.nodes[1].host.base().tables();
        tables.into_iter().find(|(name, _)| *name == "early_flows").unwrap().1
    }

    fn end(self) {
        let Lab { mut net, client, server, .. } = self;
        net.filter = Box::new(|_, _| true);
        net.end_all(vec![client.app, server.app]);
    }
}

/// The TCP header and payload of a frame.
fn read(bytes: &[u8]) -> Option<(Header, Vec<u8>)> {
    let (at, ethertype) = packet_at(bytes)?;
    let (ip, len) = ip::Header::parse(ethertype, &bytes[at..], bytes.len() - at).ok()?;
    let body = &bytes[at + len..at + len + usize::from(ip.payload_len)];
    let (header, header_len) = (ip.protocol == wire::ipv4::TCP).then(|| Header::parse(body).ok())??;
    Some((header, body[header_len..].to_vec()))
}

fn is_syn_ack(bytes: &[u8]) -> bool {
    read(bytes).is_some_and(|(header, _)| header.flags.has(Flags::SYN | Flags::ACK))
}

fn each(test: impl Fn(fn(&HostConfig) -> Boxed, bool)) {
    for make in ENGINES {
        [false, true].into_iter().for_each(|v6| test(make, v6));
    }
}

// Checks RFC 7413: 4.2.1-a, 4.2.1-b, 4.2.2-b.
#[test]
fn the_second_connection_carries_its_data_with_the_syn() {
    each(|make, v6| {
        let mut lab = Lab::new(make, v6, 16);
        let (tag, len) = lab.connect(EarlyData::WithCookie, b"hello");
        assert_eq!(len, 0, "there is no cookie yet");
        let (first, _) = lab.opened(tag, 0);
        let served = lab.accept().unwrap();
        let (syn, answer) = (&lab.syns()[0].1, &lab.syns()[1].1);
        assert_eq!(syn.options.fast_open, Some(Cookie::REQUEST));
        assert_eq!(answer.options.fast_open.map(|cookie| cookie.bytes().len()), Some(8));
        lab.client.write(first, b"late");
        lab.net.settle();
        assert_eq!(lab.server.read(served), b"late");

        lab.net.seen.clear();
        // The client gets nothing: the server has the data, and answers, before the handshake ends.
        lab.net.filter = Box::new(|from, _| from == 0);
        let (tag, len) = lab.connect(EarlyData::WithCookie, b"hello");
        assert_eq!(len, 5);
        let second = lab.accept().expect("it is open at once");
        assert_eq!(lab.server.read(second), b"hello");
        lab.server.write(second, b"world");
        lab.net.settle();
        assert_eq!(lab.early_flows(), 1);
        lab.net.filter = Box::new(|_, _| true);
        let (slot, early) = lab.opened(tag, 5);
        assert_eq!(early, 5);
        let mut got = Vec::new();
        let client = &mut lab.client;
        lab.net.run_until(10 * SECOND, |_| {
            got.extend(client.read(slot));
            got.len() == 5
        });
        assert_eq!(got, b"world");
        lab.net.run_for(SECOND);
        assert_eq!((lab.early_flows(), lab.info(second).syn_data), (0, true));
        assert!(!lab.info(served).syn_data);
        let carried: Vec<usize> = lab.syns().iter().filter(|syn| syn.0 == 0).map(|syn| syn.2.len()).collect();
        assert!(carried[0] == 5 && carried[1..].iter().all(|len| *len == 0), "{carried:?}");
        lab.client.write(slot, &[7; 3000]);
        lab.net.run_for(SECOND);
        assert_eq!(lab.server.read(second), [7; 3000]);
        lab.end();
    });
}

/// Whatever is lost of it, the bytes arrive once, in order, in both directions.
// Checks RFC 7413: 4.1.3.1-a.
#[test]
fn whichever_segment_is_lost_the_bytes_arrive() {
    for make in ENGINES {
        for lost in 0..6 {
            let mut lab = Lab::new(make, false, 16);
            lab.get_cookie();
            let mut count = 0;
            lab.net.filter = Box::new(move |_, frame| {
                count += u32::from(read(frame.bytes()).is_some());
                count != lost + 1
            });
            let (tag, len) = lab.connect(EarlyData::WithCookie, b"question");
            assert_eq!(len, 8);
            let mut served = None;
            let (slot, _) = lab.opened(tag, len);
            let (mut asked, mut answered) = (Vec::new(), Vec::new());
            let Lab { net, client, server, .. } = &mut lab;
            net.run_until(60 * SECOND, |_| {
                if served.is_none() {
                    served = server.app.accepted().map(|slot| server.sockets.open(&server.app, slot));
                    served.into_iter().for_each(|slot| assert_eq!(server.write(slot, b"answer"), 6));
                }
                served.into_iter().for_each(|slot| asked.extend(server.read(slot)));
                answered.extend(client.read(slot));
                asked.len() >= 8 && answered.len() >= 6
            });
            assert_eq!((asked, answered), (b"question".to_vec(), b"answer".to_vec()), "lost {lost}");
            let again = lab.syns().into_iter().filter(|syn| syn.0 == 0).skip(1);
            again.for_each(|(_, header, payload)| assert_eq!((header.options.fast_open, payload), (None, vec![])));
            lab.end();
        }
    }
}

// Checks RFC 7413: 4.2.1-c.
#[test]
fn a_wrong_cookie_gets_the_right_one_and_the_data_comes_again() {
    each(|make, v6| {
        let mut lab = Lab::new(make, v6, 16);
        lab.get_cookie();
        lab.set(16, FastOpenKeys { primary: Some([3; 16]), backup: None }, false);
        let (tag, len) = lab.connect(EarlyData::WithCookie, b"hello");
        assert_eq!(len, 5);
        let (_, early) = lab.opened(tag, 5);
        lab.net.settle();
        let served = lab.accept().unwrap();
        assert_eq!((early, lab.server.read(served), lab.early_flows()), (0, b"hello".to_vec(), 0));
        let fresh = lab.syns()[1].1.options.fast_open;
        assert!(fresh.is_some() && fresh != lab.syns()[0].1.options.fast_open);
        // With the old key as backup, the old cookie is good, and the new one is offered.
        lab.net.seen.clear();
        lab.set(16, FastOpenKeys { primary: Some([4; 16]), backup: Some([3; 16]) }, false);
        let (tag, _) = lab.connect(EarlyData::WithCookie, b"again");
        assert_eq!(lab.opened(tag, 5).1, 5);
        let syns = lab.syns();
        assert_eq!(syns[0].1.options.fast_open, fresh);
        assert!(syns[1].1.options.fast_open.is_some_and(|cookie| Some(cookie) != fresh));
        lab.net.seen.clear();
        let (tag, _) = lab.connect(EarlyData::WithCookie, b"more!");
        assert_eq!(lab.opened(tag, 5).1, 5);
        assert_eq!(lab.syns()[1].1.options.fast_open, None, "it has the newest one");
        lab.end();
    });
}

// Checks RFC 7413: 5.1-a.
#[test]
fn a_listener_has_so_many_at_once_that_are_not_open() {
    each(|make, v6| {
        let mut lab = Lab::new(make, v6, 2);
        lab.get_cookie();
        lab.net.filter = Box::new(|from, _| from == 0);
        let tags: Vec<u32> = (0..3).map(|_| lab.connect(EarlyData::WithCookie, b"hi").0).collect();
        let served: Vec<Slot> = std::iter::from_fn(|| lab.accept()).collect();
        assert_eq!((served.len(), lab.early_flows()), (2, 2), "the third one gets an ordinary handshake");
        lab.net.filter = Box::new(|_, _| true);
        tags.into_iter().for_each(|tag| {
            lab.opened(tag, 2);
        });
        lab.net.run_for(SECOND);
        let third = lab.accept().expect("an ordinary handshake ends as well");
        assert_eq!(lab.server.read(third), b"hi");
        // Connections that follow each other closely are open when the next one comes.
        // The client takes the SYNs that were sent again for lost ones.
        lab.net.run_for(60 * SECOND);
        for _ in 0..9 {
            let (tag, _) = lab.connect(EarlyData::WithCookie, b"hi");
            assert_eq!(lab.opened(tag, 2).1, 2);
            lab.net.now += 2 * MS;
        }
        lab.end();
    });
}

// Checks RFC 7413: 5.1-b.
#[test]
fn resets_before_the_handshakes_end_count_for_a_minute() {
    each(|make, v6| {
        let mut lab = Lab::new(make, v6, 1);
        lab.get_cookie();
        lab.net.filter = Box::new(|from, _| from == 0);
        let (tag, _) = lab.connect(EarlyData::WithCookie, b"hi");
        let served = lab.accept().unwrap();
        let syn_ack = lab.net.seen.iter().rev().find(|(_, bytes)| is_syn_ack(bytes)).unwrap().1.clone();
        lab.client.app.ask(Request::CancelConnect { tag });
        lab.net.settle();
        // The client has forgotten the connection, as a host that never asked for it: it resets what comes late.
        lab.net.filter = Box::new(|_, _| true);
        lab.net.inject(0, &syn_ack);
        lab.net.settle();
        assert_eq!(lab.server.app.error(), Some((served, libc::ECONNRESET as u16)));
        assert_eq!(lab.early_flows(), 0);
        let (tag, _) = lab.connect(EarlyData::WithCookie, b"hi");
        assert_eq!(lab.opened(tag, 2).1, 0, "an ordinary handshake: the reset counts");
        lab.net.run_for(61 * SECOND);
        let (tag, _) = lab.connect(EarlyData::WithCookie, b"hi");
        assert_eq!(lab.opened(tag, 2).1, 2);
        lab.end();
    });
}

#[test]
fn a_peer_that_never_answers_the_syn_ack_is_given_up() {
    for make in ENGINES {
        let mut lab = Lab::new(make, false, 4);
        lab.get_cookie();
        let mut first = true;
        lab.net.filter = Box::new(move |from, _| from == 0 && std::mem::take(&mut first));
        lab.connect(EarlyData::WithCookie, b"hi");
        let served = lab.accept().unwrap();
        lab.net.run_for(100 * SECOND);
        let syn_acks = lab.net.seen.iter().filter(|(_, bytes)| is_syn_ack(bytes)).count();
        assert_eq!((syn_acks, lab.early_flows()), (6, 0));
        assert_eq!(lab.server.app.error(), Some((served, libc::ETIMEDOUT as u16)));
        lab.end();
    }
}

/// The daemon that takes over sends the SYN-ACK again, and takes the same cookies.
#[test]
fn another_daemon_goes_on_with_what_is_not_acknowledged() {
    for make in [flextoe as fn(&HostConfig) -> Boxed, laminar, laminar_with_timestamps] {
        let mut lab = Lab::new(make, false, 4);
        lab.get_cookie();
        lab.net.filter = Box::new(|from, _| from == 0);
        let (tag, _) = lab.connect(EarlyData::WithCookie, b"hi");
        let served = lab.accept().unwrap();
        assert_eq!(lab.server.read(served), b"hi");
        stop(&mut lab.net, 1);
        take_over(&mut lab.net, 1, make);
        assert_eq!(lab.early_flows(), 1);
        lab.net.filter = Box::new(|_, _| true);
        let (slot, early) = lab.opened(tag, 2);
        assert_eq!(early, 2);
        lab.server.write(served, b"there");
        lab.net.run_for(10 * SECOND);
        assert_eq!((lab.client.read(slot), lab.early_flows()), (b"there".to_vec(), 0));
        // Its SYN was sent again: the client goes without for a minute.
        lab.net.run_for(60 * SECOND);
        let (tag, _) = lab.connect(EarlyData::WithCookie, b"hi");
        assert_eq!(lab.opened(tag, 2).1, 2, "the cookie is still good");
        lab.end();
    }
}

// Checks RFC 7413: 4.1.3.1-a, 4.1.3.1-b.
#[test]
fn a_path_that_swallows_the_option_goes_without() {
    let mut lab = Lab::new(flextoe, false, 4);
    lab.get_cookie();
    lab.net.filter =
        Box::new(|_, frame| read(frame.bytes()).is_none_or(|(header, _)| header.options.fast_open.is_none()));
    let (tag, len) = lab.connect(EarlyData::WithCookie, b"hello");
    let (_, early) = lab.opened(tag, len);
    lab.net.run_for(SECOND);
    let served = lab.accept().unwrap();
    assert_eq!((len, early, lab.server.read(served)), (5, 0, b"hello".to_vec()));
    lab.net.seen.clear();
    let (tag, len) = lab.connect(EarlyData::WithCookie, b"hello");
    lab.opened(tag, 0);
    assert_eq!((len, lab.syns()[0].1.options.fast_open), (0, None), "not even a cookie is asked for");
    lab.net.filter = Box::new(|_, _| true);
    lab.net.run_for(60 * SECOND);
    assert_eq!(lab.connect(EarlyData::WithCookie, b"hello").1, 5, "a minute later it is tried again");
    lab.end();
}

#[test]
fn without_the_hosts_leave_there_is_none() {
    fn neither(node: usize) -> HostConfig {
        let mut config = early_config(node);
        (config.limits.fast_open_client, config.limits.fast_open_server) = (node == 1, node == 0);
        config
    }
    let mut lab = Lab::with(flextoe, false, 4, neither);
    for early in [EarlyData::WithCookie, EarlyData::WithoutCookie] {
        let (tag, len) = lab.connect(early, b"x");
        lab.opened(tag, 0);
        assert_eq!((len, lab.syns()[0].1.options.fast_open, lab.syns()[1].1.options.fast_open), (0, None, None));
    }
    fn client_only(node: usize) -> HostConfig {
        let mut config = early_config(node);
        config.limits.fast_open_server = false;
        config
    }
    let mut asks = Lab::with(flextoe, false, 4, client_only);
    let (tag, _) = asks.connect(EarlyData::WithCookie, b"x");
    asks.opened(tag, 0);
    assert!(asks.syns()[0].1.options.fast_open.is_some() && asks.syns()[1].1.options.fast_open.is_none());
    lab.end();
    asks.end();
}

#[test]
fn without_cookies_where_both_sides_allow_it() {
    each(|make, v6| {
        let mut lab = Lab::new(make, v6, 4);
        let (tag, len) = lab.connect(EarlyData::WithoutCookie, b"hello");
        assert_eq!((len, lab.opened(tag, 5).1), (5, 0), "the listener requires a cookie");
        lab.net.settle();
        let served = lab.accept().unwrap();
        assert_eq!(lab.server.read(served), b"hello");
        lab.set(4, FastOpenKeys::default(), true);
        let (tag, _) = lab.connect(EarlyData::WithoutCookie, b"hello");
        assert_eq!(lab.opened(tag, 5).1, 5);
        let served = lab.accept().unwrap();
        assert_eq!(lab.server.read(served), b"hello");
        lab.end();
    });
}

/// A program that never gives its data, or more than there is room for, harms nobody.
#[test]
fn hostile_data_of_a_syn_is_bounded() {
    let mut lab = Lab::new(flextoe, false, 4);
    lab.get_cookie();
    let ask = |lab: &mut Lab, tag, len| {
        lab.client.app.ask(Request::SynData { tag, len });
        lab.net.settle();
    };
    ask(&mut lab, 999, 5);
    assert_eq!(lab.net.drops(0, engine::DropReason::RequestInvalid), 1);
    let tag = lab.client.app.next_tag();
    let (remote, congestion) = (Endpoint::new(lab.to, 80), Congestion::DEFAULT);
    let connect = Request::Connect { tag, binding: 0, remote, congestion, mss: 0, early: EarlyData::WithCookie };
    lab.client.app.ask(connect);
    lab.net.run_for(100 * SECOND);
    assert!(lab.syns().is_empty(), "it waits for its data");
    ask(&mut lab, tag, u32::MAX);
    assert_eq!(lab.syns()[0].2.len(), 1460 - 40, "a full segment with all options");
    ask(&mut lab, tag, 7);
    assert_eq!(lab.net.drops(0, engine::DropReason::RequestInvalid), 2, "once only");
    lab.end();
}

/// A SYN whose answer is for nobody: a spoofed cookie request makes the host keep no more than any SYN does.
// Checks RFC 7413: 4.2.2-a.
#[test]
fn guessed_cookies_open_nothing() {
    let mut lab = Lab::new(flextoe, false, 4);
    for guess in 0..100u8 {
        let options = wire::tcp::Options { fast_open: Cookie::new(&[guess; 8]), ..Default::default() };
        let syn = recording::header(2000 + u16::from(guess), 80, Seq(1), Seq(0), Flags::SYN);
        let syn = Header { options, ..syn };
        let frame = recording::tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &syn, b"evil");
        lab.net.inject(1, &frame);
    }
    lab.net.settle();
    assert_eq!((lab.early_flows(), lab.accept()), (0, None));
    lab.end();
}
