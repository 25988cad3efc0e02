//! The NBD protocol, as far as its messages go (github.com/NetworkBlockDevice/nbd, doc/proto.md): fixed newstyle
//! negotiation, and transmission with simple replies.
use std::io::{self, Read, Write};

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

/// Handshake flags: fixed newstyle, no padding.
const HANDSHAKE: u16 = 1 | 2;
/// Of the client's flags: no padding.
const NO_ZEROES: u32 = 2;
/// Padding where the client asks for it.
const ZEROES: usize = 124;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_LIST: u32 = 3;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;
/// Longest data of an option that is read.
const MOST_OPTION: u32 = 8192;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_UNSUPPORTED: u32 = 1 << 31 | 1;
const REP_INVALID: u32 = 1 << 31 | 3;
const REP_UNKNOWN: u32 = 1 << 31 | 6;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 2;
const SEND_FLUSH: u16 = 4;
const SEND_FUA: u16 = 8;
/// Several connections see each other's writes: a write that was answered is durable.
const CAN_MULTI_CONN: u16 = 256;

/// Most bytes of a request.
pub(super) const MOST: u32 = 32 << 20;
const PREFERRED: u32 = 4096;

/// Export of a volume: name, size and rights.
#[derive(Debug, Clone)]
pub(super) struct Export {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) read_only: bool,
}

impl Export {
    fn flags(&self) -> u16 {
        let base = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        if self.read_only { base | READ_ONLY } else { base }
    }
}

fn u16_of(stream: &mut impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes).map(|()| u16::from_be_bytes(bytes))
}

fn u32_of(stream: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).map(|()| u32::from_be_bytes(bytes))
}

fn u64_of(stream: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).map(|()| u64::from_be_bytes(bytes))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Negotiates. True where transmission begins, false where the client closes the connection.
pub(super) fn negotiate(stream: &mut (impl Read + Write), export: &Export) -> io::Result<bool> {
    stream
        .write_all(&[&INIT_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &HANDSHAKE.to_be_bytes()].concat())?;
    let padded = u32_of(stream)? & NO_ZEROES == 0;
    loop {
        if u64_of(stream)? != OPTION_MAGIC {
            return Err(malformed("no NBD option"));
        }
        let (option, len) = (u32_of(stream)?, u32_of(stream)?);
        if len > MOST_OPTION {
            return Err(malformed("an NBD option is too long"));
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match option {
            OPT_EXPORT_NAME => return export_name(stream, &data, export, padded),
            OPT_ABORT => {
                reply(stream, option, REP_ACK, &[])?;
                return Ok(false);
            }
            OPT_LIST => {
                let named = [&(export.name.len() as u32).to_be_bytes()[..], export.name.as_bytes()].concat();
                reply(stream, option, REP_SERVER, &named)?;
                reply(stream, option, REP_ACK, &[])?;
            }
            OPT_INFO | OPT_GO => {
                let known = info(stream, option, &data, export)?;
                if known && option == OPT_GO {
                    return Ok(true);
                }
            }
            _ => reply(stream, option, REP_UNSUPPORTED, &[])?,
        }
    }
}

fn reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let header = [REPLY_MAGIC.to_be_bytes(), (u64::from(option) << 32 | u64::from(kind)).to_be_bytes()].concat();
    stream.write_all(&[&header[..], &(data.len() as u32).to_be_bytes(), data].concat())
}

/// The export has this name, or no name is given.
fn is_name(name: &[u8], export: &Export) -> bool {
    name.is_empty() || name == export.name.as_bytes()
}

fn export_name(stream: &mut impl Write, name: &[u8], export: &Export, padded: bool) -> io::Result<bool> {
    if !is_name(name, export) {
        // The protocol has no answer for this option but to go.
        return Ok(false);
    }
    let mut answer = [&export.bytes.to_be_bytes()[..], &export.flags().to_be_bytes()].concat();
    if padded {
        answer.resize(answer.len() + ZEROES, 0);
    }
    stream.write_all(&answer).map(|()| true)
}

/// Answers INFO or GO. True where the name is the export's.
fn info(stream: &mut impl Write, option: u32, data: &[u8], export: &Export) -> io::Result<bool> {
    let name = data.split_at_checked(4).and_then(|(len, rest)| {
        let len = len.iter().fold(0, |len: usize, &byte| len << 8 | usize::from(byte));
        rest.get(..len)
    });
    let Some(name) = name else { return reply(stream, option, REP_INVALID, &[]).map(|()| false) };
    if !is_name(name, export) {
        return reply(stream, option, REP_UNKNOWN, &[]).map(|()| false);
    }
    let mut about = [&INFO_EXPORT.to_be_bytes()[..], &export.bytes.to_be_bytes()].concat();
    about.extend(export.flags().to_be_bytes());
    reply(stream, option, REP_INFO, &about)?;
    let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    [1, PREFERRED, MOST].iter().for_each(|size: &u32| sizes.extend(size.to_be_bytes()));
    reply(stream, option, REP_INFO, &sizes)?;
    reply(stream, option, REP_ACK, &[]).map(|()| true)
}

/// Command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Other,
}

/// Bytes of a request.
pub(super) const REQUEST_LEN: usize = 28;

/// A request; the bytes of a write follow it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Request {
    /// The next one.
    pub(super) fn read(stream: &mut impl Read) -> io::Result<Request> {
        if u32_of(stream)? != REQUEST_MAGIC {
            return Err(malformed("no NBD request"));
        }
        let _flags = u16_of(stream)?;
        let command = match u16_of(stream)? {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            _ => Command::Other,
        };
        Ok(Request { command, handle: u64_of(stream)?, offset: u64_of(stream)?, len: u32_of(stream)? })
    }
}

/// Bytes of the head of a simple reply.
pub(super) const REPLY_LEN: usize = 16;

/// The head of a simple reply, with 0 or an error number of Linux. What was read follows it.
pub(super) fn answer(handle: u64, error: u32) -> [u8; REPLY_LEN] {
    let mut head = [0; REPLY_LEN];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&error.to_be_bytes());
    head[8..].copy_from_slice(&handle.to_be_bytes());
    head
}
