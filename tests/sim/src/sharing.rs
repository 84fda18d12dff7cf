//! Processes that share: which mode they ask for, and conversions.

use crate::clients::Asked;
use crate::layout;
use crate::sabotage::Sabotage;
use crate::world::World;
use sanlock_lease::code::ReturnCode;
use sanlock_manager::{Action, Command, ConnId, Target};

impl World {
    /// The mode to ask for: whether shared. In the calm everybody asks for every lease in both modes by turns.
    pub(crate) fn wants_shared(&mut self, host: usize, resource: u8) -> bool {
        let share = self.settings.shared_per_mille;
        if share == 0 || !self.calm {
            return share > 0 && self.dice.per_mille(share);
        }
        let tries = self.hosts[host].tried_in_calm.get(&resource).copied().unwrap_or(0);
        tries % 2 == 0 && !self.sabotaged(Sabotage::NobodyShares)
    }

    /// Sabotage: a second process of the host shares a lease without the manager's knowledge.
    pub(crate) fn joins_unseen(&mut self, host: usize, pid: i32, resources: &[(u8, bool)]) -> bool {
        let [(resource, true)] = *resources else { return false };
        let neighbour = self.checks.sharer_on(resource, self.hosts[host].id);
        let Some(generation) = neighbour.filter(|_| self.sabotaged(Sabotage::NeighboursUnseen)) else {
            return false;
        };
        self.share(host, pid, resource, generation);
        let after = self.hold_time();
        self.turn_after(host, pid, after);
        true
    }

    /// Whether a process is going to convert something now rather than acquire or release.
    pub(crate) fn converts(&mut self) -> bool {
        self.settings.shared_per_mille > 0 && self.dice.per_mille(250)
    }

    /// Asks for the other mode of something that is held.
    pub(crate) fn convert(&mut self, host: usize, pid: i32, conn: ConnId, held: &[u8]) {
        let id = self.hosts[host].id;
        let last = (held.len() as u64).saturating_sub(1);
        let at = usize::try_from(self.dice.between(0, last)).unwrap_or(0);
        let Some(resource) = held.get(at).copied() else { return };
        let shared = self.checks.holds(resource, id, pid) == Some(false);
        let spec = self.spec_of(host, resource);
        let owner_nowait = self.dice.per_mille(600);
        let (other, target) = self.requester(host, pid);
        let command =
            Command::Convert { target, lockspace: spec.lockspace, name: spec.name, shared, owner_nowait };
        self.ask(host, other.unwrap_or(conn), Asked::Convert { pid, resource, shared }, command);
        self.wait_for_reply(host, pid);
    }

    /// Now and then somebody else asks for a process, as `sanlock client acquire -p PID` does.
    pub(crate) fn requester(&mut self, host: usize, pid: i32) -> (Option<ConnId>, Target) {
        match self.dice.per_mille(150).then(|| self.connect(host, None)).flatten() {
            Some(conn) => (Some(conn), Target::Pid(pid)),
            None => (None, Target::Own),
        }
    }

    /// The manager has taken a conversion in, or refused it.
    pub(crate) fn convert_accepted(
        &mut self,
        host: usize,
        (pid, resource, shared): (i32, u8, bool),
        actions: &[Action],
    ) {
        let id = self.hosts[host].id;
        if actions.iter().any(|a| matches!(a, Action::StartConvert { .. })) {
            self.checks.converting(resource, id, pid, shared);
        } else if self.shared_here(host, resource) > 1 {
            self.checks.marks.converts_beside_others += 1;
        }
    }

    /// How many tokens the manager has of a resource.
    fn shared_here(&self, host: usize, resource: u8) -> usize {
        let spec = layout::resource_spec(resource, self.settings.legs, self.settings.geometry);
        let same = |r: &sanlock_manager::Resource| r.spec.disks == spec.disks;
        let daemon = self.hosts[host].daemon.as_ref();
        let found = daemon.and_then(|d| d.manager.resources().find(|(_, r)| same(r)));
        found.map_or(0, |(_, r)| r.tokens().len())
    }

    /// The process learns what its conversion came to.
    pub(crate) fn convert_replied(&mut self, host: usize, pid: i32, resource: u8, shared: bool, code: i32) {
        let (id, writer) = (self.hosts[host].id, self.writer(host));
        let success = code == 0 && !(shared && self.sabotaged(Sabotage::DowngradesDenied));
        self.say(|_| format!("{id:?} {pid} CONVERTED resource {resource} to shared {shared}: {code}"));
        if success && !shared && self.checks.holds(resource, id, pid) == Some(true) {
            self.checks.converted_up(resource, id, pid);
            self.granted(host, pid, resource, false);
        } else {
            // It may be exclusive on disk by then, and nobody is told.
            let lost = code == ReturnCode::ENOSPC.0;
            self.checks.converted(resource, writer, pid, (success, lost), &self.disk);
        }
        let after = self.hold_time();
        self.answered(host, pid, after);
    }
}
