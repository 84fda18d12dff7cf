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
use sanlock_lease::record::Bitmap;
use sanlock_manager::{Event, LockspaceId};
use sanlock_sys::thread;

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
    /// Starts the thread, which joins at once. `others`: lockspaces that there are besides. What their disks may keep, should they hang, is made up
    /// for first.
    ///
    /// # Errors
    /// No thread or descriptor is to be had.
    pub(crate) fn start(
        ls: LockspaceId,
        shared: Arc<Shared>,
        others: usize,
        table: Option<HostTable>,
        global: Arc<Global>,
        log: Log,
        reports: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let (control, mailbox) = mailbox::mailbox()?;
        let seen = Arc::clone(&shared);
        thread::spawn(&thread_name(ls), STACK, move || {
            if others > 0 {
                keep_ready(others.saturating_mul(STUCK_WHOLE_READS_MAX).saturating_add(1));
            }
            worker::run(ls, seen, table, global, log, mailbox, Box::new(reports));
        })?;
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
