//! Shared holds: S1 as far as it concerns them, S4, S12, and who may write into whose block.
//!
//! A process that asked for its exclusive hold to become a shared one counts as a sharer from the moment the daemon has taken the
//! command in: from then on it must expect others beside it. Should the conversion fail, it goes on as the only one.

use super::{Checks, Holder, Writer};
use crate::disk::SimDisk;
use crate::layout;
use crate::table::Table;
use sanlock_lease::geometry::HostId;
use sanlock_lease::record::{Dblock, HostBlock, ModeBlock};

/// A conversion that a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Converting {
    /// To an exclusive hold.
    Up,
    /// To a shared hold, of what was this.
    Down(Holder),
    /// To an exclusive hold, which it may have on the disks since its lockspace is gone, and is never told of.
    Lost,
}

/// A process that holds a resource shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sharer {
    /// The host id it is shared with.
    pub(super) id: HostId,
    /// The daemon that granted it.
    pub(super) life: u32,
    /// The generation in its host's mode block.
    pub(super) generation: u64,
    /// How often it holds it.
    count: u32,
    converting: Option<Converting>,
}

/// By host and process; 0 for a reference peer's, less for an orphan.
pub(super) type Sharers = Table<(HostId, i32), Sharer>;

impl super::Resource {
    /// Somebody shares it, once.
    pub(super) fn add_sharer(&mut self, who: (HostId, i32), id: HostId, life: u32, generation: u64) {
        self.sharers.insert(who, Sharer { id, life, generation, count: 1, converting: None });
    }
}

impl Checks {
    /// Whether the process holds this, and if so whether shared.
    #[must_use]
    pub fn holds(&self, resource: u8, host: HostId, pid: i32) -> Option<bool> {
        let r = self.resources.get(&resource)?;
        if r.holder.is_some_and(|h| h.host == host && h.pid == pid) {
            return Some(false);
        }
        r.sharers.contains_key(&(host, pid)).then_some(true)
    }

    /// The generation that a process of this host shares the resource with, if one does and is not converting it.
    #[must_use]
    pub fn sharer_on(&self, resource: u8, host: HostId) -> Option<u64> {
        let mut sharers = self.resources.get(&resource)?.sharers.iter();
        let found = sharers.find(|((h, pid), s)| *h == host && *pid >= 0 && s.converting.is_none())?;
        Some(found.1.generation)
    }

    /// S1, S4: a process is told that it shares the resource.
    pub fn share(
        &mut self,
        resource: u8,
        writer: Writer,
        (pid, life): (i32, u32),
        generation: u64,
        disk: &SimDisk,
    ) {
        self.marks.shared += 1;
        self.registered.or_default((writer.host, pid)).insert(resource);
        let id = self.id_of(writer.host);
        let r = self.resources.or_default(resource);
        let fresh = Sharer { id, life, generation, count: 0, converting: None };
        let others = r.sharers.keys().filter(|(host, p)| (*host, *p) != (writer.host, pid));
        let (here, elsewhere): (Vec<_>, Vec<_>) = others.copied().partition(|(host, _)| *host == writer.host);
        self.marks.shared_by_processes += u64::from(!here.is_empty());
        self.marks.shared_by_hosts += u64::from(!elsewhere.is_empty());
        r.sharers.or_insert((writer.host, pid), fresh).count += 1;
        if let Some(holder) = r.holder {
            self.violated(format!(
                "S1: {pid} of {writer:?} shares resource {resource} while {holder:?} holds it"
            ));
        }
        self.granted_with(resource, writer, life, generation);
        self.granted_whole(resource, disk.legs());
        self.mode_block_stays(resource, writer, disk);
    }

    /// The daemon has begun to convert the hold of a process.
    pub fn converting(&mut self, resource: u8, host: HostId, pid: i32, to_shared: bool) {
        let r = self.resources.or_default(resource);
        if to_shared {
            let Some(holder) = r.holder.take_if(|h| h.host == host && h.pid == pid) else { return };
            let (id, life, generation) = (holder.id, holder.life, holder.generation);
            let converting = Some(Converting::Down(holder));
            r.sharers.insert((host, pid), Sharer { id, life, generation, count: 1, converting });
        } else if let Some(sharer) = r.sharers.get_mut(&(host, pid)) {
            sharer.converting = Some(Converting::Up);
        }
    }

    /// The end of a conversion: the process is told that it has not got what it asked for, or that it shares from now on. `lost`: its
    /// lockspace is no more, and a hold that was to be exclusive may be, on disk.
    pub fn converted(
        &mut self,
        resource: u8,
        writer: Writer,
        pid: i32,
        (success, lost): (bool, bool),
        disk: &SimDisk,
    ) {
        let host = writer.host;
        let r = self.resources.or_default(resource);
        let Some(sharer) = r.sharers.get_mut(&(host, pid)) else { return };
        match sharer.converting.take() {
            Some(Converting::Down(holder)) if !success => {
                r.sharers.remove(&(host, pid));
                let beside: Vec<_> = r.sharers.keys().copied().collect();
                let before = r.holder.replace(holder);
                if before.is_some() || !beside.is_empty() {
                    self.violated(format!(
                        "S1: {holder:?} keeps resource {resource}, {before:?} holds it and {beside:?} share it"
                    ));
                }
                self.nothing_held_is_released(resource, disk);
                self.chosen_stays(resource, disk);
            }
            Some(Converting::Down(_)) => {
                self.marks.converted_down += 1;
                self.mode_block_stays(resource, writer, disk);
            }
            // Whatever it asks for after that.
            Some(Converting::Lost) => sharer.converting = Some(Converting::Lost),
            Some(Converting::Up) if lost => sharer.converting = Some(Converting::Lost),
            Some(Converting::Up) | None => self.mode_block_stays(resource, writer, disk),
        }
    }

    /// A process that shares is about to hold exclusively.
    pub fn converted_up(&mut self, resource: u8, host: HostId, pid: i32) {
        self.marks.converted_up += 1;
        self.resources.or_default(resource).sharers.remove(&(host, pid));
    }

    /// One token of a shared resource is given up. Whether the process still has another one.
    pub(super) fn token_given_up(&mut self, resource: u8, host: HostId, pid: i32) -> bool {
        let r = self.resources.or_default(resource);
        let Some(sharer) = r.sharers.get_mut(&(host, pid)) else { return false };
        sharer.count = sharer.count.saturating_sub(1);
        sharer.count > 0
    }

    /// S4: the host's mode block says what its processes believe.
    pub(super) fn mode_block_stays(&mut self, resource: u8, writer: Writer, disk: &SimDisk) {
        let modes_of = |id| -> Vec<_> {
            (0..disk.legs()).map(|leg| layout::block_on(disk, resource, leg, id).mode).collect()
        };
        // Enough for every majority to have one.
        let least = usize::from(disk.legs()) + 1 - usize::try_from(disk.majority()).unwrap_or(0);
        let Some(r) = self.resources.get(&resource) else { return };
        let sharers =
            r.sharers.iter().filter(|((host, _), s)| *host == writer.host && s.converting.is_none());
        let wrong: Vec<_> = sharers
            .filter(|(_, s)| {
                let right = |m: &&ModeBlock| m.is_shared() && m.generation.get() == s.generation;
                modes_of(s.id).iter().filter(right).count() < least
            })
            .collect();
        if let Some(((_, pid), sharer)) = wrong.first() {
            let modes = modes_of(sharer.id);
            let what =
                format!("S4: {pid} of {writer:?} is {sharer:?} of {resource}, its blocks say {modes:?}");
            self.violated(what);
        }
    }

    /// S4 and S12: a block has landed in the sector of `owner`.
    pub(super) fn mode_landed(&mut self, resource: u8, owner: HostId, writer: Writer, disk: &SimDisk) {
        if owner == self.id_of(writer.host) {
            return self.mode_block_stays(resource, writer, disk);
        }
        self.marks.mode_blocks_cleared += 1;
        let r = self.resources.or_default(resource);
        let sharers: Vec<_> = r.sharers.iter().filter(|(_, s)| s.id == owner).collect();
        if !sharers.is_empty() {
            let what = format!(
                "S12: {writer:?} clears the mode block of {owner:?} in {resource}, where {sharers:?} share"
            );
            self.violated(what);
        }
    }

    /// S15, R2: only a dead sharer's mode block is for others to take away, and only for the owner of the newest version. The
    /// ballot record beside it stays as it is. It may be an older one if its host came back and took part in the ballot for that
    /// very version: that is decided, so the record says nothing any more.
    pub(super) fn foreign_block_submitted(
        &mut self,
        (resource, leg): (u8, u8),
        writer: Writer,
        owner: HostId,
        block: &HostBlock,
        disk: &SimDisk,
    ) {
        let before = layout::block_on(disk, resource, leg, owner);
        let id = self.id_of(writer.host);
        let r = self.resources.or_default(resource);
        let owns = r.chosen.get(&r.top_lver).is_some_and(|value| value.0 == id.get());
        let decided = before.dblock.lver.get() <= r.top_lver;
        let keeps = block.dblock == before.dblock || (decided && block.dblock != Dblock::zeroed());
        if block.mode.is_shared() || !owns || !(keeps || writer.reference) {
            self.violated(format!(
                "S15: {writer:?} writes {block:?} over {before:?} of {owner:?} in resource {resource}"
            ));
        }
    }
}
