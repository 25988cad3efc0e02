//! Modules that operators add to running hosts, and what the management socket answers about them (docs/MODULES.md).
//!
//! This keeps each host's list. A change makes the new list, passes it to the host whole, and is kept only where the
//! host took it. So a refusal changes nothing, and the engine changes at once and under traffic.
mod content;

use crate::build::HostPlace;
use crate::clock::Clock;
use crate::config::ModuleSection;
use crate::protocol::{NATIVE, Xdp};
use crate::splices::SpliceMaps;
use crate::views::Observer;
use content::Content;
use control::{HostConfig, SpliceTable};
use engine::{LoadedModule, ModuleFigures, ModuleId, Verdict};
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use xdp::KernelVerdict;

/// Modules on a host at most.
const MOST: usize = 32;
/// Between the positions of modules that were loaded without one.
const STEP: u32 = 10;
/// How long the answer to `unload` waits for the module to be gone from the data-path.
const GONE: Duration = Duration::from_secs(2);

/// The modules of all hosts.
pub(crate) struct Modules {
    observer: Arc<Observer>,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// Number of the next module.
    next: u32,
    /// For each host in the order of the configuration, its modules in the order in which they run.
    hosts: Vec<Vec<Seated>>,
}

/// A module in its place.
#[derive(Clone)]
struct Seated {
    name: String,
    position: u32,
    loaded: LoadedModule,
    content: Content,
    /// The kernel verifier's verdict; none for a module that is built in.
    kernel: Value,
}

/// What is to be loaded.
pub(crate) struct Wish<'a> {
    pub(crate) host: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) position: Option<u32>,
    /// A native module's name.
    pub(crate) native: Option<&'a str>,
    /// An eBPF object's bytes, where it is not a native one.
    pub(crate) object: &'a [u8],
    /// Which of the object's programs.
    pub(crate) program: Option<&'a str>,
}

/// Whether a host could run a module of its configuration.
pub(crate) fn check(section: &ModuleSection, host: &HostConfig) -> Result<(), String> {
    let (native, object) = content_of(section)?;
    native
        .map_or_else(|| Content::object(&object, section.program.as_deref(), 1), |name| Content::native(name, host))
        .map(drop)
}

/// The name of a native module, or else the bytes of the object.
fn content_of(section: &ModuleSection) -> Result<(Option<&str>, Vec<u8>), String> {
    match section.file.to_str().and_then(|file| file.strip_prefix(NATIVE)) {
        Some(native) => Ok((Some(native), Vec::new())),
        None => Ok((None, std::fs::read(&section.file).map_err(|e| format!("cannot be read: {e}"))?)),
    }
}

impl Modules {
    pub(crate) fn new(observer: Arc<Observer>) -> Modules {
        let hosts = observer.hosts().iter().map(|_| Vec::new()).collect();
        Modules { observer, lists: Mutex::new(Lists { next: 0, hosts }) }
    }

    /// Loads what the configuration names. The error is a sentence.
    pub(crate) fn load_configured(&self) -> Result<(), String> {
        for place in self.observer.hosts() {
            for section in &place.config.modules {
                let with_context =
                    |sentence| format!("host {}: module {}: {sentence}", name_of(place), section.file.display());
                let (native, object) = content_of(section).map_err(with_context)?;
                let (host, name) = (Some(name_of(place)), section.name.as_deref());
                let program = section.program.as_deref();
                let wish = Wish { host, name, position: section.position, native, object: &object, program };
                log(name_of(place), &self.load(&wish).map_err(with_context)?);
            }
        }
        Ok(())
    }

    /// Answers a question; `object` are the bytes that came with it.
    pub(crate) fn answer(&self, question: &Xdp, object: &[u8]) -> Result<Value, String> {
        match question {
            Xdp::Load { host, name, position, native, program, .. } => {
                let (host, name, native) = (host.as_deref(), name.as_deref(), native.as_deref());
                self.load(&Wish { host, name, position: *position, native, object, program: program.as_deref() })
            }
            Xdp::Ls { host } => self.ls(host.as_deref()),
            Xdp::Unload { host, module } => self.unload(host.as_deref(), module),
            Xdp::Maps { host, module } => Ok(json!(self.find(host.as_deref(), module)?.content.maps()?.list())),
            Xdp::Dump { host, module, map } => self.find(host.as_deref(), module)?.content.maps()?.dump(map),
            Xdp::Get { host, module, map, key } => self.find(host.as_deref(), module)?.content.maps()?.get(map, key),
            Xdp::Set { host, module, map, key, value } => {
                self.find(host.as_deref(), module)?.content.maps()?.set(map, key, value).map(|()| Value::Null)
            }
            Xdp::Delete { host, module, map, key } => {
                self.find(host.as_deref(), module)?.content.maps()?.delete(map, key).map(|()| Value::Null)
            }
        }
    }

    fn load(&self, wish: &Wish<'_>) -> Result<Value, String> {
        let at = self.only_host(wish.host)?;
        let place = &self.observer.hosts()[at];
        let content = match wish.native {
            Some(native) => Content::native(native, &place.config.stack)?,
            None => {
                let mapping = &place.config.mapping;
                let replicas = if mapping.threads { mapping.preprocess.max(mapping.flow_groups) } else { 1 };
                Content::object(wish.object, wish.program, replicas.into())?
            }
        };
        let name = wish.name.unwrap_or(content.source.name()).to_owned();
        let kernel = content.kernel().map_or(Value::Null, kernel_report);
        let mut lists = self.lock();
        let present = &lists.hosts[at];
        if present.iter().any(|module| module.name == name) {
            return Err(format!(
                "host {} runs a module called `{name}` already: unload it first, or load this one with --name",
                name_of(place)
            ));
        }
        let splices = content.splices();
        if splices.is_some() && present.iter().any(|module| module.content.splices().is_some()) {
            return Err(format!("host {} runs a splice module already, and needs no second one", name_of(place)));
        }
        if present.len() >= MOST {
            return Err(format!("host {} runs {MOST} modules already, which is the limit", name_of(place)));
        }
        let last = present.last().map_or(0, |module| module.position);
        let position = wish.position.unwrap_or(last.saturating_add(STEP));
        let source = Arc::clone(&content.source);
        let loaded = LoadedModule { id: ModuleId(lists.next), source, figures: Arc::default(), ticks: Clock::ticks };
        let seated = Seated { name, position, loaded, content, kernel };
        let answer = seated.json(place);
        let mut list = present.clone();
        // Behind those at the same position.
        let index = list.partition_point(|module| module.position <= position);
        list.insert(index, seated);
        self.change(place, &list)?;
        if splices.is_some() {
            self.set_splices(place, splices)?;
        }
        lists.hosts[at] = list;
        lists.next += 1;
        Ok(answer)
    }

    fn unload(&self, host: Option<&str>, module: &str) -> Result<Value, String> {
        let mut lists = self.lock();
        let (at, index) = self.search(&lists, host, module)?;
        let mut list = lists.hosts[at].clone();
        let gone = list.remove(index);
        if gone.content.splices().is_some() {
            self.set_splices(&self.observer.hosts()[at], None)?;
        }
        self.change(&self.observer.hosts()[at], &list)?;
        lists.hosts[at] = list;
        drop(lists);
        // Answered when the last replica is gone, so that the client can rely on it.
        let begin = Instant::now();
        while Arc::strong_count(&gone.loaded.figures) > 1 && begin.elapsed() < GONE {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(gone.json(&self.observer.hosts()[at]))
    }

    /// All modules, host by host in the order in which they run.
    fn ls(&self, host: Option<&str>) -> Result<Value, String> {
        let only = host.map(|host| self.only_host(Some(host))).transpose()?;
        let lists = self.lock();
        let places = self.observer.hosts().iter().enumerate().filter(|(at, _)| only.is_none_or(|only| only == *at));
        let rows = places.flat_map(|(at, place)| lists.hosts[at].iter().map(|module| module.json(place)));
        Ok(json!({ "modules": rows.collect::<Vec<_>>() }))
    }

    /// Hands the control plane of a host the maps of the splice module, or takes them away.
    fn set_splices(&self, place: &HostPlace, maps: Option<SpliceMaps>) -> Result<(), String> {
        let table = maps.map(|maps| Box::new(maps) as Box<dyn SpliceTable>);
        self.observer.at(place, move |seat| seat.host.base_mut().set_splice_table(table))
    }

    /// Hands a host its new list.
    fn change(&self, place: &HostPlace, list: &[Seated]) -> Result<(), String> {
        let modules: Vec<LoadedModule> = list.iter().map(|module| module.loaded.clone()).collect();
        self.observer.at(place, move |seat| seat.host.base_mut().set_modules(modules))?
    }

    fn find(&self, host: Option<&str>, module: &str) -> Result<Seated, String> {
        let lists = self.lock();
        let (at, index) = self.search(&lists, host, module)?;
        Ok(lists.hosts[at][index].clone())
    }

    /// The host and the place in its list of the module with this name.
    fn search(&self, lists: &Lists, host: Option<&str>, module: &str) -> Result<(usize, usize), String> {
        let only = host.map(|host| self.only_host(Some(host))).transpose()?;
        let mut found = Vec::new();
        for (at, list) in lists.hosts.iter().enumerate().filter(|(at, _)| only.is_none_or(|only| only == *at)) {
            found.extend(list.iter().position(|seated| seated.name == module).map(|index| (at, index)));
        }
        match found[..] {
            [one] => Ok(one),
            [] => Err(format!("no module is called `{module}`: opentoe xdp ls shows all")),
            _ => Err(format!("several hosts run a module called `{module}`: name one with --host")),
        }
    }

    /// The host with this name; without a name, the only one that there is.
    fn only_host(&self, name: Option<&str>) -> Result<usize, String> {
        let hosts = self.observer.hosts();
        match name {
            Some(name) => hosts
                .iter()
                .position(|place| name_of(place) == name)
                .ok_or_else(|| format!("this daemon has no host `{name}`")),
            None if hosts.len() == 1 => Ok(0),
            None => {
                let names: Vec<_> = hosts.iter().map(name_of).collect();
                Err(format!("this daemon has several hosts: name one with --host ({})", names.join(", ")))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seated {
    fn json(&self, place: &HostPlace) -> Value {
        let ModuleFigures { runs, timed, ticks, verdicts } = &*self.loaded.figures;
        let timed = timed.load(Relaxed);
        let nanos = (timed > 0).then(|| ticks.load(Relaxed) as f64 / timed as f64);
        let verdicts: serde_json::Map<String, Value> = Verdict::ALL
            .iter()
            .map(|verdict| (verdict.label().into(), verdicts[*verdict as usize].load(Relaxed).into()))
            .collect();
        json!({
            "host": name_of(place),
            "name": self.name,
            "function": self.content.source.name(),
            "kind": self.content.kind,
            "stage": self.content.source.stage().label(),
            "position": self.position,
            "whole_frames": self.content.source.whole_frames(),
            "runs": runs.load(Relaxed),
            "ns_per_frame": nanos.map(|nanos| (nanos * 10.0).round() / 10.0),
            "verdicts": verdicts,
            "faults": self.content.faults(),
            "kernel": self.kernel,
        })
    }
}

/// Logs a module that the configuration names: the log is the only reader of the kernel's report.
fn log(host: &str, module: &Value) {
    let (name, kernel) = (module["name"].as_str().unwrap_or_default(), &module["kernel"]);
    let reason = kernel["reason"].as_str().unwrap_or_default();
    match kernel["verdict"].as_str() {
        Some("accepted") => tracing::info!(host, "module {name} runs; the kernel's verifier accepts it too"),
        Some("refused") => tracing::warn!(host, "module {name} runs; the kernel's verifier would refuse it: {reason}"),
        Some(_) => tracing::info!(host, "module {name} runs; the kernel's verifier was not asked: {reason}"),
        None => tracing::info!(host, "module {name} runs"),
    }
}

/// The verdict of the kernel's verifier, and its reason.
fn kernel_report(verdict: KernelVerdict) -> Value {
    let (word, reason) = match verdict {
        KernelVerdict::Accepted => ("accepted", Value::Null),
        KernelVerdict::Refused(reason) => ("refused", reason.into()),
        KernelVerdict::NotAsked(reason) => ("not_asked", reason.into()),
    };
    json!({ "verdict": word, "reason": reason })
}

fn name_of(place: &HostPlace) -> &str {
    &place.config.stack.name
}
