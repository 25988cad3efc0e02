//! ELF headers of a program's file (elf(5)): whether a library can be preloaded into its program, and what a loader
//! maps.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Magic number of the file.
pub const MAGIC: &[u8; 4] = b"\x7fELF";
/// `e_type` of a program that is bound to its addresses.
pub const ET_EXEC: u16 = 2;
/// `e_type` of one that is not, and of libraries.
pub const ET_DYN: u16 = 3;
/// `p_type` of a segment that is mapped.
pub const PT_LOAD: u32 = 1;
/// `p_type` of what the dynamic linker reads.
pub const PT_DYNAMIC: u32 = 2;
/// `p_type` of the dynamic linker's name.
pub const PT_INTERP: u32 = 3;
/// `e_machine` of the processor for which this is compiled.
pub const OWN_MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Bytes of the file's header, and of a program header.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// Bytes up to the end of `e_machine`, which has its place in files of 32 bits as well.
const BEGIN: usize = 20;
/// The most program headers that are read.
const MOST_HEADERS: usize = 128;
/// PATH_MAX of Linux (limits.h).
const LONGEST_PATH: u64 = 4096;

/// Fields of a file's headers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Elf {
    /// Of 64 bits, low bytes first. Otherwise only the machine is known.
    pub is_64: bool,
    /// `e_machine`.
    pub machine: u16,
    /// `e_type`.
    pub kind: u16,
    /// Address at which the program begins.
    pub entry: u64,
    /// Where in the file the program headers are.
    pub headers_at: u64,
    /// The program headers.
    pub segments: Vec<ProgramHeader>,
}

/// A program header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramHeader {
    /// `p_type`.
    pub kind: u32,
    /// `PF_R`, `PF_W`, `PF_X`.
    pub flags: u32,
    /// Place in the file.
    pub offset: u64,
    /// Address in memory.
    pub address: u64,
    /// Bytes in the file.
    pub in_file: u64,
    /// Bytes in memory.
    pub in_memory: u64,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Elf {
    /// Reads a file's headers; `None` where it is no ELF file.
    ///
    /// # Errors
    /// The system's; `InvalidData` where the program headers have another form than the standard's.
    pub fn read(file: &File) -> io::Result<Option<Elf>> {
        let mut header = [0; HEADER];
        match file.read_exact_at(&mut header[..BEGIN], 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        if header[..4] != *MAGIC {
            return Ok(None);
        }
        let machine = number::<2>(&header, 18) as u16;
        // e_ident[EI_CLASS]; other processors may have other orders of bytes (e_ident[EI_DATA]).
        let is_64 = header[4] == 2;
        if !is_64 || machine != OWN_MACHINE {
            return Ok(Some(Elf { is_64, machine, ..Elf::default() }));
        }
        file.read_exact_at(&mut header, 0)?;
        let headers_at = number::<8>(&header, 32);
        let (size, count) = (number::<2>(&header, 54) as usize, number::<2>(&header, 56) as usize);
        if count > MOST_HEADERS || count > 0 && size != PROGRAM_HEADER {
            return Err(wrong("its program headers have another form"));
        }
        let mut bytes = vec![0; count * PROGRAM_HEADER];
        file.read_exact_at(&mut bytes, headers_at)?;
        let segments = bytes.chunks_exact(PROGRAM_HEADER).map(ProgramHeader::parse).collect();
        let (kind, entry) = (number::<2>(&header, 16) as u16, number::<8>(&header, 24));
        Ok(Some(Elf { is_64, machine, kind, entry, headers_at, segments }))
    }

    /// It can run on this processor.
    pub fn is_own(&self) -> bool {
        self.is_64 && self.machine == OWN_MACHINE
    }

    /// The first segment of a kind.
    pub fn segment(&self, kind: u32) -> Option<&ProgramHeader> {
        self.segments.iter().find(|segment| segment.kind == kind)
    }

    /// The dynamic linker that the program names; `None` where it names none.
    pub fn interpreter(&self, file: &File) -> Option<String> {
        let ProgramHeader { offset, in_file, .. } = *self.segment(PT_INTERP)?;
        let mut name = vec![0; in_file.min(LONGEST_PATH) as usize];
        file.read_exact_at(&mut name, offset).ok()?;
        Some(String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(&name)).into_owned())
    }
}

impl ProgramHeader {
    fn parse(bytes: &[u8]) -> ProgramHeader {
        ProgramHeader {
            kind: number::<4>(bytes, 0) as u32,
            flags: number::<4>(bytes, 4) as u32,
            offset: number::<8>(bytes, 8),
            address: number::<8>(bytes, 16),
            in_file: number::<8>(bytes, 32),
            in_memory: number::<8>(bytes, 40),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: &[u8]) -> io::Result<Option<Elf>> {
        let path = std::env::temp_dir().join(format!("elf-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let elf = Elf::read(&File::open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        elf
    }

    #[test]
    fn this_program_names_its_linker() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::read(&file).unwrap().unwrap();
        assert!(elf.is_own() && elf.kind == ET_DYN && elf.segment(PT_LOAD).is_some());
        assert!(elf.interpreter(&file).unwrap().starts_with("/lib"));
    }

    #[test]
    fn damaged_files_are_no_programs() {
        assert_eq!(read("empty", b"").unwrap(), None);
        assert_eq!(read("text", b"a text that is long enough").unwrap(), None);
        let mut bytes = [0; HEADER + PROGRAM_HEADER];
        bytes[..6].copy_from_slice(b"\x7fELF\x01\x01");
        bytes[18] = 3;
        assert_eq!(read("old", &bytes).unwrap(), Some(Elf { machine: 3, ..Elf::default() }));
        (bytes[4], bytes[18], bytes[32], bytes[54], bytes[56]) = (2, OWN_MACHINE as u8, HEADER as u8, 1, 1);
        assert!(read("form", &bytes).is_err(), "a header of one byte");
        bytes[54] = PROGRAM_HEADER as u8;
        assert_eq!(read("whole", &bytes).unwrap().unwrap().segments.len(), 1);
        assert!(read("cut", &bytes[..HEADER]).is_err());
        bytes[57] = 1;
        assert!(read("many", &bytes).is_err());
    }
}
