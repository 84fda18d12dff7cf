//! Small safe wrappers of system calls.

pub mod accept;
pub mod background;
pub mod capability;
pub mod child;
pub mod clock;
pub mod credentials;
pub mod fdpass;
pub mod heap;
pub mod kernel;
pub mod notify;
pub mod output;
pub mod pidfd;
pub mod pidfile;
pub mod priority;
pub mod process;
pub mod reclaim;
pub mod sigpipe;
pub mod terminal;
pub mod thread;
pub mod watchdog;
