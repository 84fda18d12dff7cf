//! What is on the screen, and what the keys do to it. Knows neither a terminal nor a clock.

use crate::args::Sort;
use crate::snapshot::{Host, Lease, Lockspace, Snapshot, Stage};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cell::Cell;

/// The lists of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pane {
    Lockspaces,
    Hosts,
    Leases,
}

/// What a key asks of the program around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    Nothing,
    Quit,
    /// Stop like any program at Ctrl-Z.
    Suspend,
    /// Ask the daemon now.
    Refresh,
}

/// Lines that a page key moves.
const PAGE: usize = 10;

/// The screen's state.
#[derive(Debug, Clone)]
pub(crate) struct App {
    /// The last answer of the daemon.
    pub(crate) snapshot: Option<Snapshot>,
    /// When it came, as a date.
    pub(crate) date: String,
    /// Why there was none since.
    pub(crate) away: Option<String>,
    pub(crate) sort: Sort,
    pub(crate) focus: Pane,
    pub(crate) help: bool,
    /// The selected lockspace; by name, so that it stays selected when the order changes.
    selected: Option<String>,
    /// First line shown of hosts and leases; whoever draws keeps it within the list, which may have become shorter.
    pub(crate) hosts_from: usize,
    pub(crate) leases_from: usize,
    /// How many lines of hosts and of leases there was room for when they were drawn last.
    pub(crate) rooms: Cell<[usize; 2]>,
    /// Seconds between questions.
    pub(crate) interval: u32,
}

impl App {
    pub(crate) fn new(selected: Option<String>, sort: Sort, interval: u32) -> Self {
        Self {
            snapshot: None,
            date: String::new(),
            away: None,
            sort,
            focus: Pane::Lockspaces,
            help: false,
            selected,
            hosts_from: 0,
            leases_from: 0,
            rooms: Cell::default(),
            interval,
        }
    }

    /// Takes what the daemon said, or why it did not. A daemon that is away leaves its last answer on the screen.
    pub(crate) fn heard(&mut self, outcome: Result<Snapshot, String>, date: String) {
        match outcome {
            Ok(snapshot) => {
                self.snapshot = Some(snapshot);
                self.date = date;
                self.away = None;
            }
            Err(reason) => self.away = Some(reason),
        }
    }

    /// The lockspaces in the order wanted. `passed`: seconds since the answer.
    pub(crate) fn lockspaces(&self, passed: u64) -> Vec<&Lockspace> {
        let mut all: Vec<&Lockspace> =
            self.snapshot.iter().flat_map(|snapshot| &snapshot.lockspaces).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        match self.sort {
            Sort::Name => {}
            // What has none is neither joined nor in danger.
            Sort::Left => all.sort_by_key(|lockspace| left(lockspace, passed).unwrap_or(u64::MAX)),
            Sort::Latency => all.sort_by_key(|lockspace| std::cmp::Reverse(last_ms(lockspace))),
        }
        all
    }

    /// The selected one, or the first when there is none of that name any more.
    pub(crate) fn current(&self, passed: u64) -> Option<&Lockspace> {
        let all = self.lockspaces(passed);
        all.iter().find(|lockspace| Some(&lockspace.name) == self.selected.as_ref()).or(all.first()).copied()
    }

    /// The hosts of a lockspace.
    pub(crate) fn hosts(lockspace: &Lockspace) -> &[Host] {
        lockspace.hosts.as_deref().unwrap_or_default()
    }

    /// What is held in a lockspace on this host, by name.
    pub(crate) fn leases(&self, lockspace: &str) -> Vec<&Lease> {
        let all = self.snapshot.iter().flat_map(|snapshot| &snapshot.leases);
        let mut leases: Vec<&Lease> = all.filter(|lease| lease.lockspace == lockspace).collect();
        leases.sort_by(|a, b| (&a.resource, a.pid).cmp(&(&b.resource, b.pid)));
        leases
    }

    /// A key was pressed. `passed`: seconds since the answer.
    pub(crate) fn key(&mut self, key: KeyEvent, passed: u64) -> Reaction {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Reaction::Quit,
            KeyCode::Char('z') if control => return Reaction::Suspend,
            KeyCode::Char('q') => return Reaction::Quit,
            _ if self.help => self.help = false,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    Sort::Name => Sort::Left,
                    Sort::Left => Sort::Latency,
                    Sort::Latency => Sort::Name,
                };
            }
            KeyCode::Char('r' | ' ') => return Reaction::Refresh,
            KeyCode::Tab => {
                self.focus = match self.focus {
                    Pane::Lockspaces => Pane::Hosts,
                    Pane::Hosts => Pane::Leases,
                    Pane::Leases => Pane::Lockspaces,
                };
            }
            KeyCode::Up | KeyCode::Char('k') => self.go(|at| at.saturating_sub(1), passed),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at| at.saturating_add(1), passed),
            KeyCode::PageUp => self.go(|at| at.saturating_sub(PAGE), passed),
            KeyCode::PageDown => self.go(|at| at.saturating_add(PAGE), passed),
            KeyCode::Home => self.go(|_| 0, passed),
            KeyCode::End => self.go(|_| usize::MAX, passed),
            _ => {}
        }
        Reaction::Nothing
    }

    /// The first line of a list to be shown, so that its last line is the last one shown at most.
    fn scrolled(from: usize, lines: usize, room: usize, to: impl Fn(usize) -> usize) -> usize {
        let last = lines.saturating_sub(room.max(1));
        to(from.min(last)).min(last)
    }

    /// Moves the selection, or the part that is shown, of the list in focus; never beyond its end.
    fn go(&mut self, to: impl Fn(usize) -> usize, passed: u64) {
        let names: Vec<String> =
            self.lockspaces(passed).iter().map(|lockspace| lockspace.name.clone()).collect();
        let current = self.current(passed).map(|lockspace| lockspace.name.clone());
        let rooms = self.rooms.get();
        let hosts = self.current(passed).map_or(0, |lockspace| Self::hosts(lockspace).len());
        let leases = current.as_deref().map_or(0, |name| self.leases(name).len());
        match self.focus {
            Pane::Lockspaces => {
                let at = names.iter().position(|name| Some(name) == current.as_ref()).unwrap_or(0);
                let new = to(at).min(names.len().saturating_sub(1));
                if new != at {
                    (self.hosts_from, self.leases_from) = (0, 0);
                }
                self.selected = names.get(new).cloned();
            }
            Pane::Hosts => self.hosts_from = Self::scrolled(self.hosts_from, hosts, rooms[0], to),
            Pane::Leases => self.leases_from = Self::scrolled(self.leases_from, leases, rooms[1], to),
        }
    }
}

/// How a lockspace is, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Joining,
    Leaving,
    Good,
    /// A renewal has missed its time.
    Late,
    /// The daemon warns.
    Warning,
    /// Its users are stopped.
    Failed,
}

impl Health {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Leaving => "leaving",
            Self::Good => "ok",
            Self::Late => "late",
            Self::Warning => "WARNING",
            Self::Failed => "FAILED",
        }
    }
}

/// Judges a lockspace by the age of its lease. `passed`: seconds since the daemon said that age.
pub(crate) fn health(lockspace: &Lockspace, passed: u64) -> Health {
    let age = lockspace.age.saturating_add(passed);
    match (lockspace.stage, lockspace.io_timeout) {
        (Stage::Joining, _) => Health::Joining,
        _ if lockspace.failed => Health::Failed,
        // Nobody renews one that is being left.
        (Stage::Joined, Some(t)) if age >= t.renewal_fail_secs() => Health::Failed,
        _ if lockspace.stage == Stage::Leaving || lockspace.ending => Health::Leaving,
        (_, Some(t)) if age >= t.renewal_warn_secs() => Health::Warning,
        // Due at two; one more is what a renewal may take.
        (_, Some(t)) if age > t.renewal_secs() + t.secs() => Health::Late,
        _ => Health::Good,
    }
}

/// Seconds until its users are stopped, if no renewal succeeds.
pub(crate) fn left(lockspace: &Lockspace, passed: u64) -> Option<u64> {
    let timeout = lockspace.io_timeout.filter(|_| lockspace.stage != Stage::Joining)?;
    Some(timeout.renewal_fail_secs().saturating_sub(lockspace.age.saturating_add(passed)))
}

/// Milliseconds of the last renewal's read and write.
pub(crate) fn last_ms(lockspace: &Lockspace) -> u64 {
    lockspace.renewals.last().map_or(0, |last| last.read_ms.saturating_add(last.write_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::timing::IoTimeout;

    #[test]
    fn what_is_removed_has_not_failed() {
        let good = Lockspace { io_timeout: Some(IoTimeout::DEFAULT), age: 5, ..Lockspace::default() };
        let removed = Lockspace { ending: true, ..good.clone() };
        let leaving = Lockspace { stage: Stage::Leaving, age: 300, ..removed.clone() };
        let failed = Lockspace { failed: true, ..leaving.clone() };
        // Whoever does not say that it has failed, but is too old for anything else.
        let silent = Lockspace { age: 80, ..removed.clone() };
        let expected = [
            (good, Health::Good),
            (removed, Health::Leaving),
            (leaving, Health::Leaving),
            (failed, Health::Failed),
            (silent, Health::Failed),
        ];
        for (lockspace, expected) in expected {
            assert_eq!(health(&lockspace, 0), expected, "{lockspace:?}");
        }
    }
}
