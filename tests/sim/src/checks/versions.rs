//! Versions and their owners: S2 and S3, what is said to a process that is granted a lease (S5), and what may not be given up meanwhile (S13).

use super::Holder;
use super::{Checks, Resource, Value, Writer, legs, owner_of, value_of};
use crate::disk::SimDisk;
use crate::layout;
use sanlock_lease::geometry::HostId;
use sanlock_lease::record::{Dblock, RawLeader};
use std::collections::BTreeSet;

impl Checks {
    /// S5: a lease is granted with the generation that its host has its host id with.
    pub(super) fn granted_with(&mut self, resource: u8, writer: Writer, life: u32, generation: u64) {
        let disk = layout::disk_of(resource);
        let joined = self.generation_on(writer.host, disk, life);
        if !writer.reference && joined != Some(generation) {
            self.violated(format!(
                "S5: {writer:?} was granted resource {resource} with generation {generation}, it has joined with {joined:?}"
            ));
        }
    }

    /// S13: the block of who holds a lease does not say that it was given up.
    pub(super) fn nothing_held_is_released(&mut self, resource: u8, disk: &SimDisk) {
        let Some(holder) = self.holder(resource) else { return };
        let given_up = |leg: &u8| {
            let d = layout::block_on(disk, resource, *leg, holder.id).dblock;
            d.is_released() && d.lver.get() == holder.lver && value_of(&d) == Some(holder.value)
        };
        if let Some(leg) = (0..disk.legs()).find(given_up) {
            self.violated(format!(
                "S13: {holder:?} holds resource {resource}, its block on leg {leg} is RELEASED"
            ));
        }
    }

    /// Whether a leader of this value is on a disk that its owner has not written itself.
    pub(super) fn written_for(resource: u8, lver: u64, value: Value, disk: &SimDisk) -> bool {
        let leaders = (0..disk.legs()).map(|leg| layout::leader_on(disk, resource, leg));
        let mut these = leaders.filter(|l| l.lver.get() == lver && owner_of(l) == value);
        these.any(|l| l.write_id != l.owner_id)
    }

    /// Whether what a peer has forgotten may excuse something of this resource.
    #[must_use]
    pub fn is_excused(&self, resource: u8) -> bool {
        self.resources.get(&resource).is_some_and(|r| r.rolled_back && !r.forgotten.is_empty())
    }

    /// S2, and that every leader was chosen by a ballot.
    pub(super) fn leader_landed(&mut self, (resource, leg): (u8, u8), leader: &RawLeader, disk: &SimDisk) {
        let (lver, value) = (leader.lver.get(), owner_of(leader));
        let r = self.resources.or_default(resource);
        let mut broken: Vec<String> = Vec::new();
        self.marks.rolled_back += u64::from(lver < r.top_lver);
        let before = r.chosen.get(&lver).copied().filter(|v| value.2 != 0 && *v != value);
        // A reference peer empties its block when it releases what the leader says not to be its own, as an older leader does, and
        // when its acquire fails; and it counts on from the older leader (W1, W9). What it alone has accepted is then in no ballot's sight, and
        // hosts of ours count on from the older leader too. They never take back a value themselves (R1, R2).
        // Without late writes of its own that must not lead to two owners.
        let peers = &self.references;
        let erased = |v| r.is_counted_anew(lver) && r.has_forgotten((resource, lver), v, (disk, peers));
        if before.is_some_and(erased) {
            r.counted_anew = r.counted_anew.max(r.top_lver);
            r.chosen.remove(&lver);
            r.top_lver = lver;
            self.marks.versions_reused += 1;
        }
        r.rolled_back = lver < r.top_lver;
        if lver > r.counted_anew {
            r.counted_anew = 0;
        }
        if !r.rolled_back {
            r.forgotten.retain(|_, (forgotten, _)| *forgotten >= lver);
        }
        if leader.write_id != leader.owner_id && r.flagged.contains(&(lver, value)) {
            let owner = HostId::new(value.0);
            let blocks = owner.into_iter().flat_map(|owner| legs::known_blocks(disk, resource, owner));
            let mut blocks = blocks.filter(|d| d.lver.get() == lver && value_of(d) == Some(value));
            if blocks.any(|d| d.is_released()) {
                r.flagged_for_all.insert((lver, value));
            }
        }
        r.top_lver = r.top_lver.max(lver);
        if value.2 == 0 && leader.write_id == leader.owner_id {
            r.freed.insert((lver, value.0, value.1));
        }
        if value.2 != 0 {
            let chosen = *r.chosen.entry(lver).or_insert(value);
            *r.committed.entry(lver).or_default() |= 1 << leg;
            if chosen != value {
                broken.push(format!("S2: version {lver} has owner {chosen:?} and now {value:?}"));
            }
            let first = HostId::new(1).map(|host| (lver, value, host));
            let mut all = first.into_iter().flat_map(|first| r.accepted.range(first..));
            let mut all = all.by_ref().take_while(|((l, v, _), _)| (*l, *v) == (lver, value));
            if !all.any(|(_, legs)| legs.count_ones() >= disk.majority()) {
                broken.push(format!("S2: a leader of version {lver} with {value:?} that no ballot accepted"));
            }
            if lver > 1 && !r.chosen.contains_key(&(lver - 1)) {
                broken.push(format!("S2: version {lver} without a version {}", lver - 1));
            }
        }
        for what in broken {
            self.violated(what);
        }
    }

    /// S3, on the blocks as they lie on the disk: a ballot for the held version can choose nobody but the holder.
    pub(super) fn chosen_stays(&mut self, resource: u8, disk: &SimDisk) {
        let Some(holder) = self.holder(resource) else { return };
        for set in legs::majorities(disk) {
            let num_hosts =
                legs::legs_of(set).map(|leg| layout::leader_on(disk, resource, leg).num_hosts.get()).max();
            let best = self.would_choose(resource, set, num_hosts.unwrap_or(0), &holder, disk);
            if best.is_some_and(|best| best != Some(holder.value)) {
                self.violated(format!("S3: {holder:?} holds, but a ballot would choose {best:?}"));
            }
        }
    }

    /// What a ballot for the held version would choose that reads these legs. `None`: it cannot complete.
    fn would_choose(
        &mut self,
        resource: u8,
        set: u8,
        num_hosts: u64,
        holder: &Holder,
        disk: &SimDisk,
    ) -> Option<Option<Value>> {
        let mut best: Option<(u64, Value)> = None;
        for host in (1..=num_hosts).filter_map(HostId::new) {
            for leg in legs::legs_of(set) {
                let d = layout::block_on(disk, resource, leg, host).dblock;
                if d.lver.get() > holder.lver {
                    // No ballot for the held version can complete. A block of ours proves that the owner before it is gone (R9). But
                    // those of versions that a reference peer has forgotten stay.
                    if !self.resources.get(&resource).is_some_and(|r| r.may_be_left_over(d.lver.get())) {
                        self.violated(format!("S3: {holder:?} holds, but {host:?} has begun {d:?}"));
                    }
                    return None;
                }
                let (bal, value) = (d.bal.get(), value_of(&d));
                if let Some(value) = value.filter(|_| d.lver.get() == holder.lver) {
                    if best.is_none_or(|(b, _)| bal > b) {
                        best = Some((bal, value));
                    }
                }
            }
        }
        Some(best.map(|(_, value)| value))
    }
}

impl Resource {
    /// A reference peer is about to write something else over its block.
    pub(super) fn forgets(&mut self, peer: HostId, block: &Dblock) {
        let forgotten = self.forgotten.entry(peer).or_default();
        *forgotten = (*forgotten).max((block.lver.get(), block.mbal.get()));
    }

    /// Whether this version is one that may be counted once more.
    fn is_counted_anew(&self, lver: u64) -> bool {
        self.rolled_back || lver <= self.counted_anew
    }

    /// Whether a block of this version may be one of those that were there before a reference peer forgot.
    /// Or it followed such a version, and its write was on its way until that was counted anew.
    fn may_be_left_over(&self, lver: u64) -> bool {
        let before = lver.saturating_sub(1);
        let counted = self.is_counted_anew(lver) || (self.counted_anew > 0 && before <= self.counted_anew);
        counted && self.forgotten.values().any(|(forgotten, _)| before <= *forgotten)
    }

    /// Whether a reference peer had accepted this value, and has forgotten it: its block does not say so any more, or says so of a later ballot, in which
    /// it has proposed the same once more, in the same second.
    /// Nobody of ours, who forget nothing, says so.
    fn has_forgotten(
        &self,
        (resource, lver): (u8, u64),
        value: Value,
        (disk, peers): (&SimDisk, &BTreeSet<HostId>),
    ) -> bool {
        let hosts = (1..=u64::from(disk.geometry().max_hosts())).filter_map(HostId::new);
        let mut ours = hosts.filter(|host| !peers.contains(host));
        let accepted = |d: &Dblock| d.lver.get() == lver && value_of(d) == Some(value);
        if ours.any(|host| legs::known_blocks(disk, resource, host).iter().any(accepted)) {
            return false;
        }
        let mut all = self.forgotten.iter().filter(|(_, (forgotten, _))| lver <= *forgotten);
        all.any(|(peer, (_, number))| {
            let says = |d: &Dblock| accepted(d) && d.bal.get() <= *number;
            self.accepted.contains_key(&(lver, value, *peer))
                && !legs::known_blocks(disk, resource, *peer).iter().any(says)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Area;
    use crate::layout::{GEOMETRY, host_id};
    use sanlock_lease::machine::Content;
    use sanlock_lease::record::{Dblock, HostBlock};

    fn leader(lver: u64, owner: u64) -> Content {
        let (owner_id, timestamp) = (owner.into(), 7.into());
        let owned = RawLeader { owner_id, owner_generation: 1.into(), timestamp, ..RawLeader::zeroed() };
        Content::Leader(RawLeader { lver: lver.into(), write_id: owner_id, ..owned })
    }

    fn block(lver: u64, owner: u64, number: u64) -> Content {
        let (mbal, inp, inp2, inp3) = (number.into(), owner.into(), 1.into(), 7.into());
        let dblock = Dblock { mbal, bal: mbal, inp, inp2, inp3, lver: lver.into(), ..Dblock::zeroed() };
        Content::Block(HostBlock { dblock, ..HostBlock::zeroed() })
    }

    /// What has become of a former owner's block.
    #[derive(Clone, Copy)]
    enum Block {
        Left,
        Empty,
        /// Emptied, it says the same again, with this number.
        Again(u64),
    }

    /// Host `first` has owned version 3, and host 1 owns version 3 afterwards. `older`: the leader of version 2 has come back in between, and
    /// `newer`, that of version 3 again.
    fn owned_twice(first: u64, (older, newer): (bool, bool), left: Block) -> usize {
        let (mut checks, mut disk) = (Checks::default(), SimDisk::new(GEOMETRY, 1));
        checks.references.insert(host_id(5));
        let area = Area::Resource(0, 0);
        let writes = |owner, lver| {
            [(host_id(owner).block_sector(), block(lver, owner, 2000 + owner)), (0, leader(lver, owner))]
        };
        let mut land = |owner: u64, sector: u64, content: &Content| {
            let writer = Writer { host: host_id(owner), reference: owner == 5 };
            checks.submitted(writer, area, sector, content, &disk);
            disk.land(area, sector, content);
            checks.landed(area, sector, content, writer, (false, false), &disk);
        };
        [writes(first, 2), writes(first, 3)].concat().iter().for_each(|(at, what)| land(first, *at, what));
        if older {
            land(first, 0, &leader(2, first));
        }
        if newer {
            land(first, 0, &leader(3, first));
        }
        if !matches!(left, Block::Left) {
            land(first, host_id(first).block_sector(), &Content::Block(HostBlock::zeroed()));
        }
        if let Block::Again(number) = left {
            land(first, host_id(first).block_sector(), &block(3, first, number));
        }
        writes(1, 3).iter().for_each(|(sector, content)| land(1, *sector, content));
        checks.violations.iter().filter(|v| v.starts_with("S2: version 3 has")).count()
    }

    #[test]
    fn a_version_that_a_peer_has_forgotten_is_a_new_one() {
        assert_eq!(owned_twice(5, (true, false), Block::Empty), 0);
        assert_eq!(owned_twice(2, (true, false), Block::Empty), 1, "it is no peer");
        assert_eq!(owned_twice(5, (false, false), Block::Empty), 1, "no older leader came back");
        assert_eq!(
            owned_twice(5, (true, true), Block::Empty),
            1,
            "the newer one was there again before it forgot"
        );
        assert_eq!(owned_twice(5, (true, false), Block::Left), 1, "its block says it still");
        assert_eq!(owned_twice(5, (true, false), Block::Again(2005)), 1, "the same block came back");
        assert_eq!(
            owned_twice(5, (true, false), Block::Again(4005)),
            0,
            "it proposed the same in the same second"
        );
    }
}
