//! A program's registered memory: sections with places in them, and bytes between that nobody may write.
use super::windows::GRANTS;
use crate::random::Stream;
use ::memory::{AccessPath, Description, Domain, Extent, Key, MemoryTable, Rights};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;
use verbs::{Binding, Operand, Piece};

/// What is nobody's.
pub(crate) const GUARD: u8 = 0xc3;
/// Bytes before and after each place at least.
const BETWEEN: usize = 32;
/// The program's address of its first byte.
const ADDRESS: u64 = 0x7f00_0000_0000;
const PAGE: usize = 4096;

/// A part of the memory, registered by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    at: usize,
    stride: usize,
    places: usize,
    key: Key,
}

impl Section {
    /// Byte of the memory at which a place begins.
    pub(crate) fn place(&self, number: usize) -> usize {
        assert!(number < self.places);
        self.at + number * self.stride + BETWEEN
    }

    /// The same as an offset in the section's registration.
    pub(crate) fn offset(&self, number: usize) -> u64 {
        (self.place(number) - self.at) as u64
    }

    fn end(&self) -> usize {
        self.at + self.places * self.stride
    }
}

/// How many places a program needs, and of how many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Of each place.
    pub(crate) bytes: usize,
    /// Places that it sends from, that its peer names, and that it receives into.
    pub(crate) places: [usize; 3],
    /// The places that its peer names are reached by windows only.
    pub(crate) windows: bool,
}

/// The memory.
pub(crate) struct Memory {
    file: File,
    pub(crate) source: Section,
    pub(crate) target: Section,
    pub(crate) receive: Section,
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("cannot make registered memory: {error}")
}

impl Memory {
    pub(crate) fn new(table: &MemoryTable, domain: Domain, needs: Needs) -> Result<Memory, String> {
        let stride = (needs.bytes + 2 * BETWEEN).next_multiple_of(64);
        let lens = needs.places.map(|places| (places * stride + 1).next_multiple_of(PAGE));
        let file = memfd_create(c"sim", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(failed)?;
        let file = File::from(file);
        file.write_all_at(&vec![GUARD; lens.iter().sum()], 0).map_err(failed)?;
        fcntl_add_seals(&file, SealFlags::SHRINK).map_err(failed)?;
        let mut at = 0;
        let mut sections = Vec::new();
        let target = if needs.windows { Rights::LOCAL_WRITE | Rights::WINDOWS } else { Rights::ALL };
        for ((places, len), rights) in needs.places.into_iter().zip(lens).zip([Rights::ALL, target, Rights::ALL]) {
            let extents =
                vec![Extent { len: (places * stride) as u64, way: AccessPath::Shared { file: 0, offset: at as u64 } }];
            let description = Description { address: ADDRESS + at as u64, rights, extents };
            let passed = file.try_clone().map_err(failed)?.into();
            let key = table.register(domain, &description, &[passed], None).map_err(failed)?;
            sections.push(Section { at, stride, places, key });
            at += len;
        }
        Ok(Memory { file, source: sections[0], target: sections[1], receive: sections[2] })
    }

    pub(crate) fn keys(&self) -> [Key; 3] {
        [self.source.key, self.target.key, self.receive.key]
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all_at(bytes, at as u64).map_err(failed)
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at as u64).map_err(failed)?;
        Ok(bytes)
    }

    /// All of it.
    pub(crate) fn all(&self) -> Result<Vec<u8>, String> {
        self.read(0, self.receive.end().next_multiple_of(PAGE))
    }

    /// Nobody has written to a place, or around it.
    pub(crate) fn is_clear(&self, section: &Section, place: usize) -> Result<bool, String> {
        let bytes = self.read(section.place(place) - BETWEEN, section.stride)?;
        Ok(bytes.iter().all(|byte| *byte == GUARD))
    }

    /// A place of a section has `len` bytes of a stream, from `from` on.
    pub(crate) fn has(
        &self,
        section: usize,
        place: usize,
        stream: Stream,
        from: u64,
        len: usize,
    ) -> Result<(), String> {
        let section = [&self.source, &self.target, &self.receive][section];
        let bytes = self.read(section.place(place), len)?;
        match stream.first_difference(from, &bytes) {
            Some(at) => Err(format!("byte {} of the stream is not in its place", from + at as u64)),
            None => Ok(()),
        }
    }

    /// A place is nobody's again.
    pub(crate) fn clear(&self, section: &Section, place: usize, len: usize) -> Result<(), String> {
        self.write(section.place(place), &vec![GUARD; len])
    }

    /// The first byte of each place is another one.
    #[cfg(test)]
    pub(crate) fn spoil(&self) -> Result<(), String> {
        for section in [self.source, self.target, self.receive] {
            for place in 0..section.places {
                let at = section.place(place);
                self.write(at, &[!self.read(at, 1)?[0]])?;
            }
        }
        Ok(())
    }

    /// A part of a section as a scatter-gather entry.
    pub(crate) fn piece(&self, section: &Section, at: usize, len: usize) -> Piece {
        Piece { address: ADDRESS + at as u64, len: len as u32, key: section.key.0 }
    }

    /// A place of the target as the peer names it.
    pub(crate) fn operand(&self, place: usize) -> Operand {
        Operand { address: ADDRESS + self.target.place(place) as u64, key: self.target.key.0 }
    }

    /// The address of the first byte that a window is bound to.
    pub(crate) fn targets_at(&self) -> u64 {
        ADDRESS + self.target.at as u64
    }

    /// Binds a window to all places that the peer names.
    pub(crate) fn binding(&self, window: u32, key: u32, zero_based: bool) -> Binding {
        let (region, address) = (self.target.key.0, self.targets_at());
        let len = (self.target.end() - self.target.at) as u64;
        Binding { window, key, region, address, len, rights: GRANTS, zero_based }
    }

    /// Each byte that nobody may write is as it was. Of the others, `used` has for a place of a section which bytes
    /// may stand there instead.
    pub(crate) fn check(&self, mut used: impl FnMut(usize, usize) -> Vec<u8>) -> Result<(), String> {
        for (number, section) in [self.source, self.target, self.receive].iter().enumerate() {
            let next = section.end().next_multiple_of(PAGE);
            let bytes = self.read(section.at, next - section.at)?;
            for place in 0..section.places {
                let from = section.place(place) - section.at;
                let may = used(number, place);
                let before = from - BETWEEN..from;
                let inside = bytes[from..from + may.len()].iter().zip(&may);
                let wrong = inside.clone().position(|(found, may)| found != may && *found != GUARD);
                let after = from + may.len()..((place + 1) * section.stride);
                let outside = bytes[before].iter().chain(&bytes[after]).any(|byte| *byte != GUARD);
                if outside || wrong.is_some() {
                    let what = ["source", "target", "receive"][number];
                    return Err(format!("a byte outside was written: place {place} of the {what} section, {wrong:?}"));
                }
            }
            if bytes[section.end() - section.at..].iter().any(|byte| *byte != GUARD) {
                return Err(format!("a byte beyond section {number} was written"));
            }
        }
        Ok(())
    }
}
