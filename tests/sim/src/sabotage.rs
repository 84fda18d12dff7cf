//! Deliberately broken variants of the simulated hosts: each must make a check fail, or that check proves nothing.
//!
//! Production code has no switches for this. What is broken is what the simulator does around it: what the manager is told, what
//! becomes of its actions, what a machine asks the disk for.

use crate::world::World;
use sanlock_lease::machine::{Action, Content, Op};

/// What is broken, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Every acquire is said to have succeeded.
    FalseSuccess,
    /// A process goes on using what it has released.
    KeepsUsing,
    /// The manager is not told that time passes.
    AgesUnseen,
    /// The manager is not told that its lease is not its own any more, and somebody else takes it.
    CorruptUnseen,
    /// Machines are told that their lockspace is well whatever happened to it.
    WritesWhenGone,
    /// Owners are taken for dead too early.
    OwnersDieYoung,
    /// Signals reach another process than the one meant.
    KillsBystanders,
    /// The watchdog is told a later expiry than it should.
    ExpiryTooLate,
    /// The watchdog goes on waiting for lockspaces that are gone.
    NeverDisarms,
    /// The watchdog fires while all is well.
    FiresAtWill,
    /// The watchdog never fires.
    NeverFires,
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
}

impl Sabotage {
    /// Changes what a machine asks the disk for.
    pub(crate) fn spoil(self, op: &mut Op) {
        let Action::Write { sector, content } = &mut op.action else { return };
        match (self, content) {
            (Self::WrongSector, Content::Block(_)) => *sector += 1,
            (Self::LeaderOfNobody, Content::Leader(leader)) if leader.timestamp.get() != 0 => {
                leader.timestamp = (leader.timestamp.get() + 1).into();
                leader.seal();
            }
            (Self::ReleasesErase, Content::Block(block)) if block.dblock.is_released() => {
                block.dblock.bal = 0.into();
                block.dblock.inp = 0.into();
            }
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
        self.checks.only(wanted);
        self
    }

    /// Whether this is what is broken.
    pub(crate) fn sabotaged(&self, what: Sabotage) -> bool {
        self.sabotage == Some(what)
    }
}
