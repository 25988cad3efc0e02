//! Libraries of offload functions: shared objects, loaded from a file in memory that nobody changes any more.
use crate::protocol::Opcode;
use offload_api::{Calls, EVERY_QP, Function};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

/// A loaded library. It is unloaded once no call runs in it.
pub(crate) struct Library {
    /// Its name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) number: u64,
    /// What it registered.
    pub(crate) functions: Vec<(Opcode, Function)>,
    /// What its calls came to.
    pub(crate) counts: Counts,
    _object: Object,
    /// The C library distinguishes objects by their paths, and this one's has the number of the descriptor.
    _file: OwnedFd,
}

/// What calls of a library came to, by all threads.
#[derive(Default)]
pub(crate) struct Counts {
    /// Calls that were begun.
    pub(crate) calls: AtomicU64,
    /// Calls that failed, also at their time limit.
    pub(crate) failed: AtomicU64,
    /// Calls that were ended at their time limit.
    pub(crate) timed_out: AtomicU64,
    /// Nanoseconds that functions ran.
    pub(crate) busy_ns: AtomicU64,
    /// DMA operations of calls that have ended.
    pub(crate) dma: AtomicU64,
}

/// What `dlopen` gave.
struct Object(*mut c_void);

// SAFETY: the handle may be used and closed by any thread.
unsafe impl Send for Object {}
// SAFETY: as above; nothing is done with it but closing.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: `dlopen` gave it, and nothing runs in it: its functions live as long as the library.
        unsafe { libc::dlclose(self.0) };
    }
}

thread_local! {
    /// What the library that this thread is loading has registered so far; none is loaded by the other threads.
    static REGISTERED: RefCell<Option<Vec<(Opcode, Function)>>> = const { RefCell::new(None) };
}

/// `register_opcode`.
///
/// # Safety
/// None is needed: the function is not called here.
pub(crate) unsafe extern "C" fn register_opcode(opcode: u32, port: u32, function: Option<Function>) -> c_int {
    let (Ok(opcode), Ok(port), Some(function)) = (u16::try_from(opcode), u16::try_from(port), function) else {
        return -libc::EINVAL;
    };
    if opcode == 0 {
        return -libc::EINVAL;
    }
    REGISTERED.with_borrow_mut(|registered| {
        let Some(registered) = registered else { return -libc::EPERM };
        let opcode = Opcode { opcode, port };
        if registered.iter().any(|(other, _)| *other == opcode) {
            return -libc::EBUSY;
        }
        registered.push((opcode, function));
        0
    })
}

impl Library {
    /// Loads a library, which registers its functions. `calls` is what it may call.
    ///
    /// # Errors
    /// A sentence: it is no library of offload functions, or it refuses.
    pub(crate) fn load(name: String, number: u64, file: OwnedFd, calls: &'static Calls) -> Result<Library, String> {
        let (path, file) = fresh_path(file)?;
        // SAFETY: a C string and flags. The object's constructors run: the right to load is the right to run code here.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(format!("it cannot be loaded: {}", last_error().replace(&*path.to_string_lossy(), "it")));
        }
        let object = Object(handle);
        let (table, init) = (symbol(&object, c"offload_calls")?, symbol(&object, c"offload_init")?);
        // SAFETY: include/offload.h: the symbol is a pointer to the calls, which only this thread has so far.
        unsafe { AtomicPtr::from_ptr(table.cast::<*mut Calls>()) }.store(std::ptr::from_ref(calls).cast_mut(), Release);
        // SAFETY: include/offload.h: the symbol is a function of this type.
        let init = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(init) };
        REGISTERED.set(Some(Vec::new()));
        let done = init();
        let functions = REGISTERED.take().unwrap_or_default();
        match done {
            0 if functions.is_empty() => Err("it registers no opcode (register_opcode)".into()),
            0 => Ok(Library { name, number, functions, counts: Counts::default(), _object: object, _file: file }),
            number => Err(format!("its offload_init returned {number}")),
        }
    }
}

/// A path of this file by which no object is loaded. One that was closed may stay (a library with unique symbols).
fn fresh_path(file: OwnedFd) -> Result<(CString, OwnedFd), String> {
    let mut tried = vec![file];
    loop {
        let last = &tried[tried.len() - 1];
        let path = CString::new(format!("/proc/self/fd/{}", last.as_raw_fd())).map_err(|error| error.to_string())?;
        // SAFETY: a C string and flags; nothing is loaded.
        let there = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if there.is_null() {
            let file = tried.pop().ok_or("there is no file")?;
            return Ok((path, file));
        }
        let next = last.try_clone().map_err(|error| error.to_string())?;
        tried.push(next);
        // SAFETY: `dlopen` gave it just now.
        unsafe { libc::dlclose(there) };
    }
}

fn symbol(object: &Object, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: an open object and a C string.
    let found = unsafe { libc::dlsym(object.0, name.as_ptr()) };
    let missing = || format!("it has no symbol {} (include/offload.h)", name.to_string_lossy());
    if found.is_null() { Err(missing()) } else { Ok(found) }
}

fn last_error() -> String {
    // SAFETY: a C string of the C library's, valid until its next call in this thread, or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason is given".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A function, and the library that it is in.
#[derive(Clone)]
pub(crate) struct Entry {
    /// The function.
    pub(crate) function: Function,
    /// The library.
    pub(crate) library: Arc<Library>,
}

/// All functions, by opcode.
#[derive(Clone, Default)]
pub(crate) struct Functions {
    by_opcode: HashMap<Opcode, Entry>,
    libraries: Vec<Arc<Library>>,
}

impl Functions {
    /// The function for requests with this opcode that came to this port.
    pub(crate) fn find(&self, opcode: u16, port: u16) -> Option<&Entry> {
        let every = EVERY_QP as u16;
        self.by_opcode.get(&Opcode { opcode, port }).or_else(|| self.by_opcode.get(&Opcode { opcode, port: every }))
    }

    /// With a library, in place of one of the same name.
    ///
    /// # Errors
    /// The other library that has one of its opcodes.
    pub(crate) fn with(&self, library: Library) -> Result<Functions, String> {
        let mut next = self.without(&library.name).unwrap_or_else(|| self.clone());
        let library = Arc::new(library);
        for (opcode, function) in &library.functions {
            let entry = Entry { function: *function, library: Arc::clone(&library) };
            if let Some(other) = next.by_opcode.insert(*opcode, entry) {
                return Err(format!("library {} has opcode {:#x} already", other.library.name, opcode.opcode));
            }
        }
        next.libraries.push(library);
        Ok(next)
    }

    /// Without a library; `None` where there is none of this name.
    pub(crate) fn without(&self, name: &str) -> Option<Functions> {
        self.libraries.iter().any(|library| library.name == name).then(|| {
            let mut next = self.clone();
            next.libraries.retain(|library| library.name != name);
            next.by_opcode.retain(|_, entry| entry.library.name != name);
            next
        })
    }

    /// All libraries.
    pub(crate) fn libraries(&self) -> &[Arc<Library>] {
        &self.libraries
    }
}
