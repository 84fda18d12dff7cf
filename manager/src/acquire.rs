//! ACQUIRE: all of the resources or none (socket-protocol.md 7.7).

use crate::action::Action;
use crate::event::{AcquireFlags, ResourceRequest, Target};
use crate::ids::{ConnId, LockspaceId, ResourceId, TaskId};
use crate::orphans::Local;
use crate::requests::Manner;
use crate::side::{Givings, Taken, Taking, Takings};
use crate::state::{Op, OpKind, OpNumber, Resource, Token, Work};
use crate::value::Value;
use crate::{Level, Manager, TOKENS_MAX, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::limits::{DISKS_MAX, RESOURCES_PER_REQUEST_MAX};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, Mode};
use sanlock_lease::paxos::take::ValueRead;
use sanlock_lease::paxos::{AcquireError, PaxosConfig};
use sanlock_lease::text::ResourceSpec;
use sanlock_lease::timing::MonoTime;

/// What beginning with a resource came to.
enum Begun {
    /// This host holds it already, shared or as an orphan: nothing to do on disk.
    Held(ResourceId),
    /// Its task runs.
    Running(TaskId),
    /// It waits for the watchdog of its lockspace.
    Arming(LockspaceId),
}

/// Why a resource was not acquired.
struct Refused {
    code: i32,
    /// Whether it may be asked for again when it is its turn.
    again: bool,
}

/// These tasks are not needed any more.
fn stop(tasks: Vec<TaskId>, out: &mut Vec<Action>) {
    out.extend(tasks.into_iter().map(|task| Action::ClientGone { task }));
}

impl Manager {
    #[expect(clippy::too_many_arguments, reason = "the fields of one command")]
    pub(crate) fn acquire(
        &mut self,
        now: MonoTime,
        conn: ConnId,
        target: Target,
        owner_name: Name,
        resources: Vec<ResourceRequest>,
        flags: AcquireFlags,
        out: &mut Vec<Action>,
    ) {
        let target = match self.find_target(conn, target, true) {
            Ok(target) => target,
            Err(e) => return reply(out, conn, e.0),
        };
        if let Err(e) = check_sizes(&resources) {
            return reply(out, conn, e.0);
        }
        // The name follows the resources in the message: only with them in order is it read.
        self.name_owner(target, owner_name);
        if let Err(e) = self.check_request(target, &resources) {
            return reply(out, conn, e.0);
        }
        let kind = OpKind::Acquire { takings: Takings::new(resources), flags };
        let number = self.begin_op(conn, target, kind);
        self.acquire_next(now, number, out);
    }

    fn name_owner(&mut self, target: ConnId, owner_name: Name) {
        if let Some(client) = self.conns.get_mut(&target) {
            client.owner_name = Some(owner_name);
        }
    }

    /// What can be said before anything is touched.
    fn check_request(&self, target: ConnId, resources: &[ResourceRequest]) -> Result<(), ReturnCode> {
        let held = self.conns.get(&target).map_or(0, |c| c.held().count());
        if held + resources.len() > TOKENS_MAX {
            return Err(ReturnCode::E2BIG);
        }
        for request in resources {
            self.usable_lockspace(&request.spec.lockspace)?;
        }
        Ok(())
    }

    fn usable_lockspace(&self, name: &Name) -> Result<LockspaceId, ReturnCode> {
        let mut found = self.lockspaces.iter().filter(|(_, ls)| ls.usable() && ls.spec.name == *name);
        found.next().map(|(id, _)| *id).ok_or(ReturnCode::ENOSPC)
    }

    fn target_alive(&self, target: ConnId) -> bool {
        self.conns.get(&target).is_some_and(|c| !c.closed)
    }

    /// Starts what may be started of a request; grants everything, or gives everything back, once nothing is left to wait for.
    /// What has no watchdog behind it yet waits.
    pub(crate) fn acquire_next(&mut self, now: MonoTime, number: OpNumber, out: &mut Vec<Action>) {
        loop {
            let tasks = self.tasks_running();
            let Some(Op { target, kind: OpKind::Acquire { takings, flags }, .. }) = self.ops.get(&number)
            else {
                return;
            };
            let (target, flags) = (*target, *flags);
            let Some((at, request)) = takings.next(tasks) else { break };
            let request = request.clone();
            let started = if self.target_alive(target) {
                self.start_acquire(now, number, target, &request, flags, out)
            } else {
                Err(ReturnCode::ENOTTY)
            };
            let Some(takings) = self.takings(number) else { return };
            match started {
                Ok(Begun::Held(id)) => takings.set(at, Taking::Acquired(id)),
                Ok(Begun::Running(task)) => takings.set(at, Taking::Running(task)),
                Ok(Begun::Arming(ls)) => takings.set(at, Taking::Arming(ls)),
                // Nothing was touched, so it can be asked for again when it is its turn.
                Err(e) => stop(takings.refuse(at, e.0, true), out),
            }
        }
        let Some(Taken { acquired, failure }) = self.takings(number).and_then(|t| t.outcome()) else {
            return;
        };
        match failure {
            None => self.acquired_all(now, number, acquired, out),
            Some(code) => self.undo(number, acquired, code, out),
        }
    }

    fn takings(&mut self, number: OpNumber) -> Option<&mut Takings> {
        match self.ops.get_mut(&number) {
            Some(Op { kind: OpKind::Acquire { takings, .. }, .. }) => Some(takings),
            _ => None,
        }
    }

    /// The task of one resource of a request has ended.
    fn taken(
        &mut self,
        now: MonoTime,
        number: OpNumber,
        task: TaskId,
        result: Result<ResourceId, Refused>,
        out: &mut Vec<Action>,
    ) {
        let Some(takings) = self.takings(number) else { return };
        let Some(at) = takings.place_of(task) else { return };
        match result {
            Ok(id) => takings.set(at, Taking::Acquired(id)),
            Err(Refused { code, again }) => stop(takings.refuse(at, code, again), out),
        }
        self.acquire_next(now, number, out);
    }

    fn start_acquire(
        &mut self,
        now: MonoTime,
        number: OpNumber,
        target: ConnId,
        request: &ResourceRequest,
        flags: AcquireFlags,
        out: &mut Vec<Action>,
    ) -> Result<Begun, ReturnCode> {
        self.beside_index(request.spec.names(), out)?;
        let token = Token::new(target, request.persistent);
        let local = self.local_state(&request.spec, flags.orphan)?;
        if let Local::Join(id) = local {
            self.add_holder(id, token)?;
            // Who waits for his turn to give it up is not the last one any more.
            self.releases_without_turn(out);
            return Ok(Begun::Held(id));
        }
        let ls = self.usable_lockspace(&request.spec.lockspace)?;
        let adopts = matches!(local, Local::Adopt(_));
        let armed = if adopts {
            self.require_watchdog(now, ls, out)?
        } else {
            self.require_protection(now, ls, out)?
        };
        if !armed {
            return Ok(Begun::Arming(ls));
        }
        if let Local::Adopt(id) = local {
            self.add_holder(id, Token { adopts: true, ..token })?;
            let manner = self.manner_of(target, &request.spec);
            if let Some(resource) = self.resources.get_mut(&id) {
                resource.manner = manner;
            }
            return Ok(Begun::Held(id));
        }
        let lockspace = self.lockspaces.get(&ls).ok_or(ReturnCode::ENOSPC)?;
        let joined = lockspace.joined.as_ref().ok_or(ReturnCode::ENOSPC)?;
        let config = PaxosConfig {
            lockspace: request.spec.lockspace,
            resource: request.spec.name,
            host: lockspace.host,
            generation: joined.generation(),
            io_timeout: lockspace.io_timeout,
            fire: self.settings.fire,
            geometry: joined.geometry,
            disks: u8::try_from(request.spec.disks.len()).map_err(|_| ReturnCode::ERANGE)?,
        };
        let geometry = joined.geometry;
        let options = AcquireOptions {
            owner_nowait: flags.owner_nowait,
            lver: request.spec.lver,
            num_hosts: request.num_hosts,
            seed: 0,
            mode: if request.spec.shared { Mode::ShortHold } else { Mode::Exclusive },
        };
        let pid = self.conns.get(&target).and_then(|c| c.pid).filter(|_| !request.spec.shared).unwrap_or(0);
        let task = TaskId(self.next_id());
        let id = ResourceId(self.next_id());
        let spec = ResourceSpec { lver: None, ..request.spec.clone() };
        let disks = spec.disks.clone();
        let instead_of = match local {
            Local::InsteadOf(release) => self.resources.remove(&release).map(Box::new),
            Local::Nothing | Local::Join(_) | Local::Adopt(_) => None,
        };
        let resource = Resource {
            spec,
            ls,
            work: Work::Acquiring { task, persistent: request.persistent },
            renamed: None,
            hold: None,
            attempt: None,
            pid,
            lver: 0,
            geometry,
            value: None,
            manner: self.manner_of(target, &request.spec),
            converting: None,
            erase: false,
            erase_due: (MonoTime::default(), 0),
            unsettled: None,
            attempts: 0,
            gone_since: None,
            instead_of,
            for_op: Some(number),
            to_examine: false,
        };
        self.resources.insert(id, resource);
        self.tasks.insert(task, id);
        out.push(Action::StartAcquire { task, ls, config, options, value: flags.lvb, disks });
        Ok(Begun::Running(task))
    }

    /// How this process is to be told of requests for what it acquires: nobody is told of those for a shared lease.
    fn manner_of(&self, target: ConnId, spec: &ResourceSpec) -> Option<Manner> {
        self.conns.get(&target).filter(|_| !spec.shared).map(Manner::of)
    }

    pub(crate) fn acquire_done(
        &mut self,
        now: MonoTime,
        task: TaskId,
        (outcome, value): (AcquireOutcome, Option<ValueRead>),
        outstanding: u32,
        out: &mut Vec<Action>,
    ) {
        let Some(id) = self.task_done(task, outstanding) else { return };
        let Some(resource) = self.resources.get_mut(&id) else { return };
        let persistent = match resource.work {
            Work::Acquiring { task: t, persistent } if t == task => persistent,
            _ => return,
        };
        let number = resource.for_op.take();
        let ls = resource.ls;
        match outcome {
            AcquireOutcome::Acquired(held) => {
                resource.instead_of = None;
                let target = number.and_then(|n| self.ops.get(&n)).map(|op| op.target);
                let Some((number, conn)) = number.zip(target) else {
                    return self.give_back(id, task, outstanding, out);
                };
                resource.work = Work::Held { held, tokens: vec![Token::new(conn, persistent)] };
                if let Some(Err(error)) = &value {
                    let text = format!(
                        "the value block of {}:{} cannot be read: {error}",
                        resource.spec.lockspace, resource.spec.name
                    );
                    log(out, Level::Error, Some(ls), text);
                }
                resource.value = value.map(Value::new);
                // Of a shared hold the version says nothing: it changes with every host that joins in.
                resource.lver = if held.is_shared() { 0 } else { held.lver() };
                resource.geometry = held.geometry;
                // A minority of several disks may lag behind; the lease itself is ours.
                resource.unsettled = (outstanding > 0).then_some(task);
                self.taken(now, number, task, Ok(id), out);
            }
            AcquireOutcome::Failed { error, retract, geometry } => {
                (resource.geometry, resource.attempt) = (geometry, retract);
                let code = ReturnCode::from(&error).0;
                let text =
                    format!("acquire {}:{}: {error} ({code})", resource.spec.lockspace, resource.spec.name);
                let quiet = error.is_contention() && (self.settings.quiet_fail || !is_another_host(&error));
                log(out, if quiet { Level::Debug } else { Level::Error }, Some(ls), text);
                let in_the_way = if retract.is_some() || outstanding > 0 {
                    // What this host has there by now, whenever it wrote that, is taken back.
                    resource.instead_of = None;
                    self.give_back(id, task, outstanding, out);
                    true
                } else {
                    self.back_to_release(now, id, out)
                };
                if let Some(number) = number {
                    // What is given up there is in the way of another attempt, and would be its result.
                    let refused = Refused { code, again: error.is_contention() && !in_the_way };
                    self.taken(now, number, task, Err(refused), out);
                }
            }
        }
    }

    pub(crate) fn start_failed(&mut self, now: MonoTime, task: TaskId, code: i32, out: &mut Vec<Action>) {
        let Some(id) = self.tasks.remove(&task) else { return };
        let Some(resource) = self.resources.get_mut(&id) else { return };
        match resource.work {
            Work::Acquiring { task: t, .. } if t == task => {
                let number = resource.for_op.take();
                let text = format!("open {}:{}: {code}", resource.spec.lockspace, resource.spec.name);
                log(out, Level::Error, Some(resource.ls), text);
                self.back_to_release(now, id, out);
                if let Some(number) = number {
                    self.taken(now, number, task, Err(Refused { code, again: false }), out);
                }
            }
            Work::Held { .. } if resource.converting == Some(task) => self.convert_ended(id, code, out),
            Work::Settling { task: t } if t == task => {
                resource.converting = None;
                self.start_retract(id, out);
            }
            Work::Releasing { task: t } if t == task => self.release_not_begun(now, id, code, out),
            _ => {}
        }
    }

    /// Everything is acquired: check once more, note the process in the rejoin records, then grant.
    fn acquired_all(
        &mut self,
        now: MonoTime,
        number: OpNumber,
        acquired: Vec<ResourceId>,
        out: &mut Vec<Action>,
    ) {
        let Some(target) = self.ops.get(&number).map(|op| op.target) else { return };
        if self.target_alive(target) {
            let used: Vec<LockspaceId> =
                acquired.iter().filter_map(|id| self.resources.get(id)).map(|r| r.ls).collect();
            for ls in used {
                self.note_process(ls, target, out);
            }
        }
        if let Some(op) = self.ops.get_mut(&number) {
            op.kind = OpKind::Granting { acquired };
        }
        self.grant(now, number, out);
    }

    /// Ends the waiting of every request that has nothing more to wait for: its records are saved, its target hung up, or one
    /// of its lockspaces died. Whether there was one.
    pub(crate) fn grant_ready(&mut self, now: MonoTime, out: &mut Vec<Action>) -> bool {
        let granting: Vec<OpNumber> = self
            .ops
            .iter()
            .filter(|(_, op)| matches!(op.kind, OpKind::Granting { .. }))
            .map(|(number, _)| *number)
            .collect();
        let mut any = false;
        for number in granting {
            any |= self.grant(now, number, out);
        }
        any
    }

    /// Grants when the records are saved, if the lockspaces are still what they were (rule R10). Whether it waits no more.
    fn grant(&mut self, now: MonoTime, number: OpNumber, out: &mut Vec<Action>) -> bool {
        let Some(Op { target, kind: OpKind::Granting { acquired }, .. }) = self.ops.get(&number) else {
            return false;
        };
        let (target, acquired) = (*target, acquired.clone());
        let held = || acquired.iter().map(|id| self.resources.get(id));
        let intact = held().all(|r| r.is_some_and(|r| self.still_valid(now, r)));
        let waiting = held().flatten().any(|r| {
            self.lockspaces
                .get(&r.ls)
                .is_some_and(|ls| ls.rejoin.get(&target).is_none_or(|serial| ls.rejoin_saved < *serial))
        });
        if intact && waiting && self.target_alive(target) {
            return false;
        }
        if !self.target_alive(target) || !intact {
            let code = if intact { ReturnCode::ENOTTY } else { ReturnCode::ENOSPC };
            self.undo(number, acquired, code.0, out);
            return true;
        }
        let holder = self.conns.get(&target).and_then(|c| c.pid).unwrap_or(0);
        for id in &acquired {
            if let Some(Resource { work: Work::Held { tokens, .. }, pid, spec, .. }) =
                self.resources.get_mut(id)
            {
                // From now on it is what this one holds: whoever else is about to share it takes over no orphan any more.
                tokens.iter_mut().for_each(|t| t.adopts = false);
                if let Some(token) = tokens.iter_mut().find(|t| t.conn == target && !t.granted) {
                    token.granted = true;
                    if !spec.shared {
                        *pid = holder;
                    }
                }
            }
            if let Some(client) = self.conns.get_mut(&target) {
                client.add_token(*id);
            }
        }
        self.end_op(number, 0, out);
        self.examine_granted(&acquired, out);
        true
    }

    /// Whether the lockspace is alive with the generation the resource was acquired with. The age is looked at here too: after
    /// this process stood still, a request may be looked at before the tick.
    pub(crate) fn still_valid(&self, now: MonoTime, resource: &Resource) -> bool {
        let Work::Held { held, .. } = &resource.work else { return false };
        self.lockspaces.get(&resource.ls).is_some_and(|ls| {
            let age = ls.last_good.map_or(0, |good| now.secs_since(good));
            ls.usable()
                && age < ls.io_timeout.renewal_fail_secs()
                && ls.generation() == held.leader.owner_generation.get()
                && ls.host.get() == held.leader.owner_id.get()
        })
    }

    /// One resource of a request failed: the others are released again, then the failure is the result.
    fn undo(&mut self, number: OpNumber, acquired: Vec<ResourceId>, code: i32, out: &mut Vec<Action>) {
        if let Some(op) = self.ops.get_mut(&number) {
            op.kind = OpKind::Release { givings: Givings::undo(acquired, code), rename: None };
        }
        self.release_next(number, out);
    }

    /// Sees to it that the process behind a connection is in the lockspace's rejoin record before it is granted anything.
    ///
    /// By connection, not by pid: a pid that was used before may be in the record with the start time of its last process.
    fn note_process(&mut self, ls: LockspaceId, conn: ConnId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls).filter(|ls| ls.usable()) else { return };
        if lockspace.rejoin.contains_key(&conn) {
            return;
        }
        lockspace.rejoin.retain(|c, _| self.conns.contains_key(c));
        lockspace.rejoin.insert(conn, lockspace.rejoin_asked + 1);
        self.save_rejoin(ls, false, out);
    }
}

/// What the message itself shows, before the owner's name is read.
fn check_sizes(resources: &[ResourceRequest]) -> Result<(), ReturnCode> {
    if resources.len() > RESOURCES_PER_REQUEST_MAX {
        return Err(ReturnCode::E2BIG);
    }
    if resources.iter().any(|r| r.spec.disks.is_empty() || r.spec.disks.len() > DISKS_MAX) {
        return Err(ReturnCode::ERANGE);
    }
    Ok(())
}

/// Whether another host has or had the lease: what `quiet_fail` is about (command-line.md 11.5).
const fn is_another_host(error: &AcquireError) -> bool {
    use AcquireError::{Live, NotYetDead, Other, Owned};
    matches!(error, Live(_) | Owned(_) | Other(_) | NotYetDead(_))
}
