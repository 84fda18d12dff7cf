//! The lock manager as a process.

pub mod conf;
pub mod config;
pub mod log;
pub mod oneshot;
