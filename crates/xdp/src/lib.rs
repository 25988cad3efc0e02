//! Loading, checking and running eBPF/XDP modules (FlexTOE section 3.3; thesis section 4.3.3; docs/MODULES.md).
//!
//! From C to a running module: [`Object::parse`] reads what clang made and links it (`object`, `btf`, `insn`);
//! [`Program::load`] follows every way through it (`check`), makes its maps (`maps`) and compiles it (`native`). A
//! [`Program`] is an [`engine::ModuleSource`]; people look into its maps with [`Program::map`] (`manage`).
#![deny(unsafe_code)]

mod btf;
mod check;
mod helpers;
mod insn;
mod maps;
mod object;

pub use object::{MapDefinition, MapKind, Object};
