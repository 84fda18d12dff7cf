//! SET_CONFIG: what else keeps a lockspace from ending (socket-protocol.md 7.31, lease-algorithms.md 9.4).

use crate::ids::ConnId;
use crate::state::{Lockspace, LockspaceList};
use crate::{Action, Level, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;

/// A setting of a lockspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Something uses the lockspace that the daemon does not know: it counts like a process that cannot be killed.
    Used(bool),
    /// Orphans count as users.
    UsedByOrphans(bool),
}

impl Manager {
    pub(crate) fn set_config(
        &mut self,
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
        match setting {
            Setting::Used(on) => lockspace.used = on,
            Setting::UsedByOrphans(on) => lockspace.used_by_orphans = on,
        }
        log(out, Level::Warning, Some(ls), format!("set_config {name} {setting:?}"));
        reply(out, conn, 0);
    }
}
