//! RELEASE, the release of what a dead client held, and what has to be tried again (socket-protocol.md 7.8,
//! lease-algorithms.md 6.4, rule R3).

use crate::action::Action;
use crate::event::{ReleaseWhat, Target};
use crate::ids::{ConnId, LockspaceId, ResourceId, TaskId};
use crate::side::Givings;
use crate::state::{Op, OpKind, OpNumber, Resource, Work, number_of_each};
use crate::value::value_was_refused;
use crate::{Level, Manager, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::{PaxosConfig, ReleaseError};
use sanlock_lease::timing::MonoTime;
use std::collections::BTreeMap;

/// What starting a release came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// Its task runs.
    Running,
    /// It will, once an earlier write has landed.
    Later,
    /// There is nothing to do on disk.
    Nothing,
}

impl Resource {
    /// Whether its next attempt to be given up is due.
    fn is_to_be_retried(&self, now: MonoTime) -> bool {
        matches!(self.work, Work::Retry { at } if at <= now)
    }
}

impl Manager {
    pub(crate) fn release(
        &mut self,
        now: MonoTime,
        conn: ConnId,
        target: Target,
        what: ReleaseWhat,
        out: &mut Vec<Action>,
    ) {
        let target = match self.find_target(conn, target, false) {
            Ok(target) => target,
            Err(e) => return reply(out, conn, e.0),
        };
        let held: Vec<ResourceId> = self.conns.get(&target).map(|c| c.held().collect()).unwrap_or_default();
        let mut result = 0;
        let mut left = Vec::new();
        let mut rename = None;
        let all = match what {
            ReleaseWhat::All => {
                left.extend(&held);
                Vec::new()
            }
            ReleaseWhat::Named(all) => all,
            ReleaseWhat::Renamed { from, to } => {
                let shared = held
                    .iter()
                    .filter_map(|id| self.resources.get(id))
                    .any(|r| r.spec.shared && r.spec.names() == from);
                // Its leader is not written, so its name would stay; and a lease without a name could not be used any more.
                if shared || to.is_empty() {
                    return reply(out, conn, ReturnCode::EINVAL.0);
                }
                // With that name it may be taken while the mark in our block is still to be written.
                if let Err(e) = self.beside_index((from.0, to), out) {
                    return reply(out, conn, e.0);
                }
                rename = Some(to);
                vec![from]
            }
            ReleaseWhat::Orphans { lockspace, name } => {
                let number = self.release_orphans(now, lockspace, name, out);
                return reply(out, conn, number);
            }
        };
        let mut by_names = self.by_names(number_of_each(held));
        for names in all {
            // Each name gives up one token; of a shared resource there may be several.
            match by_names.get_mut(&names).filter(|(_, number)| *number > 0) {
                Some((id, number)) => {
                    *number -= 1;
                    left.push(*id);
                }
                None => result = ReturnCode::GENERIC.0,
            }
        }
        if let Some(client) = self.conns.get_mut(&target) {
            client.drop_tokens(number_of_each(left.iter().copied()));
        }
        let kind = OpKind::Release { givings: Givings::new(left, result), rename };
        let number = self.begin_op(conn, target, kind);
        self.release_next(number, out);
        // What it had in lockspaces that have failed is gone, however long the rest may take.
        self.spare(target, out);
    }

    /// What is held, by its names, with the number of tokens: a resource exists at most once.
    fn by_names(&self, held: BTreeMap<ResourceId, usize>) -> BTreeMap<(Name, Name), (ResourceId, usize)> {
        let named = |(id, number)| Some((self.resources.get(&id)?.spec.names(), (id, number)));
        held.into_iter().filter_map(named).collect()
    }

    /// Releases what may be released now of a command's resources, or ends it.
    pub(crate) fn release_next(&mut self, number: OpNumber, out: &mut Vec<Action>) {
        self.release_without_turn(number, out);
        loop {
            let tasks = self.tasks_running();
            let Some(Op { target, kind: OpKind::Release { givings, .. }, .. }) = self.ops.get(&number) else {
                return;
            };
            let target = *target;
            let Some((at, id)) = givings.next(tasks) else { break };
            let started = self.start_release(id, target, 1, number, out);
            let Some(givings) = self.givings(number) else { return };
            match started {
                Started::Running => givings.begun(at),
                Started::Nothing => givings.done(at, 0),
                Started::Later => givings.done(at, ReturnCode::AIO_TIMEOUT.0),
            }
        }
        if let Some(code) = self.givings(number).and_then(|g| g.outcome()) {
            self.end_op(number, code, out);
        }
    }

    /// What needs nothing on disk waits for no turn. In a dead lockspace it would keep that, and the watchdog's expiry, for nobody; and a token of
    /// a shared lease would be there when the last one goes that is held, which is the one that may leave an orphan.
    fn release_without_turn(&mut self, number: OpNumber, out: &mut Vec<Action>) {
        let Some(Op { target, kind: OpKind::Release { givings, .. }, .. }) = self.ops.get(&number) else {
            return;
        };
        let target = *target;
        let mut over = number_of_each(givings.waiting().map(|(_, id)| id));
        for (id, number_of_it) in &mut over {
            let usable = self.resources.get(id).filter(|r| self.in_usable_lockspace(r));
            if let Some(resource) = usable {
                *number_of_it = resource.tokens().len().saturating_sub(1).min(*number_of_it);
            }
            if *number_of_it > 0 {
                self.start_release(*id, target, *number_of_it, number, out);
            }
        }
        if let Some(givings) = self.givings(number) {
            givings.done_at_once(over);
        }
    }

    /// A lockspace has died, or somebody joins in what is held shared: what waits for its turn there needs none any more.
    pub(crate) fn releases_without_turn(&mut self, out: &mut Vec<Action>) {
        let releases = self.ops.iter().filter(|(_, op)| matches!(op.kind, OpKind::Release { .. }));
        for number in releases.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.release_next(number, out);
        }
    }

    fn givings(&mut self, number: OpNumber) -> Option<&mut Givings> {
        match self.ops.get_mut(&number) {
            Some(Op { kind: OpKind::Release { givings, .. }, .. }) => Some(givings),
            _ => None,
        }
    }

    pub(crate) fn task_config(&self, resource: &Resource) -> Option<PaxosConfig> {
        let ls = self.lockspaces.get(&resource.ls)?;
        let joined = ls.joined.as_ref()?;
        Some(PaxosConfig {
            lockspace: resource.spec.lockspace,
            resource: resource.spec.name,
            host: ls.host,
            generation: joined.generation(),
            io_timeout: ls.io_timeout,
            fire: self.settings.fire,
            geometry: joined.geometry,
            disks: u8::try_from(resource.spec.disks.len()).ok()?,
        })
    }

    /// Gives so many tokens of one connection up, and starts the release of the resource if the last one went.
    fn start_release(
        &mut self,
        id: ResourceId,
        conn: ConnId,
        tokens: usize,
        number: OpNumber,
        out: &mut Vec<Action>,
    ) -> Started {
        let Some(resource) = self.resources.get_mut(&id) else { return Started::Nothing };
        // Others of this host may share it.
        let Err(last) = resource.drop_tokens(conn, tokens) else { return Started::Nothing };
        let Some(resource) = self.resources.get(&id) else { return Started::Nothing };
        if self.becomes_orphan(resource, last, false, out) {
            return Started::Nothing;
        }
        let rename = match self.ops.get(&number) {
            Some(Op { kind: OpKind::Release { rename, .. }, .. }) => *rename,
            _ => None,
        };
        self.give_up(id, Some(number), rename, out)
    }

    /// Starts the release of a resource without tokens. In a dead lockspace there is nothing to do on disk: the host_id lease speaks
    /// for the resource.
    pub(crate) fn give_up(
        &mut self,
        id: ResourceId,
        for_op: Option<OpNumber>,
        rename: Option<Name>,
        out: &mut Vec<Action>,
    ) -> Started {
        let task = TaskId(self.next_id());
        let Some(resource) = self.resources.get(&id) else { return Started::Nothing };
        let config = self.task_config(resource).filter(|_| self.in_usable_lockspace(resource));
        let (Work::Held { held, .. }, Some(config)) = (&resource.work, config) else {
            self.drop_resource(id);
            return Started::Nothing;
        };
        let held = *held;
        let (ls, disks) = (resource.ls, resource.spec.disks.clone());
        let value = resource.unwritten_value();
        let Some(resource) = self.resources.get_mut(&id) else { return Started::Nothing };
        resource.note_hold();
        // Also where nothing is begun yet: the lease is freed under its old name then, and nobody here may take it under either before.
        resource.renamed = rename;
        let (hold, attempt) = (resource.hold, resource.attempt);
        if let Some(task) = resource.converting {
            // What an earlier conversion left is being taken back; the hold goes after it, and nobody has to wait for that.
            resource.work = Work::Settling { task };
            return Started::Nothing;
        }
        if let Some(task) = resource.unsettled {
            // What the acquire wrote to a minority of the disks may still land, on top of what a release would write.
            resource.work = Work::Settling { task };
            return Started::Later;
        }
        resource.work = Work::Releasing { task };
        resource.for_op = for_op;
        resource.attempts = 1;
        let (erase, geometry) = (resource.erase, held.geometry);
        self.tasks.insert(task, id);
        out.push(if erase {
            Action::StartRetract { task, ls, config, geometry, hold, attempt, value, rename, disks }
        } else {
            Action::StartRelease { task, ls, config, held, value, rename, disks }
        });
        Started::Running
    }

    pub(crate) fn in_usable_lockspace(&self, resource: &Resource) -> bool {
        self.lockspaces.get(&resource.ls).is_some_and(crate::Lockspace::usable)
    }

    /// Forgets a resource of a dead lockspace, on which no task runs: the host_id lease speaks for it. One that a write may still
    /// reach stays until that has ended.
    pub(crate) fn drop_resource(&mut self, id: ResourceId) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        match resource.unsettled.or(resource.converting) {
            Some(task) => resource.work = Work::Settling { task },
            None => {
                self.resources.remove(&id);
            }
        }
    }

    /// Takes back what a task left: at once, or when its outstanding writes have landed.
    pub(crate) fn give_back(
        &mut self,
        id: ResourceId,
        task: TaskId,
        outstanding: u32,
        out: &mut Vec<Action>,
    ) {
        if outstanding > 0 {
            if let Some(resource) = self.resources.get_mut(&id) {
                resource.work = Work::Settling { task };
            }
        } else {
            self.start_retract(id, out);
        }
    }

    pub(crate) fn start_retract(&mut self, id: ResourceId, out: &mut Vec<Action>) {
        let task = TaskId(self.next_id());
        let Some(resource) = self.resources.get(&id) else { return };
        let config = self.task_config(resource).filter(|_| self.in_usable_lockspace(resource));
        let Some(config) = config else {
            self.resources.remove(&id);
            return;
        };
        let (ls, disks, geometry) = (resource.ls, resource.spec.disks.clone(), resource.geometry);
        let (value, rename) = (resource.unwritten_value(), resource.renamed);
        let (hold, attempt) = (resource.hold, resource.attempt);
        if let Some(resource) = self.resources.get_mut(&id) {
            resource.work = Work::Releasing { task };
            resource.attempts += 1;
        }
        self.tasks.insert(task, id);
        out.push(Action::StartRetract { task, ls, config, geometry, hold, attempt, value, rename, disks });
    }

    /// How many tasks do something: not those of which only a write may still land, perhaps for hours.
    pub(crate) fn tasks_running(&self) -> usize {
        let runs = |id: &ResourceId| {
            self.resources.get(id).is_some_and(|r| {
                matches!(r.work, Work::Acquiring { .. } | Work::Releasing { .. }) || r.converting.is_some()
            })
        };
        self.tasks.values().filter(|id| runs(id)).count()
    }

    /// The resource of a task that is done. While writes of it are outstanding the task stays known, to be told of their end.
    pub(crate) fn task_done(&mut self, task: TaskId, outstanding: u32) -> Option<ResourceId> {
        if outstanding > 0 { self.tasks.get(&task).copied() } else { self.tasks.remove(&task) }
    }

    pub(crate) fn release_done(
        &mut self,
        now: MonoTime,
        task: TaskId,
        outcome: ReleaseOutcome,
        outstanding: u32,
        out: &mut Vec<Action>,
    ) {
        let Some(id) = self.task_done(task, outstanding) else { return };
        let Some(resource) = self.resources.get_mut(&id) else { return };
        resource.gone_since = None;
        if !matches!(resource.work, Work::Releasing { task: t } if t == task) {
            return;
        }
        let refused = value_was_refused(&outcome.result);
        if outcome.value_written || refused {
            self.value_written(id, refused, out);
        }
        let Some(resource) = self.resources.get(&id) else { return };
        let ended = match &outcome.result {
            // The leader is free, so the command succeeds; the mark in our block is still to be written.
            Ok(_) if outcome.needs_retract() => Err((0, true)),
            Ok(_) => Ok(()),
            // As for a release that begins now: nothing to do on disk.
            Err(ReleaseError::LockspaceGone) if !self.in_usable_lockspace(resource) => Ok(()),
            // Likewise: what it had not begun to write was taken back.
            Err(
                ReleaseError::Io(IoFailure::TimedOut)
                | ReleaseError::LeaderWrite(IoFailure::TimedOut)
                | ReleaseError::DblockWrite(IoFailure::TimedOut),
            ) if outstanding == 0 && !self.in_usable_lockspace(resource) => Ok(()),
            Err(e) => {
                let code = ReturnCode::from(e).0;
                let text =
                    format!("release {}:{}: {e} ({code})", resource.spec.lockspace, resource.spec.name);
                log(out, Level::Error, Some(resource.ls), text);
                // A lockspace that only looked gone, too old for a moment, still needs it.
                Err((code, outcome.needs_retract() || *e == ReleaseError::LockspaceGone))
            }
        };
        if outstanding > 0 {
            // The client is answered now; the resource stays until every write has landed.
            if let Some(resource) = self.resources.get_mut(&id) {
                resource.work = Work::Settling { task };
            }
            self.answer_release(id, ended.err().map_or(0, |(code, _)| code), out);
            return;
        }
        self.release_ended(now, id, ended, out);
    }

    /// A release attempt with nothing outstanding has ended. `Err((code, retryable))`; code 0 if only the rest is to be retried.
    pub(crate) fn release_ended(
        &mut self,
        now: MonoTime,
        id: ResourceId,
        ended: Result<(), (i32, bool)>,
        out: &mut Vec<Action>,
    ) {
        let waiting = self.resources.get_mut(&id).and_then(|r| r.for_op.take());
        match ended {
            Err((_, true)) => self.retry_later(now, id),
            Ok(()) | Err((_, false)) => {
                self.resources.remove(&id);
            }
        }
        self.released_for(waiting, id, ended.err().map_or(0, |(code, _)| code), out);
    }

    /// The command that waits for this release goes on; what is left to do is done without it.
    fn answer_release(&mut self, id: ResourceId, code: i32, out: &mut Vec<Action>) {
        let waiting = self.resources.get_mut(&id).and_then(|r| r.for_op.take());
        self.released_for(waiting, id, code, out);
    }

    fn released_for(&mut self, waiting: Option<OpNumber>, id: ResourceId, code: i32, out: &mut Vec<Action>) {
        let Some(number) = waiting else { return };
        if let Some(givings) = self.givings(number) {
            givings.ended(id, code);
        }
        self.release_next(number, out);
    }

    /// The next attempt: at once, then after T, then every 2T (lease-algorithms.md 6.4).
    pub(crate) fn retry_later(&mut self, now: MonoTime, id: ResourceId) {
        let Some(resource) = self.resources.get(&id) else { return };
        let Some(ls) = self.lockspaces.get(&resource.ls).filter(|ls| ls.usable()) else {
            self.resources.remove(&id);
            return;
        };
        let t = ls.io_timeout.secs();
        let wait = match resource.attempts {
            0 | 1 => 0,
            2 => t,
            _ => 2 * t,
        };
        if let Some(resource) = self.resources.get_mut(&id) {
            resource.work = Work::Retry { at: now.plus_secs(wait) };
        }
    }

    pub(crate) fn settled(&mut self, now: MonoTime, task: TaskId, out: &mut Vec<Action>) {
        let Some(id) = self.tasks.remove(&task) else { return };
        let Some(resource) = self.resources.get_mut(&id) else { return };
        if resource.unsettled == Some(task) {
            resource.unsettled = None;
        }
        if matches!(resource.work, Work::Settling { task: t } if t == task) {
            // What landed is unknown: look, and take back what is ours.
            if resource.attempts <= 1 {
                self.start_retract(id, out);
            } else {
                self.retry_later(now, id);
            }
        }
    }

    /// What is due to be given up, or taken back, once more in a lockspace that has no watchdog behind it: not asked for again with every tick.
    pub(crate) fn put_releases_off(&mut self, now: MonoTime, ls: LockspaceId) {
        let t = self.lockspaces.get(&ls).map_or(1, |ls| ls.io_timeout.secs());
        let later = now.plus_secs(2 * t);
        for resource in self.resources.values_mut().filter(|r| r.ls == ls) {
            match &mut resource.work {
                Work::Retry { at } if *at <= now => *at = later,
                Work::Held { .. } => resource.erase_due.0 = resource.erase_due.0.max(later),
                _ => {}
            }
        }
    }

    pub(crate) fn retry_releases(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        let due: Vec<ResourceId> =
            self.resources.iter().filter(|(_, r)| r.is_to_be_retried(now)).map(|(id, _)| *id).collect();
        for id in due {
            self.retry_release(now, id, out);
        }
    }

    /// The next attempt of one release, if it is due. Whether it has begun.
    pub(crate) fn retry_release(&mut self, now: MonoTime, id: ResourceId, out: &mut Vec<Action>) -> bool {
        let due = self.resources.get(&id).filter(|r| r.is_to_be_retried(now));
        let Some(ls) = due.map(|r| r.ls) else { return false };
        // Behind what was an orphan there may be no watchdog yet; the next tick looks again.
        let begins = self.require_watchdog_quietly(now, ls, out) == Ok(true);
        if begins {
            self.start_retract(id, out);
        }
        begins
    }
}
