//! Operations on a resource index, run to their end or cut off at any write.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod behaviour;
mod crash;
#[path = "../images/mod.rs"]
mod images;
mod leases;
mod recorded;

use sanlock_lease::geometry::{AlignSize, Geometry, HostId, SectorSize};
use sanlock_lease::machine::{Env, IoFailure, LockspaceNow, NoHosts, Op, Place, Sectors};
use sanlock_lease::name::Name;
use sanlock_lease::record::{DELTA_MAGIC, DELTA_VERSION, RawLeader, RindexEntry, RindexHeader};
use sanlock_lease::rindex::{
    Answer, Entry, Member, RindexCommand, RindexConfig, RindexError, RindexOperation, Want,
};
use sanlock_lease::testing::{Fate, Lab};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_lease::verify::{self, Expect, Purpose};
use std::cell::Cell;
use std::rc::Rc;

/// Areas of the disk: the index, its lease, and room for resources.
const AREAS: u8 = 10;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn create(text: &str) -> RindexCommand {
    RindexCommand::Create { name: name(text), num_hosts: 0, seed: 1 }
}

fn delete(text: &str) -> RindexCommand {
    RindexCommand::Delete { name: name(text), offset: 0, seed: 1 }
}

fn lookup(text: &str, offset: u64) -> RindexCommand {
    RindexCommand::Lookup { name: name(text), offset }
}

fn entry(text: &str, offset: u64) -> Result<Entry, RindexError> {
    Ok(Entry { name: name(text), offset })
}

/// What was wanted, briefly: offset and length, negative for a write.
type Trace = Vec<(u64, i64)>;

/// One disk with an index, seen by several hosts. The areas of the disk are places of a [`Lab`], in which the machines of the
/// internal lease run.
struct Rig {
    lab: Lab,
    base: u64,
    geometry: Geometry,
    /// Areas that exist; behind them the disk ends.
    areas: u8,
    /// Writes left before everything stops, those of the lease included.
    writes_left: Rc<Cell<u32>>,
    /// Of the write that comes too late this many bytes still land.
    torn: usize,
    trace: Trace,
    /// The transfer with this index of the trace fails, or takes for ever.
    fault: Option<(usize, IoFailure)>,
    /// How often writes had to be waited for, and pauses were made.
    settled: u32,
    paused: u32,
}

impl Rig {
    /// A disk of zeros with the index at `base`.
    fn new(geometry: Geometry, base: u64) -> Self {
        let mut lab = Lab::new();
        for area in 0..AREAS {
            lab.disk.add(Place::Resource(area), geometry.align().bytes());
        }
        lab.disk.add(Place::Lockspace, geometry.align().bytes());
        let writes_left = Rc::new(Cell::new(u32::MAX));
        let left = Rc::clone(&writes_left);
        lab.fates(move |op: &Op| match (op.is_write(), left.get()) {
            (true, 0) => Fate::never(),
            (true, more) => {
                left.set(more - 1);
                Fate::prompt()
            }
            (false, _) => Fate::prompt(),
        });
        Self {
            lab,
            base,
            geometry,
            areas: AREAS,
            writes_left,
            torn: 0,
            trace: Trace::new(),
            fault: None,
            settled: 0,
            paused: 0,
        }
    }

    /// The same, formatted.
    fn formatted(geometry: Geometry, base: u64) -> Self {
        let mut rig = Self::new(geometry, base);
        let format = RindexCommand::Format { geometry, max_resources: 0 };
        assert_eq!(rig.run_as(None, format), entry("", 0));
        rig.trace.clear();
        rig
    }

    /// With the usual sizes and place.
    fn usual() -> Self {
        Self::formatted(Geometry::B512_M1, 1 << 20)
    }

    /// Offset of the resource area of an entry.
    fn area(&self, slot: u64) -> u64 {
        self.base + (2 + slot) * self.geometry.align().bytes()
    }

    fn member(&self, host: u64, generation: u64) -> Member {
        let host = HostId::new(host).unwrap();
        Member { host, generation, geometry: self.geometry, io_timeout: IoTimeout::DEFAULT }
    }

    /// As host 1 with generation 1.
    fn run(&mut self, command: RindexCommand) -> Result<Entry, RindexError> {
        self.run_as(Some(self.member(1, 1)), command)
    }

    fn run_as(&mut self, member: Option<Member>, command: RindexCommand) -> Result<Entry, RindexError> {
        self.drive(member, command).expect("nothing cuts it off")
    }

    /// Runs until the end, or until the last write that is left: then `None`.
    fn drive(
        &mut self,
        member: Option<Member>,
        command: RindexCommand,
    ) -> Option<Result<Entry, RindexError>> {
        self.drive_with(RindexConfig { member, ..self.config() }, command)
    }

    /// The same with other settings.
    fn drive_with(
        &mut self,
        config: RindexConfig,
        command: RindexCommand,
    ) -> Option<Result<Entry, RindexError>> {
        let mut operation = RindexOperation::new(config, command);
        let mut want = self.step(&mut operation, Answer::Start);
        loop {
            if want == Want::Done {
                return Some(operation.result().expect("a result at the end"));
            }
            want = self.carry_out(&mut operation, want)?;
        }
    }

    fn config(&self) -> RindexConfig {
        RindexConfig { lockspace: name("ls"), offset: self.base, member: None, fire: WatchdogFire::DEFAULT }
    }

    fn step(&self, operation: &mut RindexOperation, answer: Answer<'_>) -> Want {
        let env =
            Env { lockspace: self.lab.lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
        operation.step(self.lab.now, &env, answer)
    }

    fn carry_out(&mut self, operation: &mut RindexOperation, want: Want) -> Option<Want> {
        self.lab.now = self.lab.now.plus_millis(1);
        Some(match want {
            Want::Read { offset, len } => {
                let result = self.read(offset, len);
                self.step(operation, Answer::Read(result.as_deref().map_err(|e| *e)))
            }
            Want::Write { offset, bytes, .. } => {
                let result = self.write(offset, &bytes)?;
                self.step(operation, Answer::Written(result))
            }
            Want::Acquire { mut machine, offset } => {
                assert_eq!(offset, self.base + self.geometry.align().bytes());
                let done = self.lab.run(machine.as_mut());
                self.still_running()?;
                self.step(operation, Answer::Acquired(done.outcome, done.outstanding))
            }
            Want::Release { mut machine, offset } => {
                assert_eq!(offset, self.base + self.geometry.align().bytes());
                assert!(operation.result().is_some(), "the result is known before the release");
                let done = self.lab.run(machine.as_mut());
                self.still_running()?;
                self.step(operation, Answer::Released(done.outcome, done.outstanding))
            }
            Want::Settle => {
                self.lab.land_all();
                self.settled += 1;
                self.step(operation, Answer::Settled)
            }
            Want::Pause(until) => {
                assert!(until > self.lab.now);
                self.lab.now = until;
                self.paused += 1;
                self.step(operation, Answer::Resumed)
            }
            Want::Done => unreachable!("looked at before"),
        })
    }

    /// A run that used up its last write is over: what followed it never happened.
    fn still_running(&self) -> Option<()> {
        (self.writes_left.get() > 0).then_some(())
    }

    fn place(&self, offset: u64) -> (Place, u64) {
        let align = self.geometry.align().bytes();
        let area = u8::try_from((offset - self.base) / align).unwrap_or(u8::MAX);
        // The lease's machines know their area as the first one of the resource.
        let area = match area {
            0 => 1,
            1 => 0,
            other => other,
        };
        (Place::Resource(area), (offset - self.base) % align)
    }

    /// The bytes of the disk.
    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let (place, from) = self.place(offset);
        let (first, count) = (from / 512, (len / 512) as u64);
        let view = self.lab.disk.view(place, SectorSize::B512, first, count).unwrap();
        (first..first + count).flat_map(|sector| view.sector(sector).unwrap().to_vec()).collect()
    }

    fn faulty(&self) -> Option<IoFailure> {
        let at = self.trace.len() - 1;
        self.fault.filter(|(index, _)| *index == at).map(|(_, failure)| failure)
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, IoFailure> {
        self.trace.push((offset, i64::try_from(len).unwrap()));
        if let Some(failure) = self.faulty() {
            return Err(failure);
        }
        if (offset - self.base) / self.geometry.align().bytes() >= u64::from(self.areas) {
            return Err(IoFailure::Short);
        }
        Ok(self.bytes(offset, len))
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Option<Result<(), IoFailure>> {
        self.trace.push((offset, -i64::try_from(bytes.len()).unwrap()));
        if let Some(failure) = self.faulty() {
            return Some(Err(failure));
        }
        let (place, from) = self.place(offset);
        let landed = if self.writes_left.get() == 0 { self.torn.min(bytes.len()) } else { bytes.len() };
        assert!(self.lab.disk.write(place, SectorSize::B512, from / 512, &bytes[..landed]));
        self.writes_left.set(self.writes_left.get().checked_sub(1)?);
        Some(Ok(()))
    }

    fn entries(&self) -> Vec<(u64, RindexEntry)> {
        let sector = self.geometry.sector().slice_len();
        let area = self.bytes(self.base, usize::try_from(self.geometry.align().bytes()).unwrap());
        let all = area[sector..].chunks_exact(RindexEntry::BYTES).map(RindexEntry::from_bytes);
        (0..).zip(all).filter(|(_, entry)| !entry.is_free()).collect()
    }

    fn leader(&self, offset: u64) -> RawLeader {
        RawLeader::from_sector(&self.bytes(offset, self.geometry.sector().slice_len()))
    }

    /// The promise: the index is one, and each of its entries names an initialised lease of that name, in its own area.
    #[track_caller]
    fn assert_sound(&self, when: &str) {
        let header = RindexHeader::from_sector(&self.bytes(self.base, 512));
        assert_eq!(header.magic.get(), sanlock_lease::record::RINDEX_MAGIC, "{when}");
        for (slot, entry) in self.entries() {
            assert_eq!(entry.res_offset.get(), self.area(slot), "{when}: entry {slot}");
            let expect = Expect {
                lockspace: Some(name("ls")),
                resource: Some(Name::from_field(&entry.name)),
                host_id: None,
            };
            let leader = self.leader(self.area(slot));
            let verified = verify::paxos(&leader, &expect, Purpose::Use);
            assert_eq!(verified, Ok(self.geometry), "{when}: the area of entry {slot}");
        }
    }

    fn names(&self) -> Vec<(u64, String)> {
        self.entries().into_iter().map(|(slot, e)| (slot, Name::from_field(&e.name).to_string())).collect()
    }

    /// A delta lease of a host that lives with this generation.
    fn host_lives(&mut self, id: u64, generation: u64) {
        let host = HostId::new(id).unwrap();
        let mut record = RawLeader::zeroed();
        record.magic = DELTA_MAGIC.into();
        record.version = DELTA_VERSION.into();
        record.sector_size = self.geometry.sector().bytes().into();
        record.flags = self.geometry.align().flag().into();
        record.max_hosts = 1.into();
        record.owner_id = id.into();
        record.owner_generation = generation.into();
        record.space_name = name("ls").to_field();
        record.timestamp = 700.into();
        record.seal();
        let mut sector = vec![0; self.geometry.sector().slice_len()];
        record.encode(None, &mut sector);
        self.lab.disk.write(Place::Lockspace, self.geometry.sector(), host.delta_sector(), &sector);
    }

    fn lockspace(&mut self, now: LockspaceNow) {
        self.lab.lockspace = now;
    }
}
