//! Tracepoints of the modules (FlexTOE section 5.1). A module notes what it did in the works that it passes on. So most
//! of it is read off a batch after the module, and costs one branch a batch while nothing is on. What is only in the
//! protocol module's state is in `protocol/traced.rs`.
use crate::message::{FlowCommand, Job, Marks, Received, Sent, Work};
use engine::{DropReason, Exception};
use trace::{NO_FLOW, Point, Tracer};

/// The module that processed a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleName {
    Preprocess,
    Protocol,
    Postprocess,
    Dma,
}

impl ModuleName {
    /// In the order in which works pass them.
    pub(crate) const ALL: [ModuleName; 4] =
        [ModuleName::Preprocess, ModuleName::Protocol, ModuleName::Postprocess, ModuleName::Dma];

    /// How much it takes at once, and for how long.
    pub(crate) fn points(self) -> (Point, Point) {
        match self {
            ModuleName::Preprocess => (Point::PreprocessBatch, Point::PreprocessTime),
            ModuleName::Protocol => (Point::ProtocolBatch, Point::ProtocolTime),
            ModuleName::Postprocess => (Point::PostprocessBatch, Point::PostprocessTime),
            ModuleName::Dma => (Point::DmaBatch, Point::DmaTime),
        }
    }

    /// The ring from which it takes works, where it has a thread of its own.
    pub(crate) fn ring(self) -> Point {
        match self {
            ModuleName::Preprocess => Point::PreprocessRing,
            ModuleName::Protocol => Point::ProtocolRing,
            ModuleName::Postprocess => Point::PostprocessRing,
            ModuleName::Dma => Point::DmaRing,
        }
    }
}

/// Reads off a batch what a module did with it.
#[inline(always)]
pub(crate) fn batch(module: ModuleName, works: &[Work], tracer: &Tracer) {
    if tracer.is_active() {
        if tracer.is_streaming() { read_off(module, works, tracer) } else { count(module, works, tracer) }
    }
}

/// A value that was measured several times in a row: counted at once.
pub(crate) struct Runs {
    point: Point,
    value: u64,
    times: u64,
}

impl Runs {
    pub(crate) fn new(point: Point) -> Runs {
        Runs { point, value: 0, times: 0 }
    }

    /// One more; 0 for nothing measured.
    #[inline(always)]
    pub(crate) fn add(&mut self, value: u64, tracer: &Tracer) {
        if value == self.value {
            self.times += 1;
        } else if value > 0 {
            self.end(tracer);
            (self.value, self.times) = (value, 1);
        }
    }

    /// Counts the last ones.
    pub(crate) fn end(&self, tracer: &Tracer) {
        if self.value > 0 {
            tracer.add_values(self.point, self.value, self.times);
        }
    }
}

/// The plain works of a batch, which were not written down: counted at once, where no observer watches records.
pub(crate) struct Said {
    in_order: u64,
    acked: u64,
    windows: u64,
    closed: u64,
    bumps: u64,
    sent: u64,
    rtt: Runs,
    placed: Runs,
    attached: Runs,
}

impl Said {
    pub(crate) fn new() -> Said {
        let [rtt, placed, attached] = [Point::Rtt, Point::DmaPlaced, Point::DmaAttached].map(Runs::new);
        Said { in_order: 0, acked: 0, windows: 0, closed: 0, bumps: 0, sent: 0, rtt, placed, attached }
    }

    /// A received segment, whose protocol step began at `start`, if it was timed.
    #[inline(always)]
    pub(crate) fn segment(&mut self, received: &Received, start: u64, tracer: &Tracer) {
        let tally = &received.tally;
        let point = if tally.delivered > 0 { Point::ReceiveDataTime } else { Point::ReceiveAckTime };
        tracer.since(point, NO_FLOW, start);
        let closed = tally.marks.has(Marks::WINDOW_CLOSED);
        self.in_order += (tally.delivered > 0) as u64;
        self.acked += (tally.acked > 0) as u64;
        self.windows += (closed || tally.marks.has(Marks::WINDOW_CHANGED)) as u64;
        self.closed += closed as u64;
        self.rtt.add(tally.rtt.into(), tracer);
        self.placed.add(received.place.len.into(), tracer);
    }

    /// A descriptor, the same.
    #[inline(always)]
    pub(crate) fn descriptor(&mut self, sent: &Sent, start: u64, tracer: &Tracer) {
        tracer.since(Point::BumpTime, NO_FLOW, start);
        self.bumps += 1;
        if let Some(segment) = &sent.segment {
            self.sent += 1;
            self.attached.add(segment.fields.payload_len.into(), tracer);
        }
    }

    #[inline(never)]
    pub(crate) fn end(&self, tracer: &Tracer) {
        let counts = [
            (Point::InOrder, self.in_order),
            (Point::Acked, self.acked),
            (Point::WindowChanged, self.windows),
            (Point::WindowClosed, self.closed),
            (Point::Bump, self.bumps),
            (Point::Sent, self.sent),
        ];
        counts.iter().for_each(|(point, times)| tracer.add(*point, *times));
        [&self.rtt, &self.placed, &self.attached].iter().for_each(|runs| runs.end(tracer));
    }
}

/// As [`read_off`], where no observer watches records: counted once a batch.
#[cold]
fn count(module: ModuleName, works: &[Work], tracer: &Tracer) {
    match module {
        ModuleName::Preprocess => {
            let mut identified = 0;
            for work in works {
                match work.job {
                    Job::Receive => identified += 1,
                    _ => preprocessed(work, tracer),
                }
            }
            tracer.add(Point::Identified, identified);
        }
        ModuleName::Dma => {
            let (mut placed, mut attached) = (Runs::new(Point::DmaPlaced), Runs::new(Point::DmaAttached));
            for work in works {
                match (work.job, &work.send) {
                    (Job::Receive, _) => placed.add(work.place.len.into(), tracer),
                    (
                        Job::Transmit { .. } | Job::Bump { .. } | Job::FlowCommand(FlowCommand::ProbeTail),
                        Some(segment),
                    ) => {
                        attached.add(segment.fields.payload_len.into(), tracer);
                    }
                    _ => {}
                }
            }
            placed.end(tracer);
            attached.end(tracer);
        }
        ModuleName::Protocol | ModuleName::Postprocess => {}
    }
}

#[cold]
fn read_off(module: ModuleName, works: &[Work], tracer: &Tracer) {
    match module {
        ModuleName::Preprocess => works.iter().for_each(|work| preprocessed(work, tracer)),
        ModuleName::Dma => works.iter().for_each(|work| moved(work, tracer)),
        // The protocol module speaks for itself, and post-processing only writes down what that decided.
        ModuleName::Protocol | ModuleName::Postprocess => {}
    }
}

fn preprocessed(work: &Work, tracer: &Tracer) {
    let Some(frame) = &work.frame else { return };
    let bytes = frame.len() as u64;
    match work.job {
        Job::Receive => {
            let values = [work.summary.seq.0.into(), work.summary.payload_len.into()];
            tracer.event(Point::Identified, work.flow, values);
        }
        Job::Void => {
            for reason in work.drops.iter() {
                tracer.event(Point::PreprocessDropped, NO_FLOW, [reason as u64, bytes]);
            }
            if let Some(why) = work.exception {
                tracer.event(Point::PreprocessException, NO_FLOW, [exception(why), bytes]);
            }
        }
        _ => {}
    }
}

fn moved(work: &Work, tracer: &Tracer) {
    match (work.job, &work.send) {
        (Job::Receive, _) if work.place.len > 0 => tracer.value(Point::DmaPlaced, work.flow, work.place.len.into()),
        (Job::Transmit { .. } | Job::Bump { .. } | Job::FlowCommand(FlowCommand::ProbeTail), Some(segment))
            if segment.fields.payload_len > 0 =>
        {
            tracer.value(Point::DmaAttached, work.flow, segment.fields.payload_len.into());
        }
        _ => {}
    }
}

/// In the order of the words in `trace::Unit::Exception`.
fn exception(why: Exception) -> u64 {
    match why {
        Exception::Foreign => 0,
        Exception::NoFlow => 1,
        Exception::Redirected => 2,
    }
}

/// Descriptors that the context queue module took, and the turns that were given with them.
#[inline(always)]
pub(crate) fn descriptors(taken: usize, works: &[Work], tracer: &Tracer) {
    tracer.value(Point::Descriptors, NO_FLOW, taken as u64);
    if tracer.is_on(Point::Turn) {
        let turns = works.iter().filter(|work| work.is_turn());
        match tracer.is_streaming() {
            true => turns.for_each(|work| tracer.event(Point::Turn, work.flow, [1, 0])),
            false => tracer.add(Point::Turn, turns.count() as u64),
        }
    }
}

/// Turns that the flow scheduler gave: one work for each segment, those of a turn together.
#[inline(always)]
pub(crate) fn turns(works: &[Work], tracer: &Tracer) {
    if tracer.is_on(Point::Turn) {
        let turns = works.chunk_by(|one, next| one.flow == next.flow);
        turns.for_each(|turn| tracer.event(Point::Turn, turn[0].flow, [turn.len() as u64, 0]));
    }
}

/// The number of a drop reason in the registry is its number at tracepoints.
const _: () = assert!(DropReason::ALL.len() <= u8::MAX as usize);
