//! What records say, for those who wait no longer than an io timeout: their disk may hang, and a lockspace that is joining is to be told
//! to stop, or to fail, all the same.
//!
//! Each question has a thread of its own, so that one that hangs keeps no other from being answered, and each kind of question a number of
//! them at most: beyond that, who asks waits for one of them to end, as long as for an answer. Those who have given up leave nothing
//! behind but the thread that hangs.

use sanlock_sys::thread;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sanlock_lease::machine::IoFailure;
use sanlock_lease::text::LockspaceSpec;
use sanlock_manager::rejoin::RejoinEvidence;

use super::{AFTER_REBOOT, Records, STACK, evidence_of, reboot};
use crate::global::Global;

/// Threads that read in one place, all of them possibly stuck.
pub(super) const READERS_MAX: usize = 32;
/// How often who waits looks whether the answer is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// A place where records are, and who reads there.
#[derive(Debug)]
pub(super) struct Desk<T> {
    name: &'static str,
    read: fn(&Records, &LockspaceSpec) -> T,
    /// Which of [`Records`] this one is.
    of: fn(&Records) -> &Desk<T>,
    readers: Mutex<usize>,
    ended: Condvar,
}

/// Why there is no evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It took too long, or no thread is to be had.
    Failed(IoFailure),
    /// Nobody wants it any more.
    Unwanted,
}

/// What is asked.
struct Question<'a> {
    global: &'a Arc<Global>,
    spec: &'a LockspaceSpec,
    patience: Patience<'a>,
}

/// How long somebody waits, and while what holds.
pub(super) struct Patience<'a> {
    until: Instant,
    wanted: &'a dyn Fn() -> bool,
}

impl<'a> Patience<'a> {
    pub(super) fn new(limit: Duration, wanted: &'a dyn Fn() -> bool) -> Self {
        Self { until: Instant::now() + limit, wanted }
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// See [`Unread`].
    pub(super) fn hear<T>(&self, heard: &Receiver<T>) -> Result<T, Unread> {
        loop {
            match heard.recv_timeout(self.nap()?) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => {}
                // A panic, which ends the daemon.
                Err(RecvTimeoutError::Disconnected) => return Err(Unread::Failed(IoFailure::TimedOut)),
            }
        }
    }

    /// How long to wait before looking again.
    fn nap(&self) -> Result<Duration, Unread> {
        if !(self.wanted)() {
            return Err(Unread::Unwanted);
        }
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(Unread::Failed(IoFailure::TimedOut)),
            left => Ok(left.min(LOOK)),
        }
    }
}

impl<T: Send + 'static> Desk<T> {
    /// `read` is called on threads of this name.
    pub(super) const fn new(
        name: &'static str,
        read: fn(&Records, &LockspaceSpec) -> T,
        of: fn(&Records) -> &Self,
    ) -> Self {
        Self { name, read, of, readers: Mutex::new(0), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// See [`Unread`].
    fn ask(&self, question: &Question<'_>) -> Result<T, Unread> {
        let mut readers = self.lock();
        while *readers >= READERS_MAX {
            let waited = self.ended.wait_timeout(readers, question.patience.nap()?);
            readers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *readers += 1;
        drop(readers);
        let (answer, heard) = mpsc::sync_channel(1);
        let &Question { global, spec, .. } = question;
        let (records, spec, read, of) = (Arc::clone(global), spec.clone(), self.read, self.of);
        let body = move || {
            let found = read(&records.records, &spec);
            // Before the answer: whoever has heard it may count on this place.
            of(&records.records).end();
            // Nobody may be waiting any more.
            let _ = answer.try_send(found);
        };
        if let Err(error) = thread::spawn(self.name, STACK, body) {
            self.end();
            return Err(Unread::Failed(IoFailure::Os(errno(&error))));
        }
        question.patience.hear(&heard)
    }

    /// A reader has ended.
    fn end(&self) {
        *self.lock() -= 1;
        self.ended.notify_one();
    }
}

pub(super) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EAGAIN)
}

/// What is known of an earlier instance of this host in this lockspace and place, if both places say so within `limit`, and while it is `wanted`.
///
/// A place for the time after a reboot that does not answer says nothing, as one that cannot be read: the join then takes long.
///
/// # Errors
/// The run directory did not answer, and may know of an instance that is to be waited for; or it is not wanted any more.
pub(crate) fn evidence(
    global: &Arc<Global>,
    spec: &LockspaceSpec,
    limit: Duration,
    wanted: &dyn Fn() -> bool,
) -> Result<RejoinEvidence, Unread> {
    let records = &global.records;
    let question = Question { global, spec, patience: Patience::new(limit, wanted) };
    let here = records.this_boot.ask(&question)?;
    if here.is_some() || records.reboots.is_none() {
        return Ok(evidence_of(here, None));
    }
    match records.before_boot.ask(&question) {
        Ok(before) => Ok(evidence_of(None, before)),
        Err(Unread::Unwanted) => Err(Unread::Unwanted),
        Err(Unread::Failed(failure)) => {
            global.log.error(format_args!(
                "{}: a record cannot be read: {failure}; {AFTER_REBOOT}",
                reboot::STATE_DIR
            ));
            Ok(RejoinEvidence::None)
        }
    }
}

/// The largest generation that a join of this host has claimed, if it has not failed for certain since; 0 if there is none.
///
/// # Errors
/// The run directory did not answer, or what is there cannot be read, or is damaged; or it is not wanted any more.
pub(crate) fn claimed(
    global: &Arc<Global>,
    spec: &LockspaceSpec,
    limit: Duration,
    wanted: &dyn Fn() -> bool,
) -> Result<u64, Unread> {
    let patience = Patience::new(limit, wanted);
    let claimed = global.records.claims.ask(&Question { global, spec, patience })?;
    claimed.map_err(|error| {
        global.log.error(format_args!("{}: {error}", global.records.claim_path(spec).display()));
        let damaged = error.kind() == io::ErrorKind::InvalidData;
        // None that says to try again.
        Unread::Failed(IoFailure::Os(if damaged { libc::EBADMSG } else { errno(&error) }))
    })
}
