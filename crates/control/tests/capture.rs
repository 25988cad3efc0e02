//! What a capture gets of a host: each frame once, as it was, with what became of it, whichever way modules are mapped.
mod support;

use control::HostConfig;
use engine::{DropReason, Limits};
use flextoe::{FlexToe, Mapping};
use port::FramePool;
use port::capture::pcapng::{self, Block, Packet};
use port::capture::{Direction, Queue, Wanted};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use support::sockets::Sockets;
use support::*;

fn net(mapping: &Mapping) -> Net {
    let engine = |_: usize, config: &HostConfig| -> Box<dyn engine::Engine<engine::stream::Stream>> {
        let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
        Box::new(FlexToe::new(limits, mapping.clone(), FramePool::new(64)))
    };
    Net::new(vec![config(0), config(1)], engine)
}

fn start(net: &mut Net, node: usize) -> Arc<Queue> {
    net.nodes[node].host.recorder().start(&Arc::new(Wanted::everything()), 0, 0)
}

/// Ends a capture: frames received, frames sent.
fn stop(net: &mut Net, node: usize, queue: &Arc<Queue>) -> (Vec<Packet>, Vec<Packet>) {
    net.nodes[node].host.recorder().stop(queue);
    let (mut blocks, mut packets) = (Vec::new(), Vec::new());
    queue.take(&mut blocks);
    let mut from = &blocks[..];
    while let Some(block) = pcapng::read(&mut from).unwrap() {
        let Block::Packet(packet) = block else { panic!("{block:?}") };
        packets.push(packet);
    }
    packets.into_iter().partition(|packet| packet.direction == Some(Direction::In))
}

fn sorted(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = frames.into_iter().collect();
    frames.sort();
    frames
}

/// How often each reason is named in comments.
fn reasons(packets: &[Packet]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (_, reasons) in packets.iter().filter_map(|packet| packet.comment.split_once("dropped: ")) {
        reasons.split(", ").for_each(|reason| *counts.entry(reason.into()).or_default() += 1);
    }
    counts
}

#[test]
fn each_frame_is_captured_once_with_what_became_of_it() {
    let spread = Mapping { threads: true, preprocess: 2, flow_groups: 2, postprocess: 2, dma: 2 };
    for mapping in [Mapping::default(), spread] {
        let mut net = net(&mapping);
        let (mut client, mut server) = (net.attach(0), net.attach(1));
        let queue = start(&mut net, 1);
        let delivered: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let (log, mut count) = (Rc::clone(&delivered), 0);
        net.filter = Box::new(move |from, frame| {
            count += 1;
            let through = count % 7 != 0;
            if from == 0 && through {
                log.borrow_mut().push(frame.bytes().to_vec());
            }
            through
        });
        // Nobody takes the connection yet: what the client sends first is kept in the control plane.
        let (binding, _) = server.bind(&mut net, 80, true, false).unwrap();
        server.listen(&mut net, binding, 16).unwrap();
        let tag = client.connect(net.nodes[1].ip, 80, 0);
        let (mut slot, mut at, mut other, mut got) = (None, Sockets::default(), Sockets::default(), Vec::new());
        net.run_until(20 * SECOND, |_| {
            slot = slot.or_else(|| client.connected(tag));
            slot.is_some()
        });
        let slot = at.open(&client, slot.unwrap().unwrap());
        let bytes: Vec<u8> = (0..40_000).map(|at: u32| (at * 31 + at / 251) as u8).collect();
        assert_eq!(at.write(&mut client, slot, &bytes), bytes.len());
        net.run_for(50 * MS);
        server.arm(&mut net, binding, 16);
        let mut taken = None;
        net.run_until(100 * SECOND, |_| {
            taken = taken.or_else(|| server.accepted().map(|slot| other.open(&server, slot)));
            got.extend(taken.map(|slot| other.read(&mut server, slot)).unwrap_or_default());
            got.len() >= bytes.len()
        });
        assert!(got == bytes);
        net.inject(1, &[6; 60]);
        net.run_for(SECOND);
        let (received, sent) = stop(&mut net, 1, &queue);
        let from_server = net.seen.iter().filter(|(from, _)| *from == 1).map(|(_, bytes)| bytes.clone());
        assert!(sent.iter().map(|packet| packet.bytes.clone()).eq(from_server), "what was sent, in order");
        let mut wanted = delivered.borrow().clone();
        wanted.push(vec![6; 60]);
        assert!(sorted(received.iter().map(|packet| packet.bytes.clone())) == sorted(wanted), "what was received");
        let drops =
            net.nodes[1].host.drops().iter().map(|(reason, count)| (reason.label().to_string(), count)).collect();
        assert_eq!(reasons(&received), drops);
        assert!(drops.contains_key(DropReason::Ethernet.label()) && drops.len() > 1, "{drops:?}");
        let has = |text: &str| received.iter().chain(&sent).any(|packet| packet.comment == text);
        for comment in ["control: held until accepted", "control: accepted", "control: sent"] {
            assert!(has(comment), "{comment}");
        }
        assert!(has("flow 0 protocol: accepted") && has("flow 0 protocol: sent"));
        net.end_all(vec![client, server]);
    }
}

#[test]
fn what_goes_to_the_host_itself_is_sent_and_received() {
    let mut net = net(&Mapping::default());
    let mut app = net.attach(0);
    app.serve(&mut net, 80);
    let queue = start(&mut net, 0);
    let own = net.nodes[0].ip;
    let tag = app.connect(own, 80, 0);
    net.run_until(SECOND, |_| app.connected(tag).is_some());
    let (received, sent) = stop(&mut net, 0, &queue);
    assert!(received.len() >= 3, "SYN, SYN and ACK, ACK");
    assert!(sorted(received.into_iter().map(|packet| packet.bytes)) == sorted(sent.into_iter().map(|it| it.bytes)));
    net.end_all(vec![app]);
}

/// Drops frames to one station and sends those to another back.
struct Doorman;

impl engine::ModuleSource for Doorman {
    fn name(&self) -> &str {
        "doorman"
    }
    fn stage(&self) -> engine::Stage {
        engine::Stage::Ingress
    }
    fn whole_frames(&self) -> bool {
        false
    }
    fn replica(&self, _index: u32) -> Box<dyn engine::Module> {
        Box::new(Doorman)
    }
}

impl engine::Module for Doorman {
    fn process(&mut self, packet: engine::Packet<'_>) -> engine::Verdict {
        match packet.frame.bytes()[0] {
            8 => engine::Verdict::Drop,
            6 => {
                packet.frame.bytes_mut()[1] = 9;
                engine::Verdict::Transmit
            }
            _ => engine::Verdict::Redirect,
        }
    }
}

#[test]
fn what_modules_of_operators_did_is_known() {
    for mapping in [Mapping::default(), Mapping { threads: true, preprocess: 2, ..Mapping::default() }] {
        let mut net = net(&mapping);
        let source = Arc::new(Doorman);
        let module = engine::LoadedModule { id: engine::ModuleId(1), source, figures: Arc::default(), ticks: || 0 };
        net.nodes[0].host.base_mut().set_modules(vec![module]).unwrap();
        net.settle();
        let queue = start(&mut net, 0);
        [8, 6, 2].into_iter().for_each(|first| net.inject(0, &[first; 60]));
        net.settle();
        let (received, sent) = stop(&mut net, 0, &queue);
        let comments = |packets: &[Packet]| packets.iter().map(|packet| packet.comment.clone()).collect::<Vec<_>>();
        let stage = if mapping.threads { "modules" } else { "ingress" };
        assert_eq!(comments(&received)[0], format!("{stage}: dropped: module_drop"));
        assert_eq!(comments(&received)[1..], ["control: dropped: ethernet"], "redirected");
        assert_eq!(comments(&sent), [format!("{stage}: returned")]);
        assert_eq!(sent[0].bytes[..3], [6, 9, 6], "as it was sent");
    }
}
