//! Any order of events that the calling rules allow.

mod happens;
mod replies;

use super::lab::*;
use crate::side::{SIDE_BY_SIDE, SIDE_BY_SIDE_MAX};
use crate::state::OpKind;
use crate::*;
use proptest::prelude::*;
use sanlock_lease::delta::{Event as HostEvent, JoinError};
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::IoFailure;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOutcome, Mode};
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::{ReleaseOutcome, Released};
use sanlock_lease::paxos::{AcquireError, Held, ReleaseError};
use sanlock_lease::record::{HostBlock, ModeBlock};
use std::collections::{BTreeMap, BTreeSet};

const SPACES: [&str; 2] = ["ls", "two"];
const RESOURCES: [&str; 5] = ["a", "b", "rindex_lease", "two:a", "two:rindex_lease"];

/// Everything around the manager: what it may be told next follows from what it has asked for.
#[derive(Debug)]
struct World {
    m: Manager,
    now: MonoTime,
    next_conn: u64,
    open: BTreeMap<ConnId, Client>,
    /// Closed, not forgotten.
    closed: BTreeMap<ConnId, Client>,
    joining: BTreeSet<LockspaceId>,
    joined: BTreeMap<LockspaceId, u64>,
    gone: BTreeSet<LockspaceId>,
    leaving: BTreeSet<LockspaceId>,
    /// Left with a write to the host_id lease outstanding.
    late: BTreeMap<LockspaceId, Name>,
    /// With the generation, and whether to share.
    acquires: BTreeMap<TaskId, (LockspaceId, u64, bool)>,
    /// And whether the mode stays as it is.
    converts: BTreeMap<TaskId, (Held, bool)>,
    releases: BTreeSet<TaskId>,
    /// Tasks that write a value block first.
    values: BTreeSet<TaskId>,
    /// Resources whose lease may have been given up: their value block is not this host's any more.
    gave_up: BTreeSet<String>,
    unsettled: BTreeSet<TaskId>,
    /// Resource of each task.
    names: BTreeMap<TaskId, String>,
    saves: Vec<(LockspaceId, u64)>,
    /// Who asked for work on an index, and whether with its lease.
    asked: BTreeMap<ConnId, bool>,
    /// Work on indexes under way.
    indexes: BTreeMap<TaskId, Index>,
    dog: Dog,
    looking: BTreeSet<LockspaceId>,
    looked: BTreeMap<LockspaceId, Vec<ResourceId>>,
    generation: u64,
    exited: bool,
    /// Ticks that could have been left out.
    spared: u64,
}

#[derive(Clone, Copy, Debug)]
struct Index {
    ls: LockspaceId,
    conn: ConnId,
    lease: bool,
    answered: bool,
}

/// The watchdog's side.
#[derive(Debug, Default)]
struct Dog {
    used: bool,
    checks: BTreeSet<LockspaceId>,
    arms: BTreeSet<LockspaceId>,
    /// Expiries that wdmd confirmed.
    armed: BTreeSet<LockspaceId>,
    lost: BTreeSet<LockspaceId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    waits: bool,
    /// It hears of events for as long as it stays.
    stream: bool,
    registered: bool,
    pid_gone: bool,
}

impl World {
    fn new(watchdog: bool) -> Self {
        Self {
            m: Lab::with_watchdog(watchdog).m,
            dog: Dog { used: watchdog, ..Dog::default() },
            now: MonoTime::from_secs(100),
            next_conn: 0,
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            joining: BTreeSet::new(),
            joined: BTreeMap::new(),
            gone: BTreeSet::new(),
            leaving: BTreeSet::new(),
            late: BTreeMap::new(),
            acquires: BTreeMap::new(),
            converts: BTreeMap::new(),
            releases: BTreeSet::new(),
            values: BTreeSet::new(),
            gave_up: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            names: BTreeMap::new(),
            saves: Vec::new(),
            asked: BTreeMap::new(),
            indexes: BTreeMap::new(),
            looking: BTreeSet::new(),
            looked: BTreeMap::new(),
            generation: 0,
            exited: false,
            spared: 0,
        }
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        let spare = event == Event::Tick && self.m.quiet_until().is_some_and(|until| self.now < until);
        let before = spare.then(|| format!("{:?}", self.m));
        self.m.handle(self.now, event, &mut out);
        check_invariants(&self.m);
        let mut missed = Vec::new();
        self.m.check_ending(self.now, &mut missed);
        assert_eq!(missed, [], "what a lockspace waited for is noticed with the event that brought it");
        if let Some(before) = before {
            assert_eq!(
                (out.len(), format!("{:?}", self.m)),
                (0, before),
                "a tick that could be left out: {out:?}"
            );
            self.spared += 1;
        }
        self.check_ends();
        for action in out {
            self.take(action);
        }
        for index in self.indexes.values().filter(|index| index.lease) {
            let covered = [&self.dog.armed, &self.dog.lost].iter().any(|set| set.contains(&index.ls));
            let over = !self.joined.contains_key(&index.ls) || self.leaving.contains(&index.ls);
            assert!(!self.dog.used || covered || over, "no watchdog stands behind {index:?}");
        }
        for (_, r) in self.m.resources() {
            let counts = self.m.lockspaces.get(&r.ls).is_some_and(|ls| ls.used_by_orphans);
            // An orphan that is to be released is not written to before the watchdog is armed.
            let untouched = matches!(r.work, Work::Retry { .. }) && r.attempts == 0;
            if untouched || (r.list() == ResourceList::Orphan && !counts) {
                continue;
            }
            let covered = !self.dog.used || self.dog.armed.contains(&r.ls) || self.dog.lost.contains(&r.ls);
            assert!(covered, "no watchdog stands behind {r:?}");
        }
    }

    /// What nobody has to wait for is not waited for: a lease in a failed lockspace, or one that others of its host have too, until there is a turn for
    /// its release; and a process that has given up what it had there, until it has given up everything.
    fn check_ends(&self) {
        let usable = |r: &Resource| self.m.lockspaces.get(&r.ls).is_some_and(Lockspace::usable);
        for op in self.m.ops.values() {
            let OpKind::Release { givings, .. } = &op.kind else { continue };
            for (_, id) in givings.waiting() {
                let waits = self.m.resources.get(&id).is_some_and(|r| usable(r) && r.tokens().len() < 2);
                assert!(waits, "{id:?} waits for its turn in {op:?}");
            }
        }
        for client in self
            .m
            .conns
            .values()
            .filter(|client| client.kill_count > 0 && !client.closed && !client.is_busy())
        {
            let ls = client.held().filter_map(|id| self.m.resources.get(&id)).map(|r| r.ls);
            let dead = ls.filter_map(|ls| self.m.lockspaces.get(&ls)).any(|ls| ls.dead.is_some());
            assert!(dead, "{client:?} is being stopped for nothing");
        }
    }

    fn start(&mut self, task: TaskId, ls: LockspaceId, resource: String) {
        assert!(!self.dog.used || self.dog.armed.contains(&ls), "the watchdog is armed before a write");
        assert!(!self.gone.contains(&ls), "nothing starts in a dead lockspace");
        let busy = self.acquires.keys().chain(self.converts.keys());
        let busy = busy.chain(&self.releases).chain(&self.unsettled);
        for other in busy {
            assert_ne!(self.names[other], resource, "nothing starts while something may still be written");
        }
        self.names.insert(task, resource);
    }

    fn take(&mut self, action: Action) {
        match action {
            Action::Reply { conn, .. } => {
                let client = self.open.get_mut(&conn).or_else(|| self.closed.get_mut(&conn));
                let client = client.expect("answers go to connections that are there");
                assert!(std::mem::take(&mut client.waits), "one answer for each command");
            }
            Action::BecomeStream { conn } => {
                // It waits for ever: a stream sends no commands.
                self.open.get_mut(&conn).expect("only who is there becomes a stream").stream = true;
            }
            Action::LookForRequests { ls, leases } => {
                assert!(self.looking.insert(ls), "one looking at a time");
                self.looked.insert(ls, leases.into_iter().map(|(id, _)| id).collect());
            }
            Action::Forget { conn } => {
                assert!(self.closed.remove(&conn).is_some(), "only a closed connection is forgotten");
            }
            Action::Join { ls, spec, .. } => {
                assert!(
                    self.late.values().all(|late| *late != spec.name),
                    "a write of ours may land on its lease"
                );
                self.joining.insert(ls);
            }
            Action::Gone { ls } => {
                self.gone.insert(ls);
            }
            Action::Leave { ls, release } => {
                assert!(self.leaving.insert(ls), "left once");
                assert!(!self.dog.armed.contains(&ls) && !self.dog.arms.contains(&ls), "disarmed before");
                if release {
                    assert!(
                        self.names
                            .iter()
                            .all(|(task, name)| !self.writes(*task) || !in_space(self, ls, name))
                    );
                    assert!(self.indexes.values().all(|index| index.ls != ls || !index.lease));
                }
            }
            Action::StartConvert { task, ls, config, held, value, .. } => {
                self.start(task, ls, format!("{}:{}", config.lockspace, config.resource));
                assert!(value.is_none() || !held.is_shared(), "only an exclusive holder writes a value");
                self.values.extend(value.map(|_| task));
                self.converts.insert(task, (held, false));
            }
            Action::StartErase { task, ls, config, held, .. } => {
                self.start(task, ls, format!("{}:{}", config.lockspace, config.resource));
                self.converts.insert(task, (held, true));
            }
            Action::StartAcquire { task, ls, config, options, .. } => {
                self.start(task, ls, format!("{}:{}", config.lockspace, config.resource));
                assert_eq!(self.joined[&ls], config.generation);
                let share = options.mode == Mode::ShortHold;
                self.gave_up.remove(&self.names[&task]);
                self.acquires.insert(task, (ls, config.generation, share));
            }
            Action::StartRelease { task, ls, config, value, .. }
            | Action::StartRetract { task, ls, config, value, .. } => {
                let name = format!("{}:{}", config.lockspace, config.resource);
                assert!(value.is_none() || !self.gave_up.contains(&name), "{name} is another host's now");
                self.start(task, ls, name);
                self.values.extend(value.map(|_| task));
                self.releases.insert(task);
            }
            Action::StartIndex { task, conn, ls, member, .. } => {
                let lease = self.asked.remove(&conn).expect("it was asked for");
                assert!(!self.gone.contains(&ls), "nothing starts in a dead lockspace");
                assert_eq!(self.joined[&ls], member.generation);
                assert!(!lease || !self.dog.used || self.dog.armed.contains(&ls), "armed before a write");
                assert!(self.indexes.values().all(|index| index.ls != ls), "one at a time");
                self.indexes.insert(task, Index { ls, conn, lease, answered: false });
            }
            Action::ClientGone { task } => {
                assert!(self.acquires.contains_key(&task) || self.converts.contains_key(&task));
            }
            Action::Kill { conn, pid, .. } => {
                let client = self.open.get(&conn).or_else(|| self.closed.get(&conn)).unwrap();
                assert!(
                    client.registered && !client.pid_gone && pid > 1,
                    "only a living process is signalled"
                );
            }
            Action::RunKillpath { conn, pid, .. } => {
                let (open, closed) = (self.open.get(&conn), self.closed.get(&conn));
                let is_left = open.is_some() || closed.is_some_and(|client| !client.pid_gone);
                let is_registered = open.or(closed).is_some_and(|client| client.registered);
                assert!(is_left && is_registered && pid > 1, "of a process, or what holds its connection");
            }
            Action::SaveRejoin { ls, serial, .. } => self.saves.push((ls, serial)),
            Action::WatchdogCheck { ls, .. } => {
                self.dog.checks.insert(ls);
            }
            Action::WatchdogArm { ls, .. } => {
                assert!(!self.dog.armed.contains(&ls) && self.dog.arms.insert(ls), "armed once");
            }
            Action::WatchdogLive { ls, renewal, expire } => {
                assert!(self.dog.armed.contains(&ls) || self.dog.arms.contains(&ls));
                assert_eq!(expire, renewal + 8);
            }
            Action::WatchdogDisarm { ls } => {
                assert!(self.dog.armed.remove(&ls) | self.dog.arms.remove(&ls), "there is an expiry");
            }
            Action::Exit => {
                assert!(self.dog.armed.is_empty() && self.dog.arms.is_empty(), "nothing is left with wdmd");
                self.exited = true;
            }
            Action::RunOnFail { ls, .. } => {
                assert!(self.gone.contains(&ls), "first nothing is granted any more, then it is told");
            }
            Action::ShuttingDown
            | Action::DropRejoin { .. }
            | Action::Outgoing { .. }
            | Action::Deliver { .. }
            | Action::EndStream { .. }
            | Action::CancelKillpath { .. }
            | Action::Log { .. } => {}
        }
    }

    fn writes(&self, task: TaskId) -> bool {
        self.acquires.contains_key(&task)
            || self.converts.contains_key(&task)
            || self.releases.contains(&task)
            || self.unsettled.contains(&task)
    }

    /// One thing out of everything that may happen now.
    fn step(&mut self, (kind, pick, detail): (u8, usize, u8)) {
        match kind {
            0 => {
                let conn = ConnId(self.next_conn);
                self.next_conn += 1;
                self.open.insert(conn, Client::default());
                let ci = u32::try_from(conn.0).unwrap();
                self.event(Event::ConnOpened { conn, ci });
            }
            1 => {
                let Some(conn) = nth(self.open.keys(), pick) else { return };
                let client = self.open.remove(&conn).unwrap();
                self.closed.insert(conn, client);
                self.event(Event::ConnClosed { conn });
            }
            2 => {
                let living = |(conn, c): (&ConnId, &Client)| (c.registered && !c.pid_gone).then_some(*conn);
                let both: Vec<ConnId> = self.open.iter().chain(&self.closed).filter_map(living).collect();
                let Some(conn) = nth(both.iter(), pick) else { return };
                let client = self.open.get_mut(&conn).or_else(|| self.closed.get_mut(&conn)).unwrap();
                client.pid_gone = true;
                self.event(Event::PidGone { conn });
            }
            3 => {
                let before_late = self.m.quiet_until().map(|until| MonoTime::from_millis(until.millis() - 1));
                self.now = match before_late {
                    // However long it was quiet.
                    Some(late) if detail % 8 == 0 && !self.joined.is_empty() => late.max(self.now),
                    _ => self.now.plus_millis(u64::from(detail) * 20),
                };
                self.event(Event::Tick);
            }
            4 | 5 => self.lockspace(pick, detail),
            6 | 7 => self.task(pick, detail),
            8 if !self.indexes.is_empty() && (self.unsettled.is_empty() || detail % 2 == 0) => {
                self.index(pick, detail);
            }
            8 => {
                let Some(task) = nth(self.unsettled.iter(), pick) else { return };
                self.unsettled.remove(&task);
                self.event(Event::Settled { task });
            }
            9 => {
                if !self.saves.is_empty() {
                    let (ls, serial) = self.saves.remove(0);
                    self.event(Event::RejoinSaved { ls, serial });
                }
            }
            10 | 11 => self.watchdog(pick, detail),
            12 => self.other_hosts(pick, detail),
            _ => self.command(pick, detail),
        }
    }

    /// Four processes and both lockspaces, to begin with.
    fn settle_in(&mut self) {
        for _ in 0..4 {
            self.step((0, 0, 0));
        }
        for conn in 0..4 {
            self.step((13, 25 * conn, 0));
        }
        for detail in [0, 1] {
            self.step((13, 25 * 4 + 2, detail));
            self.step((10, 0, 2));
            self.step((4, 0, 1));
            self.step((9, 0, 0));
        }
        assert_eq!((self.open.values().filter(|c| c.registered).count(), self.joined.len()), (4, 2));
    }

    /// Lets everything that is under way come to its end.
    fn finish(&mut self) {
        for round in 0..2000_u64 {
            if self.exited {
                return;
            }
            self.now = self.now.plus_secs(1);
            self.event(Event::Tick);
            for conn in self.open.keys().copied().collect::<Vec<_>>() {
                self.step((1, 0, 0));
                assert!(!self.open.contains_key(&conn));
            }
            for _ in 0..50 {
                for kind in [2, 4, 6, 8, 9, 10] {
                    self.step((kind, 0, 102));
                }
            }
            if round == 0 {
                // What set_config keeps a lockspace for can be taken back at any time.
                let settings = [Setting::Used(false), Setting::UsedByOrphans(false)];
                let all = SPACES.into_iter().flat_map(|space| settings.map(|setting| (space, setting)));
                for (n, (space, setting)) in all.enumerate() {
                    let conn = ConnId(u64::MAX - 1 - u64::try_from(n).unwrap());
                    self.event(Event::ConnOpened { conn, ci: 0 });
                    self.open.insert(conn, Client { waits: true, ..Client::default() });
                    let (lockspace, setting) = (name(space), Some(setting));
                    self.event(Event::Command { conn, command: Command::SetConfig { lockspace, setting } });
                }
                self.event(Event::ConnOpened { conn: ConnId(u64::MAX), ci: 0 });
                self.event(Event::Command {
                    conn: ConnId(u64::MAX),
                    command: Command::Shutdown { force: true },
                });
            }
        }
        panic!("nothing ends: {self:#?}");
    }
}

fn in_space(world: &World, ls: LockspaceId, resource: &str) -> bool {
    let lockspace = world.m.lockspaces.get(&ls).map(|ls| ls.spec.name.to_string());
    resource.split(':').next().map(str::to_owned) == lockspace
}

fn nth<'a, T: Copy + 'a>(mut items: impl ExactSizeIterator<Item = &'a T>, pick: usize) -> Option<T> {
    let count = items.len();
    if count == 0 { None } else { items.nth(pick % count).copied() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_breaks_an_invariant_and_everything_ends(
        watchdog in any::<bool>(),
        at_a_time in 1..=SIDE_BY_SIDE_MAX,
        steps in prop::collection::vec((0_u8..21, any::<usize>(), any::<u8>()), 1..300)
    ) {
        SIDE_BY_SIDE.set(at_a_time);
        let mut world = World::new(watchdog);
        world.settle_in();
        for step in steps {
            if !world.exited {
                world.step(step);
            }
        }
        world.answer_all();
        world.finish();
        prop_assert!(world.closed.is_empty() || world.exited);
        // The last ones: no lockspace is left.
        prop_assert!(world.spared > 0 || world.exited);
    }
}

/// Whatever else happens, of a healthy lockspace's ticks nearly all can be left out.
#[test]
fn a_healthy_lockspace_is_quiet_between_its_renewals() {
    let mut world = World::new(true);
    world.settle_in();
    world.spared = 0;
    for round in 0..20 {
        let begin = world.now;
        // A tick just before one of the two is late, then both are renewed.
        world.step((3, 0, 0));
        for lockspace in [0, 1] {
            world.step((4, lockspace, 99));
        }
        assert_eq!(world.spared, round + 1);
        // 3T, of which the last second is only begun.
        assert!(round == 0 || world.now.millis_since(begin) >= 2000, "{} ms", world.now.millis_since(begin));
    }
}
