//! Which of several disks have the lease that is given up.

use super::{For, Held, LeaderFail, PaxosRelease, Phase, ReleaseError, ReleaseOutcome, What};
use crate::limits::DISKS_MAX;
use crate::machine::{Env, IoFailure, Step};
use crate::name::Name;
use crate::record::{HostBlock, RawLeader};
use crate::timing::MonoTime;
use crate::verify::LeaderError;

/// What the disks have for leaders, as far as they answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Probe {
    /// How many have the lease.
    ours: u32,
    /// How many cannot be read, or have a damaged leader: they may have it.
    unknown: u32,
    /// Of each disk that differs in the resource's name alone, that name.
    names: [Option<Name>; DISKS_MAX],
    /// What lies on the first of those that have something else.
    other: Option<LeaderError>,
}

/// Whether what a majority of the disks has under another name is the lease that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identify {
    probe: Probe,
    name: Name,
    /// The disks that have our block as we wrote it last.
    ours: u8,
    /// Why one of them could not be read.
    io: Option<IoFailure>,
}

impl Identify {
    /// Takes note of our block on a disk.
    pub(super) fn put(&mut self, disk: u8, block: Result<HostBlock, IoFailure>, held: &Held) {
        match block {
            Ok(block) => self.ours |= u8::from(block.dblock == held.block.dblock) << disk,
            Err(failure) => self.io = self.io.or(Some(failure)),
        }
    }
}

/// What is to be done with the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A majority has the lease, or may have it.
    Lease,
    /// A majority has one other name in common, and is right in all else.
    Renamed(Name),
    /// So few have it, or may have it, that nothing can be decided, or none at all.
    Gone(ReleaseError),
}

impl Probe {
    /// Takes note of a disk's leader.
    pub(super) fn put(&mut self, disk: u8, leader: &Result<RawLeader, LeaderFail>) {
        let error = match leader {
            Ok(_) => {
                self.ours += 1;
                return;
            }
            Err(LeaderFail::Leader(error)) if error.is_of_another() => error,
            Err(_) => {
                self.unknown += 1;
                return;
            }
        };
        self.other = self.other.or(Some(*error));
        if let (LeaderError::Resource { found, .. }, Some(name)) =
            (error, self.names.get_mut(usize::from(disk)))
        {
            *name = Some(*found);
        }
    }

    /// Whether a disk has the lease under this name.
    pub(super) fn is_called(&self, disk: u8, name: Name) -> bool {
        self.names.get(usize::from(disk)).is_some_and(|found| *found == Some(name))
    }

    /// What a majority says. Only one name that a majority has is the lease's: a disk with another one was named by mistake, and is
    /// somebody else's lease, however many of the others cannot be read.
    pub(super) fn judge(&self, disks: u8, majority: u32) -> Found {
        let called = |name: &Name| (0..disks).fold(0, |n, disk| n + u32::from(self.is_called(disk, *name)));
        let renamed = self.names.iter().flatten().find(|name| called(name) >= majority);
        match (renamed, self.other) {
            (Some(name), _) => Found::Renamed(*name),
            (None, Some(other)) if self.ours + self.unknown < majority => {
                Found::Gone(self.without(other, disks))
            }
            _ => Found::Lease,
        }
    }

    /// What a release comes to for which too few disks have the lease: while one has it, or may have it, the others may come back.
    pub(super) fn without(&self, other: LeaderError, disks: u8) -> ReleaseError {
        if self.ours + self.unknown == 0 {
            return ReleaseError::Leader(other);
        }
        ReleaseError::LeaderRead { readable: self.ours, disks, other: Some(LeaderFail::Leader(other)) }
    }
}

impl PaxosRelease {
    pub(super) fn after_probe(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        probe: &Probe,
    ) -> Step<ReleaseOutcome> {
        self.probed = true;
        match probe.judge(self.config.disks, self.config.majority()) {
            Found::Lease => self.start(now, env),
            Found::Gone(error) => self.done(Err(error)),
            // The next owner of what an acquire left may have given it another name; our block in it is ours to mark all the same. Whoever
            // still has a value to write has given nothing up.
            Found::Renamed(name)
                if self.what == What::Whatever && !self.mode.is_shared() && self.value.is_none() =>
            {
                self.goes_on_under(name, probe);
                self.start(now, env)
            }
            // A slow commit may have taken what is held back to a name of before.
            Found::Renamed(name) if matches!(self.what, What::Held(_)) => {
                self.identify(now, env, Identify { probe: *probe, name, ours: 0, io: None })
            }
            // What is held has no next owner: somebody else's leases lie there.
            Found::Renamed(found) => self.done(Err(probe.without(self.called(found), self.config.disks))),
        }
    }

    /// Reads our block on the disks with the other name. None but the lease that is held has it as we wrote it last.
    fn identify(&mut self, now: MonoTime, env: &Env<'_>, identify: Identify) -> Step<ReleaseOutcome> {
        self.goes_on_under(identify.name, &identify.probe);
        for disk in (0..self.config.disks).filter(|disk| identify.probe.is_called(*disk, identify.name)) {
            let sector = self.config.host.block_sector();
            self.ops.read(disk, self.geometry.sector(), sector, 1, self.deadline(now), For::OwnBlock);
        }
        self.submit(now, env, Phase::Identify(identify))
    }

    pub(super) fn after_identify(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        identify: &Identify,
    ) -> Step<ReleaseOutcome> {
        let Identify { probe, name, ours, io } = identify;
        for disk in (0..self.config.disks).filter(|disk| probe.is_called(*disk, *name)) {
            if ours & (1 << disk) == 0 {
                self.ops.is_of_another(disk);
            }
        }
        if ours.count_ones() >= self.config.majority() {
            return self.start(now, env);
        }
        self.done(Err(match io {
            Some(failure) => ReleaseError::Io(*failure),
            None => probe.without(self.called(*name), self.config.disks),
        }))
    }

    /// The disks that have the lease under another name are marked like those that have it under its own.
    fn goes_on_under(&mut self, name: Name, probe: &Probe) {
        for disk in (0..self.config.disks).filter(|disk| probe.is_called(*disk, name)) {
            self.ops.is_of_the_lease(disk);
        }
        self.anonymous = true;
    }

    /// That the lease has another name than it should.
    fn called(&self, found: Name) -> LeaderError {
        LeaderError::Resource { expected: self.config.resource, found }
    }
}
