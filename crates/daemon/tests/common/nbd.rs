//! A client of the NBD protocol (github.com/NetworkBlockDevice/nbd, doc/proto.md), for requests one by one.
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Flush = 3,
    Trim = 4,
}

/// A connection in transmission.
pub(crate) struct Nbd {
    stream: UnixStream,
    pub bytes: u64,
    pub flags: u16,
}

impl Nbd {
    /// Opens the default export by its name, the shortest negotiation. Fails where the server closes.
    pub(crate) fn open(socket: &Path) -> io::Result<Nbd> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Client flags (fixed newstyle, no zeroes); option EXPORT_NAME with no data.
        stream.write_all(&[&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &0u32.to_be_bytes()].concat())?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let (bytes, flags) = export.split_at(8);
        let bytes = u64::from_be_bytes(bytes.try_into().unwrap());
        Ok(Nbd { stream, bytes, flags: u16::from_be_bytes(flags.try_into().unwrap()) })
    }

    /// The connection, for a thread that only sends.
    pub(crate) fn sender(&self) -> UnixStream {
        self.stream.try_clone().unwrap()
    }

    /// Asks so often for the first bytes, all at once.
    pub(crate) fn ask_often(&mut self, count: u64, len: u32) -> io::Result<()> {
        let requests: Vec<u8> = (0..count).flat_map(|handle| request(Command::Read, handle, 0, len)).collect();
        self.stream.write_all(&requests)
    }

    /// Asks, with the bytes of a write.
    pub(crate) fn send(&mut self, command: Command, offset: u64, len: u32, data: &[u8]) -> io::Result<()> {
        self.send_as(7, command, offset, len, data)
    }

    /// The same, with a handle of the caller's.
    pub(crate) fn send_as(
        &mut self,
        handle: u64,
        command: Command,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> io::Result<()> {
        self.stream.write_all(&[&request(command, handle, offset, len)[..], data].concat())
    }

    /// The next answer: handle and error number. The bytes of a read follow it.
    pub(crate) fn answer(&mut self) -> io::Result<(u64, u32)> {
        let mut answer = [0; 16];
        self.stream.read_exact(&mut answer)?;
        assert_eq!(answer[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(answer[4..8].try_into().unwrap());
        Ok((u64::from_be_bytes(answer[8..].try_into().unwrap()), error))
    }

    /// The bytes of an answer.
    pub(crate) fn data(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    /// Takes in bytes of an answer.
    pub(crate) fn skip(&mut self, len: usize) {
        self.stream.read_exact(&mut vec![0; len]).unwrap();
    }

    /// Reads; the error is that of the answer. Panics where the connection ends.
    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        self.send(Command::Read, offset, len, &[]).unwrap();
        self.outcome()?;
        Ok(self.data(len as usize).unwrap())
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.send(Command::Write, offset, data.len() as u32, data).unwrap();
        self.outcome()
    }

    /// The outcome of a command without data.
    pub(crate) fn command(&mut self, command: Command) -> Result<(), u32> {
        self.send(command, 0, 0, &[]).unwrap();
        self.outcome()
    }

    fn outcome(&mut self) -> Result<(), u32> {
        match self.answer().unwrap() {
            (7, 0) => Ok(()),
            (7, error) => Err(error),
            (other, _) => panic!("an answer to request {other}"),
        }
    }
}

/// The bytes of a request.
pub(crate) fn request(command: Command, handle: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend([0, 0, 0, command as u8]);
    request.extend(handle.to_be_bytes());
    request.extend(offset.to_be_bytes());
    request.extend(len.to_be_bytes());
    request
}
