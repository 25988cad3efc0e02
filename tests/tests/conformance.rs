//! The table of what the RFCs demand, docs/CONFORMANCE.md, is made from the requirements in `tests/conformance/*.toml`
//! and from the comments in the sources that cite them, so it cannot drift:
//!
//! ```text
//! // Meets RFC 9293: MUST-36, SHLD-30.      at the code that satisfies a requirement
//! // Checks RFC 9293: MUST-36.              at a test that would fail if it did not
//! // Meets IBTA: 9.7.2-a.                   of a document that is no RFC
//! ```
//!
//! A requirement needs both, or a reason why it is not met (`no`) or met only in part (`partly`, with both). To write
//! the page anew: `WRITE_CONFORMANCE=1 cargo test -p tests --test conformance`.
//!
//! The page has a column for each engine that the document is for; RFCs are for those of TCP. What only shared rooms
//! are cited for (the control plane, `tcp`, `wire`) counts for every engine. Where an engine is cited, the data-path
//! decides: then each engine needs a citation of its own, or a reason of its own (`laminar = { no = "..." }`), and has
//! a dash without either.
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The RFC's number, or another document's name.
    rfc: Option<u32>,
    document: Option<String>,
    title: String,
    /// The only engine that it is for.
    engine: Option<String>,
    requirement: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    id: String,
    section: String,
    /// Where the identifier does not name it.
    level: Option<String>,
    text: String,
    no: Option<String>,
    partly: Option<String>,
    /// Where one engine differs from the above.
    flextoe: Option<Reason>,
    laminar: Option<Reason>,
}

/// Why an engine does not meet a requirement, or only in part.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    no: Option<String>,
    partly: Option<String>,
}

/// An engine that has a column, with the folders that are its own.
type Engine = (&'static str, &'static [&'static str]);

/// Those of TCP.
const ENGINES: [Engine; 2] = [("flextoe", &["crates/flextoe/"]), ("laminar", &["crates/laminar/", "p4/"])];

/// The one of RDMA.
const SMARTNS: Engine = ("smartns", &["crates/smartns/"]);

/// A requirement's name: document and identifier.
type Name = (String, String);

impl Document {
    fn name(&self) -> String {
        match (&self.rfc, &self.document) {
            (Some(rfc), None) => format!("RFC {rfc}"),
            (None, Some(name)) => name.clone(),
            _ => panic!("{}: a document has either the number of an RFC or a name", self.title),
        }
    }

    fn engines(&self) -> Vec<Engine> {
        match self.engine.as_deref() {
            None => ENGINES.to_vec(),
            Some("smartns") => vec![SMARTNS],
            Some(other) => panic!("{}: there is no engine {other}", self.title),
        }
    }
}

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
    documents.sort_by_key(|document| (document.rfc.is_none(), document.rfc != Some(9293), document.rfc));
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
            for (word, of_test) in [("// Meets ", false), ("// Checks ", true)] {
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

/// The requirements that a line cites: `// Meets RFC 9293: MUST-1, MUST-2.`
fn named(line: &str, word: &str) -> Result<Vec<Name>, String> {
    let Some((_, rest)) = line.split_once(word) else { return Ok(Vec::new()) };
    if !["RFC ", "IBTA"].iter().any(|document| rest.starts_with(document)) {
        return Ok(Vec::new());
    }
    let (document, list) = rest.split_once(':').ok_or("a citation looks like `RFC 9293: MUST-1, MUST-2.`")?;
    let ids = list.trim().trim_end_matches(['.', ';']).split(", ");
    Ok(ids.map(|id| (document.to_string(), id.trim().to_string())).collect())
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

/// The engine that a cited place belongs to; none where it is of all engines.
fn engine_of(place: &str) -> Option<&'static str> {
    let path = place.trim_start_matches('`');
    ENGINES
        .iter()
        .chain([&SMARTNS])
        .find(|(_, folders)| folders.iter().any(|folder| path.starts_with(folder)))
        .map(|(name, _)| *name)
}

impl Requirement {
    /// Entries of one engine alone.
    fn reason(&self, engine: &str) -> Option<&Reason> {
        match engine {
            "flextoe" => self.flextoe.as_ref(),
            "laminar" => self.laminar.as_ref(),
            _ => None,
        }
    }
}

/// How a requirement stands for an engine, or what is wrong with the way it is noted.
fn standing(requirement: &Requirement, cited: &Citations, engine: &str) -> Result<&'static str, String> {
    let own = |place: &&String| engine_of(place) == Some(engine);
    let datapath = cited.code.iter().any(|place| engine_of(place).is_some());
    // Code that all engines share needs one test; an engine's own needs one that meets this engine.
    let code = if datapath { cited.code.iter().filter(own).count() } else { cited.code.len() };
    let tests = cited.tests.iter().filter(|test| !datapath || own(test) || engine_of(test).is_none()).count();
    let reason = requirement.reason(engine);
    let no = requirement.no.is_some() || reason.is_some_and(|reason| reason.no.is_some());
    let partly = requirement.partly.is_some() || reason.is_some_and(|reason| reason.partly.is_some());
    match (no, code, tests) {
        (true, 0, _) => Ok("no"),
        (true, ..) => Err(format!("is listed as not met by {engine}, and is cited")),
        (false, 0, _) if datapath => Ok(UNMARKED),
        (false, 0, _) => Err("is cited by no code (`Meets ...`)".into()),
        (false, _, 0) => Err(format!("is cited by no test (`Checks ...`) that {engine} runs")),
        _ if partly => Ok("partly"),
        _ => Ok("yes"),
    }
}

/// An engine that neither cites a requirement nor has a reason.
const UNMARKED: &str = "-";
/// The columns of the summary, twice: for MUST and for SHOULD.
const STANDINGS: [&str; 4] = ["yes", "partly", "no", UNMARKED];

/// The reasons of a requirement: for all engines, then for each.
fn reasons(requirement: &Requirement) -> Vec<String> {
    let all = requirement.no.iter().chain(&requirement.partly).cloned();
    let of_engine = |engine: &'static str| {
        let reason = requirement.reason(engine).into_iter().flat_map(|reason| reason.no.iter().chain(&reason.partly));
        reason.map(move |text| format!("{engine}: {text}"))
    };
    all.chain(ENGINES.iter().flat_map(|(engine, _)| of_engine(engine))).collect()
}

/// A row of the summary: an engine's counts of an RFC.
fn counted(counts: &BTreeMap<(&str, bool, &str), usize>, engine: &str) -> String {
    let count = |must: bool, stands: &'static str| counts.get(&(engine, must, stands)).copied().unwrap_or(0);
    let numbers = [true, false].into_iter().flat_map(|must| STANDINGS.map(|stands| count(must, stands).to_string()));
    numbers.collect::<Vec<_>>().join(" | ")
}

#[test]
fn the_page_of_conformance_agrees_with_the_sources() {
    let (documents, mut citations) = (documents(), citations());
    let (mut tables, mut summary, mut wrong) = (String::new(), String::new(), Vec::new());
    for document in &documents {
        let mut counts: BTreeMap<(&str, bool, &str), usize> = BTreeMap::new();
        let (name_of_document, engines) = (document.name(), document.engines());
        writeln!(tables, "\n## {name_of_document}: {}\n", document.title).unwrap();
        let columns: Vec<&str> = engines.iter().map(|(engine, _)| *engine).collect();
        writeln!(tables, "| | section | | {} | code | test |", columns.join(" | ")).unwrap();
        writeln!(tables, "|---|---|---|{}---|---|", "---|".repeat(columns.len())).unwrap();
        for requirement in &document.requirement {
            let cited = citations.remove(&(name_of_document.clone(), requirement.id.clone())).unwrap_or_default();
            let stand = |engine: &'static str| {
                let stands = standing(requirement, &cited, engine).unwrap_or_else(|why| {
                    wrong.push(format!("{name_of_document} {} {why}", requirement.id));
                    "?"
                });
                *counts.entry((engine, level(requirement).starts_with("MUST"), stands)).or_default() += 1;
                stands
            };
            let stands: Vec<&str> = columns.iter().copied().map(stand).collect();
            let reasons = reasons(requirement).join(" ");
            let text = match reasons.as_str() {
                "" => requirement.text.clone(),
                reasons => format!("{} *{reasons}*", requirement.text),
            };
            let name = if requirement.level.is_some() {
                format!("{} ({})", requirement.id, level(requirement))
            } else {
                requirement.id.clone()
            };
            let (section, code, tests) = (&requirement.section, listed(&cited.code), listed(&cited.tests));
            writeln!(tables, "| {name} | {section} | {text} | {} | {code} | {tests} |", stands.join(" | ")).unwrap();
        }
        for engine in columns {
            let (row, name) = (counted(&counts, engine), name_of_document.trim_start_matches("RFC "));
            writeln!(summary, "| {name} {} | {engine} | {row} |", document.title).unwrap();
        }
    }
    wrong.extend(
        citations.into_keys().map(|(document, id)| format!("{document} {id} is cited, but not in tests/conformance")),
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
    let names = named("    // Meets RFC 7323: 2.2-a, 2.3-b.", "// Meets ").unwrap();
    assert_eq!(names, ["2.2-a", "2.3-b"].map(|id| ("RFC 7323".to_string(), id.to_string())));
    assert_eq!(named("// Meets IBTA: A11-a.", "// Meets ").unwrap(), [("IBTA".to_string(), "A11-a".to_string())]);
    assert_eq!(named("// Meets whoever comes", "// Meets ").unwrap(), []);
    assert!(named("// Meets RFC 9293 MUST-1.", "// Meets ").is_err());
}

#[test]
fn each_engine_stands_for_itself_where_the_data_path_decides() {
    let requirement =
        |text: &str| toml::from_str::<Requirement>(&format!("id = \"a\"\nsection = \"1\"\ntext = \"x\"\n{text}"));
    let cited = |code: &[&str], tests: &[&str]| Citations {
        code: code.iter().map(ToString::to_string).collect(),
        tests: tests.iter().map(ToString::to_string).collect(),
    };
    let both = |text: &str, cited: &Citations| {
        let requirement = requirement(text).unwrap();
        ENGINES.map(|(engine, _)| standing(&requirement, cited, engine))
    };
    let shared = cited(&["`crates/tcp/src/a.rs`"], &["`crates/flextoe/tests/a.rs` f"]);
    assert_eq!(both("", &shared), [Ok("yes"), Ok("yes")]);
    let mut one =
        cited(&["`crates/flextoe/src/a.rs`", "`crates/control/src/b.rs`"], &["`crates/flextoe/tests/a.rs` f"]);
    assert_eq!(both("", &one), [Ok("yes"), Ok(UNMARKED)]);
    assert_eq!(both("laminar = { no = \"why\" }", &one), [Ok("yes"), Ok("no")]);
    assert!(both("no = \"why\"", &one)[0].is_err());
    one.code.insert("`p4/transmission.p4`".into());
    assert!(both("", &one)[1].is_err(), "no test meets it");
    one.tests.insert("`crates/script/tests/scripts.rs` f".into());
    assert_eq!(both("laminar = { partly = \"why\" }", &one), [Ok("yes"), Ok("partly")]);
    assert!(both("", &cited(&[], &[]))[0].is_err());
}
