//! What to do as a lockspace ages, fails or is removed (lease-algorithms.md 9.3, 10): a pure function of the time and of plain
//! data. Whoever calls it carries out the actions, keeps the [`Progress`] it returns and notes the signals in the users; then
//! calls again, every second, five times a second while users are being stopped, and whenever something changed.
//!
//! What it keeps safe (lease-algorithms.md 13.4, S6): from 8T after the last good renewal, or from the first look at a lease that
//! is not ours any more, nothing is granted and the users are being stopped. The host id is given up only when nobody can act
//! in its name: every connection closed, *and* every process gone (W21), and no write outstanding (rule R3).
//!
//! It allocates nothing: the caller's list of actions has room for [`actions_max`] of them.

use crate::code::ReturnCode;
use crate::timing::{IoTimeout, MonoTime};

/// Attempts on one process after which further ones come at the slow pace (lease-algorithms.md 10.2; W36).
pub const KILL_ATTEMPTS_MAX: u32 = 100;
/// Seconds between attempts at the slow pace.
pub const KILL_SLOW_SECS: u64 = 10;
/// Seconds of gentle killing unless configured.
pub const GRACE_SECS_DEFAULT: u64 = 40;
/// How much of the time without renewal is used up when that is told, in percent.
pub const NOTICE_PERCENT: [u8; 3] = [50, 75, 90];

/// How far the end of a lockspace has come. It never goes back, even if a renewal succeeds again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Stage {
    /// Joined and renewing.
    #[default]
    Alive,
    /// Dead: nothing is granted, users are being stopped. Renewals go on, so that nobody takes the host id meanwhile.
    Killing,
    /// No users left: renewals are to stop.
    Stopping,
    /// The host id is being released.
    Releasing,
    /// Nothing of it is left.
    Removed,
}

/// What earlier decisions left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// The second of the last warning, if there was one since the last good renewal.
    pub warned: Option<u64>,
    /// The largest of [`NOTICE_PERCENT`] told since the last good renewal, 0 for none.
    pub noticed: u8,
    /// Whether it was told that killing gets nowhere.
    pub stuck_told: bool,
}

/// What the thread, or machine, that renews the lease is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewals {
    /// They go on, or an attempt is still running.
    Running,
    /// None will be started any more. `releasable`: the last one succeeded and no write is outstanding
    /// ([`crate::delta::Renewal::release`] gives a machine).
    Stopped {
        /// Whether the lease may be freed.
        releasable: bool,
    },
    /// The release was tried; it succeeded or not.
    ReleaseTried,
}

/// A joined lockspace, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lockspace {
    /// Our io timeout in it.
    pub io_timeout: IoTimeout,
    /// Seconds of gentle killing after the failure.
    pub grace_secs: u64,
    /// When the gentle time ends in any case: the watchdog will fire sooner than usual.
    pub hard_from: Option<MonoTime>,
    /// The last good renewal.
    pub last_good: MonoTime,
    /// The code of the contents that were not ours, if that was seen.
    pub corrupt: Option<ReturnCode>,
    /// Removal was requested, or the daemon is shutting down by force.
    pub removal: bool,
    /// Something that cannot be killed uses it: USED is set, or USED_BY_ORPHANS with orphans present.
    pub held: bool,
    /// Resource writes in its name that timed out and may still land.
    pub writes_outstanding: bool,
    /// Its renewals.
    pub renewals: Renewals,
    /// From the last decision.
    pub progress: Progress,
}

/// A process that holds leases of the lockspace, or did when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct User<K> {
    /// Who it is.
    pub key: K,
    /// Whether a copy of its connection is still open. A descendant may hold one, and still use the disk.
    pub connection_open: bool,
    /// Whether the process is still there. Without it there is nobody to signal, but its killpath program is run.
    pub process_alive: bool,
    /// Attempts made since it last held nothing.
    pub attempts: u32,
    /// When the last one was made.
    pub last_attempt: Option<MonoTime>,
    /// Whether the last one was made after a gentle time, or at a removal.
    pub hard: bool,
    /// What it asked not to be sent.
    pub restrictions: Restrictions,
    /// Its killpath program.
    pub killpath: Killpath,
}

/// Signals that a process asked not to be sent (socket-protocol.md 7.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Restrictions {
    /// Not SIGKILL.
    pub kill: bool,
    /// Not SIGTERM.
    pub term: bool,
}

impl Restrictions {
    /// The signal to send instead. Somebody has to end a process that wants neither: with both set SIGKILL stays.
    #[must_use]
    pub fn apply(self, signal: Signal) -> Signal {
        let signal = if signal == Signal::Kill && self.kill { Signal::Term } else { signal };
        if signal == Signal::Term && self.term { Signal::Kill } else { signal }
    }
}

/// The program that a process wants run instead of SIGTERM (socket-protocol.md 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Killpath {
    /// There is none.
    #[default]
    None,
    /// It is to be run.
    Wanted,
    /// It was run since the process last held nothing; that is not done twice.
    Run,
}

impl<K> User<K> {
    fn gone(&self) -> bool {
        !self.connection_open && !self.process_alive
    }

    /// Notes that an attempt was made.
    pub fn attempted(&mut self, now: MonoTime, means: Means, hard: bool) {
        self.attempts = self.attempts.saturating_add(1);
        self.last_attempt = Some(now);
        self.hard = hard;
        if means == Means::Killpath {
            self.killpath = Killpath::Run;
        }
    }

    /// Whether it is time for another attempt. The first hard one waits for nothing: neither for the second to pass nor for the
    /// slow pace, and whatever another, still gentle lockspace of the same process has just done.
    fn due(&self, now: MonoTime, hard: bool) -> bool {
        let Some(last) = self.last_attempt else { return true };
        if hard && !self.hard {
            return true;
        }
        let slow = self.hard && self.attempts >= KILL_ATTEMPTS_MAX;
        now.secs() >= last.secs() + if slow { KILL_SLOW_SECS } else { 1 }
    }
}

/// A signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// What an attempt on a process consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Means {
    /// A signal.
    Signal(Signal),
    /// Its killpath program is to be started.
    Killpath,
    /// Its killpath program was started earlier and has its time: nothing is sent.
    Patience,
}

/// Why a lockspace is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its lease is not ours any more.
    Corrupt(ReturnCode),
    /// The last good renewal is this many seconds old.
    Age(u64),
    /// Its removal was requested.
    Removal,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action<K> {
    /// Say that renewals fail.
    Warn {
        /// Age of the last good renewal in seconds.
        age: u64,
        /// Seconds until the lockspace fails.
        left: u64,
    },
    /// Say, once per level and good renewal, how much of the time is used up and who will be stopped.
    Notice {
        /// One of [`NOTICE_PERCENT`].
        percent: u8,
        /// Age of the last good renewal in seconds.
        age: u64,
        /// Seconds until the lockspace fails.
        left: u64,
    },
    /// Mark the lockspace dead, before anything else is done: nothing is granted in it any more, and a watchdog that it kept
    /// quiet is not kept quiet any longer.
    Fail(Reason),
    /// Make an attempt on a process, and note it with [`User::attempted`].
    Attempt {
        /// Which.
        user: K,
        /// With what.
        means: Means,
        /// Whether the gentle time is over.
        hard: bool,
        /// The how many-th time.
        attempt: u32,
    },
    /// Say that killing gets nowhere, once. It goes on at a slower pace.
    Stuck {
        /// Users left.
        users: usize,
    },
    /// End the renewals: start no further attempt.
    StopRenewals,
    /// Free the host id.
    Release,
    /// Forget the lockspace.
    Remove,
}

/// The most actions that one decision about a lockspace with so many users comes to.
#[must_use]
pub const fn actions_max(users: usize) -> usize {
    // Fail, or Warn and Notice; Stuck; StopRenewals, Release.
    users + 4
}

/// What to do now: appended to `actions`, in the order in which it is to be done. Returns what is to be kept for the next
/// decision.
#[must_use]
pub fn decide<K: Copy>(
    now: MonoTime,
    lockspace: &Lockspace,
    users: &[User<K>],
    actions: &mut Vec<Action<K>>,
) -> Progress {
    let mut progress = lockspace.progress;
    if progress.stage == Stage::Alive {
        check(now, lockspace, &mut progress, actions);
    }
    if progress.stage == Stage::Killing {
        let anybody = users.iter().any(|u| !u.gone());
        if !anybody && !lockspace.held && !lockspace.writes_outstanding {
            actions.push(Action::StopRenewals);
            progress.stage = Stage::Stopping;
        } else {
            kill(now, lockspace, users, &mut progress, actions);
        }
    }
    match (progress.stage, lockspace.renewals) {
        (Stage::Stopping, Renewals::Stopped { releasable: true }) if lockspace.corrupt.is_none() => {
            actions.push(Action::Release);
            progress.stage = Stage::Releasing;
        }
        (Stage::Stopping, Renewals::Stopped { .. } | Renewals::ReleaseTried)
        | (Stage::Releasing, Renewals::ReleaseTried) => {
            actions.push(Action::Remove);
            progress.stage = Stage::Removed;
        }
        _ => {}
    }
    progress
}

/// The check of lease-algorithms.md 10.1.
fn check<K>(now: MonoTime, lockspace: &Lockspace, progress: &mut Progress, actions: &mut Vec<Action<K>>) {
    let age = now.secs_since(lockspace.last_good);
    let fail = lockspace.io_timeout.renewal_fail_secs();
    let reason = match lockspace.corrupt {
        Some(code) => Some(Reason::Corrupt(code)),
        None if age >= fail => Some(Reason::Age(age)),
        None => lockspace.removal.then_some(Reason::Removal),
    };
    if let Some(reason) = reason {
        actions.push(Action::Fail(reason));
        progress.stage = Stage::Killing;
        return;
    }
    if age < lockspace.io_timeout.renewal_warn_secs() {
        progress.warned = None;
    } else if progress.warned != Some(now.secs()) {
        actions.push(Action::Warn { age, left: fail - age });
        progress.warned = Some(now.secs());
    }
    let used = now.millis_since(lockspace.last_good).saturating_mul(100) / (fail * 1000);
    let level = NOTICE_PERCENT.into_iter().filter(|percent| u64::from(*percent) <= used).max().unwrap_or(0);
    if level > progress.noticed {
        actions.push(Action::Notice { percent: level, age, left: fail - age });
    }
    progress.noticed = level;
}

/// One killing pass (lease-algorithms.md 10.2).
fn kill<K: Copy>(
    now: MonoTime,
    lockspace: &Lockspace,
    users: &[User<K>],
    progress: &mut Progress,
    actions: &mut Vec<Action<K>>,
) {
    // A good renewal in between moves this, which lengthens the gentle time, but not for ever: who has not ended after as many gentle
    // attempts as there are at all is ended by force. It will not be joined again while anybody holds something in it.
    let gentle = lockspace.io_timeout.renewal_fail_secs() + lockspace.grace_secs;
    let hard = lockspace.removal
        || now.secs_since(lockspace.last_good) >= gentle
        || lockspace.hard_from.is_some_and(|from| from <= now);
    let is_hard = |u: &User<K>| hard || u.attempts >= KILL_ATTEMPTS_MAX;
    for user in users.iter().filter(|u| !u.gone() && u.due(now, is_hard(u))) {
        let hard = is_hard(user);
        let means = match user.killpath {
            // It may stop what has inherited the connection of a process that has ended, too.
            Killpath::Wanted if !hard && lockspace.grace_secs > 0 => Means::Killpath,
            _ if !user.process_alive => continue,
            _ if hard => Means::Signal(user.restrictions.apply(Signal::Kill)),
            Killpath::Run => Means::Patience,
            _ => Means::Signal(user.restrictions.apply(Signal::Term)),
        };
        let attempt = user.attempts.saturating_add(1);
        actions.push(Action::Attempt { user: user.key, means, hard, attempt });
    }
    let left = || users.iter().filter(|u| !u.gone());
    let stuck = left().next().is_some() && left().all(|u| u.attempts >= KILL_ATTEMPTS_MAX);
    if stuck && !progress.stuck_told {
        actions.push(Action::Stuck { users: left().count() });
        progress.stuck_told = true;
    }
}

#[cfg(test)]
mod tests;
