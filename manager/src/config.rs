//! SET_CONFIG: what else keeps a lockspace from ending (socket-protocol.md 7.31, lease-algorithms.md 9.4).

use crate::ids::{ConnId, LockspaceId};
use crate::state::{Lockspace, LockspaceList};
use crate::{Action, Level, Manager, WAITERS_MAX, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::timing::MonoTime;

/// A setting of a lockspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Something uses the lockspace that the daemon does not know: it counts like a process that cannot be killed.
    Used(bool),
    /// Orphans count as users.
    UsedByOrphans(bool),
}

impl Lockspace {
    /// A plain connection was closed. Its settings still wait for the watchdog, once each however many clients left them behind.
    pub(crate) fn used_waiter_closed(&mut self, conn: ConnId) {
        let mut left: Vec<Setting> = Vec::new();
        self.used_waiters.retain_mut(|(waiter, setting)| {
            if *waiter == Some(conn) {
                *waiter = None;
            }
            let again = waiter.is_none() && left.contains(setting);
            if waiter.is_none() && !again {
                left.push(*setting);
            }
            !again
        });
    }
}

impl Manager {
    pub(crate) fn set_config(
        &mut self,
        now: MonoTime,
        conn: ConnId,
        name: Name,
        setting: Option<Setting>,
        out: &mut Vec<Action>,
    ) {
        let joined = |ls: &Lockspace| ls.spec.name == name && ls.list == LockspaceList::Spaces;
        let found = self.lockspaces.iter_mut().find(|(_, ls)| joined(ls)).map(|(id, ls)| (*id, ls));
        let Some((ls, lockspace)) = found else { return reply(out, conn, ReturnCode::ENOENT.0) };
        let Some(setting) = setting else { return reply(out, conn, ReturnCode::EINVAL.0) };
        let (Setting::Used(on) | Setting::UsedByOrphans(on)) = setting;
        if on && (lockspace.dead.is_some() || lockspace.remove) {
            return reply(out, conn, ReturnCode::ENOSPC.0);
        }
        let orphans = setting == Setting::UsedByOrphans(true) && self.has_orphans(ls);
        if setting == Setting::Used(true) || orphans {
            // From the answer on something relies on this host being stopped in time.
            match self.require_protection(now, ls, out) {
                Ok(true) => {}
                Ok(false) => return self.wait_for_watchdog(ls, conn, setting, out),
                Err(code) => return reply(out, conn, code.0),
            }
        }
        self.apply_setting(ls, setting, out);
        // What a client that is gone has asked for before this, and still waits for the watchdog, is taken back with it.
        let taken_back = match setting {
            Setting::Used(false) => Some(Setting::Used(true)),
            Setting::UsedByOrphans(false) => Some(Setting::UsedByOrphans(true)),
            _ => None,
        };
        if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
            lockspace.used_waiters.retain(|(waiter, wish)| waiter.is_some() || Some(*wish) != taken_back);
        }
        reply(out, conn, 0);
    }

    fn wait_for_watchdog(&mut self, ls: LockspaceId, conn: ConnId, setting: Setting, out: &mut Vec<Action>) {
        match self.lockspaces.get_mut(&ls) {
            Some(lockspace) if lockspace.used_waiters.len() < WAITERS_MAX => {
                lockspace.used_waiters.push((Some(conn), setting))
            }
            _ => reply(out, conn, ReturnCode::EBUSY.0),
        }
    }

    /// Answers whoever waits for the watchdog to set USED or USED_BY_ORPHANS. A registered client that has closed its connection wants nothing any
    /// more; what a plain one asked for goes on without it (socket-protocol.md 2.5).
    pub(crate) fn answer_used(&mut self, ls: LockspaceId, code: Option<ReturnCode>, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        let waiters = std::mem::take(&mut lockspace.used_waiters);
        let code = match code {
            None if lockspace.dead.is_some() || lockspace.remove => Some(ReturnCode::ENOSPC),
            code => code,
        };
        for (conn, setting) in waiters {
            if code.is_none() {
                self.apply_setting(ls, setting, out);
            }
            if let Some(conn) = conn {
                reply(out, conn, code.map_or(0, |code| code.0));
            }
        }
    }

    fn apply_setting(&mut self, ls: LockspaceId, setting: Setting, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        match setting {
            Setting::Used(on) => lockspace.used = on,
            Setting::UsedByOrphans(on) => lockspace.used_by_orphans = on,
        }
        let text = format!("set_config {} {setting:?}", lockspace.spec.name);
        log(out, Level::Warning, Some(ls), text);
    }
}
