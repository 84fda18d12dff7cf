//! Value blocks, names, versions demanded, and what INQUIRE says.
//!
//! | Code | What |
//! |---|---|
//! | V1 | a holder reads what is in its lease's value block, or what its own host has set and not yet written |
//! | V2 | a value is written for the lease it was set for, and lands while nobody of another host holds that |
//! | V3 | a release that succeeds has written what was set |
//! | N1 | a leader has a name that its version, or the one before, had; or the one its owner gives it; or that of the leader it repairs |
//! | N2 | a rename that succeeds is on the disk, unless others have gone on since |
//! | N3 | a release that has ended for good, whatever came of its new name, has marked the block of its host |
//! | D1 | between the version demanded and the one granted there is none: whoever owned it, another process of this host or an earlier life, may have changed what the lease protects |
//! | I1 | INQUIRE says what the process holds |

use super::{Checks, Writer};
use crate::disk::{Area, SimDisk};
use crate::layout;
use sanlock_lease::geometry::HostId;
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::name::Name;
use sanlock_lease::record::{Dblock, HostBlock, RawLeader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Versions whose names are remembered: a slow host may go by a leader that others have left far behind.
const VERSIONS: u64 = 1000;

/// What is known of values and names.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// What holders have set, and on which host.
    set: BTreeMap<(u8, Arc<[u8]>), HostId>,
    /// What a host keeps in memory, to be written before it gives the lease up.
    unwritten: BTreeMap<(u8, HostId), Arc<[u8]>>,
    /// The names that leaders of a version had.
    names: BTreeMap<(u8, u64), BTreeSet<Name>>,
    /// The name that a host is about to give, and the version it releases.
    renames: BTreeMap<(u8, HostId), (Name, u64)>,
    /// Exclusive holds whose release is under way.
    releasing: BTreeSet<(u8, HostId, i32)>,
}

impl Checks {
    /// What a holder would read.
    fn value_here(&self, resource: u8, host: HostId, disk: &SimDisk) -> Arc<[u8]> {
        let kept = self.values.unwritten.get(&(resource, host));
        kept.map_or_else(|| layout::value_on(disk, resource).into(), Arc::clone)
    }

    /// A holder's SET_LVB was accepted.
    pub fn value_set(&mut self, resource: u8, host: HostId, bytes: &[u8], disk: &SimDisk) {
        self.marks.values_set += 1;
        let mut content = self.value_here(resource, host, disk).to_vec();
        for (to, from) in content.iter_mut().zip(bytes) {
            *to = *from;
        }
        let content: Arc<[u8]> = content.into();
        self.values.set.insert((resource, Arc::clone(&content)), host);
        self.values.unwritten.insert((resource, host), content);
    }

    /// V1: a holder has got a value.
    pub fn value_got(&mut self, resource: u8, host: HostId, bytes: &[u8], disk: &SimDisk) {
        let expected = self.value_here(resource, host, disk);
        let author = self.values.set.get(&(resource, Arc::clone(&expected)));
        self.marks.values_read += 1;
        self.marks.values_of_others += u64::from(author.is_some_and(|author| *author != host));
        if expected.get(..bytes.len()) != Some(bytes) {
            let (found, expected) = (brief(bytes), brief(&expected));
            self.violated(format!("V1: {host:?} reads {found} as the value of {resource}, it is {expected}"));
        }
    }

    /// V2: a value is about to land.
    pub(super) fn value_landing(&mut self, resource: u8, writer: Writer, content: &Arc<[u8]>) {
        self.marks.values_written += 1;
        let key = (resource, Arc::clone(content));
        if !self.values.set.contains_key(&key) {
            let what = brief(content);
            self.violated(format!("V2: {writer:?} writes {what} for {resource}, which nobody has set"));
        }
        let holder = self.holder(resource).map(|h| h.host);
        let sharers = self.resources.get(&resource).map(|r| r.sharers.keys().map(|(host, _)| *host));
        let others: Vec<_> = holder.into_iter().chain(sharers.into_iter().flatten()).collect();
        if others.iter().any(|host| *host != writer.host) {
            self.violated(format!(
                "V2: {writer:?} writes a value of {resource}, which {others:?} hold by now"
            ));
        }
        if self.values.unwritten.get(&(resource, writer.host)) == Some(content) {
            self.values.unwritten.remove(&(resource, writer.host));
        }
    }

    /// A host begins to take a lease: what it kept of an earlier hold is gone.
    pub fn value_forgotten(&mut self, resource: u8, host: HostId) {
        self.values.unwritten.remove(&(resource, host));
        self.values.renames.remove(&(resource, host));
        self.values.releasing.retain(|(r, h, _)| (*r, *h) != (resource, host));
    }

    /// A lease is gone, and what it was called.
    pub(super) fn values_forgotten(&mut self, resource: u8) {
        self.values.set.retain(|(r, _), _| *r != resource);
        self.values.unwritten.retain(|(r, _), _| *r != resource);
        self.values.names.retain(|(r, _), _| *r != resource);
        self.values.renames.retain(|(r, _), _| *r != resource);
        self.values.releasing.retain(|(r, _, _)| *r != resource);
    }

    /// The memory of a host's daemon is gone.
    pub(super) fn values_gone(&mut self, host: HostId) {
        self.values.unwritten.retain(|(_, h), _| *h != host);
        self.values.renames.retain(|(_, h), _| *h != host);
        self.values.releasing.retain(|(_, h, _)| *h != host);
    }

    /// The release of a hold, asked for by this process, is accepted.
    pub fn releasing(&mut self, resource: u8, (host, pid): (HostId, i32), to: Option<Name>) {
        let holder = self.holder(resource).filter(|h| h.host == host);
        if let Some(to) = to {
            // A process may have ended since it asked.
            self.values.renames.insert((resource, host), (to, holder.map_or(0, |h| h.lver)));
        }
        if holder.is_some() {
            self.values.releasing.insert((resource, host, pid));
        }
    }

    /// V3, N2: the release of a hold has succeeded, as this process is told. With others that it asked for it may have ended long ago,
    /// and another process of the host may have had the lease since, and be giving it back.
    pub fn released(&mut self, resource: u8, (host, pid): (HostId, i32), disk: &SimDisk) {
        if !self.values.releasing.remove(&(resource, host, pid)) {
            return;
        }
        self.renamed(resource, host, disk);
        let dead = self.members.get(&(host, layout::disk_of(resource))).is_none_or(|m| m.is_gone());
        if !dead && self.values.unwritten.contains_key(&(resource, host)) {
            self.violated(format!("V3: {host:?} has released {resource} without the value that was set"));
        }
    }

    fn renamed(&mut self, resource: u8, host: HostId, disk: &SimDisk) {
        let Some((to, lver)) = self.values.renames.get(&(resource, host)).copied() else { return };
        let Some(leader) = layout::leader_in_force(disk, resource) else { return };
        let ours = leader.lver.get() == lver && leader.write_id.get() == self.id_of(host).get();
        self.marks.renamed += u64::from(ours);
        let dead = self.members.get(&(host, layout::disk_of(resource))).is_none_or(|m| m.is_gone());
        if ours && !dead && !to.matches(&leader.resource_name) {
            self.violated(format!("N2: {host:?} has renamed {resource} to {to}, the leader is {leader:?}"));
        }
    }

    /// N3: the release of a hold has ended, and is not tried again. Whatever a leader says, a value of this host that is not given up in its
    /// block may be committed in its name, and a shared hold in it keeps others out.
    pub fn let_go(&mut self, resource: u8, host: HostId, hold: &Dblock, disk: &SimDisk) {
        let id = self.id_of(host);
        let value = |block: &Dblock| (block.lver, block.bal, block.inp3);
        let blocks = (0..disk.legs()).map(|leg| layout::block_on(disk, resource, leg, id));
        // A later ballot of this host, or a format, has made it another one.
        let mut blocks = blocks.filter(|block| value(&block.dblock) == value(hold)).peekable();
        let kept = |block: HostBlock| !block.dblock.is_released() || block.mode.is_shared();
        if hold.bal.get() != 0 && blocks.peek().is_some() && blocks.all(kept) {
            let leader = layout::leader_in_force(disk, resource);
            self.violated(format!(
                "N3: {host:?} has given up {resource} for good, its block says not: {leader:?}"
            ));
        }
    }

    /// N1: a leader is about to be written.
    pub(super) fn name_submitted(
        &mut self,
        resource: u8,
        writer: Writer,
        leader: &RawLeader,
        disk: &SimDisk,
    ) {
        let (lver, name) = (leader.lver.get(), Name::from_field(&leader.resource_name));
        let had = |version: u64| {
            let names = self.values.names.get(&(resource, version));
            names.is_some_and(|names| names.contains(&name))
        };
        let given = leader.timestamp.get() == 0
            && self.values.renames.get(&(resource, writer.host)).is_some_and(|(to, _)| *to == name);
        let first = lver <= 1 && name == layout::resource(resource);
        // The ballot that repairs a leader which was rolled back (rule R9) knows of no other name than that leader's.
        let older = |l: &RawLeader| l.lver.get() + 1 < lver && l.resource_name == leader.resource_name;
        // With a majority under the name that is asked for, what another disk has under another name is no leader.
        let left = || (0..disk.legs()).filter(|leg| older(&layout::leader_on(disk, resource, *leg))).count();
        let repairs = || {
            layout::leader_gone_by(disk, resource).as_ref().is_some_and(older)
                || u32::try_from(left()).is_ok_and(|left| left >= disk.majority())
        };
        if !(had(lver) || had(lver.saturating_sub(1)) || given || first || repairs()) {
            self.violated(format!("N1: {writer:?} names {resource} {name} in {leader:?}"));
        }
    }

    /// A leader has landed.
    pub(super) fn name_landed(&mut self, resource: u8, leader: &RawLeader) {
        let (lver, name) = (leader.lver.get(), Name::from_field(&leader.resource_name));
        self.values.names.entry((resource, lver)).or_default().insert(name);
        let old = lver.saturating_sub(VERSIONS);
        while let Some((gone, _)) = self.values.names.range((resource, 0)..(resource, old)).next() {
            let gone = *gone;
            self.values.names.remove(&gone);
        }
    }

    /// D1: a lease of which a version was demanded is granted.
    pub fn demand_met(&mut self, resource: u8, host: HostId, demanded: u64, granted: u64) {
        self.marks.demands_met += 1;
        if granted != demanded + 1 {
            self.violated(format!(
                "D1: {host:?} asked for {resource} at version {demanded} and was granted {granted}"
            ));
        }
    }

    /// I1: INQUIRE has said what a process holds: resources, and whether shared.
    pub fn inquired(&mut self, host: HostId, pid: i32, said: &BTreeSet<(u8, bool)>) {
        self.marks.inquired += u64::from(!said.is_empty());
        let held = self.held_by(host, pid);
        let known: BTreeSet<(u8, bool)> =
            held.into_iter().map(|r| (r, self.holds(r, host, pid) == Some(true))).collect();
        if known != *said {
            self.violated(format!("I1: {pid} of {host:?} holds {known:?}, INQUIRE says {said:?}"));
        }
    }

    /// S15: where values belong.
    pub(super) fn is_value_place(area: Area, sector: u64) -> bool {
        matches!(area, Area::Resource(_, 0)) && sector == LVB_SECTOR
    }
}

/// The beginning of a value.
fn brief(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(32)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{GEOMETRY, host_id};
    use sanlock_lease::machine::Content;

    const RESOURCE: u8 = 0;

    fn leader(lver: u64, name: Name) -> RawLeader {
        RawLeader { lver: lver.into(), resource_name: name.to_field(), ..RawLeader::zeroed() }
    }

    /// Version 27 was renamed, then late leaders took each disk back to a version of its own. A ballot brings back version 28 under this name.
    fn brought_back<const LEGS: usize>(legs: [(u64, Name); LEGS], name: Name) -> Vec<String> {
        let all = u8::try_from(LEGS).unwrap();
        let (mut checks, mut disk) = (Checks::default(), SimDisk::new(GEOMETRY, all));
        checks.name_landed(RESOURCE, &leader(27, layout::other_name(RESOURCE)));
        for (leg, (lver, name)) in (0..).zip(legs) {
            disk.land(Area::Resource(RESOURCE, leg), 0, &Content::Leader(leader(lver, name)));
        }
        let writer = Writer { host: host_id(5), reference: false };
        checks.name_submitted(RESOURCE, writer, &leader(28, name), &disk);
        checks.violations
    }

    #[test]
    fn a_repair_knows_the_name_of_the_newest_leader_that_is_left() {
        let (old, new) = (layout::resource(RESOURCE), layout::other_name(RESOURCE));
        assert_eq!(brought_back([(18, new), (23, old)], old), [""; 0]);
        assert_eq!(brought_back([(18, old), (23, new)], new), [""; 0]);
        assert_eq!(brought_back([(18, old), (23, old)], new), [""; 0], "version 27 had that one");
        assert_eq!(brought_back([(18, old), (23, new)], old).len(), 1, "an older one");
        assert_eq!(
            brought_back([(18, old), (19, old), (23, new)], old),
            [""; 0],
            "which two of three disks have"
        );
        assert_eq!(brought_back([(18, old), (23, new), (23, new)], old).len(), 1, "which one of three has");
    }
}
