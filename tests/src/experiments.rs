//! `opentoe bench` in its short form: each case runs to its end, loses nothing, has all fields in its JSON, draws
//! its plots and leaves nothing behind. Speeds are not checked.
use crate::daemon::beside;
use crate::leaks::Before;
use crate::process::Session;
use crate::report::Outcome;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One experiment in its short form.
pub struct Experiment {
    /// Its name, for the report and `--filter`.
    pub name: &'static str,
    /// The words behind `opentoe bench`.
    arguments: &'static [&'static str],
    /// How many measurements it must report.
    runs: usize,
    /// Figures that each of them must have, all greater than 0.
    figures: &'static [&'static str],
    /// Plots that it must draw.
    plots: &'static [&'static str],
}

/// Fields of each measurement in every case of speed.
const SPEED: &[&str] = &["/ops_per_s", "/latency_us/p50", "/latency_us/p99", "/latency_us/max", "/cpu_s/server"];

/// A case of speed: no plots of its own with a few points.
const fn speed(name: &'static str, arguments: &'static [&'static str], runs: usize) -> Experiment {
    Experiment { name, arguments, runs, figures: SPEED, plots: &[] }
}

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "opentoe bench echo",
        arguments: &[
            "echo",
            "--conns",
            "1,4,16",
            "--linux",
            "cubic,bbr,polling,one-core",
            "--port",
            "fabric,tap,tap-client",
        ],
        runs: 21,
        figures: SPEED,
        plots: &["connections"],
    },
    speed("opentoe bench echo, a server that computes", &["echo", "--conns", "8", "--work", "250,1000"], 4),
    speed(
        "opentoe bench echo, laminar",
        &["echo", "--conns", "16", "--engine", "laminar", "--depth", "8", "--batch"],
        2,
    ),
    Experiment {
        name: "opentoe bench echo, open loop",
        arguments: &["echo", "--conns", "8", "--rate", "2000,4000,8000"],
        runs: 6,
        figures: SPEED,
        plots: &["load-latency"],
    },
    Experiment {
        name: "opentoe bench stream",
        arguments: &["stream", "--flows", "3", "--dir", "up,down", "--port", "fabric,tap", "--touch"],
        runs: 6,
        figures: &["/gbit_per_s", "/cpu_s/sender", "/cpu_s/receiver"],
        plots: &[],
    },
    Experiment {
        name: "opentoe bench stream, zero-copy",
        arguments: &["stream", "--zero-copy", "--size", "1000,65536,300000"],
        runs: 6,
        figures: &["/gbit_per_s"],
        plots: &["write-size"],
    },
    speed("opentoe bench kv", &["kv", "--conns", "8", "--depth", "4"], 4),
    speed("opentoe bench connect", &["connect", "--conns", "1,16"], 4),
    speed("opentoe bench http", &["http", "--conns", "8"], 2),
    speed("opentoe bench block", &["block", "--depth", "8", "--disk", "in-place,copy"], 4),
    speed("opentoe bench http, close", &["http", "--conns", "8", "--close"], 2),
    Experiment {
        name: "opentoe bench idle",
        arguments: &["idle", "--conns", "500"],
        runs: 2,
        // What the kernel holds for a connection of ours is next to nothing, and differs by that much between
        // measurements.
        figures: &["/bytes_each"],
        plots: &[],
    },
    speed("opentoe bench isolation", &["isolation", "--conns", "4", "--flows", "2"], 4),
    speed("opentoe bench all", &["all", "--only", "echo-depth,connect"], 2),
    Experiment {
        name: "opentoe bench incast",
        arguments: &["incast", "--points", "4:8", "--congestion", "dctcp,timely,off"],
        runs: 3,
        figures: &["/share_of_rate", "/jain", "/latency_us/p9999", "/cpu_s/toed"],
        plots: &["incast-latency", "incast-fairness"],
    },
    Experiment {
        name: "opentoe bench incast, laminar",
        arguments: &["incast", "--points", "4:8", "--congestion", "dctcp", "--engine", "laminar"],
        runs: 1,
        figures: &["/share_of_rate", "/jain", "/latency_us/p9999", "/cpu_s/toed"],
        plots: &[],
    },
    Experiment {
        name: "opentoe bench incast-rdma",
        arguments: &["incast-rdma", "--senders", "1,2,4", "--rate", "1000"],
        runs: 6,
        figures: &["/share_of_rate", "/jain", "/latency_us/p99", "/long_p99_us", "/cpu_s/toed"],
        plots: &["incast-rdma"],
    },
    Experiment {
        name: "opentoe bench log, laminar",
        // A plain server, the log in the data-path, and Linux.
        arguments: &["log", "--conns", "4", "--size", "256", "--engine", "laminar"],
        runs: 3,
        figures: &["/ops_per_s", "/gbit_per_s"],
        plots: &[],
    },
    Experiment {
        name: "opentoe bench fairness",
        arguments: &["fairness", "--flows", "16"],
        runs: 2,
        figures: &["/share_of_rate", "/jain", "/gbit_per_s"],
        plots: &["fairness-shares", "fairness-jain"],
    },
    Experiment {
        name: "opentoe bench loss",
        arguments: &["loss", "--loss", "0,0.01"],
        runs: 8,
        figures: &[],
        plots: &["loss-echo", "loss-bulk"],
    },
];

impl Experiment {
    /// Runs it and checks what it wrote.
    pub fn run(&self, session: &Session) -> Outcome {
        let before = Before::snapshot();
        let directory = session.dir().join(self.name.replace(' ', "-"));
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let mut command = Command::new(beside("opentoe"));
        command.arg("bench").args(self.arguments).arg("--quick");
        if self.arguments[0] == "all" {
            session.run({
                command.arg("--directory").arg(&directory);
                command
            })?;
            self.check(&read(&directory.join("connect.json"))?, "connect")?;
            let page = fs::read_to_string(directory.join("report.html")).map_err(|error| error.to_string())?;
            if !page.contains("Goals: ") || !page.ends_with("</html>\n") {
                return Err("the page is not whole".into());
            }
        } else {
            let json = directory.join("report.json");
            command.arg("--json").arg(&json).arg("--plots").arg(&directory);
            session.run(command)?;
            self.check(&read(&json)?, self.arguments[0])?;
        }
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

    fn check(&self, report: &Value, case: &str) -> Result<(), String> {
        let runs = report["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
        if runs.len() != self.runs || report["case"] != case || report["machine"]["cores"].is_null() {
            return Err(format!("{} measurements instead of {}, or no word about the machine", runs.len(), self.runs));
        }
        for run in runs {
            let speed = run["ops_per_s"].as_f64().or(run["gbit_per_s"].as_f64());
            let moving = speed.is_some_and(|speed| speed > 0.0) || (speed.is_none() && case == "idle");
            let missing =
                self.figures.iter().find(|path| run.pointer(path).and_then(Value::as_f64).unwrap_or(0.0) <= 0.0);
            if !moving || run["errors"] != 0 || missing.is_some() {
                return Err(format!("a measurement has {run}"));
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("no report: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("its JSON: {error}"))
}
