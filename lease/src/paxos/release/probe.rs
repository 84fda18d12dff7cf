//! Which of several disks have the lease that is given up.

use super::{LeaderFail, PaxosRelease, ReleaseError, ReleaseOutcome, What};
use crate::limits::DISKS_MAX;
use crate::machine::{Env, Step};
use crate::name::Name;
use crate::record::RawLeader;
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
    /// On which of those the leader is otherwise that of what is held.
    held: [bool; DISKS_MAX],
    /// What lies on the first of those that have something else.
    other: Option<LeaderError>,
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
    /// Takes note of a disk's leader, and whether in all but its name it is that of what is held.
    pub(super) fn put(&mut self, disk: u8, leader: &Result<RawLeader, LeaderFail>, held: bool) {
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
        let at = usize::from(disk);
        if let (LeaderError::Resource { found, .. }, Some(name), Some(of_hold)) =
            (error, self.names.get_mut(at), self.held.get_mut(at))
        {
            (*name, *of_hold) = (Some(*found), held);
        }
    }

    /// Whether a disk has the lease under this name.
    pub(super) fn is_called(&self, disk: u8, name: Name) -> bool {
        self.names.get(usize::from(disk)).is_some_and(|found| *found == Some(name))
    }

    /// Whether every disk with this name has the leader of what is held.
    pub(super) fn is_held_as(&self, name: Name) -> bool {
        self.names.iter().zip(self.held).all(|(found, held)| *found != Some(name) || held)
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
            // A slow commit in our name has taken it back to a name of before: our block gives it up.
            Found::Renamed(name) if probe.is_held_as(name) => {
                self.goes_on_under(name, probe);
                self.start(now, env)
            }
            // What is held has no next owner: somebody else's leases lie there.
            Found::Renamed(found) => self.done(Err(probe.without(self.called(found), self.config.disks))),
        }
    }

    /// The disks that have the lease under another name are marked like those that have it under its own.
    fn goes_on_under(&mut self, name: Name, probe: &Probe) {
        for disk in (0..self.config.disks).filter(|disk| probe.is_called(*disk, name)) {
            self.ops.is_of_the_lease(disk);
        }
        self.anonymous = Some(name);
    }

    /// That the lease has another name than it should.
    pub(super) fn called(&self, found: Name) -> LeaderError {
        LeaderError::Resource { expected: self.config.resource, found }
    }
}
