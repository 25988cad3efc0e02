//! Manual pages: of `opentoe` and its verbs (section 1), of `toed` (section 8), and of the daemon's
//! configuration (section 5).
use crate::arguments::{Arguments, ManualArguments};
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io;
use std::path::Path;

/// Every key of the daemon's configuration with its default: what `make install` installs, too.
const CONFIGURATION: &str = include_str!("../../../config/toed.toml");

/// Writes all pages into `man1`, `man5` and `man8` of a folder.
pub(crate) fn manual(arguments: &ManualArguments) -> Result<(), String> {
    let directory = &arguments.directory;
    write(directory).map_err(|error| format!("cannot write manual pages to {}: {error}", directory.display()))
}

fn write(directory: &Path) -> io::Result<()> {
    for section in ["man1", "man5", "man8"] {
        fs::create_dir_all(directory.join(section))?;
    }
    clap_mangen::generate_to(Arguments::command(), directory.join("man1"))?;
    let mut page = Vec::new();
    Man::new(daemon::Arguments::command()).section("8").render(&mut page)?;
    see_also(&["toed.toml(5)", "opentoe(1)"]).to_writer(&mut page)?;
    fs::write(directory.join("man8/toed.8"), page)?;
    fs::write(directory.join("man5/toed.toml.5"), configuration())
}

/// The configuration's page: the sample, which has all keys, each with its default and what it means.
fn configuration() -> String {
    let mut page = Roff::new();
    let version = concat!("toed ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["toed.toml", "5", "", version]);
    page.control("SH", ["NAME"]);
    page.text([roman("toed.toml - configuration of the OpenTOE daemon")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        bold("toed"),
        roman(" reads one file in TOML, which is named by "),
        bold("--config"),
        roman("; the service reads /etc/opentoe/toed.toml. "),
        bold("toed --config FILE --check"),
        roman(" says whether it is in order. A running service takes a changed file with "),
        bold("systemctl reload toed"),
        roman(", where nothing changed that a takeover refuses; else with "),
        bold("systemctl restart toed"),
        roman(", which ends connections."),
    ]);
    page.text([roman(
        "Every key, with its default where it has one. Lines that begin with # are what may be there as well.",
    )]);
    page.control("SH", ["KEYS"]);
    page.control("nf", []);
    page.text([roman(CONFIGURATION)]);
    page.control("fi", []);
    page.render() + &see_also(&["toed(8)", "opentoe(1)"]).render()
}

fn see_also(pages: &[&str]) -> Roff {
    let mut part = Roff::new();
    part.control("SH", ["SEE ALSO"]);
    part.text([roman(pages.join(", "))]);
    part
}
