//! Compares the version script with the libraries of rdma-core that are installed: each of their names is there, with
//! its version. That each name of the script has a function, the linker checks.
use std::collections::BTreeSet;
use std::process::Command;

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("tests/setup installs compiler and binutils");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names are ASCII")
}

/// `NAME@@VERSION` of all names that a library defines by default; names of older versions have one `@`.
fn defined(library: &str) -> BTreeSet<String> {
    let path = output("cc", &[&format!("-print-file-name={library}")]);
    assert!(path.contains('/'), "tests/setup installs {library}");
    let table = output("readelf", &["-W", "--dyn-syms", path.trim()]);
    let words = table.lines().flat_map(str::split_whitespace);
    words.filter(|word| word.contains("@@")).map(String::from).collect()
}

/// The same of the version script.
fn scripted() -> BTreeSet<String> {
    let script = include_str!("../versions.map");
    let mut version = "";
    let mut names = BTreeSet::new();
    for line in script.lines() {
        match line.split_once(" {") {
            Some((name, _)) => version = name,
            None => names.extend(line.trim().strip_suffix(';').map(|name| format!("{name}@@{version}"))),
        }
    }
    names
}

#[test]
fn every_name_of_the_systems_libraries_is_there() {
    let ours = scripted();
    for library in ["libibverbs.so", "librdmacm.so"] {
        let theirs = defined(library);
        assert!(theirs.len() > 60, "{library} was not understood");
        let missing: Vec<_> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{library} has what versions.map lacks: {missing:?}");
    }
}
