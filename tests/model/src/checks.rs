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
    /// L1, L3, L4: once faults end and everybody comes to an end, every host can acquire the lease. Or it is told by name that the
    /// leader was rolled back (R9).
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

/// Whether a ballot for the held version could still choose somebody else.
#[must_use]
pub fn blocks_keep_owner(contents: &Contents, disk: &Resource, holding: Holding) -> bool {
    let mut best: Option<(u64, Value)> = None;
    for block in disk.blocks {
        let Content::Block(block) = contents.content(block) else { continue };
        let d = &block.dblock;
        if d.lver.get() > holding.lver {
            return true; // no ballot for the held version can complete
        }
        if let Some(value) = value_of(d).filter(|_| d.lver.get() == holding.lver) {
            if best.is_none_or(|(bal, _)| d.bal.get() > bal) {
                best = Some((d.bal.get(), value));
            }
        }
    }
    best.map(|(_, value)| value) == Some(holding.value)
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

/// How often something interesting happened: a run that reaches none of it proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Marks {
    pub granted: u64,
    pub refused_live: u64,
    pub adopted: u64,
    pub lost: u64,
    pub newer: u64,
    pub released_by_flag: u64,
    pub retracted: u64,
    pub gone: u64,
    pub backed_off: u64,
    pub late_leaders: u64,
    pub rolled_back: u64,
    pub taken_from_dead: u64,
    pub shared: u64,
    pub shared_by_two: u64,
    pub refused_shared: u64,
    pub modes_cleared: u64,
    pub converted_up: u64,
    pub converted_down: u64,
    pub converts_failed: u64,
    pub calms: u64,
    pub calms_told_newer: u64,
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
