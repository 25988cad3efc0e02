//! Registered memory of one program: what its service thread does with the memory table.
use super::device_record::RdmaPlace;
use memory::{AddressSpace, Description, Domain, Key};
use rdma::{Failure, Kind, Needs, Object, Objects};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// Between two polls of an access that is still under way.
const BREATH: Duration = Duration::from_micros(50);

/// The memory of a program.
pub(super) struct Regions {
    place: RdmaPlace,
    space: Option<Arc<AddressSpace>>,
}

/// Memory that is to be registered.
pub(super) struct NewRegion<'a> {
    pub(super) domain: u32,
    pub(super) description: &'a Description,
    pub(super) files: &'a [OwnedFd],
}

impl Regions {
    pub(super) fn new(place: RdmaPlace) -> Regions {
        Regions { place, space: None }
    }

    /// The program hands over its address space. Looking at the descriptor may wait for the program.
    pub(super) fn hand_over(&mut self, files: Vec<OwnedFd>) -> Result<(), Failure> {
        if self.space.is_some() {
            return Err(Failure::invalid("the program has handed over its address space already"));
        }
        let [mem] = <[OwnedFd; 1]>::try_from(files)
            .map_err(|_| Failure::invalid("one descriptor must come along: the program's /proc/self/mem"))?;
        self.space = Some(Arc::new(AddressSpace::from_fd(mem)?));
        Ok(())
    }

    /// Makes a protection domain.
    pub(super) fn allocate(&self, objects: &mut Objects) -> Result<u32, Failure> {
        let needs = Needs::only(&[]);
        objects.may_add(Kind::Domain, &needs)?;
        let Domain(number) = self.place.domains.draw();
        objects.add(Object::new(Kind::Domain, number), &needs);
        Ok(number)
    }

    /// Ends a protection domain, in which nothing is any more.
    pub(super) fn free(&self, objects: &mut Objects, number: u32) -> Result<(), Failure> {
        let object = Object::new(Kind::Domain, number);
        objects.may_remove(object)?;
        objects.remove(object);
        self.place.domains.give_back(Domain(number));
        Ok(())
    }

    /// Registers memory.
    pub(super) fn register(&self, objects: &mut Objects, region: &NewRegion<'_>) -> Result<Key, Failure> {
        let NewRegion { domain, description, files } = *region;
        let most = self.place.device.limits.region_bytes;
        let bytes = description.len().filter(|bytes| *bytes <= most);
        let bytes = bytes.ok_or_else(|| Failure::invalid(format!("a region has at most {most} bytes")))?;
        let uses = [Object::new(Kind::Domain, domain)];
        let needs = Needs { uses: &uses, bytes };
        objects.may_add(Kind::Region, &needs)?;
        let key = self.place.table.register(Domain(domain), description, files, self.space.as_ref())?;
        objects.add(Object::new(Kind::Region, key.0), &needs);
        Ok(key)
    }

    /// Deregisters memory, and waits for accesses that are under way: afterwards no byte of it is touched.
    pub(super) fn deregister(&self, objects: &mut Objects, key: Key) -> Result<(), Failure> {
        let object = Object::new(Kind::Region, key.0);
        objects.may_remove(object)?;
        let domain = Domain(objects.used_by(object, Kind::Domain).unwrap_or_default());
        self.place.table.revoke(domain, key)?;
        while !self.place.table.finish(domain, key)? {
            sleep(BREATH);
        }
        objects.remove(object);
        Ok(())
    }

    /// The program is gone, and so are its queue pairs: deregisters all that it had.
    pub(super) fn remove_all(&self, objects: &Objects) {
        for number in objects.all(Kind::Domain) {
            while !self.place.table.remove(Domain(number)) {
                sleep(BREATH);
            }
            self.place.domains.give_back(Domain(number));
        }
    }
}
