//! Orphans: holds that outlive their process (lease-algorithms.md 7.3, 9.4).
//!
//! An orphan counts as a holder of its lease, without a process: S1, S3, S4, S12, S13 and V2 protect it as they do any other. It ends
//! when a process of its host adopts it, or when somebody has it released. Beyond that
//!
//! * where orphans do not count it ends with its lockspace, which nothing keeps alive for it: when that is given up, or is 8T old, or
//!   its daemon has died;
//! * where they do (USED_BY_ORPHANS) it stays until then or until its host is reset. The lockspace does not end before it (S6), the
//!   watchdog stands behind it (S7), and its host is reset in time (W4), also when the daemon that knew of it has died.

use super::{Checks, Holder, Writer, owner_of};
use crate::disk::SimDisk;
use crate::layout;
use sanlock_lease::geometry::HostId;
use sanlock_lease::paxos::Held;
use sanlock_lease::timing::MonoTime;

/// Stands for the process of an orphan.
pub(super) const ORPHAN: i32 = -1;
/// The same where orphans count and the daemon is gone: nobody can adopt or release it.
pub(super) const LEFT: i32 = -2;

impl Checks {
    /// Whether a hold, of this process, needs its host to be stopped in time.
    pub(super) fn counts(&self, host: HostId, disk: u8, pid: i32) -> bool {
        pid != ORPHAN || self.orphans_count(host, disk)
    }

    /// Whether the orphans of a lockspace are said to count.
    #[must_use]
    pub fn orphans_count(&self, host: HostId, disk: u8) -> bool {
        self.orphans_count.contains(&(host, disk))
    }

    /// What a host has no process for.
    #[must_use]
    pub fn orphans_of(&self, host: HostId) -> Vec<u8> {
        let holds = self.holds_of(host).filter(|(_, pid, _)| *pid == ORPHAN);
        holds.map(|(resource, _, _)| resource).collect()
    }

    /// A process has left this behind, and its daemon keeps it. `covered`: whether the watchdog stands behind its lockspace.
    pub fn orphaned(
        &mut self,
        resource: u8,
        writer: Writer,
        life: u32,
        held: &Held,
        covered: bool,
        disk: &SimDisk,
    ) {
        self.marks.orphaned += 1;
        let (host, id, lockspace) = (writer.host, self.id_of(writer.host), layout::disk_of(resource));
        let generation = held.leader.owner_generation.get();
        let counts = self.orphans_count(host, lockspace);
        self.marks.orphans_counting += u64::from(counts);
        if counts && !covered {
            self.violated(format!(
                "S7: an orphan of {host:?} counts, {resource}, with no watchdog armed for it"
            ));
        }
        let r = self.resources.or_default(resource);
        let alone = r.holder.filter(|holder| holder.host != host);
        if let Some(other) = alone {
            return self
                .violated(format!("S1: {resource} is an orphan on {host:?} while {other:?} holds it"));
        }
        if held.is_shared() {
            r.add_sharer((host, ORPHAN), id, life, generation);
            return self.mode_block_stays(resource, writer, disk);
        }
        let (lver, value) = (held.lver(), owner_of(&held.leader));
        r.holder = Some(Holder { host, id, pid: ORPHAN, life, generation, lver, value });
        let beside: Vec<_> = r.sharers.keys().copied().collect();
        if !beside.is_empty() {
            self.violated(format!("S1: {resource} is an orphan on {host:?} while {beside:?} share it"));
        }
        self.nothing_held_is_released(resource, disk);
        self.chosen_stays(resource, disk);
    }

    /// A process of the host is about to be granted a resource: if that was an orphan there, this very one. Whether it was.
    pub fn adopted(&mut self, resource: u8, host: HostId, lver: Option<u64>) -> bool {
        let Some(r) = self.resources.get(&resource) else { return false };
        let alone = r.holder.filter(|holder| holder.host == host && holder.pid == ORPHAN);
        if let (Some(orphan), Some(lver)) =
            (alone, lver.filter(|lver| alone.is_some_and(|o| o.lver != *lver)))
        {
            self.violated(format!(
                "S1: {host:?} grants version {lver} of {resource}, which it has as {orphan:?}"
            ));
        }
        self.orphan_over(resource, host)
    }

    /// It is one no more. Whether it was.
    pub fn orphan_over(&mut self, resource: u8, host: HostId) -> bool {
        let disk = layout::disk_of(resource);
        let r = self.resources.or_default(resource);
        let alone = r.holder.take_if(|holder| holder.host == host && holder.pid == ORPHAN).is_some();
        let was = r.sharers.remove(&(host, ORPHAN)).is_some() || alone;
        if was && self.orphans_count(host, disk) {
            self.user_ended(host, disk);
        }
        was
    }

    /// Those of a lockspace that is given up are over, unless they count.
    pub(super) fn orphans_end(&mut self, host: HostId, disk: u8) {
        if self.orphans_count(host, disk) {
            return;
        }
        for resource in self.orphans_of(host).into_iter().filter(|r| layout::disk_of(*r) == disk) {
            self.orphan_over(resource, host);
        }
    }

    /// S6: a lockspace has been left. No orphan that counts was in it.
    pub(super) fn left_by_orphans(&mut self, host: HostId, disk: u8) {
        let here = |r: &u8| layout::disk_of(*r) == disk;
        let left = self.orphans_of(host).into_iter().find(here);
        if let Some(resource) = left.filter(|_| self.orphans_count(host, disk)) {
            self.violated(format!(
                "S6: {host:?} leaves lockspace {disk} with the orphan {resource}, which counts"
            ));
        }
        self.orphans_count.remove(&(host, disk));
        self.orphans_end(host, disk);
    }

    /// Every second: lockspaces that are too old by their host's clock end without being given up while their daemon stands still.
    pub(super) fn old_orphans_end(&mut self, host: HostId, now: MonoTime) {
        let old = |(_, m): &(u8, &super::Membership)| m.age(now) >= m.fail_secs();
        let all: Vec<u8> = self.memberships(host).filter(old).map(|(disk, _)| disk).collect();
        for disk in all {
            self.orphans_end(host, disk);
        }
    }

    /// The daemon is gone: it can neither keep an orphan nor give one up. Those that count are there until the host is reset.
    pub(super) fn orphans_left_behind(&mut self, host: HostId) {
        for resource in self.orphans_of(host) {
            let disk = layout::disk_of(resource);
            if !self.orphans_count(host, disk) {
                self.orphan_over(resource, host);
                continue;
            }
            self.marks.orphans_left_behind += 1;
            let r = self.resources.or_default(resource);
            if let Some(holder) = r.holder.as_mut().filter(|h| h.host == host && h.pid == ORPHAN) {
                holder.pid = LEFT;
            }
            if let Some(sharer) = r.sharers.remove(&(host, ORPHAN)) {
                r.sharers.insert((host, LEFT), sharer);
            }
        }
        self.orphans_count.retain(|(h, _)| *h != host);
    }

    /// S7: from now on orphans count, and the watchdog stands behind those that there are, or they do no more.
    pub fn orphans_flag(&mut self, host: HostId, disk: u8, on: bool, covered: bool) {
        let here = |r: &u8| layout::disk_of(*r) == disk;
        let one = self.orphans_of(host).into_iter().find(here);
        let Some(member) = self.members.get(&(host, disk)).copied() else { return };
        if !on {
            if self.orphans_count.remove(&(host, disk)) && one.is_some() {
                self.user_ended(host, disk);
            }
            if member.is_gone() {
                self.orphans_end(host, disk);
            }
            return;
        }
        self.orphans_count.insert((host, disk));
        self.marks.orphans_flags += 1;
        if let Some(resource) = one {
            self.marks.orphans_counting += 1;
            if !covered {
                let what = format!(
                    "S7: from now on orphans of {host:?} count, {resource} among them, with no watchdog armed"
                );
                self.violated(what);
            }
        }
    }
}
