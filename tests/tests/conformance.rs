//! The table of what the RFCs demand, docs/CONFORMANCE.md, is made from the requirements in `tests/conformance/*.toml`
//! and from the comments in the sources that cite them, so it cannot drift:
//!
//! ```text
//! // Meets RFC 9293: MUST-36, SHLD-30.      at the code that satisfies a requirement
//! // Checks RFC 9293: MUST-36.              at a test that would fail if it did not
//! ```
//!
//! A requirement needs both, or a reason why it is not met (`no`) or met only in part (`partly`, with both). To write
//! the page anew: `WRITE_CONFORMANCE=1 cargo test -p tests --test conformance`.
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    rfc: u32,
    title: String,
    requirement: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    id: String,
    section: String,
    /// Where the identifier does not say it.
    level: Option<String>,
    text: String,
    no: Option<String>,
    partly: Option<String>,
}

/// A requirement's name: RFC and identifier.
type Name = (u32, String);

/// Where a requirement is cited.
#[derive(Default)]
struct Citations {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder").to_path_buf()
}

fn documents() -> Vec<Document> {
    let folder = root().join("tests/conformance");
    let mut documents: Vec<Document> = fs::read_dir(folder)
        .expect("the requirements are there")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a readable file");
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect();
    // The standard itself first.
    documents.sort_by_key(|document| (document.rfc != 9293, document.rfc));
    documents
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ["rs", "c", "py", "p4"].iter().any(|known| ending == *known)) {
            found.push(path);
        }
    }
}

/// All citations in the sources: (name, whether it is a test's, place).
fn citations() -> BTreeMap<Name, Citations> {
    let mut files = Vec::new();
    for folder in ["crates", "tests", "apps", "p4"] {
        sources(&root().join(folder), &mut files);
    }
    let mut all: BTreeMap<Name, Citations> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.ends_with("tests/tests/conformance.rs")) {
        let text = fs::read_to_string(file).expect("sources are UTF-8");
        let path = file.strip_prefix(root()).expect("below the root").display().to_string();
        for (at, line) in text.lines().enumerate() {
            for (word, of_test) in [("Meets RFC ", false), ("Checks RFC ", true)] {
                for name in named(line, word).unwrap_or_else(|why| panic!("{path}:{}: {why}", at + 1)) {
                    let cited = all.entry(name).or_default();
                    if of_test {
                        let test = text.lines().skip(at).find_map(function).unwrap_or("");
                        cited.tests.insert(format!("`{path}` {test}").trim_end().into());
                    } else {
                        cited.code.insert(format!("`{path}`"));
                    }
                }
            }
        }
    }
    all
}

/// The requirements that a line cites: `Meets RFC 9293: MUST-1, MUST-2.`
fn named(line: &str, word: &str) -> Result<Vec<Name>, String> {
    let Some((_, rest)) = line.split_once(word) else { return Ok(Vec::new()) };
    let (rfc, list) = rest.split_once(':').ok_or("a citation looks like `RFC 9293: MUST-1, MUST-2.`")?;
    let rfc: u32 = rfc.parse().map_err(|_| format!("`{rfc}` is no number of an RFC"))?;
    Ok(list.trim().trim_end_matches(['.', ';']).split(", ").map(|id| (rfc, id.trim().to_string())).collect())
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    rest.split('(').next()
}

fn level(requirement: &Requirement) -> &str {
    match (&requirement.level, requirement.id.split('-').next()) {
        (Some(level), _) => level,
        (None, Some("MUST")) => "MUST",
        (None, _) => "SHOULD",
    }
}

fn listed(places: &BTreeSet<String>) -> String {
    places.iter().cloned().collect::<Vec<_>>().join("<br>")
}

/// How a requirement stands, or what is wrong with the way it is noted.
fn standing(requirement: &Requirement, cited: &Citations) -> Result<&'static str, &'static str> {
    match (&requirement.no, &requirement.partly, cited.code.is_empty(), cited.tests.is_empty()) {
        (Some(_), None, true, true) => Ok("no"),
        (Some(_), ..) => Err("is said not to be met, and is cited"),
        (None, _, true, _) => Err("is cited by no code (`Meets RFC ...`)"),
        (None, _, _, true) => Err("is cited by no test (`Checks RFC ...`)"),
        (None, Some(_), ..) => Ok("partly"),
        (None, None, ..) => Ok("yes"),
    }
}

#[test]
fn the_page_of_conformance_says_what_the_sources_say() {
    let (documents, mut citations) = (documents(), citations());
    let (mut tables, mut summary, mut wrong) = (String::new(), String::new(), Vec::new());
    for document in &documents {
        let mut counts: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        writeln!(tables, "\n## RFC {}: {}\n", document.rfc, document.title).unwrap();
        writeln!(tables, "| | section | | met | code | test |\n|---|---|---|---|---|---|").unwrap();
        for requirement in &document.requirement {
            let cited = citations.remove(&(document.rfc, requirement.id.clone())).unwrap_or_default();
            let stands = standing(requirement, &cited).unwrap_or_else(|why| {
                wrong.push(format!("RFC {} {} {why}", document.rfc, requirement.id));
                "?"
            });
            *counts.entry((level(requirement).starts_with("MUST"), stands)).or_default() += 1;
            let reason = requirement.no.as_ref().or(requirement.partly.as_ref());
            let text = [Some(&requirement.text), reason].into_iter().flatten().cloned().collect::<Vec<_>>().join(" *")
                + if reason.is_some() { "*" } else { "" };
            let name = if requirement.level.is_some() {
                format!("{} ({})", requirement.id, level(requirement))
            } else {
                requirement.id.clone()
            };
            let (section, code, tests) = (&requirement.section, listed(&cited.code), listed(&cited.tests));
            writeln!(tables, "| {name} | {section} | {text} | {stands} | {code} | {tests} |").unwrap();
        }
        let count = |must: bool, stands: &'static str| counts.get(&(must, stands)).copied().unwrap_or(0);
        let row = [(true, "yes"), (true, "partly"), (true, "no"), (false, "yes"), (false, "partly"), (false, "no")];
        let row: Vec<String> = row.into_iter().map(|(must, stands)| count(must, stands).to_string()).collect();
        writeln!(summary, "| {} {} | {} |", document.rfc, document.title, row.join(" | ")).unwrap();
    }
    wrong.extend(
        citations.into_keys().map(|(rfc, id)| format!("RFC {rfc} {id} is cited, but not in tests/conformance")),
    );
    assert!(wrong.is_empty(), "{} requirements are not noted right:\n  {}", wrong.len(), wrong.join("\n  "));

    let page = format!("{}{summary}{tables}", include_str!("../conformance/HEAD.md"));
    let path = root().join("docs/CONFORMANCE.md");
    if std::env::var_os("WRITE_CONFORMANCE").is_some() {
        fs::write(&path, &page).expect("docs can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == page, "docs/CONFORMANCE.md is old: WRITE_CONFORMANCE=1 cargo test -p tests --test conformance");
}

#[test]
fn a_citation_is_read_as_it_is_meant() {
    let names = named("    // Meets RFC 7323: 2.2-a, 2.3-b.", "Meets RFC ").unwrap();
    assert_eq!(names, [(7323, "2.2-a".to_string()), (7323, "2.3-b".to_string())]);
    assert_eq!(named("nothing here", "Meets RFC ").unwrap(), []);
    assert!(named("// Meets RFC 9293 MUST-1.", "Meets RFC ").is_err());
}
