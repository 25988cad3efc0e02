//! Numbers of figures and tables: those of the thesis stand for those of the papers, and some have no measurement by
//! `opentoe bench`.

/// Tables and figures of thesis chapters 2 and 4, and where the FlexTOE paper has them. Chapter 5 is `laminar`.
const THESIS: &[(&str, &str)] = &[
    ("table-2.1", "table-1"),
    ("table-2.2", "table-6"),
    ("figure-4.1", "figure-1"),
    ("figure-4.2", "figure-2"),
    ("figure-4.3", "figure-3"),
    ("table-4.1", "table-5"),
    ("figure-4.4", "figure-4"),
    ("figure-4.5", "figure-5"),
    ("figure-4.6", "figure-6"),
    ("figure-4.7", "figure-7"),
    ("table-4.2", "table-1"),
    ("figure-4.9", "figure-8"),
    ("figure-4.10", "figure-9"),
    ("table-4.3", "table-2"),
    ("figure-4.11", "figure-10"),
    ("figure-4.12", "figure-11"),
    ("figure-4.13", "figure-12"),
    ("figure-4.14", "figure-13"),
    ("table-4.4", "table-3"),
    ("figure-4.15", "figure-14"),
    ("figure-4.16", "figure-15"),
    ("figure-4.17", "figure-16"),
    ("table-4.5", "table-4"),
];

/// The name by which an experiment is known here.
pub(crate) fn known_as(name: &str) -> String {
    let Some(number) = name.strip_prefix("thesis-") else { return name.into() };
    let of_paper = THESIS.iter().find(|(thesis, _)| *thesis == number);
    match (of_paper, number.contains("-5.")) {
        (Some((_, paper)), _) => format!("flextoe-{paper}"),
        (None, true) => format!("laminar-{number}"),
        (None, false) => name.into(),
    }
}

/// What shows a figure or table that is no measurement of `opentoe bench`, or why nothing does.
pub(crate) const ELSEWHERE: &[(&str, &str)] = &[
    ("flextoe-figure-1", "the card's processor; not in software"),
    ("flextoe-figure-2", "an overview: ARCHITECTURE.md has ours"),
    ("flextoe-figure-3", "the pipeline: crates/flextoe/src"),
    ("flextoe-figure-4", "descriptors' way: cargo test -p flextoe"),
    ("flextoe-figure-5", "transmission: cargo test -p flextoe"),
    ("flextoe-figure-6", "reception: cargo test -p flextoe"),
    ("flextoe-figure-7", "reordering: cargo test -p flextoe --test threads"),
    ("flextoe-table-5", "a connection's state: cargo test -p flextoe --lib partition"),
    ("thesis-figure-3.1", "the parallel data-path: crates/flextoe/src/mapping.rs"),
    ("thesis-figure-4.8", "modules on the card's islands; not in software"),
    ("laminar-figure-5.1", "an RMT pipeline: crates/rmt"),
    ("laminar-figure-5.2", "dependences of TCP's state: cargo test -p rmt"),
    ("laminar-figure-5.3", "an overview: docs/P4.md has ours"),
    ("laminar-figure-5.4", "reassembly: cargo test -p rmt --test laminar receive"),
    ("laminar-table-5.1", "registers by pseudo segment: cargo test -p rmt --test laminar table_5_1"),
    ("laminar-figure-5.5", "transmission: cargo test -p rmt --test laminar transmit"),
    ("laminar-figure-5.6", "acknowledgement: cargo test -p rmt --test laminar transmit"),
    ("laminar-figure-5.7", "addresses: cargo test -p rmt --test laminar"),
    ("laminar-figure-5.12", "segments a second of the program: cargo run --release -p rmt --example native_speed"),
    ("laminar-figure-5.14", "the power of a switch; not in software"),
    ("laminar-table-5.2", "resources of the program: opentoe p4 check p4/laminar.p4"),
    ("laminar-table-5.3", "ns-3: bench/ns3/table-5.3"),
    ("thesis-table-7.1", "a comparison of protocols; docs/PAPERS.md has the rows of its columns"),
];

/// The sentence about a name that has one.
pub(crate) fn elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(known, _)| *known == name).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{EXPERIMENTS, chosen};
    use std::collections::HashSet;

    const PAGE: &str = include_str!("../../../../docs/PAPERS.md");

    /// Sections of the page, papers, kinds, and the first and last number of each.
    const NUMBERED: &[(&str, &str, &str, &str, u32, u32)] = &[
        ("FlexTOE", "flextoe", "table", "", 1, 6),
        ("FlexTOE", "flextoe", "figure", "", 1, 16),
        ("FlexTOE", "thesis", "table", "2.", 1, 2),
        ("FlexTOE", "thesis", "figure", "3.", 1, 1),
        ("FlexTOE", "thesis", "figure", "4.", 1, 17),
        ("FlexTOE", "thesis", "table", "4.", 1, 5),
        ("Laminar", "laminar", "figure", "5.", 1, 19),
        ("Laminar", "laminar", "table", "5.", 1, 3),
        ("Thesis chapter 7", "thesis", "table", "7.", 1, 1),
        ("ZeroNIC", "", "figure", "", 1, 13),
        ("ZeroNIC", "", "table", "", 1, 4),
        ("SmartNS", "", "figure", "", 1, 17),
        ("SmartNS", "", "table", "", 1, 2),
    ];

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

    /// The numbers of a kind (`figure`, `table`) in the first cells of rows.
    fn numbered(rows: &str, kind: &str) -> HashSet<String> {
        let cells = rows.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
        let lists = cells.flat_map(|cell| cell.split(kind).skip(1));
        lists.flat_map(|list| numbers(list.trim_start_matches('s'))).collect()
    }

    /// What follows a heading, up to the next one.
    fn section(heading: &str) -> &'static str {
        let begin = PAGE.find(&format!("\n## {heading}")).unwrap_or_else(|| panic!("no section {heading}"));
        let rest = &PAGE[begin + 4..];
        &rest[..rest.find("\n## ").unwrap_or(rest.len())]
    }

    #[test]
    fn numbers_are_read_as_lists_and_ranges() {
        let rows = "| 5.1, figures 8, 10 to 12; thesis 4.5, figure 4.9, table 2 | x |";
        let figures = ["8", "10", "11", "12", "4.9"].map(String::from);
        assert_eq!(numbered(rows, "figure"), HashSet::from(figures));
    }

    /// Each figure and table of the papers has a row. Those of FlexTOE and Laminar are measured by their name, or the
    /// name is answered by what shows them.
    #[test]
    fn every_figure_and_table_has_a_row_and_an_answer() {
        for (heading, paper, kind, chapter, first, last) in NUMBERED {
            let rows = numbered(section(heading), kind);
            for number in (*first..=*last).map(|number| format!("{chapter}{number}")) {
                assert!(rows.contains(&number), "no row of {heading} has {kind} {number}");
                let name = known_as(&format!("{paper}-{kind}-{number}"));
                let answered =
                    paper.is_empty() || elsewhere(&name).is_some() != chosen(std::slice::from_ref(&name)).is_ok();
                assert!(answered, "{name}: it must be measured, or its name be answered, and not both");
            }
        }
    }

    /// The other way round: what is measured stands in the page, with its number and its command.
    #[test]
    fn every_experiment_stands_in_the_page() {
        for it in EXPERIMENTS {
            let [paper, kind, number] = it.part.name.splitn(4, '-').take(3).collect::<Vec<_>>()[..] else {
                panic!("{}", it.part.name)
            };
            let heading = ["FlexTOE", "Laminar", "ZeroNIC", "SmartNS"].into_iter();
            let rows = section(heading.into_iter().find(|it| it.to_lowercase() == paper).unwrap());
            let known = match kind {
                "section" => rows.contains(&format!("| {number}")),
                kind => numbered(rows, kind).contains(number),
            };
            assert!(known, "{}", it.part.name);
            let case = it.part.words.split(' ').next().unwrap();
            assert!(rows.contains(&format!("opentoe bench {case}")), "{}: no row has its command", it.part.name);
        }
    }

    /// Commands in what answers a name are there: files, tests, examples.
    #[test]
    fn what_is_elsewhere_is_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (name, what) in ELSEWHERE {
            let words = what.split([' ', ';', ':']).filter(|word| word.contains('/'));
            words.for_each(|path| assert!(root.join(path).exists(), "{name}: {path}"));
            let package = what.split("-p ").nth(1).map(|rest| rest.split(' ').next().unwrap());
            assert!(package.is_none_or(|package| root.join("crates").join(package).is_dir()), "{name}");
        }
    }
}
