//! Resource indexes: every operation, on a disk whose index, internal lease and areas hold anything.

use sanlock_lease::geometry::{AlignSize, Geometry, HostId, SectorSize};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::machine::{Env, IoFailure, LockspaceNow, NoHosts, Place, Sectors};
use sanlock_lease::name::Name;
use sanlock_lease::record::{DELTA_MAGIC, DELTA_VERSION, PAXOS_MAGIC, RawLeader, RindexEntry, RindexHeader};
use sanlock_lease::rindex::{
    Answer, Entry, Member, RindexCommand, RindexConfig, RindexError, RindexOperation, Want, header,
};
use sanlock_lease::testing::{Fate, Lab};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};

use crate::data::Data;
use crate::scene::{formatted, leader_sector, lockspace};

/// Areas that are on the disk: the index, its lease, and some resources. Behind them the disk ends.
const AREAS: u64 = 5;
/// Where the index begins, in areas.
const BASE_AREAS: u64 = 1;
/// Operations of one input.
const COMMANDS_MAX: usize = 4;
/// Transfers and machines of one operation: a rebuild looks at every area, and the entries of an index are bounded.
const WANTS_MAX: usize = 17_000;
/// Pauses of one operation: each is an io timeout in which the disk did not answer the release of the internal lease.
const PAUSES_MAX: usize = 40;

/// Creates, deletes, looks up, enters, takes out and rebuilds.
///
/// * Every operation ends in a bounded number of steps, with a result, and gives the internal lease back.
/// * It writes whole sectors inside the index and whole areas behind it, the internal lease only through its machines.
/// * Without a fault on the way: what was created is a lease at the place that was told, what was deleted is none, and the index
///   says so.
pub fn rindex(data: &[u8]) {
    let mut data = Data::new(data);
    let mut rig = Rig::new(&mut data);
    for _ in 0..COMMANDS_MAX {
        let command = rig.command(&mut data);
        rig.run(&mut data, command);
        if !data.more() {
            break;
        }
    }
}

struct Rig {
    lab: Lab,
    geometry: Geometry,
    /// The sizes that the index on the disk states.
    stated: Geometry,
    base: u64,
    /// Faults of the transfers to come.
    faults: Vec<u8>,
    faulty: bool,
}

fn name(data: &mut Data<'_>) -> Name {
    let text = data.pick(&[
        &b"a"[..],
        b"b",
        b"c",
        b"rindex_lease",
        b"",
        b"name of 48 bytes, which is the longest one there is",
    ]);
    let text = text.unwrap_or_default();
    Name::new(text.get(..48).unwrap_or(text)).unwrap_or_default()
}

impl Rig {
    fn new(data: &mut Data<'_>) -> Self {
        // Areas of 8 MiB take their time.
        let geometry =
            if data.one_in(8) { data.pick(&Geometry::ALL) } else { None }.unwrap_or(Geometry::B512_M1);
        let align = geometry.align().bytes();
        let mut lab = Lab::new();
        for area in 0..AREAS {
            lab.disk.add(Place::Resource(u8::try_from(area).unwrap_or(0)), align);
        }
        lab.disk.add(Place::Lockspace, align);
        let mut rig = Self {
            lab,
            geometry,
            stated: geometry,
            base: BASE_AREAS * align,
            faults: Vec::new(),
            faulty: false,
        };
        let mut record = RawLeader::zeroed();
        record.magic = DELTA_MAGIC.into();
        record.version = DELTA_VERSION.into();
        record.flags = geometry.align().flag().into();
        record.sector_size = geometry.sector().bytes().into();
        record.space_name = lockspace().to_field();
        record.seal();
        let mut sector = vec![0; geometry.sector().slice_len()];
        record.encode(None, &mut sector);
        rig.lab.disk.write(Place::Lockspace, geometry.sector(), 0, &sector);
        rig.furnish(data);
        rig
    }

    fn area(&self, slot: u64) -> u64 {
        self.base + (2 + slot) * self.geometry.align().bytes()
    }

    fn furnish(&mut self, data: &mut Data<'_>) {
        let size = self.geometry.sector();
        let mut head = vec![0; size.slice_len()];
        let mut record = header(lockspace(), self.base, self.geometry, 0);
        let odd = data.byte();
        if odd & 1 != 0 {
            record.max_resources = (data.number32() & 0xffff).into();
        }
        if odd & 2 != 0 {
            record.flags = u32::from(data.byte()).into();
        }
        if odd & 4 != 0 {
            record.rx_offset = data.number().into();
        }
        if odd & 8 != 0 {
            record.sector_size = data.number32().into();
        }
        record.encode(&mut head);
        self.put(self.base, &head);
        let lease = formatted(Name::new(b"rindex_lease").unwrap_or_default(), self.geometry, 0);
        self.put(
            self.base + self.geometry.align().bytes(),
            lease.get(..2 * SECTOR_BYTES_MAX).unwrap_or_default(),
        );
        let pieces = data.below(20);
        for _ in 0..pieces {
            match data.below(6) {
                0 | 1 => {
                    let (slot, name) = (data.number() % 4096, name(data));
                    let offset = if data.one_in(4) { data.number() } else { self.area(slot) };
                    let entry = RindexEntry {
                        res_offset: offset.into(),
                        flags: 0.into(),
                        unused: 0.into(),
                        name: name.to_field(),
                    };
                    let at = u64::from(size.bytes()) + slot * 64;
                    self.patch(at, &entry.to_bytes());
                }
                2 => {
                    // A resource in an area, entered or not.
                    let slot = data.number() % (AREAS - 2);
                    let mut leader = RawLeader::zeroed();
                    leader.magic = PAXOS_MAGIC.into();
                    leader.resource_name = name(data).to_field();
                    let sector = leader_sector(Place::Lockspace, size, 0, &leader, None);
                    self.put(self.area(slot), &sector.bytes);
                }
                3 => {
                    // The internal lease in some state.
                    let mut leader =
                        RawLeader::from_sector(&self.bytes(self.base + self.geometry.align().bytes(), 512));
                    leader.owner_id = data.number().into();
                    leader.owner_generation = data.number().into();
                    leader.lver = data.number().into();
                    leader.timestamp = data.number().into();
                    leader.num_hosts = u64::from(self.geometry.max_hosts()).into();
                    leader.seal();
                    let sector = leader_sector(Place::Lockspace, size, 0, &leader, None);
                    self.put(self.base + self.geometry.align().bytes(), &sector.bytes);
                }
                _ => {
                    let at = data.number() % (self.geometry.align().bytes() * 2 - 512) / 16 * 16;
                    let piece = data.piece().to_vec();
                    self.patch(at, &piece);
                }
            }
        }
    }

    fn command(&self, data: &mut Data<'_>) -> RindexCommand {
        let choice = data.byte();
        let seed = u64::from(choice);
        let offset = |data: &mut Data<'_>| match data.byte() {
            255 => data.number(),
            slot => self.area(u64::from(slot) % AREAS),
        };
        match choice % 8 {
            0 => RindexCommand::Format { geometry: self.geometry, max_resources: data.number32() & 0xffff },
            1 => RindexCommand::Delete { name: name(data), offset: 0, seed },
            2 => RindexCommand::Lookup {
                name: name(data),
                offset: if data.one_in(2) { offset(data) } else { 0 },
            },
            3 => RindexCommand::Add { name: name(data), offset: offset(data), seed },
            4 => RindexCommand::Remove { offset: offset(data), seed },
            5 => RindexCommand::Rebuild { seed },
            _ => RindexCommand::Create { name: name(data), num_hosts: data.byte().into(), seed },
        }
    }

    fn run(&mut self, data: &mut Data<'_>, command: RindexCommand) {
        self.faults = data.piece().iter().copied().rev().collect();
        // Whatever a machine of the internal lease meets has its own target; here its disk fails as a whole, or not.
        let lease = data.byte();
        self.lab.fates(move |_| if lease == 255 { Fate::fail(IoFailure::Os(5)) } else { Fate::prompt() });
        self.faulty = lease == 255;
        let generation = data.number();
        let host = HostId::new(u64::from(data.byte() % 4) + 1);
        let member = host.filter(|_| lease != 254).map(|host| Member {
            host,
            generation,
            geometry: self.geometry,
            io_timeout: IoTimeout::DEFAULT,
        });
        self.lab.lockspace = LockspaceNow::Alive { generation };
        let config =
            RindexConfig { lockspace: lockspace(), offset: self.base, member, fire: WatchdogFire::DEFAULT };
        let formats = matches!(command, RindexCommand::Format { .. });
        self.stated = if formats { self.geometry } else { self.stated_sizes() };
        // Of other sizes than the areas that were furnished.
        self.faulty |= self.stated != self.geometry;
        let first = match command {
            RindexCommand::Delete { name, .. } => {
                self.slots().find(|slot| name.matches(&self.entry(*slot).name))
            }
            _ => None,
        };
        let mut operation = RindexOperation::new(config, command);
        let mut want = self.step(&mut operation, Answer::Start);
        let (mut wants, mut pauses, mut held) = (0, 0, false);
        while want != Want::Done {
            wants += 1;
            assert!(wants <= WANTS_MAX, "{command:?} does not end");
            self.lab.now = self.lab.now.plus_millis(1);
            want = match want {
                Want::Read { offset, len } => {
                    let result = self.read(offset, len);
                    self.step(&mut operation, Answer::Read(result.as_deref().map_err(|e| *e)))
                }
                Want::Write { offset, bytes, .. } => {
                    assert!(held || member.is_none() || !command.takes_lease(), "written without the lease");
                    assert!(operation.result().is_none(), "written after the result");
                    let result = self.write(offset, &bytes);
                    self.step(&mut operation, Answer::Written(result))
                }
                Want::Acquire { mut machine, offset } => {
                    assert_eq!(offset, self.base + self.stated.align().bytes());
                    let end = self.lab.run(machine.as_mut());
                    held = matches!(end.outcome, sanlock_lease::paxos::acquire::AcquireOutcome::Acquired(_));
                    self.step(&mut operation, Answer::Acquired(end.outcome, end.outstanding))
                }
                Want::Release { mut machine, offset } => {
                    assert_eq!(offset, self.base + self.stated.align().bytes());
                    assert!(operation.result().is_some(), "the result is known before the release");
                    held = false;
                    let end = self.lab.run(machine.as_mut());
                    self.step(&mut operation, Answer::Released(end.outcome, end.outstanding))
                }
                Want::Settle => {
                    self.lab.land_all();
                    self.step(&mut operation, Answer::Settled)
                }
                Want::Pause(until) => {
                    pauses += 1;
                    assert!(until > self.lab.now);
                    self.lab.now = until;
                    if pauses == PAUSES_MAX {
                        // A disk that never answers keeps it trying until the lockspace is gone.
                        self.lab.lockspace = LockspaceNow::Gone;
                        self.lab.no_faults();
                    }
                    assert!(pauses <= PAUSES_MAX + 1, "{command:?} goes on in a lockspace that is gone");
                    self.step(&mut operation, Answer::Resumed)
                }
                Want::Done => break,
            };
        }
        assert!(!held, "the internal lease is given back");
        let Some(result) = operation.result() else { panic!("{command:?} ends without a result") };
        self.check(command, result, first);
    }

    /// What the header says, as an operation takes it.
    fn stated_sizes(&self) -> Geometry {
        let header = RindexHeader::from_sector(&self.bytes(self.base, 512));
        let sector = SectorSize::from_bytes(header.sector_size.get());
        let align = AlignSize::from_flags((header.flags.get() & 0xf) << 4);
        sector
            .zip(align)
            .and_then(|(sector, align)| Geometry::new(sector, align).ok())
            .unwrap_or(self.geometry)
    }

    fn step(&self, operation: &mut RindexOperation, answer: Answer<'_>) -> Want {
        let env =
            Env { lockspace: self.lab.lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
        operation.step(self.lab.now, &env, answer)
    }

    /// `first`: the slot of a name that was to be deleted.
    fn check(&self, command: RindexCommand, result: Result<Entry, RindexError>, first: Option<u64>) {
        let entry = match result {
            Ok(entry) => entry,
            Err(error) => return drop(error.to_string()),
        };
        if self.faulty {
            return;
        }
        match command {
            RindexCommand::Create { name, .. } => {
                let leader = RawLeader::from_sector(&self.bytes(entry.offset, 512));
                assert!(
                    leader.magic.get() == PAXOS_MAGIC && name.matches(&leader.resource_name),
                    "{entry:?}"
                );
                assert!(self.entered(entry.offset, name), "{entry:?} is in the index");
            }
            RindexCommand::Add { name, offset, .. } => assert!(self.entered(offset, name)),
            RindexCommand::Remove { offset, .. } => assert!(self.entered(offset, Name::default())),
            RindexCommand::Delete { name, .. } => {
                let Some(slot) = first else { panic!("{name:?} is deleted, and was not there") };
                let leader = RawLeader::from_sector(&self.bytes(self.area(slot), 512));
                assert!(leader.magic.get() != PAXOS_MAGIC, "{name:?}: {slot} is a lease still");
                assert!(
                    self.entered(self.area(slot), Name::default()),
                    "{name:?}: {slot} is in the index still"
                );
            }
            RindexCommand::Lookup { name, .. } if !name.is_empty() => {
                assert!(self.entered(entry.offset, name), "{entry:?} is not what the index has for {name:?}");
            }
            RindexCommand::Lookup { .. } | RindexCommand::Format { .. } | RindexCommand::Rebuild { .. } => {}
        }
    }

    fn entered(&self, offset: u64, name: Name) -> bool {
        let slot = (offset - self.area(0)) / self.geometry.align().bytes();
        name.matches(&self.entry(slot).name)
    }

    fn slots(&self) -> std::ops::Range<u64> {
        0..self.geometry.rindex_entries_max().into()
    }

    fn entry(&self, slot: u64) -> RindexEntry {
        let at = self.base + u64::from(self.geometry.sector().bytes()) + slot * 64;
        let sector = self.bytes(at / 512 * 512, 512);
        let from = usize::try_from(at % 512).unwrap_or(0);
        RindexEntry::from_bytes(sector.get(from..).unwrap_or_default())
    }

    /// The area of an offset and the bytes from its start.
    fn place(&self, offset: u64) -> Option<(Place, u64)> {
        let align = self.geometry.align().bytes();
        let from = offset.checked_sub(self.base)?;
        // The machines of the internal lease know its area as the first one of the resource.
        let area = match from / align {
            0 => 1,
            1 => 0,
            other => other,
        };
        let place = Place::Resource(u8::try_from(area).ok().filter(|area| u64::from(*area) < AREAS)?);
        Some((place, from % align))
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let Some((place, from)) = self.place(offset) else { return vec![0; len] };
        let (first, count) = (from / 512, (len / 512) as u64);
        let mut bytes = vec![0; len];
        let Some(view) = self.lab.disk.view(place, SectorSize::B512, first, count) else { return bytes };
        let mut next = first;
        while let Some(sector) = view.next_in_use(next) {
            let at = usize::try_from(sector - first).unwrap_or(0) * 512;
            if let (Some(to), Some(from)) = (bytes.get_mut(at..at + 512), view.sector(sector)) {
                to.copy_from_slice(from);
            }
            next = sector + 1;
        }
        bytes
    }

    /// How many bytes at an offset lie in one area of those furnished; none behind the end of the disk.
    fn in_one_area(&self, offset: u64) -> Option<usize> {
        let (_, from) = self.place(offset)?;
        usize::try_from(self.geometry.align().bytes() - from).ok()
    }

    /// Bytes from however many areas; nothing if the disk ends before them.
    fn contents(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let next = offset + bytes.len() as u64;
            bytes.extend(self.bytes(next, self.in_one_area(next)?.min(len - bytes.len())));
        }
        Some(bytes)
    }

    /// Puts bytes into however many areas, up to the end of the disk; whether all have found room.
    fn store(&mut self, mut offset: u64, mut bytes: &[u8]) -> bool {
        while let Some(room) = self.in_one_area(offset).filter(|_| !bytes.is_empty()) {
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.put(offset, now);
            offset += now.len() as u64;
            bytes = rest;
        }
        bytes.is_empty()
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        if let Some((place, from)) = self.place(offset) {
            self.lab.disk.write(place, SectorSize::B512, from / 512, bytes);
        }
    }

    /// Bytes anywhere in the index or its lease.
    fn patch(&mut self, at: u64, bytes: &[u8]) {
        let from = self.base + at / 512 * 512;
        let mut sectors = self.bytes(from, 1024);
        for (to, byte) in sectors.iter_mut().skip(usize::try_from(at % 512).unwrap_or(0)).zip(bytes) {
            *to = *byte;
        }
        let (one, two) = sectors.split_at(512);
        let (one, two) = (one.to_vec(), two.to_vec());
        self.put(from, &one);
        self.put(from + 512, &two);
    }

    fn fault(&mut self) -> Option<IoFailure> {
        let failure = match self.faults.pop()? {
            0..=223 => return None,
            224..=239 => IoFailure::Os(5),
            240..=247 => IoFailure::TimedOut,
            248..=255 => IoFailure::Short,
        };
        self.faulty = true;
        Some(failure)
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, IoFailure> {
        assert!(offset % 512 == 0 && len % 512 == 0 && len > 0, "read of {len} bytes at {offset}");
        // The areas that count are those of the sizes that the header states (disk-format.md 8.1), which may be larger than those that were
        // furnished here: nothing else on the disk says how long an index is. What a disk is too short for ends at its end.
        let align = self.stated.align().bytes();
        let from = offset.checked_sub(self.base).unwrap_or_else(|| panic!("read before the index: {offset}"));
        assert!(from % align + len as u64 <= align, "a read across areas: {len} bytes at {offset}");
        if let Some(failure) = self.fault() {
            return Err(failure);
        }
        self.contents(offset, len).ok_or(IoFailure::Short)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoFailure> {
        let align = self.stated.align().bytes();
        let size = u64::from(self.stated.sector().bytes());
        let len = bytes.len() as u64;
        let from =
            offset.checked_sub(self.base).unwrap_or_else(|| panic!("written before the index: {offset}"));
        assert!(offset % size == 0 && len % size == 0 && len > 0, "{len} bytes written at {offset}");
        assert!(from % align + len <= align, "a write across areas: {len} bytes at {offset}");
        if from >= align {
            assert!(
                from % align == 0 && (len == align || len == size),
                "no whole area: {len} bytes at {offset}"
            );
        }
        if let Some(failure) = self.fault() {
            return Err(failure);
        }
        if self.store(offset, bytes) {
            return Ok(());
        }
        self.faulty = true;
        Err(IoFailure::Short)
    }
}
