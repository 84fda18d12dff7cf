//! Reads and writes that hang on one path, or on hundreds of one file system, leave others what they need, and keep no more than a number
//! of threads and descriptors. A FUSE file whose server is silent, under as many names as a test wants.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sanlock_blockio::drive::{Area, Areas, Driver, EnvSource, Report, monotonic_now};
use sanlock_blockio::{Asker, BlockingIo, CallPlace, Disk, EngineKind, IoErrorKind};
use sanlock_lease::geometry::SectorSize;
use sanlock_lease::machine::{
    Action, Content, Env, Input, IoFailure, LockspaceNow, Machine, NoHosts, Op, OpId, Place, Step,
};
use sanlock_lease::record::HostBlock;
use sanlock_lease::timing::MonoTime;
use support::fuse::{SilentFile, Waiting};
use support::{eventually, file_in, open, promptly, threads_named};

/// A disk that works answers within this.
const HEALTHY: Duration = Duration::from_secs(60);
/// How long a call waits for a silent disk, in milliseconds.
const WAITED_MS: u64 = 300;
/// Leases, each on a path of its own, that all hang.
const PATHS: usize = 150;
/// How often somebody tries to have each.
const TRIES: usize = 8;

/// One test at a time: they count threads and descriptors, and places are there once in a process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The file, opened under other names.
fn disks(dir: &Path, file: &Path, count: usize) -> Vec<Arc<Disk>> {
    let disk = |n| {
        let name = dir.join(format!("name{n}"));
        symlink(file, &name).unwrap();
        open(&name)
    };
    (0..count).map(disk).collect()
}

/// Reads or writes a sector once.
struct Once {
    write: bool,
    deadline: MonoTime,
}

impl Machine for Once {
    type Outcome = Result<(), IoFailure>;

    fn step(&mut self, _: MonoTime, _: &Env<'_>, input: Input<'_>) -> Step<Self::Outcome> {
        let outcome = match input {
            Input::Start => {
                let content = || Content::Block(HostBlock::zeroed());
                let action = match self.write {
                    true => Action::Write { sector: 0, content: content() },
                    false => Action::Read { first: 0, count: 1 },
                };
                let (place, sector_size) = (Place::Resource(0), SectorSize::B512);
                let op = Op { id: OpId(0), place, sector_size, action, deadline: self.deadline, doubt_ms: 0 };
                return Step::Io(std::iter::once(op).collect());
            }
            Input::Completed { result, .. } => result.map(drop),
            Input::TimedOut { .. } => Err(IoFailure::TimedOut),
            Input::Doubtful { failure, .. } => Err(failure),
            Input::CompletedLate { .. } | Input::Tick => return Step::Pending,
        };
        Step::Done { outcome, outstanding: 0 }
    }
}

struct Alive;

impl EnvSource<()> for Alive {
    fn with_env<R>(&self, (): &(), _: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R {
        let lockspace = LockspaceNow::Alive { generation: 1 };
        step(&Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts })
    }
}

struct Team {
    driver: Driver<Once, ()>,
    reports: Vec<Report<(), Result<(), IoFailure>>>,
    /// How machines ended, and the writes that each left behind.
    done: Vec<(Result<(), IoFailure>, u32)>,
}

impl Team {
    fn new(asker: Option<Asker>) -> Self {
        let mut driver = Driver::new(EngineKind::Threads).unwrap();
        driver.count_as(asker);
        Self { driver, reports: Vec::new(), done: Vec::new() }
    }

    fn start(&mut self, disk: &Arc<Disk>, write: bool, wait_ms: u64) {
        let now = monotonic_now();
        let areas = Areas::new().with_resource([Area { disk: Ok(Arc::clone(disk)), offset: 0 }]);
        let machine = Once { write, deadline: now.plus_millis(wait_ms) };
        assert!(self.driver.start(now, machine, (), areas, &Alive, &mut self.reports).is_ok());
    }

    /// Until all are done; how they ended, and how many writes may still land.
    fn finish(&mut self) -> (Vec<Result<(), IoFailure>>, u32) {
        while self.driver.running() > 0 {
            self.turn();
        }
        let outstanding = self.done.iter().map(|(_, outstanding)| outstanding).sum();
        (self.done.drain(..).map(|(outcome, _)| outcome).collect(), outstanding)
    }

    /// Until no write may land any more.
    fn settle(&mut self) {
        let end = Instant::now() + HEALTHY;
        while self.driver.unsettled() > 0 || !self.driver.is_quiet() {
            assert!(Instant::now() < end, "the storage answers");
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = monotonic_now();
        let wake = self.driver.next_wake().map_or(100, |wake| wake.millis_since(now).min(100));
        let mut fds = [PollFd::new(self.driver.completion_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(u16::try_from(wake).unwrap()));
        self.driver.poll(monotonic_now, &Alive, &mut self.reports);
        for report in self.reports.drain(..) {
            if let Report::Done { outcome, outstanding, .. } = report {
                self.done.push((outcome, outstanding));
            }
        }
    }
}

fn answers(asker: Option<Asker>, disk: &Arc<Disk>) {
    promptly(HEALTHY, "a write on another disk", || {
        let mut team = Team::new(asker);
        team.start(disk, true, 60_000);
        assert_eq!(team.finish(), (vec![Ok(())], 0));
    });
}

#[test]
fn hundreds_of_leases_on_silent_storage_hold_a_number_of_threads_and_nobody_else() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let healthy = open(&file_in(dir.path(), "healthy", 1 << 20));
    let silent = disks(dir.path(), &file.path, PATHS);
    file.fall_silent();
    let before = descriptors();
    let mut team = Team::new(Some(Asker::Lease));
    let mut landing = 0;
    for _ in 0..TRIES {
        silent.iter().for_each(|disk| team.start(disk, true, WAITED_MS));
        let (outcomes, outstanding) = team.finish();
        assert_eq!(outcomes, [Err(IoFailure::TimedOut); PATHS]);
        landing += outstanding as usize;
    }
    // Half of the places, and a write that may still land for each; of all others nothing has begun.
    let most = Asker::Lease.calls_max() / 2;
    assert!((PATHS..=most).contains(&landing), "{landing} writes");
    // (One of them is with the server: the kernel lets one write of a file go at a time.)
    let threads = threads_named("sanlock-threads");
    assert!((landing..=most).contains(&threads), "{threads} threads for {landing} writes");
    assert!(descriptors() <= before + PATHS + 20, "{} descriptors more", descriptors() - before);

    // Other disks go on, whoever wants something of them; on this one lockspaces and commands have their own places, and renewals need none.
    for asker in [Some(Asker::Lease), Some(Asker::Lockspace), Some(Asker::Command), None] {
        answers(asker, &healthy);
    }
    for (at, asker) in [Some(Asker::Lockspace), Some(Asker::Command), None].into_iter().enumerate() {
        let mut other = Team::new(asker);
        other.start(&silent[0], false, WAITED_MS);
        eventually("the read has begun", || file.waiting(Waiting::Read) == at + 1);
        drop(other);
    }
    file.resume();
    team.settle();
    eventually("places are given back", || CallPlace::take(Asker::Lease, &silent[0]).is_some());
    answers(Some(Asker::Lease), &silent[PATHS - 1]);
}

#[test]
fn a_path_that_is_silent_again_and_again_leaves_others_of_its_file_system_their_places() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let silent = disks(dir.path(), &file.path, 2);
    file.fall_silent();
    // More drivers than there may be for leases: what one has in flight on a path is bounded.
    let mut teams: Vec<_> = (0..16).map(|_| Team::new(Some(Asker::Lease))).collect();
    for team in &mut teams {
        (0..32).for_each(|_| team.start(&silent[0], false, WAITED_MS));
        team.finish();
    }
    let share = Asker::Lease.calls_max() / 4;
    assert_eq!(file.waiting(Waiting::Read), share);
    let mut other = Team::new(Some(Asker::Lease));
    other.start(&silent[1], false, WAITED_MS);
    eventually("another path begins", || file.waiting(Waiting::Read) == share + 1);
    file.resume();
    teams.iter_mut().for_each(Team::settle);
    assert_eq!(other.finish().0, [Ok(())]);
}

#[test]
fn what_waits_for_a_place_begins_when_there_is_one_and_what_is_not_counted_does_not_wait() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk = open(&file_in(dir.path(), "disk", 1 << 20));
    let taken: Vec<_> = std::iter::from_fn(|| CallPlace::take(Asker::Lockspace, &disk)).collect();
    assert_eq!(taken.len(), Asker::Lockspace.calls_max() / 4);
    let mut team = Team::new(Some(Asker::Lockspace));
    team.start(&disk, true, WAITED_MS);
    assert_eq!(team.finish(), (vec![Err(IoFailure::TimedOut)], 0), "nothing that could land");

    team.start(&disk, true, 60_000);
    team.driver.count_as(None);
    team.start(&disk, true, 60_000);
    while team.done.is_empty() {
        team.turn();
    }
    assert_eq!((team.driver.running(), team.done[0]), (1, (Ok(()), 0)), "the second one");
    drop(taken);
    assert_eq!(team.finish().0, [Ok(()), Ok(())]);
}

#[test]
fn a_command_that_finds_no_place_is_told_so_and_leaves_nothing_behind() {
    let _alone = alone();
    let Some(file) = SilentFile::new() else { return };
    let disk = open(&file.path);
    file.fall_silent();
    let mut ios: Vec<BlockingIo> = Vec::new();
    let end = Instant::now() + HEALTHY;
    loop {
        assert!(Instant::now() < end, "there is always a place left");
        let mut io = BlockingIo::new(EngineKind::Threads).unwrap();
        io.count_as(Asker::Command);
        let error = io.write_all_at(&disk, 0, &[1; 512], Duration::from_millis(10)).unwrap_err();
        if io.outstanding() > 0 {
            assert_eq!(error.kind, IoErrorKind::TimedOut);
            ios.push(io);
            continue;
        }
        assert_eq!((error.kind, error.code()), (IoErrorKind::NeverStarted, -202));
        // On a busy machine a write that has a place ends like this, too, if no thread has come for it in time; and one that a thread had taken
        // may have ended without having begun.
        ios.retain_mut(|io| io.collect_late() > 0);
        if CallPlace::take(Asker::Command, &disk).is_none() {
            break;
        }
    }
    let begun = ios.len();
    assert_eq!(begun, Asker::Command.calls_max() / 4);
    assert!(threads_named("sanlock-threads") >= begun);
    // Engines that are gone hold their places for as long as the storage is silent.
    drop(ios);
    assert!(CallPlace::take(Asker::Command, &disk).is_none());
    file.resume();
    eventually("places are given back", || CallPlace::take(Asker::Command, &disk).is_some());
}
