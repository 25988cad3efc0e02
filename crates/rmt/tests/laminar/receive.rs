//! Reassembly (thesis 5.3.1) and the exception path.
use super::*;

const DMA_RX: u8 = 4;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// The host's view and the acknowledgement of one segment.
fn pass(m: &mut Machine, seg: &Seg) -> (Option<Dma>, Option<Seg>) {
    let (dma, pseudo) = delivered(receive(m, seg));
    let ack = pseudo.and_then(|p| acknowledge(m, &p));
    (dma, ack)
}

#[test]
fn in_order_is_placed_notified_and_acknowledged() {
    let mut m = machine(10_000);
    let (dma, ack) = pass(&mut m, &Seg::data(1000, 300));
    let dma = dma.unwrap();
    assert_eq!((dma.op, dma.flow, dma.context), (DMA_RX, FLOW, CONTEXT));
    assert_eq!((dma.address, dma.length, dma.skip, dma.position), (BASE, 300, 0, 1300));
    assert_eq!(dma.payload, vec![0xab; 300]);
    let ack = ack.unwrap();
    assert_eq!((ack.ack, ack.seq, ack.flags), (1300, ISS, ACK));
    assert_eq!(ack.window as u32, (10_000 - 300) >> 7);
    assert_eq!(ack.ecn, 0, "pure acknowledgements are not ECN-capable");
}

#[test]
fn timestamps_are_skipped() {
    let mut m = machine(10_000);
    let (dma, ack) = pass(&mut m, &Seg { stamps: true, ..Seg::data(1000, 64) });
    assert_eq!((dma.unwrap().length, ack.unwrap().ack), (64, 1064));
}

#[test]
fn addresses_wrap_at_the_mask() {
    let mut m = with_state(u32::MAX - 100, 200_000, &[]);
    m.register_write("rx_window", FLOW as u32, &[70_000 - 101, 200_000]).unwrap();
    let (dma, _) = pass(&mut m, &Seg::data(70_000 - 101, 10));
    assert_eq!(dma.unwrap().address, BASE + 70_000 % 65_536);
}

#[test]
fn sequence_numbers_wrap() {
    let mut m = with_state(0xffff_ff00, 10_000, &[]);
    let (_, ack) = pass(&mut m, &Seg::data(0xffff_ff00, 0x200));
    assert_eq!(ack.unwrap().ack, 0x100);
    assert_eq!(register(&m, "rx_window"), [0x100, 0xffff_ff00u32.wrapping_add(10_000)]);
    let (_, ack) = pass(&mut m, &Seg::data(0xffff_ff00, 0x200));
    assert_eq!(ack.unwrap().ack, 0x100, "a duplicate from before the wrap");
}

#[test]
fn duplicates_are_answered_but_not_delivered() {
    let mut m = machine(10_000);
    pass(&mut m, &Seg::data(1000, 500));
    let (dma, ack) = pass(&mut m, &Seg::data(1100, 400));
    assert_eq!((dma, ack.unwrap().ack), (None, 1500));
    assert_eq!(register(&m, "rx_window")[0], 1500);
}

#[test]
fn partial_duplicates_are_trimmed() {
    let mut m = machine(10_000);
    pass(&mut m, &Seg::data(1000, 500));
    let (dma, ack) = pass(&mut m, &Seg::data(1200, 500));
    let dma = dma.unwrap();
    assert_eq!((dma.skip, dma.length, dma.position, dma.address), (300, 500, 1700, BASE + 200));
    assert_eq!(ack.unwrap().ack, 1700);
}

#[test]
fn out_of_window_changes_nothing() {
    let mut m = machine(1000);
    for seg in [Seg::data(1500, 501), Seg::data(1000, 1001), Seg::data(900_000, 10)] {
        let (dma, ack) = pass(&mut m, &seg);
        let ack = ack.unwrap();
        assert_eq!((dma, ack.ack, ack.window), (None, 1000, 1000 >> 7));
        assert_eq!((register(&m, "rx_window"), register(&m, "rx_ooo")), (vec![1000, 2000], vec![0, 0]));
    }
    let (dma, ack) = pass(&mut m, &Seg::data(1000, 1000));
    assert_eq!(dma.unwrap().length, 1000, "exactly the window");
    assert_eq!(ack.unwrap().window, 0);
}

#[test]
fn out_of_order_is_placed_at_its_address() {
    let mut m = machine(10_000);
    let (dma, ack) = pass(&mut m, &Seg::data(2000, 100));
    let dma = dma.unwrap();
    assert_eq!((dma.address, dma.length, dma.position), (BASE + 1000, 100, 1000));
    assert_eq!(ack.unwrap().ack, 1000);
    // A second interval can't be tracked: neither placed nor remembered.
    for seq in [1500, 3000] {
        let (dma, ack) = pass(&mut m, &Seg::data(seq, 100));
        assert_eq!((dma, ack.unwrap().ack), (None, 1000));
        assert_eq!(register(&m, "rx_ooo"), [1000, 1100]);
    }
    // Extended at either end, and by a segment that covers it whole.
    for (seq, len, interval) in [(2100, 50, [1000, 1150]), (1900, 100, [900, 1150]), (1800, 1000, [800, 1800])] {
        assert!(pass(&mut m, &Seg::data(seq, len)).0.is_some());
        assert_eq!(register(&m, "rx_ooo"), interval);
    }
}

#[test]
fn the_host_gets_a_closed_gap_ahead_of_the_merge() {
    let mut m = machine(10_000);
    pass(&mut m, &Seg::data(1500, 500));
    let (dma, pseudo) = delivered(receive(&mut m, &Seg::data(1000, 500)));
    assert_eq!(dma.unwrap().position, 2000);
    assert_eq!(register(&m, "rx_window")[0], 1500, "not merged yet");
    let ack = acknowledge(&mut m, &pseudo.unwrap()).unwrap();
    assert_eq!((ack.ack, ack.window as u32), (2000, (10_000 - 1000) >> 7));
    assert_eq!((register(&m, "rx_window")[0], register(&m, "rx_ooo")), (2000, vec![0, 0]));
}

#[test]
fn a_lost_merge_is_made_up_for() {
    let mut m = machine(10_000);
    pass(&mut m, &Seg::data(1500, 500));
    delivered(receive(&mut m, &Seg::data(1000, 500)));
    // The sender repeats what was not acknowledged; that is in order, and covers the interval.
    let (dma, ack) = pass(&mut m, &Seg::data(1500, 500));
    assert_eq!((dma.unwrap().position, ack.unwrap().ack), (2000, 2000));
    assert_eq!(register(&m, "rx_ooo"), [0, 0]);
}

#[test]
fn a_late_or_repeated_pseudo_segment_does_no_harm() {
    let mut m = machine(10_000);
    pass(&mut m, &Seg::data(1500, 500));
    let (_, pseudo) = delivered(receive(&mut m, &Seg::data(1000, 500)));
    let pseudo = pseudo.unwrap();
    acknowledge(&mut m, &pseudo).unwrap();
    assert_eq!(acknowledge(&mut m, &pseudo), None, "discarded");
    assert_eq!(register(&m, "rx_window"), [2000, 11_000]);
}

#[test]
fn acknowledgements_without_payload_are_silent() {
    let mut m = machine(10_000);
    assert_eq!(pass(&mut m, &Seg::data(1000, 0)), (None, None));
    // But keepalives and zero-window probes are answered.
    let (dma, ack) = pass(&mut m, &Seg::data(999, 0));
    assert_eq!((dma, ack.unwrap().ack), (None, 1000));
}

#[test]
fn congestion_marks_are_echoed_one_by_one() {
    let mut m = machine(10_000);
    let (_, marked) = pass(&mut m, &Seg { ecn: 3, ..Seg::data(1000, 10) });
    let (_, plain) = pass(&mut m, &Seg { ecn: 2, ..Seg::data(1010, 10) });
    assert_eq!((marked.unwrap().flags, plain.unwrap().flags), (ACK | ECE, ACK));
}

#[test]
fn consumed_bytes_open_the_window_and_advertise_it() {
    let mut m = machine(1000);
    pass(&mut m, &Seg::data(1000, 1000));
    let sync = Dma { position: 250, edge: 2000, ..Dma::to(2) };
    let update = from_host(&mut m, PORT_HOST, &sync, &[]).map(|f| Seg::parse(&f)).unwrap();
    assert_eq!((update.ack, update.window, update.seq), (2000, 250 >> 7, ISS));
    assert_eq!((register(&m, "rx_window"), register(&m, "rx_advertised")), (vec![2000, 2250], vec![2000, 2250]));
}

#[test]
fn a_large_window_saturates() {
    let mut m = machine(0x0100_0000);
    let (_, ack) = pass(&mut m, &Seg::data(1000, 1));
    assert_eq!(ack.unwrap().window, 0xffff);
}

pub(crate) fn port_of(m: &mut Machine, frame: &[u8]) -> Option<(u16, bool, Vec<u8>)> {
    m.ingress(PORT_NET, frame).queued.map(|q| (q.port, q.bypass, q.data))
}

#[test]
fn exceptions_reach_the_control_plane_unchanged() {
    let mut m = machine(10_000);
    let other_port = |mut f: Vec<u8>| {
        f[37] += 1;
        f
    };
    let with_options = |mut f: Vec<u8>| {
        f[46] = 6 << 4;
        f
    };
    let frames = [
        Seg { flags: 0x02, ..Seg::data(1000, 0) }.frame(),
        Seg { flags: 0x11, ..Seg::data(1000, 5) }.frame(),
        Seg { flags: 0x14, ..Seg::data(1000, 0) }.frame(),
        Seg { flags: 0x00, ..Seg::data(1000, 9) }.frame(),
        Seg { flags: 0x30, ..Seg::data(1000, 9) }.frame(),
        other_port(Seg::data(1000, 10).frame()),
        with_options(Seg::data(1000, 10).frame()),
        [vec![0xff; 12], vec![8, 6], vec![0; 28]].concat(),
    ];
    for frame in frames {
        assert_eq!(port_of(&mut m, &frame), Some((PORT_CPU, true, frame.clone())));
    }
    assert_eq!(register(&m, "rx_window"), [1000, 11_000]);
}

#[test]
fn frames_of_the_control_plane_reach_the_network() {
    let mut m = machine(10_000);
    let frame = [vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6], vec![0; 28]].concat();
    let sent = |m: &mut Machine| m.process(&[(PORT_CPU, &frame)]).sent;
    assert_eq!(sent(&mut m), []);
    m.table_set_default("from_cpu", "forward", &[PORT_NET as u128]).unwrap();
    assert_eq!(sent(&mut m), [rmt::interp::Sent { port: PORT_NET, data: frame.clone() }]);
    m.table_add("from_cpu", &[EntryKey::Exact(0x0200_0000_0002)], 0, "forward", &[9]).unwrap();
    assert_eq!(sent(&mut m)[0].port, 9);
    // A segment that the control plane gives back, without its FIN, is acknowledged to the network.
    let queued = m.ingress(PORT_CPU, &Seg::data(1000, 5).frame()).queued.unwrap();
    let (dma, pseudo) = delivered(m.egress(&queued));
    assert_eq!((dma.unwrap().length, acknowledge(&mut m, &pseudo.unwrap()).unwrap().ack), (5, 1005));
}

#[test]
fn bad_frames_are_dropped() {
    let mut m = machine(10_000);
    let mut checksum = Seg::data(1000, 10).frame();
    checksum[24] ^= 1;
    assert_eq!(port_of(&mut m, &checksum), None);
    // A total length that does not hold its own headers, with a right checksum.
    for (stamps, total) in [(false, 20u16), (false, 39), (true, 40), (true, 51)] {
        let mut short = Seg { stamps, ..Seg::data(1000, 10) }.frame();
        short[16..18].copy_from_slice(&total.to_be_bytes());
        short[24..26].copy_from_slice(&[0, 0]);
        let sum = !frames::sum(&short[14..34]);
        short[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(port_of(&mut m, &short), None, "{stamps} {total}");
    }
    for len in 0..54 {
        let cut = &Seg::data(1000, 10).frame()[..len];
        assert!(m.ingress(PORT_NET, cut).queued.is_none_or(|q| q.bypass), "{len} bytes");
    }
}

/// Bytes of an interval whose gap is closed may have been read and their room reused, before the merge. Old copies of
/// them must not be placed again.
#[test]
fn what_the_application_may_have_read_is_not_placed_again() {
    let mut m = machine(1000);
    pass(&mut m, &Seg::data(1500, 500));
    let (_, merge) = delivered(receive(&mut m, &Seg::data(1000, 500)));
    let sync = Dma { position: 1000, edge: 2000, ..Dma::to(2) };
    from_host(&mut m, PORT_HOST, &sync, &[]).unwrap();
    let (dma, _) = delivered(receive(&mut m, &Seg::data(2000, 600)));
    assert_eq!(dma.map(|d| (d.skip, d.position)), Some((0, 2600)));
    let (dma, ack) = pass(&mut m, &Seg::data(1600, 100));
    assert_eq!((dma, ack.map(|a| a.ack)), (None, Some(2600)), "an old copy; its pseudo segment merges all");
    // The merge that was on its way all the time has nothing left to do.
    assert_eq!(acknowledge(&mut m, &merge.unwrap()), None);

    let mut m = machine(2000);
    pass(&mut m, &Seg::data(1500, 500));
    delivered(receive(&mut m, &Seg::data(1000, 500)));
    let (dma, _) = delivered(receive(&mut m, &Seg::data(1900, 300)));
    assert_eq!(dma.map(|d| (d.skip, d.length)), Some((100, 300)), "only what is behind the interval");
    let (dma, _) = delivered(receive(&mut m, &Seg::data(1500, 200)));
    let dma = dma.unwrap();
    assert!(dma.skip >= dma.length as u32, "in order, but all of it is there");
    assert_eq!(dma.position, 2200);
}
