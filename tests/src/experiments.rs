//! `toe bench` in its short form: each experiment runs to its end, loses nothing, says what it must in its JSON, draws
//! its plots and leaves nothing behind. How fast anything was is not looked at.
use crate::daemon::beside;
use crate::leaks::Before;
use crate::process::Session;
use crate::report::Outcome;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// One experiment in its short form.
pub struct Experiment {
    /// Its name, for the report and `--filter`.
    pub name: &'static str,
    /// The words behind `toe bench`.
    arguments: &'static [&'static str],
    /// How many measurements it must report.
    runs: usize,
    /// Figures that each of them must have, all greater than 0.
    figures: &'static [&'static str],
    /// Plots that it must draw.
    plots: &'static [&'static str],
}

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "toe bench incast",
        arguments: &["incast", "--points", "4:8", "--congestion", "dctcp,timely,off"],
        runs: 3,
        figures: &["/share_of_rate", "/jain", "/latency_us/p9999", "/cpu_s/toed"],
        plots: &["incast-latency", "incast-fairness"],
    },
    Experiment {
        name: "toe bench fairness",
        arguments: &["fairness", "--flows", "16"],
        runs: 2,
        figures: &["/share_of_rate", "/jain", "/gbit_per_s"],
        plots: &["fairness-shares", "fairness-jain"],
    },
    Experiment {
        name: "toe bench loss",
        arguments: &["loss", "--loss", "0,0.01"],
        runs: 8,
        figures: &[],
        plots: &["loss-echo", "loss-bulk"],
    },
];

impl Experiment {
    /// Runs it and looks at what it wrote.
    pub fn run(&self, session: &Session) -> Outcome {
        let before = Before::look();
        let directory = session.dir().join(self.name.replace(' ', "-"));
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let json = directory.join("report.json");
        let mut command = Command::new(beside("toe"));
        command.arg("bench").args(self.arguments).args(["--quick", "--json"]).arg(&json);
        command.arg("--plots").arg(&directory);
        session.run(command)?;
        let text = fs::read_to_string(&json).map_err(|error| format!("no report: {error}"))?;
        let report: Value = serde_json::from_str(&text).map_err(|error| format!("its JSON: {error}"))?;
        self.check(&report)?;
        for plot in self.plots {
            let (svg, png) = (directory.join(format!("{plot}.svg")), directory.join(format!("{plot}.png")));
            let drawn = fs::read_to_string(&svg).is_ok_and(|text| text.contains("</svg>"));
            let painted = fs::read(&png).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG"));
            if !drawn || !painted {
                return Err(format!("the plot {plot} is missing"));
            }
        }
        before.compare()?;
        Ok(format!("{} measurements, {} plots", self.runs, self.plots.len()))
    }

    fn check(&self, report: &Value) -> Result<(), String> {
        let runs = report["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
        if runs.len() != self.runs || report["case"] != self.arguments[0] || report["machine"]["cores"].is_null() {
            return Err(format!("{} measurements instead of {}, or no word about the machine", runs.len(), self.runs));
        }
        for run in runs {
            let speed = run["ops_per_s"].as_f64().or(run["gbit_per_s"].as_f64()).unwrap_or(0.0);
            let missing =
                self.figures.iter().find(|path| run.pointer(path).and_then(Value::as_f64).unwrap_or(0.0) <= 0.0);
            if speed <= 0.0 || run["errors"] != 0 || missing.is_some() {
                return Err(format!("a measurement says {run}"));
            }
        }
        Ok(())
    }
}
