//! Provenance of a report: which OpenTOE, when, by which command.
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Provenance of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// OpenTOE's version.
    pub version: String,
    /// The commit that was built; sources may have been changed since. None where it is unknown.
    pub commit: Option<String>,
    /// When the measurement began, UTC, as RFC 3339 has it; none in reports of earlier versions.
    pub date: Option<String>,
    /// The command line.
    pub command: String,
    /// How long all of it took, seconds.
    pub took_s: f64,
}

impl Provenance {
    /// Of this process, now.
    pub(crate) fn now() -> Provenance {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let words = std::env::args().skip(1).map(|word| quoted(&word));
        Provenance {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("OPENTOE_COMMIT").map(String::from),
            date: Some(date(seconds)),
            command: std::iter::once("opentoe".to_string()).chain(words).collect::<Vec<_>>().join(" "),
            took_s: 0.0,
        }
    }

    /// It only shows that everything works.
    pub(crate) fn is_quick(&self) -> bool {
        self.command.split(' ').any(|word| word == "--quick")
    }

    /// In a sentence.
    pub(crate) fn sentence(&self) -> String {
        let commit = self.commit.as_ref().map_or(String::new(), |commit| format!(", commit {commit}"));
        let date = self.date.as_deref().unwrap_or("an unknown day");
        let quick = if self.is_quick() { " A quick run is no measurement." } else { "" };
        format!("{date}, OpenTOE {}{commit}, {:.0} s: {}.{quick}", self.version, self.took_s, self.command)
    }
}

/// As a shell would need it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A time since 1970 as `2026-11-24T18:30:00Z`. Days are counted from 1 March of year 0, so that a leap day is the last
/// of its year.
fn date(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let day = day - (153 * from_march + 2) / 5 + 1;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let dates = [0, 951_782_400, 951_868_799, 1_709_251_199, 1_795_651_261].map(date);
        let expected = [
            "1970-01-01T00:00:00Z",
            "2000-02-29T00:00:00Z",
            "2000-02-29T23:59:59Z",
            "2024-02-29T23:59:59Z",
            "2026-11-26T00:01:01Z",
        ];
        assert_eq!(dates, expected);
    }

    #[test]
    fn a_report_has_its_provenance() {
        let own = Provenance::now();
        assert!(own.date.is_some() && own.command.starts_with("opentoe") && !own.version.is_empty());
        let quick = Provenance { command: "opentoe bench echo --quick".into(), ..own };
        assert!(
            quick.is_quick()
                && quick.sentence().ends_with("opentoe bench echo --quick. A quick run is no measurement.")
        );
        assert_eq!(["a=1,2", "", "it's"].map(quoted), ["a=1,2", "''", r"'it'\''s'"]);
    }
}
