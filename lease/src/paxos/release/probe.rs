//! Which of several disks have the lease that is given up.

use super::own_block::is_of_hold;
use super::{For, LeaderFail, PaxosRelease, Phase, ReleaseError, ReleaseOutcome, What};
use crate::limits::DISKS_MAX;
use crate::machine::{Env, IoFailure, Step};
use crate::name::Name;
use crate::record::{Dblock, HostBlock, RawLeader};
use crate::timing::MonoTime;
use crate::verify::LeaderError;

/// What the disks have for leaders, as far as they answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Probe {
    /// Which have the lease under its own name.
    ours: u8,
    /// How many cannot be read, or have a damaged leader: they may have it.
    unknown: u32,
    /// Of each disk that differs in the resource's name alone, that name.
    names: [Option<Name>; DISKS_MAX],
    /// And the checksum of its leader: of what one slow commit has written it is the same.
    leaders: [Option<u32>; DISKS_MAX],
    /// Which of those have a leader that cannot be the hold's.
    others: u8,
    /// What lies on the first of those that have something else.
    other: Option<LeaderError>,
}

/// Whether the disks have the lease that was held, whatever it is called there.
///
/// A slow commit may have taken it back to the name, and even to the version, that it had when its host read the leader. Then our block is as
/// we wrote it last, but for what a release has done to it since; and the leader is neither of a later version, which nobody gets to beside an
/// exclusive hold that nobody has tried to give up, nor of our writing: all that *we* commit has the name that we know. Another lease of ours may
/// have an equal block, if it was acquired at the same second, but then one of these gives it away, unless another host has committed it in our name.
///
/// A disk that missed the value, because it did not answer, has our block as that ballot began. Beside one that has the value it counts, for it may
/// be what a majority lacks; but only with the lease under its own name, or with the leader that a disk with the value has. Such a block alone is what every
/// refused acquire of ours leaves, in any lease.
///
/// Not known are a shared hold beside which others have gone on to later versions under that name, and one after a conversion to exclusive that was
/// refused, for there is no value in its block. Where a majority has that block all the same, no other disks will come back under the old name: the
/// hold is over, and nothing is marked, for a block without a value may be another lease's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identify {
    probe: Probe,
    /// What a majority calls it.
    name: Name,
    hold: HostBlock,
    /// The disks that have our block.
    ours: u8,
    /// The disks that have it as it was when the ballot of its value began.
    begun: u8,
    /// The disks that have it as far as can be told where there is no value in it.
    without_value: u8,
    /// Of each disk whose block could not be read, why.
    unread: [Option<IoFailure>; DISKS_MAX],
}

impl Identify {
    /// Takes note of our block on a disk.
    pub(super) fn put(&mut self, disk: u8, block: Result<HostBlock, IoFailure>) {
        match (block, self.unread.get_mut(usize::from(disk))) {
            (Ok(block), _) => {
                let (block, hold) = (block.dblock, self.hold.dblock);
                self.ours |= u8::from(same_value(&block, &hold)) << disk;
                let begun = hold.bal.get() != 0 && (block.lver, block.mbal) == (hold.lver, hold.bal);
                self.begun |= u8::from(begun && block.bal.get() == 0) << disk;
                let same = hold.bal.get() == 0 && block.bal.get() == 0 && is_of_hold(&block, &hold);
                self.without_value |= u8::from(same) << disk;
            }
            (Err(failure), Some(unread)) => *unread = Some(failure),
            (Err(_), None) => {}
        }
    }
}

/// Whether two blocks have the same value, accepted in the same ballot of the same version.
pub(super) fn same_value(one: &Dblock, other: &Dblock) -> bool {
    let value = |block: &Dblock| (block.lver, block.bal, block.inp, block.inp2, block.inp3);
    one.bal.get() != 0 && value(one) == value(other)
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
    /// Takes note of a disk's leader; and of one under another name, `renamed`, whether it cannot be the hold's.
    pub(super) fn put(
        &mut self,
        disk: u8,
        leader: &Result<RawLeader, LeaderFail>,
        renamed: Option<(RawLeader, bool)>,
    ) {
        let error = match leader {
            Ok(_) => {
                self.ours |= 1 << disk;
                return;
            }
            Err(LeaderFail::Leader(error)) if error.is_of_another() => error,
            Err(_) => {
                self.unknown += 1;
                return;
            }
        };
        self.other = self.other.or(Some(*error));
        self.others |= u8::from(renamed.is_some_and(|(_, not_the_holds)| not_the_holds)) << disk;
        if let (Some((leader, _)), Some(known)) = (renamed, self.leaders.get_mut(usize::from(disk))) {
            *known = Some(leader.checksum.get());
        }
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

    /// The disks that have the lease under its own name, or a leader that one of these has too.
    fn have_the_leader_of(&self, those: u8) -> u8 {
        let is_among = |disk: usize| those & (1 << disk) != 0;
        let of = |disk: usize| self.leaders.get(disk).copied().flatten();
        let same = |disk: &usize| {
            of(*disk).is_some_and(|leader| {
                (0..DISKS_MAX).any(|other| is_among(other) && of(other) == Some(leader))
            })
        };
        (0..DISKS_MAX).filter(same).fold(self.ours, |disks, disk| disks | (1 << disk))
    }

    /// How many have the lease.
    fn have_it(&self) -> u32 {
        self.ours.count_ones()
    }

    /// What a majority says. Only one name that a majority has is the lease's: a disk with another one was named by mistake, and is
    /// somebody else's lease, however many of the others cannot be read.
    pub(super) fn judge(&self, disks: u8, majority: u32) -> Found {
        let called = |name: &Name| (0..disks).fold(0, |n, disk| n + u32::from(self.is_called(disk, *name)));
        let renamed = self.names.iter().flatten().find(|name| called(name) >= majority);
        match (renamed, self.other) {
            (Some(name), _) => Found::Renamed(*name),
            (None, Some(other)) if self.have_it() + self.unknown < majority => {
                Found::Gone(self.without(other, disks))
            }
            _ => Found::Lease,
        }
    }

    /// What a release comes to for which too few disks have the lease: while one has it, or may have it, the others may come back.
    pub(super) fn without(&self, other: LeaderError, disks: u8) -> ReleaseError {
        if self.have_it() + self.unknown == 0 {
            return ReleaseError::Leader(other);
        }
        ReleaseError::LeaderRead { readable: self.have_it(), disks, other: Some(LeaderFail::Leader(other)) }
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
            Found::Renamed(name) => match (self.what, self.hold) {
                (What::Held(_) | What::Whatever, Some(hold)) => {
                    let identify = Identify {
                        probe: *probe,
                        name,
                        hold,
                        ours: 0,
                        begun: 0,
                        without_value: 0,
                        unread: [None; DISKS_MAX],
                    };
                    self.identify(now, env, identify)
                }
                // The next owner of what an acquire left may have given it another name; our block in it is ours to mark all the same. Whoever
                // still has a value to write has given nothing up.
                (What::Whatever, None) if !self.mode.is_shared() && self.value.is_none() => {
                    self.goes_on_under(name, probe);
                    self.start(now, env)
                }
                // Somebody goes on holding it.
                _ => self.done(Err(probe.without(self.called(name), self.config.disks))),
            },
        }
    }

    /// Reads our block on the disks that have the lease, under either name.
    fn identify(&mut self, now: MonoTime, env: &Env<'_>, identify: Identify) -> Step<ReleaseOutcome> {
        self.goes_on_under(identify.name, &identify.probe);
        let (sector, deadline) = (self.config.host.block_sector(), self.deadline(now));
        for disk in 0..self.config.disks {
            if self.ops.is_known(disk) {
                self.ops.read(disk, self.geometry.sector(), sector, 1, deadline, For::OwnBlock);
            }
        }
        self.submit(now, env, Phase::Identify(identify))
    }

    pub(super) fn after_identify(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        identify: &Identify,
    ) -> Step<ReleaseOutcome> {
        let Identify { probe, name, without_value, unread, .. } = identify;
        let ours = identify.ours & !probe.others;
        let ours = ours
            | (identify.begun & !probe.others & if ours == 0 { 0 } else { probe.have_the_leader_of(ours) });
        let majority = self.config.majority();
        let mut may_be = ours.count_ones();
        let mut io = None;
        for (disk, failure) in (0..self.config.disks).zip(*unread) {
            let failure = failure.filter(|_| probe.others & (1 << disk) == 0);
            may_be += u32::from(failure.is_some());
            io = io.or(failure);
            if probe.is_called(disk, *name) && ours & (1 << disk) == 0 {
                self.ops.is_of_another(disk, failure);
            }
        }
        if ours.count_ones() >= majority {
            return self.start(now, env);
        }
        if (without_value & !probe.others).count_ones() >= majority {
            return self.done(Err(ReleaseError::Leader(self.called(*name))));
        }
        self.done(Err(match io {
            Some(failure) if may_be >= majority => ReleaseError::Io(failure),
            _ => probe.without(self.called(*name), self.config.disks),
        }))
    }

    /// Whether a leader under another name cannot be that of what is held. Once an attempt may have given it up, a later owner may have named it.
    pub(super) fn is_not_the_holds(&self, leader: &RawLeader) -> bool {
        let later = match self.what {
            What::Held(held) => leader.lver.get() > held.block.dblock.lver.get(),
            What::Exclusivity(_) | What::Whatever => false,
        };
        later || self.wrote(leader)
    }

    /// The disks that have the lease under another name are marked like those that have it under its own.
    fn goes_on_under(&mut self, name: Name, probe: &Probe) {
        for disk in (0..self.config.disks).filter(|disk| probe.is_called(*disk, name)) {
            self.ops.is_of_the_lease(disk);
        }
        self.other_name = Some(name);
    }

    /// That the lease has another name than it should.
    pub(super) fn called(&self, found: Name) -> LeaderError {
        LeaderError::Resource { expected: self.config.resource, found }
    }
}
