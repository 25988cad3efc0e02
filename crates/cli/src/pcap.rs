//! `opentoe pcap`: frames of a running daemon, into a file, a pipe or lines.
use crate::arguments::PcapArguments;
use crate::locate;
use crate::table::{red, wrong_usage};
use crate::units::several;
use daemon::client;
use daemon::protocol::{Capture, Question};
use port::capture::pcapng::{self, Block, Packet};
use port::capture::{Direction, Instruction};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Captures until the count is reached or somebody ends it.
pub(crate) fn pcap(arguments: &PcapArguments) -> Result<(), String> {
    let to_output = arguments.write.as_deref() == Some(Path::new("-"));
    if to_output && io::stdout().is_terminal() {
        wrong_usage("standard output is a terminal: pipe it into a program, or write to a file with -w FILE");
    }
    let filter = arguments.filter.join(" ");
    let program = compile(&filter).unwrap_or_else(|sentence| wrong_usage(&sentence));
    let wish = Capture {
        host: arguments.host.clone(),
        flow: arguments.flow,
        dropped: arguments.dropped,
        direction: arguments.direction,
        count: arguments.count,
        snaplen: arguments.snaplen,
        filter,
        program,
    };
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let (answer, stream) = client::open(&socket, &Question::Capture(wish))?;
    let names = answer["interfaces"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
    let names: Vec<String> = names.map(String::from).collect();
    let out: Box<dyn Output> = match &arguments.write {
        // Only now: a daemon that refuses leaves an older file as it is.
        Some(path) if !to_output => {
            let file = File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
            Box::new(Copy { to: BufWriter::new(file), name: path.display().to_string() })
        }
        Some(_) => Box::new(Copy { to: BufWriter::new(io::stdout()), name: "standard output".into() }),
        None => Box::new(Lines { width: names.iter().map(String::len).max().unwrap_or(0), names: names.clone() }),
    };
    eprintln!("opentoe: capturing on {}; Ctrl-C ends it", names.join(", "));
    end_on_signals(stream.get_ref()).map_err(|e| format!("cannot receive signals: {e}"))?;
    run(stream, out)
}

/// Has libpcap compile a filter. The error is a sentence.
fn compile(filter: &str) -> Result<Vec<Instruction>, String> {
    let not_understood = |error: pcap::Error| match error {
        pcap::Error::PcapError(text) => format!("the filter `{filter}` is not understood: {}", text.trim_end()),
        other => format!("the filter `{filter}` is not understood: {other}"),
    };
    let ethernet = pcap::Capture::dead(pcap::Linktype::ETHERNET).map_err(not_understood)?;
    let program = ethernet.compile(filter, true).map_err(not_understood)?;
    let instructions = program.get_instructions().iter().map(|instruction| words(&instruction.to_string()));
    instructions.collect::<Option<Vec<_>>>().ok_or_else(|| "this libpcap shows programs in a strange form".into())
}

/// The crate shows an instruction only as text: opcode, jumps, operand.
fn words(text: &str) -> Option<Instruction> {
    let mut words = text.split_whitespace();
    let mut next = || words.next()?.parse::<u32>().ok();
    Some((next()?.try_into().ok()?, next()?.try_into().ok()?, next()?.try_into().ok()?, next()?))
}

/// On the first Ctrl-C the daemon is notified that this is enough, and then sends what is left; a second one ends at
/// once.
fn end_on_signals(stream: &UnixStream) -> io::Result<()> {
    let (mut signals, stream) = (Signals::new([SIGINT, SIGTERM])?, stream.try_clone()?);
    std::thread::spawn(move || {
        let mut arrived = signals.forever();
        arrived.next();
        let _ = stream.shutdown(Shutdown::Write);
        arrived.next();
        std::process::exit(130);
    });
    Ok(())
}

/// Where blocks go.
trait Output {
    /// Takes the bytes of a block. The error is a sentence; an empty one where the reader went away.
    fn take(&mut self, block: &[u8]) -> Result<(), String>;
    /// Nothing more is there for the moment.
    fn flush(&mut self) -> Result<(), String>;
}

fn run(mut stream: BufReader<UnixStream>, mut out: Box<dyn Output>) -> Result<(), String> {
    let (mut block, mut frames, mut lost, mut complete) = (Vec::new(), 0u64, 0, false);
    let broken = |e: io::Error| format!("the capture broke off: {e}");
    loop {
        match pcapng::read_bytes(&mut stream, &mut block) {
            Ok(true) => {}
            Ok(false) => break,
            // The daemon was killed in the middle of a block.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(broken(error)),
        }
        match pcapng::parse(&block).map_err(broken)? {
            Block::Packet(_) => frames += 1,
            Block::Statistics(_, counts) => (lost, complete) = (lost + counts.lost, true),
            _ => {}
        }
        let done = out.take(&block).and_then(|()| if stream.buffer().is_empty() { out.flush() } else { Ok(()) });
        match done {
            // The reader of our output had enough.
            Err(sentence) if sentence.is_empty() => return Ok(()),
            done => done?,
        }
    }
    out.flush()?;
    let found = format!("{} captured", several(frames as usize, "frame"));
    if !complete {
        return Err(format!("the daemon has ended: {found}"));
    }
    let lost = if lost == 0 { String::new() } else { red(&format!(", {lost} lost: this reader was too slow")) };
    eprintln!("opentoe: {found}{lost}");
    Ok(())
}

/// Blocks as they are.
struct Copy<T: Write> {
    to: BufWriter<T>,
    name: String,
}

impl<T: Write> Copy<T> {
    fn judge(&self, done: io::Result<()>) -> Result<(), String> {
        done.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => String::new(),
            _ => format!("cannot write {}: {error}", self.name),
        })
    }
}

impl<T: Write> Output for Copy<T> {
    fn take(&mut self, block: &[u8]) -> Result<(), String> {
        let done = self.to.write_all(block);
        self.judge(done)
    }

    fn flush(&mut self) -> Result<(), String> {
        let done = self.to.flush();
        self.judge(done)
    }
}

/// One line a frame.
struct Lines {
    names: Vec<String>,
    width: usize,
}

impl Output for Lines {
    fn take(&mut self, block: &[u8]) -> Result<(), String> {
        if let Ok(Block::Packet(packet)) = pcapng::parse(block) {
            return wanted(console::print(&format!("{}\n", self.line(&packet))));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        wanted(console::flush())
    }
}

/// An error without a sentence where nobody reads: `main` prints one unless the reader has closed the pipe.
fn wanted(read: bool) -> Result<(), String> {
    if read { Ok(()) } else { Err(String::new()) }
}

impl Lines {
    fn line(&self, packet: &Packet) -> String {
        let name = self.names.get(packet.interface as usize).map_or("?", String::as_str);
        let direction = match packet.direction {
            Some(Direction::In) => "in ",
            Some(Direction::Out) => "out",
            None => "   ",
        };
        let what = wire::describe::frame(&packet.bytes, packet.len as usize);
        let comment = if packet.comment.contains("dropped") { red(&packet.comment) } else { packet.comment.clone() };
        format!("{} {name:width$} {direction} {what} ({comment})", time_of_day(packet.time), width = self.width)
    }
}

/// Hours, minutes, seconds and nanoseconds, in UTC.
fn time_of_day(unix: u64) -> String {
    let (seconds, nanos) = (unix / 1_000_000_000 % 86_400, unix % 1_000_000_000);
    format!("{:02}:{:02}:{:02}.{nanos:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_place_packet_and_reason() {
        let lines = Lines { names: vec!["a".into(), "fabric lab".into()], width: 10 };
        let packet = Packet {
            interface: 0,
            time: 86_400_000_000_000 + 3_661_000_000_007,
            direction: Some(Direction::In),
            len: 60,
            bytes: vec![0; 14],
            comment: "control: accepted".into(),
        };
        let line = "01:01:01.000000007 a          in  ethertype 0x0000, length 46 (control: accepted)";
        assert_eq!(lines.line(&packet), line);
    }

    #[test]
    fn filters_are_compiled_or_refused_in_a_sentence() {
        assert_eq!(compile("").unwrap(), [(6, 0, 0, 65_535)]);
        assert_eq!(compile("arp").unwrap()[0], (40, 0, 0, 12));
        let sentence = compile("tcp prot 80").unwrap_err();
        assert!(sentence.starts_with("the filter `tcp prot 80` is not understood: "), "{sentence}");
        assert_eq!(sentence.lines().count(), 1);
    }
}
