//! An ageing lockspace and its users: renewals, failure, killing (lease-algorithms.md 10).

use crate::action::{Action, Signal};
use crate::ids::{ConnId, LockspaceId};
use crate::lockspaces::push_history;
use crate::state::{Conn, Dead, LockspaceList, RenewalEntry, ResourceList};
use crate::{KILL_COUNT_MAX, Level, Manager, log};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::timing::MonoTime;

impl Manager {
    pub(crate) fn renewed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        timestamp: MonoTime,
        (read_ms, write_ms): (u64, u64),
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
        self.check_lockspaces(now, out);
    }

    /// Looks at every joined lockspace's age, and does what it demands.
    pub(crate) fn check_lockspaces(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let joined: Vec<LockspaceId> = self
            .lockspaces
            .iter()
            .filter(|(_, ls)| ls.list == LockspaceList::Spaces)
            .map(|(id, _)| *id)
            .collect();
        for ls in joined {
            self.check_age(now, ls, out);
            self.kill_users(now, ls, out);
        }
    }

    fn check_age(&mut self, now: MonoTime, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        let Some(last_good) = lockspace.last_good else { return };
        if lockspace.dead == Some(Dead::Failed) {
            return;
        }
        let (age, t) = (now.secs_since(last_good), lockspace.io_timeout);
        if lockspace.corrupt != 0 || age >= t.renewal_fail_secs() {
            let text = format!(
                "lockspace {} has failed: {}; its users are stopped",
                lockspace.spec.name,
                if lockspace.corrupt == 0 {
                    format!("no renewal for {age} s")
                } else {
                    format!("corrupt ({})", lockspace.corrupt)
                }
            );
            lockspace.dead = lockspace.dead.filter(|d| *d == Dead::Failed);
            log(out, Level::Error, Some(ls), text);
            self.mark_dead(ls, Dead::Failed, out);
        } else if age >= t.renewal_warn_secs() && lockspace.warned != now.secs() {
            lockspace.warned = now.secs();
            let left = t.renewal_fail_secs() - age;
            let text = format!(
                "no renewal of {} for {age} s, its users are stopped in {left} s",
                lockspace.spec.name
            );
            log(out, Level::Error, Some(ls), text);
        }
    }

    /// Whether any process uses the lockspace, or an acquire in it still runs.
    pub(crate) fn has_users(&self, ls: LockspaceId) -> bool {
        self.resources.values().any(|r| r.ls == ls && r.list() != ResourceList::Rem)
    }

    fn kill_users(&mut self, now: MonoTime, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        let Some(dead) = lockspace.dead else { return };
        let removal = lockspace.remove || self.shutting_down;
        let grace_ends = lockspace.last_good.map_or(MonoTime::default(), |g| {
            g.plus_secs(lockspace.io_timeout.renewal_fail_secs() + self.settings.kill_grace_secs)
        });
        let gentle = dead == Dead::Failed && !removal && now.secs() < grace_ends.secs();
        let users: Vec<ConnId> = self.conns.keys().copied().filter(|c| self.uses(*c, ls)).collect();
        let mut worn_out = !users.is_empty();
        for conn in users {
            let Some(client) = self.conns.get_mut(&conn) else { continue };
            worn_out &= client.kill_count >= KILL_COUNT_MAX;
            if let Some((pid, signal)) = next_signal(client, now, gentle) {
                let text = format!("kill {pid} sig {signal:?} count {}", client.kill_count);
                log(out, Level::Error, Some(ls), text);
                out.push(Action::Kill { conn, pid, signal });
            }
        }
        if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
            if worn_out && lockspace.killing == 1 {
                lockspace.killing = 2;
                log(
                    out,
                    Level::Error,
                    Some(ls),
                    "killing pids stuck: they have had 100 signals and still hold leases",
                );
            }
        }
    }
}

/// The next signal for a user of a dead lockspace, at most one a second. After 100 the pace is one in ten seconds: giving up
/// altogether would help nobody (weakness W36).
fn next_signal(client: &mut Conn, now: MonoTime, gentle: bool) -> Option<(i32, Signal)> {
    const SLOW_SECS: u64 = 10;
    let pid = client.pid.filter(|pid| *pid > 1 && !client.pid_gone)?;
    let spacing = if client.kill_count >= KILL_COUNT_MAX { SLOW_SECS } else { 1 };
    if client.kill_last.is_some_and(|last| now.secs_since(last) < spacing) {
        return None;
    }
    client.kill_last = Some(now);
    client.kill_count = client.kill_count.saturating_add(1);
    Some((pid, if gentle { Signal::Term } else { Signal::Kill }))
}
