//! What records say, for those who wait no longer than an io timeout: their disk may hang, and a lockspace that is joining is to be told
//! to stop, or to fail, all the same.
//!
//! Each of the two places has a thread of its own that reads, so that the one hangs without the other. Those who have given up leave
//! nothing behind but their question, which the thread answers to nobody once it gets to it.

use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use sanlock_lease::geometry::HostId;
use sanlock_lease::name::Name;
use sanlock_manager::rejoin::RejoinEvidence;

use super::{Records, STACK, evidence_of, reboot};
use crate::global::Global;

/// A question to a thread, and where its answer goes.
struct Question<T> {
    global: Arc<Global>,
    lockspace: Name,
    host: HostId,
    answer: SyncSender<T>,
}

/// A thread that reads, from its first question on.
#[derive(Debug)]
pub(super) struct Desk<T> {
    name: &'static str,
    read: fn(&Records, &Name, HostId) -> T,
    questions: Mutex<Option<mpsc::Sender<Question<T>>>>,
}

impl<T: Send + 'static> Desk<T> {
    /// `read` is called on a thread of this name.
    pub(super) const fn new(name: &'static str, read: fn(&Records, &Name, HostId) -> T) -> Self {
        Self { name, read, questions: Mutex::new(None) }
    }

    /// The answer, if there is one within `limit`.
    fn ask(&self, global: &Arc<Global>, lockspace: Name, host: HostId, limit: Duration) -> Option<T> {
        let (answer, heard) = mpsc::sync_channel(1);
        self.put(Question { global: Arc::clone(global), lockspace, host, answer })?;
        heard.recv_timeout(limit).ok()
    }

    /// Hands a question over, if a thread is to be had.
    fn put(&self, question: Question<T>) -> Option<()> {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        if questions.is_none() {
            let (sender, inbox) = mpsc::channel::<Question<T>>();
            let read = self.read;
            let body = move || {
                for Question { global, lockspace, host, answer } in inbox {
                    // Nobody may be waiting any more.
                    let _ = answer.try_send(read(&global.records, &lockspace, host));
                }
            };
            thread::Builder::new().name(self.name.to_owned()).stack_size(STACK).spawn(body).ok()?;
            *questions = Some(sender);
        }
        questions.as_ref()?.send(question).ok()
    }
}

/// The run directory has not said within this time what is known of an earlier instance. It may be one that is to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the rejoin record in the run directory could not be read within {} seconds: whether an earlier instance of this host may still write \
     is not known, so the lockspace is not joined; see whether the run directory's file system answers, then add the lockspace again",
    .limit.as_secs()
)]
pub(crate) struct Overdue {
    limit: Duration,
}

/// What is known of an earlier instance of this host in a lockspace, read within `limit` for each of the two places.
///
/// A place for the time after a reboot that does not answer says nothing, as one that cannot be read: the join then takes long.
///
/// # Errors
/// The run directory did not answer.
pub(crate) fn evidence(
    global: &Arc<Global>,
    lockspace: Name,
    host: HostId,
    limit: Duration,
) -> Result<RejoinEvidence, Overdue> {
    let records = &global.records;
    let here = records.this_boot.ask(global, lockspace, host, limit).ok_or(Overdue { limit })?;
    if here.is_some() || records.reboots.is_none() {
        return Ok(evidence_of(here, None));
    }
    let before = records.before_boot.ask(global, lockspace, host, limit).unwrap_or_else(|| {
        global.log.error(format_args!(
            "{}: a record could not be read within {} seconds; {}",
            reboot::STATE_DIR,
            limit.as_secs(),
            super::AFTER_REBOOT
        ));
        None
    });
    Ok(evidence_of(None, before))
}
