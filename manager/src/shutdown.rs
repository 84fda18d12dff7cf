//! The end of the daemon (lease-algorithms.md 12.2, socket-protocol.md 7.4, 7.28).

use crate::ids::{ConnId, LockspaceId};
use crate::{Action, JOB_WAIT, JOB_WAIT_SECS_MAX, Level, Manager, Reply, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::timing::MonoTime;

impl Manager {
    /// A signal ends the daemon only if there is no lockspace in any state. An ignored one is forgotten, and aborts nothing
    /// (weakness W34).
    pub(crate) fn signal(&mut self, out: &mut Vec<Action>) {
        self.shutdown(false, out);
    }

    pub(crate) fn shutdown(&mut self, force: bool, out: &mut Vec<Action>) {
        if !force && !self.lockspaces.is_empty() {
            log(
                out,
                Level::Warning,
                None,
                format!("shutdown ignored: {} lockspaces exist", self.lockspaces.len()),
            );
            return;
        }
        self.begin_shutdown(out);
    }

    pub(crate) fn shutdown_wait(&mut self, conn: ConnId, force: bool, out: &mut Vec<Action>) {
        if !force && !self.lockspaces.is_empty() {
            return reply(out, conn, ReturnCode::EBUSY.0);
        }
        if self.exited {
            // It ends right now, and answers those who wait for that last.
            return out.push(Action::Reply { conn, reply: Reply::ShutdownDone });
        }
        self.shutdown_waiters.push(conn);
        self.begin_shutdown(out);
    }

    fn begin_shutdown(&mut self, out: &mut Vec<Action>) {
        if self.shutting_down {
            return;
        }
        self.shutting_down = true;
        out.push(Action::ShuttingDown);
        let all: Vec<LockspaceId> = self.lockspaces.keys().copied().collect();
        for ls in all {
            self.begin_removal(ls, out);
        }
    }

    /// Exits once the last lockspace is gone. Each has waited for the writes in its name: with a watchdog until they had ended, without one
    /// for [`crate::DRAIN_SECS`]. What may land even later is not waited for again, though its resource is still in the table: the host
    /// id was left unreleased, and nothing is gained by a daemon that stays without renewing it.
    ///
    /// Commands of clients that work on disks are waited for as well, for [`JOB_WAIT`]: what they format is not to be left half done.
    pub(crate) fn maybe_exit(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        if !self.shutting_down || self.exited || !self.lockspaces.is_empty() {
            return;
        }
        if self.jobs > 0 || self.index_waited_for() {
            let wait = (JOB_WAIT * self.settings.io_timeout.secs()).min(JOB_WAIT_SECS_MAX);
            if now < *self.exit_at.get_or_insert(now.plus_secs(wait)) {
                return;
            }
            log(out, Level::Error, None, "the daemon ends before a command that works on a disk has");
        }
        self.exited = true;
        for conn in std::mem::take(&mut self.shutdown_waiters) {
            out.push(Action::Reply { conn, reply: Reply::ShutdownDone });
        }
        out.push(Action::Exit);
    }
}
