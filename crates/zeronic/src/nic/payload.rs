//! Registered memory as the NIC's half uses it, and payload that is on its way there.
use memory::{Access, Devices, Domain, Fault, Key, MemoryTable, Transfer};
use shm::Span;
use std::ops::Range;
use std::sync::Arc;

/// Registered memory, as the NIC's half uses it.
pub trait Memory {
    /// Writes received bytes into a region.
    fn write(&self, domain: Domain, key: Key, at: u64, from: &[u8]) -> Result<(), Fault>;
    /// Appends bytes to send; nothing where it fails.
    fn append(&self, domain: Domain, key: Key, at: u64, len: usize, into: &mut Vec<u8>) -> Result<(), Fault>;
    /// A region has these bytes now, and they can be written.
    fn check(&self, domain: Domain, key: Key, at: u64, len: u64) -> Result<(), Fault>;
    /// Writes received bytes that lie elsewhere: `part` of the span.
    fn write_span(&self, domain: Domain, key: Key, at: u64, from: &Span, part: Range<usize>) -> Result<(), Fault> {
        let mut bytes = Vec::with_capacity(from.len());
        from.append(&mut bytes);
        self.write(domain, key, at, &bytes[part])
    }
    /// Bytes to send, by reference; `None` where they have to be copied.
    fn refer(&self, _: Domain, _: Key, _: u64, _: usize) -> Result<Option<Span>, Fault> {
        Ok(None)
    }
    /// As [`Memory::write`]; where the region is a device's, the bytes are there when the returned copy has ended.
    fn start_write(&self, domain: Domain, key: Key, at: u64, from: &[u8]) -> Result<Started, Fault> {
        self.write(domain, key, at, from).map(|()| None)
    }
    /// The same of received bytes that lie elsewhere.
    fn start_write_span(
        &self,
        domain: Domain,
        key: Key,
        at: u64,
        from: &Span,
        part: Range<usize>,
    ) -> Result<Started, Fault> {
        self.write_span(domain, key, at, from, part).map(|()| None)
    }
    /// Starts to read bytes to send, where the region is a device's.
    fn start_read(&self, _: Domain, _: Key, _: u64, _: usize) -> Result<Started, Fault> {
        Ok(None)
    }
    /// The region is a device's.
    fn is_device(&self, _: Domain, _: Key) -> bool {
        false
    }
    /// The devices, which are polled each round.
    fn devices(&self) -> Option<&Devices> {
        None
    }
}

/// A copy of a device's memory that was started; none where nothing is left to be done.
pub type Started = Option<Arc<Transfer>>;

/// Payload that came in.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// As it lies in a frame.
    Bytes(&'a [u8]),
    /// The first bytes of what a frame refers to, so many.
    Span(&'a Span, usize),
}

impl Payload<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Span(_, len) => *len,
        }
    }

    /// Writes a part of it into a region.
    pub(super) fn write(
        &self,
        domain: Domain,
        key: Key,
        at: u64,
        part: Range<usize>,
        memory: &impl Memory,
    ) -> Result<Started, Fault> {
        match self {
            Payload::Bytes(bytes) => memory.start_write(domain, key, at, &bytes[part]),
            Payload::Span(span, _) => memory.start_write_span(domain, key, at, span, part),
        }
    }

    /// A copy of some of its bytes.
    pub(super) fn copy(&self, part: Range<usize>) -> Vec<u8> {
        match self {
            Payload::Bytes(bytes) => bytes[part].to_vec(),
            Payload::Span(span, _) => {
                let mut bytes = Vec::with_capacity(span.len());
                span.append(&mut bytes);
                bytes[part].to_vec()
            }
        }
    }

    /// A copy of what follows byte `from`.
    pub(crate) fn copy_from(&self, from: usize) -> Vec<u8> {
        match self {
            Payload::Bytes(bytes) => bytes[from..].to_vec(),
            Payload::Span(span, len) => {
                let mut bytes = Vec::with_capacity(span.len());
                span.append(&mut bytes);
                bytes[from..*len].to_vec()
            }
        }
    }
}

/// Memory that others have as well.
impl<M: Memory> Memory for Arc<M> {
    fn write(&self, domain: Domain, key: Key, at: u64, from: &[u8]) -> Result<(), Fault> {
        (**self).write(domain, key, at, from)
    }
    fn append(&self, domain: Domain, key: Key, at: u64, len: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
        (**self).append(domain, key, at, len, into)
    }
    fn check(&self, domain: Domain, key: Key, at: u64, len: u64) -> Result<(), Fault> {
        (**self).check(domain, key, at, len)
    }
    fn write_span(&self, domain: Domain, key: Key, at: u64, from: &Span, part: Range<usize>) -> Result<(), Fault> {
        (**self).write_span(domain, key, at, from, part)
    }
    fn refer(&self, domain: Domain, key: Key, at: u64, len: usize) -> Result<Option<Span>, Fault> {
        (**self).refer(domain, key, at, len)
    }
    fn start_write(&self, domain: Domain, key: Key, at: u64, from: &[u8]) -> Result<Started, Fault> {
        (**self).start_write(domain, key, at, from)
    }
    fn start_write_span(
        &self,
        domain: Domain,
        key: Key,
        at: u64,
        from: &Span,
        part: Range<usize>,
    ) -> Result<Started, Fault> {
        (**self).start_write_span(domain, key, at, from, part)
    }
    fn start_read(&self, domain: Domain, key: Key, at: u64, len: usize) -> Result<Started, Fault> {
        (**self).start_read(domain, key, at, len)
    }
    fn is_device(&self, domain: Domain, key: Key) -> bool {
        (**self).is_device(domain, key)
    }
    fn devices(&self) -> Option<&Devices> {
        (**self).devices()
    }
}

impl Memory for MemoryTable {
    fn write(&self, domain: Domain, key: Key, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.open(domain, key, Access::LocalWrite)?.write(at, from)
    }
    fn append(&self, domain: Domain, key: Key, at: u64, len: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
        self.open(domain, key, Access::LocalRead)?.append(at, len, into)
    }
    fn check(&self, domain: Domain, key: Key, at: u64, len: u64) -> Result<(), Fault> {
        let region = self.open(domain, key, Access::LocalWrite)?;
        let fits = at.checked_add(len).is_some_and(|end| end <= region.len());
        if fits { Ok(()) } else { Err(Fault::Bounds) }
    }
    fn write_span(&self, domain: Domain, key: Key, at: u64, from: &Span, part: Range<usize>) -> Result<(), Fault> {
        self.open(domain, key, Access::LocalWrite)?.write_span(at, from, part)
    }
    fn refer(&self, domain: Domain, key: Key, at: u64, len: usize) -> Result<Option<Span>, Fault> {
        self.open(domain, key, Access::LocalRead)?.refer(at, len)
    }
    fn start_write(&self, domain: Domain, key: Key, at: u64, from: &[u8]) -> Result<Started, Fault> {
        self.open(domain, key, Access::LocalWrite)?.start_write(at, from)
    }
    fn start_write_span(
        &self,
        domain: Domain,
        key: Key,
        at: u64,
        from: &Span,
        part: Range<usize>,
    ) -> Result<Started, Fault> {
        self.open(domain, key, Access::LocalWrite)?.start_write_span(at, from, part)
    }
    fn start_read(&self, domain: Domain, key: Key, at: u64, len: usize) -> Result<Started, Fault> {
        self.open(domain, key, Access::LocalRead)?.start_read(at, len)
    }
    fn is_device(&self, domain: Domain, key: Key) -> bool {
        self.open(domain, key, Access::LocalRead).is_ok_and(|lease| lease.is_device())
    }
    fn devices(&self) -> Option<&Devices> {
        Some(MemoryTable::devices(self))
    }
}
