//! `wdmd`: owns a watchdog device, and keeps it from resetting this host as long as all its clients and scripts are well.
//!
//! The library of this package decides; this program carries out: command line, device, socket, scripts, log.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod conn;
mod device;
mod dump;
#[cfg(test)]
mod hung;
mod log;
mod marker;
mod next;
mod poller;
mod probe;
mod say;
mod scripts;
mod server;
mod signals;
mod start;
mod sysfs;

use cli::Command;
use nix::sys::signal::SigSet;
use sanlock_sys::child::keep_until_waited_for;
use std::io::Write as _;
use std::process::ExitCode;

/// Exit status of a command line that is not understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // Where that is refused, scripts fail as they would have.
    let _ = keep_until_waited_for();
    // Whoever starts this may have signals blocked: those that end it or have it look for scripts would wait for ever, and scripts would
    // have them blocked too. Threads and programs inherit it from here.
    let _ = SigSet::empty().thread_set_mask();
    let command = match cli::parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(text) if text == cli::FORCE_FIRE_ALONE => {
            say::err(text);
            return ExitCode::from(1);
        }
        Err(text) => {
            say::err(format_args!("wdmd: {text}"));
            return ExitCode::from(USAGE);
        }
    };
    ExitCode::from(match command {
        Command::Print(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => 0,
            Err(error) => {
                say::err(format_args!("wdmd: cannot print: {error}"));
                1
            }
        },
        Command::Dump => dump::print(),
        Command::Probe(options) => probe::probe(options.device.as_deref()),
        Command::TryTimeout { options, timeout, force_fire } => {
            probe::try_timeout(options.device.as_deref(), timeout, force_fire)
        }
        Command::Daemon(options) => start::run(&options),
    })
}
