//! Build of a simulation model from a checked program: SystemVerilog, Verilator, a C++ compiler. What was built once is
//! cached in a folder of the user's own.
use super::prune::{mark_used, prune};
use crate::Loaded;
use crate::ir::Gress;
use crate::rtl::{Design, Map, Timing, generate};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HARNESS: &str = include_str!("harness.cpp");
/// The name of what is built, in its folder.
const MODEL: &str = "opentoe-rtl";

/// A model that can be started.
pub(super) struct Executable {
    pub path: PathBuf,
    /// The file for a waveform, where the model was built to write one.
    pub waveform: Option<PathBuf>,
}

/// Builds the model of both halves, or finds it where it was built before.
pub(super) fn build(cache: &Path, loaded: &Loaded, waveform: Option<&Path>) -> Result<(Executable, [Map; 2]), String> {
    let half = |gress| {
        generate(loaded, gress, Timing::Merged)
            .map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    };
    let halves = [half(Gress::Ingress)?, half(Gress::Egress)?];
    let sources = sources(&halves);
    let version = version()?;
    let mut hasher = DefaultHasher::new();
    (&sources, &version, waveform.is_some()).hash(&mut hasher);
    let folder = cache.join(format!("{:016x}", hasher.finish()));
    let maps = halves.map(|design| design.map);
    let path = folder.join(MODEL);
    if !is_built(&folder, &sources) {
        make(cache, &folder, &sources, waveform.is_some())?;
    }
    mark_used(&folder);
    prune(cache);
    let waveform = waveform.map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf()));
    Ok((Executable { path, waveform }, maps))
}

/// Names and texts of all files that Verilator and the compiler read.
fn sources(halves: &[Design; 2]) -> Vec<(String, String)> {
    let mut out = vec![("harness.cpp".to_string(), HARNESS.to_string()), ("sizes.h".to_string(), sizes(halves))];
    for design in halves {
        let name = |file: &crate::rtl::SourceFile| format!("{}/{}.sv", design.map.gress.name(), file.name);
        out.extend(design.files.iter().map(|file| (name(file), file.text.clone())));
    }
    out
}

/// The sizes of both halves that the harness needs.
fn sizes(halves: &[Design; 2]) -> String {
    let clocks = halves.iter().map(|design| design.map.latency).max().unwrap_or(0) + 1;
    let mut out = format!("#include <cstddef>\nconstexpr int MOST_CLOCKS = {clocks};\n");
    for Design { map, .. } in halves {
        let half = map.gress.name().to_uppercase();
        let bytes: Vec<String> = map.mirrors.iter().map(|bits| (bits / 8).to_string()).collect();
        let list = if bytes.is_empty() { "0".into() } else { bytes.join(", ") };
        for (what, value) in [("IN", map.in_bytes), ("OUT", map.out_bytes), ("CONTROL", map.control_bits.div_ceil(8))] {
            let _ = writeln!(out, "constexpr std::size_t {half}_{what} = {value};");
        }
        let _ = writeln!(out, "constexpr unsigned {half}_COPIES = {};", bytes.len());
        let _ = writeln!(out, "constexpr unsigned {half}_MIRRORS[] = {{{list}}};");
    }
    out
}

fn version() -> Result<String, String> {
    let output = Command::new("verilator").arg("--version").stdin(Stdio::null()).output();
    let missing = |e| format!("the RTL is simulated by Verilator, which cannot be run ({e}): {INSTALL}");
    Ok(String::from_utf8_lossy(&output.map_err(missing)?.stdout).trim().to_string())
}

/// What to do where a tool is missing.
const INSTALL: &str = "install the packages verilator, make and g++";

/// The folder for models: the service manager's, the user's own, never one where others may write.
pub(super) fn cache() -> Result<PathBuf, String> {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
    let base = of("CACHE_DIRECTORY").or_else(|| Some(user()?.join("opentoe"))).filter(|path| path.is_absolute());
    let base = base.ok_or("the model of the RTL needs a folder to be kept in: set XDG_CACHE_HOME or HOME")?;
    let cache = base.join("rtl");
    let failed = |e: std::io::Error| format!("cannot make the folder {} for models of RTL: {e}", cache.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&cache).map_err(failed)?;
    let (meta, own) = (fs::metadata(&cache).map_err(failed)?, fs::metadata("/proc/self").map_err(failed)?);
    if meta.uid() != own.uid() || meta.mode() & 0o022 != 0 {
        return Err(format!(
            "others than user {} may write to the folder {}, from which models of RTL are run: make it that user's, \
             with mode 0700",
            own.uid(),
            cache.display()
        ));
    }
    Ok(cache)
}

/// It is there, and it is of these very files: another one may have the same hash.
fn is_built(folder: &Path, sources: &[(String, String)]) -> bool {
    let same =
        |(name, text): &(String, String)| fs::read_to_string(folder.join(name)).is_ok_and(|there| there == *text);
    folder.join(MODEL).is_file() && sources.iter().all(same)
}

/// Builds in a folder of its own, which then takes its place: a second build of the same never finds half a model.
fn make(cache: &Path, folder: &Path, sources: &[(String, String)], traced: bool) -> Result<(), String> {
    let work = cache.join(format!("build-{}-{:?}", std::process::id(), std::thread::current().id()));
    let _ = fs::remove_dir_all(&work);
    let made = fill(&work, sources).and_then(|()| compile(&work, sources, traced));
    let moved = made.and_then(|()| {
        // One of other files, or without its executable.
        if !is_built(folder, sources) {
            let _ = fs::remove_dir_all(folder);
        }
        let renamed = fs::rename(&work, folder);
        if renamed.is_ok() || is_built(folder, sources) {
            return Ok(());
        }
        renamed.map_err(|e| format!("cannot move a model of RTL to {}: {e}", folder.display()))
    });
    let _ = fs::remove_dir_all(&work);
    moved
}

fn fill(work: &Path, sources: &[(String, String)]) -> Result<(), String> {
    for (name, text) in sources {
        let path = work.join(name);
        let written = fs::create_dir_all(path.parent().unwrap_or(work)).and_then(|()| fs::write(&path, text));
        written.map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(())
}

/// Both halves by Verilator, the second with the harness.
fn compile(work: &Path, sources: &[(String, String)], traced: bool) -> Result<(), String> {
    for half in ["ingress", "egress"] {
        let mut command = Command::new("verilator");
        command.args([
            "--cc",
            "--build",
            "-j",
            "0",
            "-O3",
            "--x-assign",
            "fast",
            "--x-initial",
            "fast",
            "--noassert",
            "+define+GATED",
        ]);
        command.args(["-MAKEFLAGS", "OPT_FAST=-O2 OPT_GLOBAL=-O2", "-CFLAGS", "-I.. -I../obj_ingress"]);
        command.args(["--prefix", &format!("V{half}"), "-Mdir", &format!("obj_{half}"), "--top-module", half]);
        command.args(traced.then_some(["--trace", "--trace-structs"]).into_iter().flatten());
        let start = format!("{half}/");
        command.args(sources.iter().map(|(name, _)| name).filter(|name| name.starts_with(&start)));
        if half == "egress" {
            command.args(["--exe", "-o", MODEL, "harness.cpp", "../obj_ingress/Vingress__ALL.a"]);
        }
        let output = command.current_dir(work).stdin(Stdio::null()).output();
        let output = output.map_err(|e| format!("cannot run Verilator: {e}"))?;
        if !output.status.success() {
            let printed = [output.stdout, output.stderr].concat();
            let printed = String::from_utf8_lossy(&printed);
            let lines: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
            let last = lines[lines.len().saturating_sub(6)..].join("\n");
            return Err(format!("the model of {half} could not be built ({INSTALL}, where one is missing):\n{last}"));
        }
    }
    let built = fs::rename(work.join("obj_egress").join(MODEL), work.join(MODEL));
    built.map_err(|e| format!("Verilator left no model: {e}"))?;
    for half in ["ingress", "egress"] {
        let _ = fs::remove_dir_all(work.join(format!("obj_{half}")));
    }
    Ok(())
}
