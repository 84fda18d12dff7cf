//! Small safe wrappers of system calls.

pub mod clock;
