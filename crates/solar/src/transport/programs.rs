//! Programs that use a volume by queues of their own (`context::volume`): blocks go straight into their memory.
//!
//! A program is hostile: each post is copied and checked, and reaches only the program's own registrations. A program
//! that takes no completions gets no more posts taken; others go on.
use crate::operations::Direction;
use crate::packet::{BLOCK_LEN, Status};
use context::comm::Piece;
use context::volume::{Completion, Order, Post};
use context::{ProgramQueues, RETRY};
use memory::{Access, Domain, Key, MemoryTable};
use shm::Doorbell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tcp::Nanos;

/// Posts taken from one program in one round.
const PER_ROUND: usize = 64;
/// Requests of one program that have not ended.
const MOST_OUTSTANDING: usize = context::comm::POSTS as usize;
/// Bytes of one program's requests that have not ended: those that are written were copied.
const MOST_BYTES: u64 = 64 << 20;
/// Most bytes of a request.
const LONGEST: u64 = 1 << 20;
/// Programs of a volume.
const MOST_PROGRAMS: usize = 64;

// Linux error numbers.
const EPERM: u32 = 1;
const EIO: u32 = 5;
const EFAULT: u32 = 14;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ESHUTDOWN: u32 = 108;

/// Names a program of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(u32);

/// A request of a program, checked: whole blocks, within a registration.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramRequest {
    pub(super) direction: Direction,
    pub(super) lba: u64,
    program: ProgramId,
    domain: Domain,
    id: u64,
    memory: Piece,
    /// Its memory could not be reached.
    failed: bool,
}

impl ProgramRequest {
    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        self.memory.len
    }
}

struct Program {
    /// Whose memory it uses.
    domain: Domain,
    queues: ProgramQueues,
    outstanding: usize,
    /// Bytes of these requests.
    bytes: u64,
}

/// The programs of one volume. Whoever attaches and detaches them is another thread than the data-path's.
pub struct Programs {
    table: Arc<MemoryTable>,
    attached: AtomicUsize,
    inner: Mutex<Attached>,
}

/// What [`Programs::round`] gives: the data-path thread holds it for a round.
pub(super) struct Attached {
    list: BTreeMap<ProgramId, Program>,
    next: u32,
}

impl Programs {
    /// No programs yet; `table` has what they will register.
    pub fn new(table: Arc<MemoryTable>) -> Programs {
        let inner = Attached { list: BTreeMap::new(), next: 0 };
        Programs { table, attached: AtomicUsize::new(0), inner: Mutex::new(inner) }
    }

    /// Registered memory of the programs.
    pub fn table(&self) -> &Arc<MemoryTable> {
        &self.table
    }

    fn lock(&self) -> MutexGuard<'_, Attached> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The programs, for a round; `None` where there are none.
    pub(super) fn round(&self) -> Option<MutexGuard<'_, Attached>> {
        (self.attached.load(Ordering::SeqCst) > 0).then(|| self.lock())
    }

    /// A program comes, whose memory is in this domain.
    ///
    /// # Errors
    /// A sentence: there are too many.
    pub fn attach(&self, domain: Domain, queues: ProgramQueues) -> Result<ProgramId, String> {
        let mut inner = self.lock();
        if inner.list.len() >= MOST_PROGRAMS {
            return Err(format!("the volume has {MOST_PROGRAMS} programs already: end some first"));
        }
        inner.next += 1;
        let id = ProgramId(inner.next);
        inner.list.insert(id, Program { domain, queues, outstanding: 0, bytes: 0 });
        self.attached.store(inner.list.len(), Ordering::SeqCst);
        Ok(id)
    }

    /// A program is gone: requests that were taken go on, others are lost, and no byte of its memory is touched from
    /// now on.
    pub fn detach(&self, id: ProgramId) {
        let mut inner = self.lock();
        inner.list.remove(&id);
        self.attached.store(inner.list.len(), Ordering::SeqCst);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.attached.load(Ordering::SeqCst)
    }

    /// There is something to do now.
    pub(super) fn has_work(&self) -> bool {
        let waits = |program: &Program| program.has_room() && program.queues.has_posts();
        self.round().is_some_and(|inner| inner.list.values().any(waits))
    }

    /// When something is due by itself.
    pub(super) fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let waits = self.round().is_some_and(|inner| inner.list.values().any(|program| program.queues.is_late()));
        waits.then_some(now + RETRY)
    }

    /// The data-path thread is about to sleep.
    pub(super) fn prepare_to_sleep(&self) {
        if let Some(inner) = self.round() {
            let bells: Vec<&Doorbell> = inner.list.values().map(|program| program.queues.bell()).collect();
            Doorbell::prepare_all(bells.iter().copied());
        }
    }

    /// It polls again.
    pub(super) fn awake(&self) {
        if let Some(inner) = self.round() {
            inner.list.values().for_each(|program| program.queues.bell().reset());
        }
    }
}

impl Attached {
    /// Takes what programs ask for; what cannot be ends at once.
    pub(super) fn take_posts(&mut self, table: &MemoryTable, mut submit: impl FnMut(ProgramRequest, Vec<u8>)) -> usize {
        let mut done = 0;
        for (id, program) in &mut self.list {
            for _ in 0..PER_ROUND {
                if !program.has_room() {
                    break;
                }
                let Some(words) = program.queues.next_post() else { break };
                done += 1;
                let Some(post) = Post::from_words(words) else { continue };
                match accept(*id, program.domain, post, table) {
                    Ok((request, bytes)) => {
                        program.outstanding += 1;
                        program.bytes += request.len();
                        submit(request, bytes);
                    }
                    Err(errno) => program.queues.complete(Completion { id: post.id, errno }.to_words()),
                }
            }
        }
        done
    }

    /// Places bytes of a request in the program's memory, from its byte `at` on.
    pub(super) fn place(&self, table: &MemoryTable, request: &mut ProgramRequest, at: u64, bytes: &[u8]) {
        let at = request.memory.offset + at;
        let placed = self.list.contains_key(&request.program)
            && table
                .open(request.domain, Key(request.memory.key), Access::LocalWrite)
                .is_ok_and(|lease| lease.write(at, bytes).is_ok());
        request.failed |= !placed;
    }

    /// A request has ended.
    pub(super) fn end(&mut self, request: &ProgramRequest, status: Status) {
        if let Some(program) = self.list.get_mut(&request.program) {
            program.outstanding -= 1;
            program.bytes -= request.len();
            let errno = if request.failed { EFAULT } else { errno_of(status) };
            program.queues.complete(Completion { id: request.id, errno }.to_words());
        }
    }

    /// Wakes the programs that have completions.
    pub(super) fn ring(&mut self) {
        self.list.values_mut().for_each(|program| program.queues.ring());
    }
}

impl Program {
    fn has_room(&self) -> bool {
        self.outstanding < MOST_OUTSTANDING && self.bytes < MOST_BYTES
    }
}

/// The request of a post, and what it writes; or an error number. What is written is copied here, so that each packet
/// that carries it has the same bytes, whatever the program does meanwhile.
fn accept(
    program: ProgramId,
    domain: Domain,
    post: Post,
    table: &MemoryTable,
) -> Result<(ProgramRequest, Vec<u8>), u32> {
    let Post { id, order, at, memory } = post;
    let block = BLOCK_LEN as u64;
    if at % block != 0 || memory.len % block != 0 || memory.len == 0 || memory.len > LONGEST {
        return Err(EINVAL);
    }
    let (direction, access) = match order {
        Order::Read => (Direction::Read, Access::LocalWrite),
        Order::Write => (Direction::Write, Access::LocalRead),
    };
    let lease = table.open(domain, Key(memory.key), access).map_err(|_| EFAULT)?;
    if memory.offset.checked_add(memory.len).is_none_or(|end| end > lease.len()) {
        return Err(EFAULT);
    }
    let mut bytes = Vec::new();
    if direction == Direction::Write {
        lease.append(memory.offset, memory.len as usize, &mut bytes).map_err(|_| EFAULT)?;
    }
    Ok((ProgramRequest { direction, lba: at / block, program, domain, id, memory, failed: false }, bytes))
}

fn errno_of(status: Status) -> u32 {
    match status {
        Status::Ok => 0,
        Status::ReadOnly => EPERM,
        Status::OutOfRange => EINVAL,
        Status::NoSpace => ENOSPC,
        Status::Fenced | Status::NoSession => ESHUTDOWN,
        _ => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use context::comm::program_bell;
    use context::queues::{AppQueues, DaemonQueues, QueueSizes, daemon_bell};
    use memory::{Limits, Registrar, Rights};
    use shm::Region;

    const OWN: Domain = Domain(1);

    /// Both ends of a program's queues, and the key of its memory.
    fn program(table: &MemoryTable, region: &Arc<Region>) -> (ProgramQueues, AppQueues, u32) {
        let address = region.address(0, region.len()) as u64;
        let prepared = Registrar::new().prepare(address, region.len() as u64, Rights::LOCAL_WRITE).unwrap();
        let key = table.register(OWN, &prepared.description, &prepared.files, None).unwrap();
        let sizes = QueueSizes { send: 1024, completion: 1024, ..QueueSizes::default() };
        let (queues, ends) = DaemonQueues::create("volume test", sizes).unwrap();
        let (_, own) = Doorbell::pair().unwrap();
        let bell = daemon_bell(&queues, Doorbell::eventfd().unwrap());
        let (posts, completions) = (ends.send.unwrap(), ends.completion.unwrap());
        let new = ProgramQueues::new(posts, completions, bell, program_bell(&queues, own));
        (new, AppQueues::new(&queues).unwrap(), key.0)
    }

    #[test]
    fn what_a_program_writes_at_once_is_bounded() {
        let table = Arc::new(MemoryTable::new(Limits::default()).unwrap());
        let region = Arc::new(Region::create("volume test", 1 << 20).unwrap());
        let programs = Programs::new(Arc::clone(&table));
        let (new, mut queues, key) = program(&table, &region);
        let id = programs.attach(OWN, new).unwrap();
        let memory = Piece { key, offset: 0, len: 1 << 20 };
        for id in 0..100 {
            queues.send.as_mut().unwrap().push(Post { id, order: Order::Write, at: 0, memory }.to_words()).unwrap();
        }
        let mut inner = programs.round().unwrap();
        let mut taken = Vec::new();
        for _ in 0..10 {
            inner.take_posts(&table, |request, bytes| taken.push((request, bytes.len())));
        }
        assert_eq!(taken.len(), 64, "as many as there may be bytes for");
        assert!(taken.iter().all(|(_, len)| *len == 1 << 20));
        // One ends, and another one is taken.
        inner.end(&taken[0].0, Status::Ok);
        inner.take_posts(&table, |request, bytes| taken.push((request, bytes.len())));
        assert_eq!(taken.len(), 65);
        drop(inner);
        let ended = Completion::from_words(queues.completion.as_mut().unwrap().pop().unwrap());
        assert_eq!(ended, Completion { id: 0, errno: 0 });
        programs.detach(id);
        assert!(programs.round().is_none());
    }
}
