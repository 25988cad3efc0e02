//! Memory windows of type 2 (IBTA 1.3, 10.6.7.2): a part of a region that one queue pair's peer may access, by a key
//! that the program takes back by itself.
//!
//! The upper 24 bits of a key are the window's number, which nobody can guess; the program chooses the lower eight. A
//! binding belongs to its queue pair and its domain (type 2B), and is checked for each access. An access that comes
//! after the window was invalidated touches nothing, also in the middle of a message.
use crate::placement::{Registered, Target};
use memory::{Access, Domain, Fault, Rights};
use std::collections::HashMap;
use verbs::{Binding, QpNumber, Status};

/// Bits of a key that the program chooses.
const CHOSEN_BITS: u32 = 8;
/// What may be granted by a window.
const GRANTS: u32 = 0b1110;

/// A window of a program.
struct Window {
    domain: Domain,
    bound: Option<Bound>,
}

/// What a window is bound to.
#[derive(Clone, Copy)]
struct Bound {
    key: u32,
    qp: QpNumber,
    rights: Rights,
    /// Address of its first byte, as the peer names it.
    first: u64,
    len: u64,
    /// The same byte by the region's key and address.
    region: Target,
}

/// The queue pair that binds a window, and its domain.
#[derive(Clone, Copy)]
pub(crate) struct Binder {
    pub(crate) qp: QpNumber,
    pub(crate) domain: Domain,
}

/// All windows of a program.
#[derive(Default)]
pub(crate) struct Windows(HashMap<u32, Window>);

impl Windows {
    /// There are none: every key is a region's.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a window; false where the number is taken.
    pub(crate) fn add(&mut self, number: u32, domain: Domain) -> bool {
        let is_new = !self.0.contains_key(&number);
        self.0.entry(number).or_insert(Window { domain, bound: None });
        is_new
    }

    /// Removes a window, also a bound one; false where there is none.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.0.remove(&number).is_some()
    }

    /// A queue pair is gone, and with it what was bound to it.
    pub(crate) fn unbind_of(&mut self, qp: QpNumber) {
        self.0.values_mut().filter(|window| window.bound.is_some_and(|bound| bound.qp == qp)).for_each(|window| {
            window.bound = None;
        });
    }

    /// Binds a window. It must be free, of the queue pair's domain, and lie in a region of that domain which permits
    /// windows. One that is to be written needs a region that the program may write.
    // Meets IBTA: 10.6.7-a.
    pub(crate) fn bind(&mut self, by: Binder, binding: &Binding, memory: &Registered) -> Result<(), Status> {
        let Binder { qp, domain } = by;
        let Binding { window, key, region, address, len, rights, zero_based } = *binding;
        let held = self.0.get_mut(&window).ok_or(Status::WindowBind)?;
        let granted = Rights::from_bits(u32::from(rights)).ok_or(Status::WindowBind)?;
        let wrong = held.domain != domain
            || held.bound.is_some()
            || key >> CHOSEN_BITS != window
            || u32::from(rights) & !GRANTS != 0
            || len == 0;
        if wrong {
            return Err(Status::WindowBind);
        }
        let region = Target { domain, key: region, address };
        let writes = [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC].iter().any(|right| granted.contains(*right));
        let all = |access| memory.check(region, len, access).map_err(|_| Status::WindowBind);
        all(Access::Bind)?;
        if writes {
            all(Access::LocalWrite)?;
        }
        let first = if zero_based { 0 } else { address };
        held.bound = Some(Bound { key, qp, rights: granted, first, len, region });
        Ok(())
    }

    /// Ends a binding of this queue pair; false where the key is none of such a one.
    pub(crate) fn invalidate(&mut self, qp: QpNumber, key: u32) -> bool {
        let window = self.0.get_mut(&(key >> CHOSEN_BITS));
        let bound = window.filter(|window| window.bound.is_some_and(|bound| bound.key == key && bound.qp == qp));
        bound.and_then(|window| window.bound.take()).is_some()
    }

    /// The region behind a peer's access to `len` bytes, and the access that is then made to it. A key that is no
    /// window's is a region's own.
    #[inline]
    pub(crate) fn resolve(
        &self,
        qp: QpNumber,
        target: Target,
        len: u64,
        access: Access,
    ) -> Result<(Target, Access), Fault> {
        if self.is_empty() { Ok((target, access)) } else { self.lookup(qp, target, len, access) }
    }

    #[cold]
    fn lookup(&self, qp: QpNumber, target: Target, len: u64, access: Access) -> Result<(Target, Access), Fault> {
        let bound = self.0.get(&(target.key >> CHOSEN_BITS)).and_then(|window| window.bound);
        let Some(bound) = bound.filter(|bound| bound.key == target.key) else { return Ok((target, access)) };
        if bound.qp != qp || bound.region.domain != target.domain {
            return Err(Fault::Key);
        }
        if !bound.rights.contains(access.needs()) {
            return Err(Fault::Rights);
        }
        let skip = target.address.checked_sub(bound.first).ok_or(Fault::Bounds)?;
        if skip.checked_add(len).is_none_or(|end| end > bound.len) {
            return Err(Fault::Bounds);
        }
        Ok((bound.region.plus(skip), access.by_the_program()))
    }
}
