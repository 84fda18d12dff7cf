//! Our own block of a resource: what it says on disk, and what it says next.

use super::Value;
use crate::geometry::HostId;
use crate::record::{DBLOCK_RELEASED, Dblock, HostBlock, ModeBlock};

/// What our block carries, read back from disk or known from our last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct OwnBlock {
    /// Disks it was read from.
    pub(super) readable: u32,
    /// Largest ballot number we ever started.
    pub(super) mbal: u64,
    /// The version the block is for.
    pub(super) lver: u64,
    /// Ballot in which `value` was accepted, 0 if none.
    pub(super) bal: u64,
    /// The value, if there is one.
    pub(super) value: Option<Value>,
    /// Whether that version was given up by flag.
    pub(super) released: bool,
    /// The generation we hold the lease shared with, if we do: every write carries it.
    pub(super) shared: Option<u64>,
}

impl OwnBlock {
    /// Takes in the block of one disk. Of several disks the one furthest on counts: highest version, then highest ballot. A RELEASED
    /// flag on any of them stays with its value: it was written after the process had let go, and may have reached that disk alone.
    pub(super) fn merge(&mut self, block: &Dblock) {
        self.readable += 1;
        self.mbal = self.mbal.max(block.mbal.get());
        let (lver, bal) = (block.lver.get(), block.bal.get());
        let value = (bal > 0 && block.inp.get() > 0).then(|| Value {
            host: block.inp.get(),
            generation: block.inp2.get(),
            timestamp: block.inp3.get(),
        });
        let same = self.readable > 1 && lver == self.lver && value == self.value;
        let released = block.is_released() || (same && self.released);
        if (lver, bal) > (self.lver, self.bal) || self.readable == 1 {
            self.lver = lver;
            self.bal = bal;
            self.value = value;
            self.released = released;
        } else if same {
            self.released = released;
        }
    }

    /// The next ballot number of ours above `seen` (lease-algorithms.md 4.5): congruent to our host id modulo `max_hosts`.
    /// The first one on a lease is our host id. `None` if the numbers are exhausted, which only a damaged or hostile block
    /// can bring about.
    pub(super) fn next_mbal(&self, seen: u64, host: HostId, max_hosts: u16) -> Option<u64> {
        let top = self.mbal.max(seen);
        if top == 0 {
            return Some(host.get());
        }
        let stride = u64::from(max_hosts);
        (top - top % stride).checked_add(stride)?.checked_add(host.get())
    }

    /// Phase 1 of a ballot for `lver`. A value we accepted earlier for the same version is kept with its ballot and its
    /// RELEASED flag (rule R1); of an older version nothing but the flag needs to be remembered.
    ///
    /// The flag still says that we gave the older version up: where another host writes a leader of that version in our name only now, hosts
    /// that look at nothing else (the original) would be refused until we come again. With several disks (not `single`) it goes: on one that
    /// phase 2 does not reach it would speak, to who reads that one alone, for a value that we hold.
    pub(super) fn phase1(&mut self, lver: u64, mbal: u64, single: bool) -> HostBlock {
        if self.lver != lver {
            self.lver = lver;
            self.bal = 0;
            self.value = None;
        }
        if self.value.is_none() {
            self.released &= single;
        }
        self.mbal = mbal;
        self.encode()
    }

    /// Phase 2: accepts `value` in the ballot of the last phase 1. A RELEASED flag stays only with the very value it was
    /// set for.
    pub(super) fn phase2(&mut self, value: Value) -> HostBlock {
        self.released = self.released && self.value == Some(value);
        self.bal = self.mbal;
        self.value = Some(value);
        self.encode()
    }

    /// The block as we last wrote it.
    pub(super) fn current(&self) -> HostBlock {
        self.encode()
    }

    fn encode(&self) -> HostBlock {
        let mut dblock = Dblock::zeroed();
        dblock.mbal = self.mbal.into();
        dblock.lver = self.lver.into();
        if let Some(value) = self.value {
            dblock.bal = self.bal.into();
            dblock.inp = value.host.into();
            dblock.inp2 = value.generation.into();
            dblock.inp3 = value.timestamp.into();
        }
        dblock.seal();
        dblock.flags = if self.released { DBLOCK_RELEASED } else { 0 }.into();
        let mode = self.shared.map_or_else(ModeBlock::zeroed, ModeBlock::shared);
        HostBlock { dblock, mode }
    }
}
