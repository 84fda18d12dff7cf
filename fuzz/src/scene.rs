//! Sparse lease areas made from a fuzzer's choices, a disk that misbehaves as they say, and what all machines are held to.
//!
//! An area is a list of records with chosen fields, sealed or not, and of raw bytes at chosen places, so a few dozen bytes of input
//! make megabytes of area. The driver is that of the tests of the lease code, with its virtual clock.

use sanlock_lease::format;
use sanlock_lease::geometry::{AlignSize, Geometry, HostId, SectorSize};
use sanlock_lease::hosts::HostSeen;
use sanlock_lease::limits::DISKS_MAX;
use sanlock_lease::machine::{Action, Content, HostView, IoFailure, LockspaceNow, Op, Place};
use sanlock_lease::name::Name;
use sanlock_lease::record::{
    Bitmap, DELTA_MAGIC, DELTA_VERSION, HostBlock, MODE_SHARED, ModeBlock, PAXOS_MAGIC, PAXOS_VERSION,
    RawLeader,
};
use sanlock_lease::testing::{Fate, Lab};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::data::Data;

/// Operations of one machine after which its work counts as unbounded, unless each place has its share. The most there can be for one owner: a look
/// a second at it until it is dead, with an io timeout of 255 s, once for each change that others make meanwhile, and 64 ballots.
pub const OPERATIONS_MAX: usize = 40_000;
/// A place's share: an owner is looked at in the lockspace and on each disk.
const OPERATIONS_OF_A_PLACE_MAX: usize = OPERATIONS_MAX / (1 + DISKS_MAX);
/// Changes that others make while a machine runs.
const CHANGES_MAX: usize = 8;
/// Records of an area.
const RECORDS_MAX: usize = 40;
/// Seconds after which a disk that does not answer has ended the lockspace: longer than any wait for an owner.
const STUCK_SECS: u64 = 20_000;
/// Faults of one input: then the disk is sound, so that bounded work is left.
const FAULTS_MAX: usize = 64;

/// The lockspace.
pub fn lockspace() -> Name {
    Name::new(b"ls").unwrap_or_default()
}

/// The resource.
pub fn resource() -> Name {
    Name::new(b"r").unwrap_or_default()
}

/// One sector to come.
#[derive(Clone, Debug)]
pub struct Sector {
    /// Where.
    pub place: Place,
    /// Its size.
    pub size: SectorSize,
    /// Its number.
    pub number: u64,
    /// Its first bytes; the rest stays.
    pub at: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What the world around a machine looks like.
pub struct Scene {
    /// The disks, the clock, and the faults.
    pub lab: Lab,
    /// Sizes of the lockspace.
    pub outer: Geometry,
    /// Sizes that the resource was made with.
    pub inner: Geometry,
    /// Disks of the resource.
    pub disks: u8,
    /// Our host id.
    pub host: HostId,
    /// Our generation.
    pub generation: u64,
    /// Our io timeout.
    pub io_timeout: IoTimeout,
    /// Whether others change something while the next machine runs.
    pub disturbed: bool,
    /// What renewals have seen.
    pub seen: BTreeMap<u64, HostSeen>,
}

struct Seen(BTreeMap<u64, HostSeen>);

impl HostView for Seen {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        self.0.get(&host.get()).copied()
    }
}

fn geometry(data: &mut Data<'_>) -> Geometry {
    data.pick(&Geometry::ALL).unwrap_or(Geometry::B512_M1)
}

fn host_id(data: &mut Data<'_>) -> HostId {
    let id = data.number();
    HostId::new(id).or(HostId::new(id % 5 + 1)).unwrap_or_else(first)
}

fn first() -> HostId {
    HostId::from_index(0).unwrap_or_else(first)
}

impl Scene {
    /// Areas of zeros, and who we are.
    pub fn new(data: &mut Data<'_>) -> Self {
        let outer = geometry(data);
        let inner = if data.one_in(4) { geometry(data) } else { outer };
        let disks = [1, 1, 1, 1, 2, 3, 3, 4].get(data.below(8)).copied().unwrap_or(1);
        let mut lab = Lab::new();
        let host = host_id(data);
        let generation = data.number().max(1);
        let io_timeout = u32::try_from(data.number())
            .ok()
            .and_then(|s| IoTimeout::new(s).ok())
            .unwrap_or(IoTimeout::DEFAULT);
        lab.lockspace = LockspaceNow::Alive { generation };
        lab.disk.add(Place::Lockspace, outer.align().bytes());
        for disk in 0..disks {
            // Some disks are too short for the sizes, or not there.
            match data.byte() {
                255 => {}
                254 => lab.disk.add(Place::Resource(disk), 1 << 18),
                _ => lab.disk.add(Place::Resource(disk), inner.align().bytes()),
            }
        }
        Self {
            lab,
            outer,
            inner,
            disks,
            host,
            generation,
            io_timeout,
            disturbed: false,
            seen: BTreeMap::new(),
        }
    }

    /// Both areas as formatted, with as many deviations as the input has.
    pub fn furnish(&mut self, data: &mut Data<'_>) {
        let leader = self.leader(&mut Data::new(&[]));
        for disk in 0..self.disks {
            self.put(&leader_sector(Place::Resource(disk), self.inner.sector(), 0, &leader, None));
        }
        for host in [1, 2, 3, self.host.get()].into_iter().filter_map(HostId::new) {
            let sector = self.delta(&mut Data::new(&[]), host);
            self.put(&sector);
        }
        let records = data.below(RECORDS_MAX);
        for _ in 0..records {
            for sector in self.record(data) {
                self.put(&sector);
            }
        }
        let seen = data.below(4);
        for _ in 0..seen {
            let (host, entry) = self.host_seen(data);
            self.seen.insert(host, entry);
        }
        self.lab.hosts = Rc::new(Seen(self.seen.clone()));
    }

    /// Puts bytes on the disk.
    pub fn put(&mut self, sector: &Sector) {
        put(&mut self.lab, sector);
    }

    /// A record of any kind, for each disk it is to be on.
    fn record(&self, data: &mut Data<'_>) -> Vec<Sector> {
        let mask = match data.byte() {
            all @ 0..=191 => {
                let _unused = all;
                0xff
            }
            some => some,
        };
        let disks = (0..self.disks).filter(|disk| mask & (1 << disk) != 0);
        let size = self.inner.sector();
        let kind = match data.byte() {
            kind @ 240..=255 => return self.holder(data, kind < 248, disks.collect()),
            kind => kind % 8,
        };
        match kind {
            0 | 1 => {
                let leader = self.leader(data);
                disks.map(|disk| leader_sector(Place::Resource(disk), size, 0, &leader, None)).collect()
            }
            2..=4 => {
                let host = host_id(data);
                let block = self.block(data, host);
                let mut bytes = vec![0; 160];
                block.encode(&mut bytes);
                let sector = |disk| Sector {
                    place: Place::Resource(disk),
                    size,
                    number: host.block_sector(),
                    at: 0,
                    bytes: bytes.clone(),
                };
                disks.map(sector).collect()
            }
            5 | 6 => {
                let host = host_id(data);
                vec![self.delta(data, host)]
            }
            _ => {
                let lockspace = data.one_in(2);
                let number = data.number() % self.inner.sectors().max(1);
                let at = usize::from(data.byte()) * 2;
                let bytes = data.piece().to_vec();
                let raw = |place| Sector { place, size, number, at, bytes: bytes.clone() };
                if lockspace {
                    vec![raw(Place::Lockspace)]
                } else {
                    disks.map(|disk| raw(Place::Resource(disk))).collect()
                }
            }
        }
    }

    /// A host that owns the lease, or holds it shared, with the delta lease of a host that is alive, or was.
    fn holder(&self, data: &mut Data<'_>, owns: bool, disks: Vec<u8>) -> Vec<Sector> {
        let (host, generation, timestamp) = (host_id(data), data.number().max(1), data.number().max(1));
        let mut delta = RawLeader::from_sector(&self.delta(&mut Data::new(&[]), host).bytes);
        delta.owner_id = host.get().into();
        delta.owner_generation = generation.into();
        delta.timestamp = timestamp.into();
        delta.io_timeout = u16::from(data.byte()).into();
        delta.seal();
        let number = host.delta_sector();
        let mut sectors = vec![leader_sector(Place::Lockspace, self.outer.sector(), number, &delta, None)];
        let size = self.inner.sector();
        if owns {
            let mut leader = self.leader(&mut Data::new(&[]));
            leader.owner_id = host.get().into();
            leader.owner_generation = generation.into();
            leader.lver = data.number().into();
            leader.timestamp = timestamp.into();
            leader.write_id = if data.one_in(4) { data.number() } else { host.get() }.into();
            leader.seal();
            sectors.extend(
                disks.iter().map(|disk| leader_sector(Place::Resource(*disk), size, 0, &leader, None)),
            );
        } else {
            let mut block = HostBlock::zeroed();
            block.mode = ModeBlock::shared(generation);
            let mut bytes = vec![0; 160];
            block.encode(&mut bytes);
            let number = host.block_sector();
            let sector = |disk: &u8| Sector {
                place: Place::Resource(*disk),
                size,
                number,
                at: 0,
                bytes: bytes.clone(),
            };
            sectors.extend(disks.iter().map(sector));
        }
        sectors
    }

    /// A leader of the resource: without choices as it is formatted.
    pub fn leader(&self, data: &mut Data<'_>) -> RawLeader {
        let odd = data.byte();
        let mut leader = RawLeader::zeroed();
        leader.magic = PAXOS_MAGIC.into();
        leader.version = PAXOS_VERSION.into();
        leader.flags = self.inner.align().flag().into();
        leader.sector_size = self.inner.sector().bytes().into();
        leader.max_hosts = u64::from(self.inner.max_hosts()).into();
        leader.num_hosts = leader.max_hosts;
        leader.space_name = lockspace().to_field();
        leader.resource_name = resource().to_field();
        leader.owner_id = data.number().into();
        leader.owner_generation = data.number().into();
        leader.lver = data.number().into();
        leader.timestamp = data.number().into();
        leader.write_id = data.number().into();
        if odd & 1 != 0 {
            leader.flags = (leader.flags.get() | data.number32()).into();
        }
        if odd & 2 != 0 {
            leader.num_hosts = data.number().into();
        }
        if odd & 4 != 0 {
            leader.max_hosts = data.number().into();
        }
        if odd & 8 != 0 {
            leader.write_generation = data.number().into();
            leader.write_timestamp = data.number().into();
        }
        if odd & 16 != 0 {
            leader.magic = data.number32().into();
            leader.version = data.number32().into();
        }
        if odd & 32 != 0 {
            leader.sector_size = data.number32().into();
        }
        if odd & 64 != 0 {
            let name = data.piece();
            leader.resource_name = Name::new(name.get(..48).unwrap_or(name)).unwrap_or_default().to_field();
        }
        leader.seal();
        if odd & 128 != 0 {
            leader.checksum = (leader.checksum.get() ^ data.number32()).into();
        }
        leader
    }

    fn block(&self, data: &mut Data<'_>, host: HostId) -> HostBlock {
        let odd = data.byte();
        let mut block = HostBlock::zeroed();
        let ballot = data.number();
        // Ballot numbers say whose they are.
        let own = u64::from(self.inner.max_hosts()).wrapping_mul(ballot).wrapping_add(host.get());
        block.dblock.mbal = if odd & 1 == 0 { own } else { ballot }.into();
        block.dblock.lver = data.number().into();
        if odd & 2 == 0 {
            block.dblock.bal = if odd & 4 == 0 { block.dblock.mbal.get() } else { data.number() }.into();
            block.dblock.inp = if odd & 8 == 0 { host.get() } else { data.number() }.into();
            block.dblock.inp2 = data.number().into();
            block.dblock.inp3 = data.number().into();
        }
        block.dblock.seal();
        block.dblock.flags = u32::from(odd & 16 != 0).into();
        if odd & 32 != 0 {
            block.mode.flags = MODE_SHARED.into();
            block.mode.generation = data.number().into();
        }
        if odd & 128 != 0 {
            block.dblock.checksum = (block.dblock.checksum.get() ^ data.number32()).into();
        }
        block
    }

    /// A delta lease: without choices as it is formatted.
    pub fn delta(&self, data: &mut Data<'_>, host: HostId) -> Sector {
        let odd = data.byte();
        let mut leader = RawLeader::zeroed();
        leader.magic = DELTA_MAGIC.into();
        leader.version = DELTA_VERSION.into();
        leader.flags = self.outer.align().flag().into();
        leader.sector_size = self.outer.sector().bytes().into();
        leader.max_hosts = 1.into();
        leader.space_name = lockspace().to_field();
        leader.io_timeout = 10.into();
        leader.owner_generation = data.number().into();
        leader.timestamp = data.number().into();
        leader.owner_id = if leader.owner_generation.get() == 0 { 0 } else { host.get() }.into();
        if odd & 1 != 0 {
            leader.owner_id = data.number().into();
        }
        if odd & 2 != 0 {
            leader.io_timeout = data.word16().into();
        }
        if odd & 4 != 0 {
            leader.flags = (leader.flags.get() | data.number32()).into();
        }
        if odd & 8 != 0 {
            let name = data.piece();
            leader.resource_name = Name::new(name.get(..48).unwrap_or(name)).unwrap_or_default().to_field();
        }
        if odd & 16 != 0 {
            leader.magic = data.number32().into();
            leader.version = data.number32().into();
        }
        if odd & 32 != 0 {
            leader.sector_size = data.number32().into();
            leader.flags = data.number32().into();
        }
        let mut bitmap = Bitmap::default();
        if odd & 64 != 0 {
            bitmap.set(self.host);
            bitmap.set(host_id(data));
            leader.write_id = data.number().into();
            leader.write_generation = data.number().into();
            leader.write_timestamp = data.number().into();
        }
        leader.seal();
        if odd & 128 != 0 {
            leader.checksum = (leader.checksum.get() ^ data.number32()).into();
        }
        leader_sector(Place::Lockspace, self.outer.sector(), host.delta_sector(), &leader, Some(&bitmap))
    }

    /// What renewals may have seen of a host: checks in the past, in their order.
    fn host_seen(&self, data: &mut Data<'_>) -> (u64, HostSeen) {
        let host = host_id(data).get();
        let ago = |secs: u64| MonoTime::from_secs(self.lab.now.secs().saturating_sub(secs));
        let last = data.number() % 900;
        let live = last + data.number() % 900;
        let begun = live + data.number() % 900;
        let owner = data.number();
        let io_timeout = IoTimeout::from_disk(data.byte().into(), IoTimeout::DEFAULT);
        let last_live = (!data.one_in(4)).then(|| ago(live));
        let generation = data.number();
        let entry = HostSeen {
            first_check: ago(begun),
            last_check: ago(last),
            last_live,
            owner_id: if owner == 0 { host } else { owner },
            owner_generation: generation,
            timestamp: data.number(),
            io_timeout,
            newest_generation: generation,
        };
        (host, entry)
    }

    /// Faults of the next operations, and changes that others make during them.
    pub fn disturb(&mut self, data: &mut Data<'_>) {
        let faults: Vec<u8> = data.piece().iter().copied().take(FAULTS_MAX).collect();
        let limit = self.io_timeout.millis();
        let left = RefCell::new(faults.into_iter());
        self.lab.fates(move |op| {
            left.borrow_mut().next().map_or_else(Fate::prompt, |fault| fate(op, fault, limit))
        });
        // A write that a conversion waits for may never end; then the lockspace does.
        self.lab.after_secs(STUCK_SECS, |lab| lab.lockspace = LockspaceNow::Gone);
        let changes = data.below(CHANGES_MAX);
        self.disturbed = changes > 0;
        for _ in 0..changes {
            let delay = data.number() % 400_000;
            let when = self.lab.now.plus_millis(delay);
            match data.below(8) {
                0 => self.lab.at(when, |lab| lab.lockspace = LockspaceNow::Gone),
                1 => self.lab.at(when, |lab| lab.client_alive = false),
                2 => self.lab.at(when, |lab| lab.shutting_down = true),
                3 => {
                    let (host, entry) = self.host_seen(data);
                    let mut seen = self.seen.clone();
                    seen.insert(host, entry);
                    self.lab.at(when, move |lab| lab.hosts = Rc::new(Seen(seen)));
                }
                _ => {
                    for sector in self.record(data) {
                        self.lab.at(when, move |lab| put(lab, &sector));
                    }
                }
            }
        }
    }

    /// Everything in flight lands, and the world is as it was before the machine.
    pub fn calm(&mut self) {
        self.lab.land_all();
        self.lab.cancel_hooks();
        self.lab.no_faults();
        self.lab.lockspace = LockspaceNow::Alive { generation: self.generation };
        self.lab.client_alive = true;
        self.lab.shutting_down = false;
        self.lab.hosts = Rc::new(Seen(self.seen.clone()));
    }

    /// What one machine has submitted is bounded, and inside the areas that its sizes describe.
    pub fn check_operations(&self, from: usize) {
        let trace = self.lab.trace.get(from..).unwrap_or_default();
        if trace.len() > OPERATIONS_MAX {
            // A wait for several holders looks at each of them.
            let mut places = HashMap::new();
            trace.iter().for_each(|t| *places.entry((t.op.place, sectors_of(&t.op))).or_insert(0) += 1);
            let most = places.values().max().copied().unwrap_or(0);
            assert!(most <= OPERATIONS_OF_A_PLACE_MAX, "{} operations, {most} in one place", trace.len());
        }
        for traced in trace {
            let op = &traced.op;
            let (first, count) = sectors_of(op);
            assert!(count >= 1, "{op:?}");
            let end = first.checked_add(count).and_then(|end| end.checked_mul(op.sector_size.bytes().into()));
            assert!(end.is_some_and(|end| end <= AlignSize::M8.bytes()), "{op:?}");
            assert!(op.deadline > traced.at, "{op:?}");
            if let Place::Resource(disk) = op.place {
                assert!(disk < self.disks, "{op:?}");
            }
            if let Action::Write { content, .. } = &op.action {
                check_content(content, op);
            }
        }
    }

    /// A sector as it is on a disk.
    pub fn leader_on(&self, disk: u8, size: SectorSize) -> RawLeader {
        RawLeader::from_sector(&self.lab.disk.sector(Place::Resource(disk), size, 0))
    }

    /// A host's block as it is on a disk.
    pub fn block_on(&self, disk: u8, size: SectorSize, host: HostId) -> HostBlock {
        HostBlock::from_sector(&self.lab.disk.sector(Place::Resource(disk), size, host.block_sector()))
    }

    /// A host's delta lease.
    pub fn delta_of(&self, host: HostId) -> RawLeader {
        RawLeader::from_sector(&self.lab.disk.sector(
            Place::Lockspace,
            self.outer.sector(),
            host.delta_sector(),
        ))
    }

    /// The watchdog fire timeout of every host.
    pub const fn fire() -> WatchdogFire {
        WatchdogFire::DEFAULT
    }
}

/// What we write can be read: right checksums, and a whole sector for a value.
fn check_content(content: &Content, op: &Op) {
    match content {
        Content::Delta { leader, .. } | Content::Leader(leader) => {
            assert_eq!(leader.checksum.get(), leader.computed_checksum(), "{op:?}");
        }
        Content::Block(block) => assert!(block.dblock.is_valid(), "{op:?}"),
        Content::Value(bytes) => assert_eq!(bytes.len(), op.sector_size.slice_len(), "{op:?}"),
    }
}

fn put(lab: &mut Lab, sector: &Sector) {
    lab.disk.edit(sector.place, sector.size, sector.number, |bytes| {
        for (to, from) in bytes.iter_mut().skip(sector.at).zip(&sector.bytes) {
            *to = *from;
        }
    });
}

/// A sector with a leader record in it.
pub fn leader_sector(
    place: Place,
    size: SectorSize,
    number: u64,
    leader: &RawLeader,
    bitmap: Option<&Bitmap>,
) -> Sector {
    let mut bytes = vec![0; 512];
    leader.encode(bitmap, &mut bytes);
    Sector { place, size, number, at: 0, bytes }
}

/// What a byte means for an operation. `limit`: the io timeout in milliseconds.
fn fate(op: &Op, fault: u8, limit: u64) -> Fate {
    let part = u64::from(fault % 8) + 1;
    match fault / 8 {
        0..=15 => Fate::prompt(),
        16..=18 => Fate::after(part * limit / 16),
        19 => Fate::fail(IoFailure::Os(5)),
        20 => Fate::in_doubt(IoFailure::Os(5), (part > 1).then_some(part * limit)),
        21 => Fate::fail(IoFailure::Short),
        22 => Fate { failure: Some(IoFailure::Os(5)), ..Fate::prompt() },
        // Late, seen or not: the deadline passes first.
        23..=24 => Fate::after(limit + part * limit / 4),
        25 => Fate::never(),
        26 => Fate::lands_unseen(1),
        27 => Fate::lands_unseen(limit + part * 1000),
        28 => Fate::after(part * limit / 10).stale(),
        29 => Fate { lands_ms: None, failure: Some(IoFailure::Os(5)), ..Fate::after(limit + part) },
        _ if op.is_write() => Fate { lands_ms: Some(limit * part), ..Fate::never() },
        _ => Fate::prompt(),
    }
}

/// A geometry of a format, for what is made whole.
pub fn formatted(name: Name, geometry: Geometry, num_hosts: u16) -> Vec<u8> {
    format::Resource { lockspace: lockspace(), name, geometry, num_hosts, cleared_at: None }.area()
}

/// What an operation reads or writes: the first sector, and how many.
fn sectors_of(op: &Op) -> (u64, u64) {
    match &op.action {
        Action::Read { first, count } => (*first, *count),
        Action::Write { sector, .. } => (*sector, 1),
    }
}
