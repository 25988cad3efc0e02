//! Circles of files and of folders: in a crate, no file and no folder should use, by whatever way, one that uses it.
//! What stands in a circle can neither be read nor tested without all others of it. Without circles, the files and
//! folders of each folder have an order, from top to bottom, in which no import points up.
use crate::ratchets::{Found, hold};
use crate::{Source, is_for_tests, root, sources};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

type Path = Vec<String>;

/// A module that is a file.
struct File<'a> {
    source: &'a Source,
    /// What it defines, and what it names for others with `pub use`.
    defines: BTreeSet<String>,
    exports: BTreeMap<String, Path>,
    globs: Vec<Path>,
    /// Names that its own `use` items bring in.
    imports: BTreeMap<String, Path>,
    uses: Vec<Path>,
}

/// Where in its crate a file stands; the root is empty. Programs in `src/bin` are crates of their own.
fn module_of(source: &Source) -> Option<Path> {
    let inside = source.path.strip_prefix(root().join("crates").join(&source.krate).join("src")).ok()?;
    let mut path: Path = inside.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_string()).collect();
    if path.first().is_some_and(|first| first == "bin") {
        return None;
    }
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] || path == ["main"] {
        path.pop();
    }
    Some(path)
}

impl<'a> File<'a> {
    fn read(source: &'a Source) -> File<'a> {
        let empty = File {
            source,
            defines: BTreeSet::new(),
            exports: BTreeMap::new(),
            globs: Vec::new(),
            imports: BTreeMap::new(),
            uses: Vec::new(),
        };
        let mut file = empty;
        file.visit_file(&source.syntax);
        file
    }

    fn import(&mut self, tree: &syn::UseTree, before: &Path, exported: bool) {
        let with = |name: &syn::Ident| [&before[..], &[name.to_string()]].concat();
        let (name, path) = match tree {
            syn::UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident), exported),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, before, exported));
            }
            syn::UseTree::Glob(_) if exported => return self.globs.push(before.clone()),
            syn::UseTree::Glob(_) => return self.uses.push(before.clone()),
            syn::UseTree::Name(name) if name.ident == "self" => {
                (before.last().cloned().unwrap_or_default(), before.clone())
            }
            syn::UseTree::Name(name) => (name.ident.to_string(), with(&name.ident)),
            syn::UseTree::Rename(rename) => (rename.rename.to_string(), with(&rename.ident)),
        };
        match exported {
            true => drop(self.exports.insert(name, path)),
            false => {
                self.imports.insert(name, path.clone());
                self.uses.push(path);
            }
        }
    }

    /// Paths in the tokens of a macro's call.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Path::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) if colons == 2 => path.push(word.to_string()),
                TokenTree::Ident(word) => {
                    self.path(std::mem::replace(&mut path, vec![word.to_string()]));
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => self.path(std::mem::take(&mut path)),
            }
            colons = 0;
        }
        self.path(path);
    }

    fn path(&mut self, path: Path) {
        if path.len() > 1 {
            self.uses.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for File<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = match item {
            syn::Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            syn::Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Type(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Const(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Static(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Union(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Mod(item) => (&item.attrs, None),
            syn::Item::Use(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        if is_for_tests(attributes) {
            return;
        }
        self.defines.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &Path::new(), exported);
    }
    /// `pub(in crate::room)` uses nothing of that room.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
    }
}

type Files<'a> = BTreeMap<Path, File<'a>>;

/// The file in which a path, as `from` writes it, ends; none where it leads out of the crate.
fn target(files: &Files, from: &Path, path: &[String], depth: usize) -> Option<Path> {
    let (first, rest) = path.split_first()?;
    let file = &files[from];
    let child = [&from[..], std::slice::from_ref(first)].concat();
    let (start, rest) = match first.as_str() {
        _ if depth > 8 => return None,
        "crate" => (Path::new(), rest),
        "self" => (from.clone(), rest),
        "super" => (from[..from.len().checked_sub(1)?].to_vec(), rest),
        _ if files.contains_key(&child) => (child, rest),
        name => {
            let import = file.imports.get(name).filter(|import| import[..] != *path)?;
            return target(files, from, &[&import[..], rest].concat(), depth + 1);
        }
    };
    descend(files, start, rest, depth)
}

fn descend(files: &Files, start: Path, rest: &[String], depth: usize) -> Option<Path> {
    let file = files.get(&start)?;
    let Some((next, after)) = rest.split_first() else { return Some(start) };
    if next == "super" || next == "self" {
        return target(files, &start, rest, depth + 1);
    }
    let child = [&start[..], std::slice::from_ref(next)].concat();
    if files.contains_key(&child) {
        return descend(files, child, after, depth);
    }
    if let (false, Some(export)) = (file.defines.contains(next), file.exports.get(next)) {
        if let Some(found) = target(files, &start, export, depth + 1) {
            return Some(found);
        }
    }
    if !file.defines.contains(next) {
        for glob in &file.globs {
            let found = target(files, &start, glob, depth + 1).filter(|found| files[found].defines.contains(next));
            if found.is_some() {
                return found;
            }
        }
    }
    Some(start)
}

/// For each module, those that it uses.
type Arrows = BTreeMap<Path, BTreeSet<Path>>;

/// For each file of a crate, those that it uses.
fn arrows(files: &Files) -> Arrows {
    let each = files.iter().map(|(module, file)| {
        let used = file.uses.iter().filter_map(|path| target(files, module, path, 0));
        (module.clone(), used.filter(|used| used != module).collect())
    });
    each.collect()
}

fn reachable(arrows: &Arrows, from: &Path) -> BTreeSet<Path> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&Path> = arrows[from].iter().collect();
    while let Some(module) = open.pop() {
        if seen.insert(module.clone()) {
            open.extend(&arrows[module]);
        }
    }
    seen
}

/// The files of a crate that stand in a circle, each with those of the same circle that it uses.
fn circles(files: &Files) -> Vec<String> {
    let arrows = arrows(files);
    let reached: BTreeMap<&Path, BTreeSet<Path>> = arrows.keys().map(|from| (from, reachable(&arrows, from))).collect();
    let in_circle = arrows.keys().filter(|module| reached[module].contains(*module));
    let line = |module: &Path| {
        let same: Vec<String> = arrows[module].iter().filter(|used| reached[used].contains(module)).map(name).collect();
        let path = files[module].source.path.strip_prefix(root()).unwrap_or(&files[module].source.path);
        format!("{} uses {}", path.display(), same.join(", "))
    };
    in_circle.map(line).collect()
}

/// The folder in which both modules stand, and what stands in it of each: a file, a folder with all below it, or the
/// folder's own file (`mod.rs`, or the crate's root).
fn in_folder(from: &Path, used: &Path) -> (Path, Path, Path) {
    let shared = from.iter().zip(used).take_while(|(one, other)| one == other).count();
    let child = |module: &Path| module[..module.len().min(shared + 1)].to_vec();
    (from[..shared].to_vec(), child(from), child(used))
}

/// The imports of a crate that point up: those between two neighbours in a folder that use each other, by whatever way.
fn imports_up(files: &Files) -> Vec<String> {
    let arrows = arrows(files);
    let all = || arrows.iter().flat_map(|(from, all_used)| all_used.iter().map(move |used| (from, used)));
    let mut folders: BTreeMap<Path, Arrows> = BTreeMap::new();
    for (folder, from, used) in all().map(|(from, used)| in_folder(from, used)) {
        let inside = folders.entry(folder).or_default();
        inside.entry(used.clone()).or_default();
        inside.entry(from).or_default().insert(used);
    }
    let up = all().filter(|(from, used)| {
        let (folder, from, used) = in_folder(from, used);
        reachable(&folders[&folder], &used).contains(&from)
    });
    up.map(|(from, used)| format!("{} uses {}", name(from), name(used))).collect()
}

fn name(module: &Path) -> String {
    if module.is_empty() { "the crate's root".into() } else { module.join("::") }
}

/// What a rule finds in the files of each crate.
fn in_each_crate(rule: impl Fn(&Files) -> Vec<String>) -> Found {
    let sources = sources();
    let mut crates: BTreeMap<&str, Files> = BTreeMap::new();
    for source in &sources {
        if let Some(module) = module_of(source) {
            crates.entry(&source.krate).or_default().insert(module, File::read(source));
        }
    }
    crates.iter().map(|(krate, files)| (krate.to_string(), rule(files))).collect()
}

#[test]
fn files_of_a_crate_stand_in_no_circle() {
    hold("circles", "files that use each other in a circle", &in_each_crate(circles));
}

#[test]
fn no_import_points_up() {
    hold("imports", "files and folders of a folder that use each other in a circle", &in_each_crate(imports_up));
}

fn source(path: &str, text: &str) -> Source {
    Source { krate: "x".into(), path: path.into(), text: text.into(), syntax: syn::parse_file(text).unwrap() }
}

#[test]
fn a_circle_is_found_through_imports_exports_and_macros() {
    let sources = [
        ("", source("lib.rs", "mod a; mod b; mod c; pub use b::B;")),
        ("a", source("a.rs", "use crate::B; fn f() { B::new() }")),
        ("b", source("b.rs", "pub struct B; fn g() { vec![crate::c::h()]; }")),
        ("c", source("c.rs", "use super::a; pub fn h() { a::f() } #[cfg(test)] mod tests { use crate::d::D; }")),
        ("d", source("d.rs", "use crate::a::f; pub struct D;")),
    ];
    assert_eq!(circles(&files_of(&sources)), ["a.rs uses b", "b.rs uses c", "c.rs uses a"]);
}

fn files_of<'a>(sources: &'a [(&str, Source)]) -> Files<'a> {
    let path = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(String::from).collect::<Path>();
    sources.iter().map(|(name, source)| (path(name), File::read(source))).collect()
}

/// Two folders use each other, though no two files do.
#[test]
fn an_import_that_points_up_is_found() {
    let sources = [
        ("", source("lib.rs", "mod low; mod high; pub use high::a::f;")),
        ("high", source("high/mod.rs", "pub mod a; pub mod b;")),
        ("high::a", source("high/a.rs", "use crate::low::c::g; pub fn f() { g() }")),
        ("high::b", source("high/b.rs", "pub fn h() {}")),
        ("low", source("low/mod.rs", "pub mod c; pub mod d;")),
        ("low::c", source("low/c.rs", "pub fn g() { super::d::i() }")),
        ("low::d", source("low/d.rs", "use crate::high::b; pub fn i() { b::h() }")),
    ];
    let files = files_of(&sources);
    assert_eq!(circles(&files), [""; 0]);
    assert_eq!(imports_up(&files), ["high::a uses low::c", "low::d uses high::b"]);
}
