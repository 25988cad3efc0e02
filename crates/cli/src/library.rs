//! Search for libtoe.so and for the verbs libraries.
use std::path::{Path, PathBuf};

/// The library: the one asked for, or the one that was built or installed together with this program.
pub(crate) fn find(asked: Option<&Path>) -> Result<PathBuf, String> {
    let given = asked.map(PathBuf::from).or_else(|| std::env::var_os("TOE_LIB").map(PathBuf::from));
    if let Some(path) = given {
        return path.canonicalize().map_err(|e| format!("no library at {}: {e}", path.display()));
    }
    let program = std::env::current_exe().map_err(|e| format!("cannot see where this program is: {e}"))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let places = ["libtoe.so", "../lib/libtoe.so", "../lib/opentoe/libtoe.so", "../libtoe.so"];
    let found = places.iter().map(|place| directory.join(place)).find(|path| path.is_file());
    let found = found.and_then(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        format!(
            "libtoe.so is not beside {} nor in ../lib: build it with make build, or give --lib FILE",
            program.display()
        )
    })
}

/// `libtoe_heap.so`, which was built or installed with libtoe.so.
pub(crate) fn heap(library: &Path) -> Result<PathBuf, String> {
    let path = library.with_file_name("libtoe_heap.so");
    let missing = || format!("there is no {}: build it with make build, or leave --heap out", path.display());
    if path.is_file() { Ok(path) } else { Err(missing()) }
}

/// The folder that has `libibverbs.so.1` and `librdmacm.so.1`, where they were built or installed with libtoe.so.
pub(crate) fn verbs(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?.join("rdma");
    folder.join(VERBS).is_file().then_some(folder)
}

/// The file of that folder that is preloaded: a program that carries a renamed copy of the system's library finds ours
/// only so.
pub(crate) const VERBS: &str = "libibverbs.so.1";
