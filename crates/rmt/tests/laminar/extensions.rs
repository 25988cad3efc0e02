//! The extensions on the interpreter, and what each costs: lines of P4 and resources, as in `docs/P4.md`.
use super::*;
use std::path::PathBuf;

const ECE: u8 = 0x40;
const ACK_DELAYED: u8 = 0x08;
const CHALLENGE: u8 = 0x40;
/// Of the chip's 20: what is left is for operators' own extensions.
const MOST_STAGES: usize = 15;
const ALL: [&str; 4] = ["SACK", "DELAYED_ACKS", "TIMELY", "SHARED_LOG"];

fn block(left: u32, right: u32) -> Vec<u8> {
    [&[1, 1, 5, 10], &left.to_be_bytes()[..], &right.to_be_bytes()[..]].concat()
}

#[test]
fn a_block_reports_the_interval() {
    let mut m = with_state(1000, 10_000, &["SACK"]);
    let (_, first) = delivered(receive(&mut m, &Seg::data(1500, 500)));
    let (_, second) = delivered(receive(&mut m, &Seg::data(2000, 100)));
    for pseudo in [first, second] {
        let ack = acknowledge(&mut m, &pseudo.unwrap()).unwrap();
        assert_eq!((ack.ack, ack.options), (1000, block(1500, 2100)));
    }
    let (_, merge) = delivered(receive(&mut m, &Seg::data(1000, 500)));
    // Before the merge: nothing is out of order any more, though rx_next has not reached the end.
    let (_, again) = delivered(receive(&mut m, &Seg::data(1000, 500)));
    assert_eq!(acknowledge(&mut m, &again.unwrap()).unwrap().options, []);
    let ack = acknowledge(&mut m, &merge.unwrap()).unwrap();
    assert_eq!((ack.ack, ack.options), (2100, vec![]));
}

#[test]
fn two_segments_for_an_acknowledgement() {
    let mut m = with_state(1000, 10_000, &["DELAYED_ACKS"]);
    let (dma, ack) = delivered(receive(&mut m, &Seg::data(1000, 100)));
    assert_eq!((dma.unwrap().flags, ack), (ACK_DELAYED, None));
    let (dma, ack) = delivered(receive(&mut m, &Seg::data(1100, 100)));
    assert_eq!((dma.unwrap().flags, acknowledge(&mut m, &ack.unwrap()).unwrap().ack), (0, 1200));
    let marked = Seg { ecn: 3, ..Seg::data(1200, 100) };
    let (_, ack) = delivered(receive(&mut m, &marked));
    assert_eq!(acknowledge(&mut m, &ack.unwrap()).unwrap().flags & ECE, ECE);
    assert_eq!(register(&m, "unacknowledged"), [0]);
}

#[test]
fn what_egress_drops_acknowledges_nothing() {
    let mut m = with_state(1000, 10_000, &["DELAYED_ACKS"]);
    receive(&mut m, &Seg::data(1000, 100));
    assert_eq!(register(&m, "unacknowledged"), [1]);
    let tx = Dma { length: 10, ..Dma::to(1) };
    assert_eq!(from_host(&mut m, PORT_HOST, &tx, &[1; 10]), None, "no credits");
    assert_eq!(register(&m, "unacknowledged"), [1]);
    m.register_write("tx_credits", FLOW as u32, &[100]).unwrap();
    assert!(from_host(&mut m, PORT_HOST, &tx, &[1; 10]).is_some());
    assert_eq!(register(&m, "unacknowledged"), [0]);
}

#[test]
fn timestamps_and_round_trip_times() {
    let mut m = with_state(1000, 10_000, &["TIMELY"]);
    m.register_write("tx_credits", FLOW as u32, &[1000]).unwrap();
    m.register_write("ts_clock", 0, &[10]).unwrap();
    m.set_time(7_000);
    // The frame's timestamps are 1 and 2; what is sent carries the clock and the echo.
    receive(&mut m, &Seg { stamps: true, ..Seg::data(1000, 100) });
    // Nothing is acknowledged yet: the pseudo segment was not run.
    assert_eq!(register(&m, "ts_recent"), [1, 1000]);
    let payload = [1; 100];
    let tx = Dma { length: 100, sum: frames::sum(&payload), ..Dma::to(1) };
    let sent = Seg::parse(&from_host(&mut m, PORT_HOST, &tx, &payload).unwrap());
    assert_eq!(sent.options, [1, 1, 8, 10, 0, 0, 0, 10 + CLOCK as u8, 0, 0, 0, 1]);
    assert_eq!(register(&m, "timed"), [ISS + 100, 7_001]);
    m.set_time(57_000);
    receive(&mut m, &Seg { stamps: true, ack: ISS + 50, seq: 1100, ..Seg::default() });
    assert_eq!(register(&m, "rtt"), [0], "not all of the timed segment is acknowledged");
    receive(&mut m, &Seg { stamps: true, ack: ISS + 100, seq: 1100, ..Seg::default() });
    assert_eq!((register(&m, "rtt"), register(&m, "timed")), (vec![50_000], vec![ISS + 100, 0]));
    assert!(m.register_read("rtt", FLOW as u32 + 1).unwrap() == [0]);
    // What is sent again is not timed, and ends the timing of what was sent before.
    let next = Dma { position: 100, ..tx };
    from_host(&mut m, PORT_HOST, &next, &payload).unwrap();
    assert_eq!(register(&m, "timed"), [ISS + 200, 57_001]);
    from_host(&mut m, PORT_HOST, &next, &payload).unwrap();
    assert_eq!(register(&m, "timed"), [ISS + 200, 0]);
}

// RFC 7323 sections 4.3 and 5.3: TS.Recent, Last.ACK.sent.
#[test]
fn an_old_timestamp_changes_nothing() {
    let mut m = with_state(1000, 10_000, &["TIMELY"]);
    let stamped = |seq, len| Seg { stamps: true, ..Seg::data(seq, len) };
    let (_, pseudo) = delivered(receive(&mut m, &stamped(1000, 100)));
    assert_eq!(acknowledge(&mut m, &pseudo.unwrap()).unwrap().ack, 1100);
    assert_eq!(register(&m, "ts_recent"), [1, 1100]);
    // The frame's timestamp is 1.
    m.register_write("ts_recent", FLOW as u32, &[2, 1100]).unwrap();
    let state = |m: &Machine| {
        ["rx_window", "rx_advertised", "tx_window", "tx_edge", "rx_ooo", "ts_recent"].map(|name| register(m, name))
    };
    let before = state(&m);
    for seq in [1100, 1200, 1050] {
        let (dma, pseudo) = delivered(receive(&mut m, &Seg { window: 20_000, ack: ISS, ..stamped(seq, 100) }));
        let dma = dma.expect("the host answers");
        assert_eq!((dma.flags, dma.length, dma.una, pseudo.is_none()), (CHALLENGE, 0, ISS, true));
        assert_eq!(state(&m), before);
    }
    // Not old, but from outside of any window: the clock stays.
    m.register_write("ts_recent", FLOW as u32, &[0, 1100]).unwrap();
    for seq in [1101, 1100u32.wrapping_sub(65_536), 1u32 << 31] {
        receive(&mut m, &stamped(seq, 100));
        assert_eq!(register(&m, "ts_recent"), [0, 1100], "{seq}");
    }
    receive(&mut m, &stamped(1100u32.wrapping_sub(65_535), 100));
    assert_eq!(register(&m, "ts_recent"), [1, 1100]);
}

#[test]
fn what_is_sent_acknowledges_for_timestamps_too() {
    let mut m = with_state(1000, 10_000, &["TIMELY"]);
    m.register_write("tx_credits", FLOW as u32, &[1000]).unwrap();
    from_host(&mut m, PORT_HOST, &Dma { length: 10, edge: 1300, ..Dma::to(1) }, &[1; 10]).unwrap();
    assert_eq!(register(&m, "ts_recent"), [0, 1300]);
    from_host(&mut m, PORT_HOST, &Dma { edge: 1400, ..Dma::to(2) }, &[]).unwrap();
    assert_eq!(register(&m, "ts_recent"), [0, 1400]);
    from_host(&mut m, PORT_HOST, &Dma { edge: 1200, ..Dma::to(2) }, &[]).unwrap();
    assert_eq!(register(&m, "ts_recent"), [0, 1400], "it only moves forward");
}

#[test]
fn a_flow_with_timestamps_takes_no_segment_without() {
    let mut m = with_state(1000, 10_000, &["TIMELY", "SACK"]);
    let port = |m: &mut Machine, seg: Seg| receive::port_of(m, &seg.frame()).map(|(port, ..)| port);
    assert_eq!(port(&mut m, Seg::data(1000, 100)), Some(PORT_CPU));
    assert_eq!(port(&mut m, Seg { stamps: true, ..Seg::data(1000, 100) }), Some(PORT_HOST));
}

#[test]
fn everything_in_one_header() {
    let mut m = with_state(1000, 10_000, &ALL);
    let (_, pseudo) = delivered(receive(&mut m, &Seg { stamps: true, ..Seg::data(1500, 500) }));
    let ack = acknowledge(&mut m, &pseudo.unwrap()).unwrap();
    assert_eq!((ack.options.len(), &ack.options[12..]), (24, &block(1500, 2000)[..]));
}

// ---- what they cost ----

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Lines with code: of the extension's own file, and between `#ifdef NAME` and `#endif` elsewhere.
fn lines(name: &str) -> usize {
    let own = format!("{}.p4", name.to_lowercase());
    let mut count = 0;
    for entry in std::fs::read_dir(folder("p4")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let is_own = path.file_name().is_some_and(|file| file == own.as_str());
        let mut inside = is_own;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
            match line {
                _ if line == format!("#ifdef {name}") => inside = true,
                "#endif" if !is_own => inside = false,
                _ => count += inside as usize,
            }
        }
    }
    count
}

#[test]
fn every_combination_is_a_pipeline() {
    for some in 0..1 << ALL.len() {
        let chosen = ALL.iter().enumerate().filter(|(bit, _)| some >> bit & 1 != 0).map(|(_, name)| *name);
        // As the engine runs it, too.
        for more in [&[][..], &["NOTIFY_ACKS", "PORT_CHECKSUMS"]] {
            let defines: Vec<&str> = chosen.clone().chain(more.iter().copied()).collect();
            let report = program(&defines).report;
            assert!(report.stages.len() <= MOST_STAGES && report.warnings.is_empty(), "{defines:?}: {report}");
        }
    }
}

#[test]
fn the_page_has_lines_and_resources_of_each() {
    let page = std::fs::read_to_string(folder("docs/P4.md")).unwrap();
    let share = |report: &rmt::Report, name| report.shares().iter().find(|s| s.0 == name).unwrap().1;
    let rows = ALL.iter().map(|name| (*name, vec![*name])).chain([("all", ALL.to_vec())]);
    for (name, defines) in rows {
        let report = program(&defines).report;
        let lines = match name {
            "all" => ALL.iter().map(|name| self::lines(name)).sum(),
            name => lines(name),
        };
        let row = format!(
            "| `{name}` | {lines} | {} | {:.1} % | {:.1} % | {:.1} % |",
            report.stages.len(),
            share(&report, "SRAM"),
            share(&report, "Stateful ALU"),
            share(&report, "TCAM"),
        );
        assert!(page.contains(&row), "docs/P4.md has no row that begins with\n{row}");
        assert!(report.stages.len() <= MOST_STAGES && report.warnings.is_empty(), "{report}");
    }
}
