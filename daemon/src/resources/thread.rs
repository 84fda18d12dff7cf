//! A thread for leases: opens their disks, runs their machines, reports their ends.
//!
//! A task that waits, for a silent owner or for a disk, costs memory and a time. With one operation to wait for the thread makes the
//! call itself, and is relieved if that does not return ([`crate::crew`]); several, and those on storage that is slow, are left to other threads,
//! opens one for each path at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sanlock_blockio::drive::{Driver, Report, RunId, SharedRoom, Spare, monotonic_now};
use sanlock_blockio::{Asker, EngineError};
use sanlock_lease::machine::LockspaceNow;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::{PaxosConvert, PaxosRelease, PaxosTake};
use sanlock_lease::timing::MonoTime;
use sanlock_manager::{Event, TaskId};

use super::load::Load;
use super::opening::{Opening, Openings};
use super::task::{Envs, Outcome, Tag, TaskMachine};
use super::trouble::{Lease, Troubles, Watched};
use super::{Order, Reporter, Task, Work};
use crate::crew::{Duty, Station, Style, Turn};
use crate::global::Global;
use crate::mailbox::{self, Mailbox};
use crate::nap;

/// Stack of the thread. Its machines live on the heap.
const STACK: usize = 256 * 1024;

/// How long a call may keep the thread away: all its tasks wait for it. After one that took half of that the next one is left to
/// another thread.
const AWAY: Duration = Duration::from_millis(10);

/// How long a thread other than the first waits for a task before it ends.
const LINGER_MS: u64 = 10_000;

/// How long a thread stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// As long as the daemon.
    Always,
    /// Until it has had no task for [`LINGER_MS`].
    WhileWanted,
}

/// Starts a thread, which shares this room with the others.
///
/// # Errors
/// No thread or descriptor is to be had.
pub(super) fn start(
    global: &Arc<Global>,
    report: &Reporter,
    troubles: &Arc<Troubles>,
    stay: Stay,
    room: &Arc<SharedRoom>,
) -> io::Result<super::Thread> {
    let (orders, inbox) = mailbox::mailbox()?;
    let load = Arc::new(Load::default());
    let mut driver = Driver::new(global.engine).map_err(|error: EngineError| io::Error::other(error))?;
    driver.defer(AWAY / 2);
    driver.share(Arc::clone(room));
    driver.count_as(Some(Asker::Lease));
    if let Some(huge) = &global.huge {
        driver.use_huge_pages(Arc::clone(huge));
    }
    let duty = Thread {
        driver,
        envs: Envs { global: Arc::clone(global) },
        inbox,
        load: Arc::clone(&load),
        ends: (stay == Stay::WhileWanted).then(|| monotonic_now().plus_millis(LINGER_MS)),
        openings: Openings::default(),
        reports: Vec::new(),
        running: Vec::new(),
        settling: Vec::new(),
        report: Arc::clone(report),
        troubles: Arc::clone(troubles),
    };
    let style = Style::plain("sanlock-resource", STACK, AWAY);
    Station::new()?.start(duty, style)?;
    Ok(super::Thread { orders, load })
}

struct Thread {
    driver: Driver<Watched, Arc<Tag>>,
    envs: Envs,
    inbox: Mailbox<Order>,
    /// Tasks that it was given and that are not over, with all that they wrote.
    load: Arc<Load>,
    /// When it ends if it has none then; `None`: never.
    ends: Option<MonoTime>,
    openings: Openings,
    reports: Vec<Report<Arc<Tag>, Outcome>>,
    /// Tags of tasks that run or open, to reach them by their id.
    running: Vec<Arc<Tag>>,
    /// Finished tasks with writes that may still land.
    settling: Vec<(RunId, TaskId)>,
    report: Reporter,
    troubles: Arc<Troubles>,
}

impl Duty for Thread {
    fn turn(&mut self, fresh: bool, may_leave: bool) -> Turn {
        if !fresh {
            self.wait();
        }
        let now = monotonic_now();
        if self.may_end(now) && self.load.close() {
            return Turn::Over;
        }
        let mut changed = false;
        // Without looking a descriptor stays readable, which the next wait would see.
        let orders = if fresh && self.inbox.len() == 0 { VecDeque::new() } else { self.inbox.take() };
        for order in orders {
            match order {
                Order::Start(task) => self.open(now, *task),
                Order::ClientGone(task) => {
                    for tag in self.running.iter().filter(|tag| tag.task == task) {
                        tag.set_client_gone();
                        changed = true;
                    }
                }
                Order::Changed => changed = true,
            }
        }
        for opened in self.openings.poll(now) {
            self.start(now, opened);
        }
        if changed {
            let is_gone = |tag: &Arc<Tag>| tag.lockspace.state(now) == LockspaceNow::Gone;
            self.driver.withdraw_writes(now, &self.envs, is_gone, &mut self.reports);
            self.driver.tick(now, &self.envs, |_| true, &mut self.reports);
        }
        self.driver.poll(monotonic_now, &self.envs, &mut self.reports);
        let idle = may_leave && self.inbox.len() == 0;
        // Nobody who has got a lease, or goes on having it, waits for its disks to be closed.
        let (held, others): (Vec<_>, _) = std::mem::take(&mut self.reports).into_iter().partition(is_held);
        self.reports = others;
        for report in held {
            self.ended(report);
        }
        // First: whoever hears that a lease is released may want to deactivate its volume.
        // A read that hangs on another disk is no reason to tell before: this thread is relieved of a close that takes long.
        let alone = idle && !self.driver.is_waited_for() && self.openings.is_empty();
        if let Some(close) = self.driver.close(alone) {
            return Turn::Errand(close);
        }
        for report in std::mem::take(&mut self.reports) {
            self.ended(report);
        }
        // What waits to be opened, then what is to be read or written: not both on one errand.
        let open = self.openings.begin(now, idle && self.driver.is_quiet());
        let spare = match may_leave && open.is_none() {
            true if idle && self.openings.is_empty() => Spare::Alone,
            true => Spare::LastResort,
            // With nobody to go on, a call that hangs would hold up the leases on all other disks. They are refused, which harms nobody.
            false => Spare::Nothing,
        };
        let transfer = self.driver.errand(spare);
        open.or(transfer).map_or(Turn::Again, Turn::Errand)
    }

    /// Without tasks nothing is left to do. Reads that have not ended yet keep what they need.
    fn over(self) {}
}

/// Whether what is told leaves a process with the lease.
fn is_held(report: &Report<Arc<Tag>, Outcome>) -> bool {
    match report {
        Report::Done { outcome: Outcome::Take(taken), .. } => {
            matches!(taken.outcome, AcquireOutcome::Acquired(_))
        }
        Report::Done { outcome: Outcome::Convert(_), .. } => true,
        Report::Done { outcome: Outcome::Release(_), .. } | Report::Settled { .. } => false,
    }
}

impl Thread {
    /// Whether it has waited long enough for a task, and nothing is left of those it had: with a read on a disk that is silent it stays, so that what
    /// that disk holds, threads and memory, is bounded by what its lane holds, however often somebody tries again.
    fn may_end(&self, now: MonoTime) -> bool {
        self.ends.is_some_and(|end| end <= now) && self.is_quiet()
    }

    fn is_quiet(&self) -> bool {
        self.driver.is_quiet() && self.openings.is_empty()
    }

    fn wait(&self) {
        let ends = self.ends.filter(|_| self.load.tasks() == Some(0) && self.is_quiet());
        let wake = self.driver.next_wake().into_iter().chain(self.openings.next_deadline()).chain(ends).min();
        // The disk of what has ended has been closed meanwhile.
        let nap = if self.reports.is_empty() { nap::until(wake) } else { PollTimeout::ZERO };
        let mut fds = vec![
            PollFd::new(self.driver.completion_fd(), PollFlags::POLLIN),
            PollFd::new(self.inbox.fd(), PollFlags::POLLIN),
        ];
        fds.extend(self.openings.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // An error changes nothing: everything is looked at in any case.
        let _ = poll(&mut fds, nap);
    }

    fn open(&mut self, now: MonoTime, task: Task) {
        if let Some(huge) = &self.envs.global.huge {
            // While the disks are opened and the first sectors read there is time for it.
            huge.prepare();
        }
        let tag = Arc::new(Tag {
            task: task.id,
            lockspace: Arc::clone(&task.lockspace),
            client_gone: AtomicBool::new(false),
        });
        self.running.push(Arc::clone(&tag));
        let deadline = now.plus_millis(task.config.io_timeout.millis());
        self.openings.add(Opening::new(task, tag, deadline));
    }

    fn start(&mut self, now: MonoTime, opened: Opening) {
        let (id, lease) = (opened.task.id, Lease::of(&opened.task));
        for error in opened.failures() {
            self.troubles.not_open(now, lease, error);
        }
        let areas = match opened.areas() {
            Ok(areas) => areas,
            Err(code) => return self.start_failed(id, code),
        };
        let Opening { task, tag, .. } = opened;
        let machine = match task.work {
            Work::Acquire { options, value } => {
                let retries = self.envs.global.config.sh_retries;
                TaskMachine::Take(Box::new(PaxosTake::new(task.config, options, retries, value)))
            }
            Work::Erase { held } => TaskMachine::Convert(Box::new(PaxosConvert::erase(task.config, *held))),
            Work::Convert { held, value, .. } if !held.is_shared() => {
                TaskMachine::Convert(Box::new(PaxosConvert::to_shared(task.config, *held).with_value(value)))
            }
            Work::Convert { options, held, .. } => {
                TaskMachine::Convert(Box::new(PaxosConvert::to_exclusive(task.config, options, *held)))
            }
            Work::Release { held, value, rename } => {
                let machine = PaxosRelease::new(task.config, *held).with_value(value).renamed(rename);
                TaskMachine::Release(Box::new(machine))
            }
            Work::Retract { geometry, hold, attempt, value, rename } => {
                let machine = PaxosRelease::retract(task.config, geometry).of_hold(hold).of_attempt(attempt);
                let machine = machine.with_value(value).renamed(rename);
                TaskMachine::Release(Box::new(machine))
            }
        };
        let watched = Watched::new(machine, lease, task.disks, Arc::clone(&tag), Arc::clone(&self.troubles));
        if self.driver.start(now, watched, tag, areas, &self.envs, &mut self.reports).is_err() {
            self.start_failed(id, -libc::EAGAIN);
        }
    }

    fn start_failed(&mut self, task: TaskId, code: i32) {
        self.running.retain(|tag| tag.task != task);
        self.is_over();
        (self.report)(Event::StartFailed { task, code });
    }

    fn ended(&mut self, report: Report<Arc<Tag>, Outcome>) {
        match report {
            Report::Done { run, tag, outcome, outstanding } => {
                let task = tag.task;
                self.running.retain(|tag| tag.task != task);
                if outstanding > 0 {
                    self.settling.push((run, task));
                } else {
                    self.is_over();
                }
                (self.report)(match outcome {
                    Outcome::Take(taken) => {
                        Event::AcquireDone { task, outcome: taken.outcome, value: taken.value, outstanding }
                    }
                    Outcome::Convert(outcome) => {
                        Event::ConvertDone { task, outcome: Box::new(outcome), outstanding }
                    }
                    Outcome::Release(outcome) => Event::ReleaseDone { task, outcome, outstanding },
                });
            }
            Report::Settled { run } => {
                if let Some(at) = self.settling.iter().position(|(settling, _)| *settling == run) {
                    let (_, task) = self.settling.swap_remove(at);
                    self.is_over();
                    (self.report)(Event::Settled { task });
                }
            }
        }
    }

    /// A task is over. Before the front hears of it: what it is asked for next may as well be done here.
    fn is_over(&mut self) {
        self.load.done();
        self.ends = self.ends.map(|_| monotonic_now().plus_millis(LINGER_MS));
    }
}
