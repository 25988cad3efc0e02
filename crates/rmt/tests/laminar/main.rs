//! `p4/laminar.p4` on the interpreter.
mod extensions;
mod frames;
mod ipv6;
mod pair;
mod receive;
mod resources;
mod shared_log;
mod stream;
mod table_5_1;
mod transmit;

use frames::{Dma, Seg, parse_dma};
use rmt::interp::{EgressOut, EntryKey, Machine, Queued, Session};
use std::path::Path;

/// Ports and numbers of `p4/headers.p4`.
pub(crate) const PORT_HOST: u16 = 64;
pub(crate) const PORT_CONTROL: u16 = 65;
pub(crate) const PORT_CPU: u16 = 66;
pub(crate) const PORT_TIMER: u16 = 6;
/// The flow's network port.
pub(crate) const PORT_NET: u16 = 8;
pub(crate) const FLOW: u16 = 5;
pub(crate) const CONTEXT: u16 = 3;
/// Where this end's transmit stream begins.
pub(crate) const ISS: u32 = 5000;
/// What is added to the pipeline's clock, where it writes timestamps.
pub(crate) const CLOCK: u32 = 77;
pub(crate) const BASE: u32 = 0x10_0000;

pub(crate) fn program(defines: &[&str]) -> rmt::Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4/laminar.p4");
    let defines: Vec<(String, String)> = defines.iter().map(|d| (d.to_string(), String::new())).collect();
    rmt::load(&path, &defines).unwrap_or_else(|list| {
        let list: Vec<String> = list.iter().map(|d| d.to_string()).collect();
        panic!("{}", list.join("\n"))
    })
}

/// One flow that expects byte 1000 of the peer in a window of `avail` bytes.
pub(crate) fn machine(avail: u32) -> Machine {
    with_state(1000, avail, &[])
}

pub(crate) fn with_state(rx_next: u32, avail: u32, defines: &[&str]) -> Machine {
    let mut m = Machine::new(program(defines).program);
    m.set_session(1, Session { port: 0, truncate: 0 });
    let key = |v: u32| EntryKey::Exact(v as u128);
    let four_tuple = [key(0x0a00_0002), key(0x0a00_0001), key(4000), key(80)];
    let delta = rx_next.wrapping_neg();
    let timely = defines.contains(&"TIMELY");
    let mut args = vec![FLOW as u128, CONTEXT as u128, PORT_NET as u128, delta as u128, 0xffff, BASE as u128];
    args.extend(timely.then_some(1));
    args.push(2);
    m.table_add("flows", &four_tuple, 0, "rx_flow", &args).unwrap();
    let four_tuple = [EntryKey::Exact(frames::PEER_V6), EntryKey::Exact(frames::OWN_V6), key(4000), key(80)];
    m.table_add("flows_v6", &four_tuple, 0, "rx_flow", &args).unwrap();
    let owner = [key(FLOW as u32), key(CONTEXT as u32)];
    m.table_add("contexts", &owner, 0, "tx_flow", &[ISS as u128, PORT_NET as u128, 2]).unwrap();
    let mut headers = vec![0x0200_0000_0002, 0x0200_0000_0001, 0x0a00_0001, 0x0a00_0002, 80, 4000];
    headers.extend(timely.then_some(CLOCK as u128));
    headers.push(3);
    m.table_add("headers", &[key(FLOW as u32)], 0, "addresses", &headers).unwrap();
    m.table_add("grants", &[key(FLOW as u32)], 0, "granted", &[CONTEXT as u128, 3000, 8000]).unwrap();
    let flow = FLOW as u32;
    for name in ["rx_window", "rx_advertised"] {
        m.register_write(name, flow, &[rx_next as u128, rx_next.wrapping_add(avail) as u128]).unwrap();
    }
    if timely {
        m.register_write("ts_recent", flow, &[0, rx_next as u128]).unwrap();
    }
    m.register_write("tx_window", flow, &[ISS as u128, ISS as u128]).unwrap();
    m.register_write("tx_edge", flow, &[ISS as u128 + 60_000]).unwrap();
    m.register_write("tx_largest", flow, &[60_000]).unwrap();
    m
}

/// A frame of the network through both halves; the pseudo segment is left to the caller.
pub(crate) fn receive(m: &mut Machine, seg: &Seg) -> EgressOut {
    let ingress = m.ingress(PORT_NET, &seg.frame());
    let queued = ingress.queued.expect("ingress drops no segment of a flow");
    assert_eq!(queued.port, PORT_HOST);
    m.egress(&queued)
}

/// What the host sees of a segment, and the pseudo segment.
pub(crate) fn delivered(out: EgressOut) -> (Option<Dma>, Option<Queued>) {
    assert!(out.mirrored.len() <= 1);
    let dma = out.sent.map(|s| {
        assert_eq!(s.port, PORT_HOST);
        parse_dma(&s.data)
    });
    (dma, out.mirrored.into_iter().next())
}

/// A pseudo segment through egress: the acknowledgement that it becomes.
pub(crate) fn acknowledge(m: &mut Machine, pseudo: &Queued) -> Option<Seg> {
    assert_eq!(pseudo.port, PORT_NET);
    let out = m.egress(pseudo);
    assert!(out.mirrored.is_empty(), "pseudo segments make no pseudo segments");
    out.sent.map(|s| Seg::parse(&s.data))
}

/// One of the host's descriptors through both halves.
pub(crate) fn from_host(m: &mut Machine, port: u16, dma: &Dma, payload: &[u8]) -> Option<Vec<u8>> {
    let frame = [dma.bytes(), payload.to_vec()].concat();
    let queued = m.ingress(port, &frame).queued?;
    let out = m.egress(&queued);
    assert!(out.mirrored.is_empty());
    out.sent.map(|s| s.data)
}

pub(crate) fn register(m: &Machine, name: &str) -> Vec<u32> {
    m.register_read(name, FLOW as u32).unwrap().iter().map(|w| *w as u32).collect()
}
