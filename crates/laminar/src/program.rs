//! The P4 program, compiled, and what the control plane sets in it (docs/P4.md): tables and registers of a flow.
use crate::descriptor::PORT_NET;
use engine::stream::FlowParams;
use engine::{Backend, Limits, Nanos, ProgramSource, RegisterShape, Runner};
use rmt::cosim::Model;
use rmt::interp::Session;
use rmt::native::{ControlError, EntryKey, Native};
use rmt::{Loaded, Pipeline};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tcp::ReceiveWindow;
use wire::{IpAddress, Mac, Seq};

/// Flows that the registers of one stage hold (thesis: 32 K).
pub const MOST_FLOWS: u32 = 32_768;

/// The program's files, as they were when the engine was built.
const FILES: [(&str, &str); 10] = [
    ("laminar.p4", include_str!("../../../p4/laminar.p4")),
    ("headers.p4", include_str!("../../../p4/headers.p4")),
    ("ingress.p4", include_str!("../../../p4/ingress.p4")),
    ("egress.p4", include_str!("../../../p4/egress.p4")),
    ("reassembly.p4", include_str!("../../../p4/reassembly.p4")),
    ("transmission.p4", include_str!("../../../p4/transmission.p4")),
    ("sack.p4", include_str!("../../../p4/sack.p4")),
    ("delayed_acks.p4", include_str!("../../../p4/delayed_acks.p4")),
    ("timely.p4", include_str!("../../../p4/timely.p4")),
    ("shared_log.p4", include_str!("../../../p4/shared_log.p4")),
];

/// Extensions of the program (thesis 5.5.3, 5.5.4.3), which the preprocessor switches on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extensions {
    /// Acknowledgements report the out-of-order interval.
    pub sack: bool,
    /// Every second segment is acknowledged, or what is sent acknowledges, or a timer.
    pub delayed_acks: bool,
    /// Timestamps, and averages of round-trip times in the data-path.
    pub timely: bool,
    /// The sequencer of shared logs (docs/SHARED-LOG.md).
    pub shared_log: bool,
}

impl Default for Extensions {
    fn default() -> Extensions {
        Extensions { sack: true, delayed_acks: true, timely: false, shared_log: false }
    }
}

impl Extensions {
    /// The thesis' program alone.
    pub const NONE: Extensions = Extensions { sack: false, delayed_acks: false, timely: false, shared_log: false };

    /// The program that is built in, with these.
    pub fn source(self) -> ProgramSource {
        let all = [
            (self.sack, "SACK"),
            (self.delayed_acks, "DELAYED_ACKS"),
            (self.timely, "TIMELY"),
            (self.shared_log, "SHARED_LOG"),
        ];
        let defines = all.into_iter().filter(|(on, _)| *on).map(|(_, name)| (name.into(), String::new())).collect();
        let files = FILES.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        ProgramSource { main: FILES[0].0.into(), files, defines }
    }
}

/// `options` of `headers`.
const OPTION_SACK: u8 = 0x01;
const OPTION_TIMESTAMPS: u8 = 0x02;
const OPTION_UNSCALED: u8 = 0x04;

/// Numbers of the program's registers.
struct Registers {
    rx_window: usize,
    rx_advertised: usize,
    rx_ooo: usize,
    tx_window: usize,
    tx_edge: usize,
    tx_largest: usize,
    tx_credits: usize,
    dup_ack_count: usize,
    ecn_bytes: usize,
    /// Of extensions.
    unacknowledged: Option<usize>,
    ts_recent: Option<usize>,
    ts_clock: Option<usize>,
    timed: Option<usize>,
    rtt: Option<usize>,
    log_reserved: Option<usize>,
    log_tail: Option<usize>,
}

/// The program as it runs.
pub(crate) struct Program {
    pub pipeline: Pipeline,
    registers: Registers,
}

fn exact(value: impl Into<u128>) -> EntryKey {
    EntryKey::Exact(value.into())
}

fn mac(address: Mac) -> u128 {
    address.0.iter().fold(0, |value, byte| value << 8 | *byte as u128)
}

/// What a compiled program was made of: flows, shift, source.
type Key = (u32, u8, ProgramSource);

/// Programs that were compiled before, the latest last: hosts of one daemon share the code.
static COMPILED: Mutex<Vec<(Key, Native)>> = Mutex::new(Vec::new());
/// Most programs in the cache, and most bytes of them.
const CACHED: usize = 64;
const CACHED_BYTES: usize = 32 << 20;
/// What a program takes for each byte of its text, when it is read, compiled and cached, as measured (1.7 MB for 66
/// KB).
const BYTES_FOR_EACH: usize = 25;

fn cache() -> MutexGuard<'static, Vec<(Key, Native)>> {
    COMPILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes room for one more: the oldest go.
fn make_room<T>(cache: &mut Vec<(Key, T)>, more: &Key) {
    let bytes = |(_, _, source): &Key| {
        let pairs = source.files.iter().chain(&source.defines);
        pairs.map(|(name, text)| name.len() + text.len()).sum::<usize>() * BYTES_FOR_EACH
    };
    let mut all = bytes(more) + cache.iter().map(|(key, _)| bytes(key)).sum::<usize>();
    let mut over = 0;
    while over < cache.len() && (all > CACHED_BYTES || cache.len() - over >= CACHED) {
        all -= bytes(&cache[over].0);
        over += 1;
    }
    cache.drain(..over);
}

fn compiled(flows: u32, rx_scale: u8, source: &ProgramSource) -> Result<Native, String> {
    let key = (flows, rx_scale, source.clone());
    if let Some((_, native)) = cache().iter().find(|(known, _)| *known == key) {
        return Ok(native.fresh());
    }
    let native = Native::new(read(flows, rx_scale, source)?.program).map_err(|e| e.to_string())?;
    let fresh = native.fresh();
    let mut cache = cache();
    make_room(&mut cache, &key);
    cache.push((key, native));
    Ok(fresh)
}

/// Reads and checks a program with what the engine defines.
fn read(flows: u32, rx_scale: u8, source: &ProgramSource) -> Result<Loaded, String> {
    let define = |name: &str, value: String| (name.to_string(), value);
    let mut defines = vec![
        define("FLOWS", flows.to_string()),
        define("RX_SCALE", rx_scale.to_string()),
        define("NOTIFY_ACKS", String::new()),
        define("PORT_CHECKSUMS", String::new()),
    ];
    let own: Vec<String> = defines.iter().map(|(name, _)| name.clone()).collect();
    defines.extend(source.defines.iter().filter(|(name, _)| !own.contains(name)).cloned());
    let text =
        |path: &Path| source.files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| text.clone());
    let main = text(Path::new(&source.main)).ok_or_else(|| format!("{} is not among the files", source.main))?;
    let loaded = rmt::load_text(&source.main, main, &defines, &text)
        .map_err(|list| list.iter().map(|d| d.to_string()).collect::<Vec<_>>().join("\n"))?;
    loaded.reads(&source.defines)?;
    Ok(loaded)
}

/// Compiles a program ahead of [`engine::Engine::load`], which then takes no time: for a thread other than the
/// data-path's.
///
/// # Errors
/// Everything that is wrong with it, with places; or that it is not Laminar's.
pub fn prepare(limits: &Limits, rx_scale: u8, source: &ProgramSource) -> Result<(), String> {
    Program::new(limits, rx_scale, source, &Runner::default()).map(drop)
}

impl Program {
    /// The program for so many flows, which advertises windows with this shift.
    pub(crate) fn new(
        limits: &Limits,
        rx_scale: u8,
        source: &ProgramSource,
        runner: &Runner,
    ) -> Result<Program, String> {
        if limits.flows > MOST_FLOWS {
            return Err(format!(
                "the laminar engine holds {MOST_FLOWS} flows, not {}: lower max_flows of this host",
                limits.flows
            ));
        }
        let flows = limits.flows.max(16);
        let mut pipeline = match runner.kind {
            Backend::Native => Pipeline::Native(compiled(flows, rx_scale, source)?),
            Backend::Rtl => {
                let read = read(flows, rx_scale, source)?;
                Pipeline::Model(Box::new(Model::new(&read, runner.waveform.as_deref())?))
            }
        };
        pipeline.set_session(1, Session { port: 0, truncate: 0 });
        let missing = |e: ControlError| format!("this P4 program is not Laminar's: {e}");
        pipeline.table_set_default("from_cpu", "forward", &[PORT_NET as u128]).map_err(missing)?;
        let register = |name: &str| pipeline.register(name).map_err(missing);
        let registers = Registers {
            rx_window: register("rx_window")?,
            rx_advertised: register("rx_advertised")?,
            rx_ooo: register("rx_ooo")?,
            tx_window: register("tx_window")?,
            tx_edge: register("tx_edge")?,
            tx_largest: register("tx_largest")?,
            tx_credits: register("tx_credits")?,
            dup_ack_count: register("dup_ack_count")?,
            ecn_bytes: register("ecn_bytes")?,
            unacknowledged: pipeline.register("unacknowledged").ok(),
            ts_recent: pipeline.register("ts_recent").ok(),
            ts_clock: pipeline.register("ts_clock").ok(),
            timed: pipeline.register("timed").ok(),
            rtt: pipeline.register("rtt").ok(),
            log_reserved: pipeline.register("log_reserved").ok(),
            log_tail: pipeline.register("log_tail").ok(),
        };
        let mut program = Program { pipeline, registers };
        program.has_tables().map_err(missing)?;
        Ok(program)
    }

    /// The backend that runs it.
    pub(crate) fn backend(&self) -> Backend {
        match self.pipeline {
            Pipeline::Native(_) => Backend::Native,
            Pipeline::Model(_) => Backend::Rtl,
        }
    }

    /// Every table and action that is used has the keys and the parameters that it is used with.
    fn has_tables(&mut self) -> Result<(), ControlError> {
        let (flow, zeros) = (exact(0u16), [0; 8]);
        // Both have one more with timestamps.
        let stamped = 7 + usize::from(self.has_timestamps());
        let four = [exact(0u32), exact(0u32), exact(0u16), exact(0u16)];
        let four_v6 = [exact(0u128), exact(0u128), exact(0u16), exact(0u16)];
        for (table, keys, action, args) in [
            ("flows", &four[..], "rx_flow", stamped),
            ("flows_v6", &four_v6, "rx_flow", stamped),
            ("contexts", &[flow, flow], "tx_flow", 3),
            ("headers", &[flow], "addresses", stamped),
            ("headers", &[flow], "addresses_v6", stamped),
            ("grants", &[flow], "granted", 3),
        ]
        .into_iter()
        .chain(self.has_logs().then_some(("logs", &[flow][..], "appends", 4)))
        {
            self.pipeline.table_add(table, keys, 0, action, &zeros[..args])?;
            self.pipeline.table_remove(table, keys)?;
        }
        Ok(())
    }

    /// The state of a flow, from another program's registers of the same names and shapes.
    pub(crate) fn take_over(&mut self, other: &Program, flow: u32) {
        let theirs = &other.pipeline.program().registers;
        let pairs: Vec<(usize, usize)> = self
            .pipeline
            .program()
            .registers
            .iter()
            .enumerate()
            .filter_map(|(to, mine)| {
                // The tails of logs are no flow's, nor is the clock.
                let flows = mine.name != "log_tail" && mine.name != "ts_clock";
                let same = |r: &rmt::ir::Register| flows && r.name == mine.name && r.words == mine.words;
                Some((theirs.iter().position(same)?, to))
            })
            .collect();
        for (from, to) in pairs {
            self.pipeline.write(to, flow, other.pipeline.read(from, flow));
        }
    }

    /// Its segments carry timestamps, and it measures round-trip times.
    pub(crate) fn has_timestamps(&self) -> bool {
        let r = &self.registers;
        [r.ts_recent, r.ts_clock, r.timed, r.rtt].iter().all(Option::is_some)
    }

    /// The time of what goes through the pipeline next: for the switch's clock, and for that of timestamps.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Nanos) {
        self.pipeline.set_time(now);
        if let Some(register) = self.registers.ts_clock {
            self.pipeline.write(register, 0, [Program::ticks(now), 0]);
        }
    }

    /// Its acknowledgements report the out-of-order interval.
    pub(crate) fn has_sack(&self) -> bool {
        let program = self.pipeline.program();
        program.headers.iter().any(|header| header.name == "hdr.sack")
    }

    /// It gives records of flows places in logs.
    pub(crate) fn has_logs(&self) -> bool {
        self.registers.log_reserved.is_some() && self.registers.log_tail.is_some()
    }

    /// Sets everything of a flow, whose clock for timestamps runs `clock` milliseconds before the pipeline's. False
    /// where the tables are full.
    pub(crate) fn install(&mut self, p: &FlowParams, clock: u32) -> bool {
        let flow = p.flow.0;
        let r = &self.registers;
        // Not what the usual buffer holds: what can be reported of it. So nothing beyond what is advertised is accepted
        // (RFC 9293 section 3.10.7.4), but for what the scale rounds off.
        let window = tcp::window::largest_window(p.rx.usual(), p.agreed.rcv_shift);
        for register in [r.rx_window, r.rx_advertised] {
            self.pipeline.write(register, flow, [p.rcv_nxt.0, (p.rcv_nxt + window).0]);
        }
        self.pipeline.write(r.rx_ooo, flow, [0, 0]);
        self.pipeline.write(r.tx_window, flow, [p.snd_nxt.0, p.snd_nxt.0]);
        self.pipeline.write(r.tx_edge, flow, [(p.snd_nxt + p.snd_wnd).0, 0]);
        self.pipeline.write(r.tx_largest, flow, [p.snd_wnd, 0]);
        let extras = [r.unacknowledged, r.timed, r.rtt].into_iter().flatten();
        for register in [r.tx_credits, r.dup_ack_count, r.ecn_bytes].into_iter().chain(extras) {
            self.pipeline.write(register, flow, [0, 0]);
        }
        if let Some(register) = r.ts_recent {
            self.pipeline.write(register, flow, [p.ts_recent, p.rcv_nxt.0]);
        }
        let added = self.show(p, p.rcv_nxt - p.rx_pos);
        added && self.set_headers(p, clock) && self.own(p, p.snd_nxt - p.tx_pos)
    }

    /// The flow has sent before, up to the second of `sent`, and has advertised a window, `received`: next byte
    /// expected and right edge.
    pub(crate) fn resume(&mut self, flow: u32, sent: [Seq; 2], received: [Seq; 2]) {
        self.pipeline.write(self.registers.tx_window, flow, sent.map(|seq| seq.0));
        for register in [self.registers.rx_window, self.registers.rx_advertised] {
            self.pipeline.write(register, flow, received.map(|seq| seq.0));
        }
    }

    /// Its segments find the flow, whose stream begins at this sequence number. False where the table is full.
    pub(crate) fn show(&mut self, p: &FlowParams, base: Seq) -> bool {
        let mut rx = vec![
            p.flow.0 as u128,
            p.context.0 as u128,
            PORT_NET as u128,
            base.0.wrapping_neg() as u128,
            p.rx.most() as u128 - 1,
            0,
        ];
        if self.has_timestamps() {
            rx.push(u128::from(p.agreed.ts_offset.is_some()));
        }
        rx.push(p.agreed.snd_shift as u128);
        let (table, key) = tuple_key(p);
        self.pipeline.table_add(table, &key, 0, "rx_flow", &rx).is_ok()
    }

    /// Its segments are for the exception path.
    pub(crate) fn hide(&mut self, p: &FlowParams) {
        // What is not there needs not be removed.
        let (table, key) = tuple_key(p);
        let _ = self.pipeline.table_remove(table, &key);
    }

    /// Addresses and options of what the flow sends.
    // Meets RFC 2018: 3-a.
    // Meets RFC 7323: 3.2-b.
    pub(crate) fn set_headers(&mut self, p: &FlowParams, clock: u32) -> bool {
        let t = &p.tuple;
        let action = if t.remote_ip.is_v4() { "addresses" } else { "addresses_v6" };
        let sack = if p.agreed.sack { OPTION_SACK } else { 0 };
        let stamps = if p.agreed.ts_offset.is_some() { OPTION_TIMESTAMPS } else { 0 };
        let mut addresses = vec![
            mac(p.remote_mac),
            mac(p.local_mac),
            bits(t.local_ip),
            bits(t.remote_ip),
            t.local_port as u128,
            t.remote_port as u128,
        ];
        if self.has_timestamps() {
            addresses.push(clock as u128);
        }
        let unscaled = if p.agreed.rcv_shift == 0 { OPTION_UNSCALED } else { 0 };
        addresses.push((sack | stamps | unscaled) as u128);
        self.pipeline.table_add("headers", &[exact(p.flow.0 as u16)], 0, action, &addresses).is_ok()
    }

    /// The context of `p` may send on its flow, and no other.
    pub(crate) fn own(&mut self, p: &FlowParams, base: Seq) -> bool {
        let ecn = if p.agreed.ecn { 2 } else { 0 };
        let owner = [exact(p.flow.0 as u16), exact(p.context.0 as u16)];
        self.pipeline.table_add("contexts", &owner, 0, "tx_flow", &[base.0 as u128, PORT_NET as u128, ecn]).is_ok()
    }

    pub(crate) fn disown(&mut self, flow: u32, context: u32) {
        let _ = self.pipeline.table_remove("contexts", &[exact(flow as u16), exact(context as u16)]);
    }

    pub(crate) fn remove(&mut self, p: &FlowParams) {
        self.disown(p.flow.0, p.context.0);
        self.pause(p.flow.0);
        self.hide(p);
        let _ = self.pipeline.table_remove("headers", &[exact(p.flow.0 as u16)]);
    }

    /// The flow's credits come by rate: `bytes` each tick, `most` at once.
    pub(crate) fn grant_by_rate(&mut self, flow: u32, context: u32, bytes: u32, most: u32) {
        let args = [context as u128, bytes as u128, most as u128];
        let _ = self.pipeline.table_add("grants", &[exact(flow as u16)], 0, "granted", &args);
    }

    /// No ticks for this flow.
    pub(crate) fn pause(&mut self, flow: u32) {
        let _ = self.pipeline.table_remove("grants", &[exact(flow as u16)]);
    }

    /// The peer has advertised a window as large as this, and none that was larger.
    pub(crate) fn set_largest_window(&mut self, flow: u32, bytes: u32) {
        self.pipeline.write(self.registers.tx_largest, flow, [bytes, 0]);
    }

    /// `rx_window`: next byte expected, right edge.
    pub(crate) fn rx_window(&self, flow: u32) -> [u32; 2] {
        self.pipeline.read(self.registers.rx_window, flow)
    }

    /// The pipeline takes the acknowledgement of a segment with this sequence number and payload (RFC 9293 section
    /// 3.10.7.4).
    pub(crate) fn accepts(&self, flow: u32, seq: Seq, payload: u32) -> bool {
        let [acked, edge] = self.pipeline.read(self.registers.rx_advertised, flow).map(Seq);
        ReceiveWindow { next: acked, edge }.check_sequence(seq, payload, false, acked).is_ok()
    }

    /// The flow's stream from `first` on is records of a log. False where there is no room.
    pub(crate) fn join_log(&mut self, flow: u32, log: u16, first: Seq, record: u32) -> bool {
        let origin = first.0.wrapping_neg();
        let args = [log as u32, origin, origin.wrapping_add(record - 1), record.wrapping_neg()].map(u128::from);
        self.pipeline.table_add("logs", &[exact(flow as u16)], 0, "appends", &args).is_ok()
    }

    /// Its stream is a stream again.
    pub(crate) fn leave_log(&mut self, flow: u32) {
        let _ = self.pipeline.table_remove("logs", &[exact(flow as u16)]);
    }

    /// So many bytes of the flow's stream have a place in its log.
    pub(crate) fn set_log(&mut self, flow: u32, reserved: u32) {
        if let Some(register) = self.registers.log_reserved {
            self.pipeline.write(register, flow, [reserved, 0]);
        }
    }

    /// The log ends here.
    pub(crate) fn set_log_tail(&mut self, log: u16, tail: u32) {
        if let Some(register) = self.registers.log_tail {
            self.pipeline.write(register, log as u32, [tail, 0]);
        }
    }

    /// Bytes from `rx_next` to the end of what was received out of order; 0 where nothing was.
    pub(crate) fn interval_end(&self, flow: u32) -> u32 {
        self.pipeline.read(self.registers.rx_ooo, flow)[1]
    }

    /// Something was received out of order.
    pub(crate) fn has_interval(&self, flow: u32) -> bool {
        self.pipeline.read(self.registers.rx_ooo, flow)[1] != 0
    }

    /// The stream of the peer has ended at `next`: nothing more fits.
    pub(crate) fn end_rx(&mut self, flow: u32, next: u32) {
        let [acked, _] = self.pipeline.read(self.registers.rx_advertised, flow);
        self.pipeline.write(self.registers.rx_advertised, flow, [acked, next]);
        self.pipeline.write(self.registers.rx_window, flow, [next, next]);
        self.pipeline.write(self.registers.rx_ooo, flow, [0, 0]);
    }

    /// The pipeline's clock for timestamps at a time: milliseconds, as the control plane's on SYN (RFC 7323 section
    /// 5.4).
    // Meets RFC 7323: 5.4-a.
    pub(crate) fn ticks(now: Nanos) -> u32 {
        (now / 1_000_000) as u32
    }

    /// Takes the round-trip time that the data-path measured last, nanoseconds; nothing where it measured none since.
    pub(crate) fn take_rtt(&mut self, flow: u32) -> Option<u32> {
        let register = self.registers.rtt?;
        let rtt = self.pipeline.word(register, flow);
        (rtt > 0).then(|| {
            self.pipeline.write(register, flow, [0, 0]);
            rtt
        })
    }

    /// The peer's clock, as last seen, and the number that was acknowledged last.
    pub(crate) fn peer_clock(&self, flow: u32) -> Option<(u32, Seq)> {
        let [recent, acked] = self.pipeline.read(self.registers.ts_recent?, flow);
        Some((recent, Seq(acked)))
    }

    pub(crate) fn set_peer_clock(&mut self, flow: u32, recent: u32) {
        if let (Some(register), Some((_, acked))) = (self.registers.ts_recent, self.peer_clock(flow)) {
            self.pipeline.write(register, flow, [recent, acked.0]);
        }
    }

    pub(crate) fn ecn_bytes(&self, flow: u32) -> u32 {
        self.pipeline.word(self.registers.ecn_bytes, flow)
    }
}

/// An address as the program has it: 32 bits or 128. Headers name no zone (RFC 4007 section 9).
fn bits(address: IpAddress) -> u128 {
    address.as_v4().map_or(address.to_bits(), |address| address.to_bits().into())
}

/// Where a flow's segments are looked up, and by what.
fn tuple_key(p: &FlowParams) -> (&'static str, [EntryKey; 4]) {
    let t = &p.tuple;
    let table = if t.remote_ip.is_v4() { "flows" } else { "flows_v6" };
    (table, [exact(bits(t.remote_ip)), exact(bits(t.local_ip)), exact(t.remote_port), exact(t.local_port)])
}

impl engine::Registers for Program {
    fn shapes(&self) -> Vec<RegisterShape> {
        let shape = |register: &rmt::ir::Register| {
            let names = register.word_names.iter().cloned().chain([String::new()]);
            let words = names.zip(&register.words).map(|(name, ty)| (name, ty.width())).collect();
            RegisterShape { name: register.name.clone(), entries: register.size, words }
        };
        self.pipeline.registers().iter().map(shape).collect()
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.pipeline.register(name).ok()
    }

    fn read(&self, register: usize, index: u32) -> [u32; 2] {
        self.pipeline.read(register, index)
    }

    fn write(&mut self, register: usize, index: u32, words: [u32; 2]) {
        self.pipeline.write(register, index, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, bytes: usize) -> Key {
        let files = vec![(name.to_string(), "x".repeat(bytes))];
        (16, 0, ProgramSource { main: name.into(), files, defines: Vec::new() })
    }

    #[test]
    fn the_cache_of_programs_has_limits() {
        let mut cache: Vec<(Key, ())> = Vec::new();
        let mut add = |name: &str, bytes: usize| {
            let key = key(name, bytes);
            make_room(&mut cache, &key);
            cache.push((key, ()));
            cache.iter().map(|((_, _, source), ())| source.main.clone()).collect::<Vec<_>>()
        };
        let third = CACHED_BYTES / BYTES_FOR_EACH / 3 - 1;
        (0..100).for_each(|at| assert!(add(&at.to_string(), 100).len() <= CACHED));
        assert_eq!(add("a", third).len(), CACHED);
        add("b", third);
        assert_eq!(add("c", third), ["a", "b", "c"], "the oldest went first");
        assert_eq!(add("d", third), ["b", "c", "d"]);
        assert_eq!(add("e", 4 * third), ["e"], "it is about to be loaded, though it is larger than the limit");
    }
}
