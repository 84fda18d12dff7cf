//! What all step machines share: operations, inputs, steps, and what a machine may know of its host.
//!
//! # Rules of driving
//!
//! * `step` is called with a `now` never earlier than in the previous call.
//! * Every operation a step asks for is submitted at once; the operations of one step run side by side.
//! * For each operation exactly one of [`Input::Completed`], [`Input::TimedOut`] or, for a write, [`Input::Doubtful`] follows. After the
//!   last two the operation is *still outstanding*: its write may land at any later time. When its completion is seen, or it has been in
//!   doubt for long enough, [`Input::CompletedLate`] is delivered, even after the machine is done.
//! * [`Step::Wait`] asks for [`Input::Tick`] at that time; an earlier tick is allowed and harmless (it is how a changed
//!   [`Env`] reaches a waiting machine).

use crate::geometry::{HostId, SectorSize};
use crate::hosts::HostSeen;
use crate::limits::{OPS_PER_STEP_MAX, SECTOR_BYTES_MAX};
use crate::record::{Bitmap, HostBlock, RawLeader};
use crate::timing::MonoTime;
use arrayvec::ArrayVec;
use std::sync::Arc;

/// Which area an operation addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The lockspace's area.
    Lockspace,
    /// The resource's area on this disk, 0 to 3.
    Resource(u8),
}

/// Number of an operation, unique within its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// One sector to write; the rest of the sector is zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "kept inline: the renewal path allocates nothing")]
pub enum Content {
    /// A delta lease with its bitmap.
    Delta {
        /// The record.
        leader: RawLeader,
        /// Bytes 256 to 511.
        bitmap: Bitmap,
    },
    /// A resource's leader.
    Leader(RawLeader),
    /// A host's sector of a resource.
    Block(HostBlock),
    /// A resource's value block, exactly one sector long.
    Value(Arc<[u8]>),
}

impl Content {
    /// Fills a whole sector.
    pub fn encode(&self, sector: &mut [u8]) {
        match self {
            Self::Delta { leader, bitmap } => leader.encode(Some(bitmap), sector),
            Self::Leader(leader) => leader.encode(None, sector),
            Self::Block(block) => block.encode(sector),
            Self::Value(bytes) => {
                sector.fill(0);
                for (to, from) in sector.iter_mut().zip(bytes.iter()) {
                    *to = *from;
                }
            }
        }
    }
}

/// What an operation does. Positions are sectors from the start of the area, in the operation's sector size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "kept inline: the renewal path allocates nothing")]
pub enum Action {
    /// Read `count` sectors from `first` on.
    Read {
        /// First sector.
        first: u64,
        /// Number of sectors, at least 1.
        count: u64,
    },
    /// Write one whole sector.
    Write {
        /// The sector.
        sector: u64,
        /// What it holds afterwards.
        content: Content,
    },
}

/// One I/O operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// Its number.
    pub id: OpId,
    /// The area.
    pub place: Place,
    /// The sector size positions count in.
    pub sector_size: SectorSize,
    /// What to do.
    pub action: Action,
    /// When to report [`Input::TimedOut`].
    pub deadline: MonoTime,
    /// For how long, in milliseconds, a write that has ended with an error is still outstanding ([`Input::Doubtful`]). 0, as for every
    /// read: it is not, because nobody relies on its absence.
    pub doubt_ms: u64,
}

impl Op {
    /// Whether it writes.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self.action, Action::Write { .. })
    }
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IoFailure {
    /// The kernel reported this errno (positive).
    #[error("errno {0}")]
    Os(i32),
    /// Fewer bytes than asked for, e.g. beyond the end of the device.
    #[error("short transfer")]
    Short,
    /// Not complete by its deadline; it may still land.
    #[error("not complete within the io timeout")]
    TimedOut,
    /// The disk of a multi-disk resource could not be opened.
    #[error("disk not open: errno {0}")]
    NotOpen(i32),
}

/// Sectors that were read. Indices count from the start of the *area*.
pub trait Sectors {
    /// The bytes of a sector, `None` outside the range read.
    fn sector(&self, index: u64) -> Option<&[u8]>;
    /// The first sector at or after `from` that may hold something other than zeros, `None` when there is none in the range.
    fn next_in_use(&self, from: u64) -> Option<u64>;
    /// The first sector at or after `from` that may hold something other than zeros and is wanted. Cheaper where `is_wanted` looks at
    /// part of a sector only: a MiB that has just been read is in nobody's cache.
    fn next_wanted(&self, mut from: u64, is_wanted: &dyn Fn(&[u8]) -> bool) -> Option<u64> {
        loop {
            let index = self.next_in_use(from)?;
            if is_wanted(self.sector(index)?) {
                return Some(index);
            }
            from = index + 1;
        }
    }
}

/// A borrowed result of a read; nothing of it survives the step it is given to.
pub type View<'a> = &'a dyn Sectors;

/// No sectors: the result of a write.
#[derive(Clone, Copy, Debug)]
pub struct NoSectors;

impl Sectors for NoSectors {
    fn sector(&self, _: u64) -> Option<&[u8]> {
        None
    }
    fn next_in_use(&self, _: u64) -> Option<u64> {
        None
    }
}

/// A contiguous range of sectors in memory.
#[derive(Clone, Copy, Debug)]
pub struct SliceView<'a> {
    /// Index of the first sector.
    pub first: u64,
    /// The sector size.
    pub size: SectorSize,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Sectors for SliceView<'_> {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?.checked_mul(self.size.slice_len())?;
        self.bytes.get(at..at.checked_add(self.size.slice_len())?)
    }

    fn next_in_use(&self, from: u64) -> Option<u64> {
        const ZEROS: [u8; SECTOR_BYTES_MAX] = [0; SECTOR_BYTES_MAX];
        let mut index = from.max(self.first);
        while let Some(sector) = self.sector(index) {
            if sector != &ZEROS[..self.size.slice_len()] {
                return Some(index);
            }
            index += 1;
        }
        None
    }

    fn next_wanted(&self, from: u64, is_wanted: &dyn Fn(&[u8]) -> bool) -> Option<u64> {
        let from = from.max(self.first);
        let skipped = usize::try_from(from - self.first).ok()?.checked_mul(self.size.slice_len())?;
        let mut sectors = self.bytes.get(skipped..)?.chunks_exact(self.size.slice_len());
        sectors.position(is_wanted).map(|at| from + at as u64)
    }
}

/// What a machine is told.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// Begin.
    Start,
    /// An operation ended before its deadline. A write's view is empty.
    Completed {
        /// Which.
        op: OpId,
        /// How.
        result: Result<View<'a>, IoFailure>,
    },
    /// An operation's deadline passed. It is still outstanding.
    TimedOut {
        /// Which.
        op: OpId,
    },
    /// A write ended before its deadline with an error that [`IoFailure::leaves_doubt`] whether it takes effect. It is outstanding as if
    /// it had timed out, for [`Op::doubt_ms`].
    Doubtful {
        /// Which.
        op: OpId,
        /// How.
        failure: IoFailure,
    },
    /// An operation that had timed out has ended after all, or a doubtful one has been outstanding for long enough.
    CompletedLate {
        /// Which.
        op: OpId,
        /// How.
        result: Result<View<'a>, IoFailure>,
    },
    /// A requested time has come, or something in [`Env`] changed.
    Tick,
}

/// What a machine wants next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "kept inline: the renewal path allocates nothing")]
pub enum Step<O> {
    /// Start these operations.
    Io(ArrayVec<Op, OPS_PER_STEP_MAX>),
    /// Nothing until this time.
    Wait(MonoTime),
    /// Nothing new: operations are still running.
    Pending,
    /// Finished. `outstanding` says how many *writes* of it may still land.
    Done {
        /// The result.
        outcome: O,
        /// Writes that timed out, or ended in doubt, and were not seen to settle.
        outstanding: u32,
    },
}

impl<O> Step<O> {
    /// The same step of a machine with another kind of outcome.
    pub fn map<P>(self, wrap: impl FnOnce(O) -> P) -> Step<P> {
        self.and_then(|outcome, outstanding| Step::Done { outcome: wrap(outcome), outstanding })
    }

    /// For a machine that runs another one: what that one wants, or, once it has finished, what follows on its outcome and its
    /// outstanding writes.
    pub fn and_then<P>(self, next: impl FnOnce(O, u32) -> Step<P>) -> Step<P> {
        match self {
            Self::Io(ops) => Step::Io(ops),
            Self::Wait(until) => Step::Wait(until),
            Self::Pending => Step::Pending,
            Self::Done { outcome, outstanding } => next(outcome, outstanding),
        }
    }
}

/// The lockspace a machine works in, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockspaceNow {
    /// Joined, renewing, not being removed.
    Alive {
        /// The generation we hold it with.
        generation: u64,
    },
    /// Failed, being removed, or gone: nothing may be written in its name any more (rule R10).
    Gone,
}

/// What a machine may know of its host. Looked at before every write.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Whether writing with our host id is still allowed.
    pub lockspace: LockspaceNow,
    /// Whether the process that wants the lease still lives.
    pub client_alive: bool,
    /// Whether the daemon is shutting down.
    pub shutting_down: bool,
    /// What renewals have seen of the other hosts.
    pub hosts: &'a dyn HostView,
}

/// What renewals have seen of other hosts.
pub trait HostView {
    /// The entry of a host, `None` if it was never checked.
    fn seen(&self, host: HostId) -> Option<HostSeen>;
}

/// A host table that has seen nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoHosts;

impl HostView for NoHosts {
    fn seen(&self, _: HostId) -> Option<HostSeen> {
        None
    }
}

/// A step machine: one attempt of one lease operation.
pub trait Machine {
    /// What it comes to.
    type Outcome;

    /// The only way forward; see the module's rules of driving.
    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<Self::Outcome>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to look for a sector find the same.
    #[test]
    fn a_wanted_sector_is_found_in_its_range_only() {
        struct Plain<'a>(SliceView<'a>);
        impl Sectors for Plain<'_> {
            fn sector(&self, index: u64) -> Option<&[u8]> {
                self.0.sector(index)
            }
            fn next_in_use(&self, from: u64) -> Option<u64> {
                self.0.next_in_use(from)
            }
        }
        let mut bytes = vec![0; 4 * 512 + 100];
        for (at, byte) in [(512, 7), (2 * 512, 1), (2 * 512 + 300, 7), (3 * 512 + 300, 7), (4 * 512, 7)] {
            bytes[at] = byte;
        }
        let view = SliceView { first: 10, size: SectorSize::B512, bytes: &bytes };
        for (byte, expected) in
            [(0, [Some(11), Some(11), None, None]), (300, [Some(12), Some(12), Some(12), Some(13)])]
        {
            let wanted = |sector: &[u8]| sector[byte] == 7;
            let starts = [0, 10, 12, 13];
            assert_eq!(starts.map(|from| view.next_wanted(from, &wanted)), expected, "byte {byte}");
            assert_eq!(starts.map(|from| Plain(view).next_wanted(from, &wanted)), expected, "byte {byte}");
        }
        assert_eq!([14, u64::MAX].map(|from| view.next_wanted(from, &|_| true)), [None; 2]);
    }

    #[test]
    fn a_view_of_bytes_knows_its_range_and_what_is_in_use() {
        let mut bytes = vec![0; 4 * 512];
        bytes[2 * 512 + 511] = 1;
        let view = SliceView { first: 10, size: SectorSize::B512, bytes: &bytes };
        assert_eq!(view.sector(9), None);
        assert_eq!(view.sector(10), Some(&bytes[..512]));
        assert_eq!(view.sector(13), Some(&bytes[3 * 512..]));
        assert_eq!([14, u64::MAX].map(|index| view.sector(index)), [None, None]);
        assert_eq!([0, 10, 12].map(|from| view.next_in_use(from)), [Some(12); 3]);
        assert_eq!([13, 14].map(|from| view.next_in_use(from)), [None; 2]);
        let cut = SliceView { bytes: &bytes[..3 * 512 - 1], ..view };
        assert_eq!((cut.sector(12), cut.next_in_use(10)), (None, None));
    }

    #[test]
    fn a_write_brings_no_sectors() {
        assert_eq!((NoSectors.sector(0), NoSectors.next_in_use(0)), (None, None));
    }

    #[test]
    fn a_value_fills_its_sector_with_zeros() {
        let mut sector = [9; 512];
        Content::Value(Arc::from([1_u8, 2].as_slice())).encode(&mut sector);
        assert_eq!((&sector[..3], sector[511]), ([1, 2, 0].as_slice(), 0));
    }
}
