//! Verilator: whether it is here, and a program that simulates a module, built and run. Tests of other crates use it,
//! too.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A folder of one test's own, which goes with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("rtl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether Verilator is here; a sentence where it is not.
pub(crate) fn verilator() -> bool {
    let here = Command::new("verilator").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let here = here.is_ok_and(|status| status.success());
    if !here {
        println!("skipped: verilator is not installed (tests/setup installs it)");
    }
    here
}

/// A module, and the C++ that drives it.
pub(crate) struct Module<'a> {
    /// The top module.
    pub(crate) top: &'a str,
    /// Names and texts of its files, each behind those that it uses.
    pub(crate) files: Vec<(String, String)>,
    pub(crate) harness: &'a Path,
    /// Further arguments of Verilator, as `-GNAME=VALUE`.
    pub(crate) arguments: &'a [String],
}

/// A module as a program that simulates it.
pub(crate) struct Model {
    folder: Folder,
}

impl Model {
    /// Lints with all warnings as errors, and compiles. For many operations, the compiler may take its time.
    pub(crate) fn build(name: &str, module: &Module, operations: usize) -> Result<Model, String> {
        let folder = Folder::new(&format!("{name}-{}", module.top));
        for (name, text) in &module.files {
            std::fs::write(folder.0.join(name), text).unwrap();
        }
        let mut command = Command::new("verilator");
        command.args(["--cc", "--exe", "--build", "-j", "2", "-Wall", "-O3", "--prefix", "Vrtl", "-Mdir", "obj"]);
        let level = if operations > 50_000 { "-O2" } else { "-O0" };
        for kind in ["OPT_FAST", "OPT_GLOBAL"] {
            command.args(["-MAKEFLAGS", &format!("{kind}={level}")]);
        }
        // Harnesses share headers, which stand beside this file.
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rmt/tests/rtl");
        command.args(["-CFLAGS", &format!("-I{}", headers.display())]).args(module.arguments);
        command.args(["-o", "simulate", "--top-module", module.top]);
        command.args(module.files.iter().map(|(name, _)| name)).arg(module.harness).current_dir(&folder.0);
        if std::env::var_os("RTL_TRACE").is_some() {
            command.arg("--trace");
        }
        let output = command.output().expect("verilator runs");
        if !output.status.success() {
            return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(Model { folder })
    }

    /// What the harness prints for a script, by lines; what it complains of, where not all was answered.
    pub(crate) fn run(&self, script: &str) -> Result<Vec<String>, String> {
        let file = self.folder.0.join("script");
        std::fs::write(&file, script).unwrap();
        let input = std::fs::File::open(&file).unwrap();
        let start = Instant::now();
        let output = Command::new(self.folder.0.join("obj/simulate")).stdin(input).output().expect("the model runs");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).to_string());
        }
        let lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect();
        println!("{} lines in {:.1} s", lines.len(), start.elapsed().as_secs_f64());
        Ok(lines)
    }
}
