//! An ageing lockspace and its users: warnings, failure, killing (lease-algorithms.md 10). What is to be done decides
//! [`recovery::decide`]; here it gets its data, and what it demands becomes actions and log lines.
//!
//! Lines that begin with `check_our_lease`, `kill`, `all pids clear` and `killing pids stuck` are worded as in the original: scripts
//! look for them. What explains stands in lines of its own.

use crate::action::Action;
use crate::event::Event;
use crate::ids::{ConnId, LockspaceId, ResourceId};
use crate::state::{Conn, Dead, Lockspace, LockspaceList, RenewalEntry, Work};
use crate::{DRAIN_SECS, LOCKSPACES_MAX, Level, Manager, Watch, killpath, log};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::recovery::{self, Killpath, Means, Reason, Renewals, Restrictions, Signal, User};
use sanlock_lease::timing::{MonoTime, WatchdogFire};
use std::fmt::Write as _;
use std::ops::Bound;

/// RESTRICT_SIGKILL.
const RESTRICT_SIGKILL: u32 = 0x2;
/// RESTRICT_SIGTERM.
const RESTRICT_SIGTERM: u32 = 0x4;
/// What the log calls a killpath program, where it has the number of a signal.
const KILLPATH_NUMBER: u32 = 100;
/// Processes named in one line; the others are counted.
const NAMED_MAX: usize = 8;
/// Renewals whose latencies a notice shows.
const LATENCIES: usize = 4;
/// Users that the lists of a decision have room for from the start: as many as there are slots for clients.
const USERS: usize = 1024;

/// Multiples of the io timeout, since the last renewal, from which one is late; it was to begin after two.
const LATE_AFTER: u64 = 3;

/// Lists that every decision uses again, so that deciding allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    users: Vec<User<ConnId>>,
    actions: Vec<recovery::Action<ConnId>>,
    survey: Survey,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            users: Vec::with_capacity(USERS),
            actions: Vec::with_capacity(recovery::actions_max(USERS)),
            survey: Survey { spaces: Vec::with_capacity(LOCKSPACES_MAX), users: Vec::with_capacity(USERS) },
        }
    }
}

/// Who uses the lockspaces that are at their end: of all of them at once, for together they may have as many users as there are clients,
/// and each of these as many leases as there are.
#[derive(Debug, Default)]
struct Survey {
    /// By id.
    spaces: Vec<(LockspaceId, Use)>,
    /// Who has a lease in which of them: by lockspace, then by connection.
    users: Vec<(LockspaceId, ConnId)>,
}

/// What uses a lockspace besides processes.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// A process holds something in it, or an acquire in it still runs. What is acquired but not granted is nobody's: it is dropped when the
    /// lockspace ends, and its request fails.
    held: bool,
    /// It has orphans.
    orphans: bool,
    /// A task on one of its resources, or on its index, runs or may still write.
    tasks: bool,
}

impl Survey {
    fn place(&self, ls: LockspaceId) -> Option<usize> {
        self.spaces.binary_search_by_key(&ls, |(id, _)| *id).ok()
    }

    fn get_mut(&mut self, ls: LockspaceId) -> Option<&mut Use> {
        let at = self.place(ls)?;
        self.spaces.get_mut(at).map(|(_, used)| used)
    }

    fn get(&self, ls: LockspaceId) -> Option<Use> {
        let at = self.place(ls)?;
        self.spaces.get(at).map(|(_, used)| *used)
    }

    fn users(&self, ls: LockspaceId) -> impl Iterator<Item = ConnId> + '_ {
        let first = self.users.partition_point(|(id, _)| *id < ls);
        self.users.iter().skip(first).take_while(move |(id, _)| *id == ls).map(|(_, conn)| *conn)
    }
}

#[cfg(test)]
thread_local! {
    /// Connections, tokens, resources and tasks that this thread has looked at to see who uses a lockspace, and what is given up.
    pub(crate) static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one of them, for the tests.
pub(crate) fn look() {
    #[cfg(test)]
    LOOKED_AT.with(|count| count.set(count.get() + 1));
}

impl Manager {
    /// Looks at every joined lockspace's age, and does what it demands.
    pub(crate) fn check_lockspaces(&mut self, now: MonoTime, out: &mut Vec<Action>) {
        self.check_some(now, |_, _| true, out);
    }

    /// The same for those that are at their end: any event may have been what it waited for. Whether anything was done.
    pub(crate) fn check_ending(&mut self, now: MonoTime, out: &mut Vec<Action>) -> bool {
        self.check_some(now, |_, ls| ls.remove || ls.dead.is_some(), out)
    }

    /// Whether a lockspace may have waited for this event to end: all but the most frequent of those that say nothing of who uses one. What
    /// comes with time alone comes with a tick.
    pub(crate) fn may_end(&self, event: &Event) -> bool {
        let client = |conn| self.conns.get(conn);
        match event {
            Event::ConnOpened { .. }
            | Event::Renewed { .. }
            | Event::RenewalFailed { .. }
            | Event::RejoinSaved { .. }
            | Event::JobBegun
            | Event::JobDone
            | Event::WatchdogChecked { .. } => false,
            // A plain connection uses nothing.
            Event::ConnClosed { conn } => client(conn).is_some_and(|client| client.pid.is_some()),
            // Somebody else may use an open one.
            Event::PidGone { conn } => client(conn).is_some_and(|client| client.closed),
            _ => true,
        }
    }

    /// The same for one.
    pub(crate) fn check(&mut self, now: MonoTime, ls: LockspaceId, out: &mut Vec<Action>) {
        self.check_some(now, |id, _| id == ls, out);
    }

    fn check_some(
        &mut self,
        now: MonoTime,
        which: impl Fn(LockspaceId, &Lockspace) -> bool,
        out: &mut Vec<Action>,
    ) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let (mut surveyed, mut acted, mut died) = (false, false, false);
        let mut next = Bound::Unbounded;
        while let Some((ls, lockspace)) = self.lockspaces.range((next, Bound::Unbounded)).next() {
            let ls = *ls;
            next = Bound::Excluded(ls);
            if lockspace.list != LockspaceList::Spaces || !which(ls, lockspace) {
                continue;
            }
            if !surveyed && self.is_ending(now, lockspace) {
                self.survey(now, &which, &mut scratch.survey);
                surveyed = true;
            }
            self.decide(now, ls, &mut scratch);
            for action in scratch.actions.drain(..) {
                // Whoever waited for a lockspace that is left may have let go of something in the next one.
                surveyed &= !matches!(action, recovery::Action::StopRenewals);
                died |= matches!(action, recovery::Action::Fail(_));
                acted = true;
                self.carry_out(now, ls, action, out);
            }
        }
        self.scratch = scratch;
        if died {
            self.releases_without_turn(out);
        }
        acted
    }

    /// Whether a joined lockspace is at its end, or is to be now. Who uses it matters only then.
    fn is_ending(&self, now: MonoTime, lockspace: &Lockspace) -> bool {
        let age = lockspace.last_good.map_or(0, |good| now.secs_since(good));
        lockspace.corrupt != 0
            || lockspace.watch == Watch::Lost
            || age >= lockspace.io_timeout.renewal_fail_secs()
            || lockspace.remove
            || lockspace.dead.is_some()
    }

    /// Looks once at everything there is, for all of these lockspaces that are at their end.
    fn survey(&self, now: MonoTime, which: impl Fn(LockspaceId, &Lockspace) -> bool, survey: &mut Survey) {
        let Survey { spaces, users } = survey;
        spaces.clear();
        users.clear();
        let ending = |id: LockspaceId, ls: &Lockspace| {
            ls.list == LockspaceList::Spaces && which(id, ls) && self.is_ending(now, ls)
        };
        spaces.extend(
            self.lockspaces.iter().filter(|(id, ls)| ending(**id, ls)).map(|(id, _)| (*id, Use::default())),
        );
        for resource in self.resources.values() {
            look();
            if let Some(used) = survey.get_mut(resource.ls) {
                used.held |= matches!(resource.work, Work::Acquiring { .. }) || resource.is_granted();
                used.orphans |= resource.is_orphan();
            }
        }
        for ls in self.with_tasks() {
            if let Some(used) = survey.get_mut(ls) {
                used.tasks = true;
            }
        }
        for (conn, client) in &self.conns {
            for resource in client.held().filter_map(|id| self.resources.get(&id)) {
                look();
                let user = (resource.ls, *conn);
                if survey.place(resource.ls).is_some() && survey.users.last() != Some(&user) {
                    survey.users.push(user);
                }
            }
        }
        survey.users.sort_unstable();
        survey.users.dedup();
    }

    /// Whether the users of a lockspace are being stopped, so that ticks have to come five times a second.
    #[must_use]
    pub fn is_killing(&self) -> bool {
        self.lockspaces.values().any(|ls| ls.dead.is_some() && ls.list == LockspaceList::Spaces)
    }

    /// Whether a joined lockspace has gone without a renewal for longer than usual, so that ticks have to come twice a second. While none
    /// has, one second more brings nothing near its end: 3T and a second are less than 8T.
    #[must_use]
    pub fn is_late(&self, now: MonoTime) -> bool {
        self.lockspaces.values().filter_map(late_from).any(|late| now.secs() >= late)
    }

    /// What [`recovery::decide`] says of a joined lockspace. From "stop the renewals" on its thread does the rest.
    fn decide(&mut self, now: MonoTime, ls: LockspaceId, scratch: &mut Scratch) {
        let Scratch { users, actions, survey } = scratch;
        users.clear();
        actions.clear();
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        let ending = self.is_ending(now, lockspace);
        let (mut used, mut writes_outstanding) = (false, false);
        if let Some(found) = survey.get(ls).filter(|_| ending) {
            used = found.held || lockspace.used || (lockspace.used_by_orphans && found.orphans);
            users.extend(survey.users(ls).filter_map(|id| Some(user(id, self.conns.get(&id)?))));
            writes_outstanding = self.awaits_writes(now, ls, used, found.tasks);
        }
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        let lost = lockspace.watch == Watch::Lost;
        let seen = recovery::Lockspace {
            io_timeout: lockspace.io_timeout,
            grace_secs: self.settings.kill_grace_secs,
            hard_from: lockspace.watch_lost.map(|lost| lost.plus_secs(lost_grace_secs(self.settings.fire))),
            last_good: lockspace.last_good.unwrap_or(now),
            corrupt: match lockspace.corrupt {
                0 => lost.then_some(ReturnCode::WD_ERROR),
                code => Some(ReturnCode(code)),
            },
            removal: lockspace.remove,
            // USED counts like a process that cannot be killed, and so do orphans with USED_BY_ORPHANS (9.4).
            held: used,
            writes_outstanding,
            renewals: Renewals::Running,
            progress: lockspace.progress,
        };
        lockspace.progress = recovery::decide(now, &seen, users, actions);
    }

    fn carry_out(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        action: recovery::Action<ConnId>,
        out: &mut Vec<Action>,
    ) {
        match action {
            recovery::Action::Warn { age, .. } => {
                let Some(lockspace) = self.lockspaces.get(&ls) else { return };
                let last = lockspace.last_good.map_or(0, MonoTime::secs);
                let text = format!("check_our_lease warning {age} last_success {last}");
                log(out, Level::Error, Some(ls), text);
            }
            recovery::Action::Notice { percent, left, .. } => {
                let text = self.notice(ls, percent, left);
                log(out, Level::Error, Some(ls), text);
            }
            recovery::Action::Fail(reason) => self.fail(ls, reason, out),
            recovery::Action::Attempt { user, means, hard, attempt } => {
                self.attempt(now, ls, user, (means, hard, attempt), out);
            }
            recovery::Action::Stuck { users } => {
                if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
                    lockspace.killing = 2;
                }
                let text = format!(
                    "killing pids stuck: {users} have had {} signals and still hold leases; a signal every {} s from now on",
                    recovery::KILL_ATTEMPTS_MAX,
                    recovery::KILL_SLOW_SECS
                );
                log(out, Level::Durable, Some(ls), text);
            }
            recovery::Action::StopRenewals => {
                log(out, Level::Warning, Some(ls), "all pids clear");
                self.leave(now, ls, out);
            }
            // Left to the lockspace's thread: for this check the renewals go on for ever.
            recovery::Action::Release | recovery::Action::Remove => {}
        }
    }

    /// The lockspace is dead. Nothing is granted in it any more before anything else is done; then its program is started.
    fn fail(&mut self, ls: LockspaceId, reason: Reason, out: &mut Vec<Action>) {
        let (dead, line, word) = match reason {
            Reason::Corrupt(ReturnCode::WD_ERROR) => (Dead::Failed, None, "watchdog"),
            Reason::Corrupt(code) => {
                (Dead::Failed, Some(format!("check_our_lease corrupt {}", code.0)), "corrupt")
            }
            Reason::Age(age) => (Dead::Failed, Some(format!("check_our_lease failed {age}")), "expired"),
            Reason::Removal => (Dead::Removed, None, "removed"),
        };
        self.mark_dead(ls, dead, out);
        if let Some(lockspace) = self.lockspaces.get(&ls).filter(|_| dead == Dead::Failed) {
            let number = |n: u64| n.to_string().into_bytes();
            let spec = &lockspace.spec;
            let arguments = vec![
                spec.name.as_bytes().to_vec(),
                number(spec.host_id),
                number(lockspace.generation()),
                spec.path.clone(),
                number(spec.offset),
                word.as_bytes().to_vec(),
            ];
            out.push(Action::RunOnFail { ls, lockspace: spec.name, arguments });
        }
        if let Some(line) = line {
            log(out, Level::Durable, Some(ls), line);
        }
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        let text = format!("{}; users to stop: {}", why(lockspace), self.who(ls));
        let level = if dead == Dead::Failed { Level::Durable } else { Level::Warning };
        log(out, level, Some(ls), text);
    }

    fn attempt(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        user: ConnId,
        (means, hard, attempt): (Means, bool, u32),
        out: &mut Vec<Action>,
    ) {
        let reason = self.lockspaces.get(&ls).map(why).unwrap_or_default();
        let Some(client) = self.conns.get_mut(&user) else { return };
        let escalates = client.kill_count == 0 || (hard && !client.kill_hard);
        client.kill_count = client.kill_count.saturating_add(1);
        client.kill_last = Some(now);
        client.kill_hard = hard;
        let pid = client.pid.unwrap_or(0);
        let (number, what) = match means {
            Means::Signal(signal) => {
                out.push(Action::Kill { conn: user, pid, signal });
                match signal {
                    Signal::Term => (15, "SIGTERM"),
                    Signal::Kill => (9, "SIGKILL"),
                }
            }
            Means::Killpath => {
                client.killpath_run = true;
                let Some(program) = &client.killpath else { return };
                let words = killpath::words(program, client.killpath_pid.then_some(pid));
                out.push(Action::RunKillpath { conn: user, pid, request: None, words });
                (KILLPATH_NUMBER, "its killpath program")
            }
            Means::Patience => return,
        };
        let restricted = client.restricted & (RESTRICT_SIGKILL | RESTRICT_SIGTERM);
        log(out, Level::Durable, Some(ls), format!("kill {pid} sig {number} count {attempt}"));
        if escalates {
            let who = process(client, matches!(means, Means::Killpath));
            let stage = if attempt > 1 { ", its time to end gently is over" } else { "" };
            let asked = match restricted {
                RESTRICT_SIGKILL => " (it asked not to get SIGKILL)",
                RESTRICT_SIGTERM => " (it asked not to get SIGTERM)",
                0 => "",
                _ => " (it asked for neither SIGTERM nor SIGKILL, which cannot be)",
            };
            let text = format!("{who} gets {what}{asked}{stage}: {reason}");
            log(out, Level::Durable, Some(ls), text);
        }
    }

    /// What an administrator should know while there is time to do something.
    fn notice(&self, ls: LockspaceId, percent: u8, left: u64) -> String {
        let Some(lockspace) = self.lockspaces.get(&ls) else { return String::new() };
        let mut text = format!(
            "lockspace {}: {percent}% of the time without renewal is used up, its users are stopped in {left} s",
            lockspace.spec.name
        );
        match &lockspace.last_error {
            Some(error) => _ = write!(text, "; last error: {error}"),
            None => text.push_str("; no renewal has failed yet, the last one has not ended"),
        }
        text.push_str("; last renewals, read/write ms:");
        let shown = lockspace.history.len().saturating_sub(LATENCIES);
        for RenewalEntry { read_ms, write_ms, .. } in lockspace.history.iter().skip(shown) {
            let _ = write!(text, " {read_ms}/{write_ms}");
        }
        let _ = write!(text, "; users to stop: {}", self.who(ls));
        text
    }

    /// The processes that use a lockspace, and how each is stopped first.
    fn who(&self, ls: LockspaceId) -> String {
        let mut text = String::new();
        let mut count = 0_usize;
        let removed = self.lockspaces.get(&ls).is_some_and(|ls| ls.dead == Some(Dead::Removed));
        let is_gentle = self.settings.kill_grace_secs > 0 && !removed;
        for client in self.conns.values().filter(|c| self.uses(c, ls)) {
            count += 1;
            if count > NAMED_MAX {
                continue;
            }
            let comma = if count > 1 { ", " } else { "" };
            // What it has not stopped once it is not started for again.
            let in_vain = client.pid_gone && client.killpath_run;
            let by_program = is_gentle && has_program(client) && !in_vain;
            let _ = write!(text, "{comma}{}", process(client, by_program));
            if by_program {
                text.push_str(" by killpath");
            }
        }
        if count > NAMED_MAX {
            let _ = write!(text, " and {} more", count - NAMED_MAX);
        }
        let (used, by_orphans) =
            self.lockspaces.get(&ls).map_or((false, false), |ls| (ls.used, ls.used_by_orphans));
        for (there, what) in [
            (used, "what set_config USED stands for"),
            (by_orphans && self.has_orphans(ls), "what the orphans stand for (set_config USED_BY_ORPHANS)"),
        ] {
            if there {
                text.push_str(if text.is_empty() { "" } else { ", and " });
                text.push_str(what);
            }
        }
        if text.is_empty() { "none".to_owned() } else { text }
    }

    /// Whether a dead lockspace without users is to wait for writes (rule R3): the host_id must not look free before they have
    /// landed. Without a watchdog not for ever: with its host_id unreleased it may go. With one the wait has no end but theirs, or a
    /// reset: as long as renewals go on nobody takes over, and when they stop the watchdog covers the writes.
    fn awaits_writes(&mut self, now: MonoTime, ls: LockspaceId, used: bool, tasks: bool) -> bool {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return false };
        if used || !tasks || lockspace.dead.is_none() {
            return tasks;
        }
        let since = *lockspace.drained_since.get_or_insert(now);
        lockspace.watch != Watch::Off || now.secs_since(since) < DRAIN_SECS
    }

    fn uses(&self, client: &Conn, ls: LockspaceId) -> bool {
        client.held().inspect(|_| look()).any(|id| self.resources.get(&id).is_some_and(|r| r.ls == ls))
    }

    /// The helper could not be told in time to run a killpath: the next attempt is to try again. One for a request is run if the request
    /// still stands.
    pub(crate) fn killpath_lost(&mut self, conn: ConnId, request: Option<ResourceId>, out: &mut Vec<Action>) {
        match request {
            Some(resource) => self.request_untold(conn, resource, out),
            None => {
                if let Some(client) = self.conns.get_mut(&conn) {
                    client.killpath_run = false;
                }
            }
        }
    }
}

/// A user of a lockspace, as decisions see it.
fn user(key: ConnId, client: &Conn) -> User<ConnId> {
    User {
        key,
        connection_open: !client.closed,
        process_alive: !client.pid_gone,
        attempts: client.kill_count,
        last_attempt: client.kill_last,
        hard: client.kill_hard,
        restrictions: restrictions(client),
        killpath: match (has_program(client), client.killpath_run) {
            (false, _) => Killpath::None,
            (true, false) => Killpath::Wanted,
            (true, true) => Killpath::Run,
        },
    }
}

/// Whether a client has a program that may stop it. Not one that is told its pid, once that may be another process's.
fn has_program(client: &Conn) -> bool {
    client.killpath.is_some() && !(client.pid_gone && client.killpath_pid)
}

/// What a client asked not to be sent.
pub(crate) fn restrictions(client: &Conn) -> Restrictions {
    Restrictions {
        kill: client.restricted & RESTRICT_SIGKILL != 0,
        term: client.restricted & RESTRICT_SIGTERM != 0,
    }
}

/// Seconds of gentle killing after the loss of wdmd. The device then fires after the time it was programmed to, which with our
/// wdmd is a quarter to a half of the fire timeout (decision 6).
fn lost_grace_secs(fire: WatchdogFire) -> u64 {
    fire.secs() / 12
}

/// A process as the log names it. `by_program`: its killpath program is about to stop what is left of it.
fn process(client: &Conn, by_program: bool) -> String {
    let pid = client.pid.unwrap_or(0);
    let mut text = match client.owner_name {
        Some(name) if !name.is_empty() => format!("pid {pid} ({name})"),
        _ => format!("pid {pid}"),
    };
    // Nobody knows which: it gets no signal, and only its end, or the watchdog's, ends this.
    if client.pid_gone && !client.closed {
        text.push_str(" (ended; a process that it started holds its connection");
        text.push_str(if by_program { ")" } else { ", and is to be stopped by hand)" });
    }
    text
}

/// Second from which a renewal of this one is late; ages are differences of whole seconds. `None` before the first one.
pub(crate) fn late_from(ls: &Lockspace) -> Option<u64> {
    Some(ls.last_good?.secs() + LATE_AFTER * ls.io_timeout.secs())
}

/// Why a lockspace is at its end.
fn why(lockspace: &Lockspace) -> String {
    let name = lockspace.spec.name;
    let error =
        lockspace.last_error.as_deref().unwrap_or("no renewal has failed, the last one has not ended");
    match (lockspace.dead, lockspace.remove) {
        (Some(Dead::Failed), _) if lockspace.ended => {
            format!("the thread that renewed the host_id lease of {name} has ended")
        }
        (Some(Dead::Failed), _) if lockspace.corrupt != 0 => {
            format!("the host_id lease of {name} is not ours any more, {error}")
        }
        (Some(Dead::Failed), _) if lockspace.watch == Watch::Lost => {
            format!("wdmd was lost, nothing would reset this host in time for {name}")
        }
        (Some(Dead::Failed), _) => {
            let last = lockspace.last_good.map_or(0, MonoTime::secs);
            format!("no renewal of {name} since {last}, {error}")
        }
        (_, true) => format!("{name} is being removed"),
        (Some(Dead::Removed) | None, false) => format!("{name} has ended"),
    }
}
