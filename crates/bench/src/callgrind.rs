//! Instructions, counted by valgrind's callgrind: how it is started, and what it writes (callgrind format specification
//! in valgrind's manual). Counts repeat from run to run and from machine to machine, where times do not.
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// What goes in front of a program so that it is counted; `file` is written when the program ends. A program under
/// valgrind can set its limit of descriptors only to what it is: 4,096 is what servers here ask for.
pub(crate) fn words(file: &Path) -> Vec<String> {
    let out = format!("--callgrind-out-file={}", file.display());
    ["prlimit", "--nofile=4096:8192", "valgrind", "--quiet", "--tool=callgrind", &out].map(String::from).to_vec()
}

/// A level of the cache, as valgrind simulates it.
pub(crate) struct Cache {
    /// Its bytes.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u64,
    /// Bytes of a line.
    pub line: u64,
}

/// The last level, the same on every machine: that of an EPYC's group of cores.
pub(crate) const LAST_LEVEL: Cache = Cache { bytes: 32 << 20, ways: 16, line: 64 };

/// The same as [`words`]; caches are simulated, and what is counted is one function (a pattern). A copy by `rep movsb`
/// would be counted by the byte, so the C library makes none.
pub(crate) fn with_caches(file: &Path, function: &str) -> Vec<String> {
    let Cache { bytes, ways, line } = LAST_LEVEL;
    let more =
        ["--cache-sim=yes".to_string(), format!("--LL={bytes},{ways},{line}"), format!("--toggle-collect={function}")];
    let environment = ["env", "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824"].map(String::from);
    environment.into_iter().chain(words(file)).chain(more).collect()
}

/// Lines that the last level of the cache lacked, of all that was counted.
pub(crate) fn last_level_misses(file: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    misses(&text).ok_or_else(|| format!("callgrind counted nothing in {}", file.display()))
}

/// The sum of the last level's misses: of instructions, of data that are read, and of data that are written.
fn misses(text: &str) -> Option<u64> {
    let fields = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let (names, totals) = (fields("events:")?, fields("totals:")?);
    let totals: Vec<u64> = totals.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let of = |event: &str| totals.get(names.split_whitespace().position(|name| name == event)?).copied();
    // Zeros at the end are left out.
    totals.first().filter(|instructions| **instructions > 0)?;
    Some(["ILmr", "DLmr", "DLmw"].into_iter().filter_map(of).sum())
}

/// An error with what to do where there is no valgrind.
pub(crate) fn is_there() -> Result<(), String> {
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    let sentence = "instructions were not counted, because valgrind is missing: apt-get install valgrind";
    if found { Ok(()) } else { Err(sentence.into()) }
}

/// Calls from one function to another.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// File of the caller's code: a program or a library.
    pub from: String,
    /// File of the called function's code.
    pub to: String,
    /// Its name.
    pub function: String,
    /// How often it was called.
    pub count: u64,
    /// Instructions in it and in all that it called.
    pub instructions: u64,
}

/// Reads all calls.
pub(crate) fn calls(file: &Path) -> Result<Vec<Call>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let calls = parse(&text);
    if calls.is_empty() { Err(format!("callgrind wrote no calls to {}", file.display())) } else { Ok(calls) }
}

fn parse(text: &str) -> Vec<Call> {
    let (mut objects, mut functions) = (Names::default(), Names::default());
    let (mut object, mut called_object, mut called, mut count) = (String::new(), None, String::new(), None);
    let mut calls = Vec::new();
    for line in text.lines() {
        match line.split_once('=') {
            Some(("ob", name)) => object = objects.resolve(name),
            Some(("cob", name)) => called_object = Some(objects.resolve(name)),
            Some(("fn", name)) => {
                functions.resolve(name);
            }
            Some(("cfn", name)) => called = functions.resolve(name),
            Some(("calls", numbers)) => count = numbers.split(' ').next().and_then(|count| count.parse().ok()),
            Some(_) => {}
            // The line after `calls` has the cost of the calls.
            None => {
                let Some(count) = count.take() else { continue };
                let instructions = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
                let to = called_object.take().unwrap_or_else(|| object.clone());
                calls.push(Call { from: object.clone(), to, function: called.clone(), count, instructions });
            }
        }
    }
    calls
}

/// Names are written once, as `(number) name`, and then as `(number)`.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn resolve(&mut self, text: &str) -> String {
        match text.split_once(' ') {
            Some((number, name)) if number.starts_with('(') => {
                self.0.insert(number.into(), name.into());
                name.into()
            }
            _ => self.0.get(text).cloned().unwrap_or_else(|| text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_of_the_last_level_are_added_up() {
        let events = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n";
        assert_eq!(misses(&format!("{events}fn=(1) a\n1 2\ntotals: 900 80 70 1 20 30 1 4 5\n")), Some(10));
        assert_eq!(misses(&format!("{events}totals: 900 80 70 1 20 30 1 4\n")), Some(5));
        assert_eq!(misses(&format!("{events}totals: 0\n")), None);
        assert_eq!(misses("events: Ir\n"), None);
    }

    #[test]
    fn calls_are_read_with_their_compressed_names() {
        let text = "version: 1\nevents: Ir\n\nob=(1) /bin/server\nfl=(1) a.c\nfn=(1) main\n16 400\ncob=(2) /lib/libtoe.so\n\
                    cfi=(2) b.rs\ncfn=(2) sendmsg\ncalls=3 50\n+1 600\ncfn=(3) step\ncalls=1 9\n18 7\n\n\
                    ob=(2)\nfl=(2)\nfn=(2)\n50 500\ncob=(1)\ncfn=(1)\ncalls=2 16\n* 100\n";
        let call = |from: &str, to: &str, function: &str, count, instructions| {
            let (from, to, function) = (from.into(), to.into(), function.into());
            Call { from, to, function, count, instructions }
        };
        let expected = [
            call("/bin/server", "/lib/libtoe.so", "sendmsg", 3, 600),
            call("/bin/server", "/bin/server", "step", 1, 7),
            call("/lib/libtoe.so", "/bin/server", "main", 2, 100),
        ];
        assert_eq!(parse(text), expected);
    }
}
