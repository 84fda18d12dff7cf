//! One host: the machine it runs, its writes in flight, and the lease its process holds.

use crate::HOSTS;
use crate::disk::{ContentId, Resource};
use crate::settings::Kind;
use crate::settings::Plan;
use crate::surroundings::Life;
use crate::surroundings::Lives;
use sanlock_lease::machine::OpId;
use sanlock_lease::paxos::{Held, PaxosAcquire, PaxosConvert, PaxosRelease, PaxosShare};
use sanlock_lease::record::HostBlock;
use sanlock_lease::timing::MonoTime;
use sanlock_sim::reference::{ReferenceAcquire, ReferenceRelease, ReferenceShare};

/// A machine of either kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Job {
    Acquire(Box<PaxosAcquire>),
    Share(Box<PaxosShare>),
    /// With what was held before.
    Convert(Box<PaxosConvert>, Box<Held>),
    Release(Box<PaxosRelease>),
    ReferenceShare(Box<ReferenceShare>),
    ReferenceAcquire(Box<ReferenceAcquire>),
    ReferenceRelease(Box<ReferenceRelease>, Option<Box<Held>>),
}

/// When everybody's clock begins.
const BEGIN: MonoTime = MonoTime::from_secs(10_000);

/// Sectors of a read that were looked at before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Peeked {
    /// The leader.
    pub leader: Option<ContentId>,
    /// Each host's block.
    pub blocks: [Option<ContentId>; HOSTS],
}

impl Peeked {
    /// Whether this part was: 0 the leader, from 1 on the hosts' blocks.
    #[must_use]
    pub fn has(&self, part: usize) -> bool {
        match part.checked_sub(1) {
            None => self.leader.is_some(),
            Some(host) => self.blocks[host].is_some(),
        }
    }

    /// How many parts were.
    #[must_use]
    pub fn count(&self) -> usize {
        (0..=HOSTS).filter(|part| self.has(*part)).count()
    }
}

/// What a submitted operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pending {
    /// Reads sectors of the resource.
    Read {
        /// First sector.
        first: u64,
        /// How many.
        count: u64,
        /// Sectors whose moment has passed already, if reads are no snapshots.
        peeked: Peeked,
    },
    /// Reads somebody's host id lease.
    ReadDelta {
        /// Whose.
        host: usize,
    },
    /// Writes a sector of the resource.
    Write {
        /// Which sector.
        sector: u64,
        /// What.
        content: ContentId,
    },
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// A read saw this of its range.
    Saw(Resource),
    /// A read of a host id lease, whose moment is when the machine is told: it runs alone.
    SawDelta,
    /// A write landed.
    Written,
    /// An error.
    Failed,
    /// Its time is over, and nothing else of it is known.
    TimedOut,
    /// Its time was over, and then it landed or failed for good.
    Settled {
        /// Whether it landed.
        landed: bool,
    },
}

/// An operation a host has submitted, until its machine has been told what became of it. A machine acts only when everything that it
/// started side by side has ended, which [`crate::turn`] makes sure of; so it is told of all at once, in a fixed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Running {
    /// Its number.
    pub op: OpId,
    /// On which disk; host id leases lie on none of them.
    pub disk: u8,
    /// Which one of those that were submitted there together.
    pub nth: u8,
    /// What it does.
    pub what: Pending,
    /// What became of it, if anything has.
    pub ended: Option<Ended>,
}

impl Running {
    /// Whether it is this one, and nothing has become of it.
    pub(crate) fn is(&self, disk: u8, nth: u8) -> bool {
        (self.disk, self.nth) == (disk, nth) && self.ended.is_none()
    }
}

/// A write that its host was told has timed out, or whose host crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    /// Its number, while somebody waits for its completion.
    pub(crate) op: Option<OpId>,
    /// On which disk.
    pub disk: u8,
    /// Which sector.
    pub sector: u64,
    /// What.
    pub content: ContentId,
}

/// What follows once every write has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Then {
    Next,
    Retract,
    /// The release of the lease that is held.
    Release,
}

/// A lease that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// Its version.
    pub lver: u64,
    /// The value that was chosen: host id, generation, timestamp.
    pub value: (u64, u64, u64),
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    pub(crate) index: usize,
    pub(crate) kind: Kind,
    pub(crate) job: Option<Job>,
    /// The generation the job works with.
    pub(crate) job_generation: u64,
    /// What the job waits for.
    pub running: Vec<Running>,
    /// The disks that the host cannot reach, a bit each.
    pub(crate) lost: u8,
    /// When the job wants to be woken.
    pub wait: Option<MonoTime>,
    pub(crate) now: MonoTime,
    pub(crate) settling: Option<Then>,
    /// The lease that is held while its acquire settles.
    pub(crate) unsettled: Option<Box<Held>>,
    /// Its block as an acquire left it that is to be taken back.
    pub(crate) unfinished: Option<Box<HostBlock>>,
    /// Writes that may still land.
    pub late: Vec<Late>,
    /// What a process of this host holds, until its release is on its way.
    pub holding: Option<Holding>,
    pub(crate) attempts: u8,
    /// What its acquire is for.
    pub(crate) plan: Plan,
    /// The generation with which a process of this host shares the lease, until its release is on its way.
    pub sharing: Option<u64>,
    /// What was held exclusively before the conversion that runs.
    pub(crate) lowering: Option<Holding>,
    /// A conversion has begun, and its process has not been told how it ended; also if its daemon is gone.
    pub(crate) between: bool,
    /// The running conversion takes back what an earlier one left.
    pub(crate) erasing: bool,
    /// A read of the own block beside the one that is pending.
    pub own_read: Option<OpId>,
    /// The others as this host has last seen them, if tables are stale.
    pub(crate) seen: Option<Lives>,
    /// Nothing has become of its acquire yet.
    pub(crate) fresh: bool,
}

impl Host {
    /// A host that has done nothing yet.
    #[must_use]
    pub fn new(index: usize, kind: Kind, attempts: u8) -> Self {
        Self {
            index,
            kind,
            job: None,
            job_generation: 0,
            running: Vec::new(),
            lost: 0,
            wait: None,
            now: BEGIN,
            settling: None,
            unsettled: None,
            unfinished: None,
            late: Vec::new(),
            holding: None,
            attempts,
            plan: Plan::Exclusive,
            sharing: None,
            lowering: None,
            between: false,
            erasing: false,
            own_read: None,
            seen: None,
            fresh: false,
        }
    }

    /// Whether a machine is at work.
    #[must_use]
    pub fn works(&self) -> bool {
        self.job.is_some()
    }

    /// Whether a write of this host may still land.
    #[must_use]
    pub fn writes_in_flight(&self) -> bool {
        let writes = |r: &Running| r.ended.is_none() && matches!(r.what, Pending::Write { .. });
        !self.late.is_empty() || (self.pending_is_out() && self.running.iter().any(writes))
    }

    /// An operation on a disk that nothing has become of yet.
    #[must_use]
    pub fn pending(&self, disk: u8, nth: u8) -> Option<Pending> {
        self.running.iter().find(|r| r.is(disk, nth)).map(|r| r.what)
    }

    /// Whether the host can't reach a disk.
    #[must_use]
    pub fn is_cut_off(&self, disk: u8) -> bool {
        self.lost & (1 << disk) != 0
    }

    /// Whether a process of this host has the lease, in any mode.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.holding.is_some() || self.sharing.is_some()
    }

    /// Whether a lease is being given up.
    #[must_use]
    pub fn releases(&self) -> bool {
        matches!(self.job, Some(Job::Release(_) | Job::ReferenceRelease(..)))
    }

    /// Whether a conversion runs.
    #[must_use]
    pub fn converts(&self) -> bool {
        matches!(self.job, Some(Job::Convert(..)))
    }

    /// The release of a lease still held is not on its way yet, although its first write is known.
    fn pending_is_out(&self) -> bool {
        !self.has_lease() || self.converts()
    }

    /// Whose machines it runs.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The host is gone from one moment to the next. What was submitted may land.
    pub fn crash(&mut self) {
        let out = self.pending_is_out();
        for running in self.running.iter().filter(|r| out && r.ended.is_none()) {
            if let Pending::Write { sector, content } = running.what {
                self.late.push(Late { op: None, disk: running.disk, sector, content });
            }
        }
        self.late.iter_mut().for_each(|late| late.op = None);
        self.stop();
    }

    /// The lockspace failed; its processes are being killed.
    pub fn lose(&mut self) {
        if !self.pending_is_out() {
            self.stop();
        }
        self.settling = None;
        self.unsettled = None;
    }

    /// Long enough after a failure that others may take over. A host of ours with writes in flight was reset before (R3, A6).
    pub fn declared_dead(&mut self, life: Life) {
        self.let_go_of_all();
        if life == Life::Down || (self.kind == Kind::Ours && self.writes_in_flight()) {
            self.stop();
            self.late.clear();
        }
    }

    /// The processes of a crashed host are gone, and what was in flight has landed or never will.
    pub fn reset(&mut self) {
        self.stop();
        self.let_go_of_all();
        self.late.clear();
    }

    /// The process gives a lease up whose acquire has not settled: what was written is taken back afterwards.
    pub(crate) fn give_up(&mut self) {
        if self.unsettled.take().is_some() {
            self.let_go_of_all();
            self.settling = Some(Then::Retract);
        }
    }

    /// Whether that may happen.
    #[must_use]
    pub fn may_give_up(&self) -> bool {
        self.unsettled.is_some()
    }

    fn let_go_of_all(&mut self) {
        self.holding = None;
        self.sharing = None;
        self.lowering = None;
        self.between = false;
    }

    /// Its lockspace is left before anything was begun.
    pub(crate) fn leave(&mut self) {
        self.stop();
        self.attempts += 1;
        self.fresh = false;
    }

    fn stop(&mut self) {
        self.own_read = None;
        self.erasing = false;
        self.job = None;
        self.running.clear();
        self.unsettled = None;
        self.unfinished = None;
        self.wait = None;
        self.settling = None;
    }
}
