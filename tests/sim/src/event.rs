//! What can happen, and the operations in flight that some of it is about.

use crate::clock::Micros;
use crate::daemon::Thread;
use crate::disk::{Area, SimView, Written};
use crate::fault::Fault;
use crate::host::JobKey;
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::{Content, IoFailure, OpId};
use std::rc::Rc;

/// An operation in flight.
#[derive(Clone, Debug)]
pub struct Io {
    pub(crate) host: usize,
    pub(crate) epoch: u32,
    /// The host id that its host had then.
    pub(crate) claims: HostId,
    pub(crate) job: JobKey,
    pub(crate) serial: u32,
    pub(crate) op: OpId,
    /// What it writes, and into which sector; reads have nothing.
    pub(crate) write: Option<(u64, Rc<Content>)>,
    pub(crate) area: Area,
    /// A write that will land, but has not yet.
    pub(crate) to_land: bool,
    /// When it will have landed; the end of time for reads, and what never does.
    pub(crate) lands: Micros,
    /// When it was submitted.
    pub(crate) since: Micros,
    pub(crate) timed_out: bool,
    /// For how long, in milliseconds of its host, it is in doubt if it fails; 0 when that has begun.
    pub(crate) doubt_ms: u64,
    /// It failed, and may land all the same.
    pub(crate) doubtful: bool,
    /// It did when its limit was over.
    pub(crate) failed_late: bool,
    pub(crate) deadline: Micros,
    /// When its completion is seen; `None`: never.
    pub(crate) ends: Option<Micros>,
    pub(crate) very_late: bool,
    pub(crate) result: Result<SimView, IoFailure>,
}

impl Io {
    pub(crate) fn is_write(&self) -> bool {
        self.write.is_some()
    }

    /// Its place waits for another one, and keeps nothing alive meanwhile.
    pub(crate) fn let_go(&mut self) {
        self.write = None;
        if let Ok(view) = &mut self.result {
            view.clear();
        }
    }

    /// Room for what another one reads.
    pub(crate) fn take_room(&mut self) -> Written {
        self.result.as_mut().map(SimView::take_room).unwrap_or_default()
    }

    /// Why it will be in doubt when it ends, if it will.
    pub(crate) fn will_be_in_doubt(&self) -> Option<IoFailure> {
        let failure = self.result.as_ref().err().copied();
        failure.filter(|e| self.doubt_ms > 0 && self.is_write() && e.leaves_doubt())
    }

    /// Whether it is about a request for a lease, rather than about the lease.
    pub(crate) fn is_request(&self) -> bool {
        matches!(self.job, JobKey::Errand(_))
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Sample {
        io: u64,
        first: u64,
        count: u64,
    },
    Land {
        io: u64,
    },
    Complete {
        io: u64,
    },
    Deadline {
        io: u64,
    },
    Wake {
        host: usize,
        epoch: u32,
        job: JobKey,
        serial: u32,
    },
    FrontTick {
        host: usize,
        life: u32,
    },
    Letter {
        host: usize,
        life: u32,
        id: u64,
    },
    Worker {
        host: usize,
        life: u32,
        ls: u64,
    },
    OpenFailed {
        host: usize,
        life: u32,
        task: u64,
    },
    Resume {
        host: usize,
        life: u32,
        thread: Option<Thread>,
    },
    Restart {
        host: usize,
        epoch: u32,
    },
    Turn {
        host: usize,
        epoch: u32,
        pid: i32,
        serial: u32,
    },
    Exit {
        host: usize,
        epoch: u32,
        pid: i32,
    },
    DescendantEnds {
        host: usize,
        epoch: u32,
        pid: i32,
    },
    Spawn {
        host: usize,
        epoch: u32,
    },
    Admin {
        host: usize,
        epoch: u32,
    },
    LooksAway {
        host: usize,
        epoch: u32,
        from: usize,
    },
    WdStart {
        host: usize,
        epoch: u32,
    },
    WdThaw {
        host: usize,
        life: u32,
    },
    WdInput {
        host: usize,
        life: u32,
        input: u64,
    },
    WdWake {
        host: usize,
        life: u32,
    },
    WdDevice {
        host: usize,
        life: u32,
    },
    WdTimeout {
        host: usize,
        life: u32,
        conn: u32,
        question: u32,
    },
    WdLinger {
        host: usize,
        life: u32,
        ls: u64,
        conn: u32,
    },
    DeviceFires {
        host: usize,
        epoch: u32,
    },
    PeerWatchdog {
        host: usize,
        epoch: u32,
    },
    PeerTick {
        host: usize,
        epoch: u32,
    },
    PeerTurn {
        host: usize,
        epoch: u32,
        resource: u8,
        serial: u32,
    },
    PowerOn {
        host: usize,
    },
    Look,
    /// A moment that a script waits for.
    Script,
    Chaos {
        fault: Fault,
    },
    Calm,
    /// Somebody asks for a lease.
    Asks,
    /// Somebody sets a host event, or listens.
    Notes,
    /// Somebody formats a resource.
    Formats,
    FormatPiece {
        at: usize,
        piece: usize,
        serial: u64,
    },
    FormatCut {
        at: usize,
        serial: u64,
    },
    FormatEnd {
        at: usize,
        serial: u64,
    },
}
