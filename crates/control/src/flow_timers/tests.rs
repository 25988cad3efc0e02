//! Flow timers: polls of one flow, with counters that a test makes up.
use super::*;
use engine::stream::ticks;
use tcp::{RtoBounds, congestion};

const MS: Nanos = MILLISECOND;
const OPTIONS: FlowOptions = FlowOptions {
    keepalive: false,
    keepalive_idle: 1000 * MS,
    keepalive_interval: 100 * MS,
    keepalive_probes: 2,
    give_up: 10_000 * MS,
    fin_timeout: 500 * MS,
    pacing_rate: 0,
    ack_delay: 50 * MS,
    tail_probe: MS,
    tail_probe_ack_delay: 0,
    slow_start_after_idle: 200 * MS,
    nagle: false,
};

fn timers() -> FlowTimers {
    let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    rtt.sample(MS);
    let enforced = Decision { cwnd: 10_000, rate: 0 };
    FlowTimers::new(0, congestion::CUBIC.start(1000, 0), rtt, enforced, Seq(0))
}

/// Polls whenever due until `stop`; returns when something other than polling was done.
fn run(
    timers: &mut FlowTimers,
    figures: &FlowFigures,
    options: &FlowOptions,
    orphan: bool,
    stop: Nanos,
) -> Vec<(u64, TimerActions)> {
    let mut done = Vec::new();
    let mut now = timers.start(0, figures, options.ack_delay, MS / 10, 1000);
    while now < stop {
        let actions = timers.poll(now, figures, options, orphan, MS / 10, 1000);
        if actions.retransmit || actions.probe || actions.failed || actions.untrack {
            done.push((now / MS, actions));
        }
        let Some(next) = actions.next.filter(|_| !actions.failed) else { break };
        assert!(next > now);
        now = next;
    }
    done
}

/// The window grows with acknowledgements in the engine, so it is not set. On a long path slow start is polled several
/// times in a round trip, for its end.
#[test]
fn slow_start_is_followed_within_a_round_trip() {
    let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    rtt.sample(80 * MS);
    let mut timers =
        FlowTimers::new(0, congestion::CUBIC.start(1000, 0), rtt, Decision { cwnd: 10_000, rate: 0 }, Seq(0));
    let mut figures = FlowFigures { outstanding: 10_000, unsent: 100_000, ..FlowFigures::default() };
    timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    let poll =
        |timers: &mut FlowTimers, now, figures: &FlowFigures| timers.poll(now, figures, &OPTIONS, false, MS / 10, 1000);
    (figures.acked_bytes, figures.snd_una, figures.grown) = (4000, 4000, 4000);
    assert_eq!(timers.cwnd(&figures), 14_000, "before the poll");
    let actions = poll(&mut timers, 82 * MS, &figures);
    assert_eq!((actions.window, actions.growth, actions.next), (None, None, Some(92 * MS)));
    assert_eq!(timers.cwnd(&figures), 14_000, "and after it");
    (figures.acked_bytes, figures.snd_una, figures.grown) = (10_000, 10_000, 10_000);
    figures.fast_retransmits = 1;
    let lost = poll(&mut timers, 102 * MS, &figures);
    assert_eq!((lost.window, lost.growth), (Some(14_000), Some(Growth::NONE)), "what has grown shrinks");
    assert_eq!(lost.next, Some(182 * MS), "after a loss, once a round trip");
}

// Checks RFC 8985: 7.2-a, 7.2-b, 7.2-c.
#[test]
fn rack_probes_a_tail_of_several_segments() {
    let mut long = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    (0..100).for_each(|_| long.sample(100 * MS));
    let figures = FlowFigures { outstanding: 5000, snd_nxt: 5000, snd_wnd: 60_000, ..FlowFigures::default() };
    let done = |rtt: RttEstimator, figures: FlowFigures, rack| {
        let enforced = Decision { cwnd: 10_000, rate: 0 };
        let mut timers = FlowTimers::new(0, congestion::CUBIC.start(1000, 0), rtt, enforced, Seq(0));
        timers.rack = rack;
        let mut now = timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
        let mut done = Vec::new();
        while done.len() < 2 {
            let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
            done.extend((actions.tail || actions.retransmit).then_some((now / MS, actions.retransmit)));
            now = actions.next.unwrap();
        }
        done
    };
    let mut short = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    short.sample(MS);
    assert_eq!(done(short.clone(), figures, true), [(3, false), (10, true)]);
    assert_eq!(done(short, figures, false), [(10, true), (30, true)]);
    // Two round trips are longer than the timeout: the probe takes its place, and it comes next.
    assert_eq!(done(long.clone(), figures, true), [(125, false), (250, true)]);
    let recovers = FlowFigures { fast_retransmits: 1, ..figures };
    assert!(done(long.clone(), recovers, true)[0].1, "a loss is being made up for");
    assert!(done(long, FlowFigures { sacked: 1000, ..figures }, true)[0].1, "the peer has something beyond a hole");
}

// Checks RFC 3708: 3.3-a.
#[test]
fn a_loss_that_was_none_gives_the_window_back() {
    let mut timers = timers();
    let mut figures = FlowFigures { outstanding: 10_000, snd_nxt: 10_000, unsent: 1000, ..FlowFigures::default() };
    timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    let poll =
        |timers: &mut FlowTimers, now, figures: &FlowFigures| timers.poll(now, figures, &OPTIONS, false, MS / 10, 1000);
    figures.fast_retransmits = 1;
    assert_eq!(poll(&mut timers, MS, &figures).window, Some(7000));
    figures.undone = 1;
    assert_eq!(poll(&mut timers, 2 * MS, &figures).window, Some(10_000));
    assert_eq!(poll(&mut timers, 3 * MS, &figures).window, None, "once");
}

// Checks RFC 9293: MUST-20, SHLD-10.
// Checks RFC 6298: 5.4, 5.5.
#[test]
fn lost_data_is_sent_again_with_backoff_until_given_up() {
    let figures = FlowFigures { outstanding: 2000, ..FlowFigures::default() };
    let done = run(&mut timers(), &figures, &OPTIONS, false, 100_000 * MS);
    let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 10_000], "each timeout twice the last");
    assert!(done[..9].iter().all(|(_, actions)| actions.retransmit) && done[9].1.failed);
    assert_eq!(done[0].1.window, Some(1000), "congestion control has had the timeout");
    assert!(done[2].1.suspect_path && !done[1].1.suspect_path);
}

/// Of two segments the first is acknowledged soon after a poll. The timer counts from then and not from the next poll.
// Checks RFC 6298: 5.3.
#[test]
fn the_timer_restarts_with_the_acknowledgement_not_the_poll() {
    let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    (0..50).for_each(|_| rtt.sample(100 * MS));
    let rto = rtt.rto().nanos();
    let enforced = Decision { cwnd: 10_000, rate: 0 };
    let mut timers = FlowTimers::new(0, congestion::DCTCP.start(1000, 0), rtt, enforced, Seq(0));
    let mut figures = FlowFigures { outstanding: 4000, snd_nxt: 4000, ..FlowFigures::default() };
    let mut now = timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    now = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000).next.unwrap();
    let acked_at = now - 90 * MS;
    (figures.snd_una, figures.acked_bytes, figures.outstanding, figures.last_rx_ns) = (1000, 1000, 3000, acked_at);
    let again = loop {
        let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
        if actions.retransmit {
            break now;
        }
        now = actions.next.unwrap();
    };
    assert_eq!((again - acked_at) / MS, rto / MS);
}

/// A path of 100 ms without any jitter. Of segments in a row one is lost: its front is sent again with the third
/// duplicate, which comes just before the timer would end. The acknowledgement of that takes a round trip.
#[test]
fn a_fast_retransmit_restarts_the_timer() {
    let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    (0..200).for_each(|_| rtt.sample(100 * MS));
    let rto = rtt.rto().nanos();
    assert_eq!(rto / MS, 125, "a quarter of the round trip for jitter that was not seen yet");
    let enforced = Decision { cwnd: 100_000, rate: 0 };
    let mut timers = FlowTimers::new(0, congestion::DCTCP.start(1000, 0), rtt, enforced, Seq(0));
    let mut figures = FlowFigures { outstanding: 90_000, snd_nxt: 90_000, ..FlowFigures::default() };
    let mut now = timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    let found_at = 99 * MS;
    let again = loop {
        if now >= found_at {
            (figures.fast_retransmits, figures.last_rx_ns) = (1, found_at);
        }
        let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
        if actions.retransmit {
            break now;
        }
        now = actions.next.unwrap();
    };
    assert_eq!((again - found_at) / MS, rto / MS);
}

/// Requests, each sent with the answer to the one before; the last one 60 ms before the poll that finds it.
// Checks RFC 6298: 5.1.
#[test]
fn the_timer_starts_with_the_segment_and_not_with_the_poll() {
    let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    (0..50).for_each(|_| rtt.sample(100 * MS));
    let rto = rtt.rto().nanos();
    let enforced = Decision { cwnd: 10_000, rate: 0 };
    let mut timers = FlowTimers::new(0, congestion::DCTCP.start(1000, 0), rtt, enforced, Seq(0));
    let mut figures =
        FlowFigures { outstanding: 2000, snd_nxt: 2000, timed_ticks: ticks(MS), ..FlowFigures::default() };
    let now = timers.start(MS, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    let answered_at = now - 60 * MS;
    (figures.snd_una, figures.acked_bytes, figures.last_rx_ns) = (2000, 2000, answered_at);
    (figures.snd_nxt, figures.timed_ticks) = (4000, ticks(answered_at));
    let mut now = now;
    let again = loop {
        let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
        if actions.retransmit {
            break now;
        }
        now = actions.next.unwrap();
    };
    assert_eq!((again - answered_at) / MS, rto / MS);
}

/// Round trips of 100 ms where 1 ms was known. The first segments are sent again too early, each is acknowledged, and
/// no round trip can be measured. The timeout must grow over them until one can.
// Checks RFC 6298: 5.5.
#[test]
fn a_path_that_became_slow_is_not_flooded_with_what_it_has() {
    let (mut timers, mut figures) = (timers(), FlowFigures::default());
    let mut again = 0;
    for segment in 0..20 {
        let begin = MS + segment * 200 * MS;
        (figures.snd_nxt, figures.outstanding) = (figures.snd_nxt + 2000, 2000);
        let mut now = begin;
        let mut clean = true;
        while now < begin + 100 * MS {
            let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
            (again, clean) = (again + actions.retransmit as u32, clean && !actions.retransmit);
            now = actions.next.unwrap();
        }
        (figures.snd_una, figures.outstanding) = (figures.snd_nxt, 0);
        figures.acked_bytes += 2000;
        if clean {
            (figures.rtt_samples, figures.rtt_ns) = (figures.rtt_samples + 1, 100 * MS as u32);
        }
        timers.poll(begin + 100 * MS, &figures, &OPTIONS, false, MS / 10, 1000);
    }
    assert!(again <= 8, "{again} retransmissions of 20 segments");
}

/// One window is lost in many places, so that nothing can be measured until it has all arrived; the next one, too.
// Checks RFC 6298: 5.5.
#[test]
fn a_backoff_ends_with_what_was_sent_first_after_the_timeout() {
    let (mut timers, mut figures) = (timers(), FlowFigures::default());
    let mut begin = MS;
    for window in 1..50 {
        (figures.snd_nxt, figures.outstanding) = (figures.snd_nxt + 8000, 8000);
        let mut now = begin;
        let timeout = loop {
            let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
            if actions.retransmit {
                break now;
            }
            now = actions.next.unwrap();
        };
        assert!(timeout - begin <= 21 * MS, "window {window}: {} ms", (timeout - begin) / MS);
        begin = timeout + MS;
        // All of the window, and a byte behind it.
        (figures.snd_nxt, figures.outstanding) = (figures.snd_nxt + 1, 0);
        (figures.snd_una, figures.last_rx_ns) = (figures.snd_nxt, begin);
        figures.acked_bytes += 8001;
        timers.poll(begin, &figures, &OPTIONS, false, MS / 10, 1000);
    }
}

/// With tens of thousands of flows there is a quarter of a second from one poll to the next, and no timeout in between.
#[test]
fn seldom_polled_flows_do_not_time_out_between_polls() {
    let figures = FlowFigures { outstanding: 2000, ..FlowFigures::default() };
    let (mut timers, mut polls, mut sent_again) = (timers(), 0, Vec::new());
    let mut now = timers.start(0, &figures, OPTIONS.ack_delay, 250 * MS, 1000);
    while now < 2000 * MS {
        let actions = timers.poll(now, &figures, &OPTIONS, false, 250 * MS, 1000);
        sent_again.extend(actions.retransmit.then_some(now / MS));
        (polls, now) = (polls + 1, actions.next.expect("it goes on"));
    }
    assert_eq!(sent_again[0], 250);
    assert!(polls <= 9, "{polls} polls in two seconds");
}

#[test]
fn a_single_segment_gets_the_time_of_a_delayed_acknowledgement() {
    let figures = FlowFigures { outstanding: 1000, ..FlowFigures::default() };
    let done = run(&mut timers(), &figures, &OPTIONS, false, 1000 * MS);
    let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [50, 70, 110, 190, 350, 670]);
}

// Checks RFC 9293: MUST-35, MUST-37, SHLD-17, SHLD-29, SHLD-30.
#[test]
fn a_closed_window_is_probed_without_end_while_the_peer_answers() {
    let mut figures = FlowFigures { unsent: 1000, ..FlowFigures::default() };
    let mut timers = timers();
    let (mut now, mut probes) = (MS, 0);
    while now < 300_000 * MS {
        let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
        assert!(!actions.failed && !actions.retransmit);
        if actions.probe {
            probes += 1;
            figures.last_rx_ns = now + 1;
        }
        now = actions.next.unwrap();
    }
    assert!((100..200).contains(&probes), "{probes}");
    assert!(run(&mut timers, &figures, &OPTIONS, true, 600_000 * MS).last().unwrap().1.failed, "but not an orphan's");
}

/// A peer that had no room for a while, and has it a moment after the program has closed.
#[test]
fn what_is_left_behind_has_its_time_from_then_on() {
    let figures = FlowFigures { outstanding: 1000, snd_nxt: 1001, ..FlowFigures::default() };
    let (mut timers, mut failed_at) = (timers(), None);
    let mut now = timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    while failed_at.is_none() {
        let actions = timers.poll(now, &figures, &OPTIONS, now >= 3000 * MS, MS / 10, 1000);
        failed_at = actions.failed.then_some(now / MS);
        now = actions.next.expect("it is polled again");
    }
    assert!((3500..3700).contains(&failed_at.expect("it is given up")), "500 ms after 3 s: {failed_at:?}");
}

/// A segment of 1,000 bytes every 100 ms, acknowledged at once: between them nothing is outstanding, data waits,
/// and nothing is wrong.
#[test]
fn a_slow_rate_is_no_closed_window() {
    let options = FlowOptions { pacing_rate: 10_000, ..OPTIONS };
    let mut timers = timers();
    timers.enforced.rate = options.pacing_rate;
    let mut figures = FlowFigures { unsent: 50_000, snd_wnd: 60_000, ..FlowFigures::default() };
    let mut now = MS;
    while figures.unsent > 0 {
        if now >= MS * 100 * (1 + Nanos::from(figures.snd_nxt / 1000)) {
            figures.unsent -= 1000;
            figures.snd_nxt += 1000;
            figures.snd_una += 1000;
            figures.acked_bytes += 1000;
        }
        let actions = timers.poll(now, &figures, &options, false, MS / 10, 1000);
        assert!(
            !actions.probe && !actions.retransmit && !actions.failed,
            "after {} bytes: {actions:?}",
            figures.snd_nxt
        );
        now = actions.next.unwrap_or(now + MS);
    }
}

// Checks RFC 6298: 5.2.
#[test]
fn a_quiet_flow_is_not_timed() {
    let done = run(&mut timers(), &FlowFigures::default(), &OPTIONS, false, 10_000 * MS);
    assert_eq!(done.len(), 1);
    assert!(done[0].1.untrack && done[0].1.next.is_none() && done[0].0 < 20);
}

// Checks RFC 9293: MUST-26, MUST-29, MUST-27.
#[test]
fn keepalive_probes_an_idle_peer_and_gives_up() {
    let options = FlowOptions { keepalive: true, ..OPTIONS };
    let done = run(&mut timers(), &FlowFigures::default(), &options, false, 100_000 * MS);
    let what: Vec<(u64, bool, bool)> = done.iter().map(|(at, actions)| (*at, actions.probe, actions.failed)).collect();
    assert_eq!(what[1..], [(1000, true, false), (1100, true, false), (1200, false, true)]);
    assert!(what[0].0 < 20, "the first one is the end of timing");
}

// Checks RFC 6298: 5.1, 5.3.
#[test]
fn acknowledgements_restart_the_timer() {
    let mut timers = timers();
    let mut figures = FlowFigures { outstanding: 1000, ..FlowFigures::default() };
    for step in 1..100 {
        figures.snd_una += 100;
        figures.acked_bytes += 100;
        let actions = timers.poll(step * 9 * MS, &figures, &OPTIONS, false, MS / 10, 1000);
        assert!(!actions.retransmit && !actions.failed);
    }
}

/// RFC 8985 section 6.2, step 5.
#[test]
fn a_hole_is_overdue_once_after_a_quarter_round_trip() {
    let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
    (0..50).for_each(|_| rtt.sample(80 * MS));
    let enforced = Decision { cwnd: 10_000, rate: 0 };
    let mut timers = FlowTimers::new(0, congestion::DCTCP.start(1000, 0), rtt, enforced, Seq(0));
    let mut figures = FlowFigures { outstanding: 3000, snd_nxt: 3000, sacked: 1000, ..FlowFigures::default() };
    timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    let poll =
        |timers: &mut FlowTimers, now, figures: &FlowFigures| timers.poll(now, figures, &OPTIONS, false, MS / 10, 1000);
    let first = poll(&mut timers, 10 * MS, &figures);
    assert_eq!((first.overdue, first.next), (false, Some(30 * MS)), "it is polled again then");
    assert!(!poll(&mut timers, 29 * MS, &figures).overdue);
    assert!(poll(&mut timers, 30 * MS, &figures).overdue);
    assert!((31..90).all(|at| !poll(&mut timers, at * MS, &figures).overdue), "once");
    // Another hole has its own time, and one that was found by duplicates needs none.
    (figures.snd_una, figures.acked_bytes) = (1000, 1000);
    assert!(!poll(&mut timers, 90 * MS, &figures).overdue);
    figures.fast_retransmits = 1;
    assert!(!poll(&mut timers, 115 * MS, &figures).overdue);
    figures.sacked = 0;
    assert!((116..160).all(|at| !poll(&mut timers, at * MS, &figures).overdue), "nothing lies beyond a hole");
}

/// RFC 8985 section 7. With round trips that were measured, what is outstanding is sent again long before the timer,
/// which allows for an acknowledgement that is held back. It is sent once, and congestion control gets no signal.
#[test]
fn the_end_of_what_was_sent_is_sent_again_once_before_the_timer() {
    let figures = FlowFigures { outstanding: 1000, snd_nxt: 1000, snd_wnd: 9000, ..FlowFigures::default() };
    // The estimator of `timers` has one round trip of 1 ms: it varies by half of that, so 3 ms are expected.
    for (figures, at) in [
        (figures, Some(3)),
        (FlowFigures { outstanding: 1001, ..figures }, None),
        (FlowFigures { sacked: 100, ..figures }, None),
        (FlowFigures { snd_wnd: 0, ..figures }, None),
    ] {
        let (mut timers, mut now, mut tails) = (timers(), 0, Vec::new());
        timers.start(now, &figures, OPTIONS.ack_delay, MS / 10, 1000);
        while now < 9 * MS {
            let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
            assert!(!actions.retransmit && actions.window.is_none(), "at {now}");
            tails.extend(actions.tail.then_some(now / MS));
            now = actions.next.unwrap();
        }
        assert!(tails.iter().copied().eq(at), "{tails:?} for {figures:?}");
        assert_eq!(timers.timeouts, 0);
    }
}

/// A peer that holds each acknowledgement back for 40 ms, as Linux does, is sent a few segments in vain, and no more.
#[test]
fn a_peer_with_late_acknowledgements_is_probed_less() {
    let (mut timers, mut now, mut probed) = (timers(), 0, Vec::new());
    let mut figures = FlowFigures { snd_wnd: 9000, ..FlowFigures::default() };
    timers.start(now, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    for exchange in 0..20 {
        (figures.outstanding, figures.timed_ticks) = (100, ticks(now));
        figures.snd_nxt += 100;
        let (sent, mut acknowledged) = (now, now + 40 * MS);
        while now < acknowledged {
            let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
            if actions.tail {
                // What comes twice is acknowledged at once.
                probed.push(exchange);
                acknowledged = now + MS;
            }
            now = actions.next.unwrap_or(now + MS).min(acknowledged);
        }
        (figures.outstanding, figures.snd_una, figures.last_rx_ns) = (0, figures.snd_nxt, now);
        figures.acked_bytes += 100;
        if probed.last() != Some(&exchange) {
            (figures.rtt_ns, figures.rtt_samples) = ((now - sent) as u32, figures.rtt_samples + 1);
        }
        timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
        now += MS;
    }
    assert_eq!(probed, [0, 1, 2, 3], "3, 6, 12 and 24 ms after the segment");
}

// Checks RFC 8985: 6.3-a.
#[test]
fn a_timeout_spares_what_was_sent_just_before_it() {
    let recent = |rack, sent_at: Nanos| {
        let mut timers = timers();
        timers.rack = rack;
        let mut figures = FlowFigures { outstanding: 2000, snd_nxt: 2000, ..FlowFigures::default() };
        let mut now = timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
        loop {
            if now >= sent_at {
                (figures.outstanding, figures.snd_nxt) = (5000, 5000);
            }
            let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
            if actions.retransmit {
                return actions.recent;
            }
            now = actions.next.unwrap();
        }
    };
    // Of round trips of 1 ms, with a timeout after 10 ms.
    assert_eq!(recent(true, 9 * MS), Some(Seq(2000)));
    assert_eq!(recent(true, 3 * MS), None, "all had its time");
    assert_eq!(recent(false, 9 * MS), None, "an engine that goes back to the first one");
}

// Checks RFC 4015: 3.2-a.
#[test]
fn a_timeout_that_was_none_leaves_no_back_off() {
    let mut timers = timers();
    let mut figures = FlowFigures { outstanding: 10_000, snd_nxt: 10_000, unsent: 1000, ..FlowFigures::default() };
    let mut now = timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    let rto = timers.rtt.rto();
    loop {
        let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
        now = actions.next.unwrap();
        if actions.retransmit {
            assert_eq!(actions.window, Some(1000));
            break;
        }
    }
    assert!(timers.rtt.rto() > rto);
    figures.undone = 1;
    let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
    assert_eq!((actions.window, timers.rtt.rto(), timers.recovers), (Some(10_000), rto, None));
}

/// Of round trips of 1 ms, with a timeout after 10 ms; 200 ms are the least idle time.
// Checks RFC 5681: 4.1-a.
#[test]
fn a_window_shrinks_while_nothing_is_sent() {
    let mut timers = timers();
    let mut figures = FlowFigures { outstanding: 10_000, snd_nxt: 10_000, ..FlowFigures::default() };
    timers.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
    let mut windows = Vec::new();
    (figures.acked_bytes, figures.snd_una, figures.grown) = (35_000, 35_000, 35_000);
    (figures.snd_nxt, figures.outstanding) = (35_000, 0);
    let mut next = Some(MS);
    while let Some(now) = next {
        let actions = timers.poll(now, &figures, &OPTIONS, false, MS / 10, 1000);
        windows.extend(actions.window.map(|window| (now / MS, window)));
        assert_eq!(actions.window, actions.window.map(|_| timers.cwnd(&figures)));
        next = actions.next;
    }
    assert_eq!(windows, [(201, 22_500), (401, 11_250), (601, 10_000)], "and no poll after that");
    assert!(!timers.tracked, "the engine reports what is sent next");
    assert_eq!(timers.policy.growth(), Growth::slow_start(congestion::MAX_WINDOW), "there was no loss");
}

#[test]
fn a_window_that_is_used_or_kept_does_not_shrink() {
    for (options, is_used) in [(OPTIONS, true), (FlowOptions { slow_start_after_idle: 0, ..OPTIONS }, false)] {
        let mut timers = timers();
        let mut figures = FlowFigures { outstanding: 1000, snd_nxt: 1000, grown: 35_000, ..FlowFigures::default() };
        let mut now = timers.start(0, &figures, options.ack_delay, MS / 10, 1000);
        for at in 0..20 {
            (figures.snd_una, figures.outstanding) = (figures.snd_nxt, 0);
            let more = if is_used || at == 0 { 1000 } else { 0 };
            figures.acked_bytes += u64::from(more);
            let actions = timers.poll(now, &figures, &options, false, MS / 10, 1000);
            assert!(actions.window.is_none_or(|window| window >= 45_000));
            figures.snd_nxt += more;
            figures.outstanding = more;
            now += 150 * MS;
        }
        assert_eq!(timers.cwnd(&figures), 45_000);
    }
}
