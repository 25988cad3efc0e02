//! Tools of every measurement: this program, the library, the programs to measure, and the user's interrupt.
use crate::process::Stop;
use crate::session;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A program of Mooncake's wheel, and the wheel as pip names it; the grid runs the same (tests/src/cases/wheels.rs).
const MOONCAKE: &str = "mooncake/transfer_engine_bench";
const WHEEL: &str = "mooncake-transfer-engine-non-cuda==0.3.13";

/// Found once, used by all cases.
pub struct Tools {
    /// Set when the user asks to end.
    pub stop: Stop,
    /// This program: it starts daemons, and programs on them.
    pub toe: String,
    /// libtoe.so.
    pub library: PathBuf,
    /// Directory of the programs to measure.
    apps: PathBuf,
    /// Directory of this program.
    own: PathBuf,
    begin: Instant,
}

impl Tools {
    /// Finds everything; the error has what to build.
    pub fn find(library: PathBuf) -> Result<Tools, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("opentoe bench makes network namespaces of its own, which needs root (sudo)".into());
        }
        let toe = std::env::current_exe().map_err(|e| format!("cannot see where this program is: {e}"))?;
        let own = toe.parent().unwrap_or(Path::new("/")).to_path_buf();
        let apps = find_apps(&own)?;
        let (toe, stop) = (toe.display().to_string(), Stop::on_signals()?);
        Ok(Tools { stop, toe, library, apps, own, begin: Instant::now() })
    }

    /// Path of one of the programs in `apps/`.
    pub fn app(&self, name: &str) -> String {
        self.apps.join(name).display().to_string()
    }

    /// Path of one of the examples that are counted, where they are built. The error has the command for that.
    pub fn example(&self, name: &str) -> Result<String, String> {
        let directory = Path::new(&self.toe).parent().unwrap_or(Path::new("/"));
        let places = ["examples", "../examples", "../lib/opentoe/examples", "../libexec/opentoe"];
        let found = places.iter().map(|place| directory.join(place).join(name)).find(|path| path.is_file());
        found
            .map(|path| path.display().to_string())
            .ok_or_else(|| format!("the example `{name}` is not beside {}: make build", directory.display()))
    }

    /// The object of one of the modules in `xdp/`.
    pub fn module(&self, name: &str) -> Result<Vec<u8>, String> {
        let file = format!("{name}.o");
        let found = find(&self.own, "TOE_XDP", ["xdp", "../xdp", "../lib/opentoe/xdp", "../libexec/opentoe"], &file);
        let directory = found.ok_or_else(|| {
            format!("the module {file} is not beside {}: make xdp, or set TOE_XDP", self.own.display())
        })?;
        let path = directory.join(file);
        std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))
    }

    /// The file of one of the libraries in `offload/`.
    pub fn functions(&self, name: &str) -> Result<PathBuf, String> {
        let file = format!("{name}.so");
        let places = ["offload", "../offload", "../lib/opentoe/offload", "../libexec/opentoe"];
        let directory = find(&self.own, "TOE_FUNCTIONS", places, &file).ok_or_else(|| {
            format!("the library {file} is not beside {}: make functions, or set TOE_FUNCTIONS", self.own.display())
        })?;
        Ok(directory.join(file))
    }

    /// Mooncake's benchmark of its transfer engine, as its wheel has it.
    pub fn mooncake(&self) -> Result<String, String> {
        let places = ["mooncake", "../mooncake", "../lib/opentoe/mooncake", "../libexec/opentoe/mooncake"];
        let directory = find(&self.own, "TOE_MOONCAKE", places, MOONCAKE).ok_or_else(|| {
            format!(
                "there is no {MOONCAKE} in {0}: python3 -m pip install --no-deps --target {0} {WHEEL}, or set \
                 TOE_MOONCAKE to the folder where that is",
                self.own.join("mooncake").display()
            )
        })?;
        Ok(directory.join(MOONCAKE).display().to_string())
    }

    /// See [`session::pinned`]; without a core: see [`session::ahead`].
    pub fn pinned(&self, core: impl Into<Option<usize>>) -> Vec<String> {
        core.into().map_or_else(session::ahead, session::pinned)
    }

    /// A line of progress.
    pub fn print_line(&self, line: &str) {
        eprintln!("bench: {:4.0} s  {line}", self.begin.elapsed().as_secs_f64());
    }
}

fn find_apps(directory: &Path) -> Result<PathBuf, String> {
    let places = ["apps", "../apps", "../lib/opentoe/apps", "../libexec/opentoe"];
    find(directory, "TOE_APPS", places, "rpc_client").ok_or_else(|| {
        format!(
            "the programs to measure (rpc_client, ...) are not beside {}: make apps, or set TOE_APPS",
            directory.display()
        )
    })
}

/// The directory that holds a file: the one that a variable of the environment names, or one beside this program.
fn find(directory: &Path, variable: &str, places: [&str; 4], file: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let places = places.map(|place| directory.join(place));
    let found = named.into_iter().chain(places).find(|place| place.join(file).is_file());
    found.and_then(|place| place.canonicalize().ok())
}
