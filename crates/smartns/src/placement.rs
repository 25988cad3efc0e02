//! Payload copies between frames and registered memory: one on its way in (SmartNS, section 3.3), one on its way out.
use crate::payload::Payload;
use memory::{Access, Domain, Fault, Key, Lease, MemoryTable};
use shm::Span;
use std::collections::HashMap;
use std::sync::Arc;
use verbs::Piece;

/// Registered memory, by the addresses that work requests and peers use.
#[derive(Clone)]
pub(crate) struct Registered {
    table: Arc<MemoryTable>,
    /// Regions whose first byte has another address for verbs than in the program: it is here.
    named: HashMap<Key, u64>,
}

/// Bytes of a region, as a packet or a work request names them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) domain: Domain,
    pub(crate) key: u32,
    pub(crate) address: u64,
}

impl Target {
    /// So many bytes further.
    pub(crate) fn plus(self, bytes: u64) -> Target {
        Target { address: self.address.wrapping_add(bytes), ..self }
    }
}

/// Bytes of a message: `len` after the first `skip` ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) skip: u32,
    pub(crate) len: usize,
}

impl Registered {
    pub(crate) fn new(table: Arc<MemoryTable>) -> Registered {
        Registered { table, named: HashMap::new() }
    }

    /// The first byte of a region has this address.
    pub(crate) fn name(&mut self, key: Key, address: u64) {
        self.named.insert(key, address);
    }

    /// The region is gone.
    pub(crate) fn forget(&mut self, key: Key) {
        self.named.remove(&key);
    }

    /// Opens a region; with the address by which its first byte is named.
    // Meets IBTA: 10.6-a.
    #[inline]
    fn open_region(&self, key: Key, domain: Domain, access: Access) -> Result<(Lease<'_>, u64), Fault> {
        let lease = self.table.open(domain, key, access)?;
        let other = if self.named.is_empty() { None } else { self.named.get(&key) };
        let first = other.copied().unwrap_or_else(|| lease.address());
        Ok((lease, first))
    }

    /// Opens a region; with the offset of the byte that is named.
    #[inline]
    pub(crate) fn open(&self, target: Target, access: Access) -> Result<(Lease<'_>, u64), Fault> {
        let (lease, first) = self.open_region(Key(target.key), target.domain, access)?;
        let offset = target.address.checked_sub(first).ok_or(Fault::Bounds)?;
        Ok((lease, offset))
    }

    /// An access to `len` bytes is permitted.
    pub(crate) fn check(&self, target: Target, len: u64, access: Access) -> Result<(), Fault> {
        let (lease, at) = self.open(target, access)?;
        let end = at.checked_add(len).ok_or(Fault::Bounds)?;
        if end <= lease.len() { Ok(()) } else { Err(Fault::Bounds) }
    }

    /// Appends `len` bytes of memory.
    #[inline]
    pub(crate) fn append(&self, target: Target, access: Access, len: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
        let (lease, at) = self.open(target, access)?;
        lease.append(at, len, into)
    }

    /// `len` bytes of memory by reference; `None` where they have to be copied.
    #[inline]
    pub(crate) fn refer(&self, target: Target, access: Access, len: usize) -> Result<Option<Span>, Fault> {
        let (lease, at) = self.open(target, access)?;
        lease.refer(at, len)
    }

    /// The same of `part` of what the entries name: where one of them has all of it.
    #[inline]
    pub(crate) fn refer_part(
        &self,
        domain: Domain,
        pieces: impl Iterator<Item = Piece>,
        part: Part,
    ) -> Result<Option<Span>, Fault> {
        let mut skip = part.skip;
        for piece in pieces {
            if skip < piece.len {
                let is_whole = (piece.len - skip) as usize >= part.len;
                let target = Target { domain, key: piece.key, address: piece.address }.plus(skip.into());
                return if is_whole { self.refer(target, Access::LocalRead, part.len) } else { Ok(None) };
            }
            skip -= piece.len;
        }
        Ok(None)
    }

    /// Writes memory.
    #[inline]
    pub(crate) fn write(&self, target: Target, access: Access, from: Payload<'_>) -> Result<(), Fault> {
        let (lease, at) = self.open(target, access)?;
        match from {
            Payload::Here(bytes) => lease.write(at, bytes),
            Payload::There { span, skip, len } => lease.write_span(at, span, skip..skip + len),
        }
    }

    /// Writes the end of a message: its last byte shows last, for programs that poll it.
    #[inline]
    pub(crate) fn write_last(&self, target: Target, access: Access, from: Payload<'_>) -> Result<(), Fault> {
        let (lease, at) = self.open(target, access)?;
        match from {
            Payload::Here(bytes) => lease.write_last(at, bytes),
            Payload::There { span, skip, len } => lease.write_span_last(at, span, skip..skip + len),
        }
    }

    /// Compares and swaps; returns what was there.
    pub(crate) fn compare_swap(&self, target: Target, access: Access, values: [u64; 2]) -> Result<u64, Fault> {
        let ((lease, at), [compare, swap]) = (self.open(target, access)?, values);
        lease.compare_swap(at, compare, swap)
    }

    /// Adds; returns what was there.
    pub(crate) fn fetch_add(&self, target: Target, access: Access, addend: u64) -> Result<u64, Fault> {
        let (lease, at) = self.open(target, access)?;
        lease.fetch_add(at, addend)
    }

    /// For several accesses in a row.
    #[inline]
    pub(crate) fn row(&self, domain: Domain, access: Access) -> Row<'_> {
        Row { memory: self, domain, access, open: None }
    }

    /// Appends `part` of what the entries name, in their order.
    #[inline]
    pub(crate) fn gather(
        &self,
        domain: Domain,
        pieces: impl Iterator<Item = Piece>,
        part: Part,
        into: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        each(pieces, part.skip, part.len, |piece, from, _, count| {
            let target = Target { domain, key: piece.key, address: piece.address }.plus(from);
            self.append(target, Access::LocalRead, count, into)
        })
    }

    /// Writes to the bytes from `skip` on of what the entries name, in their order.
    #[inline]
    pub(crate) fn scatter(
        &self,
        domain: Domain,
        pieces: impl Iterator<Item = Piece>,
        skip: u32,
        from: Payload<'_>,
    ) -> Result<(), Fault> {
        each(pieces, skip, from.len(), |piece, offset, at, count| {
            let target = Target { domain, key: piece.key, address: piece.address }.plus(offset);
            self.write(target, Access::LocalWrite, from.part(at, count))
        })
    }
}

/// Accesses in a row: a region stays open for the next one. For as many as a frame has, not longer.
pub(crate) struct Row<'m> {
    memory: &'m Registered,
    domain: Domain,
    access: Access,
    open: Option<Opened<'m>>,
}

struct Opened<'m> {
    key: u32,
    lease: Lease<'m>,
    first: u64,
}

impl<'m> Row<'m> {
    #[inline]
    fn open(&mut self, key: u32, address: u64) -> Result<(&Lease<'m>, u64), Fault> {
        if self.open.as_ref().is_none_or(|open| open.key != key) {
            let (lease, first) = self.memory.open_region(Key(key), self.domain, self.access)?;
            self.open = Some(Opened { key, lease, first });
        }
        let Some(Opened { lease, first, .. }) = &self.open else { return Err(Fault::Key) };
        Ok((lease, address.checked_sub(*first).ok_or(Fault::Bounds)?))
    }

    /// Appends `len` bytes of memory.
    #[inline]
    pub(crate) fn append(&mut self, piece: &Piece, into: &mut Vec<u8>) -> Result<(), Fault> {
        let (lease, at) = self.open(piece.key, piece.address)?;
        lease.append(at, piece.len as usize, into)
    }

    /// Writes memory.
    #[inline]
    pub(crate) fn write(&mut self, key: u32, address: u64, from: &[u8]) -> Result<(), Fault> {
        let (lease, at) = self.open(key, address)?;
        lease.write(at, from)
    }

    /// Writes a message, whose last byte shows last.
    #[inline]
    pub(crate) fn write_last(&mut self, key: u32, address: u64, from: &[u8]) -> Result<(), Fault> {
        let (lease, at) = self.open(key, address)?;
        lease.write_last(at, from)
    }
}

/// Calls `copy` for each part of `len` bytes after the first `skip` ones: the entry, the offset in it, bytes done
/// before, bytes. Entries that end before `len` bytes are a fault.
#[inline]
fn each(
    pieces: impl Iterator<Item = Piece>,
    skip: u32,
    len: usize,
    mut copy: impl FnMut(Piece, u64, usize, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (mut skip, mut done) = (skip, 0);
    for piece in pieces {
        if done == len {
            break;
        }
        let here = skip.min(piece.len);
        let count = ((piece.len - here) as usize).min(len - done);
        if count > 0 {
            copy(piece, u64::from(here), done, count)?;
        }
        (skip, done) = (skip - here, done + count);
    }
    if done == len { Ok(()) } else { Err(Fault::Bounds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is copied: entry, offset in it, bytes done before, bytes.
    fn parts(lens: &[u32], skip: u32, len: usize) -> Result<Vec<(u64, u64, usize, usize)>, Fault> {
        let mut found = Vec::new();
        let pieces = lens.iter().enumerate().map(|(at, len)| Piece { address: at as u64, len: *len, key: 0 });
        each(pieces, skip, len, |piece, from, done, count| {
            found.push((piece.address, from, done, count));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn entries_are_used_in_their_order() {
        assert_eq!(parts(&[4, 0, 6], 0, 10).unwrap(), [(0, 0, 0, 4), (2, 0, 4, 6)]);
        assert_eq!(parts(&[4, 0, 6], 3, 4).unwrap(), [(0, 3, 0, 1), (2, 0, 1, 3)]);
        assert_eq!(parts(&[4, 6], 5, 2).unwrap(), [(1, 1, 0, 2)]);
        assert_eq!(parts(&[4], 9, 0).unwrap(), []);
        assert_eq!(parts(&[4, 6], 5, 6), Err(Fault::Bounds));
        assert_eq!(parts(&[], 0, 1), Err(Fault::Bounds));
    }
}
