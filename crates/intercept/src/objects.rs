//! Objects that the dynamic linker has loaded: executable ranges, and where functions begin (`.eh_frame_hdr`, which
//! stripped objects have as well: LSB Core, "Exception Frames").
use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;

/// An executable range of an object.
#[derive(Debug, Clone)]
pub(crate) struct Code {
    /// Its first address.
    pub start: u64,
    /// Its length in bytes.
    pub len: usize,
}

impl Code {
    /// The bytes.
    ///
    /// # Safety
    /// The range is mapped and readable, and nobody changes it meanwhile.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(at(self.start), self.len) }
    }
}

/// A loaded object.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// Its path; empty for the program itself.
    pub path: String,
    /// Its executable ranges.
    pub code: Vec<Code>,
    /// Where its functions begin, in order.
    pub functions: Vec<u64>,
}

/// Encodings of `.eh_frame_hdr`'s table that every linker writes: 4-byte count, 4-byte offsets from the header.
const COUNT_ENCODING: u8 = 0x03;
const TABLE_ENCODING: u8 = 0x3b;

/// All loaded objects but the dynamic linker, whose calls concern its own files only, and the kernel's.
pub(crate) fn loaded() -> Vec<Object> {
    let mut found: Vec<Object> = Vec::new();
    // SAFETY: the callback takes the data for what is passed here, and does not keep it.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    found.retain(|object| !is_linkers_or_kernels(&object.path));
    found
}

/// The executable range that an address is in.
pub(crate) fn code_around(address: u64) -> Option<Code> {
    let all = loaded().into_iter().flat_map(|object| object.code);
    all.into_iter().find(|code| (code.start..code.start + code.len as u64).contains(&address))
}

fn is_linkers_or_kernels(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("ld-linux") || name.starts_with("ld.so") || name.starts_with("linux-vdso")
}

fn at<T>(address: u64) -> *const T {
    std::ptr::with_exposed_provenance(address as usize)
}

unsafe extern "C" fn add(info: *mut dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes valid pointers, and `found` is the caller's list.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<Object>>()) };
    // SAFETY: a C string; the table of headers has so many entries.
    let (path, headers) = unsafe {
        let path = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (path.to_string_lossy().into_owned(), std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    let mut object = Object { path, ..Object::default() };
    for header in headers {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
            object.code.push(Code { start, len: header.p_memsz as usize });
        }
        if header.p_type == libc::PT_GNU_EH_FRAME {
            // SAFETY: a loaded segment of the object.
            let bytes = unsafe { std::slice::from_raw_parts(at::<u8>(start), header.p_memsz as usize) };
            object.functions = functions(bytes, start);
        }
    }
    found.push(object);
    0
}

/// Where functions begin, by the table of an `.eh_frame_hdr` at an address. Empty where it has another form.
pub(crate) fn functions(header: &[u8], address: u64) -> Vec<u64> {
    let known = header.len() >= 12 && header[0] == 1 && header[2] == COUNT_ENCODING && header[3] == TABLE_ENCODING;
    if !known {
        return Vec::new();
    }
    let word = |bytes: &[u8]| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let count = word(&header[8..12]) as u32 as usize;
    let table = header[12..].chunks_exact(8).take(count);
    let mut found: Vec<u64> = table.map(|entry| address.wrapping_add_signed(word(entry).into())).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_there_with_its_functions() {
        let all = loaded();
        let libc = all.iter().find(|object| object.path.contains("libc.so")).expect("linked dynamically");
        let code = &libc.code[0];
        assert!(libc.functions.len() > 1000 && libc.functions.is_sorted());
        let inside = |at: &&u64| (code.start..code.start + code.len as u64).contains(*at);
        assert_eq!(libc.functions.iter().filter(inside).count(), libc.functions.len());
        assert!(all.iter().all(|object| !object.path.contains("ld-linux")));
    }

    #[test]
    fn a_damaged_table_gives_nothing_wrong() {
        assert!(functions(&[], 0).is_empty() && functions(&[1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 9, 0, 0], 0).is_empty());
        // More entries promised than there are.
        let header = [1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 255, 255, 255, 255, 16, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(functions(&header, 4096), [4112]);
        assert!(functions(&[2; 40], 0).is_empty());
    }
}
