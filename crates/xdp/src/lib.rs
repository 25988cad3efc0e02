//! Loading, checking and running eBPF/XDP modules (FlexTOE section 3.3; thesis section 4.3.3; docs/MODULES.md).
//!
//! From C to a running module: [`Object::parse`] reads what clang made and links it (`object`, `btf`, `insn`).
//! [`Program::load`] follows every way through it (`check`), makes its maps (`maps`) and compiles it (`native`). A
//! [`Program`] is an [`engine::ModuleSource`]; operators read its maps with [`Program::map`] (`manage`).
#![deny(unsafe_code)]

mod btf;
mod check;
mod helpers;
pub mod insn;
mod kernel;
mod manage;
mod maps;
mod native;
mod object;
mod program;

pub use kernel::KernelVerdict;
pub use manage::MapInfo;
pub use maps::{Map, Ring, Update};
pub use object::{Function, MapDefinition, MapKind, Object};
pub use program::{Faults, Limits, Program};
