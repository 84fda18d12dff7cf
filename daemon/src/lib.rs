//! The lock manager as a process: sockets, timers, threads and logs around the bookkeeping of `sanlock-manager`.
//!
//! | Thread | Work |
//! |---|---|
//! | front | accepts, reads requests, answers what needs no disk, watches processes, ticks; owns the manager |
//! | one per lockspace, and a stand-by | joins, renews, looks at the other hosts, leaves |
//! | resources, and a stand-by | runs every acquire, release and retract as a step machine |
//! | tools, a few | one-shot commands: align, read, write |
//! | records | writes rejoin records |
//! | wd | keeps the connections to wdmd and moves its expiries |
//! | hire | starts threads for the front |
//! | log | writes to file, syslog and stderr |
//! | on-fail | looks, once at the start, at the programs that `on_fail` names |
//!
//! A panic in any of them is a fault of this program and ends all of it at once.
//!
//! Besides, a child process that was forked first sends the signals.
//!
//! Threads share snapshots and mailboxes; no lock is held across I/O. Every limit is a named constant beside its user.

pub mod conf;
pub mod config;
mod crew;
mod fault;
mod front;
mod global;
mod helper;
mod hirer;
mod lockspace;
pub mod log;
mod mailbox;
mod nap;
pub mod oneshot;
mod records;
mod resources;
mod start;
mod tools;
mod watchdog;

pub use start::{PID_FILE_NAME, SOCKET_NAME, StartError, run};
