//! `sanlock demo`: two daemons as two hosts on one scratch lease file, from the first join to the take-over of a dead host's
//! lease. It starts the same program that it is part of and uses only its public commands.

mod cleanup;
mod host;
mod storage;
mod story;
mod taken;

use crate::cli::command::DemoArgs;
use crate::output::{note, print};
use sanlock_sys::child::keep_until_waited_for;
use std::fmt;
use std::time::Instant;

/// The io timeout of the demo, in seconds; joins take three of them.
const IO_TIMEOUT: &str = "1";

/// The demo's names, by which what it has left on a device is known again.
const LOCKSPACE: &str = "demo";
const RESOURCE: &str = "disk1";

/// Which step failed, and why.
#[derive(Debug)]
struct StepFailed {
    step: &'static str,
    reason: String,
}

impl fmt::Display for StepFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step \"{}\" failed: {}", self.step, self.reason)
    }
}

/// Prints what happens, each line with the seconds since the start.
struct Narrator {
    started: Instant,
}

impl Narrator {
    fn say(&self, text: impl fmt::Display) {
        print(format!("{:7.2} s  {text}\n", self.started.elapsed().as_secs_f64()));
    }

    fn detail(&self, text: impl fmt::Display) {
        print(format!("           | {text}\n"));
    }
}

/// Runs the demo. Returns the exit status.
pub(crate) fn run(args: &DemoArgs) -> i32 {
    // Where that is refused, a step fails that waits for a command.
    let _ = keep_until_waited_for();
    let narrator = Narrator { started: Instant::now() };
    let signalled = match cleanup::watch_signals() {
        Ok(signalled) => signalled,
        Err(error) => {
            note("demo", &format!("cannot wait for signals, which would leave everything behind: {error}"));
            return 1;
        }
    };
    let told = story::tell(args, &narrator);
    signalled.leave_the_end_to_it();
    match told {
        Ok(()) => {
            narrator.say("done: every step did what it should");
            0
        }
        Err(e) => {
            note("demo", &e.to_string());
            1
        }
    }
}
