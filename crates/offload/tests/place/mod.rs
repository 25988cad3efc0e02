//! A real daemon with two hosts on a fabric, an offload engine on one of them, a program with memory there, and clients
//! on the other: ordinary programs of verbs.
#![allow(dead_code, reason = "each test file uses its part")]
use offload::protocol::View;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = "log = \"error\"\n[[fabric]]\nname = \"lab\"\nmtu = 9000\n\
    [[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\nrdma = \"own\"\n\
    port = { kind = \"fabric\", fabric = \"lab\" }\n\
    [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"own\"\n\
    port = { kind = \"fabric\", fabric = \"lab\" }\n";

/// The host of the offload engine.
pub(crate) const ADDRESS: &str = "10.0.0.1";
/// Libraries of `offload/`.
pub(crate) const EXAMPLES: [&str; 5] = ["list", "reads", "table", "crc", "append"];
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs that end with it.
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) daemon: Child,
    pub(crate) engine: Child,
}

/// A program with memory.
pub(crate) struct HostProgram {
    pub(crate) child: Child,
    pub(crate) ports: [String; 2],
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of the programs that were built.
pub(crate) fn built() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_opentoe-offload")).parent().unwrap().into()
}

fn cc(into: &str, source: &Path, more: &[&str]) -> PathBuf {
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join(into);
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(root().join("include"));
    // Under another name first: other tests may use the file now.
    let fresh = into.with_extension(std::process::id().to_string());
    let output = command.arg("-o").arg(&fresh).arg(source).args(more).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(fresh, &into).unwrap();
    into
}

/// A library of functions, from a file of C.
pub(crate) fn library(name: &str, source: &Path) -> PathBuf {
    cc(&format!("{name}.so"), source, &["-fPIC", "-shared"])
}

/// A library of functions, from a text of C.
pub(crate) fn library_of(name: &str, text: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    fs::write(&source, format!("#include \"offload.h\"\n{text}\n")).unwrap();
    library(name, &source)
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Builds liboffload.so as this test was built: cargo builds no `cdylib` for integration tests.
fn build_library() {
    let folder = built();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "offload", "--lib"]);
    cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
    if folder.file_name().is_some_and(|name| name == "release") {
        cargo.args(["--profile", if cfg!(debug_assertions) { "bench" } else { "release" }]);
    }
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
}

/// Compiles what the tests share, once.
fn compile() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        build_library();
        let app = |name: &str| root().join("apps").join(format!("{name}.c"));
        cc("offload_client", &app("offload_client"), &["-lrdmacm", "-libverbs"]);
        let folder = built().to_str().unwrap().to_string();
        let path = format!("-Wl,-rpath,{folder}");
        cc("offload_host", &app("offload_host"), &["-lrdmacm", "-libverbs", "-L", &folder, "-loffload", &path]);
        EXAMPLES.iter().for_each(|name| drop(library(name, &root().join("offload").join(format!("{name}.c")))));
    });
}

fn announced(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{command:?}");
    child.stdout = Some(out.into_inner());
    child
}

impl Place {
    pub(crate) fn new(options: &[&str]) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        compile();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("offload-test-{}-{number}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("toed.toml"), CONFIGURATION).unwrap();
        let toed = built().join("toed");
        assert!(toed.exists(), "build the daemon and the library of verbs first: make build");
        let mut command = Command::new(toed);
        command.arg("--config").arg(directory.join("toed.toml")).arg("--socket").arg(directory.join("toed.sock"));
        let daemon = announced(command.arg("--announce"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_opentoe-offload"));
        command.arg("--daemon").arg(directory.join("toed.sock")).args(["--host", "a", "--announce", "--socket"]);
        let engine = announced(command.arg(directory.join("offload.sock")).args(options));
        Place { directory, daemon, engine }
    }

    /// The engine's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("offload.sock")
    }

    pub(crate) fn load(&self, name: &str, library: &Path) {
        offload::client::load(&self.socket(), name, library).unwrap();
    }

    pub(crate) fn load_examples(&self) {
        EXAMPLES.iter().for_each(|name| self.load(name, &program(&format!("{name}.so"))));
    }

    pub(crate) fn view(&self) -> View {
        offload::client::ls(&self.socket()).unwrap()
    }

    fn verbs(&self, name: &str, host: &str) -> Command {
        let mut command = Command::new(program(name));
        command.env("TOE_SOCKET", self.directory.join("toed.sock")).env("TOE_HOST", host);
        command.env("LD_LIBRARY_PATH", built().join("rdma")).env("TOE_EXPLAIN", "1");
        command
    }

    /// A program with memory for the functions.
    pub(crate) fn host(&self, port: u16, more: &[&str]) -> HostProgram {
        let ports = [port, port + 1].map(|port| port.to_string());
        let mut command = self.verbs("offload_host", "a");
        HostProgram { child: announced(command.arg(self.socket()).args(&ports).args(more)), ports }
    }

    pub(crate) fn client(&self, host: &HostProgram, arguments: &[&str]) -> Command {
        let mut command = self.verbs("offload_client", "b");
        command.arg(ADDRESS).args(&host.ports).args(arguments);
        command
    }

    /// One call of a function: what the client printed.
    pub(crate) fn call(&self, host: &HostProgram, arguments: &[&str]) -> String {
        text(&mut self.client(host, &[&["call"], arguments].concat()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for child in [&mut self.engine, &mut self.daemon] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl HostProgram {
    /// Ends it: what it printed.
    pub(crate) fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        text
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program prints, which succeeds.
pub(crate) fn text(command: &mut Command) -> String {
    let output: Output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {} {said} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}
