//! Parser of [`Config`]: every error names the line, and an unknown word the nearest known one.
use super::{
    BlockSection, Config, EngineKind, FabricSection, HostSection, ModuleSection, PortSection, ServiceConfig,
    VolumeSection, check,
};
use crate::zeronic::WrittenZeronic;
use control::HostConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error, ValueDeserializer};

/// Reads and checks a file. The error is a sentence that begins with the file and, where it has one, the line.
pub fn read(path: &Path) -> Result<Config, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    parse(&text, &path.display().to_string())
}

/// Reads and checks a text; `name` is what errors call it.
pub fn parse(text: &str, name: &str) -> Result<Config, String> {
    let config = sections(text).map_err(|fault| fault.sentence(text, name))?;
    check::check(&config).map_err(|sentence| format!("{name}: {sentence}"))?;
    Ok(config)
}

struct Fault {
    message: String,
    at: Option<Range<usize>>,
}

impl Fault {
    fn new(message: String, at: Range<usize>) -> Fault {
        Fault { message, at: Some(at) }
    }

    fn sentence(self, text: &str, name: &str) -> String {
        match self.at {
            Some(at) => {
                let line = text.bytes().take(at.start).filter(|byte| *byte == b'\n').count() + 1;
                let message = named(self.message, text.lines().nth(line - 1).unwrap_or_default());
                format!("{name}:{line}: {message}")
            }
            None => format!("{name}: {}", self.message),
        }
    }
}

/// The message with its line, where it does not name the key.
fn named(message: String, line: &str) -> String {
    let key = line.split_once('=').map(|(key, _)| key.trim());
    match key.filter(|key| !key.is_empty() && !message.contains(&format!("`{key}`"))) {
        Some(_) => format!("{message}, in: {}", line.trim()),
        None => message,
    }
}

fn sections(text: &str) -> Result<Config, Fault> {
    let root = DeTable::parse(text).map_err(|error| fault(&error, &[]))?;
    let span = root.span();
    let mut root = root.into_inner();
    let fabrics = tables(&mut root, "fabric")?.into_iter().map(fabric).collect::<Result<_, _>>()?;
    let hosts = tables(&mut root, "host")?.into_iter().map(host).collect::<Result<Vec<_>, _>>()?;
    let zeronic = |(section, at): Table<'_>| {
        let written: WrittenZeronic = remaining(section, at.clone(), &[])?;
        written.complete(&hosts).map_err(|sentence| Fault::new(sentence, at))
    };
    let zeronics = tables(&mut root, "zeronic")?.into_iter().map(zeronic).collect::<Result<_, _>>()?;
    let volumes = all::<VolumeSection>(&mut root, "volume")?;
    let blocks = all::<BlockSection>(&mut root, "block")?;
    misplaced(&root)?;
    let service: ServiceConfig = remaining(root, span, &["fabric", "host", "zeronic", "volume", "block"])?;
    Ok(Config { service, fabrics, hosts, zeronics, volumes, blocks })
}

/// All sections of a name.
fn all<T: DeserializeOwned>(root: &mut DeTable<'_>, name: &str) -> Result<Vec<T>, Fault> {
    tables(root, name)?.into_iter().map(|(section, at)| remaining(section, at, &[])).collect()
}

/// Refuses a host's key above all sections.
fn misplaced(root: &DeTable<'_>) -> Result<(), Fault> {
    let (here, hosts) =
        (keys::<ServiceConfig>(), [keys::<HostConfig>(), HOST_KEYS.map(String::from).to_vec()].concat());
    let known = |keys: &[String], key: &str| keys.iter().any(|known| known == key);
    match root.iter().find(|(key, _)| !known(&here, key.get_ref()) && known(&hosts, key.get_ref())) {
        Some((key, _)) => {
            let sentence = format!("`{}` belongs to a host: write it below its [[host]]", key.get_ref());
            Err(Fault::new(sentence, key.span()))
        }
        None => Ok(()),
    }
}

/// The keys of a section, for the message about an unknown one.
fn keys<T: DeserializeOwned>() -> Vec<String> {
    let unknown = DeTable::parse("'' = 0").and_then(|table| T::deserialize(Deserializer::from(table)));
    let refusal = unknown.map(|_| String::new()).unwrap_or_else(|error| error.message().into());
    refusal.split('`').skip(3).step_by(2).map(String::from).collect()
}

type Table<'a> = (DeTable<'a>, Range<usize>);

fn fabric((mut table, span): Table<'_>) -> Result<FabricSection, Fault> {
    let mut uplinks = Vec::new();
    for (uplink, at) in tables(&mut table, "uplink")? {
        uplinks.push(remaining::<PortSection>(uplink, at, &[])?);
    }
    let name = take(&mut table, "name")?;
    // Keys first: an error about `nam` is more use than one about a missing `name`.
    let config = remaining(table, span.clone(), &["name", "uplink"])?;
    let name = name.ok_or_else(|| Fault::new("this fabric has no `name`".into(), span))?;
    Ok(FabricSection { name, uplinks, config })
}

/// A host's keys beside those of [`HostConfig`].
const HOST_KEYS: [&str; 15] = [
    "port",
    "engine",
    "mapping",
    "cores",
    "tcp",
    "thread",
    "users",
    "groups",
    "rdma",
    "rdma_raw_packets",
    "rdma_recovery",
    "rdma_paths",
    "rdma_payload",
    "rdma_congestion",
    "module",
];

fn host((mut table, span): Table<'_>) -> Result<HostSection, Fault> {
    let named = table.contains_key("name");
    let mut modules = Vec::new();
    for (module, at) in tables(&mut table, "module")? {
        modules.push(remaining::<ModuleSection>(module, at, &[])?);
    }
    let engine = take::<EngineKind>(&mut table, "engine")?.unwrap_or_default();
    let ports = ports(&mut table)?;
    let names_flows = table.contains_key("max_flows");
    let mut host = HostSection {
        modules,
        ports,
        engine,
        mapping: take(&mut table, "mapping")?.unwrap_or_default(),
        cores: take(&mut table, "cores")?.unwrap_or_default(),
        tcp: take(&mut table, "tcp")?.unwrap_or_default(),
        thread: take(&mut table, "thread")?.unwrap_or(0),
        users: take(&mut table, "users")?.unwrap_or_default(),
        groups: take(&mut table, "groups")?.unwrap_or_default(),
        rdma: take(&mut table, "rdma")?,
        rdma_raw_packets: take(&mut table, "rdma_raw_packets")?,
        rdma_recovery: take(&mut table, "rdma_recovery")?.unwrap_or_default(),
        rdma_paths: take(&mut table, "rdma_paths")?.unwrap_or_default(),
        rdma_payload: take(&mut table, "rdma_payload")?.unwrap_or_default(),
        rdma_congestion: take(&mut table, "rdma_congestion")?.unwrap_or_default(),
        stack: remaining(table, span.clone(), &HOST_KEYS)?,
    };
    if !named {
        return Err(Fault::new("this host has no `name`".into(), span));
    }
    host.rdma_paths.spray(host.rdma_recovery).map_err(|sentence| Fault::new(sentence, span.clone()))?;
    if let Some(most) = engine.most_flows().filter(|_| !names_flows) {
        host.stack.max_flows = host.stack.max_flows.min(most);
    }
    Ok(host)
}

/// The ports of a host: one section, or a list of them; by default a place in the first fabric.
fn ports(table: &mut DeTable<'_>) -> Result<Vec<PortSection>, Fault> {
    if !table.get("port").is_some_and(|value| matches!(value.get_ref(), DeValue::Array(_))) {
        return Ok(vec![take(table, "port")?.unwrap_or_default()]);
    }
    tables(table, "port")?.into_iter().map(|(port, at)| remaining(port, at, &[])).collect()
}

/// Takes an array of tables out.
fn tables<'a>(table: &mut DeTable<'a>, key: &str) -> Result<Vec<Table<'a>>, Fault> {
    let Some(value) = table.remove(key) else { return Ok(Vec::new()) };
    let at = value.span();
    let wrong = |at| Fault::new(format!("`{key}` is a list of sections: write [[{key}]]"), at);
    let DeValue::Array(entries) = value.into_inner() else { return Err(wrong(at)) };
    let table_of = |entry: Spanned<DeValue<'a>>| {
        let at = entry.span();
        match entry.into_inner() {
            DeValue::Table(table) => Ok((table, at)),
            _ => Err(wrong(at)),
        }
    };
    entries.into_iter().map(table_of).collect()
}

/// Takes one key out.
fn take<T: DeserializeOwned>(table: &mut DeTable<'_>, key: &str) -> Result<Option<T>, Fault> {
    let Some(value) = table.remove(key) else { return Ok(None) };
    let at = value.span();
    let read = T::deserialize(ValueDeserializer::from(value));
    read.map(Some).map_err(|error| {
        let mut fault = fault(&error, &[]);
        fault.message = format!("`{key}`: {}", fault.message);
        fault.at.get_or_insert(at);
        fault
    })
}

/// Deserializes the rest of a table; `others` are the keys that were taken out before.
fn remaining<'a, T: Deserialize<'a>>(table: DeTable<'a>, at: Range<usize>, others: &[&str]) -> Result<T, Fault> {
    let read = T::deserialize(Deserializer::from(Spanned::new(at.clone(), table)));
    read.map_err(|error| {
        let mut fault = fault(&error, others);
        fault.at.get_or_insert(at);
        fault
    })
}

fn fault(error: &Error, others: &[&str]) -> Fault {
    Fault { message: explain(error.message(), others), at: error.span() }
}

/// Makes of "unknown field `x`, expected one of `a`, `b`" a sentence with the nearest word.
fn explain(message: &str, others: &[&str]) -> String {
    let (what, quoted, others) = match message.strip_prefix("unknown field ") {
        Some(quoted) => ("unknown key", quoted, others),
        None => match message.strip_prefix("unknown variant ") {
            Some(quoted) => ("unknown value", quoted, [].as_slice()),
            None => return message.trim_end().replace('\n', ": "),
        },
    };
    let mut words = quoted.split('`').skip(1).step_by(2);
    let Some(unknown) = words.next() else { return message.into() };
    let known: Vec<&str> = words.chain(others.iter().copied()).collect();
    match nearest(unknown, &known) {
        Some(word) => format!("{what} `{unknown}`; did you mean `{word}`?"),
        None => format!("{what} `{unknown}`; known are {}", known.join(", ")),
    }
}

/// The known word that is most like this one, where one is.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|candidate| (strsim::jaro_winkler(word, candidate), *candidate));
    scored.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}
