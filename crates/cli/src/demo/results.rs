//! The table at the end, and the same for machines.
use super::lab::{ClientLocation, Stack};
use super::programs::{Program, Sample};
use crate::table::{Table, bold, print_line, thousands};
use serde_json::{Map, Value, json};

/// One measurement.
pub(super) struct Run {
    pub program: Program,
    pub place: ClientLocation,
    pub stack: Stack,
    pub round: u32,
    pub sample: Sample,
}

/// All measurements.
pub(super) struct Results {
    /// How long each took.
    pub seconds: u32,
    runs: Vec<Run>,
}

impl Results {
    pub(super) fn new(seconds: u32) -> Results {
        Results { seconds, runs: Vec::new() }
    }

    pub(super) fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Prints a table: of each program and stack the round with the median rate.
    pub(super) fn print(&self, place: ClientLocation) {
        let mut table = Table::new(&["program", "stack", "requests/s", "p50 us", "p99 us", "OpenTOE/Linux"]);
        for program in self.programs() {
            for stack in Stack::ALL {
                let Some(sample) = self.median(program, place, stack) else { continue };
                let ratio = match stack {
                    Stack::OpenToe => {
                        self.ratios(program, place).get(1).map_or("-".into(), |ratio| format!("{ratio:.2}"))
                    }
                    Stack::Linux => "-".into(),
                };
                let rate = thousands(sample.ops_per_s.round() as u64);
                let [p50, p99] = [sample.p50_us, sample.p99_us].map(|us| format!("{us:.0}"));
                table.row([program.name().into(), stack.name().into(), rate, p50, p99, ratio]);
            }
        }
        print_line("");
        print_line(&bold(place.heading()));
        table.print();
    }

    /// Reports what the loads were.
    pub(super) fn print_loads(&self) {
        print_line("");
        for program in self.programs() {
            print_line(&format!("{}: {}", program.name(), program.load_name()));
        }
    }

    /// As `opentoe bench` writes it.
    pub(super) fn json(&self) -> String {
        let runs = self.runs.iter().map(|Run { program, place, stack, round, sample }| {
            json!({
                "program": program.name(),
                "place": place.name(),
                "stack": stack.name().to_lowercase(),
                "engine": (*stack == Stack::OpenToe).then_some("flextoe"),
                "round": round,
                "ops_per_s": sample.ops_per_s,
                "latency_us": { "p50": sample.p50_us, "p99": sample.p99_us },
                "errors": 0,
            })
        });
        let ratio = |program: Program, place: ClientLocation| {
            let ratios = self.ratios(program, place);
            let at = |index: usize| ratios.get(index).copied();
            json!({ "min": at(0), "median": at(1), "max": at(2) })
        };
        let ratios = |place: ClientLocation| {
            let of = |program: Program| (program.name().to_string(), ratio(program, place));
            (place.name().to_string(), self.programs().into_iter().map(of).collect::<Map<_, _>>().into())
        };
        let report = json!({
            "case": "demo",
            "params": { "seconds": self.seconds, "loads": self.loads() },
            "machine": bench::machine::facts(),
            "runs": runs.collect::<Vec<_>>(),
            "ratio": ClientLocation::ALL.into_iter().map(ratios).collect::<Map<String, Value>>(),
        });
        format!("{report:#}\n")
    }

    /// Fails where a stack answered nothing.
    pub(super) fn verdict(&self) -> Result<(), String> {
        match self.runs.iter().find(|run| run.sample.ops_per_s <= 0.0) {
            Some(run) => Err(format!("{} answered nothing on {}", run.program.name(), run.stack.name())),
            None => Ok(()),
        }
    }

    fn programs(&self) -> Vec<Program> {
        Program::ALL.iter().copied().filter(|program| self.runs.iter().any(|run| run.program == *program)).collect()
    }

    fn loads(&self) -> Value {
        self.programs()
            .iter()
            .map(|program| (program.name().to_string(), program.load_name().into()))
            .collect::<Map<_, _>>()
            .into()
    }

    fn of(&self, program: Program, place: ClientLocation, stack: Stack) -> Vec<Sample> {
        let wanted = (program, place, stack);
        self.runs.iter().filter(|run| (run.program, run.place, run.stack) == wanted).map(|run| run.sample).collect()
    }

    fn median(&self, program: Program, place: ClientLocation, stack: Stack) -> Option<Sample> {
        let mut samples = self.of(program, place, stack);
        samples.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        samples.get(samples.len() / 2).copied()
    }

    /// OpenTOE over Linux, round by round: least, median, most.
    fn ratios(&self, program: Program, place: ClientLocation) -> Vec<f64> {
        let [toe, linux] = Stack::ALL.map(|stack| self.of(program, place, stack));
        let pairs = toe.into_iter().zip(linux);
        let mut ratios: Vec<f64> = pairs.map(|(toe, linux)| toe.ops_per_s / linux.ops_per_s).collect();
        ratios.sort_by(f64::total_cmp);
        match ratios[..] {
            [] => Vec::new(),
            [least, .., most] => vec![least, ratios[ratios.len() / 2], most],
            [only] => vec![only; 3],
        }
    }
}
