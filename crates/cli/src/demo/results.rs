//! The table at the end, and the same for machines.
use super::lab::Stack;
use super::programs::{Program, Sample};
use crate::table::{Table, say, thousands};
use serde_json::{Value, json};

/// All measurements of a run.
pub(super) struct Results {
    seconds: u32,
    runs: Vec<(Program, Stack, u32, Sample)>,
}

impl Results {
    pub(super) fn new(seconds: u32) -> Results {
        Results { seconds, runs: Vec::new() }
    }

    pub(super) fn add(&mut self, program: Program, stack: Stack, round: u32, sample: Sample) {
        self.runs.push((program, stack, round, sample));
    }

    /// Prints the table: of each program and stack the round with the median rate.
    pub(super) fn print(&self) {
        let mut table = Table::new(&["program", "stack", "requests/s", "p50 us", "p99 us", "OpenTOE/Linux"]);
        for program in self.programs() {
            for stack in [Stack::OpenToe, Stack::Linux] {
                let Some(sample) = self.median(program, stack) else { continue };
                let ratio = match stack {
                    Stack::OpenToe => self.ratios(program).get(1).map_or("-".into(), |ratio| format!("{ratio:.2}")),
                    Stack::Linux => "-".into(),
                };
                let rate = thousands(sample.ops_per_s.round() as u64);
                let [p50, p99] = [sample.p50_us, sample.p99_us].map(|us| format!("{us:.0}"));
                table.row([program.name().into(), stack.name().into(), rate, p50, p99, ratio]);
            }
        }
        say("");
        table.print();
        say("");
        for program in self.programs() {
            say(&format!("{}: {}", program.name(), program.load_name()));
        }
        say(
            "Clients are on the Linux kernel's TCP throughout: over a TAP device to OpenTOE, over a veth pair to Linux.",
        );
    }

    /// As `opentoe bench` writes it.
    pub(super) fn json(&self) -> String {
        let runs = self.runs.iter().map(|(program, stack, round, sample)| {
            json!({
                "program": program.name(),
                "stack": stack.name().to_lowercase(),
                "engine": (*stack == Stack::OpenToe).then_some("flextoe"),
                "round": round,
                "ops_per_s": sample.ops_per_s,
                "latency_us": { "p50": sample.p50_us, "p99": sample.p99_us },
                "errors": 0,
            })
        });
        let ratio = |program: Program| {
            let ratios = self.ratios(program);
            let at = |index: usize| ratios.get(index).copied();
            (program.name().to_string(), json!({ "min": at(0), "median": at(1), "max": at(2) }))
        };
        let report = json!({
            "case": "demo",
            "params": { "seconds": self.seconds, "loads": self.loads() },
            "machine": bench::machine::facts(),
            "runs": runs.collect::<Vec<_>>(),
            "ratio": self.programs().into_iter().map(ratio).collect::<serde_json::Map<_, _>>(),
        });
        format!("{report:#}\n")
    }

    /// Fails where a stack answered nothing.
    pub(super) fn verdict(&self) -> Result<(), String> {
        match self.runs.iter().find(|(.., sample)| sample.ops_per_s <= 0.0) {
            Some((program, stack, ..)) => Err(format!("{} answered nothing on {}", program.name(), stack.name())),
            None => Ok(()),
        }
    }

    fn programs(&self) -> Vec<Program> {
        Program::ALL.iter().copied().filter(|program| self.runs.iter().any(|(of, ..)| of == program)).collect()
    }

    fn loads(&self) -> Value {
        self.programs()
            .iter()
            .map(|program| (program.name().to_string(), program.load_name().into()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn of(&self, program: Program, stack: Stack) -> Vec<Sample> {
        let matching = |run: &&(Program, Stack, u32, Sample)| run.0 == program && run.1 == stack;
        self.runs.iter().filter(matching).map(|run| run.3).collect()
    }

    fn median(&self, program: Program, stack: Stack) -> Option<Sample> {
        let mut samples = self.of(program, stack);
        samples.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        samples.get(samples.len() / 2).copied()
    }

    /// OpenTOE over Linux, round by round: least, median, most.
    fn ratios(&self, program: Program) -> Vec<f64> {
        let pairs = self.of(program, Stack::OpenToe).into_iter().zip(self.of(program, Stack::Linux));
        let mut ratios: Vec<f64> = pairs.map(|(toe, linux)| toe.ops_per_s / linux.ops_per_s).collect();
        ratios.sort_by(f64::total_cmp);
        match ratios[..] {
            [] => Vec::new(),
            [least, .., most] => vec![least, ratios[ratios.len() / 2], most],
            [only] => vec![only; 3],
        }
    }
}
