//! Command-line arguments of the cases: those of all cases, and lists of numbers and names.
use crate::lab::Stack;
use clap::Args;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Arguments of all cases.
#[derive(Args, Debug, Clone)]
pub struct Common {
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Repetitions; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub pairs: u32,
    /// Only see whether everything works: a second for each measurement
    #[arg(long)]
    pub quick: bool,
    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write each measurement as a row of this file, as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also draw plots into this directory, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// libtoe.so, where it is not beside this program
    #[arg(long, value_name = "FILE")]
    pub lib: Option<PathBuf>,
}

impl Common {
    /// Seconds of each measurement; `usual` by default.
    pub fn seconds(&self, usual: f64) -> f64 {
        self.duration.unwrap_or(if self.quick { 1.0 } else { usual })
    }

    /// Checks that the folder of results is there: an error is better before minutes of measuring than after.
    pub fn places(&self) -> Result<(), String> {
        for (option, file) in [("--json", &self.json), ("--csv", &self.csv)] {
            let folder = file.as_ref().and_then(|file| file.parent());
            if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
                return Err(format!("there is no directory {} for {option}: make it first", folder.display()));
            }
        }
        Ok(())
    }

    /// Seconds before each.
    pub fn warm_up(&self) -> f64 {
        if self.quick { 0.3 } else { 2.0 }
    }
}

/// A time that can be measured over.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds from 0.1 to 600".into())
}

/// A list with commas between.
pub(crate) fn list<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { Err("a list is empty".into()) } else { words.into_iter().map(read).collect() }
}

/// A stack by its name.
pub(crate) fn stack(text: &str) -> Result<Stack, String> {
    [Stack::Opentoe, Stack::Linux]
        .into_iter()
        .find(|stack| stack.name() == text)
        .ok_or_else(|| format!("there is no stack `{text}`; there are opentoe and linux"))
}

/// A way of a case by its name.
pub(crate) fn way<T: Copy>(text: &str, all: &[(&'static str, T)]) -> Result<T, String> {
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, way)| *way).ok_or_else(|| format!("there is no way `{text}`; there are {}", names()))
}

/// The name of a way of a case.
pub(crate) fn name_of<T: PartialEq>(way: &T, all: &[(&'static str, T)]) -> &'static str {
    all.iter().find(|(_, known)| known == way).map_or("", |(name, _)| *name)
}

/// What the command line takes as a list whose words `read` takes: a wrong one is refused before anything is searched
/// for.
pub(crate) fn listed<T>(
    read: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| list(text, &read).map(|_| text.to_string())
}

/// The same of numbers from 1 to `most`.
pub(crate) fn numbered(most: usize) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    listed(move |word| count(word, most))
}

/// A number from 1 to `most`.
pub(crate) fn count(text: &str, most: usize) -> Result<usize, String> {
    within(text, 1..=most)
}

/// A number of a range.
pub(crate) fn within(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{text}` must be a number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_errors_are_sentences() {
        assert_eq!(list("1, 2,", |text| count(text, 9)), Ok(vec![1, 2]));
        assert_eq!(numbered(9)("1, 9"), Ok("1, 9".to_string()));
        assert!(numbered(9)("").is_err());
        assert!(numbered(9)("1,10").unwrap_err().contains("`10`"));
        assert!(stack("tas").unwrap_err().contains("linux"));
    }
}
