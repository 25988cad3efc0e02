//! Experiments of the papers by the number of their figure or table: `opentoe bench paper`.
mod numbers;

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
    /// Experiments, such as flextoe-figure-15, thesis-figure-4.16 or smartns; without any, all are listed and none is
    /// measured
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Where reports go, as NAME.json
    #[arg(long, value_name = "DIR", default_value = "opentoe-papers")]
    pub directory: PathBuf,
}

/// An experiment, with what it shows.
pub(crate) struct Experiment {
    what: &'static str,
    pub part: Part,
}

const fn experiment(part: Part, what: &'static str) -> Experiment {
    Experiment { what, part }
}

/// Experiments that have a measurement here, in the papers' order. `laminar` has the numbers of the thesis (chapter 5).
/// docs/PAPERS.md has a row for each experiment, also for those that software cannot express. Congestion control is
/// DCTCP where the paper's is and the experiment depends on it.
pub(crate) const EXPERIMENTS: &[Experiment] = &[
    experiment(part("flextoe-table-1", "kv --server memcached --conns 64"), "what TCP costs the processor"),
    experiment(part("flextoe-table-2", "extensions"), "flexible extensions, put on and off under load"),
    experiment(part("flextoe-figure-8", "parallel --steps one"), "rate over programs and cores"),
    experiment(
        part("flextoe-figure-9", "kv --server memcached --conns 1 --port fabric,tap,tap-client"),
        "latency of combinations of stacks",
    ),
    experiment(
        curve("flextoe-figure-10-rx", "echo --conns 128 --depth 16 --size 32,128,512,2048 --reply 32 --work 250,1000"),
        "RPC throughput over sizes: the server receives",
    ),
    experiment(
        curve("flextoe-figure-10-tx", "echo --conns 128 --depth 16 --size 32 --reply 32,128,512,2048 --work 250,1000"),
        "the same: the server sends",
    ),
    experiment(
        part("flextoe-figure-11", "echo --conns 1 --size 32,64,256,2048 --linux cubic,polling,one-core"),
        "RPC latency over sizes",
    ),
    experiment(
        curve("flextoe-figure-12-a", "echo --conns 1 --size 8192,65536,1048576 --reply 32"),
        "large RPCs with a short reply",
    ),
    experiment(curve("flextoe-figure-12-b", "echo --conns 1 --size 8192,65536,1048576"), "large RPCs, echoed"),
    experiment(curve("flextoe-figure-13", "echo --conns 1,16,128,1024,4096"), "scalability in connections"),
    experiment(part("flextoe-table-3", "parallel"), "what each step of parallelism brings"),
    experiment(
        part("flextoe-figure-14", "parallel --steps one,pipelined,replicated --programs 1 --size 64,2048"),
        "FlexTOE on x86: in one thread, in one of each module, replicated",
    ),
    experiment(curve("flextoe-figure-15", "loss --engine flextoe,flextoe-published"), "throughput over loss rates"),
    experiment(part("flextoe-figure-16", "fairness"), "fairness over flows"),
    experiment(
        part("flextoe-table-4", "incast --engine flextoe,flextoe-published"),
        "incast, with control and without",
    ),
    experiment(curve("flextoe-table-6", "instructions"), "what a request costs, by module"),
    experiment(
        part("laminar-figure-5.8", "echo --conns 1 --size 64,1024 --engine flextoe,laminar --linux cubic,polling"),
        "unloaded latency",
    ),
    experiment(
        curve("laminar-figure-5.9", "echo --conns 32 --engine flextoe,laminar --rate 50000,100000,200000"),
        "latency over load",
    ),
    experiment(part("laminar-figure-5.10", "parallel --steps one --engine laminar"), "rate over programs and cores"),
    experiment(
        curve("laminar-figure-5.11", "echo --engine flextoe,laminar --conns 1,64,1024,4096"),
        "scalability in connections",
    ),
    experiment(
        part("laminar-figure-5.13", "kv --server memcached --conns 64 --engine flextoe,laminar"),
        "processor time of a request, in the place of energy",
    ),
    experiment(
        curve("laminar-figure-5.15", "stream --zero-copy --mtu 576,1500,4096,9000 --engine flextoe,laminar"),
        "byte streams on one core, without copies, over the bytes of a packet",
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
    experiment(part("zeronic-table-4", "training"), "epochs of a model that two ranks train"),
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
    let done = all::measure_parts(tools, &parts, &arguments.common, &arguments.directory);
    for part in parts {
        console::print(&crate::published::text(part.name));
    }
    done
}

/// Shows all experiments.
pub(crate) fn list() {
    let width = EXPERIMENTS.iter().map(|it| it.part.name.len()).max().unwrap_or(0);
    for it in EXPERIMENTS {
        console::print(&format!("{:<width$}  {}\n", it.part.name, it.what));
    }
    console::print("\nFigures and tables that are no measurement of opentoe bench:\n");
    let width = numbers::ELSEWHERE.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, what) in numbers::ELSEWHERE {
        console::print(&format!("{name:<width$}  {what}\n"));
    }
    console::print(
        "\nopentoe bench paper NAME ... measures some; the name of a paper stands for all of its experiments.\n\
         Numbers of the thesis are taken, too: thesis-figure-4.16 is flextoe-figure-15.\n",
    );
}

/// Experiments by name, or by the name of their paper.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>, String> {
    let mut found: Vec<&Experiment> = Vec::new();
    for name in names {
        let known = numbers::known_as(name);
        let of_paper = format!("{known}-");
        let fits = |it: &&Experiment| it.part.name == known || it.part.name.starts_with(&of_paper);
        let before = found.len();
        found.extend(EXPERIMENTS.iter().filter(fits));
        if let Some(what) = numbers::elsewhere(&known) {
            return Err(format!("{name} is no measurement of opentoe bench: {what}"));
        }
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
        assert_eq!(names(&["flextoe-figure-10"]).unwrap(), ["flextoe-figure-10-rx", "flextoe-figure-10-tx"]);
        assert_eq!(names(&["thesis-figure-4.16"]).unwrap(), ["flextoe-figure-15"]);
        assert_eq!(names(&["thesis-figure-5.19"]).unwrap(), ["laminar-figure-5.19"]);
        assert!(names(&["flextoe-figure-17"]).unwrap_err().contains("no experiment `flextoe-figure-17`"));
        assert!(names(&["thesis-table-5.3"]).unwrap_err().contains("bench/ns3/table-5.3"));
    }
}
