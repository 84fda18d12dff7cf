//! What the blocks of all hosts say to a ballot: a digest, taken while the read is at hand.

use super::Value;
use crate::geometry::HostId;
use crate::machine::View;
use crate::record::HostBlock;
use crate::verify::{self, DblockError};

/// First block sector of an area: host id 1.
pub(super) const FIRST_BLOCK: u64 = 2;

/// The digest of one read of all blocks, over all disks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Blocks {
    /// Disks read.
    pub(super) readable: u32,
    /// The first damaged block.
    pub(super) bad: Option<DblockError>,
    /// The block furthest ahead of our version.
    pub(super) newer: Option<(HostId, u64)>,
    /// The largest ballot number of that version.
    pub(super) newer_mbal: u64,
    /// The largest ballot number of our version.
    pub(super) mbal: u64,
    /// The value accepted in the highest ballot of our version, with that ballot.
    pub(super) accepted: Option<(u64, Value)>,
    /// The largest host id whose block is of our version or a later one, or says that it holds the lease shared; 0 if there is none.
    pub(super) in_use: u64,
    /// The other hosts whose mode block says that they hold the lease shared, ascending. At most as many as there are hosts.
    pub(super) shared: Vec<HostId>,
}

impl Blocks {
    /// Takes in the blocks of host ids 1 to `last` of one disk (lease-algorithms.md 4.6).
    pub(super) fn merge(&mut self, view: View<'_>, last: u64, lver: u64, own: HostId) {
        self.readable += 1;
        each(view, last, |host, block| self.merge_one(block, host, lver, own));
    }

    fn merge_one(&mut self, block: &HostBlock, host: HostId, lver: u64, own: HostId) {
        if block.mode.is_shared() && host != own {
            insert(&mut self.shared, host);
        }
        let dblock = &block.dblock;
        if block.mode.is_shared() || dblock.lver.get() >= lver {
            self.in_use = self.in_use.max(host.get());
        }
        if let Err(e) = verify::dblock(dblock, host) {
            // The value in it may be the chosen one: no ballot may go on without it (weakness W18).
            self.bad = self.bad.or(Some(e));
            return;
        }
        let theirs = dblock.lver.get();
        if theirs > lver {
            if self.newer.is_none_or(|(_, l)| theirs > l) {
                self.newer = Some((host, theirs));
                self.newer_mbal = 0;
            }
            if self.newer.is_some_and(|(_, l)| theirs == l) {
                self.newer_mbal = self.newer_mbal.max(dblock.mbal.get());
            }
            return;
        }
        if theirs < lver {
            return;
        }
        self.mbal = self.mbal.max(dblock.mbal.get());
        let (bal, inp) = (dblock.bal.get(), dblock.inp.get());
        if bal > 0 && inp > 0 && self.accepted.is_none_or(|(b, _)| bal > b) {
            let value = Value { host: inp, generation: dblock.inp2.get(), timestamp: dblock.inp3.get() };
            self.accepted = Some((bal, value));
        }
    }
}

/// Goes through the blocks of host ids 1 to `last` that are not blank.
pub(super) fn each(view: View<'_>, last: u64, mut take: impl FnMut(HostId, &HostBlock)) {
    let mut from = FIRST_BLOCK;
    let is_wanted = |sector: &[u8]| !HostBlock::is_blank(sector);
    while let Some(index) = view.next_wanted(from, &is_wanted).filter(|i| *i < FIRST_BLOCK + last) {
        from = index + 1;
        if let (Some(sector), Some(host)) = (view.sector(index), HostId::new(index - FIRST_BLOCK + 1)) {
            take(host, &HostBlock::from_sector(sector));
        }
    }
}

/// Adds to an ascending list without duplicates.
pub(super) fn insert(hosts: &mut Vec<HostId>, host: HostId) {
    if let Err(at) = hosts.binary_search(&host) {
        hosts.insert(at, host);
    }
}
