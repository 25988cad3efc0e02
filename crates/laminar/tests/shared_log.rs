//! A shared log in the engine: what the application finds in it, segment by segment (docs/SHARED-LOG.md).
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::solo::{ACK, FLOW, START, Seg, Solo, seg};
use common::{Config, Lab};
use context::{Bump, Completion, ControlEnd, Geometry, LOG_SLOT, LogEnd, LogRecord, LogShape, Slot, daemon_ends};
use engine::stream::{self, FlowParams, LogRefusal, Stream};
use engine::{Command, ContextId, DropReason, Engine, Event, FramePool, Limits};
use laminar::{Extensions, Laminar};
use shm::{Doorbell, Region};
use std::sync::Arc;
use wire::tcp::Flags;

const S: u32 = START;
const RECORD: u32 = 64;
const RECORDS: u32 = 128;
const WINDOW: u32 = 4096;
const SIZES: Geometry = Geometry {
    slots: 1,
    long: context::LongPaths::NONE,
    growing: context::Growing::NONE,
    data_entries: 64,
    control_entries: 64,
    rx_bytes: 4096,
    tx_bytes: 4096,
    full_slots: 1,
    small_bytes: 0,
    log_bytes: 65_536,
    heap_bytes: 0,
};

fn with_logs(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    Box::new(Laminar::new(limits, config.wscale, Extensions { shared_log: true, ..Extensions::NONE }).unwrap())
}

/// One connection, and a log in a region of its own.
struct Logged {
    solo: Solo,
    region: Arc<Region>,
    control: ControlEnd,
    shape: LogShape,
    ready: u64,
}

impl Logged {
    fn new(records: u32) -> Logged {
        let sizes = Config {
            engine: with_logs,
            timestamps: false,
            sack: false,
            mss: 1000,
            rx_bytes: WINDOW,
            ..Config::clean(1)
        };
        let mut solo = Solo::new(Config { wscale: 0, ..sizes });
        let region = Arc::new(SIZES.create_region("log").unwrap());
        let (_, control) = daemon_ends(&region, SIZES, Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap());
        let shape = LogShape { record: RECORD, records };
        solo.command(Command::Transport(stream::Command::OpenLog(
            ContextId(1),
            Box::new(control.open_log(shape).unwrap()),
        )));
        Logged { solo, region, control, shape, ready: 0 }
    }

    fn join(&mut self, rx_head: u32) -> Result<(), LogRefusal> {
        self.solo.command(stream::Command::JoinLog { flow: FLOW, rx_head, mark: 99 });
        let joined = self.solo.events().into_iter().find_map(|event| match event {
            Event::Transport(stream::Event::LogJoined(FLOW, result)) => Some(result),
            _ => None,
        });
        joined.expect("an answer")
    }

    /// Takes completions in; returns what was reported to the connection itself, and how many records can be read.
    fn completions(&mut self) -> (Vec<Completion>, u64) {
        let mut own = Vec::new();
        while let Some(words) = self.solo.side.app.end.completions.pop().unwrap() {
            let completion = Completion::from_words(words);
            match completion.slot.index {
                LOG_SLOT => self.ready += completion.rx_tail.wrapping_sub(self.ready as u32) as u64,
                _ => own.push(completion),
            }
        }
        (own, self.ready)
    }

    /// Record `index` holds the connection's record `number`, whose stream's first record began at `start`.
    fn assert_whole(&self, index: u64, number: u64, start: u32) {
        let record = self.shape.read(&self.region, &SIZES, index);
        assert_eq!(record, LogRecord { mark: 99, number, hole: false }, "record {index}");
        let end = self.control.open_log(self.shape).unwrap();
        let mut bytes = [0; RECORD as usize];
        end.records.read(index as u32 * RECORD, &mut bytes);
        let from = start + number as u32 * RECORD;
        let wanted: Vec<u8> = (from..from + RECORD).map(Solo::byte).collect();
        assert_eq!(bytes[..], wanted, "record {index}");
    }

    fn trim(&mut self, upto: u64) -> Vec<Seg> {
        let slot = Slot { index: LOG_SLOT, generation: 0 };
        let bump = Bump { slot, tx_head: 0, rx_head: upto as u32, fin: false, ring: 0 };
        self.solo.side.app.end.bumps.push(bump.to_words()).unwrap();
        self.solo.round()
    }

    fn counter(&self, name: &str) -> u64 {
        let stats = self.solo.side.engine.module_stats();
        stats.iter().find(|row| row.0 == "log" && row.1 == name).unwrap().2
    }
}

fn data(at: u32, len: u32) -> Seg {
    seg(S + at, S, ACK, len)
}

#[test]
fn records_are_readable_when_they_are_whole() {
    let mut l = Logged::new(RECORDS);
    assert_eq!(l.join(0), Ok(()));
    assert_eq!(l.solo.receive(&[data(0, 150)])[0].ack, S + 150);
    assert_eq!(l.completions().1, 2, "half a record waits");
    l.solo.receive(&[data(150, 42)]);
    assert_eq!(l.completions().1, 3);
    // Nothing is reported to the connection itself.
    l.solo.receive(&[data(192 + 100, 300)]);
    assert_eq!(l.completions(), (vec![], 3), "a gap");
    assert_eq!(l.solo.receive(&[data(192, 100)]).last().unwrap().ack, S + 592);
    assert_eq!(l.completions(), (vec![], 9));
    (0..9).for_each(|index| l.assert_whole(index, index, 0));
    assert_eq!(["records", "holes", "filled"].map(|name| l.counter(name)), [9, 0, 2]);
    assert_eq!(l.join(0), Err(LogRefusal::Joined));
}

#[test]
fn duplicates_of_readable_records_change_nothing() {
    let mut l = Logged::new(RECORDS);
    l.join(0).unwrap();
    l.solo.receive(&[data(0, 128), data(0, 128), data(64, 256), data(1000, 64), data(1000, 64)]);
    assert_eq!(l.completions().1, 5);
    (0..5).for_each(|index| l.assert_whole(index, index, 0));
    l.solo.receive(&[data(320, 680)]);
    assert_eq!(l.completions().1, 16);
    (0..16).for_each(|index| l.assert_whole(index, index, 0));
}

#[test]
fn what_came_before_the_connection_joined_is_records_too() {
    let mut l = Logged::new(RECORDS);
    // A preamble of 20 bytes is read; then two records and a half, and one out of order.
    l.solo.receive(&[data(0, 180)]);
    l.solo.read(20);
    l.solo.receive(&[data(300, 64)]);
    assert_eq!(l.join(20), Ok(()));
    assert_eq!(l.completions().1, 2);
    l.solo.receive(&[data(180, 120)]);
    assert_eq!(l.completions().1, 5);
    l.solo.receive(&[data(364, 1000)]);
    assert_eq!(l.completions().1, 21);
    (0..21).for_each(|index| l.assert_whole(index, index, 20));
}

#[test]
fn a_reader_closes_the_window_and_opens_it() {
    let mut l = Logged::new(RECORDS);
    l.join(0).unwrap();
    for at in 0..4 {
        l.solo.receive(&[data(at * 1024, 1024)]);
    }
    assert_eq!(l.completions().1, 64);
    // Beyond what was promised: refused, and no place is taken.
    assert_eq!(l.solo.receive(&[data(4096, 64)])[0].window, 0);
    assert_eq!(l.completions().1, 64);
    assert_eq!(l.trim(32).last().map(|s| (s.ack, s.window)), Some((S + 4096, 2048)));
    l.solo.receive(&[data(4096, 1000), data(5096, 1000)]);
    assert_eq!(l.completions().1, 64 + 31);
    (32..95).for_each(|index| l.assert_whole(index, index, 0));
    // More than could be read is not given back; an older number is nothing new.
    l.trim(96);
    assert_eq!(l.solo.drops(DropReason::BumpRange), 1);
    l.trim(10);
    assert_eq!(l.solo.drops(DropReason::BumpRange), 1);
    l.trim(95);
    // Round and round: the log holds 128.
    let mut at = 6096;
    for round in 0..40u64 {
        assert_eq!(l.solo.receive(&[data(at, 960)]).last().unwrap().ack, S + at + 960);
        at += 960;
        let ready = l.completions().1;
        assert_eq!(ready, at as u64 / 64, "round {round}");
        // Slots are used again, so only what is not given back can be checked.
        (ready - 15..ready).for_each(|index| {
            let record = l.shape.read(&l.region, &SIZES, index);
            assert_eq!((record.number, record.hole), (index, false));
        });
        l.trim(ready);
    }
}

#[test]
fn half_a_record_at_the_end_is_a_hole() {
    let mut l = Logged::new(RECORDS);
    l.join(0).unwrap();
    l.solo.receive(&[seg(S, S, ACK | Flags::FIN, 100)]);
    let (own, ready) = l.completions();
    assert_eq!((own.last().map(|completion| (completion.rx_tail, completion.fin)), ready), (Some((0, true)), 2));
    l.assert_whole(0, 0, 0);
    assert_eq!(l.shape.read(&l.region, &SIZES, 1), LogRecord { mark: 99, number: 1, hole: true });
}

#[test]
fn a_stream_that_ended_before_can_join() {
    let mut l = Logged::new(RECORDS);
    l.solo.receive(&[seg(S, S, ACK | Flags::FIN, 128)]);
    assert_eq!(l.join(0), Ok(()));
    assert_eq!(l.completions().1, 2);
    (0..2).for_each(|index| l.assert_whole(index, index, 0));
}

#[test]
fn a_connection_that_dies_leaves_holes_and_what_was_whole() {
    let mut l = Logged::new(RECORDS);
    l.join(0).unwrap();
    l.solo.receive(&[data(0, 64), data(192, 64)]);
    assert_eq!(l.completions().1, 1);
    l.solo.command(Command::Remove(FLOW));
    assert_eq!(l.completions().1, 4);
    l.assert_whole(0, 0, 0);
    (1..4).for_each(|index| assert!(l.shape.read(&l.region, &SIZES, index).hole));
    l.trim(4);
    assert_eq!(l.solo.drops(DropReason::BumpRange), 0);
    assert_eq!(l.join(0), Err(LogRefusal::Unfit), "it is gone");
}

#[test]
fn a_log_takes_no_more_connections_than_it_has_room_for() {
    // A window is 64 records.
    let mut l = Logged::new(64);
    assert_eq!(l.join(1), Err(LogRefusal::Unfit), "the application cannot have taken what did not come");
    l.join(0).unwrap();
    let mut small = Logged::new(64);
    small.solo.command(Command::Detach(ContextId(1)));
    assert_eq!(small.join(0), Err(LogRefusal::Unfit), "a log goes with its context");
    l.solo.receive(&[data(0, 1024)]);
    l.solo.command(stream::Command::Orphan(FLOW));
    // Nobody reads the stream any more: what comes raises an event, and goes to no log.
    l.solo.receive(&[data(1024, 64)]);
    assert!(l.solo.events().contains(&Event::Transport(stream::Event::OrphanData(FLOW))));
    assert_eq!(l.completions().1, 16);
}

#[test]
fn a_log_keeps_programs_without_the_extension_out() {
    let mut l = Logged::new(RECORDS);
    l.join(0).unwrap();
    l.solo.receive(&[data(0, 100)]);
    let refused = l.solo.side.engine.load(&Extensions::NONE.source()).unwrap_err();
    assert!(refused.contains("-D SHARED_LOG"), "{refused}");
    let all = Extensions { sack: true, delayed_acks: true, timely: true, shared_log: true };
    l.solo.side.engine.load(&Extensions { timely: false, ..all }.source()).unwrap();
    l.solo.receive(&[data(100, 300)]);
    assert_eq!(l.completions().1, 6);
    (0..6).for_each(|index| l.assert_whole(index, index, 0));
}

/// The stream's bytes, through loss and reordering, with sequence numbers that wrap: the harness' sender, our log.
#[test]
fn random_streams_arrive_whole_in_the_log() {
    (0..60).for_each(|seed| assert_eq!(Stream64::new(seed).run(u64::MAX), 0));
}

/// Likewise, while engines take the place of the log's, or it goes on by itself, every so many steps.
#[test]
fn random_streams_arrive_whole_though_engines_change() {
    for seed in 0..60 {
        let changes = Stream64::new(seed).run([5, 20, 150][seed as usize % 3]);
        // The shortest streams are over before the first.
        assert!(changes > 0 || seed % 3 > 0, "seed {seed}");
    }
}

/// The harness' two sides; the second one's stream is records of 64 bytes of a log, which is read beside it.
struct Stream64 {
    seed: u64,
    lab: Lab,
    region: Arc<Region>,
    sizes: Geometry,
    control: ControlEnd,
    shape: LogShape,
    expected: Vec<u8>,
    read: u64,
    ready: u64,
}

impl Stream64 {
    fn new(seed: u64) -> Stream64 {
        let config =
            Config { engine: with_logs, timestamps: false, sack: false, delayed_acks: false, ..Config::random(seed) };
        let rx_bytes = config.rx_bytes;
        let mut lab = Lab::new(config);
        let sizes = Geometry { rx_bytes, log_bytes: 1 << 20, ..SIZES };
        let region = Arc::new(sizes.create_region("log").unwrap());
        let (_, control) = daemon_ends(&region, sizes, Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap());
        let shape = LogShape { record: RECORD, records: (rx_bytes / RECORD).max(64) };
        let end = Box::new(control.open_log(shape).unwrap());
        lab.sides[1].commands.push(stream::Command::OpenLog(ContextId(1), end).into());
        lab.sides[1].commands.push(stream::Command::JoinLog { flow: FLOW, rx_head: 0, mark: seed }.into());
        let expected = std::mem::take(&mut lab.sides[1].app.expected);
        Stream64 { seed, lab, region, sizes, control, shape, expected, read: 0, ready: 0 }
    }

    /// Runs until all was read, with a change of engines every so many steps; returns how many there were.
    fn run(&mut self, every: u64) -> u64 {
        let whole = self.expected.len() as u64 / RECORD as u64;
        let mut changes = 0;
        for step in 0..2_000_000u64 {
            self.read_upto(if step % 7 == 0 { u64::MAX } else { 0 });
            if self.read >= whole {
                return changes;
            }
            self.lab.step(0);
            if step % every == every - 1 && changes < 50 {
                changes += 1;
                self.change(changes % 3 > 0);
            }
        }
        panic!("seed {}: wedged, {} of {whole} readable", self.seed, self.ready);
    }

    /// Takes the log's completions, and reads records before `upto`.
    fn read_upto(&mut self, upto: u64) {
        // The harness' application takes completions of its connection; those of the log are taken out here.
        while let Some(words) = self.lab.sides[1].app.end.completions.pop().unwrap() {
            let completion = Completion::from_words(words);
            match completion.slot.index {
                LOG_SLOT => self.ready += completion.rx_tail.wrapping_sub(self.ready as u32) as u64,
                _ => assert_eq!(completion.rx_tail, 0),
            }
        }
        let upto = upto.min(self.ready);
        if upto <= self.read {
            return;
        }
        let log = self.control.open_log(self.shape).unwrap();
        (self.read..upto).for_each(|index| self.assert_record(&log, index));
        self.read = upto;
        let slot = Slot { index: LOG_SLOT, generation: 0 };
        let bump = Bump { slot, tx_head: 0, rx_head: upto as u32, fin: false, ring: 0 };
        self.lab.sides[1].app.end.bumps.push(bump.to_words()).unwrap();
    }

    fn assert_record(&self, log: &LogEnd, index: u64) {
        let record = self.shape.read(&self.region, &self.sizes, index);
        // Only half a record at the end of the stream is none.
        let hole = index == self.expected.len() as u64 / RECORD as u64;
        assert_eq!(record, LogRecord { mark: self.seed, number: index, hole });
        let mut bytes = [0; RECORD as usize];
        log.records.read((index as u32).wrapping_mul(RECORD), &mut bytes);
        let from = (index * RECORD as u64) as usize;
        if !hole {
            assert_eq!(bytes[..], self.expected[from..from + RECORD as usize], "seed {} record {index}", self.seed);
        }
    }

    /// The engine gives everything up, as in a takeover; then another one goes on, or it does itself.
    fn change(&mut self, another: bool) {
        let now = self.lab.now;
        let side = &mut self.lab.sides[1];
        let context = ContextId(1);
        side.commands.push(stream::Command::GiveUpLog(context).into());
        side.commands.extend([Command::Remove(FLOW), Command::Detach(context)]);
        side.poll(now);
        let (mut log, mut end) = (None, None);
        for event in side.events.drain(..) {
            match event {
                Event::Transport(stream::Event::LogGivenUp(_, state)) => log = state,
                Event::Removed(_, left) => end = Some(left),
                _ => {}
            }
        }
        let (log, end) = (log.expect("a log"), end.expect("a flow"));
        if another {
            let limits = Limits { flows: 16, contexts: 4 };
            side.engine = with_logs(&self.lab.config, limits, side.pool.clone());
        }
        let (region, bell) = (&side.app.end.region, || Doorbell::eventfd().unwrap());
        let (engine_end, _) = daemon_ends(region, side.app.end.geometry, bell(), bell());
        let resume = end.resume.unwrap();
        let params = FlowParams {
            snd_nxt: end.snd_una,
            tx_pos: resume.tx_pos,
            rcv_nxt: end.rcv_nxt,
            rx_pos: resume.rx_pos,
            snd_wnd: resume.snd_wnd,
            ..side.params.clone()
        };
        side.commands.extend([Command::Attach(context, engine_end), Command::Install(Box::new(params))]);
        side.commands.push(stream::Command::Resume(FLOW, end).into());
        let memory = Box::new(self.control.open_log(self.shape).unwrap());
        side.commands.push(stream::Command::ResumeLog(context, memory, log).into());
        side.timers.active = false;
    }
}
