//! One host's bookkeeping: who is connected, which lockspaces are joined, which resources are held or worked on, who is busy,
//! and what an ageing lockspace demands. [`Manager::handle`] takes one [`Event`] and appends the [`Action`]s it calls for.
//!
//! *What it does not do.* No I/O, no clock, no threads. The daemon carries the actions out, in order, and reports back.
//!
//! # Calling rules
//!
//! * `now` is never earlier than in the previous call.
//! * A connection sends its next [`Command`] only after the reply to the one before.
//! * After [`Action::BecomeStream`] a connection sends no more commands.
//! * [`Event::Tick`] comes at least once a second, twice while [`Manager::is_late`], five times while [`Manager::is_killing`]; what ages
//!   is looked at there. It may be left out until [`Manager::quiet_until`].
//! * [`Action::Gone`] and [`Action::ShuttingDown`] are visible to all machines before the next action is carried out. [`Action::ClientGone`]
//!   reaches its machine soon: a step that is being made may not see it.
//!
//! # Invariants
//!
//! * A resource (lockspace and name) exists at most once, and is on exactly one list.
//! * A token belongs to a held resource; an exclusive resource has one token, a shared one any number, an orphan none.
//! * A target is busy exactly while a command on its leases is in progress.
//! * Nothing new is started for a resource while a write of an earlier task on it may still land (rule R3).
//! * An operation on a resource index that takes the index's lease, and a resource that is that lease, exclude each other.
//! * While something depends on a host id, wdmd has an expiry of its lockspace, or no watchdog is used ([`Watch`]).
//! * A token is granted only while its lockspace is alive with the generation the acquire began with, and its process is in the
//!   rejoin record on stable storage, or no record counts (rules R7, R10).
//! * A lockspace is left with its host id unreleased only once the record of what may outlive it is on stable storage, or none counts (rule
//!   R7).
#![forbid(unsafe_code)]

mod acquire;
mod action;
mod bits;
mod clients;
mod config;
mod convert;
mod event;
mod events;
mod gone;
mod ids;
mod index;
mod killing;
mod killpath;
mod late;
mod lockspaces;
mod orphans;
mod quiet;
pub mod rejoin;
mod releasing;
mod requests;
mod shutdown;
mod side;
mod state;
#[cfg(test)]
mod tests;
mod users;
mod value;
mod watchdog;

pub use action::{Action, Level, Reply, Signal};
pub use config::Setting;
pub use event::{AcquireFlags, Command, Event, LeaseWrites, OrphanUse, ReleaseWhat, ResourceRequest, Target};
pub use events::{STREAMS_MAX, SetEventFlags};
pub use ids::{ConnId, LockspaceId, ResourceId, TaskId};
pub use killpath::KillpathProgram;
pub use rejoin::{ProcessId, RejoinEvidence, RejoinRecord, fast_rejoin, remembered};
pub use requests::Request;
pub use state::{Conn, Dead, Lockspace, LockspaceList, RenewalEntry, Resource, ResourceList, Token, Work};
pub use watchdog::Watch;

use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use state::{Op, OpNumber};
use std::collections::BTreeMap;

/// Lockspaces at a time, with those that were left and have a write outstanding; our limit (the original has none).
pub const LOCKSPACES_MAX: usize = 1000;
/// Tokens of one client; our limit (the original has none).
pub const TOKENS_MAX: usize = 4096;
/// Connections that may wait for one lockspace (for its removal, or for the end of its join).
pub const WAITERS_MAX: usize = 1024;
/// How long a dead lockspace without users waits for resource writes that may still land, before it leaves without releasing
/// its host_id lease (lease-algorithms.md 1.2, draining; rule R3).
pub const DRAIN_SECS: u64 = 120;

/// How long the end of the daemon waits for commands of clients that work on disks, in io timeouts of the daemon, and in seconds at the most:
/// what works takes less, and the service manager waits no longer than a minute for all that the end takes.
pub const JOB_WAIT: u64 = 4;
/// The most of it.
pub const JOB_WAIT_SECS_MAX: u64 = 30;

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Io timeout of a join that names none.
    pub io_timeout: IoTimeout,
    /// Watchdog fire timeout of every host.
    pub fire: WatchdogFire,
    /// Whether the watchdog is to stand behind every lockspace.
    pub watchdog: bool,
    /// Seconds of gentle killing after a failure.
    pub kill_grace_secs: u64,
    /// Renewals remembered per lockspace.
    pub history_size: usize,
    /// Seconds that a bit for another host stays set; `None`: six io timeouts.
    pub set_bitmap_secs: Option<u64>,
    /// Whether an acquire that loses to another host is an everyday matter in the log, not an error (command-line.md 11.5).
    pub quiet_fail: bool,
}

/// The bookkeeping of one daemon.
#[derive(Debug)]
pub struct Manager {
    settings: Settings,
    conns: BTreeMap<ConnId, Conn>,
    lockspaces: BTreeMap<LockspaceId, Lockspace>,
    /// Lockspaces that were left with a write to their host_id lease outstanding.
    late: BTreeMap<LockspaceId, LockspaceSpec>,
    resources: BTreeMap<ResourceId, Resource>,
    ops: BTreeMap<OpNumber, Op>,
    /// The resource a running or unsettled task works on.
    tasks: BTreeMap<TaskId, ResourceId>,
    /// Operations on resource indexes.
    index_work: BTreeMap<TaskId, index::IndexWork>,
    last_id: u64,
    shutdown_waiters: Vec<ConnId>,
    shutting_down: bool,
    /// Commands of clients that work on disks without having to do with anything here.
    jobs: usize,
    /// When the daemon ends although some have not been answered.
    exit_at: Option<MonoTime>,
    exited: bool,
    scratch: killing::Scratch,
}

impl Manager {
    /// Nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            conns: BTreeMap::new(),
            lockspaces: BTreeMap::new(),
            late: BTreeMap::new(),
            resources: BTreeMap::new(),
            ops: BTreeMap::new(),
            tasks: BTreeMap::new(),
            index_work: BTreeMap::new(),
            last_id: 0,
            shutdown_waiters: Vec::new(),
            shutting_down: false,
            jobs: 0,
            exit_at: None,
            exited: false,
            scratch: killing::Scratch::new(),
        }
    }

    /// Takes one event.
    pub fn handle(&mut self, now: MonoTime, event: Event, out: &mut Vec<Action>) {
        let mut look = self.may_end(&event);
        match event {
            Event::ConnOpened { conn, ci } => {
                self.conns.insert(conn, Conn::new(ci));
            }
            Event::ConnClosed { conn } => self.conn_closed(conn, out),
            Event::PidGone { conn } => self.pid_gone(conn, out),
            Event::Command { conn, command } => self.command(now, conn, command, out),
            Event::Signal => self.signal(out),
            Event::Tick => {
                self.retry_releases(now, out);
                self.erase_due(now, out);
                self.check_lockspaces(now, out);
                self.tell_of_records(now, out);
                self.age_outgoing(now, out);
                self.look_again(now, out);
            }
            Event::JoinDone { ls, result } => self.join_done(now, ls, result, out),
            Event::Renewed { ls, timestamp, read_ms, write_ms } => {
                self.renewed(now, ls, timestamp, (read_ms, write_ms), out)
            }
            Event::RenewalFailed { ls, code, text } => self.renewal_failed(now, ls, code, &text, out),
            Event::Corrupt { ls, code, text } => self.corrupt(now, ls, code, &text, out),
            Event::Left { ls, writes } => self.left(now, ls, writes, out),
            Event::LeaseSettled { ls } => self.lease_settled(ls, out),
            Event::AcquireDone { task, outcome, value, outstanding } => {
                self.acquire_done(now, task, (outcome, value), outstanding, out)
            }
            Event::ConvertDone { task, outcome, outstanding } => {
                self.convert_done(now, task, *outcome, outstanding, out);
            }
            Event::StartFailed { task, code } => self.start_failed(now, task, code, out),
            Event::ReleaseDone { task, outcome, outstanding } => {
                self.release_done(now, task, outcome, outstanding, out)
            }
            Event::Settled { task } => self.settled(now, task, out),
            Event::IndexSettling { task } => self.index_settling(task),
            Event::IndexDone { task } => self.index_done(task),
            Event::RejoinSaved { ls, serial } => self.rejoin_saved(ls, serial, out),
            Event::Noticed { ls, from, generation, event } => {
                self.noticed(now, ls, (from, generation), event, out);
            }
            Event::Requested { lockspace, owner } => self.notify_host(now, &lockspace, owner, out),
            Event::RequestFound { request } => self.requested(&request, out),
            Event::RequestsLooked { ls } => self.requests_looked(ls, out),
            Event::WatchdogChecked { ls, result } => self.watchdog_checked(ls, result, out),
            Event::WatchdogArmed { ls, result } => self.watchdog_armed(now, ls, result, out),
            Event::WatchdogStatus { ls, protects } => self.watchdog_status(ls, protects, out),
            Event::WatchdogLost { ls, text } => self.watchdog_lost(now, ls, &text, out),
            Event::JobBegun => self.jobs += 1,
            Event::JobDone => self.jobs = self.jobs.saturating_sub(1),
            Event::KillpathLost { conn, request } => self.killpath_lost(conn, request, out),
        }
        look = look && self.check_ending(now, out);
        // A request that has just failed may have been all that a dead lockspace waited for.
        if self.grant_ready(now, out) || look {
            self.check_ending(now, out);
        }
        self.disarm_idle(out);
        self.maybe_exit(now, out);
    }

    fn command(&mut self, now: MonoTime, conn: ConnId, command: Command, out: &mut Vec<Action>) {
        match command {
            Command::Register { pid } => self.register(conn, pid, out),
            Command::Restrict { flags } => self.restrict(conn, flags, out),
            Command::Killpath { program, pid } => self.set_killpath(conn, program, pid, out),
            Command::SetConfig { lockspace, setting } => self.set_config(now, conn, lockspace, setting, out),
            Command::AddLockspace { spec, io_timeout, asynchronous } => {
                self.add_lockspace(conn, spec, io_timeout, asynchronous, out);
            }
            Command::InqLockspace { spec, wait } => self.inq_lockspace(conn, &spec, wait, out),
            Command::RemLockspace { spec, asynchronous, unused } => {
                self.rem_lockspace(conn, &spec, asynchronous, unused, out);
            }
            Command::Acquire { target, owner_name, resources, flags } => {
                self.acquire(now, conn, target, owner_name, resources, flags, out);
            }
            Command::Release { target, what } => self.release(now, conn, target, what, out),
            Command::Convert { target, lockspace, name, shared, owner_nowait } => {
                self.convert(conn, target, (lockspace, name), shared, owner_nowait, out);
            }
            Command::SetLvb { lockspace, name, bytes } => self.set_lvb(conn, (lockspace, name), &bytes, out),
            Command::GetLvb { lockspace, name, length } => self.get_lvb(conn, (lockspace, name), length, out),
            Command::Inquire { target } => self.inquire(conn, target, out),
            Command::Index { lockspace, lease } => self.index(now, conn, lockspace, lease, out),
            Command::Refused { target, acquire, code } => self.refused(conn, target, acquire, code, out),
            Command::SetEvent { lockspace, host_id, event, flags } => {
                self.set_event(now, conn, lockspace, (host_id, event), flags, out);
            }
            Command::RegEvent { lockspace } => self.reg_event(conn, lockspace, out),
            Command::EndEvent { lockspace } => self.end_event(conn, lockspace, out),
            Command::Examine { lockspace, resource } => self.examine_command(conn, &lockspace, resource, out),
            Command::Shutdown { force } => self.shutdown(force, out),
            Command::ShutdownWait { force } => self.shutdown_wait(conn, force, out),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The connections, by id.
    pub fn conns(&self) -> impl Iterator<Item = (ConnId, &Conn)> {
        self.conns.iter().map(|(id, conn)| (*id, conn))
    }

    /// The lockspaces, newest first.
    pub fn lockspaces(&self) -> impl Iterator<Item = (LockspaceId, &Lockspace)> {
        self.lockspaces.iter().rev().map(|(id, ls)| (*id, ls))
    }

    /// The lockspace of this name, joined before being joined or left.
    #[must_use]
    pub fn lockspace_named(&self, name: &sanlock_lease::name::Name) -> Option<(LockspaceId, &Lockspace)> {
        let mut found = self.lockspaces().filter(|(_, ls)| ls.spec.name == *name);
        let first = found.next()?;
        Some(
            std::iter::once(first)
                .chain(found)
                .find(|(_, ls)| ls.list == LockspaceList::Spaces)
                .unwrap_or(first),
        )
    }

    /// The resources, newest first.
    pub fn resources(&self) -> impl Iterator<Item = (ResourceId, &Resource)> {
        self.resources.iter().rev().map(|(id, resource)| (*id, resource))
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the daemon is ending by force.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }
}

fn log(out: &mut Vec<Action>, level: Level, ls: Option<LockspaceId>, text: impl Into<String>) {
    out.push(Action::Log { level, ls, text: text.into() });
}

fn reply(out: &mut Vec<Action>, conn: ConnId, code: i32) {
    out.push(Action::Reply { conn, reply: Reply::Result(code) });
}
