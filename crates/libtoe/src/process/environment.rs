//! The environment that keeps a program on OpenTOE: a program that is run with an environment of its maker's own gets
//! it back.
//!
//! nginx (binary upgrade), dovecot and others write the environment of the programs that they run, and leave out what
//! nothing had configured them for. A program that is to leave OpenTOE gets an empty `TOE_SOCKET`.
//!
//! Another user's program (a login shell of sshd's) gets nothing back, unless sockets are carried into it. That user
//! may not be allowed to attach, and a program that cannot attach ends.
use crate::daemon::attach;
use context::attach::{HOST_VARIABLE, INTERCEPT_VARIABLE, SOCKET_VARIABLE};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// The dynamic linker's list of libraries to load first.
const PRELOAD: &str = "LD_PRELOAD";

/// What the library was started with.
static OWN: OnceLock<Own> = OnceLock::new();

struct Own {
    /// `TOE_SOCKET`, `TOE_HOST` and `TOE_INTERCEPT`, as far as they are set, as `NAME=value`.
    variables: Vec<CString>,
    /// The path of this library.
    library: Vec<u8>,
    /// The effective user.
    user: libc::uid_t,
}

/// Remembers the environment, once, when the library is loaded.
pub(crate) fn remember() {
    if !attach::is_enabled() {
        return;
    }
    let variable = |name: &str| {
        let value = std::env::var_os(name)?;
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
    };
    let variables = [SOCKET_VARIABLE, HOST_VARIABLE, INTERCEPT_VARIABLE].into_iter().filter_map(variable).collect();
    let preloaded = std::env::var_os(PRELOAD).unwrap_or_default();
    let named = libraries(&preloaded).find(|path| is_this_library(path));
    let Some(library) = named.map(<[u8]>::to_vec).or_else(loaded_from) else { return };
    let _ = OWN.set(Own { variables, library, user: attach::user() });
}

/// The entries of a value of `LD_PRELOAD`: separated by spaces or colons (ld.so(8)).
fn libraries(value: &OsStr) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| matches!(byte, b' ' | b':')).filter(|entry| !entry.is_empty())
}

fn is_this_library(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next() == Some(b"libtoe.so")
}

/// The path from which the dynamic linker loaded this library, where `LD_PRELOAD` does not name it
/// (`/etc/ld.so.preload`, `dlopen`).
fn loaded_from() -> Option<Vec<u8>> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address of a function of this library, and room for the answer, which is zeroed.
    unsafe {
        if libc::dladdr(remember as *const libc::c_void, found.as_mut_ptr()) == 0 {
            return None;
        }
        let name = found.assume_init().dli_fname;
        (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes().to_vec())
    }
}

/// Missing parts of a program's environment.
#[derive(Default)]
pub(crate) struct Missing {
    /// Variables to add, or to put in the place of those with the same name.
    pub variables: Vec<CString>,
}

/// Whether a program with this environment is to leave OpenTOE.
pub(crate) fn leaves(environment: &[&CStr]) -> bool {
    environment.iter().find_map(|variable| value_of(variable, SOCKET_VARIABLE)).is_some_and(<[u8]>::is_empty)
}

/// Whether this library is loaded into a dynamic program with this environment, and does something there. It does not
/// where it is to leave OpenTOE, nor in another root without the library's file.
pub(crate) fn loads_library(environment: &[&CStr]) -> bool {
    let value = |name: &str| environment.iter().find_map(|variable| value_of(variable, name));
    let preloaded = value(PRELOAD).unwrap_or_default();
    let library = libraries(OsStr::from_bytes(preloaded)).find(|path| is_this_library(path));
    value(SOCKET_VARIABLE).is_some_and(|socket| !socket.is_empty())
        && library.is_some_and(|path| Path::new(OsStr::from_bytes(path)).exists())
}

/// Whether a program with this environment is one of valgrind's tools. They are linked statically, load the program
/// that they are to run themselves, and this library into that: they need no help, and stand none.
pub(crate) fn is_of_valgrind(environment: &[&CStr]) -> bool {
    environment.iter().any(|variable| value_of(variable, "VALGRIND_LAUNCHER").is_some())
}

/// What is to be added to an environment so that its program runs on OpenTOE, as its maker does. `carries`: sockets go
/// with it.
pub(crate) fn missing(environment: &[&CStr], carries: bool) -> Missing {
    let value = |name: &str| environment.iter().find_map(|variable| value_of(variable, name));
    let Some(own) = OWN.get().filter(|own| carries || own.user == attach::user()) else { return Missing::default() };
    let mut variables = Vec::new();
    if value(SOCKET_VARIABLE).is_none() {
        variables.extend(own.variables.iter().cloned());
    }
    let preloaded = value(PRELOAD).unwrap_or_default();
    if !libraries(OsStr::from_bytes(preloaded)).any(is_this_library) {
        let separator: &[u8] = if preloaded.is_empty() { b"" } else { b" " };
        let list = [PRELOAD.as_bytes(), b"=", &own.library, separator, preloaded].concat();
        variables.extend(CString::new(list).ok());
    }
    Missing { variables }
}

/// The value of a variable, where it has this name.
fn value_of<'a>(variable: &'a CStr, name: &str) -> Option<&'a [u8]> {
    variable.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

impl Missing {
    /// Whether a variable of the environment is replaced.
    pub(crate) fn replaces(&self, variable: &CStr) -> bool {
        let name = |variable: &CStr| variable.to_bytes().split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        self.variables.iter().any(|added| name(added) == name(variable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_left_out_comes_back() {
        let variables = vec![c"TOE_SOCKET=/run/a".to_owned(), c"TOE_HOST=b".to_owned()];
        let _ = OWN.set(Own { variables, library: b"/usr/lib/libtoe.so".to_vec(), user: attach::user() + 1 });
        let added = |environment: &[&CStr]| missing(environment, true).variables;
        let all = [c"TOE_SOCKET=/run/a", c"TOE_HOST=b", c"LD_PRELOAD=/usr/lib/libtoe.so"];
        assert_eq!(added(&[c"HOME=/"]), all.map(CStr::to_owned));
        assert!(leaves(&[c"TOE_SOCKET="]) && !leaves(&[c"TOE_SOCKET=/run/a"]) && !leaves(&[]));
        assert!(!loads_library(&all), "there is no such file");
        assert!(is_of_valgrind(&[c"A=b", c"VALGRIND_LAUNCHER=/usr/bin/valgrind.bin"]) && !is_of_valgrind(&all));
        let own = std::env::temp_dir().join(format!("environment-{}/libtoe.so", std::process::id()));
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(&own, b"").unwrap();
        let preload = CString::new(format!("LD_PRELOAD=/lib/x.so {}", own.display())).unwrap();
        assert!(loads_library(&[&preload, c"TOE_SOCKET=/run/a"]));
        assert!(!loads_library(&[&preload, c"TOE_SOCKET="]) && !loads_library(&[c"TOE_SOCKET=/run/a"]));
        std::fs::remove_dir_all(own.parent().unwrap()).unwrap();
        assert!(missing(&[], false).variables.is_empty(), "another user's program without sockets");
        assert!(added(&[c"TOE_SOCKET=/other", c"LD_PRELOAD=/lib/x.so:/opt/libtoe.so"]).is_empty());
        let other = added(&[c"TOE_SOCKET=/run/a", c"LD_PRELOAD=/lib/jemalloc.so"]);
        assert_eq!(other, [c"LD_PRELOAD=/usr/lib/libtoe.so /lib/jemalloc.so".to_owned()]);
        let missing = missing(&[c"LD_PRELOAD="], true);
        assert!(missing.replaces(c"LD_PRELOAD=") && !missing.replaces(c"LD_PRELOADED=1"));
    }
}
