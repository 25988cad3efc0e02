//! Machine code of a program: made by Cranelift, and called.
#![allow(unsafe_code)]

use super::context::{self, Context};
use super::function::{Helpers, Lower, Refusal};
use super::statements::Shape;
use crate::ir::{Gress, Program};
use cranelift_codegen::Context as CodegenContext;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Function, Signature};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};

/// One pass; 0 where the parser rejects the packet. A joined one: as far as it came.
type Pass = extern "C" fn(*mut Context) -> u64;

/// The machine code of both halves.
pub(super) struct Code {
    module: Option<JITModule>,
    passes: [Pass; 2],
    /// Both halves in one, where the program can be joined.
    joined: Option<Pass>,
}

// SAFETY: the module holds memory with code, which nobody changes after it is finished, and is not used but to free it.
unsafe impl Send for Code {}
// SAFETY: likewise.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the functions are reached through this object only, which goes now.
            unsafe { module.free_memory() };
        }
    }
}

impl Code {
    pub(super) fn make(program: &Program) -> Result<Code, Refusal> {
        let mut module = module()?;
        let mut half = |shape| function(&mut module, program, shape);
        let ids = [half(Shape::Half(Gress::Ingress))?, half(Shape::Half(Gress::Egress))?];
        let joined = half(Shape::Joined).ok();
        module.finalize_definitions().map_err(failed)?;
        let pass = |id: FuncId| {
            // SAFETY: the function was made with exactly this signature, and lives as long as the module.
            unsafe { std::mem::transmute::<*const u8, Pass>(module.get_finalized_function(id)) }
        };
        let (passes, joined) = (ids.map(pass), joined.map(pass));
        Ok(Code { module: Some(module), passes, joined })
    }

    /// Runs a pass. All pointers in `context` must be good for what the program does with them.
    #[inline]
    pub(super) fn run(&self, gress: Gress, context: &mut Context) -> bool {
        self.passes[(gress == Gress::Egress) as usize](context) != 0
    }

    /// Runs both halves, as far as there is joined code for the packet: ingress alone, or both ([`context::CROSSED`]).
    #[inline(always)]
    pub(super) fn run_joined(&self, context: &mut Context) -> u64 {
        match self.joined {
            Some(pass) => pass(context),
            None => self.run(Gress::Ingress, context) as u64,
        }
    }
}

fn failed(what: impl std::fmt::Display) -> Refusal {
    Refusal::new(format!("something in it ({what})"))
}

fn module() -> Result<JITModule, Refusal> {
    let mut flags = settings::builder();
    // The verifier is for mistakes of ours, which tests find: a tenth of the time that a program takes to load.
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let flags_set =
        [("opt_level", "speed"), ("is_pic", "false"), ("use_colocated_libcalls", "false"), ("enable_verifier", verify)];
    for (name, value) in flags_set {
        flags.set(name, value).map_err(failed)?;
    }
    let isa = cranelift_native::builder().map_err(failed)?.finish(settings::Flags::new(flags)).map_err(failed)?;
    let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
    builder.symbol("lookup", context::lookup as *const u8);
    builder.symbol("probe_one", context::probe_one as *const u8);
    builder.symbol("probe_two", context::probe_two as *const u8);
    builder.symbol("hash", context::hash_of as *const u8);
    builder.symbol("math", context::math as *const u8);
    builder.symbol("meter", context::meter as *const u8);
    builder.symbol("sum", context::sum as *const u8);
    Ok(JITModule::new(builder))
}

fn signature(module: &JITModule, params: usize) -> Signature {
    let mut signature = module.make_signature();
    signature.params = vec![AbiParam::new(I64); params];
    signature.returns = vec![AbiParam::new(I64)];
    signature
}

fn function(module: &mut JITModule, program: &Program, shape: Shape) -> Result<FuncId, Refusal> {
    let mut codegen = CodegenContext::new();
    codegen.func = Function::with_name_signature(Default::default(), signature(module, 1));
    let mut import = |name: &str, params: usize| {
        let signature = signature(module, params);
        let id = module.declare_function(name, Linkage::Import, &signature).map_err(failed)?;
        Ok(module.declare_func_in_func(id, &mut codegen.func))
    };
    let helpers = Helpers {
        lookup: import("lookup", 3)?,
        probe_one: import("probe_one", 2)?,
        probe_two: import("probe_two", 3)?,
        hash: import("hash", 4)?,
        math: import("math", 4)?,
        meter: import("meter", 3)?,
        sum: import("sum", 2)?,
    };
    let mut memory = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut codegen.func, &mut memory);
    Lower::function(builder, program, shape, helpers)?;
    let own = signature(module, 1);
    let id = module.declare_function(shape.name(), Linkage::Local, &own).map_err(failed)?;
    module.define_function(id, &mut codegen).map_err(|e| failed(format!("{e:?}")))?;
    Ok(id)
}
