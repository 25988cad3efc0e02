//! Several drivers at work at the same time: most faults wait for something, and a machine has room for others
//! meanwhile.
//!
//! The first driver starts copies of itself and makes a folder. Whoever makes a case's file there runs the case, in
//! namespaces, folders and processes of its own, which its process number names. At its end each leaves its count in
//! the folder.
use crate::process::Session;
use crate::report::Report;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The option for a copy's folder.
pub const OPTION: &str = "--share";

/// Which cases this driver runs.
pub enum Share {
    /// All.
    All,
    /// Those that it is the first to reach, of the drivers with that folder.
    Of(PathBuf),
}

impl Share {
    /// This driver runs a case: it is the first to ask.
    pub fn claims(&self, case: &str) -> bool {
        match self {
            Share::All => true,
            Share::Of(folder) => {
                let name: String = case.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
                File::create_new(folder.join(name)).is_ok()
            }
        }
    }

    /// Others print at the same time.
    pub fn is_one_of_many(&self) -> bool {
        matches!(self, Share::Of(_))
    }

    /// The end of a driver's cases; whether all went well.
    pub fn finish(&self, report: Report, session: &Session) -> Result<bool, String> {
        match self {
            Share::All => Ok(report.finish(session)),
            Share::Of(folder) => {
                let text = serde_json::to_string(&report).map_err(|error| error.to_string())?;
                let path = folder.join(format!("{COUNT}{}", std::process::id()));
                fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
                Ok(true)
            }
        }
    }
}

/// A count is a file called this and the driver's process number.
const COUNT: &str = "count.";

/// Runs `jobs` copies of this program with its own arguments to their end; whether all cases of all of them went well.
pub fn run(jobs: usize, arguments: &[String]) -> Result<bool, String> {
    let session = Session::new()?;
    let folder = session.dir().join("share");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let mut copies = Copies(Vec::new());
    for _ in 0..jobs {
        copies.0.push(copy(arguments, &folder)?);
    }
    let ended = session.until("the drivers", || copies.have_ended());
    drop(copies);
    let mut report = Report::default();
    for entry in fs::read_dir(&folder).map_err(|error| error.to_string())?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(COUNT) {
            let text = fs::read_to_string(entry.path()).map_err(|error| error.to_string())?;
            report.add(serde_json::from_str(&text).map_err(|error| error.to_string())?);
        }
    }
    let well = report.finish(&session);
    ended.map(|()| well)
}

fn copy(arguments: &[String], folder: &Path) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(arguments).arg(OPTION).arg(folder);
    command.spawn().map_err(|error| format!("another driver: {error}"))
}

/// The drivers; those that still run are asked to end when this value goes, and have cleaned up then.
struct Copies(Vec<Child>);

impl Copies {
    /// All have; an error if one of them did so before it had counted.
    fn have_ended(&mut self) -> Result<bool, String> {
        let mut all = true;
        for copy in &mut self.0 {
            match copy.try_wait().map_err(|error| error.to_string())? {
                Some(status) if !status.success() => return Err(format!("a driver ended with {status}")),
                Some(_) => {}
                None => all = false,
            }
        }
        Ok(all)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for copy in &mut self.0 {
            if let Ok(None) = copy.try_wait() {
                let _ = rustix::process::kill_process(
                    rustix::process::Pid::from_child(copy),
                    rustix::process::Signal::TERM,
                );
                let _ = copy.wait();
            }
        }
    }
}
