//! What can be measured.
mod bulk;
pub mod fairness;
pub mod incast;
pub mod loss;
mod rpc;
