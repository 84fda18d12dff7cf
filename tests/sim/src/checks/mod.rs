//! What must hold in every state (lease-algorithms.md 13.6). Violations are collected; a run ends at the first.

mod formats;
mod hosts;
mod legs;
mod life;
mod marks;
pub mod notes;
mod orphans;
pub mod requests;
mod sharing;
mod values;
mod versions;

pub use marks::Marks;

use crate::bounds;
use crate::clock::{Clock, Micros};
use crate::disk::{Area, SimDisk};
use crate::layout;
use crate::settings::Settings;
use crate::table::Table;
use hosts::Membership;
use life::Lived;
use notes::Notes;
use requests::Requests;
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::Content;
use sanlock_lease::paxos::Held;
use sanlock_lease::record::{Dblock, HostBlock, RawLeader, RequestRecord};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sharing::Sharers;
use std::collections::{BTreeMap, BTreeSet};
use values::Values;

/// A proposed owner: host id, generation, timestamp.
pub type Value = (u64, u64, u64);

/// A process that holds a resource exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its machine.
    pub host: HostId,
    /// The host id it has it with.
    pub id: HostId,
    /// The process; 0 for a reference peer's, less for an orphan.
    pub pid: i32,
    /// The daemon that granted it.
    pub life: u32,
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
    /// The machine.
    pub host: HostId,
    /// Whether it is a reference peer.
    pub reference: bool,
}

#[derive(Clone, Debug, Default)]
struct Resource {
    holder: Option<Holder>,
    sharers: Sharers,
    /// Owners of the leaders that landed, by version.
    chosen: BTreeMap<u64, Value>,
    /// Values accepted in a phase 2 that landed, by version and host: on which legs.
    accepted: BTreeMap<(u64, Value, HostId), u8>,
    /// The legs that a leader of each version landed on.
    committed: BTreeMap<u64, u8>,
    /// Values that their owner gave up by flag, by version.
    flagged: BTreeSet<(u64, Value)>,
    /// Those among them that were on a disk at the same time as a leader which somebody else wrote for their owner.
    flagged_for_all: BTreeSet<(u64, Value)>,
    /// Versions whose owner (host, generation) wrote them free itself, on any disk: with several, that leader counts beside older ones.
    freed: BTreeSet<(u64, u64, u64)>,
    top_lver: u64,
    /// By reference peer: the highest version that its block was of when it forgot that, and its number. With it it forgot what it had accepted before.
    /// Until a later version is on the disk.
    forgotten: BTreeMap<HostId, (u64, u64)>,
    /// The highest version there was when versions began to be counted anew; 0 when a later one is on the disk.
    counted_anew: u64,
    /// An older leader has landed, and none of the highest version, or a later one, since.
    rolled_back: bool,
}

/// The properties, watched from outside the hosts.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    resources: Table<u8, Resource>,
    /// By disk and sector.
    delta_generation: Table<(u8, u64), u64>,
    /// When each delta sector was last written.
    renewed: Table<(u8, u64), Micros>,
    /// When a write of somebody who is over last landed in each, after which nothing else has.
    overwritten: Table<(u8, u64), Micros>,
    /// When a join of each host last read its own sector of a disk.
    looked: Table<(HostId, u8), Micros>,
    /// The last write of each that prolonged its host's life.
    lived: Table<(u8, u64), Lived>,
    /// The generation and the seconds that each machine last wrote, or meant to.
    told: Table<(u8, HostId), (u64, u64)>,
    /// The seconds that each machine's last renewal on a disk carried.
    stamps: Table<(u8, HostId), u64>,
    /// Those of its last renewal before it was reset, until it joins again.
    stamps_before: Table<(u8, HostId), u64>,
    /// By disk and sector: the machine that wrote last, and whether that made the host id free.
    delta_last: Table<(u8, u64), (HostId, bool)>,
    /// What our hosts believe, by host and disk.
    members: Table<(HostId, u8), Membership>,
    /// Resources a process was granted and has not released, whoever uses them now.
    registered: Table<(HostId, i32), BTreeSet<u8>>,
    /// When a lockspace last lost a user.
    user_ended: Table<(HostId, u8), Micros>,
    /// When a host last left a lockspace that had failed.
    left_failed: Table<HostId, Micros>,
    /// Resources that were not formatted to the end, and the legs, a bit each, where they were not.
    unformatted: Table<u8, u8>,
    /// Those among them whose former lease may still be there on some disk.
    old_lease: BTreeSet<u8>,
    /// The lockspaces of hosts in which orphans count (USED_BY_ORPHANS).
    orphans_count: BTreeSet<(HostId, u8)>,
    /// The host id each machine is configured with.
    identities: Table<HostId, HostId>,
    /// The io timeout of each host, where its lockspace was not joined with another one.
    io_timeouts: Table<HostId, IoTimeout>,
    fire: Option<WatchdogFire>,
    /// The io timeouts by which reference peers that are about to write a leader took its owner for dead, where they were not the owner's.
    misjudged: Table<(u8, HostId), IoTimeout>,
    /// The last renewals seen to be complete, also of daemons that are gone, and the io timeout that they had.
    last_goods: Table<(HostId, u8, u32), (MonoTime, IoTimeout)>,
    now: Micros,
    /// The hosts' clocks.
    clocks: Table<HostId, Clock>,
    /// So long before 8T + F a host has been reset that has not renewed.
    reset_before_ms: u64,
    only: Option<&'static str>,
    drift_ppm: u64,
    /// The reference peers.
    references: BTreeSet<HostId>,
    values: Values,
    requests: Requests,
    notes: Notes,
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
        Self {
            fire: Some(settings.fire),
            references: (settings.ours + 1..=settings.ours + settings.references)
                .map(layout::host_id)
                .collect(),
            drift_ppm: settings.drift_ppm,
            reset_before_ms: bounds::reset_before_ms(
                settings.fire,
                settings.device_long_ppm,
                settings.drift_ppm,
            ),
            ..Self::default()
        }
    }

    /// The io timeout that a host goes by from now on.
    pub fn goes_by(&mut self, host: HostId, io_timeout: IoTimeout) {
        self.io_timeouts.insert(host, io_timeout);
    }

    /// What a host's clock shows, from now on.
    pub fn has_clock(&mut self, host: HostId, clock: Clock) {
        self.clocks.insert(host, clock);
    }

    /// The host id that a machine is configured with from now on.
    pub fn claims_to_be(&mut self, machine: HostId, id: HostId) {
        self.identities.insert(machine, id);
    }

    /// The host id of a machine.
    fn id_of(&self, machine: HostId) -> HostId {
        self.identities.get(&machine).copied().unwrap_or(machine)
    }

    fn io_timeout(&self, host: HostId) -> IoTimeout {
        self.io_timeouts.get(&host).copied().unwrap_or(IoTimeout::DEFAULT)
    }

    /// Notes a violation.
    pub fn violated(&mut self, what: String) {
        if self.only.is_none_or(|wanted| what.contains(wanted)) {
            self.violations.push(what);
        }
    }

    /// Only violations that contain this count from now on.
    pub fn only(&mut self, wanted: &'static str) {
        self.only = Some(wanted);
    }

    /// The process that holds a resource.
    #[must_use]
    pub fn holder(&self, resource: u8) -> Option<Holder> {
        self.resources.get(&resource)?.holder
    }

    /// S1, S5: a process is told that it has the lease.
    pub fn grant(
        &mut self,
        resource: u8,
        writer: Writer,
        (pid, life): (i32, u32),
        generation: u64,
        held: &Held,
        disk: &SimDisk,
    ) {
        let value = owner_of(&held.leader);
        let id = self.id_of(writer.host);
        let holder = Holder { host: writer.host, id, pid, life, generation, lver: held.lver(), value };
        self.marks.acquired += 1;
        let all = self.registered.or_default((writer.host, pid));
        all.insert(resource);
        self.marks.acquired_in_both +=
            u64::from(all.iter().any(|r| layout::disk_of(*r) != layout::disk_of(resource)));
        let by_other = held.leader.write_id.get() != id.get();
        self.marks.committed_by_other += u64::from(by_other);
        let r = self.resources.or_default(resource);
        if writer.reference && by_other && r.flagged.contains(&(holder.lver, value)) {
            // It marked that very value as given up. Another host that had found the value in a ballot committed it late, and the original
            // compares the host id alone (W2, CE2): the fault of a peer that hosts of ours can neither see nor prevent.
            self.marks.peers_deceived += 1;
            return;
        }
        let before = r.holder.replace(holder);
        let legs = r.committed.get(&holder.lver).map_or(0, |legs| legs.count_ones());
        let landed = r.chosen.get(&holder.lver).copied().filter(|_| legs >= disk.majority());
        self.marks.acquired_on_legs += u64::from(disk.legs() > 1);
        self.marks.acquired_on_some += u64::from(legs < u32::from(disk.legs()));
        let beside: Vec<_> = r.sharers.keys().copied().collect();
        if let Some(other) = before {
            self.violated(format!("S1: {holder:?} was granted resource {resource} while {other:?} holds it"));
        }
        if !beside.is_empty() {
            self.violated(format!(
                "S1: {holder:?} was granted resource {resource} while {beside:?} share it"
            ));
        }
        if value.0 != id.get() || landed != Some(value) {
            self.violated(format!("S5: {holder:?} was granted, but the leader that landed says {landed:?}"));
        }
        self.granted_with(resource, writer, life, generation);
        self.granted_whole(resource, disk.legs());
        self.chosen_stays(resource, disk);
    }

    /// The process no longer holds the resource.
    pub fn dropped(&mut self, resource: u8, host: HostId, pid: i32) {
        self.not_held_too_long(host, |(number, of, _)| (*number, *of) == (resource, pid));
        let r = self.resources.or_default(resource);
        if r.holder.is_some_and(|h| h.host == host && h.pid == pid) {
            r.holder = None;
        }
        r.sharers.remove(&(host, pid));
    }

    /// A write leaves a host.
    pub fn submitted(&mut self, writer: Writer, area: Area, sector: u64, content: &Content, disk: &SimDisk) {
        let id = self.id_of(writer.host);
        match (area, content) {
            // The next area is another lease's (rule R8).
            _ if sector >= disk.geometry().sectors() => {
                self.violated(format!("S15: {writer:?} writes sector {sector} of {area:?}, beyond its end"));
            }
            (Area::Lockspace(number), Content::Delta { leader, .. }) if sector == id.delta_sector() => {
                self.delta_submitted(writer, number, leader);
            }
            (Area::Resource(resource, _), Content::Leader(leader)) if sector == 0 => {
                self.name_submitted(resource, writer, leader, disk);
            }
            (area, Content::Value(_)) if Self::is_value_place(area, sector) => {}
            (Area::Resource(resource, _), Content::Value(bytes)) if sector == layout::REQUEST_SECTOR => {
                let request = RequestRecord::from_sector(bytes);
                self.request_submitted(resource, request.lver.get(), request.force_mode.get());
            }
            (Area::Resource(resource, _), Content::Block(block)) if sector == id.block_sector() => {
                for before in legs::known_blocks(disk, resource, id) {
                    self.block_submitted(resource, writer, block, &before, disk);
                }
            }
            (Area::Resource(resource, leg), Content::Block(block))
                if layout::block_owner(sector).is_some() =>
            {
                if let Some(owner) = layout::block_owner(sector) {
                    self.foreign_block_submitted((resource, leg), writer, owner, block, disk);
                }
            }
            _ => self.violated(format!("S15: {writer:?} writes {content:?} to sector {sector} of {area:?}")),
        }
    }

    /// S10, R1, R2 and S13, compared with what is on the disk.
    fn block_submitted(
        &mut self,
        resource: u8,
        writer: Writer,
        block: &HostBlock,
        b: &Dblock,
        disk: &SimDisk,
    ) {
        let d = block.dblock;
        let id = self.id_of(writer.host);
        let r = self.resources.or_default(resource);
        let holder = r.holder;
        let max_hosts = u64::from(disk.geometry().max_hosts());
        let mut broken = Vec::new();
        if d.mbal.get() != 0 && d.mbal.get() % max_hosts != id.get() % max_hosts {
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
            if forgets && writer.reference {
                // It begins with the version that follows the older leader, which it has owned, and nothing is left of that.
                r.forgets(writer.host, b);
            }
        }
        if d.lver.get() < b.lver.get() && writer.reference {
            // It counts on from the older leader, or empties its block, and forgets what it has accepted since.
            r.forgets(writer.host, b);
        }
        if d.lver.get() < b.lver.get() && !writer.reference {
            broken.push("R2: the block goes back to an older version");
        }
        if d.is_released() && holder.is_some_and(|h| h.id == id && h.lver == d.lver.get()) {
            broken.push("S13: RELEASED while a process holds the lease");
        }
        for what in broken {
            self.violated(format!("{what}: {writer:?} writes {d:?} over {b:?}"));
        }
    }

    /// A write is about to reach the disk.
    pub fn landing(&mut self, now: Micros, area: Area, sector: u64, content: &Content, disk: &SimDisk) {
        match (area, content) {
            (Area::Lockspace(number), content) => {
                self.renewed.insert((number, sector), now);
                if let Content::Delta { leader, .. } = content {
                    self.delta_lands(now, (number, sector), leader);
                }
            }
            (Area::Resource(resource, _), Content::Leader(leader)) => {
                let Some(before) = layout::leader_in_force(disk, resource) else { return };
                let lver = before.lver.get();
                self.marks.repaired += u64::from(lver > 0 && leader.lver.get() > lver + 1);
                self.owner_replaced(now, resource, &before, leader, disk);
            }
            _ => {}
        }
    }

    /// A write reached the disk. `late`: after its submitter was told of a timeout; `orphan`: when its submitter was over.
    pub fn landed(
        &mut self,
        area: Area,
        sector: u64,
        content: &Content,
        writer: Writer,
        (late, orphan): (bool, bool),
        disk: &SimDisk,
    ) {
        self.marks.late_landed += u64::from(late);
        match (area, content) {
            (Area::Lockspace(number), Content::Delta { leader, .. }) => {
                self.delta_landed((number, sector), writer.host, leader, orphan);
            }
            (Area::Resource(resource, leg), Content::Leader(leader)) => {
                self.marks.late_leader_landed += u64::from(late);
                self.leader_landed((resource, leg), leader, disk);
                self.name_landed(resource, leader);
                self.chosen_stays(resource, disk);
            }
            (Area::Resource(resource, leg), Content::Value(bytes)) if sector == layout::REQUEST_SECTOR => {
                let request = RequestRecord::from_sector(bytes);
                if leg == 0 {
                    self.request_landed(resource, request.lver.get(), request.force_mode.get());
                }
            }
            (Area::Resource(resource, _), Content::Value(content)) => {
                self.value_landing(resource, writer, content);
            }
            (Area::Resource(resource, leg), Content::Block(block)) => {
                let id = self.id_of(writer.host);
                let own = sector == id.block_sector();
                if let Some(value) = value_of(&block.dblock).filter(|_| own) {
                    let lver = block.dblock.lver.get();
                    let r = self.resources.or_default(resource);
                    *r.accepted.entry((lver, value, id)).or_default() |= 1 << leg;
                    if block.dblock.is_released() && value.0 == id.get() {
                        r.flagged.insert((lver, value));
                        if Self::written_for(resource, lver, value, disk) {
                            r.flagged_for_all.insert((lver, value));
                        }
                    }
                }
                if own {
                    self.nothing_held_is_released(resource, disk);
                }
                self.chosen_stays(resource, disk);
                if let Some(owner) = layout::block_owner(sector) {
                    self.mode_landed(resource, owner, writer, disk);
                }
            }
            _ => {}
        }
    }

    /// A disk has another content all of a sudden.
    pub fn content_changed(&mut self, resource: u8, disk: &SimDisk) {
        let request = layout::request_on(disk, resource);
        self.request_landed(resource, request.lver.get(), request.force_mode.get());
        self.chosen_stays(resource, disk);
    }
}
