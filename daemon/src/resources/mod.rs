//! Every acquire, conversion, release and retract: who opens the disks, runs the machines and reports their ends.
//!
//! A task has a thread of its own as long as there are few of them: that thread makes the calls itself ([`thread`]). With more tasks than
//! threads may be they have several each. One thread is always there, others come when they are wanted and end when they have had
//! nothing to do for a while.

mod load;
mod opening;
mod task;
mod thread;
mod trouble;

use std::io;
use std::sync::Arc;

use sanlock_blockio::drive::SharedRoom;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOptions;
use sanlock_lease::paxos::{Held, PaxosConfig};
use sanlock_lease::record::HostBlock;
use sanlock_lease::text::DiskSpec;
use sanlock_manager::{Event, TaskId};

use crate::global::Global;
use crate::lockspace;
use crate::mailbox::Sender;
use load::Load;
pub(crate) use task::Hosts;
use thread::Stay;
use trouble::Troubles;

/// What to run.
#[derive(Debug)]
pub(crate) enum Work {
    /// Take a resource.
    Acquire {
        options: AcquireOptions,
        /// Whether its value block is read as well.
        value: bool,
    },
    /// Change the mode of one that is held.
    Convert {
        options: AcquireOptions,
        held: Box<Held>,
        /// What is to be in its value block before it is shared.
        value: Option<Arc<[u8]>>,
    },
    /// Take back what an earlier conversion may have left.
    Erase { held: Box<Held> },
    /// Give it back.
    Release {
        held: Box<Held>,
        /// What is to be in its value block before that.
        value: Option<Arc<[u8]>>,
        rename: Option<Name>,
    },
    /// Take back what an acquire or an earlier release may have left.
    Retract {
        geometry: Geometry,
        /// Of a lease that was held, our block as it was then.
        hold: Option<HostBlock>,
        /// Our block as an acquire that failed left it.
        attempt: Option<HostBlock>,
        /// What is to be in its value block before that.
        value: Option<Arc<[u8]>>,
        /// The name that the release was to give.
        rename: Option<Name>,
    },
}

/// A task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) lockspace: Arc<lockspace::Shared>,
    pub(crate) config: PaxosConfig,
    pub(crate) work: Work,
    pub(crate) disks: Vec<DiskSpec>,
}

/// What a thread is told.
#[derive(Debug)]
enum Order {
    /// Run a task.
    Start(Box<Task>),
    /// The client of an acquire is gone.
    ClientGone(TaskId),
    /// A lockspace is gone or the daemon shuts down: machines that wait are to look.
    Changed,
}

/// Threads at most. What a path may have in flight is shared among them, but for one operation of each, which on 4096-byte sectors may be as
/// large as 8 MiB: a disk that is silent keeps that memory.
const THREADS_MAX: usize = 8;

/// Tells the front what became of tasks.
type Reporter = Arc<dyn Fn(Event) + Send + Sync>;

/// The front's side.
pub(crate) struct Resources {
    global: Arc<Global>,
    report: Reporter,
    troubles: Arc<Troubles>,
    /// What a path may have in flight.
    room: Arc<SharedRoom>,
    /// The first one stays.
    threads: Vec<Thread>,
    most: usize,
}

/// A thread, as the front sees it.
struct Thread {
    orders: Sender<Order>,
    load: Arc<Load>,
}

impl Resources {
    /// Starts the first thread.
    ///
    /// # Errors
    /// No thread or descriptor is to be had.
    pub(crate) fn start(
        global: Arc<Global>,
        report: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let report: Reporter = Arc::new(report);
        let most =
            usize::try_from(global.config.max_worker_threads).map_or(THREADS_MAX, |n| n.min(THREADS_MAX));
        let troubles = Arc::new(Troubles::new(global.log.clone()));
        let room = Arc::new(SharedRoom::new(most));
        let first = thread::start(&global, &report, &troubles, Stay::Always, &room)?;
        Ok(Self { global, report, troubles, room, threads: vec![first], most })
    }

    /// Runs a task, on the thread that has least to do, or on a further one.
    pub(crate) fn run(&mut self, task: Box<Task>) {
        loop {
            self.threads.retain(|thread| thread.load.tasks().is_some());
            let idle = self.threads.iter().any(|thread| thread.load.tasks() == Some(0));
            if !idle && self.threads.len() < self.most {
                match thread::start(&self.global, &self.report, &self.troubles, Stay::WhileWanted, &self.room)
                {
                    Ok(thread) => self.threads.push(thread),
                    Err(error) => self.global.log.warn(format_args!("no further thread for leases: {error}")),
                }
            }
            // The first of them, so that others may end.
            let Some(thread) = self.threads.iter().min_by_key(|thread| thread.load.tasks()) else { return };
            if thread.load.add() {
                return thread.orders.send(Order::Start(task));
            }
            // It has ended in between. The first one never does.
        }
    }

    /// The client of an acquire is gone.
    pub(crate) fn client_gone(&self, task: TaskId) {
        self.tell(|| Order::ClientGone(task));
    }

    /// A lockspace is gone or the daemon shuts down.
    pub(crate) fn changed(&self) {
        self.tell(|| Order::Changed);
    }

    /// Closes may wait for a thread that can be had by now: whoever drives disks looks after them. The first one does so without a task, too.
    pub(crate) fn look_after_closes(&self) {
        if let Some(first) = self.threads.first() {
            first.orders.send(Order::Changed);
        }
    }

    /// Tells all who have a task.
    fn tell(&self, order: impl Fn() -> Order) {
        for thread in self.threads.iter().filter(|thread| thread.load.tasks().is_some_and(|tasks| tasks > 0))
        {
            thread.orders.send(order());
        }
    }
}
