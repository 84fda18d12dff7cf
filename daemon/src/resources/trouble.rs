//! What the log says of a lease's disks that cannot be opened, read or written. A majority of them is enough, so it may be all that
//! anybody hears of it until the next one fails.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use sanlock_blockio::OpenError;
use sanlock_lease::machine::{Action, Env, Input, IoFailure, Machine, Op, OpId, Place, Step};
use sanlock_lease::name::Name;
use sanlock_lease::text::DiskSpec;
use sanlock_lease::timing::MonoTime;

use super::Task;
use super::opening::path_of;
use super::task::{Outcome, Tag, TaskMachine};
use crate::log::Log;

/// For so long a failure is not told again, whoever meets it.
const AGAIN_SECS: u64 = 60;

/// Failures remembered. Of more disks than that everything is told.
const KNOWN_MAX: usize = 1000;

/// What has been told of late.
pub(super) struct Troubles {
    log: Log,
    /// By path, and what was wrong with it.
    told: Mutex<BTreeMap<(PathBuf, String), MonoTime>>,
}

impl Troubles {
    pub(super) fn new(log: Log) -> Self {
        Self { log, told: Mutex::default() }
    }

    /// A disk of a lease could not be opened.
    pub(super) fn not_open(&self, now: MonoTime, lease: Lease, error: &OpenError) {
        let what = error.to_string();
        self.tell(now, (error.path().to_owned(), what.clone()), &format!("{lease}: {what}"));
    }

    /// Unless the same has been told of this disk a short while ago.
    fn tell(&self, now: MonoTime, trouble: (PathBuf, String), text: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.secs_since(*at) < AGAIN_SECS);
        if told.contains_key(&trouble) {
            return;
        }
        self.log.error(format_args!("{text}"));
        if told.len() < KNOWN_MAX {
            told.insert(trouble, now);
        }
    }
}

/// Its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    lockspace: Name,
    resource: Name,
}

impl Lease {
    pub(super) fn of(task: &Task) -> Self {
        Self { lockspace: task.config.lockspace, resource: task.config.resource }
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lockspace, self.resource)
    }
}

/// An operation that is under way.
#[derive(Clone, Copy, Debug)]
struct Running {
    op: OpId,
    place: Place,
    write: bool,
    /// Bytes from the beginning of the area.
    at: u64,
}

impl Running {
    fn of(op: &Op) -> Self {
        let (sector, write) = match &op.action {
            Action::Read { first, .. } => (*first, false),
            Action::Write { sector, .. } => (*sector, true),
        };
        let at = sector.saturating_mul(u64::from(op.sector_size.bytes()));
        Self { op: op.id, place: op.place, write, at }
    }
}

/// A task's machine, with an eye on its operations.
pub(super) struct Watched {
    machine: TaskMachine,
    lease: Lease,
    disks: Vec<DiskSpec>,
    tag: Arc<Tag>,
    running: Vec<Running>,
    troubles: Arc<Troubles>,
}

impl Watched {
    /// With the disks of its lease.
    pub(super) fn new(
        machine: TaskMachine,
        lease: Lease,
        disks: Vec<DiskSpec>,
        tag: Arc<Tag>,
        troubles: Arc<Troubles>,
    ) -> Self {
        Self { machine, lease, disks, tag, running: Vec::new(), troubles }
    }

    fn ended(&mut self, now: MonoTime, op: OpId, failure: Option<IoFailure>) {
        let Some(at) = self.running.iter().position(|running| running.op == op) else { return };
        let running = self.running.swap_remove(at);
        let why = match failure {
            // That has been told when it was to be opened.
            None | Some(IoFailure::NotOpen(_)) => return,
            Some(IoFailure::Os(errno)) => Errno::from_raw(errno).to_string(),
            Some(other) => other.to_string(),
        };
        let (path, offset) = match running.place {
            Place::Lockspace => (&self.tag.lockspace.spec.path, self.tag.lockspace.spec.offset),
            Place::Resource(disk) => match self.disks.get(usize::from(disk)) {
                Some(disk) => (&disk.path, disk.offset),
                None => return,
            },
        };
        let path = path_of(path).to_owned();
        let verb = if running.write { "write" } else { "read" };
        let at = offset.saturating_add(running.at);
        let text = format!("{}: {verb} {} at {at}: {why}", self.lease, path.display());
        // Wherever it is: a disk that fails does so for all its leases.
        self.troubles.tell(now, (path, format!("{verb}: {why}")), &text);
    }
}

impl Machine for Watched {
    type Outcome = Outcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<Outcome> {
        match &input {
            Input::Completed { op, result } => self.ended(now, *op, result.as_ref().err().copied()),
            Input::TimedOut { op } => self.ended(now, *op, Some(IoFailure::TimedOut)),
            Input::Doubtful { op, failure } => self.ended(now, *op, Some(*failure)),
            Input::Start | Input::CompletedLate { .. } | Input::Tick => {}
        }
        let step = self.machine.step(now, env, input);
        if let Step::Io(ops) = &step {
            self.running.extend(ops.iter().map(Running::of));
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(troubles: &Troubles) -> Vec<String> {
        let text = String::from_utf8(troubles.log.dump()).unwrap();
        text.lines().map(|line| line.split_once("]: ").unwrap().1.to_owned()).collect()
    }

    fn lease(resource: &str) -> Lease {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        Lease { lockspace: name("ls"), resource: name(resource) }
    }

    #[test]
    fn a_failure_is_told_once_a_minute_and_another_one_at_once() {
        let troubles = Troubles::new(Log::in_memory());
        let missing = |path: &str| OpenError::Os { call: "open", path: path.into(), errno: libc::ENOENT };
        let at = MonoTime::from_secs;
        troubles.not_open(at(100), lease("r"), &missing("/a"));
        troubles.not_open(at(159), lease("r"), &missing("/a"));
        troubles.not_open(at(159), lease("other"), &missing("/a"));
        troubles.not_open(at(159), lease("r"), &missing("/b"));
        troubles.not_open(at(159), lease("r"), &OpenError::NotADisk { path: "/a".into() });
        troubles.not_open(at(160), lease("r"), &missing("/a"));
        let told = text(&troubles);
        assert_eq!(told.len(), 4, "{told:#?}");
        assert_eq!(told[0], "ls:r: open /a: ENOENT: No such file or directory");
        assert!(told[1].contains("/b") && told[2].contains("neither") && told[3] == told[0], "{told:#?}");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nothing_is_lost_by_that() {
        let troubles = Troubles::new(Log::in_memory());
        for n in 0..KNOWN_MAX + 5 {
            troubles.tell(
                MonoTime::from_secs(9),
                (format!("/{n}").into(), "read".to_owned()),
                &format!("read /{n}"),
            );
        }
        assert_eq!(troubles.told.lock().unwrap().len(), KNOWN_MAX);
        assert!(text(&troubles).last().unwrap().ends_with(&format!("/{}", KNOWN_MAX + 4)));
    }
}
