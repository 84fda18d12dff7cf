//! One operation on an index, from its first read to the release of the internal lease.

use super::index::{Index, Layout, header};
use super::{
    Answer, Entry, LEASE_NAME, Limit, Member, RindexCommand, RindexConfig, RindexError, Want, rebuild, sizes,
};
use crate::format::{self, Resource};
use crate::geometry::Geometry;
use crate::limits::SECTOR_BYTES_MAX;
use crate::machine::{Env, IoFailure, LockspaceNow};
use crate::name::Name;
use crate::paxos::acquire::{AcquireOptions, AcquireOutcome};
use crate::paxos::release::ReleaseOutcome;
use crate::paxos::{Held, PaxosAcquire, PaxosConfig, PaxosRelease};
use crate::record::RindexHeader;
use crate::timing::MonoTime;
use std::collections::VecDeque;

/// A write to come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Write {
    what: &'static str,
    offset: u64,
    bytes: Vec<u8>,
    limit: Limit,
}

/// What follows once nothing may land any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    /// The release of the lease held.
    Release,
    /// Taking back at once what an acquire may have left.
    Retract,
    /// The same after a pause: a release has just failed.
    Pause,
    /// Nothing.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Start,
    Header,
    /// Without taking the internal lease: looking whether it agrees with the header.
    Sizes {
        /// Places looked at before.
        looked: usize,
    },
    Acquiring,
    Index,
    /// Looking what lies in the area of the slot.
    Scan {
        /// What was found so far.
        index: Index,
        /// The index as it was.
        before: Index,
        slot: u32,
    },
    Writing(&'static str),
    Releasing,
    Settling(Then),
    Pausing,
    Done,
}

/// See the module. Created once for each operation; [`RindexOperation::step`] is the only way forward.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RindexOperation {
    config: RindexConfig,
    command: RindexCommand,
    phase: Phase,
    layout: Option<Layout>,
    writes: VecDeque<Write>,
    held: Option<Held>,
    /// Sizes of the internal lease as far as they are known.
    lease_geometry: Geometry,
    /// Whether a write of ours may still land.
    unsettled: bool,
    /// What the client is told when all writes have succeeded.
    entry: Entry,
    result: Option<Result<Entry, RindexError>>,
}

impl RindexOperation {
    /// An operation that has done nothing yet.
    #[must_use]
    pub fn new(config: RindexConfig, command: RindexCommand) -> Self {
        Self {
            config,
            command,
            phase: Phase::Start,
            layout: None,
            writes: VecDeque::new(),
            held: None,
            lease_geometry: config.member.map_or(Geometry::B512_M1, |member| member.geometry),
            unsettled: false,
            entry: Entry::default(),
            result: None,
        }
    }

    /// The result once it is known, which is before the internal lease is released: the client is told at the first
    /// [`Want::Settle`], [`Want::Pause`] or [`Want::Done`].
    #[must_use]
    pub fn result(&self) -> Option<Result<Entry, RindexError>> {
        self.result
    }

    /// Takes the answer to what was wanted last, [`Answer::Start`] at first, and says what is wanted next.
    pub fn step(&mut self, now: MonoTime, env: &Env<'_>, answer: Answer<'_>) -> Want {
        match (std::mem::replace(&mut self.phase, Phase::Done), answer) {
            (Phase::Start, Answer::Start) => self.start(env),
            (Phase::Header, Answer::Read(result)) => self.after_header(now, result),
            (Phase::Sizes { looked }, Answer::Read(result)) => self.after_lease(looked, result),
            (Phase::Acquiring, Answer::Acquired(outcome, outstanding)) => {
                self.after_acquire(outcome, outstanding)
            }
            (Phase::Index, Answer::Read(result)) => self.after_index(now, env, result),
            (Phase::Scan { index, before, slot }, Answer::Read(result)) => {
                self.after_scan(env, (index, before), slot, result)
            }
            (Phase::Writing(what), Answer::Written(result)) => self.after_write(env, what, result),
            (Phase::Releasing, Answer::Released(outcome, outstanding)) => {
                self.after_release(outcome, outstanding)
            }
            (Phase::Settling(then), Answer::Settled) => {
                self.unsettled = false;
                // Without the lockspace nothing is written any more, and its end says that the lease is free: what cannot be read now is
                // not waited for. A first release looks for itself.
                let goes_on = then == Then::Release || self.check_env(env).is_ok();
                self.settled(now, if goes_on { then } else { Then::Done })
            }
            (Phase::Pausing, Answer::Resumed) if self.check_env(env).is_err() => Want::Done,
            (Phase::Pausing, Answer::Resumed) => self.retract(),
            (Phase::Done, _) => Want::Done,
            _ => self.fail(RindexError::Driver),
        }
    }

    fn want(&mut self, phase: Phase, want: Want) -> Want {
        self.phase = phase;
        want
    }

    fn start(&mut self, env: &Env<'_>) -> Want {
        if let RindexCommand::Format { geometry, max_resources } = self.command {
            return self.format(env, geometry, max_resources);
        }
        if self.command.needs_lockspace() && self.config.member.is_none() {
            return self.fail(RindexError::NoMember);
        }
        // Both sector sizes see the whole header in the first 4096 bytes, which every device can read.
        self.want(Phase::Header, Want::Read { offset: self.config.offset, len: SECTOR_BYTES_MAX })
    }

    fn format(&mut self, env: &Env<'_>, geometry: Geometry, max_resources: u32) -> Want {
        let header = header(self.config.lockspace, self.config.offset, geometry, max_resources);
        let layout = match Layout::new(self.config.offset, geometry, header.max_resources.get()) {
            Ok(layout) => layout,
            Err(e) => return self.fail(e),
        };
        const INDEX: &str = "writing the index";
        // The header is taken away first and put in place last: an index that was not formatted to the end is none.
        let (base, sector) = (layout.base(), geometry.sector().slice_len());
        let mut area = Index::empty(layout, &header).bytes().to_vec();
        let header: Vec<u8> = area.iter_mut().take(sector).map(std::mem::take).collect();
        self.queue(INDEX, base, vec![0; sector], Limit::Init);
        self.queue(INDEX, base, area, Limit::Init);
        let lease = self.resource(lease_name(), geometry, 0, None);
        self.queue_area("writing the lease of the index", layout.lease(), &lease);
        self.queue(INDEX, base, header, Limit::Init);
        self.next_write(env)
    }

    fn resource(&self, name: Name, geometry: Geometry, num_hosts: u32, cleared_at: Option<u64>) -> Resource {
        let num_hosts = format::num_hosts(num_hosts, geometry);
        Resource { lockspace: self.config.lockspace, name, geometry, num_hosts, cleared_at }
    }

    fn queue_area(&mut self, what: &'static str, offset: u64, resource: &Resource) {
        for bytes in resource.writes(resource.geometry.sector().bytes()) {
            self.queue(what, offset, bytes, Limit::Init);
        }
    }

    fn after_header(&mut self, now: MonoTime, result: Result<&[u8], IoFailure>) -> Want {
        let header = match read("reading the header of the index", result) {
            Ok(bytes) => RindexHeader::from_sector(bytes),
            Err(e) => return self.fail(e),
        };
        let layout = match Layout::of(&header, self.config.lockspace, self.config.offset) {
            Ok(layout) => layout,
            Err(e) => return self.fail(e),
        };
        self.layout = Some(layout);
        if let Err(e) = self.check_command(&layout) {
            return self.fail(e);
        }
        match self.config.member {
            Some(member) if self.command.takes_lease() => {
                let options = AcquireOptions {
                    owner_nowait: true,
                    seed: self.command.seed() ^ now.millis(),
                    ..AcquireOptions::default()
                };
                let machine = Box::new(PaxosAcquire::new(self.paxos(&member), options));
                self.want(Phase::Acquiring, Want::Acquire { machine, offset: layout.lease() })
            }
            _ => self.look_for_lease(&layout, 0),
        }
    }

    fn look_for_lease(&mut self, layout: &Layout, looked: usize) -> Want {
        match sizes::places(layout).nth(looked) {
            Some(offset) => self.want(Phase::Sizes { looked }, Want::Read { offset, len: SECTOR_BYTES_MAX }),
            // It is gone, and there is nobody but the header to believe.
            None => self.read_index(layout),
        }
    }

    /// What cannot be read contradicts nothing: a rebuild is there for what is damaged.
    fn after_lease(&mut self, looked: usize, result: Result<&[u8], IoFailure>) -> Want {
        let Some(layout) = self.layout else { return self.fail(RindexError::Driver) };
        let Some(at) = sizes::places(&layout).nth(looked) else { return self.fail(RindexError::Driver) };
        match result.ok().and_then(|sector| sizes::of_lease(sector, layout.base(), at)) {
            Some(lease) if lease == layout.geometry => self.read_index(&layout),
            Some(lease) => self.fail(RindexError::Contradiction { stated: layout.geometry, at, lease }),
            None => self.look_for_lease(&layout, looked + 1),
        }
    }

    /// What the command can be refused for before anything is taken or read.
    fn check_command(&self, layout: &Layout) -> Result<(), RindexError> {
        const NAME: RindexError = RindexError::Missing("the name of the resource");
        const OFFSET: RindexError = RindexError::Missing("the offset of the resource");
        match self.command {
            RindexCommand::Add { name, .. } if name.is_empty() => Err(NAME),
            RindexCommand::Add { offset: 0, .. } | RindexCommand::Remove { offset: 0, .. } => Err(OFFSET),
            RindexCommand::Lookup { offset: 0, .. } | RindexCommand::Delete { offset: 0, .. } => Ok(()),
            RindexCommand::Lookup { offset, .. }
            | RindexCommand::Add { offset, .. }
            | RindexCommand::Remove { offset, .. } => layout.slot(offset).map(drop),
            RindexCommand::Delete { offset, .. } => layout.check_alignment(offset),
            RindexCommand::Format { .. } | RindexCommand::Create { .. } | RindexCommand::Rebuild { .. } => {
                Ok(())
            }
        }
    }

    fn paxos(&self, member: &Member) -> PaxosConfig {
        PaxosConfig {
            lockspace: self.config.lockspace,
            resource: lease_name(),
            host: member.host,
            generation: member.generation,
            io_timeout: member.io_timeout,
            fire: self.config.fire,
            geometry: member.geometry,
            disks: 1,
        }
    }

    fn after_acquire(&mut self, outcome: AcquireOutcome, outstanding: u32) -> Want {
        self.unsettled |= outstanding > 0;
        match outcome {
            AcquireOutcome::Acquired(held) => {
                let lease = held.geometry;
                self.lease_geometry = lease;
                self.held = Some(held);
                match self.layout {
                    // With sectors of either size the lease is at one place if areas are of one size.
                    Some(layout) if lease != layout.geometry => {
                        let (stated, at) = (layout.geometry, layout.lease());
                        self.fail(RindexError::Contradiction { stated, at, lease })
                    }
                    Some(layout) => self.read_index(&layout),
                    None => self.fail(RindexError::Driver),
                }
            }
            AcquireOutcome::Failed { error, retract, geometry } => {
                self.lease_geometry = geometry;
                self.result = Some(Err(RindexError::Acquire(error)));
                match (self.unsettled, retract.is_some()) {
                    (true, _) => self.want(Phase::Settling(Then::Retract), Want::Settle),
                    (false, true) => self.retract(),
                    (false, false) => Want::Done,
                }
            }
        }
    }

    fn read_index(&mut self, layout: &Layout) -> Want {
        self.want(Phase::Index, Want::Read { offset: layout.base(), len: layout.area_len() })
    }

    fn after_index(&mut self, now: MonoTime, env: &Env<'_>, result: Result<&[u8], IoFailure>) -> Want {
        let Some(layout) = self.layout else { return self.fail(RindexError::Driver) };
        let index = read("reading the index", result)
            .and_then(|bytes| Index::read(bytes, layout, self.config.lockspace));
        match index {
            Ok(index) if matches!(self.command, RindexCommand::Rebuild { .. }) => {
                self.scan(env, (index.without_entries(), index), 0)
            }
            Ok(index) => match self.plan(now, &layout, index) {
                Ok(()) => self.next_write(env),
                Err(e) => self.fail(e),
            },
            Err(e) => self.fail(e),
        }
    }

    /// Decides by the entries what is written and what the client is told.
    fn plan(&mut self, now: MonoTime, layout: &Layout, mut index: Index) -> Result<(), RindexError> {
        const ENTRY: &str = "writing the entry";
        const AREA: &str = "writing the resource's area";
        let geometry = layout.geometry;
        match self.command {
            RindexCommand::Create { name, num_hosts, .. } => {
                // The original makes a second entry, which nobody can look up (weakness W41).
                if let Some(slot) = index.find(name) {
                    return Err(RindexError::Exists { name, offset: layout.area(slot) });
                }
                let slot = index.first_free().ok_or(RindexError::Full(layout.count))?;
                let resource = self.resource(name, geometry, num_hosts, None);
                self.queue_area(AREA, layout.area(slot), &resource);
                index.set(slot, name);
                self.queue_entry(ENTRY, &index, slot);
                self.entry = Entry { name: Name::default(), offset: layout.area(slot) };
            }
            RindexCommand::Delete { name, .. } => {
                let slot = index.find(name).ok_or(RindexError::NoSuchName(name))?;
                index.clear(slot);
                self.queue_entry(ENTRY, &index, slot);
                let cleared = self.resource(name, geometry, 0, Some(now.secs()));
                self.queue_area(AREA, layout.area(slot), &cleared);
            }
            RindexCommand::Add { name, offset, .. } => {
                let slot = layout.slot(offset)?;
                // Two areas of one name: of hosts that look it up, each could go to another one.
                if let Some(other) = index.find(name).filter(|other| *other != slot) {
                    return Err(RindexError::Exists { name, offset: layout.area(other) });
                }
                index.set(slot, name);
                self.queue_entry(ENTRY, &index, slot);
                self.entry = Entry { name, offset };
            }
            RindexCommand::Remove { offset, .. } => {
                let slot = layout.slot(offset)?;
                index.clear(slot);
                self.queue_entry(ENTRY, &index, slot);
            }
            RindexCommand::Lookup { name, offset } => self.entry = lookup(layout, &index, name, offset)?,
            RindexCommand::Format { .. } | RindexCommand::Rebuild { .. } => return Err(RindexError::Driver),
        }
        Ok(())
    }

    fn queue_entry(&mut self, what: &'static str, index: &Index, slot: u32) {
        let (offset, bytes) = index.sector_of(slot);
        self.queue(what, offset, bytes, Limit::IoTimeout);
    }

    fn queue(&mut self, what: &'static str, offset: u64, bytes: Vec<u8>, limit: Limit) {
        self.writes.push_back(Write { what, offset, bytes, limit });
    }

    fn scan(&mut self, env: &Env<'_>, (index, before): (Index, Index), slot: u32) -> Want {
        let Some(layout) = self.layout else { return self.fail(RindexError::Driver) };
        if let Err(e) = self.check_env(env) {
            return self.fail(e);
        }
        if slot >= layout.count {
            return self.rebuilt(env, (index, before));
        }
        let want = Want::Read { offset: layout.area(slot), len: layout.geometry.sector().slice_len() };
        self.want(Phase::Scan { index, before, slot }, want)
    }

    fn after_scan(
        &mut self,
        env: &Env<'_>,
        (mut index, before): (Index, Index),
        slot: u32,
        result: Result<&[u8], IoFailure>,
    ) -> Want {
        match result {
            Ok(sector) => {
                rebuild::enter(&mut index, &before, slot, sector);
                self.scan(env, (index, before), slot + 1)
            }
            // The end of the disk: there are no areas behind it.
            Err(IoFailure::Short) => self.rebuilt(env, (index, before)),
            // An area that cannot be read may be somebody's: an index without it would give it away.
            Err(failure) => self.fail(RindexError::Io { what: "reading a resource's area", failure }),
        }
    }

    fn rebuilt(&mut self, env: &Env<'_>, (mut index, before): (Index, Index)) -> Want {
        rebuild::settle(&mut index, &before);
        self.queue("writing the index", self.config.offset, index.bytes().to_vec(), Limit::Init);
        self.next_write(env)
    }

    /// Rule R10: nothing is written with a host id that we may no longer hold.
    fn check_env(&self, env: &Env<'_>) -> Result<(), RindexError> {
        match (self.config.member, env.lockspace) {
            (None, _) => Ok(()),
            (Some(member), LockspaceNow::Alive { generation }) if generation == member.generation => Ok(()),
            _ => Err(RindexError::LockspaceGone),
        }
    }

    fn next_write(&mut self, env: &Env<'_>) -> Want {
        let Some(Write { what, offset, bytes, limit }) = self.writes.pop_front() else {
            self.result = Some(Ok(self.entry));
            return self.finish();
        };
        match self.check_env(env) {
            Ok(()) => self.want(Phase::Writing(what), Want::Write { offset, bytes, limit }),
            Err(e) => self.fail(e),
        }
    }

    fn after_write(&mut self, env: &Env<'_>, what: &'static str, result: Result<(), IoFailure>) -> Want {
        match result {
            Ok(()) => self.next_write(env),
            Err(failure) => {
                // What comes after it would be wrong without it.
                self.writes.clear();
                self.unsettled |= failure.may_still_land();
                self.fail(RindexError::Io { what, failure })
            }
        }
    }

    fn fail(&mut self, error: RindexError) -> Want {
        self.result.get_or_insert(Err(error));
        self.finish()
    }

    /// The result is known: give back what is held, once nothing of ours may land any more.
    fn finish(&mut self) -> Want {
        match (self.unsettled, self.held.is_some()) {
            (true, true) => self.want(Phase::Settling(Then::Release), Want::Settle),
            (true, false) => self.want(Phase::Settling(Then::Done), Want::Settle),
            (false, true) => self.release(),
            (false, false) => Want::Done,
        }
    }

    fn settled(&mut self, now: MonoTime, then: Then) -> Want {
        match (then, self.config.member) {
            (Then::Release, _) => self.release(),
            (Then::Retract, _) => self.retract(),
            (Then::Pause, Some(member)) => {
                let until = now.plus_millis(member.io_timeout.millis());
                self.want(Phase::Pausing, Want::Pause(until))
            }
            (Then::Pause | Then::Done, _) => Want::Done,
        }
    }

    fn release(&mut self) -> Want {
        let (Some(held), Some(member), Some(layout)) = (self.held.take(), self.config.member, self.layout)
        else {
            return Want::Done;
        };
        let machine = Box::new(PaxosRelease::new(self.paxos(&member), held));
        self.want(Phase::Releasing, Want::Release { machine, offset: layout.lease() })
    }

    fn retract(&mut self) -> Want {
        let (Some(member), Some(layout)) = (self.config.member, self.layout) else { return Want::Done };
        let machine = Box::new(PaxosRelease::retract(self.paxos(&member), self.lease_geometry));
        self.want(Phase::Releasing, Want::Release { machine, offset: layout.lease() })
    }

    /// A release that the disk did not answer, or whose block could not be marked, is tried again until it does or the lockspace is gone:
    /// otherwise no other host could change the index, in the second case where one is about to write a leader in our name.
    fn after_release(&mut self, outcome: ReleaseOutcome, outstanding: u32) -> Want {
        self.unsettled |= outstanding > 0;
        let then = match (outcome.needs_retract(), self.unsettled) {
            (true, _) => Then::Pause,
            (false, true) => Then::Done,
            (false, false) => return Want::Done,
        };
        self.want(Phase::Settling(then), Want::Settle)
    }
}

/// The name fits, by a test.
fn lease_name() -> Name {
    Name::new(LEASE_NAME).unwrap_or_default()
}

fn read<'a>(what: &'static str, result: Result<&'a [u8], IoFailure>) -> Result<&'a [u8], RindexError> {
    result.map_err(|failure| RindexError::Io { what, failure })
}

/// disk-format.md 8.3.
fn lookup(layout: &Layout, index: &Index, name: Name, offset: u64) -> Result<Entry, RindexError> {
    match (name.is_empty(), offset) {
        (true, 0) => {
            let slot = index.first_free().ok_or(RindexError::Full(layout.count))?;
            Ok(Entry { name, offset: layout.area(slot) })
        }
        (false, 0) => {
            let slot = index.find(name).ok_or(RindexError::NoSuchName(name))?;
            Ok(index.shown(slot))
        }
        (nameless, offset) => {
            let slot = layout.slot(offset)?;
            let found = index.name(slot);
            if !nameless && found != name {
                return Err(RindexError::Differs { found, offset });
            }
            Ok(index.shown(slot))
        }
    }
}
