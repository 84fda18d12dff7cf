//! Opening the disks of tasks without waiting for any of them.
//!
//! One open runs for each path at a time, whoever asks ([`sanlock_blockio::PendingOpen`]); so a dead disk holds one thread, however many
//! tasks name it, and the limit of hanging opens is counted in disks. Among the tasks here one waits for all of them. With nothing else under
//! way the thread on duty makes the call itself.
//!
//! A task gets what was opened after it asked, or was being opened when it did. An open that no task waits for any more is let go: who
//! asks later joins it where all opens are known, and has the mounts looked at, for the path may lead elsewhere by then.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use sanlock_blockio::drive::{Area, Areas};
use sanlock_blockio::{Access, Asker, Disk, Errand, OpenError, PendingOpen};
use sanlock_lease::timing::MonoTime;

use super::Task;
use super::task::Tag;

/// Pause before an open that found too many others under way is tried again.
const RETRY_MS: u64 = 50;

/// A disk opened for a task.
type Opened = Result<Arc<Disk>, OpenError>;

/// Where a task keeps one of its disks.
#[derive(Default)]
struct Slot {
    /// Whether the open under way is for this one too.
    asked: bool,
    opened: Option<Opened>,
}

/// A task whose disks are being opened.
pub(super) struct Opening {
    pub(super) task: Task,
    pub(super) tag: Arc<Tag>,
    deadline: MonoTime,
    disks: Vec<Slot>,
}

impl Opening {
    pub(super) fn new(task: Task, tag: Arc<Tag>, deadline: MonoTime) -> Self {
        let disks = task.disks.iter().map(|_| Slot::default()).collect();
        Self { task, tag, deadline, disks }
    }

    fn is_complete(&self) -> bool {
        self.disks.iter().all(|slot| slot.opened.is_some())
    }

    fn wants(&self, path: &Path) -> bool {
        let mut slots = self.task.disks.iter().zip(&self.disks);
        slots.any(|(disk, slot)| slot.opened.is_none() && path_of(&disk.path) == path)
    }

    /// The slots for this path that are empty.
    fn slots(&mut self, path: &Path) -> impl Iterator<Item = &mut Slot> {
        let slots = self.task.disks.iter().zip(&mut self.disks);
        slots
            .filter(move |(disk, slot)| slot.opened.is_none() && path_of(&disk.path) == path)
            .map(|(_, slot)| slot)
    }

    fn expire(&mut self) {
        for (disk, slot) in self.task.disks.iter().zip(&mut self.disks) {
            let path = path_of(&disk.path);
            slot.opened.get_or_insert_with(|| Err(OpenError::TimedOut { path: path.to_owned() }));
        }
    }

    /// Why disks could not be opened.
    pub(super) fn failures(&self) -> impl Iterator<Item = &OpenError> {
        self.disks.iter().filter_map(|slot| slot.opened.as_ref()?.as_ref().err())
    }

    /// The areas to work on, if a majority of the disks could be opened.
    ///
    /// # Errors
    /// The result number of the last disk that could not.
    pub(super) fn areas(&self) -> Result<Areas, i32> {
        let total = self.disks.len();
        let open = self.disks.iter().filter(|slot| matches!(slot.opened, Some(Ok(_)))).count();
        if open * 2 <= total {
            let last = self.disks.iter().rev().find_map(|slot| match &slot.opened {
                Some(Err(error)) => Some(error.code()),
                _ => None,
            });
            return Err(last.unwrap_or(-libc::ENODEV));
        }
        let areas = self.task.disks.iter().zip(&self.disks).map(|(spec, slot)| Area {
            disk: match &slot.opened {
                Some(Ok(disk)) => Ok(Arc::clone(disk)),
                Some(Err(error)) => Err(error.errno()),
                None => Err(libc::ENODEV),
            },
            offset: spec.offset,
        });
        let mut all = Areas::new().with_resource(areas);
        if let Some((disk, _)) = self.tag.lockspace.place() {
            all = all.with_lockspace(Area { disk: Ok(disk), offset: self.tag.lockspace.spec.offset });
        }
        Ok(all)
    }
}

pub(super) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Every task that waits for its disks.
#[derive(Default)]
pub(super) struct Openings {
    waiting: Vec<Opening>,
    /// Paths that are to be opened.
    wanted: Vec<Vec<u8>>,
    pending: Vec<PendingOpen>,
    /// Paths not being opened because too many others are; tried again at `retry_at`.
    put_off: Vec<Vec<u8>>,
    retry_at: Option<MonoTime>,
}

impl Openings {
    pub(super) fn add(&mut self, opening: Opening) {
        for disk in &opening.task.disks {
            if !self.wanted.contains(&disk.path) {
                self.wanted.push(disk.path.clone());
            }
        }
        self.waiting.push(opening);
    }

    /// Begins to open what was added since the last call. With one path in all, and nobody waiting for anything else (`alone`), the
    /// open is given back for the caller to carry out.
    pub(super) fn begin(&mut self, now: MonoTime, alone: bool) -> Option<Errand> {
        let alone = alone && self.wanted.len() == 1 && self.pending.is_empty();
        let mut errand = None;
        for path in std::mem::take(&mut self.wanted) {
            errand = self.open(now, path, alone);
        }
        errand
    }

    /// Begins to open a path, unless that is under way. With too many opens under way it is put off.
    fn open(&mut self, now: MonoTime, path: Vec<u8>, alone: bool) -> Option<Errand> {
        let as_path = path_of(&path);
        if let Some(pending) = self.pending.iter().find(|pending| pending.path() == as_path) {
            if pending.join() {
                self.ask(as_path);
            } else {
                // It has ended, and is taken first.
                self.wanted.push(path);
            }
            return None;
        }
        let opened = if alone {
            Disk::open_on_errand(as_path, Access::ReadWrite, Asker::Lease)
        } else {
            Disk::open_in_background(as_path, Access::ReadWrite, Asker::Lease).map(|pending| (pending, None))
        };
        match opened {
            Ok((pending, errand)) => {
                self.pending.push(pending);
                self.ask(as_path);
                return errand;
            }
            Err(OpenError::TooManyHanging { .. }) => {
                if !self.put_off.contains(&path) {
                    self.put_off.push(path);
                }
                self.retry_at = Some(now.plus_millis(RETRY_MS));
            }
            Err(error) => {
                let slots = self.waiting.iter_mut().flat_map(|opening| opening.slots(as_path));
                slots.for_each(|slot| slot.opened = Some(Err(error.clone())));
            }
        }
        None
    }

    /// All who want this path now wait for the open under way.
    fn ask(&mut self, path: &Path) {
        self.waiting.iter_mut().flat_map(|opening| opening.slots(path)).for_each(|slot| slot.asked = true);
    }

    fn retry(&mut self, now: MonoTime) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.retry_at = None;
        for path in std::mem::take(&mut self.put_off) {
            if self.waiting.iter().any(|opening| opening.wants(path_of(&path))) {
                self.open(now, path, false);
            }
        }
    }

    /// Tasks whose disks are open, or will not be in time.
    pub(super) fn poll(&mut self, now: MonoTime) -> Vec<Opening> {
        self.retry(now);
        let waiting = &mut self.waiting;
        self.pending.retain_mut(|pending| match pending.take() {
            None => true,
            Some(result) => {
                let slots = waiting.iter_mut().flat_map(|opening| opening.slots(pending.path()));
                slots.filter(|slot| slot.asked).for_each(|slot| slot.opened = Some(result.clone()));
                false
            }
        });
        let mut ready = Vec::new();
        let mut at = 0;
        while let Some(opening) = waiting.get_mut(at) {
            if opening.deadline <= now {
                opening.expire();
            }
            if opening.is_complete() {
                ready.push(waiting.remove(at));
            } else {
                at += 1;
            }
        }
        self.pending.retain(|pending| waiting.iter().any(|opening| opening.wants(pending.path())));
        ready
    }

    /// Whether no task waits for its disks.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.pending.is_empty()
    }

    /// Readable when an open has ended.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pending.iter().map(PendingOpen::completion_fd)
    }

    /// When to look again if no open ends before: at once when a task waits for nothing any more.
    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        let due =
            |opening: &Opening| if opening.is_complete() { MonoTime::default() } else { opening.deadline };
        self.waiting.iter().map(due).chain(self.retry_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockspace::Shared;
    use crate::resources::Work;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use sanlock_lease::geometry::{Geometry, HostId};
    use sanlock_lease::machine::Place;
    use sanlock_lease::paxos::PaxosConfig;
    use sanlock_lease::text::{DiskSpec, LockspaceSpec};
    use sanlock_lease::timing::{IoTimeout, WatchdogFire};
    use sanlock_manager::TaskId;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::atomic::AtomicBool;

    const T0: MonoTime = MonoTime::from_secs(50);
    const DEADLINE: MonoTime = MonoTime::from_secs(51);

    fn opening(paths: &[&Path]) -> Opening {
        let host = HostId::new(1).unwrap();
        let lockspace = Shared::new(LockspaceSpec::default(), host, IoTimeout::DEFAULT);
        let disks: Vec<DiskSpec> = paths
            .iter()
            .map(|path| DiskSpec { path: path.as_os_str().as_bytes().to_vec(), offset: 7 })
            .collect();
        let config = PaxosConfig {
            lockspace: LockspaceSpec::default().name,
            resource: LockspaceSpec::default().name,
            host,
            generation: 1,
            io_timeout: IoTimeout::DEFAULT,
            fire: WatchdogFire::DEFAULT,
            geometry: Geometry::B512_M1,
            disks: u8::try_from(disks.len()).unwrap(),
        };
        let work = Work::Retract {
            geometry: Geometry::B512_M1,
            hold: None,
            attempt: None,
            value: None,
            rename: None,
        };
        let task = Task { id: TaskId(1), lockspace: Arc::clone(&lockspace), config, work, disks };
        let tag = Arc::new(Tag { task: TaskId(1), lockspace, client_gone: AtomicBool::new(false) });
        Opening::new(task, tag, DEADLINE)
    }

    /// Polls, without time passing, until a task is ready.
    fn ready(openings: &mut Openings) -> Opening {
        loop {
            if let Some(opening) = openings.poll(T0).pop() {
                return opening;
            }
            let mut fds: Vec<PollFd<'_>> =
                openings.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            assert!(poll(&mut fds, PollTimeout::from(5000_u16)).unwrap() > 0, "an open ends");
        }
    }

    #[test]
    fn a_majority_of_the_disks_must_open() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two, none] = ["one", "two", "none"].map(|name| dir.path().join(name));
        for path in [&one, &two] {
            std::fs::write(path, [0; 4096]).unwrap();
        }
        let mut openings = Openings::default();
        openings.add(opening(&[&one, &none, &two]));
        assert!(openings.begin(T0, true).is_none(), "several are opened side by side");
        let areas = ready(&mut openings).areas().unwrap();
        let disk = |number| {
            areas.get(Place::Resource(number)).unwrap().disk.as_ref().map(|disk| disk.path().to_owned())
        };
        assert_eq!(disk(0), Ok(one.clone()));
        assert_eq!(disk(1), Err(&libc::ENOENT));
        assert_eq!(disk(2), Ok(two));
        assert!(areas.get(Place::Resource(3)).is_none());
        assert_eq!(areas.get(Place::Resource(0)).unwrap().offset, 7);

        openings.add(opening(&[&none, &one]));
        assert!(openings.begin(T0, false).is_none());
        assert_eq!(ready(&mut openings).areas().unwrap_err(), -libc::ENOENT, "half is no majority");
        openings.add(opening(&[&none]));
        openings.begin(T0, true).unwrap().run();
        assert_eq!(ready(&mut openings).areas().unwrap_err(), -libc::ENOENT);
        assert!(openings.next_deadline().is_none() && openings.fds().count() == 0);
    }

    #[test]
    fn a_path_is_opened_once_for_all_who_wait_and_nobody_waits_beyond_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        std::fs::write(&path, [0; 4096]).unwrap();
        let mut openings = Openings::default();
        for _ in 0..5 {
            openings.add(opening(&[&path]));
        }
        assert!(openings.begin(T0, false).is_none());
        assert_eq!(openings.fds().count(), 1);
        assert_eq!(openings.next_deadline(), Some(DEADLINE));
        ready(&mut openings).areas().unwrap();

        // An open that has not ended by the deadline: the task fails, the open goes on.
        let mut late = opening(&[&path]);
        late.expire();
        assert_eq!(late.areas().unwrap_err(), sanlock_blockio::TIMED_OUT_CODE);
    }

    /// It may hang on a mount that is replaced: nobody looks at the mounts while it is kept and joined here.
    #[test]
    fn an_open_that_nobody_waits_for_any_more_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        std::fs::write(&path, [0; 4096]).unwrap();
        let mut openings = Openings::default();
        openings.add(opening(&[&path]));
        let hanging = openings.begin(T0, true).unwrap();
        assert!(openings.poll(T0).is_empty() && !openings.is_empty());
        assert_eq!(openings.poll(DEADLINE).len(), 1);
        assert!(openings.is_empty());
        // Who asks later joins it all the same.
        openings.add(opening(&[&path]));
        assert!(openings.begin(T0, true).is_none());
        hanging.run();
        ready(&mut openings).areas().unwrap();
    }

    #[test]
    fn a_task_gets_no_disk_that_was_opened_before_it_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        std::fs::write(&path, [0; 4096]).unwrap();
        let size = |opening: &Opening| {
            opening.areas().unwrap().get(Place::Resource(0)).unwrap().disk.as_ref().unwrap().size()
        };
        let mut openings = Openings::default();
        openings.add(opening(&[&path]));
        let open = openings.begin(T0, true).unwrap();
        // One that is under way is waited for.
        openings.add(opening(&[&path]));
        assert!(openings.begin(T0, false).is_none());
        assert_eq!(openings.fds().count(), 1);
        open.run();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [0; 512]).unwrap();
        openings.add(opening(&[&path]));
        assert_eq!(openings.poll(T0).iter().map(size).collect::<Vec<_>>(), [4096; 2]);
        assert!(openings.begin(T0, false).is_none());
        assert_eq!(size(&ready(&mut openings)), 512);

        // Also if it looks before the result has been taken.
        openings.add(opening(&[&path]));
        openings.begin(T0, true).unwrap().run();
        openings.add(opening(&[&path]));
        assert!(openings.begin(T0, false).is_none());
        assert_eq!(openings.poll(T0).len(), 1);
        assert!(openings.begin(T0, false).is_none());
        ready(&mut openings);
        assert!(openings.is_empty());
    }
}
