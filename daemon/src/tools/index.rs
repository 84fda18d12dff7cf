//! Commands on the resource index of a joined lockspace (socket-protocol.md 7.33, lease-algorithms.md 11).
//!
//! Each runs on a thread of its own, because it may outlive its command: what it wrote may still have to land, and the lease of
//! the index to be given back, when the client has long been answered. There are at most as many as lockspaces, since the
//! manager lets one run for each.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sanlock_blockio::drive::{Area, Areas, Driver, EnvSource, Report, monotonic_now};
use sanlock_blockio::{Asker, Disk};
use sanlock_lease::machine::{Env, IoFailure, LockspaceNow};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::{AcquireError, ReleaseError};
use sanlock_lease::rindex::{
    Answer, Entry, LeaseMachine, LeaseOutcome, Member, RindexCommand, RindexConfig, RindexError,
    RindexOperation, Want,
};
use sanlock_lease::timing::{MonoTime, WatchdogFire};
use sanlock_wire::flags::RindexCmdFlags;
use sanlock_wire::header::Header;
use sanlock_wire::types::{Rentry, Rindex};
use sanlock_wire::{Command, Reply, code, name as wire};

use super::Format;
use super::late::{Kind, Late, Place, Spot};
use crate::global::Global;
use crate::lockspace;
use crate::oneshot::{Io, Limits, ToolError, rindex};
use crate::resources::Hosts;

/// Longest sleep: bounds what a lost wake-up could cost, and how late the end of a lockspace is seen.
const NAP_MS: u64 = 500;

/// An index and, behind it, its lease (disk-format.md 8.1).
const OWN_AREAS: u64 = 2;

/// A command on an index.
#[derive(Debug)]
pub(crate) struct IndexJob {
    pub(crate) header: Header,
    pub(crate) index: Box<Rindex>,
    /// Empty where the command has none.
    pub(crate) entry: Rentry,
}

/// As which host it runs.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) lockspace: Arc<lockspace::Shared>,
    pub(crate) member: Member,
    pub(crate) fire: WatchdogFire,
}

/// What a running command reports.
#[derive(Debug)]
pub(crate) enum IndexReport {
    /// The reply; something is still to be seen to.
    Settling(Reply),
    /// The reply, unless it was given before. Nothing is left to be done.
    Done(Option<Reply>),
}

impl IndexJob {
    pub(crate) fn new(header: Header, index: Box<Rindex>, entry: Option<Rentry>) -> Self {
        Self { header, index, entry: entry.unwrap_or_else(|| Rentry::new(wire::Name::EMPTY, 0)) }
    }

    /// Whether it takes the lease of the index.
    pub(crate) fn takes_lease(&self) -> bool {
        self.header.command() != Some(Command::LookupRindex)
    }

    /// Whether it does without the lockspace. A resource is created and deleted by a member only, whatever the flag says.
    pub(crate) fn without_lockspace(&self) -> bool {
        let flag = RindexCmdFlags::from_bits_truncate(self.header.cmd_flags);
        match self.header.command() {
            Some(Command::FormatRindex) => true,
            Some(Command::CreateResource | Command::DeleteResource) => false,
            _ => flag.contains(RindexCmdFlags::NO_LOCKSPACE),
        }
    }

    /// Where it writes, if it does: in the index and its lease, whose areas have this many bytes if they are known, and in areas behind them.
    pub(super) fn written(&self, bytes: Option<u64>) -> Option<Vec<Spot>> {
        let own = Spot::areas(&self.index.disk, OWN_AREAS, bytes);
        self.takes_lease().then(|| vec![own, Spot::anywhere(self.path())])
    }

    /// What it formats as a whole.
    pub(crate) fn format(&self) -> Option<Format<'_>> {
        let place = Format::new(slice::from_ref(&self.index.disk), self.index.flags.get(), OWN_AREAS);
        (self.header.command() == Some(Command::FormatRindex)).then_some(place)
    }

    fn path(&self) -> Vec<u8> {
        self.index.disk.path.path().map_or_else(|_| Vec::new(), <[u8]>::to_vec)
    }

    fn command(&self) -> Result<RindexCommand, ToolError> {
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let (name, offset) = (Name::from_field(self.entry.name.as_raw()), self.entry.offset.get());
        let flags = RindexCmdFlags::from_bits_truncate(self.header.cmd_flags);
        match self.header.command() {
            Some(Command::CreateResource) => {
                let num_hosts = self.header.data2;
                if num_hosts > i32::MAX.unsigned_abs() {
                    let found = i32::from_ne_bytes(num_hosts.to_ne_bytes());
                    return Err(ToolError::NumHosts { found });
                }
                Ok(RindexCommand::Create { name, num_hosts, seed })
            }
            Some(Command::DeleteResource) => Ok(RindexCommand::Delete { name, offset, seed }),
            Some(Command::LookupRindex) => Ok(rindex::lookup_command(&self.entry)),
            Some(Command::UpdateRindex) => rindex::update_command(&self.entry, flags, seed),
            Some(Command::RebuildRindex) => Ok(RindexCommand::Rebuild { seed }),
            _ => Err(RindexError::Driver.into()),
        }
    }

    /// The reply to it: of two shapes (7.33).
    pub(crate) fn reply(header: &Header, code: i32, entry: Rentry) -> Reply {
        match header.command() {
            Some(Command::FormatRindex | Command::RebuildRindex) => Reply::result(header, code),
            _ => Reply::rindex(header, code, entry),
        }
    }
}

/// Carries a command out that does without the lockspace.
pub(super) fn carry_out(global: &Global, io: &mut Io, job: &IndexJob) -> Reply {
    let flags = RindexCmdFlags::from_bits_truncate(job.header.cmd_flags);
    let (index, entry) = (&job.index, &job.entry);
    let none = rindex::to_wire(Entry::default());
    let done = match job.header.command() {
        Some(Command::FormatRindex) => rindex::format_rindex(io, index).map(|()| none),
        Some(Command::LookupRindex) => rindex::lookup_rindex(io, index, entry),
        Some(Command::UpdateRindex) => rindex::update_rindex(io, index, entry, flags),
        Some(Command::RebuildRindex) => rindex::rebuild_rindex(io, index).map(|()| none),
        _ => Err(RindexError::Driver.into()),
    };
    match done {
        Ok(entry) => IndexJob::reply(&job.header, 0, entry),
        Err(error) => refusal(global, &job.header, &error),
    }
}

/// Carries a command out, on the calling thread, until nothing of it is left.
pub(super) fn run(
    global: &Arc<Global>,
    late: &Arc<Late>,
    job: &IndexJob,
    membership: Membership,
    report: &dyn Fn(IndexReport),
) {
    match Runner::new(global, late, job, membership) {
        Ok(runner) => runner.run(report),
        Err(error) => report(IndexReport::Done(Some(refusal(global, &job.header, &error)))),
    }
}

/// The reply to a command that failed, which is told to the log as well.
fn refusal(global: &Global, header: &Header, error: &ToolError) -> Reply {
    let code = error.code().0;
    let text = format_args!("cmd {}: {error} ({code})", header.cmd);
    match error {
        ToolError::Rindex(RindexError::Acquire(
            AcquireError::Live(_)
            | AcquireError::NotYetDead(_)
            | AcquireError::Owned(_)
            | AcquireError::Other(_)
            | AcquireError::Ballot { .. },
        )) => global.log.debug(text),
        _ => global.log.error(text),
    }
    IndexJob::reply(header, code, rindex::entry_of_failure(error))
}

struct Envs {
    global: Arc<Global>,
    lockspace: Arc<lockspace::Shared>,
}

impl EnvSource<()> for Envs {
    fn with_env<R>(&self, _tag: &(), now: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R {
        let hosts = Hosts(self.lockspace.hosts());
        step(&Env {
            lockspace: self.lockspace.state(monotonic_now().max(now)),
            client_alive: true,
            shutting_down: self.global.shutting_down(),
            hosts: &hosts,
        })
    }
}

struct Runner<'a> {
    global: &'a Arc<Global>,
    late: &'a Arc<Late>,
    /// Where it writes, if it does.
    place: Option<Place>,
    job: &'a IndexJob,
    envs: Envs,
    io: Io,
    disk: Arc<Disk>,
    driver: Driver<LeaseMachine, ()>,
    operation: RindexOperation,
    /// For how long a write of the operation's own may land after it has ended in doubt.
    doubt: Duration,
}

impl<'a> Runner<'a> {
    fn new(
        global: &'a Arc<Global>,
        late: &'a Arc<Late>,
        job: &'a IndexJob,
        membership: Membership,
    ) -> Result<Self, ToolError> {
        let command = job.command();
        let writes = command.as_ref().is_ok_and(RindexCommand::takes_lease);
        let bytes = membership.lockspace.place().map(|(_, geometry)| geometry.align().bytes());
        let spots = job.written(bytes).filter(|_| writes);
        let place = spots.map(|spots| late.enter(Kind::Index, spots)).transpose()?;
        let limits = Limits {
            io_timeout: Duration::from_secs(membership.member.io_timeout.secs()),
            write_init: Duration::from_secs(u64::from(global.config.write_init_io_timeout)),
        };
        let mut io = Io::new(global.engine, limits)?.counted();
        let mut driver = Driver::new(global.engine)?;
        driver.count_as(Some(Asker::Command));
        let disk = io.open_resource(&job.index.disk)?;
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                let error = rindex::index_first(&mut io, &disk, &job.index, error);
                drop(disk);
                io.close();
                return Err(error);
            }
        };
        let config = RindexConfig {
            member: Some(membership.member),
            fire: membership.fire,
            ..rindex::config(&job.index)
        };
        Ok(Self {
            global,
            late,
            place,
            job,
            envs: Envs { global: Arc::clone(global), lockspace: membership.lockspace },
            io,
            disk,
            driver,
            operation: RindexOperation::new(config, command),
            doubt: Duration::from_millis(membership.member.io_timeout.doubt_ms(membership.fire)),
        })
    }

    fn step(&mut self, answer: Answer<'_>) -> Want {
        let now = monotonic_now();
        let operation = &mut self.operation;
        self.envs.with_env(&(), now, |env| operation.step(now, env, answer))
    }

    fn run(mut self, report: &dyn Fn(IndexReport)) {
        let mut answered = false;
        let mut want = self.step(Answer::Start);
        loop {
            // Before the client hears of it and formats something in the way of these writes.
            let settling = (want == Want::Settle)
                .then(|| self.late.begin(Kind::IndexSettling, vec![Spot::anywhere(self.job.path())]));
            if matches!(want, Want::Settle | Want::Pause(_)) && !answered {
                report(IndexReport::Settling(self.reply()));
                answered = true;
            }
            want = match want {
                Want::Done => {
                    let reply = (!answered).then(|| self.reply());
                    // Before the next command on this index is told that it may begin.
                    self.place = None;
                    self.close();
                    return report(IndexReport::Done(reply));
                }
                Want::Acquire { machine, offset } => self.acquire(LeaseMachine::Acquire(machine), offset),
                Want::Release { machine, offset } => self.release(LeaseMachine::Release(machine), offset),
                Want::Settle => {
                    self.settle();
                    drop(settling);
                    self.step(Answer::Settled)
                }
                Want::Pause(until) => {
                    self.pause(until);
                    self.step(Answer::Resumed)
                }
                transfer @ (Want::Read { .. } | Want::Write { .. }) => self.transfer(transfer),
            };
        }
    }

    fn close(self) {
        let Self { io, disk, driver, .. } = self;
        drop((driver, disk));
        io.close();
    }

    fn reply(&self) -> Reply {
        match self.operation.result().unwrap_or(Err(RindexError::Driver)) {
            Ok(entry) => IndexJob::reply(&self.job.header, 0, rindex::to_wire(entry)),
            Err(error) => refusal(self.global, &self.job.header, &error.into()),
        }
    }

    fn transfer(&mut self, want: Want) -> Want {
        let Self { envs, io, disk, operation, .. } = self;
        let step = |answer: Answer<'_>| {
            let now = monotonic_now();
            envs.with_env(&(), now, |env| operation.step(now, env, answer))
        };
        // Rule R10, after the wait for a place, which may take a minute.
        let lockspace = &envs.lockspace;
        let before = lockspace.state(monotonic_now());
        let may_write = || {
            let state = lockspace.state(monotonic_now());
            state == before && state != LockspaceNow::Gone
        };
        rindex::transfer(io, disk, want, may_write, step).unwrap_or_else(|other| other)
    }

    fn acquire(&mut self, machine: LeaseMachine, offset: u64) -> Want {
        let (outcome, outstanding) = match self.drive(machine, offset) {
            Some((LeaseOutcome::Acquire(outcome), outstanding)) => (outcome, outstanding),
            _ => (self.not_started(), 0),
        };
        self.step(Answer::Acquired(outcome, outstanding))
    }

    fn not_started(&self) -> AcquireOutcome {
        let geometry = self.envs.lockspace.place().map(|(_, geometry)| geometry);
        AcquireOutcome::Failed {
            error: AcquireError::Io(IoFailure::Os(libc::EAGAIN)),
            retract: None,
            geometry: geometry.unwrap_or(sanlock_lease::geometry::Geometry::B512_M1),
        }
    }

    fn release(&mut self, machine: LeaseMachine, offset: u64) -> Want {
        let (outcome, outstanding) = match self.drive(machine, offset) {
            Some((LeaseOutcome::Release(outcome), outstanding)) => (outcome, outstanding),
            _ => {
                let result = Err(ReleaseError::Io(IoFailure::Os(libc::EAGAIN)));
                (ReleaseOutcome { result, block_failure: None, value_written: false }, 0)
            }
        };
        if let Err(error) = &outcome.result {
            self.global.log.error(format_args!(
                "cmd {}: giving back the lease of the index: {error}",
                self.job.header.cmd
            ));
        }
        self.step(Answer::Released(outcome, outstanding))
    }

    /// Runs a machine on the lease of the index to its end. `None`: it could not be started.
    fn drive(&mut self, machine: LeaseMachine, offset: u64) -> Option<(LeaseOutcome, u32)> {
        let lease = Area { disk: Ok(Arc::clone(&self.disk)), offset };
        let mut areas = Areas::new().with_resource([lease]);
        if let Some((disk, _)) = self.envs.lockspace.place() {
            let offset = self.envs.lockspace.spec.offset;
            areas = areas.with_lockspace(Area { disk: Ok(disk), offset });
        }
        let mut reports = Vec::new();
        let run = self.driver.start(monotonic_now(), machine, (), areas, &self.envs, &mut reports).ok()?;
        loop {
            for report in reports.drain(..) {
                match report {
                    Report::Done { run: done, outcome, outstanding, .. } if done == run => {
                        return Some((outcome, outstanding));
                    }
                    Report::Done { .. } | Report::Settled { .. } => {}
                }
            }
            self.wait();
            let now = monotonic_now();
            if self.envs.lockspace.state(now) == LockspaceNow::Gone {
                // What waits for a place is not handed over any more.
                self.driver.withdraw_writes(now, &self.envs, |()| true, &mut reports);
            }
            self.driver.poll(monotonic_now, &self.envs, &mut reports);
        }
    }

    fn wait(&self) {
        let wake = self.driver.next_wake().map_or(NAP_MS, |wake| wake.millis_since(monotonic_now()));
        let mut fds = [PollFd::new(self.driver.completion_fd(), PollFlags::POLLIN)];
        // An error changes nothing: everything is looked at in any case.
        let _ = poll(&mut fds, PollTimeout::try_from(wake.min(NAP_MS)).unwrap_or(PollTimeout::ZERO));
    }

    /// Waits until no write may land any more, for as long as that takes: the lease of the index must not be given back before, nor the
    /// host id, which the manager keeps for as long as this runs.
    fn settle(&mut self) {
        let mut reports = Vec::new();
        loop {
            self.driver.poll(monotonic_now, &self.envs, &mut reports);
            reports.clear();
            if self.driver.unsettled() == 0 && self.io.settled(self.doubt) {
                return;
            }
            self.wait();
        }
    }

    fn pause(&self, until: MonoTime) {
        while monotonic_now() < until && self.envs.lockspace.state(monotonic_now()) != LockspaceNow::Gone {
            std::thread::sleep(Duration::from_millis(NAP_MS.min(until.millis_since(monotonic_now()))));
        }
    }
}

/// The reply when no thread is to be had.
pub(super) fn no_thread(job: &IndexJob) -> Reply {
    IndexJob::reply(&job.header, code::ENOMEM, rindex::to_wire(Entry::default()))
}
