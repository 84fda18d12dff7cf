//! One operation at a time, each with a time limit: for tools that do a few transfers and exit.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::buffer::{AlignedBuf, MAX_IO_LEN};
use crate::calls::{CallPlace, RETRY_MS};
use crate::disk::Disk;
use crate::engine::{Completion, Engine, EngineKind, IoRequest, Ticket};
use crate::error::{EngineError, IoError, IoErrorKind, Op};
use crate::opens::Asker;

/// Synchronous transfers with a deadline over an [`Engine`].
///
/// An operation that times out stays outstanding inside; its late completion is collected and discarded by a later call.
/// Dropping never waits (see [`Engine`]).
pub struct BlockingIo {
    engine: Box<dyn Engine>,
    reaped: Vec<Completion>,
    spare: Option<AlignedBuf>,
    /// For whom operations are counted.
    asker: Option<Asker>,
}

impl BlockingIo {
    /// Creates the façade over an engine of its own.
    ///
    /// # Errors
    /// As [`EngineKind::create`].
    pub fn new(kind: EngineKind) -> Result<Self, EngineError> {
        Ok(Self { engine: kind.create()?, reaped: Vec::new(), spare: None, asker: None })
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
    /// meanwhile; [`IoErrorKind::Short`] at the end of the disk;
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
        let done = self.run(
            IoRequest { len: buf.len(), ..IoRequest::read(Arc::clone(disk), offset, aligned) },
            timeout,
        )?;
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
        let mut aligned = self.buffer(Op::Write, disk, offset, data.len(), timeout)?;
        aligned[..data.len()].copy_from_slice(data);
        let done = self.run(
            IoRequest { len: data.len(), ..IoRequest::write(Arc::clone(disk), offset, aligned) },
            timeout,
        )?;
        self.spare = Some(done.buf);
        done.result
    }

    /// Operations that timed out and have not completed as far as known.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.engine.in_flight()
    }

    /// Collects and discards late completions; returns how many operations are still outstanding.
    pub fn collect_late(&mut self) -> usize {
        self.engine.reap(&mut self.reaped);
        self.reaped.clear();
        self.engine.in_flight()
    }

    fn buffer(
        &mut self,
        op: Op,
        disk: &Disk,
        offset: u64,
        len: usize,
        timeout: Duration,
    ) -> Result<AlignedBuf, IoError> {
        if !(1..=MAX_IO_LEN).contains(&len) || timeout.is_zero() {
            let kind = IoErrorKind::Os(libc::EINVAL);
            return Err(IoError { path: disk.shared_path(), op, offset, len, kind });
        }
        Ok(self.spare.take().filter(|buf| buf.len() >= len).unwrap_or_else(|| AlignedBuf::zeroed(len)))
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

    fn run(&mut self, mut request: IoRequest, timeout: Duration) -> Result<Completion, IoError> {
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
        let ticket = self.engine.submit(request);
        loop {
            // Measured before looking, so that a completion present at the deadline counts.
            let left = timeout.saturating_sub(start.elapsed());
            if let Some(done) = self.reap_one(ticket) {
                return Ok(done);
            }
            if left.is_zero() {
                return Err(overdue);
            }
            let mut fds = [PollFd::new(self.engine.completion_fd(), PollFlags::POLLIN)];
            if let Err(errno) = poll_for(&mut fds, left) {
                return Err(IoError { kind: IoErrorKind::Os(errno as i32), ..overdue });
            }
        }
    }

    fn reap_one(&mut self, ticket: Ticket) -> Option<Completion> {
        self.engine.reap(&mut self.reaped);
        self.reaped.drain(..).find(|done| done.ticket == ticket)
    }
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
