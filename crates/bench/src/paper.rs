//! Experiments of the papers by the number of their figure or table: `opentoe bench paper`.
use crate::all;
use crate::arguments::Common;
use crate::goals::{Part, curve, part};
use crate::tools::Tools;
use clap::Args;
use std::path::PathBuf;

/// Which experiments to measure.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Experiments, such as flextoe-figure-15 or smartns; without any, all are listed and none is measured
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Where reports go, as NAME.json
    #[arg(long, value_name = "DIR", default_value = "opentoe-papers")]
    pub directory: PathBuf,
}

/// An experiment, with what it shows.
struct Experiment {
    what: &'static str,
    part: Part,
}

const fn experiment(part: Part, what: &'static str) -> Experiment {
    Experiment { what, part }
}

/// Experiments that have a measurement here, in the papers' order. `laminar` has the numbers of the thesis (chapter 5).
/// docs/PAPERS.md has a row for each experiment, also for those that software cannot express.
const EXPERIMENTS: &[Experiment] = &[
    experiment(part("flextoe-table-1", "kv --server memcached --conns 64"), "what TCP costs the processor"),
    experiment(part("flextoe-table-2", "extensions"), "flexible extensions, put on and off under load"),
    experiment(part("flextoe-figure-8", "parallel --steps one"), "rate over programs and cores"),
    experiment(
        part("flextoe-figure-9", "kv --server memcached --conns 1 --port fabric,tap,tap-client"),
        "latency of combinations of stacks",
    ),
    experiment(part("flextoe-figure-10", "echo --conns 128 --size 32,128,512,2048"), "RPC throughput over sizes"),
    experiment(part("flextoe-figure-11", "echo --conns 1 --linux cubic,polling,one-core"), "RPC latency"),
    experiment(part("flextoe-figure-12", "stream --size 1448,8192,65536"), "large RPCs"),
    experiment(curve("flextoe-figure-13", "echo --conns 1,16,128,1024,4096"), "scalability in connections"),
    experiment(part("flextoe-table-3", "parallel"), "what each step of parallelism brings"),
    experiment(curve("flextoe-figure-15", "loss"), "throughput over loss rates"),
    experiment(part("flextoe-figure-16", "fairness"), "fairness over flows"),
    experiment(part("flextoe-table-4", "incast"), "incast, with congestion control and without"),
    experiment(
        part("laminar-figure-5.9", "echo --conns 1 --engine flextoe,laminar --linux cubic,polling"),
        "unloaded latency",
    ),
    experiment(
        curve("laminar-figure-5.10", "echo --engine flextoe,laminar --rate 50000,100000,200000"),
        "latency over load",
    ),
    experiment(
        curve("laminar-figure-5.11", "echo --engine flextoe,laminar --conns 1,64,1024,4096"),
        "scalability in connections",
    ),
    experiment(
        part("laminar-figure-5.15", "stream --zero-copy --size 1448,8192,65536 --engine flextoe,laminar"),
        "byte streams on one core, without copies",
    ),
    experiment(part("laminar-figure-5.16", "block --disk in-place,copy"), "a disk over the network: random writes"),
    experiment(part("laminar-section-5.5.2", "log --engine flextoe,laminar"), "a shared log"),
    experiment(
        curve("laminar-figure-5.17", "loss --engine flextoe,laminar --load bulk"),
        "throughput of bulk flows over loss rates",
    ),
    experiment(part("laminar-figure-5.18", "incast --engine flextoe,laminar"), "incast"),
    experiment(
        part("laminar-figure-5.19", "isolation --engine flextoe,laminar --bulk-mbit 1,100 --rate 50000"),
        "quick answers beside bulk flows",
    ),
    experiment(part("zeronic-table-2", "zeronic --test rate"), "rate and processor time of one flow"),
    experiment(part("zeronic-figure-9", "zeronic --test mtu"), "throughput over MTU sizes"),
    experiment(part("zeronic-figure-10", "collectives"), "collectives over sizes"),
    experiment(
        part(
            "zeronic-figure-11",
            "kv --server redis --sets 100 --conns 4 --depth 10 --buffer 4096 --engine flextoe,zeronic",
        ),
        "redis SET over sizes",
    ),
    experiment(part("zeronic-figure-12", "zeronic --test short"), "short and long flows together"),
    experiment(curve("zeronic-figure-13", "zeronic --test loss"), "throughput over drops"),
    experiment(
        part(
            "smartns-figure-2",
            "rdma --test write_bw:2048 --queue-pairs 8 --way smartns,smartns-staged,flextoe,linux",
        ),
        "stacks of the kernel, of a process, and staged and header-only transmission",
    ),
    experiment(part("smartns-figure-9", "rdma"), "SEND and WRITE beside other stacks: rate, latency, loss"),
    experiment(
        curve("smartns-figure-10", "rdma --test write_bw:2048 --queue-pairs 1,2,4,8,16"),
        "WRITE of several connections",
    ),
    experiment(
        curve(
            "smartns-figure-11",
            "rdma --test write_bw:1024,write_bw:2048,write_bw:4096,write_bw:6144,write_bw:8192,write_bw:16384,\
             write_bw:65536 --way smartns,smartns-header-only,smartns-staged",
        ),
        "header-only transmission beside staged, over sizes",
    ),
    experiment(
        part(
            "smartns-figure-12",
            "rdma --test write_bw:2048,write_bw:8192 --way smartns,smartns-header-only,smartns-staged --queue-pairs 8 \
             --against 65536",
        ),
        "the same with a flow the other way",
    ),
    experiment(curve("smartns-figure-13", "working-set"), "the receive path over its working set"),
    experiment(curve("smartns-figure-14", "notification"), "a notification pipe beside a doorbell"),
    experiment(
        part("smartns-section-3.2", "rdma --test write_bw:64 --way smartns --queue-pairs 16,2000"),
        "many send queues of one program",
    ),
    experiment(part("smartns-figure-15", "offload"), "list traversal and batched reads"),
    experiment(curve("smartns-figure-16", "volume --clients 1,4,12"), "disaggregated storage over clients"),
    experiment(part("smartns-figure-17", "kv-cache"), "transfers of a KV cache"),
];

/// Measures the experiments that were named, or lists all.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<(), String> {
    let parts: Vec<&Part> = chosen(&arguments.names)?.into_iter().map(|found| &found.part).collect();
    all::measure_parts(tools, &parts, &arguments.common, &arguments.directory)
}

/// Shows all experiments.
pub(crate) fn list() {
    let width = EXPERIMENTS.iter().map(|it| it.part.name.len()).max().unwrap_or(0);
    for it in EXPERIMENTS {
        console::print(&format!("{:<width$}  {}\n", it.part.name, it.what));
    }
    console::print(
        "\nopentoe bench paper NAME ... measures some; the name of a paper stands for all of its experiments\n",
    );
}

/// Experiments by name, or by the name of their paper.
fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    let mut found: Vec<&Experiment> = Vec::new();
    for name in names {
        let of_paper = format!("{name}-");
        let fits = |it: &&Experiment| it.part.name == name || it.part.name.starts_with(&of_paper);
        let before = found.len();
        found.extend(EXPERIMENTS.iter().filter(fits));
        if found.len() == before {
            return Err(format!("there is no experiment `{name}`: opentoe bench paper lists all"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn common() -> Common {
        let (duration, pairs, quick) = (None, 1, false);
        Common { duration, pairs, quick, json: None, csv: None, plots: None, lib: None }
    }

    #[test]
    fn every_experiment_is_a_command_line_with_a_name_of_its_own() {
        let mut names = HashSet::new();
        for it in EXPERIMENTS {
            assert!(names.insert(it.part.name), "{} twice", it.part.name);
            all::case(&it.part, &common()).unwrap();
        }
    }

    #[test]
    fn a_paper_stands_for_its_experiments() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            chosen(&names).map(|found| found.into_iter().map(|it| it.part.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["flextoe-table-3"]).unwrap(), ["flextoe-table-3"]);
        let sections = [
            "figure-2",
            "figure-9",
            "figure-10",
            "figure-11",
            "figure-12",
            "figure-13",
            "figure-14",
            "section-3.2",
            "figure-15",
            "figure-16",
            "figure-17",
        ];
        assert_eq!(names(&["smartns"]).unwrap(), sections.map(|of| format!("smartns-{of}")));
        assert!(names(&["flextoe-figure-1"]).unwrap_err().contains("no experiment `flextoe-figure-1`"));
    }

    /// The chapter of a number, with its dot, and the number in it; `None` for another word.
    fn split(word: &str) -> Option<(String, u32)> {
        let at = word.rfind('.').map_or(0, |dot| dot + 1);
        Some((word[..at].to_string(), word[at..].parse().ok()?))
    }

    /// The numbers that a text begins with, such as `8, 9` or `10 to 13`.
    fn numbers(text: &str) -> Vec<String> {
        let words = text.split([' ', ',', ';']).filter(|word| !word.is_empty());
        let words: Vec<&str> = words.take_while(|word| *word == "to" || split(word).is_some()).collect();
        let range = |at: usize| {
            let (chapter, last) = split(words[at])?;
            let before = words[..at].strip_suffix(&["to"]).and_then(|before| split(before.last()?));
            let first = before.map_or(last, |(_, first)| first);
            Some((first..=last).map(move |number| format!("{chapter}{number}")))
        };
        (0..words.len()).filter_map(range).flatten().collect()
    }

    /// The numbers of a kind (`figure`, `table`) in the first cells of a page's rows.
    fn numbered(page: &str, kind: &str) -> HashSet<String> {
        let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
        let lists = cells.flat_map(|cell| cell.split(kind).skip(1));
        lists.flat_map(|list| numbers(list.trim_start_matches('s'))).collect()
    }

    #[test]
    fn every_number_is_in_the_page_of_the_papers() {
        let rows = "| 5.1, figures 8, 10 to 12; thesis 4.5, figure 4.9, table 2 | x |";
        let figures = ["8", "10", "11", "12", "4.9"].map(String::from);
        assert_eq!(numbered(rows, "figure"), HashSet::from(figures));
        let page = include_str!("../../../docs/PAPERS.md");
        for it in EXPERIMENTS {
            let [kind, number] = it.part.name.splitn(3, '-').collect::<Vec<_>>()[1..] else {
                panic!("{}", it.part.name)
            };
            let known = match kind {
                "section" => page.contains(&format!("| {number}")),
                kind => numbered(page, kind).contains(number),
            };
            assert!(known, "{}", it.part.name);
            let case = it.part.words.split(' ').next().unwrap();
            assert!(page.contains(&format!("opentoe bench {case}")), "{}", it.part.name);
        }
    }
}
