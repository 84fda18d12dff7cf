//! What wdmd was given and has been told, or is still to be told, not to expect any more.
//!
//! A connection that is closed with an expiry has this host reset, and closed too early wdmd may not have read yet that there is none; so it is kept here.

use std::time::Duration;

use sanlock_lease::timing::MonoTime;
use sanlock_wdmd::client::{ClientError, Connection};

use super::RETRY_MS;
use crate::log::Log;

/// Connections kept although wdmd did not answer on them, so that it can still read what was taken back.
const UNANSWERED_MAX: usize = 1024;
/// Seconds they are kept: the original is busy for 9 s at most.
const UNANSWERED_SECS: u64 = 12;

/// A connection on which nothing is expected any more.
#[derive(Debug)]
pub(super) struct Withdrawn {
    connection: Connection,
    /// wdmd could not be told so yet.
    owed: bool,
}

impl Withdrawn {
    /// One on which wdmd has been told so already.
    pub(super) fn told(connection: Connection) -> Self {
        Self { connection, owed: false }
    }

    /// Takes back what was given on it, as far as that can be sent within this time.
    pub(super) fn take_back(mut connection: Connection, within: Duration) -> (Self, Result<(), ClientError>) {
        let told = connection.withdraw(within);
        let owed = matches!(told, Err(ClientError::Unsent { .. }));
        (Self { connection, owed }, told)
    }

    /// Whether wdmd is still to be told.
    pub(super) fn is_owed(&self) -> bool {
        self.owed
    }

    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }

    /// When there is something to do about it next.
    fn due(&self, now: MonoTime) -> MonoTime {
        if self.owed { now.plus_millis(RETRY_MS) } else { now.plus_secs(UNANSWERED_SECS) }
    }
}

/// One that is kept, so that wdmd can read what it was told, or can be told at last.
#[derive(Debug)]
struct Kept {
    withdrawn: Withdrawn,
    /// When it is told, if that is owed; else when it may be closed.
    at: MonoTime,
}

/// All that are kept.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    kept: Vec<Kept>,
}

impl Withdrawals {
    /// Closed, what wdmd has not read yet might be lost, and an expiry that nobody moves would stay.
    pub(super) fn keep(&mut self, withdrawn: Withdrawn, now: MonoTime) {
        if self.kept.len() >= UNANSWERED_MAX {
            let told = self.kept.iter().position(|kept| !kept.withdrawn.owed);
            self.kept.remove(told.unwrap_or(0));
        }
        let at = withdrawn.due(now);
        self.kept.push(Kept { withdrawn, at });
    }

    /// Sends what could not be sent before and is due.
    pub(super) fn try_again(&mut self, now: MonoTime, log: &Log) {
        for Kept { withdrawn, at } in &mut self.kept {
            if withdrawn.owed && *at <= now {
                let told = withdrawn.connection.withdraw(Duration::ZERO);
                withdrawn.owed = matches!(told, Err(ClientError::Unsent { .. }));
                *at = withdrawn.due(now);
                match told {
                    Ok(()) => log.warn(format_args!("wdmd_test_live 0 0 to disable, late")),
                    Err(ClientError::Unsent { .. }) => {}
                    Err(error) => log.error(format_args!("wdmd_test_live 0 0 failed: {error}")),
                }
            }
        }
    }

    /// Closes those that wdmd has been told of long enough ago.
    pub(super) fn close(&mut self, now: MonoTime) {
        self.kept.retain(|kept| kept.withdrawn.owed || kept.at > now);
    }

    /// Whether wdmd is still to be told of one.
    pub(super) fn owe(&self) -> bool {
        self.kept.iter().any(|kept| kept.withdrawn.owed)
    }

    /// When there is something to do next.
    pub(super) fn due(&self) -> Option<MonoTime> {
        self.kept.iter().map(|kept| kept.at).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
