//! Storage of a server's volumes, and the end of operations on it.
use crate::packet::Status;
use shm::Span;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// A volume that a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Volume {
    /// The storage's number for it.
    pub number: u32,
    /// Its length, blocks.
    pub blocks: u64,
    /// Nobody may write to it.
    pub read_only: bool,
}

/// What keeps the blocks, for clients with addresses of type `P`. Operations end by
/// [`Server::finish`](crate::Server::finish), at once or later, in any order.
pub trait Storage<P> {
    /// The volume of a name, where this client may use it.
    fn find(&mut self, name: &[u8], client: &P) -> Option<Volume>;

    /// The client may write from now on, and no other. How often that right has gone to another client, over all starts
    /// of the server. `None` while writes that were begun before have not ended: the client asks again.
    fn claim(&mut self, volume: u32, client: u64) -> Option<u32>;

    /// Reads a block. Where its checksum is not the one that it was written with, this fails with [`Status::Corrupt`].
    fn read(&mut self, job: Job);

    /// Writes a block, with the checksum that its writer computed. It has ended when the block is durable.
    fn write(&mut self, job: Job, crc: u32, block: &[u8]);
}

/// An operation that the storage carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    /// Of the client.
    pub session: u64,
    /// The client's number for it.
    pub op: u64,
    /// The volume's number.
    pub volume: u32,
    /// The block of the volume.
    pub lba: u64,
}

/// A block of a volume, as it was read: held until the client has acknowledged it.
#[derive(Clone)]
pub struct Block {
    /// The checksum that its writer computed.
    pub crc: u32,
    /// [`BLOCK_LEN`](crate::BLOCK_LEN) bytes.
    pub bytes: BlockBytes,
}

/// The bytes of a block.
#[derive(Clone)]
pub enum BlockBytes {
    /// In memory of this process, copied into each frame.
    Private(Arc<[u8]>),
    /// In memory that frames refer to. Nobody writes there as long as a copy of this is left.
    Shared(Span),
}

/// What follows the header of a packet.
#[derive(Clone, Copy)]
pub enum Payload<'p> {
    /// Bytes to copy.
    Bytes(&'p [u8]),
    /// Bytes to refer to.
    Shared(&'p Span),
}

impl Payload<'_> {
    /// No payload.
    pub(crate) const NONE: Payload<'static> = Payload::Bytes(&[]);

    /// A copy of the bytes.
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Shared(span) => {
                let mut bytes = Vec::new();
                span.append(&mut bytes);
                bytes
            }
        }
    }
}

impl BlockBytes {
    /// As the payload of a packet.
    pub(crate) fn payload(&self) -> Payload<'_> {
        match self {
            BlockBytes::Private(bytes) => Payload::Bytes(bytes),
            BlockBytes::Shared(span) => Payload::Shared(span),
        }
    }
}

impl Debug for Block {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Block({:08x})", self.crc)
    }
}

/// How an operation has ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The block has been read.
    Read(Block),
    /// The block is durable.
    Written,
    /// It failed.
    Failed(Status),
}
