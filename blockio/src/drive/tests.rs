mod clock;
mod doubt;
mod errand;
mod huge;
mod memory;
mod paths;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::machine::{
    Action, Content, Env, Input, IoFailure, LockspaceNow, Machine, NoHosts, Op, OpId, Place, Step,
};
use sanlock_lease::record::HostBlock;
use sanlock_lease::timing::MonoTime;

use super::*;
use crate::{
    Access, Completion, Engine, EngineError, EngineKind, IoError, IoErrorKind, IoRequest, Op as Direction,
    Ticket,
};

/// How long a write of these tests is in doubt after an error.
const DOUBT_MS: u64 = 60_000;
const T0: MonoTime = MonoTime::from_secs(100);

struct AlwaysAlive;

impl<T> EnvSource<T> for AlwaysAlive {
    fn with_env<R>(&self, _: &T, _: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R {
        step(&alive())
    }
}

fn alive() -> Env<'static> {
    Env {
        lockspace: LockspaceNow::Alive { generation: 1 },
        client_alive: true,
        shutting_down: false,
        hosts: &NoHosts,
    }
}

/// Does a list of operations one after the other, and notes every input.
struct Script {
    ops: Vec<Op>,
    next: usize,
    /// All of them in one step.
    together: bool,
    wait_first: Option<MonoTime>,
    seen: Vec<String>,
}

impl Machine for Script {
    type Outcome = Vec<String>;

    fn step(&mut self, _: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<Vec<String>> {
        let note = |result: Result<&dyn sanlock_lease::machine::Sectors, IoFailure>| match result {
            Ok(view) => format!("ok {:?}", view.next_in_use(0)),
            Err(e) => format!("{e:?}"),
        };
        match input {
            Input::Start => {}
            Input::Completed { op, result } => self.seen.push(format!("{}: {}", op.0, note(result))),
            Input::TimedOut { op } => self.seen.push(format!("{}: timed out", op.0)),
            Input::Doubtful { op, failure } => self.seen.push(format!("{}: in doubt, {failure:?}", op.0)),
            Input::CompletedLate { op, result } => {
                self.seen.push(format!("{}: late {}", op.0, note(result)));
                return Step::Pending;
            }
            Input::Tick => self.seen.push("tick".to_owned()),
        }
        if let Some(until) = self.wait_first.take() {
            return Step::Wait(until);
        }
        match self.ops.get(self.next) {
            Some(_) if self.together => {
                self.next = self.ops.len();
                Step::Io(self.ops.iter().cloned().collect())
            }
            None if self.together && self.seen.len() < self.ops.len() => Step::Pending,
            Some(op) => {
                self.next += 1;
                Step::Io(std::iter::once(op.clone()).collect())
            }
            None => Step::Done { outcome: self.seen.clone(), outstanding: 0 },
        }
    }
}

fn script(ops: Vec<Op>) -> Script {
    Script { ops, next: 0, together: false, wait_first: None, seen: Vec::new() }
}

fn together(ops: Vec<Op>) -> Script {
    Script { together: true, ..script(ops) }
}

fn op(id: u32, action: Action, deadline: MonoTime, doubt_ms: u64) -> Op {
    Op { id: OpId(id), place: Place::Resource(0), sector_size: SectorSize::B512, action, deadline, doubt_ms }
}

fn read(id: u32, first: u64, count: u64, deadline: MonoTime) -> Op {
    op(id, Action::Read { first, count }, deadline, 0)
}

fn write(id: u32, sector: u64, deadline: MonoTime) -> Op {
    let mut block = HostBlock::zeroed();
    block.dblock.mbal.set(77);
    op(id, Action::Write { sector, content: Content::Block(block) }, deadline, DOUBT_MS)
}

fn disk(dir: &Path, name: &str) -> Arc<Disk> {
    let path = dir.join(name);
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    Disk::open(&path, Access::ReadWrite).unwrap()
}

fn areas(disk: &Arc<Disk>) -> Areas {
    Areas::new().with_resource([Area { disk: Ok(Arc::clone(disk)), offset: 4096 }])
}

/// Engines that complete only what the test lets go, per path.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<FakeState>>);

#[derive(Default)]
struct FakeState {
    requests: Vec<(u64, Ticket, IoRequest)>,
    /// What the next `reap` of each engine gives.
    ready: HashMap<u64, Vec<Completion>>,
    created: u64,
    dropped: u64,
    next_ticket: u64,
    /// Whether nobody has begun what is requested.
    not_begun: bool,
}

struct FakeEngine {
    number: u64,
    state: Fake,
    fd: EventFd,
    in_flight: usize,
}

impl Fake {
    fn factory(&self) -> EngineFactory {
        let state = self.clone();
        Box::new(move || {
            let mut inner = state.0.lock().unwrap();
            inner.created += 1;
            let fd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
            let engine = FakeEngine { number: inner.created, state: state.clone(), fd, in_flight: 0 };
            Ok(Box::new(engine) as Box<dyn Engine>)
        })
    }

    /// Completes the oldest request of a path.
    fn complete(&self, path: &Path) {
        self.end(path, Ok(()));
    }

    /// The same, with this result.
    fn end(&self, path: &Path, result: Result<(), IoErrorKind>) {
        let mut state = self.0.lock().unwrap();
        let at = state.requests.iter().position(|(_, _, r)| r.disk.path() == path).unwrap();
        let (engine, ticket, request) = state.requests.remove(at);
        let IoRequest { op, disk, offset, len, buf, place: _, of: _, until: _ } = request;
        let result = result.map_err(|kind| IoError { path: disk.shared_path(), op, offset, len, kind });
        let now = Instant::now();
        let done =
            Completion { ticket, op, disk, offset, len, buf, result, submitted_at: now, completed_at: now };
        state.ready.entry(engine).or_default().push(done);
    }

    fn held(&self) -> usize {
        self.0.lock().unwrap().requests.len()
    }
}

impl Engine for FakeEngine {
    fn submit(&mut self, request: IoRequest) -> Ticket {
        let mut state = self.state.0.lock().unwrap();
        state.next_ticket += 1;
        let ticket = Ticket(state.next_ticket);
        state.requests.push((self.number, ticket, request));
        self.in_flight += 1;
        ticket
    }

    fn withdraw(&mut self, ticket: Ticket) -> Option<IoRequest> {
        let mut state = self.state.0.lock().unwrap();
        let at = state.requests.iter().position(|(_, known, _)| *known == ticket && state.not_begun)?;
        self.in_flight -= 1;
        Some(state.requests.remove(at).2)
    }

    fn reap(&mut self, out: &mut Vec<Completion>) -> usize {
        let done = self.state.0.lock().unwrap().ready.remove(&self.number).unwrap_or_default();
        self.in_flight -= done.len();
        let count = done.len();
        out.extend(done);
        count
    }

    fn completion_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn kind(&self) -> EngineKind {
        EngineKind::Aio
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.state.0.lock().unwrap().dropped += 1;
    }
}

type Reports = Vec<Report<u8, Vec<String>>>;

fn done(reports: &mut Reports) -> Vec<(u8, Vec<String>, u32)> {
    reports
        .drain(..)
        .filter_map(|report| match report {
            Report::Done { tag, outcome, outstanding, .. } => Some((tag, outcome, outstanding)),
            Report::Settled { .. } => None,
        })
        .collect()
}

fn engines_here() -> Vec<EngineKind> {
    [EngineKind::IoUring, EngineKind::Aio, EngineKind::Threads]
        .into_iter()
        .filter(|kind| kind.check().is_ok())
        .collect()
}

#[test]
fn a_machine_writes_and_reads_at_its_area_with_every_engine() {
    let dir = tempfile::tempdir().unwrap();
    let engines = engines_here();
    assert!(!engines.is_empty());
    for kind in engines {
        let disk = disk(dir.path(), kind.name());
        let soon = monotonic_now().plus_secs(10);
        let machine = script(vec![write(0, 3, soon), read(1, 2, 4, soon), read(2, 1 << 20, 1, soon)]);
        let finished = run_blocking(kind, machine, areas(&disk), |_| alive()).unwrap();
        assert_eq!(finished.outcome, ["0: ok None", "1: ok Some(3)", "2: Short"]);
        assert_eq!(finished.outstanding, 0);
        let bytes = std::fs::read(disk.path()).unwrap();
        let written: Vec<usize> =
            (0..bytes.len() / 512).filter(|s| bytes[s * 512..][..512].iter().any(|b| *b != 0)).collect();
        assert_eq!(written, [8 + 3], "area at 4096, sector 3");
    }
}

#[test]
fn places_without_a_disk_and_ranges_without_sense_are_failures_of_the_operation() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let soon = monotonic_now().plus_secs(10);
    let closed = Areas::new().with_resource([Area { disk: Err(libc::EACCES), offset: 0 }]);
    let nowhere = Op { place: Place::Lockspace, ..read(1, 0, 1, soon) };
    let machine = script(vec![read(0, 0, 1, soon), nowhere]);
    let finished = run_blocking(engines_here()[0], machine, closed, |_| alive()).unwrap();
    assert_eq!(finished.outcome, ["0: NotOpen(13)", "1: NotOpen(19)"]);
    let machine = script(vec![read(0, 0, 0, soon), read(1, u64::MAX, 1, soon), read(2, 0, 1 << 20, soon)]);
    let finished = run_blocking(engines_here()[0], machine, areas(&disk), |_| alive()).unwrap();
    assert_eq!(finished.outcome, ["0: Os(22)", "1: Os(22)", "2: Os(22)"]);
}

#[test]
fn run_blocking_waits_for_a_machine_that_waits() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let start = Instant::now();
    let mut machine = script(vec![]);
    machine.wait_first = Some(monotonic_now().plus_millis(150));
    let finished = run_blocking(engines_here()[0], machine, areas(&disk), |_| alive()).unwrap();
    assert_eq!(finished.outcome, ["tick"]);
    assert!(start.elapsed() >= Duration::from_millis(140), "{:?}", start.elapsed());
}

#[test]
fn a_write_that_timed_out_is_outstanding_until_it_lands() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    let late = script(vec![write(0, 1, T0.plus_secs(1))]);
    driver.start(T0, late, 7, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    assert_eq!(driver.next_wake(), Some(T0.plus_secs(1)));
    driver.poll(|| T0.plus_millis(999), &AlwaysAlive, &mut reports);
    assert!(reports.is_empty());
    driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(7, vec!["0: timed out".to_owned()], 1)]);
    assert_eq!((driver.running(), driver.unsettled()), (0, 1));

    // An hour later, not before, it has settled; until then nothing is forgotten and the engine stays.
    driver.poll(|| T0.plus_secs(3600), &AlwaysAlive, &mut reports);
    assert!(reports.is_empty() && driver.engines() == 1);
    fake.complete(disk.path());
    driver.poll(|| T0.plus_secs(3601), &AlwaysAlive, &mut reports);
    assert!(matches!(reports[..], [Report::Settled { .. }]), "{reports:?}");
    assert_eq!(driver.unsettled(), 0);
}

/// The read of other hosts must not hold up the renewal beside it, however long it hangs (decision 3): only what one machine waits for may be one
/// call.
#[test]
fn the_engine_is_told_which_operations_are_of_one_machine() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    for tag in [1, 2] {
        let soon = T0.plus_secs(1);
        let machine = together(vec![write(0, 1, soon), read(1, 2, 1, soon)]);
        driver.start(T0, machine, tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    let of: Vec<u64> = fake.0.lock().unwrap().requests.iter().map(|(.., request)| request.of).collect();
    let [a, also_a, b, also_b] = of[..] else { panic!("{of:?}") };
    assert!(a == also_a && b == also_b && a != b, "{of:?}");
}

#[test]
fn what_nobody_has_begun_by_its_deadline_is_taken_back_and_not_outstanding() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    fake.0.lock().unwrap().not_begun = true;
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    let late = script(vec![write(0, 1, T0.plus_secs(1))]);
    driver.start(T0, late, 7, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    driver.poll(|| T0.plus_millis(999), &AlwaysAlive, &mut reports);
    assert!(reports.is_empty() && fake.held() == 1);
    driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(7, vec!["0: TimedOut".to_owned()], 0)]);
    assert_eq!((fake.held(), driver.running(), driver.unsettled()), (0, 0, 0));
}

#[test]
fn what_is_taken_back_gives_its_room_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    for room in [None, Some(Arc::new(SharedRoom::new(2)))] {
        let fake = Fake::default();
        fake.0.lock().unwrap().not_begun = true;
        let mut driver = Driver::with_engines(fake.factory()).unwrap();
        room.iter().for_each(|room| driver.share(Arc::clone(room)));
        let mut reports = Reports::new();
        let mut held = Vec::new();
        for round in 0..3 {
            let deadline = T0.plus_secs(round + 1);
            for _ in 0..OPS_IN_FLIGHT_MAX {
                let machine = script(vec![write(0, 1, deadline)]);
                driver.start(T0, machine, 7, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
            }
            held.push(fake.held());
            driver.poll(|| deadline, &AlwaysAlive, &mut reports);
            assert_eq!((done(&mut reports).len(), fake.held()), (OPS_IN_FLIGHT_MAX, 0));
        }
        assert!(held[0] > 1 && held == [held[0]; 3], "{held:?}");
    }
}

#[test]
fn writes_of_what_is_gone_are_taken_back_wherever_they_wait() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    let later = T0.plus_secs(1);
    // More than the engine takes at a time.
    let tags = 0..u8::try_from(OPS_IN_FLIGHT_MAX + 10).unwrap();
    for tag in tags.clone() {
        let op = if tag % 4 < 2 { write(0, 1, later) } else { read(0, 1, 1, later) };
        driver.start(T0, script(vec![op]), tag, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    }
    let is_gone = |tag: &u8| tag % 2 == 0;
    // What is under way stays; what waits in the engine, or for it, does not.
    let begun = fake.held();
    assert!(begun < tags.len());
    driver.withdraw_writes(T0, &AlwaysAlive, is_gone, &mut reports);
    let waited: Vec<u8> = tags.clone().skip(begun).filter(|tag| tag % 4 == 0).collect();
    let taken = done(&mut reports);
    assert!(taken.iter().all(|(_, seen, outstanding)| seen == &["0: TimedOut"] && *outstanding == 0));
    assert_eq!(taken.iter().map(|(tag, ..)| *tag).collect::<Vec<_>>(), waited);
    fake.0.lock().unwrap().not_begun = true;
    driver.withdraw_writes(T0, &AlwaysAlive, is_gone, &mut reports);
    let mut taken: Vec<u8> = done(&mut reports).iter().map(|(tag, ..)| *tag).collect();
    taken.sort_unstable();
    assert_eq!(taken, tags.clone().take(begun).filter(|tag| tag % 4 == 0).collect::<Vec<_>>());
    assert_eq!(driver.running(), tags.len() - tags.filter(|tag| tag % 4 == 0).count());
}

#[test]
fn a_late_completion_reaches_a_machine_that_still_runs() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    let machine = script(vec![read(0, 0, 1, T0.plus_secs(1)), read(1, 0, 1, T0.plus_secs(9))]);
    driver.start(T0, machine, 0, areas(&disk), &AlwaysAlive, &mut reports).unwrap();
    driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    fake.complete(disk.path());
    driver.poll(|| T0.plus_secs(2), &AlwaysAlive, &mut reports);
    fake.complete(disk.path());
    driver.poll(|| T0.plus_secs(3), &AlwaysAlive, &mut reports);
    let seen = ["0: timed out", "0: late ok None", "1: ok None"].map(str::to_owned).to_vec();
    assert_eq!(done(&mut reports), [(0, seen, 0)]);
}

#[test]
fn a_thousand_waiting_machines_cost_no_engine_and_wake_in_time() {
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    for n in 0..1000 {
        let mut machine = script(vec![]);
        machine.wait_first = Some(T0.plus_secs(1 + n % 10));
        driver.start(T0, machine, 0, Areas::new(), &AlwaysAlive, &mut reports).unwrap();
    }
    for second in 1..=10 {
        assert_eq!(driver.next_wake(), Some(T0.plus_secs(second)));
        driver.poll(|| T0.plus_secs(second), &AlwaysAlive, &mut reports);
        assert_eq!(done(&mut reports).len(), 100);
    }
    assert_eq!((driver.running(), fake.0.lock().unwrap().created), (0, 0));
}

#[test]
fn a_tick_reaches_the_machines_that_are_meant() {
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    for tag in 0..2 {
        let mut machine = script(vec![]);
        machine.wait_first = Some(T0.plus_secs(1000));
        driver.start(T0, machine, tag, Areas::new(), &AlwaysAlive, &mut reports).unwrap();
    }
    driver.tick(T0.plus_secs(1), &AlwaysAlive, |tag| *tag == 1, &mut reports);
    assert_eq!(done(&mut reports), [(1, vec!["tick".to_owned()], 0)]);
    assert_eq!(driver.running(), 1);
}

#[test]
fn a_resident_machine_is_started_again_and_hears_of_late_completions_in_between() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "d");
    let fake = Fake::default();
    let mut driver = Driver::with_engines(fake.factory()).unwrap();
    let mut reports = Reports::new();
    let run = driver.add_resident(script(vec![write(0, 1, T0.plus_secs(1))]), 3, areas(&disk)).unwrap();
    assert_eq!((driver.is_busy(run), driver.next_wake()), (false, None));
    driver.again(run, T0, &AlwaysAlive, &mut reports);
    driver.again(run, T0, &AlwaysAlive, &mut reports);
    assert_eq!(fake.held(), 1, "one attempt at a time");
    driver.poll(|| T0.plus_secs(1), &AlwaysAlive, &mut reports);
    assert_eq!(done(&mut reports), [(3, vec!["0: timed out".to_owned()], 1)]);
    assert_eq!((driver.is_busy(run), driver.next_wake()), (false, None));

    fake.complete(disk.path());
    driver.poll(|| T0.plus_secs(9), &AlwaysAlive, &mut reports);
    assert!(reports.is_empty());
    assert_eq!(driver.machine(run).unwrap().seen[1], "0: late ok None");
    driver.machine_mut(run).unwrap().ops.push(write(1, 1, T0.plus_secs(11)));
    driver.again(run, T0.plus_secs(10), &AlwaysAlive, &mut reports);
    assert!(driver.is_busy(run));

    // Retired in the middle of a write: forgotten only when that has landed.
    assert_eq!(driver.retire(run), 1);
    assert!(driver.machine(run).is_none());
    fake.complete(disk.path());
    driver.poll(|| T0.plus_secs(10), &AlwaysAlive, &mut reports);
    assert!(matches!(reports[..], [Report::Settled { .. }]), "{reports:?}");
}
