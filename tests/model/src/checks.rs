//! What must hold in every state and on every step (lease-algorithms.md 13.6).

use crate::disk::{ContentId, Contents, Resource, block_owner};
use crate::host::Holding;
use crate::turn;
use sanlock_lease::machine::Content;
use sanlock_lease::record::{Dblock, RawLeader};
use std::collections::BTreeMap;

/// Something that must never be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// S1: at most one process holds the lease exclusively, and then nobody shares it. A process counts until it lets go, or until its host is dead for everybody.
    OneOwner,
    /// Every lease granted has a larger version than all granted before.
    VersionsRise,
    /// S5: what is granted is what a leader that landed says, with the host's own id and present generation.
    LeaderNamesOwner,
    /// S2: two leaders ever written with the same version agree on the owner.
    OneOwnerPerVersion,
    /// S3: while a lease is held, the blocks on the disk can bring forth no other owner of its version.
    BlocksKeepOwner,
    /// S14: nobody writes without the host id, or with another generation of it, than the operation began with.
    HostIdBeforeWrite,
    /// S13: RELEASED is written only after the process let go.
    FlagAfterLettingGo,
    /// S10, R1, R2: a host's block forgets neither ballot nor value nor flag of its version, and goes back to none.
    BlockRemembers,
    /// S4: while a process of a host shares the lease, that host's mode block says so, with its generation.
    ModeBlockStays,
    /// S12: nobody else writes the block of a host one of whose processes shares the lease.
    SharersStay,
    /// S15, and a release of one's own lease is never refused.
    NothingForeign,
    /// L2: without faults every acquire and release ends in a bounded number of steps of its own.
    EverythingEnds,
    /// L1, L3, L4: once faults end and everybody comes to an end, every host can acquire the lease. A host that is refused because of
    /// what a living host may own (R9) can when that host has had its turn.
    Progress,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::OneOwner,
        Self::VersionsRise,
        Self::LeaderNamesOwner,
        Self::OneOwnerPerVersion,
        Self::BlocksKeepOwner,
        Self::HostIdBeforeWrite,
        Self::FlagAfterLettingGo,
        Self::BlockRemembers,
        Self::ModeBlockStays,
        Self::SharersStay,
        Self::NothingForeign,
        Self::EverythingEnds,
        Self::Progress,
    ];
}

type Value = (u64, u64, u64);

fn value_of(block: &Dblock) -> Option<Value> {
    let value = (block.inp.get(), block.inp2.get(), block.inp3.get());
    (block.bal.get() > 0 && value.0 > 0).then_some(value)
}

/// The owner a leader names.
#[must_use]
pub fn owner_of(leader: &RawLeader) -> Value {
    (leader.owner_id.get(), leader.owner_generation.get(), leader.timestamp.get())
}

/// The owners of all leaders that ever landed, by version.
pub type Chosen = BTreeMap<u64, Value>;

/// A landing leader joins the history.
///
/// # Errors
/// Its version has another owner already.
pub fn leader_lands(chosen: &Chosen, leader: &RawLeader) -> Result<Chosen, Property> {
    let (lver, value) = (leader.lver.get(), owner_of(leader));
    let mut chosen = chosen.clone();
    if value.2 != 0 && *chosen.entry(lver).or_insert(value) != value {
        return Err(Property::OneOwnerPerVersion);
    }
    Ok(chosen)
}

/// A host's block lands. `holding`: what its process holds at that moment.
#[must_use]
pub fn block_lands(before: &Dblock, after: &Dblock, host: usize, holding: Option<Holding>) -> Vec<Property> {
    let max_hosts = u64::from(sanlock_sim::layout::GEOMETRY.max_hosts());
    let mut broken = Vec::new();
    if after.is_released() && holding.is_some_and(|h| h.lver == after.lver.get()) {
        broken.push(Property::FlagAfterLettingGo);
    }
    let foreign = after.mbal.get() != 0 && after.mbal.get() % max_hosts != host as u64 + 1;
    let forgets = before.lver == after.lver
        && (after.mbal.get() < before.mbal.get()
            || after.bal.get() < before.bal.get()
            || (after.bal == before.bal && value_of(after) != value_of(before))
            || (before.is_released()
                && !after.is_released()
                && value_of(after) == value_of(before)
                && value_of(before).is_some()));
    if foreign || forgets || after.lver.get() < before.lver.get() {
        broken.push(Property::BlockRemembers);
    }
    broken
}

/// Whether no ballot for the held version can choose anybody else, whichever majority of the disks it reads; and, with hosts of ours
/// `alone`, nobody has begun a later version: a block is the proof that the owner before it is gone (R9).
#[must_use]
pub fn blocks_keep_owner(contents: &Contents, disks: &[Resource], holding: Holding, alone: bool) -> bool {
    let majority = disks.len() / 2 + 1;
    let all = 1_usize << disks.len();
    let mut readable = (0..all).filter(|set| set.count_ones() as usize == majority);
    readable.all(|set| {
        let read = disks.iter().enumerate().filter(|(number, _)| set & (1 << number) != 0);
        let blocks = read.flat_map(|(_, disk)| disk.blocks);
        let mut best: Option<(u64, Value)> = None;
        let mut disagree = false;
        for block in blocks {
            let Content::Block(block) = contents.content(block) else { continue };
            let d = &block.dblock;
            if d.lver.get() > holding.lver {
                return !alone; // no ballot for the held version can complete
            }
            if let Some(value) = value_of(d).filter(|_| d.lver.get() == holding.lver) {
                let bal = d.bal.get();
                match best {
                    Some((b, v)) if b == bal => disagree |= v != value,
                    Some((b, _)) if b > bal => {}
                    _ => (best, disagree) = (Some((bal, value)), false),
                }
            }
        }
        !disagree && best.map(|(_, value)| value) == Some(holding.value)
    })
}

/// What a host's own step broke.
#[must_use]
pub fn of_flags(flags: u16) -> Vec<Property> {
    let mut broken = Vec::new();
    if flags & turn::BROKE_HOST_ID != 0 {
        broken.push(Property::HostIdBeforeWrite);
    }
    if flags & (turn::BROKE_PLACE | turn::BROKE_REFUSED) != 0 {
        broken.push(Property::NothingForeign);
    }
    broken
}

/// Counters with names, so that a run can say which of them must not stay 0.
macro_rules! counters {
    ($(#[$doc:meta])* pub struct $name:ident { $($field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names say it")]
        pub struct $name {
            $(pub $field: u64,)*
        }

        impl $name {
            /// The counter of this name.
            ///
            /// # Panics
            /// There is none.
            #[must_use]
            pub fn get(&self, name: &str) -> u64 {
                match name {
                    $(stringify!($field) => self.$field,)*
                    _ => panic!("no counter {name:?}"),
                }
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// How often something interesting happened: a run that reaches none of it proves nothing.
    pub struct Marks {
        granted, refused_live, adopted, lost, newer, released_by_flag, retracted, gone, backed_off, late_leaders, rolled_back,
        repaired, taken_from_dead, shared, shared_by_two, refused_shared, modes_cleared, converted_up, converted_down, converts_failed, calms,
        calms_told_newer, committed_by_another, adopted_while_releasing, late_leader_after_release, granted_without_a_disk,
    }
}

impl Marks {
    /// Counts one step.
    pub fn count(&mut self, flags: u16) {
        for (bit, mark) in [
            (turn::SEEN_LIVE, &mut self.refused_live),
            (turn::SEEN_ADOPTED, &mut self.adopted),
            (turn::SEEN_LOST, &mut self.lost),
            (turn::SEEN_NEWER, &mut self.newer),
            (turn::SEEN_BY_FLAG, &mut self.released_by_flag),
            (turn::SEEN_RETRACT, &mut self.retracted),
            (turn::SEEN_GONE, &mut self.gone),
            (turn::SEEN_BACKOFF, &mut self.backed_off),
            (turn::SEEN_SHARED, &mut self.shared),
            (turn::SEEN_UP, &mut self.converted_up),
            (turn::SEEN_DOWN, &mut self.converted_down),
            (turn::SEEN_REFUSED_SHARED, &mut self.refused_shared),
            (turn::SEEN_CONVERT_FAILED, &mut self.converts_failed),
        ] {
            *mark += u64::from(flags & bit != 0);
        }
    }
}

/// Which host's block a write is for, if it is one.
#[must_use]
pub fn block_written(contents: &Contents, sector: u64, content: ContentId) -> Option<(usize, Dblock)> {
    let host = block_owner(sector)?;
    match contents.content(content) {
        Content::Block(block) => Some((host, block.dblock)),
        Content::Leader(_) | Content::Value(_) | Content::Delta { .. } => None,
    }
}
