//! A volume in a file, with the checksums of its blocks in a file beside it.
//!
//! Each block has two checksums: that of its bytes, and that of the bytes that are being written to it. A write makes
//! the new checksum durable first, then the block. So whenever the daemon is killed, a block's bytes fit one of the
//! two, and bytes that fit neither were changed by something else.
use super::spare::SpareBlocks;
use crc32c::crc32c;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{ReadWriteFlags, preadv2};
use solar::{BLOCK_LEN, Block, BlockBytes, Outcome, Status};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// First bytes of a file of checksums.
const MAGIC: &[u8; 8] = b"toesum01";
/// Where the checksums begin.
const SUMS_AT: u64 = 4096;
const PAIR_LEN: u64 = 8;
/// In the header: generation, and the client that may write.
const OWNER_AT: u64 = 16;

/// The connection that may write, and how often that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Owner {
    pub(super) client: u64,
    pub(super) generation: u32,
}

/// A file that no other daemon serves meanwhile.
struct Locked(File);

impl Locked {
    /// None where another daemon has it.
    fn new(file: File, read_only: bool) -> Option<Locked> {
        let alone =
            if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
        flock(&file, alone).is_ok().then_some(Locked(file))
    }
}

impl Drop for Locked {
    /// Closing is not enough: a child that was forked just now has the file until it runs its program.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

/// The files of a volume.
pub(super) struct Files {
    data: Locked,
    sums: File,
    pub(super) blocks: u64,
}

/// The checksums of a block: of its bytes, and of those that are being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sums {
    now: u32,
    next: u32,
}

impl Sums {
    /// As they are in the file.
    fn from_bytes(pair: [u8; PAIR_LEN as usize]) -> Sums {
        let half = |at: usize| u32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]) ^ of_zeros();
        Sums { now: half(0), next: half(4) }
    }

    /// A block that was read fits one of them, or is damaged.
    fn judge(self, bytes: Arc<[u8; BLOCK_LEN]>) -> Outcome {
        let crc = crc32c(&bytes[..]);
        match crc == self.now || crc == self.next {
            true => Outcome::Read(Block { crc, bytes: BlockBytes::Private(bytes) }),
            false => Outcome::Failed(Status::Corrupt),
        }
    }
}

/// The checksum of a block of zeros. Stored checksums are combined with it by XOR: a file of holes is right.
fn of_zeros() -> u32 {
    static OF_ZEROS: OnceLock<u32> = OnceLock::new();
    *OF_ZEROS.get_or_init(|| crc32c(&[0; BLOCK_LEN]))
}

/// What a failed call means for the client.
fn status_of(error: &io::Error) -> Status {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Status::NoSpace,
        Some(libc::EROFS | libc::EACCES) => Status::ReadOnly,
        _ => Status::Failed,
    }
}

impl Files {
    /// Opens a volume. A file that is not there is made with `size` bytes; one without checksums gets them now, which
    /// reads all of it. The error is a sentence.
    pub(super) fn open(path: &Path, size: Option<u64>, read_only: bool) -> Result<Files, String> {
        let with_context = |what: &str, e: io::Error| format!("cannot {what} {}: {e}", path.display());
        let opened = OpenOptions::new().read(true).write(!read_only).open(path);
        let (data, empty) = match (opened, size) {
            (Err(e), Some(size)) if e.kind() == io::ErrorKind::NotFound && !read_only => {
                (make(path, size).map_err(|e| with_context("make", e))?, true)
            }
            (opened, _) => (opened.map_err(|e| with_context("open", e))?, false),
        };
        let data =
            Locked::new(data, read_only).ok_or_else(|| format!("{} is served by another daemon", path.display()))?;
        // This gives the length of a block device, too.
        let len =
            rustix::fs::seek(&*data, rustix::fs::SeekFrom::End(0)).map_err(|e| with_context("measure", e.into()))?;
        let blocks = len / BLOCK_LEN as u64;
        if blocks == 0 || len % BLOCK_LEN as u64 != 0 {
            return Err(format!("{} has {len} bytes, which are no whole blocks of 4096", path.display()));
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".crc");
        let (sums, fresh) = open_sums(Path::new(&beside), blocks, read_only)?;
        let files = Files { data, sums, blocks };
        if fresh {
            files.adopt(if empty { 0 } else { blocks }).map_err(|e| with_context("read", e))?;
        }
        // Without its directory's entries, a durable file is not found again.
        sync_directory(path).map_err(|e| with_context("keep", e))?;
        Ok(files)
    }

    /// Computes the checksums of blocks, up to this one: those beyond are zeros.
    fn adopt(&self, end: u64) -> io::Result<()> {
        let mut block = [0; BLOCK_LEN];
        for lba in 0..end {
            self.data.read_exact_at(&mut block, lba * BLOCK_LEN as u64)?;
            let now = crc32c(&block);
            if now != of_zeros() {
                self.put_sums(lba, Sums { now, next: now })?;
            }
        }
        // The header comes last: with it, the checksums are whole.
        let header = [&MAGIC[..], &self.blocks.to_le_bytes()].concat();
        self.sums.sync_data()?;
        self.sums.write_all_at(&header, 0)?;
        self.sums.sync_data()
    }

    /// The connection that may write.
    pub(super) fn owner(&self) -> io::Result<Owner> {
        let mut bytes = [0; 12];
        self.sums.read_exact_at(&mut bytes, OWNER_AT)?;
        let (client, generation) = bytes.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
        Ok(Owner { client: number(client), generation: number(generation) as u32 })
    }

    /// Another client may write from now on; this outlives the daemon.
    pub(super) fn set_owner(&self, owner: Owner) -> io::Result<()> {
        let bytes = [&owner.client.to_le_bytes()[..], &owner.generation.to_le_bytes()].concat();
        self.sums.write_all_at(&bytes, OWNER_AT)?;
        self.sums.sync_data()
    }

    fn sums(&self, lba: u64) -> io::Result<Sums> {
        let mut pair = [0; PAIR_LEN as usize];
        self.sums.read_exact_at(&mut pair, SUMS_AT + lba * PAIR_LEN)?;
        Ok(Sums::from_bytes(pair))
    }

    fn put_sums(&self, lba: u64, sums: Sums) -> io::Result<()> {
        let pair = [(sums.now ^ of_zeros()).to_le_bytes(), (sums.next ^ of_zeros()).to_le_bytes()].concat();
        self.sums.write_all_at(&pair, SUMS_AT + lba * PAIR_LEN)
    }

    /// Reads a block. While it is being written, its bytes may fit neither checksum: then this is to be repeated.
    pub(super) fn read(&self, lba: u64) -> Outcome {
        let mut bytes = Arc::new([0; BLOCK_LEN]);
        let place = Arc::make_mut(&mut bytes);
        match self.data.read_exact_at(place, lba * BLOCK_LEN as u64).and_then(|()| self.sums(lba)) {
            Err(error) => Outcome::Failed(status_of(&error)),
            Ok(sums) => sums.judge(bytes),
        }
    }

    /// Reads a block that the system has in memory; `None` where that would wait for the disk, or is to be repeated.
    pub(super) fn read_at_once(&self, lba: u64, spare: &mut SpareBlocks) -> Option<Outcome> {
        let mut bytes = spare.take();
        let mut pair = [0; PAIR_LEN as usize];
        let at_once = |file: &File, to: &mut [u8], at: u64| {
            let len = to.len();
            preadv2(file, &mut [IoSliceMut::new(to)], at, ReadWriteFlags::NOWAIT).is_ok_and(|read| read == len)
        };
        let read = at_once(&self.data, &mut Arc::make_mut(&mut bytes)[..], lba * BLOCK_LEN as u64)
            && at_once(&self.sums, &mut pair, SUMS_AT + lba * PAIR_LEN);
        let outcome = read.then(|| Sums::from_bytes(pair).judge(Arc::clone(&bytes)));
        spare.keep(bytes);
        let outcome = outcome?;
        matches!(outcome, Outcome::Read(_)).then_some(outcome)
    }

    /// The checksum of a block that is about to be written stands beside the present one, not durable yet.
    pub(super) fn announce(&self, lba: u64, crc: u32) -> Result<(), Status> {
        let announced = self.sums(lba).and_then(|sums| {
            let now = if sums.now == sums.next { sums.now } else { self.settle(lba, sums)? };
            self.put_sums(lba, Sums { now, next: crc })
        });
        announced.map_err(|error| status_of(&error))
    }

    /// Which of two checksums is that of the bytes: a daemon was killed while it wrote the block.
    fn settle(&self, lba: u64, sums: Sums) -> io::Result<u32> {
        let mut bytes = [0; BLOCK_LEN];
        self.data.read_exact_at(&mut bytes, lba * BLOCK_LEN as u64)?;
        Ok(if crc32c(&bytes) == sums.next { sums.next } else { sums.now })
    }

    /// Announced checksums are durable from now on.
    pub(super) fn sync_sums(&self) -> Result<(), Status> {
        self.sums.sync_data().map_err(|error| status_of(&error))
    }

    /// Writes a block that was announced, not durable yet.
    pub(super) fn write(&self, lba: u64, block: &[u8]) -> Result<(), Status> {
        self.data.write_all_at(block, lba * BLOCK_LEN as u64).map_err(|error| status_of(&error))
    }

    /// Blocks that were written are durable from now on.
    pub(super) fn sync_blocks(&self) -> Result<(), Status> {
        self.data.sync_data().map_err(|error| status_of(&error))
    }

    /// A durable block has one checksum again.
    pub(super) fn settled(&self, lba: u64, crc: u32) {
        // Where this fails, both stay: the next write finds out which one it is.
        let _ = self.put_sums(lba, Sums { now: crc, next: crc });
    }
}

/// A new file of zeros.
fn make(path: &Path, size: u64) -> io::Result<File> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    made.set_len(size)?;
    made.sync_all()?;
    Ok(made)
}

/// What was made in the directory of a file is durable from now on.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The file of checksums, and whether it is new or was never whole. The error is a sentence.
fn open_sums(path: &Path, blocks: u64, read_only: bool) -> Result<(File, bool), String> {
    let with_context = |e: io::Error| format!("cannot use the checksums in {}: {e}", path.display());
    let mut header = [0; 16];
    let mut is_whole = |sums: &File| sums.read_exact_at(&mut header, 0).is_ok() && header[..8] == MAGIC[..];
    let existing = File::open(path).ok().filter(|sums| read_only && is_whole(sums));
    let sums = match existing {
        Some(existing) => existing,
        None => {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(with_context)?
        }
    };
    let whole = is_whole(&sums);
    // One that was cut while it was made begins with zeros.
    if !whole && header[..8] != [0; 8] {
        return Err(format!("{} is damaged: remove it to compute it anew from what the volume has", path.display()));
    }
    if whole && header[8..] != blocks.to_le_bytes() {
        return Err(format!("{} belongs to a volume of another length: remove it to compute it anew", path.display()));
    }
    if !whole {
        sums.set_len(0).and_then(|()| sums.set_len(SUMS_AT + blocks * PAIR_LEN)).map_err(with_context)?;
    }
    Ok((sums, !whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(std::path::PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("toe-volume-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Directory(path)
        }

        fn open(&self) -> Files {
            Files::open(&self.0.join("v"), Some(64 * 4096), false).unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn write(files: &Files, lba: u64, block: &[u8]) {
        files.announce(lba, crc32c(block)).unwrap();
        files.write(lba, block).unwrap();
        files.settled(lba, crc32c(block));
    }

    fn bytes(outcome: Outcome) -> Result<Vec<u8>, Status> {
        match outcome {
            Outcome::Read(Block { bytes: BlockBytes::Private(bytes), .. }) => Ok(bytes.to_vec()),
            Outcome::Read(_) => panic!("it is this file's own"),
            Outcome::Failed(status) => Err(status),
            Outcome::Written => panic!("a read"),
        }
    }

    #[test]
    fn an_interrupted_write_leaves_old_or_new_bytes() {
        let directory = Directory::new("cut");
        let blocks: Vec<Vec<u8>> = (0..4).map(|value| vec![value; 4096]).collect();
        for steps in 0..3 {
            let files = directory.open();
            for (lba, block) in blocks.iter().enumerate() {
                write(&files, lba as u64, block);
            }
            drop(files);
            // Cut, opened again, written again and cut again.
            for round in 0..3 {
                let files = directory.open();
                for lba in 0..4 {
                    let new = vec![round * 10 + lba as u8; 4096];
                    let before = bytes(files.read(lba)).unwrap();
                    files.announce(lba, crc32c(&new)).unwrap();
                    assert_eq!(bytes(files.read(lba)).unwrap(), before);
                    if steps > 0 {
                        files.write(lba, &new).unwrap();
                        assert_eq!(bytes(files.read(lba)).unwrap(), new);
                    }
                    if steps > 1 {
                        files.settled(lba, crc32c(&new));
                    }
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_until_the_block_is_written() {
        let directory = Directory::new("flip");
        let files = directory.open();
        write(&files, 3, &[9; 4096]);
        files.data.write_all_at(&[8], 3 * 4096 + 77).unwrap();
        files.data.write_all_at(&[1], 5 * 4096).unwrap();
        assert_eq!((bytes(files.read(3)), bytes(files.read(5))), (Err(Status::Corrupt), Err(Status::Corrupt)));
        assert!(bytes(files.read(4)).unwrap().iter().all(|&byte| byte == 0));
        write(&files, 3, &[7; 4096]);
        assert_eq!(bytes(files.read(3)), Ok(vec![7; 4096]));
    }

    #[test]
    fn what_is_in_memory_is_read_at_once_where_it_is_whole() {
        let directory = Directory::new("once");
        let files = directory.open();
        write(&files, 3, &[9; 4096]);
        // A filesystem may have no such reads: then there is nothing, and never other bytes.
        let mut spare = SpareBlocks::default();
        let found = files.read_at_once(3, &mut spare).map(|outcome| bytes(outcome).unwrap());
        assert!(found.is_none_or(|found| found == [9; 4096]));
        files.data.write_all_at(&[8], 3 * 4096 + 77).unwrap();
        assert!(files.read_at_once(3, &mut spare).is_none(), "whoever may wait decides whether it is damaged");
        assert!(files.read_at_once(64, &mut spare).is_none(), "beyond the end");
    }

    #[test]
    fn a_volume_is_free_though_a_child_has_its_file() {
        let directory = Directory::new("free");
        let files = directory.open();
        // As between fork and exec.
        let childs = files.data.try_clone().unwrap();
        drop(files);
        drop(directory.open());
        drop(childs);
    }

    #[test]
    fn a_file_that_is_there_gets_its_checksums_and_its_owner_stays() {
        let directory = Directory::new("adopt");
        let content: Vec<u8> = (0..8 * 4096u32).map(|at| (at / 4096) as u8).collect();
        std::fs::write(directory.0.join("v"), &content).unwrap();
        let files = directory.open();
        assert_eq!(files.blocks, 8);
        assert_eq!(bytes(files.read(7)).unwrap(), content[7 * 4096..]);
        files.set_owner(Owner { client: 77, generation: 3 }).unwrap();
        let path = directory.0.join("v");
        assert!(Files::open(&path, None, false).err().unwrap().contains("another daemon"));
        drop(files);
        assert_eq!(directory.open().owner().unwrap(), Owner { client: 77, generation: 3 });
        std::fs::write(directory.0.join("v"), [0; 4097]).unwrap();
        assert!(Files::open(&directory.0.join("v"), None, false).err().unwrap().contains("no whole blocks"));
        std::fs::write(directory.0.join("v"), [0; 4096]).unwrap();
        assert!(Files::open(&directory.0.join("v"), None, false).err().unwrap().contains("another length"));
        let none = Files::open(&directory.0.join("none"), None, false).err().unwrap();
        assert!(none.contains("cannot open"), "{none}");
    }
}
