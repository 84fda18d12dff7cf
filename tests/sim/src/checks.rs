//! What must hold in every state (lease-algorithms.md 13.6). Violations are collected; a run ends at the first.

use crate::clock::{Micros, SECOND};
use crate::disk::{Area, SimDisk};
use crate::layout;
use crate::settings::Settings;
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::Content;
use sanlock_lease::paxos::Held;
use sanlock_lease::record::{Dblock, HostBlock, RawLeader};
use sanlock_lease::timing::WatchdogFire;
use std::collections::{BTreeMap, BTreeSet};

/// A proposed owner: host id, generation, timestamp.
pub type Value = (u64, u64, u64);

/// A process that holds a resource exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its host.
    pub host: HostId,
    /// The generation the lease was acquired with.
    pub generation: u64,
    /// The lease version.
    pub lver: u64,
    /// The value chosen for that version.
    pub value: Value,
}

/// Who writes, for the rules that only our own machines keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The host.
    pub host: HostId,
    /// Whether it is a reference peer.
    pub reference: bool,
}

/// How often interesting things happened: a run that reaches none of them proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Marks {
    pub acquired: u64,
    pub released: u64,
    pub refused_live: u64,
    pub adopted: u64,
    pub lost: u64,
    pub committed_by_other: u64,
    pub taken_over: u64,
    pub ahead_of_leader: u64,
    pub late_landed: u64,
    pub late_leader_landed: u64,
    pub rolled_back: u64,
    pub retracted: u64,
    pub resets: u64,
    pub failed_lockspaces: u64,
    pub joins: u64,
    pub stuck: u64,
    pub versions_reused: u64,
}

impl Marks {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.acquired, other.acquired),
            (&mut self.released, other.released),
            (&mut self.refused_live, other.refused_live),
            (&mut self.adopted, other.adopted),
            (&mut self.lost, other.lost),
            (&mut self.committed_by_other, other.committed_by_other),
            (&mut self.taken_over, other.taken_over),
            (&mut self.ahead_of_leader, other.ahead_of_leader),
            (&mut self.late_landed, other.late_landed),
            (&mut self.late_leader_landed, other.late_leader_landed),
            (&mut self.rolled_back, other.rolled_back),
            (&mut self.retracted, other.retracted),
            (&mut self.resets, other.resets),
            (&mut self.failed_lockspaces, other.failed_lockspaces),
            (&mut self.joins, other.joins),
            (&mut self.stuck, other.stuck),
            (&mut self.versions_reused, other.versions_reused),
        ];
        for (sum, n) in pairs {
            *sum += n;
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Resource {
    holder: Option<Holder>,
    /// Owners of the leaders that landed, by version.
    chosen: BTreeMap<u64, Value>,
    /// Values accepted in a phase 2 that landed, by version.
    accepted: BTreeSet<(u64, Value)>,
    top_lver: u64,
}

/// The properties, watched from outside the hosts.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    resources: Vec<Resource>,
    delta_generation: BTreeMap<u64, u64>,
    /// When each delta sector was last written, by sector.
    renewed: BTreeMap<u64, Micros>,
    /// Silence after which an owner may be replaced, in true time.
    dead_after: Micros,
    mixed: bool,
    /// What was broken.
    pub violations: Vec<String>,
    /// What was reached.
    pub marks: Marks,
}

fn value_of(block: &Dblock) -> Option<Value> {
    let value = (block.inp.get(), block.inp2.get(), block.inp3.get());
    (block.bal.get() > 0 && value.0 > 0).then_some(value)
}

fn owner_of(leader: &RawLeader) -> Value {
    (leader.owner_id.get(), leader.owner_generation.get(), leader.timestamp.get())
}

impl Checks {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let dead = settings.io_timeout.host_dead_secs(WatchdogFire::DEFAULT) * SECOND;
        Self {
            resources: vec![Resource::default(); usize::from(settings.resources)],
            mixed: settings.references > 0,
            // A fast clock's seconds are short.
            dead_after: dead - dead * settings.drift_ppm / 1_000_000,
            ..Self::default()
        }
    }

    fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    /// The process that holds a resource.
    #[must_use]
    pub fn holder(&self, resource: u8) -> Option<Holder> {
        self.resources.get(usize::from(resource))?.holder
    }

    /// S1, S5: a process is told that it has the lease.
    pub fn grant(&mut self, resource: u8, writer: Writer, generation: u64, held: &Held, disk: &SimDisk) {
        let value = owner_of(&held.leader);
        let holder = Holder { host: writer.host, generation, lver: held.lver(), value };
        self.marks.acquired += 1;
        if held.leader.write_id.get() != writer.host.get() {
            self.marks.committed_by_other += 1;
        }
        let r = &mut self.resources[usize::from(resource)];
        let before = r.holder.replace(holder);
        let landed = r.chosen.get(&holder.lver).copied();
        if let Some(other) = before {
            self.violated(format!("S1: {holder:?} was granted resource {resource} while {other:?} holds it"));
        }
        if (value.0, value.1) != (writer.host.get(), generation) || landed != Some(value) {
            self.violated(format!("S5: {holder:?} was granted, but the leader that landed says {landed:?}"));
        }
        self.chosen_stays(resource, disk);
    }

    /// The process no longer holds the resource: it gave it up, ended, or its host was reset.
    pub fn dropped(&mut self, resource: u8, host: HostId) {
        let r = &mut self.resources[usize::from(resource)];
        if r.holder.is_some_and(|h| h.host == host) {
            r.holder = None;
        }
    }

    /// A write leaves a host.
    pub fn submitted(&mut self, writer: Writer, area: Area, sector: u64, content: &Content, disk: &SimDisk) {
        match (area, content) {
            (Area::Lockspace, Content::Delta { .. }) if sector == writer.host.delta_sector() => {}
            (Area::Resource(_), Content::Leader(_)) if sector == 0 => {}
            (Area::Resource(resource), Content::Block(block)) if sector == writer.host.block_sector() => {
                let before = layout::block_on(disk, resource, writer.host).dblock;
                self.block_submitted(resource, writer, block, &before);
            }
            _ => self.violated(format!("S15: {writer:?} writes {content:?} to sector {sector} of {area:?}")),
        }
    }

    /// S10, R1, R2 and S13, compared with what is on the disk.
    fn block_submitted(&mut self, resource: u8, writer: Writer, block: &HostBlock, b: &Dblock) {
        let d = block.dblock;
        let r = &mut self.resources[usize::from(resource)];
        let holder = r.holder;
        let max_hosts = u64::from(layout::GEOMETRY.max_hosts());
        let mut broken = Vec::new();
        if d.mbal.get() != 0 && d.mbal.get() % max_hosts != writer.host.get() % max_hosts {
            broken.push("S10: ballot number of another host");
        }
        if b.lver == d.lver {
            if d.mbal.get() < b.mbal.get() && !writer.reference {
                broken.push("S10: ballot number decreases");
            }
            let forgets = d.bal.get() < b.bal.get()
                || (d.bal == b.bal && value_of(&d) != value_of(b))
                || (b.is_released()
                    && !d.is_released()
                    && value_of(&d) == value_of(b)
                    && value_of(b).is_some());
            if forgets && !writer.reference {
                broken.push("R1: a value of this version, or its flag, is forgotten");
            }
        }
        if d.lver.get() < b.lver.get() && !writer.reference {
            broken.push("R2: the block goes back to an older version");
        }
        if d.is_released() && holder.is_some_and(|h| h.host == writer.host && h.lver == d.lver.get()) {
            broken.push("S13: RELEASED while a process holds the lease");
        }
        for what in broken {
            self.violated(format!("{what}: {writer:?} writes {d:?} over {b:?}"));
        }
    }

    /// A write is about to reach the disk.
    pub fn landing(&mut self, now: Micros, area: Area, sector: u64, content: &Content, disk: &SimDisk) {
        match (area, content) {
            (Area::Lockspace, _) => {
                self.renewed.insert(sector, now);
            }
            (Area::Resource(resource), Content::Leader(leader)) => {
                self.owner_replaced(now, &layout::leader_on(disk, resource), leader, disk);
            }
            _ => {}
        }
    }

    /// S11: a silent owner is replaced only after its time. What the owner writes itself is no replacement, and leaders that
    /// others wrote in its name are left to S1.
    fn owner_replaced(&mut self, now: Micros, before: &RawLeader, after: &RawLeader, disk: &SimDisk) {
        let replaced = before.timestamp.get() != 0
            && after.timestamp.get() != 0
            && after.lver.get() == before.lver.get() + 1
            && after.owner_id != before.owner_id
            && after.write_id != before.owner_id
            && before.write_id == before.owner_id;
        let Some(owner) = HostId::new(before.owner_id.get()).filter(|_| replaced) else { return };
        let delta = layout::delta_on(disk, owner);
        let same = delta.timestamp.get() != 0
            && delta.owner_id == before.owner_id
            && delta.owner_generation.get() <= before.owner_generation.get();
        if !same {
            return;
        }
        self.marks.taken_over += 1;
        let silent = now.saturating_sub(self.renewed.get(&owner.delta_sector()).copied().unwrap_or(0));
        if silent < self.dead_after {
            self.violated(format!("S11: {before:?} replaced by {after:?} after {silent} us of silence"));
        }
    }

    /// A write reached the disk. `late`: after its submitter was told of a timeout.
    pub fn landed(&mut self, area: Area, sector: u64, content: &Content, late: bool, disk: &SimDisk) {
        self.marks.late_landed += u64::from(late);
        match (area, content) {
            (Area::Lockspace, Content::Delta { leader, .. }) => self.delta_landed(sector, leader),
            (Area::Resource(resource), Content::Leader(leader)) => {
                self.marks.late_leader_landed += u64::from(late);
                self.leader_landed(resource, leader);
                self.chosen_stays(resource, disk);
            }
            (Area::Resource(resource), Content::Block(block)) => {
                if let Some(value) = value_of(&block.dblock) {
                    let r = &mut self.resources[usize::from(resource)];
                    r.accepted.insert((block.dblock.lver.get(), value));
                }
                self.chosen_stays(resource, disk);
            }
            _ => {}
        }
    }

    /// S9.
    fn delta_landed(&mut self, sector: u64, leader: &RawLeader) {
        let generation = leader.owner_generation.get();
        let before = self.delta_generation.insert(sector, generation).unwrap_or(0);
        if generation < before {
            self.violated(format!(
                "S9: generation in delta sector {sector} falls from {before} to {generation}"
            ));
        }
    }

    /// S2, and that every leader was chosen by a ballot.
    fn leader_landed(&mut self, resource: u8, leader: &RawLeader) {
        let (lver, value) = (leader.lver.get(), owner_of(leader));
        let r = &mut self.resources[usize::from(resource)];
        let mut broken = Vec::new();
        if lver < r.top_lver {
            self.marks.rolled_back += 1;
        }
        let reused = value.2 != 0 && r.chosen.get(&lver).is_some_and(|v| *v != value);
        if self.mixed && reused {
            // After a leader was rolled back a reference peer forgets its values and counts on from there (W1, W9): its
            // versions are new ones. Without late writes of its own that must not lead to two owners.
            r.chosen.retain(|l, _| *l < lver);
            r.top_lver = lver;
            self.marks.versions_reused += 1;
        }
        r.top_lver = r.top_lver.max(lver);
        if value.2 != 0 {
            let chosen = *r.chosen.entry(lver).or_insert(value);
            if chosen != value {
                broken.push(format!("S2: version {lver} has owner {chosen:?} and now {value:?}"));
            }
            if !r.accepted.contains(&(lver, value)) {
                broken.push(format!("a leader of version {lver} with {value:?} that no ballot accepted"));
            }
            if lver > 1 && !r.chosen.contains_key(&(lver - 1)) {
                broken.push(format!("version {lver} without a version {}", lver - 1));
            }
        }
        self.violations.append(&mut broken);
    }

    /// S3, on the blocks as they lie on the disk: a ballot for the held version can choose nobody but the holder.
    fn chosen_stays(&mut self, resource: u8, disk: &SimDisk) {
        let Some(holder) = self.holder(resource) else { return };
        let num_hosts = layout::leader_on(disk, resource).num_hosts.get();
        let mut best: Option<(u64, Value)> = None;
        for host in (1..=num_hosts).filter_map(HostId::new) {
            let d = layout::block_on(disk, resource, host).dblock;
            if d.lver.get() > holder.lver {
                return; // no ballot for the held version can complete
            }
            let (bal, value) = (d.bal.get(), value_of(&d));
            if let Some(value) = value.filter(|_| d.lver.get() == holder.lver) {
                if best.is_none_or(|(b, _)| bal > b) {
                    best = Some((bal, value));
                }
            }
        }
        if best.map(|(_, v)| v) != Some(holder.value) {
            self.violated(format!("S3: {holder:?} holds, but a ballot would choose {best:?}"));
        }
    }
}
