//! `libibverbs.so.1` and `librdmacm.so.1` in one file (build.rs): what the library `verbs_library` exports, and nothing
//! else.
#![no_main]

use verbs_library as _;
