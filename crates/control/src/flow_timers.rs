//! Timers of an established flow: retransmission (RFC 6298), zero-window probes (RFC 9293 section 3.8.6.1), keepalive
//! (section 3.8.4), giving up (section 3.8.3). Congestion control runs with them (FlexTOE appendix D). A pure function
//! of the engine's counters: [`FlowTimers::poll`] gives what to do and when to poll again.
mod idle;

use crate::flow_options::FlowOptions;
use context::FlowInfo;
use engine::Nanos;
use engine::stream::{FlowFigures, Growth, time_of_ticks};
use tcp::congestion::{Controller, Decision, Sample};
use tcp::{RttEstimator, SentMarks};
use wire::Seq;

const MILLISECOND: Nanos = 1_000_000;

/// Polls in a round trip while a window follows acknowledgements.
const POLLS_IN_SLOW_START: Nanos = 8;

/// So often the time until a probe of the end of what was sent is doubled.
const MOST_PROBE_BACKOFF: u8 = 6;

/// Quiet polls of a flow before its timing stops.
const QUIET_TICKS: u8 = 2;

/// The engine's counters as of the last poll.
#[derive(Debug, Clone, Copy)]
struct Snapshot {
    acked_bytes: u64,
    ecn_bytes: u64,
    snd_una: u32,
    snd_nxt: u32,
    rtt_samples: u16,
    undone: u8,
    fast_retransmits: u32,
    last_rx_ns: u64,
    timed_ticks: u32,
    grown: u32,
}

impl Snapshot {
    fn of(figures: &FlowFigures) -> Snapshot {
        Snapshot {
            acked_bytes: figures.acked_bytes,
            ecn_bytes: figures.ecn_bytes,
            snd_una: figures.snd_una,
            snd_nxt: figures.snd_nxt,
            rtt_samples: figures.rtt_samples,
            undone: figures.undone,
            fast_retransmits: figures.fast_retransmits,
            last_rx_ns: figures.last_rx_ns,
            timed_ticks: figures.timed_ticks,
            grown: figures.grown,
        }
    }
}

/// The timer of retransmissions and zero-window probes.
#[derive(Debug)]
struct Retry {
    at: Option<Nanos>,
    /// When it was started.
    from: Nanos,
}

/// Timer state of a flow.
#[derive(Debug)]
pub(crate) struct FlowTimers {
    pub policy: Controller,
    pub rtt: RttEstimator,
    /// The engine reports nothing new to time: this flow is polled.
    pub tracked: bool,
    /// As last sent to the engine, but for what the window has grown since, up to the last poll.
    pub enforced: Decision,
    last: Snapshot,
    retry: Retry,
    /// When something was last acknowledged, or first waited to be.
    progress_at: Nanos,
    last_rx: Nanos,
    /// When the window shrinks if nothing is sent before; 0: never.
    idle_at: Nanos,
    /// When the connection lost its last holder; `Nanos::MAX` while it has one.
    orphan_since: Nanos,
    quiet: u8,
    probes: u16,
    /// How often it was sent again because time was up.
    pub timeouts: u32,
    /// A timeout sent something again since the last round trip was measured: all before this.
    sent_again: Option<u32>,
    /// The front was sent again as the end of what was sent.
    front_probed: bool,
    /// When a hole at the front counts as lost: 0 where none was seen.
    front_overdue_at: Nanos,
    /// How often the time until the end of what was sent is sent again is doubled.
    probe_backoff: u8,
    /// The engine runs RACK-TLP on this flow ([`engine::stream::Features::rack`]).
    pub rack: bool,
    /// A loss was found, and it is made up for when this is acknowledged.
    recovers: Option<u32>,
    sent: SentMarks,
}

/// Timer actions that are due on a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TimerActions {
    pub window: Option<u32>,
    pub growth: Option<Growth>,
    pub rate: Option<u64>,
    pub retransmit: bool,
    /// Data sent from there on may be in flight.
    pub recent: Option<Seq>,
    pub probe: bool,
    /// The first unacknowledged segment is lost.
    pub overdue: bool,
    /// The last segment may be lost: a tail loss probe is due.
    pub tail: bool,
    /// The newest round-trip time, where some were measured since the last poll.
    pub measured: Option<Nanos>,
    /// The connection has failed: no answer came.
    pub failed: bool,
    /// Stop polling until the engine reports that there is something.
    pub untrack: bool,
    /// Several timeouts in a row: the next hop's address may be wrong.
    pub suspect_path: bool,
    /// Poll again then.
    pub next: Option<Nanos>,
}

impl FlowTimers {
    /// Timers of a flow that starts with everything before `snd_una` acknowledged.
    pub(crate) fn new(
        now: Nanos,
        policy: Controller,
        rtt: RttEstimator,
        enforced: Decision,
        snd_una: Seq,
    ) -> FlowTimers {
        FlowTimers {
            policy,
            rtt,
            tracked: false,
            enforced,
            last: Snapshot::of(&FlowFigures { snd_una: snd_una.0, snd_nxt: snd_una.0, ..FlowFigures::default() }),
            retry: Retry { at: None, from: now },
            progress_at: now,
            last_rx: now,
            idle_at: 0,
            orphan_since: Nanos::MAX,
            quiet: 0,
            probes: 0,
            timeouts: 0,
            sent_again: None,
            front_probed: false,
            front_overdue_at: 0,
            probe_backoff: 0,
            rack: false,
            recovers: None,
            sent: SentMarks::new(snd_una, now),
        }
    }

    /// The engine has something to time. Returns when to poll first.
    // Meets RFC 6298: 5.1.
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        ack_delay: Nanos,
        interval: Nanos,
        mss: u32,
    ) -> Nanos {
        let timeout = self.timeout(figures, ack_delay, interval, mss);
        if !self.tracked {
            self.tracked = true;
            self.quiet = 0;
            self.progress_at = now;
            self.retry = Retry { at: Some(now + timeout), from: now };
            self.sent = SentMarks::new(Seq(figures.snd_una), now);
        }
        now + self.interval(interval).min(timeout)
    }

    /// The retransmission timeout. A peer may hold back the acknowledgement of what is not more than one full segment
    /// (RFC 9293 section 3.8.6.3). With short round-trip times this resembles a loss. RFC 8985 section 7.2 makes the
    /// same allowance for its probes. With tens of thousands of flows it is at least the time between two polls of one
    /// of them, a quarter of a second. (RFC 6298 section 2.4 asks for a whole one.) Otherwise each would be polled for
    /// its timeout's sake.
    fn timeout(&self, figures: &FlowFigures, ack_delay: Nanos, interval: Nanos, mss: u32) -> Nanos {
        let single = figures.outstanding > 0 && figures.outstanding <= mss;
        let rto = if single { self.rtt.rto().nanos().max(ack_delay) } else { self.rtt.rto().nanos() };
        rto.max(interval).saturating_add(self.pause(mss))
    }

    /// How long the engine waits between two segments at the flow's rate: that is no sign of a loss, or of a closed
    /// window.
    fn pause(&self, mss: u32) -> Nanos {
        (Nanos::from(mss) * 1_000_000_000).checked_div(self.enforced.rate).unwrap_or(0)
    }

    /// Polls the counters. `interval` is the least time until the next poll.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        options: &FlowOptions,
        orphan: bool,
        interval: Nanos,
        mss: u32,
    ) -> TimerActions {
        let measured = self.measure(now, figures, orphan);
        let mut actions = TimerActions { measured, ..TimerActions::default() };
        // A closed connection has at least its FIN to deliver, even where its application lied about where it belongs.
        let busy = figures.outstanding > 0 || figures.unsent > 0 || orphan;
        let limit = if orphan { options.fin_timeout.min(options.give_up) } else { options.give_up };
        let timeout = self.timeout(figures, options.ack_delay, interval, mss);
        if busy {
            self.restart(now, figures, timeout);
        }
        self.note_front(figures);
        let tail_due = self.tail_due(figures, options, interval, mss).filter(|_| busy);
        actions.tail = tail_due.is_some_and(|due| now >= due) && (self.rack || !self.is_timed_out(now));
        if actions.tail {
            self.front_probed = true;
            if self.is_timed_out(now) {
                // The probe goes first. The timeout follows where no answer comes (RFC 8985 section 7.3).
                self.retry.at = Some(now + timeout);
            }
        }
        let timeout = busy && self.retry(now, figures, interval, limit, mss, &mut actions);
        actions.overdue = !self.rack && !timeout && self.is_overdue(now, figures, interval);
        let acked = figures.acked_bytes.wrapping_sub(self.last.acked_bytes);
        if busy || acked > 0 || figures.undone != self.last.undone {
            self.update_congestion(now, figures, measured, timeout, mss, options, &mut actions);
        }
        let give_up_at = self.give_up_at(now, options, orphan);
        actions.failed = busy && now >= give_up_at;
        if busy {
            let next = now + self.interval(interval).max(self.backoff_interval());
            let lost = [self.front_overdue_at].into_iter().chain(tail_due).filter(|due| now < *due);
            let next = lost.fold(next, Nanos::min);
            actions.next = Some(next.min(self.retry.at.unwrap_or(next)).min(give_up_at).max(now + 1));
            self.quiet = 0;
        } else {
            self.stop_if_idle(now, acked > 0, interval, &mut actions);
            self.keep_alive(now, options, &mut actions);
        }
        self.shrink_if_idle(now, figures, options, mss, &mut actions);
        self.sent.note(now, Seq(figures.snd_nxt), self.reordering_window());
        self.last = Snapshot::of(figures);
        actions
    }

    /// Time after which a segment counts as lost: a round trip, and a quarter of one for reordering (RFC 8985 sections
    /// 6.2 and 6.3).
    fn reordering_window(&self) -> Nanos {
        let round_trip = self.rtt.srtt().unwrap_or(MILLISECOND);
        round_trip + round_trip / 4
    }

    /// When the connection has failed, unless something is acknowledged before. What an application left behind has the
    /// whole of its shorter time from then on, however long nothing was acknowledged before.
    fn give_up_at(&mut self, now: Nanos, options: &FlowOptions, orphan: bool) -> Nanos {
        let end = self.progress_at.saturating_add(options.give_up);
        if !orphan {
            return end;
        }
        self.orphan_since = self.orphan_since.min(now);
        end.min(self.progress_at.max(self.orphan_since).saturating_add(options.fin_timeout))
    }

    /// While timeouts follow each other, no answer comes and there is little to poll for. A small part of the timeout
    /// is soon enough to read the next answer.
    fn backoff_interval(&self) -> Nanos {
        if self.rtt.backoffs() > 0 { (self.rtt.rto().nanos() / 16).min(100 * MILLISECOND) } else { 0 }
    }

    /// Smoothed round-trip time, but at least `least`. A part of it in slow start. The window that follows what is
    /// acknowledged should not follow it a round trip later, or it grows half as fast.
    fn interval(&self, least: Nanos) -> Nanos {
        let round = self.rtt.srtt().unwrap_or(least);
        let part = if self.policy.follows_acknowledgements() { round / POLLS_IN_SLOW_START } else { round };
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
            // data-path. What was sent first after the last timeout is not ambiguous. A sender that goes back through
            // many holes sends most of its window again before anything can be measured. It may time out once more in
            // it.
            if self.sent_again.is_none_or(|sent| Seq(sent).before(Seq(figures.snd_una))) {
                self.rtt.reset_backoff();
                self.sent_again = None;
            }
            self.progress_at = now;
            self.retry.at = None;
        }
        if self.has_fast_retransmit(figures) {
            self.retry.at = None;
        }
        if figures.undone != self.last.undone {
            // Nothing is ambiguous: what was sent again was not lost.
            self.rtt.reset_backoff();
            (self.sent_again, self.recovers) = (None, None);
        }
        if figures.last_rx_ns > self.last_rx {
            self.last_rx = figures.last_rx_ns;
            self.probes = 0;
            // "The connection should be allowed to stay open as long as the receiving host answers probes" (RFC 9293
            // section 3.8.6.1), but not for a socket that is gone.
            if figures.snd_wnd == 0 && !orphan {
                self.progress_at = now;
            }
        }
        measured
    }

    /// The newest round-trip time, where some were measured since the last poll.
    pub(crate) fn newest(&self, figures: &FlowFigures) -> Option<Nanos> {
        let fresh = figures.rtt_samples != self.last.rtt_samples && figures.rtt_ns > 0;
        fresh.then_some(figures.rtt_ns as Nanos)
    }

    /// A fast retransmit since the last poll. It starts the timer again, as in Linux: it is acknowledged a round trip
    /// later, about when the timer of what was lost would end. RFC 6298 section 5 leaves that open.
    fn has_fast_retransmit(&self, figures: &FlowFigures) -> bool {
        figures.fast_retransmits != self.last.fast_retransmits
    }

    /// When the retransmission timer that this poll finds stopped was started.
    ///
    /// A fast retransmit follows the third duplicate, which came not later than the last segment. What was outstanding
    /// at the last poll and still is was sent before it. So the acknowledgement of the rest restarted the timer (RFC
    /// 6298 section 5.3): it came not later than the last segment. Where all of that is acknowledged, the first data
    /// after it started the timer (section 5.1): the engine timed that segment, or a later one. An acknowledgement that
    /// came after that one restarted the timer.
    // Meets RFC 6298: 5.1, 5.3.
    fn restarted_at(&self, now: Nanos, figures: &FlowFigures) -> Nanos {
        let received = figures.last_rx_ns > self.last.last_rx_ns;
        if received && self.has_fast_retransmit(figures) {
            return figures.last_rx_ns.min(now);
        }
        let left = self.last.snd_nxt.wrapping_sub(figures.snd_una) as i32;
        let moved = figures.snd_una != self.last.snd_una;
        let timed = figures.timed_ticks != self.last.timed_ticks;
        let timed_at = time_of_ticks(figures.timed_ticks, now);
        match (moved && received, left > 0, timed) {
            (true, true, _) => figures.last_rx_ns.min(now),
            (true, false, true) => timed_at.max(figures.last_rx_ns).min(now),
            (false, false, true) => timed_at,
            _ => now,
        }
    }

    /// Starts the retransmission timer, where it does not run.
    // Meets RFC 6298: 5.1, 5.3.
    fn restart(&mut self, now: Nanos, figures: &FlowFigures, timeout: Nanos) {
        let sent = figures.snd_nxt != self.last.snd_nxt;
        if figures.outstanding == 0 && sent {
            self.retry.at = None;
        }
        if self.retry.at.is_none() {
            self.retry.from = self.restarted_at(now, figures);
        }
        self.retry.at.get_or_insert(self.retry.from + timeout);
    }

    fn is_timed_out(&self, now: Nanos) -> bool {
        self.retry.at.is_some_and(|due| due <= now)
    }

    /// Takes in what was acknowledged at the front, and whether a loss is being made up for.
    fn note_front(&mut self, figures: &FlowFigures) {
        if self.last.snd_una != figures.snd_una {
            self.probe_backoff = if self.front_probed {
                (self.probe_backoff + 1).min(MOST_PROBE_BACKOFF)
            } else {
                self.probe_backoff.saturating_sub(1)
            };
            (self.front_probed, self.front_overdue_at) = (false, 0);
        }
        if self.has_fast_retransmit(figures) {
            self.recovers = Some(figures.snd_nxt);
        }
        self.recovers = self.recovers.filter(|end| Seq(figures.snd_una).before(Seq(*end)));
    }

    /// The retransmission timer with data outstanding, the persist timer without. True where data timed out.
    // Meets RFC 9293: MUST-20, SHLD-10, MUST-35, MUST-36, SHLD-29, SHLD-30.
    // Meets RFC 6298: 5.4, 5.5.
    fn retry(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        interval: Nanos,
        limit: Nanos,
        mss: u32,
        actions: &mut TimerActions,
    ) -> bool {
        if !self.is_timed_out(now) {
            return false;
        }
        actions.retransmit = figures.outstanding > 0;
        actions.probe = !actions.retransmit;
        if actions.retransmit {
            self.sent_again = Some(figures.snd_nxt);
            self.recovers = self.sent_again;
            actions.recent =
                self.sent.recent(now, Seq(figures.snd_nxt), self.reordering_window()).filter(|_| self.rack);
        }
        self.timeouts += u32::from(actions.retransmit);
        self.rtt.back_off();
        actions.suspect_path = self.rtt.backoffs() == 3;
        // Probes come often enough for a peer that answers them to count as alive.
        let longest = if actions.probe { limit / 4 } else { Nanos::MAX };
        self.retry.at = Some(now + (self.rtt.rto().nanos().max(interval) + self.pause(mss)).min(longest));
        actions.retransmit
    }

    /// The reordering timer (RFC 8985 section 6.2, step 5). For a quarter of a round trip, the peer has had something
    /// beyond the oldest byte that it lacks. What was sent before that has had its time. Three duplicate
    /// acknowledgements show it earlier, where so much was sent.
    fn is_overdue(&mut self, now: Nanos, figures: &FlowFigures, interval: Nanos) -> bool {
        if figures.sacked == 0 || self.has_fast_retransmit(figures) {
            self.front_overdue_at = 0;
            return false;
        }
        if self.front_overdue_at == 0 {
            self.front_overdue_at = now + (self.rtt.srtt().unwrap_or(MILLISECOND) / 4).max(interval);
        }
        let is_overdue = now >= self.front_overdue_at;
        if is_overdue {
            // Once: what is sent again may be lost again, and then times out.
            self.front_overdue_at = Nanos::MAX;
        }
        is_overdue
    }

    /// When the end of what is outstanding is probed (RFC 8985 section 7.2): after two round trips, and not later than
    /// the timeout would be. An engine without RACK probes one segment only. Once, and not while a loss is being made
    /// up for.
    ///
    /// Section 7.2 allows for an acknowledgement of one segment that is held back, so that no probe is in vain
    /// ([`FlowOptions::tail_probe_ack_delay`]). By default this timer counts on the round trips that were measured,
    /// which have the time that acknowledgements were held back. A peer that begins to hold them back for longer is
    /// sent a segment in vain. So each probe doubles the time until the next one, and each acknowledgement without one
    /// halves it: after a few, they are measured again.
    // Meets RFC 8985: 7.2-a, 7.2-b, 7.2-c.
    fn tail_due(&self, figures: &FlowFigures, options: &FlowOptions, interval: Nanos, mss: u32) -> Option<Nanos> {
        let (least, single) = (options.tail_probe, figures.outstanding <= mss);
        let some = figures.outstanding > 0 && figures.snd_wnd > 0 && (single || self.rack);
        let recovers = self.rtt.backoffs() > 0 || self.recovers.is_some();
        let doubted = figures.sacked > 0 || recovers || self.front_probed;
        let expected = self.rtt.expected().filter(|_| least > 0 && some && !doubted)?;
        let wait = expected.max(least);
        let wait = if single { (wait << self.probe_backoff) + options.tail_probe_ack_delay } else { wait };
        let due = self.retry.from + wait.max(interval) + self.pause(mss);
        Some(if self.rack { due.min(self.retry.at.unwrap_or(due)) } else { due })
    }

    #[allow(clippy::too_many_arguments)]
    fn update_congestion(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        rtt: Option<Nanos>,
        timeout: bool,
        mss: u32,
        options: &FlowOptions,
        actions: &mut TimerActions,
    ) {
        let ecn_acked = figures.ecn_bytes.wrapping_sub(self.last.ecn_bytes);
        let sample = Sample {
            now,
            acked: figures.acked_bytes.wrapping_sub(self.last.acked_bytes),
            ecn_acked,
            rtt,
            srtt: self.rtt.srtt(),
            grown: self.grown(figures),
            losses: figures.fast_retransmits.wrapping_sub(self.last.fast_retransmits),
            // Where congestion is echoed, the window is not given back (RFC 4015 section 3.2, step 6).
            undone: figures.undone != self.last.undone && ecn_acked == 0,
            timeout,
            outstanding: figures.outstanding,
            unsent: figures.unsent,
            mss,
        };
        let before = self.policy.growth();
        let (mut decision, growth) = (self.policy.update(&sample), self.policy.growth());
        if options.pacing_rate > 0 && (decision.rate == 0 || decision.rate > options.pacing_rate) {
            decision.rate = options.pacing_rate;
        }
        actions.window = (decision.cwnd != self.cwnd(figures)).then_some(decision.cwnd);
        actions.growth = (growth != before).then_some(growth);
        actions.rate = (decision.rate != self.enforced.rate).then_some(decision.rate);
        self.enforced = decision;
    }

    /// What loss recovery is about as of these figures ([`FlowInfo::ca_state`]).
    pub(crate) fn ca_state(&self, figures: &FlowFigures) -> u8 {
        let una = Seq(figures.snd_una);
        let recovers = self.recovers.is_some_and(|end| una.before(Seq(end))) || self.has_fast_retransmit(figures);
        match (recovers, self.sent_again.is_some(), figures.sacked > 0) {
            (true, true, _) => FlowInfo::CA_LOSS,
            (true, false, _) => FlowInfo::CA_RECOVERY,
            (false, _, true) => FlowInfo::CA_DISORDER,
            (false, _, false) => FlowInfo::CA_OPEN,
        }
    }

    /// Bytes by which acknowledgements have made the window grow since the last poll.
    fn grown(&self, figures: &FlowFigures) -> u32 {
        figures.grown.wrapping_sub(self.last.grown)
    }

    /// The congestion window as of these figures, bytes.
    pub(crate) fn cwnd(&self, figures: &FlowFigures) -> u32 {
        self.enforced.cwnd.saturating_add(self.grown(figures))
    }

    /// Nothing to send: after some quiet polls, timing stops.
    // Meets RFC 6298: 5.2.
    fn stop_if_idle(&mut self, now: Nanos, moved: bool, interval: Nanos, actions: &mut TimerActions) {
        self.retry.at = None;
        self.progress_at = now;
        if !self.tracked {
            return;
        }
        self.quiet = if moved { 0 } else { self.quiet + 1 };
        if self.quiet >= QUIET_TICKS {
            self.tracked = false;
            actions.untrack = true;
        } else {
            let pause = if moved { self.interval(interval) } else { self.interval(interval).max(MILLISECOND) };
            actions.next = Some(now + pause);
        }
    }

    // Meets RFC 9293: MUST-26, MUST-29.
    fn keep_alive(&mut self, now: Nanos, options: &FlowOptions, actions: &mut TimerActions) {
        if !options.keepalive {
            return;
        }
        let due = |probes: u16| self.last_rx + options.keepalive_idle + probes as Nanos * options.keepalive_interval;
        if now >= due(self.probes) {
            actions.failed |= u32::from(self.probes) >= options.keepalive_probes;
            actions.probe = !actions.failed;
            self.probes = self.probes.saturating_add(1);
        }
        // A probe that came late does not hurry the next one.
        let next = due(self.probes).max(now + if actions.probe { options.keepalive_interval } else { 1 });
        actions.next = Some(actions.next.map_or(next, |earlier| earlier.min(next)));
    }
}

#[cfg(test)]
mod tests;
