//! What can be measured.
pub mod block;
mod bulk;
pub mod compare;
pub mod connect;
pub mod echo;
mod extension;
pub mod extensions;
pub mod fairness;
pub mod http;
pub mod idle;
pub mod incast;
pub mod instructions;
pub mod isolation;
pub mod kv;
pub mod loss;
mod rpc;
pub mod stream;
mod window;
