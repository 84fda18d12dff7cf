//! A claimant of the host id: the daemon's machines, its process, its watchdog.

use crate::disk::ContentId;
use sanlock_lease::delta::{DeltaAcquire, DeltaRelease, Renewal};
use sanlock_lease::machine::OpId;
use sanlock_lease::recovery::Progress;
use sanlock_lease::timing::MonoTime;

/// What the daemon does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Nothing,
    Joining(Box<DeltaAcquire>),
    Joined(Box<Member>),
    Leaving(Box<DeltaRelease>),
}

/// A joined lockspace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) renewal: Renewal,
    /// Whether an attempt is under way.
    pub(super) attempting: bool,
    /// No attempt is begun any more.
    pub(super) stopping: bool,
    pub(super) progress: Progress,
    pub(super) leaving: bool,
    /// When recovery was asked last.
    pub(super) asked: MonoTime,
}

/// An operation on the host id's sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Running {
    /// Its number, while somebody wants to know what becomes of it.
    pub(super) op: Option<OpId>,
    /// What is written; `None` for a read.
    pub(super) write: Option<ContentId>,
    /// First sector and number of sectors of a read.
    pub(super) range: (u64, u64),
    pub(super) deadline: MonoTime,
    /// What a read found that has taken effect and is not heard of yet.
    pub(super) found: Option<ContentId>,
    /// Its host stood still before it took effect.
    pub(super) held_up: bool,
    /// It takes its time.
    pub(super) hung: bool,
    /// The machine was told that its time is over.
    pub(super) over: bool,
}

/// The process that has the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) generation: u64,
    /// Something was done to end it.
    pub(super) signalled: bool,
}

/// One machine that is configured with the host id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claimant {
    pub(super) number: usize,
    pub(super) task: Task,
    pub(super) running: Vec<Running>,
    /// When the machine wants to be woken.
    pub(super) wake: Option<MonoTime>,
    pub(super) user: Option<User>,
    /// When wdmd stops keeping the watchdog quiet: for a daemon that died, and for the one that runs.
    pub(super) expiries: [Option<MonoTime>; 2],
    pub(super) frozen: bool,
    /// Half seconds its clock is ahead.
    pub(super) ahead: i8,
    pub(super) starts: u8,
    /// The generation whose processes are known to be gone.
    pub(super) vouched: Option<u64>,
    /// The generation last joined with.
    pub(super) recorded: u64,
    /// The second in which its daemon died.
    pub(super) died: Option<u64>,
    /// Since which half second the sector says that somebody else holds the id, or something else than this one believes.
    pub(super) foreign_since: Option<u16>,
}

impl Claimant {
    pub(super) fn new(number: usize, starts: u8) -> Self {
        Self {
            number,
            task: Task::Nothing,
            running: Vec::new(),
            wake: None,
            user: None,
            expiries: [None; 2],
            frozen: false,
            ahead: 0,
            starts,
            vouched: None,
            recorded: 0,
            died: None,
            foreign_since: None,
        }
    }

    pub(super) fn member(&self) -> Option<&Member> {
        match &self.task {
            Task::Joined(member) => Some(member),
            _ => None,
        }
    }

    /// What is under way is nobody's affair any more. Reads are forgotten; writes may land.
    pub(super) fn detach(&mut self) {
        self.running.retain(|r| r.write.is_some());
        self.running.iter_mut().for_each(|r| {
            r.op = None;
            r.hung = true;
        });
        self.wake = None;
    }

    /// The daemon is gone, everything else goes on.
    pub(super) fn die(&mut self) {
        self.detach();
        self.task = Task::Nothing;
        self.vouched = None;
        self.frozen = false;
        if let Some(expiry) = self.expiries[1].take() {
            self.expiries[0] = Some(self.expiries[0].map_or(expiry, |other| other.min(expiry)));
        }
    }

    /// Reset: nothing of it is left, and what was in flight has landed or never will.
    pub(super) fn reset(&mut self) {
        self.die();
        self.running.clear();
        self.user = None;
        self.expiries = [None; 2];
        self.vouched = (self.recorded > 0).then_some(self.recorded);
        self.foreign_since = None;
    }

    /// Its lockspace is removed in order.
    pub(super) fn left(&mut self) {
        let settled = self.running.iter().all(|r| r.write.is_none());
        self.detach();
        self.task = Task::Nothing;
        self.expiries[1] = None;
        self.vouched = (settled && self.user.is_none()).then_some(self.recorded);
        self.foreign_since = None;
    }

    /// When the watchdog fires at the latest.
    pub(super) fn fires(&self, fire_secs: u64) -> Option<MonoTime> {
        let first = self.expiries.iter().flatten().min();
        first.map(|expiry| expiry.plus_secs(fire_secs))
    }
}
