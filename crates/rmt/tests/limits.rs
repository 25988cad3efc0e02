//! Every acceptance and every refusal of the architecture, as programs. `p4/accept/*.p4` must be placed, with the words
//! beside each in its report or warnings. `p4/refuse/*.p4` must be refused, with the words beside each as the reason
//! and a place in the file.
use std::path::{Path, PathBuf};

fn cases(kind: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/p4").join(kind);
    let mut out = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "p4") {
            let words = std::fs::read_to_string(path.with_extension("txt")).unwrap();
            out.push((path, words.trim().to_string()));
        }
    }
    out.sort();
    out
}

fn show(list: &[rmt::Diagnostic]) -> String {
    list.iter().map(|d| format!("{d}\n")).collect()
}

#[test]
fn accepted() {
    let mut wrong = Vec::new();
    let cases = cases("accept");
    for (path, words) in &cases {
        match rmt::check(path) {
            Ok(report) => {
                let printed = format!("{} stages\n{}", report.stages.len(), show(&report.warnings));
                let unexpected = !words.starts_with("warning") && !report.warnings.is_empty();
                if !printed.contains(words) || unexpected {
                    wrong.push(format!("{}: {printed}, not {words}\n{report}", path.display()));
                }
            }
            Err(list) => wrong.push(format!("{}: refused\n{}", path.display(), show(&list))),
        }
    }
    assert!(cases.len() >= 35 && wrong.is_empty(), "{} cases\n{}", cases.len(), wrong.join("\n"));
}

#[test]
fn refused() {
    let mut wrong = Vec::new();
    let cases = cases("refuse");
    for (path, words) in &cases {
        match rmt::check(path) {
            Ok(report) => wrong.push(format!("{}: accepted\n{report}", path.display())),
            Err(list) => {
                let printed = show(&list);
                if !printed.contains(words) || list.is_empty() {
                    wrong.push(format!("{}: not refused for \"{words}\" but\n{printed}", path.display()));
                }
            }
        }
    }
    assert!(cases.len() >= 45 && wrong.is_empty(), "{} cases\n{}", cases.len(), wrong.join("\n"));
}

#[test]
fn a_diagnostic_shows_place_line_and_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/p4/refuse/misspelt.p4");
    let list = rmt::check(&path).unwrap_err();
    let shown = list[0].to_string();
    assert_eq!((list.len(), list[0].line, list[0].col), (1, 7, 14), "{shown}");
    assert!(shown.contains("misspelt.p4:7:14: error: there is no member `verdikt`"), "{shown}");
    assert!(shown.contains("    7 |         meta.verdikt = 1;\n      |              ^\n"), "{shown}");
}

#[test]
fn files_that_can_not_be_read() {
    for name in ["no/such/file.p4", "/", "/dev/zero"] {
        let list = rmt::check(Path::new(name)).unwrap_err();
        assert_eq!(list.len(), 1);
        assert!(list[0].to_string().starts_with(name));
    }
}
