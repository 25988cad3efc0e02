//! What time does to an established flow: retransmission (RFC 6298), zero-window probes (RFC 9293 section 3.8.6.1),
//! keepalive (section 3.8.4), giving up (section 3.8.3), and congestion control (FlexTOE appendix D). A pure function
//! of the engine's counters: [`Pace::tick`] says what to do and when to look again.
use crate::flow_options::FlowOptions;
use engine::Nanos;
use engine::stream::FlowFigures;
use tcp::RttEstimator;
use tcp::congestion::{Controller, Decision, Sample};
use wire::Seq;

const MILLISECOND: Nanos = 1_000_000;
/// Looks in a round trip while a window follows acknowledgements.
const LOOKS_IN_SLOW_START: Nanos = 8;

/// Quiet looks at a flow before its timing stops.
const QUIET_TICKS: u32 = 2;

/// What a look remembers of the engine's counters.
#[derive(Debug, Clone, Copy)]
struct Seen {
    acked_bytes: u64,
    ecn_bytes: u64,
    snd_una: u32,
    snd_nxt: u32,
    rtt_samples: u32,
    fast_retransmits: u32,
    last_rx_ns: u64,
    timed_ns: u64,
}

impl Seen {
    fn of(figures: &FlowFigures) -> Seen {
        Seen {
            acked_bytes: figures.acked_bytes,
            ecn_bytes: figures.ecn_bytes,
            snd_una: figures.snd_una,
            snd_nxt: figures.snd_nxt,
            rtt_samples: figures.rtt_samples,
            fast_retransmits: figures.fast_retransmits,
            last_rx_ns: figures.last_rx_ns,
            timed_ns: figures.timed_ns,
        }
    }
}

/// A flow's clocks.
#[derive(Debug)]
pub(crate) struct Pace {
    pub policy: Controller,
    pub rtt: RttEstimator,
    /// The engine reports nothing new to time: this flow is looked at.
    pub tracked: bool,
    /// As last told to the engine.
    pub enforced: Decision,
    last: Seen,
    /// Retransmission or zero-window probe.
    retry_at: Option<Nanos>,
    /// When something was last acknowledged, or first waited to be.
    progress_at: Nanos,
    heard_at: Nanos,
    /// When nobody had the connection any more.
    orphan_since: Option<Nanos>,
    quiet: u32,
    probes: u32,
    /// How often it was sent again because time was up.
    pub timeouts: u32,
    /// A timeout sent something again since the last round trip was measured: all before this.
    sent_again: Option<u32>,
}

/// What a look at a flow comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tick {
    pub window: Option<u32>,
    pub rate: Option<u64>,
    pub retransmit: bool,
    pub probe: bool,
    /// The newest round-trip time, where some were measured since the last look.
    pub measured: Option<Nanos>,
    /// The connection has failed: nobody answers.
    pub failed: bool,
    /// Stop looking until the engine says that there is something.
    pub untrack: bool,
    /// Several timeouts in a row: the next hop's address may be wrong.
    pub doubt_path: bool,
    /// Look again then.
    pub next: Option<Nanos>,
}

impl Pace {
    /// Clocks of a flow that starts with everything before `snd_una` acknowledged.
    pub(crate) fn new(now: Nanos, policy: Controller, rtt: RttEstimator, enforced: Decision, snd_una: Seq) -> Pace {
        Pace {
            policy,
            rtt,
            tracked: false,
            enforced,
            last: Seen::of(&FlowFigures { snd_una: snd_una.0, snd_nxt: snd_una.0, ..FlowFigures::default() }),
            retry_at: None,
            progress_at: now,
            heard_at: now,
            orphan_since: None,
            quiet: 0,
            probes: 0,
            timeouts: 0,
            sent_again: None,
        }
    }

    /// The engine has something to time. Returns when to look first.
    // Meets RFC 6298: 5.1.
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        ack_delay: Nanos,
        interval: Nanos,
        mss: u32,
    ) -> Nanos {
        let patience = self.patience(figures, ack_delay, interval, mss);
        if !self.tracked {
            self.tracked = true;
            self.quiet = 0;
            self.progress_at = now;
            self.retry_at = Some(now + patience);
        }
        now + self.interval(interval).min(patience)
    }

    /// The retransmission timeout. A peer may hold back the acknowledgement of what is not more than one full segment
    /// (RFC 9293 section 3.8.6.3), which with short round-trip times looks like a loss; RFC 8985 section 7.2 makes the
    /// same allowance for its probes. With tens of thousands of flows it is at least the time between two looks at one
    /// of them, a quarter of a second (RFC 6298 section 2.4 asks for a whole one): otherwise each would be looked at
    /// for its timeout's sake.
    fn patience(&self, figures: &FlowFigures, ack_delay: Nanos, interval: Nanos, mss: u32) -> Nanos {
        let single = figures.outstanding > 0 && figures.outstanding <= mss;
        let rto = if single { self.rtt.rto().nanos().max(ack_delay) } else { self.rtt.rto().nanos() };
        rto.max(interval).saturating_add(self.pause(mss))
    }

    /// How long the engine waits between two segments at the flow's rate: that is no sign of a loss, or of a closed
    /// window.
    fn pause(&self, mss: u32) -> Nanos {
        (Nanos::from(mss) * 1_000_000_000).checked_div(self.enforced.rate).unwrap_or(0)
    }

    /// Looks at the counters. `interval` is the least time until the next look.
    pub(crate) fn tick(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        options: &FlowOptions,
        orphan: bool,
        interval: Nanos,
        mss: u32,
    ) -> Tick {
        let measured = self.measure(now, figures, orphan);
        let mut tick = Tick { measured, ..Tick::default() };
        // A closed connection has at least its FIN to deliver, even where its application lied about where it belongs.
        let busy = figures.outstanding > 0 || figures.unsent > 0 || orphan;
        let limit = if orphan { options.fin_timeout.min(options.give_up) } else { options.give_up };
        let patience = self.patience(figures, options.ack_delay, interval, mss);
        let timeout = busy && self.retry(now, figures, (patience, interval), limit, mss, &mut tick);
        let acked = figures.acked_bytes.wrapping_sub(self.last.acked_bytes);
        if busy || acked > 0 {
            self.control(now, figures, measured, timeout, mss, options, &mut tick);
        }
        let give_up_at = self.give_up_at(now, options, orphan);
        tick.failed = busy && now >= give_up_at;
        if busy {
            let next = now + self.interval(interval).max(self.leisure());
            tick.next = Some(next.min(self.retry_at.unwrap_or(next)).min(give_up_at).max(now + 1));
            self.quiet = 0;
        } else {
            self.rest(now, acked > 0, interval, &mut tick);
            self.keep_alive(now, options, &mut tick);
        }
        self.last = Seen::of(figures);
        tick
    }

    /// When the connection has failed, unless something is acknowledged before. What an application left behind has the
    /// whole of its shorter time from then on, however long nothing was acknowledged before.
    fn give_up_at(&mut self, now: Nanos, options: &FlowOptions, orphan: bool) -> Nanos {
        let end = self.progress_at.saturating_add(options.give_up);
        if !orphan {
            return end;
        }
        let since = *self.orphan_since.get_or_insert(now);
        end.min(self.progress_at.max(since).saturating_add(options.fin_timeout))
    }

    /// While timeouts follow each other, nobody answers and there is little to look for: a small part of the timeout
    /// is soon enough to notice that somebody does again.
    fn leisure(&self) -> Nanos {
        if self.rtt.backoffs() > 0 { (self.rtt.rto().nanos() / 16).min(100 * MILLISECOND) } else { 0 }
    }

    /// Smoothed round-trip time, but at least `least`. A part of it in slow start: the window that follows what is
    /// acknowledged should not follow it a round trip later, or it grows half as fast.
    fn interval(&self, least: Nanos) -> Nanos {
        let round = self.rtt.srtt().unwrap_or(least);
        let part = if self.policy.follows_acknowledgements() { round / LOOKS_IN_SLOW_START } else { round };
        part.max(least)
    }

    /// Takes in round-trip times and progress. Returns the newest round-trip time.
    // Meets RFC 9293: MUST-37, SHLD-17.
    // Meets RFC 6298: 5.3.
    fn measure(&mut self, now: Nanos, figures: &FlowFigures, orphan: bool) -> Option<Nanos> {
        let measured = self.newest(figures);
        if let Some(rtt) = measured {
            self.rtt.sample(rtt);
            self.sent_again = None;
        }
        if figures.snd_una != self.last.snd_una {
            // Karn's rule (RFC 6298 section 5): a backoff stays until a round trip was measured. What was acknowledged
            // may have been sent again too early, and so would be the next; with many connections that alone fills the
            // data-path. What was sent first after the last timeout is not in doubt. A sender that goes back through
            // many holes sends most of its window again before anything can be measured, and may time out once more in
            // it.
            if self.sent_again.is_none_or(|sent| Seq(sent).before(Seq(figures.snd_una))) {
                self.rtt.reset_backoff();
                self.sent_again = None;
            }
            self.progress_at = now;
            self.retry_at = None;
        }
        if figures.last_rx_ns > self.heard_at {
            self.heard_at = figures.last_rx_ns;
            self.probes = 0;
            // "The connection should be allowed to stay open as long as the receiving host answers probes" (RFC 9293
            // section 3.8.6.1), but not for a socket that is gone.
            if figures.snd_wnd == 0 && !orphan {
                self.progress_at = now;
            }
        }
        measured
    }

    /// The newest round-trip time, where some were measured since the last look.
    pub(crate) fn newest(&self, figures: &FlowFigures) -> Option<Nanos> {
        let fresh = figures.rtt_samples != self.last.rtt_samples && figures.rtt_ns > 0;
        fresh.then_some(figures.rtt_ns as Nanos)
    }

    /// When the retransmission timer that this look finds stopped was started.
    ///
    /// What was outstanding at the last look and still is was sent before it, so the acknowledgement of the rest
    /// restarted the timer (RFC 6298 section 5.3): it came not later than the last segment. Where all of that is
    /// acknowledged, the first data after it started the timer (section 5.1): the engine timed that segment, or a later
    /// one. An acknowledgement that came after that one restarted the timer.
    // Meets RFC 6298: 5.1, 5.3.
    fn restarted_at(&self, now: Nanos, figures: &FlowFigures) -> Nanos {
        let left = self.last.snd_nxt.wrapping_sub(figures.snd_una) as i32;
        let moved = figures.snd_una != self.last.snd_una;
        let heard = figures.last_rx_ns > self.last.last_rx_ns;
        let timed = figures.timed_ns != self.last.timed_ns;
        match (moved && heard, left > 0, timed) {
            (true, true, _) => figures.last_rx_ns.min(now),
            (true, false, true) => figures.timed_ns.max(figures.last_rx_ns).min(now),
            (false, false, true) => figures.timed_ns.min(now),
            _ => now,
        }
    }

    /// The retransmission timer with data outstanding, the persist timer without. True where data timed out.
    // Meets RFC 9293: MUST-20, SHLD-10, MUST-35, MUST-36, SHLD-29, SHLD-30.
    // Meets RFC 6298: 5.4, 5.5.
    fn retry(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        (patience, interval): (Nanos, Nanos),
        limit: Nanos,
        mss: u32,
        tick: &mut Tick,
    ) -> bool {
        let sent = figures.snd_nxt != self.last.snd_nxt;
        if figures.outstanding == 0 && sent {
            self.retry_at = None;
        }
        let due = *self.retry_at.get_or_insert(self.restarted_at(now, figures) + patience);
        if now < due {
            return false;
        }
        tick.retransmit = figures.outstanding > 0;
        tick.probe = !tick.retransmit;
        if tick.retransmit {
            self.sent_again = Some(figures.snd_nxt);
        }
        self.timeouts += u32::from(tick.retransmit);
        self.rtt.back_off();
        tick.doubt_path = self.rtt.backoffs() == 3;
        // Probes come often enough for a peer that answers them to count as alive.
        let longest = if tick.probe { limit / 4 } else { Nanos::MAX };
        self.retry_at = Some(now + (self.rtt.rto().nanos().max(interval) + self.pause(mss)).min(longest));
        tick.retransmit
    }

    #[allow(clippy::too_many_arguments)]
    fn control(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        rtt: Option<Nanos>,
        timeout: bool,
        mss: u32,
        options: &FlowOptions,
        tick: &mut Tick,
    ) {
        let sample = Sample {
            now,
            acked: figures.acked_bytes.wrapping_sub(self.last.acked_bytes),
            ecn_acked: figures.ecn_bytes.wrapping_sub(self.last.ecn_bytes),
            rtt,
            srtt: self.rtt.srtt(),
            losses: figures.fast_retransmits.wrapping_sub(self.last.fast_retransmits),
            timeout,
            outstanding: figures.outstanding,
            unsent: figures.unsent,
            mss,
        };
        let mut decision = self.policy.update(&sample);
        if options.pacing_rate > 0 && (decision.rate == 0 || decision.rate > options.pacing_rate) {
            decision.rate = options.pacing_rate;
        }
        tick.window = (decision.cwnd != self.enforced.cwnd).then_some(decision.cwnd);
        tick.rate = (decision.rate != self.enforced.rate).then_some(decision.rate);
        self.enforced = decision;
    }

    /// Nothing to send: after some quiet looks, timing stops.
    // Meets RFC 6298: 5.2.
    fn rest(&mut self, now: Nanos, moved: bool, interval: Nanos, tick: &mut Tick) {
        self.retry_at = None;
        self.progress_at = now;
        if !self.tracked {
            return;
        }
        self.quiet = if moved { 0 } else { self.quiet + 1 };
        if self.quiet >= QUIET_TICKS {
            self.tracked = false;
            tick.untrack = true;
        } else {
            let pause = if moved { self.interval(interval) } else { self.interval(interval).max(MILLISECOND) };
            tick.next = Some(now + pause);
        }
    }

    // Meets RFC 9293: MUST-26, MUST-29.
    fn keep_alive(&mut self, now: Nanos, options: &FlowOptions, tick: &mut Tick) {
        if !options.keepalive {
            return;
        }
        let due = |probes: u32| self.heard_at + options.keepalive_idle + probes as Nanos * options.keepalive_interval;
        if now >= due(self.probes) {
            tick.failed |= self.probes >= options.keepalive_probes;
            tick.probe = !tick.failed;
            self.probes += 1;
        }
        // A probe that came late does not hurry the next one.
        let next = due(self.probes).max(now + if tick.probe { options.keepalive_interval } else { 1 });
        tick.next = Some(tick.next.map_or(next, |earlier| earlier.min(next)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    };

    fn pace() -> Pace {
        let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
        rtt.sample(MS);
        let enforced = Decision { cwnd: 10_000, rate: 0 };
        Pace::new(0, congestion::CUBIC.start(1000, 0), rtt, enforced, Seq(0))
    }

    /// Looks whenever asked until `stop`, and gives back when something other than looking was done.
    fn run(
        pace: &mut Pace,
        figures: &FlowFigures,
        options: &FlowOptions,
        orphan: bool,
        stop: Nanos,
    ) -> Vec<(u64, Tick)> {
        let mut done = Vec::new();
        let mut now = pace.start(0, figures, options.ack_delay, MS / 10, 1000);
        while now < stop {
            let tick = pace.tick(now, figures, options, orphan, MS / 10, 1000);
            if tick.retransmit || tick.probe || tick.failed || tick.untrack {
                done.push((now / MS, tick));
            }
            let Some(next) = tick.next.filter(|_| !tick.failed) else { break };
            assert!(next > now);
            now = next;
        }
        done
    }

    /// On a long path a window that is opening is looked at several times in a round trip, and doubles with it.
    #[test]
    fn a_window_that_opens_follows_what_is_acknowledged_within_a_round_trip() {
        let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
        rtt.sample(80 * MS);
        let mut pace = Pace::new(0, congestion::CUBIC.start(1000, 0), rtt, Decision { cwnd: 10_000, rate: 0 }, Seq(0));
        let mut figures = FlowFigures { outstanding: 10_000, unsent: 100_000, ..FlowFigures::default() };
        pace.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
        let look =
            |pace: &mut Pace, now, figures: &FlowFigures| pace.tick(now, figures, &OPTIONS, false, MS / 10, 1000);
        (figures.acked_bytes, figures.snd_una) = (4000, 4000);
        let tick = look(&mut pace, 82 * MS, &figures);
        assert_eq!((tick.window, tick.next), (Some(14_000), Some(92 * MS)));
        (figures.acked_bytes, figures.snd_una) = (10_000, 10_000);
        assert_eq!(look(&mut pace, 92 * MS, &figures).window, Some(20_000));
        figures.fast_retransmits = 1;
        assert_eq!(look(&mut pace, 102 * MS, &figures).next, Some(182 * MS), "after a loss, once a round trip");
    }

    // Checks RFC 9293: MUST-20, SHLD-10.
    // Checks RFC 6298: 5.4, 5.5.
    #[test]
    fn lost_data_is_sent_again_with_backoff_until_given_up() {
        let figures = FlowFigures { outstanding: 2000, ..FlowFigures::default() };
        let done = run(&mut pace(), &figures, &OPTIONS, false, 100_000 * MS);
        let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 10_000], "each timeout twice the last");
        assert!(done[..9].iter().all(|(_, tick)| tick.retransmit) && done[9].1.failed);
        assert_eq!(done[0].1.window, Some(1000), "congestion control heard of the timeout");
        assert!(done[2].1.doubt_path && !done[1].1.doubt_path);
    }

    /// Of two segments the first is acknowledged soon after a look. The timer counts from then and not from the next
    /// look.
    // Checks RFC 6298: 5.3.
    #[test]
    fn the_timer_restarts_with_the_acknowledgement_and_not_with_the_look() {
        let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
        (0..50).for_each(|_| rtt.sample(100 * MS));
        let rto = rtt.rto().nanos();
        let enforced = Decision { cwnd: 10_000, rate: 0 };
        let mut pace = Pace::new(0, congestion::DCTCP.start(1000, 0), rtt, enforced, Seq(0));
        let mut figures = FlowFigures { outstanding: 4000, snd_nxt: 4000, ..FlowFigures::default() };
        let mut now = pace.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
        now = pace.tick(now, &figures, &OPTIONS, false, MS / 10, 1000).next.unwrap();
        let acked_at = now - 90 * MS;
        (figures.snd_una, figures.acked_bytes, figures.outstanding, figures.last_rx_ns) = (1000, 1000, 3000, acked_at);
        let again = loop {
            let tick = pace.tick(now, &figures, &OPTIONS, false, MS / 10, 1000);
            if tick.retransmit {
                break now;
            }
            now = tick.next.unwrap();
        };
        assert_eq!((again - acked_at) / MS, rto / MS);
    }

    /// Requests, each sent with the answer to the one before; the last one 60 ms before the look that finds it.
    // Checks RFC 6298: 5.1.
    #[test]
    fn the_timer_starts_with_the_segment_and_not_with_the_look() {
        let mut rtt = RttEstimator::new(RtoBounds::new(10 * MS, 60_000 * MS));
        (0..50).for_each(|_| rtt.sample(100 * MS));
        let rto = rtt.rto().nanos();
        let enforced = Decision { cwnd: 10_000, rate: 0 };
        let mut pace = Pace::new(0, congestion::DCTCP.start(1000, 0), rtt, enforced, Seq(0));
        let mut figures = FlowFigures { outstanding: 2000, snd_nxt: 2000, timed_ns: MS, ..FlowFigures::default() };
        let now = pace.start(MS, &figures, OPTIONS.ack_delay, MS / 10, 1000);
        let answered_at = now - 60 * MS;
        (figures.snd_una, figures.acked_bytes, figures.last_rx_ns) = (2000, 2000, answered_at);
        (figures.snd_nxt, figures.timed_ns) = (4000, answered_at);
        let mut now = now;
        let again = loop {
            let tick = pace.tick(now, &figures, &OPTIONS, false, MS / 10, 1000);
            if tick.retransmit {
                break now;
            }
            now = tick.next.unwrap();
        };
        assert_eq!((again - answered_at) / MS, rto / MS);
    }

    /// Round trips of 100 ms where 1 ms was known: the first segments are sent again too early, each is acknowledged,
    /// and no round trip can be measured. The timeout must grow over them until one can.
    // Checks RFC 6298: 5.5.
    #[test]
    fn a_path_that_became_slow_is_not_flooded_with_what_it_has() {
        let (mut pace, mut figures) = (pace(), FlowFigures::default());
        let mut again = 0;
        for segment in 0..20 {
            let begin = MS + segment * 200 * MS;
            (figures.snd_nxt, figures.outstanding) = (figures.snd_nxt + 2000, 2000);
            let mut now = begin;
            let mut clean = true;
            while now < begin + 100 * MS {
                let tick = pace.tick(now, &figures, &OPTIONS, false, MS / 10, 1000);
                (again, clean) = (again + tick.retransmit as u32, clean && !tick.retransmit);
                now = tick.next.unwrap();
            }
            (figures.snd_una, figures.outstanding) = (figures.snd_nxt, 0);
            figures.acked_bytes += 2000;
            if clean {
                (figures.rtt_samples, figures.rtt_ns) = (figures.rtt_samples + 1, 100 * MS as u32);
            }
            pace.tick(begin + 100 * MS, &figures, &OPTIONS, false, MS / 10, 1000);
        }
        assert!(again <= 8, "{again} retransmissions of 20 segments");
    }

    /// One window is lost in many places, so that nothing can be measured until it has all arrived; the next one, too.
    // Checks RFC 6298: 5.5.
    #[test]
    fn a_backoff_ends_with_what_was_sent_first_after_the_timeout() {
        let (mut pace, mut figures) = (pace(), FlowFigures::default());
        let mut begin = MS;
        for window in 1..50 {
            (figures.snd_nxt, figures.outstanding) = (figures.snd_nxt + 8000, 8000);
            let mut now = begin;
            let timeout = loop {
                let tick = pace.tick(now, &figures, &OPTIONS, false, MS / 10, 1000);
                if tick.retransmit {
                    break now;
                }
                now = tick.next.unwrap();
            };
            assert!(timeout - begin <= 21 * MS, "window {window}: {} ms", (timeout - begin) / MS);
            begin = timeout + MS;
            // All of the window, and a byte behind it.
            (figures.snd_nxt, figures.outstanding) = (figures.snd_nxt + 1, 0);
            (figures.snd_una, figures.last_rx_ns) = (figures.snd_nxt, begin);
            figures.acked_bytes += 8001;
            pace.tick(begin, &figures, &OPTIONS, false, MS / 10, 1000);
        }
    }

    /// With tens of thousands of flows there is a quarter of a second from one look to the next, and no timeout in
    /// between.
    #[test]
    fn flows_that_are_looked_at_seldom_do_not_time_out_between_two_looks() {
        let figures = FlowFigures { outstanding: 2000, ..FlowFigures::default() };
        let (mut pace, mut looks, mut sent_again) = (pace(), 0, Vec::new());
        let mut now = pace.start(0, &figures, OPTIONS.ack_delay, 250 * MS, 1000);
        while now < 2000 * MS {
            let tick = pace.tick(now, &figures, &OPTIONS, false, 250 * MS, 1000);
            sent_again.extend(tick.retransmit.then_some(now / MS));
            (looks, now) = (looks + 1, tick.next.expect("it goes on"));
        }
        assert_eq!(sent_again[0], 250);
        assert!(looks <= 9, "{looks} looks in two seconds");
    }

    #[test]
    fn a_single_segment_gets_the_time_of_a_delayed_acknowledgement() {
        let figures = FlowFigures { outstanding: 1000, ..FlowFigures::default() };
        let done = run(&mut pace(), &figures, &OPTIONS, false, 1000 * MS);
        let times: Vec<u64> = done.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [50, 70, 110, 190, 350, 670]);
    }

    // Checks RFC 9293: MUST-35, MUST-37, SHLD-17, SHLD-29, SHLD-30.
    #[test]
    fn a_closed_window_is_probed_without_end_while_the_peer_answers() {
        let mut figures = FlowFigures { unsent: 1000, ..FlowFigures::default() };
        let mut pace = pace();
        let (mut now, mut probes) = (MS, 0);
        while now < 300_000 * MS {
            let tick = pace.tick(now, &figures, &OPTIONS, false, MS / 10, 1000);
            assert!(!tick.failed && !tick.retransmit);
            if tick.probe {
                probes += 1;
                figures.last_rx_ns = now + 1;
            }
            now = tick.next.unwrap();
        }
        assert!((100..200).contains(&probes), "{probes}");
        assert!(run(&mut pace, &figures, &OPTIONS, true, 600_000 * MS).last().unwrap().1.failed, "but not an orphan's");
    }

    /// A peer that had no room for a while, and has it a moment after the program has closed.
    #[test]
    fn what_is_left_behind_has_its_time_from_then_on() {
        let figures = FlowFigures { outstanding: 1000, snd_nxt: 1001, ..FlowFigures::default() };
        let (mut pace, mut failed_at) = (pace(), None);
        let mut now = pace.start(0, &figures, OPTIONS.ack_delay, MS / 10, 1000);
        while failed_at.is_none() {
            let tick = pace.tick(now, &figures, &OPTIONS, now >= 3000 * MS, MS / 10, 1000);
            failed_at = tick.failed.then_some(now / MS);
            now = tick.next.expect("it is looked at again");
        }
        assert!((3500..3700).contains(&failed_at.expect("it is given up")), "500 ms after 3 s: {failed_at:?}");
    }

    /// A segment of 1,000 bytes every 100 ms, acknowledged at once: between them nothing is outstanding, data waits,
    /// and nothing is wrong.
    #[test]
    fn a_slow_rate_is_no_closed_window() {
        let options = FlowOptions { pacing_rate: 10_000, ..OPTIONS };
        let mut pace = pace();
        pace.enforced.rate = options.pacing_rate;
        let mut figures = FlowFigures { unsent: 50_000, snd_wnd: 60_000, ..FlowFigures::default() };
        let mut now = MS;
        while figures.unsent > 0 {
            if now >= MS * 100 * (1 + Nanos::from(figures.snd_nxt / 1000)) {
                figures.unsent -= 1000;
                figures.snd_nxt += 1000;
                figures.snd_una += 1000;
                figures.acked_bytes += 1000;
            }
            let tick = pace.tick(now, &figures, &options, false, MS / 10, 1000);
            assert!(!tick.probe && !tick.retransmit && !tick.failed, "after {} bytes: {tick:?}", figures.snd_nxt);
            now = tick.next.unwrap_or(now + MS);
        }
    }

    // Checks RFC 6298: 5.2.
    #[test]
    fn a_quiet_flow_is_not_timed() {
        let done = run(&mut pace(), &FlowFigures::default(), &OPTIONS, false, 10_000 * MS);
        assert_eq!(done.len(), 1);
        assert!(done[0].1.untrack && done[0].1.next.is_none() && done[0].0 < 20);
    }

    // Checks RFC 9293: MUST-26, MUST-29, MUST-27.
    #[test]
    fn keepalive_probes_an_idle_peer_and_gives_up() {
        let options = FlowOptions { keepalive: true, ..OPTIONS };
        let done = run(&mut pace(), &FlowFigures::default(), &options, false, 100_000 * MS);
        let what: Vec<(u64, bool, bool)> = done.iter().map(|(at, tick)| (*at, tick.probe, tick.failed)).collect();
        assert_eq!(what[1..], [(1000, true, false), (1100, true, false), (1200, false, true)]);
        assert!(what[0].0 < 20, "the first one is the end of timing");
    }

    // Checks RFC 6298: 5.1, 5.3.
    #[test]
    fn acknowledgements_restart_the_timer() {
        let mut pace = pace();
        let mut figures = FlowFigures { outstanding: 1000, ..FlowFigures::default() };
        for step in 1..100 {
            figures.snd_una += 100;
            figures.acked_bytes += 100;
            let tick = pace.tick(step * 9 * MS, &figures, &OPTIONS, false, MS / 10, 1000);
            assert!(!tick.retransmit && !tick.failed);
        }
    }
}
