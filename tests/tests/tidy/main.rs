//! The rules of the house, held by a test so that no reviewer must.
//!
//! What is checked: product code in `crates/*/src`, the code of tests inside it (`#[cfg(test)]` items) left out.
mod circles;
mod prose;
mod ratchets;
mod signatures;

use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// From top to bottom; crates of one row do not depend on each other. An arrow may only point to a lower row.
const ROWS: &[&[&str]] = &[
    &["tests"],
    &["cli"],
    &["bench"],
    &["daemon"],
    &["sim", "script"],
    &["libtoe", "libverbs", "heap", "offload"],
    &["engines"],
    &["zeronic"],
    &["control", "rdma"],
    &["flextoe", "laminar", "smartns", "solar"],
    &["host", "rmt", "xdp"],
    &["engine"],
    &["context"],
    &["verbs", "cuda", "buffers"],
    &["port", "memory", "intercept"],
    &["shm"],
    &["tcp"],
    &["wire", "console", "trace", "toe-api", "offload-api"],
];

/// Crates that may contain unsafe code; every other one forbids it in its first lines.
const UNSAFE: &[&str] = &[
    "shm",
    "memory",
    "port",
    "intercept",
    "libtoe",
    "libverbs",
    "script",
    "toe-api",
    "offload-api",
    "cuda",
    "buffers",
    "heap",
];

/// Crates that make or run code: unsafe code only in these files, denied in all others.
const GENERATORS: &[(&str, &[&str])] = &[
    ("offload", &["src/call.rs", "src/dma.rs", "src/host_calls.rs", "src/library.rs"]),
    ("rmt", &["src/native/code.rs", "src/native/context.rs"]),
    ("xdp", &["src/native/mod.rs", "src/native/helpers.rs", "src/native/interp.rs", "src/native/jit/mod.rs"]),
];

const LONGEST_FUNCTION: usize = 80;
const LONGEST_FILE: usize = 600;

/// Functions that may be longer than [`LONGEST_FUNCTION`], and why.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Macros that mark work that is not done.
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

/// A source file of the product.
struct Source {
    krate: String,
    path: PathBuf,
    text: String,
    syntax: syn::File,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder").to_path_buf()
}

fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("there are crates").flatten();
    let mut names: Vec<String> = folders
        .filter(|folder| folder.path().join("Cargo.toml").exists())
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let mut all = Vec::new();
    for krate in crates() {
        let mut files = Vec::new();
        rust_files(&root().join("crates").join(&krate).join("src"), &mut files);
        for path in files {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            all.push(Source { krate: krate.clone(), path, text, syntax });
        }
    }
    assert!(!all.is_empty(), "no sources found");
    all
}

fn place(source: &Source, span: Span) -> String {
    let path = source.path.strip_prefix(root()).unwrap_or(&source.path);
    format!("{}:{}", path.display(), span.start().line)
}

fn none(what: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{what}:\n  {}", offences.join("\n  "));
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) if attribute.path().is_ident("cfg") => list.tokens.to_string(),
            _ => return attribute.path().is_ident("test"),
        };
        tokens.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

/// Every function of the product with its length in lines, from its signature to its closing brace.
struct Functions<'a> {
    found: &'a mut Vec<(String, Span, usize)>,
}

impl Functions<'_> {
    fn add(&mut self, name: &syn::Ident, signature: Span, block: Span) {
        self.found.push((name.to_string(), signature, block.end().line - signature.start().line + 1));
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.add(&item.sig.ident, item.sig.span(), item.block.span());
            visit::visit_item_fn(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig.ident, item.sig.span(), block.span());
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Lines of a file that are not inside `#[cfg(test)]` items.
fn product_lines(source: &Source) -> usize {
    let tests: usize = source
        .syntax
        .items
        .iter()
        .filter_map(|item| match item {
            syn::Item::Mod(module) if is_for_tests(&module.attrs) => Some(module.span()),
            syn::Item::Fn(function) if is_for_tests(&function.attrs) => Some(function.span()),
            _ => None,
        })
        .map(|span| span.end().line - span.start().line + 1)
        .sum();
    source.text.lines().count() - tests
}

#[test]
fn arrows_between_crates_point_down() {
    let row_of = |name: &str| ROWS.iter().position(|row| row.contains(&name));
    let mut offences = Vec::new();
    for krate in crates() {
        let Some(row) = row_of(&krate) else {
            offences.push(format!("{krate} is in no row of tests/tests/tidy/main.rs"));
            continue;
        };
        for other in dependencies(&krate) {
            if row_of(&other).is_some_and(|lower| lower <= row) {
                offences.push(format!("{krate} depends on {other}"));
            }
        }
    }
    none("arrows that do not point down", &offences);
}

/// The names in `[dependencies]` and `[target.*.dependencies]`; those for tests may point anywhere.
fn dependencies(krate: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("crates").join(krate).join("Cargo.toml")).expect("a manifest");
    let mut counts = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            counts = line == "[dependencies]" || (line.starts_with("[target.") && line.ends_with(".dependencies]"));
        } else if counts && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            names.insert(name.trim_matches('"').to_string());
        }
    }
    names
}

#[test]
fn unsafe_code_stays_where_it_may_be() {
    let mut offences = Vec::new();
    for source in sources() {
        let root_file = ["lib.rs", "main.rs"].iter().any(|name| source.path.ends_with(Path::new("src").join(name)));
        let generator = GENERATORS.iter().find(|(name, _)| *name == source.krate);
        let in_generator = generator.is_some_and(|(_, files)| files.iter().any(|file| source.path.ends_with(file)));
        let allowed = UNSAFE.contains(&source.krate.as_str()) || in_generator;
        let rule = if generator.is_some() { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if root_file && !allowed && !source.text.contains(rule) {
            offences.push(format!("{} does not forbid unsafe code", place(&source, Span::call_site())));
        }
        let tokens: TokenStream = source.text.parse().expect("it was parsed before");
        if !allowed {
            each_token(tokens, &mut |token| {
                if matches!(token, TokenTree::Ident(word) if word == "unsafe") {
                    offences.push(format!("{} unsafe", place(&source, token.span())));
                }
            });
        } else {
            offences.extend(unsafe_without_reason(&source));
        }
    }
    none("unsafe code out of place or without its reason", &offences);
}

/// Unsafe blocks and impls that no `SAFETY:` comment explains, on the same line or in the ten lines before.
fn unsafe_without_reason(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut offences = Vec::new();
    let tokens: TokenStream = source.text.parse().expect("it was parsed before");
    let mut last_unsafe: Option<Span> = None;
    each_token(tokens, &mut |token| {
        let opens = match token {
            TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace,
            TokenTree::Ident(word) => word == "impl",
            _ => false,
        };
        if let (Some(span), true) = (last_unsafe, opens) {
            let end = span.start().line;
            let explained = lines[end.saturating_sub(10)..end].iter().any(|line| line.contains("SAFETY:"));
            if !explained {
                offences.push(format!("{} unsafe without // SAFETY:", place(source, span)));
            }
        }
        let is_unsafe = matches!(token, TokenTree::Ident(word) if word == "unsafe");
        last_unsafe = is_unsafe.then(|| token.span());
    });
    offences
}

fn each_token(tokens: TokenStream, visit: &mut impl FnMut(&TokenTree)) {
    for token in tokens {
        visit(&token);
        if let TokenTree::Group(group) = token {
            each_token(group.stream(), visit);
        }
    }
}

#[test]
fn every_drop_reason_is_used() {
    let all = sources();
    let registries: Vec<&Source> = all.iter().filter(|source| source.path.ends_with("src/drops.rs")).collect();
    assert_eq!(registries.len(), 2, "the engine's registry of drop reasons, and the port's");
    let declared: BTreeSet<&str> = registries
        .iter()
        .flat_map(|registry| registry.text.lines())
        .filter(|line| line.trim_end().ends_with("\","))
        .filter_map(|line| line.trim().split_once(" = \"").map(|(name, _)| name))
        .collect();
    assert!(declared.len() > 20, "the registry was not understood");
    let mut used: BTreeMap<&str, usize> = declared.iter().map(|name| (*name, 0)).collect();
    for source in all.iter().filter(|source| !source.path.ends_with("src/drops.rs")) {
        for name in &declared {
            *used.entry(name).or_default() += ["DropReason", "PortDrop", "Unacceptable"]
                .map(|of| source.text.matches(&format!("{of}::{name}")).count())
                .iter()
                .sum::<usize>();
        }
    }
    let idle: Vec<String> = used.iter().filter(|(_, uses)| **uses == 0).map(|(name, _)| name.to_string()).collect();
    none("drop reasons that nothing counts", &idle);
}

#[test]
fn functions_are_short() {
    let mut lengths = Vec::new();
    let mut offences = Vec::new();
    for source in sources() {
        let mut found = Vec::new();
        Functions { found: &mut found }.visit_file(&source.syntax);
        for (name, span, length) in found {
            lengths.push(length);
            let excused = LONG_FUNCTIONS.iter().any(|(excused, _)| *excused == format!("{}::{name}", source.krate));
            if length > LONGEST_FUNCTION && !excused {
                offences.push(format!("{} {name}: {length} lines", place(&source, span)));
            }
        }
    }
    lengths.sort_unstable();
    let at = |part: f64| lengths[((lengths.len() - 1) as f64 * part) as usize];
    println!("{} functions: median {} lines, 90% within {}, longest {}", lengths.len(), at(0.5), at(0.9), at(1.0));
    none("functions that are too long", &offences);
}

#[test]
fn files_are_short() {
    let long = |source: &Source| {
        let lines = product_lines(source);
        (lines > LONGEST_FILE).then(|| format!("{}: {lines} lines", place(source, Span::call_site())))
    };
    none("files that are too long", &sources().iter().filter_map(long).collect::<Vec<_>>());
}

#[test]
fn every_crate_states_its_purpose() {
    let silent = |krate: &String| {
        let source = root().join("crates").join(krate).join("src");
        let texts: Vec<String> =
            ["lib.rs", "main.rs"].iter().filter_map(|name| fs::read_to_string(source.join(name)).ok()).collect();
        texts.is_empty() || texts.iter().any(|text| !text.starts_with("//!"))
    };
    none(
        "crates whose first line does not state their purpose",
        &crates().into_iter().filter(silent).collect::<Vec<_>>(),
    );
}

/// `unreachable_pub` is one of them: `pub` then means that another crate can name an item.
#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifest = |folder: &Path| {
        let text = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        toml::from_str::<toml::Table>(&text).expect("TOML")
    };
    let lints = &manifest(&root())["workspace"]["lints"]["rust"];
    assert_eq!(lints["unreachable_pub"].as_str(), Some("warn"));
    let members = crates().into_iter().map(|krate| root().join("crates").join(krate));
    let folders = members.chain(["fuzz", "tests"].map(|name| root().join(name)));
    let takes_them = |folder: &Path| {
        let lints = manifest(folder).remove("lints")?;
        lints.get("workspace")?.as_bool().filter(|taken| *taken)
    };
    let others = folders.filter(|folder| takes_them(folder).is_none());
    none(
        "crates without the workspace's lints",
        &others.map(|folder| folder.display().to_string()).collect::<Vec<_>>(),
    );
}

#[test]
fn nothing_is_left_unfinished() {
    let mut offences = Vec::new();
    for source in sources() {
        let tokens: TokenStream = source.text.parse().expect("it was parsed before");
        let mut word_before: Option<(String, Span)> = None;
        each_token(tokens, &mut |token| {
            if let (TokenTree::Punct(mark), Some((word, span))) = (token, &word_before) {
                if mark.as_char() == '!' && UNFINISHED.contains(&word.as_str()) {
                    offences.push(format!("{} {word}!", place(&source, *span)));
                }
            }
            word_before = match token {
                TokenTree::Ident(word) => Some((word.to_string(), word.span())),
                _ => None,
            };
        });
        for (number, line) in source.text.lines().enumerate() {
            if ["FIXME", "TODO"].iter().any(|mark| line.contains(mark)) {
                offences.push(format!("{} line {}: {}", place(&source, Span::call_site()), number + 1, line.trim()));
            }
        }
    }
    none("unfinished work", &offences);
}
