//! An ageing lockspace and its users: renewals, failure, killing (lease-algorithms.md 10).

use crate::action::Action;
use crate::ids::{ConnId, LockspaceId};
use crate::lockspaces::push_history;
use crate::state::{Dead, LockspaceList, RenewalEntry, Work};
use crate::{DRAIN_SECS, Level, Manager, Watch, log};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::recovery::{self, Reason, Renewals, User};
use sanlock_lease::timing::MonoTime;

impl Manager {
    pub(crate) fn renewed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        timestamp: MonoTime,
        (read_ms, write_ms): (u64, u64),
        out: &mut Vec<Action>,
    ) {
        let size = self.settings.history_size;
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.last_result = 1;
        lockspace.last_attempt = now.secs();
        if lockspace.corrupt != 0 {
            return;
        }
        lockspace.last_good = lockspace.last_good.max(Some(timestamp));
        let entry =
            RenewalEntry { timestamp: timestamp.secs(), read_ms, write_ms, next_timeouts: 0, next_errors: 0 };
        push_history(lockspace, size, entry);
        self.watchdog_live(ls, timestamp, out);
    }

    pub(crate) fn renewal_failed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        code: i32,
        text: &str,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.last_result = code;
        lockspace.last_attempt = now.secs();
        if let Some(entry) = lockspace.history.back_mut() {
            if code == ReturnCode::AIO_TIMEOUT.0 {
                entry.next_timeouts = entry.next_timeouts.saturating_add(1);
            } else {
                entry.next_errors = entry.next_errors.saturating_add(1);
            }
        }
        let age = lockspace.last_good.map_or(0, |good| now.secs_since(good));
        log(
            out,
            Level::Error,
            Some(ls),
            format!("renewal failed, last good one {age} s ago: {text} ({code})"),
        );
    }

    pub(crate) fn corrupt(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        code: i32,
        text: &str,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.last_result = code;
        lockspace.last_attempt = now.secs();
        if lockspace.corrupt == 0 {
            lockspace.corrupt = code;
            log(
                out,
                Level::Error,
                Some(ls),
                format!("the host_id lease is not ours any more: {text} ({code})"),
            );
        }
        self.check(now, ls, out);
    }

    /// Looks at every joined lockspace's age, and does what it demands.
    pub(crate) fn check_lockspaces(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let all: Vec<LockspaceId> = self.lockspaces.keys().copied().collect();
        for ls in all {
            self.check(now, ls, out);
        }
    }

    /// The same for those that are at their end: any event may have been what it waited for.
    pub(crate) fn check_ending(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let ending: Vec<LockspaceId> = self
            .lockspaces
            .iter()
            .filter(|(_, ls)| ls.remove || ls.dead.is_some())
            .map(|(id, _)| *id)
            .collect();
        for ls in ending {
            self.check(now, ls, out);
        }
    }

    /// Carries out what [`recovery::decide`] says of a joined lockspace. From "stop the renewals" on its thread does the rest.
    pub(crate) fn check(&mut self, now: MonoTime, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        if lockspace.list != LockspaceList::Spaces {
            return;
        }
        let age = lockspace.last_good.map_or(0, |good| now.secs_since(good));
        let lost = lockspace.watch == Watch::Lost;
        let failed = lockspace.corrupt != 0 || lost || age >= lockspace.io_timeout.renewal_fail_secs();
        let ending = failed || lockspace.remove || lockspace.dead.is_some();
        // Who uses it matters only then.
        let used = ending && self.has_users(ls);
        let writes_outstanding = ending && self.awaits_writes(now, ls, used);
        let users = if ending { self.users(ls) } else { Vec::new() };
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        let seen = recovery::Lockspace {
            io_timeout: lockspace.io_timeout,
            grace_secs: self.settings.kill_grace_secs,
            last_good: lockspace.last_good.unwrap_or(now),
            corrupt: match lockspace.corrupt {
                0 => lost.then_some(ReturnCode::WD_ERROR),
                code => Some(ReturnCode(code)),
            },
            removal: lockspace.remove,
            held: used,
            writes_outstanding,
            renewals: Renewals::Running,
            progress: lockspace.progress,
        };
        let decision = recovery::decide(now, &seen, &users);
        lockspace.progress = decision.progress;
        for action in decision.actions {
            self.carry_out(now, ls, action, out);
        }
    }

    fn carry_out(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        action: recovery::Action<ConnId>,
        out: &mut Vec<Action>,
    ) {
        let name = self.lockspaces.get(&ls).map_or_else(Name::default, |ls| ls.spec.name);
        match action {
            recovery::Action::Warn { age, left } => {
                let text = format!("no renewal of {name} for {age} s, its users are stopped in {left} s");
                log(out, Level::Error, Some(ls), text);
            }
            recovery::Action::Fail(reason) => {
                let (dead, text) = match reason {
                    Reason::Corrupt(ReturnCode::WD_ERROR) => {
                        (Dead::Failed, "has failed: wdmd was lost".to_owned())
                    }
                    Reason::Corrupt(code) => (Dead::Failed, format!("has failed: corrupt ({})", code.0)),
                    Reason::Age(age) => (Dead::Failed, format!("has failed: no renewal for {age} s")),
                    Reason::Removal => (Dead::Removed, "is removed".to_owned()),
                };
                let level = if dead == Dead::Failed { Level::Error } else { Level::Warning };
                self.mark_dead(ls, dead, out);
                log(out, level, Some(ls), format!("lockspace {name} {text}; its users are stopped"));
            }
            recovery::Action::Signal { user, signal, attempt } => {
                let Some(client) = self.conns.get_mut(&user) else { return };
                client.kill_count = client.kill_count.saturating_add(1);
                client.kill_last = Some(now);
                let pid = client.pid.unwrap_or(0);
                log(out, Level::Error, Some(ls), format!("kill {pid} sig {signal:?} count {attempt}"));
                out.push(Action::Kill { conn: user, pid, signal });
            }
            recovery::Action::Stuck { users } => {
                if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
                    lockspace.killing = 2;
                }
                let text = format!("killing pids stuck: {users} have had 100 signals and still hold leases");
                log(out, Level::Error, Some(ls), text);
            }
            recovery::Action::StopRenewals => self.leave(now, ls, out),
            // Left to the lockspace's thread: for this check the renewals go on for ever.
            recovery::Action::Release | recovery::Action::Remove => {}
        }
    }

    /// Whether a process holds anything in the lockspace, or an acquire in it still runs. What is acquired but not granted is
    /// nobody's: it is dropped when the lockspace ends, and its request fails.
    pub(crate) fn has_users(&self, ls: LockspaceId) -> bool {
        self.resources.values().any(|r| {
            r.ls == ls && matches!(r.work, Work::Acquiring { .. } | Work::Held { granted: true, .. })
        })
    }

    /// Whether a dead lockspace without users is to wait for writes (rule R3): the host_id must not look free before they have
    /// landed. Without a watchdog not for ever: with its host_id unreleased it may go. With one the wait has no end but theirs, or a
    /// reset: as long as renewals go on nobody takes over, and when they stop the watchdog covers the writes.
    fn awaits_writes(&mut self, now: MonoTime, ls: LockspaceId, used: bool) -> bool {
        let tasks = self.has_tasks(ls);
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return false };
        if used || !tasks || lockspace.dead.is_none() {
            return tasks;
        }
        let since = *lockspace.drained_since.get_or_insert(now);
        lockspace.watch != Watch::Off || now.secs_since(since) < DRAIN_SECS
    }

    fn users(&self, ls: LockspaceId) -> Vec<User<ConnId>> {
        self.conns
            .iter()
            .filter(|(_, c)| c.held().any(|id| self.resources.get(&id).is_some_and(|r| r.ls == ls)))
            .map(|(id, c)| User {
                key: *id,
                connection_open: !c.closed,
                process_alive: !c.pid_gone && c.pid.is_some_and(|pid| pid > 1),
                attempts: c.kill_count,
                last_attempt: c.kill_last,
            })
            .collect()
    }
}
