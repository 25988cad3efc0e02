//! Programs compiled to native code when they are loaded. A [`Native`] is what [`crate::interp::Machine`] is, with the
//! same control API, the same outputs and the same registers, in batches and without an allocation for each packet.
//! The interpreter is the reference: `tests/native` compares them packet by packet.
//!
//! A packet is given as its first bytes, which the parser reads, and its whole length; what lies behind those bytes
//! (payload by reference) is never touched. What comes out are the bytes in front, and how much of the packet they
//! replace.
mod code;
mod context;
mod facts;
mod live;
mod lower;
mod matching;
mod packet;
mod tables;
mod values;
mod ways;

pub use crate::control::{ControlError, EntryKey};
pub use lower::Refusal;

use crate::control::{self, Addition};
use crate::interp::Session;
use crate::ir::{Deparse, Gress, Program};
use crate::meter::{Meters, Rates};
use code::Code;
use context::{Context, MirrorOut};
use std::sync::Arc;
use tables::Memory;

/// Copies that one pass can make.
const MOST_MIRRORS: usize = 4;
/// Bytes that a mirror puts in front of its copy at most: the hardware's limit.
const MOST_SIDE_BYTES: usize = 48;
/// Batches through one pass are cut at this many packets, so that the headers' room has a bound.
const HEADS: usize = 256;

/// A packet into a half.
#[derive(Debug, Clone, Copy)]
pub struct Input<'p> {
    /// Ingress: where it came from. Egress: where it goes.
    pub port: u16,
    /// Egress: its queue.
    pub queue: u8,
    /// Its bytes, from the first; all that a parser may read.
    pub bytes: &'p [u8],
    /// Its length, bytes, with what lies behind.
    pub length: usize,
}

impl<'p> Input<'p> {
    /// A packet whose bytes are all there.
    pub fn whole(port: u16, bytes: &'p [u8]) -> Input<'p> {
        Input { port, queue: 0, bytes, length: bytes.len() }
    }
}

/// What a half made of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// It goes on: ingress to the traffic manager, egress out of its port. Otherwise it was dropped.
    pub kept: bool,
    /// Ingress: egress port.
    pub port: u16,
    /// Ingress: queue.
    pub queue: u8,
    /// Ingress: without egress processing.
    pub bypass: bool,
    /// Bytes of the input that [`Output::head`] replaces.
    pub rest: usize,
    head: (u32, u32),
    mirrors: (u32, u32),
}

impl Output {
    /// Bytes that replace those before [`Output::rest`].
    pub fn head_len(&self) -> usize {
        self.head.1 as usize
    }
}

/// A copy by the mirror, on its way to egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirrored {
    /// Egress port.
    pub port: u16,
    /// Queue.
    pub queue: u8,
    /// Bytes of the packet itself that follow at most: of the original (ingress), of what left (egress).
    pub truncate: usize,
    len: usize,
    bytes: [u8; MOST_SIDE_BYTES],
}

impl Mirrored {
    /// What stands in front.
    pub fn front(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Results of a batch; its memory is used again for the next.
#[derive(Debug, Default)]
pub struct Batch {
    /// One for each packet, in order.
    pub outputs: Vec<Output>,
    heads: Vec<u8>,
    mirrors: Vec<Mirrored>,
}

impl Batch {
    /// The bytes in front of what is left of a packet.
    pub fn head(&self, output: &Output) -> &[u8] {
        &self.heads[output.head.0 as usize..][..output.head.1 as usize]
    }

    /// Its copies.
    pub fn mirrors(&self, output: &Output) -> &[Mirrored] {
        &self.mirrors[output.mirrors.0 as usize..output.mirrors.1 as usize]
    }

    fn clear(&mut self) {
        self.outputs.clear();
        self.heads.clear();
        self.mirrors.clear();
    }
}

/// A compiled program at work: what generated code may touch is prepared, and lent out until this goes.
pub struct Passes<'n> {
    code: &'n Code,
    sessions: &'n [Option<Session>],
    rooms: [usize; 2],
    random: &'n mut u64,
    context: Context,
    /// Of the last pass.
    copies: usize,
}

impl Passes<'_> {
    /// Most bytes of headers that a half emits.
    pub fn room(&self, gress: Gress) -> usize {
        self.rooms[(gress == Gress::Egress) as usize]
    }

    /// One packet through a half. Its headers go to the front of `head`, as many bytes as [`Output::head_len`] says.
    ///
    /// # Panics
    /// If `head` is shorter than [`Passes::room`].
    #[inline]
    pub fn run(&mut self, gress: Gress, packet: Input<'_>, head: &mut [u8]) -> Output {
        assert!(head.len() >= self.room(gress), "room for all headers");
        let context = &mut self.context;
        context.packet = packet.bytes.as_ptr();
        context.len = packet.bytes.len() as u64;
        context.length = packet.length as u64;
        (context.port, context.queue) = (packet.port as u64, packet.queue as u64);
        context.head = head.as_mut_ptr();
        context.mirror_count = 0;
        let accepted = self.code.run(gress, context);
        let drop = context.out[context::OUT_DROP];
        self.copies = if accepted && drop & 4 == 0 { context.mirror_count as usize } else { 0 };
        let goes = gress == Gress::Egress || context.port_set == 1;
        Output {
            kept: accepted && drop & 1 == 0 && goes,
            port: context.out[context::OUT_PORT] as u16,
            queue: context.out[context::OUT_QUEUE] as u8,
            bypass: context.out[context::OUT_BYPASS] == 1,
            rest: if accepted { context.rest as usize } else { 0 },
            head: (0, if accepted { context.head_len as u32 } else { 0 }),
            mirrors: (0, self.copies as u32),
        }
    }

    /// The copies that the last pass made.
    pub fn mirrored(&self) -> impl Iterator<Item = Mirrored> + '_ {
        let copies = &self.context.mirrors[..self.copies.min(MOST_MIRRORS)];
        copies.iter().filter_map(|copy| {
            let session = (*self.sessions.get(copy.session as usize & 0xff)?)?;
            let port = match self.context.out[context::OUT_MIRROR_PORT] {
                0 => session.port,
                port => port as u16,
            };
            let queue = self.context.out[context::OUT_MIRROR_QUEUE] as u8;
            Some(Mirrored { port, queue, truncate: session.truncate, len: copy.len as usize, bytes: copy.bytes })
        })
    }
}

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        *self.random = self.context.random;
    }
}

/// A compiled program with its state.
pub struct Native {
    program: Program,
    /// Shared with others of the same program.
    code: Arc<Code>,
    registers: Vec<Vec<u8>>,
    counters: Vec<Vec<u64>>,
    meters: Vec<Meters>,
    tables: Vec<Memory>,
    sessions: Vec<Option<Session>>,
    random: u64,
    now_ns: u64,
    /// Most bytes of headers that each half may emit.
    head_bytes: [usize; 2],
    /// Addresses for generated code, made anew for each batch.
    addresses: [Vec<u64>; 3],
}

impl Native {
    /// Compiles. Registers are at their initial values, tables hold their constant entries.
    ///
    /// # Errors
    /// A construct that the interpreter runs and the code generator does not know: digests, resubmission, arithmetic
    /// above 64 bits that no stateful ALU has.
    pub fn new(program: Program) -> Result<Native, Refusal> {
        let code = Arc::new(Code::make(&program)?);
        Ok(Native::with(code, program))
    }

    /// Another one of the same program, as it was at the start: nothing is compiled.
    pub fn fresh(&self) -> Native {
        Native::with(Arc::clone(&self.code), self.program.clone())
    }

    fn with(code: Arc<Code>, program: Program) -> Native {
        let registers = program.registers.iter().map(initial).collect();
        let tables: Vec<Memory> = program.tables.iter().map(|t| Memory::new(&program, t)).collect();
        let counters: Vec<Vec<u64>> = program.counters.iter().map(|c| vec![0; c.size as usize]).collect();
        let meters = program.meters.iter().map(|m| Meters::new(m.size, m.bytes)).collect();
        let head_bytes = [Gress::Ingress, Gress::Egress].map(|g| emitted(&program, &program.half(g).deparser));
        Native {
            code,
            registers,
            counters,
            meters,
            tables,
            sessions: vec![None; 256],
            random: 0x9e37_79b9_7f4a_7c15,
            now_ns: 0,
            head_bytes,
            addresses: Default::default(),
            program,
        }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The time that packets see, nanoseconds.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Where copies of a session go.
    pub fn set_session(&mut self, id: u8, session: Session) {
        self.sessions[id as usize] = Some(session);
    }

    /// Packets through ingress, in order.
    pub fn ingress<'p>(&mut self, packets: impl IntoIterator<Item = Input<'p>>, out: &mut Batch) {
        self.run(Gress::Ingress, packets, out);
    }

    /// Packets through egress, in order. Those that bypass egress leave as they are: they are not for here.
    pub fn egress<'p>(&mut self, packets: impl IntoIterator<Item = Input<'p>>, out: &mut Batch) {
        self.run(Gress::Egress, packets, out);
    }

    fn run<'p>(&mut self, gress: Gress, packets: impl IntoIterator<Item = Input<'p>>, out: &mut Batch) {
        out.clear();
        let mut passes = self.passes();
        let room = passes.room(gress);
        for packet in packets {
            let at = out.heads.len();
            if out.heads.capacity() < at + room {
                out.heads.reserve(room.max(1) * HEADS);
            }
            out.heads.resize(at + room, 0);
            let mut output = passes.run(gress, packet, &mut out.heads[at..]);
            let first = out.mirrors.len() as u32;
            out.mirrors.extend(passes.mirrored());
            output.head.0 = at as u32;
            output.mirrors = (first, out.mirrors.len() as u32);
            out.heads.truncate(at + output.head.1 as usize);
            out.outputs.push(output);
        }
    }

    /// For packets one by one, through either half. Tables and registers stand still meanwhile, but for what the
    /// program itself changes.
    pub fn passes(&mut self) -> Passes<'_> {
        let context = self.context();
        Passes {
            code: &self.code,
            sessions: &self.sessions,
            rooms: self.head_bytes,
            random: &mut self.random,
            context,
            copies: 0,
        }
    }

    /// Pointers to everything that a pass may touch, good until something of it is borrowed again.
    fn context(&mut self) -> Context {
        let [registers, counters, defaults] = &mut self.addresses;
        registers.clear();
        registers.extend(self.registers.iter_mut().map(|r| r.as_mut_ptr().expose_provenance() as u64));
        counters.clear();
        counters.extend(self.counters.iter_mut().map(|c| c.as_mut_ptr().expose_provenance() as u64));
        defaults.clear();
        defaults.extend(self.tables.iter().map(|t| t.default().as_ptr().expose_provenance() as u64));
        Context {
            packet: std::ptr::null(),
            len: 0,
            length: 0,
            port: 0,
            queue: 0,
            now: self.now_ns,
            head: std::ptr::null_mut(),
            registers: registers.as_ptr(),
            counters: counters.as_ptr(),
            defaults: defaults.as_ptr(),
            tables: self.tables.as_ptr(),
            meters: self.meters.as_mut_ptr(),
            program: &self.program,
            random: self.random,
            head_len: 0,
            rest: 0,
            port_set: 0,
            out: [0; 6],
            mirror_count: 0,
            mirrors: [MirrorOut { session: 0, len: 0, bytes: [0; MOST_SIDE_BYTES] }; MOST_MIRRORS],
        }
    }

    // ---- the control plane's view: as the interpreter's ----

    /// As [`crate::interp::Machine::table_add`].
    ///
    /// # Errors
    /// A name, keys or arguments that the program does not have; a full table; constant entries.
    pub fn table_add(
        &mut self,
        table: &str,
        keys: &[EntryKey],
        priority: u32,
        action: &str,
        args: &[u128],
    ) -> Result<(), ControlError> {
        let Addition { table: index, keys, priority, call } =
            control::addition(&self.program, table, keys, priority, action, args)?;
        let info = &self.program.tables[index];
        let added = self.tables[index].add(&self.program, info, keys, priority, call);
        if added { Ok(()) } else { Err(ControlError::Full(table.into())) }
    }

    /// Removes the entries of these keys; whether there was one.
    ///
    /// # Errors
    /// A name or keys that the program does not have; constant entries.
    pub fn table_remove(&mut self, table: &str, keys: &[EntryKey]) -> Result<bool, ControlError> {
        let (index, keys) = control::removal(&self.program, table, keys)?;
        Ok(self.tables[index].remove(&keys))
    }

    /// Sets what happens on a miss.
    ///
    /// # Errors
    /// A name or arguments that the program does not have; a constant default.
    pub fn table_set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), ControlError> {
        let (index, call) = control::new_default(&self.program, table, action, args)?;
        self.tables[index].set_default(&self.program, &self.program.tables[index], &call);
        Ok(())
    }

    /// Entries now.
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn table_len(&self, table: &str) -> Result<usize, ControlError> {
        let index = control::table_index(&self.program, table)?;
        // Constant entries are in the code.
        Ok(self.tables[index].len() + self.program.tables[index].entries.len())
    }

    /// A register by name, for [`Native::read`] and [`Native::write`].
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn register(&self, name: &str) -> Result<usize, ControlError> {
        control::by_name(name, self.program.registers.iter().map(|r| r.name.as_str()))
    }

    /// The words of a register's entry; the second is 0 where there is one. Zeros beyond the end.
    pub fn read(&self, register: usize, index: u32) -> [u32; 2] {
        let info = &self.program.registers[register];
        if index >= info.size {
            return [0, 0];
        }
        let size = word_bytes(info.words[0].width());
        let from = index as usize * info.words.len() * size;
        let entry = self.registers[register].get(from..from + info.words.len() * size).unwrap_or(&[]);
        if let Some(word) = entry.first_chunk().filter(|_| size == 4) {
            let second = entry.get(4..).and_then(|rest| rest.first_chunk());
            return [u32::from_le_bytes(*word), second.map_or(0, |word| u32::from_le_bytes(*word))];
        }
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b));
        let (first, second) = entry.split_at_checked(size).unwrap_or((entry, &[]));
        [word(first), word(second)]
    }

    /// Sets the words of a register's entry, each cut to its width; nothing beyond the end.
    pub fn write(&mut self, register: usize, index: u32, words: [u32; 2]) {
        let info = &self.program.registers[register];
        if index >= info.size {
            return;
        }
        for (at, (ty, value)) in info.words.iter().zip(words).enumerate() {
            let size = word_bytes(ty.width());
            let from = (index as usize * info.words.len() + at) * size;
            if let Some(place) = self.registers[register].get_mut(from..from + size) {
                let value = value & crate::ir::mask(ty.width()) as u32;
                place.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
    }

    /// As [`crate::interp::Machine::meter_set`].
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn meter_set(&mut self, name: &str, index: u32, rates: Option<Rates>) -> Result<(), ControlError> {
        let meter = control::by_name(name, self.program.meters.iter().map(|m| m.name.as_str()))?;
        let set = self.meters[meter].set(index, rates, self.now_ns);
        if set { Ok(()) } else { Err(ControlError::Index(index)) }
    }

    /// A counter's value: packets.
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn counter_read(&self, name: &str, index: u32) -> Result<u64, ControlError> {
        let counter = control::by_name(name, self.program.counters.iter().map(|c| c.name.as_str()))?;
        self.counters[counter].get(index as usize).copied().ok_or(ControlError::Index(index))
    }
}

/// Bytes of a register word in memory.
fn word_bytes(width: u32) -> usize {
    (width.div_ceil(8) as usize).next_power_of_two()
}

fn initial(register: &crate::ir::Register) -> Vec<u8> {
    let words = register.words.iter().zip(&register.initial);
    let entry: Vec<u8> = words.flat_map(|(ty, value)| value.to_le_bytes()[..word_bytes(ty.width())].to_vec()).collect();
    // One more, where writes beyond the end go.
    entry.repeat(register.size as usize + 1)
}

/// Bytes of headers that a deparser may emit at most.
fn emitted(program: &Program, list: &[Deparse]) -> usize {
    let bytes = |item: &Deparse| match item {
        Deparse::Emit(h) => program.headers[*h].bits.div_ceil(8) as usize,
        Deparse::If(_, yes, no) => emitted(program, yes) + emitted(program, no),
        _ => 0,
    };
    list.iter().map(bytes).sum()
}
