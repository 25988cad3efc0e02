//! Segments over IPv6, both ways: the same flow, with headers of the other version.
use super::*;
use frames::{OWN_V6, PEER_V6};

const ECE: u8 = 0x40;
const ALL: [&str; 3] = ["SACK", "DELAYED_ACKS", "TIMELY"];

/// As [`with_state`]; what the flow sends goes over IPv6.
fn over_v6(defines: &[&str]) -> Machine {
    let mut m = with_state(1000, 10_000, defines);
    let mut headers = vec![0x0200_0000_0002, 0x0200_0000_0001, OWN_V6, PEER_V6, 80, 4000];
    headers.extend(defines.contains(&"TIMELY").then_some(CLOCK as u128));
    headers.push(3);
    m.table_add("headers", &[EntryKey::Exact(FLOW as u128)], 0, "addresses_v6", &headers).unwrap();
    m
}

fn data(seq: u32, len: usize) -> Seg {
    Seg { v6: true, ..Seg::data(seq, len) }
}

#[test]
fn payload_gets_its_place_and_an_acknowledgement() {
    let mut m = over_v6(&[]);
    let (dma, pseudo) = delivered(receive(&mut m, &data(1000, 100)));
    let dma = dma.unwrap();
    assert_eq!((dma.length, dma.skip, dma.position, dma.payload), (100, 0, 1100, vec![0xab; 100]));
    let ack = acknowledge(&mut m, &pseudo.unwrap()).unwrap();
    assert!(ack.v6);
    assert_eq!((ack.seq, ack.ack, ack.flags, ack.ecn, ack.payload.len()), (ISS, 1100, 0x10, 0, 0));
    // Out of order, and what closes the gap.
    let (_, pseudo) = delivered(receive(&mut m, &data(1300, 100)));
    assert_eq!(acknowledge(&mut m, &pseudo.unwrap()).unwrap().ack, 1100);
    let (_, merge) = delivered(receive(&mut m, &data(1100, 200)));
    assert_eq!(acknowledge(&mut m, &merge.unwrap()).unwrap().ack, 1400);
}

#[test]
fn what_is_sent_has_right_lengths_sums_and_marks() {
    let mut m = over_v6(&[]);
    m.register_write("tx_credits", FLOW as u32, &[1000]).unwrap();
    let payload = [7; 99];
    let tx = Dma { flags: 2, length: 99, sum: frames::sum(&payload), ..Dma::to(1) };
    let sent = Seg::parse(&from_host(&mut m, PORT_HOST, &tx, &payload).unwrap());
    assert!(sent.v6);
    assert_eq!((sent.seq, sent.ack, sent.ecn, sent.payload), (ISS, 1000, 2, payload.to_vec()));
    let marked = Seg { ecn: 3, ack: ISS + 99, ..data(1000, 10) };
    let (_, pseudo) = delivered(receive(&mut m, &marked));
    assert_eq!(acknowledge(&mut m, &pseudo.unwrap()).unwrap().flags, 0x10 | ECE);
    assert_eq!(register(&m, "tx_window"), [ISS + 99, ISS + 99]);
}

#[test]
fn options_of_both_kinds_are_in_the_length() {
    let mut m = over_v6(&ALL);
    let (_, pseudo) = delivered(receive(&mut m, &Seg { stamps: true, ..data(1500, 500) }));
    let ack = acknowledge(&mut m, &pseudo.unwrap()).unwrap();
    assert!(ack.v6);
    assert_eq!((ack.ack, ack.options.len(), &ack.options[12..16]), (1000, 24, &[1, 1, 5, 10][..]));
    let (dma, _) = delivered(receive(&mut m, &Seg { stamps: true, ..data(1000, 77) }));
    assert_eq!(dma.unwrap().length, 77);
}

#[test]
fn lengths_that_cannot_be_are_dropped_unknown_flows_passed() {
    let mut m = over_v6(&["TIMELY"]);
    let port = |m: &mut Machine, frame: &[u8]| receive::port_of(m, frame).map(|(port, ..)| port);
    let with = |seg: &Seg, at: usize, value: u8| {
        let mut frame = seg.frame();
        frame[at] = value;
        frame
    };
    let stamped = Seg { stamps: true, ..data(1000, 0) };
    for len in 0..32 {
        assert_eq!(port(&mut m, &with(&stamped, 19, len)), None, "{len}");
    }
    assert_eq!(port(&mut m, &stamped.frame()), Some(PORT_HOST));
    // An extension header, another version, another flow, FIN.
    for (at, value) in [(20, 60), (14, 0x50), (53, 9), (55, 1), (67, 0x11)] {
        assert_eq!(port(&mut m, &with(&stamped, at, value)), Some(PORT_CPU), "{at}");
    }
}
