//! Content of a loaded module: code, and maps that an operator may read and change.
use crate::splices::SpliceMaps;
use control::HostConfig;
use engine::{FlowId, ModuleSource};
use flextoe::native::{Classifier, Meter};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use xdp::{KernelVerdict, Limits, Object, Program};

/// Code and maps of one module.
#[derive(Clone)]
pub(super) struct Content {
    /// `ebpf` or `native`.
    pub(super) kind: &'static str,
    pub(super) source: Arc<dyn ModuleSource>,
    maps: Option<Arc<dyn Maps>>,
}

/// What a module shares with its operator. Keys and values are texts; errors are sentences, and change nothing.
pub(super) trait Maps: Send + Sync {
    /// Name, type and sizes of each.
    fn list(&self) -> Value;
    /// All entries of one: `[{"key": ..., "value": ...}]`.
    fn dump(&self, map: &str) -> Result<Value, String>;
    /// One entry's value.
    fn get(&self, map: &str, key: &str) -> Result<Value, String>;
    /// Adds or replaces an entry.
    fn set(&self, map: &str, key: &str, value: &str) -> Result<(), String>;
    /// Removes an entry.
    fn delete(&self, map: &str, key: &str) -> Result<(), String>;
    /// Why the module failed at run time, and how often.
    fn faults(&self) -> Map<String, Value> {
        Map::new()
    }
    /// The kernel verifier's verdict.
    fn kernel(&self) -> Option<KernelVerdict> {
        None
    }
    /// Those of the splice module, if it is that one.
    fn splices(self: Arc<Self>) -> Option<SpliceMaps> {
        None
    }
}

impl Content {
    /// A module that is built in.
    pub(super) fn native(name: &str, host: &HostConfig) -> Result<Content, String> {
        match name {
            "classifier" => Ok(Content { kind: "native", source: Arc::new(Classifier), maps: None }),
            "meter" => {
                let meter = Arc::new(Meter::new(host.max_flows));
                let maps = Arc::new(Flows(Arc::clone(&meter), host.max_flows));
                Ok(Content { kind: "native", source: meter, maps: Some(maps) })
            }
            _ => Err(format!("no native module is called `{name}`: there are classifier and meter")),
        }
    }

    /// A program of an eBPF object, checked and compiled for a host with so many replicas of a stage.
    pub(super) fn object(bytes: &[u8], program: Option<&str>, replicas: u32) -> Result<Content, String> {
        let program = Program::load(Object::parse_program(bytes, program)?, &Limits { replicas, ..Limits::default() })?;
        Ok(Content { kind: "ebpf", source: Arc::clone(&program) as _, maps: Some(program) })
    }

    /// Its maps, where it has any.
    pub(super) fn maps(&self) -> Result<&dyn Maps, String> {
        self.maps.as_deref().ok_or_else(|| format!("module {} has no maps", self.source.name()))
    }

    /// The kernel verifier's verdict on an object; none for a module that is built in.
    pub(super) fn kernel(&self) -> Option<KernelVerdict> {
        self.maps.as_ref()?.kernel()
    }

    /// What the control plane splices with, if this is the splice module.
    pub(super) fn splices(&self) -> Option<SpliceMaps> {
        self.maps.clone()?.splices()
    }

    /// Why it failed at run time, and how often.
    pub(super) fn faults(&self) -> Map<String, Value> {
        self.maps.as_ref().map(|maps| maps.faults()).unwrap_or_default()
    }
}

impl Maps for Program {
    fn list(&self) -> Value {
        let info = |map: xdp::MapInfo| {
            json!({
                "name": map.name,
                "type": map.kind,
                "key_size": map.key_size,
                "value_size": map.value_size,
                "entries": map.entries,
                "max_entries": map.max_entries,
            })
        };
        self.map_infos().into_iter().map(info).collect()
    }

    fn dump(&self, map: &str) -> Result<Value, String> {
        self.dump(map)
    }

    fn get(&self, map: &str, key: &str) -> Result<Value, String> {
        self.get(map, key)
    }

    fn set(&self, map: &str, key: &str, value: &str) -> Result<(), String> {
        self.set(map, key, value)
    }

    fn delete(&self, map: &str, key: &str) -> Result<(), String> {
        self.delete(map, key)
    }

    fn kernel(&self) -> Option<KernelVerdict> {
        Some(KernelVerdict::ask(self.object()))
    }

    fn splices(self: Arc<Self>) -> Option<SpliceMaps> {
        SpliceMaps::of(&self)
    }

    fn faults(&self) -> Map<String, Value> {
        let faults = self.faults();
        let counts = faults.counts.iter().filter(|(_, count)| *count > 0);
        counts.map(|(fault, count)| ((*fault).into(), (*count).into())).collect()
    }
}

/// What a meter counted, as a map that is only read.
struct Flows(Arc<Meter>, u32);

impl Flows {
    fn value(&self, flow: u32) -> Value {
        let metered = self.0.read(FlowId(flow));
        let [other, empty, small, large] = metered.classes;
        json!({
            "segments": metered.segments,
            "bytes": metered.bytes,
            "classes": { "other": other, "empty": empty, "small": small, "large": large },
        })
    }

    fn check(&self, map: &str) -> Result<(), String> {
        if map == "flows" { Ok(()) } else { Err(format!("module meter has no map `{map}`: it has flows")) }
    }
}

impl Maps for Flows {
    fn list(&self) -> Value {
        json!([{ "name": "flows", "type": "array", "entries": self.1, "max_entries": self.1 }])
    }

    fn dump(&self, map: &str) -> Result<Value, String> {
        self.check(map)?;
        let seen = (0..self.1).filter(|flow| self.0.read(FlowId(*flow)).segments > 0);
        Ok(seen.map(|flow| json!({ "key": flow, "value": self.value(flow) })).collect())
    }

    fn get(&self, map: &str, key: &str) -> Result<Value, String> {
        self.check(map)?;
        let flow = key.parse().ok().filter(|flow| *flow < self.1);
        flow.map(|flow| self.value(flow)).ok_or_else(|| format!("`{key}` is no flow's number below {}", self.1))
    }

    fn set(&self, map: &str, _key: &str, _value: &str) -> Result<(), String> {
        self.check(map)?;
        Err("map flows of module meter can only be read".into())
    }

    fn delete(&self, map: &str, key: &str) -> Result<(), String> {
        self.set(map, key, "")
    }
}
