//! Numbers that only go down: what the house does not hold everywhere yet is counted for each place in
//! `tests/tidy.toml`.
use crate::root;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::sync::Mutex;

/// What a rule found, by the place that is counted: a crate, or a file.
pub(crate) type Found = BTreeMap<String, Vec<String>>;

const FILE: &str = "tests/tidy.toml";

/// The numbers of a rule; a place that has none has 0.
type Numbers = BTreeMap<String, usize>;

/// Tests run at the same time: only one reads and writes the file.
static LOCK: Mutex<()> = Mutex::new(());

/// The numbers of all rules.
fn read() -> BTreeMap<String, Numbers> {
    let text = fs::read_to_string(root().join(FILE)).expect("the file of ratchets");
    toml::from_str(&text).expect("rules with numbers")
}

/// The numbers that stand in the file for a rule. With `LOWER_TIDY` set, those that could be lower are lowered first.
fn allowed(rule: &str, found: &Found) -> Numbers {
    let _guard = LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut all = read();
    let numbers = all.entry(rule.into()).or_default();
    if std::env::var_os("LOWER_TIDY").is_some() {
        let now = |place: &str| found.get(place).map_or(0, Vec::len);
        numbers.iter_mut().for_each(|(place, most)| *most = now(place).min(*most));
        numbers.retain(|_, most| *most > 0);
        write(&all);
        return all.remove(rule).unwrap_or_default();
    }
    std::mem::take(numbers)
}

fn write(all: &BTreeMap<String, Numbers>) {
    let path = root().join(FILE);
    let before = fs::read_to_string(&path).expect("the file of ratchets");
    let head = before.lines().take_while(|line| line.starts_with('#'));
    let mut text: String = head.map(|line| format!("{line}\n")).collect();
    for (rule, numbers) in all.iter().filter(|(_, numbers)| !numbers.is_empty()) {
        let _ = write!(text, "\n[{rule}]\n");
        numbers.iter().for_each(|(place, most)| text += &format!("{} = {most}\n", key(place)));
    }
    fs::write(path, text).expect("the file of ratchets can be written");
}

/// Fails where there is more than the file allows, with every offence of that place, and where there is less: then the
/// number is to be lowered.
pub(crate) fn hold(rule: &str, what: &str, found: &Found) {
    let mut allowed = allowed(rule, found);
    let mut wrong = String::new();
    for (place, offences) in found.iter().filter(|(_, offences)| !offences.is_empty()) {
        let most = allowed.remove(place).unwrap_or(0);
        if offences.len() > most {
            let list = offences.join("\n    ");
            let _ = write!(wrong, "\n  {place} has {}, and {FILE} allows {most}:\n    {list}", offences.len());
        } else if offences.len() < most {
            let _ = write!(
                wrong,
                "\n  {place} has only {}, not {most}: set LOWER_TIDY=1, and {FILE} is lowered",
                offences.len()
            );
        }
    }
    for place in allowed.keys() {
        let _ = write!(wrong, "\n  {place} has none any more: set LOWER_TIDY=1, and its line goes");
    }
    assert!(wrong.is_empty(), "{what} ([{rule}] in {FILE}):{wrong}\n");
}

fn key(place: &str) -> String {
    let bare = place.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if bare { place.into() } else { format!("{place:?}") }
}
