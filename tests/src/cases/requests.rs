//! Requests to a web server without end: as long as a case needs them, on a machine of any speed.
use super::{Bench, SMALL, number_after};
use crate::process::Process;
use std::fs;
use std::path::PathBuf;

/// What `ab` prints once in a run.
const COMPLETE: &str = "Complete requests:";

/// Runs of `ab`, one after the other, each request on a connection of its own.
pub(super) struct Requests<'a> {
    load: Process<'a>,
    /// The last run is the one during which this file appears.
    end: PathBuf,
}

impl<'a> Requests<'a> {
    pub(super) fn start(bench: &Bench<'a>) -> Result<Requests<'a>, String> {
        let (end, url) = (bench.session.dir().join(format!("requests-{}-end", bench.port)), bench.url(SMALL));
        let script = format!("while [ ! -e {} ]; do ab -q -c 16 -n 200 {url} || exit 1; done", end.display());
        Ok(Requests { load: bench.client_in_background("sh", &["-c", &script])?, end })
    }

    /// Waits until another run has ended.
    pub(super) fn until_another(&mut self, bench: &Bench) -> Result<(), String> {
        let before = self.runs();
        bench.session.until("another run of the load", || {
            self.load.running()?;
            Ok(self.runs() > before)
        })
    }

    fn runs(&self) -> usize {
        self.load.stdout().matches(COMPLETE).count()
    }

    /// How many requests were answered, all of them well.
    pub(super) fn finish(mut self) -> Result<f64, String> {
        self.load.running()?;
        fs::write(&self.end, "").map_err(|error| format!("{}: {error}", self.end.display()))?;
        let printed = self.load.succeed()?;
        let sum = |label: &str| -> Result<f64, String> {
            printed.lines().filter(|line| line.contains(label)).map(|line| number_after(line, label)).sum()
        };
        let (complete, failed) = (sum(COMPLETE)?, sum("Failed requests:")?);
        if failed != 0.0 || complete == 0.0 {
            let kinds = printed.lines().find(|line| line.contains("Receive:")).unwrap_or_default().trim();
            return Err(format!("{failed} of {complete} requests failed {kinds}"));
        }
        Ok(complete)
    }
}
