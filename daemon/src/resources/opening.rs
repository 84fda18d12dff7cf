//! Opening the disks of tasks without waiting for any of them.
//!
//! One open runs for each path at a time, whoever asks; so a dead disk holds one background thread, however many tasks name
//! it, and the limit of hanging opens is counted in disks.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use sanlock_blockio::drive::{Area, Areas};
use sanlock_blockio::{Access, Disk, OpenError, PendingOpen};
use sanlock_lease::timing::MonoTime;

use super::Task;
use super::task::Tag;

/// Result number of an open that did not end in time.
const TIMED_OUT: i32 = sanlock_blockio::TIMED_OUT_CODE;

/// Pause before an open that found too many others under way is tried again.
const RETRY_MS: u64 = 50;

/// A disk opened for a task: the disk, or the result number (negative) and the errno (positive).
type Opened = Result<Arc<Disk>, (i32, i32)>;

/// A task whose disks are being opened.
pub(super) struct Opening {
    pub(super) task: Task,
    pub(super) tag: Arc<Tag>,
    deadline: MonoTime,
    disks: Vec<Option<Opened>>,
}

impl Opening {
    pub(super) fn new(task: Task, tag: Arc<Tag>, deadline: MonoTime) -> Self {
        let disks = task.disks.iter().map(|_| None).collect();
        Self { task, tag, deadline, disks }
    }

    fn is_complete(&self) -> bool {
        self.disks.iter().all(Option::is_some)
    }

    fn wants(&self, path: &Path) -> bool {
        self.task
            .disks
            .iter()
            .zip(&self.disks)
            .any(|(disk, opened)| opened.is_none() && path_of(&disk.path) == path)
    }

    fn put(&mut self, path: &Path, result: &Result<Arc<Disk>, OpenError>) {
        for (disk, place) in self.task.disks.iter().zip(&mut self.disks) {
            if place.is_none() && path_of(&disk.path) == path {
                *place = Some(match result {
                    Ok(disk) => Ok(Arc::clone(disk)),
                    Err(error) => Err((error.code(), error.errno())),
                });
            }
        }
    }

    fn expire(&mut self) {
        for place in &mut self.disks {
            place.get_or_insert(Err((TIMED_OUT, libc::ETIMEDOUT)));
        }
    }

    /// The areas to work on, if a majority of the disks could be opened.
    ///
    /// # Errors
    /// The result number of the last disk that could not.
    pub(super) fn areas(&self) -> Result<Areas, i32> {
        let total = self.disks.len();
        let open = self.disks.iter().filter(|disk| matches!(disk, Some(Ok(_)))).count();
        if open * 2 <= total {
            let last = self.disks.iter().rev().find_map(|disk| match disk {
                Some(Err((code, _))) => Some(*code),
                _ => None,
            });
            return Err(last.unwrap_or(-libc::ENODEV));
        }
        let areas = self.task.disks.iter().zip(&self.disks).map(|(spec, opened)| Area {
            disk: match opened {
                Some(Ok(disk)) => Ok(Arc::clone(disk)),
                Some(Err((_, errno))) => Err(*errno),
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

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Every task that waits for its disks.
#[derive(Default)]
pub(super) struct Openings {
    waiting: Vec<Opening>,
    pending: Vec<PendingOpen>,
    /// Paths not being opened because too many others are; tried again at `retry_at`.
    put_off: Vec<Vec<u8>>,
    retry_at: Option<MonoTime>,
}

impl Openings {
    pub(super) fn add(&mut self, now: MonoTime, opening: Opening) {
        let paths: Vec<Vec<u8>> = opening.task.disks.iter().map(|disk| disk.path.clone()).collect();
        self.waiting.push(opening);
        for path in paths {
            self.open(now, path);
        }
    }

    /// Begins to open a path, unless that is under way. With too many opens under way it is put off.
    fn open(&mut self, now: MonoTime, path: Vec<u8>) {
        let as_path = path_of(&path);
        if self.pending.iter().any(|pending| pending.path() == as_path) {
            return;
        }
        match Disk::open_in_background(as_path, Access::ReadWrite) {
            Ok(pending) => self.pending.push(pending),
            Err(OpenError::TooManyHanging { .. }) => {
                if !self.put_off.contains(&path) {
                    self.put_off.push(path);
                }
                self.retry_at = Some(now.plus_millis(RETRY_MS));
            }
            Err(error) => {
                let result = Err(error);
                for opening in &mut self.waiting {
                    opening.put(as_path, &result);
                }
            }
        }
    }

    fn retry(&mut self, now: MonoTime) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.retry_at = None;
        for path in std::mem::take(&mut self.put_off) {
            if self.waiting.iter().any(|opening| opening.wants(path_of(&path))) {
                self.open(now, path);
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
                for opening in waiting.iter_mut() {
                    opening.put(pending.path(), &result);
                }
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
        ready
    }

    /// Readable when an open has ended.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pending.iter().map(PendingOpen::completion_fd)
    }

    pub(super) fn next_deadline(&self) -> Option<MonoTime> {
        self.waiting.iter().map(|opening| opening.deadline).chain(self.retry_at).min()
    }
}
