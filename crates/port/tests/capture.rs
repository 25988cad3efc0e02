//! Captures on a running host: filters against libpcap's own, what is recorded, and what happens without room.
mod common;

use common::*;
use port::capture::pcapng::{self, Block, Packet};
use port::capture::{Direction, Fate, Filter, Sight, Wanted};
use port::{Fabric, FabricConfig, Port, PortDrop, PortDrops, Recorder};
use proptest::prelude::*;
use std::sync::Arc;
use wire::tcp::Flags;
use wire::{Mac, ipv4};

/// A filter as tcpdump's language has it, compiled by libpcap: for us and for libpcap itself.
fn compiled(text: &str) -> Result<(Filter, pcap::BpfProgram), String> {
    let dead = pcap::Capture::dead(pcap::Linktype::ETHERNET).unwrap();
    let program = dead.compile(text, true).map_err(|error| error.to_string())?;
    let instructions: Vec<_> = program.get_instructions().iter().map(words).collect();
    Ok((Filter::new(&instructions)?, program))
}

/// The crate shows an instruction only as text: opcode, jumps, operand.
fn words(instruction: &pcap::BpfInstruction) -> port::capture::Instruction {
    let text = instruction.to_string();
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().unwrap());
    let mut next = || numbers.next().unwrap();
    (next() as u16, next() as u8, next() as u8, next() as u32)
}

fn primitive() -> impl Strategy<Value = String> {
    let fixed = prop_oneof![
        Just("tcp"),
        Just("udp"),
        Just("icmp"),
        Just("arp"),
        Just("ip"),
        Just("ip6"),
        Just("ether broadcast"),
        Just("tcp[tcpflags] & (tcp-syn|tcp-fin) != 0"),
        Just("tcp[13] & 2 != 0"),
        Just("ip[6:2] & 0x1fff = 0"),
        Just("(((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)"),
        Just("vlan"),
        Just("ip host 10.9.0.1"),
        Just("dst net 10.0.0.0/8"),
        Just("ip multicast"),
        Just("ip[8] % 7 = ip[9] / 2"),
        Just("ether[0] & 1 = 1"),
        Just("ip[1] ^ 3 > ip[8] * 2"),
        Just("ether[20:4] << ip[0] != len"),
        Just("ip[ip[3]] >> 2 = 5"),
        Just("-ip[4] != 7"),
        Just("tcp[4:4] + 5 > tcp[8:4] | 3"),
    ]
    .prop_map(String::from);
    prop_oneof![
        4 => fixed,
        2 => any::<u16>().prop_map(|port| format!("port {}", port % 2010)),
        1 => Just("src port 1000".to_string()),
        1 => (0u16..2000, 0u16..3000).prop_map(|(a, b)| format!("portrange {}-{}", a.min(b), a.max(b))),
        1 => (0usize..200).prop_map(|len| format!("greater {len}")),
        1 => (0u8..8, any::<u8>()).prop_map(|(at, value)| format!("ip[{at}] >= {value}")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    primitive().prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|a| format!("not ({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("({a}) or ({b})")),
        ]
    })
}

/// Frames of several kinds, cut off or changed somewhere, or any bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let data = prop::collection::vec(any::<u8>(), 0..60);
    let kinds = (0u8..6, any::<u32>(), any::<u8>(), data).prop_map(|(kind, seq, flags, data)| match kind {
        0 => arp_request(A, IP_A, IP_B),
        1 => echo_request(B, A, IP_A, IP_B, 1, &data),
        2 => data,
        3 => {
            let mut bytes = tcp_segment(B, A, seq, Flags(flags), ipv4::Ecn::NotEct, &data).0;
            bytes.splice(12..12, [0x81, 0, 0, 7]);
            bytes
        }
        _ => tcp_segment(B, A, seq, Flags(flags), ipv4::Ecn::Ce, &data).0,
    });
    (kinds, any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(|(mut bytes, at, value, cut)| {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = value }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn filters_decide_as_libpcap_does(text in expression(), frames in prop::collection::vec(bytes(), 1..8)) {
        // Some combinations can never hold: libpcap refuses them with a sentence.
        let compiled = compiled(&text);
        prop_assume!(compiled.is_ok());
        let (filter, program) = compiled.unwrap();
        for bytes in frames {
            prop_assert_eq!(filter.accepts(&bytes, None), program.filter(&bytes), "{} on {:?}", text, bytes);
        }
    }

    #[test]
    fn any_program_is_refused_or_ends(
        program in prop::collection::vec((0u16..0x100, 0u8..6, 0u8..6, 0u32..20), 0..30),
        bytes in bytes(),
    ) {
        let mut program = program;
        program.push((6, 0, 0, 1));
        if let Ok(filter) = Filter::new(&program) {
            filter.accepts(&bytes, None);
        }
    }
}

#[test]
fn payload_by_reference_is_read_in_place() {
    let caller = &mut Caller::new();
    let data = pattern(5000);
    let frame = super_segment(&mut caller.pool, &data);
    let mut flat = super_segment(&mut caller.pool, &data);
    flat.flatten();
    let (at, last) = (frame.bytes().len(), frame.len() - 4);
    for text in [
        format!("ether[{}:4] = {:#x}", at - 2, u32::from_be_bytes(flat.bytes()[at - 2..at + 2].try_into().unwrap())),
        format!("ether[{last}:4] = {:#x}", u32::from_be_bytes(flat.bytes()[last..].try_into().unwrap())),
        format!("len = {}", last + 4),
    ] {
        let (filter, program) = compiled(&text).unwrap();
        assert!(program.filter(flat.bytes()) && filter.accepts(frame.bytes(), frame.payload()), "{text}");
    }
    let (beyond, _) = compiled(&format!("ether[{}:4] = 0 or tcp", last + 1)).unwrap();
    assert!(!beyond.accepts(frame.bytes(), frame.payload()), "a read beyond the frame refuses it");
}

#[test]
fn a_loop_is_refused() {
    let sentence = compiled("ip6 protochain 6").err().expect("libpcap compiles it to a loop");
    assert!(sentence.contains("jumps backwards"), "{sentence}");
}

fn packets(blocks: &[u8]) -> Vec<Packet> {
    let mut from = blocks;
    let mut packets = Vec::new();
    while let Some(block) = pcapng::read(&mut from).unwrap() {
        let Block::Packet(packet) = block else { panic!("{block:?}") };
        packets.push(packet);
    }
    packets
}

const ACCEPTED: Sight<'static> =
    Sight { direction: Direction::In, flow: Some(3), module: "protocol", fate: Fate::Accepted };

#[test]
fn what_is_wanted_is_recorded_whole_with_what_is_known() {
    let caller = &mut Caller::new();
    let mut recorder = Recorder::default();
    assert!(!recorder.is_on());
    let (filter, _) = compiled("tcp dst port 2000 and len > 100").unwrap();
    let some = recorder.start(&Arc::new(Wanted { filter, snaplen: 60, ..Wanted::everything() }), 1, 1_000_000);
    let dropped = recorder.start(&Arc::new(Wanted { dropped: true, ..Wanted::everything() }), 0, 0);
    let of_flow = Wanted { flow: Some(3), direction: Some(Direction::In), ..Wanted::everything() };
    let of_flow = recorder.start(&Arc::new(of_flow), 0, 0);
    let data = pattern(30_000);
    recorder.record(5, &super_segment(&mut caller.pool, &data), &ACCEPTED);
    let reason = Fate::dropped(PortDrop::TooLong);
    recorder.record(6, &tcp_frame(&mut caller.pool, B, A, 1, b"short"), &Sight { fate: reason, ..ACCEPTED });
    recorder.keep(&tcp_frame(&mut caller.pool, B, A, 1, b"kept"));
    let sight = Sight { direction: Direction::Out, flow: None, module: "control", fate: Fate::Sent };
    recorder.record_kept(7, &sight);
    recorder.hand_over(true);
    let mut blocks = Vec::new();
    some.take(&mut blocks);
    let got = packets(&blocks);
    assert_eq!(got.len(), 1);
    let first = &got[0];
    assert_eq!((first.time, first.interface, first.bytes.len(), first.len), (1_000_005, 1, 60, 30_066));
    assert_eq!((first.direction, first.comment.as_str()), (Some(Direction::In), "flow 3 protocol: accepted"));
    dropped.take(&mut blocks);
    let got = packets(&blocks);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].comment, "flow 3 protocol: dropped: too_long");
    assert_eq!(check_tcp(&got[0].bytes).unwrap().2, b"short");
    of_flow.take(&mut blocks);
    let got = packets(&blocks);
    assert_eq!(check_tcp(&got[0].bytes).unwrap().2, data, "payload by reference, checksum completed");
    assert_eq!(got.len(), 2);
    let counts = some.counts();
    assert_eq!((counts.seen, counts.matched, counts.lost), (3, 1, 0));
    [&some, &dropped, &of_flow].into_iter().for_each(|queue| recorder.stop(queue));
    assert!(!recorder.is_on());
}

#[test]
fn lost_frames_are_counted_and_the_others_in_order() {
    let caller = &mut Caller::new();
    let mut recorder = Recorder::default();
    let queue = recorder.start(&Arc::new(Wanted::everything()), 0, 0);
    let frame = super_segment(&mut caller.pool, &pattern(60_000));
    for now in 0..400 {
        recorder.record(now, &frame, &ACCEPTED);
        recorder.hand_over(false);
    }
    let mut all = Vec::new();
    queue.take(&mut all);
    // There is room again: what waited comes first.
    recorder.record(1000, &frame, &ACCEPTED);
    recorder.stop(&queue);
    let mut records = Vec::new();
    queue.take(&mut records);
    all.extend_from_slice(&records);
    let times: Vec<u64> = packets(&all).iter().map(|packet| packet.time).collect();
    let counts = queue.counts();
    assert_eq!((counts.seen, counts.matched), (401, 401));
    assert!(counts.lost > 200, "{counts:?}");
    assert_eq!(times.len() as u64, 401 - counts.lost);
    assert!(times.is_sorted() && times.last() == Some(&1000), "{times:?}");
}

#[test]
fn the_fabric_records_what_it_drops() {
    let caller = &mut Caller::new();
    let fabric = Fabric::new(FabricConfig { loss: 1.0, ..FabricConfig::default() });
    let mut a = fabric.join("a", A).unwrap();
    let _b = fabric.join("b", B).unwrap();
    let queue = fabric.with_recorder(|recorder| recorder.start(&Arc::new(Wanted::everything()), 0, 0));
    let frames = &mut vec![
        super_segment(&mut caller.pool, b"lost"),
        tcp_frame(&mut caller.pool, Mac([2, 9, 9, 9, 9, 9]), A, 1, b"unknown"),
    ];
    a.send(5, frames, &mut caller.pool, &mut caller.drops);
    let mut blocks = Vec::new();
    queue.take(&mut blocks);
    let got = packets(&blocks);
    let comments: Vec<&str> = got.iter().map(|packet| packet.comment.as_str()).collect();
    assert_eq!(comments, ["fabric: dropped: fabric_loss", "fabric: dropped: fabric_unknown"]);
    assert_eq!(check_tcp(&got[0].bytes).unwrap().2, b"lost");
    assert_eq!(caller.drops.iter().map(|(_, count)| count).sum::<u64>(), 2);
    let named: Vec<PortDrop> = caller.drops.since(&PortDrops::default()).iter().collect();
    assert_eq!(named, [PortDrop::FabricLoss, PortDrop::FabricUnknown]);
}
