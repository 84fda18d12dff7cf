//! The moment when the machine wakes up: sleeps of this thread are counted in time that it is awake, and go on as if nothing had been.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Seconds since 1970 at which nothing waits any more: the year 2242. Larger ones the kernel may cut.
const NEVER: i64 = 1 << 33;

/// Readable after the machine woke up, and after its clock was set.
#[derive(Debug)]
pub(super) struct Awake(TimerFd);

impl Awake {
    /// # Errors
    /// No descriptor is to be had.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
        // The kernel cancels it when the clock jumps, which it does whenever the machine has slept.
        let when = Expiration::OneShot(TimeSpec::new(NEVER, 0));
        let how = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
        timer.set(when, how)?;
        Ok(Self(timer))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes it wait for the next time.
    pub(super) fn again(&self) {
        // ECANCELED is what was waited for.
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    #[test]
    fn nothing_is_to_be_read_while_the_clock_goes_on() {
        let awake = Awake::new().unwrap();
        awake.again();
        assert_eq!(poll(&mut [PollFd::new(awake.fd(), PollFlags::POLLIN)], PollTimeout::from(50_u8)), Ok(0));
    }
}
