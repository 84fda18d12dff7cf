//! Asking the daemon: what one scrape brings, and what is remembered between scrapes.
//!
//! Only commands that look, each on a connection of its own that the daemon closes, and all of them within one time limit. The daemon
//! answers them from memory: no disk, however dead, delays them. A daemon that is stopped or away costs the limit, or nothing.

use super::page::printable;
use super::renewals::Renewals;
use sanlock_client::wire::counters::{
    COUNTERS_RECORD, Counters, DAMAGED_HOSTS, DEPTHS, LOCKSPACE_COUNTERS_RECORD, number,
};
use sanlock_client::wire::flags::{HostState, ResourceFlags};
use sanlock_client::wire::{Attachment, Host, Name, StateRecord, StateType};
use sanlock_client::{Client, ClientError, state_as_looked_at};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lockspaces that are shown, so that nobody who may join lockspaces can fill a Prometheus. The rest is only counted.
pub(crate) const LOCKSPACES_MAX: usize = 256;

/// Steps of a scrape that can fail, with the word for each.
pub(crate) const STEPS: [&str; 3] = ["status", "hosts", "renewal"];

/// Host states, in the order in which they are counted.
pub(crate) const HOST_STATES: [(HostState, &str); 5] = [
    (HostState::Unknown, "unknown"),
    (HostState::Free, "free"),
    (HostState::Live, "live"),
    (HostState::Fail, "fail"),
    (HostState::Dead, "dead"),
];

/// Lists of leases: the daemon's word, and ours.
pub(crate) const LEASE_LISTS: [(&str, &str); 4] =
    [("held", "held"), ("add", "acquiring"), ("rem", "releasing"), ("orphan", "orphan")];

/// A lockspace and what is in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockspaceView {
    /// Its words, by key.
    pub(crate) record: Option<StateRecord>,
    /// Joined: neither being joined nor being left.
    pub(crate) joined: bool,
    /// Being left, or failed and not given up yet.
    pub(crate) leaving: bool,
    /// By [`HOST_STATES`]; `None` where the daemon does not know yet.
    pub(crate) hosts: Option<[u64; HOST_STATES.len()]>,
    /// Host ids with a damaged record, which are none of `hosts`, or one of an earlier state; `None` where the daemon does not say.
    pub(crate) damaged_hosts: Option<u64>,
    /// By [`LEASE_LISTS`]: exclusive, shared.
    pub(crate) leases: [[u64; 2]; LEASE_LISTS.len()],
    /// `None` where the history cannot be had.
    pub(crate) renewals: Option<Renewals>,
    /// What is between it and the watchdog; `None` where the daemon does not say.
    pub(crate) watch: Option<String>,
}

impl LockspaceView {
    /// A number among its words.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        number(self.record.as_ref()?, key)
    }

    /// A number that may be negative.
    pub(crate) fn signed(&self, key: &str) -> Option<i64> {
        std::str::from_utf8(self.record.as_ref()?.get(key)?).ok()?.parse().ok()
    }
}

/// What one scrape brought.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scrape {
    /// The daemon answered.
    pub(crate) up: bool,
    /// How long it took.
    pub(crate) took: Duration,
    /// The daemon's record.
    pub(crate) daemon: Option<StateRecord>,
    /// Connections: not registered, registered.
    pub(crate) connections: [u64; 2],
    /// Processes that are being stopped.
    pub(crate) killing: u64,
    /// By the name as it is shown, at most [`LOCKSPACES_MAX`].
    pub(crate) lockspaces: BTreeMap<String, LockspaceView>,
    /// Lockspaces that are not shown.
    pub(crate) left_out: u64,
    /// What the daemon counts, if it does.
    pub(crate) counters: Option<Counters>,
    /// Lengths of its queues, by [`DEPTHS`].
    pub(crate) depths: Vec<(&'static str, u64)>,
    /// Seconds within which the watchdog resets a host.
    pub(crate) fire: u64,
    /// Failures so far, by [`STEPS`].
    pub(crate) errors: [u64; STEPS.len()],
}

/// Asks, and remembers.
#[derive(Debug)]
pub(crate) struct Collector {
    client: Client,
    timeout: Duration,
    errors: [u64; STEPS.len()],
    renewals: BTreeMap<String, Renewals>,
    /// Histories that are there at the first scrape are not counted: a predecessor of this process may have done so.
    skip_history: bool,
}

impl Collector {
    /// `whole_history`: count what the daemon remembers from before.
    pub(crate) fn new(client: Client, timeout: Duration, whole_history: bool) -> Self {
        Self {
            client,
            timeout,
            errors: [0; STEPS.len()],
            renewals: BTreeMap::new(),
            skip_history: !whole_history,
        }
    }

    /// One scrape, and why the daemon did not answer, if so. Takes no longer than the time limit.
    pub(crate) fn scrape(&mut self) -> (Scrape, Option<ClientError>) {
        let began = Instant::now();
        let end = began + self.timeout;
        let mut scrape = Scrape { fire: WatchdogFire::DEFAULT.secs(), ..Scrape::default() };
        let failed = match self.client.until(end).status_with_counters() {
            Ok(records) => {
                scrape.up = true;
                let names = sort(&mut scrape, records);
                self.ask_about_lockspaces(&mut scrape, &names, end);
                self.skip_history = false;
                None
            }
            Err(error) => {
                self.failed(0);
                Some(error)
            }
        };
        scrape.errors = self.errors;
        scrape.took = began.elapsed();
        (scrape, failed)
    }

    fn failed(&mut self, step: usize) {
        if let Some(count) = self.errors.get_mut(step) {
            *count += 1;
        }
    }

    /// The states of hosts, as far as their records have been looked at.
    ///
    /// # Errors
    /// When that cannot be asked: those who are silent may then not have been looked at.
    fn states(&self, lockspace: Name, hosts: &[Host], end: Instant) -> Result<Vec<HostState>, ClientError> {
        let silent = |host: &Host| {
            matches!(HostState::from_flags(host.flags.get()), Some(HostState::Fail | HostState::Dead))
        };
        // Asked only where it matters: in a lockspace of two thousand hosts the answer is long.
        let records = if hosts.iter().any(silent) {
            self.client.until(end).host_status(lockspace)?
        } else {
            Vec::new()
        };
        let state = |host: &Host| {
            let record = records.iter().find(|record| u64::from(record.data32) == host.host_id.get());
            let io_timeout = u16::try_from(host.io_timeout.get()).unwrap_or(u16::MAX);
            let io_timeout = IoTimeout::from_disk(io_timeout, IoTimeout::DEFAULT);
            state_as_looked_at(host, record, io_timeout.renewal_fail_secs())
        };
        Ok(hosts.iter().filter_map(state).collect())
    }

    fn ask_about_lockspaces(&mut self, scrape: &mut Scrape, names: &BTreeMap<String, Name>, end: Instant) {
        self.renewals.retain(|shown, _| names.contains_key(shown));
        for (shown, name) in names {
            let Some(view) = scrape.lockspaces.get_mut(shown) else { continue };
            if !view.joined {
                // What was counted stays for as long as it is there.
                view.renewals = self.renewals.get(shown).filter(|_| view.leaving).cloned();
                continue;
            }
            let hosts = self.client.until(end).get_hosts(*name, 0);
            match hosts.and_then(|hosts| self.states(*name, &hosts, end)) {
                Ok(states) => {
                    let counts =
                        HOST_STATES.map(|(state, _)| states.iter().filter(|s| **s == state).count() as u64);
                    view.hosts = Some(counts);
                }
                // Shortly after the join nothing is known; and it may have been left since it was listed.
                Err(error) if [-11, -2, -28].contains(&error.result_code()) => {}
                Err(_) => self.failed(1),
            }
            match self.client.until(end).renewal(*name) {
                Ok((_, history)) => {
                    let renewals = self.renewals.entry(shown.clone()).or_default();
                    if self.skip_history {
                        renewals.skip(&history);
                    } else {
                        renewals.count(&history);
                    }
                }
                Err(error) if error.result_code() == -28 => {}
                Err(_) => self.failed(2),
            }
            view.renewals = self.renewals.get(shown).cloned();
        }
    }
}

/// Puts the daemon's records where they belong; the names of the lockspaces that are shown.
fn sort(scrape: &mut Scrape, records: Vec<StateRecord>) -> BTreeMap<String, Name> {
    let mut names = BTreeMap::new();
    let mut leases: Vec<(String, usize, bool)> = Vec::new();
    let mut watches: Vec<(String, Option<String>, Option<u64>)> = Vec::new();
    for record in records {
        match record.state_type() {
            Some(StateType::Daemon) => scrape.daemon = Some(record),
            // The first two are the daemon's own.
            Some(StateType::Client) if number(&record, "ci").is_some_and(|ci| ci >= 2) => {
                let registered = record.data32 != u32::MAX;
                scrape.connections[usize::from(registered)] += 1;
                scrape.killing += u64::from(number(&record, "kill_count").is_some_and(|count| count > 0));
            }
            Some(StateType::Lockspace) => {
                let shown = printable(record.name.name_bytes());
                // A name can be left and joined at the same time: the one listed first counts, joined before all others.
                if scrape.lockspaces.contains_key(&shown) {
                    continue;
                }
                if scrape.lockspaces.len() == LOCKSPACES_MAX {
                    scrape.left_out += 1;
                    continue;
                }
                names.insert(shown.clone(), record.name);
                let (joined, leaving) =
                    (record.get("list") == Some(b"spaces"), record.get("list") == Some(b"rem"));
                let view =
                    LockspaceView { record: Some(record), joined, leaving, ..LockspaceView::default() };
                scrape.lockspaces.insert(shown, view);
            }
            Some(StateType::Resource) => {
                if let Attachment::Resource(spec) = &record.attachment {
                    let flags = ResourceFlags::from_bits_truncate(spec.resource().flags.get());
                    let list = record.get("list").unwrap_or_default();
                    let at = LEASE_LISTS.iter().position(|(word, _)| word.as_bytes() == list);
                    let shown = printable(spec.resource().lockspace_name.name_bytes());
                    leases.extend(at.map(|at| (shown, at, flags.contains(ResourceFlags::SHARED))));
                }
            }
            _ if record.kind == COUNTERS_RECORD => {
                scrape.counters = Counters::parse(&record);
                let depth = |name: &&'static str| Some((*name, number(&record, &format!("depth_{name}"))?));
                scrape.depths = DEPTHS.iter().filter_map(depth).collect();
                scrape.fire = number(&record, "watchdog_fire").unwrap_or(scrape.fire);
            }
            _ if record.kind == LOCKSPACE_COUNTERS_RECORD => {
                let shown = printable(record.name.name_bytes());
                watches.push((shown, record.get("watch").map(printable), number(&record, DAMAGED_HOSTS)));
            }
            _ => {}
        }
    }
    for (lockspace, list, shared) in leases {
        let view = scrape.lockspaces.get_mut(&lockspace);
        if let Some(count) = view.and_then(|view| view.leases.get_mut(list)?.get_mut(usize::from(shared))) {
            *count += 1;
        }
    }
    for (lockspace, watch, damaged_hosts) in watches {
        if let Some(view) = scrape.lockspaces.get_mut(&lockspace) {
            view.watch = view.watch.take().or(watch);
            view.damaged_hosts = view.damaged_hosts.or(damaged_hosts);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_client::wire::{
        Command, Disk, Lockspace, Reply, RequestDecoder, Resource, ResourceSpec, StateText,
    };
    use std::io::{Read, Write};

    #[test]
    fn there_are_never_more_lockspaces_than_the_limit() {
        let disk = Disk::new("/d", 0).unwrap();
        let lockspace = |n: usize| {
            let name = Name::truncated(format!("LS{n}"));
            StateRecord::lockspace(Lockspace::new(name, 1, disk), StateText::new().item("list", "spaces"))
        };
        let mut records: Vec<StateRecord> = (0..LOCKSPACES_MAX + 5).map(lockspace).collect();
        records.push(lockspace(0));
        let resource = Resource::new(Name::truncated("LS999"), Name::truncated("R"));
        let spec = ResourceSpec::new(resource, vec![disk]).unwrap();
        records.push(StateRecord::resource(spec, 1, 1, StateText::new().item("list", "held")));
        let mut scrape = Scrape::default();
        let names = sort(&mut scrape, records);
        assert_eq!((names.len(), scrape.lockspaces.len()), (LOCKSPACES_MAX, LOCKSPACES_MAX));
        assert_eq!(scrape.left_out, 5);
    }

    #[test]
    fn silent_hosts_of_which_nobody_says_whether_they_were_looked_at_are_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("sanlock.sock")).unwrap();
        let lockspace = Lockspace::new(Name::truncated("LS"), 1, Disk::new("/d", 0).unwrap());
        let record = StateRecord::lockspace(lockspace, StateText::new().item("list", "spaces"));
        let silent = Host {
            host_id: 2.into(),
            generation: 1.into(),
            timestamp: 100.into(),
            io_timeout: 10.into(),
            flags: (HostState::Dead as u32).into(),
        };
        let answers = std::thread::spawn(move || {
            for _ in 0..4 {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut decoder, mut byte) = (RequestDecoder::new(), [0]);
                let header = loop {
                    stream.read_exact(&mut byte).unwrap();
                    if let Some(request) = decoder.feed(&mut byte.as_slice()).unwrap() {
                        break request.header;
                    }
                };
                let reply = match header.command().unwrap() {
                    Command::Status => Reply::status(&header, vec![record.clone()]),
                    Command::GetHosts => Reply::get_hosts(&header, vec![silent]),
                    Command::Renewal => Reply::renewal(&header, 10, Vec::new()),
                    // It is gone.
                    _ => continue,
                };
                stream.write_all(&reply.encode()).unwrap();
            }
        });
        let mut collector = Collector::new(Client::with_run_dir(dir.path()), Duration::from_secs(60), false);
        let (scrape, _) = collector.scrape();
        answers.join().unwrap();
        assert_eq!(scrape.lockspaces["LS"].hosts, None);
        assert_eq!(scrape.errors, [0, 1, 0]);
    }

    #[test]
    fn a_daemon_that_is_away_is_an_error_of_the_first_step() {
        let mut collector =
            Collector::new(Client::with_run_dir("/nonexistent"), Duration::from_secs(1), false);
        let (first, why) = collector.scrape();
        assert!(!first.up && why.is_some());
        assert_eq!(collector.scrape().0.errors, [2, 0, 0]);
    }

    #[test]
    fn a_daemon_that_does_not_answer_costs_the_time_limit() {
        let dir = tempfile::tempdir().unwrap();
        let _stuck = std::os::unix::net::UnixListener::bind(dir.path().join("sanlock.sock")).unwrap();
        let mut collector =
            Collector::new(Client::with_run_dir(dir.path()), Duration::from_millis(200), false);
        let (scrape, why) = collector.scrape();
        assert!(!scrape.up);
        assert_eq!(why.map(|error| error.result_code()), Some(-libc::ETIMEDOUT));
    }
}
