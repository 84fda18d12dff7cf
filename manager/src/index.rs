//! Who works on the resource index of a lockspace (socket-protocol.md 7.33, lease-algorithms.md 11).
//!
//! One operation for each lockspace at a time, by name: what an operation of an earlier life of the lockspace has written may
//! still land. An operation that takes the index's lease depends on the host id like any owner of a lease: the watchdog is
//! armed before it begins, and the host id is not released before its writes have ended.
//!
//! The lease of the index is an ordinary lease, and a client may want it by its name. One host must not run two ballots on one lease at
//! a time (13.6, S10): it has one block there, and either would write over the promises of the other. So the one that comes second is
//! refused, from the first thought of an operation until nothing of it may land any more, and likewise for the lease. (Of two that wait for
//! one watchdog the operation begins.) Which disk an index lies on is not known here, so the name decides, as everywhere for what this host
//! has of its own.

use crate::action::Action;
use crate::ids::{ConnId, LockspaceId, TaskId};
use crate::state::{Resource, ResourceList};
use crate::{Level, LockspaceList, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::rindex::{LEASE_NAME, Member};
use sanlock_lease::text::ResourceSpec;
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

/// A lease and its first disk, for people.
fn named(spec: &ResourceSpec) -> String {
    let first = spec.disks.first();
    let place = first.map(|disk| format!(":{}:{}", String::from_utf8_lossy(&disk.path), disk.offset));
    format!("{}:{}{}", spec.lockspace, spec.name, place.unwrap_or_default())
}

/// Whether this is the lease of an index of that lockspace, or becomes it by the release that runs.
fn is_index_lease(resource: &Resource, lockspace: &Name) -> bool {
    let names = [Some(resource.spec.name), resource.renamed];
    resource.spec.lockspace == *lockspace && names.iter().flatten().any(|name| name.as_bytes() == LEASE_NAME)
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
        if let Some(resource) = self.resources.values().find(|r| lease && is_index_lease(r, &name)) {
            let (why, advice) = match resource.list() {
                ResourceList::Add => ("is being acquired", "try again when it has been released"),
                ResourceList::Held => ("is held", "have its holder release it"),
                ResourceList::Rem => (
                    "has been given up, but not all of that is on disk",
                    "try again when it is, which needs its disk, or remove the lockspace",
                ),
                ResourceList::Orphan => {
                    ("is an orphan", "release it ('sanlock client release -O 1 -s LOCKSPACE -p PID')")
                }
            };
            let text = format!(
                "operation on the resource index of {name} refused (-16): it takes the lease of the index, and {} {why} on this host; \
                 {advice}",
                named(&resource.spec)
            );
            log(out, Level::Warning, Some(ls), text);
            return Err(ReturnCode::EBUSY);
        }
        let armed = !lease || self.require_protection(now, ls, out)?;
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

    /// Refuses the name of a lease that an operation on an index has, or is going to have, on this host. Says so.
    pub(crate) fn beside_index(
        &self,
        (lockspace, name): (Name, Name),
        out: &mut Vec<Action>,
    ) -> Result<(), ReturnCode> {
        if name.as_bytes() != LEASE_NAME {
            return Ok(());
        }
        let mut works = self.index_work.values().filter(|work| work.lease && work.lockspace == lockspace);
        let Some(work) = works.next() else { return Ok(()) };
        let until = match work.phase {
            Phase::Arming | Phase::Running => "runs",
            Phase::Settling => "has written what may still land, or has its lease still to give back",
        };
        let text = format!(
            "{lockspace}:{name} refused (-16): an operation of this host on the resource index of {lockspace} {until}; try again when it \
             has ended"
        );
        log(out, Level::Warning, Some(work.ls), text);
        Err(ReturnCode::EBUSY)
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

    /// The leases that operations have, or are going to have.
    #[cfg(test)]
    pub(crate) fn index_leases(&self) -> impl Iterator<Item = (Name, Name)> + '_ {
        let lease = Name::new(LEASE_NAME).unwrap_or_default();
        self.index_work.values().filter(|work| work.lease).map(move |work| (work.lockspace, lease))
    }
}
