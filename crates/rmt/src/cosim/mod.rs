//! Co-simulation: a program as the RTL that [`crate::rtl`] makes of it, simulated by Verilator in a process beside. A
//! [`Model`] is what [`crate::native::Native`] is, with the same control API, the same outputs and the same registers.
mod build;
mod channel;
mod prune;

use crate::Loaded;
use crate::control::{self, ControlError, EntryKey};
use crate::interp::Session;
use crate::ir::{Gress, Program, Register, mask};
use crate::native::{Input, Mirrored, Output, Through};
use crate::rtl::{Control, Map, Operation};
use channel::{Answer, Channel};
use std::cell::RefCell;
use std::path::Path;

/// A program whose halves are simulated.
pub struct Model {
    program: Program,
    halves: [Half; 2],
    channel: RefCell<Channel>,
    sessions: Vec<Option<Session>>,
    now_ns: u64,
    /// Copies that the last packet made.
    mirrored: Vec<Mirrored>,
}

/// What stands around one half.
struct Half {
    control: Control,
    map: Map,
}

impl Half {
    /// Bytes of data on its control bus.
    fn control_bytes(&self) -> usize {
        self.map.control_bits.div_ceil(8) as usize
    }
}

/// On the channel.
fn number(gress: Gress) -> u8 {
    u8::from(gress == Gress::Egress)
}

impl Model {
    /// Builds the model, which takes a minute, or finds the one that was built before; then starts it. Registers are at
    /// their initial values, tables hold their constant entries. The waveform of all clocks goes to a file (VCD).
    ///
    /// # Errors
    /// What cannot be RTL, with its place; or what of Verilator, the compiler and the system failed.
    pub fn new(loaded: &Loaded, waveform: Option<&Path>) -> Result<Model, String> {
        Model::cached_in(&build::cache()?, loaded, waveform)
    }

    /// The same, with a folder for what is built, in which nobody else may write.
    ///
    /// # Errors
    /// Likewise.
    pub fn cached_in(folder: &Path, loaded: &Loaded, waveform: Option<&Path>) -> Result<Model, String> {
        let (executable, maps) = build::build(folder, loaded, waveform)?;
        let channel = RefCell::new(Channel::start(&executable)?);
        let half = |map: Map| Half { control: Control::new(loaded.program.clone(), map.clone()), map };
        let program = loaded.program.clone();
        let halves = maps.map(half);
        Ok(Model { program, halves, channel, sessions: vec![None; 256], now_ns: 0, mirrored: Vec::new() })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Why the simulation ended. From then on packets are dropped, and registers are zero.
    pub fn failure(&self) -> Option<String> {
        self.channel.borrow().failure().map(String::from)
    }

    /// The number of the process that simulates.
    pub fn process(&self) -> u32 {
        self.channel.borrow().process()
    }

    /// The time that packets see, nanoseconds.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Sets the destination of a session's copies.
    pub fn set_session(&mut self, id: u8, session: Session) {
        self.sessions[usize::from(id)] = Some(session);
    }

    /// As [`crate::interp::Machine::table_add`].
    ///
    /// # Errors
    /// As there; also, full is a table of which no rearrangement makes room for the key.
    pub fn table_add(
        &mut self,
        table: &str,
        keys: &[EntryKey],
        priority: u32,
        action: &str,
        args: &[u128],
    ) -> Result<(), ControlError> {
        self.change(|control| control.table_add(table, keys, priority, action, args))
    }

    /// Removes the entries of these keys.
    ///
    /// # Errors
    /// A name or keys that the program does not have; constant entries.
    pub fn table_remove(&mut self, table: &str, keys: &[EntryKey]) -> Result<(), ControlError> {
        self.change(|control| control.table_remove(table, keys))
    }

    /// Sets what happens on a miss.
    ///
    /// # Errors
    /// A name or arguments that the program does not have; a constant default.
    pub fn table_set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), ControlError> {
        self.change(|control| control.table_set_default(table, action, args))
    }

    /// Operations of both halves: a table is in one of them, and the other has none for it.
    fn change(
        &mut self,
        mut operations: impl FnMut(&mut Control) -> Result<Vec<Operation>, ControlError>,
    ) -> Result<(), ControlError> {
        for (number, half) in self.halves.iter_mut().enumerate() {
            let list = operations(&mut half.control)?;
            let bytes = half.control_bytes();
            let mut channel = self.channel.borrow_mut();
            list.iter().for_each(|o| channel.write(number as u8, o.target, o.index, &data(&o.data, bytes)));
        }
        Ok(())
    }

    /// A register by name, for [`Model::read`] and [`Model::write`].
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn register(&self, name: &str) -> Result<usize, ControlError> {
        control::by_name(name, self.program.registers.iter().map(|r| r.name.as_str()))
    }

    /// All registers, in the order of their numbers.
    pub fn registers(&self) -> &[Register] {
        &self.program.registers
    }

    /// The words of a register's entry; the second is 0 where there is one. Zeros beyond the end.
    pub fn read(&self, register: usize, index: u32) -> [u32; 2] {
        if index >= self.program.registers[register].size {
            return [0, 0];
        }
        for (number, half) in self.halves.iter().enumerate() {
            if let Some(target) = half.control.register_target(register) {
                let bytes = self.channel.borrow_mut().read(number as u8, target, index, half.control_bytes());
                let words = half.control.words(target, &hex(&bytes));
                let word = |at: usize| words.get(at).map_or(0, |word| *word as u32);
                return [word(0), word(1)];
            }
        }
        [0, 0]
    }

    /// Sets the words of a register's entry, each cut to its width; nothing beyond the end.
    pub fn write(&mut self, register: usize, index: u32, words: [u32; 2]) {
        let info = &self.program.registers[register];
        if index >= info.size {
            return;
        }
        let words: Vec<u128> =
            info.words.iter().zip(words).map(|(ty, word)| u128::from(word) & mask(ty.width())).collect();
        let name = info.name.clone();
        // Of words that fit, and an entry that is there, nothing is refused.
        let _ = self.change(|control| Ok(control.register_write(&name, index, &words)?.into_iter().collect()));
    }

    /// Most bytes of headers that a half emits.
    pub fn room(&self) -> usize {
        self.halves.iter().map(|half| half.map.out_bytes as usize).max().unwrap_or(0)
    }

    /// As [`crate::native::Native::one`].
    ///
    /// # Panics
    /// If `head` is shorter than [`Model::room`].
    pub fn one(&mut self, gress: Gress, packet: Input<'_>, head: &mut [u8]) -> Output {
        let kind = if gress == Gress::Ingress { b'I' } else { b'E' };
        self.pass(kind, &packet, number(gress), head).1
    }

    /// As [`crate::native::Native::through`].
    ///
    /// # Panics
    /// If `head` is shorter than [`Model::room`].
    pub fn through(&mut self, packet: Input<'_>, head: &mut [u8]) -> Through {
        let (crossed, output) = self.pass(b'T', &packet, number(Gress::Ingress), head);
        Through { crossed, output }
    }

    /// A packet into a half; whether it came out of egress, and what came out.
    fn pass(&mut self, kind: u8, packet: &Input<'_>, half: u8, head: &mut [u8]) -> (bool, Output) {
        assert!(head.len() >= self.room(), "room for all headers");
        self.mirrored.clear();
        let most = self.halves[usize::from(half)].map.in_bytes as usize;
        let channel = self.channel.get_mut();
        let Some(answer) = channel.packet(kind, packet, most, self.now_ns) else { return (false, Output::dropped()) };
        for _ in 0..answer.copies.count_ones() {
            let Some((session, front)) = channel.copy() else { return (false, Output::dropped()) };
            if let Some(session) = self.sessions[usize::from(session)] {
                self.mirrored.push(copied(&answer, session, front));
            }
        }
        let Some(headers) = channel.headers() else { return (false, Output::dropped()) };
        head[..headers.len()].copy_from_slice(headers);
        let counts = [headers.len(), self.mirrored.len()];
        let mut output = Output::new(!answer.dropped, answer.port, answer.payload_at, counts);
        (output.queue, output.bypass) = (answer.queue, answer.bypass);
        (answer.egress, output)
    }

    /// The copies that the last pass made.
    pub fn mirrored(&self) -> impl Iterator<Item = Mirrored> + '_ {
        self.mirrored.iter().copied()
    }
}

fn copied(answer: &Answer, session: Session, front: &[u8]) -> Mirrored {
    let port = if answer.copy_port == 0 { session.port } else { answer.copy_port };
    Mirrored::new(port, answer.copy_queue, session.truncate, front)
}

/// A hexadecimal number as so many bytes, the lowest first.
fn data(hex: &str, bytes: usize) -> Vec<u8> {
    let digit = |at: usize| {
        let from_end = hex.len().checked_sub(1 + at).and_then(|i| hex.as_bytes().get(i));
        from_end.and_then(|d| (*d as char).to_digit(16)).unwrap_or(0) as u8
    };
    (0..bytes).map(|at| digit(2 * at) | digit(2 * at + 1) << 4).collect()
}

/// The reverse.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect()
}
