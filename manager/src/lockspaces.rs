//! The life of a lockspace: add, inquire, remove, leave (lease-algorithms.md 9, socket-protocol.md 7.2, 7.3, 7.15).

use crate::action::Action;
use crate::event::LeaseWrites;
use crate::events::Events;
use crate::ids::{ConnId, LockspaceId, ResourceId};
use crate::killing::look;
use crate::rejoin::RejoinRecord;
use crate::requests::Looking;
use crate::state::{Dead, Lockspace, LockspaceList, OpKind, RenewalEntry, Work};
use crate::watchdog::Watch;
use crate::{LOCKSPACES_MAX, Level, Manager, Op, WAITERS_MAX, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::delta::{Instance, JoinError, Joined};
use sanlock_lease::geometry::HostId;
use sanlock_lease::recovery::Progress;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::{IoTimeout, MonoTime};
use std::collections::{BTreeMap, VecDeque};

/// Whether `asked` names this lockspace: name, path and offset; host id 0 matches any.
fn matches(asked: &LockspaceSpec, ls: &Lockspace) -> bool {
    asked.name == ls.spec.name
        && (asked.host_id == 0 || asked.host_id == ls.spec.host_id)
        && asked.path == ls.spec.path
        && asked.offset == ls.spec.offset
}

impl Manager {
    fn check_add(&self, spec: &LockspaceSpec, io_timeout: u32) -> Result<(HostId, IoTimeout), ReturnCode> {
        if spec.name.is_empty() || spec.path.is_empty() || spec.host_id == 0 {
            return Err(ReturnCode::EINVAL);
        }
        for ls in self.lockspaces.values() {
            if ls.spec == *spec {
                return Err(match ls.list {
                    LockspaceList::Spaces => ReturnCode::EEXIST,
                    LockspaceList::Add => ReturnCode::EINPROGRESS,
                    LockspaceList::Rem => ReturnCode::EAGAIN,
                });
            }
            let same_disk = ls.spec.path == spec.path && ls.spec.offset == spec.offset;
            if ls.spec.name == spec.name || same_disk {
                return Err(ReturnCode::EINVAL);
            }
        }
        if self.shutting_down {
            return Err(ReturnCode::GENERIC);
        }
        if self.late_write(spec).is_some() {
            return Err(ReturnCode::EAGAIN);
        }
        if self.lockspaces.len() + self.late.len() >= LOCKSPACES_MAX {
            return Err(ReturnCode::ENOSPC);
        }
        let host = HostId::new(spec.host_id).ok_or(ReturnCode::ADDLS_INVALID_HOSTID)?;
        let io_timeout = match io_timeout {
            0 => self.settings.io_timeout,
            seconds => IoTimeout::new(seconds).map_err(|_| ReturnCode::EINVAL)?,
        };
        Ok((host, io_timeout))
    }

    /// Whether a lockspace could be joined if there were such a host id anywhere. Its disk is looked at first (lease-algorithms.md 2.2), without
    /// anything here having to do with it.
    #[must_use]
    pub fn lacks_only_a_host_id(&self, spec: &LockspaceSpec, io_timeout: u32) -> bool {
        matches!(self.check_add(spec, io_timeout), Err(ReturnCode::ADDLS_INVALID_HOSTID))
    }

    pub(crate) fn add_lockspace(
        &mut self,
        conn: ConnId,
        spec: LockspaceSpec,
        io_timeout: u32,
        asynchronous: bool,
        out: &mut Vec<Action>,
    ) {
        let (host, io_timeout) = match self.check_add(&spec, io_timeout) {
            Ok(checked) => checked,
            Err(e) => {
                let mut text = format!("add_lockspace {}:{} refused: {}", spec.name, spec.host_id, e.0);
                let late = self.late_write(&spec).filter(|_| e == ReturnCode::EAGAIN);
                let level = if late.is_some() { Level::Error } else { Level::Debug };
                if let Some(late) = late {
                    let path = String::from_utf8_lossy(&late.path);
                    text.push_str(&format!(
                        ", an earlier write to the host_id lease of {}:{}:{path}:{} may still land; wait until it has ended, or join \
                         with another host id",
                        late.name, late.host_id, late.offset
                    ));
                }
                log(out, level, None, text);
                return reply(out, conn, e.0);
            }
        };
        let ls = LockspaceId(self.next_id());
        let path = String::from_utf8_lossy(&spec.path).into_owned();
        let text = format!("lockspace {}:{}:{path}:{}", spec.name, spec.host_id, spec.offset);
        log(out, Level::Warning, Some(ls), text);
        let lockspace = Lockspace {
            spec,
            host,
            io_timeout,
            list: LockspaceList::Add,
            joined: None,
            joined_at: None,
            dead: None,
            remove: false,
            last_good: None,
            last_attempt: 0,
            last_result: 0,
            last_error: None,
            corrupt: 0,
            used: false,
            used_by_orphans: false,
            killing: 0,
            history: VecDeque::new(),
            watch: self.new_watch(),
            protected: true,
            watch_lost: None,
            add_waiter: (!asynchronous).then_some(conn),
            events: Events::default(),
            looking: Looking::default(),
            used_waiters: Vec::new(),
            rem_waiters: Vec::new(),
            inq_waiters: Vec::new(),
            progress: Progress::default(),
            ended: false,
            drained_since: None,
            rejoin: BTreeMap::new(),
            rejoin_asked: 0,
            rejoin_saved: 0,
            releasing: false,
            record_first: None,
            record_told: false,
        };
        self.lockspaces.insert(ls, lockspace);
        self.begin_join(ls, out);
        if asynchronous {
            reply(out, conn, 0);
        }
    }

    pub(crate) fn join_done(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        result: Result<Joined, JoinError>,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        let waiter = lockspace.add_waiter.take();
        match result {
            Ok(joined) => {
                let secs = joined.last_good.secs();
                lockspace.last_good = Some(joined.last_good);
                lockspace.last_attempt = secs;
                lockspace.last_result = 1;
                lockspace.joined = Some(joined);
                lockspace.joined_at = Some(now);
                push_history(
                    lockspace,
                    self.settings.history_size,
                    RenewalEntry {
                        timestamp: secs,
                        read_ms: 0,
                        write_ms: 0,
                        next_timeouts: 0,
                        next_errors: 0,
                    },
                );
                if lockspace.remove {
                    // Removal came at the last moment: give the fresh lease back.
                    (lockspace.list, lockspace.releasing) = (LockspaceList::Rem, true);
                    out.push(Action::Leave { ls, release: true });
                    if let Some(conn) = waiter {
                        reply(out, conn, ReturnCode::GENERIC.0);
                    }
                    return;
                }
                lockspace.list = LockspaceList::Spaces;
                let inquirers = std::mem::take(&mut lockspace.inq_waiters);
                self.save_rejoin(ls, false, out);
                for conn in waiter.into_iter().chain(inquirers) {
                    reply(out, conn, 0);
                }
            }
            Err(e) => {
                let code = ReturnCode::from(&e).0;
                log(
                    out,
                    Level::Error,
                    Some(ls),
                    format!("add_lockspace {}: {e} ({code})", lockspace.spec.name),
                );
                if let Some(conn) = waiter {
                    reply(out, conn, code);
                }
                // The thread ends by itself; until then the lockspace still exists.
                lockspace.list = LockspaceList::Rem;
                out.push(Action::Leave { ls, release: false });
            }
        }
    }

    pub(crate) fn inq_lockspace(
        &mut self,
        conn: ConnId,
        spec: &LockspaceSpec,
        wait: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.values_mut().find(|ls| matches(spec, ls)) else {
            return reply(out, conn, ReturnCode::ENOENT.0);
        };
        match lockspace.list {
            LockspaceList::Spaces => reply(out, conn, 0),
            _ if wait && lockspace.inq_waiters.len() < WAITERS_MAX => lockspace.inq_waiters.push(conn),
            _ => reply(out, conn, ReturnCode::EINPROGRESS.0),
        }
    }

    pub(crate) fn rem_lockspace(
        &mut self,
        conn: ConnId,
        spec: &LockspaceSpec,
        asynchronous: bool,
        unused: bool,
        out: &mut Vec<Action>,
    ) {
        if unused && self.resources.values().any(|r| r.spec.lockspace == spec.name) {
            return reply(out, conn, ReturnCode::EBUSY.0);
        }
        let Some((ls, lockspace)) = self.lockspaces.iter().find(|(_, ls)| matches(spec, ls)) else {
            return reply(out, conn, ReturnCode::ENOENT.0);
        };
        let ls = *ls;
        if lockspace.list == LockspaceList::Rem {
            return reply(out, conn, ReturnCode::EINPROGRESS.0);
        }
        if self.index_busy(ls) || (unused && self.is_waited_for(lockspace)) {
            return reply(out, conn, ReturnCode::EBUSY.0);
        }
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if asynchronous {
            reply(out, conn, 0);
        } else if lockspace.rem_waiters.len() < WAITERS_MAX {
            lockspace.rem_waiters.push(conn);
        } else {
            return reply(out, conn, ReturnCode::EBUSY.0);
        }
        self.begin_removal(ls, out);
    }

    /// Whether somebody is about to use it: where that waits for the watchdog there is no resource yet.
    fn is_waited_for(&self, lockspace: &Lockspace) -> bool {
        let waits = |op: &Op| matches!(&op.kind, OpKind::Acquire { takings, .. } if takings.waits_for(&lockspace.spec.name));
        !lockspace.used_waiters.is_empty() || self.ops.values().any(waits)
    }

    /// A joined lockspace is marked dead by the check that follows every event.
    pub(crate) fn begin_removal(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.remove = true;
        if lockspace.list == LockspaceList::Add {
            // The join sees it and ends.
            out.push(Action::Gone { ls });
        }
    }

    /// From here on nothing is granted or written in this lockspace but its own lease. There is no way back.
    pub(crate) fn mark_dead(&mut self, ls: LockspaceId, why: Dead, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.dead = Some(why);
        lockspace.killing = 1;
        out.push(Action::Gone { ls });
    }

    /// The lockspaces in which a task on a resource, or on the index, runs or may still write; as often as there are such tasks.
    pub(crate) fn with_tasks(&self) -> impl Iterator<Item = LockspaceId> + '_ {
        let resources = self.tasks.values().inspect(|_| look()).filter_map(|id| self.resources.get(id));
        resources.map(|r| r.ls).chain(self.index_writing())
    }

    /// Ends the thread of a dead lockspace that nobody uses any more.
    pub(crate) fn leave(&mut self, now: MonoTime, ls: LockspaceId, out: &mut Vec<Action>) {
        self.drop_idle_resources(ls);
        self.watchdog_leaves(now, ls, out);
        let outstanding = self.with_tasks().any(|busy| busy == ls);
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if outstanding {
            let text = "leaving without releasing the host_id: a write is still outstanding";
            log(out, Level::Error, Some(ls), text);
        }
        let age = lockspace.last_good.map_or(0, |good| now.secs_since(good));
        // One that failed too, if its renewals succeed again by now: nobody uses it any more, and others would wait for this host until it is
        // dead by a record that it has just written. Not one whose watchdog is lost: of that host nothing is known to come in order.
        let release = (lockspace.dead == Some(Dead::Removed) || lockspace.watch != Watch::Lost)
            && lockspace.corrupt == 0
            && lockspace.last_result == 1
            && age < lockspace.io_timeout.renewal_fail_secs()
            && !outstanding;
        lockspace.list = LockspaceList::Rem;
        lockspace.killing = 0;
        lockspace.rejoin.clear();
        lockspace.releasing = release;
        if release {
            // Its record counts until that has come about.
            out.push(Action::Leave { ls, release });
            return;
        }
        // Every process is gone or has given up what it held: only writes may outlive this. Whether those of a thread that broke off
        // have ended, nobody has seen.
        lockspace.record_first = Some(now);
        if lockspace.ended {
            self.doubt_rejoin(ls, out);
        } else {
            self.save_rejoin(ls, outstanding, out);
            // Renewals end at once: others wait for this host no longer because a run directory hangs.
            out.push(Action::Leave { ls, release });
        }
    }

    /// A record is on stable storage. A lockspace whose host id stays unreleased, and one whose thread had something to add about its own
    /// writes, is forgotten only then: whoever joins it next believes what is there.
    pub(crate) fn rejoin_saved(&mut self, ls: LockspaceId, serial: u64, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.rejoin_saved = lockspace.rejoin_saved.max(serial);
        if lockspace.record_first.is_none() || lockspace.rejoin_saved < lockspace.rejoin_asked {
            return;
        }
        lockspace.record_first = None;
        if lockspace.ended {
            self.forget_lockspace(ls, out);
        }
    }

    /// Says once of a lockspace that is only there for its record what it waits for.
    pub(crate) fn tell_of_records(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        for (ls, lockspace) in &mut self.lockspaces {
            let late = |since: &MonoTime| now.secs_since(*since) >= lockspace.io_timeout.secs();
            let Some(since) = lockspace.record_first.filter(late) else { continue };
            if !std::mem::replace(&mut lockspace.record_told, true) {
                let text = format!(
                    "lockspace {} is left, and nothing renews its host_id lease any more, but its record in the run directory has not been written for {} s: \
                     it stays, cannot be added again, and a shutdown waits for it, until it is",
                    lockspace.spec.name,
                    now.secs_since(since)
                );
                log(out, Level::Error, Some(*ls), text);
            }
        }
    }

    /// Resources of a dead lockspace that no process holds and on which nothing runs: the host_id lease speaks for them.
    fn drop_idle_resources(&mut self, ls: LockspaceId) {
        let idle: Vec<ResourceId> = self
            .resources
            .iter()
            .filter(|(_, r)| {
                r.ls == ls && matches!(r.work, Work::Retry { .. } | Work::Held { .. }) && !r.is_granted()
            })
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.drop_resource(id);
        }
    }

    /// The lockspace's thread has nothing more to do, but for a write that may still land.
    pub(crate) fn left(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        writes: LeaseWrites,
        out: &mut Vec<Action>,
    ) {
        if writes == LeaseWrites::Outstanding {
            self.lease_write_outlives(ls, out);
        }
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if lockspace.record_first.is_some() {
            lockspace.ended = true;
            if !matches!(writes, LeaseWrites::Freed | LeaseWrites::Ended) {
                self.doubt_rejoin(ls, out);
            }
            return;
        }
        if lockspace.list != LockspaceList::Spaces {
            if writes == LeaseWrites::Freed {
                out.push(Action::DropRejoin { spec: lockspace.spec.clone() });
            }
            // Of an instance that never joined there is no record that could be believed. Of one that was not to be freed it is written.
            let is_recorded = writes == LeaseWrites::Ended && !lockspace.releasing;
            if writes == LeaseWrites::Freed || is_recorded || lockspace.joined.is_none() {
                return self.forget_lockspace(ls, out);
            }
            // It is forgotten when its record says so, behind all that was asked of the record before.
            (lockspace.ended, lockspace.record_first) = (true, Some(now));
            return match writes {
                LeaseWrites::Ended => self.save_rejoin(ls, false, out),
                _ => self.doubt_rejoin(ls, out),
            };
        }
        // The thread broke off: nobody renews any more, so its users have to go first.
        lockspace.ended = true;
        self.corrupt(now, ls, ReturnCode::GENERIC.0, "its thread has ended", out);
    }

    pub(crate) fn forget_lockspace(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(mut lockspace) = self.lockspaces.remove(&ls) else { return };
        lockspace.events.end(out);
        // What a write may still reach stays, so that nobody starts anything for it, in a later life of the lockspace either.
        let busy: Vec<ResourceId> = self.tasks.values().copied().collect();
        self.resources.retain(|id, r| r.ls != ls || busy.contains(id));
        log(out, Level::Debug, Some(ls), format!("lockspace {} is gone", lockspace.spec.name));
        for conn in lockspace.rem_waiters {
            reply(out, conn, 0);
        }
        for conn in lockspace.inq_waiters {
            reply(out, conn, ReturnCode::ENOENT.0);
        }
        if let Some(conn) = lockspace.add_waiter {
            reply(out, conn, ReturnCode::GENERIC.0);
        }
    }

    /// The same where a write of the host_id lease may land, or have landed, when another machine has the host id. It would show what this host
    /// had before, and after a reboot, too, this host would take it for its own: nothing may vouch for that any more.
    fn doubt_rejoin(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        if let Some(lockspace) = self.lockspaces.get(&ls) {
            out.push(Action::DropRejoin { spec: lockspace.spec.clone() });
        }
        self.save_rejoin(ls, true, out);
    }

    /// Asks for the record to be written. `writes`: some may still land though the lockspace is given up.
    pub(crate) fn save_rejoin(&mut self, ls: LockspaceId, writes: bool, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        lockspace.rejoin_asked += 1;
        let noted = || lockspace.rejoin.keys().filter_map(|conn| self.conns.get(conn));
        let record = RejoinRecord {
            spec: lockspace.spec.clone(),
            instance: Instance { generation: lockspace.generation(), io_timeout: lockspace.io_timeout },
            pids: noted().filter(|c| !c.pid_gone).filter_map(|c| c.pid).collect(),
            outlived: writes || noted().any(|c| c.pid_gone && !c.closed),
        };
        out.push(Action::SaveRejoin { ls, serial: lockspace.rejoin_asked, record });
    }
}

pub(crate) fn push_history(lockspace: &mut Lockspace, size: usize, entry: RenewalEntry) {
    if size == 0 {
        return;
    }
    while lockspace.history.len() >= size {
        lockspace.history.pop_front();
    }
    lockspace.history.push_back(entry);
}
