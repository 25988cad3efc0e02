//! Checks of prose: lines that fit a window, files that exist, defaults and dependencies as they are.
use crate::ratchets::{Found, hold};
use crate::{crates, dependencies, none, root, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Characters in a line.
const COLUMNS: usize = 120;

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Pages for people: those in the root and in `docs`.
fn pages() -> Vec<(String, String)> {
    let list = |folder: PathBuf| fs::read_dir(folder).expect("a readable folder").flatten().map(|entry| entry.path());
    let all =
        list(root()).chain(list(root().join("docs"))).filter(|path| path.extension().is_some_and(|end| end == "md"));
    let mut pages: Vec<(String, String)> =
        all.map(|path| (relative(&path), fs::read_to_string(&path).expect("pages are UTF-8"))).collect();
    pages.sort();
    pages
}

/// The lines of a page that are text, with their numbers: no code and no rows of tables, which cannot be broken.
fn text_lines(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    page.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence && !line.starts_with('|')).then_some((at + 1, line))
    })
}

fn too_long(line: &str) -> bool {
    line.chars().count() > COLUMNS
}

/// Lines of all our sources, tests included, that break a rule.
fn lines_that(breaks: impl Fn(&str) -> bool) -> Found {
    let mut found = Found::new();
    for krate in crates().iter().map(|krate| format!("crates/{krate}")).chain(["fuzz".into(), "tests".into()]) {
        let mut files = Vec::new();
        rust_files(&root().join(&krate), &mut files);
        let offences = found.entry(krate.trim_start_matches("crates/").into()).or_default();
        for file in files {
            let text = fs::read_to_string(&file).expect("sources are UTF-8");
            let lines = text.lines().enumerate().filter(|(_, line)| breaks(line));
            offences.extend(lines.map(|(at, line)| format!("{}:{} {}", relative(&file), at + 1, line.trim())));
        }
        offences.sort();
    }
    found
}

#[test]
fn comments_fit_a_window() {
    let found = lines_that(|line| line.trim_start().starts_with("//") && too_long(line));
    hold("comments", "comment lines over 120 columns, which rustfmt leaves alone", &found);
}

/// Characters in the name of a function. Those of tests are sentences, and a sentence that long covers too much.
const LONGEST_NAME: usize = 60;

/// The name of the function that a line begins.
fn function_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

#[test]
fn names_are_short() {
    assert_eq!(function_name("    pub(crate) fn a_name<T>(x: T) {"), Some("a_name"));
    let found = lines_that(|line| function_name(line).is_some_and(|name| name.len() > LONGEST_NAME));
    hold("names", "functions with names over 60 characters", &found);
}

#[test]
fn pages_fit_a_window() {
    let mut found = Found::new();
    for (name, page) in pages() {
        let long = text_lines(&page).filter(|(_, line)| too_long(line));
        let long = long.map(|(at, line)| format!("{name}:{at} {}", line.chars().take(60).collect::<String>()));
        found.insert(name.clone(), long.collect());
    }
    hold("pages", "lines of text over 120 columns", &found);
}

/// Sections of a page with a table of figures that no report makes, and no word about it: a row with a figure outside
/// of `opentoe bench report --tables`, where the section does not have "by hand".
fn sections_with_unnamed_tables(page: &str) -> Vec<&str> {
    let (mut found, mut heading, mut figures, mut named, mut generated) = (Vec::new(), "", 0, false, false);
    for line in page.lines().chain(["# end"]) {
        match line {
            line if line.starts_with('#') => {
                if figures >= 4 && !named {
                    found.push(heading);
                }
                (heading, figures, named) = (line, 0, false);
            }
            line if line.starts_with("<!-- opentoe bench report") => generated = true,
            line if line.starts_with("<!-- end of table") => generated = false,
            line if line.starts_with('|') && !generated => {
                let is_figure = |cell: &&str| cell.trim().starts_with(|c: char| c.is_ascii_digit());
                figures += line.split('|').filter(is_figure).count();
            }
            _ => named |= line.contains("by hand"),
        }
    }
    found
}

#[test]
fn result_tables_are_generated_or_named() {
    let page = "# a\n<!-- opentoe bench report --tables: x -->\n| 1 | 2 | 3 | 4 |\n<!-- end of table -->\n\
                ## b\n| 1 | 2 | 3 | 4 |\n## c\n| 1 | 2 | 3 | 4 |\nConditions, by hand: 2026.\n";
    assert_eq!(sections_with_unnamed_tables(page), ["## b"]);
    let mut offences = Vec::new();
    for name in ["docs/PERFORMANCE.md", "docs/EXPERIMENTS.md"] {
        let page = fs::read_to_string(root().join(name)).expect("the page");
        offences.extend(sections_with_unnamed_tables(&page).iter().map(|heading| format!("{name}: {heading}")));
    }
    none("sections with tables that no command makes, without \"by hand\" in their conditions", &offences);
}

/// What stands in backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A quoted word as the path of a file of ours, where it is one: what follows the name (`:17`, a slash at the end)
/// taken off.
fn path_in(word: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./*".contains(c);
    let word = word.split(':').next().unwrap_or(word).trim_end_matches('/');
    let top = ["crates", "tests", "docs", "apps", "bench", "p4", "xdp", "config", "include", "dist", "fuzz", "man"];
    let ours = word.split_once('/').is_some_and(|(first, _)| top.contains(&first));
    let source = [".rs", ".p4", ".c", ".h"].iter().any(|ending| word.len() > ending.len() && word.ends_with(ending));
    (word.chars().all(plain) && (ours || source) && !word.starts_with('/')).then_some(word)
}

/// All files and folders of ours, relative to the root.
fn everything() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if name == "target" || name.to_string_lossy().starts_with('.') {
                continue;
            }
            found.push(relative(&path));
            if path.is_dir() && !path.is_symlink() {
                walk(&path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found
}

/// A path is the end of a file's or folder's path; a star stands for any part of a name.
fn exists(all: &[String], path: &str) -> bool {
    let matches = |whole: &str| {
        let (mut whole, mut path) = (whole.rsplit('/'), path.rsplit('/'));
        loop {
            match (whole.next(), path.next()) {
                (_, None) => return true,
                (None, Some(_)) => return false,
                (Some(name), Some(pattern)) if !name_matches(name, pattern) => return false,
                _ => {}
            }
        }
    };
    all.iter().any(|whole| matches(whole))
}

/// Programs in C are named without their ending.
fn exists_as_named(all: &[String], path: &str) -> bool {
    exists(all, path) || (path.starts_with("apps/") && exists(all, &format!("{path}.c")))
}

fn name_matches(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((begin, end)) => name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end),
        None => name == pattern,
    }
}

#[test]
fn files_that_pages_name_are_there() {
    let all = everything();
    let mut offences = Vec::new();
    for (name, page) in pages() {
        for (at, line) in page.lines().enumerate() {
            let gone = quoted(line).filter_map(path_in).filter(|path| !exists_as_named(&all, path));
            offences.extend(gone.map(|path| format!("{name}:{} {path}", at + 1)));
        }
    }
    none("files in pages that are not there", &offences);
}

#[test]
fn a_path_is_distinguished_from_other_words() {
    assert_eq!(path_in("crates/port/src/tap.rs:203"), Some("crates/port/src/tap.rs"));
    assert_eq!(
        ["control/src/host.rs", "p4/", "send/recv", "/etc/x.c", "a b.c"].map(path_in)[0],
        Some("control/src/host.rs")
    );
    assert_eq!(["p4/", "send/recv", "/etc/x.c", "a b.c"].map(path_in), [None; 4]);
    let all = ["crates/port/src/tap.rs".to_string(), "docs".into()];
    assert!(exists(&all, "port/src/tap.rs") && exists(&all, "crates/*/src/t*.rs") && !exists(&all, "port/tap.rs"));
}

/// Keys of the daemon's sample configuration with the numbers that it gives them.
fn defaults() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(root().join("config/toed.toml")).expect("the full sample");
    let pair = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let number = value.split('#').next()?.trim().replace('_', "");
        Some((key.trim().to_string(), number.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// A number and its unit, in the unit of the key.
fn in_unit_of(key: &str, number: &str, unit: &str) -> Option<u64> {
    let number: f64 = number.replace([',', '_'], "").parse().ok()?;
    let nanos = |unit: &str| match unit {
        "s" | "seconds" => Some(1e9),
        "min" | "minutes" => Some(60e9),
        "h" | "hours" => Some(3600e9),
        "ms" => Some(1e6),
        "us" => Some(1e3),
        _ => None,
    };
    let bytes = |unit: &str| match unit {
        "bytes" | "B" => Some(1.0),
        "KiB" => Some(1024.0),
        "MiB" => Some(1048576.0),
        "GiB" => Some(1073741824.0),
        _ => None,
    };
    let own = key.rsplit('_').next().and_then(nanos);
    let factor = nanos(unit).zip(own).map(|(unit, own)| unit / own).or(bytes(unit)).unwrap_or(1.0);
    Some((number * factor) as u64)
}

/// Defaults that a text names: `` `key` ... 60 s by default `` and `` (`key`, 1 GiB ``, each with its number in the
/// key's unit.
fn named_defaults<'a>(text: &'a str, keys: &BTreeSet<&str>) -> Vec<(&'a str, u64)> {
    let parts: Vec<&str> = text.split('`').collect();
    let mut found = Vec::new();
    for pair in parts.windows(2).skip(1).step_by(2) {
        let [word, after] = pair else { continue };
        let key = word.rsplit('.').next().unwrap_or(word);
        if !keys.contains(key) {
            continue;
        }
        let sentence = after.split(['|', ';']).next().unwrap_or_default();
        let words: Vec<&str> = sentence
            .split_whitespace()
            .map(|word| word.trim_matches(|c| "(),.:".contains(c)))
            .filter(|word| !word.is_empty())
            .collect();
        let by_default = words.windows(2).position(|two| two == ["by", "default"]);
        let begin = match by_default {
            Some(at) if at <= 10 => at.checked_sub(2).filter(|at| is_number(words[*at])).or(at.checked_sub(1)),
            None if after.starts_with(", ") => Some(0),
            _ => None,
        };
        let Some(begin) = begin.filter(|begin| words.get(*begin).is_some_and(|word| is_number(word))) else { continue };
        let unit = words.get(begin + 1).copied().unwrap_or_default();
        found.extend(in_unit_of(key, words[begin], unit).map(|number| (key, number)));
    }
    found
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_digit() || "._,".contains(c))
}

#[test]
fn defaults_that_pages_name_are_those_of_the_sample() {
    let defaults = defaults();
    let keys: BTreeSet<&str> = defaults.keys().map(String::as_str).collect();
    let mut offences = Vec::new();
    let mut count = 0;
    for (name, page) in pages() {
        for (key, number) in named_defaults(&page, &keys) {
            count += 1;
            if defaults[key] != number {
                offences.push(format!("{name}: {key} is {}, not {number}", defaults[key]));
            }
        }
    }
    none("defaults that are others in config/toed.toml", &offences);
    assert!(count >= 3, "only {count} defaults were found in the pages: are they written in another way now?");
}

#[test]
fn a_default_is_read_with_its_unit() {
    let keys = BTreeSet::from(["time_wait_ms", "context_bytes", "max_splices"]);
    let text = "For `timers.time_wait_ms`, 60 s by default as Linux; `context_bytes`, 1 GiB; 0: none. `max_splices` pairs at once (8,192 by \
                default), `max_splices` is more, and `other`, 5.";
    let found = named_defaults(text, &keys);
    assert_eq!(found, [("time_wait_ms", 60_000), ("context_bytes", 1 << 30), ("max_splices", 8192)]);
}

#[test]
fn the_map_shows_the_dependencies_of_cargo() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let mut rows: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, shown) in page.lines().filter_map(row) {
        // The first table is the map; a later one has other columns.
        rows.entry(name).or_insert(shown);
    }
    let all: BTreeSet<String> = crates().into_iter().collect();
    let mut offences = Vec::new();
    for krate in &all {
        let own: BTreeSet<String> = dependencies(krate).intersection(&all).cloned().collect();
        match rows.get(krate.as_str()) {
            None => offences.push(format!("{krate} has no row")),
            Some(shown) if *shown != own => {
                let list = own.into_iter().collect::<Vec<_>>().join(", ");
                offences.push(format!("{krate} depends on: {list}"));
            }
            Some(_) => {}
        }
    }
    none("rows of ARCHITECTURE.md's table of rooms that Cargo.toml does not confirm", &offences);
}

/// A row of the table of rooms: crate and dependencies, without what stands in parentheses.
fn row(line: &str) -> Option<(&str, BTreeSet<String>)> {
    let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
    let [name, .., last] = cells[..] else { return None };
    if cells.len() != 3 {
        return None;
    }
    let name = name.trim_end_matches('`');
    let list = last.trim_end_matches('|').split(", ").map(|word| word.split('(').next().unwrap_or(word).trim());
    Some((name, list.filter(|word| !word.is_empty()).map(String::from).collect()))
}
