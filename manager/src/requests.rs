//! Requests of other hosts for leases that this one holds (lease-algorithms.md 8.2; socket-protocol.md 7.13).
//!
//! A request is a record on the lease's disk; its writer sets our bit in its bitmap, or somebody here says "examine". Then the
//! records of the leases concerned are read, and whoever holds a lease that is wanted is told in the way the request asks for.
//! A request is not cleared: it is acted upon each time, until the version held is the one asked for. The look that is made only
//! because a bit stood for longer ([`crate::events`]) is an exception: a process that was told before it is left alone.

use crate::action::Action;
use crate::ids::{ConnId, LockspaceId, ResourceId};
use crate::killpath::KillpathProgram;
use crate::state::{Conn, Lockspace, Resource, ResourceList};
use crate::{Level, Manager, killpath, log, reply};
use sanlock_lease::name::Name;
use sanlock_lease::recovery::{Restrictions, Signal};
use sanlock_lease::text::ResourceSpec;
use std::collections::{BTreeMap, BTreeSet};

/// Kill the holder.
const FORCE: u32 = 1;
/// Run the holder's killpath program, or send it SIGTERM.
const GRACEFUL: u32 = 2;

/// The looking of one lockspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looking {
    /// Leases still to be looked at.
    left: BTreeSet<ResourceId>,
    /// Some are being looked at: these.
    running: Option<BTreeSet<ResourceId>>,
    /// Somebody asks for what is left to be looked at now; otherwise a bit only stood for longer.
    wanted: bool,
    /// The same of what is being looked at.
    wanted_now: bool,
    /// Version and force mode of what was last acted upon, and who was told: an orphan's next process has been told nothing.
    acted: BTreeMap<ResourceId, (u64, u32, Option<ConnId>)>,
}

impl Looking {
    /// Whether this lease is being looked at, or will be.
    fn concerns(&self, id: ResourceId) -> bool {
        self.left.contains(&id) || self.running.as_ref().is_some_and(|running| running.contains(&id))
    }
}

/// How the process that holds a lease is told of a request: by what was in force when it acquired the lease (socket-protocol.md 7.10, 7.16).
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    killpath: Option<KillpathProgram>,
    restrictions: Restrictions,
}

impl Manner {
    pub(crate) fn of(client: &Conn) -> Self {
        Self { killpath: client.killpath.clone(), restrictions: crate::killing::restrictions(client) }
    }
}

/// What was found on the disk of a held lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose.
    pub resource: ResourceId,
    /// The version asked for, 0 for none.
    pub lver: u64,
    /// How its holder is to be told.
    pub force_mode: u32,
}

/// What STATUS shows of a resource as `flags` (socket-protocol.md 8).
mod shown {
    pub(super) const SHARED: u32 = 0x1;
    pub(super) const EXAMINE: u32 = 0x2;
    pub(super) const RELEASE: u32 = 0x4;
    pub(super) const NO_SIGKILL: u32 = 0x8;
    pub(super) const NO_SIGTERM: u32 = 0x10;
    pub(super) const VALUE: u32 = 0x20;
}

impl Manager {
    /// The flags of a resource as STATUS shows them: its mode, what is still to be done about it, and which signals its holder did not
    /// want when it was acquired. The undo states of the original have no counterpart.
    #[must_use]
    pub fn flags(&self, id: ResourceId, resource: &Resource) -> u32 {
        let restrictions = resource.manner.as_ref().map(|manner| manner.restrictions).unwrap_or_default();
        let examine = self.lockspaces.get(&resource.ls).is_some_and(|ls| ls.looking.concerns(id));
        // Not one that a command waits for.
        let release = resource.list() == ResourceList::Rem && resource.for_op.is_none();
        [
            (resource.spec.shared, shown::SHARED),
            (examine, shown::EXAMINE),
            (release, shown::RELEASE),
            (restrictions.kill, shown::NO_SIGKILL),
            (restrictions.term, shown::NO_SIGTERM),
            (resource.unwritten_value().is_some(), shown::VALUE),
        ]
        .into_iter()
        .filter(|(set, _)| *set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }

    /// Whose a resource will be that is being acquired.
    #[must_use]
    pub fn taker(&self, resource: &Resource) -> Option<i32> {
        let by_op = || Some(self.ops.get(&resource.for_op?)?.target);
        let conn = resource.tokens().first().map(|token| token.conn).or_else(by_op)?;
        self.conns.get(&conn)?.pid
    }

    /// EXAMINE: always successful, also where nothing is held.
    pub(crate) fn examine_command(
        &mut self,
        conn: ConnId,
        lockspace: &Name,
        resource: Option<Name>,
        out: &mut Vec<Action>,
    ) {
        self.examine(lockspace, resource, false, out);
        reply(out, conn, 0);
    }

    /// Has the requests for held leases of a lockspace read: of one, or of all. `again`: only what is new counts.
    pub(crate) fn examine(
        &mut self,
        lockspace: &Name,
        resource: Option<Name>,
        again: bool,
        out: &mut Vec<Action>,
    ) {
        let wanted = |r: &Resource| {
            r.spec.lockspace == *lockspace
                && resource.is_none_or(|name| r.spec.name == name)
                // Nobody is recorded as the holder of a lease held shared.
                && !r.spec.shared
        };
        let mut found = Vec::new();
        for (id, r) in self.resources.iter_mut().filter(|(_, r)| wanted(r)) {
            if r.is_granted() {
                found.push(*id);
            } else {
                r.to_examine = true;
            }
        }
        self.look_for(found, !again, out);
    }

    /// The look that was asked for before these were granted: a bit stands for some seconds only, and a request may wait longer for its
    /// other leases than that.
    pub(crate) fn examine_granted(&mut self, granted: &[ResourceId], out: &mut Vec<Action>) {
        let mut asked = Vec::new();
        for id in granted {
            let resource = self.resources.get_mut(id).filter(|r| !r.spec.shared);
            if resource.is_some_and(|r| std::mem::take(&mut r.to_examine)) {
                asked.push(*id);
            }
        }
        self.look_for(asked, true, out);
    }

    fn look_for(&mut self, leases: Vec<ResourceId>, wanted: bool, out: &mut Vec<Action>) {
        let mut concerned = BTreeSet::new();
        for id in leases {
            let Some(ls) = self.resources.get(&id).map(|r| r.ls) else { continue };
            if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
                lockspace.looking.left.insert(id);
                lockspace.looking.wanted |= wanted;
                concerned.insert(ls);
            }
        }
        concerned.into_iter().for_each(|ls| self.look_on(ls, out));
    }

    fn look_on(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if lockspace.looking.running.is_some() || lockspace.looking.left.is_empty() {
            return;
        }
        let left = std::mem::take(&mut lockspace.looking.left);
        lockspace.looking.running = Some(left.clone());
        lockspace.looking.wanted_now = std::mem::take(&mut lockspace.looking.wanted);
        lockspace.looking.acted.retain(|id, _| self.resources.contains_key(id));
        let held = |id: ResourceId| Some((id, self.resources.get(&id)?.spec.clone()));
        let leases: Vec<(ResourceId, ResourceSpec)> = left.into_iter().filter_map(held).collect();
        out.push(Action::LookForRequests { ls, leases });
    }

    pub(crate) fn requests_looked(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
            lockspace.looking.running = None;
        }
        self.look_on(ls, out);
    }

    pub(crate) fn requested(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(resource) = self.resources.get(&request.resource) else { return };
        // Converted while the disk was read, it has no version that could be too old.
        if !resource.is_granted() || resource.spec.shared {
            return;
        }
        if request.force_mode == 0 || request.lver <= resource.lver {
            return;
        }
        let (ls, mode) = (resource.ls, request.force_mode);
        // To the program of a process that has ended, what has inherited its connection is known.
        let has_program = |client: &Conn| {
            let manner = resource.manner.as_ref();
            mode == GRACEFUL && manner.map_or(client.killpath.is_some(), |manner| manner.killpath.is_some())
        };
        let is_told = |client: &Conn| !client.pid_gone || has_program(client);
        let holds = |client: &Conn| client.held().any(|id| id == request.resource) && is_told(client);
        let holder = self.conns.iter().find(|(_, client)| holds(client));
        if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
            let asked = (request.lver, mode, holder.map(|(conn, _)| *conn));
            let before = lockspace.looking.acted.insert(request.resource, asked);
            if before == Some(asked) && !lockspace.looking.wanted_now {
                return;
            }
        }
        let what = format!(
            "request for {}:{} version {}",
            resource.spec.lockspace, resource.spec.name, request.lver
        );
        let Some((conn, client)) = holder else {
            return log(out, Level::Error, Some(ls), format!("{what}: its holder has no process to be told"));
        };
        let pid = client.pid.unwrap_or(0);
        let manner = resource.manner.clone().unwrap_or_else(|| Manner::of(client));
        let signal = match (mode, &manner.killpath) {
            // Once: who wants neither signal gets the gentler one here, unlike a process whose lockspace ends (lease-algorithms.md 8.2).
            (FORCE, _) if manner.restrictions.kill => Signal::Term,
            (FORCE, _) => Signal::Kill,
            (GRACEFUL, Some(program)) => {
                let words = killpath::words(program, None);
                let request = Some(request.resource);
                out.push(Action::RunKillpath { conn: *conn, pid, request, words });
                return log(
                    out,
                    Level::Durable,
                    Some(ls),
                    format!("{what}: killpath program of pid {pid} runs"),
                );
            }
            (GRACEFUL, None) => manner.restrictions.apply(Signal::Term),
            _ => return log(out, Level::Error, Some(ls), format!("{what}: unknown force mode {mode}")),
        };
        let name = match signal {
            Signal::Kill => "SIGKILL",
            Signal::Term => "SIGTERM",
        };
        out.push(Action::Kill { conn: *conn, pid, signal });
        log(out, Level::Durable, Some(ls), format!("{what}: pid {pid} gets {name}"));
    }

    /// Whoever was to be told of a request has not been: it is looked for once more. It need not stand any more.
    pub(crate) fn request_untold(&mut self, conn: ConnId, resource: ResourceId, out: &mut Vec<Action>) {
        let Some(Resource { ls, spec, .. }) = self.resources.get(&resource) else { return };
        let (lockspace, lease) = (spec.lockspace, spec.name);
        let Some(Lockspace { looking, .. }) = self.lockspaces.get_mut(ls) else { return };
        // Somebody else may have been told since.
        if looking.acted.get(&resource).is_some_and(|(.., told)| *told == Some(conn)) {
            looking.acted.remove(&resource);
            self.examine(&lockspace, Some(lease), true, out);
        }
    }
}
