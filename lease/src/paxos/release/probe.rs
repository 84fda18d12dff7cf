//! Which of several disks have the lease that is given up.

use super::{LeaderFail, ReleaseError};
use crate::limits::DISKS_MAX;
use crate::name::Name;
use crate::record::RawLeader;
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
