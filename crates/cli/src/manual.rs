//! Manual pages: of `opentoe` and its verbs (section 1), of `toed` (section 8), and of the daemon's
//! configuration (section 5).
use crate::arguments::{Arguments, ManualArguments};
use clap::{Command, CommandFactory};
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
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    pages(&command, &directory.join("man1"))?;
    let mut command = daemon::Arguments::command();
    command.build();
    let page = page(&command, "8")? + &see_also(&["toed.toml(5)", "opentoe(1)"]).render();
    fs::write(directory.join("man8/toed.8"), page)?;
    fs::write(directory.join("man5/toed.toml.5"), configuration())
}

/// The pages of a command and of all its verbs.
fn pages(command: &Command, directory: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        pages(verb, directory)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(directory.join(format!("{name}.1")), page(command, "1")?)
}

/// A page as the generator makes it, with what it lacks: the values of options in the synopsis, and places at which a
/// long default can be broken.
fn page(command: &Command, section: &str) -> io::Result<String> {
    /// Permits a break and prints nothing.
    const BREAK: &str = r"\:";
    let mut page = Vec::new();
    Man::new(command.clone()).section(section).render(&mut page)?;
    let page = String::from_utf8(page).map_err(io::Error::other)?;
    let (mut text, mut heading) = (String::new(), "");
    for line in page.lines() {
        if line.starts_with(".SH ") {
            heading = line;
        }
        text += &match line.split_once(" [default: ") {
            _ if heading == ".SH SYNOPSIS" => with_values(line, command),
            Some((option, default)) if line.starts_with(r"\fB\-") => {
                format!("{option} [default: {}", default.replace(',', &format!(",{BREAK}")))
            }
            _ => line.into(),
        };
        text.push('\n');
    }
    Ok(text)
}

/// A line of the synopsis: `[--socket PATH]` instead of `[--socket]`, and without brackets where it has to be there.
fn with_values(line: &str, command: &Command) -> String {
    let mut line = line.to_string();
    for option in command.get_arguments().filter(|option| option.get_action().takes_values()) {
        let (Some(long), Some(names)) = (option.get_long(), option.get_value_names()) else { continue };
        let name = format!(r"\fB\-\-{}\fR", long.replace('-', r"\-"));
        let full = format!(r"{name} \fI{}\fR", names.join(" ").replace('-', r"\-"));
        line = line.replace(&format!("<{name}>"), &full).replace(&format!("{name}]"), &format!("{full}]"));
    }
    line
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
        roman(" checks whether it is in order. A running service takes a changed file with "),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synopsis_has_the_values_of_options() {
        let mut command = daemon::Arguments::command();
        command.build();
        let text = page(&command, "8").unwrap();
        let synopsis = text.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1).unwrap();
        assert!(synopsis.contains(r"[\fB\-\-socket\fR \fIPATH\fR] [\fB\-\-takeover\fR]"), "{synopsis}");
        assert!(synopsis.trim_end().ends_with(r" \fB\-\-config\fR \fIFILE\fR"), "{synopsis}");
    }

    #[test]
    fn a_long_default_can_be_broken() {
        let list = clap::arg!(--test <TEST> "Tests").default_value("write_bw:65536,send_lat:2");
        let mut command = Command::new("x").arg(list);
        command.build();
        let text = page(&command, "1").unwrap();
        assert!(text.contains(r"[default: write_bw:65536,\:send_lat:2]"), "{text}");
        assert!(text.contains(r"[\fB\-\-test\fR \fITEST\fR]"), "{text}");
    }
}
