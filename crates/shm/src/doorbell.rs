//! Doorbells: waking a side that sleeps, for nothing while it is awake.
use crate::announce::{self, BARRIER};
use crate::{Region, membarrier, system_call};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::time::Duration;

/// One direction's doorbell: a descriptor, and a word in the region with how many sleep on it.
///
/// The descriptor is an eventfd where the ringing side is the one that must not trust the other, or where both are one
/// party. Where the *daemon* rings, it is a pair of sockets ([`Doorbell::pair`]). `O_NONBLOCK` belongs to the open
/// file, of which an eventfd has only one. An application could clear the flag and fill the counter, and the daemon's
/// next write would wait for ever. Each end of a pair is an open file of its own, and `MSG_DONTWAIT` belongs to the
/// call. For the same reason the daemon never reads an eventfd that an application has, but watches it edge-triggered.
///
/// The sleeper calls [`Doorbell::prepare_to_sleep`], polls once more for work, and only then waits on the descriptor.
/// The other side publishes work and calls [`Doorbell::ring`]. Each writes its own word and then reads the other's.
/// With a full fence between the two on both sides, one of them reads what the other wrote.
///
/// # A fence on one side only
///
/// The ringing side rings for every message, the other sleeps rarely. So the sleeper may pay for both. It
/// [promises](Doorbell::promise_barrier) to call `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)` between its announcement
/// and its last poll. A ringer that [relies](Doorbell::rely_on_barrier) on this only keeps the compiler from
/// reordering. Why no wake-up is lost then:
///
/// - During the call, the kernel has each running thread of a *registered* process execute a full fence. A thread that
///   does not run executes one when it is switched. If that fence comes after the ringer's publication, the sleeper's
///   last poll finds the work. If it comes before, the ringer reads the word after the announcement was made, and
///   rings. There is no third case.
/// - The promise is a bit of the word that the ringer reads anyway, so promise and announcement are one value. A
///   ringer that finds the bit clear executes the full fence and reads again. So does one that could not register,
///   because the call is missing or seccomp refuses it. Both halves are needed to leave the fence out, so either side
///   may lack the call.
/// - A sleeper whose call is refused later (a filter installed meanwhile) takes the promise back. A ringer may have
///   read the bit just before, with its publication still in the store buffer. So the sleeper waits for [`SETTLE`],
///   once, before its last poll.
/// - Linux misses processors. The process may register while a processor is idle that last ran a thread of it. The
///   idle task then still has the process' page tables loaded (lazy TLB). `membarrier_switch_mm` compares them with
///   those of the thread that comes next, finds the same, and leaves the run queue unregistered. No barrier reaches
///   that processor until another process ran on it. (Linux 5.4 to 6.18 at least; seen as 3 of 20,000 lost.) So the
///   sleeper polls once more after [`SETTLE`], as above. A wake-up that Linux loses comes a millisecond late.
/// - The word can be written by both sides. A ringer that lies in it loses only wake-ups of work of its own: each
///   context has its own doorbell. A *sleeper* that promises and does not keep it loses only wake-ups of its own.
///   No other word is read for this. A full count, an empty one or a wrong bit makes a ring too many or too few, and
///   nothing worse.
///
/// Applications rely, the daemon promises. The other direction keeps its fences: the daemon rings once for a batch.
/// Any process of the machine that calls `membarrier` in a loop interrupts a registered process. For the daemon, which
/// serves them all, that is not worth a fence a batch.
pub struct Doorbell {
    word: NonNull<AtomicU32>,
    fd: OwnedFd,
    /// The descriptor is an end of [`Doorbell::pair`].
    socket: bool,
    /// As the ringing side: this process is registered for expedited barriers.
    relies: bool,
    /// As the sleeping side: the bit is set.
    promises: AtomicBool,
    /// Keeps the word mapped.
    _region: Arc<Region>,
}

// SAFETY: the pointer leads to an atomic in a mapping that this value keeps alive, on whatever thread.
unsafe impl Send for Doorbell {}
// SAFETY: as above: shared access goes through atomics.
unsafe impl Sync for Doorbell {}

/// Bytes taken at once from a socket: more rings than fit into one.
const CLEARED: usize = 1024;
/// After this time, all others see what a processor has written, whatever fence was left out. A store buffer empties in
/// well under a microsecond. A sleeper waits no longer than this before it polls for work once more, its
/// announcement standing; only then it waits for good.
pub const SETTLE: Duration = Duration::from_millis(1);

impl Doorbell {
    /// The doorbell whose word is at byte `at` of the region and whose descriptor is `fd`: an eventfd, or this side's
    /// end of a [pair](Doorbell::pair).
    pub fn new(region: &Arc<Region>, at: usize, fd: OwnedFd) -> Doorbell {
        let word = NonNull::from(region.u32_at(at));
        let socket = is_socket(fd.as_fd());
        Doorbell { word, fd, socket, relies: false, promises: AtomicBool::new(false), _region: Arc::clone(region) }
    }

    /// Two sockets for a doorbell whose ringer does not trust its sleeper: the sleeper's end, then the ringer's.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: a plain system call with room for two descriptors, which are owned at once.
        unsafe {
            if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
        }
    }

    /// A fresh non-blocking eventfd for a doorbell.
    pub fn eventfd() -> io::Result<OwnedFd> {
        // SAFETY: a plain system call; the result is checked and owned at once.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd is fresh and valid.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: in the region, which `_region` keeps mapped, and aligned.
        unsafe { self.word.as_ref() }
    }

    /// For the only sleeper: promises a barrier before each sleep, where the kernel has it.
    pub fn promise_barrier(&self) {
        let can = membarrier::is_there();
        self.promises.store(can, SeqCst);
        self.reset();
    }

    /// For the ringing side: leaves out the fence of [`Doorbell::ring`] where the sleeper promises a barrier. To be
    /// called again after fork and exec, by the process that rings. Returns whether the kernel allows it.
    pub fn rely_on_barrier(&mut self) -> bool {
        self.relies = membarrier::register();
        self.relies
    }

    /// Announces a sleeper. Afterwards, poll for work once more before waiting.
    pub fn prepare_to_sleep(&self) {
        Doorbell::prepare_all([self]);
    }

    /// Announces a sleeper on each of several doorbells, with one barrier for all.
    pub fn prepare_all<'a>(bells: impl IntoIterator<Item = &'a Doorbell> + Clone) {
        let mut promised = false;
        for bell in bells.clone() {
            announce::one_more(bell.word());
            promised |= bell.promises.load(Relaxed);
        }
        fence(SeqCst);
        if promised && !membarrier::everywhere() {
            for bell in bells {
                bell.promises.store(false, SeqCst);
                bell.word().fetch_and(!BARRIER, SeqCst);
            }
            std::thread::sleep(SETTLE);
            fence(SeqCst);
        }
    }

    /// Takes the announcement back, after waking or after finding work.
    pub fn awake(&self) {
        self.word().fetch_sub(1, SeqCst);
    }

    /// Forgets all announcements: for the only sleeper of this doorbell, after the other side may have
    /// written the word.
    pub fn reset(&self) {
        self.word().store(if self.promises.load(Relaxed) { BARRIER } else { 0 }, SeqCst);
    }

    /// Wakes the other side if it sleeps. Call after publishing work. Returns whether it rang.
    #[inline]
    pub fn ring(&self) -> bool {
        let sleeping = announce::somebody_sleeps(self.word(), self.relies);
        if sleeping {
            self.ring_always();
        }
        sleeping
    }

    /// Rings without looking whether anybody sleeps. Never waits.
    #[cold]
    pub fn ring_always(&self) {
        let (fd, one) = (self.fd.as_raw_fd(), 1u64.to_ne_bytes());
        // Failing (EAGAIN) means that the counter is at its limit or the socket full: it is signalled already.
        if self.socket {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            let arguments = [fd as usize, one.as_ptr().expose_provenance(), 1, flags as usize, 0, 0];
            // SAFETY: sends one byte of a local array. Made directly: libtoe interposes `send`.
            unsafe { system_call::raw(libc::SYS_sendto, arguments) };
        } else {
            // SAFETY: writes eight bytes from a local array.
            unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
        }
    }

    /// Takes the signal, so that the descriptor is no longer readable. The sleeper's to call.
    pub fn clear(&self) {
        let (fd, mut taken) = (self.fd.as_raw_fd(), [0u8; CLEARED]);
        let at = taken.as_mut_ptr().expose_provenance();
        // SAFETY: reads at most what the local array holds; EAGAIN means that there was no signal. By `read` for both
        // kinds: a program's filter of system calls may let no other call pass. Made directly: libtoe interposes
        // `read`.
        unsafe { system_call::raw(libc::SYS_read, [fd as usize, at, CLEARED, 0, 0, 0]) };
    }

    /// The descriptor, readable for the sleeper when rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_socket(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: a plain system call on a borrowed descriptor; zero is a valid value of the local struct.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd.as_raw_fd(), &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFSOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Byte of the bell's word, of the work's, and of the words by which the two threads of a test meet.
    const BELL: usize = 64;
    const WORK: usize = 1024;
    const MEET: usize = 2048;

    fn pair(promise: bool, rely: bool) -> (Arc<Region>, Doorbell, Doorbell) {
        let region = Arc::new(Region::create("test", 4096).unwrap());
        let fd = Doorbell::eventfd().unwrap();
        let sleeper = Doorbell::new(&region, BELL, fd.try_clone().unwrap());
        let mut ringer = Doorbell::new(&region, BELL, fd);
        if promise {
            sleeper.promise_barrier();
        }
        if rely {
            ringer.rely_on_barrier();
            reach_all_processors();
        }
        (region, sleeper, ringer)
    }

    /// Has another process run on each processor, so that barriers reach this one there. Linux misses processors that
    /// were idle at the registration ([`Doorbell`] has the reason).
    fn reach_all_processors() {
        // SAFETY: plain system calls; zero is a valid value of the set, and the set is a local.
        let allowed = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
            set
        };
        // SAFETY: as above; the macro reads a bit.
        for at in (0..libc::CPU_SETSIZE as usize).filter(|at| unsafe { libc::CPU_ISSET(*at, &allowed) }) {
            let mut child = Command::new("true");
            // SAFETY: between fork and exec, one system call on a local.
            unsafe {
                child.pre_exec(move || {
                    let mut one: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(at, &mut one);
                    match libc::sched_setaffinity(0, size_of_val(&one), &one) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                })
            };
            assert!(child.status().unwrap().success());
        }
    }

    /// Rounds in which one thread publishes and rings while the other announces itself and polls, both at once. Counts
    /// those in which neither saw the other: the lost wake-ups.
    fn lost_wakeups(region: &Arc<Region>, sleeper: &Doorbell, ringer: &Doorbell, rounds: u32) -> u32 {
        let word = |at| region.u32_at(at);
        // Spins a while for the other thread, then lets it run: it may be on the same core.
        let wait = |at, round| {
            for spins in 0u32.. {
                if word(at).load(SeqCst) >= round {
                    break;
                }
                if spins > 1000 {
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    word(MEET).store(round, SeqCst);
                    wait(MEET + 64, round);
                    word(WORK).store(round, Relaxed);
                    let rang = ringer.ring();
                    word(MEET + 256).store(rang as u32, SeqCst);
                    word(MEET + 128).store(round, SeqCst);
                    wait(MEET + 192, round);
                }
            });
            let mut lost = 0;
            for round in 1..=rounds {
                word(MEET + 64).store(round, SeqCst);
                wait(MEET, round);
                sleeper.prepare_to_sleep();
                let saw = word(WORK).load(Relaxed) == round;
                wait(MEET + 128, round);
                let rang = word(MEET + 256).load(SeqCst) != 0;
                lost += (!saw && !rang) as u32;
                sleeper.awake();
                sleeper.clear();
                word(MEET + 192).store(round, SeqCst);
            }
            lost
        })
    }

    #[test]
    fn no_wakeup_is_lost_whichever_side_has_barriers() {
        for (promise, rely) in [(true, true), (false, false), (true, false), (false, true)] {
            let (region, sleeper, ringer) = pair(promise, rely);
            assert_eq!(lost_wakeups(&region, &sleeper, &ringer, 20_000), 0, "promise {promise}, rely {rely}");
        }
    }

    #[test]
    #[ignore = "shows that the test above can fail, which needs two cores that are free"]
    fn without_the_barrier_wakeups_are_lost() {
        let (region, sleeper, ringer) = pair(true, true);
        sleeper.promises.store(false, SeqCst);
        assert!(ringer.relies, "the kernel has no membarrier");
        assert_ne!(lost_wakeups(&region, &sleeper, &ringer, 1_000_000), 0);
    }

    #[test]
    fn a_promise_that_is_taken_back_brings_the_fence_back() {
        let (region, sleeper, ringer) = pair(true, true);
        let word = || region.u32_at(BELL).load(SeqCst);
        assert_eq!(word() & BARRIER != 0, sleeper.promises.load(SeqCst));
        sleeper.promises.store(false, SeqCst);
        sleeper.reset();
        assert_eq!(word(), 0);
        assert_eq!(lost_wakeups(&region, &sleeper, &ringer, 2000), 0);
    }

    /// The sleeper makes every descriptor that it has blocking, and takes nothing: the ringer still never waits.
    #[test]
    fn a_ringer_never_waits_for_its_sleeper() {
        let region = Arc::new(Region::create("test", 4096).unwrap());
        let (sleeper, ringer) = Doorbell::pair().unwrap();
        // SAFETY: plain system calls on an owned descriptor.
        unsafe { libc::fcntl(sleeper.as_raw_fd(), libc::F_SETFL, 0) };
        let (sleeper, ringer) = (Doorbell::new(&region, BELL, sleeper), Doorbell::new(&region, BELL, ringer));
        for _ in 0..CLEARED {
            ringer.ring_always();
        }
        sleeper.clear();
        let mut poll = libc::pollfd { fd: sleeper.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, a local; without waiting.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 0, "one call takes all rings");
        ringer.ring_always();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 1);
        drop(sleeper);
        ringer.ring_always();
    }

    /// Two threads that each publish and then sleep unless the other one has published: with a lost wake-up, both
    /// would wait for ever.
    #[test]
    fn a_sleeper_that_really_sleeps_is_woken() {
        let (region, sleeper, ringer) = pair(true, true);
        let stop = AtomicBool::new(false);
        let work = || region.u32_at(WORK).load(Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=20_000u32 {
                    region.u32_at(WORK).store(round, Relaxed);
                    ringer.ring();
                    while region.u32_at(MEET).load(SeqCst) != round {
                        std::thread::yield_now();
                    }
                }
                stop.store(true, SeqCst);
                ringer.ring_always();
            });
            let mut seen = 0;
            while !stop.load(SeqCst) {
                sleeper.prepare_to_sleep();
                if work() == seen {
                    wait_readable(&sleeper);
                }
                sleeper.reset();
                sleeper.clear();
                seen = work();
                region.u32_at(MEET).store(seen, SeqCst);
            }
        });
    }

    /// Waits for the bell without a time limit: a lost wake-up hangs the test.
    fn wait_readable(bell: &Doorbell) {
        let mut poll = libc::pollfd { fd: bell.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, a local.
        unsafe { libc::poll(&mut poll, 1, -1) };
    }
}
