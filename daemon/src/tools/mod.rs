//! One-shot commands that read or write a disk: align, write, read (socket-protocol.md 7.12, 7.17 to 7.21, 7.23), and those on a
//! resource index (7.33).
//!
//! What they do is in [`crate::oneshot`]. They run on a few threads, one command each, with a time limit for every transfer and every open. However long they take,
//! the front and the lockspaces know nothing of it.

mod index;
mod late;

pub(crate) use index::{IndexJob, IndexReport, Membership};

use std::collections::VecDeque;
use std::slice;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::timing::IoTimeout;
use sanlock_manager::ConnId;
use sanlock_wire::flags::WriteFlags;
use sanlock_wire::header::Header;
use sanlock_wire::{Name, Reply, code, types};

use crate::global::Global;
use crate::oneshot::{self, Io, Limits, ToolError};
use late::Place;
pub(crate) use late::{AREA_BYTES_MIN, Kind, Late, Spot, in_common};

/// Stack of a tool thread; buffers are on the heap.
const STACK: usize = 128 * 1024;
/// Stack of a thread that works on an index; its machines are on the heap.
const INDEX_STACK: usize = 256 * 1024;
/// Jobs that may wait. More than there are connections: it is reached only by those that clients left behind.
const JOBS_MAX: usize = 2048;
/// How long an idle thread waits for work before it ends.
const IDLE_LINGER: Duration = Duration::from_secs(10);

/// A command to carry out.
#[derive(Debug)]
pub(crate) enum Job {
    /// 7.2, with a host id that no lockspace has.
    BeyondHosts(Box<types::Lockspace>),
    /// 7.12.
    Align(Box<types::Disk>),
    /// 7.17.
    WriteLockspace(Box<types::Lockspace>),
    /// 7.18.
    WriteResource(types::ResourceSpec),
    /// 7.19.
    ReadLockspace(Box<types::Lockspace>),
    /// 7.20.
    ReadResource(types::ResourceSpec),
    /// 7.23.
    ReadResourceOwners(types::ResourceSpec),
    /// 7.33, without a lockspace.
    Index(IndexJob),
}

impl Job {
    /// What it writes, and where; `None`: it only reads.
    fn written(&self) -> Option<(Kind, Vec<Spot>)> {
        match self {
            Self::Index(job) if job.format().is_none() => job.written(None).map(|spots| (Kind::Index, spots)),
            _ => self.format().map(|format| (Kind::Format, format.spots())),
        }
    }

    /// What it formats, if it does.
    pub(crate) fn format(&self) -> Option<Format<'_>> {
        match self {
            Self::WriteLockspace(lockspace) => {
                Some(Format::new(slice::from_ref(&lockspace.host_id_disk), lockspace.flags.get(), 1))
            }
            Self::WriteResource(resource) => {
                Some(Format::new(resource.disks(), resource.resource().flags.get(), 1))
            }
            Self::Index(job) => job.format(),
            Self::BeyondHosts(_)
            | Self::Align(_)
            | Self::ReadLockspace(_)
            | Self::ReadResource(_)
            | Self::ReadResourceOwners(_) => None,
        }
    }
}

/// Areas that are to be formatted.
#[derive(Debug)]
pub(crate) struct Format<'a> {
    disks: &'a [types::Disk],
    align: Option<AlignSize>,
    /// How many there are on each disk.
    areas: u64,
}

impl<'a> Format<'a> {
    /// As many areas at each of these places, of the sizes that the flags say (disk-format.md 2.5).
    pub(crate) fn new(disks: &'a [types::Disk], flags: u32, areas: u64) -> Self {
        Self { disks, align: AlignSize::from_flags(flags), areas }
    }

    /// Where they begin.
    pub(crate) fn disks(&self) -> &'a [types::Disk] {
        self.disks
    }

    /// Bytes that are formatted in one place, where the disk has sectors of this size.
    pub(crate) fn bytes(&self, sector: SectorSize) -> u64 {
        self.areas * self.align.unwrap_or_else(|| Geometry::default_for(sector).align()).bytes()
    }

    fn spots(&self) -> Vec<Spot> {
        let bytes = self.align.map(AlignSize::bytes);
        self.disks.iter().map(|disk| Spot::areas(disk, self.areas, bytes)).collect()
    }
}

/// How long what a job has written may land after it ended in doubt.
fn doubt(global: &Global, header: &Header, job: &Job) -> Duration {
    let ours = global.config.io_timeout;
    let io_timeout = match job {
        Job::WriteLockspace(_) => IoTimeout::new(header.data2).map_or(ours, |asked| asked.max(ours)),
        _ => ours,
    };
    Duration::from_millis(io_timeout.doubt_ms(global.config.fire))
}

/// The reply to a job that was not begun. Where clients wait for a structure behind the header, it follows a refusal too.
pub(crate) fn refused(header: &Header, job: &Job, code: i32) -> Reply {
    match job {
        Job::Index(_) => IndexJob::reply(header, code, types::Rentry::new(Name::EMPTY, 0)),
        Job::ReadLockspace(request) => Reply::read_lockspace(header, code, 0, **request),
        Job::ReadResource(request) => Reply::read_resource(header, code, *request.resource()),
        Job::ReadResourceOwners(request) => {
            Reply::read_resource_owners(header, code, *request.resource(), Vec::new())
        }
        Job::BeyondHosts(_) | Job::Align(_) | Job::WriteLockspace(_) | Job::WriteResource(_) => {
            Reply::result(header, code)
        }
    }
}

fn carry_out(global: &Global, header: &Header, job: &Job, place: Option<Place>) -> Reply {
    let limits = Limits {
        write_init: Duration::from_secs(u64::from(global.config.write_init_io_timeout)),
        ..Limits::default()
    };
    let mut io = match Io::new(global.engine, limits) {
        Ok(io) => io.counted(),
        Err(error) => {
            global.log.error(format_args!("{error}"));
            return refused(header, job, code::EAGAIN);
        }
    };
    if let Some(blocked) = place.as_ref().and_then(Place::blocked) {
        return not_begun(global, header, job, &blocked);
    }
    let failed = |error: ToolError| {
        let code = error.code().0;
        global.log.error(format_args!("cmd {}: {error} ({code})", header.cmd));
        code
    };
    let reply = match job {
        Job::Align(disk) => {
            let bytes = oneshot::align(&io, disk).map(|bytes| i32::try_from(bytes).unwrap_or(code::EINVAL));
            Reply::result(header, bytes.unwrap_or_else(failed))
        }
        Job::BeyondHosts(request) => {
            let looked = oneshot::look_for_lockspace(&mut io, request);
            Reply::result(header, looked.map_or_else(failed, |()| code::SANLK_ADDLS_INVALID_HOSTID))
        }
        Job::WriteLockspace(lockspace) => {
            let done = oneshot::write_lockspace(&mut io, lockspace, header.data2);
            Reply::result(header, done.map_or_else(failed, |()| 0))
        }
        Job::WriteResource(resource) => {
            let flags = WriteFlags::from_bits_truncate(header.cmd_flags);
            let done = oneshot::write_resource(&mut io, resource, header.data, flags);
            Reply::result(header, done.map_or_else(failed, |()| 0))
        }
        Job::ReadLockspace(request) => match oneshot::read_lockspace(&mut io, request) {
            Ok((found, io_timeout)) => Reply::read_lockspace(header, 0, io_timeout, found),
            Err(error) => Reply::read_lockspace(header, failed(error), 0, **request),
        },
        Job::ReadResource(request) => match oneshot::read_resource(&mut io, request) {
            Ok(found) => Reply::read_resource(header, 0, found),
            Err(error) => Reply::read_resource(header, failed(error), *request.resource()),
        },
        Job::Index(job) => index::carry_out(global, &mut io, job),
        Job::ReadResourceOwners(request) => match oneshot::read_resource_owners(&mut io, request) {
            Ok((found, hosts)) => Reply::read_resource_owners(header, 0, found, hosts),
            Err(error) => Reply::read_resource_owners(header, failed(error), *request.resource(), Vec::new()),
        },
    };
    io.close();
    if let Some(place) = place {
        place.keep(io, doubt(global, header, job));
    }
    reply
}

/// The reply to a job that has to wait for what is written in its place.
fn not_begun(global: &Global, header: &Header, job: &Job, blocked: &ToolError) -> Reply {
    global.log.error(format_args!("cmd {}: {blocked} ({})", header.cmd, code::EAGAIN));
    refused(header, job, code::EAGAIN)
}

type Answer = Box<dyn FnOnce(Reply) + Send>;

/// A job that no thread has taken up yet.
struct Waiting {
    /// Whose.
    id: ConnId,
    header: Header,
    job: Job,
    /// Where it writes.
    place: Option<Place>,
    answer: Answer,
}

impl Waiting {
    fn refuse(self, code: i32) {
        (self.answer)(refused(&self.header, &self.job, code));
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Waiting>,
    /// Those that are there or on their way.
    threads: usize,
    /// Those of them that wait for work, or have not come yet.
    idle: usize,
}

/// The threads and their queue. A connection waits for the answer to its job; those of connections that are gone are bounded by [`JOBS_MAX`].
pub(crate) struct Tools {
    shared: Arc<(Mutex<State>, Condvar)>,
    late: Arc<Late>,
    global: Arc<Global>,
    threads_max: usize,
}

impl Tools {
    /// No thread runs until there is work; at most `threads_max` will.
    pub(crate) fn new(global: Arc<Global>, threads_max: usize) -> Self {
        Self { shared: Arc::default(), late: Arc::default(), global, threads_max: threads_max.max(1) }
    }

    /// Who keeps formats from what was written before and may still land.
    pub(crate) fn late(&self) -> Arc<Late> {
        Arc::clone(&self.late)
    }

    /// Queues a job; `answer` is called with its reply, from another thread, or at once if too much waits or is in its way. Waits for nothing.
    pub(crate) fn submit(
        &self,
        id: ConnId,
        header: Header,
        job: Job,
        answer: impl FnOnce(Reply) + Send + 'static,
    ) {
        // From now on nothing is begun with what it is going to format.
        let place = match job.written().map(|(kind, spots)| self.late.enter(kind, spots)).transpose() {
            Ok(place) => place,
            Err(blocked) => return answer(not_begun(&self.global, &header, &job, &blocked)),
        };
        let (state, work) = &*self.shared;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = Waiting { id, header, job, place, answer: Box::new(answer) };
        if state.queue.len() >= JOBS_MAX {
            drop(state);
            self.global.log.error(format_args!("cmd {}: {JOBS_MAX} others wait for storage", header.cmd));
            return waiting.refuse(code::EAGAIN);
        }
        state.queue.push_back(waiting);
        if state.idle >= state.queue.len() || state.threads >= self.threads_max {
            drop(state);
            return work.notify_one();
        }
        // It is counted at once: who comes meanwhile counts on it, too.
        state.threads += 1;
        state.idle += 1;
        drop(state);
        let (shared, global) = (Arc::clone(&self.shared), Arc::clone(&self.global));
        let (unstaffed, log) = (Arc::clone(&self.shared), self.global.log.clone());
        let failed = move |error| {
            log.error(format_args!("no thread for a command: {error}"));
            not_come(&unstaffed);
        };
        self.global.hirer.hire("sanlock-tool", STACK, move || worker(&shared, &global), failed);
    }

    /// The client of a job is gone. One that only reads and has not begun is answered at once instead of carried out: nobody would hear of
    /// it. What is to be written goes on (socket-protocol.md 2.5).
    pub(crate) fn abandon(&self, id: ConnId) {
        let mut state = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reads = |waiting: &Waiting| waiting.id == id && waiting.place.is_none();
        let dropped = state.queue.iter().position(reads).and_then(|at| state.queue.remove(at));
        drop(state);
        if let Some(waiting) = dropped {
            waiting.refuse(code::EAGAIN);
        }
    }

    /// Jobs that no thread has taken up yet.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).queue.len()
    }

    /// Carries out a command on the index of a joined lockspace, on a thread of its own; `report` is called from there.
    pub(crate) fn index(
        &self,
        job: IndexJob,
        membership: Membership,
        report: impl Fn(IndexReport) + Clone + Send + 'static,
    ) {
        let (late, global) = (Arc::clone(&self.late), Arc::clone(&self.global));
        let (told, unable) = (report.clone(), index::no_thread(&job));
        let run = move || index::run(&global, &late, &job, membership, &told);
        let log = self.global.log.clone();
        self.global.hirer.hire("sanlock-index", INDEX_STACK, run, move |error| {
            log.error(format_args!("no thread for a command on a resource index: {error}"));
            report(IndexReport::Done(Some(unable)));
        });
    }
}

/// A thread that was counted has not come, and will not. Others may be there, or on their way; without any there is nobody for what waits.
fn not_come((state, work): &(Mutex<State>, Condvar)) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.threads -= 1;
    state.idle -= 1;
    let left = if state.threads == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
    drop(state);
    work.notify_one();
    for waiting in left {
        waiting.refuse(code::ENOMEM);
    }
}

fn worker(shared: &(Mutex<State>, Condvar), global: &Global) {
    let (state, work) = shared;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        state.idle -= 1;
        while let Some(Waiting { header, job, place, answer, .. }) = state.queue.pop_front() {
            drop(state);
            answer(carry_out(global, &header, &job, place));
            state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        }
        state.idle += 1;
        let waited;
        (state, waited) = work.wait_timeout(state, IDLE_LINGER).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && state.queue.is_empty() {
            state.threads -= 1;
            state.idle -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::tests::global;
    use crate::hirer::tests::{SHORT, gated};
    use crate::lockspace;
    use sanlock_lease::geometry::HostId;
    use sanlock_lease::rindex::Member;
    use sanlock_lease::text::LockspaceSpec;
    use sanlock_lease::timing::WatchdogFire;
    use sanlock_wire::Command;
    use std::sync::mpsc::channel;

    /// Clients read a fixed number of bytes behind the header of these, whatever it says (socket-protocol.md 7.19, 7.20, 7.23).
    #[test]
    fn a_job_that_was_not_begun_is_answered_in_full() {
        let lockspace = types::Lockspace::new(Name::truncated("LS"), 1, types::Disk::EMPTY);
        let resource = types::Resource::new(Name::truncated("LS"), Name::truncated("R"));
        let resource = types::ResourceSpec::new(resource, vec![types::Disk::EMPTY]).unwrap();
        for (command, job, payload) in [
            (Command::AddLockspace, Job::BeyondHosts(Box::new(lockspace)), 0),
            (Command::Align, Job::Align(Box::new(types::Disk::EMPTY)), 0),
            (Command::WriteLockspace, Job::WriteLockspace(Box::new(lockspace)), 0),
            (Command::WriteResource, Job::WriteResource(resource.clone()), 0),
            (Command::ReadLockspace, Job::ReadLockspace(Box::new(lockspace)), 1104),
            (Command::ReadResource, Job::ReadResource(resource.clone()), 128),
            (Command::ReadResourceOwners, Job::ReadResourceOwners(resource), 128),
        ] {
            let reply = refused(&Header::request(command, 0, 0, 0, 0), &job, code::ENOMEM);
            assert_eq!(reply.encode().len(), 32 + payload, "{command:?}");
            assert_eq!(reply.header.data.cast_signed(), code::ENOMEM, "{command:?}");
        }
    }
    #[test]
    fn jobs_wait_for_threads_that_are_long_in_coming_and_are_refused_once_when_none_comes() {
        let (hirer, come) = gated();
        let tools = Tools::new(global(hirer), 2);
        let (told, tells) = channel();
        let submit = |number| {
            let told = told.clone();
            let header = Header::request(Command::Align, 0, 0, 0, 0);
            // It has no path, and cannot be opened.
            tools.submit(ConnId(number), header, Job::Align(Box::new(types::Disk::EMPTY)), move |reply| {
                told.send((number, reply.header.data.cast_signed() == code::ENOMEM)).unwrap();
            });
        };
        for number in 0..3 {
            submit(number);
            assert_eq!(tools.waiting() as u64, number + 1, "this is here, and no thread has come");
        }
        // Of two that were to come one does not.
        come.send(false).unwrap();
        tools.abandon(ConnId(1));
        assert_eq!(tells.recv_timeout(SHORT), Ok((1, false)));
        assert_eq!(tools.waiting(), 2);
        come.send(false).unwrap();
        assert_eq!(tells.recv_timeout(SHORT), Ok((0, true)));
        assert_eq!(tells.recv_timeout(SHORT), Ok((2, true)));
        submit(3);
        come.send(true).unwrap();
        assert_eq!(tells.recv_timeout(SHORT), Ok((3, false)), "it is carried out");
        submit(4);
        assert_eq!(tells.recv_timeout(SHORT), Ok((4, false)), "by the same thread");
        assert!(tells.try_recv().is_err(), "nobody is told twice");
    }

    #[test]
    fn a_command_on_an_index_does_not_wait_for_its_thread_here() {
        let (hirer, come) = gated();
        let tools = Tools::new(global(hirer), 1);
        let (told, tells) = channel();
        let header = Header::request(Command::LookupRindex, 0, 0, 0, 0);
        let index = types::Rindex::new(Name::truncated("LS"), types::Disk::EMPTY);
        let (host, io_timeout, geometry) = (HostId::new(1).unwrap(), IoTimeout::DEFAULT, Geometry::B512_M1);
        let membership = Membership {
            lockspace: lockspace::Shared::new(LockspaceSpec::default(), host, io_timeout),
            member: Member { host, generation: 1, geometry, io_timeout },
            fire: WatchdogFire::DEFAULT,
        };
        let report = move |report| match report {
            IndexReport::Done(Some(reply)) => told.send(reply.header.data.cast_signed()).unwrap(),
            other => panic!("{other:?}"),
        };
        tools.index(IndexJob::new(header, Box::new(index), None), membership, report);
        assert!(tells.try_recv().is_err(), "this is here, and no thread has come");
        come.send(false).unwrap();
        assert_eq!(tells.iter().collect::<Vec<_>>(), [code::ENOMEM]);
    }
}
