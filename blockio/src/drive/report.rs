//! What a driver and its owner tell each other.

use sanlock_lease::machine::Env;
use sanlock_lease::timing::MonoTime;

/// Names one machine of one driver; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u64);

/// Which calls the owner of a driver can make itself. **They may block.**
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// None: what no thread is to be had for ends with `EAGAIN`, unless there are threads that may come back to it.
    Nothing,
    /// One of this machine, if no thread is to be had for it: the owner has nobody who goes on if the call hangs, but this machine is
    /// worth that. Of the others it is as with [`Spare::Nothing`].
    Only(RunId),
    /// Any, if no thread is to be had for it: somebody goes on soon if the call hangs.
    LastResort,
    /// Also the only call there is to make, which saves two changes of threads.
    Alone,
}

/// Knows what each machine may know of its host. Asked before every step, so the answer is never older than the step.
pub trait EnvSource<T> {
    /// Calls `step` once with the environment of the machine that was started with `tag`.
    fn with_env<R>(&self, tag: &T, now: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R;
}

/// What became of a machine.
#[derive(Debug)]
pub enum Report<T, O> {
    /// It is done.
    Done {
        /// Which.
        run: RunId,
        /// As given to `start`.
        tag: T,
        /// The result.
        outcome: O,
        /// Its writes that may still land. If not 0, [`Report::Settled`] follows when the last one has, if ever.
        outstanding: u32,
    },
    /// No write of a machine that was reported done may land any more.
    Settled {
        /// Which.
        run: RunId,
    },
}
