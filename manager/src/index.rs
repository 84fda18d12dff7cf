//! Who works on the resource index of a lockspace (socket-protocol.md 7.33, lease-algorithms.md 11).
//!
//! One operation for each lockspace at a time, by name: what an operation of an earlier life of the lockspace has written may
//! still land. An operation that takes the index's lease depends on the host id like any owner of a lease: the watchdog is
//! armed before it begins, and the host id is not released before its writes have ended.

use crate::action::Action;
use crate::ids::{ConnId, LockspaceId, TaskId};
use crate::{LockspaceList, Manager, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::rindex::Member;
use sanlock_lease::timing::MonoTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for the watchdog of its lockspace.
    Arming,
    /// It runs.
    Running,
    /// Its client has the result; writes of it may still land, or the lease is still to be given back.
    Settling,
}

/// An operation on the index of a lockspace.
#[derive(Clone, Debug)]
pub(crate) struct IndexWork {
    conn: ConnId,
    ls: LockspaceId,
    lockspace: Name,
    /// Whether it takes the lease of the index.
    lease: bool,
    phase: Phase,
}

impl Manager {
    pub(crate) fn index(
        &mut self,
        now: MonoTime,
        conn: ConnId,
        lockspace: Name,
        lease: bool,
        out: &mut Vec<Action>,
    ) {
        match self.begin_index(now, lockspace, lease, out) {
            Ok((ls, phase)) => {
                let task = TaskId(self.next_id());
                self.index_work.insert(task, IndexWork { conn, ls, lockspace, lease, phase });
                if phase == Phase::Running {
                    self.start_index(task, out);
                }
            }
            Err(e) => reply(out, conn, e.0),
        }
    }

    fn begin_index(
        &mut self,
        now: MonoTime,
        name: Name,
        lease: bool,
        out: &mut Vec<Action>,
    ) -> Result<(LockspaceId, Phase), ReturnCode> {
        let mut joined =
            self.lockspaces.iter().filter(|(_, ls)| ls.list == LockspaceList::Spaces && ls.spec.name == name);
        let (ls, lockspace) = joined.next().ok_or(ReturnCode::ENOENT)?;
        let ls = *ls;
        if !lockspace.usable() || lockspace.remove {
            return Err(ReturnCode::ENOSPC);
        }
        if self.index_work.values().any(|work| work.lockspace == name) {
            return Err(ReturnCode::EBUSY);
        }
        let armed = !lease || self.require_watchdog(now, ls, out)?;
        Ok((ls, if armed { Phase::Running } else { Phase::Arming }))
    }

    /// Begins an operation that nothing stands in the way of any more.
    fn start_index(&mut self, task: TaskId, out: &mut Vec<Action>) {
        let Some(work) = self.index_work.get_mut(&task) else { return };
        work.phase = Phase::Running;
        let (conn, ls) = (work.conn, work.ls);
        let member = self.lockspaces.get(&ls).filter(|ls| ls.usable()).and_then(|lockspace| {
            let joined = lockspace.joined.as_ref()?;
            Some(Member {
                host: lockspace.host,
                generation: joined.generation(),
                geometry: joined.geometry,
                io_timeout: lockspace.io_timeout,
            })
        });
        match member {
            Some(member) => out.push(Action::StartIndex { task, conn, ls, member, fire: self.settings.fire }),
            None => self.refuse_index(task, ReturnCode::ENOSPC, out),
        }
    }

    fn refuse_index(&mut self, task: TaskId, code: ReturnCode, out: &mut Vec<Action>) {
        let Some(work) = self.index_work.remove(&task) else { return };
        if self.conns.get(&work.conn).is_some_and(|conn| !conn.closed) {
            reply(out, work.conn, code.0);
        }
    }

    /// The watchdog stands behind the lockspace, or never will.
    pub(crate) fn index_armed(
        &mut self,
        ls: LockspaceId,
        result: Result<(), ReturnCode>,
        out: &mut Vec<Action>,
    ) {
        let waiting = self.index_work.iter().find(|(_, w)| w.ls == ls && w.phase == Phase::Arming);
        let Some(task) = waiting.map(|(task, _)| *task) else { return };
        match result {
            Ok(()) => self.start_index(task, out),
            Err(e) => self.refuse_index(task, e, out),
        }
    }

    /// The client has its result; the lockspace may be removed.
    pub(crate) fn index_settling(&mut self, task: TaskId) {
        if let Some(work) = self.index_work.get_mut(&task) {
            work.phase = Phase::Settling;
        }
    }

    pub(crate) fn index_done(&mut self, task: TaskId) {
        self.index_work.remove(&task);
    }

    /// Whether a removal has to wait for an operation: its client is promised a result.
    pub(crate) fn index_busy(&self, ls: LockspaceId) -> bool {
        self.index_work.values().any(|work| work.ls == ls && work.phase != Phase::Settling)
    }

    /// Whether a client waits for the result of an operation.
    pub(crate) fn index_waited_for(&self) -> bool {
        self.index_work.values().any(|work| work.phase != Phase::Settling)
    }

    /// The lockspaces in which something of an operation may be, or become, written under the lease of the index.
    pub(crate) fn index_writing(&self) -> impl Iterator<Item = LockspaceId> + '_ {
        self.index_work.values().filter(|work| work.lease && work.phase != Phase::Arming).map(|work| work.ls)
    }

    /// The lockspaces whose watchdog an operation needs.
    pub(crate) fn index_watched(&self) -> impl Iterator<Item = LockspaceId> + '_ {
        self.index_work.values().filter(|work| work.lease).map(|work| work.ls)
    }
}
