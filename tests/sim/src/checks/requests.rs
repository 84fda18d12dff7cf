//! Requests for leases that others hold.
//!
//! | Code | What |
//! |---|---|
//! | Q1 | a request is acted upon in time while it stands, the process that holds the lease is there, and nothing keeps the two hosts from renewing and looking |
//! | Q2 | a process is told only for a request that somebody made, for a later version than it holds, and in the way that asks for |

use super::{Checks, Holder};
use crate::clock::Micros;
use sanlock_lease::geometry::HostId;
use sanlock_manager::LockspaceId;
use std::collections::BTreeSet;

/// A request that is to be acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// For which lease.
    pub resource: u8,
    /// The version asked for.
    pub lver: u64,
    /// How.
    pub force_mode: u32,
    /// When it was written.
    pub since: Micros,
    /// When it should have been acted upon.
    pub due: Micros,
    /// Who asks: machine, daemon, lockspace.
    pub from: (usize, u32, LockspaceId),
    /// Who is to act.
    pub to: (usize, u32, LockspaceId),
    /// Who holds the lease.
    pub holder: Holder,
}

/// What is known of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// Every request that was ever on its way to a disk: lease, version, force mode.
    asked: BTreeSet<(u8, u64, u32)>,
    pending: Vec<Pending>,
    /// Requests that a holder was told of: lease, version and force mode, the version held, and its process.
    told: BTreeSet<(u8, u64, u32, u64, i32)>,
}

impl Checks {
    /// A request leaves a host.
    pub(super) fn request_submitted(&mut self, resource: u8, lver: u64, force_mode: u32) {
        self.requests.asked.insert((resource, lver, force_mode));
    }

    /// A lease is gone, and what was asked for.
    pub(super) fn requests_forgotten(&mut self, resource: u8) {
        self.requests.asked.retain(|(r, ..)| *r != resource);
        self.requests.pending.retain(|p| p.resource != resource);
        self.requests.told.retain(|(r, ..)| *r != resource);
    }

    /// Whether this was ever asked for.
    #[must_use]
    pub fn was_asked(&self, resource: u8, lver: u64, force_mode: u32) -> bool {
        self.requests.asked.contains(&(resource, lver, force_mode))
    }

    /// A request is to be acted upon, unless its holder has been told already.
    pub fn request_pending(&mut self, pending: Pending) {
        let Pending { resource, lver, force_mode, holder, .. } = pending;
        if !self.requests.told.contains(&(resource, lver, force_mode, holder.lver, holder.pid)) {
            self.requests.pending.push(pending);
        }
    }

    /// A record lands on the first disk of a lease: other requests for it do not stand any more.
    pub(super) fn request_landed(&mut self, resource: u8, lver: u64, force_mode: u32) {
        let before = self.requests.pending.len();
        self.requests
            .pending
            .retain(|p| p.resource != resource || (p.lver, p.force_mode) == (lver, force_mode));
        self.marks.requests_superseded += (before - self.requests.pending.len()) as u64;
    }

    /// The holder of a lease is told.
    pub fn acted_upon(&mut self, (resource, lver, force_mode): (u8, u64, u32), host: HostId, pid: i32) {
        self.marks.requests_acted += 1;
        let holder = self.holder(resource).filter(|h| h.host == host && h.pid == pid);
        if let Some(holder) = holder {
            self.requests.told.insert((resource, lver, force_mode, holder.lver, pid));
        }
        let before = self.requests.pending.len();
        let its = |p: &Pending| (p.resource, p.holder.host, p.holder.pid) == (resource, host, pid);
        self.requests.pending.retain(|p| !(its(p) && (p.lver, p.force_mode) == (lver, force_mode)));
        self.marks.requests_in_time += (before - self.requests.pending.len()) as u64;
    }

    /// Requests whose time is over. Those for leases that have changed hands are forgotten.
    pub fn requests_due(&mut self) -> Vec<Pending> {
        if self.requests.pending.is_empty() {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.requests.pending);
        let count = all.len();
        let held: Vec<Pending> =
            all.into_iter().filter(|p| self.holder(p.resource) == Some(p.holder)).collect();
        self.marks.requests_outrun += (count - held.len()) as u64;
        let (due, left) = held.into_iter().partition(|p| p.due <= self.now);
        self.requests.pending = left;
        due
    }
}
