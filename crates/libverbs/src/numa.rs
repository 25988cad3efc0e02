//! libnuma's allocators of whole pages: once a device is open, their memory comes from [`buffers`].
//!
//! Programs that register much memory often get it here (Mooncake, storage servers). libnuma itself may be out of this
//! library's reach, where a program loads it for itself, so what it does is done here: a mapping, and the wish for a
//! node. Interleaved memory stays libnuma's.
use buffers::PAGE;
use libc::{c_int, c_long, c_ulong, c_void, size_t};
use std::ptr::null_mut;

/// `MPOL_PREFERRED` of `mbind`; with no node, the one of the processor that touches a page first.
const PREFERRED: c_int = 1;
/// Nodes that a wish can name.
const NODES: usize = 1024;

#[unsafe(no_mangle)]
unsafe extern "C" fn numa_alloc_onnode(len: size_t, node: c_int) -> *mut c_void {
    let memory = allocate(len);
    if let Ok(node) = usize::try_from(node) {
        prefer(memory, len, Some(node).filter(|node| *node < NODES));
    }
    memory
}

#[unsafe(no_mangle)]
unsafe extern "C" fn numa_alloc_local(len: size_t) -> *mut c_void {
    let memory = allocate(len);
    prefer(memory, len, None);
    memory
}

#[unsafe(no_mangle)]
unsafe extern "C" fn numa_alloc(len: size_t) -> *mut c_void {
    allocate(len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn numa_free(memory: *mut c_void, len: size_t) {
    if buffers::holds(memory) {
        return buffers::release(memory);
    }
    // SAFETY: memory of libnuma's functions, or of those here, that is not used any more.
    unsafe { libc::munmap(memory, len) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn numa_realloc(memory: *mut c_void, old: size_t, new: size_t) -> *mut c_void {
    if !buffers::holds(memory) {
        // SAFETY: as the program asks for it.
        let moved = unsafe { libc::mremap(memory, old, new, libc::MREMAP_MAYMOVE) };
        return if moved == libc::MAP_FAILED { null_mut() } else { moved };
    }
    let other = allocate(new);
    if !other.is_null() {
        // SAFETY: both have so many bytes, and the new one is nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(memory.cast::<u8>(), other.cast::<u8>(), old.min(new)) };
        buffers::release(memory);
    }
    other
}

/// Memory of zeros, or null.
fn allocate(len: usize) -> *mut c_void {
    if let Some(buffer) = buffers::allocate(PAGE, len) {
        return buffer;
    }
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let mapped = unsafe { libc::mmap(null_mut(), len, rights, kind, -1, 0) };
    if mapped == libc::MAP_FAILED { null_mut() } else { mapped }
}

/// Wishes for a node. Where the kernel has none, memory is where it is: so with libnuma as well.
fn prefer(memory: *mut c_void, len: usize, node: Option<usize>) {
    const BITS: usize = c_ulong::BITS as usize;
    if memory.is_null() {
        return;
    }
    let mut mask = [0 as c_ulong; NODES / BITS];
    node.into_iter().for_each(|node| mask[node / BITS] |= 1 << (node % BITS));
    let (mask, bits) = if node.is_some() { (mask.as_ptr(), NODES + 1) } else { (std::ptr::null(), 0) };
    let wish: c_long = PREFERRED.into();
    // SAFETY: a whole mapping, and a mask of so many bits.
    unsafe { libc::syscall(libc::SYS_mbind, memory, len, wish, mask, bits, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_node_is_a_buffer_and_grows() {
        buffers::begin();
        // SAFETY: memory of the functions under test, used within its bounds and given back once.
        unsafe {
            for memory in [numa_alloc_onnode(3 * PAGE, 0), numa_alloc_local(3 * PAGE), numa_alloc(3 * PAGE)] {
                assert!(buffers::holds(memory) && memory.addr() % PAGE == 0);
                let bytes = std::slice::from_raw_parts_mut(memory.cast::<u8>(), 3 * PAGE);
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(9);
                let grown = numa_realloc(memory, 3 * PAGE, 8 * PAGE);
                let bytes = std::slice::from_raw_parts(grown.cast::<u8>(), 8 * PAGE);
                assert!(bytes[..3 * PAGE].iter().all(|byte| *byte == 9) && bytes[3 * PAGE..].iter().all(|b| *b == 0));
                numa_free(grown, 8 * PAGE);
            }
            // What libnuma itself has mapped.
            let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let other = libc::mmap(null_mut(), PAGE, rights, kind, -1, 0);
            let grown = numa_realloc(other, PAGE, 2 * PAGE);
            assert!(!grown.is_null() && !buffers::holds(grown));
            numa_free(grown, 2 * PAGE);
        }
    }
}
