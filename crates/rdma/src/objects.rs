//! The objects of one program: which there are, what each of them uses, and how many there may be.
//!
//! An object that another one uses cannot be destroyed before it: EBUSY, as with hardware. Each number that a program
//! names is found here, among its own.
use crate::failure::Failure;
use std::collections::HashMap;
use std::fmt;
use verbs::Number;

/// What kinds of objects there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A protection domain; numbered by the data-path's domains of memory.
    Domain,
    /// A memory region; numbered by its key.
    Region,
    /// A completion channel.
    Channel,
    /// A completion queue.
    Cq,
    /// A shared receive queue.
    Srq,
    /// A queue pair; its number is unique on its host.
    Qp,
    /// An address handle.
    Handle,
    /// A memory window; its number is the upper part of its keys.
    Window,
    /// A domain of extended reliable connections.
    XrcDomain,
    /// A rule for frames of raw packets.
    Flow,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Domain,
        Kind::Region,
        Kind::Channel,
        Kind::Cq,
        Kind::Srq,
        Kind::Qp,
        Kind::Handle,
        Kind::Window,
        Kind::XrcDomain,
        Kind::Flow,
    ];

    const fn name(self) -> &'static str {
        match self {
            Kind::Domain => "protection domain",
            Kind::Region => "memory region",
            Kind::Channel => "completion channel",
            Kind::Cq => "completion queue",
            Kind::Srq => "shared receive queue",
            Kind::Qp => "queue pair",
            Kind::Handle => "address handle",
            Kind::Window => "memory window",
            Kind::XrcDomain => "XRC domain",
            Kind::Flow => "rule for frames",
        }
    }
}

/// An object of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Its number among those of its kind.
    pub number: Number,
}

impl Object {
    /// The object of this kind and number.
    pub const fn new(kind: Kind, number: Number) -> Object {
        Object { kind, number }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.number)
    }
}

/// How many objects of each kind a program may have, and how much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Protection domains, and as many of extended reliable connections.
    pub domains: u32,
    /// Memory regions.
    pub regions: u32,
    /// Completion channels.
    pub channels: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Address handles.
    pub handles: u32,
    /// Memory windows.
    pub windows: u32,
    /// Rules for frames of raw packets.
    pub flows: u32,
    /// Bytes of all its memory regions.
    pub region_bytes: u64,
    /// Bytes of the regions of all its queues.
    pub queue_bytes: u64,
}

impl Most {
    fn bytes(&self, kind: Kind) -> u64 {
        if kind == Kind::Region { self.region_bytes } else { self.queue_bytes }
    }

    fn per(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Domain | Kind::XrcDomain => self.domains,
            Kind::Region => self.regions,
            Kind::Channel => self.channels,
            Kind::Cq => self.cqs,
            Kind::Srq => self.srqs,
            Kind::Qp => self.qps,
            Kind::Handle => self.handles,
            Kind::Window => self.windows,
            Kind::Flow => self.flows,
        }
    }
}

#[derive(Default)]
struct Entry {
    /// Objects that use it.
    users: u32,
    /// Objects that it uses, each as often as it stands here.
    uses: Vec<Object>,
    bytes: u64,
}

/// All objects of a program.
pub struct Objects {
    most: Most,
    entries: HashMap<Object, Entry>,
    counts: [u32; Kind::ALL.len()],
    bytes: [u64; Kind::ALL.len()],
}

/// What is to be added.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    /// Objects that it uses.
    pub uses: &'a [Object],
    /// Bytes of memory that it has.
    pub bytes: u64,
}

impl<'a> Needs<'a> {
    /// An object without memory of its own.
    pub const fn only(uses: &'a [Object]) -> Needs<'a> {
        Needs { uses, bytes: 0 }
    }
}

impl Objects {
    /// A program that has none yet.
    pub fn new(most: Most) -> Objects {
        Objects { most, entries: HashMap::new(), counts: [0; Kind::ALL.len()], bytes: [0; Kind::ALL.len()] }
    }

    /// The least number that no object of this kind has: below the limit, where one may be added.
    pub fn draw(&self, kind: Kind) -> Number {
        let free = (0..self.most.per(kind)).find(|number| !self.has(Object::new(kind, *number)));
        free.unwrap_or(Number::MAX)
    }

    /// The program has this object.
    pub fn has(&self, object: Object) -> bool {
        self.entries.contains_key(&object)
    }

    /// # Errors
    /// EINVAL: the program does not have the object.
    pub fn find(&self, object: Object) -> Result<(), Failure> {
        match self.has(object) {
            true => Ok(()),
            false => Err(Failure::invalid(format!("the program has no {object}"))),
        }
    }

    /// Checks whether an object of this kind could be added now.
    ///
    /// # Errors
    /// ENOMEM: the program has as many as it may, or as much memory. EINVAL: it does not have one of those that are
    /// used.
    pub fn may_add(&self, kind: Kind, needs: &Needs<'_>) -> Result<(), Failure> {
        let (most, name) = (self.most.per(kind), kind.name());
        if self.count(kind) >= most {
            return Err(Failure::limit(format!("the program has {most} {name}s already: destroy some first")));
        }
        let same = Kind::ALL.iter().filter(|other| (**other == Kind::Region) == (kind == Kind::Region));
        let bytes = same.map(|kind| self.bytes[*kind as usize]).fold(needs.bytes, u64::saturating_add);
        if bytes > self.most.bytes(kind) {
            let mib = self.most.bytes(kind) >> 20;
            return Err(Failure::limit(format!("with another {name} the program would have more than {mib} MiB")));
        }
        needs.uses.iter().try_for_each(|used| self.find(*used))
    }

    /// Adds an object, which [`Objects::may_add`] has allowed.
    pub fn add(&mut self, object: Object, needs: &Needs<'_>) {
        for used in needs.uses {
            if let Some(entry) = self.entries.get_mut(used) {
                entry.users += 1;
            }
        }
        self.counts[object.kind as usize] += 1;
        self.bytes[object.kind as usize] += needs.bytes;
        self.entries.insert(object, Entry { users: 0, uses: needs.uses.to_vec(), bytes: needs.bytes });
    }

    /// An object has so many bytes of memory more.
    ///
    /// # Errors
    /// EINVAL: there is no such object. ENOMEM: the program would have more memory than it may.
    pub fn grow(&mut self, object: Object, more: u64) -> Result<(), Failure> {
        self.find(object)?;
        let same = Kind::ALL.iter().filter(|other| (**other == Kind::Region) == (object.kind == Kind::Region));
        let bytes = same.map(|kind| self.bytes[*kind as usize]).fold(more, u64::saturating_add);
        if bytes > self.most.bytes(object.kind) {
            let mib = self.most.bytes(object.kind) >> 20;
            return Err(Failure::limit(format!("with a larger {object} the program would have more than {mib} MiB")));
        }
        self.bytes[object.kind as usize] += more;
        self.entries.entry(object).and_modify(|entry| entry.bytes += more);
        Ok(())
    }

    /// Checks whether an object could be removed now.
    ///
    /// # Errors
    /// EINVAL: there is none. EBUSY: another one uses it.
    pub fn may_remove(&self, object: Object) -> Result<(), Failure> {
        self.find(object)?;
        match self.entries.get(&object).map_or(0, |entry| entry.users) {
            0 => Ok(()),
            users => Err(Failure::busy(format!("{object} is used by {users} other objects: destroy them first"))),
        }
    }

    /// Removes an object, which [`Objects::may_remove`] has allowed.
    pub fn remove(&mut self, object: Object) {
        let Some(entry) = self.entries.remove(&object) else { return };
        self.counts[object.kind as usize] -= 1;
        self.bytes[object.kind as usize] -= entry.bytes;
        for used in entry.uses {
            if let Some(entry) = self.entries.get_mut(&used) {
                entry.users -= 1;
            }
        }
    }

    /// What an object uses, of one kind: the first.
    pub fn used_by(&self, object: Object, kind: Kind) -> Option<Number> {
        let uses = &self.entries.get(&object)?.uses;
        uses.iter().find(|used| used.kind == kind).map(|used| used.number)
    }

    /// Objects of a kind.
    pub fn count(&self, kind: Kind) -> u32 {
        self.counts[kind as usize]
    }

    /// The numbers of all objects of a kind.
    pub fn all(&self, kind: Kind) -> Vec<Number> {
        self.entries.keys().filter(|object| object.kind == kind).map(|object| object.number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Most = Most {
        domains: 2,
        regions: 3,
        channels: 2,
        cqs: 2,
        srqs: 2,
        qps: 3,
        handles: 2,
        windows: 2,
        flows: 2,
        region_bytes: 100,
        queue_bytes: 50,
    };

    const NONE: Needs<'_> = Needs::only(&[]);

    fn object(kind: Kind, number: u32) -> Object {
        Object::new(kind, number)
    }

    #[test]
    fn what_is_used_is_busy_and_what_is_not_there_is_invalid() {
        let mut objects = Objects::new(MOST);
        let (domain, cq, qp) = (object(Kind::Domain, 9), object(Kind::Cq, 1), object(Kind::Qp, 0x77));
        objects.add(domain, &NONE);
        objects.add(cq, &NONE);
        let uses = [domain, cq, cq];
        objects.may_add(Kind::Qp, &Needs::only(&uses)).unwrap();
        objects.add(qp, &Needs::only(&uses));
        assert_eq!(objects.may_remove(domain).unwrap_err().errno, libc::EBUSY);
        assert_eq!(objects.may_remove(cq).unwrap_err().errno, libc::EBUSY);
        assert_eq!(objects.may_remove(object(Kind::Cq, 2)).unwrap_err().errno, libc::EINVAL);
        assert_eq!(
            objects.may_add(Kind::Region, &Needs::only(&[object(Kind::Domain, 1)])).unwrap_err().errno,
            libc::EINVAL
        );
        assert_eq!(objects.used_by(qp, Kind::Domain), Some(9));
        objects.remove(qp);
        assert!(objects.may_remove(domain).is_ok() && objects.may_remove(cq).is_ok());
        objects.remove(cq);
        assert_eq!((objects.count(Kind::Cq), objects.count(Kind::Domain), objects.all(Kind::Qp)), (0, 1, vec![]));
    }

    #[test]
    fn each_kind_has_a_limit() {
        for kind in Kind::ALL {
            let mut objects = Objects::new(MOST);
            for _ in 0..MOST.per(kind) {
                objects.may_add(kind, &NONE).unwrap();
                let number = objects.draw(kind);
                objects.add(object(kind, number), &NONE);
            }
            assert_eq!(objects.may_add(kind, &NONE).unwrap_err().errno, libc::ENOMEM, "{kind:?}");
        }
    }

    #[test]
    fn memory_of_regions_and_of_queues_has_a_limit_each() {
        let mut objects = Objects::new(MOST);
        let of = |bytes| Needs { uses: &[], bytes };
        objects.add(object(Kind::Cq, 0), &of(30));
        objects.add(object(Kind::Qp, 5), &of(20));
        assert_eq!(objects.may_add(Kind::Srq, &of(1)).unwrap_err().errno, libc::ENOMEM);
        assert!(objects.may_add(Kind::Handle, &of(0)).is_ok() && objects.may_add(Kind::Region, &of(100)).is_ok());
        assert!(
            objects.may_add(Kind::Region, &of(101)).is_err() && objects.may_add(Kind::Region, &of(u64::MAX)).is_err()
        );
        objects.remove(object(Kind::Cq, 0));
        assert!(objects.may_add(Kind::Srq, &of(30)).is_ok());
    }

    proptest! {
        /// Whatever a program asks for: users are counted exactly, and nothing uses what is not there.
        #[test]
        fn counts_agree_with_uses(steps in prop::collection::vec((0..7usize, 0..4u32, 0..7usize, 0..4u32), 0..80)) {
            let mut objects = Objects::new(MOST);
            for (kind, number, other, used) in steps {
                let (made, used) = (object(Kind::ALL[kind], number), object(Kind::ALL[other], used));
                if objects.has(made) {
                    if objects.may_remove(made).is_ok() {
                        objects.remove(made);
                    }
                } else if made != used && objects.may_add(made.kind, &Needs { uses: &[used], bytes: 20 }).is_ok() {
                    objects.add(made, &Needs { uses: &[used], bytes: 20 });
                }
                for (one, entry) in &objects.entries {
                    prop_assert!(entry.uses.iter().all(|used| objects.has(*used)));
                    let users = objects.entries.values().flat_map(|other| &other.uses).filter(|used| *used == one);
                    prop_assert_eq!(entry.users as usize, users.count());
                }
                for kind in Kind::ALL {
                    prop_assert_eq!(objects.count(kind) as usize, objects.all(kind).len());
                    prop_assert!(objects.count(kind) <= MOST.per(kind));
                }
            }
        }
    }
}
