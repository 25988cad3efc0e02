//! Retransmissions by a scoreboard, and their times.
use super::*;
use proptest::prelude::*;

const UNA: Seq = Seq(u32::MAX - 1999);
const MSS: u32 = 100;

/// No round trip was measured, and no time passes: order alone counts.
const BEGIN: RackInput = RackInput { now: 0, least: u32::MAX, mss: MSS };

/// With round trips of 8 us.
fn then(now: Nanos) -> RackInput {
    RackInput { now, least: 8000, mss: MSS }
}

fn at(off: u32) -> Seq {
    UNA + off
}

/// What the peer has, from a stream of 10,000 bytes.
fn board(blocks: &[(u32, u32)]) -> Scoreboard {
    let mut board = Scoreboard::new(UNA);
    for (left, right) in blocks {
        assert!(board.note_block(at(*left), at(*right), UNA, at(10_000), &BEGIN));
    }
    board
}

/// All that is sent again now, as the engine does it.
fn resend(board: &mut Scoreboard, una: u32, max: u32) -> Vec<(u32, u32)> {
    let mut sent = Vec::new();
    board.find_lost(at(una), &BEGIN);
    while let Some((seq, len)) = board.next_lost() {
        sent.push((seq - UNA, len));
        board.note_resent(seq + len, at(max), 0);
    }
    sent
}

// Checks RFC 2018: 5-a, 5-b.
#[test]
fn only_holes_are_sent_again() {
    let mut board = board(&[(100, 400), (500, 600), (700, 900)]);
    assert!(!board.note_block(at(950), at(10_001), UNA, at(10_000), &BEGIN), "more than was sent");
    assert!(!board.note_block(at(150), at(400), UNA, at(10_000), &BEGIN), "nothing new");
    assert_eq!(board.sacked(), 600);
    assert_eq!(resend(&mut board, 0, 1100), [(0, 100), (400, 100), (600, 100)]);
    assert_eq!(board.absent(), 600, "what was sent again is in flight");
    assert!(board.note_block(at(1000), at(1100), UNA, at(10_000), &BEGIN));
    assert_eq!(resend(&mut board, 0, 1100), [(900, 100)]);
}

#[test]
fn a_hole_is_lost_by_bytes_blocks_or_three_duplicates() {
    assert_eq!(resend(&mut board(&[(100, 300)]), 0, 1000), []);
    assert_eq!(resend(&mut board(&[(100, 301)]), 0, 1000), [(0, 100)]);
    assert_eq!(resend(&mut board(&[(100, 110), (120, 130)]), 0, 1000), []);
    let three = &mut board(&[(100, 110), (120, 130), (140, 150)]);
    assert_eq!(resend(three, 0, 1000), [(0, 100), (110, 10), (130, 10)]);
    let mut counted = board(&[(100, 110), (120, 130)]);
    counted.lose_front();
    assert_eq!(counted.absent(), 120, "lost, and what the peer has");
    assert_eq!(resend(&mut counted, 0, 1000), [(0, 100), (110, 10)]);
}

// Checks RFC 8985: 6.2-a, 6.2-g.
#[test]
fn a_hole_is_lost_once_it_had_the_time_that_reordering_takes() {
    let mut board = board(&[(100, 200)]);
    assert!(!board.find_lost(UNA, &then(1000)));
    assert_eq!(board.due(), Some(3000), "a quarter of a round trip after something later came");
    assert!(board.note_block(at(300), at(400), UNA, at(1000), &then(2000)));
    assert!(!board.find_lost(UNA, &then(2000)) && !board.find_lost(UNA, &then(2999)));
    assert!(board.find_lost(UNA, &then(3000)));
    assert_eq!((board.next_lost(), board.due()), (Some((UNA, 100)), Some(4000)), "the second one has more");
    board.lose(UNA, at(1000));
    assert!(board.find_lost(UNA, &then(3100)));
    assert_eq!((board.absent(), board.due()), (400, None), "within recovery there is none, without reordering");
}

// Checks RFC 8985: 6.2-c, 6.2-d.
#[test]
fn what_comes_late_without_having_been_sent_again_was_overtaken() {
    let mut late = board(&[(100, 500)]);
    assert!(late.note_block(UNA + 40, at(100), UNA, at(1000), &then(0)));
    assert!(!late.find_lost(UNA, &then(0)), "three segments mean nothing any more");
    late.lose_front();
    assert!(!late.find_lost(UNA, &then(1999)) && late.find_lost(UNA, &then(2000)));

    let mut sent = board(&[(100, 500)]);
    sent.lose(UNA, at(1000));
    resend(&mut sent, 0, 1000);
    sent.acknowledge(UNA, at(500), true, &then(9000));
    sent.note_block(at(600), at(700), at(500), at(1000), &then(9000));
    assert!(sent.find_lost(at(500), &then(9000)), "it was sent again: that shows nothing");
}

// Checks RFC 8985: 6.2-b.
#[test]
fn what_comes_sooner_than_any_round_trip_was_sent_before() {
    for (time, lost) in [(7999, false), (8000, true)] {
        let mut board = Scoreboard::new(UNA);
        board.lose_all(UNA, at(1000));
        assert_eq!(resend(&mut board, 0, 1000), [(0, 1000)]);
        board.note_block(at(300), at(400), UNA, at(1000), &then(time));
        assert_eq!(board.find_lost(UNA, &then(time)), lost, "{time}");
    }
}

// Checks RFC 8985: 6.2-h.
#[test]
fn with_reordering_a_lost_retransmission_waits_as_well() {
    let mut board = board(&[(100, 500)]);
    board.note_block(at(40), at(100), UNA, at(1000), &then(0));
    board.lose(UNA, at(1000));
    assert!(board.find_lost(UNA, &then(0)) || board.find_lost(UNA, &then(2000)));
    board.note_resent(at(40), at(1000), 2000);
    assert!(!board.find_lost(UNA, &then(9000)), "nothing came that was sent after it");
    board.note_block(at(1000), at(1100), UNA, at(1100), &then(10_000));
    assert!(!board.find_lost(UNA, &then(10_000)) && !board.find_lost(UNA, &then(11_999)));
    assert!(board.find_lost(UNA, &then(12_000)));
    assert_eq!(board.next_lost(), Some((UNA, 40)));
}

/// A D-SACK in recovery: what was held for lost and is not yet sent again, is not.
#[test]
fn an_undone_loss_is_sent_again_no_further() {
    let mut board = board(&[(100, 500), (600, 900)]);
    board.lose(UNA, at(1000));
    assert!(board.find_lost(UNA, &BEGIN));
    board.note_resent(at(100), at(1000), 0);
    board.acknowledge(UNA, at(500), true, &then(9000));
    assert!(board.note_dsack(UNA, at(100), at(500), at(1000)));
    assert_eq!((board.is_active(), board.next_lost()), (false, None));
    assert!(!board.find_lost(at(500), &then(9000)) && board.find_lost(at(500), &then(13_000)), "it may be late");
}

#[test]
fn what_was_sent_again_is_lost_again_by_what_was_sent_after_it() {
    let mut board = board(&[(100, 500)]);
    board.begin(at(1000));
    assert_eq!(resend(&mut board, 0, 1000), [(0, 100)]);
    assert_eq!(resend(&mut board, 0, 1000), [], "the peer has nothing that was sent after it");
    board.note_block(at(100), at(1200), UNA, at(10_000), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1300), [(0, 100)]);
    board.note_block(at(100), at(1300), UNA, at(10_000), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1300), []);
}

/// RFC 6582 section 3.2 step 3, for peers that keep one range.
#[test]
fn a_filled_hole_shows_what_lay_beyond_another_one() {
    let mut one = board(&[(100, 500)]);
    one.begin(at(1000));
    resend(&mut one, 0, 1000);
    one.acknowledge(UNA, at(500), true, &BEGIN);
    assert_eq!(resend(&mut one, 500, 1100), [(500, 500)]);
    one.acknowledge(at(500), at(1000), true, &BEGIN);
    assert!(one.is_idle());

    let mut several = board(&[(100, 500), (600, 700)]);
    several.begin(at(1000));
    resend(&mut several, 0, 1000);
    several.acknowledge(UNA, at(700), true, &BEGIN);
    assert_eq!(resend(&mut several, 700, 1100), [], "it would have been reported");
}

/// RFC 6582 section 4.1: without blocks, duplicates of what was sent twice would be taken for another loss.
#[test]
fn recovery_without_sack_ends_beyond_what_was_sent() {
    for (with_sack, active) in [(true, false), (false, true)] {
        let mut board = Scoreboard::new(UNA);
        board.begin(at(1000));
        board.acknowledge(UNA, at(1000), with_sack, &BEGIN);
        assert_eq!(board.is_active(), active);
        board.acknowledge(at(1000), at(1001), with_sack, &BEGIN);
        assert!(board.is_idle());
    }
}

// Checks RFC 2018: 8-a.
#[test]
fn after_a_timeout_all_is_lost_whatever_the_peer_had() {
    let mut board = board(&[(100, 300)]);
    board.lose_all(UNA, at(1000));
    assert_eq!((board.sacked(), board.absent(), board.next_lost()), (0, 1000, Some((UNA, 1000))));
    board.note_resent(at(200), at(1000), 0);
    board.note_block(at(100), at(300), UNA, at(1000), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1000), [(0, 100), (300, 700)], "what the peer has not, the first once more");
    board.acknowledge(UNA, at(1000), true, &BEGIN);
    assert!(board.is_idle());
}

// Checks RFC 8985: 6.3-a.
#[test]
fn what_was_sent_just_before_a_timeout_is_not_lost() {
    let mut board = board(&[(100, 300)]);
    board.time_out(&Timeout { una: UNA, max: at(1000), recent: at(700), mss: MSS });
    assert_eq!((board.absent(), board.next_lost()), (700, Some((UNA, 700))), "the rest is in flight");
    assert_eq!(resend(&mut board, 0, 1000), [(0, 700)]);
    board.note_block(at(100), at(300), UNA, at(1000), &BEGIN);
    let mut answered = board.clone();
    assert_eq!(resend(&mut answered, 0, 1000), [(0, 100), (700, 300)], "these were sent before what came");
    let mut came = board.clone();
    came.acknowledge(UNA, at(1000), true, &BEGIN);
    assert!(came.is_idle(), "it was on its way");
    board.acknowledge(UNA, at(700), true, &BEGIN);
    assert_eq!((board.absent(), resend(&mut board, 700, 1000)), (0, vec![(700, 300)]));
}

// Checks RFC 8985: 6.3-a.
#[test]
fn after_a_timeout_the_later_shows_the_earlier_lost() {
    let mut board = Scoreboard::new(UNA);
    board.time_out(&Timeout { una: UNA, max: at(1000), recent: at(100), mss: MSS });
    assert_eq!(resend(&mut board, 0, 1000), [(0, 100)]);
    board.note_block(at(600), at(700), UNA, at(1000), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1000), [(100, 500)], "as without a timeout");
    board.note_block(at(1000), at(1100), UNA, at(1100), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1100), [(0, 100), (100, 500), (700, 300)]);
}

/// A timeout with so much sent, and what the peer has. The first segment is sent again, and acknowledged.
fn timed_out(blocks: &[(u32, u32)]) -> (Scoreboard, AckUpdate) {
    let mut board = board(blocks);
    board.time_out(&Timeout { una: UNA, max: at(1000), recent: at(900), mss: MSS });
    assert_eq!(board.next_lost(), Some((UNA, 900)));
    board.note_resent(at(100), at(1000), 0);
    board.note_stamp(UNA, 50);
    (board, AckUpdate { old: UNA, una: at(100), echo: None })
}

// Checks RFC 5682: 3.1-b, 3.1-c, 3.1-d.
#[test]
fn what_was_sent_once_and_comes_ends_a_timeout() {
    let judge = |una, left, right, blocks: &[(u32, u32)]| {
        let (mut board, first) = timed_out(blocks);
        board.acknowledge(UNA, at(una), true, &BEGIN);
        let update = AckUpdate { una: at(una), ..first };
        let verdict = board.check_spurious(&update);
        if verdict == Verdict::Spurious {
            return (verdict, board.is_active());
        }
        assert_eq!((verdict, board.next_lost()), (Verdict::SendNew, None), "what is new goes first");
        board.note_block(at(left), at(right), at(una), at(1100), &BEGIN);
        (board.check_spurious(&AckUpdate { old: update.una, ..update }), board.is_active())
    };
    assert_eq!(judge(101, 0, 0, &[]), (Verdict::Spurious, false), "more than was sent again");
    assert_eq!(judge(100, 500, 600, &[]), (Verdict::Spurious, false));
    assert_eq!(judge(100, 1000, 1100, &[]), (Verdict::Open, true), "sent after the timeout");
    assert_eq!(judge(100, 900, 1000, &[]), (Verdict::Open, true), "sent just before it");
    assert_eq!(judge(100, 500, 600, &[(500, 700)]), (Verdict::Open, true), "the peer had that");
    assert_eq!(judge(100, 700, 800, &[(500, 700)]), (Verdict::Spurious, false));
}

/// Only what a timeout sends again has a timestamp that no earlier transmission can have.
// Checks RFC 6298: 3.
#[test]
fn the_first_retransmission_of_a_timeout_may_be_timed() {
    let timeout = Timeout { una: UNA, max: at(1000), recent: at(900), mss: MSS };
    let mut board = board(&[]);
    board.time_out(&timeout);
    assert!(board.note_stamp(UNA, 50));
    assert!(!board.note_stamp(at(100), 51), "the next one");
    board.time_out(&timeout);
    assert!(!board.note_stamp(UNA, 51), "one with the same timestamp went before");
    board.time_out(&timeout);
    board.acknowledge(UNA, at(1000), true, &BEGIN);
    assert!(!board.is_active());
    assert!(!board.note_stamp(at(1000), 60), "that timeout is over");
}

// Checks RFC 3522: 3.2-a, 3.2-b.
#[test]
fn an_old_echo_ends_a_timeout() {
    for (echo, verdict) in [(49, Verdict::Spurious), (50, Verdict::SendNew)] {
        let (mut board, update) = timed_out(&[]);
        board.acknowledge(UNA, at(100), true, &BEGIN);
        assert_eq!(board.check_spurious(&AckUpdate { echo: Some(echo), ..update }), verdict);
        assert_eq!(board.absent(), if verdict == Verdict::Spurious { 0 } else { 800 });
    }
}

#[test]
fn a_probe_that_comes_is_no_sign_of_a_timeout_in_vain() {
    for (again, verdict) in [(true, Verdict::Open), (false, Verdict::Spurious)] {
        let mut board = Scoreboard::new(UNA);
        board.begin_probe(at(1000), again);
        board.time_out(&Timeout { una: UNA, max: at(1000), recent: at(1000), mss: MSS });
        board.note_resent(at(100), at(1000), 0);
        board.note_block(at(900), at(1000), UNA, at(1000), &BEGIN);
        assert_eq!(board.check_spurious(&AckUpdate { old: UNA, una: UNA, echo: None }), verdict);
    }
}

/// Nothing new can be sent here: only the order of what was sent again decides.
#[test]
fn a_lost_retransmission_is_found_by_a_later_one() {
    let mut board = Scoreboard::new(UNA);
    board.lose_all(UNA, at(1000));
    assert_eq!(resend(&mut board, 0, 1000), [(0, 1000)]);
    board.note_block(at(100), at(300), UNA, at(1000), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1000), [(0, 100)]);
    board.note_block(at(400), at(500), UNA, at(1000), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1000), [(300, 100)], "the first was sent after these");
    board.note_block(at(500), at(800), UNA, at(1000), &BEGIN);
    assert_eq!(resend(&mut board, 0, 1000), []);
    board.acknowledge(UNA, at(100), true, &BEGIN);
    assert_eq!(resend(&mut board, 100, 1000), [(800, 200)], "but for what was sent before the first came again");
}

proptest! {
    /// Whatever a peer reports, blocks stay in order, and only holes are ever sent again.
    #[test]
    fn blocks_and_holes_are_those_of_a_map_of_bytes(
        steps in prop::collection::vec((0..3u8, 1..400u32, 1..60u32), 1..80),
    ) {
        let (mut board, mut una, mut map) = (Scoreboard::new(UNA), 0u32, [false; 600]);
        for (step, off, len) in steps {
            match step {
                0 => {
                    let end = (una + off / 8).min(500);
                    // A peer acknowledges all that it has in a row.
                    let end = end + map[end as usize..].iter().take_while(|has| **has).count() as u32;
                    board.acknowledge(at(una), at(end), true, &BEGIN);
                    una = end;
                    map[..una as usize].fill(true);
                }
                1 => {
                    for (seq, len) in resend(&mut board, una, 600) {
                        prop_assert!(seq >= una && len > 0);
                        prop_assert!(map[seq as usize..(seq + len) as usize].iter().all(|has| !has));
                    }
                }
                _ => {
                    let (left, right) = (una + off, (una + off + len).min(600));
                    // A full board forgets; this test does not model what.
                    if left < right && board.blocks.len() < MOST {
                        board.note_block(at(left), at(right), at(una), at(600), &BEGIN);
                        map[left as usize..right as usize].fill(true);
                        if board.recover.at_or_before(at(una)) {
                            board.begin(at(600));
                        }
                    }
                }
            }
            let mut before = at(una);
            for block in board.blocks.iter() {
                prop_assert!(before.before(block.left) && block.left.at_or_before(block.right), "{:?}", board);
                prop_assert!(before.at_or_before(block.resent) && block.resent.at_or_before(block.left), "{:?}", board);
                prop_assert!(map[(block.left - UNA) as usize..(block.right - UNA) as usize].iter().all(|has| *has));
                before = block.right;
            }
            let sacked: u32 = map[una as usize..].iter().map(|has| u32::from(*has)).sum();
            prop_assert!(board.sacked() <= sacked);
        }
    }
}
