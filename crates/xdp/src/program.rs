//! Program, loaded: an engine makes replicas of it, and operators read its maps.
use crate::check::{self, Facts};
use crate::maps::{self, Epochs, Map, Setting};
use crate::native::jit::{self, Code};
use crate::native::{Fault, Log, Run, Shared, interp};
use crate::object::Object;
use engine::{Changes, Front, Module, ModuleSource, Packet, Stage, Verdict};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What a program may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Instructions of one run, about: counted at the ends of loops and at calls.
    pub instructions: u64,
    /// Bytes of all its maps.
    pub map_bytes: u64,
    /// Replicas that per-CPU maps have values for; with more replicas, some share.
    pub replicas: u32,
    /// Randomness: for hash functions, and for programs that ask for random numbers.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        use std::hash::{BuildHasher, Hasher};
        let seed = std::hash::RandomState::new().build_hasher().finish();
        Limits { instructions: 100_000, map_bytes: 256 << 20, replicas: 16, seed }
    }
}

/// Runs that were ended because of what a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// By kind: `out of bounds`, `too many instructions`, `unaligned atomic operation`.
    pub counts: [(&'static str, u64); 3],
    /// Where the last one was, in a sentence.
    pub last: Option<String>,
}

/// A program that was checked, compiled, and has its maps.
pub struct Program {
    object: Object,
    facts: Arc<Facts>,
    code: Arc<Code>,
    shared: Arc<Shared>,
    replicas: u32,
}

impl Program {
    /// Checks and compiles a program and makes its maps. Errors: one sentence, with the instruction where there is one;
    /// nothing is left behind.
    pub fn load(object: Object, limits: &Limits) -> Result<Arc<Program>, String> {
        let facts = check::check(&object)?;
        let replicas = limits.replicas.max(1);
        let cost: u64 = object.maps.iter().map(|map| maps::cost(map, replicas)).fold(0, u64::saturating_add);
        if cost > limits.map_bytes {
            let (cost, most) = (cost >> 20, limits.map_bytes >> 20);
            return Err(format!("{}: its maps would take {cost} MiB, more than the limit of {most} MiB", object.name));
        }
        let epochs = Epochs::new();
        let setting = Setting { replicas, seed: limits.seed, epochs: &epochs };
        let maps = object.maps.iter().map(|map| Map::new(map.clone(), &setting)).collect::<Result<Vec<_>, _>>();
        let shared = Arc::new(Shared {
            maps: maps.map_err(|why| format!("{}: {why}", object.name))?,
            epochs,
            log: Log::default(),
            faults: Default::default(),
            last_fault: AtomicU64::new(0),
            budget: i64::try_from(limits.instructions).unwrap_or(i64::MAX),
            seed: limits.seed,
        });
        let code = jit::compile(&object, &facts, &shared)?;
        Ok(Arc::new(Program { object, facts: Arc::new(facts), code: Arc::new(code), shared, replicas }))
    }

    /// Its maps, in the order of the object.
    pub fn maps(&self) -> &[Map] {
        &self.shared.maps
    }

    /// What it was made from: code, functions, types.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Runs that were ended because of what it did.
    pub fn faults(&self) -> Faults {
        let mut counts = Fault::NAMES.map(|name| (name, 0));
        for ((_, count), fault) in counts.iter_mut().zip(&self.shared.faults) {
            *count = fault.load(Relaxed);
        }
        let last = self.shared.last_fault.load(Relaxed).checked_sub(1);
        Faults { counts, last: last.map(|at| self.object.sentence(at as usize, "ended the run")) }
    }

    /// The lines that it printed with `bpf_printk` since the last time; the latest 256.
    pub fn printed(&self) -> Vec<String> {
        self.shared.log.take()
    }

    /// A replica that is executed instruction by instruction, each access checked: slow, for finding out whether the
    /// compiled form does the same.
    pub fn interpreted(&self, index: u32) -> Box<dyn Module> {
        let program = interp::Interpreter::new(self.object.clone(), self.facts.clone());
        Box::new(Replica { program, run: Run::new(&self.shared, index, self.replicas) })
    }
}

struct Replica<P> {
    program: P,
    run: Run,
}

impl Module for Replica<Arc<Code>> {
    fn process(&mut self, packet: Packet<'_>) -> Verdict {
        self.run.run(&*self.program, packet.frame, packet.now)
    }
}

impl Module for Replica<interp::Interpreter> {
    fn process(&mut self, packet: Packet<'_>) -> Verdict {
        self.run.run(&self.program, packet.frame, packet.now)
    }
}

impl ModuleSource for Program {
    fn name(&self) -> &str {
        &self.object.name
    }
    fn stage(&self) -> Stage {
        self.object.stage
    }
    fn whole_frames(&self) -> bool {
        !self.object.frags
    }
    fn changes(&self) -> Changes {
        match self.facts.written.map(|written| (u32::try_from(written.below), u32::try_from(written.stripped))) {
            None => Changes::Nothing,
            Some((Ok(below), Ok(strips))) => Changes::Front(Front { below, strips }),
            Some(_) => Changes::Anything,
        }
    }
    fn replica(&self, index: u32) -> Box<dyn Module> {
        Box::new(Replica { program: self.code.clone(), run: Run::new(&self.shared, index, self.replicas) })
    }
}
