//! Transmission, acknowledgements, credits (thesis 5.3.2).
use super::*;

const TX: u8 = 1;
const GRANT: u8 = 3;
const FAST_RETRANSMIT: u8 = 1;
const DUP_ACK: u8 = 0x20;
const BAD_ACK: u8 = 2;
const CHALLENGE: u8 = 0x40;
const TIMEOUT: u8 = 4;

fn credit(m: &mut Machine, bytes: u128) {
    m.register_write("tx_credits", FLOW as u32, &[bytes]).unwrap();
}

fn send(m: &mut Machine, position: u32, payload: &[u8]) -> Option<Seg> {
    send_flags(m, position, payload, 0x08)
}

fn send_flags(m: &mut Machine, position: u32, payload: &[u8], flags: u8) -> Option<Seg> {
    let sum = frames::sum(payload);
    let dma = Dma { flags, position, length: payload.len() as u16, sum, ..Dma::to(TX) };
    from_host(m, PORT_HOST, &dma, payload).map(|f| Seg::parse(&f))
}

/// `DMA_TX_NEW`.
const TX_NEW: u8 = 0x02;

/// An acknowledgement without payload: what is reported to the host.
fn ack(m: &mut Machine, ack: u32) -> Option<Dma> {
    delivered(receive(m, &Seg { seq: 1000, ack, ..Seg::default() })).0
}

#[test]
fn payload_leaves_with_its_sequence_number() {
    let mut m = machine(10_000);
    credit(&mut m, 5000);
    let seg = send_flags(&mut m, 0, b"hello world", TX_NEW | 0x08).unwrap();
    assert_eq!((seg.seq, seg.ack, seg.flags, seg.payload.as_slice()), (ISS, 1000, 0x18, &b"hello world"[..]));
    assert_eq!((seg.window as u32, seg.ecn), (10_000 >> 7, 2));
    let again = send(&mut m, 11, b"!").unwrap();
    assert_eq!((again.seq, again.ecn), (ISS + 11, 0), "the host does not mark it as new");
    assert_eq!(register(&m, "tx_window"), [ISS, ISS + 12]);
    assert_eq!(register(&m, "tx_credits"), [5000 - 12]);
}

#[test]
fn fin_takes_a_sequence_number() {
    let mut m = machine(10_000);
    credit(&mut m, 5000);
    let seg = send_flags(&mut m, 0, b"end", 0x01).unwrap();
    assert_eq!(seg.flags, 0x11);
    assert_eq!(register(&m, "tx_window"), [ISS, ISS + 4]);
}

#[test]
fn an_application_can_not_forge_flags() {
    let mut m = machine(10_000);
    credit(&mut m, 5000);
    assert_eq!(send_flags(&mut m, 0, b"x", 0xff).unwrap().flags, 0x99);
}

#[test]
fn nothing_leaves_without_credits() {
    let mut m = machine(10_000);
    assert_eq!(send(&mut m, 0, b"x"), None);
    credit(&mut m, 1);
    assert!(send(&mut m, 0, b"xyz").is_some(), "the last credit lets one segment through");
    assert_eq!(register(&m, "tx_credits"), [0]);
    assert_eq!(send(&mut m, 3, b"x"), None);
}

#[test]
fn the_peers_window_is_respected() {
    let mut m = machine(10_000);
    credit(&mut m, 100_000);
    m.register_write("tx_edge", FLOW as u32, &[ISS as u128 + 10]).unwrap();
    assert!(send(&mut m, 0, &[1; 10]).is_some());
    assert_eq!(send(&mut m, 10, &[1; 1]), None);
    // An acknowledgement opens it: 5 of scale 2 are 20 bytes.
    delivered(receive(&mut m, &Seg { seq: 1000, ack: ISS + 10, window: 5, ..Seg::default() }));
    assert_eq!(register(&m, "tx_edge"), [ISS + 30]);
    assert!(send(&mut m, 10, &[1; 20]).is_some());
    // A delayed one from before does not shrink it.
    delivered(receive(&mut m, &Seg { seq: 1000, ack: ISS, window: 5, ..Seg::default() }));
    assert_eq!(register(&m, "tx_edge"), [ISS + 30]);
}

#[test]
fn a_window_counts_only_with_a_valid_acknowledgement() {
    let mut m = machine(10_000);
    credit(&mut m, 10_000);
    send(&mut m, 0, &[1; 100]);
    // A duplicate from an earlier connection of the same ports, and bytes that were never sent.
    for (position, ack) in [(1000, ISS.wrapping_sub(70_000)), (1007, ISS + 101)] {
        let dma = delivered(receive(&mut m, &Seg { ack, window: 65_535, ..Seg::data(position, 7) })).0.unwrap();
        assert_eq!(register(&m, "tx_edge"), [ISS + 60_000]);
        assert_eq!(dma.edge, ISS, "nor does the host get it");
    }
}

#[test]
fn only_the_owner_of_a_flow_can_use_it() {
    let mut m = machine(10_000);
    credit(&mut m, 100);
    let dma = Dma { context: CONTEXT + 1, length: 1, ..Dma::to(TX) };
    assert_eq!(from_host(&mut m, PORT_HOST, &dma, &[0]), None);
    let dma = Dma { position: 1000, ..Dma::to(GRANT) };
    assert_eq!(from_host(&mut m, PORT_HOST, &dma, &[]), None, "applications do not grant");
    assert_eq!(register(&m, "tx_credits"), [100]);
}

#[test]
fn acknowledged_bytes_move_una_and_stale_retransmissions_die() {
    let mut m = machine(10_000);
    credit(&mut m, 10_000);
    send(&mut m, 0, &[1; 100]);
    assert_eq!(ack(&mut m, ISS + 60), None, "acknowledgements are silent until the next grant");
    assert_eq!(register(&m, "tx_window"), [ISS + 60, ISS + 100]);
    assert_eq!(send(&mut m, 0, &[1; 100]), None, "begins before una");
    assert!(send(&mut m, 60, &[1; 40]).is_some(), "a retransmission");
    assert_eq!(register(&m, "tx_window"), [ISS + 60, ISS + 100]);
}

#[test]
fn acknowledging_what_was_never_sent_is_reported() {
    let mut m = machine(10_000);
    credit(&mut m, 10_000);
    send(&mut m, 0, &[1; 100]);
    let dma = ack(&mut m, ISS + 101).unwrap();
    assert_eq!((dma.flags, dma.length), (BAD_ACK | CHALLENGE, 0));
    assert_eq!(register(&m, "tx_window"), [ISS, ISS + 100]);
    // Its payload is not taken; the host sends the peer an ACK with both ends' positions, within its limit (RFC 5961
    // sections 5.2 and 7).
    let seg = Seg { ack: ISS + 101, ..Seg::data(1000, 7) };
    let (dma, pseudo) = delivered(receive(&mut m, &seg));
    assert_eq!(dma.map(|dma| (dma.flags, dma.length, dma.position)), Some((BAD_ACK | CHALLENGE, 0, 1000)));
    assert!(pseudo.is_none());
    assert_eq!(register(&m, "rx_window")[0], 1000);
}

// RFC 9293 section 3.10.7.4: what is not acceptable is answered and dropped, with its acknowledgement.
#[test]
fn what_lies_outside_the_window_acknowledges_nothing() {
    let mut m = machine(10_000);
    credit(&mut m, 10_000);
    send(&mut m, 0, &[1; 100]);
    let (_, pseudo) = delivered(receive(&mut m, &Seg::data(1000, 500)));
    acknowledge(&mut m, &pseudo.unwrap()).unwrap();
    assert_eq!(register(&m, "rx_advertised"), [1500, 11_000]);
    let state = |m: &Machine| ["rx_window", "tx_window", "tx_edge", "dup_ack_count"].map(|name| register(m, name));
    let before = state(&m);
    // Below and beyond, with payload and without.
    for (seq, len) in [(900, 50), (1400, 99), (11_001, 50), (1400, 0), (1499, 0), (11_001, 0), (1500 + (1 << 31), 9)] {
        let seg = Seg { ack: ISS + 100, window: 65_535, ..Seg::data(seq, len) };
        let (dma, pseudo) = delivered(receive(&mut m, &seg));
        assert!(
            dma.is_some() != pseudo.is_some(),
            "{seq} is answered, by the host within its limit or by the pipeline"
        );
        assert!(dma.is_none_or(|dma| (dma.una, dma.edge, dma.length) == (ISS, ISS, 0)), "{seq}");
        assert_eq!(state(&m), before, "{seq}");
    }
    // At either end: one that was overtaken, and one that finds the window closed.
    receive(&mut m, &Seg { ack: ISS + 40, ..Seg::data(1400, 100) });
    assert_eq!(register(&m, "tx_window")[0], ISS + 40);
    receive(&mut m, &Seg { ack: ISS + 100, ..Seg::data(11_000, 1) });
    assert_eq!(register(&m, "tx_window")[0], ISS + 100);
}

#[test]
fn what_is_sent_moves_the_window_below_which_nothing_is_taken() {
    let mut m = machine(10_000);
    credit(&mut m, 10_000);
    let dma = Dma { length: 10, edge: 1300, ..Dma::to(TX) };
    from_host(&mut m, PORT_HOST, &dma, &[1; 10]).unwrap();
    assert_eq!(register(&m, "rx_advertised"), [1300, 11_000]);
    from_host(&mut m, PORT_HOST, &Dma { edge: 1400, position: 50, ..Dma::to(2) }, &[]).unwrap();
    assert_eq!((register(&m, "rx_advertised"), register(&m, "rx_window")), (vec![1400, 11_050], vec![1000, 11_050]));
    from_host(&mut m, PORT_HOST, &Dma { edge: 1200, ..Dma::to(2) }, &[]).unwrap();
    assert_eq!(register(&m, "rx_advertised"), [1400, 11_050], "it only moves forward");
}

#[test]
fn a_very_old_acknowledgement_is_left_to_the_host() {
    let mut m = machine(10_000);
    let old = |behind: u32| Seg { ack: ISS.wrapping_sub(behind), ..Seg::data(1000, 7) };
    let (dma, pseudo) = delivered(receive(&mut m, &old(60_001)));
    assert_eq!(dma.map(|dma| (dma.flags, dma.length, dma.position)), Some((CHALLENGE, 0, 1000)));
    assert!(pseudo.is_none());
    let (dma, pseudo) = delivered(receive(&mut m, &old(60_000)));
    assert_eq!(dma.map(|dma| (dma.flags, dma.length, dma.position)), Some((0, 7, 1007)));
    assert!(pseudo.is_some());
}

#[test]
fn three_duplicates_retransmit_and_halve_the_credits() {
    let mut m = machine(10_000);
    credit(&mut m, 9000);
    send(&mut m, 0, &[1; 1000]);
    ack(&mut m, ISS + 100);
    credit(&mut m, 8000);
    let window = Seg { seq: 1000, ack: ISS + 100, ..Seg::default() };
    // The first of them moved the window's edge; these repeat it.
    assert_eq!(delivered(receive(&mut m, &window)).0, None);
    assert_eq!(delivered(receive(&mut m, &window)).0, None);
    let dma = delivered(receive(&mut m, &window)).0.unwrap();
    assert_eq!((dma.flags, dma.una, dma.credits), (FAST_RETRANSMIT, ISS + 100, 3840));
    assert_eq!(register(&m, "tx_credits"), [3840], "half, to the four bits of the math unit");
    assert_eq!(delivered(receive(&mut m, &window)).0, None, "the fourth does not repeat it");
    ack(&mut m, ISS + 200);
    assert_eq!(register(&m, "dup_ack_count"), [0]);
}

/// The window's scale rounds, so that the edge seems to be here and there. A peer's acknowledgements of 1,460 bytes
/// each with a scale of 3 advertise it by 4 bytes less every second time.
#[test]
fn what_the_scale_rounds_off_hides_no_duplicate() {
    let mut m = machine(10_000);
    credit(&mut m, 9000);
    send(&mut m, 0, &[1; 1000]);
    ack(&mut m, ISS + 100);
    let rounded = Seg { seq: 1000, ack: ISS + 103, window: 14_999, ..Seg::default() };
    delivered(receive(&mut m, &rounded));
    let notes = [(); 3].map(|()| delivered(receive(&mut m, &rounded)).0.map(|dma| dma.flags));
    assert_eq!(notes, [None, None, Some(FAST_RETRANSMIT)]);
    let all = Seg { ack: ISS + 1000, window: 14_000, ..rounded };
    delivered(receive(&mut m, &all));
    delivered(receive(&mut m, &all));
    assert_eq!(register(&m, "dup_ack_count"), [0], "nothing is outstanding");
}

#[test]
fn what_is_not_a_duplicate() {
    let mut m = machine(10_000);
    credit(&mut m, 9000);
    send(&mut m, 0, &[1; 1000]);
    ack(&mut m, ISS + 100);
    let base = Seg { seq: 1000, ack: ISS + 100, ..Seg::default() };
    delivered(receive(&mut m, &Seg { window: 15_100, ..base.clone() }));
    delivered(receive(&mut m, &Seg { payload: vec![1], ..base.clone() }));
    delivered(receive(&mut m, &Seg { ack: ISS + 50, ..base.clone() }));
    assert_eq!(register(&m, "dup_ack_count"), [0], "another window, payload, an old acknowledgement");
    ack(&mut m, ISS + 1000);
    delivered(receive(&mut m, &Seg { ack: ISS + 1000, ..base }));
    assert_eq!(register(&m, "dup_ack_count"), [0], "nothing outstanding");
}

#[test]
fn bytes_under_congestion_marks_are_counted() {
    let mut m = machine(10_000);
    credit(&mut m, 9000);
    send(&mut m, 0, &[1; 1000]);
    ack(&mut m, ISS + 100);
    delivered(receive(&mut m, &Seg { seq: 1000, ack: ISS + 350, flags: 0x50, ..Seg::default() }));
    assert_eq!(register(&m, "ecn_bytes"), [250]);
}

#[test]
fn the_timer_grants_credits_up_to_a_limit() {
    let mut m = machine(10_000);
    let tick = [0, 0, 0, 0, 0, FLOW as u8];
    for credits in [3000, 6000, 9000, 9000] {
        let queued = m.ingress(PORT_TIMER, &tick).queued.unwrap();
        assert_eq!(queued.port, PORT_HOST);
        let dma = delivered(m.egress(&queued)).0.unwrap();
        assert_eq!((dma.op, dma.context, dma.flow), (GRANT, CONTEXT, FLOW));
        assert_eq!((dma.una, dma.edge, dma.credits), (ISS, ISS + 60_000, credits));
    }
    assert!(m.ingress(PORT_TIMER, &[0, 0, 0, 0, 0, 9]).queued.is_none(), "a flow without a rate is paused");
}

#[test]
fn a_timeout_reaches_the_host() {
    let mut m = machine(10_000);
    let dma = Dma { flags: TIMEOUT, position: 1460, edge: 1, ..Dma::to(GRANT) };
    let data = from_host(&mut m, PORT_CONTROL, &dma, &[]).unwrap();
    let dma = parse_dma(&data);
    assert_eq!((dma.op, dma.flags, dma.una, dma.credits), (GRANT, TIMEOUT, ISS, 1460));
}

#[test]
fn acknowledgements_can_be_made_audible() {
    let mut m = with_state(1000, 10_000, &["NOTIFY_ACKS"]);
    credit(&mut m, 10_000);
    send(&mut m, 0, &[1; 100]);
    let dma = ack(&mut m, ISS + 60).unwrap();
    assert_eq!((dma.una, dma.edge, dma.length), (ISS + 60, ISS + 60 + 60_000, 0));
    // A window that moves alone, once.
    let update = Seg { seq: 1000, ack: ISS + 60, window: 15_001, ..Seg::default() };
    let dma = delivered(receive(&mut m, &update)).0.unwrap();
    assert_eq!((dma.una, dma.edge), (ISS + 60, ISS + 60 + 60_004));
    // From the second time on it is a duplicate: the first two are reported to the host, for limited transmit (RFC
    // 3042).
    let flags = [(); 4].map(|()| delivered(receive(&mut m, &update)).0.map(|dma| dma.flags));
    assert_eq!(flags, [Some(DUP_ACK), Some(DUP_ACK), Some(FAST_RETRANSMIT), None]);
    assert_eq!(register(&m, "dup_ack_count"), [4]);
}
