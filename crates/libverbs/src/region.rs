//! Memory regions.
use crate::abi::{IbvMr, IbvPd};
use crate::attachment::Range;
use crate::domain::Domain;
use crate::errno::{self, Result};
use libc::{c_int, c_uint, c_void};
use memory::{Key, Rights};
use verbs::control::Request;

/// `IBV_ACCESS_HUGETLB`, and the bits of `IBV_ACCESS_OPTIONAL_RANGE` (relaxed order is one): nothing changes by them.
const WITHOUT_MEANING: c_uint = 1 << 7 | 0x3ff0_0000;
/// `IBV_ACCESS_ZERO_BASED`.
const ZERO_BASED: c_uint = 1 << 5;
/// `IBV_REREG_MR_CHANGE_TRANSLATION`, `_PD` and `_ACCESS`.
const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_DOMAIN: c_int = 1 << 1;
const CHANGE_ACCESS: c_int = 1 << 2;
/// `IBV_REREG_MR_ERR_INPUT`: the old region is valid.
const OLD_ONE_IS_VALID: c_int = -1;

/// A memory region, with what a re-registration may leave as it is.
#[repr(C)]
struct Region {
    public: IbvMr,
    range: Range,
    access: c_uint,
    key: Key,
}

/// What access flags ask for; EOPNOTSUPP for on-demand paging, which this device lacks, and for unknown ones.
fn rights(access: c_uint) -> Result<Rights> {
    Rights::from_bits(access & !(WITHOUT_MEANING | ZERO_BASED)).ok_or(libc::EOPNOTSUPP)
}

/// # Safety
/// `domain` is one of the program's.
unsafe fn register(domain: *mut IbvPd, range: Range, access: c_uint) -> Result<*mut IbvMr> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Domain::of(domain) };
    let named = if access & ZERO_BASED != 0 { 0 } else { range.named };
    let range = Range { named, ..range };
    let key = of.attachment.register(of.number, range, rights(access)?)?;
    let public = IbvMr {
        context: of.context(),
        pd: domain,
        addr: std::ptr::with_exposed_provenance_mut(range.address as usize),
        length: range.len as usize,
        handle: key.0,
        lkey: key.0,
        rkey: key.0,
    };
    Ok(Box::into_raw(Box::new(Region { public, range, access, key })).cast())
}

fn range(address: *mut c_void, len: usize, named: u64) -> Range {
    Range { address: address.expose_provenance() as u64, len: len as u64, named }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    domain: *mut IbvPd,
    address: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut IbvMr {
    let range = range(address, len, address.addr() as u64);
    // SAFETY: `ibv_alloc_pd` gave the domain.
    errno::pointer(unsafe { register(domain, range, access as c_uint) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    domain: *mut IbvPd,
    address: *mut c_void,
    len: usize,
    named: u64,
    access: c_int,
) -> *mut IbvMr {
    // SAFETY: `ibv_alloc_pd` gave the domain.
    errno::pointer(unsafe { register(domain, range(address, len, named), access as c_uint) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    domain: *mut IbvPd,
    address: *mut c_void,
    len: usize,
    named: u64,
    access: c_uint,
) -> *mut IbvMr {
    // SAFETY: `ibv_alloc_pd` gave the domain.
    errno::pointer(unsafe { register(domain, range(address, len, named), access) })
}

/// A new region takes the old one's place, so its keys are new, as verbs allow.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    region: *mut IbvMr,
    flags: c_int,
    domain: *mut IbvPd,
    address: *mut c_void,
    len: usize,
    access: c_int,
) -> c_int {
    // SAFETY: a region of the program's.
    let old = unsafe { &mut *region.cast::<Region>() };
    let translation = flags & CHANGE_TRANSLATION != 0;
    let (to, access) = (
        if translation { range(address, len, address.addr() as u64) } else { old.range },
        if flags & CHANGE_ACCESS != 0 { access as c_uint } else { old.access },
    );
    let domain = if flags & CHANGE_DOMAIN != 0 { domain } else { old.public.pd };
    let known = CHANGE_TRANSLATION | CHANGE_DOMAIN | CHANGE_ACCESS;
    if flags & !known != 0 || flags == 0 || domain.is_null() || (translation && address.is_null()) {
        errno::set(libc::EINVAL);
        return OLD_ONE_IS_VALID;
    }
    // SAFETY: `ibv_alloc_pd` gave the domain.
    match unsafe { register(domain, to, access) } {
        Err(number) => {
            errno::set(number);
            OLD_ONE_IS_VALID
        }
        Ok(new) => {
            // SAFETY: `register` made it just now.
            std::mem::swap(old, unsafe { &mut *new.cast::<Region>() });
            // SAFETY: the old region, in the place of the new one.
            unsafe { ibv_dereg_mr(new) }
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(region: *mut IbvMr) -> c_int {
    // SAFETY: a region of the program's.
    let of = unsafe { &*region.cast::<Region>() };
    // SAFETY: its domain: one that has regions is not freed.
    let domain = unsafe { Domain::of(of.public.pd) };
    errno::number(domain.attachment.done(&Request::Deregister(of.key)).map(|()| {
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(region.cast::<Region>()) });
    }))
}

/// Device memory cannot be registered.
#[unsafe(no_mangle)]
extern "C" fn ibv_reg_dmabuf_mr(
    _domain: *mut IbvPd,
    _offset: u64,
    _len: usize,
    _named: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut IbvMr {
    errno::pointer(Err(libc::EOPNOTSUPP))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_mr(_domain: *mut IbvPd, _handle: u32) -> *mut IbvMr {
    errno::pointer(Err(libc::EOPNOTSUPP))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_mr(_region: *mut IbvMr) {}

/// The data-path does not touch the memory of a child of fork, nor does it withhold any (docs/REGISTERED-MEMORY.md).
#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_flags_are_rights_or_refused() {
        assert_eq!(rights(0), Ok(Rights::NONE));
        assert_eq!(rights(0b1111 | ZERO_BASED | 1 << 20 | 1 << 7), Ok(Rights::ALL));
        assert_eq!(rights(1 << 6), Err(libc::EOPNOTSUPP), "on demand");
        assert_eq!(rights(1 << 10), Err(libc::EOPNOTSUPP), "unknown");
    }
}
