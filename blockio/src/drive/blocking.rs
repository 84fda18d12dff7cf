//! One machine, one thread that waits for it: the driver of one-shot tools.

use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use sanlock_lease::machine::{Env, Machine};
use sanlock_lease::timing::MonoTime;

use super::event::Driver;
use super::report::{EnvSource, Report};
use super::{Areas, monotonic_now};
use crate::blocking::poll_for;
use crate::engine::EngineKind;
use crate::error::EngineError;

/// How often the environment is looked at while a machine waits.
const ENV_POLL: Duration = Duration::from_secs(1);

/// A machine that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished<O> {
    /// The result.
    pub outcome: O,
    /// Writes that may still land.
    pub outstanding: u32,
}

struct OneEnv<F>(F);

impl<'a, F: Fn(MonoTime) -> Env<'a>> EnvSource<()> for OneEnv<F> {
    fn with_env<R>(&self, _tag: &(), now: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R {
        step(&(self.0)(now))
    }
}

/// Runs `machine` to its end on the calling thread, over real disks and the monotonic clock.
///
/// `env` is asked before every step. Returns when the machine is done, which its own deadlines bound; never waits for
/// writes that are outstanding then.
///
/// # Errors
/// [`EngineError`] when no engine can be had.
pub fn run_blocking<'a, M: Machine>(
    kind: EngineKind,
    machine: M,
    areas: Areas,
    env: impl Fn(MonoTime) -> Env<'a>,
) -> Result<Finished<M::Outcome>, EngineError> {
    let env = OneEnv(env);
    let mut driver = Driver::new(kind)?;
    let mut reports = Vec::new();
    // A new driver has room for one machine.
    let _started = driver.start(monotonic_now(), machine, (), areas, &env, &mut reports);
    loop {
        for report in reports.drain(..) {
            if let Report::Done { outcome, outstanding, .. } = report {
                return Ok(Finished { outcome, outstanding });
            }
        }
        let now = monotonic_now();
        let wait = driver
            .next_wake()
            .map_or(ENV_POLL, |wake| Duration::from_millis(wake.millis_since(now)).min(ENV_POLL));
        let mut fds = [PollFd::new(driver.completion_fd(), PollFlags::POLLIN)];
        // An error of poll is no reason to stop: deadlines are looked at in any case.
        if poll_for(&mut fds, wait).is_err() {
            std::thread::sleep(wait.min(Duration::from_millis(10)));
        }
        driver.poll(monotonic_now, &env, &mut reports);
    }
}
