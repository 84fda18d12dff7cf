//! Deliberately broken variants of the simulated hosts: each must make a check fail, or that check proves nothing.
//!
//! Production code has no switches for this. What is broken is what the simulator does around it: what the manager is told, what
//! becomes of its actions, what a machine asks the disk for.

use crate::clock::{Clock, SECOND};
use crate::disk::{Area, SimView};
use crate::layout;
use crate::tasks::{Kind, Task};
use crate::vm::Standing;
use crate::world::World;
use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostTable;
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_lease::machine::{Action, Content, HostView, Op};
use sanlock_lease::record::{DBLOCK_RELEASED, Dblock, HostBlock, ModeBlock};
use sanlock_lease::timing::WatchdogFire;
use std::str::FromStr;

macro_rules! sabotages {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What is broken, and how.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Sabotage {
            $($(#[doc = $doc])* $name,)*
        }

        impl Sabotage {
            /// Its name on command lines.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }

        impl FromStr for Sabotage {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                match name {
                    $(stringify!($name) => Ok(Self::$name),)*
                    _ => Err(format!("nothing of this name is ever broken: {name:?}")),
                }
            }
        }
    };
}

sabotages! {
    /// Host ids that were never used are looked at with every third renewal, and at no other time.
    LooksSeldom,
    /// Nobody notices the bits that others set for it.
    NoticesUnseen,
    /// Host events are shown with other data than was set.
    EventsMixed,
    /// Requests that were found are said to be for a later version.
    RequestsMisread,
    /// Every acquire is said to have succeeded.
    FalseSuccess,
    /// A process goes on using what it has released.
    KeepsUsing,
    /// The manager is not told that time passes.
    AgesUnseen,
    /// The manager is not told that its lease is not its own any more, and somebody else takes it.
    CorruptUnseen,
    /// Renewals find what they wrote themselves, whatever is on the disk.
    RenewsBlindly,
    /// Host ids are claimed with generations that are not recorded before.
    ClaimsUnrecorded,
    /// The daemon goes by the generation before the one that its host joined with.
    GenerationMisheard,
    /// Leaders are written with the version before the one that was chosen.
    VersionsRepeated,
    /// The same, once a reference peer has forgotten versions of that lease.
    VersionsRepeatedThen,
    /// Machines are told that their lockspace is well whatever happened to it.
    WritesWhenGone,
    /// Owners are taken for dead too early.
    OwnersDieYoung,
    /// What a daemon that stood still finds done is taken in with the time at which it began to stand still.
    ClockBeforeReads,
    /// Signals reach another process than the one meant.
    KillsBystanders,
    /// A lockspace whose renewal fails takes the others with it.
    FailsTogether,
    /// The watchdog is told a later expiry than it should.
    ExpiryTooLate,
    /// The watchdog goes on waiting for lockspaces that are gone.
    NeverDisarms,
    /// The watchdog fires while all is well.
    FiresAtWill,
    /// The watchdog never fires.
    NeverFires,
    /// The watchdog fires two seconds late.
    FiresLate,
    /// Writes that may still land are not mentioned.
    WritesForgotten,
    /// What is held is said to be another version than was chosen.
    OldGeneration,
    /// No release ever ends.
    ReleasesNeverEnd,
    /// Leaders name another owner than the ballot chose.
    LeaderOfNobody,
    /// Blocks forget the value they accepted.
    BlocksForget,
    /// A release erases the value of its block.
    ReleasesErase,
    /// A release does not mark its block.
    MarksForgotten,
    /// Renewals that are close to each other have one timestamp.
    RenewalsRepeated,
    /// Blocks go back to an older version.
    BlocksGoBack,
    /// wdmd is asked to arm the device, but given no expiry.
    ArmsNothing,
    /// wdmd's expiry is taken back while the lockspace is in use.
    DisarmsEarly,
    /// Ballot numbers are another host's.
    ForeignBallots,
    /// Writes go to the next sector.
    WrongSector,
    /// A host_id lease goes back to an earlier generation.
    GenerationFalls,
    /// Nobody asks for a shared hold in the calm.
    NobodyShares,
    /// Shared holds of other hosts are not seen.
    SharersUnseen,
    /// Whether a sharer lives is judged from the host table alone, as the original does (W3, CE4).
    TableAlone,
    /// All sharers are taken for dead.
    SharersDieYoung,
    /// The manager does not learn of a second process that shares a lease, so that a conversion is allowed beside it, as the
    /// original does (W4, CE5).
    NeighboursUnseen,
    /// A refused shared acquire erases its block, as the original does (W43).
    RefusalsErase,
    /// Blocks are written without their mode block.
    ModesForgotten,
    /// A conversion to shared that succeeded is said to have failed.
    DowngradesDenied,
    /// Value blocks that were set are not written.
    ValuesForgotten,
    /// Value blocks are read as they were in the beginning.
    ValuesUnseen,
    /// Something else is written as the value.
    ValuesElsewhere,
    /// Leases keep their name.
    RenamesForgotten,
    /// Leaders are given another lease's name.
    NamesMixed,
    /// Any version will do.
    DemandsIgnored,
    /// Machines are suspended with their clocks and watchdogs, for longer than others wait (A3, A4).
    MachinesSuspended,
    /// Machines stand still with their watchdogs, which fire when they go on (A4).
    WatchdogsSuspended,
    /// Clocks are further apart than the margin pays for (A3).
    ClocksBeyondBounds,
    /// Every host has a fire timeout of its own (A4).
    FireTimeoutsDiffer,
    /// Whoever joins finds its own record whatever is on the disk: nobody notices that somebody else claims the same host id.
    ClaimsUnchecked,
    /// Orphans are released of which everybody believes that they are there.
    OrphansGivenUp,
    /// The manager is not told that orphans count.
    OrphansUncounted,
    /// The first sector of a lease that is formatted is written before the rest.
    FormatsHeadsFirst,
    /// A lease is formatted disk by disk.
    FormatsByDisk,
    /// Two of three disks come back with old content.
    OldDisks,
    /// One of them does, though another one has missed a write.
    OldBesideStale,
}

impl Sabotage {
    /// Changes what a machine asks the disk for.
    pub(crate) fn spoil(self, op: &mut Op) {
        let Action::Write { sector, content } = &mut op.action else { return };
        match (self, content) {
            (Self::WrongSector, Content::Block(_)) => *sector += 1,
            (Self::VersionsRepeated | Self::VersionsRepeatedThen, Content::Leader(leader))
                if leader.lver.get() > 1 =>
            {
                leader.lver = (leader.lver.get() - 1).into();
                leader.seal();
            }
            (Self::LeaderOfNobody, Content::Leader(leader)) if leader.timestamp.get() != 0 => {
                leader.timestamp = (leader.timestamp.get() + 1).into();
                leader.seal();
            }
            (Self::ReleasesErase, Content::Block(block)) if block.dblock.is_released() => {
                block.dblock.bal = 0.into();
                block.dblock.inp = 0.into();
            }
            (Self::MarksForgotten, Content::Block(block)) if block.dblock.is_released() => {
                block.dblock.flags = (block.dblock.flags.get() & !DBLOCK_RELEASED).into();
                block.dblock.seal();
            }
            (Self::RenewalsRepeated, Content::Delta { leader, .. }) if leader.timestamp.get() > 0 => {
                leader.timestamp = (leader.timestamp.get() / 128 * 128).max(1).into();
                leader.seal();
            }
            (Self::ValuesElsewhere, Content::Value(value)) if *sector == LVB_SECTOR => {
                *value = value.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>().into();
            }
            (Self::NamesMixed, Content::Leader(leader)) => {
                leader.resource_name = layout::other_name(200).to_field();
                leader.seal();
            }
            (Self::ModesForgotten, Content::Block(block)) => block.mode = ModeBlock::zeroed(),
            (Self::BlocksForget, Content::Block(block)) => {
                block.dblock.bal = 0.into();
                block.dblock.inp = 0.into();
                block.dblock.seal();
            }
            (Self::BlocksGoBack, Content::Block(block)) if block.dblock.lver.get() > 2 => {
                block.dblock.lver = (block.dblock.lver.get() - 2).into();
                block.dblock.seal();
            }
            (Self::ForeignBallots, Content::Block(block)) if block.dblock.mbal.get() > 0 => {
                block.dblock.mbal = (block.dblock.mbal.get() + 1).into();
                block.dblock.seal();
            }
            (Self::GenerationFalls, Content::Delta { leader, .. }) if leader.owner_generation.get() > 2 => {
                leader.owner_generation = (leader.owner_generation.get() - 2).into();
                leader.seal();
            }
            _ => {}
        }
    }
}

impl World {
    /// The same world with something broken. Only violations that contain `wanted` count: what is broken may break more than one
    /// property.
    #[must_use]
    pub fn with(mut self, sabotage: Sabotage, wanted: &'static str) -> Self {
        self.sabotage = Some(sabotage);
        self.beyond_assumptions();
        self.checks.only(wanted);
        self
    }

    /// What is wrong with machines from the beginning.
    fn beyond_assumptions(&mut self) {
        for (n, host) in self.hosts.iter_mut().enumerate() {
            if self.sabotage == Some(Sabotage::ClocksBeyondBounds) {
                host.clock = Clock::new(1_000_000, if n == 0 { -150_000 } else { 150_000 });
                self.checks.has_clock(host.id, host.clock);
            }
            if self.sabotage == Some(Sabotage::FireTimeoutsDiffer) && n == 0 {
                let longer = u32::try_from(host.fire.secs()).unwrap_or(0) * 4;
                host.fire = WatchdogFire::new(longer).unwrap_or(host.fire);
            }
        }
    }

    /// A machine stands still in a way that nothing is safe from.
    pub(crate) fn suspend(&mut self, host: usize) {
        let dead_secs = self.hosts[host].io_timeout.host_dead_secs(self.hosts[host].fire);
        let long = self.dice.between(dead_secs, 3 * dead_secs) * SECOND;
        if self.sabotaged(Sabotage::MachinesSuspended) {
            self.stop_machine(host, long, Standing::Both);
        } else if self.sabotaged(Sabotage::WatchdogsSuspended) {
            self.stop_machine(host, long, Standing::Device);
        }
    }

    /// Whether what is broken is broken there by now.
    pub(crate) fn spoils_now(&self, sabotage: Sabotage, area: Area) -> bool {
        match (sabotage, area) {
            (Sabotage::VersionsRepeatedThen, Area::Resource(resource, _)) => self.checks.is_excused(resource),
            _ => true,
        }
    }

    /// Changes what a machine reads.
    pub(crate) fn misread(&mut self, host: usize, task: u64, area: Area, view: &mut SimView) {
        let id = self.hosts[host].claims;
        match (self.sabotage, area) {
            (Some(Sabotage::SharersUnseen), Area::Resource(..)) => view.without_modes(id),
            (Some(Sabotage::ValuesUnseen), Area::Resource(..)) => {
                let zeros = vec![0; self.disk.sector_size().slice_len()];
                view.replace(LVB_SECTOR, &Content::Value(zeros.into()));
            }
            (Some(Sabotage::TableAlone | Sabotage::SharersDieYoung), Area::Lockspace(disk)) => {
                let own = self.hosts[host].daemon.as_ref().and_then(|d| d.tasks.get(&task));
                let Some((table, resource)) = own.and_then(|t| t.hosts().zip(t.resource())) else { return };
                let all = self.sabotaged(Sabotage::SharersDieYoung);
                for other in (1..=self.settings.host_ids()).map(layout::host_id) {
                    if all || self.dead_by_table(host, &table, resource, other) {
                        let mut delta = layout::delta_on(&self.disk, disk, other);
                        delta.owner_generation = u64::MAX.into();
                        delta.seal();
                        view.replace(other.delta_sector(), &Content::Leader(delta));
                    }
                }
            }
            _ => {}
        }
    }

    /// Shows a join what it wrote itself.
    pub(crate) fn claim_unchecked(&self, host: usize, serial: u32, view: &mut SimView) {
        let h = &self.hosts[host];
        let claimed = h.claimed.filter(|(by, _)| *by == serial && self.sabotaged(Sabotage::ClaimsUnchecked));
        if let Some((_, leader)) = claimed {
            view.replace(h.claims.delta_sector(), &Content::Leader(leader));
        }
    }

    /// Lease-algorithms.md 3.3, of a host that shares the resource.
    fn dead_by_table(&self, host: usize, table: &HostTable, resource: u8, other: HostId) -> bool {
        let now = self.hosts[host].clock.at(self.now);
        let mode = layout::block_on(&self.disk, resource, 0, other).mode;
        let Some(seen) = table.seen(other).filter(|_| mode.is_shared()) else { return false };
        let silent = now.secs_since(seen.last_live.unwrap_or(seen.first_check));
        seen.timestamp == 0
            || seen.owner_generation > mode.generation.get()
            || silent > seen.io_timeout.host_dead_secs(self.hosts[host].fire)
    }

    /// What the original leaves of a host's block when a shared acquire was refused.
    pub(crate) fn erase_block(&mut self, host: usize, resource: u8) {
        let mut dblock = Dblock::zeroed();
        dblock.seal();
        dblock.flags = DBLOCK_RELEASED.into();
        let content = Content::Block(HostBlock { dblock, mode: ModeBlock::zeroed() });
        let writer = self.writer(host);
        let sector = self.hosts[host].claims.block_sector();
        for area in (0..self.settings.legs).map(|leg| Area::Resource(resource, leg)) {
            self.checks.submitted(writer, area, sector, &content, &self.disk);
            self.disk.land(area, sector, &content);
            self.checks.landed(area, sector, &content, writer, (false, false), &self.disk);
        }
    }

    /// Changes what a task is to do.
    pub(crate) fn spoil_task(&self, task: &mut Task) {
        match (self.sabotage, &mut task.kind) {
            (
                Some(Sabotage::ValuesForgotten),
                Kind::Convert(_, _, value) | Kind::Release(_, value, _) | Kind::Retract(_, _, _, value, _),
            ) => *value = None,
            (
                Some(Sabotage::RenamesForgotten),
                Kind::Release(_, _, name) | Kind::Retract(_, _, _, _, name),
            ) => {
                *name = None;
            }
            (Some(Sabotage::DemandsIgnored), Kind::Acquire(options, _)) => options.lver = None,
            _ => {}
        }
    }

    /// Whether this is what is broken.
    pub(crate) fn sabotaged(&self, what: Sabotage) -> bool {
        self.sabotage == Some(what)
    }
}
