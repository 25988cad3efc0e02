//! Unmodified socket programs on a ZeroNIC host: a stream engine (FlexTOE, Laminar) below a NIC's half of its own
//! (docs/ZERONIC.md, "Socket programs").
//!
//! Contexts, control plane and completions are those of any host of TCP, and the engine inside is unmodified. It works
//! on headers: in front of it, payload goes to its place in the receive buffer, also ahead of a hole; behind it, frames
//! get the payload of the transmit buffer that their headers speak of. The engine's own buffers are blank rings.
mod blank;
mod capture;
mod direct;
mod flow_entry;
mod flows;
mod merge;
mod referred;
mod split;

use blank::Blanks;
use direct::Heaps;
use engine::stream::{self, Features, FlowParams, Stream};
use engine::{Burst, Command, ContextId, Engine, Event, FlowId, Frame, Nanos, ProgramSource, Registers, Slot, Worker};
use flow_entry::{FlowEntry, Standing};
use flows::Flows;
use shm::ByteRing;
use std::sync::Arc;
use trace::Traces;

/// A stream engine that decides on headers.
pub struct SocketEngine {
    name: &'static str,
    inner: Box<dyn Engine<Stream>>,
    blanks: Blanks,
    /// By flow.
    lines: Vec<Option<Box<FlowEntry>>>,
    /// Connections whose payload is placed: at most, and now.
    most_placed: u32,
    placed: u32,
    /// Connections without a line, which the control plane has no event of yet.
    without_line: Vec<FlowId>,
    flows: Flows,
    heaps: Heaps,
    /// Commands for the engine inside.
    commands: Vec<Command<Stream>>,
    /// Frames that came, and those for the engine inside: empty between rounds, kept for their room.
    came: Vec<Box<Frame>>,
    up: Vec<Box<Frame>>,
    /// Frames of connections of which it is open whether they stand still.
    waiting: Vec<Box<Frame>>,
    counts: Counts,
}

/// What is counted, for people.
#[derive(Default)]
struct Counts {
    placed_bytes: u64,
    /// Of these, in programs' memory.
    landed_bytes: u64,
    fetched_bytes: u64,
    /// Of these, by reference to programs' memory.
    referred_bytes: u64,
    /// Of all, copied into frames: rows of programs' memory that were short, and what was between them.
    gathered_bytes: u64,
    /// Segments below the cursor.
    old: u64,
    /// Segments, or their ends, beyond what the peer was promised.
    without_place: u64,
    /// Frames with a wrong checksum.
    unsound: u64,
    /// Connections that were installed without a line.
    without_line: u64,
}

impl SocketEngine {
    /// `inner` decides on headers; `name` is what both are called. No buffer of a connection has more than `most`
    /// bytes.
    ///
    /// # Errors
    /// A sentence: the system has no memory for a blank ring of that size.
    pub fn new(name: &'static str, inner: Box<dyn Engine<Stream>>, most: u32) -> Result<SocketEngine, String> {
        let blanks = Blanks::new(most).map_err(|error| format!("no memory for {most} blank bytes: {error}"))?;
        Ok(SocketEngine {
            name,
            inner,
            blanks,
            lines: Vec::new(),
            most_placed: u32::MAX,
            placed: 0,
            without_line: Vec::new(),
            flows: Flows::default(),
            heaps: Heaps::default(),
            commands: Vec::new(),
            came: Vec::new(),
            up: Vec::new(),
            waiting: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// The flow table has so many lines. The engine inside copies the payload of connections that find none: flows
    /// without zero copy do not occupy these structures (the paper's section 3.2).
    pub fn with_lines(mut self, lines: u32) -> SocketEngine {
        self.most_placed = lines;
        self
    }

    fn line(&mut self, flow: FlowId) -> Option<&mut FlowEntry> {
        self.lines.get_mut(flow.0 as usize)?.as_deref_mut()
    }

    fn stand(&mut self, flow: FlowId, standing: Standing) {
        if let Some(line) = self.line(flow).filter(|line| line.standing != Standing::Whole) {
            line.standing = standing;
        }
    }

    /// Makes of a command what the engine inside is to get. True where it may make a flow stand still.
    fn take_command(&mut self, command: Command<Stream>) -> bool {
        let mut freezes = false;
        let ring = match &command {
            Command::Install(params) => Some((params.flow, params.rx.number())),
            Command::Transport(stream::Command::Move { flow, rx, .. }) => Some((*flow, rx.number())),
            _ => None,
        };
        let command = match command {
            Command::Install(params) => Command::Install(self.install(params)),
            Command::Remove(flow) => {
                self.stand(flow, Standing::Still);
                Command::Remove(flow)
            }
            Command::Attach(context, end) => {
                self.heaps.attach(context, &end);
                Command::Attach(context, end)
            }
            Command::Detach(context) => {
                self.heaps.detach(context);
                Command::Detach(context)
            }
            Command::Transport(command) => {
                freezes = matches!(command, stream::Command::Freeze { .. });
                Command::Transport(self.stream_command(command))
            }
            other => other,
        };
        self.commands.push(command);
        if let Some((flow, ring)) = ring {
            self.report(flow, ring);
        }
        freezes
    }

    /// Completions of a connection have the number of the ring in which its received stream is.
    fn report(&mut self, flow: FlowId, ring: u8) {
        if ring > 0 {
            self.commands.push(stream::Command::Grown(flow, ring).into());
        }
    }

    /// Keeps a connection's buffers, and gives the engine blank ones. Where there are none of that size, or no line is
    /// free, the connection is the engine's alone, with its copies.
    fn install(&mut self, mut params: Box<FlowParams>) -> Box<FlowParams> {
        // A program that sends by reference since an earlier daemon may post at any time, so its connection needs a
        // line, though none be free.
        let refers = self.heaps.may_post(params.context, params.slot);
        let has_line = self.placed < self.most_placed || refers;
        let blanks = self.blanks.standing_for(&params.rx).zip(self.blanks.standing_for(&params.tx));
        let blanks = blanks.filter(|_| has_line);
        if blanks.is_some() {
            self.placed += 1;
        } else {
            self.counts.without_line += 1;
            self.without_line.push(params.flow);
        }
        let mut line = FlowEntry::new(&params, blanks.as_ref().map(|(rx, _)| rx));
        if blanks.is_some() {
            line.direct = self.heaps.direct(params.context, params.slot, params.rx_pos);
            line.referred = self.heaps.referred(params.context, params.slot);
        }
        let at = params.flow.0 as usize;
        if self.lines.len() <= at {
            self.lines.resize_with(at + 1, || None);
        }
        self.lines[at] = Some(Box::new(line));
        self.flows.insert(&params.tuple, params.flow);
        if let Some((rx, tx)) = blanks {
            (params.rx, params.tx, params.checksum_offload) = (rx, tx, true);
        }
        params
    }

    fn stream_command(&mut self, command: stream::Command) -> stream::Command {
        match &command {
            stream::Command::Resume(flow, end) => {
                if let Some(ring) = self.line(*flow).map(|line| line.resume(end)) {
                    self.report(*flow, ring);
                }
            }
            stream::Command::Offer(flow, bytes) => {
                if let Some(line) = self.line(*flow) {
                    line.offer(*bytes);
                }
            }
            stream::Command::Advance { flow, tx_head, .. } => {
                if let Some(line) = self.line(*flow) {
                    line.written(*tx_head);
                }
            }
            stream::Command::Freeze { flow, tx_head, .. } => {
                if let Some(line) = self.line(*flow) {
                    line.written(*tx_head);
                }
                self.stand(*flow, Standing::Asked);
            }
            stream::Command::Thaw(flow) => self.stand(*flow, Standing::Goes),
            stream::Command::Rename { flow, context, slot } | stream::Command::Move { flow, context, slot, .. } => {
                self.rename(*flow, *context, *slot);
            }
            _ => {}
        }
        match command {
            stream::Command::Move { flow, context, slot, rx, tx } => {
                let (rx, tx) = self.move_to(flow, rx, tx);
                stream::Command::Move { flow, context, slot, rx, tx }
            }
            other => other,
        }
    }

    /// A connection is another program's, or has another slot.
    fn rename(&mut self, flow: FlowId, context: ContextId, slot: Slot) {
        let line = self.lines.get_mut(flow.0 as usize).and_then(Option::as_deref_mut);
        let Some(line) = line.filter(|line| line.standing != Standing::Whole) else { return };
        let high = line.highest();
        line.finish_stretch();
        line.direct = self.heaps.direct(context, slot, high);
    }

    /// A connection's buffers are others now; returns what the engine is to take for them.
    fn move_to(&mut self, flow: FlowId, rx: Arc<ByteRing>, tx: Arc<ByteRing>) -> (Arc<ByteRing>, Arc<ByteRing>) {
        let blanks = self.blanks.standing_for(&rx).zip(self.blanks.standing_for(&tx));
        match (self.line(flow).filter(|line| line.standing != Standing::Whole), blanks) {
            // No buffer is too large for a blank ring, as this one was not before.
            (Some(line), Some((blank_rx, blank_tx))) => {
                line.move_to(rx, tx, Arc::clone(&blank_rx));
                (blank_rx, blank_tx)
            }
            _ => (rx, tx),
        }
    }

    /// One round of the engine inside, on headers. Its frames get their payload.
    fn round(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        let (first, reported, aside) = (burst.tx.len(), burst.events.len(), burst.exceptions.len());
        let done = self.inner.poll(
            now,
            &mut Burst {
                rx: &mut self.up,
                back: burst.back,
                tx: burst.tx,
                exceptions: burst.exceptions,
                events: burst.events,
                commands: &mut self.commands,
                pool: burst.pool,
                drops: burst.drops,
                // What it would record has no payload.
                recorder: None,
            },
        );
        self.merge(first, burst);
        self.unsplit(aside, burst);
        for event in &burst.events[reported..] {
            self.note(event);
        }
        done
    }

    fn note(&mut self, event: &Event<Stream>) {
        match event {
            Event::Removed(flow, _) => {
                let line = self.lines.get_mut(flow.0 as usize).and_then(Option::take);
                if let Some(mut line) = line {
                    self.placed -= u32::from(line.standing != Standing::Whole);
                    line.finish_stretch();
                    self.flows.remove(&line.tuple.get(), *flow);
                }
            }
            Event::Transport(stream::Event::Frozen(flow, _)) => self.stand(*flow, Standing::Still),
            Event::Transport(stream::Event::Busy(flow)) => self.stand(*flow, Standing::Goes),
            _ => {}
        }
    }
}

impl Engine<Stream> for SocketEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Those of the engine inside, but for what reads payload: modules, shared logs; and small rings.
    fn features(&self) -> engine::Features<Features> {
        let inner = self.inner.features();
        let transport = Features { keeps_logs: false, starts_small: false, urgent: false, ..inner.transport };
        engine::Features { stages: &[], transport, ..inner }
    }

    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        let mut freezes = false;
        for command in burst.commands.drain(..) {
            freezes |= self.take_command(command);
        }
        burst.events.extend(self.without_line.drain(..).map(|flow| stream::Event::NoLine(flow).into()));
        let mut done = 0;
        if freezes {
            // Whether a connection stands still decides about its frames.
            let (rx, back) = (&mut Vec::new(), &mut Vec::new());
            let sent = burst.tx.len();
            done += self.round(now, &mut Burst { rx, back, ..reborrow(burst) });
            self.record_sent(now, sent, burst);
        }
        done += self.split(now, burst);
        let sent = burst.tx.len();
        done += self.round(now, burst);
        self.record_sent(now, sent, burst);
        self.release_stretches();
        done
    }

    fn egress(&mut self, now: Nanos, from: usize, burst: &mut Burst<'_, Stream>) {
        self.inner.egress(now, from, burst);
    }

    fn has_work(&self, now: Nanos) -> bool {
        !self.waiting.is_empty() || self.inner.has_work(now)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }

    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.inner.workers()
    }

    fn trim(&mut self) {
        self.inner.trim();
    }

    fn trace(&mut self, traces: &Traces) {
        self.inner.trace(traces);
    }

    fn load(&mut self, program: &ProgramSource) -> Result<(), String> {
        self.inner.load(program)
    }

    fn registers(&mut self) -> Option<&mut dyn Registers> {
        self.inner.registers()
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }

    fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        let Counts { placed_bytes, landed_bytes, fetched_bytes, referred_bytes, gathered_bytes, .. } = self.counts;
        let Counts { old, without_place, unsound, without_line, .. } = self.counts;
        let split = [
            ("placed_bytes", placed_bytes),
            ("landed_bytes", landed_bytes),
            ("old", old),
            ("without_place", without_place),
            ("unsound", unsound),
            ("connections_without_line", without_line),
        ];
        let own = split.map(|(counter, value)| ("split".to_string(), counter, value));
        let mut all = self.inner.module_stats();
        all.extend(own);
        let merge =
            [("fetched_bytes", fetched_bytes), ("referred_bytes", referred_bytes), ("gathered_bytes", gathered_bytes)];
        all.extend(merge.map(|(counter, value)| ("merge".to_string(), counter, value)));
        all
    }
}

/// The same burst, to be changed in parts.
fn reborrow<'a>(burst: &'a mut Burst<'_, Stream>) -> Burst<'a, Stream> {
    Burst {
        rx: burst.rx,
        back: burst.back,
        tx: burst.tx,
        exceptions: burst.exceptions,
        events: burst.events,
        commands: burst.commands,
        pool: burst.pool,
        drops: burst.drops,
        recorder: burst.recorder.as_deref_mut(),
    }
}
