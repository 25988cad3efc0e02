//! Figures that the papers give in their text and tables, for the experiments that have a measurement here. What only a
//! curve shows is left out: nothing here was read off a picture.

/// A published figure.
pub(crate) type Figure = (&'static str, &'static str);

/// The figures of an experiment.
pub(crate) fn of(experiment: &str) -> &'static [Figure] {
    TABLE.iter().find(|(name, _)| *name == experiment).map_or(&[], |(_, figures)| figures)
}

/// The same as lines of a terminal; nothing where there are none.
pub(crate) fn text(experiment: &str) -> String {
    let lines: String = of(experiment).iter().map(|(what, figure)| format!("  {what}: {figure}\n")).collect();
    if lines.is_empty() { lines } else { format!("in the paper ({experiment}):\n{lines}") }
}

const TABLE: &[(&str, &[Figure])] = &[
    (
        "flextoe-table-1",
        &[
            ("thousand cycles a request: Linux, Chelsio, TAS, FlexTOE", "12.13, 8.89, 3.34, 1.67"),
            ("thousand instructions a request", "16.18, 8.14, 6.26, 2.93"),
            ("instructions a cycle", "1.33, 0.92, 1.85, 1.75"),
        ],
    ),
    (
        "flextoe-table-2",
        &[
            ("no extension", "11.35 M/s"),
            ("statistics and profiling", "8.67 M/s"),
            ("tcpdump without a filter", "6.52 M/s"),
            ("XDP: null, VLAN strip", "10.87, 10.83 M/s"),
            ("splicing", "6.4 M packets/s"),
        ],
    ),
    ("flextoe-figure-8", &[("FlexTOE, at most", "5.5x Linux, 4.9x Chelsio, 1.6x TAS")]),
    ("flextoe-figure-9", &[("FlexTOE at both ends", "the least median and tail of all combinations")]),
    (
        "flextoe-figure-10-rx",
        &[
            ("FlexTOE, 250 cycles a message", "up to 4x Linux, 5.3x Chelsio"),
            ("2 KB: FlexTOE and TAS, Linux, Chelsio", "40, 10, 7 Gbit/s"),
        ],
    ),
    (
        "flextoe-figure-10-tx",
        &[
            ("FlexTOE, 250 cycles a message", "more than 7.6x Linux and Chelsio, all sizes"),
            ("1,000 cycles a message", "more than 2.2x"),
        ],
    ),
    (
        "flextoe-figure-11",
        &[
            ("median below 256 B: FlexTOE, TAS, Chelsio", "20, 16, 14 us"),
            ("median of Linux", "5x of the others, at least"),
            ("tail of FlexTOE", "up to 3.2x shorter than Chelsio"),
            ("2 KB, beside TAS", "median 22 % lower, tail 50 % lower"),
        ],
    ),
    ("flextoe-figure-12-a", &[("Chelsio", "20 % above the others")]),
    ("flextoe-figure-12-b", &[("Chelsio", "20 % below FlexTOE")]),
    (
        "flextoe-figure-13",
        &[
            ("FlexTOE, up to 2,000 connections", "3.3x Linux"),
            ("TAS", "1.5x FlexTOE"),
            ("FlexTOE, 8,000 connections", "24 % less than 2,000"),
        ],
    ),
    (
        "flextoe-table-3",
        &[
            ("baseline: Mbit/s, p50, 99.99p", "79.32, 1179 us, 6929 us"),
            ("and pipelining", "3,640.49 (46x), 183 us, 684 us"),
            ("and hardware threads", "8,194.34 (103x), 128 us, 148 us"),
            ("and pre- and post-processing replicated", "11,086.93 (140x), 94 us, 106 us"),
            ("and flow groups", "22,684.69 (286x), 46 us, 58 us"),
        ],
    ),
    (
        "flextoe-figure-14",
        &[("x86: FlexTOE on 9 cores, on 7", "2.4x, 1.47x TAS"), ("BlueField: the same", "4x, 2.3x TAS")],
    ),
    ("flextoe-figure-15", &[("echoes at 2 %: FlexTOE", "twice TAS at least, ten times the others")]),
    (
        "flextoe-figure-16",
        &[
            ("Jain's index at 2,000 flows: FlexTOE, Linux", "0.98, 0.36"),
            ("1st percentile of FlexTOE", "0.67 of the median"),
        ],
    ),
    (
        "flextoe-table-4",
        &[
            ("degree 4, 16 connections: on, off", "9.51, 9.47 Gbit/s; 5.98, 11.58 ms; Jain 0.98, 0.95"),
            ("degree 4, 64 connections", "9.51, 9.23 Gbit/s; 10.75, 44.39 ms; Jain 0.96, 0.73"),
            ("degree 4, 128 connections", "9.48, 8.96 Gbit/s; 13.74, 64.25 ms; Jain 0.99, 0.53"),
            ("degree 10, 10 connections", "3.66, 1.04 Gbit/s; 2.50, 18.26 ms; Jain 0.95, 0.78"),
            ("degree 20, 20 connections", "1.76, 0.36 Gbit/s; 7.35, 138.32 ms; Jain 0.95, 0.46"),
        ],
    ),
    (
        "flextoe-table-6",
        &[
            ("TAS, cycles a request", "1,440"),
            ("segment generation, loss detection, payload, notices", "130, 606, 10, 381"),
            ("flow scheduling, others", "172, 141"),
        ],
    ),
    (
        "laminar-figure-5.8",
        &[
            ("Linux, beside Laminar", "5x at the median, 25.6x at the tail"),
            ("TAS, beside Laminar", "4.3x at the tail"),
            ("zero-copy, beside RDMA", "2 us more"),
        ],
    ),
    (
        "laminar-figure-5.9",
        &[
            ("Laminar", "40 M/s (1.67x TAS); median 18 us, 99.99p 24 us"),
            ("Linux", "a tenth of the rate, 78x the latency"),
        ],
    ),
    ("laminar-figure-5.10", &[("Laminar", "linear with cores up to the NIC's rate, at 8"), ("TAS's tail", "4.3x")]),
    (
        "laminar-figure-5.11",
        &[
            ("Laminar, at 768 connections", "the NIC's rate: 1.8x TAS, 10x Linux"),
            ("up to 32,000 connections", "no loss of rate"),
        ],
    ),
    (
        "laminar-figure-5.13",
        &[
            ("requests a watt, Laminar at its worst", "1.2x TAS at its best"),
            ("Laminar at its best", "2x TAS"),
            ("99.99p", "a fifth of TAS"),
            ("Linux", "a tenth of the requests a watt, a hundred times the latency, at least"),
        ],
    ),
    ("laminar-figure-5.15", &[("Laminar", "25 M packets/s, whatever their size"), ("TAS", "5 M packets/s")]),
    (
        "laminar-figure-5.16",
        &[("Linux", "less than a fourth of Laminar"), ("RDMA, beside Laminar", "a little more, at a shorter latency")],
    ),
    ("laminar-section-5.5.2", &[("cores at the line's rate: Laminar, TAS", "1, 5")]),
    ("laminar-figure-5.17", &[("Laminar", "the full rate up to 0.1 %"), ("TAS at 0.1 %", "half of the full rate")]),
    (
        "laminar-figure-5.18",
        &[("with DCTCP", "the rate of the shaper at every degree"), ("without control", "up to 50x less")],
    ),
    (
        "laminar-figure-5.19",
        &[("Laminar", "no change of either"), ("TAS", "tail of short answers 18 % longer, bulk 30 % less")],
    ),
    (
        "zeronic-table-2",
        &[
            ("Linux' TCP; with MSG_ZEROCOPY", "43.89, 50.63 Gbit/s"),
            ("RoCE", "98.03 Gbit/s"),
            ("ZeroNIC", "96.37 Gbit/s; 560 Gbit/s with a full core, by its estimate"),
        ],
    ),
    ("zeronic-figure-10", &[("large collectives", "2.66x TCP")]),
    (
        "zeronic-table-4",
        &[
            ("ResNet50, 101, 152 on GPUs", "3.57, 6.22, 8.83 s an epoch"),
            ("RoCE with GPUDirect", "3.52, 6.12, 8.80 s an epoch"),
        ],
    ),
    ("zeronic-figure-11", &[("mean over sizes", "3.71x Linux' TCP, 0.89x RoCE")]),
    ("zeronic-figure-12", &[("short flows", "latency whatever the number of long flows")]),
    ("zeronic-figure-13", &[("ZeroNIC at 1 % loss", "nearly the full rate")]),
    (
        "smartns-figure-9",
        &[("throughput, beside Snap", "up to 3.5x"), ("latency, beside RNIC and Snap", "1.5x, 1/1.4")],
    ),
    ("smartns-figure-10", &[("beside Snap", "1.4x; the line's rate from 5 connections on")]),
    ("smartns-figure-11", &[("header-only below 8 KiB", "2.7x and 1.5x the other two")]),
    ("smartns-figure-12", &[("with a flow the other way", "no change; the other two lose 72 % and 35 %")]),
    ("smartns-figure-13", &[("above 48 MB, beside DMA and RDMA", "1.6x, 2.9x")]),
    ("smartns-figure-14", &[("beside a doorbell", "2.4x the throughput, 1/2.6 of the latency")]),
    ("smartns-figure-15", &[("list traversal", "1/1.7 of the latency"), ("batched reads", "3.5x")]),
    ("smartns-figure-16", &[("beside Solar on processors: 1 client, 12", "2.5x, 2.2x")]),
    ("smartns-figure-17", &[("latency, beside Mooncake TCP and RDMA", "1/3.2, 1/1.3")]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::EXPERIMENTS;

    #[test]
    fn each_belongs_to_an_experiment() {
        for (name, figures) in TABLE {
            assert!(EXPERIMENTS.iter().any(|it| it.part.name == *name), "{name}");
            assert!(!figures.is_empty() && TABLE.iter().filter(|(other, _)| other == name).count() == 1, "{name}");
        }
        assert!(text("flextoe-table-3").contains("(286x)") && text("echo-1").is_empty());
    }

    /// Both papers say something about each of theirs.
    #[test]
    fn every_experiment_of_flextoe_and_laminar_has_some() {
        for it in EXPERIMENTS {
            let name = it.part.name;
            assert!(!of(name).is_empty() || !(name.starts_with("flextoe") || name.starts_with("laminar")), "{name}");
        }
    }
}
