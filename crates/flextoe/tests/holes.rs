//! Several holes at once: what a receiver reports of them, and what a sender sends again.
mod common;

use common::Config;
use common::solo::{ACK, FLOW, Seg, Solo, seg};
use engine::{DropReason, stream};
use wire::tcp::Timestamps;

/// A connection with segments of 1000 bytes, of which so many are sent.
fn sender(segments: u32) -> Solo {
    let config = Config { timestamps: false, mss: 1000, wscale: 0, tx_bytes: 65536, ..Config::clean(1) };
    let mut solo = Solo::new(config);
    solo.receive(&[Seg { window: 65535, ..seg(1000, 1000, ACK, 0) }]);
    solo.command(stream::Command::Window(FLOW, 60_000));
    assert_eq!(solo.write(1000 * segments, false).len() as u32, segments);
    solo
}

/// An acknowledgement with up to three blocks.
fn ack(ack: u32, blocks: &[(u32, u32)]) -> Seg {
    let block = |at: usize| blocks.get(at).copied();
    Seg { sack: block(0), more: [block(1), block(2)], window: 65535, ..seg(1000, ack, ACK, 0) }
}

fn places(sent: &[Seg]) -> Vec<(u32, u32)> {
    sent.iter().map(|s| (s.seq, s.len)).collect()
}

// Checks RFC 2018: 4-a, 4-b, 4-c, 4-d.
#[test]
fn a_receiver_reports_several_intervals_latest_first() {
    let mut solo = Solo::plain();
    let sent = solo.receive(&[1100, 1300, 1500, 1700].map(|seq| seg(seq, 1000, ACK, 100)));
    assert_eq!((sent[0].sack, sent[0].more), (Some((1100, 1200)), [None; 2]));
    assert_eq!((sent[3].sack, sent[3].more), (Some((1700, 1800)), [Some((1500, 1600)), Some((1300, 1400))]));
    let sent = solo.receive(&[seg(1200, 1000, ACK, 100)]);
    assert_eq!((sent[0].sack, sent[0].more), (Some((1100, 1400)), [Some((1700, 1800)), Some((1500, 1600))]));
    let sent = solo.receive(&[seg(1000, 1000, ACK, 100)]);
    assert_eq!((sent[0].ack, sent[0].sack), (1400, Some((1700, 1800))));
    let sent = solo.receive(&[seg(1400, 1000, ACK, 300)]);
    assert_eq!((sent[0].ack, sent[0].sack), (1800, Some((1500, 1600))), "that came twice");
    solo.read(800);
}

// Checks RFC 2883: 4-a, 4-b, 4-c.
#[test]
fn a_receiver_reports_first_what_came_twice() {
    let mut solo = Solo::plain();
    let mut reported = |seq, len| {
        let sent = solo.receive(&[seg(seq, 1000, ACK, len)]);
        sent.first().map(|s| (s.ack, s.sack, s.more[0]))
    };
    assert_eq!(reported(1000, 100), None, "it may wait");
    assert_eq!(reported(1000, 100), Some((1100, Some((1000, 1100)), None)));
    assert_eq!(reported(1000, 50), Some((1100, Some((1000, 1050)), None)), "once more, a part of it");
    assert_eq!(reported(1200, 100), Some((1100, Some((1200, 1300)), None)));
    assert_eq!(reported(1210, 50), Some((1100, Some((1210, 1260)), Some((1200, 1300)))), "within what is kept");
    assert_eq!(reported(1280, 100), Some((1100, Some((1280, 1300)), Some((1200, 1380)))), "partly within it");
    assert_eq!(reported(1050, 100), Some((1150, Some((1050, 1100)), Some((1200, 1380)))), "partly old");
    assert_eq!(reported(1150, 50), Some((1380, None, None)));
}

// Checks RFC 2883: 5-a.
// Checks RFC 3708: 3-a, 3-b.
#[test]
fn a_loss_that_was_none_is_undone() {
    let mut solo = sender(10);
    assert_eq!(places(&solo.receive(&[ack(1000, &[(2000, 5000)])])), [(1000, 1000)]);
    let figures = |solo: &Solo| {
        let figures = solo.side.stats.read();
        (figures.fast_retransmits, figures.dsack_dups, figures.undone)
    };
    assert!(solo.receive(&[ack(11_000, &[])]).is_empty());
    assert!(solo.receive(&[ack(11_000, &[(15_000, 16_000)])]).is_empty(), "that was never sent");
    assert_eq!(figures(&solo), (1, 0, 0));
    assert!(solo.receive(&[ack(11_000, &[(1000, 2000)])]).is_empty());
    assert_eq!(figures(&solo), (1, 1, 1));
    assert!(solo.receive(&[ack(11_000, &[(1000, 2000)])]).is_empty());
    assert_eq!(figures(&solo), (1, 2, 1), "that is one of the network's");
}

// Checks RFC 2883: 5-a.
#[test]
fn what_came_twice_is_no_duplicate_acknowledgement() {
    let mut solo = sender(10);
    solo.receive(&[ack(3000, &[])]);
    for _ in 0..4 {
        assert!(solo.receive(&[ack(3000, &[(2000, 3000)])]).is_empty());
    }
    let figures = solo.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.duplicate_acks, figures.dsack_dups), (0, 0, 4));
}

#[test]
fn a_receiver_keeps_32_intervals_and_drops_one_more() {
    let mut solo = Solo::plain();
    for at in 0..33 {
        solo.receive(&[seg(1100 + 100 * at, 1000, ACK, 50)]);
    }
    assert_eq!(solo.drops(DropReason::OutOfOrder), 1);
    solo.receive(&[seg(1000, 1000, ACK, 3250)]);
    assert_eq!(solo.completion(), Some((3250, 0, false)));
    solo.read(3250);
}

/// As in FlexTOE (section 3.1.3): what joins neither the stream nor the interval is lost.
#[test]
fn a_receiver_with_one_interval_drops_a_second_one() {
    let config = Config { timestamps: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..Config::clean(1) };
    let mut solo = Solo::new(Config { intervals: 1, ..config });
    solo.receive(&[seg(1100, 1000, ACK, 100), seg(1300, 1000, ACK, 100)]);
    assert_eq!(solo.drops(DropReason::OutOfOrder), 1);
    solo.receive(&[seg(1200, 1000, ACK, 100)]);
    assert_eq!(solo.drops(DropReason::OutOfOrder), 1, "it grows the interval");
    let sent = solo.receive(&[seg(1000, 1000, ACK, 100)]);
    assert_eq!((sent[0].ack, sent[0].sack), (1300, None));
    solo.read(300);
}

/// FlexTOE acknowledges every incoming packet (section 5.2), also those that are small and expected.
#[test]
fn without_delayed_acks_each_segment_is_acknowledged() {
    for delayed_acks in [true, false] {
        let mut solo = Solo::new(Config { timestamps: false, mss: 1000, delayed_acks, ..Config::clean(1) });
        let mut acks = Vec::new();
        for at in 0..4 {
            acks.extend(solo.receive(&[seg(1000 + 10 * at, 1000, ACK, 10)]).iter().map(|sent| sent.ack));
        }
        assert_eq!(acks, if delayed_acks { vec![] } else { vec![1010, 1020, 1030, 1040] });
        // An acknowledgement alone is answered by nothing, whatever is waiting.
        assert!(solo.receive(&[seg(1040, 1000, ACK, 0)]).is_empty());
    }
}

// Checks RFC 2018: 5-a, 5-b.
#[test]
fn all_holes_are_sent_again_at_once_and_nothing_else() {
    let mut solo = sender(20);
    // Segments 1, 5 and 9 (counted from 1) are lost.
    assert!(solo.receive(&[ack(1000, &[(2000, 4000)])]).is_empty(), "two segments may be out of order");
    let sent = solo.receive(&[ack(1000, &[(10_000, 13_000), (6000, 9000), (2000, 5000)])]);
    assert_eq!(places(&sent), [(1000, 1000), (5000, 1000), (9000, 1000)]);
    assert!(solo.receive(&[ack(1000, &[(10_000, 15_000)])]).is_empty(), "each once");
    assert!(solo.receive(&[ack(5000, &[(10_000, 16_000), (6000, 9000)])]).is_empty());
    assert!(solo.receive(&[ack(21_000, &[])]).is_empty());
    let figures = solo.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.retransmitted_segments, figures.sacked), (1, 3, 0));
}

/// One header entry may stand for many frames: then three duplicate acknowledgements never come (RFC 6675 section 4).
#[test]
fn one_acknowledgement_of_enough_bytes_shows_a_loss() {
    let mut solo = sender(20);
    let sent = solo.receive(&[ack(1000, &[(2000, 21_000)])]);
    assert_eq!(places(&sent), [(1000, 1000)]);
    assert_eq!(solo.side.stats.read().sacked, 19_000);
}

// Checks RFC 8985: 6.2-a, 6.2-g.
#[test]
fn a_hole_that_had_its_time_is_sent_again() {
    let mut solo = sender(3);
    assert!(solo.receive(&[ack(1000, &[(2000, 3000)])]).is_empty());
    let due = solo.side.engine.next_deadline().expect("the reordering timer");
    assert!(solo.wait(due - solo.now - 1001).is_empty() && solo.round().is_empty());
    assert_eq!(places(&solo.round()), [(1000, 1000)], "the grant that follows");
    assert!(solo.wait(100_000_000).is_empty(), "nothing came that was sent after it");
    assert!(solo.receive(&[ack(4000, &[])]).is_empty());
    let figures = solo.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.retransmitted_segments, figures.sacked), (1, 1, 0));
}

// Checks RFC 8985: 6.2-c, 6.2-d, 6.2-e.
#[test]
fn with_reordering_three_segments_are_no_loss() {
    let mut solo = sender(20);
    assert!(solo.receive(&[ack(1000, &[(2000, 3000)])]).is_empty());
    assert!(solo.receive(&[ack(3000, &[])]).is_empty(), "it was late");
    assert!(solo.receive(&[ack(3000, &[(4000, 10_000)])]).is_empty(), "and this may be");
    assert!(solo.receive(&[ack(10_000, &[])]).is_empty());
    assert!(solo.wait(100_000_000).is_empty());
    assert!(solo.receive(&[ack(10_000, &[(11_000, 16_000)])]).is_empty());
    assert!(solo.wait(100_000_000).is_empty());
    assert_eq!(places(&solo.round()), [(10_000, 1000)]);
    let figures = solo.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.retransmitted_segments), (1, 1));
}

// Checks RFC 8985: 7.3-a, 7.4-a.
#[test]
fn the_last_segment_is_sent_again_as_a_probe() {
    let mut solo = sender(2);
    assert_eq!(places(&solo.command(stream::Command::ProbeTail(FLOW))), [(2000, 1000)]);
    assert!(solo.command(stream::Command::ProbeTail(FLOW)).is_empty(), "one at a time");
    assert!(solo.receive(&[ack(3000, &[])]).is_empty());
    assert!(solo.command(stream::Command::ProbeTail(FLOW)).is_empty(), "nothing is outstanding");
    assert!(solo.receive(&[ack(3000, &[(2000, 3000)])]).is_empty());
    assert_eq!(solo.write(1000, false).len(), 1);
    assert!(solo.receive(&[ack(4000, &[])]).is_empty());
    let figures = solo.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.retransmitted_segments), (0, 1), "it was sent for nothing");
}

// Checks RFC 8985: 7.3-a, 7.4-b.
#[test]
fn a_loss_that_a_probe_has_repaired_is_one() {
    let mut solo = sender(2);
    assert_eq!(places(&solo.command(stream::Command::ProbeTail(FLOW))), [(2000, 1000)]);
    assert!(solo.receive(&[ack(3000, &[])]).is_empty());
    assert_eq!(solo.write(1000, false).len(), 1);
    assert_eq!(solo.side.stats.read().fast_retransmits, 0, "it is not decided");
    assert!(solo.receive(&[ack(4000, &[])]).is_empty());
    assert_eq!(solo.side.stats.read().fast_retransmits, 1);
}

/// The probe brings the acknowledgement that shows the others lost.
// Checks RFC 8985: 7.3-a.
#[test]
fn a_lost_end_of_several_segments_is_found_by_a_probe() {
    let mut solo = sender(6);
    assert!(solo.receive(&[ack(2000, &[])]).is_empty());
    assert_eq!(places(&solo.command(stream::Command::ProbeTail(FLOW))), [(6000, 1000)]);
    assert!(solo.receive(&[ack(2000, &[(6000, 7000)])]).is_empty());
    assert!(solo.wait(100_000_000).is_empty());
    assert_eq!(places(&solo.round()), [(2000, 1000)], "as much as came");
    solo.command(stream::Command::Window(FLOW, 42_000));
    assert_eq!(places(&solo.receive(&[ack(3000, &[(6000, 7000)])])), [(3000, 1000), (4000, 1000)], "and one more");
    assert_eq!(places(&solo.receive(&[ack(5000, &[(6000, 7000)])])), [(5000, 1000)]);
}

// Checks RFC 8985: 7.3-b.
#[test]
fn a_probe_has_new_bytes_where_there_are_some() {
    let mut solo = sender(2);
    solo.command(stream::Command::Window(FLOW, 2000));
    assert!(solo.write(5000, false).is_empty(), "the congestion window is used");
    assert_eq!(places(&solo.command(stream::Command::ProbeTail(FLOW))), [(3000, 1000)]);
    solo.receive(&[ack(4000, &[])]);
    let figures = solo.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.retransmitted_segments), (0, 0));
}

// Checks RFC 8985: 7.3-c.
#[test]
fn without_sack_only_a_lone_segment_is_probed() {
    let config = Config { sack: false, timestamps: false, mss: 1000, wscale: 0, ..Config::clean(1) };
    let mut solo = Solo::new(config);
    solo.receive(&[Seg { window: 65535, ..seg(1000, 1000, ACK, 0) }]);
    assert_eq!(solo.write(2000, false).len(), 2);
    assert!(solo.command(stream::Command::ProbeTail(FLOW)).is_empty(), "two segments");
    assert!(solo.receive(&[ack(2000, &[])]).is_empty());
    assert_eq!(places(&solo.command(stream::Command::ProbeTail(FLOW))), [(2000, 1000)]);
}

// Checks RFC 8985: 6.2-h.
#[test]
fn what_was_sent_again_and_is_lost_again_needs_no_timeout() {
    let mut solo = sender(10);
    assert_eq!(places(&solo.receive(&[ack(1000, &[(2000, 11_000)])])), [(1000, 1000)]);
    assert_eq!(solo.write(5000, false).len(), 5, "what the peer has is not in flight");
    assert_eq!(places(&solo.receive(&[ack(1000, &[(2000, 13_000)])])), [(1000, 1000)]);
    assert!(solo.receive(&[ack(1000, &[(2000, 16_000)])]).is_empty());
    assert!(solo.receive(&[ack(16_000, &[])]).is_empty());
}

#[test]
fn the_window_bounds_bytes_in_flight_in_recovery() {
    let mut solo = sender(20);
    solo.command(stream::Command::Window(FLOW, 6000));
    // In flight are seven segments that nothing is known of; the first of the lost ones goes all the same.
    let sent = solo.receive(&[ack(1000, &[(2000, 5000), (6000, 14_000)])]);
    assert_eq!(places(&sent), [(1000, 1000)]);
    let sent = solo.receive(&[ack(1000, &[(2000, 5000), (6000, 17_000)])]);
    assert_eq!(places(&sent), [(5000, 1000)]);
}

/// The end of the stream is part of what is sent again.
#[test]
fn a_lost_tail_is_sent_again_with_the_hole_before_it() {
    let mut solo = sender(4);
    assert_eq!(solo.write(2000, true).len(), 2);
    let sent = solo.receive(&[ack(1000, &[(2000, 6000)])]);
    assert_eq!(places(&sent), [(1000, 1000)]);
    let sent = solo.receive(&[ack(6000, &[])]);
    assert_eq!(places(&sent), [(6000, 1000)]);
    assert!(sent[0].flags.has(wire::tcp::Flags::FIN), "{sent:?}");
}

// Checks RFC 8985: 6.3-a.
#[test]
fn what_was_sent_just_before_a_timeout_is_not_sent_again() {
    let mut solo = sender(4);
    let recent = Some(solo.own(3000));
    assert_eq!(solo.write(2000, false).len(), 2);
    assert_eq!(places(&solo.command(stream::Command::Retransmit(FLOW, recent))), [(1000, 1000), (2000, 1000)]);
    assert!(solo.receive(&[ack(7000, &[])]).is_empty(), "it was on its way");

    let all = Some(solo.own(7000));
    assert_eq!(solo.write(4000, false).len(), 4);
    assert_eq!(places(&solo.command(stream::Command::Retransmit(FLOW, all))), [(7000, 1000)], "the first in any case");
    assert_eq!(
        places(&solo.receive(&[ack(8000, &[])])),
        [(8000, 1000), (9000, 1000), (10_000, 1000)],
        "sent before what came"
    );
    assert!(solo.receive(&[ack(11_000, &[])]).is_empty());
    assert_eq!(solo.side.stats.read().retransmitted_segments, 6);
}

/// After a timeout all is sent again from the front, but for what the peer reports that it has.
#[test]
fn after_a_timeout_nothing_is_sent_twice() {
    let mut solo = sender(10);
    assert!(solo.receive(&[ack(1000, &[(8000, 9000)])]).is_empty(), "it may have overtaken");
    solo.command(stream::Command::Window(FLOW, 2000));
    assert_eq!(places(&solo.command(stream::Command::Retransmit(FLOW, None))), [(1000, 1000), (2000, 1000)]);
    let sent = solo.receive(&[ack(3000, &[(4000, 6000), (8000, 9000)])]);
    assert_eq!(places(&sent), [(3000, 1000), (6000, 1000)]);
    let sent = solo.receive(&[ack(6000, &[(8000, 9000)])]);
    assert_eq!(places(&sent), [(7000, 1000)]);
    assert_eq!(places(&solo.receive(&[ack(9000, &[])])), [(9000, 1000), (10_000, 1000)]);
    assert_eq!(solo.side.stats.read().retransmitted_segments, 7, "three of ten the peer had");
}

/// Of ten segments, all are late; the control plane leaves a window of one.
fn timed_out(solo: &mut Solo) {
    solo.command(stream::Command::Window(FLOW, 1000));
    assert_eq!(places(&solo.command(stream::Command::Retransmit(FLOW, None))), [(1000, 1000)]);
}

fn undone(solo: &Solo) -> (u8, u32) {
    let figures = solo.side.stats.read();
    (figures.undone, figures.retransmitted_segments)
}

// Checks RFC 5682: 3.1-a, 3.1-b, 3.1-c, 3.1-d.
#[test]
fn a_timeout_in_vain_is_found_by_what_was_sent_once() {
    let mut at_once = sender(10);
    timed_out(&mut at_once);
    assert!(at_once.receive(&[ack(3000, &[])]).is_empty(), "the first answer is of two segments");
    assert_eq!(undone(&at_once), (1, 1));
    assert!(at_once.receive(&[ack(11_000, &[])]).is_empty());

    let mut later = sender(10);
    timed_out(&mut later);
    later.write(5000, false);
    assert_eq!(places(&later.receive(&[ack(2000, &[])])), [(11_000, 1000), (12_000, 1000)], "two new ones");
    assert!(later.receive(&[ack(3000, &[])]).is_empty());
    assert_eq!(undone(&later), (1, 1));
    later.command(stream::Command::Window(FLOW, 60_000));
    assert_eq!(places(&later.round()), []);
    assert!(later.receive(&[ack(16_000, &[])]).is_empty());
}

// Checks RFC 5682: 3.1-c, 3.1-d.
#[test]
fn a_timeout_that_was_right_goes_on_after_two_new_segments() {
    let mut solo = sender(10);
    timed_out(&mut solo);
    solo.write(5000, false);
    assert_eq!(places(&solo.receive(&[ack(2000, &[])])), [(11_000, 1000), (12_000, 1000)]);
    assert_eq!(places(&solo.receive(&[ack(2000, &[(11_000, 12_000)])])), [(2000, 1000)]);
    assert_eq!(places(&solo.command(stream::Command::Window(FLOW, 2000))), [(3000, 1000)]);
    assert_eq!(undone(&solo).0, 0);

    let mut dry = sender(10);
    timed_out(&mut dry);
    assert_eq!(places(&dry.receive(&[ack(2000, &[])])), [(2000, 1000)], "nothing new is there");
}

/// A receiver without room for them drops the new segments: its duplicate acknowledgements have no blocks.
// Checks RFC 5682: 3.1-d.
#[test]
fn a_duplicate_without_blocks_answers_the_new_segments_too() {
    let mut solo = sender(10);
    timed_out(&mut solo);
    solo.write(5000, false);
    assert_eq!(places(&solo.receive(&[ack(2000, &[])])), [(11_000, 1000), (12_000, 1000)]);
    let wider = Seg { window: 64_000, ..ack(2000, &[]) };
    assert!(solo.receive(&[wider]).is_empty(), "a window update is no answer");
    assert_eq!(places(&solo.receive(&[wider])), [(2000, 1000)]);
    assert_eq!(undone(&solo).0, 0);
}

/// With timestamps, it is clear which transmission an acknowledgement is for: what was sent again can be measured.
// Checks RFC 6298: 3.
#[test]
fn a_retransmission_is_measured_by_its_timestamp() {
    for is_late in [false, true] {
        let config = Config { mss: 1000, wscale: 0, tx_bytes: 65536, timestamps: true, ..Config::clean(1) };
        let mut solo = Solo::new(config);
        let stamped = |s: Seg, value, echo| Seg { timestamps: Some(Timestamps { value, echo }), ..s };
        solo.receive(&[stamped(ack(1000, &[]), 1, 0)]);
        solo.command(stream::Command::Window(FLOW, 60_000));
        let first = solo.write(1000, false)[0].timestamps.unwrap().value;
        let before = solo.side.stats.read().rtt_samples;
        for _ in 0..2 {
            solo.wait(300_000_000);
            solo.command(stream::Command::Retransmit(FLOW, None));
        }
        solo.wait(300_000_000);
        let again = solo.command(stream::Command::Retransmit(FLOW, None));
        let stamp = again[0].timestamps.unwrap().value;
        assert_eq!((again.len(), stamp - first), (1, 900));
        solo.wait(5_000_000);
        solo.receive(&[stamped(ack(1000 + again[0].len, &[]), 1, if is_late { first } else { stamp })]);
        let figures = solo.side.stats.read();
        let measured = (figures.rtt_samples - before > 0).then_some(figures.rtt_ns / 1_000_000);
        // A late answer of the first transmission took as long as its timestamp is old.
        assert_eq!(measured, Some(if is_late { 905 } else { 5 }));
    }
}

// Checks RFC 3522: 3.2-a, 3.2-b.
// Checks RFC 4015: 3.2-a, 3.2-b.
#[test]
fn a_loss_that_was_none_is_found_by_a_timestamp() {
    for (is_timeout, is_late) in [(true, true), (true, false), (false, true), (false, false)] {
        let config = Config { mss: 1000, wscale: 0, tx_bytes: 65536, ..Config::clean(1) };
        let mut solo = Solo::new(Config { timestamps: true, ..config });
        let stamped = |s: Seg, value, echo| Seg { timestamps: Some(Timestamps { value, echo }), ..s };
        solo.receive(&[stamped(ack(1000, &[]), 1, 0)]);
        solo.command(stream::Command::Window(FLOW, 60_000));
        let sent = solo.write(10_000, false);
        let first = sent[0].timestamps.unwrap().value;
        solo.wait(300_000_000);
        let again = if is_timeout {
            solo.command(stream::Command::Window(FLOW, 988));
            solo.command(stream::Command::Retransmit(FLOW, None))
        } else {
            let full = sent[0].len;
            solo.receive(&[stamped(ack(1000, &[(1000 + full, 1000 + 5 * full)]), 1, first)])
        };
        assert_eq!((again.len(), again[0].seq), (1, 1000));
        let stamp = again[0].timestamps.unwrap().value;
        assert_eq!(stamp - first, 300);
        solo.wait(5_000_000);
        let echo = if is_late { first } else { stamp };
        let end = 1000 + again[0].len;
        let kept = if is_timeout { end } else { 1000 + 5 * sent[0].len };
        solo.receive(&[stamped(ack(kept, &[]), 1, echo)]);
        let figures = solo.side.stats.read();
        assert_eq!(figures.undone, is_late as u8, "{is_timeout}");
        if is_timeout && is_late {
            assert_eq!(figures.rtt_ns, 305_000_001, "the round trip of the first transmission");
        }
    }
}
