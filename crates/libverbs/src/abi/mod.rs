//! The structures of `infiniband/verbs.h` and `rdma/rdma_cma.h` (rdma-core 44), as far as programs and this library
//! share them. Names and meanings are those headers'; a test compares sizes and offsets with the headers that are
//! installed.
mod connections;
mod device;
mod objects;
mod work;

pub(crate) use connections::*;
pub(crate) use device::*;
pub(crate) use objects::*;
pub(crate) use work::*;

#[cfg(test)]
mod layout;
