//! Links the program `libibverbs` as a shared library with versioned symbols, and names it as programs search for it.
//!
//! Programs ask for symbols with versions (`ibv_open_device@IBVERBS_1.1`). A version script gives them; rustc leaves no
//! room for one where it makes a cdylib, but passes none where it makes a program. So this is a program that is linked
//! with `-shared`.
//!
//! All libraries are one file. The dynamic linker loads a file once, under however many names it is found, and takes
//! the versions of each name from it. So `librdmacm.so.1` and `libibverbs.so.1` share their state.
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names by which programs link or load it.
const NAMES: [&str; 4] = ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"];

fn main() -> io::Result<()> {
    let source = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let script = source.join("versions.map");
    println!("cargo:rerun-if-changed={}", script.display());
    let script = format!("-Wl,--version-script={}", script.display());
    for argument in ["-shared", "-Wl,-soname,libibverbs.so.1", "-Wl,--no-undefined-version", &script] {
        println!("cargo:rustc-link-arg-bin=libibverbs={argument}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    // PROFILE/build/PACKAGE/out: the folder with the names stands beside what cargo builds.
    let folder = out.ancestors().nth(3).expect("cargo's folders").join("rdma");
    // Where a name is missing, the script runs again.
    NAMES.iter().try_for_each(|name| link(&folder, name))
}

fn link(folder: &Path, name: &str) -> io::Result<()> {
    let path = folder.join(name);
    println!("cargo:rerun-if-changed={}", path.display());
    fs::create_dir_all(folder)?;
    match symlink("../libibverbs", &path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
