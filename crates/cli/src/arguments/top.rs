//! The arguments of `opentoe top`.
use super::SocketArguments;
use clap::Args;

#[derive(Args)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// Only this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Only connections in whose line these words occur
    #[arg(long, value_name = "WORDS")]
    pub filter: Option<String>,
    /// How connections are sorted at first
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t)]
    pub sort: Sort,
    /// Seconds between pictures
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Print one picture as text and end
    #[arg(long)]
    pub once: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

fn interval(word: &str) -> Result<f64, String> {
    let seconds: Option<f64> = word.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "it is a number of seconds from 0.1 to 3600".into())
}

/// Columns that the connections can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Sort {
    /// In and out together, the busiest first.
    #[default]
    Rate,
    /// The longest first.
    Rtt,
    /// Segments sent again lately, then in total; the most first.
    Retx,
    /// The largest congestion window first.
    Cwnd,
    /// By number.
    Flow,
    /// By the program's name.
    Program,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Rate, Sort::Rtt, Sort::Retx, Sort::Cwnd, Sort::Flow, Sort::Program];

    pub(crate) fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    /// For the last line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Rtt => "rtt",
            Sort::Retx => "retx",
            Sort::Cwnd => "cwnd",
            Sort::Flow => "flow",
            Sort::Program => "program",
        }
    }
}
