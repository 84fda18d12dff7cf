//! The watchdog multiplexer, on a pretended device (wdmd.md A.9): the same cases on the original
//! wdmd 3.8.5 and on ours. Where ours differs on purpose the case says `differs` with the reason; what the
//! original does wrong by hanging or by burning the processor is bounded.
//!
//! The original is always armed with a fire timeout of 60 s. Ours is armed on request, with as little as 10 s
//! where a case waits, and programs the device shorter than that, so that pings end a while after
//! the expiry instead of before it (Timing).

mod chaos;
mod clients;
mod command_line;
mod devices;
mod expiry;
mod files;
mod hostile;
mod protocol;
mod scripts;
mod service_manager;
mod stop;
mod try_timeout;

use std::time::Duration;

use sanlock_conformance::wdmd::Timing;

/// Ours stops pinging at E + F − 2D − 1 (docs/decisions: device timeout); the original at the latest at E.
fn last_ping_allowed(program: sanlock_conformance::Program, expiry: u64, timing: Timing) -> u64 {
    program.differs(
        expiry,
        expiry + timing.fire - 2 * timing.device - 1,
        "the device itself is programmed shorter, so pings may go on after the expiry",
    )
}

/// A daemon on a loaded machine may be this late, and the log is written a moment after the call.
const SLACK: Duration = Duration::from_secs(1);
