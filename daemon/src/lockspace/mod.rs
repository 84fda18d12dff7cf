//! One thread per lockspace: joins, renews, looks at the other hosts, leaves. And another that takes its place when a call hangs.
//!
//! Nothing can delay its renewals: it owns its engine, waits for no lock that is held across I/O, and logs to memory. What it
//! learns goes out as snapshots ([`Shared`]) and as messages to the front.

mod next;
mod renewing;
mod shared;
mod worker;

use std::io;
use std::sync::Arc;

use sanlock_blockio::drive::keep_ready;
use sanlock_lease::delta::scan::STUCK_WHOLE_READS_MAX;
use sanlock_lease::delta::{Event as HostEvent, JoinError};
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::record::Bitmap;
use sanlock_manager::{Event, LockspaceId};

use crate::global::Global;
use crate::log::Log;
use crate::mailbox::{self, Sender};
pub(crate) use shared::Shared;

/// Stack of a lockspace thread. Its machines live on the heap.
const STACK: usize = 96 * 1024;

/// What a lockspace thread is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Something in [`Shared`] or [`Global`] changed.
    Changed,
    /// What renewals carry from now on.
    Outgoing {
        /// The event.
        event: HostEvent,
        /// Who is to look.
        bitmap: Box<Bitmap>,
    },
    /// Leave.
    Leave {
        /// Whether to free the host_id lease.
        release: bool,
    },
}

/// What a lockspace thread reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// For the manager.
    Event(Event),
    /// A join failed and its thread is over: one message, so that whoever hears of the failure may try again at once.
    JoinFailed {
        /// Which.
        ls: LockspaceId,
        /// Why.
        error: JoinError,
    },
    /// What was seen of the hosts until the lockspace was left, for a later join.
    Hosts {
        /// Of which lockspace.
        ls: LockspaceId,
        /// Everything.
        table: HostTable,
    },
}

/// A running lockspace thread.
#[derive(Debug)]
pub(crate) struct Lockspace {
    pub(crate) shared: Arc<Shared>,
    control: Sender<Control>,
}

impl Lockspace {
    /// Has the thread started, which joins at once; that there is none comes as a report. `others`: lockspaces that there are besides. What their disks
    /// may keep, should they hang, is made up for first. Waits for nothing; what the thread is told meanwhile it finds when it begins.
    ///
    /// # Errors
    /// No descriptor is to be had. Nothing is reported then.
    pub(crate) fn start(
        ls: LockspaceId,
        shared: Arc<Shared>,
        others: usize,
        table: Option<HostTable>,
        global: Arc<Global>,
        log: Log,
        reports: impl Fn(Report) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let (control, mailbox) = mailbox::mailbox()?;
        let (unable, told) = (reports.clone(), log.clone());
        let failed = move |error| {
            told.error(format_args!("cannot be started: {error}"));
            unable(Report::JoinFailed { ls, error: not_started(&error) });
        };
        let (seen, all) = (Arc::clone(&shared), Arc::clone(&global));
        let body = move || {
            if others > 0 {
                keep_ready(others.saturating_mul(STUCK_WHOLE_READS_MAX).saturating_add(1));
            }
            worker::run(ls, seen, table, all, log, mailbox, Box::new(reports));
        };
        global.hirer.hire(&thread_name(ls), STACK, body, failed);
        Ok(Self { shared, control })
    }

    /// Sends a message to the thread.
    pub(crate) fn tell(&self, control: Control) {
        self.control.send(control);
    }
}

fn thread_name(ls: LockspaceId) -> String {
    format!("sanlock-s{}", ls.0)
}

/// What a join comes to for which there is no thread, or no descriptor.
pub(crate) fn not_started(error: &io::Error) -> JoinError {
    JoinError::Read(IoFailure::Os(error.raw_os_error().unwrap_or(libc::EAGAIN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::tests::global;
    use crate::hirer::tests::{SHORT, gated};
    use sanlock_lease::geometry::HostId;
    use sanlock_lease::text::LockspaceSpec;
    use sanlock_lease::timing::IoTimeout;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_is_long_in_coming_is_not_waited_for_and_joins_or_fails_once() {
        let (hirer, come) = gated();
        let global = global(hirer);
        let (told, tells) = channel();
        let start = |number| {
            let told = told.clone();
            let spec = LockspaceSpec { path: b"/nonexistent/disk".to_vec(), ..LockspaceSpec::default() };
            let shared = Shared::new(spec, HostId::new(1).unwrap(), IoTimeout::DEFAULT);
            let report = move |report| match report {
                Report::JoinFailed { ls, error } => told.send((ls.0, error)).unwrap(),
                other => panic!("{other:?}"),
            };
            let log = global.log.clone();
            let joining =
                Lockspace::start(LockspaceId(number), shared, 0, None, Arc::clone(&global), log, report);
            joining.unwrap()
        };
        let both = [1, 2].map(start);
        for joining in &both {
            joining.tell(Control::Leave { release: false });
        }
        assert!(tells.try_recv().is_err(), "this is here, and no thread has come");
        // The one comes, and finds no such disk; for the other there is none.
        come.send(true).unwrap();
        come.send(false).unwrap();
        let mut ends = [tells.recv_timeout(SHORT).unwrap(), tells.recv_timeout(SHORT).unwrap()];
        ends.sort_by_key(|(ls, _)| *ls);
        let [no_disk, no_thread] = [IoFailure::NotOpen(libc::ENOENT), IoFailure::Os(libc::EAGAIN)];
        assert_eq!(ends, [(1, JoinError::Read(no_disk)), (2, JoinError::Read(no_thread))]);
        drop(told);
        assert!(tells.recv_timeout(SHORT).is_err(), "nobody is told twice");
    }
}
