//! One operation at a time, each with a time limit: for tools that do a few transfers and exit.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::buffer::{AlignedBuf, MAX_IO_LEN};
use crate::calls::{CallPlace, RETRY_MS};
use crate::disk::Disk;
use crate::drive::monotonic_now;
use crate::engine::{Completion, Engine, EngineKind, IoRequest, Ticket};
use crate::error::{EngineError, IoError, IoErrorKind, Op};
use crate::opens::Asker;
use sanlock_sys::heap::MAPPED_FROM;

/// A write begins within this time, or not at all: whoever was allowed to make it may have lost the right later.
const BEGIN_MAX: Duration = Duration::from_secs(5);

/// Synchronous transfers with a deadline over an [`Engine`].
///
/// An operation that times out stays outstanding inside; its late completion is collected by a later call, and of its result only
/// whether it leaves a write in doubt. Dropping never waits (see [`Engine`]).
pub struct BlockingIo {
    engine: Box<dyn Engine>,
    reaped: Vec<Completion>,
    spare: Option<AlignedBuf>,
    /// Of writes that ended in doubt: what lands of them later is what is in here then.
    in_doubt: Vec<AlignedBuf>,
    /// For whom operations are counted.
    asker: Option<Asker>,
    /// As [`BlockingIo::in_doubt_since`].
    in_doubt_since: Option<Instant>,
}

impl BlockingIo {
    /// Creates the façade over an engine of its own.
    ///
    /// # Errors
    /// As [`EngineKind::create`].
    pub fn new(kind: EngineKind) -> Result<Self, EngineError> {
        Ok(Self {
            engine: kind.create()?,
            reaped: Vec::new(),
            spare: None,
            in_doubt: Vec::new(),
            asker: None,
            in_doubt_since: None,
        })
    }

    /// From now on operations are counted among those of this kind of asker, and are not begun without a place among them
    /// ([`CallPlace`]).
    pub fn count_as(&mut self, asker: Asker) {
        self.asker = Some(asker);
    }

    /// Fills `buf` from byte `offset` of `disk`.
    ///
    /// # Errors
    /// [`IoErrorKind::TimedOut`] after `timeout`, the operation then goes on; [`IoErrorKind::NeverStarted`] if there is no place for it
    /// meanwhile, or no thread; [`IoErrorKind::Short`] at the end of the disk;
    /// otherwise the errno: -22 for a misaligned offset or length, an empty or too long `buf` (over [`MAX_IO_LEN`]), or a
    /// zero timeout (lease-algorithms.md 1.5). `buf` is unchanged after an error.
    pub fn read_exact_at(
        &mut self,
        disk: &Arc<Disk>,
        offset: u64,
        buf: &mut [u8],
        timeout: Duration,
    ) -> Result<(), IoError> {
        let aligned = self.buffer(Op::Read, disk, offset, buf.len(), timeout)?;
        let request = IoRequest { len: buf.len(), ..IoRequest::read(Arc::clone(disk), offset, aligned) };
        let done = self.run(request, timeout, || true)?;
        if done.result.is_ok() {
            buf.copy_from_slice(&done.buf[..buf.len()]);
        }
        self.spare = Some(done.buf);
        done.result
    }

    /// Writes all of `data` at byte `offset` of `disk`.
    ///
    /// # Errors
    /// As [`BlockingIo::read_exact_at`]. After [`IoErrorKind::TimedOut`] the write may still reach the disk at any time.
    pub fn write_all_at(
        &mut self,
        disk: &Arc<Disk>,
        offset: u64,
        data: &[u8],
        timeout: Duration,
    ) -> Result<(), IoError> {
        self.write_all_at_while(disk, offset, data, timeout, || true)
    }

    /// The same, unless `may_begin` says no when there is a place for it: that may have been waited for, and whoever asked may have lost the
    /// right to write meanwhile.
    ///
    /// # Errors
    /// As [`BlockingIo::write_all_at`]; [`IoErrorKind::NeverStarted`] if it may not begin.
    pub fn write_all_at_while(
        &mut self,
        disk: &Arc<Disk>,
        offset: u64,
        data: &[u8],
        timeout: Duration,
        may_begin: impl Fn() -> bool,
    ) -> Result<(), IoError> {
        let mut aligned = self.buffer(Op::Write, disk, offset, data.len(), timeout)?;
        aligned[..data.len()].copy_from_slice(data);
        let request = IoRequest { len: data.len(), ..IoRequest::write(Arc::clone(disk), offset, aligned) };
        let done = self.run(request, timeout, may_begin)?;
        let result = done.result.clone();
        self.spare = self.free(done);
        result
    }

    /// The buffer of what has ended, unless it may be written from once more. A large one is the kernel's again then, which keeps the pages that it may
    /// send from; what lies in the heap would be somebody else's.
    fn free(&mut self, done: Completion) -> Option<AlignedBuf> {
        if !is_in_doubt(&done) {
            return Some(done.buf);
        }
        if done.buf.len() < MAPPED_FROM {
            self.in_doubt.push(done.buf);
        }
        None
    }

    /// What is not to be used for anything else as long as writes may be in doubt: for an owner who does not keep this one as long.
    #[must_use]
    pub fn take_in_doubt(&mut self) -> Vec<AlignedBuf> {
        std::mem::take(&mut self.in_doubt)
    }

    /// Operations that timed out and have not completed as far as known.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.engine.in_flight()
    }

    /// Collects and discards late completions; returns how many operations are still outstanding.
    pub fn collect_late(&mut self) -> usize {
        self.reap_but(None);
        self.engine.in_flight()
    }

    /// Whether nothing that was written may land any more: no operation is outstanding, and none that writes was seen to end in doubt
    /// ([`IoFailure::leaves_doubt`](sanlock_lease::machine::IoFailure::leaves_doubt)) for as long as `doubt`.
    pub fn settled(&mut self, doubt: Duration) -> bool {
        self.collect_late() == 0 && self.in_doubt_since.is_none_or(|since| since.elapsed() >= doubt)
    }

    /// When a write was last seen to have ended, late or in time, with an error that leaves open whether it takes effect.
    #[must_use]
    pub fn in_doubt_since(&self) -> Option<Instant> {
        self.in_doubt_since
    }

    /// Every completion comes through here, whoever waits for it.
    fn reap(&mut self) {
        self.engine.reap(&mut self.reaped);
        let in_doubt = |done: &Completion| is_in_doubt(done).then_some(done.completed_at);
        self.in_doubt_since = self.reaped.iter().filter_map(in_doubt).chain(self.in_doubt_since).max();
    }

    fn buffer(
        &mut self,
        op: Op,
        disk: &Disk,
        offset: u64,
        len: usize,
        timeout: Duration,
    ) -> Result<AlignedBuf, IoError> {
        let failed =
            |errno| IoError { path: disk.shared_path(), op, offset, len, kind: IoErrorKind::Os(errno) };
        if !(1..=MAX_IO_LEN).contains(&len) || timeout.is_zero() {
            return Err(failed(libc::EINVAL));
        }
        let spare = self.spare.take().filter(|buf| buf.len() >= len);
        spare.or_else(|| AlignedBuf::try_zeroed(len)).ok_or_else(|| failed(libc::ENOMEM))
    }

    /// A place for an operation, waited for. `Err`: there is none.
    fn place(&mut self, disk: &Disk, timeout: Duration) -> Result<Option<CallPlace>, IoErrorKind> {
        let Some(asker) = self.asker else { return Ok(None) };
        let end = Instant::now() + timeout;
        loop {
            if let Some(place) = CallPlace::take(asker, disk) {
                return Ok(Some(place));
            }
            // What of our own has ended is given back.
            self.collect_late();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(IoErrorKind::NeverStarted);
            }
            thread::sleep(left.min(Duration::from_millis(RETRY_MS)));
        }
    }

    fn run(
        &mut self,
        mut request: IoRequest,
        timeout: Duration,
        may_begin: impl Fn() -> bool,
    ) -> Result<Completion, IoError> {
        let overdue = IoError {
            path: request.disk.shared_path(),
            op: request.op,
            offset: request.offset,
            len: request.len,
            kind: IoErrorKind::TimedOut,
        };
        let start = Instant::now();
        let place = self.place(&request.disk, timeout);
        request.place = place.map_err(|kind| IoError { kind, ..overdue.clone() })?;
        if !may_begin() {
            return Err(IoError { kind: IoErrorKind::NeverStarted, ..overdue });
        }
        let begin = if request.op == Op::Write { timeout.min(BEGIN_MAX) } else { timeout };
        let begin = u64::try_from(begin.as_millis()).unwrap_or(u64::MAX);
        request.until = Some(monotonic_now().plus_millis(begin));
        let ticket = self.engine.submit(request);
        loop {
            // Measured before looking, so that a completion present at the deadline counts.
            let left = timeout.saturating_sub(start.elapsed());
            if let Some(done) = self.reap_but(Some(ticket)) {
                return Ok(done);
            }
            if left.is_zero() {
                // What no thread has come for is not to begin any more.
                let kind = match self.engine.withdraw(ticket) {
                    Some(_) => IoErrorKind::NeverStarted,
                    None => IoErrorKind::TimedOut,
                };
                return Err(IoError { kind, ..overdue });
            }
            let mut fds = [PollFd::new(self.engine.completion_fd(), PollFlags::POLLIN)];
            // It goes on: what the kernel has against the wait says nothing of it.
            if poll_for(&mut fds, left).is_err() {
                return Err(overdue);
            }
        }
    }

    /// Collects what has ended and discards it, but for this one.
    fn reap_but(&mut self, ticket: Option<Ticket>) -> Option<Completion> {
        self.reap();
        let mut wanted = None;
        while let Some(done) = self.reaped.pop() {
            if Some(done.ticket) == ticket {
                wanted = Some(done);
            } else {
                // Its disk may be waited for.
                self.free(done);
            }
        }
        wanted
    }
}

fn is_in_doubt(done: &Completion) -> bool {
    let error = done.result.as_ref().err().filter(|_| done.op == Op::Write);
    error.is_some_and(|error| error.kind.failure().leaves_doubt())
}

/// Polls until something is ready or `timeout` has passed; restarts after signals with the rest of the time.
pub(crate) fn poll_for(fds: &mut [PollFd<'_>], timeout: Duration) -> Result<(), Errno> {
    let start = Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        // Rounded up: rounding down would spin through the last millisecond.
        let millis = left.as_nanos().div_ceil(1_000_000);
        match poll(fds, PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)) {
            Ok(0) if !left.is_zero() => {}
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Access;
    use nix::sys::eventfd::EventFd;
    use sanlock_lease::timing::MonoTime;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Mutex;

    /// Of what is in flight, what ends at the next look, and how.
    type Ending = Arc<Mutex<Option<Result<(), IoErrorKind>>>>;

    struct Held {
        /// Of what is in flight nothing has begun.
        waiting: bool,
        requests: Vec<(Ticket, IoRequest)>,
        submitted: u64,
        ending: Ending,
        fd: EventFd,
    }

    impl Engine for Held {
        fn submit(&mut self, request: IoRequest) -> Ticket {
            self.submitted += 1;
            self.requests.push((Ticket(self.submitted), request));
            Ticket(self.submitted)
        }

        fn reap(&mut self, out: &mut Vec<Completion>) -> usize {
            let Some(ending) = self.ending.lock().unwrap().take().filter(|_| !self.requests.is_empty())
            else {
                return 0;
            };
            let (ticket, request) = self.requests.remove(0);
            let IoRequest { op, disk, offset, len, buf, place: _, of: _, until: _ } = request;
            let result = ending.map_err(|kind| IoError { path: disk.shared_path(), op, offset, len, kind });
            let now = Instant::now();
            out.push(Completion {
                ticket,
                op,
                disk,
                offset,
                len,
                buf,
                result,
                submitted_at: now,
                completed_at: now,
            });
            1
        }

        fn withdraw(&mut self, ticket: Ticket) -> Option<IoRequest> {
            let at = self.requests.iter().position(|(of, _)| self.waiting && *of == ticket)?;
            Some(self.requests.remove(at).1)
        }

        fn completion_fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }

        fn in_flight(&self) -> usize {
            self.requests.len()
        }

        fn kind(&self) -> EngineKind {
            EngineKind::Threads
        }
    }

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(100);
    const EIO: IoErrorKind = IoErrorKind::Os(libc::EIO);

    fn held(ending: &Ending) -> BlockingIo {
        let (fd, ending) = (EventFd::new().unwrap(), Arc::clone(ending));
        over(Held { waiting: false, requests: Vec::new(), submitted: 0, ending, fd })
    }

    fn over(engine: Held) -> BlockingIo {
        BlockingIo {
            engine: Box::new(engine),
            reaped: Vec::new(),
            spare: None,
            in_doubt: Vec::new(),
            asker: None,
            in_doubt_since: None,
        }
    }

    #[test]
    fn a_write_that_may_not_begin_is_not_made() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let disk = Arc::new(Disk::open(file.path(), Access::ReadWrite).unwrap());
        let mut io = held(&Ending::default());
        let failed = io.write_all_at_while(&disk, 0, &[1; 512], LONG, || false).unwrap_err();
        assert_eq!((failed.kind, io.outstanding()), (IoErrorKind::NeverStarted, 0));
        assert!(io.settled(LONG));
        let overdue = io.write_all_at_while(&disk, 0, &[1; 512], SOON, || true).unwrap_err();
        assert_eq!((overdue.kind, io.outstanding()), (IoErrorKind::TimedOut, 1));
    }

    /// It would be made when a thread comes, however late, for somebody who was told that it failed.
    #[test]
    fn a_write_that_no_thread_has_come_for_is_taken_back() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let disk = Arc::new(Disk::open(file.path(), Access::ReadWrite).unwrap());
        let (fd, ending) = (EventFd::new().unwrap(), Ending::default());
        let mut io = over(Held { waiting: true, requests: Vec::new(), submitted: 0, ending, fd });
        let failed = io.write_all_at(&disk, 0, &[1; 512], SOON).unwrap_err();
        assert_eq!((failed.kind, io.outstanding()), (IoErrorKind::NeverStarted, 0));
        assert!(io.settled(LONG));
    }

    /// Nor is one begun that was allowed long ago.
    #[test]
    fn a_write_begins_soon_or_not_at_all() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let disk = Arc::new(Disk::open(file.path(), Access::ReadWrite).unwrap());
        let (sender, requests) = std::sync::mpsc::channel();
        struct Seen(std::sync::mpsc::Sender<(Op, Option<MonoTime>)>, Held);
        impl Engine for Seen {
            fn submit(&mut self, request: IoRequest) -> Ticket {
                self.0.send((request.op, request.until)).unwrap();
                self.1.submit(request)
            }
            fn reap(&mut self, out: &mut Vec<Completion>) -> usize {
                self.1.reap(out)
            }
            fn completion_fd(&self) -> BorrowedFd<'_> {
                self.1.completion_fd()
            }
            fn in_flight(&self) -> usize {
                self.1.in_flight()
            }
            fn kind(&self) -> EngineKind {
                self.1.kind()
            }
        }
        let ending = Ending::default();
        let fd = EventFd::new().unwrap();
        let held =
            Held { waiting: false, requests: Vec::new(), submitted: 0, ending: Arc::clone(&ending), fd };
        let engine = Box::new(Seen(sender, held));
        let mut io = BlockingIo { engine, ..self::held(&Ending::default()) };
        let mut begins_within = |write: bool| {
            *ending.lock().unwrap() = Some(Ok(()));
            let start = monotonic_now();
            if write {
                io.write_all_at(&disk, 0, &[1; 512], LONG).unwrap();
            } else {
                io.read_exact_at(&disk, 0, &mut [0; 512], LONG).unwrap();
            }
            let (op, until) = requests.recv().unwrap();
            assert_eq!(op == Op::Write, write);
            until.unwrap().millis_since(start)
        };
        assert!(begins_within(true) < 6_000);
        assert!(begins_within(false) >= 100_000);
    }

    #[test]
    fn a_write_that_ends_in_doubt_late_or_in_time_has_not_settled_before_the_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, [0; 4096]).unwrap();
        let disk = Arc::new(Disk::open(&path, Access::ReadWrite).unwrap());
        for late in [true, false] {
            // What a refusal, a success and a read leave behind is settled at once.
            for (ending, write, settled) in [
                (Err(EIO), true, false),
                (Err(IoErrorKind::Os(libc::ENOSPC)), true, true),
                (Ok(()), true, true),
                (Err(EIO), false, true),
            ] {
                let at = Ending::default();
                let mut io = held(&at);
                assert!(io.settled(LONG));
                if !late {
                    *at.lock().unwrap() = Some(ending);
                }
                let result = if write {
                    io.write_all_at(&disk, 0, &[1; 512], SOON)
                } else {
                    io.read_exact_at(&disk, 0, &mut [0; 512], SOON)
                };
                if late {
                    assert_eq!(result.unwrap_err().kind, IoErrorKind::TimedOut);
                    assert!(!io.settled(Duration::ZERO), "it is outstanding");
                    *at.lock().unwrap() = Some(ending);
                } else {
                    assert_eq!(result.map_err(|error| error.kind), ending);
                }
                assert_eq!(io.settled(LONG), settled, "{late} {ending:?} {write}");
                assert_eq!(io.in_doubt.len(), usize::from(!settled), "its buffer is used for nothing else");
                assert!(io.settled(Duration::ZERO));
                thread::sleep(SOON);
                assert!(io.settled(SOON), "the doubt is over");
            }
        }
    }

    /// A volume is not to stay open because nobody asks what became of an operation that nobody waits for.
    #[test]
    fn what_ends_late_lets_go_of_its_disk_while_another_one_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let [slow, other] = ["slow", "other"].map(|name| {
            std::fs::write(dir.path().join(name), [0; 4096]).unwrap();
            Disk::open(&dir.path().join(name), Access::ReadWrite).unwrap()
        });
        let at = Ending::default();
        let mut io = held(&at);
        io.read_exact_at(&slow, 0, &mut [0; 512], SOON).unwrap_err();
        assert_eq!(Arc::strong_count(&slow), 2);
        *at.lock().unwrap() = Some(Ok(()));
        io.read_exact_at(&other, 0, &mut [0; 512], SOON).unwrap_err();
        assert_eq!(Arc::strong_count(&slow), 1);
    }

    /// The next operation's look collects it too.
    #[test]
    fn a_doubt_is_not_lost_to_the_wait_for_another_operation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, [0; 4096]).unwrap();
        let disk = Arc::new(Disk::open(&path, Access::ReadWrite).unwrap());
        let at = Ending::default();
        let mut io = held(&at);
        io.write_all_at(&disk, 0, &[1; 512], SOON).unwrap_err();
        *at.lock().unwrap() = Some(Err(EIO));
        io.read_exact_at(&disk, 0, &mut [0; 512], SOON).unwrap_err();
        *at.lock().unwrap() = Some(Ok(()));
        assert!(!io.settled(LONG));
        assert!(io.settled(Duration::ZERO));
        assert_eq!(io.take_in_doubt().len(), 1);
    }
}
